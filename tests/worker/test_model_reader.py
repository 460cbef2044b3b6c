"""Models that only the store has, read beside the loop by threads of their partition."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.worker.support.checkpoints import files, write
from tests.worker.support.stores import DictStore
from tests.worker.support.tight import Tight, saved
from worker.base.errors import StateLost, Transient
from worker.checkpoint import Checkpoints, Manifest
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
    bench = Tight()
    saved(bench)
    stuck, other = (ModelReader(each, bench.newest(), SystemClock(), new_fetchers) for each in (silent, whole))
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
    bench = Tight()
    saved(bench)
    reader = ModelReader(silent, bench.newest(), SystemClock(), partial(ThreadPoolExecutor, 2))
    with pytest.raises(Transient):
        reader.prefetch("a")
    silent.released.set()
    time.sleep(0.1)
    silent.released.clear()
    with pytest.raises(Transient, match=r"model 'a' has not come from the store in 0\.05 s, after: the store says 503"):
        reader.prefetch("a")
    silent.released.set()


def test_nothing_of_an_older_checkpoint_is_taken_for_that_of_a_newer_one(monkeypatch: Any) -> None:
    monkeypatch.setattr("worker.task.model_reader.FETCH_S", 0.05)
    older, newer, bench = Silent("b"), Silent("b"), Tight()
    older.failure = Transient("the store says 503")
    older.released.set()
    saved(bench)
    manifest = bench.newest()
    reader = ModelReader(older, manifest, SystemClock(), partial(ThreadPoolExecutor, 2))
    for _ in range(2):
        reader.prefetch("ab")
    reader.follow(newer, manifest)
    with pytest.raises(Transient, match=r"model 'b' has not come from the store in 0\.05 s$"):
        reader.prefetch("ab")
    newer.released.set()
    assert [reader.fetch(key) for key in "ab"] == [b"a", b"b"]
    assert (sorted(older.asked), sorted(newer.asked)) == (["a", "b", "b"], ["a", "b"])
    reader.close()


def test_who_did_not_answer_in_time_is_not_waited_for_again(monkeypatch: Any) -> None:
    monkeypatch.setattr("worker.task.model_reader.FETCH_S", 0.05)
    silent, bench = Silent("a"), Tight()
    saved(bench)
    reader = ModelReader(silent, bench.newest(), SystemClock(), partial(ThreadPoolExecutor, 1))
    with pytest.raises(Transient):
        reader.prefetch("a")
    monkeypatch.setattr("worker.task.model_reader.FETCH_S", 30.0)
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: silent.released.wait(1.0) or silent.released.set())
        with pytest.raises(Transient):
            reader.prefetch("a")
    reader.close()


def test_a_model_that_was_taken_is_not_kept() -> None:
    whole, bench = Silent(), Tight()
    saved(bench)
    reader = ModelReader(whole, bench.newest(), SystemClock(), partial(ThreadPoolExecutor, 1))
    for _ in range(2):
        reader.prefetch("a")
        assert reader.fetch("a") == b"a"
    assert whole.asked == ["a", "a"]
    reader.close()


def test_a_model_that_the_checkpoint_has_not_or_not_whole_is_a_state_that_is_lost(
    store: DictStore, checkpoints: Checkpoints
) -> None:
    manifest = write(checkpoints, 2, {"a": b"1"})
    for new_fetchers in (None, partial(ThreadPoolExecutor, 1)):
        reader = ModelReader(checkpoints, manifest, SystemClock(), new_fetchers)
        reader.prefetch("ab")
        assert reader.fetch("a") == b"1"
        with pytest.raises(StateLost, match=r"events\[3\]: the checkpoint at offset 2 has no model 'b'"):
            reader.fetch("b")
        reader.close()
    [segment] = files(store, ".segment")
    store.objects[segment] = b"2"
    with pytest.raises(StateLost, match=r"does not hold model 'a' at byte 0"):
        reader.fetch("a")


def test_what_is_saved_meanwhile_takes_no_model_away_from_who_waits_for_it() -> None:
    silent, bench = Silent("a"), Tight()
    saved(bench)
    reader = ModelReader(silent, bench.newest(), SystemClock(), partial(ThreadPoolExecutor, 2))

    def save() -> bytes:
        while "b" not in silent.asked:
            time.sleep(0.001)
        data = reader.fetch("b")
        silent.released.set()
        return data

    with ThreadPoolExecutor(1) as writer:
        saving = writer.submit(save)
        reader.prefetch("ab")
        assert saving.result() == b"b"
    assert [reader.fetch(key) for key in "ab"] == [b"a", b"b"]
    reader.close()
