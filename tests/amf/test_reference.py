"""The reference against the specification: figures worked out by hand, enumeration of prunings, identities, laws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from reference import (
    GOLDEN_GAMMA,
    UINT64_MASK,
    ReferenceForest,
    ReferenceTree,
    SplitMix64,
    average_over_prunings,
    cut_in_gap,
    lane_sum,
    mix,
    pick_feature,
)

PRIORS = [{"prior": "dirichlet", "dirichlet": 0.5}, {"prior": "parent", "smoothing": 0.7}]
CHARGES = [{"charge_first": True}, {"charge_first": False}]


def samples(n, n_features=3, n_classes=3, seed=0, missing=0.0):
    """Random samples on a coarse grid, so that ties and exact duplicates occur."""
    rng = np.random.default_rng(seed)
    points = (rng.integers(-8, 8, size=(n, n_features)) / 4).astype(np.float32)
    points[rng.random(points.shape) < missing] = np.nan
    return points, rng.integers(0, n_classes, size=n)


def grown(points, labels, n_classes=3, seed=1, **options):
    tree = ReferenceTree(seed, points.shape[1], n_classes, **options)
    for x, label in zip(points, labels, strict=True):
        tree.learn(x, int(label))
    return tree


def columns(tree):
    """The structure in order, in a form that compares with ==."""
    return [(u.feature, u.threshold, u.time, u.counts.tolist(), u.lo.tolist(), u.hi.tolist()) for u in tree.nodes()]


def stays(lo, hi):
    return all((a == b) | (np.isnan(a) & np.isnan(b)) for a, b in zip(lo, hi, strict=True))


# The random stream and the contract's arithmetic.


def test_splitmix64_gives_the_published_words():
    rng = SplitMix64(1234567)
    assert [rng.next() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_each_tree_of_a_forest_starts_at_the_mix_of_seed_and_rank():
    forest = ReferenceForest(2**64 - 1, 3, n_features=1, n_classes=2)
    expected = [mix((2**64 - 1 + (t + 1) * GOLDEN_GAMMA) & UINT64_MASK) for t in range(3)]
    assert [tree.rng.word for tree in forest.trees] == expected


def test_lane_sum_adds_in_eight_lanes_and_not_in_sequence():
    big, one = np.float32(2**24), np.float32(1)
    assert lane_sum([big] + [one] * 8) == 2**24 + 6  # in sequence each 1 would be lost: 2**24
    assert lane_sum([big] + [one] * 8 + [np.float32(0)] * 11) == 2**24 + 6


def test_pick_feature_skips_zeros_and_falls_back_to_the_last_positive_term():
    terms = [np.float32(v) for v in (0, 1, 0, 2, 0)]
    assert [pick_feature(terms, target) for target in (0.0, 0.9, 1.0, 2.9, 3.0)] == [1, 1, 3, 3, 3]


def test_a_cut_stays_below_the_upper_end_of_its_gap():
    lower, upper = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    assert [cut_in_gap(lower, upper, u) for u in (0.0, 0.4, 0.9)] == [lower] * 3
    assert cut_in_gap(np.float32(-2), np.float32(2), 0.75) == 1


def test_extra_features_that_never_vary_change_nothing():
    points, labels = samples(60)
    padded = np.concatenate([points, np.zeros((60, 9), np.float32)], axis=1)
    narrow, wide = columns(grown(points, labels)), columns(grown(padded, labels))
    assert [row[:4] for row in wide] == [row[:4] for row in narrow]


def test_a_sample_draws_once_and_twice_more_when_it_splits():
    points, labels = samples(80)
    tree = grown(points, labels, seed=5)
    n_splits = sum(not node.is_leaf for node in tree.nodes())
    assert n_splits > 10
    assert tree.rng.word == (5 + (79 + 2 * n_splits) * GOLDEN_GAMMA) & UINT64_MASK


def test_a_row_without_label_changes_nothing():
    points, labels = samples(40)
    tree = grown(points, labels)
    before = columns(tree), tree.rng.word
    tree.learn(np.full(3, 99, np.float32), -1)
    assert (columns(tree), tree.rng.word) == before


# Figures worked out by hand: x = 0 has label 0, then x = 1 has label 1; one split, whatever the seed.


def two_points(**options):
    tree = ReferenceTree(3, 1, 2, **options)
    tree.learn([0.0], 0)
    leaf = tree.insert(np.array([1], np.float32), 1)
    before = tree.predict([1.0])
    tree.count(leaf, 1)
    return tree, before


@pytest.mark.parametrize(
    ("options", "root_weight", "leaf_weight", "average", "before", "after"),
    [
        ({"charge_first": True}, 1 / 8, 1 / 2, 3 / 16, 3 / 8, 2 / 3),
        ({"charge_first": False}, 1 / 4, 1, 5 / 8, 3 / 8, 0.2 * 0.5 + 0.8 * 0.75),
        ({"charge_first": True, "prior": "parent", "smoothing": 1.0}, 1 / 8, None, 1 / 8, 1 / 4, 5 / 8),
        ({"charge_first": False, "prior": "parent", "smoothing": 1.0}, 1 / 4, 1, 5 / 8, 1 / 4, 0.2 * 0.5 + 0.8 * 0.75),
    ],
)
def test_two_points_have_the_weights_that_are_computed_by_hand(
    options, root_weight, leaf_weight, average, before, after
):
    tree, forecast_before = two_points(**options)
    left, root, right = tree.nodes()
    # With the parent prior a charged fresh leaf pays its parent's forecast (1/4), the very first root pays 1/K.
    leaf_weights = (1 / 2, 1 / 4) if leaf_weight is None else (leaf_weight, leaf_weight)
    assert np.exp([left.lw, right.lw]) == pytest.approx(leaf_weights)
    assert math.exp(root.lw) == pytest.approx(root_weight)
    assert math.exp(root.lwb) == pytest.approx(average)
    assert forecast_before[1] == pytest.approx(before)
    assert tree.predict([0.0]) == pytest.approx([after, 1 - after])


def test_a_value_equal_to_the_threshold_goes_left():
    tree, _ = two_points()
    threshold = tree.root.threshold
    assert tree.root.child_of(np.array([threshold])) is tree.root.left
    assert tree.root.child_of(np.nextafter(np.array([threshold]), np.float32(2))) is tree.root.right


def test_a_pure_leaf_grows_until_another_label_arrives_outside_its_box():
    tree = ReferenceTree(0, 1, 2, purity=0.0)
    for value in (0.0, 2.0, 1.0):
        tree.learn([value], 0)
    assert columns(tree) == [(-1, 0.0, math.inf, [3, 0], [0.0], [2.0])]
    tree.learn([1.5], 1)  # inside: nothing separates it
    assert columns(tree) == [(-1, 0.0, math.inf, [3, 1], [0.0], [2.0])]
    tree.learn([3.0], 0)  # outside of a leaf that is no longer pure
    left, root, right = tree.nodes()
    assert (left.counts.tolist(), root.counts.tolist(), right.counts.tolist()) == ([3, 1], [4, 1], [1, 0])
    assert 2 <= root.threshold < 3


def test_a_pure_leaf_splits_all_the_same_if_it_was_born_before_its_time():
    births = []
    for seed in range(40):
        tree = ReferenceTree(seed, 2, 2, purity=2.0)
        for value in (0.0, 1.0):
            tree.learn([value, -value], 0)
        births.append(tree.root.time)
        assert tree.n_nodes == 3  # the first leaf was born at 0
        tree.learn([0.5, -0.5], 0)  # inside the root, outside of both leaves
        assert tree.n_nodes == (5 if births[-1] < 2.0 / 2 else 3)
    assert min(births) < 1 < max(births)


# Structure.


@pytest.mark.parametrize("split_pure", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_tree_of_the_reference_is_sound(split_pure, missing):
    points, labels = samples(150, missing=missing)
    tree = grown(points, labels, split_pure=split_pure)
    inner = [node for node in tree.nodes() if not node.is_leaf]
    assert len(inner) > 20
    assert tree.n_nodes == len(tree.nodes()) == 2 * len(inner) + 1
    assert tree.root.counts.tolist() == np.bincount(labels).tolist()
    for node in inner:
        left, right, j = node.left, node.right, node.feature
        assert stays(node.lo, np.fmin(left.lo, right.lo))
        assert stays(node.hi, np.fmax(left.hi, right.hi))
        assert (node.counts == left.counts + right.counts).all()
        assert node.time < min(left.time, right.time)
        # A side may have seen this feature only as missing: then it has no bound to compare.
        assert not left.hi[j] > node.threshold
        assert not right.lo[j] <= node.threshold


def test_every_sample_is_counted_in_the_leaf_that_it_reaches():
    points, labels = samples(150)
    tree = grown(points, labels, split_pure=True)
    reached = {}
    for x, label in zip(points, labels, strict=True):
        *_, (leaf, _) = tree.path(x)
        reached.setdefault(leaf, [0, 0, 0])[label] += 1
    assert {leaf: leaf.counts.tolist() for leaf in tree.nodes() if leaf.is_leaf} == reached
    assert len(reached) == len(np.unique(points, axis=0))


def test_missing_values_never_separate_and_follow_the_larger_child():
    tree = ReferenceTree(0, 2, 2, split_pure=True)
    nan = math.nan
    tree.learn([nan, nan], 0)
    tree.learn([1.0, nan], 1)  # a first finite value sets the bounds instead of extending them
    assert [row[:4] for row in columns(tree)] == [(-1, 0.0, math.inf, [1, 1])]
    tree.learn([3.0, 7.0], 1)
    left, root, right = tree.nodes()
    assert root.feature == 0  # feature 1 had no finite value before: it cannot be cut
    assert (left.n, right.n) == (2, 1)
    tree.learn([nan, 7.0], 0)
    assert (left.n, right.n) == (3, 1)
    for _ in range(2):
        tree.learn([3.0, 7.0], 1)
    tree.learn([nan, 7.0], 0)  # 3 against 3: left
    assert (left.n, right.n) == (4, 3)
    for _ in range(2):
        tree.learn([3.0, 7.0], 1)
    assert [node for node, _ in tree.path([nan, 7.0])][-1] is right


def test_a_full_tree_goes_on_counting_and_drawing():
    points, labels = samples(100)
    for max_nodes in (1, 2, 6, 7):
        tree = grown(points, labels, max_nodes=max_nodes)
        assert tree.n_nodes == max_nodes - (max_nodes + 1) % 2
        assert tree.root.n == 100
        assert stays(tree.root.lo, points.min(axis=0))
        assert tree.rng.word == (1 + (99 + tree.n_nodes - 1) * GOLDEN_GAMMA) & UINT64_MASK


def test_scaling_by_a_power_of_two_scales_thresholds_and_times_and_so_do_weights():
    points, labels = samples(100)
    plain, scaled = grown(points, labels), grown(4 * points, labels)
    weighted = grown(points, labels, weights=np.full(3, 4))
    assert plain.n_nodes > 20
    for a, b, c in zip(plain.nodes(), scaled.nodes(), weighted.nodes(), strict=True):
        assert (b.feature, b.threshold, b.time) == (a.feature, 4 * a.threshold, a.time / 4)
        assert (c.feature, c.threshold, c.time) == (a.feature, a.threshold, a.time / 4)
    cut = {node.feature for node in grown(points, labels, weights=np.array([1, 0, 1])).nodes()}
    assert cut == {-1, 0, 2}


def test_relabelling_the_classes_permutes_the_forecasts():
    points, labels = samples(100)
    order = np.array([2, 0, 1])
    plain, renamed = grown(points, labels), grown(points, order[labels])
    for x in points[:20]:
        assert renamed.predict(x)[order] == pytest.approx(plain.predict(x), rel=1e-12)


# Aggregation.


def exact_weight(counts, charge_first):
    """Weight of a node for the Krichevsky-Trofimov forecaster (Dirichlet 1/2), a rational number of the counts."""
    n_classes, weight, n = len(counts), Fraction(1), 0
    for count in counts:
        for seen in range(count):
            weight *= (seen + Fraction(1, 2)) / (n + Fraction(n_classes, 2))
            n += 1
    return weight if charge_first else weight * n_classes


@pytest.mark.parametrize("charge", CHARGES)
def test_weights_depend_on_the_counts_alone(charge):
    points, labels = samples(200)
    for node in grown(points, labels, **charge).nodes():
        weight = exact_weight(node.counts.tolist(), **charge)
        log_weight = math.log(weight.numerator) - math.log(weight.denominator)
        assert node.lw == pytest.approx(log_weight, rel=1e-12)


@pytest.mark.parametrize("charge", CHARGES)
@pytest.mark.parametrize("seed", range(4))
def test_the_forecast_is_the_average_over_all_prunings_in_rational_numbers(charge, seed):
    """Nothing of the recursion is used here: weights from counts, the prior from the size of the pruning."""
    points, labels = samples(9, seed=seed)
    tree = grown(points, labels, split_pure=True, max_nodes=15, **charge)
    assert 9 <= tree.n_nodes <= 15
    for x in points:
        path = [node for node, _ in tree.path(x)]
        total, forecast, depth = Fraction(0), [Fraction(0)] * 3, Fraction(0)
        for pruning in tree.prunings():
            charged = len(pruning) - 1 + sum(not node.is_leaf for node in pruning)
            mass = Fraction(1, 2**charged)
            for node in pruning:
                mass *= exact_weight(node.counts.tolist(), **charge)
            stop = next(node for node in pruning if node in path)
            total += mass
            depth += mass * path.index(stop)
            kt = [(int(c) + Fraction(1, 2)) / (stop.n + Fraction(3, 2)) for c in stop.counts]
            forecast = [f + mass * p for f, p in zip(forecast, kt, strict=True)]
        assert math.exp(tree.root.lwb) == pytest.approx(float(total), rel=1e-12)
        assert tree.predict(x) == pytest.approx([float(f / total) for f in forecast], rel=1e-12)
        assert tree.weighted_depth(x) == pytest.approx(float(depth / total), rel=1e-12)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("charge", CHARGES)
def test_recursion_equals_enumeration_for_both_priors_and_missing_values(prior, charge):
    for seed in range(4):
        points, labels = samples(12, seed=seed, missing=0.2)
        tree = grown(points, labels, max_nodes=15, **prior, **charge)
        for x in points:
            average = average_over_prunings(tree, x)
            assert tree.root.lwb == pytest.approx(average.log_weight, rel=1e-12)
            assert tree.predict(x) == pytest.approx(average.forecast, rel=1e-12)
            assert tree.weighted_depth(x) == pytest.approx(average.depth, rel=1e-12)


def test_prunings_are_all_there_once():
    points, labels = samples(10)
    tree = grown(points, labels, split_pure=True)

    def number(node):
        return 1 if node.is_leaf else 1 + number(node.left) * number(node.right)

    prunings = tree.prunings()
    assert len({frozenset(map(id, pruning)) for pruning in prunings}) == len(prunings) == number(tree.root)
    assert all(sum(node.n for node in pruning) == 10 for pruning in prunings)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("charge", CHARGES)
def test_forecasts_are_distributions_and_stops_sum_to_one(prior, charge):
    points, labels = samples(120, missing=0.1)
    tree = grown(points, labels, **prior, **charge)
    assert all(0 < node.stop_probability <= 1 + 1e-12 for node in tree.nodes())
    for x in points:
        path = list(tree.path(x))
        assert sum(reach * node.stop_probability for node, reach in path) == pytest.approx(1)
        assert tree.predict(x).sum() == pytest.approx(1)
        assert (tree.predict(x) > 0).all()
        assert 0 <= tree.weighted_depth(x) <= len(path) - 1


@pytest.mark.parametrize("prior", PRIORS)
def test_each_step_multiplies_the_averaged_weight_by_the_forecast_of_the_label(prior):
    points, labels = samples(120)
    tree = ReferenceTree(1, 3, 3, charge_first=True, **prior)
    for x, label in zip(points, labels, strict=True):
        leaf = tree.insert(x, label)
        forecast, before = tree.predict(x)[label], tree.root.lwb
        tree.count(leaf, label)
        assert tree.root.lwb - before == pytest.approx(math.log(forecast), rel=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
def test_splitting_a_leaf_keeps_averaged_weights_and_an_insertion_halves_the_distance(prior):
    points, labels = samples(120)
    tree = ReferenceTree(1, 3, 3, **prior)
    kinds = {"leaf": 0, "inner": 0}
    for x, label in zip(points, labels, strict=True):
        old = {node: node.lwb for node in tree.nodes()}
        leaf = tree.insert(x, label)
        if leaf not in old and leaf.parent is not None:
            up = leaf.parent
            below = up.left if up.right is leaf else up.right
            kinds["leaf" if below.is_leaf else "inner"] += 1
            assert math.exp(up.lwb - old[below]) == pytest.approx((math.exp(below.lw - old[below]) + 1) / 2)
            if below.is_leaf:
                assert all(node.lwb == pytest.approx(lwb, abs=1e-12) for node, lwb in old.items())
        tree.count(leaf, label)
    assert min(kinds.values()) > 5


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("charge", CHARGES)
def test_the_odds_of_stopping_follow_their_own_recursion(prior, charge):
    """The one-number form that the kernels use: odds = e * odds / m on the way up, computed here from old values."""
    points, labels = samples(120)
    tree = ReferenceTree(1, 3, 3, **prior, **charge)
    for x, label in zip(points, labels, strict=True):
        old_stop = {node: node.stop_probability for node in tree.nodes()}
        leaf = tree.insert(x, label)
        free = leaf.n == 0 and not charge["charge_first"]
        forecasts = {node: 1.0 if node is leaf and free else tree.forecast(node)[label] for node in leaf.lineage()}
        tree.count(leaf, label)
        mixed, odds = forecasts[leaf], None
        for node in list(leaf.lineage())[1:]:
            e = forecasts[node]
            if node in old_stop:
                stop = old_stop[node]
                odds, mixed = stop / (1 - stop) * e / mixed, stop * e + (1 - stop) * mixed
            else:
                below = node.left if node.right is leaf else node.right
                stop = 1.0 if below.is_leaf else 2 * old_stop[below]
                odds, mixed = stop * e / mixed, (stop * e + mixed) / 2
            assert node.stop_probability == pytest.approx(odds / (1 + odds), rel=1e-9)


# Classes that appear, forests.


def test_a_new_class_is_added_with_count_zero_before_it_is_learned():
    tree = ReferenceTree(0, 1, 0, charge_first=True)
    assert tree.predict([0.0]).shape == (0,)
    tree.learn([0.0], 0)
    assert tree.root.lw == 0  # one class known: its forecast was 1
    tree.learn([0.0], 1)
    assert tree.root.counts.tolist() == [1, 1]
    assert tree.root.lw == pytest.approx(math.log(1 / 4))
    with pytest.raises(ValueError, match="label 3"):
        tree.learn([0.0], 3)


def test_predict_learn_is_predict_then_learn_with_zeros_for_classes_not_yet_known():
    points, _ = samples(6)
    labels = np.array([-1, 0, 0, 1, -1, 2])
    forest, twin = (ReferenceForest(7, 3, n_features=3, n_classes=0) for _ in range(2))
    table = forest.predict_learn(points, labels)
    assert table.shape == (6, 3)
    for row, x, label in zip(table, points, labels, strict=True):
        known = twin.n_classes
        assert row[:known].tolist() == np.mean([tree.predict(x) for tree in twin.trees], axis=0).tolist()
        assert not row[known:].any()
        twin.learn(x, label)
    assert forest.weighted_depth(points[0]) == pytest.approx(np.mean([t.weighted_depth(points[0]) for t in twin.trees]))


# Laws, with fixed seeds: bounds are about four standard errors or the 1 in 10,000 point of Kolmogorov's statistic.


def separation_time(tree, a, b):
    """Split time of the lowest node that holds both points."""
    together = {node for node, _ in tree.path(a)} & {node for node, _ in tree.path(b)}
    return max(node.time for node in together)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1)])
def test_any_two_points_separate_at_the_exponential_time_of_their_distance(order):
    points = np.array([[0, 0], [1, 0.5], [0.25, 2], [0.75, 0.5], [3, 1]], np.float32)
    forest = ReferenceForest(11, 1500, n_features=2, n_classes=1, split_pure=True)
    forest.predict_learn(points[list(order)], np.zeros(5))
    for a, b in [(0, 1), (1, 3), (2, 4)]:
        times = np.sort([separation_time(tree, points[a], points[b]) for tree in forest.trees])
        expected = 1 - np.exp(-times * np.abs(points[a] - points[b]).sum())
        assert np.abs(expected - (np.arange(1500) + 0.5) / 1500).max() < 2.23 / math.sqrt(1500)
    roots = [tree.root for tree in forest.trees]
    on_first = np.array([root.threshold for root in roots if root.feature == 0]) / 3
    assert len(on_first) / 1500 == pytest.approx(3 / 5, abs=4 * math.sqrt(0.24 / 1500))
    assert np.mean(on_first) == pytest.approx(0.5, abs=4 * math.sqrt(1 / 12 / len(on_first)))
