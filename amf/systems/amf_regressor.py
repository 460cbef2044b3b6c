"""Aggregated Mondrian Forest, regression ([AMF] Sec. 1.4, Eq. 4): means of numbers as statistics."""

from __future__ import annotations

from amf.adaptation.univariate import NUMBERS
from amf.calibration.number_calibration import CALIBRATION
from amf.kernels.composition import tree_kernels
from amf.kernels.reviews import Adapting
from amf.statistics.number_means import NUMBER_MEANS, loss_of_number

KERNELS = tree_kernels(NUMBER_MEANS, CALIBRATION)
ADAPTING_KERNELS = tree_kernels(NUMBER_MEANS, CALIBRATION, adapting=Adapting(loss_of_number, NUMBERS))
"""Of forests that learn what matters and forget what changed (adaptation/)."""
