"""Adaptive forests: what they learn of features and of trees, and that it is a function of the samples alone."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import sealed, split
from reference import average_over_prunings
from reference_adaptive import AdaptiveForest
from trees import trees_of
from worlds import changing, state

import amf
from amf.adaptation.state import ACTIVE, BEGINS, COMPARES, SILENT, SUSPECTS, WATCHES, most_kept, size_of, state_of

# The reference.


SETTINGS = [
    {"prior": "parent", "smoothing": 0.7},
    {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True},
    {"prior": "parent", "smoothing": 0.7, "split_pure": True},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_kernels_equal_the_reference(setting):
    forest, silent, phases = follow_the_reference(440, 220, setting)
    assert forest.adaptation.n_swaps > 1
    assert silent > 1
    assert phases == {"begins", "watches"}


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_forest_begins_anew_as_the_reference_does(setting):
    """After 450 samples, when it has stopped to rehearse and has seen enough to know what is usual."""
    forest, _, phases = follow_the_reference(560, 450, setting)
    assert phases == {"begins", "watches", "suspects", "compares"}
    assert state(forest).births.min() >= 440


@pytest.mark.parametrize(
    ("wrong", "tried"), [(np.r_[3:530:8, 440:450], False), (np.r_[440:474:3], True)], ids=["short", "longer"]
)
def test_a_forest_goes_on_after_a_disturbance_as_the_reference_does(wrong, tried):
    """Wrong labels between two reviews, or for longer: then background trees start anew, and are no better."""
    forest, _, phases = follow_the_reference(530, 2000, SETTINGS[0], wrong)
    births = state(forest).births
    assert phases == {"begins", "watches", "suspects"}
    assert births.min() == 0
    assert (np.count_nonzero(births == 440) == 2) == tried


def test_labels_that_are_alike_are_no_change_for_the_reference_either():
    """One class alone, which trees that know no other forecast best."""
    _, y = changing(4000)
    _, _, phases = follow_the_reference(700, 2000, SETTINGS[0], 440 + np.flatnonzero(y[440:600] == 1))
    assert phases == {"begins", "watches", "suspects"}


def test_the_old_trees_come_back_after_a_burst_of_wrong_labels_as_the_reference_says(monkeypatch):
    """New trees, half of all, forecast first; the old ones then, from soon after the last wrong label on."""
    monkeypatch.setattr("amf.adaptation.state._REHEARSED", 160)
    monkeypatch.setattr("reference_adaptive.MOST_KEPT", 160)
    forest, _, phases = follow_the_reference(620, 2000, SETTINGS[0], np.r_[440:466])
    births = state(forest).births
    assert phases == {"begins", "watches", "suspects", "compares"}
    assert births.tolist().count(0) == 2
    assert state(forest).phase[0] == WATCHES


@pytest.mark.parametrize(("most", "suspects"), [(20, True), (19, False)])
def test_a_change_is_suspected_where_two_reviews_are_kept_and_nowhere_else(most, suspects, monkeypatch):
    """With fewer samples background trees are never tried, and what is usual is to follow as it always does."""
    monkeypatch.setattr("amf.adaptation.state._REHEARSED", most)
    monkeypatch.setattr("reference_adaptive.MOST_KEPT", most)
    _, _, phases = follow_the_reference(560, 450, SETTINGS[0])
    assert ("suspects" in phases) == suspects


def test_background_trees_that_were_tried_in_vain_do_not_forecast_before_they_are_judged():
    """They know a few samples alone, and have just been found to be no better than the others."""
    x, y = (values[:530] for values in changing(4000))
    y[440:474:3] = 1 - y[440:474:3]
    options = {"background": 0.5, "review_every": 10, "scaling": "none"}
    forest = amf.AdaptiveAMFClassifier(4, classes=range(2), seed=3, **options, **SETTINGS[0])
    tried = 0
    for start in range(0, 530, 10):
        rows = slice(start, start + 10)
        unknown = [tree for tree in forest.partial_fit(x[rows], y[rows]).adaptation.trees if tree.loss is None]
        assert {tree.role for tree in unknown} <= {"silent"}
        tried += bool(unknown) and state(forest).phase[0] == SUSPECTS
    assert tried > 1


def follow_the_reference(n, change, setting, wrong=slice(0)):
    """(forest, reviews times trees in the background that forecast nothing, phases of the forest)."""
    x, y = (values[:n] for values in changing(2 * change))
    y[wrong] = 1 - y[wrong]
    options = {"background": 0.5, "review_every": 10}
    forest = amf.AdaptiveAMFClassifier(4, classes=range(2), seed=3, scaling="none", **options, **setting)
    reference = AdaptiveForest(3, 4, 4, 2, background=0.5, every=10, **setting)
    silent, phases = 0, set()
    for start in range(0, n, 10):
        rows = slice(start, start + 10)
        said = []
        for row, label in zip(x[rows].astype(np.float32), y[rows], strict=True):
            said.append(reference.predict(row))
            reference.learn(row, int(label))
        got = forest.prequential(x[rows], y[rows])
        np.testing.assert_allclose(got.raw, said, rtol=1e-9)
        mine = state(forest)
        np.testing.assert_allclose(mine.weights, reference.weights, rtol=1e-9)
        # The last bit of a weight may differ, and would show in the times of later cuts.
        reference.weights = mine.weights.copy()
        assert mine.births.tolist() == [place.birth for place in reference.places]
        assert (mine.roles == ACTIVE).tolist() == [place.active for place in reference.places]
        assert (mine.roles != SILENT).tolist() == [place.asked for place in reference.places]
        for tree, place in zip(trees_of(forest), reference.places, strict=True):
            assert sorted(tree.time.tolist()) == sorted(node.time for node in place.tree.nodes())
        assert mine.beginning[0] == reference.beginning
        np.testing.assert_allclose(mine.usual, reference.usual, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(mine.excess[0], reference.excess, rtol=1e-9, atol=1e-12)
        silent += int(np.count_nonzero(mine.roles == SILENT))
        phases.add(reference.phase)
    assert forest.adaptation.n_swaps == reference.n_swaps
    return forest, silent, phases


@pytest.mark.parametrize("frozen", [True, False])
def test_forecasts_are_exact_averages_over_all_prunings(frozen):
    """By enumeration, with weights that stay as they are and with weights that move under the trees."""
    moved = 0
    for seed in range(12):
        # The same rows six times: trees stay small, and there is evidence enough for weights.
        x, y = (np.tile(values, (6, 1)[: values.ndim]) for values in changing(9, d=3, seed=seed))
        every = 1000 if frozen else 6
        forest = amf.AdaptiveAMFClassifier(3, classes=range(2), seed=seed, scaling="none", review_every=every)
        reference = AdaptiveForest(seed, 3, 3, 2, background=0.2, every=every, smoothing=1.5, prior="parent")
        for row, label in zip(x, y, strict=True):
            reference.learn(row.astype(np.float32), int(label))
            forest.partial_fit([row], [label])
            reference.weights = state(forest).weights.copy()
        for row in x[:9]:
            averages = [average_over_prunings(tree, row.astype(np.float32)) for tree in reference.asked()]
            expected = np.mean([average.forecast for average in averages], axis=0)
            np.testing.assert_allclose(forest.predict_proba([row], calibrated=False)[0], expected, rtol=1e-9)
            depth = np.mean([average.depth for average in averages])
            np.testing.assert_allclose(forest.weighted_depth([row]), depth, rtol=1e-9, atol=1e-12)
        moved += bool(np.any(state(forest).weights != 1.0))
    assert moved == 0 if frozen else moved > 3


# A function of the samples.


@pytest.mark.parametrize(
    ("kind", "compares_at"),
    [(amf.AdaptiveAMFClassifier, 895), (amf.AdaptiveAMFRegressor, 930)],
    ids=["classes", "numbers"],
)
@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 1000), max_size=8), threads=st.integers(1, 3), saves=st.booleans())
def test_reviews_come_at_the_same_samples_whatever_the_batches_are(kind, compares_at, cuts, threads, saves):
    """One of the cuts is where new trees are compared with old ones."""
    x, y = (values[:1000] for values in changing(1700))
    labels = [None if row % 7 == 3 else int(label) for row, label in enumerate(y)]
    whole = kind(5, seed=1, background=0.4, review_every=16)
    expected = whole.predict_learn(x, labels)
    assert whole.adaptation.n_swaps > 1
    forest = kind(5, seed=1, background=0.4, review_every=16, n_threads=threads)
    bounds = [0, *sorted([*cuts, compares_at]), 1000]
    for first, last in pairwise(bounds):
        got = forest.predict_learn(x[first:last], labels[first:last])
        if got.ndim == 1 or got.shape[1] == expected.shape[1]:
            np.testing.assert_array_equal(got, expected[first:last])
        assert last != compares_at or state(forest).phase[0] == COMPARES
        if saves:
            forest = amf.loads(forest.dumps(), n_threads=threads)
    assert forest.dumps() == whole.dumps()


@pytest.mark.parametrize("kind", [amf.AdaptiveAMFClassifier, amf.AdaptiveAMFRegressor])
def test_many_forests_compare_their_trees_in_one_call_as_each_does_alone(kind):
    x, y = (values[:950] for values in changing(1700))
    classes = {"classes": [0, 1]} if kind is amf.AdaptiveAMFClassifier else {}
    made = [kind(5, seed=seed, background=0.4, review_every=16, **classes) for seed in (1, 2, 1, 2)]
    for forest in made:
        forest.add_features(list("abcd"))
    alone, together = made[:2], made[2:]
    for row, label in zip(x, y, strict=True):
        for forest in alone:
            forest.partial_fit([row], [label])
    phases = set()
    for start in range(0, 950, 50):
        rows = slice(start, start + 50)
        both = np.repeat(x[rows], 2, axis=0), np.tile([0, 1], 50), np.repeat(y[rows], 2)
        amf.predict_learn_many(together, *both)
        phases |= {float(state(forest).phase[0]) for forest in together}
    assert COMPARES in phases
    assert [forest.dumps() for forest in together] == [forest.dumps() for forest in alone]


def test_the_unit_of_labels_does_not_matter():
    x, y = changing(600)
    labels = y + x[:, 0] * 0.25
    plain, other = (amf.AdaptiveAMFRegressor(6, seed=2, background=0.4, review_every=16) for _ in range(2))
    np.testing.assert_array_equal(other.predict_learn(x, labels * 2.0**20), plain.predict_learn(x, labels) * 2.0**20)
    assert plain.adaptation.n_swaps > 0
    trees = tuple(tree._replace(loss=tree.loss and tree.loss * 2.0**40) for tree in plain.adaptation.trees)
    assert other.adaptation == plain.adaptation._replace(trees=trees)


# Its other sides.


def test_it_tells_how_it_has_changed():
    x, y = changing(1000)
    forest = amf.AdaptiveAMFClassifier(10, seed=1, background=0.4, review_every=16).partial_fit(x, y)
    found = forest.describe().adaptation
    assert found.feature_weights == tuple(forest.feature_weights)
    assert found.n_forecasting == np.count_nonzero(state(forest).roles != SILENT)
    assert f"{found.n_swaps} were replaced" in str(forest.describe())
    assert amf.AMFClassifier(3).adaptation is None
    forest.feature_weights[:] = 0.0
    assert forest.feature_weights.all()


def test_it_tells_how_its_trees_stand():
    x, y = changing(1000)
    forest = amf.AdaptiveAMFClassifier(10, seed=1, background=0.4, review_every=16)
    assert {tree.loss for tree in forest.adaptation.trees} == {None}
    # At a review that starts a tree anew it is not known yet what it will forecast.
    before = 0
    for start in range(0, 1000, 16):
        forest.partial_fit(x[start : start + 16], y[start : start + 16])
        found = forest.adaptation
        fresh = [tree for tree in found.trees if tree.age == 0]
        assert len(fresh) <= found.n_swaps - before
        assert all(tree == ("silent", 0, None) for tree in fresh)
        before = found.n_swaps
        assert sum(tree.role != "silent" for tree in found.trees) == found.n_forecasting
        assert sum(tree.role == "active" for tree in found.trees) == 6
    assert before > 3
    assert {tree.age for tree in found.trees} == set((forest.n_samples - forest._births).tolist())
    losses = [tree.loss for tree in found.trees if tree.role == "active"]
    assert 0.0 < min(losses) <= np.mean(losses) < 1.0


def test_what_cannot_be_cut_has_no_weight():
    """A feature of one value, and one that comes later, whose column is empty until then."""
    x, y = changing(300)
    forest = amf.AdaptiveAMFClassifier(5, seed=1)
    forest.add_features(["a", "constant", "b"])
    forest.partial_fit(np.column_stack([x[:, 0], np.ones(300), x[:, 1]]), y)
    forest.add_features(["late"])
    weights = forest.feature_weights
    assert weights[1] == weights[3] == 0.0
    np.testing.assert_allclose(weights[[0, 2]].mean(), 1.0, rtol=1e-12)


def test_attributions_and_usage_are_those_of_the_trees_that_forecast():
    x, y = changing(1000)
    forest = amf.AdaptiveAMFClassifier(10, seed=1, background=0.4, review_every=16, calibration=False)
    for start in range(0, 1000, 16):
        forest.partial_fit(x[start : start + 16], y[start : start + 16])
        if forest.n_samples > 600 and forest.adaptation.n_forecasting < 10:
            break
    assert forest.adaptation.n_forecasting < 10
    said = forest.attribute(x[:40])
    np.testing.assert_array_equal(said.forecasts, forest.predict_proba(x[:40]))
    np.testing.assert_allclose(said.prior + said.features.sum(axis=1), said.forecasts, rtol=1e-9)
    alone = [forest._survey(np.arange(10) == tree).usage for tree in np.flatnonzero(state(forest).roles != SILENT)]
    np.testing.assert_allclose(forest.feature_usage(), np.mean(alone, axis=0), rtol=1e-12)


def test_memory_holds_background_trees_too():
    x, y = changing(6000, d=6)
    forest = amf.AdaptiveAMFClassifier(10, classes=[0, 1], background=0.4, max_bytes=200_000)
    for start in range(0, 6000, 500):
        forest.partial_fit(x[start : start + 500], y[start : start + 500])
        assert forest.nbytes <= 200_000
    assert forest.adaptation.n_swaps > 3
    assert np.mean(forest.predict(x[-500:]) == y[-500:]) > 0.9


@pytest.mark.parametrize("setting", [{"background": 1.0}, {"background": "a"}, {"review_every": 0}], ids=str)
def test_parameters_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        amf.AdaptiveAMFClassifier(3, **setting)


# Bytes.


def bytes_with(forest, *parts):
    """The bytes of a forest, with these arrays in place of the state of its adaptation."""
    header, body = split(forest.dumps())
    at, size = bytes(body).index(forest._adaptation.tobytes()), forest._adaptation.nbytes
    return sealed(header, body[:at] + b"".join(part.tobytes() for part in parts) + body[at + size :])


LIES = {
    "weights": [0.0, -1.0, np.nan, 1e9],
    "gains": [np.nan, -1e300, 1e300, np.inf],
    "tree_gains": [np.nan, -1e300, 1e300, np.inf],
    "losses": [-1.0, np.nan, 1e300],
    "judged": [-1.0, 1e9],
    "births": [1.0, -16.0, 1e9, np.nan],
    "roles": [3.0, np.nan, -1.0],
    "table": [-1.0, np.nan, 1e9],
    "bounds": [np.nan, np.inf],
    "groups": [np.nan, np.inf, -1.0, 0.5],
    "recent": [-1.0, 0.5, 2.0, np.nan],
    "kept_labels": [-1.0, 0.5, 2.0, np.nan],
    "kept": [np.inf],
    "swaps": [-1.0, 0.5, 1e9, np.nan],
    "spreads": [-1.0, np.inf, np.nan, 1e308],
    "beginning": [-1.0, 1e9, np.nan, 591.0],
    "phase": [4.0, 0.5, np.nan, BEGINS, SUSPECTS, COMPARES],
    "current": [-1.0, np.inf, np.nan, 1e300],
    "usual": [-1.0, np.inf, np.nan, 1e300],
    "excess": [-1.0, 1.0, np.inf, np.nan, 1e300],
    "suspected": [-1.0, np.inf, np.nan, 1e300],
    "lag": [1.0, -1.0, np.nan, np.inf],
    "to_be_active": [0.0, 2.0, 4.0, 6.0, np.nan],
}


@pytest.mark.parametrize("part", LIES)
def test_a_state_that_samples_cannot_leave_is_refused(part):
    x, y = changing(605)
    forest = amf.AdaptiveAMFClassifier(5, seed=1, background=0.4, review_every=16).partial_fit(x, y)
    forest = amf.loads(forest.dumps())  # without room for more samples than are kept
    assert amf.loads(bytes_with(forest, forest._adaptation)).dumps() == forest.dumps()
    # Of gains there are three sums for each of four features.
    for lie, place in product(LIES[part], (0, 4, 8) if part.endswith("gains") else (0,)):
        told = forest._adaptation.copy()
        getattr(state_of(told, 5, 4), part)[place] = lie
        with pytest.raises(amf.FormatError, match="weights of the features or the roles of the trees"):
            amf.loads(bytes_with(forest, told))


LIES_OF_COMPARISONS = {
    "phase": [BEGINS, WATCHES, SUSPECTS],
    "lag": [np.nan, np.inf, -np.inf, 1e300, -1e300],
    "roles": [SILENT, 1.0, ACTIVE],
    "births": [0.0, 16.0],
    "beginning": [0.0, 16.0, 800.0, 816.0],
    "to_be_active": [0.0, 2.0, 4.0, 6.0, np.nan],
}


@pytest.mark.parametrize("part", LIES_OF_COMPARISONS)
def test_a_comparison_that_samples_cannot_leave_is_refused(part):
    """More trees that forecast than there are new ones, say, or new ones that did not begin together."""
    x, y = (values[:780] for values in changing(1450))
    forest = amf.AdaptiveAMFClassifier(5, seed=1, background=0.4, review_every=16).partial_fit(x, y)
    forest = amf.loads(forest.dumps())
    mine = state(forest)
    assert mine.phase[0] == COMPARES
    refused = 0
    for lie in LIES_OF_COMPARISONS[part]:
        for place in range(getattr(mine, part).shape[0]):
            told = forest._adaptation.copy()
            values = getattr(state_of(told, 5, 4), part)
            is_new = mine.births[place] == mine.beginning[0] if part == "births" else True
            if values[place] == lie or not is_new:
                continue
            values[place] = lie
            refused += 1
            with pytest.raises(amf.FormatError):
                amf.loads(bytes_with(forest, told))
    assert refused >= len(LIES_OF_COMPARISONS[part])


def test_samples_that_are_kept_beyond_their_room_are_given_up():
    """A state that was made up: that of a forest that watches and keeps more samples than are ever kept."""
    x, y = changing(605)
    forest = amf.AdaptiveAMFClassifier(5, seed=1, background=0.4, review_every=16).partial_fit(x, 1 - y)
    forest = amf.loads(forest.dumps())
    assert state(forest).phase[0] == WATCHES
    told = forest._adaptation[: size_of(5, 4, 0)].copy()
    made_up = state_of(told, 5, 4)
    made_up.beginning[0], made_up.excess[0] = 0.0, 1e-9
    forest = amf.loads(bytes_with(forest, told, np.zeros(512 * 5)))
    forest.partial_fit(x[:64], y[:64])
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()


def test_features_that_leave_less_room_than_there_are_kept_samples_end_what_is_summed_up():
    rng = np.random.default_rng(0)
    forest = amf.AdaptiveAMFClassifier(5, classes=[0, 1], seed=1, background=0.4, review_every=16, max_bytes=200_000)
    forest.add_features(list("abc"))
    while forest.n_samples < 600 or not (state(forest).excess[0] > 0.0 and forest._n_kept >= 48):
        x = rng.random((16, 3))
        forest.partial_fit(x, ((x[:, 0] > 0.5) ^ (rng.random(16) < 0.15)).astype(int))
    n_features = next(d for d in range(4, 200) if most_kept(d, 200_000) < forest._n_kept + 16)
    assert most_kept(n_features, 200_000) >= 32
    forest.add_features([f"z{k}" for k in range(n_features - 3)])
    x = rng.random((16, n_features))
    forest.partial_fit(x, (x[:, 0] < 0.5).astype(int))
    assert forest._n_kept == 0
    assert state(forest).phase[0] == WATCHES
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()


@pytest.mark.parametrize(
    ("phase", "beginning"),
    [(BEGINS, 185.0), (BEGINS, 32.0), (WATCHES, 176.0), (SUSPECTS, 185.0), (SUSPECTS, 192.0), (COMPARES, 176.0)],
)
def test_a_beginning_that_samples_cannot_leave_is_refused(phase, beginning):
    """Between two reviews, or not where the phase begins: what follows from it would be bytes that are refused."""
    x, y = changing(200, d=3)
    forest = amf.AdaptiveAMFClassifier(5, seed=1, background=0.4, review_every=16).partial_fit(x, y)
    forest = amf.loads(forest.dumps())
    told = forest._adaptation[: size_of(5, 3, 0)].copy()
    state_of(told, 5, 3).phase[0], state_of(told, 5, 3).beginning[0] = phase, beginning
    lie = bytes_with(forest, told, np.zeros((200 - int(beginning)) * 4))
    with pytest.raises(amf.FormatError, match="weights of the features or the roles of the trees"):
        amf.loads(lie)


def test_a_rare_value_of_noise_is_taken_for_chance():
    """One row in a hundred has another value: what a few such rows say of the labels is no more than they can."""
    rng, rare = np.random.default_rng(3), 60
    x = np.column_stack([rng.random((256, 1)), rng.random((256, rare)) < 0.01])
    y = (x[:, 0] > 0.5) ^ (rng.random(256) < 0.1)
    forest = amf.AdaptiveAMFClassifier(20, seed=1).partial_fit(x, y)
    assert forest.feature_weights[1:].sum() < 0.6 * forest.feature_weights.sum()


def test_a_question_takes_no_memory_for_rehearsals():
    x = np.random.default_rng(4).random((500, 5))
    forest = amf.AdaptiveAMFClassifier(10, seed=1).partial_fit(x, x[:, 0] > 0.5)
    forest = amf.loads(forest.dumps())
    before = forest.nbytes
    forest.predict_proba(x[:1])
    amf.predict_learn_many([forest], x[:1], [0], [-1])
    assert forest.nbytes <= before
