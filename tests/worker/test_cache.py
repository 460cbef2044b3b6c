"""Models in bounded memory: whatever leaves and comes back, no output and no byte of a checkpoint changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.cached import Store, away, cached_partition, entry_of, learn
from tests.worker.support.fakes import FakeSpill, config
from tests.worker.support.tasks import drawn, labelled, records, state, taken
from worker.base.metrics import Metrics
from worker.state import cache as cache_module
from worker.state import model_store
from worker.state.cache import Cache
from worker.state.entry import Entry
from worker.task.allowance import Allowance


@pytest.fixture(autouse=True, scope="module")
def _of_arrays_alone() -> Iterator[None]:
    """Models whose other objects take no memory: so those that have left take none either."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (cache_module, model_store):
            patch.setattr(module, "MODEL_BYTES", 0)
        yield


def figures(cache: Cache) -> dict[str, float]:
    """What the metrics show of it, loads by where they were from."""
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
    settings, source = config(tombstones="reset", null_key="anonymous", max_models=3), drawn(seed, 60)
    free, cache = cached_partition(Cache(), settings), Cache(limit, FakeSpill(room))
    stores = Store(), Store()
    tight = cached_partition(cache, settings, stores[1])
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
    first = cached_partition(Cache())
    first.process(source[:30])
    store.save(first)
    cache = Cache(1, FakeSpill())
    again = cached_partition(cache, store=store)
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
    here = cached_partition(cache, config(algorithm=algorithm, tombstones="reset"))
    here.process(records(*(labelled(key, 1.0, 2) for key in ("gone", "still", "back", "changed", "reset"))))
    before = state(here)
    for key in ("still", "changed", "reset"):
        cache._evict(entry_of(here, key))
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
        here = cached_partition(cache)
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
    here, there = cached_partition(cache), cached_partition(cache)
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
    here, there = cached_partition(cache), cached_partition(cache)
    learn(here, *"abcd")
    learn(there, "e")
    monkeypatch.setattr(cache_module, "HOLES_BYTES", 2 * entry_of(here, "a").nbytes)
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


def test_what_models_that_have_left_leave_among_others_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps it: where models grow there are fewer of them than there were, and memory for more."""
    monkeypatch.setattr(cache_module, "MODEL_BYTES", 10_000)
    cache = Cache(None, FakeSpill())
    here = cached_partition(cache)
    learn(here, *"abcd")
    each = cache.nbytes // 4
    cache._limit_bytes = 4 * each
    for n_staying in (4, 3, 2):
        cache._limit_bytes = n_staying * each + (4 - n_staying) * 10_000
        cache.shrink()
        assert (cache.nbytes, cache.is_over) == (n_staying * each, False)
    # New ones take it first.
    cache._limit_bytes += each - 10_000
    learn(here, "e")
    assert not cache.is_over
    # Where none is left, nothing is; copies of a partition that is gone may still wait to be saved then.
    here.models.snapshot()
    learn(here, "e")
    cache._limit_bytes = 1
    here.close()
    assert cache.nbytes > 0
    cache.shrink()
    assert (cache.nbytes, cache.is_over) == (0, False)


def test_models_that_had_to_stay_beyond_the_limit_leave_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in no checkpoint, and the disk is full. What they leave free is beyond the limit already: if it counted,
    all others would have to leave with them, and again whenever they have come back."""
    monkeypatch.setattr(cache_module, "MODEL_BYTES", 10_000)
    store, cache = Store(), Cache(None, FakeSpill(room=0))
    here = cached_partition(cache, store=store)
    learn(here, "a")
    cache._limit_bytes = limit = 2 * cache.nbytes
    learn(here, *"bcdefgh")
    cache.shrink()
    assert (cache.is_over, away(here)) == (True, set())
    store.save(here)
    cache.shrink()
    assert (cache.is_over, away(here)) == (False, set("abcdef"))
    assert cache.nbytes == limit


def test_room_is_made_for_what_is_to_come() -> None:
    cache = Cache(None, FakeSpill())
    here = cached_partition(cache)
    learn(here, *"abcd")
    each = cache.nbytes // 4
    cache._limit_bytes = 4 * each
    for coming, staying in ((0, 4), (1, 3), (each, 3), (2 * each, 2), (9 * each, 0)):
        cache.shrink(coming)
        assert cache.nbytes == staying * each


@pytest.mark.parametrize("prefix", ["", "new-"])
def test_a_turn_brings_no_more_models_into_memory_than_there_is_room_for(prefix: str) -> None:
    cache, keys = Cache(None, FakeSpill()), [f"key-{i}" for i in range(40)]
    here = cached_partition(cache)
    learn(here, *keys)
    limit = cache._limit_bytes = cache.nbytes // 4
    cache.shrink()
    here.add(records(*(labelled(prefix + key) for key in keys * 2)))
    while here.buffer:
        allowance = Allowance(1, 1, 0, limit // 2)
        n = here.n_to_take(len(here.buffer), allowance)
        cache.shrink(allowance.coming_bytes)
        here.take(n)
        # Nothing leaves during a batch; the models in it have grown by a few nodes.
        assert cache.nbytes <= 1.05 * limit
    assert len(here.models) - len(away(here)) == 10


def test_the_models_of_a_turn_are_the_last_to_leave_for_those_that_it_brings() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = cached_partition(cache)
    learn(here, *"abcd")
    cache._limit_bytes = cache.nbytes
    learn(here, "e")
    cache.shrink()
    assert away(here) == {"a"}
    here.add(records(labelled("b"), labelled("a"), (None, b""), labelled("b")))
    allowance = Allowance(1, 1, 0, 2**20)
    n = here.n_to_take(len(here.buffer), allowance)
    cache.shrink(allowance.coming_bytes)
    assert (n, away(here)) == (4, {"a", "c"})


def test_copies_that_wait_to_be_saved_leave_before_any_model() -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = cached_partition(cache)
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
    here = cached_partition(cache)
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
    assert (read, spill.places, cache.nbytes) == ([], places, entry_of(here, "a").nbytes + cache_module.MODEL_BYTES)
    assert {key: copy.take().data for key, copy in copies.items()} == {key: before[key] for key in "ab"}
    assert spill.places == []


def test_what_was_restored_stays_where_there_is_room_for_it() -> None:
    store = Store()
    before = cached_partition(Cache(), store=store)
    learn(before, *"abcd")
    store.save(before)
    cache = Cache(
        sum(each.nbytes + cache_module.MODEL_BYTES for each in map(partial(entry_of, before), "abcd")), FakeSpill()
    )
    here = cached_partition(cache, store=store)
    cache.shrink()
    assert (len(store.saved), away(here)) == (4, set())


def test_without_a_limit_none_leaves() -> None:
    cache = Cache(None, FakeSpill())
    here = cached_partition(cache)
    learn(here, *"abc")
    cache.shrink()
    assert away(here) == set()


def test_all_models_of_a_batch_stay_while_it_is_taken() -> None:
    cache = Cache(1, FakeSpill())
    here = cached_partition(cache)
    learn(here, *"abc")
    assert away(here) == set()
    cache.shrink()
    assert away(here) == set("abc")


def test_what_came_back_and_did_not_change_leaves_again_without_being_written() -> None:
    spill = FakeSpill()
    cache = Cache(1, spill)
    here = cached_partition(cache)
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
    here = cached_partition(cache, config(tombstones="reset"))
    learn(here, *"abcd")
    sizes = {key: entry_of(here, key).nbytes + cache_module.MODEL_BYTES for key in "abcd"}
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


def test_a_partition_that_is_given_up_while_its_models_leave_leaves_nothing_behind() -> None:
    spill, threads = FakeSpill(), list[Thread]()
    cache = Cache(None, spill)
    here, other = cached_partition(cache), cached_partition(cache)
    learn(here, "a")
    learn(other, "b")

    def close(point: str) -> None:
        if not threads:
            # By another thread, as of one that was being restored: it may have to wait for the model that leaves.
            threads.append(Thread(target=here.close))
            threads[0].start()
            threads[0].join(0.2)

    spill.hook = close
    cache._limit_bytes = 1
    cache.shrink()
    threads[0].join()
    assert away(other) == {"b"}
    other.close()
    assert (spill.places, figures(cache)["models_away"], cache.nbytes) == ([], 0, 0)


def test_a_model_that_was_forgotten_a_moment_before_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    spill = FakeSpill()
    cache = Cache(None, spill)
    here = cached_partition(cache)
    learn(here, "a")
    entry = entry_of(here, "a")

    def oldest() -> Iterator[Entry]:
        here.close()
        yield entry

    monkeypatch.setattr(cache, "_oldest", oldest)
    cache._shrink_to(-1)
    assert (spill.places, figures(cache)["models_away"], cache.nbytes) == ([], 0, 0)


def test_loads_are_counted_by_where_they_are_from() -> None:
    spill, store = FakeSpill(1), Store()
    cache = Cache(1, spill)
    here = cached_partition(cache, store=store)
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
    here = cached_partition(cache)
    for expected in (1, 2, 3):
        learn(here, "a")
        assert entry_of(here, "a").figures().scores.count == expected
        cache.shrink()
        shown = entry_of(here, "a").figures()
        assert (shown.samples, shown.memory_bytes, shown.scores.count) == (expected, 0, expected)
