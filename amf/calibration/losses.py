"""Recent losses of three forecasts of the same labels, in the state of a forest: is it of any use, and since when?

The forecasts are the calibrated one, the raw one (mean over trees), and the baseline, which knows the labels alone:
class frequencies, or the mean. The loss is log-loss in nats for classes, squared error for numbers. In the mean losses
an older label counts for less: 1 / e of a new one after HORIZON labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import index, inlined

HORIZON = 1000.0
"""Labels."""
N_LOSSES = 4
"""Three sums, and the sum of the weights."""


class Losses(NamedTuple):
    """Recent mean losses of a forest; NaN before the first one."""

    calibrated: float
    raw: float
    baseline: float

    def __str__(self) -> str:
        return f"recent loss {self.calibrated:.4g} (trees alone {self.raw:.4g}, baseline {self.baseline:.4g})"

    @classmethod
    def of(cls, sums: NDArray[np.float64]) -> Losses:
        """From the part of a forest's state that holds them."""
        calibrated, raw, baseline, weight = sums.tolist()
        if weight == 0.0:
            return cls(np.nan, np.nan, np.nan)
        return cls(calibrated / weight, raw / weight, baseline / weight)


def are_sound(sums: NDArray[np.float64], most: float) -> bool:
    """Whether losses from 0 to `most` could have left this part of a state."""
    *losses, weight = sums.tolist()
    # Rounding can make the logarithm of a probability of 1 a little more than 0.
    return 0.0 <= weight <= 1.1 * HORIZON and all(-1e-6 * most <= loss <= 1.1 * HORIZON * most for loss in losses)


@inlined
def remember_losses(calibrated, raw, baseline, state, at):
    """Take in the losses of one label; their sums begin at this place of the state."""
    kept = 1.0 - 1.0 / HORIZON
    state[at] = kept * state[at] + calibrated
    state[at + index(1)] = kept * state[at + index(1)] + raw
    state[at + index(2)] = kept * state[at + index(2)] + baseline
    state[at + index(3)] = kept * state[at + index(3)] + 1.0
