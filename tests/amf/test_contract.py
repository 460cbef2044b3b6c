"""What every system promises, whatever it learns: the same rows in the same order give the same bits.

A new system joins by one line in conftest.py. Statements about one system alone are in its own test modules.
"""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amf

ROOT = Path(__file__).parents[2]
PLENTY = 64_000_000


def parameters_of(system):
    """Keyword arguments for a new forest."""
    return st.fixed_dictionaries(
        {
            "n_estimators": st.integers(1, 3),
            "seed": st.integers(0, 2**64 - 1),
            "max_bytes": st.sampled_from([1, 5_000, 30_000, PLENTY]),
            **{name: st.sampled_from(values) for name, values in system.parameters.items()},
        }
    )


SHAPES = st.fixed_dictionaries(
    {
        "n": st.integers(0, 80),
        "d": st.integers(1, 18),
        "seed": st.integers(0, 2**32 - 1),
        "missing": st.sampled_from([0.0, 0.3]),
        "unlabelled": st.sampled_from([0.0, 0.3, 0.9]),
    }
)

PASSED_ON = {
    "as it is": lambda forest: forest,
    "through bytes": lambda forest: amf.loads(forest.dumps()),
    "through pickle": lambda forest: pickle.loads(pickle.dumps(forest)),
    "through a copy": lambda forest: forest.copy(),
}


@st.composite
def pieces_of(draw, n):
    """A division of n rows: (rows, whether to publish, threads, how the forest gets from here to the next piece)."""
    cuts = draw(st.lists(st.integers(0, n), max_size=6))
    return [
        (slice(*bounds), draw(st.booleans()), draw(st.integers(1, 2)), draw(st.sampled_from(sorted(PASSED_ON))))
        for bounds in pairwise([0, *sorted(cuts), n])
    ]


def assert_same(table, expected):
    """Equal forecasts; a class that was not yet known has a column of zeros."""
    if table.ndim == 2:
        table = np.pad(table, ((0, 0), (0, expected.shape[1] - table.shape[1])))
    np.testing.assert_array_equal(table, expected)


@settings(max_examples=150)
@given(st.data())
def test_batches_threads_copies_and_publishing_do_not_change_a_bit(system, data):
    parameters, shape = data.draw(parameters_of(system), "parameters"), data.draw(SHAPES, "stream")
    x, y = system.stream(**shape)
    whole = system.new(**parameters)
    expected = whole.prequential(x, y)

    forest = system.new(**parameters)
    for part, publish, forest.n_threads, passed_on in data.draw(pieces_of(shape["n"]), "pieces"):
        if publish:
            got = forest.prequential(x[part], y[part])
            for said, whole_said in zip(got, expected, strict=True):
                assert_same(said, whole_said[part])
        else:
            forest.partial_fit(x[part], y[part])
        forest = PASSED_ON[passed_on](forest)
    assert forest.dumps() == whole.dumps()


@settings(max_examples=60)
@given(st.data())
def test_one_by_one_equals_one_batch(system, data):
    parameters, shape = data.draw(parameters_of(system), "parameters"), data.draw(SHAPES, "stream")
    x, y = system.stream(**shape)
    whole, single = system.new(**parameters), system.new(**parameters)
    expected = whole.predict_learn(x, y)
    for row in range(shape["n"]):
        if single.n_samples:
            assert_same(system.ask(single, x[row : row + 1]), expected[row : row + 1])
        single.predict_learn(x[row : row + 1], y[row : row + 1])
    assert single.dumps() == whole.dumps()


@settings(max_examples=60)
@given(st.data())
def test_unlabelled_rows_leave_no_trace(system, data):
    parameters, shape = data.draw(parameters_of(system), "parameters"), data.draw(SHAPES, "stream")
    x, y = system.stream(**shape)
    labelled = np.array([label is not None for label in y], bool)
    everything, learned = system.new(**parameters), system.new(**parameters)
    expected = everything.predict_learn(x, y)
    got = learned.predict_learn(x[labelled], [label for label in y if label is not None])
    np.testing.assert_array_equal(got, expected[labelled])
    assert everything.dumps() == learned.dumps()


@settings(max_examples=80)
@given(st.data())
def test_features_may_be_added_at_any_row(system, data):
    """Equal to having had them from the start, without a value in the earlier rows (as long as memory is no issue)."""
    if system.in_unit_cube:
        forest = system.new()
        forest.add_features(["a"])
        forest.partial_fit([[0.5]], system.examples[:1])
        with pytest.raises(ValueError, match="cannot take up features after its first sample"):
            forest.add_features(["b"])
        return
    parameters, shape = data.draw(parameters_of(system), "parameters"), data.draw(SHAPES, "stream")
    parameters["max_bytes"] = PLENTY
    x, y = system.stream(**shape)
    n, d = x.shape
    known = sorted(data.draw(st.lists(st.integers(1, d), max_size=3), "features known, step by step"))
    rows = sorted(data.draw(st.lists(st.integers(0, n), min_size=len(known), max_size=len(known)), "until row"))
    for columns, row in zip(known, rows, strict=True):
        x[:row, columns:] = np.nan
    names = [f"f{j}" for j in range(d)]

    whole, forest = system.new(**parameters), system.new(**parameters)
    whole.add_features(names)
    expected = whole.predict_learn(x, y)
    for columns, part in zip([*known, d], pairwise([0, *rows, n]), strict=True):
        forest.add_features(names[forest.n_features : columns])
        got = forest.predict_learn(x[slice(*part), :columns], y[slice(*part)])
        assert_same(got, expected[slice(*part)])
    assert forest.dumps() == whole.dumps()


@settings(max_examples=60)
@given(st.data())
def test_features_and_classes_may_be_met_before_their_row_is_learned(system, data):
    """So a group of forests learns rows that bring something new: each is forecast, met and learned, in this order."""
    parameters, shape = data.draw(parameters_of(system), "parameters"), data.draw(SHAPES, "stream")
    x, y = system.stream(**shape)
    whole, forest, group = system.new(**parameters), system.new(**parameters), amf.Group()
    group.put(0, forest)
    for row, label in zip(x[:, None], y, strict=True):
        knew = whole.n_samples > 0
        expected, said = whole.prequential(row, [label]), None
        if not forest.n_features and label is not None:
            forest.add_features(shape["d"])
        code = label
        if forest.class_labels is not None:
            texts = [str(known) for known in forest.class_labels]
            if label is not None and str(label) not in texts:
                if texts:
                    said = forest.prequential(row, [None])
                forest.add_classes([label])
                texts.append(str(label))
            code = -1 if label is None else texts.index(str(label))
        if forest.n_features:
            learned = group.predict_learn(row, [0], [np.nan if code is None else code], predict=said is None)
            for ours, theirs in zip(said or learned, expected, strict=True):
                if knew:
                    assert_same(ours, theirs)
        assert forest.dumps() == whole.dumps()


@settings(max_examples=30)
@given(st.data())
def test_a_forest_with_another_seed_is_one_that_has_met_the_same(system, data):
    parameters, shape = data.draw(parameters_of(system), "parameters"), data.draw(SHAPES, "stream")
    x, y = system.stream(**shape)
    labels = [*dict.fromkeys(label for label in y if label is not None)]
    firsts = labels[: data.draw(st.integers(0, 3), "classes")]

    def met(seed):
        forest = system.new(**{**parameters, "seed": seed})
        forest.add_features(shape["d"])
        if forest.class_labels is not None:
            forest.add_classes(firsts)
        return forest

    first = met(data.draw(st.integers(0, 2**64 - 1), "another seed"))
    before = first.dumps()
    ours, theirs = first.with_seed(parameters["seed"]), met(parameters["seed"])
    assert (ours.params, ours.dumps()) == (theirs.params, theirs.dumps())
    ours.partial_fit(x, y)
    theirs.partial_fit(x, y)
    assert (ours.dumps(), first.dumps()) == (theirs.dumps(), before)
    if ours.n_samples:
        with pytest.raises(ValueError, match="with its own seed"):
            ours.with_seed(1)


# What goes in stays the caller's, what comes out is the caller's.


def test_forecasts_change_nothing_and_repeat(system):
    forest, x, _ = system.learned()
    before = forest.dumps()
    for question in system.questions:
        np.testing.assert_array_equal(getattr(forest, question)(x), getattr(forest, question)(x))
    assert forest.dumps() == before


def test_input_is_neither_changed_nor_kept(system):
    for call in ("partial_fit", "predict_learn", *system.questions):
        forest, x, y = system.learned()
        twin = copy.deepcopy(forest)
        x_before, y_before = x.copy(), list(y)
        arguments = (x, y) if call in ("partial_fit", "predict_learn") else (x,)
        getattr(forest, call)(*arguments)
        np.testing.assert_array_equal(x, x_before)
        assert y == y_before
        getattr(twin, call)(x_before, *arguments[1:])
        x[:] = 1e9
        y[:] = reversed(y)
        assert forest.dumps() == twin.dumps()


def test_results_are_the_callers_own(system):
    forest, x, y = system.learned()
    twin = copy.deepcopy(forest)
    forecasts = forest.prequential(x, y)
    kept = [array.copy() for array in forecasts]
    forest.prequential(x[::-1], y), twin.prequential(x, y), twin.prequential(x[::-1], y)
    for array, copied in zip(forecasts, kept, strict=True):
        np.testing.assert_array_equal(array, copied)
        array[:] = -1.0
    assert forest.dumps() == twin.dumps()


FORMS = {
    "float32": lambda x: x.astype(np.float32),
    "Fortran order": np.asfortranarray,
    "list": lambda x: [[None if v != v else v for v in row] for row in x.tolist()],
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "big-endian": lambda x: x.astype(">f8"),
    "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_array_does_not_matter(system, form):
    x, y = system.stream(40, 5, seed=2, missing=0.1)
    x = x.astype(np.float32).astype(np.float64)
    plain, other = system.new(), system.new()
    np.testing.assert_array_equal(other.predict_learn(FORMS[form](x), y), plain.predict_learn(x, y))
    np.testing.assert_array_equal(system.ask(other, FORMS[form](x)), system.ask(plain, x))
    assert other.dumps() == plain.dumps()


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, np.float32("nan"), pd.NA, pd.NaT], ids=repr)
def test_a_missing_label_is_none_or_nan_or_na(system, missing):
    x, y = system.stream(20, 3)
    marked, without = system.new(), system.new()
    marked.partial_fit(x, [*y[:10], missing, *y[11:]])
    without.partial_fit(np.delete(x, 10, axis=0), [*y[:10], *y[11:]])
    assert marked.dumps() == without.dumps()
    assert marked.n_samples == 19


def test_rows_of_a_frame_are_learned_one_by_one(system):
    """A Series is asked for its first label, not for the one that has the name 0."""
    x, y = system.stream(20, 3)
    frame, labels = pd.DataFrame(x), pd.Series(y)
    whole, single = system.new(), system.new()
    whole.partial_fit(x[5:], y[5:])
    for row in range(5, 20):
        single.partial_fit(frame.iloc[row : row + 1], labels.iloc[row : row + 1])
    assert single.dumps() == whole.dumps()


# Copies.


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda forest: forest.copy()])
def test_a_copy_goes_its_own_way(system, copied):
    """What either learns, be it labels of a new kind, the other one does not see; the same makes them equal again."""
    forest, *_ = system.learned()
    twin = copied(forest)
    was = forest.dumps()
    assert (type(twin), twin.dumps(), twin.params) == (type(forest), was, forest.params)
    x, y = system.stream(300, 5, seed=9)
    expected = forest.predict_learn(x, y)
    became = forest.dumps()
    assert became != was
    assert twin.dumps() == was
    np.testing.assert_array_equal(twin.predict_learn(x, y), expected)
    assert (twin.dumps(), forest.dumps()) == (became, became)


def test_a_copy_does_not_see_the_next_row_either(system):
    """One row at a time finds room where many have new memory reserved for them, which hides what is shared."""
    forest, *_ = system.learned()
    x, y = system.stream(20, 5, seed=9)
    for row in range(20):
        twin, before = forest.copy(), forest.dumps()
        forest.partial_fit(x[row : row + 1], y[row : row + 1])
        assert twin.dumps() == before


def test_a_copy_is_saved_while_the_forest_learns_on(system):
    """As a worker saves a model: a copy before each step, its bytes made in another thread."""
    x, y = system.stream(400, 5, seed=4)
    steps = [slice(start, start + 20) for start in range(0, 400, 20)]
    forest, alone = system.new(), system.new()
    with ThreadPoolExecutor(1) as saver:
        saved = []
        for step in steps:
            saved.append(saver.submit(forest.copy().dumps))
            forest.partial_fit(x[step], y[step])
        for step, data in zip(steps, saved, strict=True):
            assert data.result(timeout=60) == alone.dumps()
            alone.partial_fit(x[step], y[step])


def test_a_copy_keeps_its_threads(system):
    forest, *_ = system.learned(n_threads=2)
    assert [forest.copy().n_threads, pickle.loads(pickle.dumps(forest)).n_threads] == [2, 2]


class Owned(amf.AMFClassifier):
    """A forest of a program, which adds what is its own."""

    def __init__(self, owner: str, **parameters: Any) -> None:
        super().__init__(2, **parameters)
        self.owner, self._seen = owner, [1, 2]


@pytest.mark.parametrize("n_rows", [0, 20])
@pytest.mark.parametrize("passed_on", ["through a copy", "through pickle"])
def test_what_a_class_that_derives_adds_goes_along(passed_on, n_rows):
    x = np.random.default_rng(0).random((n_rows + 1, 2))
    forest = Owned("fraud").partial_fit(x[:n_rows], [0, 1] * (n_rows // 2))
    again = PASSED_ON[passed_on](forest)
    assert (type(again), again.owner, again._seen) == (Owned, "fraud", [1, 2])
    assert again.partial_fit(x, [0] * len(x)).dumps() == forest.partial_fit(x, [0] * len(x)).dumps()


# Parameters.


def test_equal_seeds_make_equal_forests_and_other_seeds_others(system):
    x, y = system.stream(60, 4)
    forests = [system.new(seed=seed).partial_fit(x, y) for seed in (3, 3, 4)]
    assert forests[0].dumps() == forests[1].dumps()
    assert not np.array_equal(system.ask(forests[0], x), system.ask(forests[2], x))


def test_parameters_make_the_same_forest_again(system):
    forest, x, y = system.learned(max_bytes=30_000, calibration=True)
    twin = type(forest).from_params(forest.params).partial_fit(x, y)
    assert twin.dumps() == forest.dumps()
    from_text = eval(repr(forest), vars(amf))
    assert from_text.params == forest.params
