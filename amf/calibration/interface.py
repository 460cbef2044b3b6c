"""What makes of what trees say what a forest says: a kind of labels has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Calibration(NamedTuple):
    """Two functions for kernels, of one state. forecasts: float64 (n_trees, n, numbers that a tree says). x: float64
    (n, d), NaN where missing. Where the state is empty the forest says what the mean over its trees does."""

    calibrate: Callable[..., None]
    """(x, forecasts, labels, labelled, state, raw, calibrated): fill `raw`, of the trees alone, and `calibrated`, both
    float64 (n, ...), and learn from the labels, row by row."""
    explain: Callable[..., None]
    """(x, forecasts, state, prior, features): turn `features`, float64 (n, d, K), from what each feature moved of the
    mean over trees, beside its `prior` (n, K), into what each moved of the forecast that `calibrate` makes of it."""
