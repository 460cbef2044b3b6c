"""Logarithms and exponentials of kernels: within one ulp of the exact value, and the same bits without a compiler."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from numba import njit
from numpy.typing import NDArray

from amf.jit import elementary

BOUND = 0.85
"""Largest error that is promised to tests, in ulps; seen: 0.80."""
NAMES = ["exp", "expm1", "log", "log1p"]
SMALLEST, LARGEST = 5e-324, sys.float_info.max
LN2 = math.log(2)


def over(name: str) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """One of the functions, in a kernel that takes an array."""
    function: Any = getattr(elementary, name)

    @njit(error_model="numpy")
    def through(x):
        y = np.empty(x.shape[0])
        for i in range(x.shape[0]):
            y[i] = function(x[i])
        return y

    return through


OVER = {name: over(name) for name in [*NAMES, "power_of_two"]}


def around(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points and their neighbours."""
    with np.errstate(over="ignore"):
        return np.concatenate([points, np.nextafter(points, -np.inf), np.nextafter(points, np.inf)])


def hard(name: str, n: int = 2000) -> NDArray[np.float64]:
    """Random numbers of every size, and those at the borders of a function's ways through its code."""
    rng = np.random.default_rng(0)
    random = [
        rng.uniform(-2, 2, n),
        rng.normal(size=n) * 2.0 ** rng.integers(-60, 10, n),
        1 + rng.normal(size=n) * 2.0 ** rng.integers(-52, 0, n),
        rng.integers(0, 2**63, n).view(np.float64) * rng.choice([-1.0, 1.0], n),
    ]
    if name in ("exp", "expm1"):
        borders = (np.arange(-2160, 2060) + 0.5) * (LN2 / 2)  # of k, and between them
        random += [rng.uniform(-746, 710, n), borders]
        edges = [-745.2, -745.1332191019411, -708.0, -37.43, -38.0, 708.0, 709.782712893384, 710.0]
    else:
        random += [rng.uniform(0.65, 1.5, n), rng.uniform(-0.35, 0.5, n), np.arange(1.0, 400.0)]
        edges = [math.sqrt(0.5), math.sqrt(2), math.sqrt(0.5) - 1, math.sqrt(2) - 1]
    powers = 2.0 ** np.arange(-1022, 1024)
    powers = np.concatenate([powers, np.ldexp(1.0, np.arange(-1074, -1022)), [sys.float_info.min, LARGEST]])
    x = np.concatenate([*random, around(np.concatenate([powers, -powers, edges, [-1.0]]))])
    x = x[np.isfinite(x) & (x != 0.0)]
    return x[x > 0.0] if name == "log" else x[x > -1.0] if name == "log1p" else x


def error(name: str, x: float, y: float) -> float:
    """Distance of `y` from the exact value in ulps of float64."""
    with mpmath.workprec(160):
        exact = getattr(mpmath, name)(mpf(x)) if name != "expm1" or abs(x) > 1e-30 else mpf(x) * (1 + mpf(x) / 2)
        if exact == 0 or not math.isfinite(y):
            # An infinite result is right where the exact one rounds to 2**1024.
            return 0.0 if y == exact or (y == math.inf and exact >= mpf(2) ** 1024 - mpf(2) ** 970) else math.inf
        ulp = mpf(2) ** max(int(mpmath.frexp(exact)[1]) - 53, -1074)
        return float(abs(mpf(y) - exact) / ulp)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_within_one_ulp_of_the_true_value(name):
    x = hard(name)
    y = OVER[name](x)
    errors = [error(name, *pair) for pair in zip(x.tolist(), y.tolist(), strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] <= BOUND, (x[worst], y[worst])


NAN, INF = math.nan, math.inf
SPECIAL = [
    (
        "exp",
        {NAN: NAN, INF: INF, -INF: 0.0, 0.0: 1.0, 710.0: INF, -746.0: 0.0, SMALLEST: 1.0, -SMALLEST: 1.0},
    ),
    ("exp", {LARGEST: INF, -LARGEST: 0.0, 2.0**-54: 1.0, -745.1332191019411: SMALLEST}),
    ("expm1", {NAN: NAN, INF: INF, -INF: -1.0, 0.0: 0.0, SMALLEST: SMALLEST, -SMALLEST: -SMALLEST, -50.0: -1.0}),
    ("expm1", {-0.0: -0.0, LARGEST: INF, -LARGEST: -1.0, 2.0**-60: 2.0**-60}),
    ("log", {NAN: NAN, INF: INF, -INF: NAN, 0.0: -INF, 1.0: 0.0, -1.0: NAN, -SMALLEST: NAN, -LARGEST: NAN}),
    ("log", {-0.0: -INF}),
    ("log1p", {NAN: NAN, INF: INF, -INF: NAN, 0.0: 0.0, -1.0: -INF, -1.5: NAN, SMALLEST: SMALLEST, 2.0**-60: 2.0**-60}),
    ("log1p", {-0.0: -0.0, -LARGEST: NAN, -(2.0**-60): -(2.0**-60)}),
    ("power_of_two", {0: 1.0, 1: 2.0, -1: 0.5, 1023: 2.0**1023, 1024: INF, -1022: 2.0**-1022, -1074: SMALLEST}),
    ("power_of_two", {-1075: 0.0, 10**9: INF, -(10**9): 0.0, -1073: 1e-323}),
]


@pytest.mark.parametrize(("name", "expected"), SPECIAL)
def test_special_values_to_the_bit(name, expected):
    """The sign of zero and the bits of NaN are part of the result, too: they could get into a forest."""
    y = OVER[name](np.array(list(expected)))
    assert [v.hex() for v in y.tolist()] == [float(v).hex() for v in expected.values()]
    assert y.tobytes() == np.array(list(expected.values()), np.float64).tobytes()


def test_powers_of_two_are_exact():
    k = np.arange(-1074, 1024)
    assert OVER["power_of_two"](k).tolist() == np.ldexp(1.0, k).tolist()


PRINT = """
import sys
sys.path[:0] = ["tests/amf"]
from test_elementary import digest
print(digest())
"""


def digest() -> str:
    """SHA-256 of the results at a tenth of the hard points: bits that no processor and no compiler may change."""
    with np.errstate(all="ignore"):
        results = [OVER[name](hard(name)[::10]).tobytes() for name in NAMES]
    return hashlib.sha256(b"".join(results)).hexdigest()


def test_interpreted_results_have_the_same_bits():
    done = subprocess.run(
        [sys.executable, "-c", PRINT],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest()


@pytest.mark.parametrize("probability", [1e-300, 1e-20, 1e-12, 0.01, 0.07, 0.08, 0.3, 0.4999, 0.5, 0.92, 0.93, 0.99])
def test_quantiles_of_the_normal_distribution(probability):
    quantile = elementary.normal_quantile(probability)
    with mpmath.workprec(160):
        miss = (mpmath.ncdf(quantile) - mpf(probability)) / mpmath.npdf(quantile)
    assert abs(miss) <= 1e-15 * abs(quantile)


def interpolated(f: Callable[[Any], Any], low: float, high: float, n: int) -> list[float]:
    """Coefficients of the polynomial that meets `f` at the n Chebyshev nodes of [low, high]."""
    middle, half = (mpf(high) + mpf(low)) / 2, (mpf(high) - mpf(low)) / 2
    nodes = [middle + half * mpmath.cos(mpmath.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    powers = mpmath.matrix(n, n)
    for i, node in enumerate(nodes):
        for j in range(n):
            powers[i, j] = node**j
    return [float(c) for c in mpmath.lu_solve(powers, mpmath.matrix([f(node) for node in nodes]))]


def test_the_constants_are_what_the_comments_say():
    with mpmath.workprec(400):

        def artanh_rest(z):
            s = mpmath.sqrt(z)
            return (2 * mpmath.atanh(s) - 2 * s) / s**3

        exponential = interpolated(lambda r: (mpmath.exp(r) - 1 - r - r * r / 2) / r**3, -0.3467, 0.3467, 10)
        logarithm = interpolated(artanh_rest, 0.0, 0.0295, 8)
        high, low = mpf(elementary._LN2_HIGH), float(mpmath.log(2) - mpf(elementary._LN2_HIGH))
        assert int(high * 2**32) == elementary._LN2_HIGH * 2**32
        assert low == elementary._LN2_LOW
        assert float(1 / mpmath.log(2)) == elementary._PER_LN2
    assert [getattr(elementary, f"_E{i}") for i in range(10)] == exponential
    assert [getattr(elementary, f"_L{i}") for i in range(8)] == logarithm
