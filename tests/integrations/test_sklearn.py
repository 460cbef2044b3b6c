"""The scikit-learn estimators: scikit-learn's own checks, all of them, and what these do not ask."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from copy import deepcopy
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

import amf
from amf.integrations.sklearn import AdaptiveAMFClassifier, AdaptiveAMFRegressor, AMFClassifier, AMFRegressor

ESTIMATORS = [AMFClassifier, AMFRegressor, AdaptiveAMFClassifier, AdaptiveAMFRegressor]
COLOURS = np.array(["red", "green", "blue"])

estimators = pytest.mark.parametrize("kind", ESTIMATORS)


@parametrize_with_checks([kind() for kind in ESTIMATORS])
def test_scikit_learns_own_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


def samples(kind: type, n: int = 120, *, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x[rng.random((n, 3)) < 0.1] = np.nan
    signal = np.nan_to_num(x[:, 0])
    return x, signal if issubclass(kind, AMFRegressor) else COLOURS[np.digitize(signal, [-0.5, 0.5])]


def forecasts(estimator: Any, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return estimator.predict_proba(x) if isinstance(estimator, AMFClassifier) else estimator.predict(x)


def learned_in_parts(estimator: Any, x: NDArray[np.float64], y: NDArray[Any]) -> Any:
    classes = {"classes": COLOURS} if isinstance(estimator, AMFClassifier) else {}
    for part in np.array_split(np.arange(len(y)), 4):
        estimator.partial_fit(x[part], y[part], **classes)
    return estimator


@estimators
def test_an_estimator_has_every_parameter_of_its_forest_with_the_same_default(kind: type) -> None:
    params = getattr(amf, f"{kind.__name__}Params")
    of_forest = {field.name: field.default for field in dataclasses.fields(params)}
    own = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    # Known from X and y, or from random_state and n_jobs; an array has no categories, and a stream has its order.
    elsewhere = {
        "classes",
        "max_classes",
        "max_features",
        "max_categories",
        "seed",
        "random_state",
        "n_jobs",
        "shuffle",
    }
    assert {k: v for k, v in own.items() if k not in elsewhere} == {
        k: v for k, v in of_forest.items() if k not in elsewhere
    }


def test_a_classifier_is_the_forest_with_that_seed() -> None:
    x, y = samples(AMFClassifier)
    estimator = AMFClassifier(5, smoothing=0.7, random_state=11, shuffle=False).fit(x, y)
    forest = amf.AMFClassifier(5, classes=["blue", "green", "red"], smoothing=0.7, seed=11).partial_fit(x, y)
    np.testing.assert_array_equal(estimator.classes_, ["blue", "green", "red"])
    np.testing.assert_array_equal(estimator.predict_proba(x), forest.predict_proba(x))
    np.testing.assert_array_equal(estimator.predict(x), forest.predict(x))


def test_a_regressor_is_the_forest_with_that_seed() -> None:
    x, y = samples(AMFRegressor)
    estimator = AMFRegressor(5, random_state=11, shuffle=False).fit(x, y)
    forest = amf.AMFRegressor(5, seed=11).partial_fit(x, y)
    mean, std = estimator.predict(x, return_std=True)
    np.testing.assert_array_equal(mean, forest.predict(x))
    np.testing.assert_array_equal(std, forest.predict_std(x))
    np.testing.assert_array_equal(estimator.predict(x), mean)


@estimators
def test_parts_of_a_stream_give_the_forest_of_the_whole(kind: type) -> None:
    x, y = samples(kind)
    whole = kind(5, random_state=3, shuffle=False).fit(x, y)
    parts = learned_in_parts(kind(5, random_state=3), x, y)
    assert parts.forest_.dumps() == whole.forest_.dumps()


@estimators
def test_fit_forgets_what_was_learned_before(kind: type) -> None:
    x, y = samples(kind)
    twice = kind(5, random_state=3).fit(x[:, :2], y).fit(x, y)
    assert twice.forest_.dumps() == kind(5, random_state=3).fit(x, y).forest_.dumps()
    assert twice.n_features_in_ == 3


@estimators
def test_random_state_may_be_an_integer_a_generator_or_nothing(kind: type) -> None:
    x, y = samples(kind)

    def bytes_of(random_state: Any) -> bytes:
        return kind(3, random_state=random_state).fit(x, y).forest_.dumps()

    assert bytes_of(4) == bytes_of(np.int64(4)) != bytes_of(5)
    assert bytes_of(np.random.RandomState(4)) == bytes_of(np.random.RandomState(4))
    generator = np.random.RandomState(4)
    assert bytes_of(generator) != bytes_of(generator)
    assert bytes_of(None) != bytes_of(None)


@pytest.mark.parametrize("kind", [AMFClassifier, AdaptiveAMFClassifier])
def test_rows_that_are_sorted_by_their_label_are_learned_as_well_as_shuffled_ones(kind: type) -> None:
    """As they come, the last class would be all that the linear models still know."""
    x, y = load_digits(return_X_y=True)
    known, asked = np.split(np.random.default_rng(0).permutation(len(y)), [1200])
    sorted_rows, shuffled = (
        kind(random_state=0).fit(x[rows], y[rows]).score(x[asked], y[asked])
        for rows in (known[np.argsort(y[known], kind="stable")], known)
    )
    assert sorted_rows > shuffled - 0.02 > 0.9


@estimators
def test_the_order_of_the_rows_follows_from_the_seed_alone(kind: type) -> None:
    x, y = samples(kind)

    def bytes_of(rows: NDArray[np.float64], labels: NDArray[Any], **parameters: Any) -> bytes:
        estimator = kind(3, **parameters)
        assert estimator.fit(rows, labels) is estimator
        if isinstance(estimator, AMFClassifier):
            np.testing.assert_array_equal(estimator.classes_, np.unique(y))
        return estimator.forest_.dumps()

    shuffled = bytes_of(x, y, random_state=2**63 + 5)
    assert shuffled == bytes_of(x, y, random_state=2**63 + 5, shuffle=np.True_)
    order = np.random.RandomState((2**31, 5)).permutation(120)
    assert shuffled == bytes_of(x[order], y[order], random_state=2**63 + 5, shuffle=False)
    assert shuffled != bytes_of(x, y, random_state=2**63 + 5, shuffle=False)


def test_a_row_that_is_refused_is_named_by_its_place_in_what_was_given() -> None:
    x, y = samples(AMFRegressor)
    y[37] = 1e80
    with pytest.raises(ValueError, match=r"y\[37\] is 1e\+80"):
        AMFRegressor(3, random_state=0).fit(x, y)
    with pytest.raises(ValueError, match="shuffle must be True or False, got 'no'"):
        AMFRegressor(3, shuffle="no").fit(x, np.arange(120.0))  # type: ignore[arg-type]


@estimators
@pytest.mark.parametrize("n_jobs", [3, -1])
def test_threads_change_nothing(kind: type, n_jobs: int) -> None:
    x, y = samples(kind)
    estimator = kind(5, n_jobs=n_jobs, random_state=0).fit(x, y)
    assert estimator.forest_.n_threads >= 1
    assert estimator.forest_.dumps() == kind(5, random_state=0).fit(x, y).forest_.dumps()


@estimators
def test_a_clone_has_the_parameters_and_none_of_the_learning(kind: type) -> None:
    x, y = samples(kind)
    copy = clone(kind(7, max_bytes=10**6, random_state=2).fit(x, y))
    assert copy.get_params() == kind(7, max_bytes=10**6, random_state=2).get_params()
    with pytest.raises(NotFittedError):
        copy.predict(x)
    assert copy.set_params(n_estimators=2).fit(x, y).forest_.params.n_estimators == 2


CHANGES: list[dict[str, Any]] = [{"n_estimators": 4}, {"mode": "sampled"}, {"random_state": 1}, {"max_bytes": 10**6}]


@estimators
@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_parameters_that_are_set_after_a_fit_count_from_the_next_one_on(kind: type, change: dict[str, Any]) -> None:
    """What has been fitted goes on without them, so to learn on as if they counted is refused."""
    x, y = samples(kind)
    for estimator in (kind(3, random_state=0).fit(x, y), learned_in_parts(kind(3, random_state=0), x, y)):
        before, name = forecasts(estimator, x), next(iter(change))
        was = estimator.get_params()[name]
        estimator.set_params(**change)
        np.testing.assert_array_equal(forecasts(estimator, x), before)
        for learner in (estimator, pickle.loads(pickle.dumps(estimator)), deepcopy(estimator)):
            with pytest.raises(
                ValueError, match=rf"^{name} is .*, and the forest that was fitted has .*, or fit anew$"
            ):
                learner.partial_fit(x, y)
        np.testing.assert_array_equal(forecasts(estimator, x), before)
        estimator.set_params(**{name: was}).partial_fit(x, y)
        anew, new = estimator.set_params(**change).fit(x, y), kind(**{"n_estimators": 3, "random_state": 0, **change})
        assert anew.partial_fit(x, y).forest_.dumps() == new.fit(x, y).partial_fit(x, y).forest_.dumps()


@estimators
def test_a_generator_that_was_drawn_from_is_no_other_parameter(kind: type) -> None:
    x, y = samples(kind)
    estimator = kind(3, random_state=np.random.RandomState(0)).fit(x, y)
    for learner in (estimator, pickle.loads(pickle.dumps(estimator)), deepcopy(estimator)):
        assert learner.partial_fit(x, y).forest_.n_samples == 240


@estimators
def test_threads_and_order_may_change_at_any_time(kind: type) -> None:
    """No bit of a forest depends on the one, and the other is of `fit` alone."""
    x, y = samples(kind)
    estimator, other = (kind(3, random_state=0).fit(x, y) for _ in range(2))
    estimator.set_params(n_jobs=3, shuffle=False).partial_fit(x, y)
    assert estimator.forest_.n_threads == 3
    assert estimator.forest_.dumps() == other.partial_fit(x, y).forest_.dumps()


@estimators
def test_a_table_with_two_columns_of_one_name_is_refused(kind: type) -> None:
    x, y = samples(kind)
    with pytest.raises(ValueError, match=r"X has two columns of one name, such as \['b'\]"):
        kind(3).fit(pd.DataFrame(x, columns=["a", "b", "b"]), y)


@estimators
def test_what_numpy_would_make_a_number_of_is_refused_in_objects_too(kind: type) -> None:
    for value, message in ((b"1.5", "X holds bytes"), (np.datetime64("2020"), r"X holds dates .* give seconds")):
        for rows in (np.array([[value, 1.0]] * 2, object), pd.DataFrame([[value, 1.0]] * 2).astype(object)):
            if isinstance(rows, np.ndarray) or isinstance(value, bytes):
                with pytest.raises(TypeError, match=message):
                    kind().fit(rows, [0, 1])
    ours, theirs = (np.array([[1.0, missing], [2.0, 3.0]], object) for missing in (pd.NA, np.nan))
    assert kind(2, random_state=0).fit(ours, [0, 1]).forest_.dumps() == (
        kind(2, random_state=0).fit(theirs, [0, 1]).forest_.dumps()
    )
    with pytest.raises(TypeError, match=r"X holds objects with names: .*DictVectorizer"):
        kind().fit([{"a": 1.0}, {"a": 2.0}], [0, 1])
    with pytest.raises(ValueError, match="a number is beyond the range of float64"):
        kind().fit([[10**400], [1]], [0, 1])


def test_what_is_no_class_is_refused_among_those_that_are_given() -> None:
    x = [[0.0], [1.0]]
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=rf"`classes` holds {bad}, which is no class"):
            AMFClassifier(2).partial_fit(x, [0.0, 1.0], classes=[0.0, 1.0, bad])
    assert AMFClassifier(2).partial_fit(x, [0, 1], classes={1, 0}).classes_.tolist() == [0, 1]


@estimators
def test_rows_of_different_lengths_are_named(kind: type) -> None:
    with pytest.raises(ValueError, match=r"^X\[0\] has 2 values and X\[1\] has 1: give NaN where one is missing$"):
        kind(3).fit([[1.0, 2.0], [3.0]], [0, 1])


@estimators
def test_a_pickled_estimator_goes_on_learning_bit_for_bit(kind: type) -> None:
    x, y = samples(kind)
    estimator = learned_in_parts(kind(3, random_state=0), x, y)
    copy = pickle.loads(pickle.dumps(estimator))
    assert copy.partial_fit(x, y).forest_.dumps() == estimator.partial_fit(x, y).forest_.dumps()


class Coarse(AMFClassifier):
    """Sets some parameters itself, and has one of its own."""

    def __init__(self, n_estimators: int = 3, *, least: float = 0.5) -> None:
        super().__init__(n_estimators, purity=0.0, max_bytes=10_000_000, random_state=7)
        self.least = least


def test_a_class_that_derives_may_have_other_arguments() -> None:
    """Its forest had the defaults in place of what it sets, and none where it has no `random_state`."""
    x, y = samples(Coarse)
    params = clone(Coarse(2, least=0.9)).fit(x, y).forest_.params
    assert (params.n_estimators, params.purity, params.max_bytes, params.seed) == (2, 0.0, 10_000_000, 7)


@estimators
def test_a_search_may_try_numbers_of_numpy(kind: type) -> None:
    x, y = samples(kind)
    search = GridSearchCV(kind(random_state=0), {"n_estimators": np.array([1, 4])}, cv=2, error_score="raise")
    assert search.fit(x, y).best_score_ > 0.5


@estimators
def test_names_of_columns_reach_the_forest(kind: type) -> None:
    x, y = samples(kind)
    estimator = kind(3, random_state=0).fit(pd.DataFrame(x, columns=["a", "b", "c"]), y)
    assert estimator.forest_.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(estimator.feature_names_in_, ["a", "b", "c"])
    np.testing.assert_array_equal(
        forecasts(estimator, pd.DataFrame(x, columns=["a", "b", "c"])),
        forecasts(kind(3, random_state=0).fit(x, y), x),
    )


@estimators
def test_missing_values_are_welcome_infinite_and_sparse_ones_are_not(kind: type) -> None:
    x, y = samples(kind)
    assert get_tags(kind()).input_tags.allow_nan
    assert np.isnan(x).any()
    assert np.isfinite(forecasts(kind(3).fit(x, y), x)).all()
    infinite = x.copy()
    infinite[7, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        kind(3).fit(infinite, y)
    with pytest.raises(TypeError, match="dense data is required"):
        kind(3).fit(csr_array(np.nan_to_num(x)), y)


def test_the_first_part_names_all_classes() -> None:
    x, y = samples(AMFClassifier)
    with pytest.raises(ValueError, match="needs `classes`"):
        AMFClassifier(3).partial_fit(x, y)
    estimator = AMFClassifier(3, random_state=0).partial_fit(x[y == "red"], y[y == "red"], classes=COLOURS)
    np.testing.assert_array_equal(estimator.classes_, ["blue", "green", "red"])
    assert estimator.predict_proba(x).shape == (120, 3)
    with pytest.raises(ValueError, match="first call of partial_fit"):
        estimator.partial_fit(x, y, classes=["red", "green"])


def test_a_label_outside_the_classes_is_refused_and_nothing_learned() -> None:
    x, y = samples(AMFClassifier)
    with pytest.raises(ValueError, match="none of the classes"):
        (fresh := AMFClassifier(3)).partial_fit(x, y, classes=["red", "green"])
    with pytest.raises(NotFittedError):
        fresh.predict(x)
    estimator = AMFClassifier(3, random_state=0).partial_fit(x, y, classes=COLOURS)
    before = estimator.forest_.dumps()
    for unknown in ("violet", "greenish", "a"):
        with pytest.raises(ValueError, match=rf"y\[1\] is '{unknown}', which is none of the classes"):
            estimator.partial_fit(x[:2], ["red", unknown])
    with pytest.raises(ValueError, match="none of the classes"):
        estimator.partial_fit(x[:2], [0, 1])
    assert estimator.forest_.dumps() == before


def test_a_single_class_is_certain() -> None:
    x, _ = samples(AMFClassifier)
    estimator = AMFClassifier(3).fit(x, np.full(120, "red"))
    np.testing.assert_allclose(estimator.predict_proba(x), np.ones((120, 1)), rtol=1e-12)
    np.testing.assert_array_equal(estimator.predict(x), np.full(120, "red"))


@estimators
def test_weights_of_samples_are_refused_by_name(kind: type) -> None:
    x, y = samples(kind)
    assert not has_fit_parameter(kind(), "sample_weight")  # or meta-estimators would believe that they are heeded
    known = {"classes": COLOURS} if issubclass(kind, AMFClassifier) else {}
    with pytest.raises(TypeError, match="sample_weight is not supported: every row counts once"):
        kind().fit(x, y, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="sample_weight is not supported"):
        kind().partial_fit(x, y, **known, sample_weight=np.ones(len(y)))
    with pytest.raises(TypeError, match="unexpected arguments: weights"):
        kind().fit(x, y, weights=1)
    kind().fit(x, y, sample_weight=None)


@estimators
def test_a_table_with_texts_is_refused_with_what_to_do(kind: type) -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "city": ["Rome", "Oslo"]})
    with pytest.raises(ValueError, match=r"'?Rome'?: encode texts first, .*amf\.Columns"):
        kind().fit(frame, [0, 1])
    fitted = kind().fit(frame[["age"]].assign(city=[1.0, 2.0]), [0, 1])
    with pytest.raises(ValueError, match="encode texts first"):
        fitted.predict(frame)
    nullable = pd.array([1, None], dtype="Int64")  # beside such a column pandas does not name the text
    with pytest.raises(ValueError, match="encode texts first"):
        kind().fit(frame[["city"]].astype("category").assign(n=nullable), [0, 1])


@pytest.mark.parametrize("beside", [[1.0, 2.0], ["Rome", "Oslo"], pd.array([1, None], dtype="Int64")], ids=str)
@pytest.mark.parametrize(
    "dates",
    [
        pd.date_range("2020", periods=2),
        pd.date_range("2020", periods=2, tz="UTC"),
        pd.timedelta_range("1h", periods=2),
        pd.period_range("2020", periods=2),
        pd.Series([date(2020, 1, 1), date(2020, 1, 2)]),
    ],
    ids=lambda dates: str(dates.dtype),
)
def test_a_table_with_dates_beside_anything_is_refused_with_what_to_do(beside: Any, dates: Any) -> None:
    with pytest.raises(TypeError, match=r"X holds dates .* give seconds"):
        AMFClassifier().fit(pd.DataFrame({"date": dates, "beside": beside}), [0, 1])


@pytest.mark.parametrize("change", [{"max_bytes": -1}, {"n_jobs": 0}, {"n_estimators": 0}], ids=str)
def test_a_fit_that_fails_leaves_what_was_fitted_before(change: dict[str, Any]) -> None:
    x = np.random.default_rng(0).random((40, 2))
    names = np.where(x[:, 0] > 0.5, "high", "low")
    estimator = AMFClassifier(2, random_state=1).fit(x, names)
    before = estimator.predict(x)
    with pytest.raises(ValueError, match=next(iter(change))):
        estimator.set_params(**change).fit(np.hstack((x, x)), np.arange(40) % 3)
    assert (estimator.classes_.tolist(), estimator.n_features_in_) == (["high", "low"], 2)
    np.testing.assert_array_equal(estimator.predict(x), before)
    new = AMFClassifier(**{"n_estimators": 2, **change})
    with pytest.raises(ValueError, match=next(iter(change))):
        new.fit(x, names)
    assert not hasattr(new, "classes_")


def test_there_may_be_more_classes_than_a_forest_takes_by_default() -> None:
    n = amf.AMFClassifierParams().max_classes + 1
    estimator = AMFClassifier(1).partial_fit([[0.0], [1.0]], [0, n - 1], classes=range(n))
    assert estimator.predict_proba([[0.0]]).shape == (1, n)


@pytest.mark.parametrize(("n_jobs", "threads"), [(None, 1), (2, 2), (-1, 4), (-2, 3), (-9, 1), (np.int64(-1), 4)])
def test_jobs_are_counted_as_joblib_does(n_jobs: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert AMFClassifier(2, n_jobs=n_jobs).fit([[0.0], [1.0]], [0, 1]).forest_.n_threads == threads


@pytest.mark.parametrize("system", [AMFClassifier, AMFRegressor])
def test_masked_labels_are_refused(system: Any) -> None:
    with pytest.raises(ValueError, match="y has labels that are masked"):
        system(2).fit(np.eye(3), np.ma.array([0, 1, 1], mask=[False, True, False]))


@pytest.mark.parametrize("missing", [None, pd.NA, pd.NaT], ids=repr)
@pytest.mark.parametrize(("system", "label"), [(AMFClassifier, "a"), (AMFClassifier, 1), (AMFRegressor, 1.5)])
def test_a_label_that_is_missing_is_refused_with_its_row(system: Any, label: Any, missing: Any) -> None:
    """A regressor left such rows away without a word, and of all of them it was fitted and could not predict."""
    for y in ([label, missing, missing], pd.Series([label, missing, label], dtype=object)):
        with pytest.raises(ValueError, match=rf"y\[1\] is {missing}, no label: leave such rows away"):
            system(2).fit(np.eye(3), y)


def test_no_classes_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="`classes` is empty"):
        AMFClassifier(2).partial_fit(np.eye(2), [0, 1], classes=[])


def test_what_is_masked_is_missing_and_dates_are_refused() -> None:
    x, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 2
    masked, holes = np.ma.array(x, mask=x > 0.7), np.where(x > 0.7, np.nan, x)
    one, other = (AMFClassifier(2, random_state=1).fit(rows, y) for rows in (masked, holes))
    assert one.forest_.dumps() == other.forest_.dumps()
    np.testing.assert_array_equal(one.predict_proba(masked), one.predict_proba(holes))
    days = pd.date_range("2020", periods=40)
    for dates in (x.astype("M8[s]"), pd.DataFrame({"a": days}), pd.DataFrame({"a": days, "b": x[:, 0]})):
        with pytest.raises(TypeError, match=r"X holds dates .* give seconds"):
            AMFClassifier(2).fit(dates, y)
