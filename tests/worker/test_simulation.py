"""Thousands of schedules of faults, each equal to a run without any; and proof that a mistake would not pass.

AMF_SIMULATIONS sets how many schedules there are, of which the quick check runs the first part alone; seed n is the
same schedule everywhere and every time.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from tests.worker.support import plan
from tests.worker.support.disasters import DISASTERS
from tests.worker.support.mistakes import MISTAKES, SEEN_AT, SEEN_WITHIN, first_seen
from tests.worker.support.simulation import Simulation

SCHEDULES = int(os.environ.get("AMF_SIMULATIONS", "10000"))
PARTS = 50
OF_OTHERS = range(20)
"""Schedules of each algorithm that the others do not hold; the quick check runs the first ones."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The worker warns of every fault; to format that would take longer than the schedules."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.full) for part in range(1, PARTS))])
def test_no_schedule_of_faults_changes_an_output_or_a_checkpoint(part: int) -> None:
    for seed in range(part, SCHEDULES, PARTS):
        Simulation(seed).run()


@pytest.mark.parametrize("seeds", [OF_OTHERS[:4], pytest.param(OF_OTHERS[4:], marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize(
    "algorithm",
    [
        "mondrian-classifier",
        "mondrian-regressor",
        "increasing-lifetime-classifier",
        "increasing-lifetime-regressor",
        "bsp-classifier",
        "bsp-regressor",
        "adaptive-classifier",
        "adaptive-regressor",
    ],
)
def test_no_schedule_of_faults_changes_models_of_another_algorithm(
    algorithm: str, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ALGORITHMS", (algorithm,))
    for seed in seeds:
        Simulation(seed).run()


@pytest.mark.full
def test_the_schedules_hold_every_fault_and_disaster() -> None:
    counts: Counter[str] = Counter()
    for seed in range(500):
        Simulation(seed, counts=counts).run()
    rare = {"late commit"}
    faults = {
        "Abort",
        "Transient",
        "Unknown",
        "crash",
        "damage",
        "hold",
        "loss",
        "rebalance",
        "spill damage",
        "unnoticed loss",
        "zombie",
    }
    assert counts.keys() == faults | rare | set(DISASTERS)
    assert min(counts[what] for what in faults | set(DISASTERS)) >= 10


@pytest.mark.full
def test_the_schedules_hold_models_of_every_algorithm() -> None:
    counts: Counter[str] = Counter()
    for seed in range(120):
        simulation = Simulation(seed)
        simulation.run()
        outputs = [output for output in simulation.broker.published if output.topic == "predictions" and output.value]
        for value in (msgspec.json.decode(output.value or b"") for output in outputs):
            counts["predictions"] += bool(value.get("probabilities"))
            counts["estimates"] += bool(value.get("quantiles"))
    assert min(counts["predictions"], counts["estimates"]) > 100


def test_a_seed_is_one_schedule() -> None:
    first, second = Simulation(7), Simulation(7)
    first.run()
    second.run()
    assert first.broker.published == second.broker.published != []
    assert first.store.objects == second.store.objects
    assert first.counts == second.counts


@pytest.mark.parametrize("name", SEEN_AT)
def test_a_mistake_is_seen_where_it_was_seen_before(name: str) -> None:
    # Where schedules have changed since, one of the first may do as well.
    seeds = [SEEN_AT[name], *range(20)]
    assert first_seen(name, seeds) is not None, "find another: python -m tests.worker.support.mistakes"


@pytest.mark.full
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen_soon(name: str) -> None:
    known_first = sorted(range(SEEN_WITHIN), key=lambda seed: seed != SEEN_AT.get(name))
    assert first_seen(name, known_first) is not None
