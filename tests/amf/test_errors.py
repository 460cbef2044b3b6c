"""What is refused, with which words; a refused call leaves the forest as it was."""

from __future__ import annotations

import numpy as np
import pytest

BAD_PARAMETERS = [
    ({"n_estimators": 0}, "n_estimators must be a whole number from 1"),
    ({"n_estimators": 2.0}, "n_estimators must be a whole number"),
    ({"n_estimators": True}, "n_estimators must be a whole number"),
    ({"seed": -1}, "seed must be a whole number from 0"),
    ({"seed": 2**64}, "seed must be a whole number from 0"),
    ({"scaling": "minmax"}, "scaling must be 'auto' or 'none', got 'minmax'"),
    ({"prior": None}, "prior must be 'parent' or 'dirichlet'"),
    ({"smoothing": 0.0}, "smoothing must be a positive number up to 1e9"),
    ({"smoothing": float("nan")}, "smoothing must be a positive number"),
    ({"prior": "dirichlet", "dirichlet": 10**400}, "dirichlet must be a positive number"),
    ({"dirichlet": 0.5}, "dirichlet needs prior='dirichlet'"),
    ({"charge_first": 1}, "charge_first must be True or False"),
    ({"split_pure": "no"}, "split_pure must be True or False"),
    ({"max_bytes": 0}, "max_bytes must be a whole number from 1"),
    ({"max_bytes": 1e6}, "max_bytes must be a whole number"),
    ({"max_features": 0}, "max_features must be a whole number from 1"),
    ({"n_threads": 0}, "n_threads must be a whole number from 1"),
    ({"n_threads": -1}, "n_threads must be a whole number from 1"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD_PARAMETERS, ids=str)
def test_a_bad_parameter_is_named(system, parameters, message):
    with pytest.raises(ValueError, match=message):
        system.new(**parameters)


def ones(n, d=5):
    return np.ones((n, d))


BAD_CALLS = {
    "one dimension": (lambda f: f.partial_fit(np.ones(5), ["no"]), r"two dimensions .*got shape \(5,\)"),
    "three dimensions": (lambda f: f.predict_proba(np.ones((1, 5, 1))), r"two dimensions .*got shape \(1, 5, 1\)"),
    "too narrow": (lambda f: f.partial_fit(ones(1, 4), ["no"]), "X has 4 features, this forest learned from 5"),
    "too wide": (lambda f: f.predict_proba(ones(1, 6)), "X has 6 features, this forest learned from 5"),
    "no features": (lambda f: f.predict(np.ones((2, 0))), "X has 0 features"),
    "too few labels": (lambda f: f.partial_fit(ones(3), ["no", "no"]), "y has 2 labels for 3 rows of X"),
    "infinite": (lambda f: f.partial_fit([[0, 0, 0, 0, 0], [0, 0, 0, -np.inf, 0]], ["no", 7]), r"X\[1, 3\] is inf"),
    "infinite float32": (lambda f: f.predict_proba(np.float32([[0, np.inf, 0, 0, 0]])), r"X\[0, 1\] is inf"),
    "text": (lambda f: f.partial_fit([["a", "b", "c", "d", "e"]], ["no"]), "could not convert string"),
    "label is a list": (lambda f: f.partial_fit(ones(2), ["no", ["no"]]), r"y\[1\] is a list; a label is"),
    "label is bytes": (lambda f: f.partial_fit(ones(2), [b"no", "no"]), r"y\[0\] is a bytes; a label is"),
    "labels in columns": (lambda f: f.partial_fit(ones(2), np.ones((2, 1))), r"y\[0\] is a list; a label is"),
    "names for an array": (lambda f: f.add_features(["a"]), "the features of this forest have no names"),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_says_what_is_wrong_and_learns_nothing(system, call):
    forest, *_ = system.learned()
    before = forest.dumps()
    do, message = BAD_CALLS[call]
    with pytest.raises((ValueError, TypeError), match=message):
        do(forest)
    assert forest.dumps() == before


def test_limits_are_errors_and_nothing_is_learned(system):
    forest = system.new(max_features=3)
    empty = forest.dumps()
    with pytest.raises(ValueError, match="X has 4 features; it needs 1 to max_features=3"):
        forest.partial_fit(ones(1, 4), ["no"])
    with pytest.raises(ValueError, match="4 features are more than max_features=3"):
        forest.add_features(["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="named twice"):
        forest.add_features(["a", "b", "a"])
    with pytest.raises(TypeError, match=r"the name of a feature is a str, got \[1\]"):
        forest.add_features([1])
    forest.add_features([])
    assert forest.dumps() == empty
    forest.add_features(["a", "b"])
    named = forest.dumps()
    with pytest.raises(ValueError, match=r"named twice: \['b'\]"):
        forest.add_features(["b"])
    assert forest.dumps() == named
    forest.partial_fit(ones(1, 2), ["no"])
    assert forest.n_samples == 1


@pytest.mark.parametrize("call", ["predict_proba", "predict", "weighted_depth"])
def test_a_forecast_before_the_first_label_is_an_error(system, call):
    forest = system.new()
    forest.partial_fit(ones(2), [None, None])
    with pytest.raises(ValueError, match="seen no label yet"):
        getattr(forest, call)(ones(1))
    assert forest.predict_learn(ones(2), [None, None]).shape == (2, 0)
    assert forest.dumps() == system.new().dumps()


def test_no_rows_are_no_error(system):
    forest, *_ = system.learned()
    before = forest.dumps()
    assert forest.predict_learn(np.empty((0, 5)), []).shape == (0, len(forest.classes_))
    assert forest.predict(np.empty((0, 5))).shape == (0,)
    assert forest.dumps() == before
