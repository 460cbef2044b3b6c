"""What tests of laws measure with."""

from __future__ import annotations

import numpy as np

POINTS = np.array([[0, 0], [1, 0.5], [0.25, 2], [0.75, 0.5], [3, 1]])
"""Of two features, in which every two points differ."""


def kolmogorov(values, cdf) -> float:
    """Largest distance between the empirical distribution of the values and a continuous one."""
    expected, n = cdf(np.sort(values)), len(values)
    return max((np.arange(1, n + 1) / n - expected).max(), (expected - np.arange(n) / n).max())
