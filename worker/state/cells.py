"""The features of an event as cells, on their way to a row of a forest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf import Columns
from worker.base.records import Features

MOST_CELLS = 2**22
"""Cells of the rows of one call of a forest, about: an event of ten features may be a row of ten thousand."""


def plain_cells(
    features: Features, width: int | None, columns: Columns | None, *, in_cube: bool
) -> Collection[Any] | None:
    """The values of an event where they are cells as they stand: nothing to look up, and nothing new.

    width: of arrays, None where the model takes none; columns: of objects, likewise.
    """
    values: Collection[Any]
    if isinstance(features, list):
        values, plain = features, len(features) == width
    elif columns is None:
        return None
    else:
        values = features.values()
        plain = columns.numbers_only and list(features) == columns.names and str not in map(type, values)
        plain = plain and (columns.may_lack or None not in values)
    return values if plain and (not in_cube or all(map(is_in_unit_interval, values))) else None


def is_in_unit_interval(value: float | str | None) -> bool:
    """Whether a value may be that of a feature of a model that lives in the cube."""
    return value is not None and not isinstance(value, str) and 0.0 <= value <= 1.0


def listed_of(features: dict[str, Any], listed: frozenset[str] | None) -> dict[str, Any]:
    """The features that a model learns from: all, unless it was given a list of their names."""
    return features if listed is None else {name: value for name, value in features.items() if name in listed}


def rows_of(cells: Sequence[Collection[Any]], columns: Columns | None) -> NDArray[np.float64]:
    """Rows (n, d) of a forest; `columns` are those of objects."""
    n, d = len(cells), len(cells[0])
    rows = np.fromiter(chain.from_iterable(cells), np.float64, n * d).reshape(n, d)
    return rows if columns is None else columns.rows(rows)
