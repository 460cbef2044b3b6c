"""Aggregated Mondrian Forest, regression ([AMF] Sec. 1.4, Eq. 4): means of numbers as statistics."""

from __future__ import annotations

from amf.composition import tree_kernels
from amf.number_calibration import calibrate, loss_of_number
from amf.number_means import NUMBER_MEANS
from amf.reviews import Adapting
from amf.univariate import NUMBERS

KERNELS = tree_kernels("amf_regressor", NUMBER_MEANS, calibrate)
ADAPTING_KERNELS = tree_kernels(
    "adaptive_regressor", NUMBER_MEANS, calibrate, adapting=Adapting(loss_of_number, NUMBERS)
)
"""Of forests that learn what matters and forget what changed (adaptation.py)."""
