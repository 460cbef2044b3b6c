"""What is freed goes back to the system: large blocks lie apart, and small ones are looked for among what is in use."""

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


HOLES = """
import re
from pathlib import Path
import numpy as np
from worker.adapters.malloc import give_back, give_back_early

def resident_bytes():
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

give_back_early()
blocks = [np.ones(2**12) for _ in range(4096)]
full = resident_bytes()
del blocks[::2], blocks[1::4]
{call}
print(full - resident_bytes() > 2**25)
"""

only_glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc 2.33 or later"
)


@only_glibc
@pytest.mark.parametrize(("call", "lies_apart"), [("give_back_early()", "True"), ("", "False")])
def test_a_large_block_lies_apart(call: str, lies_apart: str) -> None:
    code = IN_A_PROCESS.format(call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == lies_apart


@only_glibc
@pytest.mark.parametrize(("call", "falls"), [("give_back()", "True"), ("", "False")])
def test_memory_falls_where_half_of_all_blocks_are_freed(call: str, falls: str) -> None:
    done = subprocess.run([sys.executable, "-c", HOLES.format(call=call)], capture_output=True, text=True, timeout=60)
    assert (done.stderr, done.stdout.strip()) == ("", falls)
