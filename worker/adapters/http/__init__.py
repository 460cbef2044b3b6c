"""Adapter: the metrics, the page that shows them and the probes, over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable

from worker.adapters.http.exposition import parse
from worker.adapters.http.routes import Routes
from worker.adapters.http.server import BACKLOG, Server
from worker.base.errors import ConfigError
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.status import Board
from worker.config import Address

__all__ = ["Server", "parse", "serve"]

_log = Log(__name__)


def serve(
    metrics: Metrics,
    host: str,
    port: int,
    trouble: Callable[[], str | None] = lambda: None,
    board: Board | None = None,
    token: str | None = None,
) -> Server:
    """Serve metrics and board over HTTP; port 0 takes any free one. Raises ConfigError if it cannot listen.

    `trouble` says why the process is not alive, None where it is: what /live answers, with status 503 or 200. With a
    `token` figures are for those alone who have it.
    """
    try:
        listener = _listener(host, port)
    except OSError as error:
        raise ConfigError(
            f"metrics.listen: cannot listen on {Address(host, port)} ({error.strerror}): "
            "give another address (port 0 takes any free one), or end the process that has the port; "
            "several workers on one machine get ports of their own by run --processes"
        ) from error
    bound = str(listener.getsockname()[0])
    is_local = bound == "::1" or bound.startswith("127.")
    if not is_local and token is None:
        _log.warning(
            "metrics-open",
            f"metrics.listen is {Address(host, port)}, and there is no token: whoever can reach it can read it",
            detail="names of models, features and classes, and how well they are predicted",
            hint="Set metrics.token, or let a firewall or network policy admit the scraper alone",
        )
    return Server(listener, Routes(metrics, board or Board(), trouble, token, is_local=is_local))


def _listener(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OSError, also where the machine has no IPv6 at all."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
