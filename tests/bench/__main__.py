"""The benchmarks: `python -m tests.bench` runs all but the long ones, `python -m tests.bench NAME ...` those named.

    start        an empty process to its first forecast
    classifiers  the table: ours beside onelearn, river and MOA on the shared sets (AMF_DATA), 10 trees
    regressors   ours beside river's on the sets that come with river and scikit-learn
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
do. The peers are installed into .cache on first use; one that cannot run here is left out, with the reason.
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import (
    classifiers,
    endless,
    growth,
    keys,
    latency,
    moving,
    pause,
    quix,
    recovery,
    regressors,
    serialization,
    small,
    start,
    worker,
)

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


def main() -> None:
    scaled = {**WITH_KAFKA, **LONG_WITH_KAFKA}
    benchmarks = {**USUAL, **LONG, **scaled}
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(benchmarks))
    parser.add_argument("--scale", type=float, default=1.0, help=f"size of {', '.join(scaled)} (default: 1)")
    asked = parser.parse_args()
    wanted = asked.names or [*USUAL, *WITH_KAFKA]
    if unknown := [name for name in wanted if name not in benchmarks]:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(benchmarks)}")
    for name in wanted:
        if name in scaled:
            scaled[name](asked.scale)
        else:
            benchmarks[name]()


if __name__ == "__main__":
    main()
