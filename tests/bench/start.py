"""From an empty process to a first forecast.

python -m tests.bench start
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.bench.peer import ROOT

FIRST_FORECAST = """
import numpy, amf
x, y = numpy.random.default_rng(0).random((30, 4)), numpy.arange(30) % 2
amf.AMFClassifier().predict_learn(x, y)
"""


def first_forecast_s(cache: Path) -> float:
    """Seconds from the start of a process to its first forecast, with this folder as numba's cache."""
    start = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", FIRST_FORECAST], cwd=ROOT, env=environment, check=True)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        cold = first_forecast_s(Path(name))
        warm = median(first_forecast_s(Path(name)) for _ in range(3))
    print(f"Start to first forecast: {cold:.1f} s with an empty cache of kernels, {warm:.2f} s with a full one")
