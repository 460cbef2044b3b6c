"""Unrestricted Aggregated Mondrian Forest on [0, 1]^d, classification ([AMF] Alg. 1-3): a composition."""

from __future__ import annotations

from amf.class_calibration import calibrate
from amf.class_counts import CLASS_COUNTS
from amf.composition import cell_kernels

KERNELS = cell_kernels("unrestricted", CLASS_COUNTS, calibrate)
