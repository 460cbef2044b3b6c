"""The forests as river models. Needs the extra `river`: `pip install '.[river]'`.

    from river import datasets, evaluate, metrics
    from amf.integrations.river import AMFClassifier

    evaluate.progressive_val_score(datasets.Phishing(), AMFClassifier(seed=1), metrics.LogLoss())

A model holds a forest, `model.forest`, and turns objects into its rows (amf.Columns): a feature is a number, a string
(a category) or missing, and features appear and disappear as they like. Names that are no strings become strings.
A feature that is absent is missing, not 0 as in river's linear models; that it is has a column of its own.
The methods for many rows take what river's own do, data frames of pandas, polars, Arrow and so on, and answer in kind.
Unlike river's own Mondrian forests these need no scaler before them. Threads may share a forest, but not a model.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import isinf
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from amf.inputs.batch import require_different
from amf.inputs.columns import number_of
from amf.inputs.labels import scalars
from amf.inputs.scalars import is_na

try:
    from river import base
    from river.utils.dataframe import into_frame, to_native_frame, to_native_series
except ImportError as error:
    raise ImportError("amf.integrations.river needs river 0.26.1 or newer: pip install '.[river]'") from error

Features = Mapping[Hashable, Any]


class _Learner(NamedTuple):
    """A forest and its columns, in one attribute: a copy of it keeps the two together."""

    forest: Any
    columns: amf.Columns


class _Rehearsed:
    """A forest as columns see it, which takes up features in name alone."""

    def __init__(self, forest: Any) -> None:
        self.params, self.in_unit_cube, self.feature_names = forest.params, forest.in_unit_cube, forest.feature_names
        self._forest = forest

    def add_features(self, names: Sequence[str], *, like: Sequence[int | None] | None = None) -> None:
        """Raises ValueError where the forest could not take them up."""
        self.feature_names = (*(self.feature_names or ()), *names)
        self._forest._require_room_for_features(len(self.feature_names) - self._forest.n_features)


class _AMFModel(base.Estimator):
    """What the models share: how objects reach the forest."""

    _system: ClassVar[Any]
    """The forest that is held."""

    def __init__(self, n_estimators: int = 10, seed: int | None = None, **parameters: Any) -> None:
        self.n_estimators = n_estimators
        self.seed = seed
        self.parameters = parameters
        drawn = secrets.randbits(64) if seed is None else seed
        forest = self._system(n_estimators=n_estimators, seed=drawn, **parameters)
        self._learner = _Learner(forest, amf.Columns(forest))

    def learn_one(self, x: Features, y: Any) -> None:
        """Learn one sample. x: name -> number, string, or None or NaN where missing. y: its label, None: none.

        Raises ValueError or TypeError for any other value, and beyond a limit of the forest.
        """
        self._learn([x], [y])

    def learn_many(self, X: Any, y: Any) -> None:  # noqa: N803
        """Learn the rows of a data frame in their order: bit for bit what `learn_one` would learn from each in turn.

        y: a label for each row, in a series, an array or a list. Raises ValueError where there are not as many, and as
        `learn_one` does, before any of the rows is learned.
        """
        labels, samples = scalars(y), _records(_frame(X))
        if len(labels) != len(samples):
            raise ValueError(f"y has {len(labels)} labels for {len(samples)} rows of X")
        self._learn(samples, labels)

    @property
    def _raw_memory_usage(self) -> int:
        # River's own walk through the objects would count each view of the forest's memory anew.
        return int(self._learner.forest.nbytes)

    def _learn(self, samples: Sequence[Features], labels: Sequence[Any]) -> None:
        columns, start = self._learner.columns, 0
        objects = [_named(sample) for sample in samples]
        rehearsed = len(objects) == 1
        for row, (features, label) in enumerate(zip(objects, labels, strict=True)):
            if _is_label(label) and columns.new(features):
                if not rehearsed:
                    self._require_all_learnable(objects, labels)
                    rehearsed = True
                self._require_learnable(features, label)
                # Earlier samples knew nothing of these columns. The order within an object is not to matter.
                self._learn_rows(objects[start:row], labels[start:row])
                columns.add(columns.new(dict(sorted(features.items()))))
                start = row
        self._learn_rows(objects[start:], labels[start:])

    def _require_learnable(self, features: Mapping[str, Any], label: Any) -> None:
        """Raises ValueError or TypeError before the forest has columns for what it is going to refuse."""
        for name, value in features.items():
            if not isinstance(value, str) and isinf(number_of(name, value)):
                raise ValueError(f"feature {name!r} is infinite; numbers must be finite, None or NaN for missing")
        self._learner.forest._encode([label], 1)

    def _require_all_learnable(self, objects: Sequence[Mapping[str, Any]], labels: Sequence[Any]) -> None:
        """Raises ValueError or TypeError where one of many is going to be refused, once others have been learned."""
        forest = self._learner.forest
        forest._encode(labels, len(objects))
        rehearsed = _Rehearsed(forest)
        columns = amf.Columns(rehearsed)
        for features, label in zip(objects, labels, strict=True):
            if _is_label(label):
                columns.add(columns.new(features))
        infinite = np.argwhere(np.isinf(columns.matrix(objects)))
        if infinite.size:
            row, column = infinite[0].tolist()
            feature = amf.Column.parse(rehearsed.feature_names[column]).feature
            where = f"feature {feature!r} of row {row}"
            raise ValueError(f"{where} is infinite; numbers must be finite, None or NaN for missing")

    def _learn_rows(self, objects: Sequence[Mapping[str, Any]], labels: Sequence[Any]) -> None:
        forest, columns = self._learner
        # Before the first feature there is nothing to tell samples apart by.
        if objects and len(columns):
            forest.partial_fit(columns.matrix(objects), labels)

    def _rows(self, samples: Sequence[Features]) -> NDArray[np.float64]:
        return self._learner.columns.matrix([_named(sample) for sample in samples])


class AMFClassifier(_AMFModel, base.MiniBatchClassifier):
    """Aggregated Mondrian Forest classifier ([AMF] Alg. 4-6) for river.

    Parameters
    ----------
    n_estimators : number of trees.
    seed : of the random partition; None draws one.
    parameters : any other of amf.AMFClassifierParams, by name, and n_threads.
    """

    _system = amf.AMFClassifier

    @property
    def forest(self) -> amf.AMFClassifier:
        """The forest, which can do more; it is to learn through the model alone."""
        forest: amf.AMFClassifier = self._learner.forest
        return forest

    def predict_proba_one(self, x: Features) -> dict[amf.Label, float]:
        """Probability of each class; empty before the first label."""
        return dict(zip(self.forest.class_labels, *self._probabilities([x]).tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:  # noqa: N803
        """A data frame like X of the probability of each class, one column a class."""
        frame = _frame(X)
        columns = self._probabilities(_records(frame)).T
        return to_native_frame(dict(zip(self.forest.class_labels, columns, strict=True)), like=frame)

    def predict_many(self, X: Any) -> Any:  # noqa: N803
        """A series like X of the likeliest classes; None before the first label."""
        frame, labels = _frame(X), self.forest.class_labels
        probabilities = self._probabilities(_records(frame))
        likeliest = [labels[place] for place in probabilities.argmax(axis=1)] if labels else [None] * len(frame)
        return to_native_series(likeliest, name=None, like=frame)

    def _probabilities(self, samples: Sequence[Features]) -> NDArray[np.float64]:
        """Class probabilities (n, K), K = 0 before the first label."""
        if not self.forest.class_labels:
            return np.empty((len(samples), 0))
        rows = self._rows(samples)
        # A forest that was given its classes takes any row before the first label, and one without features is none.
        return self.forest.predict_proba(rows if rows.shape[1] else np.full((len(samples), 1), np.nan))

    @property
    def _multiclass(self) -> bool:
        return True


class AMFRegressor(_AMFModel, base.MiniBatchRegressor):
    """Aggregated Mondrian Forest regressor ([AMF] Eq. 4) for river.

    Parameters
    ----------
    n_estimators : number of trees.
    seed : of the random partition; None draws one.
    parameters : any other of amf.AMFRegressorParams, by name, and n_threads.
    """

    _system = amf.AMFRegressor

    @property
    def forest(self) -> amf.AMFRegressor:
        """The forest, which can do more; it is to learn through the model alone."""
        forest: amf.AMFRegressor = self._learner.forest
        return forest

    def predict_one(self, x: Features) -> float:
        """Mean of the label's predictive distribution; 0 before the first label, as river's wrappers need a number."""
        return float(self.forest.predict(self._rows([x]))[0]) if self.forest.n_samples else 0.0

    def predict_many(self, X: Any) -> Any:  # noqa: N803
        """A series like X of the means; 0 before the first label."""
        frame = _frame(X)
        means = self.forest.predict(self._rows(_records(frame))) if self.forest.n_samples else np.zeros(len(frame))
        return to_native_series(means, name=None, like=frame)


class AdaptiveAMFClassifier(AMFClassifier):
    """AMF that learns which features matter and replaces trees that are out of date, for river.

    Parameters
    ----------
    n_estimators, seed : see AMFClassifier.
    parameters : any other of amf.AdaptiveAMFClassifierParams, by name, and n_threads.
    """

    _system = amf.AdaptiveAMFClassifier


class AdaptiveAMFRegressor(AMFRegressor):
    """AMF that learns which features matter and replaces trees that are out of date, for river: numbers.

    Parameters
    ----------
    n_estimators, seed : see AMFRegressor.
    parameters : any other of amf.AdaptiveAMFRegressorParams, by name, and n_threads.
    """

    _system = amf.AdaptiveAMFRegressor


def _named(sample: Features) -> dict[str, Any]:
    named = {name if isinstance(name, str) else str(name): value for name, value in sample.items()}
    if len(named) < len(sample):
        twice = [name for name, n in Counter(map(str, sample)).items() if n > 1]
        raise ValueError(f"two features have one name as text, such as {twice[0]!r}")
    return named


def _frame(X: Any) -> Any:  # noqa: N803
    """A data frame as narwhals has it. Raises TypeError for anything else, and ValueError where two columns have one
    name, and one would be lost."""
    names: Any = getattr(X, "column_names", None) or getattr(X, "columns", ())  # the former of tables of Arrow
    require_different(names)
    return into_frame(X)


def _records(frame: Any) -> list[Features]:
    """The rows of a data frame as objects."""
    records: list[Features] = frame.rows(named=True)
    return records


def _is_label(label: Any) -> bool:
    return label is not None and not is_na(label) and label == label
