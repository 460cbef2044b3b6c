"""The second table: our regressors beside river's, on the regression sets that come with river and scikit-learn.

Every set in its own order, predicted and then learned row by row, with five seeds; of Friedman five streams. RMSE: over
all rows but the first, mean over seeds. Coverage: share of labels between our 5 % and 95 % quantiles; river has none.
The sets: peers/scripts/regression_sets.py. river's forests stand behind the scalers that their documentation asks for.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path
from statistics import mean

from tests.benchmarks.peers import catalogue
from tests.benchmarks.peers.process import CACHE, ROOT, Peer, PeerMissingError
from tests.benchmarks.report import at_most, number

SEEDS = 5
EVERY_ROW = 10**9
FORESTS = {
    "amf": ("amf", False), "adaptive": ("amf", True), "river AMF": ("river", False), "river ARF": ("river", True),
}  # fmt: skip
"""Title -> whose it is, and whether it is the adaptive one."""


def regression_sets() -> dict[str, list[Path]]:
    """Name of each set -> its files, one for each seed; written by river's environment where they are missing."""
    folder = CACHE / "regression"
    if not folder.is_dir():
        unfinished = CACHE / "regression-unfinished"
        unfinished.mkdir(parents=True, exist_ok=True)
        script = [
            str(catalogue.river_python()),
            "-m",
            "tests.benchmarks.peers.scripts.regression_sets",
            str(unfinished),
        ]
        subprocess.run(script, cwd=ROOT, check=True)
        unfinished.rename(folder)
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.glob("*.npz")):
        found[path.stem.partition("-")[0]].append(path)
    return {name: paths if len(paths) > 1 else paths * SEEDS for name, paths in found.items()}


def scores(peer: Peer, paths: list[Path], *, adaptive: bool) -> dict[str, float]:
    """Mean over the seeds of what a peer's plain or adaptive forest reaches."""
    settings = {"adaptive": adaptive}
    asked = [
        peer.ask("numbers", path=str(path), rows=EVERY_ROW, seed=seed, settings=settings)
        for seed, path in enumerate(paths)
    ]
    return {column: mean(answer[column] for answer in asked) for column in asked[0]}


def main() -> None:
    print("\nRegressors: 10 trees, one thread, all rows, mean over five seeds", flush=True)
    try:
        with catalogue.ours() as ours, catalogue.river() as river:
            print(f"{'RMSE (coverage, samples/s)':<28}", *(f"{name:>28}" for name in FORESTS))
            for name, paths in regression_sets().items():
                peers = {"amf": ours, "river": river}
                show(name, {title: scores(peers[who], paths, adaptive=kind) for title, (who, kind) in FORESTS.items()})
    except PeerMissingError as reason:
        print(f"No table: {reason}")


def show(name: str, told: dict[str, dict[str, float]]) -> None:
    """Print the line of one set: all forests, and how far the adaptive one is from the best of the others."""
    cells = (
        f"{number(own['rmse'], 4)} ({number(own['coverage'], 3)}, {own['prequential']:,.0f})" for own in told.values()
    )
    best = min(own["rmse"] for title, own in told.items() if title != "adaptive")
    ratio = told["adaptive"]["rmse"] / best
    verdict = f"   {ratio:.3f} of the best: {at_most(1.02).verdict(ratio)}"
    print(f"{name:<28}", *(f"{cell:>28}" for cell in cells), verdict, flush=True)
