"""The worker beside Quix Streams with river's AMFClassifier: one broker, the same events, both exactly-once.

    python -m tests.benchmarks quix

64 keys, 10-feature JSON, 10 trees. The peer gets fewer events, as it needs a thousandth of a second for each; its trees
stay smaller by that, which is to its advantage. See peers/scripts/with_quix.py for what it keeps where.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Message

from tests.benchmarks.peers import catalogue
from tests.benchmarks.peers.process import PeerMissingError
from tests.benchmarks.report import at_least, show
from tests.benchmarks.worker.output_reader import Tail
from tests.benchmarks.worker.pass_through import EVENTS
from tests.benchmarks.worker.testbed import Testbed, wait_for
from tests.benchmarks.worker.throughput import live_rate
from tests.benchmarks.worker.workload import load
from tests.kafka.broker import Broker

PEER_WARM_UP = 5_000
PEER_EVENTS = 20_000


class Progress:
    """How many outputs were there when."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, int]] = [(time.time(), 0)]

    def take(self, now: float, records: list[Message]) -> None:
        self.moments.append((now, self.moments[-1][1] + len(records)))

    def rate(self, first: int, last: int) -> float:
        """Outputs/s from when the first `first` were there to when the first `last` were."""
        started, at_start = next(each for each in self.moments if each[1] >= first)
        ended, at_end = next(each for each in self.moments if each[1] >= last)
        return (at_end - at_start) / (ended - started)


def peer_rate(bed: Testbed, warm_up: int, n: int) -> float:
    """Outputs/s of the peer, committed and read, from the first `warm_up` to the first `n`."""
    progress = Progress()
    with (
        catalogue.quix(bed.bootstrap, bed.source, bed.sink("quix"), bed.folder) as peer,
        Tail(bed.bootstrap, bed.sink("quix"), progress.take),
    ):

        def enough() -> bool:
            peer.require_alive()
            return progress.moments[-1][1] >= n

        wait_for(f"{n} outputs of the peer", enough)
    return progress.rate(warm_up, n)


def main(scale: float = 1.0) -> None:
    n, warm_up, peer_n = (int(scale * full) for full in (EVENTS, PEER_WARM_UP, PEER_EVENTS))
    with Broker() as broker, Testbed(broker) as bed:
        load(bed.bootstrap, bed.source, n)
        try:
            peer = peer_rate(bed, warm_up, peer_n)
        except PeerMissingError as reason:
            sys.exit(f"quix: {reason}")
        worker, live = live_rate(bed, n)
        worker.kill()
    print("\nQuix Streams and river beside the worker: 64 keys, 10 features, 10 trees, exactly-once, one broker")
    print(f"worker: {live:,.0f} events/s over {n:,} events")
    print(f"peer:   {peer:,.0f} events/s over events {warm_up:,} to {peer_n:,}, its models in a dict")
    show("worker / Quix Streams with river", live / peer, at_least(40))
