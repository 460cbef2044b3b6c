"""Aggregated Mondrian Forest, regression ([000] Sec. 1.4, Eq. 4): means of numbers as statistics."""

from __future__ import annotations

from amf.attributions import attributions_of
from amf.batches import kernels_of
from amf.number_calibration import calibrate, loss_of_number
from amf.number_means import NUMBER_MEANS
from amf.telling import NUMBERS
from amf.walk import walk_of

KERNELS = kernels_of(
    "amf_regressor",
    walk_of(NUMBER_MEANS),
    NUMBER_MEANS.rules_of,
    calibrate,
    attributions_of(NUMBER_MEANS),
    loss_of_number,
    NUMBERS,
)
