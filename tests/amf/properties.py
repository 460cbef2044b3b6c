"""What any forest owes any stream, as checks that raise AssertionError with a sentence."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from streams import Case
from trees import trees_of

import amf

# What is forecast.


def in_one_batch(hostile: Case) -> tuple[Any, Any]:
    """What is said of the stream in one batch, and the forest after it: both as they should be."""
    forest = hostile.new()
    said = forest.prequential(hostile.x, hostile.y)
    proper(forest, said, known_before(forest, hostile), hostile.floor)
    proper_depths(said.depth, said.weighted_depth)
    if forest.class_labels or (forest.class_labels is None and forest.n_samples):
        answers_are_proper(forest, hostile.probes, hostile.floor)
    proper_inside(forest)
    return said, forest


def proper(forest: Any, said: Any, known: NDArray[np.int64], floor: float) -> None:
    """known: (n,) classes known before each row, or labels for a regressor."""
    if forest.class_labels is None:
        proper_numbers(said.mean[known > 0], said.std[known > 0], said.quantiles[known > 0])
        assert np.all(np.isnan(said.mean[known == 0])), "a mean before the first label"
    else:
        proper_probabilities(said.probabilities, known, floor)


def proper_probabilities(table: NDArray[np.float64], known: NDArray[np.int64], floor: float) -> None:
    """Distributions over the classes known at each row, none of which is ruled out."""
    assert np.all(np.isfinite(table)), f"{np.sum(~np.isfinite(table).all(axis=1))} of {len(table)} rows not finite"
    columns = np.arange(table.shape[1]) < known[:, None]
    assert np.all(table[~columns] == 0.0), "a class that is not known is given something"
    assert np.all(table <= 1.0 + 1e-9), f"a probability of {table.max()}"
    totals = table[known > 0].sum(axis=1)
    assert np.all(np.abs(totals - 1.0) <= 1e-9), f"probabilities add up to {totals[np.argmax(np.abs(totals - 1.0))]!r}"
    least = table[columns].min(initial=1.0)
    assert least > floor, f"a known class is given {least:.3g}, in {np.sum((table <= floor) & columns)} entries"


def proper_numbers(mean: NDArray[Any], std: NDArray[Any], quantiles: NDArray[Any]) -> None:
    for name, values in (("mean", mean), ("std", std), ("quantile", quantiles)):
        assert np.all(np.isfinite(values)), f"{np.sum(~np.isfinite(values))} of {values.size} of the {name} not finite"
    assert np.all(std >= 0.0), f"a standard deviation of {std.min()}"
    assert np.all(np.diff(quantiles, axis=1) >= 0.0), "quantiles out of order"


def proper_depths(depth: NDArray[np.float64], weighted: NDArray[np.float64]) -> None:
    assert np.all(np.isfinite(depth)), "a depth is not finite"
    assert np.all(np.isfinite(weighted)), "a weighted depth is not finite"
    assert np.all((weighted >= 0.0) & (weighted <= depth * (1 + 1e-9))), "a weighted depth beyond the depth"


def answers_are_proper(forest: Any, probes: NDArray[Any], floor: float) -> None:
    """Questions unlike all rows before, to a forest that has learned."""
    before = forest.dumps()
    weighted = forest.weighted_depth(probes)
    proper_depths(weighted, weighted)
    if forest.class_labels is None:
        proper_numbers(forest.predict(probes), forest.predict_std(probes), forest.predict_quantiles(probes))
    else:
        known = np.full(len(probes), len(forest.class_labels))
        proper_probabilities(forest.predict_proba(probes), known, floor)
    attributions_are_proper(forest, probes)
    assert forest.dumps() == before, "a question changed the forest"


def attributions_are_proper(forest: Any, probes: NDArray[Any]) -> None:
    """Finite numbers that add up to the forecasts."""
    found = forest.attribute(probes)
    for name, values in zip(found._fields, found, strict=True):
        assert np.all(np.isfinite(values)), f"{np.sum(~np.isfinite(values))} of {values.size} {name} are not finite"
    parts = np.concatenate([found.prior[:, None], found.features, found.unexplained[:, None]], axis=1)
    off, largest = np.abs(parts.sum(axis=1) - found.forecasts), np.abs(parts).sum(axis=1)
    assert np.all(off <= 1e-9 * largest), f"attributions are {off.max()} off"
    if forest.class_labels is not None:
        over_classes = np.abs(found.features.sum(axis=2)) - 1e-9 * np.abs(found.features).sum(axis=2) - 1e-13
        assert np.all(over_classes <= 0.0), f"what a feature moves adds up to {over_classes.max()}, not 0"


def known_before(forest: Any, hostile: Case) -> NDArray[np.int64]:
    """(n,) classes that the forest knows before each row; for a regressor the labels it has learned."""
    seen: set[Any] = set(forest.params.classes or ()) if forest.class_labels is not None else set()
    known = np.empty(len(hostile.y), np.int64)
    for row, label in enumerate(hostile.y):
        known[row] = len(seen)
        if label is not None:
            seen.add(label)
    return known


def proper_inside(forest: Any) -> None:
    """The one look behind the public interface: what forecasts rest on has to be sound for the rows to come."""
    found = forest.describe()
    assert np.isfinite([found.mean_depth, found.max_depth, found.mean_weighted_depth]).all(), f"{found}"
    assert np.isfinite(forest.feature_usage()).all(), "a feature's usage is not finite"
    for tree in trees_of(forest):
        odds, times = tree.odds[tree.inner], tree.time[tree.inner]
        assert np.all(np.isfinite(odds) & (odds > 0.0)), f"odds {odds[~(np.isfinite(odds) & (odds > 0.0))][:3]}"
        assert np.all(np.isfinite(times) & (times > 0.0)), "the time of a split"


# The same bits.


def in_batches(hostile: Case, expected: Any, whole: Any) -> None:
    """Cut anywhere, on one or two threads, through bytes and copies, published or not."""
    forest = hostile.new()
    for place, (start, end) in enumerate(pairwise([0, *hostile.cuts, len(hostile.y)])):
        forest.n_threads = 1 + place % 2
        x, y = hostile.x[start:end], hostile.y[start:end]
        if place % 3 == 2:
            forest.partial_fit(x, y)
        else:
            same(forest.prequential(x, y), expected, slice(start, end), "in batches")
        forest = forest.copy() if place % 2 else amf.loads(forest.dumps())
    same_bytes(forest, whole, "in batches")


def row_by_row(hostile: Case, expected: Any, whole: Any) -> None:
    forest = hostile.new()
    for row, label in enumerate(hostile.y):
        same(forest.prequential(hostile.x[row : row + 1], [label]), expected, slice(row, row + 1), "row by row")
    same_bytes(forest, whole, "row by row")


def same(said: Any, expected: Any, rows: slice, how: str) -> None:
    """Equal bits; a class that was not yet known has a column of zeros."""
    for name, got, want in zip(expected._fields, said, expected, strict=True):
        wanted = want[rows]
        if name in ("probabilities", "raw") and got.shape[1] < wanted.shape[1]:
            assert not wanted[:, got.shape[1] :].any(), f"other {name} {how}, rows {rows.start} to {rows.stop}"
            wanted = wanted[:, : got.shape[1]]
        assert got.tobytes() == wanted.tobytes(), f"other {name} {how}, rows {rows.start} to {rows.stop}"


def same_bytes(forest: Any, whole: Any, how: str) -> None:
    got, want = forest.dumps(), whole.dumps()
    assert got == want, f"other bytes {how}: {len(got)} and {len(want)} of them"
