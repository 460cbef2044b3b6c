"""The original Mondrian forests against their readable reference, and the reference against [MF] and the laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from laws import POINTS, SIGMAS, are_apart_as_in_mondrians, have_like_sizes
from reference import ReferenceTree, SplitMix64
from reference_mondrian import MondrianForest, MondrianNumberTree, MondrianTree, drawn_at_once, samples
from trees import same_means, same_structure, trees_of

import amf
from amf.jit.rng import GOLDEN, mix, to_unit

CHOICES = [
    {},
    {"discount": 0.3},
    {"lifetime": 1.5},
    {"lifetime": 0.8, "min_samples_split": 5, "discount": 2.0},
    {"split_pure": True},
    {"smoothing": "path_mean"},
    {"smoothing": "path_mean", "lifetime": 1.0, "split_pure": True},
]
RAW = {"scaling": "none", "calibration": False}


# The forests against the reference.


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize(("d", "k"), [(1, 2), (2, 3), (9, 11)])
def test_the_classifier_equals_the_reference(choice, d, k):
    points, labels = samples(70, d, k, seed=d)
    forest = amf.MondrianForestClassifier(3, seed=11, classes=range(k), **RAW, **choice)
    reference = MondrianForest(11, 3, d, k, **choice)
    got = forest.prequential(points, [None if label < 0 else int(label) for label in labels])
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        np.testing.assert_allclose(got.probabilities[row], reference.predict(x), rtol=1e-10, atol=1e-13)
        if reference.trees[0].root is not None:
            depths = np.mean([tree.depths(x) for tree in reference.trees], axis=0)
            np.testing.assert_allclose([got.depth[row], got.weighted_depth[row]], depths, rtol=1e-10, atol=1e-13)
        reference.learn(x, int(label))
    for tree, other in zip(trees_of(forest), reference.trees, strict=True):
        same_structure(tree, other.root)
    far = samples(30, d, k, seed=99)[0] * 3
    np.testing.assert_allclose(forest.predict_proba(far), [reference.predict(x) for x in far], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("choice", [c for c in CHOICES if not {"smoothing", "discount"} & {*c}], ids=str)
@pytest.mark.parametrize("d", [1, 2, 9])
def test_the_regressor_equals_the_reference(choice, d):
    points, labels = samples(70, d, 4, seed=d)
    labels = np.where(labels < 0, np.nan, labels)
    forest = amf.MondrianForestRegressor(3, seed=11, **RAW, **choice)
    words = SplitMix64(11)
    trees = [MondrianNumberTree(words.next(), d, **choice) for _ in range(3)]
    same_means(forest, trees, points, labels, rel=1e-10)


# What the papers say of a forecast.


def test_a_sample_within_its_leaf_gets_the_posterior_of_the_leaf():
    points, labels = samples(60, 2, 3, missing=0.0)
    for lifetime in (None, 1.0):
        tree = MondrianTree(5, 2, 3, lifetime=lifetime)
        for x, label in zip(points, labels, strict=True):
            tree.learn(x, int(label))
        for x in points[labels >= 0]:
            *_, leaf = tree.steps(x)
            assert leaf.leaves == 0.0
            if lifetime is None:  # a leaf that never splits has no discount: its plain frequencies
                np.testing.assert_array_equal(tree.predict(x), leaf.node.counts / leaf.node.n)


def test_far_away_a_forecast_is_the_prior():
    points, labels = samples(60, 2, 4, missing=0.0)
    forest = amf.MondrianForestClassifier(5, classes=range(4), **RAW)
    forest.partial_fit(points, [None if label < 0 else int(label) for label in labels])
    np.testing.assert_allclose(forest.predict_proba([[1e25, -1e25]]), [[0.25] * 4], rtol=1e-12)


@pytest.mark.parametrize("lifetime", [None, 1.2])
def test_a_forecast_is_the_mean_over_the_places_where_the_sample_can_branch_off(lifetime):
    """Against draws of the branching, each with the posterior in the tree that it makes."""
    points, labels = samples(25, 2, 3, seed=3, missing=0.0)
    tree = MondrianTree(8, 2, 3, discount=1.5, lifetime=lifetime)
    for x, label in zip(points, labels, strict=True):
        tree.learn(x, int(label))
    rng = np.random.default_rng(1)

    def drawn(steps, posteriors):
        for step, above in zip(steps, posteriors, strict=False):
            time = rng.exponential(1 / step.rate) if step.rate > 0 else math.inf
            if time < step.age:
                return tree.branched(step, above, math.exp(-tree.gamma * time))
        return posteriors[-1]

    for x in np.array([[2.5, 0.1], [0.1, 0.1], [-0.6, 1.3]], np.float32):
        steps, posteriors = list(tree.steps(x)), [np.full(3, 1 / 3)]
        for step in steps:
            posteriors.append(tree.posterior(step, posteriors[-1]))
        draws = np.array([drawn(steps, posteriors) for _ in range(20_000)])
        error = draws.std(axis=0) / math.sqrt(len(draws)) + 1e-12
        assert np.all(np.abs(draws.mean(axis=0) - tree.predict(x)) < SIGMAS * error)


def literal_counts(path, label):
    """[MF] Alg. 5.7 as printed: the update of customers and tables from a leaf up to the root.

    path: a (customers, tables, children) of each node, from the leaf up, children as such.
    """
    customers, _, _ = path[0]
    customers[label] += 1
    for customers, tables, children in path:
        if tables[label] == 1:
            return
        if children:
            customers[label] = sum(child_tables[label] for _, child_tables, _ in children)
        tables[label] = min(customers[label], 1)


def test_a_label_that_is_known_on_the_other_side_gets_a_second_customer():
    """As printed, the update stops at a parent that has a table for the label before its customers are counted anew."""
    left, right = ({"a": 1, "b": 0}, {"a": 1, "b": 0}, ()), ({"a": 0, "b": 1}, {"a": 0, "b": 1}, ())
    root = ({"a": 1, "b": 1}, {"a": 1, "b": 1}, (left, right))
    literal_counts([right, root], "a")
    assert root[0] == {"a": 1, "b": 1}  # two children have a table for "a" by now

    forest = amf.MondrianForestClassifier(1, classes=["a", "b"], lifetime=50.0, discount=0.01, **RAW)
    forest.partial_fit([[0.0], [1.0], [1.0]], ["a", "b", "a"])
    [tree] = trees_of(forest)
    gone, left_over = math.exp(-0.01 * tree.time[0]), math.exp(-0.01 * (50.0 - tree.time[0]))

    def at_the_right(customers):
        c = np.array([customers["a"], customers["b"]], float)
        above = (c - gone + gone * 2 * 0.5) / c.sum()
        return (np.array([1.0, 1.0]) - left_over + left_over * 2 * above) / 2

    told = forest.predict_proba([[1.0]])[0]
    np.testing.assert_allclose(told, at_the_right({"a": 2, "b": 1}), rtol=1e-12)
    assert np.abs(told - at_the_right(root[0])).max() > 0.05


def test_customers_follow_from_the_labels_of_the_leaves_after_every_sample():
    points, labels = samples(60, 2, 4, missing=0.0)
    tree = MondrianTree(2, 2, 4, split_pure=True)
    for x, label in zip(points, labels, strict=True):
        tree.learn(x, int(label))
        for node in tree.nodes() if label >= 0 else ():
            if not node.is_leaf:
                both = (node.left.counts > 0).astype(int) + (node.right.counts > 0)
                assert tree.customers(node).tolist() == both.tolist()
                assert np.array_equal(tree.customers(node) > 0, node.counts > 0)


class Script:
    """A generator that gives the numbers that it was made with."""

    def __init__(self) -> None:
        self.numbers: list[float] = []

    def uniform(self) -> float:
        return self.numbers.pop(0)


def test_the_walk_through_of_the_chapter():
    """[MF] Fig. 5.2: a, b, c and d come to a tree that never ends, and the exponentials are those of the text.

    The exponentials of a path are spent from one: those by which a sample passed a node, and that by which it split.
    """
    a, b, c, d = (np.array(point, np.float32) for point in ((0.2, 0.1), (0.3, 0.6), (0.9, 0.5), (0.65, 0.55)))
    tree = ReferenceTree(0, 2, 2, split_pure=True)
    tree.rng = script = Script()

    def learn(x, spent, pick, place):
        script.numbers = [-math.expm1(-spent), pick, place]
        tree.learn(x, 0)
        assert not script.numbers

    def place_of(threshold, lower, upper):
        return (threshold - lower) / (upper - lower)

    tree.learn(a, 0)
    learn(b, 2.42 * 0.6, 0.9, place_of(0.23, 0.1, 0.6))  # 0.6 = the extension of a's box by b
    first = tree.root
    assert (first.feature, float(first.threshold)) == (1, pytest.approx(0.23))
    assert first.time == pytest.approx(2.42)

    learn(c, 1.01 * 0.6, 0.5, place_of(0.75, 0.3, 0.9))
    root = tree.root
    assert root.left is first
    assert (root.feature, float(root.threshold), root.time) == (0, pytest.approx(0.75), pytest.approx(1.01))
    assert first.time == pytest.approx(2.42)
    assert (first.lo.tolist(), first.hi.tolist()) == (a.tolist(), b.tolist())

    # d lies within the root's box, and outside of that of {a, b} by 0.35, which it passes; then it comes to the leaf b.
    learn(d, 0.35 * (2.42 - 1.01) + 1.55 * (0.35 + 0.05), 0.1, place_of(0.47, 0.3, 0.65))
    assert tree.root is root
    assert root.left is first
    assert first.hi.tolist() == [d[0], b[1]]
    above_b = first.right
    assert (above_b.feature, float(above_b.threshold)) == (0, pytest.approx(0.47))
    assert above_b.time == pytest.approx(3.97)
    assert (above_b.left.lo.tolist(), above_b.right.lo.tolist()) == (b.tolist(), d.tolist())


def unmixed(words):
    """The inverse of the finalising step of SplitMix64."""
    words = np.array(words, np.uint64)
    with np.errstate(over="ignore"):
        words ^= (words >> np.uint64(31)) ^ (words >> np.uint64(62))
        words *= np.uint64(pow(0x94D049BB133111EB, -1, 2**64))
        words ^= (words >> np.uint64(27)) ^ (words >> np.uint64(54))
        words *= np.uint64(pow(0xBF58476D1CE4E5B9, -1, 2**64))
        words ^= (words >> np.uint64(30)) ^ (words >> np.uint64(60))
    return words


def mixed(words):
    """The numbers that words say."""
    plain_mix, plain_to_unit = (getattr(part, "py_func", part) for part in (mix, to_unit))
    return plain_to_unit(plain_mix(words))


def word_that_says(draw, pick, place):
    """A word of the generator whose next three numbers are these, up to 1e-9, 0.1 and 1e-5."""
    steps = np.arange(2**20, dtype=np.uint64)
    said = (np.uint64(round(draw * 2**53)) << np.uint64(11)) + steps
    with np.errstate(over="ignore"):
        first = unmixed(said)
        second, third = (mixed(first + np.uint64(n) * GOLDEN) for n in (1, 2))
        fits = (np.abs(second - pick) < 0.1) & (np.abs(third - place) < 1e-5)
        return first[np.flatnonzero(fits)[0]] - GOLDEN


def test_the_walk_through_of_the_chapter_in_the_kernel():
    """The same again, number by number, in a forest whose generator is set to the words that say these numbers."""
    a, b, c, d = ((0.2, 0.1), (0.3, 0.6), (0.9, 0.5), (0.65, 0.55))
    forest = amf.MondrianForestClassifier(1, classes=["gray", "white"], **RAW)

    def learn(point, label, spent, pick, place):
        forest._words[0] = word_that_says(-math.expm1(-spent), pick, place)
        forest.partial_fit([point], [label])
        [tree] = trees_of(forest)
        return tree

    def split(tree, row):
        """(feature, place in the units of the chapter, time) of a split."""
        feature = int(tree.feature[row])
        return feature, float(tree.threshold[row]) + a[feature], float(tree.time[row])

    def near(feature, place, time):
        return pytest.approx((feature, place, time), rel=1e-5, abs=1e-5)

    forest.partial_fit([a], ["gray"])
    tree = learn(b, "white", 2.42 * 0.6, 0.9, (0.23 - 0.1) / 0.5)
    assert split(tree, 0) == near(1, 0.23, 2.42)

    tree = learn(c, "white", 1.01 * 0.6, 0.5, (0.75 - 0.3) / 0.6)
    left = tree.child[0]
    assert split(tree, 0) == near(0, 0.75, 1.01)
    assert split(tree, left) == near(1, 0.23, 2.42)
    assert tree.child[left + 1] == 0

    tree = learn(d, "gray", 0.35 * (2.42 - 1.01) + 1.55 * (0.35 + 0.05), 0.2, (0.47 - 0.3) / 0.35)
    left = tree.child[0]
    assert split(tree, 0) == near(0, 0.75, 1.01)
    assert split(tree, left) == near(1, 0.23, 2.42)
    assert split(tree, tree.child[left] + 1) == near(0, 0.47, 3.97)


# What holds in law.


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
def test_points_are_apart_at_the_end_of_the_lifetime_by_the_law_of_a_mondrian(order):
    forest = amf.MondrianForestClassifier(3000, classes=[0, 1], lifetime=0.6, seed=order[0], **RAW)
    forest.partial_fit(POINTS[list(order)], np.arange(5) % 2)
    centred = (POINTS - POINTS[order[0]]).astype(np.float32)
    ends = np.array([[tree.path(x)[-1] for x in centred] for tree in trees_of(forest)])
    are_apart_as_in_mondrians(ends, POINTS, 0.6)


@pytest.mark.parametrize("lifetime", [math.inf, 1.5])
def test_leaves_that_pause_have_the_law_of_a_tree_that_is_drawn_at_once(lifetime):
    """Sizes of the leaves that forecasts see, with the samples in any order, against [MF] Alg. 5.2 with pausing."""
    rng, n_trees = np.random.default_rng(4), 1200
    x = rng.random((14, 2)).astype(np.float32)
    y = (x[:, 0] + 0.3 * rng.normal(size=14) > 0.5).astype(int)
    order = np.argsort(y, kind="stable")  # one label first: pausing as long as can be
    at_once = [drawn_at_once(x, y, lifetime, rng) for _ in range(n_trees)]
    found = []
    for seed in range(n_trees):
        tree = MondrianTree(SplitMix64(seed).next(), 2, 2, lifetime=lifetime)
        for row in order:
            tree.learn(x[row], int(y[row]))
        found.append([leaf.n for leaf in tree.shown_leaves()])
    have_like_sizes(found, [[len(leaf) for leaf in leaves] for leaves in at_once])


def test_the_description_sees_what_forecasts_see():
    rng = np.random.default_rng(2)
    x = rng.random((400, 2))
    y = (x[:, 0] > 0.5).astype(int)
    forest = amf.MondrianForestClassifier(4, **RAW).partial_fit(x, y)
    shown = forest.describe().mean_weighted_depth
    assert 0.5 < shown < 0.5 * forest.describe().mean_depth
    assert forest.feature_usage().sum() == pytest.approx(shown)
    assert shown == pytest.approx(forest.prequential(x, [None] * 400).weighted_depth.mean(), rel=1e-9)
