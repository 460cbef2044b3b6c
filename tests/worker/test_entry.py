"""What a partition knows of a model besides its forest: traffic, recent losses, the time of its last label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.worker.support.cached import Store, cached_partition, learn
from tests.worker.support.fakes import FakeSpill, config
from tests.worker.support.tasks import labelled, records, restore, taken
from worker.base.metrics import JUDGED_SAMPLES
from worker.base.records import Record
from worker.state.cache import Cache
from worker.state.slots import TRAFFIC_S
from worker.task.task import Task


def test_leaders_are_the_models_that_learned_most() -> None:
    cache = Cache(None, FakeSpill())
    here = cached_partition(cache, config(tombstones="reset"))

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


def test_labels_of_late_count_more_than_those_of_long_ago() -> None:
    here = cached_partition(Cache(), config())

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
    here = cached_partition(Cache(), config())

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
    here = cached_partition(Cache(), config())
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
    here = cached_partition(cache, config(null_key="anonymous"), store)
    here.process(at(1000, labelled("a"), labelled("b"), (None, {"features": [1], "label": "x"})))
    here.process(at(5000, labelled("b"), ("a", {"features": [1.0]})))
    here.process(at(3000, labelled("b")))
    cache.shrink()
    store.save(here)
    assert {key: saved.summary["last_ms"] for key, saved in store.saved.items()} == {
        "a": 1000,
        "b": 5000,
        "anonymous": 1002,
    }
    again = cached_partition(cache, store=store)
    again.models.mark_all_changed()
    frozen, _ = again.models.snapshot()
    assert {key: saved.summary for key, saved in taken(frozen).items()} == {
        k: v.summary for k, v in store.saved.items()
    }


def test_a_record_without_a_time_leaves_none() -> None:
    here = cached_partition(Cache())
    [record] = records(labelled("a"))
    here.process([Record(0, -1, record.key, record.value, [])])
    frozen, _ = here.models.snapshot()
    assert "last_ms" not in taken(frozen)["a"].summary
