"""Unrestricted Aggregated Mondrian Forest on [0, 1]^d, classification ([AMF] Alg. 1-3): a composition."""

from __future__ import annotations

from amf.calibration.class_calibration import CALIBRATION
from amf.kernels.composition import cell_kernels
from amf.statistics.class_counts import CLASS_COUNTS

KERNELS = cell_kernels(CLASS_COUNTS, CALIBRATION)
