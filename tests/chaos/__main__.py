"""`python -m tests.chaos --minutes 60`: random faults for so long; exit code 1 if any of them shows."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from tests.chaos.arena import Arena
from tests.chaos.cluster import Cluster, Setup
from tests.chaos.faults import FAULTS
from tests.chaos.runner import Strike, draw, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of a run (default: a new one)")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long faults are injected")
    parser.add_argument("--faults", default="*", help="patterns of names, separated by commas, such as 'kill@*,zombie'")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=float, default=300.0, help="events per second")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--dynamic", action="store_true", help="without group.instance.id")
    parser.add_argument("--folder", type=Path, default=None, help="for the logs of the workers (default: a new one)")
    arguments = parser.parse_args()
    names = sorted(name for name in FAULTS if any(fnmatchcase(name, p) for p in arguments.faults.split(",")))
    if not names:
        parser.error(f"no fault is called {arguments.faults}; there are {', '.join(sorted(FAULTS))}")
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="amf-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, logs in {folder}", flush=True)
    setup = Setup(arguments.partitions, arguments.protocol, not arguments.dynamic)
    with (
        Cluster(folder, setup) as cluster,
        Arena(cluster, seed, workers=arguments.workers, rate=arguments.rate) as arena,
    ):
        strikes = _lasting(60 * arguments.minutes, draw(seed, names))
        outcome = run(arena, strikes, lambda line: print(line, flush=True))
    print(outcome.report())
    return 0 if outcome.good else 1


def _lasting(seconds: float, strikes: Iterator[Strike]) -> Iterator[Strike]:
    """Strikes until so much time has passed since the first was asked for."""
    started = time.monotonic()
    for strike in strikes:
        if time.monotonic() - started >= seconds:
            return
        yield strike


if __name__ == "__main__":
    sys.exit(main())
