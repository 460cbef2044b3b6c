"""Odds of stopping stay numbers that can be multiplied on."""

from __future__ import annotations

import math

import pytest

from amf.jit.decorators import kernel
from amf.kernels.aggregation import LARGEST_ODDS, SMALLEST_ODDS, clamped


@kernel
def compiled(odds):
    return clamped(odds)


@pytest.mark.parametrize(
    ("odds", "expected"),
    [
        (math.nan, SMALLEST_ODDS),
        (-math.nan, SMALLEST_ODDS),
        (math.inf, LARGEST_ODDS),
        (-math.inf, SMALLEST_ODDS),
        (0.0, SMALLEST_ODDS),
        (-1.0, SMALLEST_ODDS),
        (5e-324, SMALLEST_ODDS),
        (1e300, LARGEST_ODDS),
        (0.7, 0.7),
        (SMALLEST_ODDS, SMALLEST_ODDS),
        (LARGEST_ODDS, LARGEST_ODDS),
    ],
)
def test_odds_are_clamped_whatever_they_are(odds, expected):
    assert compiled(odds) == expected
