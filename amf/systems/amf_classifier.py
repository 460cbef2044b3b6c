"""Aggregated Mondrian Forest, classification ([AMF] Alg. 4-6): counts of classes as statistics, log-loss."""

from __future__ import annotations

from amf.attributions import attributions_of
from amf.batches import Kernels, kernels_of
from amf.class_calibration import calibrate, loss_of_class
from amf.class_counts import CLASS_COUNTS
from amf.reviews import Adapting
from amf.univariate import CLASSES
from amf.walk import walk_of

_WALK, _ATTRIBUTE = walk_of(CLASS_COUNTS), attributions_of(CLASS_COUNTS)


def _kernels(name: str, adapting: Adapting | None = None) -> Kernels:
    return kernels_of(name, _WALK, CLASS_COUNTS.rules_of, calibrate, _ATTRIBUTE, adapting)


KERNELS = _kernels("amf_classifier")
ADAPTING_KERNELS = _kernels("adaptive_classifier", Adapting(loss_of_class, CLASSES))
"""Of forests that learn what matters and forget what changed (adaptation.py)."""
