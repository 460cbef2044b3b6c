"""Mondrian forests with increasing lifetime ([rates]): what the leaves say of a Mondrian whose lifetime is l(n).

[rates]: J. Mourtada, S. Gaïffas, E. Scornet, "Universal consistency and minimax rates for online Mondrian Forests".

[rates] draws a partition up to the lifetime l(n) and, with each sample, extends it to l(n + 1): leaves keep their
samples, and are split and fitted anew. Here the partition is drawn without end, and l(n) decides how much of it
forecasts see (leaf_forecasts.py).

The partition is one of the ranges of the samples, as in the experiments of [rates], or of all of [0, 1]^d, as in its
theorems (cell_walk.py). There a cell may be empty: that of a sample is where it leaves a chain before the lifetime.
"""

from __future__ import annotations

from typing import Any

from amf.attributions import attributions_of
from amf.batches import Kernels, kernels_of
from amf.cell_walk import cell_walk_of, cell_way_of
from amf.class_calibration import calibrate as calibrate_classes
from amf.leaf_forecasts import LEAF_COUNTS, LEAF_MEANS, lifetime_of, rules_of
from amf.number_calibration import calibrate as calibrate_numbers
from amf.statistics import Statistics
from amf.walk import walk_of


def _on_ranges(name: str, statistics: Statistics, calibrate: Any) -> Kernels:
    """Trees that split within the ranges of their samples."""
    walk, attribute = walk_of(statistics, aggregates=False), attributions_of(statistics, aggregates=False)
    return kernels_of(name, walk, rules_of, calibrate, attribute)


def _on_cube(name: str, statistics: Statistics, calibrate: Any) -> Kernels:
    """Trees whose partition is one of [0, 1]^d."""
    walk = cell_walk_of(statistics, lifetime_of, aggregates=False)
    attribute = attributions_of(statistics, cell_way_of(lifetime_of, aggregates=False))
    return kernels_of(name, walk, rules_of, calibrate, attribute)


CLASSIFIERS = {
    "range": _on_ranges("increasing_lifetime_classifier", LEAF_COUNTS, calibrate_classes),
    "cube": _on_cube("increasing_lifetime_classifier_on_cube", LEAF_COUNTS, calibrate_classes),
}
REGRESSORS = {
    "range": _on_ranges("increasing_lifetime_regressor", LEAF_MEANS, calibrate_numbers),
    "cube": _on_cube("increasing_lifetime_regressor_on_cube", LEAF_MEANS, calibrate_numbers),
}
"""By domain."""
