"""Offsets that are set back or ahead: what is predicted again or never, and that no model changes."""

from __future__ import annotations

import pytest

from tests.chaos.arena import Arena
from tests.chaos.cluster import EVENTS, Cluster, Setup

pytestmark = [pytest.mark.kafka, pytest.mark.full]

SEED = 5


@pytest.mark.parametrize("cluster", [Setup(on_rewind="accept")], indirect=True, ids=[""])
def test_set_back_predicts_again_and_set_ahead_skips_predictions_but_learns(cluster: Cluster):
    with Arena(cluster, SEED, workers=2) as arena:
        arena.await_progress()
        names = arena.stop_workers()
        committed = arena.committed()
        arena.generator.send(400)
        arena.generator.flush()
        end = cluster.ends(EVENTS)[1]
        back = committed[0] // 2
        cluster.move_group({0: back, 1: end})
        for name in names:
            arena.fleet.start(name)
        arena.await_progress()
        verdict = arena.finish()
    assert (verdict.duplicated, verdict.lost) == (committed[0] - back, end - committed[1])
    assert verdict.duplicated > 0
    assert verdict.lost > 0
    # Those that came twice are equal to the byte, and so is every state, also where nothing was predicted.
    assert verdict.differing + verdict.wrong_states + verdict.unfinished + verdict.open_transactions == 0, verdict
    assert arena.fleet.exits == []
