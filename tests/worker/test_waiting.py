"""A schema registry that is away: its partition waits, the others go on; afterwards all is as if nothing had been."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.worker.support.bench import Bench, Bound
from tests.worker.support.tasks import live
from worker.base.errors import Transient
from worker.base.records import Outgoing, Reject
from worker.base.series import ByPartition
from worker.runtime.loop import WAIT_S
from worker.task.allowance import Allowance
from worker.task.task import Task


class FakeRegistry:
    """Knows every schema, but gives no answer about those that are `away`; -1 is that of the predictions."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.asked = 0

    def _ask(self, number: int) -> None:
        self.asked += 1
        if number in self.away:
            raise Transient(f"schema {number} is away")

    def read_avro(self, value: bytes, n: int) -> object:
        raise NotImplementedError

    def check_json(self, value: bytes, n: int) -> Reject | None:
        self._ask(int.from_bytes(value[1:n]))
        return None

    def avro_writer(self, topic: str, schema: str, example: object) -> Callable[[object], bytes]:
        raise NotImplementedError

    def json_writer(self, topic: str, schema: str) -> Callable[[object], bytes]:
        self._ask(-1)
        return lambda text: b"\0\0\0\0\1" + str(text).encode()


@pytest.fixture
def registry() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def bench(registry: FakeRegistry) -> Bench:
    bench = Bench(partitions=2, tombstones="reset", n_estimators=2)
    bench.setting = replace(bench.setting, registry=registry)
    bench.config = replace(
        bench.config,
        input=replace(bench.config.input, codec="json-schema"),
        output=replace(bench.config.output, codec="json-schema"),
    )
    return bench


def feed(bench: Bench, *schemas: int | None, partition: int = 0) -> None:
    """A labelled event for each id of a schema, and a tombstone for None."""
    log = bench.broker.logs[partition]
    for schema in schemas:
        text = json.dumps({"features": [log.high % 5], "label": "ab"[log.high % 2]}).encode()
        log.append(b"k", None if schema is None else b"\0" + schema.to_bytes(4) + text)


def expected(bench: Bench, partition: int = 0) -> list[Outgoing]:
    """Outputs with a registry that is always there."""
    reference = Task(partition, bench.config, bench.setting.max_message_bytes, registry=FakeRegistry())
    return live(reference).process(bench.broker.logs[partition].records).outgoing


def later(bench: Bench, worker: Bound, turns: int = 4) -> None:
    bench.clock.sleep(WAIT_S)
    worker.turns(turns)


def test_a_partition_waits_at_what_cannot_be_read_while_the_others_go_on(bench: Bench, registry: FakeRegistry) -> None:
    """What comes before that record is predicted, learned and committed."""
    feed(bench, 1, 1, 1, None, 1, 2, 1)
    feed(bench, 1, 1, partition=1)
    registry.away = {2}
    worker = bench.worker().join()
    worker.turns(4)
    before = expected(bench, 0)[:5]
    assert bench.published(0) == before
    assert bench.broker.committed == {0: 5, 1: 2}
    assert bench.published(1) == expected(bench, 1)
    for _ in range(5):
        feed(bench, 1, partition=1)
        later(bench, worker)
    assert bench.published(0) == before
    assert bench.published(1) == expected(bench, 1)
    lags = worker.metrics.consumer_lag_records.series()
    assert lags == {ByPartition(0): 2, ByPartition(1): 0}, "what was read and is to be read again is not taken yet"
    registry.away = set()
    later(bench, worker)
    feed(bench, 2, 1)
    later(bench, worker)
    assert bench.published(0) == expected(bench, 0)
    assert worker.stops() == {}


def test_a_turn_asks_once_for_what_is_away(bench: Bench, registry: FakeRegistry) -> None:
    """Each question may take as long as a client waits for an answer."""
    worker = bench.worker().join(0)
    feed(bench, 1, 2)
    registry.away = {2}
    worker.turn()
    assert registry.asked == 3, "for the schema of the predictions, and for that of each event"


def test_what_the_client_says_of_a_partition_that_waits_is_not_of_its_next_record(
    bench: Bench, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(bench, 1, 2, 1)
    registry.away = {2}
    worker = bench.worker().join(0)
    worker.turns(2)
    assert worker.input.paused == {0}
    consume = worker.input.consume
    monkeypatch.setattr(worker.input, "consume", lambda *wanted: (consume(*wanted)[0], {0: "gone"}))
    worker.turn()
    monkeypatch.undo()
    registry.away = set()
    later(bench, worker)
    assert (worker.stops(), bench.published(0)) == ({}, expected(bench))


def test_between_two_attempts_nothing_is_read_or_asked(bench: Bench, registry: FakeRegistry) -> None:
    feed(bench, 2)
    registry.away = {2}
    worker = bench.worker().join(0)
    worker.turns(2)
    asked = registry.asked
    started_s = bench.clock.monotonic()
    while bench.clock.monotonic() < started_s + WAIT_S / 2:
        worker.turn()
        bench.clock.sleep(WAIT_S / 10)
    assert registry.asked == asked
    assert worker.input.paused == {0}
    later(bench, worker)
    assert registry.asked > asked


def test_that_a_partition_waits_is_said_once_and_so_is_that_it_waits_no_more(
    bench: Bench, registry: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be for hours."""
    caplog.set_level(logging.INFO, "worker")
    feed(bench, 1, 2)
    registry.away = {2}
    worker = bench.worker().join(0)
    for _ in range(3):
        later(bench, worker)
    registry.away = set()
    for _ in range(2):
        later(bench, worker)
        feed(bench, 1)
    said = [each.getMessage() for each in caplog.records if "waits" in each.getMessage()]
    assert said == ["partition 0 waits at offset 1: schema 2 is away", "partition 0 waits no more"]


def test_records_that_were_held_back_are_read_again_too(
    bench: Bench, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Allowance, "affordable", lambda self, records, model_key, models: 1)
    feed(bench, 1, 2, 1, 1)
    registry.away = {2}
    worker = bench.worker().join(0)
    worker.turns(6)
    registry.away = set()
    later(bench, worker, turns=8)
    assert bench.published(0) == expected(bench)


def test_a_run_with_ends_is_not_done_before_the_records_are_back_that_were_held_back(
    bench: Bench, registry: FakeRegistry
) -> None:
    feed(bench, 1, 2)
    bench.ends = {0: 2}
    registry.away = {2}
    worker = bench.worker().join(0)
    worker.turns(3)
    registry.away = set()
    bench.clock.sleep(WAIT_S)
    # It is read again, and the broker takes its time.
    worker.input.batch_records = lambda: 0
    worker.turn()
    assert not worker.is_done()
    worker.input.batch_records = lambda: 10
    worker.turns(3)
    assert worker.is_done()
    assert bench.published(0) == expected(bench)


def test_a_replay_waits_too(bench: Bench, registry: FakeRegistry) -> None:
    feed(bench, 1, 2, 1)
    first = bench.worker().join(0)
    first.turns(3)
    first.kill()
    registry.away = {2}
    second = bench.worker("two").join(0)
    second.turns(3)
    feed(bench, 1)
    later(bench, second)
    assert len(bench.published(0)) == 3
    registry.away = set()
    later(bench, second)
    assert bench.published(0) == expected(bench)


def test_nothing_is_learned_before_predictions_can_be_written(bench: Bench, registry: FakeRegistry) -> None:
    feed(bench, 1, 1, 1)
    registry.away = {-1}
    worker = bench.worker().join(0)
    worker.turns(3)
    later(bench, worker)
    assert bench.published(0) == []
    registry.away = set()
    later(bench, worker)
    assert bench.published(0) == expected(bench)


def test_a_partition_that_leaves_while_it_waits_is_forgotten(bench: Bench, registry: FakeRegistry) -> None:
    feed(bench, 2)
    registry.away = {2}
    worker = bench.worker().join(0, 1)
    worker.turns(3)
    other = bench.worker("two").join_idle()
    bench.broker.group.rebalance({0: other.input, 1: worker.input})
    later(bench, worker)
    registry.away = set()
    later(bench, other)
    assert bench.published(0) == expected(bench)
