"""Aggregated Mondrian Forest, classification ([000] Alg. 4-6): counts of classes as statistics, log-loss."""

from __future__ import annotations

from amf._kernel import kernel
from amf.batches import batches_of
from amf.class_calibration import calibrate
from amf.class_counts import charge, consider, count, judge, may_part, report, rules_of
from amf.walk import walk_of

_run, _walk_trees = batches_of(walk_of(consider, report, judge, charge, count, may_part), calibrate, rules_of)


@kernel
def run(
    forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
):  # fmt: skip
    """As batches.py says; labels: int64 (n,) numbers of classes, outputs: float64 (n, >= K) probabilities."""
    _run(
        forests, first, last, starts, stops, x, labels, labelled, publish, row_scratch, scratch, outputs, raw, depths
    )  # fmt: skip


@kernel
def walk_trees(words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths):
    """As batches.py says; forecasts: float64 (n_trees, n, K) probabilities."""
    _walk_trees(
        words, numbers, first_tree, last_tree, rows, labels, labelled, publish, forecasts, depths
    )  # fmt: skip
