"""What the client says of partitions of a forwarder: that records are gone, or nothing that follows any more."""

from __future__ import annotations

import pytest

from tests.worker.support.fakes import with_transactions
from tests.worker.support.forwarders import BoundForwarder, ForwarderBench
from worker.base.errors import Abort, Transient, Unanswered, Unknown, WorkerError
from worker.base.ports import Gone
from worker.base.refusals import UNDECOMPRESSED, unreadable_records


def hears(forwarder: BoundForwarder, gone: Gone, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all records that it reads from now on the forwarder is told this."""
    consume = forwarder.input.consume
    monkeypatch.setattr(forwarder.input, "consume", lambda most, timeout_s: (consume(most, timeout_s)[0], gone))


def held_up(partitions: int, turns: int) -> tuple[ForwarderBench, BoundForwarder]:
    """A forwarder whose transactions are refused, of two of the four records of its first partition."""
    bench = ForwarderBench(partitions)
    bench.config = with_transactions(bench.config, max_records=2)
    one = bench.forwarder().join().turns(2)
    one.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 5)
    bench.feed_shops(*"abcd")
    for _ in range(turns):
        bench.clock.now_s += 10
        one.turn()
    return bench, one


@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_records_that_can_never_be_read_end_the_forwarder(on_gap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ForwarderBench(on_gap=on_gap)
    forwarder = bench.forwarder().join().turns(2)
    hears(forwarder, {0: unreadable_records("events[0]", "Invalid compressed data", UNDECOMPRESSED)}, monkeypatch)
    with pytest.raises(WorkerError, match="Invalid compressed data"):
        forwarder.turn()


def test_what_is_heard_of_a_partition_that_was_taken_away_meanwhile_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ForwarderBench(partitions=2)
    forwarder = bench.forwarder().join(1).turns(2)
    bench.feed_shops("a", partition=1)
    hears(forwarder, {0: "gone"}, monkeypatch)
    forwarder.turns(2)
    assert bench.forwarded() == [(b"a", 1, 0)]


def test_records_of_a_partition_that_was_taken_away_meanwhile_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ForwarderBench(partitions=2)
    forwarder = bench.forwarder().join().turns(2)
    bench.feed_shops("a")
    consume = forwarder.input.consume

    def consumed(most: int, timeout_s: float) -> object:
        found = consume(most, timeout_s)
        forwarder.forwarder.lost([0])
        return found

    monkeypatch.setattr(forwarder.input, "consume", consumed)
    forwarder.turns(2)
    assert (bench.forwarded(), 0 in forwarder.forwarder._owned) == ([], False)


def test_behind_a_gap_that_is_accepted_nothing_is_committed_with_the_epoch_of_a_record_before_it() -> None:
    bench = ForwarderBench(on_gap="accept")
    bench.feed_shops("a")
    forwarder = bench.forwarder().join().turns(3)
    log = bench.broker.logs[0]
    log.elect()
    bench.feed_shops("b", "c")
    log.mark(2)
    log.low = 3
    forwarder.turns(4)
    assert bench.broker.metadata[0].endswith("no record from 3 to 5")
    assert (bench.broker.committed[0], bench.broker.leader_epochs[0]) == (3, None)


def test_what_was_read_before_a_gap_does_not_pass_for_committed_along_with_what_lies_behind_it() -> None:
    bench = ForwarderBench(on_gap="accept")
    one = bench.forwarder().join().turns(2)

    def lose_outputs() -> None:
        if bench.broker.open["one"].outgoing:
            raise Unknown("no answer")

    one.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 2, None, lose_outputs, lose_outputs)
    bench.feed_shops("a")
    one.turn()
    bench.feed_shops("b", "c", "d")
    one.turn()
    # The second record waits behind the first one's transaction when it is deleted, with all that come after it.
    bench.broker.logs[0].low = 4
    for _ in range(20):
        bench.clock.now_s += 1
        one.turn()
    assert (bench.forwarded(), bench.broker.committed) == ([(b"a", 0, 0), (b"b", 0, 1)], {0: 4})


def test_records_that_are_lost_while_nothing_more_is_read_are_missed_though_others_are_in_their_place() -> None:
    bench, one = held_up(partitions=1, turns=5)
    assert [(each.is_paused, each.position) for each in one.forwarder._owned.values()] == [(True, 4)]
    bench.broker.logs[0].truncate(2)
    bench.feed_shops(*"efgh")
    with pytest.raises(WorkerError, match="The broker has lost records that were forwarded"):
        one.turns(20)
    assert [offset for _, _, offset in bench.forwarded()] == [0, 1, 2, 3]


def test_a_partition_that_is_not_read_on_is_judged_by_what_is_heard_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken from its position again, and would be read meanwhile, without end while transactions are refused."""
    bench, one = held_up(partitions=2, turns=3)
    with monkeypatch.context() as patched:
        hears(one, {1: "gone"}, patched)
        one.turn()
    assert one.input.paused == {0, 1}
    for _ in range(20):
        bench.clock.now_s += 10
        one.turn()
    bench.feed_shops("e", partition=1)
    one.turns(3)
    assert sorted(bench.forwarded())[-1] == (b"e", 1, 0)
    assert len(bench.forwarded()) == 5


def test_a_record_that_comes_after_all_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ForwarderBench()
    one = bench.forwarder().join().turns(2)
    one.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 3)
    bench.feed_shops("a")
    one.turn()
    bench.feed_shops("b")
    with monkeypatch.context() as patched:
        hears(one, {0: "gone"}, patched)
        one.turn()
    bench.feed_shops("c")
    for _ in range(20):
        bench.clock.now_s += 10
        one.turn()
    assert [key for key, _, _ in bench.forwarded()] == [b"a", b"b", b"c"]


def test_an_end_that_is_seen_later_and_says_nothing_new_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record that comes alone would take two transactions."""
    bench = ForwarderBench()
    one = bench.forwarder().join().turns(3)
    bench.feed_shops("a")
    n_commits = one.faults.seen.count("commit")
    with monkeypatch.context() as patched:
        patched.setattr(one.input, "end_seen", lambda number: None)
        one.turn()
    assert bench.forwarded() == [(b"a", 0, 0)]
    one.turns(5)
    assert one.faults.seen.count("commit") == n_commits + 1


def test_a_forwarder_joins_once_there_is_a_producer_and_leaves_none_behind() -> None:
    bench = ForwarderBench()
    forwarder = bench.forwarder()
    forwarder.faults.at("init", Transient("not yet"))
    forwarder.start()
    assert forwarder.faults.seen == ["init", "init", "subscribe"]
    forwarder.close()
    assert [each.is_closed for each in forwarder.outputs] == [True]


def test_a_forwarder_that_is_stopped_before_there_is_a_producer_ends_in_order() -> None:
    bench = ForwarderBench()
    forwarder = bench.forwarder()
    forwarder.faults.at("init", *[Unanswered("nobody answers")] * 100)
    forwarder.run(lambda: forwarder.faults.seen.count("init") > 2)
    assert forwarder.outputs == []


def test_an_offset_that_others_have_set_is_named_with_what_it_repeats(caplog: pytest.LogCaptureFixture) -> None:
    bench = ForwarderBench(2)
    bench.feed_shops(*"ab")
    bench.forwarder().join().turns(2).close()
    bench.forwarder("two").join().turns(2).close()
    assert "was committed by no forwarder" not in caplog.text
    bench.broker.set_offsets({0: 1})
    bench.forwarder("three").join().turns(2).close()
    said = [record.getMessage() for record in caplog.records if "was committed by no forwarder" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("events[0]: the offset 1 of group ")
    assert bench.forwarded() == [(b"a", 0, 0), (b"b", 0, 1), (b"b", 0, 1)]
