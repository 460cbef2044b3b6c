"""A batch as it comes and as it goes: rows, labels and forecasts, and the buffers that hold them on the way."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.inputs.scalars import is_na, plain, require_reals

ROWS_PER_CALL = 1024
"""Rows of a forest in one call of a kernel, for which memory is reserved before."""
MOST_FORECASTS = 1 << 18
"""Numbers in the buffer of what trees say, which so has 2 MB at most, or room for one row."""


def rows_at_once(n_trees: int, n_outputs: int) -> int:
    """Rows of which the buffer holds what all trees say: a forecast and two depths of each."""
    return max(1, MOST_FORECASTS // (n_trees * (n_outputs + 2)))


TIMES = "date", "time", "Time", "Period"
"""What the names of types of times have in them."""
_AS_SECONDS = "give times as seconds since some day, and NaN where a value is missing"
_TIMES_BESIDE = f"X holds times beside numbers: {_AS_SECONDS}"
_OF_OBJECTS = "amf.Columns makes rows of objects with names and texts"
_LONG = np.dtype(np.longdouble).char
_ONE_NUMBER = "a feature of a row is a single number; spread what holds several over as many columns"
_FEW = 3  # names of columns in a message


def _none_for_na(value: Any) -> Any:
    """A value of an array of objects, None where it is NA. Raises TypeError for what numpy would make a number of."""
    if isinstance(value, bytes | np.generic):
        require_reals("X", np.bytes_(value) if isinstance(value, bytes) else value)
    return None if is_na(value) else value


_NONE_FOR_NA = np.frompyfunc(_none_for_na, 1, 1)


class Labels(NamedTuple):
    """Labels of a batch as the kernels take them."""

    values: NDArray[Any]
    """(n,)"""
    labelled: NDArray[np.bool_]
    """(n,)"""
    arrivals: dict[int, Any]
    """Row -> label, for each row whose label the forest has to be prepared for, in order."""
    n_outputs: int
    """Numbers in a forecast after the last row."""

    def part(self, rows: slice) -> Labels:
        """Some rows, none of which brings a label of a new kind."""
        return Labels(self.values[rows], self.labelled[rows], {}, self.n_outputs)

    def hidden(self, rows: slice) -> Labels:
        """Some rows without their labels."""
        return Labels(self.values[rows], np.zeros_like(self.labelled[rows]), {}, self.n_outputs)


@lru_cache(maxsize=1024)
def label_of_one(code: type[np.generic], value: int | None, n_outputs: int) -> Labels:
    """The label of a single row, None where it has none: many streams come one event at a time."""
    return Labels(np.array([value or 0], code), np.array([value is not None]), {}, n_outputs)


class BatchForecasts(NamedTuple):
    """What a forest says of a batch."""

    outputs: NDArray[np.float64]
    """(n, n_outputs), calibrated where the forest is."""
    raw: NDArray[np.float64]
    """(n, n_outputs), of the trees alone."""
    depths: NDArray[np.float64]
    """(n, 2): depth at which the sample ends and weighted depth, means over trees."""

    def part(self, rows: slice) -> BatchForecasts:
        """Some rows: views."""
        return BatchForecasts(self.outputs[rows], self.raw[rows], self.depths[rows])

    @classmethod
    def empty(cls, n: int, n_outputs: int) -> BatchForecasts:
        """Zeros for so many rows."""
        return cls(np.zeros((n, n_outputs)), np.zeros((n, n_outputs)), np.zeros((n, 2)))

    def copy(self) -> BatchForecasts:
        """All that is said, in arrays of its own: what is written to one is not seen in the other."""
        return BatchForecasts(self.outputs.copy(), self.raw.copy(), self.depths.copy())


class Unasked(BatchForecasts):
    """Forecasts that no caller gets, of which a forest may learn all the same: each part is in the same memory."""

    def part(self, rows: slice) -> BatchForecasts:
        n = rows.stop - rows.start
        return BatchForecasts(self.outputs[:n], self.raw[:n], self.depths[:n])


class _Scratch(threading.local):
    """Buffers that live from call to call: fresh pages for each of them would cost more than small batches do."""

    def __init__(self) -> None:
        self._floats, self._reals = np.empty(0, np.float32), np.empty(0)

    def floats(self, size: int) -> NDArray[np.float32]:
        """At least so many float32 with anything in them, until the next call."""
        if self._floats.size < size:
            self._floats = np.empty(size, np.float32)
        return self._floats

    def reals(self, size: int) -> NDArray[np.float64]:
        """At least so many float64 with anything in them, until the next call."""
        if self._reals.size < size:
            self._reals = np.empty(size)
        return self._reals


SCRATCH = _Scratch()


def unmasked(X: ArrayLike) -> Any:  # noqa: N803
    """X, with NaN for what is masked. Raises TypeError for dates, durations, complex numbers and bytes, and ValueError
    for what is finite beyond the range of float64.

    Numpy would turn all these into numbers, as good as without a word.
    """
    given = X if isinstance(X, np.ndarray) else as_array(X)
    require_reals("X", X if hasattr(X, "dtype") else given)
    if isinstance(given, np.ma.MaskedArray):
        X = given  # noqa: N806
    if given.dtype.char == _LONG:
        X = _narrowed(given)  # noqa: N806
    elif given.dtype.kind == "O" and given.ndim:
        given = _NONE_FOR_NA(given)
        X = given if type(X) is np.ndarray else X  # noqa: N806
    return np.ma.filled(X.astype(np.float64), np.nan) if isinstance(X, np.ma.MaskedArray) else X


def _narrowed(X: NDArray[Any]) -> NDArray[np.float64]:  # noqa: N803
    """Long doubles as float64. Raises ValueError for one that this cannot hold."""
    with np.errstate(over="ignore"):
        x = X.astype(np.float64)
    beyond = np.argwhere(np.ma.filled(np.isinf(x) & np.isfinite(X), False))
    if beyond.size:
        place = tuple(beyond[0].tolist())
        raise ValueError(f"X{list(place)} is {X[place]!s}, a number beyond the range of float64")
    return x


def as_array(X: Any) -> NDArray[Any]:  # noqa: N803
    """X as an array. Raises ValueError where its rows differ in length, with the first of them, and TypeError for times
    in columns beside numbers."""
    try:
        if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
            return np.ma.array(X)  # of masked rows numpy would take what is under their masks
        array = np.asarray(X)
    except np.exceptions.DTypePromotionError as error:  # of a table of Arrow, whose columns numpy puts side by side
        raise TypeError(_TIMES_BESIDE) from error
    except ValueError as error:
        raise _with_the_row(error, X) from error
    if array.dtype.kind in "iuf" and _has_times(X):
        raise TypeError(_TIMES_BESIDE)
    return array


def _has_times(X: Any) -> bool:  # noqa: N803
    """Whether it is a table of polars with times: beside numbers it makes numbers of them, each type in a unit."""
    kinds = getattr(X, "dtypes", None)
    return isinstance(kinds, list) and any(kind.is_temporal() for kind in kinds if hasattr(kind, "is_temporal"))


def _with_the_row(error: ValueError, X: Any) -> ValueError:  # noqa: N803
    """What numpy says of rows that are none, with which row that is and what to do."""
    if "setting an array element with a sequence" not in str(error):
        return error
    first = None
    for place, row in enumerate(X):
        if not isinstance(row, Sequence | np.ndarray) or isinstance(row, str):
            return ValueError(f"X[{place}] is a {type(row).__name__}, not a row of numbers: X must be (n, d)")
        for column, value in enumerate(row):
            if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
                return ValueError(f"X[{place}, {column}] is a {type(value).__name__}: {_ONE_NUMBER}")
        first = len(row) if first is None else first
        if len(row) != first:
            return ValueError(f"X[0] has {first} values and X[{place}] has {len(row)}: give NaN where one is missing")
    return error


def numbers_of(X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
    """X as float64 in rows, NaN for what is masked or NA. Raises ValueError for texts, with what to do about them, and
    TypeError as `unmasked` does."""
    is_plain = type(X) is np.ndarray and X.dtype.kind == "f" and X.dtype.char != _LONG
    if is_plain:  # nothing to look for: many streams come one row at a time
        return np.ascontiguousarray(X, np.float64)
    if hasattr(X, "toarray"):
        raise TypeError(f"X is a {type(X).__name__}, a sparse matrix; a forest takes dense rows: X.toarray()")
    given = unmasked(X if isinstance(X, np.ndarray) else as_array(X))
    if given.dtype.kind == "O" and not given.ndim:
        what = f"X is a {type(X).__name__}; a forest takes rows of numbers (n, d)"
        raise TypeError(f"{what}: {_OF_OBJECTS}" if isinstance(X, Mapping) else what)
    try:
        x = np.ascontiguousarray(given, np.float64)
    except OverflowError as error:
        raise ValueError(f"X holds a number beyond the range of float64 ({error})") from error
    except TypeError as error:
        hint = "give NaN where a value is missing"
        if any(time in str(error) for time in TIMES):
            hint = _AS_SECONDS
        elif "dict" in str(error):
            hint = _OF_OBJECTS
        raise TypeError(f"X holds what is no number ({error}): {hint}") from error
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise _with_the_row(error, given) from error
        hint = f"a forest takes numbers; {_OF_OBJECTS}"
        raise ValueError(f"X holds text ({error}): {hint}, such as X.to_dict('records') of a data frame") from error
    _require_no_text(given)
    return x


def _require_no_text(given: NDArray[Any]) -> None:
    """Raises ValueError for texts, of codes such as "04109" too: numpy makes numbers of them without a word."""
    if given.dtype.kind not in "OUT":
        return
    text = next((value for value in given.flat if isinstance(value, str)), None)
    if text is not None:
        what = f"X holds text ({str(text)!r:.40}), be it that of a number"
        raise ValueError(f"{what}: X.astype(float) if it is one, else {_OF_OBJECTS}")


def names_of(X: Any) -> tuple[str, ...] | None:  # noqa: N803
    """The names of the columns of a table; None where X has none, or where these are no texts.

    Raises ValueError where two columns have one name.
    """
    columns = getattr(X, "column_names", None) or getattr(X, "columns", None)  # the former of tables of Arrow
    names = [plain(name) for name in columns] if isinstance(columns, Iterable) else []
    if not names or not all(isinstance(name, str) for name in names):
        return None
    require_different(names)
    return tuple(names)


def require_different(names: Iterable[Hashable]) -> None:
    """Raises ValueError where two columns of a table have one name: which of them is meant, nobody could tell."""
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ValueError(f"X has two columns of one name, such as {twice[:_FEW]}: give each a name of its own")


def require_names(names: tuple[str, ...] | None, known: Sequence[str]) -> None:
    """Raises ValueError where these names of a table's columns are other ones, or the same in another order.

    By position, as an array is taken, each column would be another feature without a word.
    """
    if names is None or names == tuple(known):
        return
    its, given = set(known), set(names)
    new, missing = [name for name in names if name not in its], [name for name in known if name not in given]
    if not new and not missing:
        raise ValueError("X has the columns of this forest in another order: give X[list(forest.feature_names)]")
    parts = (("has columns that this forest does not know", new), ("lacks columns that it learned from", missing))
    raise ValueError("X " + " and ".join(f"{what}, such as {some[:_FEW]}" for what, some in parts if some))
