"""Kernels in threads: they hold no lock of the interpreter."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from amf.jit.decorators import index


@lru_cache(maxsize=1024)
def spans(number: int, n_threads: int) -> tuple[tuple[Any, Any], ...]:
    """(first, last) of each thread, of so many trees or rows."""
    n = min(n_threads, number)
    return tuple(pairwise(index(number * k // n) for k in range(n + 1)))


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="amf-trees")


if hasattr(os, "register_at_fork"):
    # The child has none of the threads that the pools of its parent wait for.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _run(job: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """What a thread does of a job that has not been cancelled."""
    if job.set_running_or_notify_cancel():
        try:
            job.set_result(function(*arguments))
        except BaseException as error:
            job.set_exception(error)


def side_by_side(n_threads: int, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
    """Call a function in threads, once with each of these arguments, and wait for all of them.

    An exception that comes meanwhile, such as KeyboardInterrupt, is raised once they have ended: kernels cannot be
    stopped, and until then the memory that they work on has to stay where it is.
    """
    jobs: list[Future[Any]] = []
    try:
        for arguments in calls:
            jobs.append(Future())  # before a thread has it: an interrupt may come in the middle of `submit`
            _pool(n_threads).submit(_run, jobs[-1], function, arguments)
        wait(jobs)
    except BaseException:
        while not all(job.done() for job in jobs):
            with contextlib.suppress(BaseException):
                wait([job for job in jobs if not job.cancel()])
        raise
    for job in jobs:
        job.result()
