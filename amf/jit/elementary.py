"""Logarithms, exponentials and normal quantiles with the same bits on any processor.

Those of the C library are as exact, but their last bits differ from one library to the next, and from one processor to
the next within a library. Here every result is a fixed sequence of the operations that IEEE 754 defines to the last
bit: + - * / and square roots of float64, none of them fused or reordered, and shifts of the bits of a number. Each
logarithm and exponential is within one ulp, a unit in the last place, of the exact value, which
tests/amf/test_elementary.py measures.

The reductions are the classical ones (P. T. P. Tang, ACM TOMS 15-18, 1989-92; K. C. Ng's fdlibm, Sun, 1993):

    exp    x = k ln 2 + r with |r| <= ln 2 / 2, so that exp(x) = 2**k exp(r)
    log    x = 2**k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), so that log(x) = k ln 2 + 2 artanh(f / (2 + f))

What is left is a polynomial, which interpolates at Chebyshev nodes and is evaluated pairwise (Estrin's scheme). The
leading terms are added with the error of their addition (Dekker's Fast2Sum), so that little but the last rounding is
left of all errors. Numbers outside of the usual range leave by one branch.
"""

from __future__ import annotations

import math

import numpy as np

from amf.jit.decorators import called, inlined, kernel

# ln 2 in two parts: products of the first one with whole numbers below 2**20 are exact.
_LN2_HIGH, _LN2_LOW, _PER_LN2 = 0.6931471803691238, 1.9082149292705877e-10, 1.4426950408889634
_TO_WHOLE, _TO_WHOLE_BITS = 6755399441055744.0, 0x4338000000000000
"""1.5 * 2**52: to add and subtract it rounds a number below 2**51 to a whole one."""

# (exp(r) - 1 - r - r**2 / 2) / r**3 for |r| <= 0.3467
_E0, _E1, _E2, _E3, _E4 = (
    0.16666666666666669, 0.041666666666666664, 0.008333333333330055, 0.0013888888888886548, 0.00019841269863088255,
)  # fmt: skip
_E5, _E6, _E7, _E8, _E9 = (
    2.4801587317169235e-05, 2.7557268406190795e-06, 2.7557282931125736e-07, 2.51004110820149e-08, 2.091125490208877e-09,
)  # fmt: skip
# (2 artanh(s) - 2 s) / s**3 as a function of s**2 <= 0.0295
_L0, _L1, _L2, _L3 = 0.6666666666666666, 0.4000000000000089, 0.2857142857079543, 0.2222222239356661
_L4, _L5, _L6, _L7 = 0.18181795442371984, 0.1538625044794019, 0.13268485680654427, 0.13089629160674623

_MANTISSA = 52
_BIAS = 1023
_ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
_SMALLEST_NORMAL, _LARGEST = 2.2250738585072014e-308, 1.7976931348623157e308
_TO_NORMAL = 18014398509481984.0  # 2**54
_NEGLIGIBLE = 2.0**-54
"""Of numbers smaller than this log1p and expm1 are those numbers."""
_LARGEST_OF_NORMAL_EXP = 708.0
"""The powers of two in exp of at most this, and of at least minus this, are normal numbers."""
_LARGEST_OF_EXP, _SMALLEST_OF_EXP, _SMALLEST_OF_EXPM1 = 709.782712893384, -745.1332191019411, -38.0


@inlined
def square(x):
    """Not x**2, which without a compiler goes to the C library."""
    return x * x


@inlined
def _power(k):
    """2**k for a whole number k from -1022 to 1023, which may be a float64."""
    return np.int64((np.int64(k) + _BIAS) << _MANTISSA).view(np.float64)


@inlined
def power_of_two(k):
    """2**k for any whole number k, int64: 0 and inf beyond the range of float64."""
    k = min(max(np.int64(k), np.int64(-1100)), np.int64(1100))
    half = k >> 1
    return _power(half) * _power(k - half)


@inlined
def _reduced(x):
    """(k, r, t) with exp(x) = 2**k (1 + r + t); k a whole float64, |r| <= ln 2 / 2, t the rest. |x| is below 800."""
    k = (x * _PER_LN2 + _TO_WHOLE) - _TO_WHOLE
    high, low = x - k * _LN2_HIGH, k * _LN2_LOW
    r = high - low
    lost = (high - r) - low
    r2 = r * r
    r4 = r2 * r2
    cubic = ((_E0 + _E1 * r) + (_E2 + _E3 * r) * r2) + ((_E4 + _E5 * r) + (_E6 + _E7 * r) * r2) * r4
    cubic += (_E8 + _E9 * r) * (r4 * r4)
    return k, r, 0.5 * r2 + (r * r2 * cubic + (lost + lost * r))


@inlined
def exp(x):
    """e**x of a float64."""
    if not -_LARGEST_OF_NORMAL_EXP <= x <= _LARGEST_OF_NORMAL_EXP:
        return _unusual_exp(x)
    return usual_exp(x)


@inlined
def usual_exp(x):
    """e**x of a number from -708 to 708: without a branch, so that a loop takes several of them at a time."""
    k, r, t = _reduced(x)
    total = 1.0 + r
    # The bits of k, without a conversion, which not all processors have for several numbers.
    whole = np.float64(k + _TO_WHOLE).view(np.int64) - _TO_WHOLE_BITS
    return (total + ((r - (total - 1.0)) + t)) * np.int64((whole + _BIAS) << _MANTISSA).view(np.float64)


@called
def _unusual_exp(x):
    if x != x:
        return np.nan
    if x > _LARGEST_OF_EXP:
        return np.inf
    if x < _SMALLEST_OF_EXP:
        return 0.0
    k, r, t = _reduced(x)
    half = np.int64(k) >> 1
    # The second product alone can round, where the result is subnormal.
    return ((1.0 + (r + t)) * _power(half)) * _power(np.int64(k) - half)


@inlined
def expm1(x):
    """e**x - 1 of a float64, exact also near 0."""
    if not (_SMALLEST_OF_EXPM1 <= x <= _LARGEST_OF_NORMAL_EXP and abs(x) >= _NEGLIGIBLE):
        return _unusual_expm1(x)
    k, r, t = _reduced(x)
    # In units of 2**k it is (1 - one) + r + t, and each sum is kept with its error.
    one = _power(-k)
    whole = 1.0 - one
    t += (1.0 - whole) - one if k > 0.0 else 0.0
    total = whole + r
    return (total + ((r - (total - whole)) + t)) * _power(k)


@called
def _unusual_expm1(x):
    if abs(x) < _NEGLIGIBLE:
        return x
    if x < _SMALLEST_OF_EXPM1:
        return -1.0
    return exp(x)


@inlined
def log(x):
    """Natural logarithm of a float64."""
    if not _SMALLEST_NORMAL <= x <= _LARGEST:
        return _unusual_log(x)
    return usual_log(x)


@inlined
def usual_log(x):
    """Natural logarithm of a number from 2**-1022 on, infinity not among them: without a branch, as `usual_exp`."""
    k, f = _parts(x)
    return _log_of_parts(k, f, 0.0)


@called
def _unusual_log(x):
    if x == 0.0:
        return -np.inf
    if not x > 0.0:
        return np.nan
    if x > _LARGEST:
        return np.inf
    k, f = _parts(x * _TO_NORMAL)
    return _log_of_parts(k - 54.0, f, 0.0)


@inlined
def log1p(x):
    """Natural logarithm of 1 + x, exact also near 0."""
    if not (-1.0 < x <= _LARGEST and abs(x) >= _NEGLIGIBLE):
        return _unusual_log1p(x)
    u = 1.0 + x
    k, f = _parts(u)
    if k == 0.0:
        return _log_of_parts(k, x, 0.0)
    # What the sum has lost (Knuth's TwoSum), relative to it.
    seen = u - 1.0
    return _log_of_parts(k, f, ((1.0 - (u - seen)) + (x - seen)) / u)


@called
def _unusual_log1p(x):
    if abs(x) < _NEGLIGIBLE:
        return x
    if x == -1.0:
        return -np.inf
    return np.inf if x > _LARGEST else np.nan


@inlined
def _parts(x):
    """(k, f) with x = 2**k (1 + f), both float64; x normal and positive."""
    bits = np.float64(x).view(np.int64)
    k = (bits - _ROOT_HALF_BITS) >> _MANTISSA
    return np.float64(k), np.int64(bits - (k << _MANTISSA)).view(np.float64) - 1.0


@inlined
def _log_of_parts(k, f, rest):
    """k ln 2 + log(1 + f) + rest."""
    s = f / (2.0 + f)
    z = s * s
    z2 = z * z
    square = ((_L0 + _L1 * z) + (_L2 + _L3 * z) * z2) + ((_L4 + _L5 * z) + (_L6 + _L7 * z) * z2) * (z2 * z2)
    # log(1 + f) = f - h + s (h + z * square), h = f**2 / 2: the terms after f are small beside it.
    h = 0.5 * f * f
    t = (s * (h + z * square) + (k * _LN2_LOW + rest)) - h
    high = k * _LN2_HIGH
    total = high + f
    return total + ((f - (total - high)) + t)


# Rational functions for the middle, the tails and their far ends: numerator and denominator, highest power first.
_MIDDLE = (
    (
        2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
        13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608,
    ),
    (
        5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
        5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0,
    ),
)  # fmt: skip
_TAIL = (
    (
        7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
        3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
        0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0,
    ),
)  # fmt: skip
_FAR_TAIL = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
        0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772,
    ),
    (
        2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
        0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0,
    ),
)  # fmt: skip


@inlined
def _ratio(polynomials, r):
    above, below = 0.0, 0.0
    for coefficient in polynomials[0]:
        above = above * r + coefficient
    for coefficient in polynomials[1]:
        below = below * r + coefficient
    return above / below


@kernel
def normal_quantile(probability):
    """Quantile of the standard normal distribution, 0 < probability < 1, to 15 digits (M. J. Wichura, AS 241, 1988)."""
    q = probability - 0.5
    if abs(q) <= 0.425:
        return q * _ratio(_MIDDLE, 0.180625 - q * q)
    r = math.sqrt(-log(probability if q < 0.0 else 1.0 - probability))
    distance = _ratio(_TAIL, r - 1.6) if r <= 5.0 else _ratio(_FAR_TAIL, r - 5.0)
    return -distance if q < 0.0 else distance
