"""Aggregated Mondrian Forest, classification ([AMF] Alg. 4-6): counts of classes as statistics, log-loss."""

from __future__ import annotations

from amf.adaptation.univariate import CLASSES
from amf.calibration.class_calibration import CALIBRATION, loss_of_class
from amf.kernels.composition import tree_kernels
from amf.kernels.reviews import Adapting
from amf.statistics.class_counts import CLASS_COUNTS

KERNELS = tree_kernels(CLASS_COUNTS, CALIBRATION)
ADAPTING_KERNELS = tree_kernels(CLASS_COUNTS, CALIBRATION, adapting=Adapting(loss_of_class, CLASSES))
"""Of forests that learn what matters and forget what changed (adaptation/)."""
