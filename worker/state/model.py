"""One model key: what its forest accepts, and events through the forest. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf import Adaptation, Column, Columns, OnlineForest
from worker.base.limits import MAX_NEW_COLUMNS, YOUNG_SAMPLES
from worker.base.records import Event, Features, Label, Reject, Scores
from worker.base.terms import KindChange
from worker.config import ModelParams
from worker.config.model import canonical
from worker.state.auc import BinnedAuc
from worker.state.cells import MOST_CELLS, is_in_unit_interval, listed_of, plain_cells, rows_of
from worker.state.explanations import Explainer, between_labels
from worker.state.features import FeaturesOfColumns, features_of
from worker.state.runs import Applied, Run
from worker.state.targets import (
    NO_LABEL,
    UNKNOWN,
    ForecastColumns,
    Target,
    answer_bytes_of,
    forest_of,
    scores_of,
    target_of,
)


def spec_of(key: str, params: ModelParams, decoder: str) -> str:
    """Hash of everything that, with the input, determines the state of this model: 16 hexadecimal digits."""
    text = f'{{"decoder":{canonical(decoder)},"key":{canonical(key)},"params":{params.determining_text}}}'
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Model:
    """One model key: its forest, and the rules by which the forest accepts events.

    The rules depend on what was learned: the first labelled event fixes array or object and the length of an array;
    names, categories and classes come with labelled events. One that breaks a rule is rejected and changes nothing.

    They also follow from what the model was made with, and never from what the configuration says by now: a model that
    is restored, under whatever configuration, learns as if it had never been away.
    """

    __slots__ = (
        "_columns_met",
        "_features",
        "_kind",
        "_target",
        "_width",
        "explainer",
        "forest",
        "key",
        "listed",
        "ranking",
        "spec",
    )  # fmt: skip

    def __init__(
        self, key: str, forest: OnlineForest, spec: str, *, names_given: bool | None = None, length: int | None = None
    ) -> None:
        """`names_given` says that an object's names are those that the forest has; `length` is that of its arrays."""
        self.key = key
        self.forest = forest
        self.spec = spec
        self._target: Target | None = None
        self.ranking: BinnedAuc | None = None
        """Kept from when the metrics first show the model."""
        self._columns_met: Columns | None = None
        self._features: FeaturesOfColumns | None = None
        self.explainer: Explainer | None = None
        """Kept from its first forecast that is explained."""
        names = forest.feature_names
        self.listed: frozenset[str] | None = None
        """The names of its features, where they were given."""
        if names_given and names is not None:
            self.listed = frozenset(features_of(names, range(len(names))))
        self._width = forest.n_features or length
        self._kind: type[list[Any]] | type[dict[str, Any]] | None = None
        if self._width is not None:
            self._kind = list
            if names is not None:
                self._kind = dict

    @classmethod
    def new(cls, key: str, params: ModelParams, spec: str) -> Self:
        """One that has learned nothing."""
        features = params.features
        length = features if isinstance(features, int) else None
        return cls(key, forest_of(key, params), spec, names_given=isinstance(features, tuple), length=length)

    @property
    def names_given(self) -> bool | None:
        """Whether the names of its features were given, so that any other is ignored; None where they have no names.

        The forest tells all else that the model was made with.
        """
        return self.listed is not None if self._kind is dict else None

    @property
    def features(self) -> FeaturesOfColumns:
        """The features of the forest's columns as of now. Made when somebody asks: most models are never looked at."""
        if self._features is None:
            self._features = FeaturesOfColumns()
        self._features.follow(self.forest.feature_names, self.forest.n_features)
        return self._features

    @property
    def target(self) -> Target:
        """What labels are to it. Made when an event comes that does not go with those of others (rules.py)."""
        if self._target is None:
            self._target = target_of(self.forest.class_labels, self.forest.params)
        return self._target

    @property
    def kind_of_scores(self) -> type[Scores]:
        """What sums up how good its answers were: for classes, or for numbers."""
        return scores_of(self.forest.class_labels)

    @property
    def answer_bytes(self) -> int:
        """What an answer of it takes at most, about, until it is published."""
        if self._target is None:
            return answer_bytes_of(self.forest.class_labels or ())
        return self._target.answer_bytes

    @property
    def _n_classes(self) -> int:
        """Classes met so far; 0 where labels are numbers."""
        return self.n_given if not self.forest.n_samples else len(self.forest.class_labels or ())

    @property
    def n_given(self) -> int:
        """Classes that it was given: those that it knows before its first label."""
        return len(getattr(self.forest.params, "classes", None) or ())

    def feature_weights(self, adaptation: Adaptation) -> NDArray[np.float64]:
        """Weights of the features, by what the forest tells of its adaptation; 0 of one that cannot be cut.

        Of a feature with several columns it is the mean over those that can be cut: as of a single one it says how much
        likelier a cut is of the feature than in a forest that does not adapt.
        """
        return self.features.means(np.array(adaptation.feature_weights))

    def apply(self, events: Sequence[Event], *, predict: bool, explain: int = 0) -> Applied:
        """Predict and learn the events in their order; with `predict` False only learn (replay).

        explain: how many features are named with each forecast that moved it most.
        """
        applied = Applied(len(events), self.kind_of_scores, explain)
        run = self._plain_run(events)
        # Nearly every event looks like the one before it; only where one does not are they looked at one by one.
        if run is None:
            run = self._closely(events, applied, predict=predict)
        self._pass(run, applied, predict=predict)
        return applied

    def meet(self, event: Event) -> bool:
        """Take in what the first event with a label brings, and do not learn it yet.

        False, and nothing has happened, where it is refused or lacks a value: once that is met the lack would be new.
        """
        features, label = event.features, event.label
        new = self._new_columns(event)
        if _lacks(features) or label is None or self._refusal(event, new, 0) is not None:
            return False
        self._kind, self._width = type(features), len(features)
        if new:
            self._add(new)
        elif not self.forest.n_features:
            self.forest.add_features(len(features))
        if self.target.code(label) == UNKNOWN:
            self.meet_class(label)
        return True

    def is_as_met(self, event: Event) -> bool:
        """Whether a model that has met one event and learned nothing is as if it had met this one: see `meet`."""
        return not _lacks(event.features) and self._plain_run([event]) is not None

    def meet_class(self, label: Label) -> None:
        """Take in the class of a label that has no code and is not refused, before it is learned with others."""
        if self._target is not None:
            self._target.admit(label)
        self.forest.add_classes([label])

    @property
    def columns(self) -> Columns | None:
        """Those of the objects that it takes; None where it takes arrays."""
        return self._columns if self._kind is dict else None

    @property
    def _columns(self) -> Columns:
        """Made when the first object comes: a model of arrays needs none, and there may be many of those."""
        if self._columns_met is None:
            self._columns_met = Columns(self.forest)
        return self._columns_met

    def _plain_run(self, events: Sequence[Event]) -> Run | None:
        """All events, if this model takes them as they stand, without anything new; None if it has to look closely."""
        codes = self.target.codes([event.label for event in events])
        if UNKNOWN in codes:
            return None
        cells = [cells for event in events if (cells := self._plain_cells(event.features)) is not None]
        return Run(list(range(len(events))), list(events), cells, codes) if len(cells) == len(events) else None

    def _closely(self, events: Sequence[Event], applied: Applied, *, predict: bool) -> Run:
        """Look at the events one by one; returns those that are still to be passed through the forest."""
        target = self.target
        run = Run([], [], [], [])
        for i, event in enumerate(events):
            features, label = event.features, event.label
            code = NO_LABEL if label is None else target.code(label)
            cells = self._plain_cells(features)
            if cells is None or code == UNKNOWN:
                new = self._new_columns(event)
                if (refused := self._refusal(event, new, self.forest.n_samples + run.n_labelled)) is not None:
                    applied.outcomes[i] = refused
                    continue
                if label is None and self._kind is None:
                    if predict:
                        applied.outcomes[i] = target.blind(event)
                        applied.tally.predicted += 1
                    continue
                if new:
                    # The forest grows in between: rows before this one are learned without the new columns.
                    self._pass(run, applied, predict=predict)
                    run = Run([], [], [], [])
                    applied.kind_changes += [(i, *change) for change in self._add(new)]
                if self._kind is None:
                    self._kind, self._width = type(features), len(features)
                if label is not None and code == UNKNOWN:
                    if (change := target.kind_change(label)) is not None:
                        applied.kind_changes.append((i, None, change))
                    code = target.admit(label)
                cells = features if isinstance(features, list) else self._columns.cells(features)
            run.cells.append(cells)
            run.rows.append(i)
            run.events.append(event)
            run.codes.append(code)
            if len(run.rows) * len(cells) >= MOST_CELLS:
                self._pass(run, applied, predict=predict)
                run = Run([], [], [], [])
        return run

    def _plain_cells(self, features: Features) -> Collection[Any] | None:
        """The values of an event where they are cells as they stand: nothing to look up, and nothing new."""
        is_array = isinstance(features, list)
        width, columns = self._width if self._kind is list else None, None if is_array else self._columns
        return plain_cells(features, width, columns, in_cube=self.forest.in_unit_cube)

    def _refusal(self, event: Event, new: Sequence[Column], learned: int) -> Reject | None:
        """Why this model cannot take the event, which would bring these columns; None if it can. Looks only.

        learned: labels before this event.
        """
        refused = self._refusal_of(event.features, sum(not column.of_missing for column in new), learned)
        if refused is None and event.label is not None and self.target.code(event.label) == UNKNOWN:
            refused = self.target.refusal(event.label)
        return refused

    def _refusal_of(self, features: Features, n_new: int, learned: int) -> Reject | None:
        # The forest's own limit: that of a restored model may not be what the configuration says by now.
        most = self.forest.params.max_features
        if self._kind is not None and type(features) is not self._kind:
            is_array = type(features) is list
            got, takes = ("an array", "an object") if is_array else ("an object", "an array")
            return Reject("feature-kind", f"features is {got}, this model takes {takes}")
        if type(features) is list:
            if self._width is not None and len(features) != self._width:
                return Reject("feature-count", f"features has {len(features)} numbers, this model takes {self._width}")
            if self._width is None and len(features) > most:
                return Reject("too-many-features", f"features has {len(features)} numbers, max_features is {most}")
        elif n_new:
            known, at_once = len(self._columns), max(len(self._columns), MAX_NEW_COLUMNS)
            if known + n_new > most:
                return Reject(
                    "too-many-features", f"features brings the model to more than max_features={most} columns"
                )
            # Every node has room for every column: for one odd event's thousands a model that has learned would keep
            # few of its nodes, for good.
            if n_new > at_once and learned >= YOUNG_SAMPLES:
                return Reject(
                    "too-many-features",
                    f"features brings {n_new} new columns, a model with {known} takes {at_once} at once; reset it, or"
                    " list the names in models.default.features, where they are meant",
                )
        return self._outside_unit_cube(features, n_new) if self.forest.in_unit_cube else None

    def _outside_unit_cube(self, features: Features, n_new: int) -> Reject | None:
        """Why features are no point of the cube in which the model lives, None if they are one."""
        values: dict[str, float | str | None]
        if isinstance(features, list):
            values = {f"features[{i}]": value for i, value in enumerate(features)}
        else:
            # Before the first sample those of the event are all there will be.
            values = {f"features[{name[:40]!r}]": features.get(name) for name in self._columns.names or features}
        for path, value in values.items():
            if not is_in_unit_interval(value):
                got = "missing" if value is None else "text" if isinstance(value, str) else str(value)
                return Reject("outside-unit-cube", f"{path} is {got}, this model takes numbers from 0 to 1")
        if n_new and len(self._columns):
            return Reject("outside-unit-cube", "features has names that were not in the model's first labelled event")
        return None

    def _new_columns(self, event: Event) -> list[Column]:
        """What a labelled event brings. Where names were given, others are ignored."""
        features = event.features
        if event.label is None or isinstance(features, list):
            return []
        return self._columns.new(listed_of(features, self.listed))

    def _add(self, new: Sequence[Column]) -> list[tuple[str, KindChange]]:
        """Take in new columns; returns the features that have changed their kind with them, which stay as they are.

        A feature has a cell for each of its kinds, so that one with two has had another kind before. A name that was
        given has a number's cell from the start, be it ever a number.
        """
        columns = self._columns
        n = len(columns.names)
        columns.add(new)
        if self.listed is not None or len(columns.names) == n:
            return []
        former, texts = set(columns.names[:n]), {column.feature for column in new if column.category is not None}
        changed = [name for name in columns.names[n:] if name in former]
        return [(name, "number-to-text" if name in texts else "text-to-number") for name in changed]

    def _pass(self, run: Run, applied: Applied, *, predict: bool) -> None:
        """Put a run of accepted events through the forest."""
        if not run.rows:
            return
        rows = rows_of(run.cells, self.columns)
        if not predict:
            self.forest.partial_fit(rows, self.target.given(run.events))
        elif applied.explain:
            # A forecast is explained by the forest that made it: before the next label is learned.
            moves_each = rows.shape[1] * max(self._n_classes, 1)
            for part in between_labels(run.codes, moves_each):
                self._predict(rows[part], run.part(part), applied)
        else:
            self._predict(rows, run, applied)
        applied.tally.learned += run.n_labelled

    def _predict(self, rows: NDArray[np.float64], run: Run, applied: Applied) -> None:
        """Predict each event of a run and learn it; `rows` are what the forest takes of them."""
        found, target = None, self.target
        if applied.explain and self.forest.n_samples:
            found = self.forest.attribute(rows)
        learned = accumulate((code != NO_LABEL for code in run.codes[:-1]), initial=self.forest.n_samples)
        known = accumulate(run.codes[:-1], lambda n, code: max(n, code + 1), initial=self._n_classes)
        forecasts = target.forecasts(self.forest.prequential(rows, target.given(run.events)))
        answered = target.answers(run.events, run.codes, forecasts, learned, known)
        if applied.explain:
            features = self.features
            if self.explainer is None:
                self.explainer = Explainer(features)
            answered = answered._replace(answers=self.explainer.explained(found, answered.answers, applied.explain))
        applied.answered(run.rows, answered, forecasts)
        self.rank(forecasts, run.codes)

    def rank(self, forecasts: ForecastColumns, codes: ArrayLike) -> None:
        """Count how forecasts ranked the classes, where anybody asks for that. codes: of the labels."""
        if self.ranking is not None and forecasts.probabilities is not None:
            self.ranking.add(forecasts.probabilities[:, : self._n_classes], codes)


def _lacks(features: Features) -> bool:
    """Whether a name has no value, or there is none: no column is made of that, though others may have one for it."""
    return isinstance(features, dict) and (not features or None in features.values())
