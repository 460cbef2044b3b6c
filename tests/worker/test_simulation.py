"""Thousands of schedules of faults, each equal to a run without any; and proof that a mistake would not pass.

AMF_SIMULATIONS sets how many schedules there are, of which the quick check runs the first part alone; seed n is the
same schedule everywhere and every time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import pytest

from tests.worker.support import plan
from tests.worker.support.disasters import DISASTERS, SEVERAL
from tests.worker.support.mistakes import MISTAKES, SEEN_AT, SEEN_WITHIN, first_seen
from tests.worker.support.simulation import Simulation
from worker.base.records import Outgoing
from worker.runtime import executor
from worker.task import task

SCHEDULES = int(os.environ.get("AMF_SIMULATIONS", "10000"))
PART = 200
QUICK = range(PART)
COUNTED = range(PART, PART + 500)
"""Schedules in which faults and disasters are counted."""
OF_OTHERS = range(20)
"""Schedules of each algorithm that the others do not hold; the quick check runs the first ones."""


pytestmark = pytest.mark.usefixtures("quiet")


def parts() -> Iterator[object]:
    """All schedules that are not run to be counted, so many at a time."""
    yield pytest.param(QUICK[:SCHEDULES], id="quick")
    for first in range(COUNTED.stop, SCHEDULES, PART):
        part = range(first, min(first + PART, SCHEDULES))
        yield pytest.param(part, marks=pytest.mark.full, id=f"{part.start}-{part.stop - 1}")


@pytest.mark.parametrize("seeds", [*parts()])
def test_no_schedule_of_faults_changes_an_output_or_a_checkpoint(seeds: range) -> None:
    for seed in seeds:
        Simulation(seed).run()


def test_models_that_start_anew_with_the_last_process_too_leave_no_checkpoint_behind() -> None:
    """What changed out of band is committed before a process stops, or the next one changes and saves it again."""
    Simulation(18842).run()


def test_a_delta_whose_base_is_restored_has_its_models() -> None:
    """It stays at the offset of the newest checkpoint, and they are not cleaned away before it is."""
    Simulation(3001083).run()


@pytest.mark.parametrize("seeds", [OF_OTHERS[:4], pytest.param(OF_OTHERS[4:], marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("algorithm", plan.OTHER_ALGORITHMS)
def test_no_schedule_of_faults_changes_models_of_another_algorithm(
    algorithm: str, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ALGORITHMS", (algorithm,))
    for seed in seeds:
        Simulation(seed).run()


@pytest.mark.parametrize("seeds", [OF_OTHERS, pytest.param(range(20, 400), marks=pytest.mark.full)], ids=str)
def test_no_schedule_of_faults_changes_anything_where_batches_end_before_all_is_taken(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do where records and outputs are megabytes; a transaction is full with a few of them, too."""
    monkeypatch.setattr(executor, "GATHERED_BYTES", 400)
    monkeypatch.setattr(task, "ANSWERS_BYTES", 1100)
    for seed in seeds:
        Simulation(seed).run()


@pytest.mark.parametrize("seeds", [OF_OTHERS, pytest.param(range(20, 400), marks=pytest.mark.full)], ids=str)
def test_no_schedule_changes_anything_where_a_thread_is_overtaken_by_its_loop_and_requests_by_later_ones(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere a checkpoint is written while its process does nothing else; and what the store lists is one moment."""
    monkeypatch.setattr(plan, "FAULTS", plan.BESIDE)
    counts = Counter[str]()
    for seed in seeds:
        Simulation(seed, counts=counts).run()
    assert min(counts["overtaken"], counts["late write"], counts["torn list"]) >= 10


@pytest.mark.parametrize("seeds", [OF_OTHERS, pytest.param(range(20, 400), marks=pytest.mark.full)], ids=str)
def test_no_schedule_of_several_disasters_changes_an_output_or_a_checkpoint(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "DISASTERS", tuple(SEVERAL))
    for seed in seeds:
        Simulation(seed).run()


@pytest.mark.full
def test_the_schedules_hold_every_fault_every_disaster_and_models_of_both_kinds() -> None:
    """None of them changes an output or a checkpoint either."""
    counts, said = Counter[str](), Counter[str]()
    for seed in COUNTED:
        simulation = Simulation(seed, counts=counts)
        simulation.run()
        if seed in COUNTED[:120]:
            said.update(kinds_of_forecasts(simulation.broker.published))
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
    assert min(said["probabilities"], said["quantiles"]) > 100


def kinds_of_forecasts(published: Iterable[Outgoing]) -> Iterator[str]:
    """The field that a classifier has filled in a prediction, or a regressor."""
    for output in published:
        if output.topic == "predictions" and output.value:
            value = msgspec.json.decode(output.value)
            yield from (kind for kind in ("probabilities", "quantiles") if value.get(kind))


def test_a_seed_is_one_schedule() -> None:
    first, second = Simulation(7), Simulation(7)
    first.run()
    second.run()
    assert first.broker.published == second.broker.published != []
    assert first.store.objects == second.store.objects
    assert first.counts == second.counts


@pytest.mark.parametrize("name", SEEN_AT)
def test_a_mistake_is_seen_within_so_many_schedules(name: str) -> None:
    # The seed that is known saves a search of minutes; where schedules have changed since, there is one.
    seeds = [SEEN_AT[name], *range(SEEN_WITHIN)]
    assert first_seen(name, seeds) is not None


def test_a_schedule_is_known_for_every_mistake_and_comes_soon() -> None:
    assert SEEN_AT.keys() == MISTAKES.keys(), "find a schedule: python -m tests.worker.support.mistakes NAME"
    assert max(SEEN_AT.values()) < SEEN_WITHIN
