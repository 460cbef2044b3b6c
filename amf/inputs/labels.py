"""Classes and their numbers. A class is the text of its label: 1, 1.0 and "1" are one class, True is "true"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import isinf
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.inputs.scalars import LARGEST_NUMBER, PYTHONS_OWN, is_na, plain, require_reals, require_whole_characters

Label = str | int | float | bool
_FEW = 64  # labels, below which a loop is quicker than a sort
_PLAIN = {frozenset({str}), frozenset({int}), frozenset({bool})}
_ALL_EXACT = 2.0**53  # below, float64 tells integers from their neighbours


def class_text(label: Label) -> str:
    """Text that identifies the class of a label: that of its JSON scalar, and of 1.0 that of 1.

    Integers are float64 once one label of an array is missing. From 2**53 on, where float64 no longer tells them apart,
    a float is another class than an integer.
    """
    if type(label) is int:
        try:
            return str(label)
        except ValueError:
            raise ValueError(
                f"a label is a whole number of some {label.bit_length()} bits, too long for a text"
            ) from None
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, float) and abs(label) < _ALL_EXACT and label.is_integer():
        return str(int(label))
    return str(plain(label))


class Classes:
    """Labels in the order in which they were first seen, each with its number."""

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self.labels: list[Label] = []
        self._code: dict[str, int] = {}
        for label in labels:
            self.add(label)

    def __len__(self) -> int:
        return len(self.labels)

    def copy(self) -> Classes:
        """A copy: a class that is added to one of the two is none of the other."""
        twin = Classes()
        twin.labels, twin._code = self.labels.copy(), self._code.copy()
        return twin

    def code(self, label: Label) -> int:
        """Number of the label's class, -1 where it is new."""
        return self._code.get(label if type(label) is str else class_text(label), -1)

    def code_of_scalar(self, label: Any) -> int:
        """Number of the class of anything, -1 where it is new, missing or no label at all."""
        if type(label) not in PYTHONS_OWN:
            label = None if is_na(label) else plain(label)
        return self.code(label) if isinstance(label, str | int) else -1

    def add(self, label: Label) -> int:
        """Number of the label's class, a new one where it is new."""
        require_whole_characters(label)
        code = self._code.setdefault(class_text(label), len(self.labels))
        if code == len(self.labels):
            self.labels.append(label)
        return code

    def as_array(self) -> NDArray[Any]:
        """The labels as a 1-d array, of object type where no other one holds all of them as they are."""
        labels = self.labels.copy()  # another thread may add one meanwhile
        kinds = {type(label) for label in labels}
        if len(kinds) < 2:
            array = np.array(labels)
            # Of integers on both sides of 2**63 numpy makes float64, and a text loses zeros at its end.
            if array.tolist() == labels and (array.dtype.kind != "f" or int not in kinds):
                return array
        array = np.empty(len(labels), object)
        array[:] = labels
        return array


def scalars(y: Any, name: str = "y") -> list[Label | None]:
    """Labels as Python scalars, None where missing (None, NaN, NA). Raises TypeError for anything that is no scalar."""
    _require_labels(y)
    values = y.tolist() if isinstance(y, np.ndarray) else y.to_pylist() if hasattr(y, "to_pylist") else list(y)
    for row, given in enumerate(values):
        value = values[row] = None if is_na(given) else plain(given)
        if value is not None and not isinstance(value, str | int | float):
            what = f"{name}[{row}] is a {type(value).__name__}; a label is a str, int, float, bool, or None"
            raise TypeError(f"{what}: give float(label)" if isinstance(value, Real | Decimal) else what)
        if isinstance(value, float) and value != value:
            values[row] = None
    return values


def _require_labels(y: Any) -> None:
    """Raise TypeError for what is no row of labels: a single one, a text, a table, a set, which has no order, or a
    mapping, of which the keys are not the labels."""
    is_row = isinstance(y, Iterable) and not isinstance(y, str | bytes | bytearray | Mapping | set | frozenset)
    n_dimensions = getattr(y, "ndim", 1)
    if not is_row or n_dimensions != 1:
        shape = f" of shape {y.shape}" if hasattr(y, "shape") else ""
        if n_dimensions == 2 or hasattr(y, "column_names"):
            advice = "; give its one column alone, as y.ravel() of an array and y[name] of a table"
        else:
            advice = "" if is_row and n_dimensions else "; give [label] for a single row, [None] where it has none"
        raise TypeError(f"y is a {type(y).__name__}{shape}; it must hold a label for each row, (n,){advice}")
    require_reals("y", y)


def require_finite(labels: Sequence[Label | None], name: str = "y", rows: Iterable[int] | None = None) -> None:
    """Raise ValueError for an infinite label, which no class is called; rows: those in which the labels are."""
    for row, label in zip(range(len(labels)) if rows is None else rows, labels, strict=True):
        if isinstance(label, float) and isinf(label):
            raise ValueError(f"{name}[{row}] is {label}, which is no class: give None where the label is missing")


def require_all_labels(y: Any) -> None:
    """Raise ValueError where a label is masked or, among objects, None or NA.

    scikit-learn takes what is under a mask, makes None a number that is missing, and compares it with texts.
    """
    if np.ma.is_masked(y):
        raise ValueError("y has labels that are masked: leave these rows away")
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and labels.ndim == 1:
        row = next((row for row, label in enumerate(labels) if label is None or is_na(label)), None)
        if row is not None:
            raise ValueError(f"y[{row}] is {labels[row]}, no label: leave such rows away")


def _is_array(y: Any, kinds: str) -> bool:
    """Whether y is a 1-d array of one of these kinds, all of whose numbers count."""
    return isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in kinds and not isinstance(y, np.ma.MaskedArray)


def distinct(y: Any) -> tuple[list[Label | None], NDArray[np.intp], NDArray[np.intp]]:
    """Different labels in the order of their first rows, the place of each row's label in that list, and those rows.

    Labels of different types are different here, though they may be one class: 1 and True must not meet in one key.
    """
    if _is_array(y, "biufU") and len(y) > _FEW:
        _, first, inverse = np.unique(y, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        labels = scalars(y[first[order]])
        require_finite(labels, rows=first[order])
        return labels, rank[inverse], first[order]
    if isinstance(y, list) and frozenset(map(type, y)) - {type(None)} in _PLAIN:
        place_of = {label: place for place, label in enumerate(dict.fromkeys(y))}
        in_order = np.fromiter(map(place_of.__getitem__, y), np.intp, len(y))
        row_of = dict(zip(reversed(y), range(len(y) - 1, -1, -1), strict=True))  # the first row of each comes last
        return list(place_of), in_order, np.fromiter(map(row_of.__getitem__, place_of), np.intp, len(place_of))
    labels = []
    rows: list[int] = []
    places: list[int] = []
    seen: dict[tuple[type, Any], int] = {}
    for row, label in enumerate(scalars(y)):
        place = seen.setdefault((type(label), label), len(labels))
        if place == len(labels):
            labels.append(label)
            rows.append(row)
        places.append(place)
    require_finite(labels, rows=rows)
    return labels, np.array(places, np.intp), np.array(rows, np.intp)


def numbers(y: Any) -> NDArray[np.float64]:
    """Labels as float64 (n,), NaN where missing (None or NaN).

    Raises TypeError for anything that is no number, ValueError for one whose square would leave the range of float64.
    """
    if not _is_array(y, "iuf"):
        y = scalars(y)
        for row, value in enumerate(y):
            if isinstance(value, str | bool):
                raise TypeError(f"y[{row}] is {value!r}; a label is a number, or None")
            if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
                raise ValueError(f"y[{row}] is beyond {LARGEST_NUMBER:g}; labels must lie within that of 0")
        y = [np.nan if value is None else float(value) for value in y]
    with np.errstate(over="ignore"):  # a longdouble beyond float64 is named below
        values = np.array(y, np.float64, order="C")  # never the caller's own, which may be read-only or not aligned
    wild = np.flatnonzero(np.abs(values) > LARGEST_NUMBER)
    if wild.size:
        raise ValueError(f"y[{wild[0]}] is {y[wild[0]]!s}; labels must lie within {LARGEST_NUMBER:g} of 0")
    return values
