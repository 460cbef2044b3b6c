"""A model in a snapshot stays as it was, whoever comes to it first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import amf
from tests.worker.support.fakes import FakeSpill, config
from worker.base.records import Event
from worker.state import entry as entry_module
from worker.state.cache import Cache
from worker.state.copy_on_write import CopyOnWrite
from worker.state.entry import Entry
from worker.state.model import Model
from worker.state.model_store import ModelStore


@pytest.fixture(autouse=True)
def no_model_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_module, "SMALL_BYTES", 0)


@pytest.fixture
def model() -> Model:
    made = ModelStore(config().models.params_for).get("k")
    learn(made, 3)
    return made


@pytest.fixture
def entry(model: Model) -> Entry:
    made = Entry("k", model.spec, None)
    made.learned(model)
    made.measure()
    return made


def learn(model: Model, n: int) -> None:
    model.apply([Event([float(i)], "ab"[i % 2], None) for i in range(n)], predict=False)


def test_bytes_that_the_loop_held_are_those_of_the_snapshot(model: Model, entry: Entry) -> None:
    before = model.forest.dumps()
    frozen = CopyOnWrite(entry, Cache())
    frozen.hold()
    learn(model, 5)
    frozen.hold()
    assert model.forest.dumps() != before == frozen.take().data


def test_a_model_that_was_away_is_saved_with_its_figures_of_then(entry: Entry) -> None:
    place = FakeSpill().put(entry.saved().data)
    assert place is not None
    entry.leave(place)
    before, frozen = entry.saved(), CopyOnWrite(entry, Cache())
    frozen.hold()
    entry.samples, entry.nodes = 1000, 2000
    assert frozen.take() == before


def test_only_a_model_whose_bytes_are_to_be_taken_waits(entry: Entry) -> None:
    held, taken = CopyOnWrite(entry, Cache()), CopyOnWrite(entry, Cache())
    assert held.waiting_bytes == taken.waiting_bytes == entry.nbytes > 0
    held.hold()
    taken.take()
    assert held.waiting_bytes == taken.waiting_bytes == 0


def test_a_model_that_was_taken_is_not_held_again(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = CopyOnWrite(entry, Cache())
    frozen.take()
    monkeypatch.setattr(Entry, "copy", None)
    monkeypatch.setattr(Entry, "put_aside", None)
    frozen.hold()
    assert frozen.waiting_bytes == 0


@pytest.mark.parametrize(
    ("first", "second"), [(CopyOnWrite.take, CopyOnWrite.hold), (CopyOnWrite.hold, CopyOnWrite.take)]
)
def test_who_comes_second_waits_for_the_first(
    model: Model,
    entry: Entry,
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[CopyOnWrite], Any],
    second: Callable[[CopyOnWrite], Any],
) -> None:
    frozen, order = CopyOnWrite(entry, Cache()), []
    begun, go_on = threading.Event(), threading.Event()
    copy = model.forest.copy

    def slow_copy() -> amf.AMFClassifier:
        begun.set()
        go_on.wait()
        order.append("copied")
        return copy()

    def come_second() -> None:
        second(frozen)
        order.append("second is done")

    monkeypatch.setattr(model.forest, "copy", slow_copy)
    threads = [threading.Thread(target=first, args=(frozen,)), threading.Thread(target=come_second)]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == ["copied", "second is done"]


def test_the_loop_does_not_wait_for_bytes(model: Model, entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = CopyOnWrite(entry, Cache())
    begun, go_on = threading.Event(), threading.Event()
    dumps = amf.AMFClassifier.dumps_hashed

    def slow_dumps(forest: amf.AMFClassifier) -> tuple[bytes, str]:
        begun.set()
        go_on.wait()
        return dumps(forest)

    monkeypatch.setattr(amf.AMFClassifier, "dumps_hashed", slow_dumps)
    writer = threading.Thread(target=frozen.take)
    writer.start()
    assert begun.wait(10)
    loop = threading.Thread(target=frozen.hold)
    loop.start()
    loop.join(10)
    held = not loop.is_alive()
    go_on.set()
    writer.join(10)
    assert held


def test_of_a_small_model_bytes_are_made_once_and_no_copy(
    model: Model, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_module, "SMALL_BYTES", model.forest.nbytes)
    monkeypatch.setattr(amf.AMFClassifier, "copy", None)
    before, cache = entry.saved(), Cache()
    held, taken = CopyOnWrite(entry, cache), CopyOnWrite(entry, cache)
    assert taken.take() == before
    held.hold()
    assert cache.nbytes == len(before.data)
    learn(model, 5)
    monkeypatch.setattr(amf.AMFClassifier, "dumps_hashed", None)
    assert held.take() == before
    assert cache.nbytes == 0


def test_a_copy_that_leaves_memory_is_saved_from_where_it_went(entry: Entry) -> None:
    before, cache, spill = entry.saved(), Cache(), FakeSpill()
    copy = CopyOnWrite(entry, cache)
    copy.hold()
    assert cache.nbytes > 0
    assert copy.leave(spill)
    assert copy.leave(spill)  # it is there already
    assert (cache.nbytes, spill.used_bytes) == (0, len(before.data))
    assert copy.take() == before
    assert (cache.nbytes, spill.used_bytes) == (0, 0)


def test_a_copy_for_which_there_is_no_room_on_disk_stays_in_memory(entry: Entry) -> None:
    before, cache, full = entry.saved(), Cache(), FakeSpill(room=0)
    copy = CopyOnWrite(entry, cache)
    copy.hold()
    held_bytes = cache.nbytes
    assert not copy.leave(full)
    assert cache.nbytes == held_bytes > 0
    assert copy.take() == before
    assert cache.nbytes == 0


def test_a_copy_that_is_saved_or_given_up_by_now_takes_no_room_on_disk(entry: Entry) -> None:
    """The writer may take it, or let it go, after the loop has found it among those that could leave."""
    cache, spill = Cache(), FakeSpill()
    for let_go in (CopyOnWrite.take, CopyOnWrite.drop):
        copy = CopyOnWrite(entry, cache)
        copy.hold()
        let_go(copy)
        assert copy.leave(spill)
        assert (cache.nbytes, spill.places) == (0, [])
    gone = CopyOnWrite(entry, cache)
    gone.hold()
    gone.leave(spill)
    gone.drop()
    assert (cache.nbytes, spill.places) == (0, [])
