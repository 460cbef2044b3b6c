"""Fail points: the moments of the worker's life at which a test makes it die, freeze, fail or dawdle.

    AMF_FAILPOINT=name:n[:action]     kill (the default: SIGKILL), stop (SIGSTOP), raise, sleep=SECONDS

acts once, when the process passes the point for the n-th time. Without the variable, which nobody but a test sets, a
point is a call of an empty function.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Mapping

FAIL_POINTS: Mapping[str, str] = {
    "consumed": "Records of a partition were read, and nothing has been done with them.",
    "replayed": "Records before the committed offset were learned again.",
    "learned": "A batch was predicted and learned; its outputs exist in memory alone.",
    "producing": "One more output of an open transaction was handed to the client; others are yet to come.",
    "offsets-sent": "The outputs and the offsets are in the transaction; its commit was not asked for.",
    "committed": "The broker has committed the transaction; the worker has not taken note of it.",
    "reopened": "A new producer has settled what the one before left open; the outcome is not known yet.",
    "settled": "The commit is known; the checkpoint that may be due was not begun.",
    "segment-written": "A segment is in the store; the manifest that points into it is not.",
    "manifest-written": "A checkpoint is complete in the store; the worker has not taken note of it.",
    "collecting": "A file that no checkpoint needs is about to be deleted.",
    "restoring": "A checkpoint was chosen; its models are about to be read.",
    "assigned": "Partitions were assigned, and where they start is not known.",
    "revoked": "Partitions are asked back, and nothing was done about it.",
    "lost": "Partitions are to be forgotten, somebody else may own them.",
}
"""Every point and what is true there."""


class Injected(Exception):
    """What the action `raise` raises: an error that the worker does not foresee."""


def bind(order: str | None) -> Callable[[str], None]:
    """The function that every point calls with its name. Raises ValueError for an order that names no point."""
    if not order:
        return _pass_by
    parsed = re.fullmatch(r"([a-z-]+):([1-9][0-9]*)(?::(kill|stop|raise|sleep=([0-9.]+)))?", order)
    if parsed is None or parsed[1] not in FAIL_POINTS:
        raise ValueError(f"AMF_FAILPOINT={order}: expected name:n[:action] with one of {', '.join(FAIL_POINTS)}")
    name, n, action, seconds = parsed[1], int(parsed[2]), parsed[3] or "kill", float(parsed[4] or 0)
    # Threads pass points too; the next number of a count is taken by one of them only.
    passages = itertools.count(1)

    def failpoint(at: str) -> None:
        if at == name and next(passages) == n:
            _act(at, action, seconds)

    return failpoint


def _pass_by(_: str) -> None:
    pass


def _act(name: str, action: str, seconds: float) -> None:
    if action == "raise":
        raise Injected(f"fail point {name}")
    if action.startswith("sleep"):
        time.sleep(seconds)
    else:
        os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)


failpoint = bind(os.environ.get("AMF_FAILPOINT"))
