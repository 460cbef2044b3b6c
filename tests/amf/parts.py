"""Functions of amf.elementary, which only kernels call, for Python."""

from __future__ import annotations

from amf import elementary
from amf._kernel import exported

expm1, log1p = exported(elementary.expm1), exported(elementary.log1p)
