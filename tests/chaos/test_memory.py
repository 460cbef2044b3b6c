"""A worker whose models are at their caps takes no more memory, however many events come."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from tests.chaos.cluster import EVENTS, Cluster, Setup
from tests.chaos.events import KEYS, Generator
from tests.chaos.fleet import Fleet
from tests.kafka.broker import committed_offsets

pytestmark = [pytest.mark.kafka, pytest.mark.full]

SEED = 5
CAP = 64 * 2**10
FILLING, MORE, TIMES = 60_000, 40_000, 5
MOST_GROWTH = 3 * 2**20
"""In a window of `MORE` events: a leak of 80 bytes an event is seen."""
WITHIN_S = 300.0


def work_off(cluster: Cluster, fleet: Fleet, generator: Generator, events: int) -> None:
    for _ in range(0, events, 10_000):
        generator.send(10_000)
        generator.flush()
    ends = cluster.ends(EVENTS)
    found = fleet.await_that(
        lambda: committed_offsets(cluster.bootstrap, cluster.setup.group, EVENTS) == ends, WITHIN_S
    )
    assert found, "not worked off"


@pytest.mark.parametrize("cluster", [Setup(model_bytes="64KB")], indirect=True, ids=[""])
def test_full_models_stay_as_large_as_they_are(cluster: Cluster):
    generator = Generator(cluster.bootstrap, SEED, rate=0)
    with Fleet(cluster) as fleet:
        fleet.start("w0")
        work_off(cluster, fleet, generator, FILLING)
        resident = [fleet.resident_bytes("w0")]
        for _ in range(TIMES):
            work_off(cluster, fleet, generator, MORE)
            resident.append(fleet.resident_bytes("w0"))
        [(_, models)] = fleet.metric("amf_model_bytes")
        fleet.terminate("w0")
    assert fleet.exits == []
    assert models <= KEYS * CAP
    # Once in a while a buffer or the allocator takes a few megabytes more, and keeps them; a leak grows every time.
    growth = median(after - before for before, after in pairwise(resident))
    assert growth < MOST_GROWTH, f"{resident} bytes, {MORE:,} events apart"
