"""Aggregated Mondrian Forest, classification ([000] Alg. 4-6): counts of classes as statistics, log-loss."""

from __future__ import annotations

from amf.attributions import attributions_of
from amf.batches import kernels_of
from amf.class_calibration import calibrate, loss_of_class
from amf.class_counts import CLASS_COUNTS
from amf.telling import CLASSES
from amf.walk import walk_of

KERNELS = kernels_of(
    "amf_classifier",
    walk_of(CLASS_COUNTS),
    CLASS_COUNTS.rules_of,
    calibrate,
    attributions_of(CLASS_COUNTS),
    loss_of_class,
    CLASSES,
)
