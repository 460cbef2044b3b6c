"""Which events a model takes as they stand, and how it is answered: nearly all models share that with others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

import amf
from amf import Columns
from worker.base.records import Event
from worker.state.cells import listed_of, plain_cells, rows_of
from worker.state.model import Model
from worker.state.targets import Target, target_of

_MOST_NAMES = 64
"""Classes, and names of features, with which rules are still looked up: to compare more takes longer than it saves."""
_LIMITS = "max_categories", "max_features", "max_classes", "classes"
"""Parameters of a forest that decide what it refuses; models.overrides may give each model others."""


class Rules:
    """What a model has met so far, as far as it decides what becomes of an event.

    They hold until the model meets anything new.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "_in_cube",
        "_listed",
        "_n_given",
        "_width",
        "group",
        "kind",
        "n_cells",
        "n_classes",
        "target",
    )

    def __init__(self, model: Model, group: amf.Group, target: Target, columns: Columns | None) -> None:
        forest = model.forest
        self.group = group
        """Of the forests, by the slots of their models."""
        self.target = target
        self.n_classes = len(forest.class_labels or ())
        self.kind = forest.variant, forest.n_features, self.n_classes
        """Models of one kind pass through their forests in one call; all rows of forecasts are as wide as one's."""
        self._n_given = model.n_given
        self.n_cells = forest.n_features
        """Of a row."""
        self._columns, self._listed, self._in_cube = columns, model.listed, forest.in_unit_cube
        self._width = forest.n_features if columns is None else None

    def read(self, events: Sequence[Event]) -> tuple[list[Collection[Any] | None], list[int]]:
        """Of each event the cells, None where it has to be looked at by its model, and the number of its label.

        A label that has to be looked at has the number UNKNOWN.
        """
        codes = self.target.codes([event.label for event in events])
        if self._columns is None and not self._in_cube:
            width = self._width
            rows = [event.features for event in events]
            return [row if type(row) is list and len(row) == width else None for row in rows], codes
        return [self._cells(event) for event in events], codes

    def known(self, learned: Sequence[int]) -> list[int]:
        """How many classes a model knew when it had learned so many samples: before the first those it was given."""
        return [self.n_classes if n else self._n_given for n in learned]

    def rows(self, cells: Sequence[Collection[Any]]) -> NDArray[np.float64]:
        """What a forest takes of these cells."""
        return rows_of(cells, self._columns)

    def _cells(self, event: Event) -> Collection[Any] | None:
        features, columns = event.features, self._columns
        cells = plain_cells(features, self._width, columns, in_cube=self._in_cube)
        if cells is not None or columns is None or self._in_cube or isinstance(features, list):
            return cells
        if event.label is not None and columns.new(listed_of(features, self._listed)):
            return None
        return columns.cells(features)


class _Met(NamedTuple):
    """What columns ask of a forest that does not grow."""

    params: Any
    feature_names: tuple[str, ...] | None
    in_unit_cube: bool

    def add_features(self, names: Sequence[str], *, like: Sequence[int | None] | None = None) -> None:
        raise AssertionError("shared columns do not grow")


class Rulebook:
    """The rules of the models of one partition, shared where they are short, and their forests by `variant`."""

    def __init__(self) -> None:
        self._shared = WeakValueDictionary[tuple[Any, ...], Rules]()
        """As long as there is a model that has them (SlotTable.rules)."""
        self._groups = defaultdict[tuple[str, ...], amf.Group](amf.Group)

    def admit(self, slot: int, model: Model) -> Rules:
        """The rules of a model that has met features and what labels are, whose forest may join others from now on."""
        forest = model.forest
        group = self._groups[forest.variant]
        group.put(slot, forest)
        labels, names, own = forest.class_labels, forest.feature_names, model.columns
        is_short = len(labels or ()) <= _MOST_NAMES and (
            own is None or (own.numbers_only and len(own.names) <= _MOST_NAMES)
        )
        if not is_short:
            return Rules(model, group, model.target, own)
        # Of labels that are numbers there are no limits.
        limits = [getattr(forest.params, name, None) for name in _LIMITS]
        # 1 and True are equal, and two labels.
        typed = None if labels is None else tuple((type(label), label) for label in labels)
        key = forest.variant, forest.n_features, typed, names, model.listed, *limits
        rules = self._shared.get(key)
        if rules is None:
            target = target_of(None if labels is None else [*labels], forest.params)
            rules = Rules(model, group, target, own and Columns(_Met(forest.params, names, forest.in_unit_cube)))
            self._shared[key] = rules
        return rules
