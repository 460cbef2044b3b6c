"""Functions of amf.jit.elementary, which only kernels call, for Python."""

from __future__ import annotations

from amf.jit import elementary
from amf.jit.decorators import exported

expm1, log1p = exported(elementary.expm1), exported(elementary.log1p)
