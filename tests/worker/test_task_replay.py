"""Batches and replay change no output and no state."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.fakes import config
from tests.worker.support.tasks import drawn, labelled, partition, records, state, taken
from worker.task.task import Task


@given(st.integers(0, 10**9), st.lists(st.integers(0, 40), max_size=6), st.sampled_from(["reset", "dead-letter"]))
def test_batches_do_not_matter(seed: int, cuts: list[int], tombstones: str) -> None:
    settings = config(tombstones=tombstones, max_classes=3, max_features=2)
    source = drawn(seed, 40)
    whole, parts = partition(settings), partition(settings)
    expected = whole.process(source).outgoing
    ends = sorted({*cuts, 0, len(source)})
    found = [output for start, end in pairwise(ends) for output in parts.process(source[start:end]).outgoing]
    assert found == expected
    assert state(parts) == state(whole)


@given(st.integers(0, 10**9), st.integers(0, 40), st.integers(0, 40), st.sampled_from(["reset", "dead-letter"]))
def test_replay_from_any_snapshot_is_what_live_was(seed: int, saved_at: int, died_at: int, tombstones: str) -> None:
    saved_at, died_at = sorted((saved_at, died_at))
    settings = config(tombstones=tombstones, null_key="anonymous", max_classes=3)
    source = drawn(seed, 40)
    live = partition(settings)
    live.process(source[:saved_at])
    saved = taken(live.models.snapshot()[0])
    offset = live.position
    live.process(source[saved_at:died_at])

    again = partition(settings, saved, offset, live_from=live.position)
    again.process(source[saved_at:died_at])
    again.go_live()
    assert state(again) == state(live)
    assert again.position == live.position
    assert again.process(source[died_at:]).outgoing == live.process(source[died_at:]).outgoing


def test_a_replay_whose_last_records_are_missing_is_not_over_before_that_is_proven() -> None:
    """What has their offsets may be markers of transactions, or records that were predicted are lost."""
    here, source = Task(3, config(), 1_000_000), records(*[labelled("k")] * 8)
    here.open(here.load((), 0), 0, live_from=5, last_epoch=0)
    here.add([*source[:3], *source[7:]])
    here.take(3)
    assert (here.position, here.has_leapt, here.has_replayed) == (3, True, False)
    assert here.prove().offset == 5
    here.add(source[7:])
    assert (here.has_leapt, here.has_replayed) == (False, True)


def test_replay_tells_how_much_it_learned() -> None:
    here = partition(config(), live_from=9)
    assert (
        here.process(records(labelled("k"), ("k", {"features": [1.0]}), ("k", b"{"), labelled("k"))).tally.learned == 2
    )
