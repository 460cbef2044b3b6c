"""Online BSP-Forest ([BSP]): trees of oblique cuts in pairs of features, and the forecasts of their leaves.

[BSP] is "Online Binary Space Partitioning Forests" of X. Fan, B. Li and S. A. Sisson. Its trees are grown up to a
budget that increases with the samples: a leaf keeps its samples, and is cut again as the budget allows. As the text
has it (Alg. 4), a leaf is drawn anew from time 0 with every sample, on the hull without that sample, and the partition
then depends on the order of the samples. Here a sample is parted from a leaf as from any other node, in the gap
between the two and at the rate of that gap: the partition of any samples has the law of a BSP-Tree process that is
drawn on all of them at once.
"""

from __future__ import annotations

from amf.calibration import class_calibration, number_calibration
from amf.geometry.planes import PLANES
from amf.kernels.composition import tree_kernels
from amf.statistics.leaf_forecasts import LEAF_COUNTS, LEAF_MEANS

CLASSIFIER = tree_kernels(LEAF_COUNTS, class_calibration.CALIBRATION, aggregates=False, geometry=PLANES)
REGRESSOR = tree_kernels(LEAF_MEANS, number_calibration.CALIBRATION, aggregates=False, geometry=PLANES)
