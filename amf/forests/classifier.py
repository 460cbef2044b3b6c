"""What all forests have in common whose labels are classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.calibration import class_calibration, class_stacking
from amf.forests.forest import Forest
from amf.inputs.batch import BatchForecasts, Labels, label_of_one
from amf.inputs.labels import Classes, Label, distinct, require_finite, scalars
from amf.inputs.scalars import whole_numbers
from amf.jit.decorators import index
from amf.memory.arena import room_for
from amf.params import AMFClassifierParams
from amf.partition_params import (
    BSPForestClassifierParams,
    IncreasingLifetimeForestClassifierParams,
    MondrianForestClassifierParams,
)
from amf.state.turns import one_call
from amf.statistics.class_counts import add_up

Params = TypeVar(
    "Params",
    bound=AMFClassifierParams
    | MondrianForestClassifierParams
    | IncreasingLifetimeForestClassifierParams
    | BSPForestClassifierParams,
)

_ROWS = (list, tuple, np.ndarray)  # of a pandas Series y[0] is what has the name 0


class Forecasts(NamedTuple):
    """What `prequential` returns; row i belongs to sample i, before its label was learned."""

    probabilities: NDArray[np.float64]
    """(n, K), columns in the order of `classes_` after the call; 0 for a class not yet known in that row."""
    raw: NDArray[np.float64]
    """(n, K), the same before calibration: the mean over trees."""
    depth: NDArray[np.float64]
    """(n,), depth at which the sample ends (root: 0), mean over trees."""
    weighted_depth: NDArray[np.float64]
    """(n,), posterior mean of the depth of the pruning's leaf ([AMF] Sec. 5.1), mean over trees."""


class ForestClassifier(Forest[Params]):
    """A forest whose labels are classes."""

    _code = np.int64

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels (K,) in the order of the columns, each as it was first seen."""
        return self._classes.as_array()

    @property
    def class_labels(self) -> list[Label]:
        """Labels in the order of the columns, as Python scalars; the forest's own list, not to be changed."""
        return self._classes.labels

    def predict_learn(self, X: ArrayLike, y: Any) -> NDArray[np.float64]:  # noqa: N803
        """Predict each row, then learn it: class probabilities (n, K) as `prequential`; arguments as `partial_fit`."""
        return self._learn(X, y, asked=True).outputs

    def prequential(self, X: ArrayLike, y: Any) -> Forecasts:  # noqa: N803
        """Predict each row, then learn it, and also tell how deep the trees were there."""
        return self._published(self._learn(X, y, asked=True))

    def predict_proba(self, X: ArrayLike, *, calibrated: bool = True) -> NDArray[np.float64]:  # noqa: N803
        """Class probabilities (n, K) in the forest's mode; the mean over trees unless `calibrated`. Changes nothing."""
        forecasts = self._ask(X)
        return forecasts.outputs if calibrated else forecasts.raw

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The likeliest label of each row (n,), ties to the class seen first. Changes nothing."""
        with self._turn:  # the classes are those of the forecasts
            likeliest: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return likeliest

    @one_call
    def add_classes(self, labels: Iterable[Label]) -> None:
        """Append classes of which there was no label yet, as a label of each would: so rows with them can go through a
        `Group`. Raises ValueError where there is one already, or no other can be, and changes nothing then."""
        _ = self.n_samples  # A forest that is lost says so, and keeps the reason.
        coming = Classes()
        for label in scalars(labels, "labels"):
            if label is None or self._classes.code(label) >= 0 or coming.code(label) >= 0:
                raise ValueError(f"labels holds {label!r}, " + ("no label" if label is None else "a class already"))
            coming.add(label)
        require_finite(coming.labels, "labels")
        if len(coming) and self.params.classes is not None:
            raise ValueError(f"the classes are given, there is none but {list(self.params.classes)}")
        if len(self._classes) + len(coming) > self.params.max_classes:
            raise ValueError(f"labels brings more than max_classes={self.params.max_classes} classes")
        try:
            for label in coming.labels:
                self._admit(label)
        except BaseException as error:
            self._lose(error)
            raise

    def _published(self, forecasts: BatchForecasts) -> Forecasts:
        return Forecasts(forecasts.outputs, forecasts.raw, forecasts.depths[:, 0], forecasts.depths[:, 1])

    def _encode(self, y: Any, n: int) -> Labels:
        known = len(self._classes)
        if n == 1 and isinstance(y, _ROWS) and getattr(y, "ndim", 1) == 1 and len(y) == 1:
            code = self._classes.code_of_scalar(y[0])
            if code >= 0:
                return label_of_one(np.int64, code, known)
        labels, places, rows = distinct(y)
        if len(places) != n:
            raise ValueError(f"y has {len(places)} labels for {n} rows of X")
        coming = Classes()
        arrivals: dict[int, Label] = {}
        codes = np.full(len(labels), -1, np.int64)
        for place, label in enumerate(labels):
            if label is None:
                continue
            code = self._classes.code(label)
            if code < 0:
                n_coming = len(coming)
                code = known + coming.add(label)
                if len(coming) > n_coming:  # else it is another text of a class that came in an earlier row
                    arrivals[int(rows[place])] = label
            codes[place] = code
        if arrivals and self.params.classes is not None:
            row, label = next(iter(arrivals.items()))
            raise ValueError(f"y[{row}] is {label!r}, which is none of the given classes {list(self.params.classes)}")
        if known + len(arrivals) > self.params.max_classes:
            raise ValueError(f"y brings more than max_classes={self.params.max_classes} classes")
        values = codes[places]
        return Labels(values, values >= 0, arrivals, known + len(arrivals))

    def _given(self, labels: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        codes = whole_numbers("labels", labels)
        return codes, codes >= 0

    @property
    def _stats_room(self) -> int:
        return room_for(len(self._classes))

    @property
    def _n_outputs(self) -> int:
        return len(self._classes)

    def _prepare(self) -> None:
        self._classes = Classes(self.params.classes or ())

    def _fresh_calibration(self) -> NDArray[np.float64]:
        return class_calibration.fresh_state(len(self._classes))

    def _n_calibrated(self, n_features: int) -> int:
        return class_stacking.n_of_features(len(self._classes), n_features, self.params.max_bytes)

    def _calibration_with(self, known: int, like: Sequence[int | None]) -> NDArray[np.float64]:
        n_classes, max_bytes = len(self._classes), self.params.max_bytes
        return class_calibration.with_features(self._calibration, n_classes, known, like, max_bytes)

    @property
    def _losses(self) -> NDArray[np.float64]:
        return class_calibration.losses_of(self._calibration)

    def _take_over_labels(self) -> None:
        self._classes = self._classes.copy()

    def _recall(self, classes: Any) -> None:
        labels = [label for label in scalars(classes) if label is not None]
        require_finite(labels, "classes")
        self._classes = Classes(labels)
        if len(self._classes) != len(classes) or len(classes) > self.params.max_classes:
            raise ValueError(f"{len(classes)} classes, of which {len(self._classes)} differ")
        # By their texts as literals: True is not 1, which it equals.
        if self.params.classes is not None and repr(self.params.classes) != repr(tuple(labels)):
            raise ValueError(f"the classes are {labels}, the parameters say {self.params.classes}")
        if self.params.calibration:
            self._calibration = self._fresh_calibration()
        self._relayout()

    def _plausible(self, heads: NDArray[np.int32]) -> bool:
        n_classes = len(self._classes)
        is_sound = class_calibration.is_sound(self._calibration, n_classes, self.n_features)
        return is_sound and bool(add_up(heads, index(n_classes)))

    def _admit(self, label: Label) -> None:
        if self.params.calibration:
            n_classes, max_bytes = len(self._classes), self.params.max_bytes
            self._calibration = class_calibration.with_another_class(
                self._calibration, n_classes, self.n_features, max_bytes
            )
        self._classes.add(label)
        self._relayout()
