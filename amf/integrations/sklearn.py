"""The forests as scikit-learn estimators. Needs the extra `sklearn`: `pip install '.[sklearn]'`.

An estimator holds a forest, `forest_`, and translates: labels to the numbers of their classes, `random_state` to a seed
(an integer is the seed), `n_jobs` to threads. What a forest can do beyond the conventions is one step away:
`estimator.forest_.weighted_depth(X)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

import amf
from amf.inputs.batch import TIMES, as_array, names_of, unmasked
from amf.inputs.labels import numbers, require_all_labels

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("amf.integrations.sklearn needs scikit-learn 1.6 or newer: pip install '.[sklearn]'") from error

_OF_CLASSIFIER, _OF_REGRESSOR = amf.AMFClassifierParams(), amf.AMFRegressorParams()
_ADAPTIVE = amf.AdaptiveAMFClassifierParams()
_NUMBERS = {"dtype": (np.float64, np.float32), "ensure_all_finite": "allow-nan"}


class _AMFEstimator(BaseEstimator):
    """What the estimators share."""

    _system: ClassVar[Any]
    """The forest that is held."""
    n_jobs: int | None
    shuffle: bool
    _made_with: dict[str, Any]
    """The arguments of `__init__` when the forest was made."""
    forest_: Any
    """Made by `fit` or by the first `partial_fit`."""

    def _hold(self, given: Mapping[str, Any]) -> None:
        """Take the arguments of `__init__`, its `locals()`, as attributes, which they are to scikit-learn."""
        self.__dict__.update((name, value) for name, value in given.items() if name != "self")

    def fit(self, X: ArrayLike, y: ArrayLike, **options: Any) -> Self:  # noqa: N803
        """Forget everything, then learn the rows, in a random order unless `shuffle` is False.

        A forest takes what comes last for the present, and the rows of a file may be sorted by their labels.
        X: (n, d) numbers, NaN where missing, dense. y: (n,) labels. Raises ValueError or TypeError for anything else,
        a `sample_weight` among it.
        """
        _require_no_weights(options)
        return self._learn(X, y, anew=True, shuffle=self.shuffle)

    def _learn(self, X: ArrayLike, y: ArrayLike, *, anew: bool, shuffle: Any = False, **known: Any) -> Self:  # noqa: N803
        before = dict(vars(self))
        require_all_labels(y)
        try:
            x, labels = self._validated(X, y, reset=anew, y_numeric=isinstance(self, RegressorMixin))
            if anew:
                forest, self._made_with = self._new_forest(labels, **known), self.get_params(deep=False)
            else:
                forest = self._forest_with_these_parameters()
            if anew and hasattr(self, "feature_names_in_"):
                forest.add_features(self.feature_names_in_.tolist())
            order, targets = _order(len(x), forest.params.seed, shuffle), self._targets(labels)
            self.forest_ = forest.partial_fit(x[order], targets[order])
        except BaseException:
            # Else what was fitted before would go on under the names and classes of what could not be.
            self.__dict__ = before
            raise
        return self

    def _new_forest(self, y: NDArray[Any]) -> Any:
        raise NotImplementedError

    def _forest_with_these_parameters(self) -> Any:
        """The forest that is to learn on. Raises ValueError where a parameter is not what it was made with."""
        for name, value in self.get_params(deep=False).items():
            was = self._made_with[name]
            if name not in ("n_jobs", "shuffle") and was is not value and was != value:
                what = f"{name} is {value!r}, and the forest that was fitted has {was!r}"
                raise ValueError(f"{what}: parameters count from the next `fit` on; set it back, or fit anew")
        self.forest_.n_threads = _threads(self.n_jobs)
        return self.forest_

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels as the forest takes them."""
        return numbers(y)

    def _checked(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Rows to predict. Raises NotFittedError where nothing has been learned."""
        check_is_fitted(self, "forest_")
        return np.asarray(self._validated(X, reset=False))

    def _validated(self, X: ArrayLike, *y: ArrayLike, **options: Any) -> Any:  # noqa: N803
        with _explained():
            names_of(X)  # raises where two are the same
            rows = X if as_array(X).dtype.kind == "c" else unmasked(X)  # scikit-learn refuses complex numbers itself
            return validate_data(self, rows, *y, **options, **_NUMBERS)

    def _forest_params(self) -> dict[str, Any]:
        """Arguments of the forest: attributes with their names, which a class that derives may set by itself."""
        params = {f.name: getattr(self, f.name) for f in fields(self._system.Parameters) if f.name in vars(self)}
        seed = vars(self)["random_state"]
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        return params | {"seed": int(seed), "n_threads": _threads(self.n_jobs), "max_features": self.n_features_in_}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _order(n: int, seed: int, shuffle: Any) -> slice | NDArray[np.intp]:
    """The order in which so many rows are learned: as they are, or a random one that follows from the seed alone."""
    if not isinstance(shuffle, bool | np.bool_):
        raise ValueError(f"shuffle must be True or False, got {shuffle!r}")
    # Its stream is the same in all versions of numpy.
    return np.random.RandomState(divmod(seed, 2**32)).permutation(n) if shuffle else slice(None)


def _threads(n_jobs: Any) -> int:
    """How many threads `n_jobs` stands for, as joblib counts: -1 is all processors, -2 all but one."""
    if n_jobs is None:
        return 1
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or not n_jobs:
        raise ValueError(f"n_jobs must be None or a whole number other than 0, got {n_jobs!r}")
    n = int(n_jobs)
    return n if n > 0 else max((os.cpu_count() or 1) + 1 + n, 1)


def _require_no_weights(options: Mapping[str, Any]) -> None:
    """Raise TypeError for what neither `fit` nor `partial_fit` takes.

    A parameter `sample_weight` would tell meta-estimators that weights are heeded, which they could not be.
    """
    given = [name for name, value in options.items() if value is not None]
    if "sample_weight" in given:
        raise TypeError("sample_weight is not supported: every row counts once; repeat rows that are to count more")
    if given:
        raise TypeError(f"unexpected arguments: {', '.join(given)}")


@contextmanager
def _explained() -> Iterator[None]:
    """What numpy and pandas say of texts, and of dates beside something else, with what to do about them."""
    try:
        yield
    except TypeError as error:
        if "'dict'" in str(error):
            hint = "give a table, as pd.DataFrame(X), or encode them by DictVectorizer(sparse=False) in a pipeline"
            raise TypeError(f"X holds objects with names: {hint} ({error})") from error
        if not any(time in str(error) for time in TIMES):
            raise
        raise TypeError(f"X holds dates beside others: give seconds as float, NaN where missing ({error})") from error
    except ValueError as error:
        if not any(said in str(error) for said in ("could not convert string", "Cannot cast object")):
            raise
        hint = "encode texts first, by OrdinalEncoder in a pipeline say; amf.Columns does so for the forests themselves"
        raise ValueError(f"{error}: {hint}") from error
    except OverflowError as error:
        raise ValueError(f"a number is beyond the range of float64 ({error})") from error


def _all_classes(classes: ArrayLike) -> NDArray[Any]:
    """The classes that are given, sorted. Raises ValueError where one of them is no label."""
    found: NDArray[Any] = np.unique(list(classes) if isinstance(classes, set | frozenset) else classes)
    if not found.size:
        raise ValueError("`classes` is empty: it holds all labels there will ever be")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"`classes` holds {found[~np.isfinite(found)][0]}, which is no class")
    return found


class AMFClassifier(ClassifierMixin, _AMFEstimator):
    """Aggregated Mondrian Forest classifier ([AMF] Alg. 4-6) for scikit-learn.

    Parameters
    ----------
    n_estimators, scaling, prior, smoothing, dirichlet, pause, charge_first, split_pure, purity, mode, calibration,
    max_bytes : see amf.AMFClassifierParams.
    n_jobs : threads over the trees. None: 1, -1: as many as there are processors, -2: one fewer. No result depends on
        it.
    random_state : of the random partition and of the order of the rows. An integer gives the same forest each time;
        None draws a new seed at each `fit`, a RandomState is drawn from.
    shuffle : whether `fit` learns the rows in a random order. False: as they come, where they are a stream and what
        comes last is to count most. `partial_fit` always does that.

    Attributes
    ----------
    classes_ : labels (K,), sorted.
    n_features_in_, feature_names_in_ : number of features and, where X is a table whose columns have names, the names.
    forest_ : amf.AMFClassifier. Its classes are the places of the labels in `classes_`.
    """

    _system = amf.AMFClassifier

    def __init__(
        self,
        n_estimators: int = _OF_CLASSIFIER.n_estimators,
        *,
        scaling: str = _OF_CLASSIFIER.scaling,
        prior: str = _OF_CLASSIFIER.prior,
        smoothing: float = _OF_CLASSIFIER.smoothing,
        dirichlet: float | None = _OF_CLASSIFIER.dirichlet,
        pause: float = _OF_CLASSIFIER.pause,
        charge_first: bool = _OF_CLASSIFIER.charge_first,
        split_pure: bool = _OF_CLASSIFIER.split_pure,
        purity: float = _OF_CLASSIFIER.purity,
        mode: str = _OF_CLASSIFIER.mode,
        calibration: bool = _OF_CLASSIFIER.calibration,
        max_bytes: int = _OF_CLASSIFIER.max_bytes,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        shuffle: bool = True,
    ) -> None:
        self._hold(locals())

    def partial_fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        classes: ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """Learn more rows in their order; arguments as `fit`.

        classes: all labels (K,) there will ever be. The first call needs them, a later one may repeat them.
        Raises ValueError where they are missing or change, where y has a label that is none of them, or where
        parameters have been set since the first call: they count from the next `fit` on.
        """
        _require_no_weights(options)
        if not hasattr(self, "forest_"):
            if classes is None:
                raise ValueError("the first call of partial_fit needs `classes`: all labels there will ever be")
            return self._learn(X, y, anew=True, classes=classes)
        if classes is not None and not np.array_equal(_all_classes(classes), self.classes_):
            raise ValueError(f"`classes` was {self.classes_} at the first call of partial_fit and is {classes} now")
        return self._learn(X, y, anew=False)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Class probabilities (n, K), columns in the order of `classes_`."""
        x = self._checked(X)
        probabilities: NDArray[np.float64] = self.forest_.predict_proba(x)
        return probabilities

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The likeliest label of each row (n,), ties to the first in `classes_`."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        labels: NDArray[Any] = self.classes_[likeliest]
        return labels

    def _new_forest(self, y: NDArray[Any], classes: ArrayLike | None = None) -> amf.AMFClassifier:
        check_classification_targets(y)
        self.classes_ = np.unique(y) if classes is None else _all_classes(classes)
        n_classes = len(self.classes_)
        # A forest with given classes needs two of them; one without takes what comes.
        known = range(n_classes) if n_classes > 1 else None
        forest: amf.AMFClassifier = self._system(**self._forest_params(), classes=known, max_classes=max(n_classes, 2))
        return forest

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        codes = np.searchsorted(self.classes_, y)
        unknown = np.flatnonzero(self.classes_[np.minimum(codes, len(self.classes_) - 1)] != y)
        if unknown.size:
            row = unknown[0]
            raise ValueError(f"y[{row}] is {y.tolist()[row]!r}, which is none of the classes {self.classes_}")
        return codes


class AMFRegressor(RegressorMixin, _AMFEstimator):
    """Aggregated Mondrian Forest regressor ([AMF] Eq. 4) for scikit-learn.

    Parameters
    ----------
    n_estimators, scaling, loss, bound, charge_first, split_pure, purity, mode, calibration, max_bytes : see
        amf.AMFRegressorParams.
    n_jobs, random_state, shuffle : threads over the trees (-1: as many as there are processors); seed of the random
        partition and of the order of the rows; whether `fit` learns these in a random order.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : number of features and, where X is a table whose columns have names, the names.
    forest_ : amf.AMFRegressor.
    """

    _system = amf.AMFRegressor

    def __init__(
        self,
        n_estimators: int = _OF_REGRESSOR.n_estimators,
        *,
        scaling: str = _OF_REGRESSOR.scaling,
        loss: str = _OF_REGRESSOR.loss,
        bound: float | None = _OF_REGRESSOR.bound,
        charge_first: bool = _OF_REGRESSOR.charge_first,
        split_pure: bool = _OF_REGRESSOR.split_pure,
        purity: float = _OF_REGRESSOR.purity,
        mode: str = _OF_REGRESSOR.mode,
        calibration: bool = _OF_REGRESSOR.calibration,
        max_bytes: int = _OF_REGRESSOR.max_bytes,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        shuffle: bool = True,
    ) -> None:
        self._hold(locals())

    def partial_fit(self, X: ArrayLike, y: ArrayLike, **options: Any) -> Self:  # noqa: N803
        """Learn more rows in their order; arguments as `fit`. Raises ValueError where parameters have changed since."""
        _require_no_weights(options)
        return self._learn(X, y, anew=not hasattr(self, "forest_"))

    def predict(
        self,
        X: ArrayLike,  # noqa: N803
        return_std: bool = False,
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Means (n,) of the labels' predictive distributions, with return_std also their standard deviations (n,)."""
        x = self._checked(X)
        return (self.forest_.predict(x), self.forest_.predict_std(x)) if return_std else self.forest_.predict(x)

    def _new_forest(self, y: NDArray[Any]) -> Any:
        return self._system(**self._forest_params())


class AdaptiveAMFClassifier(AMFClassifier):
    """AMF that learns which features matter and replaces trees that are out of date, for scikit-learn.

    Parameters
    ----------
    background, review_every : see amf.AdaptiveAMFClassifierParams. All others, and the attributes: see AMFClassifier.
    """

    _system = amf.AdaptiveAMFClassifier

    def __init__(
        self,
        n_estimators: int = _OF_CLASSIFIER.n_estimators,
        *,
        scaling: str = _OF_CLASSIFIER.scaling,
        prior: str = _OF_CLASSIFIER.prior,
        smoothing: float = _OF_CLASSIFIER.smoothing,
        dirichlet: float | None = _OF_CLASSIFIER.dirichlet,
        pause: float = _OF_CLASSIFIER.pause,
        charge_first: bool = _OF_CLASSIFIER.charge_first,
        split_pure: bool = _OF_CLASSIFIER.split_pure,
        purity: float = _OF_CLASSIFIER.purity,
        mode: str = _OF_CLASSIFIER.mode,
        calibration: bool = _OF_CLASSIFIER.calibration,
        background: float = _ADAPTIVE.background,
        review_every: int = _ADAPTIVE.review_every,
        max_bytes: int = _OF_CLASSIFIER.max_bytes,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        shuffle: bool = True,
    ) -> None:
        self._hold(locals())


class AdaptiveAMFRegressor(AMFRegressor):
    """AMF that learns which features matter and replaces trees that are out of date, for scikit-learn: numbers.

    Parameters
    ----------
    background, review_every : see amf.AdaptiveAMFRegressorParams. All others, and the attributes: see AMFRegressor.
    """

    _system = amf.AdaptiveAMFRegressor

    def __init__(
        self,
        n_estimators: int = _OF_REGRESSOR.n_estimators,
        *,
        scaling: str = _OF_REGRESSOR.scaling,
        loss: str = _OF_REGRESSOR.loss,
        bound: float | None = _OF_REGRESSOR.bound,
        charge_first: bool = _OF_REGRESSOR.charge_first,
        split_pure: bool = _OF_REGRESSOR.split_pure,
        purity: float = _OF_REGRESSOR.purity,
        mode: str = _OF_REGRESSOR.mode,
        calibration: bool = _OF_REGRESSOR.calibration,
        background: float = _ADAPTIVE.background,
        review_every: int = _ADAPTIVE.review_every,
        max_bytes: int = _OF_REGRESSOR.max_bytes,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        shuffle: bool = True,
    ) -> None:
        self._hold(locals())
