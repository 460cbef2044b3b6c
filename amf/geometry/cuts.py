"""Where to cut and which side a sample takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.geometry.boxes import group_outside, outside
from amf.geometry.samples import value_of, weight_of
from amf.jit.decorators import called, index
from amf.jit.vectors import LANES


@called
def gap_cut(floats, low, high, sample, weights, total, pick, place):
    """Cut in the gap between a box and a sample outside it ([AMF] Alg. 5 lines 4-6).

    total: extension of the box by x, > 0. pick, place: uniforms on [0, 1). Returns (feature, threshold float32,
    box_goes_left): the feature with probability proportional to its weighted distance, the threshold uniform on the
    gap, with low side <= threshold < high side, so that `x <= threshold goes left` separates the two.
    """
    target = pick * total
    reached = 0.0
    feature: Any = index(0)
    for first in range(index(0), sample.n_features, index(LANES)):
        # In most features most samples are inside, and so they are passed in groups.
        if not group_outside(floats, low + first, high + first, sample.values, sample.at + first):
            continue
        for j in range(first, min(first + index(LANES), sample.n_features)):
            share = weight_of(weights, j) * outside(floats[low + j], floats[high + j], value_of(sample, j))
            if share > 0.0 and not reached > target:
                # Rounding can leave the target just above the sum of all shares: then the last candidate stands.
                feature = j
                reached += np.float64(share)
        if reached > target:
            break
    box_goes_left = value_of(sample, feature) > floats[high + feature]
    if box_goes_left:
        lower, upper = floats[high + feature], value_of(sample, feature)
    else:
        lower, upper = value_of(sample, feature), floats[low + feature]
    threshold = np.float32(np.float64(lower) + place * (np.float64(upper) - np.float64(lower)))
    if threshold >= upper:
        threshold = np.nextafter(upper, np.float32(-np.inf))
    return feature, threshold, box_goes_left
