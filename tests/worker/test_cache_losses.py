"""Models that left the memory while the spill is full or broken, or the store does not answer."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from tests.worker.support.cached import Store, away, cached_partition, entry_of, learn
from tests.worker.support.fakes import FakeSpill
from tests.worker.support.tasks import state, taken
from worker.adapters.spill import Spill
from worker.base.errors import StateLost, Transient
from worker.state.cache import Cache
from worker.task.task import Task


def without_room() -> tuple[Store, Cache, Task]:
    """A partition with the models a and b, for which there is room neither in memory nor in the spill."""
    store, cache = Store(), Cache(1, FakeSpill(0))
    here = cached_partition(cache, store=store)
    learn(here, "a", "b")
    return store, cache, here


def with_models_in_the_store_alone() -> tuple[Store, Task]:
    """A partition whose models a and b only the last checkpoint has."""
    store, cache, here = without_room()
    store.save(here)
    cache.shrink()
    return store, here


def test_where_there_is_no_room_only_what_is_saved_leaves(caplog: pytest.LogCaptureFixture) -> None:
    store, cache, here = without_room()
    with caplog.at_level(logging.WARNING):
        cache.shrink()
        cache.shrink()
    [warning] = caplog.records
    assert (warning.levelname, away(here)) == ("WARNING", set())
    assert "raise models.spill_bytes" in warning.getMessage(), "it says what to do"
    store.save(here)
    learn(here, "b")
    cache.shrink()
    assert away(here) == {"a"}
    before = store.saved["a"].data
    assert (state(here)["a"], store.asked) == (before, ["a"])


def test_a_change_while_a_snapshot_is_written_is_not_saved_by_it() -> None:
    store, cache, here = without_room()
    frozen, _ = here.models.snapshot()
    learn(here, "a")
    store.saved = taken(frozen)
    here.models.snapshot_done()
    cache.shrink()
    assert away(here) == {"b"}


def test_while_the_store_does_not_answer_a_batch_waits_and_nothing_is_learned() -> None:
    store, here = with_models_in_the_store_alone()
    before = state(here)
    store.error = Transient("down")
    with pytest.raises(Transient):
        learn(here, "new", "a")
    store.error = None
    assert (state(here), here.position, here.models.dirty) == (before, 2, False)
    learn(here, "new", "a")
    assert state(here).keys() == {"a", "b", "new"}


def test_spilled_models_come_back_while_the_store_does_not_answer() -> None:
    store = Store()
    cache = Cache(1, FakeSpill())
    here = cached_partition(cache, store=store)
    learn(here, "a", "b")
    cache.shrink()
    store.error = Transient("down")
    learn(here, "a", "b")
    assert (away(here), store.asked) == (set(), [])


def test_a_saved_model_that_the_spill_lost_comes_from_the_checkpoint() -> None:
    store, spill = Store(), FakeSpill()
    cache = Cache(1, spill)
    here, whole = cached_partition(cache, store=store), cached_partition(Cache())
    for each in (here, whole):
        learn(each, "a")
    store.save(here)
    cache.shrink()
    spill.places[0].damaged = True
    for each in (here, whole):
        learn(each, "a")
    assert (state(here), store.asked) == (state(whole), ["a"])


@pytest.mark.parametrize("error", [None, Transient("down"), StateLost("gone")])
def test_a_model_that_neither_spill_nor_checkpoint_gives_is_a_lost_state(error: Exception | None) -> None:
    store, spill = Store(), FakeSpill()
    cache = Cache(1, spill)
    here = cached_partition(cache, store=store)
    learn(here, "a")
    if error is not None:
        store.save(here)
        store.error = error
    cache.shrink()
    spill.places[0].damaged = True
    with pytest.raises(StateLost):
        learn(here, "a")


def test_a_snapshot_of_what_is_lost_fails() -> None:
    spill = FakeSpill()
    cache = Cache(1, spill)
    here = cached_partition(cache)
    learn(here, "a")
    frozen, _ = here.models.snapshot()
    cache.shrink()
    spill.places[0].damaged = True
    with pytest.raises(StateLost):
        frozen["a"].take()


def test_a_snapshot_of_everything_has_what_only_the_last_checkpoint_has() -> None:
    store, here = with_models_in_the_store_alone()
    here.models.mark_all_changed()
    frozen, _ = here.models.snapshot()
    assert {key: each.data for key, each in taken(frozen).items()} == {k: each.data for k, each in store.saved.items()}


def test_bytes_that_are_no_model_are_a_lost_state(tmp_path: Any) -> None:
    spill = Spill(str(tmp_path), 1_000_000)
    cache = Cache(1, spill)
    here = cached_partition(cache)
    learn(here, "a")
    cache.shrink()
    entry_of(here, "a").place = spill.put(b"something else")
    with pytest.raises(StateLost, match="'a' does not come back"):
        learn(here, "a")


@pytest.mark.parametrize("spill", [FakeSpill(0), FakeSpill()], ids=["no room", "lost"])
def test_a_model_that_the_store_gives_is_looked_through(spill: FakeSpill) -> None:
    """The spill alone is trusted: what it gives is known to be what it was given."""
    store, cache = Store(), Cache(1, spill)
    here = cached_partition(cache, store=store)
    learn(here, "a")
    store.save(here)
    cache.shrink()
    for place in spill.places:
        place.damaged = True
    data = store.saved["a"].data
    store.saved["a"] = msgspec.structs.replace(store.saved["a"], data=data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StateLost, match="'a' does not come back"):
        learn(here, "a")
    assert store.asked == ["a"]
