"""The benchmarks: `python -m tests.bench` runs all but the long ones, `python -m tests.bench NAME ...` those named.

    start        an empty process to its first forecast
    classifiers  the table: ours beside onelearn, river and MOA on the shared sets (AMF_DATA), 10 trees
    regressors   ours beside river's on the sets that come with river and scikit-learn
    quality      long: log-loss on eleven sets, beside refitted batch learners and river's forests
    imbalance    long: rare positives, beside the same
    noise        long: labels without a signal, beside the same
    small        many small forests, calls for a single event
    bytes        saving and loading
    worker       one worker end to end beside a bare pass-through loop, and its replay
    quix         one worker end to end beside Quix Streams with river's forests
    latency      long: from an event's time to its prediction at half load, by transaction.interval
    keys         long: 100,000 models in half of the memory that they need
    recovery     long: kill -9, SIGTERM and a rolling restart under load
    pause        long: what a checkpoint of 1 GB keeps the loop from its work, and one of a model of 500 MB
    moving       long: streams that change under a forest which is full
    growth       long: one tree up to ten million samples
    endless      long: twenty million events through 64 MB

Targets stand beside the figures; with `--scale 0.1` those with Kafka are a tenth of their size, for a look at what they
do, and --rows, --seeds, --trees and --peers say how much of quality, imbalance and noise is run. The other peers are
installed into .cache on first use; one that cannot run here is left out, with the reason.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import (
    classifiers,
    endless,
    growth,
    imbalance,
    keys,
    latency,
    moving,
    noise,
    pause,
    quality,
    quix,
    recovery,
    regressors,
    serialization,
    small,
    start,
    worker,
)
from tests.bench.contenders import PEERS
from tests.bench.size import Size

USUAL = {
    "start": start.main,
    "classifiers": classifiers.main,
    "regressors": regressors.main,
    "small": small.main,
    "bytes": serialization.main,
}
WITH_KAFKA = {"worker": worker.main, "quix": quix.main}
LONG = {"pause": pause.main, "moving": moving.main, "growth": growth.main, "endless": endless.main}
LONG_WITH_KAFKA = {"latency": latency.main, "keys": keys.main, "recovery": recovery.main}
QUALITY = {"quality": quality.main, "imbalance": imbalance.main, "noise": noise.main}


def _whole_numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _peers(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if unknown := [name for name in names if name not in PEERS]:
        raise argparse.ArgumentTypeError(f"no peer {unknown[0]!r}; there are: {', '.join(PEERS)}")
    return names


def main() -> None:
    scaled = {**WITH_KAFKA, **LONG_WITH_KAFKA}
    benchmarks = {**USUAL, **LONG, **scaled, **QUALITY}
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(benchmarks))
    parser.add_argument("--scale", type=float, default=1.0, help=f"size of {', '.join(scaled)} (default: 1)")
    of_quality = parser.add_argument_group(", ".join(QUALITY))
    of_quality.add_argument("--rows", type=int, help="rows of a set at most")
    of_quality.add_argument("--seeds", type=int, help="how many")
    of_quality.add_argument("--trees", type=_whole_numbers, help="of our forests, such as 10,20; 0: without ours")
    of_quality.add_argument("--peers", type=_peers, default=(*PEERS,), help=f"of {','.join(PEERS)}; '': none")
    asked = parser.parse_args()
    wanted = asked.names or [*USUAL, *WITH_KAFKA]
    if unknown := [name for name in wanted if name not in benchmarks]:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(benchmarks)}")
    for name in wanted:
        if name in scaled:
            scaled[name](asked.scale)
        elif name in QUALITY:
            QUALITY[name](Size(asked.rows, asked.seeds, asked.trees, asked.peers))
        else:
            benchmarks[name]()


if __name__ == "__main__":
    main()
