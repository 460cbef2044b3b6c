"""A tombstone starts its model anew, where that is allowed."""

from __future__ import annotations

import pytest

from tests.worker.support.fakes import config
from tests.worker.support.tasks import codes, labelled, partition, records, state, taken, value_of


def test_without_leave_a_tombstone_is_a_dead_letter() -> None:
    here = partition(config())
    assert codes(here.process(records(labelled("k"), ("k", None))).outgoing) == [None, "null-value"]
    assert state(here).keys() == {"k"}


def test_a_tombstone_starts_its_model_anew_between_its_neighbours() -> None:
    here = partition(config(tombstones="reset"))
    outputs = here.process(
        records(labelled("k"), labelled("other"), ("k", None), labelled("k"), labelled("other"))
    ).outgoing
    assert outputs[2].value is None
    assert (outputs[2].topic, outputs[2].key) == ("predictions", b"k")
    assert [value_of(output)["learned"] for output in outputs if output.value] == [0, 0, 0, 1]
    fresh = partition(config(tombstones="reset"))
    fresh.process(records(labelled("k")))
    assert state(here)["k"] == state(fresh)["k"]


def test_a_tombstone_of_a_model_that_is_not_there_does_nothing() -> None:
    here = partition(config(tombstones="reset"))
    outputs = here.process(records(("k", None))).outgoing
    assert outputs[0].value is None
    assert here.models.snapshot() == ({}, set())


@pytest.mark.parametrize("size", [1, 2, 4])
def test_where_there_are_more_models_than_may_be_tombstones_make_room_one_by_one(size: int) -> None:
    full = partition(config())
    full.process(records(*[labelled(f"k{i}") for i in range(5)]))
    here = partition(config(max_models=3, tombstones="reset"), taken(full.models.snapshot()[0]))
    arriving = records(labelled("new"), ("k0", None), ("k1", None), ("k2", None), labelled("new"))
    outputs = [output for i in range(0, 5, size) for output in here.process(arriving[i : i + size]).outgoing]
    assert codes(outputs) == ["too-many-models", None, None, None, None]
    assert sorted(state(here)) == ["k3", "k4", "new"]
