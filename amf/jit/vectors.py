"""Kernels' own vector instructions, in LLVM's vector types, each beside its definition in plain Python.

numba leaves the equivalent scalar loops unvectorised: 3 ns instead of 18 for a box of 16 features, 14 instead of 92
at 107. The order of the additions is part of each definition and not of the CPU: LLVM may execute eight lanes as one
register, two or eight scalars, the bits are the same. The plain form is what runs under NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic as _intrinsic

ir: Any = cgutils.ir  # type: ignore[attr-defined]  # numba's own copy of the instruction builder
intrinsic: Any = _intrinsic

LANES = 8
"""Numbers that are taken together."""
FLOATS = ir.VectorType(ir.FloatType(), LANES)
FLAGS = ir.VectorType(ir.IntType(32), LANES)
BITS = ir.VectorType(ir.IntType(1), LANES)
_LINE_WORDS = 16  # a cache line


def plain_form_of(fast: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of a definition in plain Python: `fast` takes its place wherever kernels are compiled."""
    return lambda plain: plain if config.DISABLE_JIT else fast  # type: ignore[attr-defined]


def data_of(context: Any, builder: Any, signature: Any, args: Any, position: int) -> Any:
    """Where the numbers of the array at this place among the arguments begin."""
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def address_in(builder: Any, base: Any, index: Any, element: Any) -> Any:
    """Address of an element of a flat array. element: its LLVM type."""
    return builder.gep(base, [index], source_etype=element)


def load_vector(builder: Any, base: Any, index: Any, vector: Any) -> Any:
    """Elements of a flat array from one on, all that the vector holds."""
    address = builder.bitcast(address_in(builder, base, index, vector.element), vector.as_pointer())
    return builder.load(address, align=4, typ=vector)


def fetch_line(builder: Any, address: Any) -> None:
    """Ask for the line of memory at an address, a pointer to bytes."""
    flag = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", (cgutils.voidptr_t,), kind)
    builder.call(prefetch, [address, flag(0), flag(3), flag(1)])  # to read, into every cache, data


@intrinsic
def _prefetch(typingctx, floats, start, words):
    signature = types.void(floats, start, words)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        floats, start, words = data_of(context, builder, signature, args, 0), args[1], args[2]
        integer = words.type
        lines = builder.udiv(builder.add(words, integer(_LINE_WORDS - 1)), integer(_LINE_WORDS))
        with cgutils.for_range(builder, lines, intp=integer) as loop:
            at = builder.add(start, builder.mul(loop.index, integer(_LINE_WORDS)))
            fetch_line(builder, builder.bitcast(address_in(builder, floats, at, ir.FloatType()), cgutils.voidptr_t))
        return context.get_dummy_value()

    return signature, codegen


@plain_form_of(_prefetch)
def prefetch(floats, start, words):
    """Ask for words that will be read soon: the rows of many forests fit no cache, and this hides part of the wait."""
