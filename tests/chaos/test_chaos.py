"""A short selection of the fault matrix on a real broker; `make chaos` is the long one."""

from __future__ import annotations

import pytest

from tests.chaos.arena import Arena
from tests.chaos.cluster import Cluster, Setup
from tests.chaos.runner import in_order, run

pytestmark = [pytest.mark.kafka, pytest.mark.full]

SEED = 5  # change it to try others; a failure prints it with every fault


@pytest.mark.parametrize(
    ("faults", "cluster"),
    [
        (["kill@learned", "kill@offsets-sent", "commit-answer-lost"], Setup()),
        (["broker-kill", "cut", "late-commit"], Setup()),
        (["kill@segment-written", "kill@replayed", "kill@revoked", "store-dead"], Setup(identities="dynamic")),
        (["leader-moves", "storm", "zombie"], Setup(3, 24, "consumer", "mixed")),
        (["disk-full", "clock-jumps", "offsets-expired"], Setup(store="file")),
    ],
    indirect=["cluster"],
    ids=lambda value: "+".join(value) if isinstance(value, list) else "",
)
def test_no_fault_shows(cluster: Cluster, faults: list[str]):
    with Arena(cluster, SEED, workers=2) as arena:
        outcome = run(arena, in_order(SEED, faults))
    assert outcome.good, outcome.report()
    assert not outcome.missed, outcome.report()
    assert outcome.verdict.records > 0
    assert outcome.verdict.checkpoints > 0
