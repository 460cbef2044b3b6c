"""Bounding boxes: by how much a sample lies outside one, and growing it.

A box is two runs of float32 in a node's row, d lower bounds and d upper bounds (see arena.py). NaN bounds mean that
no finite value of that feature has been seen below the node; a NaN value means that the sample lacks the feature.
Neither extends a box.

`extension` sums in eight float32 lanes, feature j in lane j % 8, and adds the lanes pairwise at the end. The order
of the additions is therefore part of the definition and not of the CPU: LLVM may execute the eight lanes as one
AVX register, two SSE registers or eight scalars, the bits are the same. How that is written, and why: vectors.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from amf.jit.decorators import index, inlined
from amf.jit.vectors import BITS, FLAGS, FLOATS, LANES, address_in, data_of, intrinsic, ir, load_vector, plain_form_of

LARGEST = np.float32(2.0**100)
"""Centred values are clipped here, so that no difference of two of them overflows float32."""
_ZERO = np.float32(0.0)


def padded_width(n_features: int) -> int:
    """Width of a sample or weight vector in whole groups of lanes: the padding is NaN in samples and 0 in weights."""
    return -(-n_features // LANES) * LANES


@intrinsic
def _extension(typingctx, floats, low, high, x, at, weights, weights_at, n_features):
    signature = types.Tuple((types.float32, types.boolean))(floats, low, high, x, at, weights, weights_at, n_features)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats, x, weights = (data_of(context, builder, signature, args, place) for place in (0, 3, 5))
        low, high, at = args[1], args[2], args[4]
        weights_at, n_features = args[6], args[7]
        integer, zero = n_features.type, ir.Constant(FLOATS, [0.0] * LANES)
        nowhere = ir.Constant(FLAGS, [0] * LANES)

        def larger(a: Any, b: Any) -> Any:
            # An ordered comparison is false for NaN: missing values and empty bounds fall through to zero.
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        lanes = cgutils.alloca_once_value(builder, zero)
        exceeded = cgutils.alloca_once_value(builder, nowhere)
        groups = builder.udiv(builder.add(n_features, integer(LANES - 1)), integer(LANES))
        with cgutils.for_range(builder, groups, intp=integer) as loop:
            j = builder.mul(loop.index, integer(LANES))
            value = load_vector(builder, x, builder.add(at, j), FLOATS)
            lower, upper = (load_vector(builder, floats, builder.add(start, j), FLOATS) for start in (low, high))
            outside = larger(larger(builder.fsub(value, upper), builder.fsub(lower, value)), zero)
            weighted = builder.fmul(outside, load_vector(builder, weights, builder.add(weights_at, j), FLOATS))
            builder.store(builder.fadd(builder.load(lanes), weighted), lanes)
            # Unordered: NaN bounds are exceeded by any value.
            above, below = builder.fcmp_unordered("<", upper, value), builder.fcmp_unordered(">", lower, value)
            beyond = builder.and_(builder.fcmp_ordered("ord", value, value), builder.or_(above, below))
            builder.store(builder.or_(builder.load(exceeded), builder.sext(beyond, FLAGS)), exceeded)
        sums = [builder.extract_element(builder.load(lanes), ir.IntType(32)(k)) for k in range(LANES)]
        while len(sums) > 1:
            sums = [builder.fadd(sums[k], sums[k + 1]) for k in range(0, len(sums), 2)]
        flags = builder.bitcast(builder.trunc(builder.load(exceeded), BITS), ir.IntType(LANES))
        changes = builder.icmp_unsigned("!=", flags, flags.type(0))
        return context.make_tuple(builder, signature.return_type, [sums[0], changes])

    return signature, codegen


@intrinsic
def _group_outside(typingctx, floats, low, high, x, at):
    signature = types.boolean(floats, low, high, x, at)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats, x = (data_of(context, builder, signature, args, place) for place in (0, 3))
        value = load_vector(builder, x, args[4], FLOATS)
        lower, upper = (load_vector(builder, floats, start, FLOATS) for start in (args[1], args[2]))
        beyond = builder.or_(builder.fcmp_ordered("<", upper, value), builder.fcmp_ordered(">", lower, value))
        bits = builder.bitcast(beyond, ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, bits.type(0))

    return signature, codegen


@intrinsic
def _groups_varied(typingctx, floats, low, high, n_features):
    signature = n_features(floats, low, high, n_features)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats, low, high, n_features = data_of(context, builder, signature, args, 0), args[1], args[2], args[3]
        integer, byte = n_features.type, ir.IntType(LANES)
        count = builder.module.declare_intrinsic("llvm.ctpop", (byte,))
        total = cgutils.alloca_once_value(builder, integer(0))
        with cgutils.for_range(builder, builder.udiv(n_features, integer(LANES)), intp=integer) as loop:
            j = builder.mul(loop.index, integer(LANES))
            lower, upper = (load_vector(builder, floats, builder.add(start, j), FLOATS) for start in (low, high))
            bits = builder.bitcast(builder.fcmp_ordered("<", lower, upper), byte)
            builder.store(builder.add(builder.load(total), builder.zext(builder.call(count, [bits]), integer)), total)
        return builder.load(total)

    return signature, codegen


@intrinsic
def _widen(typingctx, floats, low, high, x, at, n_features):
    signature = types.void(floats, low, high, x, at, n_features)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats, x = (data_of(context, builder, signature, args, place) for place in (0, 3))
        low, high, at, n_features = args[1], args[2], args[4], args[5]
        integer = n_features.type
        groups = builder.udiv(builder.add(n_features, integer(LANES - 1)), integer(LANES))
        pointer = FLOATS.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [FLOATS, pointer, ir.IntType(32), BITS])
        masked_store = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        with cgutils.for_range(builder, groups, intp=integer) as loop:
            j = builder.mul(loop.index, integer(LANES))
            # The padding of a sample is NaN: what lies beyond the features is read and left alone.
            value = load_vector(builder, x, builder.add(at, j), FLOATS)
            present = builder.fcmp_ordered("ord", value, value)
            for start, beyond in ((low, ">"), (high, "<")):
                here = builder.add(start, j)
                # Unordered: NaN bounds count as exceeded by any value.
                bound = load_vector(builder, floats, here, FLOATS)
                moved = builder.and_(present, builder.fcmp_unordered(beyond, bound, value))
                target = builder.bitcast(address_in(builder, floats, here, ir.FloatType()), pointer)
                builder.call(masked_store, [value, target, ir.IntType(32)(4), moved])
        return context.get_dummy_value()

    return signature, codegen


@inlined
def outside(low, high, value):
    """Distance of a value from [low, high] in one feature, float32; 0 inside and where anything is NaN."""
    above = value - high
    below = low - value
    distance = above if above > below else below
    return distance if distance > _ZERO else _ZERO


@plain_form_of(_extension)
def extension(floats, low, high, x, at, weights, weights_at, n_features):
    """(weighted size by which a sample lies outside a box, float32; whether the box would change to contain it).

    The size is the rate of [AMF] Alg. 5 line 3. It can be 0 where the box changes: the box lacks a feature that the
    sample has, or weight times distance is less than any float32.
    floats: flat float32; the bounds start at `low` and `high`, and up to 7 words past the upper bounds may be read.
    x: flat float32; the sample starts at `at` and is padded with NaN. weights: flat float32;
    padded_width(n_features) of them start at `weights_at`.
    """
    lanes, changes = np.zeros(LANES, np.float32), False
    for j in range(n_features):
        value, lower, upper = x[at + j], floats[low + j], floats[high + j]
        lanes[j % LANES] += weights[weights_at + j] * outside(lower, upper, value)
        changes |= value == value and not (lower <= value and value <= upper)
    while lanes.shape[0] > 1:
        lanes = lanes[0::2] + lanes[1::2]
    return lanes[0], changes


@plain_form_of(_group_outside)
def group_outside(floats, low, high, x, at):
    """Whether a sample lies outside a box in any of LANES features, of which bounds and values begin at the places."""
    return any(outside(floats[low + j], floats[high + j], x[at + j]) > _ZERO for j in range(LANES))


@plain_form_of(_groups_varied)
def _varied_in_groups(floats, low, high, n_features):
    return index(sum(floats[low + j] < floats[high + j] for j in range(n_features // LANES * LANES)))


@inlined
def varied(floats, low, high, n_features):
    """In how many features a box has a length, uint64: in which samples in it differ."""
    count = _varied_in_groups(floats, low, high, n_features)
    for j in range(n_features // index(LANES) * index(LANES), n_features):
        count += index(floats[low + j] < floats[high + j])
    return count


@plain_form_of(_widen)
def widen(floats, low, high, x, at, n_features):
    """Extend the box to contain the sample. Missing values leave it alone, a first value replaces NaN bounds."""
    for j in range(n_features):
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
    # Two loops, each of which moves several numbers at a time.
    for j in range(n_features):
        floats[low + j] = x[at + j]
    for j in range(n_features):
        floats[high + j] = x[at + j]
    for j in range(n_features, high - low):
        floats[low + j] = np.nan
        floats[high + j] = np.nan
