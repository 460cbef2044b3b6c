"""Aggregated Mondrian Forest, classification ([AMF] Alg. 4-6): counts of classes as statistics, log-loss."""

from __future__ import annotations

from amf.class_calibration import calibrate, loss_of_class
from amf.class_counts import CLASS_COUNTS
from amf.composition import tree_kernels
from amf.reviews import Adapting
from amf.univariate import CLASSES

KERNELS = tree_kernels("amf_classifier", CLASS_COUNTS, calibrate)
ADAPTING_KERNELS = tree_kernels(
    "adaptive_classifier", CLASS_COUNTS, calibrate, adapting=Adapting(loss_of_class, CLASSES)
)
"""Of forests that learn what matters and forget what changed (adaptation.py)."""
