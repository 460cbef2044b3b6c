"""Bounding boxes: by how much a sample lies outside one, and growing it.

A box is two runs of float32 in a node's row, d lower bounds and d upper bounds (see arena.py). NaN bounds mean that
no finite value of that feature has been seen below the node; a NaN value means that the sample lacks the feature.
Neither extends a box.

`extension` sums in eight float32 lanes, feature j in lane j % 8, and adds the lanes pairwise at the end. The order
of the additions is therefore part of the definition and not of the CPU: LLVM may execute the eight lanes as one
AVX register, two SSE registers or eight scalars, the bits are the same. It is written in LLVM's vector types because
numba leaves the equivalent scalar loop unvectorised: 3 ns instead of 18 at 16 features, 14 instead of 92 at 107.
The scalar loop stands beside it as the definition; it is what runs under NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from amf._kernel import index, inlined

ir: Any = cgutils.ir  # type: ignore[attr-defined]  # numba's own copy of the instruction builder

_intrinsic: Any = intrinsic

LANES = 8
LARGEST = np.float32(2.0**100)
"""Centred values are clipped here, so that no difference of two of them overflows float32."""
_LINE_WORDS = 16  # a cache line
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_ZERO = np.float32(0.0)


def padded(n_features: int) -> int:
    """Width of a sample or weight vector in whole groups of lanes: the padding is NaN in samples and 0 in weights."""
    return -(-n_features // LANES) * LANES


def _plain_form_of(fast: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of a definition in plain Python: `fast` takes its place wherever kernels are compiled."""
    return lambda plain: plain if config.DISABLE_JIT else fast  # type: ignore[attr-defined]


def _vectors(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Data pointers of the arrays among the arguments and a loader of eight floats; shared by the two intrinsics."""

    def data(position: int) -> Any:
        return context.make_array(signature.args[position])(context, builder, args[position]).data

    def address(base: Any, index: Any) -> Any:
        return builder.bitcast(builder.gep(base, [index], source_etype=ir.FloatType()), _FLOATS.as_pointer())

    def load(base: Any, index: Any) -> Any:
        return builder.load(address(base, index), align=4, typ=_FLOATS)

    return data, address, load


@_intrinsic
def _extension(typingctx, floats, low, high, x, at, weights, n_features):
    signature = types.float32(floats, low, high, x, at, weights, n_features)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, _, load = _vectors(context, builder, signature, args)
        floats, low, high, x, at, weights, n_features = data(0), args[1], args[2], data(3), args[4], data(5), args[6]
        integer, zero = n_features.type, ir.Constant(_FLOATS, [0.0] * LANES)

        def larger(a: Any, b: Any) -> Any:
            # An ordered comparison is false for NaN: missing values and empty bounds fall through to zero.
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        lanes = cgutils.alloca_once_value(builder, zero)
        groups = builder.udiv(builder.add(n_features, integer(LANES - 1)), integer(LANES))
        with cgutils.for_range(builder, groups, intp=integer) as loop:
            j = builder.mul(loop.index, integer(LANES))
            value = load(x, builder.add(at, j))
            above = builder.fsub(value, load(floats, builder.add(high, j)))
            below = builder.fsub(load(floats, builder.add(low, j)), value)
            outside = larger(larger(above, below), zero)
            builder.store(builder.fadd(builder.load(lanes), builder.fmul(outside, load(weights, j))), lanes)
        sums = [builder.extract_element(builder.load(lanes), ir.IntType(32)(k)) for k in range(LANES)]
        while len(sums) > 1:
            sums = [builder.fadd(sums[k], sums[k + 1]) for k in range(0, len(sums), 2)]
        return sums[0]

    return signature, codegen


@_intrinsic
def _widen_groups(typingctx, floats, low, high, x, at, n_features):
    signature = n_features(floats, low, high, x, at, n_features)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, address, load = _vectors(context, builder, signature, args)
        floats, low, high, x, at, n_features = data(0), args[1], args[2], data(3), args[4], args[5]
        integer = n_features.type
        groups = builder.udiv(n_features, integer(LANES))
        with cgutils.for_range(builder, groups, intp=integer) as loop:
            j = builder.mul(loop.index, integer(LANES))
            value = load(x, builder.add(at, j))
            present = builder.fcmp_ordered("==", value, value)
            for start, beyond in ((low, ">"), (high, "<")):
                here = builder.add(start, j)
                bound = load(floats, here)
                # Unordered: NaN bounds count as exceeded by any value.
                moved = builder.and_(present, builder.fcmp_unordered(beyond, bound, value))
                builder.store(builder.select(moved, value, bound), address(floats, here), align=4)
        return builder.mul(groups, integer(LANES))

    return signature, codegen


@_intrinsic
def _prefetch(typingctx, floats, start, words):
    signature = types.void(floats, start, words)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, _, _ = _vectors(context, builder, signature, args)
        floats, start, words = data(0), args[1], args[2]
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        integer = words.type
        lines = builder.udiv(builder.add(words, integer(_LINE_WORDS - 1)), integer(_LINE_WORDS))
        with cgutils.for_range(builder, lines, intp=integer) as loop:
            at = builder.add(start, builder.mul(loop.index, integer(_LINE_WORDS)))
            address = builder.bitcast(builder.gep(floats, [at], source_etype=ir.FloatType()), pointer)
            builder.call(prefetch, [address, flag(0), flag(3), flag(1)])  # to read, into every cache, data
        return context.get_dummy_value()

    return signature, codegen


@inlined
def outside(low, high, value):
    """Distance of a value from [low, high] in one feature, float32; 0 inside and where anything is NaN."""
    above = value - high
    below = low - value
    distance = above if above > below else below
    return distance if distance > _ZERO else _ZERO


@_plain_form_of(_extension)
def extension(floats, low, high, x, at, weights, n_features):
    """Weighted size by which a sample lies outside a box (the rate of [000] Alg. 5 line 3), float32.

    floats: flat float32; the bounds start at `low` and `high`, and up to 7 words past the upper bounds may be read.
    x: flat float32; the sample starts at `at` and is padded with NaN. weights: float32 (padded(n_features),).
    """
    lanes = np.zeros(LANES, np.float32)
    for j in range(n_features):
        lanes[j % LANES] += weights[j] * outside(floats[low + j], floats[high + j], x[at + j])
    while lanes.shape[0] > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0]


@_plain_form_of(_widen_groups)
def widen_groups(floats, low, high, x, at, n_features):
    """Extend the bounds of all whole groups of eight features to contain the sample; returns how many that were."""
    return index(0)  # plain Python gains nothing by groups: `widen` takes the features one by one


@_plain_form_of(_prefetch)
def prefetch(floats, start, words):
    """Ask for words that will be read soon: the rows of many forests fit no cache, and this hides part of the wait."""


@inlined
def widen(floats, low, high, x, at, n_features):
    """Extend the box to contain the sample. Missing values leave it alone, a first value replaces NaN bounds."""
    for j in range(widen_groups(floats, low, high, x, at, n_features), n_features):
        value = x[at + j]
        if value == value:
            if not (floats[low + j] <= value):
                floats[low + j] = value
            if not (floats[high + j] >= value):
                floats[high + j] = value


@inlined
def holds(floats, low, high, x, at, n_features):
    """Whether the box contains the sample and would not change: the box lacks no feature that the sample has."""
    for j in range(n_features):
        value = x[at + j]
        if value == value and not (floats[low + j] <= value and value <= floats[high + j]):
            return False
    return True


@inlined
def enclose(floats, low, high, x, at, n_features):
    """Make the box the single sample. The room for features to come is NaN: nothing has been seen of them."""
    for j in range(n_features):
        floats[low + j] = x[at + j]
        floats[high + j] = x[at + j]
    for j in range(n_features, high - low):
        floats[low + j] = np.nan
        floats[high + j] = np.nan
