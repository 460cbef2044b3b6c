"""From an empty process to a first forecast.

python -m tests.benchmarks start
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.benchmarks.peers.process import ROOT

FIRST_FORECAST = """
import numpy, amf
x, y = numpy.random.default_rng(0).random((30, 4)), numpy.arange(30) % 2
amf.AMFClassifier().predict_learn(x, y)
"""


def first_forecast_s(home: Path) -> float:
    """Seconds from the start of a process to its first forecast, by the package in this folder."""
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(home), "NUMBA_CACHE_DIR": "", "XDG_CACHE_HOME": str(home / "cache")}
    subprocess.run([sys.executable, "-c", FIRST_FORECAST], cwd=home, env=environment, check=True)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        shutil.copytree(ROOT / "amf", home / "amf", ignore=shutil.ignore_patterns("__pycache__"))
        cold = first_forecast_s(home)
        warm = median(first_forecast_s(home) for _ in range(3))
    print(f"Start to first forecast: {cold:.1f} s with an empty cache of kernels, {warm:.2f} s with a full one")
