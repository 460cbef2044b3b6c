"""Parts of kernels, which only kernels call, as kernels of their own."""

from __future__ import annotations

from amf import elementary
from amf._kernel import kernel


def callable_part(part):
    """The part as a function that Python can call."""
    return kernel(getattr(part, "py_func", part))  # without a compiler it is one


expm1, log1p = callable_part(elementary.expm1), callable_part(elementary.log1p)
