"""amf.UnrestrictedAMFClassifier against the readable reference, and the law of its trees.

The reference keeps every cell, the forest only those that branch: what is compared is the same partition in two forms.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cube import KT, PRIORS, samples
from laws import PAIRS, POINTS, follow, parting_times, roots_are_those_of_mondrians
from reference import SplitMix64
from reference_unrestricted import UnrestrictedForest
from trees import n_cuts_of, trees_of

import amf

# Against the reference.


def same_trees(forest: amf.UnrestrictedAMFClassifier, reference: UnrestrictedForest) -> None:
    """The same cells that branch and the same leaves: cuts bit by bit, counts, cells."""
    for tree, n_cuts, other in zip(trees_of(forest), n_cuts_of(forest), reference.trees, strict=True):
        rows, cells = tree.in_order(), other.branchings()
        assert len(rows) == len(cells)
        for row, cell in zip(rows, cells, strict=True):
            assert tree.counts[row].tolist() == cell.counts.tolist()
            assert tree.time[row] == cell.time
            if cell.is_leaf:
                assert tree.low[row].tolist() == tree.high[row].tolist() == cell.point.tolist()
                continue
            assert (tree.feature[row], tree.threshold[row]) == (cell.feature, cell.threshold)
            assert n_cuts[row] == cell.n_cuts + 1
            assert (tree.low[row].tolist(), tree.high[row].tolist()) == (cell.lo.tolist(), cell.hi.tolist())


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("charge_first", [True, False])
@pytest.mark.parametrize(("d", "k"), [(1, 2), (2, 3), (9, 5)])
def test_the_forest_equals_the_reference(prior, charge_first, d, k):
    points, labels = samples(60, d, k, seed=d)
    labels[3::7] = -1
    forest = amf.UnrestrictedAMFClassifier(3, classes=range(k), seed=11, charge_first=charge_first, **prior)
    reference = UnrestrictedForest(11, 3, d, k, charge_first=charge_first, **prior)
    got = forest.prequential(points, [None if label < 0 else int(label) for label in labels])
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        np.testing.assert_allclose(got.probabilities[row], reference.predict(x), rtol=1e-9)
        assert got.weighted_depth[row] == pytest.approx(reference.weighted_depth(x), rel=1e-9, abs=1e-12)
        assert got.depth[row] == pytest.approx(np.mean([tree.depth(x) for tree in reference.trees]))
        reference.learn(x, int(label))
    same_trees(forest, reference)
    elsewhere, _ = samples(20, d, seed=99)
    np.testing.assert_allclose(forest.predict_proba(elsewhere), [reference.predict(x) for x in elsewhere], rtol=1e-9)


def test_the_words_of_the_trees_are_those_of_every_forest():
    words = SplitMix64(9)
    forest = amf.UnrestrictedAMFClassifier(3, seed=9, classes=[0, 1])
    assert [int(word) for word in forest._words] == [words.next() for _ in range(3)]


def test_a_forecast_leaves_no_trace_and_repeats_itself():
    points, labels = samples(60)
    forest = amf.UnrestrictedAMFClassifier(4, seed=2).partial_fit(points[:40], labels[:40])
    before, table = forest.dumps(), forest.predict_proba(points)
    np.testing.assert_array_equal(np.vstack([forest.predict_proba(x[None]) for x in points]), table)
    assert forest.dumps() == before
    np.testing.assert_array_equal(amf.loads(before).predict_proba(points), table)


def test_the_order_of_the_samples_changes_no_cell_and_with_counts_no_forecast():
    points, labels = samples(200, 3)
    order = np.random.default_rng(1).permutation(200)
    one, other = (
        amf.UnrestrictedAMFClassifier(5, classes=range(3), seed=1, **KT).partial_fit(points[rows], labels[rows])
        for rows in (np.arange(200), order)
    )
    for a, b in zip(trees_of(one), trees_of(other), strict=True):
        rows, same = a.in_order(), b.in_order()
        for column in ("feature", "threshold", "time", "counts", "low", "high"):
            np.testing.assert_array_equal(getattr(a, column)[rows], getattr(b, column)[same])
    np.testing.assert_allclose(one.predict_proba(points), other.predict_proba(points), rtol=1e-9)


def test_numbers_are_taken_as_they_are_and_others_are_refused():
    forest = amf.UnrestrictedAMFClassifier(2, classes=[0, 1]).partial_fit([[0.25, 1.0]], [0])
    before = forest.dumps()
    for row in ([1.5, 0.5], [-1e-9, 0.5], [math.nan, 0.5], [math.inf, 0.5]):
        for call in (forest.predict_proba, forest.weighted_depth, lambda x: forest.partial_fit(x, [1, 1])):
            with pytest.raises(ValueError, match=r"X\[1, 0\]"):
                call([[0.5, 0.5], row])
    assert forest.dumps() == before
    assert trees_of(forest)[0].low[0].tolist() == [0.25, 1.0]


def test_features_and_parameters_that_it_cannot_have_are_refused():
    forest = amf.UnrestrictedAMFClassifier(2, classes=[0, 1])
    forest.add_features(["a", "b"])
    forest.partial_fit([[0.5, 0.5]], [1])
    with pytest.raises(ValueError, match="after its first sample"):
        forest.add_features(["c"])
    for name, value in {"scaling": "auto", "split_pure": False, "pause": 0.7, "mode": "existing"}.items():
        with pytest.raises(ValueError, match=f"{name} can only be"):
            amf.UnrestrictedAMFClassifier(**{name: value})
    paper = amf.UnrestrictedAMFClassifier.preset("paper").params
    assert (paper.prior, paper.dirichlet, paper.charge_first) == ("dirichlet", 0.5, True)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_any_two_different_points_part(order):
    half = np.float32(0.5)
    for a, b in [(0.0, 1e-45), (half, np.nextafter(half, np.float32(1))), (half, np.nextafter(half, np.float32(0)))]:
        points = np.float32([[a, 0.25], [b, 0.25]])[list(order)]
        forest = amf.UnrestrictedAMFClassifier(20, classes=[0, 1], **KT).partial_fit(points, [0, 1])
        for tree in trees_of(forest):
            leaves = [tree.path(x)[-1] for x in points]
            assert tree.counts[leaves].tolist() == [[1, 0], [0, 1]]
            assert tree.low[leaves].tolist() == points.tolist()


def test_points_that_ten_thousand_cuts_do_not_part_count_as_one():
    points = np.full((3, 300), 0.5)
    points[:, 0] = [0.0, 1e-45, 0.75]
    forest = amf.UnrestrictedAMFClassifier(2, classes=[0, 1], **KT)
    assert forest.partial_fit(points[:2], [0, 1]).n_nodes == 2
    np.testing.assert_array_equal(forest.predict_proba(points[:2]), np.full((2, 2), 0.5))
    forest.partial_fit(points[2:], [1])
    assert [sorted(tree.counts[tree.leaves].tolist()) for tree in trees_of(forest)] == [[[0, 1], [1, 1]]] * 2


def test_a_full_forest_forgets_leaves_as_if_they_had_never_come():
    """The partition does not depend on the samples: what is left are the cells of the points that are left."""
    points, labels = samples(400, 3)
    forest = amf.UnrestrictedAMFClassifier(3, classes=range(3), seed=8, max_bytes=20_000)
    table = forest.predict_learn(points, labels)
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-12)
    assert forest.nbytes <= 20_000
    for n, (tree, n_cuts) in enumerate(zip(trees_of(forest), n_cuts_of(forest), strict=True)):
        left = tree.low[tree.leaves]
        assert 10 < len(left) < len(np.unique(points, axis=0)) / 3
        fresh = amf.UnrestrictedAMFClassifier(3, classes=range(3), seed=8).partial_fit(left, np.zeros(len(left), int))
        other, other_cuts = trees_of(fresh)[n], n_cuts_of(fresh)[n]
        rows, same = tree.in_order(), other.in_order()
        inner = [row for row in rows if tree.child[row]], [row for row in same if other.child[row]]
        np.testing.assert_array_equal(n_cuts[inner[0]], other_cuts[inner[1]])
        for column in ("feature", "threshold"):
            np.testing.assert_array_equal(getattr(tree, column)[inner[0]], getattr(other, column)[inner[1]])
        for column in ("time", "low", "high"):
            np.testing.assert_array_equal(getattr(tree, column)[rows], getattr(other, column)[same])


# The law: cuts that separate no samples left out, it is the tree of the restricted AMF.


def test_restricted_to_the_samples_the_partition_is_a_mondrian_of_their_box():
    points = (POINTS / 4 + 0.125).astype(np.float32)
    forest = amf.UnrestrictedAMFClassifier(3000, classes=[0, 1], seed=5).partial_fit(points, np.zeros(5, int))
    trees = trees_of(forest)
    assert all(len(tree.child) == 9 for tree in trees)
    roots_are_those_of_mondrians(trees, points)
    for a, b in PAIRS:
        distance = float(np.abs(points[a] - points[b]).sum())
        follow(parting_times(trees, points[a], points[b]), lambda t, rate=distance: 1 - np.exp(-t * rate))


def test_the_description_agrees_with_the_forecasts_at_the_learned_samples():
    points, _ = samples(300, 3)
    points = np.unique(points, axis=0)
    forest = amf.UnrestrictedAMFClassifier(4, seed=3).partial_fit(points, points[:, 0] > 0.5)
    depth = forest.weighted_depth(points).mean()
    assert forest.describe().mean_weighted_depth == pytest.approx(depth, rel=1e-9)
    assert forest.feature_usage().sum() == pytest.approx(depth, rel=1e-9)
