"""Arrays at addresses: how one call of a kernel reaches the memory of many forests.

A kernel takes as many arrays as it has arguments, and each of them costs the caller a fraction of a microsecond. So a
forest is handed over as a row of 64-bit words (binding.py), of which some are the addresses of its arrays. The
maker of such a row keeps the arrays alive while kernels run.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from amf.jit.decorators import called, index, kernel
from amf.jit.vectors import fetch_line, plain_form_of

_intrinsic: Any = intrinsic

LINE = 64
"""Bytes that processors fetch at a time."""


def address_of(array: NDArray[Any]) -> int:
    """Where the numbers of a contiguous array begin."""
    address: int = array.__array_interface__["data"][0]
    return address


@_intrinsic
def _pointer(typingctx, address):
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@_intrinsic
def _prefetch(typingctx, address):
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        fetch_line(builder, builder.inttoptr(args[0], cgutils.voidptr_t))
        return context.get_dummy_value()

    return types.void(address), codegen


@called
def _fetch_lines(address, n_bytes):
    for at in range(address, address + n_bytes, index(LINE)):
        _prefetch(at)


@plain_form_of(_fetch_lines)
def prefetch(address, n_bytes):
    """Have the processor fetch this memory, and do not wait for it: for kernels.

    A hint, which changes nothing: no address is a wrong one.
    """


def _view_as(dtype: Any) -> Any:
    """(address, length) -> the flat array of this type there: for kernels."""

    @called
    def view(address, length):
        return carray(_pointer(address), (np.intp(length),), dtype)

    @plain_form_of(view)
    def plain_view(address: Any, length: Any) -> NDArray[Any]:
        n_bytes = int(length) * np.dtype(dtype).itemsize
        return np.frombuffer((ctypes.c_char * n_bytes).from_address(int(address)), dtype)

    return plain_view


ints_at = _view_as(np.int32)
floats_at = _view_as(np.float32)
reals_at = _view_as(np.float64)
words_at = _view_as(np.uint64)
longs_at = _view_as(np.int64)


@kernel
def gather_words(addresses, table):
    """Copy the words at each of these addresses into a row of the table, uint64 (n, words)."""
    for row in range(addresses.shape[0]):
        words = words_at(addresses[row], index(table.shape[1]))
        for word in range(table.shape[1]):
            table[row, word] = words[word]
