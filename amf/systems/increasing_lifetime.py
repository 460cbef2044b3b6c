"""Mondrian forests with increasing lifetime ([rates]): what the leaves say of a Mondrian whose lifetime is l(n).

[rates]: J. Mourtada, S. Gaïffas, E. Scornet, "Universal consistency and minimax rates for online Mondrian Forests".

[rates] draws a partition up to the lifetime l(n) and, with each sample, extends it to l(n + 1): leaves keep their
samples, and are split and fitted anew. Here the partition is drawn without end, and l(n) decides how much of it
forecasts see (leaf_forecasts.py).

The partition is one of the ranges of the samples, as in the experiments of [rates], or of all of [0, 1]^d, as in its
theorems (cell_walk.py). There a cell may be empty: that of a sample is where it leaves a chain before the lifetime.
"""

from __future__ import annotations

from amf.calibration import class_calibration, number_calibration
from amf.kernels.composition import cell_kernels, tree_kernels
from amf.statistics.leaf_forecasts import LEAF_COUNTS, LEAF_MEANS

CLASSIFIERS = {
    "range": tree_kernels(LEAF_COUNTS, class_calibration.CALIBRATION, aggregates=False),
    "cube": cell_kernels(LEAF_COUNTS, class_calibration.CALIBRATION, aggregates=False),
}
"""By domain."""
REGRESSORS = {
    "range": tree_kernels(LEAF_MEANS, number_calibration.CALIBRATION, aggregates=False),
    "cube": cell_kernels(LEAF_MEANS, number_calibration.CALIBRATION, aggregates=False),
}
"""By domain."""
