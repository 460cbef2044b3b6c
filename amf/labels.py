"""Classes and their numbers. A class is the text of its label: 1 and "1" are one class, True is "true"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Label = str | int | float | bool
LARGEST_NUMBER = 1e75
"""Labels that are numbers may be as large as this: the square of their sum stays finite."""
_FEW = 64  # labels, below which a loop is quicker than a sort
_PLAIN = {frozenset({str}), frozenset({int}), frozenset({bool})}


def class_text(label: Label) -> str:
    """Text that identifies the class of a label: the text of its JSON scalar."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return str(label)


class Classes:
    """Labels in the order in which they were first seen, each with its number."""

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self.labels: list[Label] = []
        self._code: dict[str, int] = {}
        for label in labels:
            self.add(label)

    def __len__(self) -> int:
        return len(self.labels)

    def code(self, label: Label) -> int:
        """Number of the label's class, -1 where it is new."""
        return self._code.get(label if type(label) is str else class_text(label), -1)

    def code_of_scalar(self, label: Any) -> int:
        """Number of the class of anything, -1 where it is new, missing or no label at all."""
        if isinstance(label, np.generic):
            label = label.item()
        return self.code(label) if isinstance(label, str | int) else -1

    def add(self, label: Label) -> int:
        """Number of the label's class, a new one where it is new."""
        code = self._code.setdefault(class_text(label), len(self.labels))
        if code == len(self.labels):
            self.labels.append(label)
        return code

    def as_array(self) -> NDArray[Any]:
        """The labels as a 1-d array, of object type where they are of several types."""
        if len({type(label) for label in self.labels}) > 1:
            array = np.empty(len(self.labels), object)
            array[:] = self.labels
            return array
        return np.array(self.labels)


def scalars(y: Any) -> list[Label | None]:
    """Labels as Python scalars, None where missing (None, NaN, NA). Raises TypeError for anything that is no scalar."""
    _require_labels(y)
    values = y.tolist() if isinstance(y, np.ndarray) else list(y)
    for row, value in enumerate(values):
        if isinstance(value, np.generic):
            values[row] = value = value.item()
        if type(value).__name__ == "NAType":  # that of pandas
            values[row] = value = None
        if value is not None and not isinstance(value, str | int | float):
            raise TypeError(f"y[{row}] is a {type(value).__name__}; a label is a str, int, float, bool, or None")
        if isinstance(value, float) and value != value:
            values[row] = None
    return values


def _require_labels(y: Any) -> None:
    """Raise TypeError for what is no row of labels: a text, a table, or a mapping, whose keys are not its labels."""
    if isinstance(y, str | bytes | Mapping) or getattr(y, "ndim", 1) != 1:
        shape = f" of shape {y.shape}" if hasattr(y, "shape") else ""
        raise TypeError(f"y is a {type(y).__name__}{shape}; it must hold a label for each row, (n,)")


def distinct(y: Any) -> tuple[list[Label | None], NDArray[np.intp], NDArray[np.intp]]:
    """Different labels in the order of their first rows, the place of each row's label in that list, and those rows.

    Labels of different types are different here, though they may be one class: 1 and True must not meet in one key.
    """
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "biufU" and len(y) > _FEW:
        _, first, inverse = np.unique(y, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return scalars(y[first[order]]), rank[inverse], first[order]
    if isinstance(y, list) and frozenset(map(type, y)) - {type(None)} in _PLAIN:
        place_of = {label: place for place, label in enumerate(dict.fromkeys(y))}
        in_order = np.fromiter(map(place_of.__getitem__, y), np.intp, len(y))
        return list(place_of), in_order, np.fromiter(map(y.index, place_of), np.intp, len(place_of))
    labels: list[Label | None] = []
    rows: list[int] = []
    places: list[int] = []
    seen: dict[tuple[type, Any], int] = {}
    for row, label in enumerate(scalars(y)):
        place = seen.setdefault((type(label), label), len(labels))
        if place == len(labels):
            labels.append(label)
            rows.append(row)
        places.append(place)
    return labels, np.array(places, np.intp), np.array(rows, np.intp)


def numbers(y: Any) -> NDArray[np.float64]:
    """Labels as float64 (n,), NaN where missing (None or NaN).

    Raises TypeError for anything that is no number, ValueError for one whose square would leave the range of float64.
    """
    if not (isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "iuf"):
        y = scalars(y)
        for row, value in enumerate(y):
            if isinstance(value, str | bool):
                raise TypeError(f"y[{row}] is {value!r}; a label is a number, or None")
            if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
                raise ValueError(f"y[{row}] is beyond {LARGEST_NUMBER:g}; labels must lie within that of 0")
        y = [np.nan if value is None else float(value) for value in y]
    values = np.array(y, np.float64, order="C")  # never the caller's own, which may be read-only or not aligned
    wild = np.flatnonzero(np.abs(values) > LARGEST_NUMBER)
    if wild.size:
        raise ValueError(f"y[{wild[0]}] is {values[wild[0]]}; labels must lie within {LARGEST_NUMBER:g} of 0")
    return values
