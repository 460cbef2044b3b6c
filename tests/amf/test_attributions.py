"""What each feature moved a forecast: it sums to the forecast, and is what prunings at two depths differ by."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from reference import ReferenceForest
from reference_attributions import moves_of_classes, moves_of_numbers
from reference_calibration import CalibratedForest
from reference_regression import RegressionForest
from trees import nodes_of

import amf
from amf.memory.arena import CHILD, COUNT, FEATURE, ODDS, STATS, THRESHOLD
from amf.statistics.number_means import MEAN
from amf.statistics.shrinkage import UNIFORM_SHARE


def settings_of(system) -> list[dict[str, object]]:
    """All that there are of those on which it depends what is told."""
    parameters = {name: set(system.parameters.get(name, [])) for name in ("prior", "calibration")}
    choices = [[{name: value} for value in sorted(values)] or [{}] for name, values in parameters.items()]
    return [{**one, **other} for one, other in product(*choices)]


def published(forest, x):
    """What the forest says in the end: (n, K), or (n,) where labels are numbers."""
    return forest.predict(x) if forest.class_labels is None else forest.predict_proba(x)


def check_sum(forest, x, *, branches_off=False) -> amf.Attributions:
    """Its attributions, whose sums are right. Where there is no calibration, trees are explained, unless rows branch
    off."""
    found = forest.attribute(x)
    np.testing.assert_array_equal(found.forecasts, published(forest, x))
    told = found.prior + found.features.sum(axis=1) + found.unexplained
    np.testing.assert_allclose(told, found.forecasts, rtol=1e-12, atol=1e-14)
    if not (forest.params.calibration or branches_off):
        np.testing.assert_allclose(found.unexplained, 0.0, atol=1e-12 * max(np.abs(found.forecasts).max(), 1.0))
    if forest.class_labels is not None:
        np.testing.assert_allclose(found.features.sum(axis=2), 0.0, atol=1e-13)
    np.testing.assert_array_equal(found.prior, np.broadcast_to(found.prior[:1], found.prior.shape))
    return found


# The reference: plain Python, node by node, of the words of a tree.


def path_of(heads, x) -> list[int]:
    """Rows from the root to the leaf of a row (d,), which is centred as the forest does it."""
    path = [0]
    while child := int(heads[path[-1], CHILD]):
        value, threshold = x[heads[path[-1], FEATURE]], heads.view(np.float32)[path[-1], THRESHOLD]
        goes_right = heads[child, COUNT] < heads[child + 1, COUNT] if np.isnan(value) else value > threshold
        path.append(child + int(goes_right))
    return path


def said_by_nodes(forest, heads, path):
    """What each node of a path says by itself, (length, K)."""
    if forest.class_labels is None:
        return heads.view(np.float64)[path][:, [int(MEAN)]]
    n_classes, said = len(forest.class_labels), []
    prior = uniform = np.full(n_classes, 1 / n_classes)
    inherit = forest.params.prior == "parent"
    for node in path:
        counts = heads[node, int(STATS) : int(STATS) + n_classes]
        strength = forest.params.strength(n_classes) * (np.count_nonzero(counts) ** 2 if inherit else 1)
        said.append((counts + strength * prior) / (counts.sum() + strength))
        if inherit:
            prior = said[-1] + UNIFORM_SHARE * (uniform - said[-1])
    return np.array(said)


def expected(forest, x):
    """(prior (K,), features (d, K)) of one row.

    A split moves the forecast by what the tree says in which the path ends below it, minus what the tree says in which
    it ends above: each of them is averaged from its leaf upwards.
    """
    x = (x - forest._scaling.origin).astype(np.float32)
    priors, features, n_trees = 0.0, 0.0, forest.params.n_estimators
    for tree in range(n_trees):
        heads, _ = nodes_of(forest, tree)
        path = path_of(heads, x)
        said, odds = said_by_nodes(forest, heads, path), heads.view(np.float64)[path, ODDS]
        ends = []
        for end in range(len(path)):
            average = said[end]
            for k in reversed(range(end)):
                average = odds[k] / (1 + odds[k]) * said[k] + 1 / (1 + odds[k]) * average
            ends.append(average)
        moved = np.zeros((len(x), said.shape[1]))
        for k in range(1, len(path)):
            moved[heads[path[k - 1], FEATURE]] += ends[k] - ends[k - 1]
        priors, features = priors + said[0] / n_trees, features + moved / n_trees
    return priors, features


@pytest.mark.parametrize("prior", ["parent", "dirichlet"])
def test_classes_are_moved_as_in_the_reference(prior):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 4)) * [1, 1e3, 1e-3, 1]
    x[rng.random(x.shape) < 0.1] = np.nan
    y = (np.nan_to_num(x[:, 0]) > 0).astype(int) + 2 * (rng.random(300) < 0.2)
    forest = amf.AMFClassifier(3, seed=2, prior=prior, split_pure=True, calibration=False).partial_fit(x, y)
    found = check_sum(forest, x)
    assert found.features.shape == (300, 4, 4)
    for row in range(0, 300, 7):
        priors, features = expected(forest, x[row])
        np.testing.assert_allclose(found.prior[row], priors, rtol=1e-12)
        np.testing.assert_allclose(found.features[row], features, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("parameters", [{}, {"loss": "square", "bound": 3.0, "charge_first": True}], ids=str)
def test_numbers_are_moved_as_in_the_reference(parameters):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 3))
    x[rng.random(x.shape) < 0.1] = np.nan
    y = np.nan_to_num(x[:, 1]) + rng.normal(size=300) * 0.1
    forest = amf.AMFRegressor(3, seed=2, calibration=False, **parameters).partial_fit(x, y)
    found = check_sum(forest, x)
    assert (found.forecasts.shape, found.prior.shape, found.features.shape) == ((300,), (300,), (300, 3))
    for row in range(0, 300, 7):
        priors, features = expected(forest, x[row])
        np.testing.assert_allclose(found.prior[row], priors[0], rtol=1e-12)
        np.testing.assert_allclose(found.features[row], features[:, 0], rtol=1e-9, atol=1e-13)


# Sums.


def test_features_and_prior_sum_to_what_the_trees_say(system):
    for setting in settings_of(system):
        forest, x, _ = system.learned(n=400, d=6, **setting)
        rows = np.concatenate([x, system.stream(100, 6, seed=9)[0]])
        found = check_sum(forest, rows, branches_off=system.branches_off)
        assert (found.features != 0).any()
        if forest.class_labels is not None:
            np.testing.assert_allclose(found.features.sum(axis=2), 0.0, atol=1e-14)


@pytest.mark.parametrize("n_estimators", [1, 17, 40])
def test_attributions_sum_up_with_any_number_of_trees(system, n_estimators):
    x, y = system.stream(200, 3, seed=2)
    forest = system.new(n_estimators=n_estimators, seed=1).partial_fit(x, y)
    check_sum(forest, x, branches_off=system.branches_off)


@pytest.mark.parametrize("kind", [amf.MondrianForestClassifier, amf.MondrianForestRegressor])
def test_where_nothing_branches_off_a_mondrian_forest_says_what_its_leaves_do(kind):
    rng = np.random.default_rng(6)
    x = rng.integers(-8, 8, (300, 3)) / 4
    forest = kind(3, seed=4, lifetime=2.0, scaling="none", calibration=False)
    check_sum(forest.partial_fit(x, (x[:, 0] > 0).astype(int)), x)
    assert np.abs(check_sum(forest, x * 3, branches_off=True).unexplained).max() > 0.01


def test_attributions_sum_up_with_many_classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 3))
    forest = amf.AMFClassifier(3, seed=1).partial_fit(x, (x[:, 0] * 20).astype(int))
    assert len(forest.classes_) > 40
    check_sum(forest, x)


def test_a_path_that_is_longer_than_the_room_at_first():
    x = 2.0 ** -np.arange(0.0, 120.0, 0.4)[:, None]
    x = np.concatenate([x, -x])
    forest = amf.AMFClassifier(2, seed=1, scaling="none", split_pure=True)
    for _ in range(3):
        forest.partial_fit(x, np.arange(len(x)) % 2)
    assert forest.describe().max_depth > 128
    check_sum(forest, x)


@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.AMFRegressor])
def test_whatever_the_mode_the_tree_is_taken_as_it_is(kind):
    rng = np.random.default_rng(5)
    x, far = rng.normal(size=(200, 3)), rng.normal(size=(50, 3)) * 3
    y = (x[:, 0] > 0).astype(int)
    modes = "existing", "sampled", "expected"
    forests = [kind(3, seed=4, mode=mode, calibration=False).partial_fit(x, y) for mode in modes]
    first, *others = (forest.attribute(far) for forest in forests)
    for other in others:
        np.testing.assert_array_equal(other.prior, first.prior)
        np.testing.assert_array_equal(other.features, first.features)
        assert np.abs(other.unexplained).max() > 0.01  # what the mode does


# What is moved by which feature.


def test_a_feature_that_tells_moves_much_and_noise_little():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 4))
    for forest, y in ((amf.AMFClassifier(seed=1), x[:, 2] > 0), (amf.AMFRegressor(seed=1), np.sign(x[:, 2]))):
        found = check_sum(forest.partial_fit(x, y), x[-500:])
        moved = np.abs(found.features).reshape(500, 4, -1).mean(axis=(0, 2))
        assert moved[2] > 5 * np.delete(moved, 2).max()
        towards = found.features[:, 2]
        if forest.class_labels is not None:
            towards = towards[:, forest.class_labels.index(True)]
        assert (np.sign(towards) == np.sign(x[-500:, 2])).mean() > 0.97


def test_a_missing_value_follows_the_crowd_and_its_feature_still_moves_the_forecast():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 2))
    x[:, 1] = 0.0  # so that all splits are on the first feature
    forest = amf.AMFClassifier(5, seed=1).partial_fit(x, x[:, 0] > 1.0)
    found = check_sum(forest, np.full((1, 2), np.nan))
    assert found.features[0, 0, 0] > 0.05  # most are below 1
    assert not found.features[0, 1].any()


def test_a_feature_that_came_late_has_its_place():
    forest = amf.AMFClassifier(3, seed=1)
    forest.add_features(["a"])
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 2))
    forest.partial_fit(x[:100, :1], x[:100, 1] > 0)
    forest.add_features(["b"])
    assert not check_sum(forest, x).features[:, 1].any()
    forest.partial_fit(x, x[:, 1] > 0)
    moved = np.abs(check_sum(forest, x).features).mean(axis=(0, 2))
    assert moved[1] > moved[0]


@pytest.mark.parametrize(("prior", "moves"), [("dirichlet", True), ("parent", False)])
def test_in_an_unrestricted_forest_the_cut_above_the_samples_own_leaf_counts(prior, moves):
    """Points that differ in one feature are parted by that alone. An empty leaf may say what its parent does."""
    forest = amf.UnrestrictedAMFClassifier(3, seed=1, prior=prior, classes=["a", "b"]).partial_fit([[0.2, 0.5]], ["a"])
    found = check_sum(forest, [[0.9, 0.5], [0.2, 0.5]])
    assert found.features[0, 0].any() == moves
    assert not found.features[0, 1].any()
    assert not found.features[1].any()


# What calibration makes of it.


def stream_for_references(n: int, d: int = 3):
    """Rows of which some values are missing, and whose first one fixes all origins at 0: references do not centre."""
    rng = np.random.default_rng(n)
    x = rng.random((n, d)).astype(np.float32)
    x[rng.random((n, d)) < 0.1] = np.nan
    x[0] = 0.0
    return x, rng


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_what_features_moved_of_published_probabilities_is_as_in_the_reference(k):
    x, rng = stream_for_references(200)
    labels = (np.nan_to_num(x[:, 0] + 0.3 * rng.random(200)) * k).astype(int) % k
    labels[:k] = range(k)
    trees, forest = (
        amf.AMFClassifier(3, seed=4, scaling="none", calibration=calibration).partial_fit(x[:160], labels[:160])
        for calibration in (False, True)
    )
    reference = CalibratedForest(ReferenceForest(4, 3, n_features=3, n_classes=0, prior="parent"))
    for row, label in zip(x[:160], labels[:160].tolist(), strict=True):
        reference.learn(row, label)
    found, by_trees = check_sum(forest, x[160:]), check_sum(trees, x[160:])
    np.testing.assert_array_equal(found.prior, by_trees.prior)
    for row, prior, moved, told in zip(x[160:], found.prior, by_trees.features, found.features, strict=True):
        expected = moves_of_classes(reference.calibration, reference.said(row), row, prior, moved)
        np.testing.assert_allclose(told, expected, rtol=1e-6, atol=1e-9)
    assert k == 1 or np.abs(found.features - by_trees.features).max() > 0.03


@pytest.mark.parametrize("d", [1, 3, 10])
def test_what_features_moved_of_published_means_is_as_in_the_reference(d):
    x, rng = stream_for_references(300, d)
    y = np.sin(5 * np.nan_to_num(x[:, 0])) + np.nan_to_num(x).sum(axis=1) + 0.1 * rng.normal(size=300)
    trees, forest = (
        amf.AMFRegressor(3, seed=4, scaling="none", calibration=calibration).partial_fit(x[:260], y[:260])
        for calibration in (False, True)
    )
    reference = RegressionForest(4, 3, d)
    for row, label in zip(x[:260], y[:260].tolist(), strict=True):
        reference.learn(row, label)
    found, by_trees = check_sum(forest, x[260:]), check_sum(trees, x[260:])
    for row, moved, told in zip(x[260:], by_trees.features, found.features, strict=True):
        np.testing.assert_allclose(told, moves_of_numbers(reference, row, moved), rtol=1e-6, atol=1e-9)
    assert d == 1 or np.abs(found.features - by_trees.features).max() > 0.05


@pytest.mark.parametrize(
    "kind", [amf.AMFClassifier, amf.AdaptiveAMFClassifier, amf.AMFRegressor, amf.AdaptiveAMFRegressor]
)
def test_of_a_sum_of_many_effects_nearly_all_is_told(kind):
    """Trees know little of it, and the linear models nearly all."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 30))
    effects = x * rng.normal(size=30) * np.linspace(0, 1, 30)
    y = effects.sum(axis=1)
    of_numbers = kind in (amf.AMFRegressor, amf.AdaptiveAMFRegressor)
    found = check_sum(kind(5, seed=1).partial_fit(x, y if of_numbers else y > 0), x[-300:])
    moved = found.features if of_numbers else found.features[:, :, 1]
    largest = np.abs(effects[-300:]).argmax(axis=1)
    assert (np.abs(moved).argmax(axis=1) == largest).mean() > 0.8
    assert np.abs(found.unexplained).mean() < 0.2 * np.abs(found.features.sum(axis=1)).mean()


@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.AdaptiveAMFClassifier])
def test_what_moved_an_alarm_of_a_rare_class_adds_up_to_it(kind):
    """A usual row is far less likely to be of the class than its frequency says, from which all begins."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6000, 6))
    total = x @ [2.0, 1.5, 1.0, 0.0, 0.0, 0.0]
    forest = kind(seed=1).partial_fit(x[:4000], total[:4000] > np.quantile(total, 0.98))
    found = check_sum(forest, x[4000:])
    for rows in (found.forecasts[:, 1] > 0.5, found.forecasts[:, 1] < 0.01):
        moved = np.abs(found.forecasts[rows, 1] - found.prior[rows, 1]).mean()
        assert np.abs(found.unexplained[rows, 1]).mean() < 0.1 * moved


def test_where_a_rule_moves_to_another_feature_what_is_told_moves_along():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2300, 5))
    forest = amf.AdaptiveAMFClassifier(seed=1).partial_fit(x[:1500], x[:1500, 0] > 0)
    moved = [np.abs(check_sum(forest, x[-200:]).features[:, :, 1]).mean(axis=0)]
    forest.partial_fit(x[1500:2100], x[1500:2100, 3] > 0)
    moved.append(np.abs(check_sum(forest, x[-200:]).features[:, :, 1]).mean(axis=0))
    assert [int(each.argmax()) for each in moved] == [0, 3]


def test_a_class_that_never_came_and_one_that_is_impossible_leave_numbers_finite():
    x = np.random.default_rng(0).normal(size=(300, 3))
    forest = amf.AMFClassifier(3, seed=1, classes=["a", "b", "never"], prior="dirichlet")
    found = check_sum(forest.partial_fit(x, np.where(x[:, 0] > 0, "a", "b")), x * 1e6)
    assert np.isfinite(found.features).all()
    assert np.isfinite(found.unexplained).all()


# It changes nothing, and nothing changes it.


def test_asking_changes_no_bit(system):
    forest, x, y = system.learned(n=200)
    twin, before = forest.copy(), forest.dumps()
    forest.attribute(x)
    assert forest.dumps() == before
    assert forest.partial_fit(x, y).dumps() == twin.partial_fit(x, y).dumps()


def test_threads_batches_copies_and_bytes_change_no_bit(system):
    forest, x, _ = system.learned(n=203)
    whole = forest.attribute(x)
    threaded = amf.loads(forest.dumps(), n_threads=3)
    one_by_one = [forest.attribute(row[None]) for row in x]
    joined = amf.Attributions(*(np.concatenate(arrays) for arrays in zip(*one_by_one, strict=True)))
    for other in (threaded.attribute(x), joined, forest.copy().attribute(np.asfortranarray(x))):
        for array, same in zip(other, whole, strict=True):
            np.testing.assert_array_equal(array, same)
    assert threaded.attribute(x[:1]).features.tobytes() == whole.features[:1].tobytes()
    for array, of_all in zip(threaded.attribute(x[:0]), whole, strict=True):
        assert array.shape == (0, *of_all.shape[1:])


# Errors, and forests that know little.


def test_a_forest_that_has_seen_nothing_raises(system):
    with pytest.raises(ValueError, match="call partial_fit first"):
        system.new().attribute([[0.5]])


def test_wrong_rows_raise(system):
    forest, x, _ = system.learned()
    for rows in (x[0], x[:, :2], np.full_like(x, np.inf)):
        with pytest.raises(ValueError, match="X"):
            forest.attribute(rows)


@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.UnrestrictedAMFClassifier])
def test_where_only_the_classes_are_known_all_is_prior(kind):
    found = check_sum(kind(2, classes=["a", "b"]), [[0.5, 0.1, 0.2]] * 4)
    assert (found.forecasts == 0.5).all()
    assert not found.features.any()
    assert found.features.shape == (4, 3, 2)


def test_after_one_sample_all_is_prior():
    for forest in (amf.AMFClassifier(2), amf.AMFRegressor(2)):
        found = check_sum(forest.partial_fit([[1.0, 2.0]], [1]), [[3.0, np.nan]])
        np.testing.assert_array_equal(found.prior, found.forecasts)
        assert not found.features.any()
