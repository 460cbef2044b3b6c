"""Answers and rows that are large: memory follows from bytes, not from how many records there are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from tests.worker.support.bench import Bench, gathering
from tests.worker.support.fakes import config
from tests.worker.support.tasks import labelled, partition, records, state
from worker.base.records import Record
from worker.runtime import executor
from worker.runtime.executor import GATHERED_BYTES
from worker.state import many_models, model
from worker.task import task
from worker.task.task import ANSWERS_BYTES, Task

MIB = 2**20
ASKED = ("k", {"features": [1.0]})
NAMES = [f"{n:0128d}" for n in range(999)]


def of_many_classes(n_asked: int) -> list[Record]:
    """Events that bring the names of a thousand classes, and as many without a label behind them."""
    return records(*(labelled("k", float(n), name) for n, name in enumerate(NAMES)), *[ASKED] * n_asked)


def peak_bytes(here: Task, source: Sequence[Record], most_bytes: int | None) -> tuple[int, int]:
    """What taking records takes at most, beside them; and how many were taken."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        taken = here.process(source, most_bytes=most_bytes).n_taken
        return tracemalloc.get_traced_memory()[1] - before, taken
    finally:
        tracemalloc.stop()


def test_a_batch_ends_where_its_outputs_are_large() -> None:
    source, here = of_many_classes(4000), partition(config())
    peak, taken = peak_bytes(here, source, GATHERED_BYTES)
    assert len(NAMES) / 2 < taken < len(source) / 2
    assert here.position == taken
    assert peak < 4 * (ANSWERS_BYTES + GATHERED_BYTES)


def test_parts_that_end_early_are_the_same_records_with_the_same_outputs() -> None:
    source, whole, parts = of_many_classes(300), partition(config()), partition(config())
    expected = whole.process(source).outgoing
    found, left, batches = [], source, 0
    while left:
        result = parts.process(left, most_bytes=2 * MIB)
        found += result.outgoing
        left, batches = left[result.n_taken :], batches + 1
    assert found == expected
    assert batches > 10
    assert state(parts) == state(whole)


def test_what_a_model_was_given_before_it_learned_counts_as_well() -> None:
    here = partition(config(n_estimators=1, classes=tuple(NAMES)))
    source = records(*((f"k{n}", {"features": [1.0]}) for n in range(4000)))
    assert here.process(source, most_bytes=GATHERED_BYTES).n_taken < 1000


def test_few_classes_end_no_batch() -> None:
    source = records(*(labelled(f"k{n % 64}", float(n), n % 10) for n in range(10_000)))
    assert partition(config()).process(source, most_bytes=GATHERED_BYTES).n_taken == len(source)


@pytest.mark.parametrize("is_known", [False, True])
def test_rows_of_a_wide_model_are_not_all_made_at_once(is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty events bring two thousand names, and each of those behind them has one."""
    few_cells(monkeypatch)
    wide = [{f"f{n}": 1.0 for n in range(event, 2000, 20)} for event in range(20)]
    first = records(*(("k", {"features": each, "label": n % 2}) for n, each in enumerate(wide)))
    thin = records(*(("k", {"features": {"f1": float(n)}}) for n in range(2000)))
    here = partition(config(n_estimators=1))
    if is_known:
        here.process(first)
    peak, _ = peak_bytes(here, thin if is_known else first + thin, None)
    assert peak < len(thin) * 2000 * 8 / 2


def test_wide_models_side_by_side_are_what_each_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """More cells than one call may have: models pass in several."""
    few_cells(monkeypatch)
    keys = [f"k{n}" for n in range(6)]
    names = [f"f{n}" for n in range(1000)]
    source = records(
        *((key, {"features": dict.fromkeys(names, 0.0), "label": n}) for n in range(2) for key in keys),
        *((key, {"features": {names[n]: float(n)}, "label": n % 2}) for n in range(100) for key in keys),
    )
    together, apart = (partition(config(n_estimators=1)) for _ in range(2))
    # The first two of those that lack nearly all names bring a column for each, which says so.
    outputs = together.process(source[:24]).outgoing
    with patch.object(many_models, "_pass", side_effect=many_models._pass) as passes:
        outputs += together.process(source[24:]).outgoing
    assert passes.call_count == 3
    assert outputs == [output for record in source for output in apart.process([record]).outgoing]
    assert state(together) == state(apart)


def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer than these tests have."""
    for module in (model, many_models):
        monkeypatch.setattr(module, "MOST_CELLS", 200_000)


def test_a_transaction_is_committed_once_it_has_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is not due, and what a batch has left is taken next."""
    monkeypatch.setattr(executor, "GATHERED_BYTES", 2000)
    monkeypatch.setattr(task, "ANSWERS_BYTES", 4000)
    bench = Bench()
    worker = gathering(bench)
    bench.feed(*"abcdefghijklmnopqrstuvwxyz")
    turns = 0
    while worker.position(0) < 26:
        worker.turn()
        turns += 1
    assert 3 < turns < 26
    assert worker.outcomes()["committed"] >= turns - 1
    bench.clock.now_s += 10
    worker.turn()
    assert (bench.published(), bench.broker.committed) == (bench.expected(), {0: 26})
