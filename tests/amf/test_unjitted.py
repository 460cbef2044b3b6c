"""The same bits from kernels that are interpreted, and from kernels compiled for a CPU without wide vectors.

Each in a process of its own. That interpreted forests of all families are those of compiled kernels, test_processors.py
shows. Interpreted, the whole suite passes too, in some minutes, and a debugger can walk through:

    NUMBA_DISABLE_JIT=1 pytest tests/amf -W ignore
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

FOLDER = Path(__file__).parent
GOLDEN = "test_serialize.py::test_golden_files_load_and_go_on_to_known_forecasts"
SELECTION = [
    "test_classifier.py",
    "test_classes.py::test_classes_that_appear_equal_the_reference",
    GOLDEN,
]
"""Interpreted, the shapes of the quick check are enough: those of the whole suite show no other line of a kernel."""

RUN = """
import sys, types, pytest
failed = pytest.main(sys.argv[2:])
from amf.systems.amf_classifier import KERNELS
interpreted = isinstance(KERNELS.run, types.FunctionType)
assert interpreted == (sys.argv[1] == "interpreted")
sys.exit(failed)
"""


def run(kind: str, selection: list[str], **environment: str) -> None:
    """Run tests in a process with these variables; they have to pass."""
    tests = [str(FOLDER / name) if name.startswith("test_") else name for name in selection]
    done = subprocess.run(
        [sys.executable, "-c", RUN, kind, "-W", "ignore", "-p", "no:cacheprovider", *tests],
        cwd=FOLDER.parents[1],
        env={**os.environ, "CI": "true", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.skipif(config.DISABLE_JIT, reason="NUMBA_DISABLE_JIT is set: everything is interpreted")
def test_interpreted_kernels_give_the_same_bits():
    run("interpreted", ["-m", "not full", *SELECTION], NUMBA_DISABLE_JIT="1")


@pytest.mark.full
@pytest.mark.skipif(config.DISABLE_JIT, reason="NUMBA_DISABLE_JIT is set: nothing is compiled")
def test_kernels_compiled_for_the_plainest_cpu_give_the_same_bits():
    run("compiled", [GOLDEN], NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
