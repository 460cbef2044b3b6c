"""The loop against a broker, a store and a clock in memory: each fault by itself, and what the worker makes of it.

test_simulation.py puts them together at random.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError

from tests.worker.support.fake_broker import Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput
from tests.worker.support.fakes import FakeClock, FakePool, FakeStore, Faults, config
from tests.worker.support.stores import DictStore
from tests.worker.support.tasks import restore
from worker.adapters.kafka import decision
from worker.base.errors import Abort, Fatal, Refused, Transient, Unanswered, Unknown, WorkerError
from worker.base.metrics import Metrics
from worker.base.ports import Deadline, Gone
from worker.base.records import Label, Outgoing, Record
from worker.base.refusals import UNDECOMPRESSED, unreadable_records
from worker.base.retry import Retry, Stopped, backoff_s, retry
from worker.base.status import Board
from worker.checkpoint import Checkpoints, Location, Manifest
from worker.config import Config
from worker.runtime import loop
from worker.runtime.executor import LAST_ATTEMPTS
from worker.runtime.loop import REVOKE_S, WAIT_S, Worker
from worker.runtime.pending import LONGEST_PAUSE_S, PATIENCE
from worker.runtime.tasks import Pools, Setting
from worker.runtime.topic_monitor import TopicMonitor
from worker.runtime.transaction import REWOUND_S
from worker.task.checkpointer import Checkpointer
from worker.task.processor import Processor
from worker.task.restorer import LONGEST_RETRY_S, RETRY_S
from worker.task.task import Task

SETTING = Setting(topic_id="topic-id", partitions=1, max_message_bytes=1_000_000)


class Bench:
    """A broker, a store, and workers that share them."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.config: Config = config(**settings)
        self.clock = FakeClock()
        self.broker = Broker(partitions, self.clock)
        self.store = DictStore()
        self.setting = replace(SETTING, partitions=partitions)
        self.monitor: TopicMonitor | None = None
        self.ends: dict[int, int] | None = None

    def worker(self, name: str = "one", **settings: Any) -> Bound:
        return Bound(self, name, config(**settings) if settings else self.config)

    def feed(self, *labels: Label | None, partition: int = 0, key: str = "k") -> None:
        """One event for each label; None is an event without one."""
        log = self.broker.logs[partition]
        for label in labels:
            log.append(key.encode(), msgspec.json.encode({"features": [float(log.high % 5)], "label": label}))

    def feed_bad(self, n: int, partition: int = 0) -> None:
        for _ in range(n):
            self.broker.logs[partition].append(b"k", b"{")

    def checkpoints(self, partition: int = 0) -> Checkpoints:
        return Checkpoints(self.store, Location("group", "main", "events", "topic-id", partition))

    def newest(self, partition: int = 0) -> Manifest:
        manifest = self.checkpoints(partition).newest()
        assert manifest is not None
        return manifest

    def damage(self, kind: str, newest: int = 1, partition: int = 0) -> None:
        """Damage the newest files of a kind."""
        prefix = self.checkpoints(partition).location.prefix
        names = sorted(name for name in self.store.objects if name.startswith(prefix) and name.endswith(kind))
        for name in names[-newest:]:
            self.store.objects[name] += b"?"

    def expected(self, partition: int = 0) -> list[Outgoing]:
        """Outputs that a partition without any fault gives."""
        reference = Task(partition, self.config, SETTING.max_message_bytes)
        restore(reference, (), 0, 0)
        reference.go_live()
        return reference.process(self.broker.logs[partition].records).outgoing

    def published(self, partition: int = 0) -> list[Outgoing]:
        return [each for each in self.broker.published if dict(each.headers)["source-partition"] == b"%d" % partition]


class Bound:
    """A worker with its own clients, store and metrics; `faults` meets all its calls."""

    def __init__(self, bench: Bench, name: str, settings: Config) -> None:
        self.bench = bench
        self.faults = Faults()
        self.metrics = Metrics()
        self.board = Board()
        self.pool = FakePool(bench.clock)
        self.cleaners = FakePool(bench.clock)
        self.askers = FakePool(bench.clock)
        self.fetchers = FakePool(bench.clock)
        self.input = FakeInput(bench.broker, self.faults)
        self.opened = 0
        self._identity = name if settings.delivery == "exactly-once" else None
        self._worker = Worker(
            settings,
            bench.setting,
            self.input,
            self._open_output,
            FakeStore(bench.store, self.faults),
            self.metrics,
            bench.clock,
            Pools(self.pool, self.cleaners, self.pool, self.askers, FakePool(bench.clock), lambda: self.fetchers),
            bench.monitor,
            bench.ends,
            self.board,
        )
        self._worker._pace.pieces = 1
        self.turn = self._worker.turn
        self.close = self._worker.close
        self.run = self._worker.run
        self.is_done = self._worker._is_done

    def join(self, *partitions: int) -> Bound:
        """Become a member and take partitions, all if none is named; a turn later they are open, if all goes well."""
        self._worker.start()
        self.take(*partitions)
        return self.turns(1)

    def join_idle(self) -> Bound:
        """Become a member without partitions."""
        self._worker.start()
        return self

    def kill(self) -> None:
        """It does nothing more, and the group has waited long enough."""
        self.input.expire()

    def take(self, *partitions: int) -> None:
        self.bench.broker.group.rebalance(dict.fromkeys(partitions or self.bench.broker.logs, self.input))

    def waiting_bytes(self, key: str) -> int:
        """What a snapshot of the first partition waits for."""
        return self._worker._tasks[0].models.waiting_bytes(key)

    def waits(self, key: str) -> bool:
        """Whether a snapshot of the first partition is yet to have a model."""
        copy = self._worker._tasks[0].models._copies.get(key)
        return copy is not None and copy._entry is not None

    def checkpointer(self, partition: int) -> Checkpointer:
        return self._worker._tasks[partition].checkpointer

    def limit_copies(self, n_bytes: int) -> None:
        self._worker.copied_bytes = n_bytes

    def limit_memory(self, n_bytes: int) -> None:
        """Its models take no more, from now on."""
        cache = self._worker._tasks.cache
        cache._limit_bytes, cache.turn_bytes = n_bytes, n_bytes // 2

    def limit_models(self, n_bytes: float) -> None:
        """The models that a turn uses take no more memory."""
        self._worker._tasks.cache.turn_bytes = n_bytes

    def predict_often(self, pieces: int) -> None:
        """So many times in each interval of the transactions."""
        self._worker._pace.pieces = pieces

    def position(self, partition: int) -> int:
        """Where the next record is that its task takes."""
        return self._worker._tasks[partition].position

    def buffered(self) -> int:
        """Records that were read and are not taken yet."""
        return sum(len(task.buffer) for task in self._worker._tasks.values())

    def turns(self, n: int) -> Bound:
        for _ in range(n):
            self.turn()
        return self

    def stops(self) -> dict[str, float]:
        """How many partitions stopped, by code."""
        return {labels.code: n for labels, n in self.metrics.partition_stops_total.series().items() if n}

    def held(self) -> tuple[int, int, int]:
        """What its models take: memory, space on disk, and how many tables there are."""
        cache, spill = self._worker._tasks.cache, self.bench.setting.spill
        return cache.nbytes, 0 if spill is None else spill.used_bytes, len(cache._tables)

    def outcomes(self) -> dict[str, float]:
        """How many transactions ended, by outcome."""
        return {labels.outcome: n for labels, n in self.metrics.transactions_total.series().items() if n}

    def state(self, partition: int) -> str:
        """As the metrics show it, which they do anew once a second."""
        states = self.metrics.partition_state.series().items()
        return next(labels.state for labels, value in states if labels.partition == partition and value)

    def skipped(self) -> float:
        """How many damaged checkpoints it has passed over."""
        return next(iter(self.metrics.checkpoints_skipped_total.series().values()))

    def replayed(self) -> float:
        return next(iter(self.metrics.replayed_records_total.series().values()))

    def _open_output(self) -> FakeOutput:
        self.opened += 1
        return FakeOutput(self.bench.broker, self._identity, self.faults)


# What an error of the producer means


@pytest.mark.parametrize(
    ("code", "flags", "meaning"),
    [
        (KafkaError._TIMED_OUT, {}, Unknown),
        (KafkaError._TIMED_OUT, {"retriable": True}, Unknown),
        (KafkaError.REQUEST_TIMED_OUT, {"txn_requires_abort": True}, Unknown),
        (KafkaError._FENCED, {"fatal": True}, Unknown),
        (KafkaError.INVALID_PRODUCER_EPOCH, {"fatal": True, "txn_requires_abort": True}, Unknown),
        (KafkaError.ILLEGAL_GENERATION, {"txn_requires_abort": True}, Abort),
        (KafkaError.UNKNOWN_MEMBER_ID, {"txn_requires_abort": True, "retriable": True}, Abort),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, {"retriable": True}, Transient),
        (KafkaError._STATE, {}, Unknown),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {"txn_requires_abort": True}, Fatal),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, {"txn_requires_abort": True}, Fatal),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {"fatal": True}, Fatal),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, {"fatal": True}, Fatal),
        (KafkaError.MSG_SIZE_TOO_LARGE, {}, Refused),
        (KafkaError.MSG_SIZE_TOO_LARGE, {"txn_requires_abort": True}, Refused),
        (KafkaError.INVALID_RECORD, {"txn_requires_abort": True}, Refused),
        (KafkaError.INVALID_TIMESTAMP, {"txn_requires_abort": True}, Refused),
        (KafkaError.INVALID_RECORD, {"fatal": True}, Unknown),
    ],
)
def test_an_error_means_what_the_table_says(code: int, flags: dict[str, bool], meaning: type[WorkerError]) -> None:
    assert decision(KafkaError(code, "reason", **flags)) is meaning


# Transactions


def test_records_become_outputs_and_committed_offsets() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b", None)
    bench.feed("a", partition=1, key="other")
    worker = bench.worker().join().turns(2)
    assert bench.published(0) == bench.expected(0)
    assert bench.published(1) == bench.expected(1)
    assert bench.broker.committed == {0: 3, 1: 1}
    assert worker.outcomes() == {"committed": 1}


def test_a_partition_whose_commits_are_forgotten_stops_and_the_others_go_on() -> None:
    bench = Bench(partitions=2)
    for partition in (0, 1):
        bench.feed("a", "b", partition=partition)
    worker = bench.worker().join().turns(2)
    for partition in (0, 1):
        bench.feed("a", partition=partition)
    worker.faults.at("commit", Unknown("injected"))
    worker.turns(1)
    bench.broker.committed[0] = 1
    started_s = bench.clock.monotonic()
    while bench.clock.monotonic() < started_s + REWOUND_S + 10:
        worker.turns(1)
        bench.clock.sleep(1.0)
    assert worker.stops() == {"group-rewound": 1}
    assert (worker.state(0), worker.state(1)) == ("stopped", "live")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert bench.published(1) == bench.expected(1)
    assert bench.broker.committed == {0: 1, 1: 4}


def fail(point: str, *errors: BaseException) -> Callable[[Bound], None]:
    return lambda worker: worker.faults.at(point, *errors)


@pytest.mark.parametrize(
    ("fault", "outcome", "producers"),
    [
        (fail("produce", Abort("x")), "aborted", 1),
        (fail("offsets", Abort("x")), "aborted", 1),
        (fail("commit", Abort("x")), "aborted", 1),
        (fail("begin", Unknown("x")), "unknown", 2),
        (fail("produce", Transient("x")), "unknown", 2),
        (fail("commit", Unknown("x")), "unknown", 2),
        (fail("commit:done", Unknown("x")), "unknown", 2),
        (
            lambda worker: worker.faults.at("commit", Abort("x")) or worker.faults.at("abort", Unknown("x")),
            "aborted",
            2,
        ),
        (
            lambda worker: worker.faults.at("init", None, Unknown("x")) or worker.faults.at("commit", Unknown("x")),
            "unknown",
            3,
        ),
    ],
)
def test_a_failed_transaction_is_made_up_for(fault: Callable[[Bound], None], outcome: str, producers: int) -> None:
    bench = Bench()
    bench.feed("a", "b", "a", None)
    worker = bench.worker()
    fault(worker)
    worker.join().turns(4)
    bench.feed("b")
    worker.turns(2)
    assert bench.published() == bench.expected()
    assert bench.broker.committed == {0: 5}
    assert bench.broker.open == {}
    assert worker.outcomes().keys() == {outcome, "committed"}
    assert worker.opened == producers


def test_while_a_transaction_is_open_no_more_than_a_record_is_taken_and_none_is_lost() -> None:
    bench = Bench()
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("commit", *[Abort("x")] * 5)
    worker.join().turns(1)
    bench.feed("a", "b", "a", "b", "a", "b")
    worker.turns(3)
    assert worker.input.positions == {0: 5}
    assert bench.broker.committed == {}
    for _ in range(6):
        bench.clock.sleep(LONGEST_PAUSE_S)
        worker.turns(1)
    assert bench.published() == bench.expected()


def test_a_late_commit_of_the_old_producer_does_no_harm() -> None:
    bench = Bench()
    bench.feed("a", "b")
    worker = bench.worker()

    def late() -> None:
        bench.broker.commit_late("one", 1)
        raise Unknown("no answer")

    worker.faults.at("commit", late)
    worker.join().turns(1)
    assert worker.outcomes() == {"unknown": 1}
    worker.turn()
    bench.broker.deliver_late()
    worker.turn()
    assert bench.published() == bench.expected()


def test_outputs_of_a_partition_that_was_taken_away_are_not_sent_again() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b")
    bench.feed("a", "b", partition=1)
    one, two = bench.worker("one"), bench.worker("two")
    one.faults.at("commit", *[Abort("x")] * (1 + LAST_ATTEMPTS))
    one.join().turns(1)
    two.join(1)
    one.turns(1)
    bench.clock.sleep(LONGEST_PAUSE_S)
    one.turns(1)
    assert bench.broker.committed == {0: 2}
    two.turns(2)
    assert bench.broker.committed == {0: 2, 1: 2}
    for number in (0, 1):
        assert bench.published(number) == bench.expected(number)


def lose_and_come_back(one: Bound, two: Bound, callback: str) -> None:
    """The group gives one up, two works off its partition, and one is back before it is told, by this callback."""
    one.input.expire(callback)
    two.take(0)
    two.turns(2)
    one.input.notice(rejoin=True)


def test_an_offset_commit_names_the_member_that_read_the_records() -> None:
    """A member that was thrown out and has joined anew would be believed, with records that are somebody else's now."""
    bench = Bench()
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.join()
    one.faults.at("metadata:done", lambda: lose_and_come_back(one, two, "lost"))
    one.turns(3)
    assert one.outcomes() == {"aborted": 1}
    assert bench.published() == bench.expected()


@pytest.mark.parametrize("trouble", [(), (Unknown("x"),)], ids=["", "with a new producer"])
def test_what_a_rebalance_interrupts_is_committed_and_saved_before_the_partition_goes(trouble: tuple[Unknown]) -> None:
    """Another version of the worker would refuse to replay what this one has predicted."""
    bench = Bench(interval_s=3600.0)
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.join()
    one.faults.at("produce", lambda: two.take(0))
    one.turns(1)
    assert one.outcomes() == {"aborted": 1}
    one.faults.at("commit", *trouble)
    one.turns(1)
    assert (bench.broker.committed, bench.newest().offset) == ({0: 2}, 2)
    two.turns(3)
    assert two.replayed() == 0
    assert bench.published() == bench.expected()


def test_who_was_given_up_and_is_back_commits_nothing_of_what_it_gives_up() -> None:
    """Its partitions were somebody else's in between, and the group would believe the new member."""
    bench = Bench()
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()
    one.join()
    one.faults.at("produce", lambda: lose_and_come_back(one, two, "revoked"))
    one.turns(3)
    assert one.outcomes() == {"aborted": 1}
    assert bench.published() == bench.expected()


def test_what_is_pending_when_partitions_go_is_not_tried_for_longer_than_the_group_waits() -> None:
    bench = Bench()
    bench.feed("a", "b")
    one, two = bench.worker("one"), bench.worker("two").join_idle()

    def answer_late() -> None:
        bench.clock.now_s += 0.6 * REVOKE_S
        raise Abort("the broker is slow")

    one.faults.at("commit", Abort("x"), *[answer_late] * LAST_ATTEMPTS)
    one.join().turns(1)
    assert one.outcomes() == {"aborted": 1}
    two.take(0)
    one.turn()
    assert one.outcomes() == {"aborted": 1 + 2}
    two.turns(3)
    assert bench.published() == bench.expected()


def test_at_least_once_sends_the_same_again() -> None:
    bench = Bench(delivery="at-least-once")
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("produce:done", Unknown("x"))
    worker.faults.at("commit offsets", Abort("x"), Transient("x"))
    worker.join().turns(4)
    bench.clock.sleep(LONGEST_PAUSE_S)
    worker.turns(1)
    assert bench.published() == bench.expected() * 4
    assert bench.broker.committed == {0: 2}


def test_a_transaction_that_fails_and_fails_is_tried_less_and_less_often() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at("offsets", *[Abort("the group does not know this member")] * 1000)
    worker.join()
    started_s = bench.clock.monotonic()
    for _ in range(1000):
        worker.turns(1)
        bench.clock.sleep(0.01)
    tries = worker.faults.seen.count("offsets")
    assert 10 <= tries <= PATIENCE + 6 + (bench.clock.monotonic() - started_s) / LONGEST_PAUSE_S
    worker.faults.forget("offsets")
    bench.clock.sleep(LONGEST_PAUSE_S)
    worker.turns(1)
    assert bench.broker.committed == {0: 1}


# Where a partition starts


def test_a_new_history_begins_with_an_empty_checkpoint() -> None:
    bench = Bench()
    bench.broker.logs[0].low = bench.broker.logs[0].high = 7
    bench.feed("a")
    bench.worker().join().turns(1)
    assert bench.checkpoints().offsets()[0] == 7
    assert bench.broker.committed == {0: 8}


def test_the_empty_checkpoint_is_there_before_the_first_commit() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.join().turns(1)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")


def test_a_history_may_begin_at_the_end() -> None:
    bench = Bench(start="latest")
    bench.feed("a", "b")
    worker = bench.worker().join().turns(1)
    bench.feed("a")
    worker.turns(2)
    assert [dict(each.headers)["source-offset"] for each in bench.published()] == [b"2"]
    bench.worker("two").join().turns(2)
    assert bench.newest().start_offset == 2


def test_where_the_group_lost_its_offsets_the_newest_checkpoint_counts() -> None:
    bench = Bench()
    bench.feed("a", "b", "a")
    bench.worker().join().turns(1).close()
    bench.broker.committed.clear()
    bench.feed("b")
    bench.worker().join().turns(2)
    assert bench.published() == bench.expected()


def test_a_restart_replays_what_the_checkpoint_does_not_have() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", "a")
    bench.worker().join().turns(2).kill()
    bench.feed("b", None)
    worker = bench.worker().join().turns(3)
    assert worker.replayed() == 3
    assert bench.published() == bench.expected()


def test_after_an_orderly_end_nothing_is_replayed() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", None)
    bench.worker().join().turns(2).close()
    bench.feed("b")
    worker = bench.worker().join().turns(2)
    assert worker.replayed() == 0
    assert bench.published() == bench.expected()


def test_the_first_record_at_or_after_the_committed_offset_ends_the_replay() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    bench.worker().join().turns(2).kill()
    # As markers of transactions leave it, which are no records.
    bench.broker.committed[0] = bench.broker.logs[0].high = 4
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += 1
    worker.turn()
    assert worker.state(0) == "replay"
    bench.broker.logs[0].append(b"k", b'{"features": [1], "label": "b"}', gap=1)
    worker.turn()
    bench.clock.now_s += 1
    worker.turn()
    assert worker.state(0) == "live"
    assert bench.published() == bench.expected()
    assert bench.broker.committed == {0: 6}


def test_a_damaged_checkpoint_is_passed_over_and_more_is_replayed() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    for _ in range(3):
        bench.feed("a", "b")
        worker.turns(2)
    worker.kill()
    assert bench.checkpoints().offsets() == [0, 2, 4, 6]
    bench.damage("segment", newest=1)
    bench.damage("manifest", newest=2)
    bench.feed("a")
    worker = bench.worker().join().turns(4)
    assert worker.replayed() == 4
    assert worker.skipped() == 2
    assert bench.published() == bench.expected()


def test_damaged_models_of_a_good_manifest_lead_further_back_than_was_thought() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    for _ in range(2):
        bench.feed("a", "b")
        worker.turns(2)
    worker.kill()
    bench.damage("segment")
    bench.feed("a")
    worker = bench.worker().join()
    assert worker.input.positions == {0: 2}
    worker.turns(3)
    assert worker.replayed() == 2
    assert worker.skipped() == 1
    assert bench.published() == bench.expected()


def test_checkpoints_that_share_what_is_damaged_are_counted_each() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    for labels in (("a", "b"), (None, None)):
        bench.feed(*labels)
        worker.turns(2)
    worker.kill()
    assert bench.checkpoints().offsets() == [0, 2, 4]
    bench.damage("segment")
    worker = bench.worker().join().turns(2)
    assert (worker.skipped(), worker.replayed()) == (2, 4)


@pytest.mark.parametrize("kind", ["manifest", "segment"])
def test_without_any_whole_checkpoint_the_partition_stops(kind: str) -> None:
    bench = Bench(partitions=2, interval_s=0.001)
    bench.feed("a", "b")
    bench.feed("a", partition=1)
    bench.worker().join().turns(3).kill()
    # The empty checkpoint at the start has no segment: without its manifest nothing is left but damage.
    bench.damage("manifest" if kind == "manifest" else "segment", newest=9)
    if kind == "segment":
        first = min(name for name in bench.store.objects if name.endswith("manifest"))
        del bench.store.objects[first]
    bench.feed("a", partition=1)
    worker = bench.worker().join().turns(3)
    assert worker.stops() == {"corrupt-checkpoint": 1}
    assert bench.broker.committed == {0: 2, 1: 2}
    assert worker.input.paused == {0}


def test_a_group_that_is_ahead_of_all_checkpoints_is_told_so() -> None:
    bench = Bench(partitions=2)
    bench.broker.committed[0] = 5
    worker = bench.worker().join().turns(1)
    assert worker.stops() == {"no-checkpoint": 1}


def test_a_retention_gap_is_told_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a", "b", "a", "b")
    bench.worker().join().turns(2).kill()
    bench.broker.logs[0].low = 3
    worker = bench.worker().join().turns(2)
    assert worker.stops() == {"retention-gap": 1}
    told = caplog.text
    assert "the checkpoint is at offset 0, the group at 4, but the topic begins at 3: 3 records" in told


def test_records_that_vanish_while_they_are_replayed_stop_the_partition() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a", "b", "a", "b")
    bench.worker().join().turns(2).kill()
    worker = bench.worker().join()
    worker.input.batch_records = lambda: 1
    worker.turns(2)
    bench.broker.logs[0].low = 3
    worker.turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}


# Stops


def test_one_partition_stops_and_the_others_go_on() -> None:
    bench = Bench(partitions=2, max_consecutive=2, interval_s=60.0)
    bench.feed("a")
    bench.feed_bad(3)
    bench.feed("a", partition=1)
    worker = bench.worker().join().turns(2)
    assert worker.stops() == {"too-many-dead-letters": 1}
    assert bench.broker.committed == {0: 4, 1: 1}
    assert bench.newest(0).offset == 4
    bench.feed("b")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert bench.broker.committed == {0: 4, 1: 2}
    assert bench.published(1) == bench.expected(1)


def test_records_behind_outputs_that_cannot_be_committed_take_some_megabytes_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However large they are: ten thousand of them may be gigabytes."""
    monkeypatch.setattr(loop, "GATHERED_BYTES", 100_000)
    bench = Bench(partitions=2)
    for number, log in bench.broker.logs.items():
        for i in range(100):
            log.append(b"k", b'{"features": [%d], "label": "ab", "padding": "%s"}' % (i + number, 10_000 * b"."))
    worker = bench.worker().join()
    worker.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 10_000)
    worker.input.batch_records = lambda: 1
    most = 0
    for _ in range(300):
        worker.turn()
        most = max(most, worker._worker._tasks.buffered(1, 1)[0])
    assert 10 < most < 40
    worker.faults.forget("commit")
    for _ in range(60):
        bench.clock.sleep(WAIT_S)
        worker.turns(10)
    assert bench.published(0) == bench.expected(0)
    assert bench.published(1) == bench.expected(1)


def test_records_that_can_never_be_read_stop_their_partition_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a")
    bench.feed("a", partition=1)
    worker = bench.worker().join().turns(1)
    consume = worker.input.consume

    def without_one(most: int, timeout_s: float) -> tuple[dict[int, list[Record]], Gone]:
        return consume(most, timeout_s)[0], {
            0: unreadable_records("events[0]", "Invalid compressed data", UNDECOMPRESSED)
        }

    monkeypatch.setattr(worker.input, "consume", without_one)
    bench.feed("b", partition=1)
    worker.turns(2)
    assert worker.stops() == {"unreadable-records": 1}
    assert bench.newest(0).offset == 1
    assert bench.broker.committed == {0: 1, 1: 2}
    assert bench.published(1) == bench.expected(1)


def test_a_partition_stops_only_once_its_last_batch_is_committed() -> None:
    bench = Bench(partitions=2, max_consecutive=2)
    bench.feed_bad(3)
    worker = bench.worker()
    worker.faults.at("commit", Abort("x"))
    worker.join().turns(1)
    assert worker.stops() == {}
    worker.turn()
    assert worker.stops() == {"too-many-dead-letters": 1}
    assert bench.published() == bench.expected()


def test_what_was_taken_is_saved_where_the_next_records_are_gone() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    bench.feed(*"aba")
    worker.turns(2)
    assert bench.newest().offset == 0
    bench.feed(*"ab")
    bench.broker.logs[0].low = 4
    worker.turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
    assert (bench.newest().offset, bench.broker.committed[0]) == (3, 3)


def test_what_was_taken_is_committed_before_it_is_saved_where_the_next_records_are_gone() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    worker = bench.worker().join()
    consume = worker.input.consume
    bench.feed(*"aba")
    worker.faults.at("commit", Abort("x"))
    worker.input.consume = lambda *wanted: (consume(*wanted)[0], {0: "gone"})  # type: ignore[method-assign]
    worker.turn()
    assert (worker.stops(), bench.newest().offset) == ({}, 0)
    worker.turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
    assert (bench.newest().offset, bench.published()) == (3, bench.expected())


def test_a_worker_without_a_partition_to_work_on_ends() -> None:
    bench = Bench(max_consecutive=2)
    bench.feed_bad(3)
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        worker.run(lambda: worker.faults.seen.count("consume") == 9)
    assert bench.published() == bench.expected()
    assert bench.broker.group.members == []


# Checkpoints


def test_a_checkpoint_is_written_when_the_interval_is_over() -> None:
    bench = Bench(interval_s=30.0)
    bench.feed("a")
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += 29
    bench.feed("b")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0]
    bench.clock.now_s += 1
    bench.feed("a")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 3]
    bench.clock.now_s += 60
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 3]


def test_a_checkpoint_moves_on_without_labels_too() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    bench.feed("a", "b")
    worker.turns(2)
    before = bench.newest()
    bench.feed(None, None)
    worker.turns(2)
    assert (before.offset, bench.newest().offset) == (2, 4)
    assert bench.newest().models == before.models


def test_nothing_is_saved_while_a_commit_is_open() -> None:
    bench = Bench(interval_s=0.001)
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("commit", *[Abort("x")] * (3 + LAST_ATTEMPTS))
    worker.join().turns(3)
    assert bench.checkpoints().offsets() == [0]
    bench.worker("two").join()
    worker.turn()
    assert bench.checkpoints().offsets() == [0]


def test_what_an_error_left_half_done_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    bench.feed("a", "b", key="other")
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    monkeypatch.setattr(Processor, "publish", _raise)
    with pytest.raises(MemoryError):
        worker.run(lambda: False)
    assert [name.rpartition(".")[2] for name in bench.store.objects] == ["manifest"]
    assert bench.broker.group.members == []
    monkeypatch.undo()
    bench.worker().join().turns(2)
    assert bench.published() == bench.expected()


def _raise(*_: Any) -> None:
    raise MemoryError


def test_the_loop_does_not_wait_for_the_store() -> None:
    bench = Bench(interval_s=0.001)
    bench.feed("a")
    worker = bench.worker().join()
    worker.pool.is_done_within = lambda seconds: seconds > 0
    worker.turns(2)
    bench.feed("b")
    worker.turns(2)
    assert bench.broker.committed == {0: 2}
    assert len(worker.pool.jobs) == 1
    assert bench.checkpoints().offsets() == [0]
    worker.close()
    assert bench.checkpoints().offsets() == [0, 1, 2]


def test_a_checkpoint_that_fails_is_made_up_for_by_the_next() -> None:
    bench = Bench(interval_s=10.0)
    worker = bench.worker().join().turns(1)
    bench.clock.now_s += 10
    bench.feed("a")
    worker.faults.at("store create", Transient("x"))
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0]
    bench.clock.now_s += 10
    bench.feed("b", key="other")
    worker.turns(2)
    assert bench.checkpoints().offsets() == [0, 2]
    assert bench.newest().models.keys() == {"k", "other"}


def test_where_the_last_checkpoint_is_damaged_the_next_one_holds_every_model() -> None:
    bench = Bench(interval_s=0.001)
    worker = bench.worker().join()
    bench.feed("x", key="small")
    bench.feed(*"xyz" * 20, key="large")
    worker.turns(2)
    bench.damage("segment")
    # The large model is written anew, and to reclaim its old bytes the small one beside them is read: they are damaged.
    for label in "xyz":
        bench.feed(label, key="large")
        worker.turns(2)
    worker.kill()
    bench.feed("y", key="small")
    worker = bench.worker().join().turns(3)
    assert worker.replayed() == 0
    assert bench.published() == bench.expected()


def test_partitions_that_are_given_up_are_saved_and_lost_ones_are_not() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a")
    bench.feed("a", partition=1)
    one, two = bench.worker("one").join().turns(2), bench.worker("two").join(0)
    one.turn()
    assert bench.checkpoints(0).offsets() == [0, 1]
    one.input.expire()
    one.input.notice()
    one.turn()
    assert bench.checkpoints(1).offsets() == [0]
    two.take(1)
    two.turns(2)
    assert two.replayed() == 1


def test_records_of_a_partition_that_is_taken_away_meanwhile_are_dropped() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b")
    bench.feed("a", partition=1)
    one, two = bench.worker("one"), bench.worker("two")
    one.faults.at("commit", *[Abort("x")] * 3)
    one.join().turns(1)
    bench.feed("a", "b")
    two.join(0)
    one.input.reads_ahead = lambda: True
    one.turn()
    one.take(0)
    two.turn()
    one.turns(5)
    assert bench.published(0) == bench.expected(0)
    assert bench.published(1) == bench.expected(1)


def test_models_that_start_anew_are_saved_before_anything_is_committed() -> None:
    bench = Bench(interval_s=60.0, seed=1)
    bench.feed("a", "b")
    bench.worker().join().turns(2).close()
    bench.feed("a")
    worker = bench.worker(on_spec_change="restart", interval_s=60.0).join().turns(2)
    seen = worker.faults.seen
    assert seen.index("store create:done") < seen.index("begin")
    assert msgspec.json.decode(bench.published()[-1].value or b"")["learned"] == 0


def test_models_that_start_anew_wait_until_that_is_saved_and_hold_up_no_other() -> None:
    bench = Bench(partitions=2, seed=1)
    bench.feed("a", "b")
    bench.worker().join().turns(2).close()
    bench.feed("a")
    worker = bench.worker(on_spec_change="restart")
    worker.faults.at("store create", *[Transient("x")] * 4)
    worker.join().turns(2)
    # It waits for the store, and its records with it; the others go on.
    bench.feed("a", "b", partition=1)
    bench.clock.now_s += 1
    worker.turns(2)
    assert (worker.state(0), bench.broker.committed) == ("waiting", {0: 2, 1: 2})
    for _ in range(6):
        bench.clock.now_s += 5
        worker.turns(2)
    assert (worker.stops(), bench.broker.committed) == ({}, {0: 3, 1: 2})
    assert msgspec.json.decode(bench.published(0)[-1].value or b"")["learned"] == 0


def test_a_crash_after_models_started_anew_does_not_bring_the_old_ones_back() -> None:
    settings = {"on_spec_change": "restart", "interval_s": 60.0}
    for seed in range(1, 9):
        bench = Bench(interval_s=60.0, seed=seed)
        bench.feed("a", "b")
        bench.worker().join().turns(2).close()
        bench.feed("a", "b")
        bench.worker(**settings).join().turns(2).kill()
        bench.feed("a")
        bench.worker(**settings).join().turns(3)
        learned = [msgspec.json.decode(each.value or b"")["learned"] for each in bench.published()]
        assert learned == [0, 1, 0, 1, 2]


# Start, patience, end


def test_patience_ends_with_the_deadline() -> None:
    clock = FakeClock()
    calls = []

    def call() -> None:
        calls.append(clock.monotonic())
        raise Transient("not yet")

    with pytest.raises(Transient, match="not yet"):
        retry(clock, Deadline.after(clock, 2.0), "it", call)
    assert [at - 1000.0 for at in calls] == [0.0, 0.5, 1.0, 1.5]


def test_patience_passes_on_the_answer() -> None:
    clock = FakeClock()
    answers: list[Any] = [Transient("not yet"), 7]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Transient):
            raise answer
        return answer

    assert retry(clock, Deadline.after(clock, 2.0), "it", call) == 7


class Silent:
    """Raises what it has, one after the other, then the last of them for ever, or gives 7; it takes `each_s` a time."""

    def __init__(self, clock: FakeClock, *errors: Exception | None, each_s: float = 12.0) -> None:
        self._clock = clock
        self._errors = list(errors)
        self._each_s = each_s
        self.asked_s: list[float] = []

    def __call__(self) -> int:
        self.asked_s.append(self._clock.now_s)
        self._clock.now_s += self._each_s
        error = self._errors[0] if len(self._errors) == 1 else self._errors.pop(0)
        if error is not None:
            raise error
        return 7


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.0), (1, 0.05), (3, 0.2), (6, 1.0), (5_000, 1.0), (10**9, 1.0)])
def test_pauses_are_doubled_up_to_the_longest_however_often_it_fails(failures: int, pause: float) -> None:
    assert backoff_s(failures, 0.05, 1.0) == pause


def test_a_start_waits_for_an_answer_as_long_as_it_takes_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, moved = FakeClock(), []
    ask = Silent(clock, *[Unanswered("no broker")] * 100, None)
    patience = Retry(clock, lambda: False, 60.0, lambda: moved.append(clock.now_s))
    caplog.set_level("INFO")
    assert patience.ask("broker", ask) == 7
    assert ask.asked_s[-1] - ask.asked_s[0] == 100 * 12.5
    assert moved == ask.asked_s
    told = [record.getMessage() for record in caplog.records]
    waits = "broker: not there yet, trying again for as long as it takes: no broker"
    assert told == [waits] * 100 + ["broker: there is an answer"]


def test_a_client_that_did_not_start_is_gone_at_the_next_attempt() -> None:
    """Threads and connections of each would live until garbage is collected, which may be in an hour."""

    class Client: ...

    clients: list[weakref.ref[Client]] = []

    def ask() -> int:
        assert [each() for each in clients] == [None] * len(clients)
        client = Client()
        clients.append(weakref.ref(client))
        if len(clients) < 5:
            raise Unanswered(f"no coordinator for {client}")
        return len(clients)

    gc.disable()
    try:
        assert Retry(FakeClock(), lambda: False, 60.0).ask("producer", ask) == 5
    finally:
        gc.enable()


def test_a_start_that_gets_a_bad_answer_gives_up_after_a_minute_of_them() -> None:
    clock = FakeClock()
    ask = Silent(clock, *[Unanswered("no broker")] * 20, *[Transient("no good")] * 2, Unanswered("x"), Transient("bad"))
    with pytest.raises(Transient, match="bad"):
        Retry(clock, lambda: False, 60.0).ask("broker", ask)
    assert len(ask.asked_s) == 20 + 2 + 1 + 6


@pytest.mark.parametrize("error", [WorkerError("not authorized"), ValueError("a bug")])
def test_what_is_fatal_ends_a_start_at_once(error: Exception) -> None:
    ask = Silent(FakeClock(), error)
    with pytest.raises(type(error), match=str(error)):
        Retry(FakeClock(), lambda: False, 60.0).ask("broker", ask)
    assert len(ask.asked_s) == 1


def test_a_start_that_is_told_to_stop_waits_for_no_call() -> None:
    hangs, began, stop = threading.Event(), time.monotonic(), threading.Event()

    def call() -> None:
        stop.set()
        hangs.wait(60)

    with pytest.raises(Stopped):
        Retry(FakeClock(), stop.is_set, 60.0).ask("broker", call)
    hangs.set()
    assert time.monotonic() - began < 10


def test_a_worker_waits_for_its_first_producer_for_as_long_as_it_takes() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at("init", *[Unanswered("no coordinator")] * 1000)
    worker.join().turns(3)
    assert bench.clock.monotonic() - 1000 >= 500
    assert bench.published() == bench.expected()


def test_a_worker_that_is_told_to_stop_before_it_has_a_producer_ends_in_order() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at("init", *[Unanswered("no coordinator")] * 1000)
    worker.run(lambda: bench.clock.monotonic() > 1100)
    assert (worker.opened, bench.published()) == (201, [])


@pytest.mark.parametrize("point", ["init", "committed", "bounds", "store list", "store create", "store read"])
def test_a_start_waits_for_what_does_not_answer_yet(point: str) -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker()
    worker.faults.at(point, Transient("x"), Transient("x"))
    worker.join()
    for _ in range(3):
        bench.clock.now_s += LONGEST_RETRY_S
        worker.turn()
    assert bench.published() == bench.expected()


def test_others_go_on_while_a_partition_waits_for_its_models() -> None:
    bench = Bench(partitions=2)
    bench.feed("a", "b")
    bench.feed("a", partition=1)
    worker = bench.worker().join(0)
    worker.faults.at("store list", *[Transient("away")] * 8)
    worker.take(0, 1)
    for _ in range(6):
        bench.clock.now_s += RETRY_S
        worker.turn()
    assert (bench.published(0), bench.published(1)) == (bench.expected(0), [])
    assert worker.state(1) == "opening"
    for _ in range(6):
        bench.clock.now_s += RETRY_S
        worker.turn()
    assert bench.published(1) == bench.expected(1)


def test_a_partition_that_is_taken_away_while_it_is_opened_is_let_go_of() -> None:
    bench = Bench()
    bench.feed("a")
    worker = bench.worker().join_idle()
    worker.pool.is_done_within = lambda seconds: False
    worker.take(0)
    worker.turns(2)
    job = worker.pool.jobs[0]
    assert job.set_running_or_notify_cancel()
    other = bench.worker("other").join()
    worker.turn()
    job.run()
    other.turns(3)
    bench.clock.now_s += 1
    worker.turn()
    assert bench.published() == bench.expected()
    assert next(iter(worker.metrics.models.series().values())) == 0


def test_a_new_owner_waits_for_the_open_transaction_of_the_old_one() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    one, two = bench.worker("one").join(), bench.worker("two").join_idle()
    one.faults.at("commit", Unknown("x"))
    one.turn()
    one.kill()
    two.take(0)
    assert bench.broker.open.keys() == {"one"}
    for _ in range(12):
        bench.clock.now_s += RETRY_S
        two.turn()
    assert bench.broker.open == {}
    assert bench.published() == bench.expected()


def test_it_runs_until_it_is_told_to_stop() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    left = iter([False, False, True])
    worker.run(lambda: next(left))
    assert bench.published() == bench.expected()
    assert bench.newest().offset == 2
    assert bench.broker.group.members == []


def test_at_the_end_what_is_open_is_tried_once_more() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    worker = bench.worker()
    worker.faults.at("consume", worker.take)
    worker.faults.at("commit", Abort("x"))
    left = iter([False, False, True])
    worker.run(lambda: next(left))
    assert bench.published() == bench.expected()
    assert bench.newest().offset == 2


# What it shows


def test_a_turn_tells_when_it_ended_in_seconds() -> None:
    bench = Bench()
    worker = bench.worker().join()
    for wait_s in (0.0, 100.5):
        bench.clock.now_s += wait_s
        worker.turn()
        [shown] = worker.metrics.loop_last_timestamp_seconds.series().values()
        assert shown == pytest.approx(bench.clock.wall_offset_ms / 1000 + bench.clock.now_s, abs=0.01)


def test_answers_are_scored_in_the_metrics() -> None:
    bench = Bench(interval_s=60.0, overrides=[{"match": "n", "algorithm": "amf-regressor"}])
    bench.feed("a", "b", "a", None)
    bench.feed(1.0, 2.5, None, 7, "a", 3.0, key="n")
    worker = bench.worker().join().turns(2)
    told = [msgspec.json.decode(each.value or b"") for each in bench.published() if each.topic == "predictions"]
    classes = [each for each in told if "label" in each and "probabilities" in each]
    numbers = [each for each in told if each.get("loss") is not None and "quantiles" in each]
    assert (len(classes), len(numbers)) == (3, 3)
    shown = {name: list(family.series().values()) for name, family in worker.metrics.families().items()}
    assert shown["amf_log_loss"] == [(sum(each["loss"] for each in classes), 3)]
    assert shown["amf_correct_predictions_total"] == [sum(each["label"] == each["prediction"] for each in classes)]
    assert shown["amf_squared_error"] == [(sum(each["loss"] for each in numbers), 3)]
    assert shown["amf_absolute_error"] == [(sum(abs(each["label"] - each["prediction"]) for each in numbers), 3)]
    inside = [each["quantiles"]["0.05"] <= each["label"] <= each["quantiles"]["0.95"] for each in numbers]
    assert shown["amf_covered_predictions_total"] == [sum(inside)]
    assert 0 < sum(inside) < 3
    assert shown["amf_learned_samples_total"] == [7]


def test_a_run_with_ends_is_done_where_models_start_anew_and_no_record_is_left() -> None:
    bench = Bench()
    bench.feed("a", "b")
    bench.worker("one").join().turns(2).close()
    bench.ends = {0: 2}
    worker = bench.worker("two", on_spec_change="restart", n_estimators=3)
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        if asked == 0:
            worker.take()
        asked += 1
        return asked == 50

    worker.run(should_stop)
    assert asked < 50
    assert bench.newest().revision > 0


def test_a_run_with_ends_replays_and_saves_what_was_committed_and_not_saved() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    bench.worker("one").join().turns(2).kill()
    assert (bench.broker.committed, bench.newest().offset) == ({0: 2}, 0)
    bench.ends = {0: 2}
    worker = bench.worker("two")
    turns = iter(range(50))
    worker.faults.at("consume", worker.take)
    worker.run(lambda: next(turns) == 49)
    assert bench.newest().offset == 2
    assert next(turns, 50) < 49
    assert bench.published() == bench.expected()
