"""Forwarders against a broker in memory: what they forward, where they start, and hundreds of schedules of faults."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.worker.support.fake_broker import FIRST_TIMESTAMP_MS, TRANSACTION_TIMEOUT_S, Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput
from tests.worker.support.fakes import Crash, FakeClock, Faults, Hook, config
from worker.base.errors import Abort, Transient, Unknown, WorkerError
from worker.base.metrics import Metrics
from worker.base.records import Membership, Outgoing, Record
from worker.base.standing import OUTSIDE_S
from worker.base.status import Board
from worker.config import repartition
from worker.repartition.forwarder import Forwarder
from worker.repartition.model_key import key_reader

INTERNAL = "group-events-repartition"
MAX_MESSAGE_BYTES = 10_000
NOT_LOOKED_AT = Metrics()
"""For the schedules, which take longer to make metrics than to run."""


class Bench:
    """A broker, and forwarders of the field `shop`."""

    def __init__(self, partitions: int = 1, *, max_consecutive: int = 1000, **settings: Any) -> None:
        given = config(max_consecutive=max_consecutive)
        of_input = replace(given.input, model_key="field:shop", repartition=True, **settings)
        self.config = repartition.of_forwarder(replace(given, input=of_input))
        self.clock = FakeClock()
        self.partitions = partitions
        self.broker = Broker(partitions, self.clock)

    def feed(self, *values: bytes | None, partition: int = 0) -> None:
        for value in values:
            self.broker.logs[partition].append(b"record key", value, [("trace", b"t")])

    def feed_shops(self, *shops: str, partition: int = 0) -> None:
        self.feed(*(b'{"shop": "%s"}' % shop.encode() for shop in shops), partition=partition)

    def forwarder(self, name: str = "one") -> Bound:
        return Bound(self, name)

    def forwarded(self) -> list[tuple[bytes | None, int, int]]:
        """Key, partition and offset of origin of what is in the internal topic."""
        return [(each.key, *origin(each)) for each in self.broker.published if each.topic == INTERNAL]


class Bound:
    """A forwarder with clients and metrics of its own; `faults` meets all its calls."""

    def __init__(self, bench: Bench, name: str, hook: Hook | None = None, metrics: Metrics | None = None) -> None:
        self.faults = Faults()
        self.metrics = metrics or Metrics()
        self.board = Board()
        self.input = FakeInput(bench.broker, hook or self.faults)
        self._bench = bench
        self.forwarder = Forwarder(
            bench.config,
            key_reader(bench.config),
            MAX_MESSAGE_BYTES,
            bench.partitions,
            self.input,
            lambda: FakeOutput(bench.broker, name, hook or self.faults),
            self.metrics,
            bench.clock,
            self.board,
        )
        self.start = self.forwarder.start
        self.assigned = self.forwarder.assigned
        self.turn = self.forwarder.turn
        self.close = self.forwarder.close
        self.run = self.forwarder.run

    def join(self, *partitions: int) -> Bound:
        """Become a member and take partitions, all if none is named."""
        self.start()
        self._bench.broker.group.rebalance(dict.fromkeys(partitions or self._bench.broker.logs, self.input))
        return self

    def turns(self, n: int) -> Bound:
        for _ in range(n):
            self.turn()
        return self


def origin(outgoing: Outgoing) -> tuple[int, int]:
    headers = dict(outgoing.headers)
    return int(headers["origin-partition"] or b""), int(headers["origin-offset"] or b"")


# What is forwarded


def test_a_record_comes_under_its_model_key_and_is_else_as_it_was() -> None:
    bench = Bench()
    value = b'{"shop": "s", "features": [1]}'
    bench.broker.logs[0].append(None, b"{}", gap=3)
    bench.broker.logs[0].append(b"record key", value, [("trace", b"t"), ("trace", None)], gap=1)
    bench.forwarder().join().turns(2)
    record = bench.broker.logs[0].records[1]
    assert bench.broker.published[1] == Outgoing(
        INTERNAL,
        b"s",
        value,
        [
            ("trace", b"t"),
            ("trace", None),
            ("origin-topic", b"events"),
            ("origin-partition", b"0"),
            ("origin-offset", b"5"),
            ("origin-key", b"record key"),
        ],
        record.timestamp_ms,
    )
    assert bench.broker.committed == {0: 6}


def test_a_record_without_a_model_key_is_a_dead_letter_of_the_same_transaction() -> None:
    bench = Bench()
    bench.feed(b'{"shop": "s"}', b'{"sho": 1}', None)
    forwarder = bench.forwarder().join().turns(2)
    letters = bench.broker.published[1:]
    assert [letter.topic for letter in letters] == ["dead-letters"] * 2
    assert [(letter.key, letter.value) for letter in letters] == [(b"record key", b'{"sho": 1}'), (b"record key", None)]
    headers = dict(letters[0].headers)
    assert headers["error-code"] == b"missing-model-key"
    assert (headers["source-topic"], headers["source-offset"], headers["trace"]) == (b"events", b"1", b"t")
    assert bench.broker.committed == {0: 3}
    series = forwarder.metrics.dead_letters_total.series()
    assert {labels.code: n for labels, n in series.items()} == {"missing-model-key": 2}
    shown = [(each.topic, each.partition, each.offset, each.key, each.code) for each in forwarder.board.dead_letters]
    assert shown == [("events", 0, offset, "record key", "missing-model-key") for offset in (1, 2)]
    assert list(forwarder.metrics.forwarded_records_total.series().values()) == [1]
    assert list(forwarder.metrics.forwarder_dead_letters_total.series().values()) == [2]


def test_a_dead_letter_is_shown_once_it_is_committed() -> None:
    bench = Bench()
    bench.feed(b"{}")
    forwarder = bench.forwarder().join()
    forwarder.faults.at("commit", None, Abort("x"))
    while bench.broker.committed != {0: 1}:
        assert not forwarder.board.dead_letters
        forwarder.turns(1)
    assert [each.offset for each in forwarder.board.dead_letters] == [0]


def test_a_record_whose_headers_cannot_be_read_is_a_dead_letter() -> None:
    bench = Bench()
    bench.feed(b'{"shop": "s"}', b'{"shop": "s"}')
    log = bench.broker.logs[0]
    log.records[0] = msgspec.structs.replace(log.records[0], headers=[], headers_fault="a name is not UTF-8")
    bench.forwarder().join().turns(2)
    letter, forwarded = bench.broker.published
    assert (letter.topic, letter.key, letter.value) == ("dead-letters", b"record key", b'{"shop": "s"}')
    assert dict(letter.headers)["error-code"] == b"invalid-headers"
    assert dict(letter.headers)["error-reason"] == b"a name is not UTF-8"
    assert (forwarded.topic, bench.broker.committed) == (INTERNAL, {0: 2})


def test_a_record_that_does_not_fit_with_its_headers_is_a_dead_letter() -> None:
    bench = Bench()
    bench.feed(b'{"shop": "s", "x": "%s"}' % (b"x" * (MAX_MESSAGE_BYTES - 200)))
    bench.feed(b'{"shop": "s", "x": "%s"}' % (b"x" * (MAX_MESSAGE_BYTES - 500)))
    bench.forwarder().join().turns(2)
    assert [each.topic for each in bench.broker.published] == ["dead-letters", INTERNAL]
    assert dict(bench.broker.published[0].headers)["error-code"] == b"too-large"


def test_a_flood_of_dead_letters_ends_the_forwarder_once_they_are_committed() -> None:
    bench = Bench(max_consecutive=2)
    bench.feed(b"{}", b"{}", b'{"shop": 1}', b"{}", b"{}")
    forwarder = bench.forwarder().join().turns(2)
    bench.feed(b"{}")
    with pytest.raises(WorkerError, match=r"events\[0\]: the last 3 records.*missing-model-key"):
        forwarder.turn()
    assert bench.broker.committed == {0: 6}
    assert len(bench.broker.published) == 6


def lag(forwarder: Bound) -> dict[int, tuple[float, float | None]]:
    """Records and seconds by which each input partition is behind."""
    seconds = forwarder.metrics.forwarder_lag_seconds.series()
    records = forwarder.metrics.forwarder_lag_records.series()
    return {labels.input_partition: (n, seconds.get(labels)) for labels, n in records.items()}


def test_the_lag_is_what_was_not_forwarded() -> None:
    bench = Bench(partitions=2)
    bench.feed_shops("a", "b", "c", partition=1)
    forwarder = bench.forwarder().join()
    forwarder.input.batch_records = lambda: 1
    forwarder.turn()
    assert bench.forwarded() == [], "the first transaction has the starts alone"
    assert {number: n for number, (n, _) in lag(forwarder).items()} == {0: 0, 1: 3}
    forwarder.turn()
    assert {number: n for number, (n, _) in lag(forwarder).items()} == {0: 0, 1: 1}
    bench.forwarder("two").join(1)
    forwarder.turn()
    assert lag(forwarder) == {0: (0, 0.0)}


def test_a_backlog_is_as_old_as_what_was_forwarded_last() -> None:
    bench = Bench()
    bench.feed_shops(*"abcde")
    forwarder = bench.forwarder().join()
    forwarder.input.batch_records = lambda: 1
    n, seconds = lag(forwarder.turns(2))[0]
    assert (n, seconds) == (3, pytest.approx((bench.clock.wall_ms() - FIRST_TIMESTAMP_MS) / 1000, abs=10))
    forwarder.input.batch_records = lambda: 1_000
    assert lag(forwarder.turns(1)) == {0: (0, 0.0)}


def test_what_was_read_and_cannot_be_forwarded_waits() -> None:
    bench = Bench()
    forwarder = bench.forwarder().join().turns(2)
    forwarder.faults.at("commit", *[Abort("x")] * 1000)
    bench.feed_shops("a")
    for n in (1, 2, 3):
        bench.clock.now_s += 100
        found, seconds = lag(forwarder.turns(1))[0]
        assert found == n
        assert (seconds or 0) > 100 * (n - 1)
        bench.feed_shops("b")  # which is read, and gets no further


def test_a_record_from_the_future_does_not_hide_the_lag() -> None:
    bench = Bench()
    bench.feed_shops(*"abc")
    log = bench.broker.logs[0]
    ahead_ms = bench.clock.wall_ms() + 86_400_000
    log.records[0] = msgspec.structs.replace(log.records[0], timestamp_ms=ahead_ms)
    forwarder = bench.forwarder().join()
    forwarder.input.batch_records = lambda: 1
    forwarder.turns(1)
    forwarder.input.paused.add(0)
    forwarder.turns(1)
    bench.clock.now_s += 400
    n, seconds = lag(forwarder.turns(1))[0]
    assert (n, seconds) == (2, pytest.approx(400, abs=10))


def test_markers_of_transactions_are_no_lag() -> None:
    bench = Bench()
    bench.feed_shops("a")
    bench.broker.logs[0].high += 1
    forwarder = bench.forwarder().join().turns(2)
    bench.clock.now_s += 1_000
    assert lag(forwarder.turns(2)) == {0: (0, 0.0)}


def test_a_forwarder_says_whether_its_group_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    forwarder = bench.forwarder()
    assert forwarder.board.forwarder_trouble == "the forwarders' group has not assigned partitions yet"
    forwarder.join().turns(1)
    assert forwarder.board.forwarder_trouble is None
    member = forwarder.input.membership
    monkeypatch.setattr(forwarder.input, "membership", lambda: Membership("", None))
    bench.clock.now_s += OUTSIDE_S + 1
    forwarder.turns(1)
    assert (forwarder.board.forwarder_trouble or "").startswith("no member of the forwarders' group for ")
    monkeypatch.setattr(forwarder.input, "membership", member)
    forwarder.turns(1)
    assert forwarder.board.forwarder_trouble is None


# Where a partition starts


@pytest.mark.parametrize("is_ours", [True, False])
def test_an_epoch_is_asked_about_where_it_was_committed_along_with_its_offset(is_ours: bool) -> None:
    bench = Bench()
    bench.feed_shops("a", "b")
    bench.forwarder().join().turns(2).close()
    log = bench.broker.logs[0]
    if not is_ours:
        log.elect()
        bench.feed_shops("c", "d")
        bench.broker.set_offsets({0: 3})
        bench.broker.leader_epochs[0] = 0
        bench.forwarder("two").join().turns(2)
        assert bench.broker.committed == {0: 4}
        return
    log.truncate(1)
    bench.feed_shops("c", "d")
    with pytest.raises(WorkerError, match="the next record to forward is 2"):
        bench.forwarder("two").join().turns(2)


@pytest.mark.parametrize(("start", "keys"), [("earliest", [b"a", b"b", b"c"]), ("latest", [b"c"])])
def test_a_new_group_starts_where_it_is_told_to(start: str, keys: list[bytes]) -> None:
    bench = Bench(start=start)
    bench.feed_shops("a", "b")
    forwarder = bench.forwarder().join().turns(2)
    bench.feed_shops("c")
    forwarder.turn()
    assert [key for key, *_ in bench.forwarded()] == keys


def test_a_start_is_chosen_once_and_known_before_anything_is_forwarded() -> None:
    bench = Bench(start="latest")
    bench.feed_shops("a", "b")
    one = bench.forwarder("one").join()
    bench.feed_shops("never read")
    one.turn()
    assert bench.broker.committed == {0: 3}
    assert bench.broker.published == []
    one.close()
    bench.feed_shops("c")
    bench.forwarder("two").join().turns(2)
    assert bench.forwarded() == [(b"c", 0, 3)]


def test_a_partition_that_is_added_is_forwarded_from_its_beginning() -> None:
    bench = Bench(start="latest")
    bench.feed_shops("not wanted")
    bench.forwarder("one").join().turns(2)
    bench.broker.add_partition()
    bench.feed_shops("a", "b", partition=1)  # producers see it at once, consumers some minutes later
    two = bench.forwarder("two").join().turns(2)
    bench.feed_shops("c", partition=1)
    two.turns(1)
    assert bench.forwarded() == [(b"a", 1, 0), (b"b", 1, 1), (b"c", 1, 2)]


def test_a_member_without_partitions_stands_by() -> None:
    bench = Bench()
    bench.feed_shops("a")
    one = bench.forwarder("one").join()
    two = bench.forwarder("two")
    two.start()
    two.assigned([])
    one.turns(2)
    two.turns(2)
    assert bench.forwarded() == [(b"a", 0, 0)]


def test_of_two_that_begin_together_the_later_one_starts_where_it_is_told_to() -> None:
    bench = Bench(2, start="latest")
    bench.feed_shops("not wanted", partition=0)
    bench.feed_shops("not wanted", partition=1)
    bench.forwarder("one").join(0).turns(2)
    two = bench.forwarder("two").join(1).turns(2)
    bench.feed_shops("a", partition=1)
    two.turn()
    assert bench.forwarded() == [(b"a", 1, 1)]


def test_beside_offsets_that_others_have_set_nothing_is_left_out() -> None:
    bench = Bench(2, start="latest")
    bench.feed_shops("a", partition=1)
    bench.broker.committed[0] = 0
    bench.forwarder().join().turns(2)
    assert bench.forwarded() == [(b"a", 1, 0)]


def test_records_that_were_deleted_before_they_were_forwarded_are_an_error() -> None:
    bench = Bench()
    bench.feed_shops("a", "b", "c")
    bench.broker.committed[0] = 0
    bench.broker.logs[0].low = 2
    with pytest.raises(WorkerError, match=r"events\[0\]: the next record to forward is 0, there are 2 to 3.*on_gap"):
        bench.forwarder().join().turn()
    assert bench.broker.committed == {0: 0}


def test_a_gap_may_be_accepted() -> None:
    bench = Bench(on_gap="accept")
    bench.feed_shops("a", "b", "c")
    bench.broker.committed[0] = 0
    bench.broker.logs[0].low = 2
    bench.forwarder().join().turns(2)
    assert bench.forwarded() == [(b"c", 0, 2)]


def test_an_offset_beyond_the_end_is_no_gap() -> None:
    """The topic was made anew: what is in it was never forwarded, and nobody knows what else was lost."""
    bench = Bench(on_gap="accept")
    bench.feed_shops("a", "b")
    bench.broker.committed[0] = 9
    forwarder = bench.forwarder().join()
    with pytest.raises(WorkerError, match="the next record to forward is 9, there are 0 to 2") as raised:
        forwarder.turns(1)
    assert "on_gap" not in str(raised.value), "that would not help"
    assert f"set the group {bench.config.kafka['group.id']} to that offset" in str(raised.value)


# Faults


def test_a_failure_ends_it_and_it_leaves_the_group() -> None:
    bench = Bench()
    bench.feed_shops("a")
    forwarder = bench.forwarder()
    forwarder.faults.at("begin", WorkerError("not authorized"))
    turns = iter(range(10))

    def should_stop() -> bool:
        if next(turns) == 0:
            bench.broker.group.rebalance({0: forwarder.input})
        return False

    with pytest.raises(WorkerError, match="not authorized"):
        forwarder.run(should_stop)
    assert not forwarder.input.is_member
    assert bench.broker.published == []


def test_a_failed_transaction_is_sent_again_without_what_was_taken_away() -> None:
    bench = Bench(partitions=2)
    bench.feed_shops("a", "b")
    bench.feed_shops("c", "d", partition=1)
    one, two = bench.forwarder("one"), bench.forwarder("two")
    one.faults.at("commit", None, Abort("x"))
    one.join().turns(2)
    two.join(1)
    one.turns(2)
    assert bench.broker.committed == {0: 2, 1: 0}
    two.turns(2)
    assert sorted(bench.forwarded()) == [(b"a", 0, 0), (b"b", 0, 1), (b"c", 1, 0), (b"d", 1, 1)]


ERRORS: dict[str, tuple[type[WorkerError], ...]] = {
    "committed": (Transient,),
    "bounds": (Transient,),
    "init": (Transient, Abort, Unknown),
    "begin": (Unknown,),
    "produce": (Abort, Transient, Unknown),
    "offsets": (Abort, Unknown),
    "commit": (Abort, Unknown),
    "commit:done": (Unknown,),
    "abort": (Unknown,),
    "abort:done": (Unknown,),
}


class Schedule:
    """Forwarders that crash, lose partitions and meet errors at any call, as a seed says; then they may work it off."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.rng = random.Random(seed)
        self.bench = Bench(self.rng.randint(1, 3))
        self.counts = counts
        self._rate = self.rng.choice((0.03, 0.1, 0.2))
        self._calm = False
        self._made = 0
        self._entries: list[Bound | None] = [None] * self.rng.randint(1, 3)

    def run(self) -> None:
        for _ in range(40):
            self._step()
        self._calm = True
        for _ in range(10):
            self.bench.clock.now_s += TRANSACTION_TIMEOUT_S
            for entry in range(len(self._entries)):
                self._do(entry, lambda member: member.turn())
            self._rebalance()

    def _step(self) -> None:
        rng, bench = self.rng, self.bench
        match rng.randint(0, 5):
            case 0:
                values = (b'{"shop": %d}' % rng.randint(0, 9), b"{}")
                number = rng.randrange(len(bench.broker.logs))
                bench.feed(*rng.choices(values, (9, 1), k=rng.randint(1, 5)), partition=number)
            case 1:
                self._rebalance()
            case 2:
                bench.clock.now_s += rng.choice((0.1, 1.0, 15.0))
                bench.broker.deliver_late()
            case _:
                self._do(rng.randrange(len(self._entries)), lambda member: member.turn())

    def _do(self, entry: int, step: Callable[[Bound], None]) -> None:
        """A step of the process in this slot, which is started where there is none; it may be its last."""
        member = self._entries[entry]
        try:
            if member is None:
                self._made += 1
                member = self._entries[entry] = Bound(
                    self.bench, f"slot-{entry}", lambda point: self._at(entry, point), NOT_LOOKED_AT
                )
                member.input.batch_records = lambda: 100 if self._calm else self.rng.randint(0, 4)
                member.input.reads_ahead = lambda: self.rng.random() < 0.3
                member.start()
                self._rebalance()
            step(member)
        except (Crash, WorkerError) as end:
            assert member is not None
            self._entries[entry] = None
            if isinstance(end, WorkerError):
                with suppress(Crash, WorkerError):
                    member.close()
            member.input.expire()

    def _at(self, entry: int, point: str) -> None:
        member = self._entries[entry]
        if member is None:
            raise Crash
        if self._calm or point == "consume":
            member.input.notice()
        if self._calm or self.rng.random() >= self._rate:
            return
        fault = self.rng.choice(("error", "error", "crash", "loss", "rebalance", "late commit"))
        if fault == "error" and point in ERRORS:
            self.counts["error"] += 1
            raise self.rng.choice(ERRORS[point])("injected")
        if fault == "crash":
            self.counts["crash"] += 1
            raise Crash
        if fault == "loss" and member.input.is_member:
            self.counts["loss"] += 1
            member.input.expire()
            self._rebalance()
        if fault == "rebalance":
            self.counts["rebalance"] += 1
            self._rebalance()
        if fault == "late commit" and point == "commit":
            self.counts["late commit"] += 1
            identity = f"slot-{entry}"
            self.bench.broker.commit_late(identity, self.bench.broker.open[identity].epoch)
            raise Unknown("injected: the request is late")

    def _rebalance(self) -> None:
        members = self.bench.broker.group.members
        if members:
            self.bench.broker.group.rebalance({n: self.rng.choice(members) for n in self.bench.broker.logs})


@pytest.fixture
def quiet() -> Iterator[None]:
    """The forwarder warns of every fault; to format that would take longer than the schedules."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def source(outgoing: Outgoing) -> tuple[int, int]:
    headers = dict(outgoing.headers)
    return int(headers["source-partition"] or b""), int(headers["source-offset"] or b"")


def key_of(record: Record) -> bytes | None:
    return None if record.value == b"{}" else (record.value or b"")[9:-1]


@pytest.mark.usefixtures("quiet")
def test_no_schedule_of_faults_loses_doubles_or_swaps_a_record() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1000):
        schedule = Schedule(seed, counts)
        schedule.run()
        broker = schedule.bench.broker
        assert broker.open == {}, f"seed {seed}"
        for number, log in broker.logs.items():
            expected = [(record.offset, key_of(record)) for record in log.records]
            found = [
                (origin(each)[1], each.key) if each.topic == INTERNAL else (source(each)[1], None)
                for each in broker.published
                if (origin(each) if each.topic == INTERNAL else source(each))[0] == number
            ]
            assert found == expected, f"seed {seed}, partition {number}"
    assert min(counts[fault] for fault in ("error", "crash", "loss", "rebalance", "late commit")) >= 10


def test_a_broker_that_refuses_transactions_for_hours_is_not_asked_all_the_time_and_takes_no_memory() -> None:
    bench = Bench()
    bench.config = replace(bench.config, transaction=replace(bench.config.transaction, max_records=10))
    bound = bench.forwarder().join().turns(2)
    bench.feed_shops(*(f"shop-{n}" for n in range(100)))
    attempts = 0

    def refuse(point: str) -> None:
        nonlocal attempts
        if point == "produce" and bench.clock.now_s < until_s:
            attempts += 1
            raise Abort("NOT_ENOUGH_REPLICAS")

    until_s = bench.clock.now_s + 3600.0
    bound.forwarder._transactions._output.hook = refuse
    while bench.clock.now_s < until_s:
        bound.turn()
        assert sum(map(len, bound.forwarder._waiting.values())) <= 10
    assert attempts < 3700
    bound.turns(200)
    assert [offset for _, _, offset in bench.forwarded()] == list(range(100))
