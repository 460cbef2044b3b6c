"""A new version of the learner comes one worker at a time, while the others go on with the present one."""

from __future__ import annotations

import pytest

import amf
from tests.chaos.arena import Arena
from tests.chaos.cluster import PREDICTIONS, Cluster
from tests.chaos.faults.workers import NEXT_ENGINE, roll
from tests.kafka.broker import read_all

pytestmark = [pytest.mark.kafka, pytest.mark.full]

SEED = 5


def test_in_a_rolling_upgrade_no_version_replays_what_another_one_predicted(cluster: Cluster):
    with Arena(cluster, SEED, workers=2) as arena:
        for altered in (["--engine", NEXT_ENGINE], None):
            arena.await_progress()
            roll(arena, altered)
            arena.await_progress()
            # Where the group rebalances in the middle of a transaction the next owner has records to replay: one of the
            # same version does, one of another would stop.
            assert not any(value for _, value in arena.fleet.metric("amf_partition_stops_total"))
        verdict = arena.finish()
    assert verdict.good, verdict
    assert arena.fleet.exits == []
    made_by = {dict(message.headers)["engine"] for message in read_all(cluster.bootstrap, PREDICTIONS)}
    assert made_by == {amf.ENGINE.encode(), NEXT_ENGINE.encode()}
