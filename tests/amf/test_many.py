"""Many forests in one call: bit for bit what each of them says and learns by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from many import as_labels, forests_of, group_of, slot_of, stream

import amf
from amf.memory.pages import Block

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
        ({"slots": [0, 2]}, r"slots\[1\] is 2, where there is no forest"),
        ({"slots": [-1, 0]}, r"slots\[0\] is -1, where there is no forest"),
        ({"slots": [0]}, r"X has shape \(2, 3\), slots \(1,\)"),
        ({"labels": [0, 2]}, r"labels\[1\] is 2, its forest has the classes 0 to 1"),
        ({"slots": [1, 0], "labels": [2, 3]}, r"labels\[0\] is 2, its forest has the classes 0 to 1"),
        ({"labels": [0]}, r"labels have shape \(1,\) for 2 rows"),
        ({"labels": [0.9, 1.0]}, "labels must be whole numbers, they are float64"),
        ({"slots": [0, 1.2]}, "slots must be whole numbers, they are float64"),
        ({"labels": np.array([0, 2**64 - 1], np.uint64)}, "labels must be whole numbers up to 9"),
        ({"slots": np.array([0, 2**64 - 1], np.uint64)}, "slots must be whole numbers up to"),
        ({"n_threads": 0}, "n_threads"),
        ({"x": [[0, 0, np.inf], [0, 0, 0]]}, r"X\[0, 2\] is infinite"),
        ({"x": [[0.0], [1.0]]}, "X has 1 features, this forest learned from 3"),
        ({"forests": "twice"}, "a forest stands in two slots"),
        ({"forests": "mixed"}, "the forest of slot 1 is a AMFRegressor, another one a AMFClassifier"),
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
    with pytest.raises(ValueError, match=r"the forest of slot 1 is IncreasingLifetimeForestRegressor.*domain='cube'"):
        amf.predict_learn_many(forests, [[0.2], [0.3]], [0, 1], [1.0, 2.0])


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("parameters", [{}, {"max_bytes": 20_000}], ids=str)
def test_a_group_goes_on_with_forests_that_were_used_by_themselves(system, parameters):
    """What moves the memory of a forest between two calls of the group, which has its addresses, is noticed."""
    rng = np.random.default_rng(3)
    ours, theirs = forests_of(system, 6, **parameters), forests_of(system, 6, **parameters)
    group = group_of(ours)
    for turn in range(12):
        x, labels = stream(system, 90, turn)
        places = rng.integers(0, 6, 90)
        said = group.predict_learn(x, [slot_of(i) for i in places.tolist()], labels)
        for i, forest in enumerate(theirs):
            own = forest.prequential(x[places == i], as_labels(system, labels[places == i]))
            np.testing.assert_array_equal(said[0][places == i], own[0])
        one, (x, labels) = turn % 6, stream(system, 40 + 100 * (turn % 3), 100 + turn)
        for forests in (ours, theirs):
            forest = forests[one]
            match turn % 4:
                case 0:
                    forest.partial_fit(x, as_labels(system, labels))
                case 1:
                    forest.weighted_depth(x)
                case 2:
                    forest.n_threads = 2
                    forest.partial_fit(x, as_labels(system, labels))
                    forest.n_threads = 1
                case 3:
                    forests[one] = amf.loads(forest.dumps())
        group.put(slot_of(one), ours[one])
        sizes = group.sizes(np.array([slot_of(i) for i in range(6)]))
        assert sizes.samples.tolist() == [forest.n_samples for forest in theirs]
        assert sizes.nodes.tolist() == [forest.n_nodes for forest in theirs]
        assert sizes.nbytes.tolist() == [forest.nbytes for forest in ours]
    assert [forest.dumps() for forest in ours] == [forest.dumps() for forest in theirs]


def test_a_group_follows_classes_and_features_that_come():
    ours, theirs = ([amf.AMFClassifier(3, seed=seed) for seed in range(3)] for _ in range(2))
    group, rng = group_of(ours), np.random.default_rng(0)
    for forest in (*ours, *theirs):
        forest.add_features(["x"])
        forest.partial_fit([[0.1]], ["a"])
    for turn in range(1, 9):
        for forest in (*ours, *theirs):
            forest.add_features([f"x{turn}"])
            forest.partial_fit(np.full((1, turn + 1), 0.3), [f"class {turn}"])
        x, places = rng.random((30, turn + 1)), rng.integers(0, 3, 30)
        labels = rng.integers(0, turn + 1, 30)
        said = group.predict_learn(x, [slot_of(i) for i in places.tolist()], labels)
        for i, forest in enumerate(theirs):
            names = [forest.class_labels[code] for code in labels[places == i]]
            np.testing.assert_array_equal(said[0][places == i], forest.predict_learn(x[places == i], names))
    assert [forest.dumps() for forest in ours] == [forest.dumps() for forest in theirs]


@pytest.mark.parametrize("system", [amf.AMFClassifier, amf.BSPForestRegressor, amf.AdaptiveAMFClassifier])
def test_a_forest_that_has_grown_is_as_kernels_see_it(system):
    """Growing writes some words of the binding alone: all of them must be those of one that is written anew."""
    forest, group, rng = system(n_estimators=3, seed=1), amf.Group(), np.random.default_rng(0)
    forest.partial_fit(rng.random((2, 2)), [0, 1])
    group.put(0, forest)
    capacities = set()
    for _ in range(60):
        x = rng.random((5, 2))
        group.predict_learn(x, np.zeros(5, np.int64), (x[:, 0] > 0.5).astype(forest._code))
        words = forest._current().words.copy()  # where room was given back they are written anew as it is
        forest._binding.expire()
        assert words.tolist() == forest._current().words.tolist()
        capacities.add(forest._arena.capacity)
    assert len(capacities) > 3


def test_what_left_a_group_has_no_slot_in_it():
    forests = forests_of(amf.AMFClassifier, 3)
    group = group_of(forests)
    group.remove(slot_of(1))
    group.remove(slot_of(1))
    group.remove(1000)
    for slot in (slot_of(1), 2, 1000, -1):
        with pytest.raises(ValueError, match=f"is {slot}, where there is no forest"):
            group.predict_learn(np.zeros((1, 3)), [slot], [0])
    group.put(slot_of(1), forests[1])
    with pytest.raises(ValueError, match="stands in two slots"):
        group.put(7, forests[1])
    assert group.predict_learn(np.zeros((1, 3)), [slot_of(1)], [0]).probabilities.shape == (1, 2)


def test_memory_that_runs_out_loses_the_forests_of_the_call_and_no_other(monkeypatch):
    forests = forests_of(amf.AMFClassifier, 4)
    group, before = group_of(forests), forests[3].dumps()
    x, labels = stream(amf.AMFClassifier, 600, 1)
    with monkeypatch.context() as patched:
        patched.setattr(Block, "resize", lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
        with pytest.raises(MemoryError):
            group.predict_learn(x, [slot_of(i % 3) for i in range(600)], labels)
    for forest in forests[:3]:
        with pytest.raises(amf.LostForestError):
            forest.dumps()
    assert forests[3].dumps() == before
    with pytest.raises(amf.LostForestError):
        group.predict_learn(x[:1], [slot_of(0)], labels[:1])
    group.predict_learn(x[:1], [slot_of(3)], labels[:1])


def test_a_group_asks_before_it_lets_go():
    group, (one, other) = amf.Group(), (amf.AMFClassifier(2, seed=seed, classes=[0, 1]) for seed in (1, 2))
    group.put(0, one)
    group.put(1, other)
    with pytest.raises(ValueError, match="another one a"):
        group.put(1, amf.AMFRegressor(2, seed=1))
    assert group.sizes(np.array([0, 1])).samples.tolist() == [0, 0]
    with pytest.raises(ValueError, match="slot"):
        group.put(-1, amf.AMFClassifier(2, seed=3, classes=[0, 1]))
    group.remove(1)
    for slots in ([1], [2], [-1]):
        with pytest.raises(ValueError, match="there is no forest"):
            group.sizes(slots)
    with pytest.raises(ValueError, match="slots have shape"):
        group.predict_learn([[0.0]], [[0]], [-1])


def test_slots_may_be_numbers_of_numpy_and_none_lies_before_the_first():
    group, forest = amf.Group(), forests_of(amf.AMFClassifier, 1)[0]
    group.put(np.int64(0), forest)
    group.remove(-1)
    assert group.sizes(np.array([0])).samples.tolist() == [forest.n_samples]


def test_a_table_of_other_columns_is_refused():
    """By position each column would be another feature of the forest that knows them by name."""
    x, y = np.random.default_rng(0).normal(size=(6, 2)), [0, 1] * 3
    frame = pd.DataFrame(x, columns=["age", "height"])
    forests = [amf.AMFClassifier(2).partial_fit(x, y), amf.AMFClassifier(2).partial_fit(frame, y)]
    before = [forest.dumps() for forest in forests]
    with pytest.raises(ValueError, match="X has the columns of this forest in another order"):
        amf.predict_learn_many(forests, frame[["height", "age"]], [0, 1] * 3, y)
    assert [forest.dumps() for forest in forests] == before
    amf.predict_learn_many(forests, frame, [0, 1] * 3, y)
    amf.predict_learn_many(forests[:1], frame[["height", "age"]], [0] * 6, y)


def test_a_label_that_is_masked_is_missing():
    labels = np.ma.MaskedArray([1, 1, 0], mask=[False, True, False])
    for system, missing in ((amf.AMFClassifier, -1), (amf.AMFRegressor, np.nan)):
        group, others = forests_of(system, 2), forests_of(system, 2)
        amf.predict_learn_many(group, np.eye(3), [0, 1, 0], labels)
        amf.predict_learn_many(others, np.eye(3), [0, 1, 0], [1, missing, 0])
        assert [forest.dumps() for forest in group] == [forest.dumps() for forest in others]


def test_what_is_no_forest_or_a_slot_far_away_is_refused():
    group = amf.Group()
    with pytest.raises(TypeError, match="slot 0 is for a forest, got a str"):
        group.put(0, "x")
    with pytest.raises(ValueError, match="slot"):
        group.put(2**26, forests_of(amf.AMFClassifier, 1)[0])
