"""A process that is forked after its parent used threads can use them, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
import amf

x, y = np.random.default_rng(0).random((50, 3)), [0, 1] * 25
forest = amf.AMFClassifier(4, n_threads=2).partial_fit(x, y)
child = os.fork()
if child == 0:
    signal.alarm(30)
    forest.partial_fit(x, y)
    os._exit(0 if forest.dumps() == amf.AMFClassifier(4).partial_fit(x, y).partial_fit(x, y).dumps() else 3)
_, status = os.waitpid(child, 0)
forest.partial_fit(x, y)  # the parent still has its own
sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_forked_process_learns_in_several_threads():
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
