"""Many forests in one call: bit for bit what each of them says and learns by itself."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import amf

SYSTEMS = [
    amf.AMFClassifier,
    amf.AMFRegressor,
    *(
        pytest.param(system, marks=pytest.mark.full)
        for system in (
            amf.UnrestrictedAMFClassifier,
            amf.MondrianForestClassifier,
            amf.MondrianForestRegressor,
            amf.IncreasingLifetimeForestClassifier,
            amf.IncreasingLifetimeForestRegressor,
            amf.AdaptiveAMFClassifier,
            amf.AdaptiveAMFRegressor,
            amf.BSPForestClassifier,
            amf.BSPForestRegressor,
        )
    ),
]
"""The quick check takes two of them: each has a kernel for many forests, which is compiled when it is first used."""


OTHERS = {
    amf.UnrestrictedAMFClassifier: {"prior": "dirichlet"},
    amf.MondrianForestClassifier: {"smoothing": "path_mean"},
    amf.MondrianForestRegressor: {"lifetime": 1.0},
    amf.IncreasingLifetimeForestClassifier: {"combine": "vote"},
    amf.IncreasingLifetimeForestRegressor: {"lifetime_exponent": 0.0},
    amf.BSPForestClassifier: {"combine": "vote"},
    amf.BSPForestRegressor: {"lifetime": 1.0},
}
"""Parameters of systems that have no `mode`."""


def estimates(system: Any) -> bool:
    """Whether labels are numbers."""
    return issubclass(system, amf.ForestRegressor)


def stream(system: Any, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three features from 0 to 1, and labels as `predict_learn_many` takes them, some of them missing."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    if estimates(system):
        labels = x[:, 0] + rng.normal(size=n)
        labels[rng.random(n) < 0.2] = np.nan
    else:
        labels = (x[:, 0] + 0.3 * rng.random(n) > 0.6).astype(np.int64)
        labels[rng.random(n) < 0.2] = -1
    return x, labels


def as_labels(system: Any, labels: np.ndarray) -> list[Any]:
    """The same labels as a forest's own methods take them."""
    if estimates(system):
        return labels.tolist()
    return [None if code < 0 else "ab"[code] for code in labels]


def forests_of(system: Any, n: int, **parameters: Any) -> list[Any]:
    """Forests of very different sizes, all of which know the features and the classes "a" and "b"."""
    if not estimates(system):
        parameters["classes"] = ("a", "b")
    forests = [system(1 + seed % 3, seed=seed, **parameters) for seed in range(n)]
    for seed, forest in enumerate(forests):
        x, labels = stream(system, 1 + 7 * seed % 90, 100 + seed)
        labels[0] = 0
        forest.partial_fit(x, as_labels(system, labels))
    return forests


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    "parameters", [{}, {"max_bytes": 20_000}, {"mode": "expected"}, {"calibration": False}], ids=str
)
def test_one_call_equals_one_call_each(system, parameters):
    if "mode" in parameters:
        parameters = OTHERS.get(system, parameters)
    forests, alone = forests_of(system, 12, **parameters), forests_of(system, 12, **parameters)
    for turn in range(3):
        x, labels = stream(system, 400, turn)
        slots = np.random.default_rng(turn).integers(0, len(forests), 400) ** 2 % len(forests)  # some never, some often
        said = amf.predict_learn_many(forests, x, slots, labels)
        for slot, forest in enumerate(alone):
            mine = slots == slot
            if not mine.any():
                continue
            own = forest.prequential(x[mine], as_labels(system, labels[mine]))
            for together, by_itself in zip(said, own, strict=True):
                np.testing.assert_array_equal(together[mine], by_itself)
    assert [forest.dumps() for forest in forests] == [forest.dumps() for forest in alone]
    assert [forest.nbytes for forest in forests] == [forest.nbytes for forest in alone]


@pytest.mark.parametrize("system", SYSTEMS)
def test_threads_and_cuts_change_nothing(system):
    x, labels = stream(system, 3000, 5)
    slots = np.repeat([0, 1, 2], [2500, 1, 499])  # more rows than memory is reserved for at once
    results = []
    for n_threads, cuts in ((1, [0, 3000]), (3, [0, 3000]), (2, [0, 1, 700, 2600, 3000])):
        forests = forests_of(system, 3)
        said = [
            amf.predict_learn_many(forests, x[a:b], slots[a:b], labels[a:b], n_threads=n_threads)[0]
            for a, b in itertools.pairwise(cuts)
        ]
        results.append((np.concatenate(said).tobytes(), [forest.dumps() for forest in forests]))
    assert results[0] == results[1] == results[2]


def test_rows_without_labels_change_nothing():
    forests = forests_of(amf.AMFClassifier, 4)
    before = [forest.dumps() for forest in forests]
    x, _ = stream(amf.AMFClassifier, 50, 1)
    said = amf.predict_learn_many(forests, x, np.arange(50) % 4, np.full(50, -1))
    assert [forest.dumps() for forest in forests] == before
    np.testing.assert_array_equal(said.probabilities[::4], forests[0].predict_proba(x[::4]))


@pytest.mark.parametrize("system", SYSTEMS)
def test_to_learn_alone_is_to_predict_and_learn(system):
    x, labels = stream(system, 300, 6)
    slots = np.arange(300) % 3
    ours, theirs = forests_of(system, 3), forests_of(system, 3)
    amf.predict_learn_many(ours, x, slots, labels)
    amf.predict_learn_many(theirs, x, slots, labels, predict=False)
    assert [forest.dumps() for forest in ours] == [forest.dumps() for forest in theirs]


def test_no_rows_are_no_trouble_and_no_forests_are():
    forests = forests_of(amf.AMFClassifier, 2)
    before = [forest.dumps() for forest in forests]
    assert amf.predict_learn_many(forests, np.empty((0, 3)), [], []).probabilities.shape == (0, 2)
    assert [forest.dumps() for forest in forests] == before
    with pytest.raises(ValueError, match="there is no forest"):
        amf.predict_learn_many([], np.empty((0, 3)), [], [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": [0, 2]}, "slots must lie from 0 to 1, they reach from 0 to 2"),
        ({"slots": [0]}, r"X has shape \(2, 3\), slots \(1,\)"),
        ({"labels": [0, 2]}, r"labels\[1\] is 2, its forest has the classes 0 to 1"),
        ({"labels": [0]}, r"labels have shape \(1,\) for 2 rows"),
        ({"labels": [0.9, 1.0]}, "labels must be whole numbers, they are float64"),
        ({"slots": [0, 1.2]}, "slots must be whole numbers, they are float64"),
        ({"n_threads": 0}, "n_threads"),
        ({"x": [[0, 0, np.inf], [0, 0, 0]]}, r"X\[0, 2\] is infinite"),
        ({"x": [[0.0], [1.0]]}, "X has 1 features, this forest learned from 3"),
        ({"forests": "twice"}, "a forest stands in two slots"),
        ({"forests": "mixed"}, r"forests\[1\] is a AMFRegressor, forests\[0\] a AMFClassifier"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(changes, message):
    forests = forests_of(amf.AMFClassifier, 2)
    if "forests" in changes:
        forests[1] = forests[0] if changes["forests"] == "twice" else forests_of(amf.AMFRegressor, 1)[0]
    before = [forest.dumps() for forest in forests]
    arguments = {"x": np.zeros((2, 3)), "slots": [0, 1], "labels": [0, 1], **changes}
    n_threads = arguments.get("n_threads", 1)
    with pytest.raises(ValueError, match=message):
        amf.predict_learn_many(forests, arguments["x"], arguments["slots"], arguments["labels"], n_threads=n_threads)
    assert [forest.dumps() for forest in forests] == before


@pytest.mark.parametrize("label", [np.inf, 1e76, -1e200])
def test_numbers_that_no_forest_takes_are_refused(label):
    forests = forests_of(amf.AMFRegressor, 2)
    before = [forest.dumps() for forest in forests]
    with pytest.raises(ValueError, match="labels must lie within 1e\\+75 of 0"):
        amf.predict_learn_many(forests, np.zeros((2, 3)), [0, 1], [1.0, label])
    assert [forest.dumps() for forest in forests] == before


def test_rows_outside_of_the_cube_are_refused_where_forests_live_there():
    new = amf.IncreasingLifetimeForestClassifier
    forests = [new(2, seed=seed, domain="cube").partial_fit([[0.5], [0.1]], [0, 1]) for seed in range(2)]
    before = [forest.dumps() for forest in forests]
    for value in (1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"X\[1, 0\] is .*; this forest takes numbers from 0 to 1"):
            amf.predict_learn_many(forests, [[0.2], [value]], [0, 1], [0, 1])
    assert [forest.dumps() for forest in forests] == before


def test_forests_that_know_nothing_say_nothing():
    forests = [amf.AMFClassifier(2, seed=seed) for seed in range(2)]
    for forest in forests:
        forest.add_features(["x", "y"])
    before = [forest.dumps() for forest in forests]
    said = amf.predict_learn_many(forests, np.zeros((3, 2)), [0, 1, 0], [-1, -1, -1])
    assert said.probabilities.shape == (3, 0)
    assert [forest.dumps() for forest in forests] == before


def test_forests_of_one_system_with_kernels_of_their_own_do_not_mix():
    new = amf.IncreasingLifetimeForestRegressor
    forests = [new(1, domain=domain).partial_fit([[0.5]], [1.0]) for domain in ("range", "cube")]
    assert [forest.variant for forest in forests] == [(new.family, "range"), (new.family, "cube")]
    with pytest.raises(ValueError, match=r"forests\[1\] is IncreasingLifetimeForestRegressor.*domain='cube'"):
        amf.predict_learn_many(forests, [[0.2], [0.3]], [0, 1], [1.0, 2.0])
