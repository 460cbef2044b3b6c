"""Models in bounded memory: whatever leaves and comes back, no output and no byte of a checkpoint changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.fakes import FakeSpill, config
from tests.worker.support.tasks import drawn, labelled, records, restore, state, taken
from worker.adapters.spill import Spill
from worker.base.errors import StateLost, Transient
from worker.base.metrics import Metrics
from worker.base.records import Record
from worker.checkpoint import SavedModel
from worker.config import Config
from worker.state import cache as cache_module
from worker.state.cache import Cache
from worker.state.entry import TRAFFIC_S, Entry
from worker.state.model_store import JUDGED_SAMPLES
from worker.task.allowance import Allowance
from worker.task.task import Task

NUMBER = 3


class Store:
    """The last checkpoint, as a partition asks for models of it."""

    def __init__(self) -> None:
        self.saved: dict[str, SavedModel] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None

    def fetch(self, key: str) -> bytes:
        self.asked.append(key)
        if self.error is not None:
            raise self.error
        return self.saved[key].data

    def save(self, here: Task) -> None:
        changed, removed = here.models.snapshot()
        self.saved = {key: each for key, each in (self.saved | taken(changed)).items() if key not in removed}
        here.models.snapshot_done()


def partition(cache: Cache, settings: Config | None = None, store: Store | None = None) -> Task:
    store = store or Store()
    here = Task(NUMBER, settings or config(), 1_000_000, cache)
    restore(here, list(store.saved.items()), 0, 0, store.fetch)
    here.go_live()
    return here


def away(here: Task) -> set[str]:
    return {entry.key for entry in here.models.entries() if entry.model is None}


def entry(here: Task, key: str) -> Entry:
    found = here.models.entry(key)
    assert found is not None
    return found


def learn(here: Task, *keys: str) -> None:
    here.process(records(*map(labelled, keys)))


def figures(cache: Cache) -> dict[str, float]:
    metrics = Metrics()
    cache.show(metrics)
    shown = {name: family.series() for name, family in metrics.families().items()}
    names = ("models", "models_away", "nodes", "model_bytes", "spill_bytes", "evictions_total")
    plain = {name: next(iter(shown[f"amf_{name}"].values())) for name in names}
    return plain | {labels.source: n for labels, n in shown["amf_loads_total"].items()}


# Nothing of it is part of the state


@given(
    st.integers(0, 10**9),
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12),
    st.sampled_from([1, 30_000, 60_000, None]),
    st.integers(0, 4),
)
def test_no_size_of_the_cache_changes_an_output_or_a_checkpoint(
    seed: int, steps: list[tuple[int, bool]], limit: int | None, room: int
) -> None:
    settings, source = config(tombstones="reset", null_key="nobody", max_models=3), drawn(seed, 60)
    free, cache = partition(Cache(), settings), Cache(limit, FakeSpill(room))
    stores = Store(), Store()
    tight = partition(cache, settings, stores[1])
    for n, saves in [*steps, (60, True)]:
        batch, source = source[:n], source[n:]
        assert tight.process(batch).outgoing == free.process(batch).outgoing
        cache.shrink()
        if saves:
            stores[0].save(free)
            stores[1].save(tight)
            assert stores[1].saved.keys() == stores[0].saved.keys()
            for key, saved in stores[0].saved.items():
                assert (stores[1].saved[key].data, stores[1].saved[key].spec) == (saved.data, saved.spec)
    assert state(tight) == state(free)


@given(st.integers(0, 10**9), st.integers(1, 5))
def test_a_restore_into_little_memory_is_the_same_state(seed: int, n: int) -> None:
    store, source = Store(), drawn(seed, 60)
    first = partition(Cache())
    first.process(source[:30])
    store.save(first)
    cache = Cache(1, FakeSpill())
    again = partition(cache, store=store)
    assert away(again) == store.saved.keys()
    assert state(again) == state(first)
    for start in range(30, 60, n):
        assert again.process(source[start : start + n]).outgoing == first.process(source[start : start + n]).outgoing
        cache.shrink()
    assert state(again) == state(first)


def test_those_not_used_for_longest_leave_however_many_there_are() -> None:
    """Several times as many as are put in order at a time, in two tables, some of them used at the same moment."""
    cache, rng = Cache(limit_bytes=10**9, spill=FakeSpill()), np.random.default_rng(0)
    entries = [
        Entry(f"key-{i}", "spec", None, table) for table in (cache.new_table(), cache.new_table()) for i in range(4000)
    ]
    uses = rng.integers(1, 3000, size=len(entries)).tolist()
    for entry, used in zip(entries, uses, strict=True):
        entry.used = used
    absent = set(rng.permutation(len(entries))[:500].tolist())
    for i in absent:
        entries[i].used = 0
    order = [entry.used for entry in cache._oldest()]
    assert order == sorted(used for i, used in enumerate(uses) if i not in absent)
    assert len({(id(entry.table), entry.slot) for entry in cache._oldest()}) == len(order)


def test_few_that_leave_do_not_have_all_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def argsort(numbers: np.ndarray, **kwargs: Any) -> np.ndarray:
        sizes.append(len(numbers))
        return np.lexsort((numbers,))

    monkeypatch.setattr(cache_module.np, "argsort", argsort)
    numbers = np.random.default_rng(0).permutation(100_000)
    assert numbers[next(cache_module._ascending(numbers))].tolist() == [*range(1024)]
    assert sizes == [1024]


@pytest.mark.parametrize("algorithm", ["amf-classifier", "amf-regressor"])
def test_a_snapshot_is_of_its_moment_wherever_its_models_go_meanwhile(algorithm: str) -> None:
    cache = Cache(1, FakeSpill())
    here = partition(cache, config(algorithm=algorithm, tombstones="reset"))
    here.process(records(*(labelled(key, 1.0, 2) for key in ("gone", "still", "back", "changed", "reset"))))
    before = state(here)
    for key in ("still", "changed", "reset"):
        cache._evict(entry(here, key))
    frozen, _ = here.models.snapshot()
    cache.shrink()
    here.process(records(("back", {"features": [3.0]}), labelled("changed", 2.0, 3), ("reset", None)))
    cache.shrink()
    assert {key: saved.data for key, saved in taken(frozen).items()} == before
    assert state(here)["changed"] != before["changed"]


def test_a_snapshot_of_what_is_away_tells_the_same_figures() -> None:
    source = drawn(5, 60)
    summaries = []
    for limit in (None, 1):
        cache = Cache(limit, FakeSpill())
        here = partition(cache)
        here.process(source)
        cache.shrink()
        frozen, _ = here.models.snapshot()
        summaries.append({key: saved.summary for key, saved in taken(frozen).items()})
    assert summaries[0] == summaries[1]
    assert all(each["samples"] > 0 for each in summaries[0].values())


# Who leaves, and when


def test_the_least_recently_used_leave_until_the_others_fit() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here, there = partition(cache), partition(cache)
    learn(here, "a", "b")
    learn(there, "c", "d")
    here.process(records(("a", {"features": [1.0]})))
    learn(there, "c")
    cache.shrink()
    for n in (3, 2):
        cache._limit_bytes = n * cache.nbytes // (n + 1)
        cache.shrink()
    assert (away(here), away(there)) == ({"b"}, {"d"})
    assert len(spill.places) == 2


def test_the_system_is_given_back_what_models_leave_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too small for those that stay and grow would be held for good."""
    given: list[int] = []
    cache = Cache(None, FakeSpill(), lambda: given.append(len(away(here)) + len(away(there))))
    here, there = partition(cache), partition(cache)
    learn(here, *"abcd")
    learn(there, "e")
    monkeypatch.setattr(cache_module, "HOLES_BYTES", 2 * entry(here, "a").nbytes)
    cache.shrink()
    for n in (4, 3, 2):
        cache._limit_bytes = n * cache.nbytes // (n + 1)
        cache.shrink()
        cache.shrink()
    assert given == [2]
    # What is no part of the state any more has left as well.
    for key in "cd":
        here.models.drop(key)
    cache.shrink()
    assert given == [2, 2]


def test_room_is_made_for_what_is_to_come() -> None:
    cache = Cache(None, FakeSpill())
    here = partition(cache)
    learn(here, *"abcd")
    each = cache.nbytes // 4
    cache._limit_bytes = 4 * each
    for coming, staying in ((0, 4), (1, 3), (each, 3), (2 * each, 2), (9 * each, 0)):
        cache.shrink(coming)
        assert cache.nbytes == staying * each


@pytest.mark.parametrize("prefix", ["", "new-"])
def test_a_turn_brings_no_more_models_into_memory_than_there_is_room_for(prefix: str) -> None:
    cache, keys = Cache(None, FakeSpill()), [f"key-{i}" for i in range(40)]
    here = partition(cache)
    learn(here, *keys)
    limit = cache._limit_bytes = cache.nbytes // 4
    cache.shrink()
    here.add(records(*(labelled(prefix + key) for key in keys * 2)))
    while here.buffer:
        allowance = Allowance(1, 0, limit // 2)
        batch = here.next_batch(allowance)
        cache.shrink(allowance.coming_bytes)
        here.process(batch)
        # Nothing leaves during a batch; the models in it have grown by a few nodes.
        assert cache.nbytes <= 1.05 * limit
    assert len(here.models) - len(away(here)) == 10


def test_the_models_of_a_turn_are_the_last_to_leave_for_those_that_it_brings() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = partition(cache)
    learn(here, *"abcd")
    cache._limit_bytes = cache.nbytes
    learn(here, "e")
    cache.shrink()
    assert away(here) == {"a"}
    here.add(records(labelled("b"), labelled("a"), (None, b""), labelled("b")))
    allowance = Allowance(1, 0, 2**20)
    batch = here.next_batch(allowance)
    cache.shrink(allowance.coming_bytes)
    assert (len(batch), away(here)) == (4, {"a", "c"})


def test_copies_that_wait_to_be_saved_leave_before_any_model() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = partition(cache)
    learn(here, *"ab")
    before, models_bytes = state(here), cache.nbytes
    copies, _ = here.models.snapshot()
    learn(here, *"ab")
    copied = cache.nbytes - models_bytes
    for limit, staying in ((models_bytes + copied - 1, 1), (models_bytes, 0), (models_bytes - 1, 0)):
        cache._limit_bytes = limit
        cache.shrink()
        assert cache.nbytes == models_bytes * (1 - len(away(here)) / 2) + staying * copied / 2
    assert (away(here), len(spill.places)) == ({"a"}, 3)
    assert {key: copy.take().data for key, copy in copies.items()} == {key: before[key] for key in "ab"}
    assert len(spill.places) == 1


def test_bytes_on_disk_become_a_copy_without_being_read() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = partition(cache)
    learn(here, *"ab")
    before = state(here)
    cache._limit_bytes = 0
    cache.shrink()
    cache._limit_bytes = None
    copies, _ = here.models.snapshot()
    assert [copy.waiting_bytes for copy in copies.values()] == [0, 0]
    places, read = list(spill.places), []
    here.models.get("a")
    spill.hook = read.append
    learn(here, "a")
    here.models.drop("b")
    assert cache._copies == {}
    assert (read, spill.places, cache.nbytes) == ([], places, entry(here, "a").nbytes + cache_module.MODEL_BYTES)
    assert {key: copy.take().data for key, copy in copies.items()} == {key: before[key] for key in "ab"}
    assert spill.places == []


def test_what_was_restored_stays_where_there_is_room_for_it() -> None:
    store = Store()
    before = partition(Cache(), store=store)
    learn(before, *"abcd")
    store.save(before)
    cache = Cache(
        sum(each.nbytes + cache_module.MODEL_BYTES for each in map(partial(entry, before), "abcd")), FakeSpill()
    )
    here = partition(cache, store=store)
    cache.shrink()
    assert (len(store.saved), away(here)) == (4, set())


def test_without_a_limit_none_leaves() -> None:
    cache = Cache(None, FakeSpill())
    here = partition(cache)
    learn(here, *"abc")
    cache.shrink()
    assert away(here) == set()


def test_all_models_of_a_batch_stay_while_it_is_taken() -> None:
    cache = Cache(1, FakeSpill())
    here = partition(cache)
    learn(here, *"abc")
    assert away(here) == set()
    cache.shrink()
    assert away(here) == set("abc")


def test_what_came_back_and_did_not_change_leaves_again_without_being_written() -> None:
    spill = FakeSpill()
    cache = Cache(1, spill)
    here = partition(cache)
    learn(here, "a")
    cache.shrink()
    [place] = spill.places
    here.process(records(("a", {"features": [1.0]})))
    assert away(here) == set()
    cache.shrink()
    assert (away(here), spill.places) == ({"a"}, [place])
    learn(here, "a")
    assert spill.places == []
    cache.shrink()
    assert spill.places != [place]


def test_figures_follow_every_coming_and_going() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = partition(cache, config(tombstones="reset"))
    learn(here, *"abcd")
    sizes = {key: entry(here, key).nbytes + cache_module.MODEL_BYTES for key in "abcd"}
    assert figures(cache) == {
        "models": 4, "models_away": 0, "nodes": 8, "model_bytes": sum(sizes.values()), "spill_bytes": 0,
        "evictions_total": 0, "spill": 0, "checkpoint": 0,
    }  # fmt: skip
    cache.shrink()
    cache._limit_bytes = sizes["d"]
    cache.shrink()
    assert figures(cache) == {
        "models": 1, "models_away": 3, "nodes": 2, "model_bytes": sizes["d"], "spill_bytes": spill.used_bytes,
        "evictions_total": 3, "spill": 0, "checkpoint": 0,
    }  # fmt: skip
    here.process(records(("a", {"features": [1.0]}), ("b", None)))
    assert (cache.nbytes, figures(cache)["models_away"]) == (sizes["a"] + sizes["d"], 1)
    here.close()
    assert (cache.nbytes, cache.nodes, spill.places) == (0, 0, [])
    assert figures(cache)["models"] == figures(cache)["models_away"] == 0


def test_loads_are_counted_by_where_they_are_from() -> None:
    spill, store = FakeSpill(1), Store()
    cache = Cache(1, spill)
    here = partition(cache, store=store)
    learn(here, "a", "b")
    store.save(here)
    cache.shrink()
    learn(here, "a", "b")
    assert {name: n for name, n in figures(cache).items() if name in ("spill", "checkpoint")} == {
        "spill": 1,
        "checkpoint": 1,
    }


def test_the_scores_of_a_model_outlast_its_absence() -> None:
    cache = Cache(1, FakeSpill())
    here = partition(cache)
    for expected in (1, 2, 3):
        learn(here, "a")
        assert entry(here, "a").figures().scores.count == expected
        cache.shrink()
        told = entry(here, "a").figures()
        assert (told.samples, told.memory_bytes, told.scores.count) == (expected, 0, expected)


# The spill is full, or broken


def test_where_there_is_no_room_only_what_is_saved_leaves(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    cache = Cache(1, FakeSpill(0))
    here = partition(cache, store=store)
    learn(here, "a", "b")
    with caplog.at_level(logging.WARNING):
        cache.shrink()
        cache.shrink()
    assert ([record.levelname for record in caplog.records], away(here)) == (["WARNING"], set())
    store.save(here)
    learn(here, "b")
    cache.shrink()
    assert away(here) == {"a"}
    before = store.saved["a"].data
    assert (state(here)["a"], store.asked) == (before, ["a"])


def test_a_change_while_a_snapshot_is_written_is_not_saved_by_it() -> None:
    store = Store()
    cache = Cache(1, FakeSpill(0))
    here = partition(cache, store=store)
    learn(here, "a", "b")
    frozen, _ = here.models.snapshot()
    learn(here, "a")
    store.saved = taken(frozen)
    here.models.snapshot_done()
    cache.shrink()
    assert away(here) == {"b"}


def test_while_the_store_does_not_answer_a_batch_waits_and_nothing_is_learned() -> None:
    store = Store()
    cache = Cache(1, FakeSpill(0))
    here = partition(cache, store=store)
    learn(here, "a", "b")
    store.save(here)
    cache.shrink()
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
    here = partition(cache, store=store)
    learn(here, "a", "b")
    cache.shrink()
    store.error = Transient("down")
    learn(here, "a", "b")
    assert (away(here), store.asked) == (set(), [])


def test_a_saved_model_that_the_spill_lost_comes_from_the_checkpoint() -> None:
    store, spill = Store(), FakeSpill()
    cache = Cache(1, spill)
    here, whole = partition(cache, store=store), partition(Cache())
    for each in (here, whole):
        learn(each, "a")
    store.save(here)
    cache.shrink()
    spill.places[0].damaged = True
    for each in (here, whole):
        learn(each, "a")
    assert (state(here), store.asked) == (state(whole), ["a"])


@pytest.mark.parametrize("error", [None, Transient("down"), StateLost("gone")])
def test_a_model_that_nobody_has_is_a_lost_state(error: Exception | None) -> None:
    store, spill = Store(), FakeSpill()
    cache = Cache(1, spill)
    here = partition(cache, store=store)
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
    here = partition(cache)
    learn(here, "a")
    frozen, _ = here.models.snapshot()
    cache.shrink()
    spill.places[0].damaged = True
    with pytest.raises(StateLost):
        frozen["a"].take()


def test_a_snapshot_of_everything_has_what_only_the_last_checkpoint_has() -> None:
    store = Store()
    cache = Cache(1, FakeSpill(0))
    here = partition(cache, store=store)
    learn(here, "a", "b")
    store.save(here)
    cache.shrink()
    here.models.mark_all_changed()
    frozen, _ = here.models.snapshot()
    assert {key: each.data for key, each in taken(frozen).items()} == {k: each.data for k, each in store.saved.items()}


def test_bytes_that_are_no_model_are_a_lost_state(tmp_path: Any) -> None:
    spill = Spill(str(tmp_path), 1_000_000)
    cache = Cache(1, spill)
    here = partition(cache)
    learn(here, "a")
    cache.shrink()
    entry(here, "a").place = spill.put(b"something else")
    with pytest.raises(StateLost, match="'a' does not come back"):
        learn(here, "a")


# What only the loop does with it


def test_leaders_are_the_models_that_learned_most(tmp_path: Any) -> None:
    cache = Cache(None, FakeSpill())
    here = partition(cache, config(tombstones="reset"))

    def names() -> list[str]:
        return [each.key for each in here.models.leaders(2, 0.0)]

    assert names() == []
    learn(here, *"aaabbc")
    assert names() == ["a", "b"]
    learn(here, *"ccc")
    cache._limit_bytes = 1
    cache.shrink()
    assert names() == ["c", "a"]
    here.process(records(("c", None)))
    assert names() == ["a", "b"]
    learn(here, "d")
    here.process(records(("d", None)))
    assert names() == ["a", "b"]


def test_of_late_counts_more_than_long_ago() -> None:
    here = partition(Cache(), config())

    def leader(now_s: float) -> str:
        return here.models.leaders(1, now_s)[0].key

    learn(here, *"aaaab")
    assert leader(0.0) == "a"
    learn(here, "b", "b")
    assert leader(600.0) == "a"
    learn(here, "b", "b")
    assert leader(2 * TRAFFIC_S) == "b"
    assert leader(1e9) == "b", "nothing was learned in between"
    learn(here, "a")
    assert leader(1e9 + 1) == "a"


def test_models_are_held_against_the_baseline_once_they_have_enough_labels() -> None:
    here = partition(Cache(), config())

    def feed(key: str, n: int, *, useful: bool) -> None:
        rng = np.random.default_rng(1)
        for _ in range(n):
            x = float(rng.random())
            label = ("low" if x < 0.5 else "high") if useful else str(rng.integers(2))
            here.process(records((key, {"features": [x], "label": label})))

    feed("good", JUDGED_SAMPLES - 1, useful=True)
    feed("noise", 3 * JUDGED_SAMPLES, useful=False)
    here.models.leaders(2, 0.0)
    [noise] = here.models.loss_ratios.values()
    assert noise >= 1
    feed("good", 1, useful=True)
    here.models.leaders(2, 1.0)
    assert here.models.loss_ratios["good"] < 0.5
    losses = here.models.leaders(2, 1.0)[0].figures().losses
    assert losses is not None
    assert losses.calibrated >= losses.baseline
    here.models.drop("noise")
    assert here.models.loss_ratios.keys() == {"good"}


def test_recent_losses_outlive_the_process_and_are_there_while_a_model_is_away() -> None:
    here = partition(Cache(), config())
    here.process(records(*(("a", {"features": [i], "label": "xy"[i % 2]}) for i in range(JUDGED_SAMPLES))))
    [entry] = here.models.leaders(1, 0.0)
    losses, ratios = entry.losses, here.models.loss_ratios
    assert losses is not None
    assert losses.baseline > 0
    later = Task(0, config(), 1_000_000, Cache(1, FakeSpill()))
    restore(later, [("a", entry.saved())])
    [away] = later.models.leaders(1, 0.0)
    assert away.model is None
    assert away.losses == away.figures().losses == losses
    assert later.models.loss_ratios == ratios != {}


def test_a_time_is_kept_with_each_model_and_comes_back_with_it() -> None:
    def at(time_ms: int, *contents: tuple[str | None, Any]) -> Sequence[Record]:
        return [Record(0, time_ms + i, each.key, each.value, []) for i, each in enumerate(records(*contents))]

    store, cache = Store(), Cache(1, FakeSpill())
    here = partition(cache, config(null_key="nobody"), store)
    here.process(at(1000, labelled("a"), labelled("b"), (None, {"features": [1], "label": "x"})))
    here.process(at(5000, labelled("b"), ("a", {"features": [1.0]})))
    here.process(at(3000, labelled("b")))
    cache.shrink()
    store.save(here)
    assert {key: saved.summary["last_ms"] for key, saved in store.saved.items()} == {
        "a": 1000,
        "b": 5000,
        "nobody": 1002,
    }
    again = partition(cache, store=store)
    again.models.mark_all_changed()
    frozen, _ = again.models.snapshot()
    assert {key: saved.summary for key, saved in taken(frozen).items()} == {
        k: v.summary for k, v in store.saved.items()
    }


def test_a_record_without_a_time_leaves_none() -> None:
    here = partition(Cache())
    [record] = records(labelled("a"))
    here.process([Record(0, -1, record.key, record.value, [])])
    frozen, _ = here.models.snapshot()
    assert "last_ms" not in taken(frozen)["a"].summary
