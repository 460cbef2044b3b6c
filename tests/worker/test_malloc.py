"""A large block does not come to lie among the small ones, whatever was freed before."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

IN_A_PROCESS = """
import ctypes
import numpy as np
from worker.adapters.malloc import give_back_early

class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Mallinfo
{call}
before = np.ones(2**21)
del before
apart = library.mallinfo2().hblkhd
block = np.ones(2**17)
print(library.mallinfo2().hblkhd - apart >= block.nbytes)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc 2.33 or later")
@pytest.mark.parametrize(("call", "lies_apart"), [("give_back_early()", "True"), ("", "False")])
def test_a_large_block_lies_apart(call: str, lies_apart: str) -> None:
    code = IN_A_PROCESS.format(call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == lies_apart
