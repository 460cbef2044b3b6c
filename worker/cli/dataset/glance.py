"""What the first rows of a file tell before they are learned, in sentences for whoever started it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from math import isfinite

from worker.cli.dataset.delimited import DECIMAL_COMMA, MAYBE_THOUSANDS
from worker.cli.dataset.rows import Cell, FileRows, Line, quantity_of

FIRST_ROWS = 1000
_ENOUGH_TEXTS = 100
_UNIQUE_SHARE = 0.9
_FEWEST_TEXTS = 20
_FEWEST_NUMBERS, _MOST_CLASSES = 20, 50
_GROUPED = re.compile(
    r"\s*[-+]?[0-9]{1,3}(?:(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3})+,[0-9]+|(?:\.[0-9]{3}){2,}"
    rf"|(?:['\u00a0\u202f ][0-9]{{3}})+(?:[.,][0-9]+)?)\s*|{DECIMAL_COMMA.pattern}"
)
"""A number as people write it, with something between its thousands, or a comma for its point."""
_WITH_UNIT = re.compile(
    r"\s*[-+]?(?:[$\u20ac\u00a3\u00a5]\s*[-+]?{0}|{0}\s*[%$\u20ac\u00a3\u00a5])\s*".format(
        r"[0-9](?:[0-9.,' \u00a0\u202f]*[0-9])?"
    )
)
"""A number of a currency, or of hundredths, with the sign of it."""
_NO_LABEL = {"na", "n/a", "#n/a", "nan", "null", "?"}
"""Texts by which programs write that there is nothing, in lower case."""
_DATE = re.compile(r"\s*(?:[0-9]{4}([-./])[0-9]{1,2}\1[0-9]{1,2}|[0-9]{1,2}([-./])[0-9]{1,2}\2[0-9]{4})(?:[T ].*)?\s*")
"""A date, with or without time, in the orders of digits in which they are written."""


def odd_columns(rows: FileRows) -> Iterator[str]:
    """A sentence for each text column that cannot be meant as it is: numbers with something between their thousands, a
    comma for a point or a unit; dates; ids or free text, from which nothing can be learned; labels that say that there
    is none."""
    lines = rows.peek(FIRST_ROWS)
    columns: dict[str, list[Cell]] = {name: [line.features.get(name) for line in lines] for name in rows.feature_names}
    if rows.roles.label is not None:
        columns[rows.roles.label] = [line.label for line in lines]
    for name, values in columns.items():
        texts = [value for value in values if isinstance(value, str)]
        if numbers := _most(_GROUPED, texts):
            remedy = (
                "a file of this kind has types, so write them as numbers there"
                if rows.typed
                else f"--thousands {_separator_of(numbers)} reads them as numbers"
            )
            yield (
                f"column {name!r} has {len(numbers):,} numbers such as {numbers[0]!r} in {len(values):,} rows, which "
                f"are taken for texts: {remedy}"
            )
        elif with_unit := _most(_WITH_UNIT, texts):
            yield (
                f"column {name!r} has numbers such as {with_unit[0]!r}, which are taken for texts: write them without "
                "the sign"
            )
        elif name == rows.roles.label:
            none = [text for text in texts if _is_no_label(text)]
            if none and len(none) < sum(value not in (None, "") for value in values):
                yield (
                    f"column {name!r} has {none[0]!r} in {len(none):,} of {len(values):,} rows, which is taken for a "
                    "label as any other: where there is no label, leave the cell empty"
                )
        elif dates := _most(_DATE, texts):
            yield (
                f"column {name!r} has dates such as {dates[0]!r}, which are taken for categories, and each new one for "
                f"another. --drop {shlex.quote(name)} leaves it out, --time makes it the time of the events; what "
                "recurs, the hour or the weekday say, is of use as a column of its own"
            )
        elif _is_as_good_as_unique(texts, sum(value is not None for value in values)):
            yield (
                f"column {name!r} has {len(set(texts)):,} different texts in {len(texts):,} rows: as good as unique, "
                f"it costs memory and teaches nothing. --drop {shlex.quote(name)} leaves it out; --id and --time give "
                "it another use"
            )


def _most(pattern: re.Pattern[str], texts: list[str]) -> list[str]:
    """The texts that are so, where most are; else none."""
    found = [text for text in texts if pattern.fullmatch(text)]
    return found if len(found) > max(_FEWEST_TEXTS, len(texts) / 2) else []


def _is_no_label(value: Cell) -> bool:
    """Whether it looks as if there was meant to be nothing."""
    return isinstance(value, str) and value.strip().lower() in _NO_LABEL


def _is_as_good_as_unique(texts: list[str], n_values: int) -> bool:
    """Whether most values of a column are texts, and hardly one of these recurs."""
    return len(texts) >= max(_ENOUGH_TEXTS, n_values / 2) and len(set(texts)) >= _UNIQUE_SHARE * len(texts)


def _separator_of(numbers: list[str]) -> str:
    """What stands between their thousands, as an argument of a command; a point where all that is known is that commas
    are none of it."""
    first = {re.sub("[-+0-9]", "", number.strip())[0] for number in numbers}
    if first <= {",", "."}:
        is_point = any(DECIMAL_COMMA.fullmatch(n) and not MAYBE_THOUSANDS.fullmatch(n.strip()) for n in numbers)
        return "." if is_point or "." in first else ","
    return '"\'"' if "'" in first else '" "'


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
    """The labels that there are as numbers, None for one that is none; what stands for no label is left out."""
    labels = (line.label for line in lines if line.label not in (None, ""))
    numbers = (quantity_of(label) for label in labels if not _is_no_label(label))
    return (number for number in numbers if number is None or isfinite(number))
