"""What the first rows of a file tell before they are learned, in sentences for whoever started it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from worker.cli.dataset.rows import FileRows, Line, number_of

FIRST_ROWS = 1000
_ENOUGH_TEXTS = 100
_UNIQUE_SHARE = 0.9
_FEWEST_NUMBERS, _MOST_CLASSES = 20, 50


def columns_as_good_as_unique(rows: FileRows) -> Iterator[str]:
    """A sentence for each text column from which nothing can be learned: ids, timestamps, free text."""
    lines = rows.peek(FIRST_ROWS)
    for column, name in enumerate(rows.feature_names):
        texts = [value for line in lines if isinstance(value := line.values[column], str)]
        if len(texts) >= _ENOUGH_TEXTS and len(set(texts)) >= _UNIQUE_SHARE * len(texts):
            yield (
                f"column {name!r} has {len(set(texts)):,} different texts in {len(texts):,} rows: as good as unique, "
                f"it costs memory and teaches nothing. --drop {name} leaves it out; --id and --time give it another use"
            )


def labels_are_numbers(rows: FileRows) -> str | None:
    """Why the labels look like quantities rather than classes, as a sentence; None where they do not.

    Quantities are many numbers, few of which recur: some with a fraction, or so many that they are hardly classes.
    """
    numbers = list(_numbers(rows.peek(FIRST_ROWS)))
    if None in numbers:
        return None
    different = set(numbers)
    has_fraction = any(number is not None and not number.is_integer() for number in different)
    many = has_fraction or len(different) > min(_MOST_CLASSES, len(numbers) / 2)
    if len(different) <= _FEWEST_NUMBERS or not many:
        return None
    return f"the labels are numbers, {len(different):,} different ones in the first {len(numbers):,}"


def _numbers(lines: list[Line]) -> Iterator[float | None]:
    """The labels that there are as numbers, None for one that is none."""
    for cell in (line.label for line in lines):
        if cell is None or cell == "":
            continue
        number = None if isinstance(cell, bool) else number_of(cell) if isinstance(cell, str) else float(cell)
        if number is None or isfinite(number):
            yield number
