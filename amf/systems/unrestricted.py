"""Unrestricted Aggregated Mondrian Forest on [0, 1]^d, classification ([AMF] Alg. 1-3): a composition."""

from __future__ import annotations

from amf.attributions import attributions_of
from amf.batches import kernels_of
from amf.cell_walk import cell_walk_of, cell_way_of
from amf.class_calibration import calibrate
from amf.class_counts import CLASS_COUNTS

KERNELS = kernels_of(
    "unrestricted",
    cell_walk_of(CLASS_COUNTS),
    CLASS_COUNTS.rules_of,
    calibrate,
    attributions_of(CLASS_COUNTS, cell_way_of()),
)
