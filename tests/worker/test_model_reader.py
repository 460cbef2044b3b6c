"""Models that only the store has, read beside the loop by threads of their partition."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.worker.support.tight import Tight, saved
from worker.base.errors import Transient
from worker.checkpoint import Manifest
from worker.service import SystemClock
from worker.task.model_reader import ModelReader


class Silent:
    """Checkpoints of which some models never come."""

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.asked: list[str] = []
        self.released = threading.Event()
        self.failure: Exception | None = None

    def load_one(self, manifest: Manifest, key: str) -> bytes:
        self.asked.append(key)
        if key in self.silent:
            self.released.wait(30)
            if self.failure is not None:
                raise self.failure
        return key.encode()


def test_reads_that_hang_hold_up_no_other_partition_and_are_given_up_with_their_own(monkeypatch: Any) -> None:
    monkeypatch.setattr("worker.task.model_reader.FETCH_S", 0.05)
    new_fetchers = partial(ThreadPoolExecutor, 2)
    silent, whole = Silent(*"abcdef"), Silent()
    stuck, other = (ModelReader(SystemClock(), new_fetchers) for _ in range(2))
    bench = Tight()
    saved(bench)
    stuck.follow(silent, bench.newest())
    other.follow(whole, bench.newest())
    with pytest.raises(Transient, match=r"model 'a' has not come from the store in 0\.05 s$"):
        stuck.prefetch("abcdef")
    other.prefetch("xyz")
    assert [other.fetch(key) for key in "xyz"] == [b"x", b"y", b"z"]
    stuck.follow(silent, bench.newest())
    stuck.prefetch("")
    with pytest.raises(Transient):
        stuck.prefetch("g")  # it waits behind the two that hang
    stuck.close()
    silent.released.set()
    time.sleep(0.1)
    assert sorted(silent.asked) == ["a", "b"]  # what waited behind them is not read any more


def test_a_model_that_failed_to_come_is_waited_for_by_its_reason(monkeypatch: Any) -> None:
    monkeypatch.setattr("worker.task.model_reader.FETCH_S", 0.05)
    silent = Silent("a")
    silent.failure = Transient("the store says 503")
    reader, bench = ModelReader(SystemClock(), partial(ThreadPoolExecutor, 2)), Tight()
    saved(bench)
    reader.follow(silent, bench.newest())
    with pytest.raises(Transient):
        reader.prefetch("a")
    silent.released.set()
    time.sleep(0.1)
    silent.released.clear()
    with pytest.raises(Transient, match=r"model 'a' has not come from the store in 0\.05 s, after: the store says 503"):
        reader.prefetch("a")
    silent.released.set()
