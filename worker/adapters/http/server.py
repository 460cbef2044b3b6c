"""A small HTTP server in one thread: requests without a body, one on each connection, all bounded.

Whoever is slow holds a connection for some seconds and nothing else. Where all connections are taken, that of the
client that has been sending its request for longest is given to the next one, so neither slow clients nor a flood keep
out those that ask whether the process lives.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from itertools import chain
from typing import Any

from worker.adapters.http.messages import BadRequest, Request, Response
from worker.base.log import Log

_log = Log(__name__)

MOST_CONNECTIONS = 100
BACKLOG = 128
"""Connections that wait to be accepted."""
HEAD_BYTES = 16_384
"""Most that a request may be."""
REQUEST_S = 5.0
"""Time to send a request."""
EXCHANGE_S = 15.0
"""Time from the first byte of a request to the last one of its answer."""
UNREAD_BYTES = 2**24
"""Most of what a client sends beyond its request that is read and dropped."""
CPU_SHARE = 0.2
"""Of one CPU, what the server takes in the long run: the rest is the worker's."""
CPU_BURST_S = 2.0

Answer = Callable[[Request], Awaitable[Response]]


class CpuBudget:
    """What one thread may take of a CPU: a share, and a burst of what it has not taken. That thread calls."""

    def __init__(
        self,
        share: float = CPU_SHARE,
        burst_s: float = CPU_BURST_S,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share = share
        self._burst_s = self._left_s = burst_s
        self._clock = clock
        self._used = used
        self._seen: tuple[float, float] | None = None

    @property
    def is_spent(self) -> bool:
        """Whether it has to wait until time has passed."""
        now_s, used_s = self._clock(), self._used()
        then_s, before_s = self._seen or (now_s, used_s)
        self._seen = now_s, used_s
        saved_s = min(self._left_s + self._share * (now_s - then_s), self._burst_s)
        # To refuse costs, too; but whoever comes after a flood must not wait for longer than the burst takes to come.
        self._left_s = max(saved_s - (used_s - before_s), -self._burst_s)
        return self._left_s <= 0


class Server:
    """Answers on a socket that is bound, in a thread of its own until `close`."""

    def __init__(self, listener: socket.socket, answer: Answer) -> None:
        self.port = int(listener.getsockname()[1])
        """The port it listens on, also where any free one was asked for."""
        self._listener = listener
        self._answer = answer
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Connections, the oldest first."""
        self._reading: dict[asyncio.StreamWriter, None] = {}
        """Those whose request is not here yet."""
        self._answered: dict[asyncio.StreamWriter, None] = {}
        """Those that have their answer, and have not hung up."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_complain)
        self._end = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Once this returns the port is free; a second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.cancel)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        # One connection at a time is accepted: where there are no file descriptors left, asyncio fails once for each.
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=HEAD_BYTES, backlog=1)
        self._listener.listen(BACKLOG)
        try:
            await asyncio.wait([self._end])
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._make_room()
        self._open[writer] = None
        # `drain` waits until the system has all of the answer: what is left here is lost when the connection is cut.
        writer.transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(EXCHANGE_S):
                writer.write(await self._exchange(reader, writer))
                await writer.drain()
                writer.write_eof()
                self._answered[writer] = None
                await _drop_rest(reader)
        except (OSError, asyncio.IncompleteReadError):
            pass  # A client that went away is no error of ours, and scanners do so all day.
        finally:
            writer.transport.abort()
            self._open.pop(writer, None)
            self._answered.pop(writer, None)

    def _make_room(self) -> None:
        """Let go of a client that has its answer, else of who has been sending its request for longest, else of
        the oldest one."""
        if len(self._open) >= MOST_CONNECTIONS:
            victim = next(chain(self._answered, self._reading, self._open))
            for clients in (self._answered, self._reading, self._open):
                clients.pop(victim, None)
            victim.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        self._reading[writer] = None
        try:
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            request = Request.of(head)
        except TimeoutError:
            return _bytes(Response(408, b"the request did not come to its end\n"))
        except asyncio.LimitOverrunError:
            return _bytes(Response(431, b"the request is too large\n"))
        except BadRequest:
            return _bytes(Response(400, b"that is no request of HTTP/1\n"))
        finally:
            self._reading.pop(writer, None)
        if request.method not in ("GET", "HEAD"):
            return _bytes(Response(405, b"here is nothing to change: GET or HEAD\n", headers={"Allow": "GET, HEAD"}))
        try:
            response = await self._answer(request)
        except Exception:
            _log.exception("no-answer", f"no answer to {request.method} {request.path}")
            response = Response(500, b"the server has failed; its log says how\n")
        return _bytes(response, with_body=request.method == "GET")


async def _drop_rest(reader: asyncio.StreamReader) -> None:
    """Read what else the client sends, such as a body, until it hangs up.

    What is unread when a connection is closed makes the system reset it, which takes the answer from the client.
    """
    n_bytes = 0
    while n_bytes < UNREAD_BYTES and (piece := await reader.read(HEAD_BYTES)):
        n_bytes += len(piece)


def _complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what no caller is there to be told."""
    error, what = context.get("exception"), context["message"]
    if isinstance(error, asyncio.CancelledError):
        return  # A client was still sending its request when the server was closed.
    fact = f"the server of metrics and page met {type(error or what).__name__}"
    if error is None or isinstance(error, OSError):
        is_full = error is not None and error.errno in (errno.EMFILE, errno.ENFILE)
        hint = "Let the process have more open files (ulimit -n, LimitNOFILE)" if is_full else None
        _log.warning("http-trouble", fact, detail=what if error is None else f"{what}: {error}", hint=hint)
        return
    try:
        raise error
    except Exception:
        _log.exception("http-trouble", f"{fact}: {what}")


def _bytes(response: Response, *, with_body: bool = True) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (response.body if with_body else b"")
