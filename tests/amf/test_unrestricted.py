"""Unrestricted AMF: the identity and the inequalities of regret that hold for it exactly, the law of its partition, and
the kernels against the readable reference (algorithms.md C.6).

Laws have fixed seeds and bounds of about 4.5 standard errors, or 2.5 / sqrt(n) for the distance of Kolmogorov.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_unrestricted
from cube import KT, PRIORS, samples
from laws import follow
from reference import average_over_prunings, log_prior
from reference_unrestricted import UnrestrictedTree, cells_at, cut_of, word_of


def grown(points, labels, *, seed: int = 5, **options) -> UnrestrictedTree:
    tree = UnrestrictedTree(seed, points.shape[1], 3, **options)
    for x, label in zip(points, labels, strict=True):
        tree.learn(x, int(label))
    return tree


def log_loss(tree, points, labels) -> float:
    """Cumulative prequential log-loss while the tree learns."""
    loss = 0.0
    for x, label in zip(points, labels, strict=True):
        loss -= math.log(tree.predict(x)[label])
        tree.learn(x, int(label))
    return loss


# The partition.


def test_a_cut_divides_the_numbers_of_a_cell_and_depends_on_the_cell_alone():
    lo, hi = np.float32([0, 0.25]), np.float32([1, 0.5])
    first = cut_of(lo, hi, 7)
    assert first == cut_of(lo.copy(), hi.copy(), 7)
    assert len({cut_of(lo, hi, word) for word in range(100)}) == 100
    assert lo[first.feature] <= first.threshold < hi[first.feature]
    # Two neighbouring float32 and nothing beside them: every cut separates them, whatever the word.
    lower, upper = np.float32(0.3), np.nextafter(np.float32(0.3), np.float32(1))
    assert {cut_of(np.float32([lower]), np.float32([upper]), word).threshold for word in range(50)} == {lower}
    assert cut_of(np.float32([lower]), np.float32([lower]), 7).duration == math.inf


def test_no_two_cells_and_no_two_trees_have_the_same_word():
    points, labels = samples(60)
    cells = grown(points, labels).nodes()
    assert len(cells) > 200
    assert len({word_of(cell.lo, cell.hi, word) for cell in cells for word in (5, 6)}) == 2 * len(cells)
    swapped = word_of(np.float32([0, 0.5]), np.float32([1, 1]), 5), word_of(np.float32([0.5, 0]), np.float32([1, 1]), 5)
    assert swapped[0] != swapped[1]


def test_any_two_different_points_separate():
    for a, b in [(0.0, 1e-45), (1.0, np.nextafter(np.float32(1), np.float32(0))), (0.5, 0.5 + 1e-7), (0.0, 1.0)]:
        points = np.float32([[a, 0.5], [b, 0.5]])
        tree = grown(points, [0, 1])
        left, right = tree.leaf(points[0]), tree.leaf(points[1])
        assert left is not right
        assert (left.n, right.n) == (1, 1)
        assert all((cell.lo <= x).all() and (x <= cell.hi).all() for cell, x in zip((left, right), points, strict=True))


N_PARTITIONS = 1000


@pytest.mark.parametrize(("d", "lifetime"), [(1, 3.0), (2, 1.5), (3, 1.0)])
def test_the_number_of_cells_at_a_time_has_the_known_mean(d, lifetime):
    numbers = np.array([len(cells_at(word, d, lifetime)) for word in range(N_PARTITIONS)])
    error = numbers.std() / math.sqrt(N_PARTITIONS)
    assert numbers.mean() == pytest.approx((1 + lifetime) ** d, abs=4.5 * error)


def test_on_a_line_the_cuts_until_a_time_are_a_poisson_process():
    lifetime = 4.0
    partitions = [cells_at(word, 1, lifetime) for word in range(N_PARTITIONS)]
    numbers = np.array([len(cells) - 1 for cells in partitions])
    assert numbers.mean() == pytest.approx(lifetime, abs=4.5 * math.sqrt(lifetime / N_PARTITIONS))
    # The variance of a variance of Poisson numbers is (2 lifetime^2 + lifetime) / n.
    assert numbers.var() == pytest.approx(lifetime, abs=4.5 * math.sqrt((2 * lifetime**2 + lifetime) / N_PARTITIONS))
    cuts = np.array([float(hi[0]) for cells in partitions for _, hi in cells if hi[0] < 1])
    follow(cuts, lambda s: s)


def test_the_cell_of_a_point_ends_at_exponential_distances_cut_off_at_the_border():
    """To each side of an interior point the cell reaches min(Exp(lifetime), distance to the border), independently."""
    lifetime, x = 3.0, np.float32([0.3, 0.6])
    cells = [cells_at(word, 2, lifetime) for word in range(N_PARTITIONS)]
    own = [next((lo, hi) for lo, hi in found if (lo <= x).all() and (x <= hi).all()) for found in cells]
    squares = np.array([((hi - lo) ** 2).sum() for lo, hi in own])
    assert squares.mean() < 6 * 2 / lifetime**2
    reaches = np.array([np.concatenate([x - lo, hi - x]) for lo, hi in own]).T
    for reach, border in zip(reaches, np.concatenate([x, 1 - x]), strict=True):
        inside = reach < border - 1e-6
        p = 1 - math.exp(-lifetime * border)
        assert inside.mean() == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / N_PARTITIONS))
        within = reach[inside].astype(float)
        follow(within, lambda r, p=p: (1 - np.exp(-lifetime * r)) / p)
    correlations = np.corrcoef(reaches)[np.triu_indices(4, 1)]
    assert (np.abs(correlations) < 4.5 / math.sqrt(N_PARTITIONS)).all()


# The reference.


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_the_cumulative_log_loss_is_minus_the_log_of_the_averaged_weight(prior):
    points, labels = samples(120)
    tree = UnrestrictedTree(3, 2, 3, charge_first=True, **prior)
    assert log_loss(tree, points, labels) == pytest.approx(-tree.root.lwb, rel=1e-12)


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize("charge_first", [True, False])
def test_extending_the_tree_changes_no_averaged_weight_and_no_other_forecast(prior, charge_first):
    points, labels = samples(40)
    tree = grown(points[:30], labels[:30], charge_first=charge_first, **prior)
    before = [(cell, cell.lw, cell.lwb, cell.counts.tolist()) for cell in tree.nodes()]
    forecasts = [tree.predict(x).tolist() for x in points]
    for x in points[30:]:
        tree.insert(x)
        for cell, lw, lwb, counts in before:
            assert (cell.lw, cell.counts.tolist()) == (lw, counts)
            cell.refresh()
            assert cell.lwb == pytest.approx(lwb, abs=1e-12)
    assert len(tree.nodes()) > len(before)
    for x, forecast in zip(points, forecasts, strict=True):
        assert tree.predict(x) == pytest.approx(forecast, rel=1e-12)


def few(seed: int, prior):
    """A tree with so few cells that its prunings can be counted out, and the loss that it had."""
    rng = np.random.default_rng(seed)
    points = np.float32([[0.1, 0.2], [0.9, 0.8], [0.2, 0.9], [0.9, 0.1]])[rng.integers(0, 4, 25)]
    labels = rng.integers(0, 3, 25)
    tree = UnrestrictedTree(seed, 2, 3, charge_first=True, **prior)
    return tree, log_loss(tree, points, labels), points


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_the_forecast_is_the_average_over_all_prunings_of_the_extended_tree(prior):
    for seed in range(6):
        tree, _, points = few(seed, prior)
        for x in [points[0], np.float32([0.5, 0.4])]:
            forecast = tree.predict(x)
            with tree.extended(x):
                average = average_over_prunings(tree, x)
                assert forecast == pytest.approx(average.forecast, rel=1e-9)
                assert tree.root.lwb == pytest.approx(average.log_weight, rel=1e-9)


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_the_regret_to_each_pruning_is_at_most_its_prior(prior):
    for seed in range(6):
        tree, loss, _ = few(seed, prior)
        prunings = tree.prunings()
        assert len(prunings) >= 4
        for pruning in prunings:
            assert loss <= -log_prior(pruning) - sum(cell.lw for cell in pruning) + 1e-9
        for lifetime in [0.0, *(cell.time for cell in tree.nodes() if not cell.is_leaf)]:
            alive = tuple(cell for cell in tree.nodes() if cell.birth <= lifetime < cell.time)
            assert set(alive) in [set(pruning) for pruning in prunings]
            if "dirichlet" in prior:
                best = sum(map(best_constant_loss, [cell.counts for cell in alive]))
                kt = sum((3 - 1) / 2 * math.log(4 * cell.n) for cell in alive if cell.n)
                assert loss <= best - log_prior(alive) + kt + 1e-9


def best_constant_loss(counts) -> float:
    """Log-loss of the best forecast that does not change, for labels with these counts."""
    seen = np.array([count for count in counts if count])
    return float(-(seen * np.log(seen / seen.sum())).sum())


@pytest.mark.parametrize("max_cuts", [10_000, 6])
def test_the_order_of_the_samples_does_not_matter(max_cuts, monkeypatch):
    """Not for the cells, and with counts as forecasters not for the weights; also where the partition ends early."""
    monkeypatch.setattr(reference_unrestricted, "MAX_CUTS", max_cuts)
    points, labels = samples(60)
    order = np.random.default_rng(1).permutation(60)
    one, other = (grown(points[rows], labels[rows], **KT) for rows in (np.arange(60), order))
    assert max(cell.n_cuts for cell in one.nodes()) >= min(max_cuts, 20)
    for a, b in zip(one.branchings(), other.branchings(), strict=True):
        assert (a.n_cuts, a.feature, a.threshold, a.time) == (b.n_cuts, b.feature, b.threshold, b.time)
        assert (a.lo.tolist(), a.hi.tolist(), a.counts.tolist()) == (b.lo.tolist(), b.hi.tolist(), b.counts.tolist())
        assert (a.lw, a.lwb) == pytest.approx((b.lw, b.lwb), rel=1e-12)
    for x in points:
        assert one.predict(x) == pytest.approx(other.predict(x), rel=1e-9)


def test_where_the_partition_ends_points_that_are_together_count_as_one(monkeypatch):
    monkeypatch.setattr(reference_unrestricted, "MAX_CUTS", 6)
    points, labels = samples(120)
    tree = UnrestrictedTree(3, 2, 3, **KT)
    assert log_loss(tree, points, labels) == pytest.approx(-tree.root.lwb, rel=1e-12)
    assert {cell.n_cuts for cell in tree.nodes()} <= set(range(7))
    assert len([cell for cell in tree.nodes() if cell.is_leaf and cell.n]) < len(np.unique(points, axis=0))


def test_outside_of_the_cube_there_is_nothing():
    tree = UnrestrictedTree(0, 2, 3)
    for x in ([-0.1, 0.5], [0.5, 1.1], [math.nan, 0.5]):
        with pytest.raises(ValueError, match="from 0 to 1"):
            tree.learn(x, 0)
