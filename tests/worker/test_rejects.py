"""Dead letters in a row."""

from __future__ import annotations

from worker.base.rejects import Streak


def longest(streak: Streak, *are_rejects: bool) -> int:
    """Of the rows that a batch meets."""
    streak.begin_batch()
    for is_reject in are_rejects:
        streak.note(is_reject=is_reject)
    return streak.longest


def test_a_row_may_begin_in_an_earlier_batch_and_one_that_is_over_is_not_held_against_a_later_one() -> None:
    """A replay meets the flood again that stopped its partition: the batch behind it would stop it once more."""
    streak = Streak()
    assert longest(streak, True, True, True, False, True) == 3
    assert longest(streak, True, False, True) == 2
    assert longest(streak, False, True) == 1
    streak.end()
    assert longest(streak, True) == 1
