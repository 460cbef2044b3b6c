"""Aggregated Mondrian Forest, regression ([AMF] Sec. 1.4, Eq. 4): means of numbers as statistics."""

from __future__ import annotations

from amf.attributions import attributions_of
from amf.batches import Kernels, kernels_of
from amf.number_calibration import calibrate, loss_of_number
from amf.number_means import NUMBER_MEANS
from amf.reviews import Adapting
from amf.univariate import NUMBERS
from amf.walk import walk_of

_WALK, _ATTRIBUTE = walk_of(NUMBER_MEANS), attributions_of(NUMBER_MEANS)


def _kernels(name: str, adapting: Adapting | None = None) -> Kernels:
    return kernels_of(name, _WALK, NUMBER_MEANS.rules_of, calibrate, _ATTRIBUTE, adapting)


KERNELS = _kernels("amf_regressor")
ADAPTING_KERNELS = _kernels("adaptive_regressor", Adapting(loss_of_number, NUMBERS))
"""Of forests that learn what matters and forget what changed (adaptation.py)."""
