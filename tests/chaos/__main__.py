"""Faults against a system under load, and a verdict; exit code 1 if any of them shows.

python -m tests.chaos --minutes 60                        all faults, at random, for an hour
python -m tests.chaos --minutes 60 --nodes 3              the same with three nodes, whose leaders move
python -m tests.chaos --faults storm --minutes 10 --partitions 24 --workers 6 --identities mixed --protocol consumer
python -m tests.chaos --faults store-dead --times 1       the store is away for ten minutes
python -m tests.chaos --faults broker-bounce --times 20   the broker is stopped twenty times
"""

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
from tests.chaos.runner import Strike, draw, in_order, run


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    setup = Setup(
        options.nodes, options.partitions, options.protocol, options.identities, options.store, options.session
    )
    names = _chosen(options.faults, setup)
    if not names or not (options.times or any(FAULTS[name].weight for name in names)):
        parser.error(f"--faults {options.faults} leaves nothing to draw from for {setup}; see tests/chaos/faults")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="amf-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, logs in {folder}", flush=True)
    with (
        Cluster(folder, setup) as cluster,
        Arena(cluster, seed, workers=options.workers, rate=options.rate, outage_s=60 * options.outage) as arena,
    ):
        in_turn, at_random = in_order(seed, names, options.times), draw(seed, names)
        strikes = in_turn if options.times else _lasting(60 * options.minutes, at_random)
        outcome = run(arena, strikes, lambda line: print(line, flush=True))
    print(outcome.report())
    return 0 if outcome.good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seed", type=int, default=None, help="repeats the choices of a run (default: a new one)")
    add("--faults", default="*", help="patterns of names, separated by commas, such as 'kill@*,zombie'")
    add("--minutes", type=float, default=2.0, help="how long faults are drawn at random")
    add("--times", type=int, default=0, help="instead: each fault so many times, one after the other")
    add("--outage", type=float, default=10.0, help="minutes that store-dead and disk-full last")
    add("--nodes", type=int, choices=[1, 3], default=1, help="of Kafka, each with a copy of everything")
    add("--partitions", type=int, default=4)
    add("--workers", type=int, default=3)
    add("--protocol", choices=["classic", "consumer"], default="classic")
    add("--identities", choices=["static", "dynamic", "mixed"], default="static", help="who has a group.instance.id")
    add("--store", choices=["s3", "file"], default="s3")
    add("--session", type=float, default=6.0, help="seconds of silence after which a worker has left the group")
    add("--rate", type=float, default=300.0, help="events per second")
    add("--folder", type=Path, default=None, help="for the logs of the workers (default: a new one)")
    return parser


def _chosen(patterns: str, setup: Setup) -> list[str]:
    """Names of the faults that match one of the patterns and find in such a run what they harm."""
    matching = (name for name in FAULTS if any(fnmatchcase(name, pattern) for pattern in patterns.split(",")))
    return sorted(name for name in matching if FAULTS[name].suits(setup))


def _lasting(seconds: float, strikes: Iterator[Strike]) -> Iterator[Strike]:
    """Strikes until so much time has passed since the first was asked for."""
    started = time.monotonic()
    for strike in strikes:
        if time.monotonic() - started >= seconds:
            return
        yield strike


if __name__ == "__main__":
    sys.exit(main())
