"""The second table: AMFRegressor beside river's, on the regression sets that come with river and scikit-learn.

Every set in its own order, predicted and then learned row by row, with five seeds; of Friedman five streams. RMSE: over
all rows but the first, mean over seeds. Coverage: share of labels between our 5 % and 95 % quantiles; river has none.
The sets: peers/scripts/regression_sets.py. river stands behind its MinMaxScaler, as its documentation asks for.
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


def scores(peer: Peer, paths: list[Path]) -> dict[str, float]:
    """Mean over the seeds of what the peer reaches."""
    asked = [
        peer.ask("numbers", path=str(path), rows=EVERY_ROW, seed=seed, settings={}) for seed, path in enumerate(paths)
    ]
    return {column: mean(answer[column] for answer in asked) for column in asked[0]}


def main() -> None:
    print("\nRegressors: 10 trees, one thread, all rows, mean over five seeds", flush=True)
    try:
        with catalogue.ours() as ours, catalogue.river() as river:
            print(
                f"{'':<18} {'river RMSE':>11} {'ours':>9} {'ratio':>6} {'coverage':>9} {'samples/s':>10} {'times':>7}"
            )
            for name, paths in regression_sets().items():
                show(name, scores(ours, paths), scores(river, paths))
    except PeerMissingError as reason:
        print(f"No table: {reason}")


def show(name: str, own: dict[str, float], other: dict[str, float]) -> None:
    """Print the line of one set."""
    ratio, times = own["rmse"] / other["rmse"], own["prequential"] / other["prequential"]
    rmse = f"{number(other['rmse'], 4):>11} {number(own['rmse'], 4):>9} {ratio:>6.3f}"
    rest = f"{own['coverage']:>9.3f} {own['prequential']:>10,.0f} {times:>7.0f}"
    print(f"{name:<18} {rmse} {rest}   RMSE {at_most(1).verdict(ratio)}; coverage to be near 0.9", flush=True)
