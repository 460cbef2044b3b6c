"""Set-up that all tests share: compiled kernels of this very source, hypothesis, options."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]


def _hash_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "amf").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


# numba takes a cached kernel as current while the file of that kernel is unchanged. It does not look at the kernels
# which that one calls in other modules, so that after an edit there the tests would run the old code. A folder of its
# own for each state of the sources rules that out. numba reads the variable once, when it is imported.
assert "numba" not in sys.modules, "numba was imported before the tests could choose its cache"
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".cache" / "numba" / _hash_of_sources())

# No deadline anywhere: the first example of a test may be the one that compiles a kernel. CI draws the same examples
# each time, so that a red build is about the change and not about luck; elsewhere each run looks at new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI", "").lower() == "true" else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hostile", metavar="SEEDS", help="streams of tests/amf/test_hostile.py to run alone: 17,1234")
