"""No partition has more models than models.max_models, and batches do not decide which."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.fakes import config
from tests.worker.support.tasks import codes, drawn, labelled, partition, records, state, taken, value_of


def test_an_event_that_would_make_one_more_model_is_a_dead_letter() -> None:
    here = partition(config(max_models=2))
    outputs = here.process(records(labelled("a"), labelled("b"), labelled("c"), labelled("a"))).outgoing
    assert codes(outputs) == [None, None, "too-many-models", None]
    assert state(here).keys() == {"a", "b"}


def test_an_unlabelled_event_of_an_unknown_key_is_answered_all_the_same() -> None:
    full, roomy = partition(config(max_models=1)), partition(config())
    source = records(labelled("a"), ("b", {"features": [1.0]}), labelled("b"), ("b", {"features": [2.0]}))
    outputs = full.process(source).outgoing
    assert codes(outputs) == [None, None, "too-many-models", None]
    assert outputs[1] == roomy.process(source).outgoing[1]
    assert (value_of(outputs[3])["learned"], value_of(outputs[3])["prediction"]) == (0, None)


def test_an_event_that_makes_no_model_takes_no_place() -> None:
    here = partition(config(max_models=1, max_features=1))
    refused = ("a", {"features": [1.0, 2.0], "label": "x"})
    assert codes(here.process(records(refused, labelled("b"), refused)).outgoing) == [
        "too-many-features",
        None,
        "too-many-models",
    ]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_a_tombstone_makes_room_for_what_comes_after_it(size: int) -> None:
    here = partition(config(max_models=1, tombstones="reset"))
    source = records(labelled("a"), labelled("b"), ("a", None), labelled("c"), labelled("b"), labelled("a"))
    outputs = [each for start in range(0, 6, size) for each in here.process(source[start : start + size]).outgoing]
    assert codes(outputs) == [None, "too-many-models", None, None, "too-many-models", "too-many-models"]
    assert state(here).keys() == {"c"}


def test_the_order_of_the_records_decides_who_gets_the_last_place() -> None:
    """Not that of the groups that a batch falls into: the first event of a key need not be the one that makes it."""
    here = partition(config(max_models=1))
    outputs = here.process(records(("late", {"features": [1.0]}), labelled("early"), labelled("late"))).outgoing
    assert codes(outputs) == [None, None, "too-many-models"]
    assert state(here).keys() == {"early"}


@given(st.integers(0, 10**9), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 3))
def test_batches_and_replay_do_not_matter(seed: int, cuts: list[int], most: int) -> None:
    settings = config(tombstones="reset", null_key="nobody", max_models=most, max_features=2)
    source = drawn(seed, 40)
    whole, parts, again = (partition(settings) for _ in range(3))
    single = [each for record in source for each in whole.process([record]).outgoing]
    ends = sorted({*cuts, 0, len(source)})
    found = [each for start, end in pairwise(ends) for each in parts.process(source[start:end]).outgoing]
    again.process(source)
    assert found == single
    assert state(again) == state(parts) == state(whole)
    assert len(state(whole)) <= most


def test_figures_of_a_batch_in_parts_are_those_of_the_whole() -> None:
    source = records(
        labelled("a"), labelled("b"), ("a", None), labelled("c"), labelled("c"), ("c", b"{"), labelled("d")
    )
    here = partition(config(max_models=2, tombstones="reset", max_consecutive=1))
    result = here.process(source)
    assert (result.events, result.tally.predicted, result.tally.learned) == (7, 4, 4)
    assert result.rejects.counts == Counter({"malformed-json": 1, "too-many-models": 1})
    assert (result.tally.classes.count, [len(depths) for depths in result.tally.depths]) == (4, [4])
    assert result.stop is not None
    assert here.position == 7


def test_a_restored_partition_counts_its_models() -> None:
    before = partition(config())
    before.process(records(labelled("a"), labelled("b")))
    here = partition(config(max_models=2), taken(before.models.snapshot()[0]), 2, live_from=2)
    here.go_live()
    assert codes(here.process(records(labelled("c"), labelled("a"))).outgoing) == ["too-many-models", None]
