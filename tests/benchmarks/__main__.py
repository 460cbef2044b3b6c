"""The benchmarks: `python -m tests.benchmarks` runs all but the long ones, `... NAME ...` those named.

    start        an empty process to its first forecast
    classifiers  the table: ours beside onelearn, river and MOA on the shared sets (AMF_DATA), 10 trees
    regressors   ours beside river's on the sets that come with river and scikit-learn
    quality      long: log-loss on eleven sets, beside refitted batch learners and river's forests
    imbalance    long: rare positives, beside the same
    noise        long: labels without a signal, beside the same
    irrelevant   long: a hundred features that tell nothing, beside the same
    time         long: the number of the row as a feature, where nothing changes and where something does
    real         long: some 250 labels of real tables, beside refitted batch learners
    order        long: labels that come sorted, late, or in another unit
    drift        long: streams of MOA's generators that change, adaptive forests beside MOA's
    small        many small forests, calls for a single event
    bytes        saving and loading
    metrics      what the metrics cost, in CPU time per event
    turns        an event's share of a turn in CPU time, beside a call of the learner for each model
    image        long: a worker of the image, from the start of its process to its first poll
    worker       one worker end to end beside a bare pass-through loop, and its replay
    quix         one worker end to end beside Quix Streams with river's forests
    latency      long: from an event's time to its prediction at half load, by transaction.interval
    few          long: the latency of two models that change among 80,000
    keys         long: 100,000 models in half of the memory that they need
    scaling      long: events/s over the processes of a group and the threads of one, for a machine of many cores
    recovery     long: kill -9, SIGTERM and a rolling restart under load
    page         long: what 20 requests a second and a flood cost a worker at full speed
    cost         long: what a checkpoint costs of which one model has changed among very many
    pause        long: what a checkpoint of 1 GB keeps the loop from its work, and one of a model of 500 MB
    moving       long: streams that change under a forest which is full
    growth       long: one tree up to ten million samples
    endless      long: twenty million events through 64 MB
    worlds       long: the same, another world every million, through one adaptive forest

Targets stand beside the figures; with `--scale 0.1` those with Kafka are a tenth of their size, for a look at what they
do, and --rows, --seeds, --trees and --peers say how much of those of quality and of drift is run. The other peers
are installed into .cache on first use; one that cannot run here is left out, with the reason.
"""

from __future__ import annotations

import argparse
import sys

from tests.benchmarks.learners import (
    bounded_memory,
    classifiers,
    cold_start,
    concept_drift,
    full_forest,
    growth,
    imbalance,
    irrelevant_features,
    label_noise,
    label_order,
    many_worlds,
    quality,
    real_tables,
    regressors,
    serialization,
    small_forests,
    time_as_feature,
)
from tests.benchmarks.learners.baselines import PEERS
from tests.benchmarks.learners.options import Options
from tests.benchmarks.worker import (
    checkpoint_cost,
    checkpoint_pause,
    few_of_many,
    image_start,
    latency,
    many_models,
    metrics_cost,
    page_cost,
    quix_streams,
    recovery,
    scaling,
    throughput,
    turns,
)

USUAL = {
    "start": cold_start.main,
    "classifiers": classifiers.main,
    "regressors": regressors.main,
    "small": small_forests.main,
    "bytes": serialization.main,
    "metrics": metrics_cost.main,
    "turns": turns.main,
}
WITH_KAFKA = {"worker": throughput.main, "quix": quix_streams.main}
LONG = {
    "image": image_start.main,
    "cost": checkpoint_cost.main,
    "pause": checkpoint_pause.main,
    "moving": full_forest.main,
    "growth": growth.main,
    "endless": bounded_memory.main,
    "worlds": many_worlds.main,
}
LONG_WITH_KAFKA = {
    "latency": latency.main,
    "few": few_of_many.main,
    "keys": many_models.main,
    "scaling": scaling.main,
    "recovery": recovery.main,
    "page": page_cost.main,
}
QUALITY = {
    "quality": quality.main,
    "imbalance": imbalance.main,
    "noise": label_noise.main,
    "irrelevant": irrelevant_features.main,
    "time": time_as_feature.main,
    "order": label_order.main,
    "real": real_tables.main,
    "drift": concept_drift.main,
}


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
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
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
            QUALITY[name](Options(asked.rows, asked.seeds, asked.trees, asked.peers))
        else:
            benchmarks[name]()


if __name__ == "__main__":
    main()
