r"""Objects as rows: the columns of a forest for features that have names, be they numbers or categories.

A number has one column, a category (a string) one for each of its values: 1 where the sample has this value, 0 where it
has another one, missing where it has none. A value beyond the first `max_categories` of its feature is another one to
all of its columns. A feature that is a number here and a category there has columns of both sorts; a sample fills those
of one sort and lacks the others. Trees cut between values, so that a missing one tells them nothing: that it is missing
has a column of its own, 1 where the sample lacks the feature and 0 where it does not, once a sample was learned that
lacks a feature which others had.

    {"age": 41, "city": "Rome"}        ->  columns  age  city=Rome
    {"city": "Oslo"}                                age  city=Rome  city=Oslo  age\missing
    {"age": 33, "city": "Rome"}        ->  row      33   1          0          0
    {"age": None, "city": "Bern"}      ->  row      -    0          0          1            (predicted only)

The names of the columns travel in the bytes of the forest, so they must tell everything. The first bare `=` ends the
name of a feature, and so does `\missing`; its own `=` and `\` have a `\` before them: a number that is called
`city=Rome` is the column `city\=Rome`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import isnan, nan
from numbers import Number
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from amf.inputs.scalars import is_na, plain, require_reals

_MISSING = r"\missing"
_COLUMN = re.compile(r"((?:[^=\\]|\\[=\\])*+)(?:=(.*+)|(\\missing))?", re.DOTALL)
_PLAIN = {type(None), bool, int, float, np.bool_, np.int32, np.int64, np.float32, np.float64}
_BARE = {type(None), bool, int, float, str}
_ANOTHER = 0.0  # code of a category without a column


class Column(NamedTuple):
    """What a column holds: a number, whether a feature has this category, or whether it is missing."""

    feature: str
    category: str | None = None
    of_missing: bool = False

    def __str__(self) -> str:
        name = re.sub(r"[=\\]", r"\\\g<0>", self.feature)
        if self.of_missing:
            return name + _MISSING
        return name if self.category is None else f"{name}={self.category}"

    @classmethod
    def parse(cls, text: str) -> Column:
        """The inverse of `str`. Raises ValueError for a text that is no column's."""
        match = _COLUMN.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not the name of a column: a backslash stands before = or another one, or in {_MISSING}"
            )
        return cls(re.sub(r"\\(.)", r"\1", match[1]), match[2], match[3] is not None)


class Limits(Protocol):
    """The parameters of a forest that matter here."""

    @property
    def max_categories(self) -> int: ...

    @property
    def max_features(self) -> int: ...


class HasColumns(Protocol):
    """A forest whose features have names."""

    @property
    def params(self) -> Limits: ...

    @property
    def feature_names(self) -> tuple[str, ...] | None: ...

    @property
    def in_unit_cube(self) -> bool: ...

    def add_features(self, names: Sequence[str], *, like: Sequence[int | None] | None = None) -> None: ...


class _Categories(NamedTuple):
    """The categories of one feature: their cell, the column of the first, and the code of each in the cell."""

    cell: int
    first: int
    codes: dict[str, float]


class Columns:
    r"""The columns of a forest, and objects as rows of them.

    A feature is a number, a string, or None, NaN or absent where it is missing; a boolean is 0 or 1. Columns come by
    `add` alone, for what the forest is going to learn: to ask leaves no trace.

    Whether a feature is missing is learned as well: `True` or absent are two values. A value of a sort that the feature
    never had when a label came counts as missing. Columns that say what is missing are at most half of the forest's
    `max_features`, and take no room from what the same object brings; beyond them a missing value tells nothing.

    On its way to a row an object is a list of cells, one for a number and one for all the categories of a feature, so
    that the work in Python does not grow with the number of categories.

    Examples
    --------
    The objects may be the rows of a data frame: `frame.to_dict("records")`.

    >>> import amf
    >>> forest = amf.AMFClassifier(seed=1)
    >>> columns = amf.Columns(forest)
    >>> people = [{"age": 41, "city": "Rome"}, {"age": 33, "city": "Oslo", "member": True}, {"age": 52, "city": "Rome"}]
    >>> for person, label in zip(people, ["stays", "leaves", "stays"]):
    ...     columns.add(columns.new(person))
    ...     _ = forest.partial_fit(columns.matrix([person]), [label])
    >>> print(*forest.feature_names)
    age city=Rome city=Oslo member member\missing
    >>> columns.matrix([{"age": 28, "city": "Bern"}]).tolist()
    [[28.0, 0.0, 0.0, nan, 1.0]]
    >>> forest.predict_proba(columns.matrix([{"age": 28, "city": "Bern"}])).shape
    (1, 2)

    A forest that was saved brings its columns along:

    >>> len(amf.Columns(amf.loads(forest.dumps())))
    5
    """

    def __init__(self, forest: HasColumns) -> None:
        """Those that the forest has. Raises ValueError where the names of its features are not those of columns."""
        self.names: list[str] = []
        """The feature of each cell."""
        self.numbers_only = True
        """Whether there is no category: then numbers by just these names, in this order, are cells."""
        self._forest = forest
        self._numbers: dict[str, int] = {}
        self._categories: dict[str, _Categories] = {}
        # Column by column: its cell, the code that makes it 1, and by what any other content is multiplied: a number's
        # code is NaN, which no content equals, and its factor 1; a category's factor 0 leaves NaN what is missing.
        self._cells = np.empty(0, np.intp)
        self._codes = np.empty(0)
        self._factors = np.empty(0)
        self._missing: dict[str, int] = {}
        """Features of which a column says where they are missing, with the place of that column."""
        self._never_missing: dict[str, None] = {}
        """All others, in the order in which they came."""
        self._kinds = np.empty((2, 0), np.intp)
        """Of each column that says so the cells of its feature, the same one twice where it is of one sort."""
        self._enter([Column.parse(name) for name in forest.feature_names or ()])

    def __len__(self) -> int:
        """How many columns there are."""
        return len(self._cells)

    def new(self, features: Mapping[str, Any]) -> list[Column]:
        """Columns to add before an object is learned: for its values, in its order, then for known features it lacks.

        A missing value of an unknown feature asks for none, but a forest needs one: where there would be no column at
        all, the first feature counts as a number. Raises TypeError for a value that is no feature.
        """
        new, features = [], _bare(features)
        for name, value in features.items():
            if type(value) is str:
                known = self._categories[name].codes if name in self._categories else ()
                if value not in known and len(known) < self._forest.params.max_categories:
                    new.append(_column(name, value))
            elif name not in self._numbers and not isnan(number_of(name, value)):
                new.append(_column(name))
        if not new and not len(self):
            new = [_column(name) for name in features][:1]
        never = self._never_missing
        # Most objects lack nothing, which is seen at once.
        if never.keys() <= features.keys() and not any(map(_is_missing, features.values())):
            return new
        lacked = (name for name in never if _is_missing(features.get(name)))
        return new + [Column(name, of_missing=True) for name in islice(lacked, self._room(len(new)))]

    @property
    def may_lack(self) -> bool:
        """Whether an object without a value of some feature brings no column for that."""
        return not self._never_missing or not self._room(0)

    def _room(self, n_new: int) -> int:
        """How many columns may yet say where a feature is missing, besides so many new ones for values."""
        # They are half of all columns at most, since each of them is of a feature that has another one.
        room = self._forest.params.max_features - len(self) - n_new
        return 0 if self._forest.in_unit_cube else max(room, 0)

    def add(self, columns: Sequence[Column]) -> None:
        """Append columns, and so features of the forest. Raises ValueError beyond its `max_features`."""
        self._require_features(columns)
        like = [self._sibling(column) for column in columns]
        try:
            self._forest.add_features([str(column) for column in columns], like=like)
            self._enter(columns)
        except BaseException:  # an interrupt may come between the two: what the forest has taken up is here as well
            self.__init__(self._forest)  # type: ignore[misc]
            raise

    def _require_features(self, columns: Sequence[Column]) -> None:
        """Raises ValueError where a column says what is missing of a feature of which there is none, or another one."""
        coming = set()
        for feature, _, of_missing in columns:
            if of_missing and feature not in self._never_missing and feature not in coming:
                raise _orphan(feature)
            coming.add(feature)

    def _sibling(self, column: Column) -> int | None:
        """The column in whose samples a new one is 0: those had another category, or were not without the feature."""
        if column.category is None and not column.of_missing:
            return None
        if column.feature in self._categories:
            return self._categories[column.feature].first
        if column.of_missing and column.feature in self._numbers:
            return self._cells.tolist().index(self._numbers[column.feature])
        return None

    def cells(self, features: Mapping[str, Any]) -> list[Any]:
        """Numbers and codes of categories, None where missing. What has no column is left out."""
        cells: list[Any] = [None] * len(self.names)
        for name, value in _bare(features).items():
            if type(value) is str:
                categories = self._categories.get(name)
                if categories is not None:
                    cells[categories.cell] = categories.codes.get(value, _ANOTHER)
            else:
                cell = self._numbers.get(name)
                if cell is not None:
                    cells[cell] = value
        return cells

    def rows(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows (n, number of columns) of the forest from cells (n, number of cells), NaN where missing."""
        if self.numbers_only and not self._missing:
            return cells
        rows = cells.take(self._cells, axis=1)
        found = rows == self._codes
        rows *= self._factors
        rows[found] = 1.0
        if self._missing:
            missing = np.isnan(cells)
            rows[:, [*self._missing.values()]] = missing[:, self._kinds[0]] & missing[:, self._kinds[1]]
        return rows

    def matrix(self, objects: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
        """Objects as rows (n, number of columns) of the forest. Raises TypeError for a value that is no feature.

        What a feature's columns are is known once they are added: `add(new(features))`, before the object is learned.
        """
        for place, features in enumerate(objects):
            if not isinstance(features, Mapping):
                what = f"objects[{place}] is a {type(features).__name__}, not a mapping of names to values"
                raise TypeError(f'{what}; the rows of a data frame are frame.to_dict("records")')
        cells = self._numbers_in([self.cells(features) for features in objects])
        return self.rows(cells.reshape(len(objects), len(self.names)))

    def _numbers_in(self, rows: list[list[Any]]) -> NDArray[np.float64]:
        """Rows of cells as float64, NaN where missing. Raises as `number_of`."""
        # Of dates, bytes and complex ones numpy would make numbers without a word.
        if _PLAIN.issuperset(map(type, chain.from_iterable(rows))):
            with suppress(OverflowError):
                return np.array(rows, np.float64)
        return np.array([list(map(number_of, self.names, row)) for row in rows], np.float64)

    def _enter(self, columns: Sequence[Column]) -> None:
        """Take in columns that the forest has."""
        cells, codes = [], []
        for number, (feature, category, of_missing) in enumerate(columns, len(self)):
            if of_missing:
                if feature not in self._never_missing:
                    raise _orphan(feature)
                del self._never_missing[feature]
                self._missing[feature] = number
                cell, code = 0, np.nan  # `rows` replaces what is found there.
            elif category is None:
                cell, code = self._numbers.setdefault(feature, len(self.names)), np.nan
            else:
                if feature not in self._categories:
                    self._categories[feature] = _Categories(len(self.names), number, {})
                cell, _, known = self._categories[feature]
                code = known.setdefault(category, 1.0 + len(known))
                self.numbers_only = False
            if cell == len(self.names):
                self.names.append(feature)
                if feature not in self._missing:
                    self._never_missing[feature] = None
            cells.append(cell)
            codes.append(code)
        self._cells = np.append(self._cells, np.array(cells, np.intp))
        self._codes = np.append(self._codes, codes)
        self._factors = np.where(np.isnan(self._codes), 1.0, 0.0)
        kinds = [self._cells_of(feature) for feature in self._missing]
        self._kinds = np.array(kinds, np.intp).reshape(len(kinds), 2).T

    def _cells_of(self, feature: str) -> tuple[int, int]:
        """The cells of a feature, the same one twice where it is of one sort."""
        of_numbers, categories = self._numbers.get(feature), self._categories.get(feature)
        found = [cell for cell in (of_numbers, categories and categories.cell) if cell is not None]
        return found[0], found[-1]


def _orphan(feature: str) -> ValueError:
    """For a column that says where a feature is missing which has no other column."""
    return ValueError(f"{feature + _MISSING!r} is the name of a column, but no column is of {feature!r}")


def _bare(features: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Features with texts of type str alone: the member of an enumeration, for one, is another key than its value."""
    if _BARE.issuperset(map(type, features)) and _BARE.issuperset(map(type, features.values())):
        return features
    return {_text(name): _text(value) for name, value in features.items()}


def _text(value: Any) -> Any:
    return plain(value) if isinstance(value, str) and type(value) is not str else value


def _column(name: Any, category: str | None = None) -> Column:
    if not isinstance(name, str):
        raise TypeError(f"the name of a feature is a str, got {name!r}")
    return Column(name, category)


def _is_missing(value: Any) -> bool:
    if type(value) in _BARE or isinstance(value, Number):
        return value is None or value != value
    return is_na(value)


def number_of(name: str, value: Any) -> float:
    """Raises TypeError where the value of a feature is none that it can have, ValueError where it is too large."""
    if value is None or is_na(value):
        return nan
    require_reals(f"feature {name!r}", value)
    try:
        return float(None if isinstance(value, bytes | bytearray | memoryview) else value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError(f"feature {name!r} is beyond the range of float64") from None
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise TypeError(
            f"feature {name!r} is a {kind}; a feature is a number, a string, or None or NaN where it is missing"
        ) from None
