"""A partition that has no leader holds up no other one."""

from __future__ import annotations

import time

import pytest

from tests.chaos.arena import Arena
from tests.chaos.cluster import EVENTS, Cluster, Setup

pytestmark = [pytest.mark.kafka, pytest.mark.full]

SEED = 5
RATE = 100.0
"""What the partition is sent meanwhile waits in the generator, which has a limit."""
OUTAGE_S = 60.0
SILENCE_S = 45.0
"""Longest silence of the others. It is some seconds, on a busy machine more: leaders and coordinators move, too."""
POLL_S = 0.5


@pytest.mark.parametrize("cluster", [Setup(nodes=3, partitions=3, input_is_copied=False)], indirect=True, ids=[""])
def test_the_others_go_on_and_what_was_missing_is_made_up_for(cluster: Cluster):
    with Arena(cluster, SEED, workers=2, rate=RATE) as arena:
        arena.await_settled()
        arena.await_progress()
        leaders = {number: cluster.broker.leader(EVENTS, number) for number in range(cluster.setup.partitions)}
        assert len({each.number for each in leaders.values()}) == len(leaders)
        leaders[0].kill()
        silences = silences_of(arena, OUTAGE_S)
        leaders[0].start()
        cluster.broker.await_in_sync()
        arena.await_progress()
        verdict = arena.finish()
    print(f"longest silence in {OUTAGE_S:g} s: {silences}")
    assert verdict.good, verdict
    assert arena.fleet.exits == []
    assert silences.pop(0) > OUTAGE_S / 2
    assert max(silences.values()) < SILENCE_S


def silences_of(arena: Arena, seconds: float) -> dict[int, float]:
    """The longest time in which no record of a partition was committed, by what the workers count.

    Nobody is asked who has to look for the new leaders himself.
    """
    began, partitions = time.monotonic(), range(arena.cluster.setup.partitions)
    known, longest = dict.fromkeys(partitions, 0.0), dict.fromkeys(partitions, 0.0)
    moved_at = dict.fromkeys(partitions, began)
    while (now := time.monotonic()) < began + seconds:
        arena.fleet.supervise()
        counts = dict.fromkeys(partitions, 0.0)
        for labels, value in arena.fleet.metric("amf_partition_events_total"):
            counts[int(labels["partition"])] += value
        for number in partitions:
            longest[number] = max(longest[number], now - moved_at[number])
            if counts[number] != known[number]:
                known[number], moved_at[number] = counts[number], now
        time.sleep(POLL_S)
    return longest
