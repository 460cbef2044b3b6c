"""Snapshots of a partition: what changed, what is gone, and what a failed one leaves for the next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.worker.support.fakes import config
from tests.worker.support.tasks import labelled, partition, records, restore, state, taken
from worker.base.errors import CorruptCheckpoint
from worker.base.terms import State
from worker.task.task import Task


def test_a_snapshot_holds_what_changed_since_the_last_one() -> None:
    here = partition(config())
    here.process(records(labelled("a"), labelled("b")))
    changed, removed = here.models.snapshot()
    assert {key: (model.spec, model.data) for key, model in taken(changed).items()} == {
        key: (here.models.configured_spec(key), data) for key, data in state(here).items()
    }
    assert removed == set()
    here.process(records(labelled("b"), ("a", {"features": [1.0]})))
    assert here.models.snapshot()[0].keys() == {"b"}
    assert here.models.snapshot() == ({}, set())


def test_a_snapshot_tells_figures_for_people() -> None:
    here = partition(config())
    here.process(records(*(labelled("k", float(i % 5), "ab"[i % 2]) for i in range(30))))
    [saved] = taken(here.models.snapshot()[0]).values()
    forest = here.models.get("k").forest
    expected = {"samples": 30, "nodes": forest.n_nodes, "depth": round(forest.mean_depth), "bytes": len(saved.data)}
    assert saved.summary == expected | {"last_ms": 1_600_000_000_029}


def test_a_snapshot_names_the_models_that_are_gone() -> None:
    here = partition(config(tombstones="reset"))
    here.process(records(labelled("a"), labelled("b")))
    here.models.snapshot()
    here.process(records(("a", None), ("b", None), labelled("b")))
    changed, removed = here.models.snapshot()
    assert (changed.keys(), removed) == ({"b"}, {"a"})


@pytest.mark.parametrize(
    ("then", "changed", "removed"),
    [
        ([], {"a", "b"}, {"c"}),
        ([labelled("c")], {"a", "b", "c"}, set()),
        ([("a", None)], {"b"}, {"a", "c"}),
        ([("a", None), labelled("a")], {"a", "b"}, {"c"}),
    ],
)
def test_what_a_failed_snapshot_held_is_in_the_next_one(
    then: list[tuple[str, Any]], changed: set[str], removed: set[str]
) -> None:
    here = partition(config(tombstones="reset"))
    here.process(records(labelled("a"), labelled("b"), labelled("c")))
    here.models.snapshot()
    here.process(records(labelled("a"), labelled("b"), ("c", None)))
    _, gone = here.models.snapshot()
    here.process(records(*then))
    here.models.snapshot_failed(gone)
    assert here.models.dirty
    saved, gone = here.models.snapshot()
    assert (saved.keys(), gone) == (changed, removed)
    assert {key: model.data for key, model in taken(saved).items()} == {key: state(here)[key] for key in changed}


def test_models_that_are_marked_as_changed_are_all_in_the_next_snapshot() -> None:
    here = partition(config())
    here.process(records(labelled("a"), labelled("b")))
    here.models.snapshot()
    here.models.mark_all_changed()
    assert here.models.snapshot()[0].keys() == {"a", "b"}


def test_damaged_bytes_are_refused_and_change_nothing() -> None:
    live = partition(config())
    live.process(records(labelled("a"), labelled("b")))
    saved = taken(live.models.snapshot()[0])
    saved["b"] = msgspec.structs.replace(saved["b"], data=saved["b"].data[:-1])
    here = Task(3, config(), 1_000_000)
    with pytest.raises(CorruptCheckpoint, match="model 'b' at offset 2"):
        restore(here, saved.items(), 2, 2)
    assert (here.state, here.position, len(here.models)) == (State.OPENING, -1, 0)
