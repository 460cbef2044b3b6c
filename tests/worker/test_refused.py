"""Outputs that the broker will never take, and transactions that are too long: the others go out, once, in order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.worker.support.bench import Bench, gathering
from tests.worker.support.fake_broker import FIRST_TIMESTAMP_MS, TRANSACTION_TIMEOUT_S, Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput, NoListener
from tests.worker.support.fakes import FakeClock, Faults
from tests.worker.support.forwarders import BoundForwarder, ForwarderBench
from worker.base.errors import Abort, Unknown, WorkerError
from worker.base.metrics import Metrics
from worker.base.records import CommittedOffset, Outgoing, Record
from worker.commit.pending import Pending
from worker.commit.transactions import Transactions


def offset_of(outgoing: Outgoing) -> int:
    return int(dict(outgoing.headers)["source-offset"] or b"")


def code_of(outgoing: Outgoing) -> bytes | None:
    return dict(outgoing.headers).get("error-code")


class Sending:
    """Transactions of outputs `<partition>.<i>`, made of records at the offsets 0, 2, 4 and so on."""

    def __init__(self, *sizes: int, exactly_once: bool = True) -> None:
        self.broker = Broker(len(sizes), FakeClock())
        self.faults = Faults()
        self.input = FakeInput(self.broker, self.faults)
        identity = "one" if exactly_once else None
        self.transactions = Transactions(
            self.input,
            lambda: FakeOutput(self.broker, identity, self.faults),
            "exactly-once" if exactly_once else "at-least-once",
            Metrics(),
            self.broker.clock,
        )
        self.input.subscribe(NoListener())
        self.transactions.open()
        self.pending = Pending(self.input.membership(), self._dead_letter_for)
        for number, size in enumerate(sizes):
            records = [Record(2 * i, FIRST_TIMESTAMP_MS, None, None, []) for i in range(size)]
            outgoing = [Outgoing("out", None, b"%d.%d" % (number, i), [], 0) for i in range(size)]
            self.pending.add(number, records, outgoing, CommittedOffset(2 * size - 1))
        self.transactions.pending = self.pending

    def settle(self, most: int) -> int:
        """Turns that it takes."""
        for turn in range(1, most + 1):
            if self.transactions.settle():
                return turn
        raise AssertionError(f"not settled after {most} turns: {self.broker.committed}")

    def published(self) -> list[bytes]:
        return [(b"dead " if each.topic == "dead" else b"") + (each.value or b"") for each in self.broker.published]

    def _dead_letter_for(self, number: int, record: Record, refused: Outgoing, why: str) -> Outgoing | None:
        assert (record.offset, why) == (2 * int((refused.value or b"").partition(b".")[2]), "message size too large")
        return None if refused.topic == "dead" else Outgoing("dead", None, refused.value, [], 0)


def test_a_transaction_of_many_parts_holds_up_the_loop_for_some_of_them_at_a_time() -> None:
    sending = Sending(64)
    # Each of them goes out by itself, and again as a dead letter.
    sending.broker.refuses = lambda each: each.topic == "out"
    done, attempts = False, [0]
    while not done:
        done = sending.transactions.settle()
        attempts.append(sending.faults.seen.count("begin"))
    assert sending.broker.committed == {0: 127}
    assert max(later - earlier for earlier, later in pairwise(attempts)) == 8


@pytest.mark.parametrize("refused", [[b"0.0"], [b"0.4"], [b"1.2"], [b"0.1", b"0.2", b"1.0"]])
def test_others_go_out_and_a_dead_letter_in_place_of_what_is_refused(refused: list[bytes]) -> None:
    sending = Sending(5, 3)
    sending.broker.refuses = lambda each: each.topic == "out" and each.value in refused
    sending.settle(20)
    names = [b"0.%d" % i for i in range(5)] + [b"1.%d" % i for i in range(3)]
    assert sending.published() == [b"dead " + name if name in refused else name for name in names]
    assert sending.broker.committed == {0: 9, 1: 5}
    of_partitions = sending.pending.replaced.items()
    replaced = [b"%d.%d" % (number, each.offset // 2) for number, some in of_partitions for each in some]
    assert (replaced, sending.pending.committed) == (refused, 8)
    assert sending.transactions.take_given_up() == {}
    assert sending.broker.open == {}


def test_a_partition_whose_dead_letter_is_refused_is_given_up_at_that_record() -> None:
    sending = Sending(4, 3, 2)
    sending.broker.refuses = lambda each: each.value == b"1.1"
    sending.settle(20)
    assert sending.published() == [b"0.0", b"0.1", b"0.2", b"0.3", b"1.0", b"2.0", b"2.1"]
    assert sending.broker.committed == {0: 7, 1: 1, 2: 3}
    [(number, stop)] = sending.transactions.take_given_up().items()
    assert (number, stop.code) == (1, "output-refused")
    assert "message size too large" in str(stop)
    assert sending.transactions.take_given_up() == {}


def test_offsets_are_committed_with_the_outputs_before_them_alone() -> None:
    sending = Sending(8)
    sending.broker.refuses = lambda each: each.value == b"0.5" and each.topic == "out"
    seen: list[tuple[int, int | None]] = []
    commit = sending.broker.commit

    def committing(offsets: Any) -> None:
        commit(offsets)
        seen.append((len(sending.broker.published), sending.broker.committed[0]))

    sending.broker.commit = committing  # type: ignore[method-assign]
    sending.settle(20)
    assert len(seen) > 2
    assert all(offset in (2 * n - 1, 2 * n) for n, offset in seen)


@pytest.mark.parametrize("fault", ["commit", "commit:done", "abort", "offsets"])
@pytest.mark.parametrize("nth", range(4))
def test_a_fault_in_between_neither_loses_nor_repeats(fault: str, nth: int) -> None:
    sending = Sending(3, 3)
    sending.broker.refuses = lambda each: each.topic == "out" and each.value in (b"0.1", b"1.2")
    sending.faults.at(fault, *[None] * nth, Unknown("x") if fault != "offsets" else Abort("x"))
    sending.settle(30)
    assert sending.published() == [b"0.0", b"dead 0.1", b"0.2", b"1.0", b"1.1", b"dead 1.2"]
    assert sending.broker.committed == {0: 5, 1: 5}


def test_at_least_once_nothing_is_missing_either() -> None:
    sending = Sending(3, 2, exactly_once=False)
    sending.broker.refuses = lambda each: each.topic == "out" and each.value == b"0.1"
    sending.settle(20)
    assert set(sending.published()) == {b"0.0", b"dead 0.1", b"0.2", b"1.0", b"1.1"}
    assert sending.broker.committed == {0: 5, 1: 3}


def test_what_takes_longer_than_a_transaction_may_goes_out_in_parts() -> None:
    sending = Sending(60, 4)
    sending.broker.seconds_per_record = TRANSACTION_TIMEOUT_S / 10
    sending.settle(40)
    assert sending.published() == [b"0.%d" % i for i in range(60)] + [b"1.%d" % i for i in range(4)]
    assert sending.broker.committed == {0: 119, 1: 7}


def test_what_fails_for_other_reasons_is_sent_whole_again() -> None:
    sending = Sending(8)
    sending.faults.at("commit", Abort("x"), Unknown("x"))
    assert sending.settle(3) == 3
    assert (sending.faults.seen.count("produce"), len(sending.published())) == (3, 8)


# The worker


def refused_predictions(bench: Bench, *offsets: int) -> None:
    bench.broker.refuses = lambda each: each.topic == "predictions" and offset_of(each) in offsets


def test_the_model_keeps_what_it_has_learned_of_a_refused_record() -> None:
    bench = Bench(partitions=2, interval_s=60.0)
    bench.feed("a", "b", "a", "b")
    bench.feed("a", "b", partition=1)
    refused_predictions(bench, 1)
    worker = bench.worker().join().turns(6)
    expected = bench.expected()
    published = bench.published()
    assert [published[0], *published[2:]] == [expected[0], *expected[2:]]
    letter = published[1]
    assert (letter.topic, letter.key, letter.value) == ("dead-letters", b"k", bench.broker.logs[0].records[1].value)
    assert (code_of(letter), dict(letter.headers)["error-reason"]) == (b"unpublishable", b"message size too large")
    assert dict(letter.headers)["spec"] == dict(expected[1].headers)["spec"]
    assert [code_of(each) for each in bench.published(1)] == [None, b"unpublishable"]
    assert bench.broker.committed == {0: 4, 1: 2}
    counts = {labels.code: n for labels, n in worker.metrics.dead_letters_total.series().items() if n}
    assert counts == {"unpublishable": 2}
    assert list(worker.metrics.predictions_total.series().values()) == [4]
    worker.kill()
    # A replay knows nothing of refusals, and comes to the same state.
    bench.feed("a")
    bench.worker("two").join().turns(4)
    assert bench.published()[4:] == bench.expected()[4:]


def test_a_refusal_is_an_aborted_transaction() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a")
    refused_predictions(bench, 0)
    worker = bench.worker().join().turns(2)
    assert [code_of(each) for each in bench.published()] == [b"unpublishable"]
    assert worker.outcomes() == {"aborted": 1, "committed": 1}


def test_a_crash_between_two_parts_is_no_more_than_any_other() -> None:
    for nth in range(12):
        bench = Bench(interval_s=60.0)
        bench.feed(*"abababab")
        refused_predictions(bench, 2, 5)
        one = bench.worker("one")
        one.faults.at("commit:done", *[None] * nth, WorkerError("killed"))
        one.join()
        try:
            one.turns(8)
        except WorkerError:
            one.kill()
            bench.worker("two").join().turns(8)
        assert [offset_of(each) for each in bench.published()] == [*range(8)]
        assert [code_of(each) is not None for each in bench.published()] == [i in (2, 5) for i in range(8)]


def test_a_partition_whose_dead_letter_is_refused_stops_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(partitions=2, interval_s=0.001)
    bench.feed("a", "b", "a")
    bench.feed("a", "b", partition=1)
    bench.broker.refuses = lambda each: (dict(each.headers)["source-partition"], offset_of(each)) == (b"0", 1)
    worker = bench.worker().join().turns(4)
    assert worker.stops() == {"output-refused": 1}
    assert "the broker refuses even the dead letter" in caplog.text
    assert bench.broker.committed == {0: 1, 1: 2}
    bench.feed("a")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert bench.published(1) == bench.expected(1)
    worker.close()
    # Its models had learned more than is committed, so nothing of them was saved.
    assert bench.newest(0).offset <= 1
    # Once the topic takes it, the prediction comes as if nothing had been.
    bench.broker.refuses = lambda _: False
    bench.worker("two").join().turns(4)
    assert bench.published(0) == bench.expected(0)


def test_a_partition_whose_dead_letter_is_refused_as_another_one_goes_stops_all_the_same() -> None:
    bench = Bench(partitions=2)
    worker = gathering(bench)
    for number in range(2):
        bench.feed("a", partition=number)
    worker.turn()
    bench.broker.refuses = lambda each: dict(each.headers)["source-partition"] == b"0"
    bench.worker("two").join(1)
    worker.input.consume(1, 0.0)
    assert (worker.stops(), bench.broker.committed) == ({"output-refused": 1}, {1: 1})


def test_what_is_given_up_with_its_partition_is_neither_counted_nor_shown() -> None:
    """None of it is committed: whoever takes the partition over takes these records again."""
    bench = Bench(partitions=2, interval_s=0.001)
    bench.feed_bad(2)
    bench.feed("a", "b", partition=1)
    bench.broker.refuses = lambda each: dict(each.headers)["source-partition"] == b"0"
    worker = bench.worker().join().turns(4)
    assert (worker.stops(), bench.broker.committed) == ({"output-refused": 1}, {1: 2})
    assert list(worker.metrics.events_total.series().values()) == [2]
    assert not any(worker.metrics.dead_letters_total.series().values())
    assert list(worker.board.dead_letters) == []


# The forwarder


def test_a_record_that_cannot_be_forwarded_is_a_dead_letter() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a", "b", "c")
    bench.broker.refuses = lambda each: each.key == b"b"
    forwarder = bench.forwarder().join().turns(4)
    assert [each.key for each in bench.broker.published] == [b"a", b"record key", b"c"]
    letter = bench.broker.published[1]
    assert (letter.topic, code_of(letter), letter.value) == ("dead-letters", b"unpublishable", b'{"shop": "b"}')
    assert bench.broker.committed == {0: 3}
    assert counted(forwarder) == (2, 1, {"unpublishable": 1})
    shown = [(each.topic, each.partition, each.offset, each.key, each.code) for each in forwarder.board.dead_letters]
    assert shown == [("events", 0, 1, "record key", "unpublishable")]


def test_records_that_cannot_be_forwarded_are_shown_each_with_its_reason() -> None:
    bench = ForwarderBench(partitions=2)
    bench.feed_shops("a", "b")
    bench.feed(b"{}")
    bench.feed_shops("b", partition=1)
    bench.broker.refuses = lambda each: each.key == b"b"
    forwarder = bench.forwarder().join().turns(6)
    assert bench.broker.committed == {0: 3, 1: 1}
    assert counted(forwarder) == (1, 3, {"missing-model-key": 1, "unpublishable": 2})
    shown = {(each.partition, each.offset, each.code) for each in forwarder.board.dead_letters}
    assert shown == {(0, 1, "unpublishable"), (0, 2, "missing-model-key"), (1, 0, "unpublishable")}


def counted(forwarder: BoundForwarder) -> tuple[float, float, dict[str, float]]:
    """How many records were forwarded, how many were not, and how many of these with each code."""
    metrics = forwarder.metrics
    [forwarded] = metrics.forwarded_records_total.series().values()
    [rejected] = metrics.forwarder_dead_letters_total.series().values()
    return forwarded, rejected, {labels.code: n for labels, n in metrics.dead_letters_total.series().items()}


def test_where_its_dead_letter_is_refused_too_the_forwarder_ends() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a", "b", "c")
    bench.broker.refuses = lambda each: b'"b"' in (each.value or b"")
    with pytest.raises(WorkerError, match="events, partition 0: the broker refuses even the dead letter"):
        bench.forwarder().join().turns(4)
    assert bench.broker.committed == {0: 1}
