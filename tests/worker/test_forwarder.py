"""What a forwarder forwards, where it starts, and what ends it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.worker.support.fakes import Crash, with_transactions
from tests.worker.support.forwarders import INTERNAL, MAX_MESSAGE_BYTES, ForwarderBench
from worker.base.errors import Abort, Unknown, WorkerError
from worker.base.records import Membership, Outgoing
from worker.base.standing import OUTSIDE_S
from worker.repartition.note import Note

# What is forwarded


def test_a_record_comes_under_its_model_key_and_is_else_as_it_was() -> None:
    bench = ForwarderBench()
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
    bench = ForwarderBench()
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
    bench = ForwarderBench()
    bench.feed(b"{}")
    forwarder = bench.forwarder().join()
    forwarder.faults.at("commit", None, Abort("x"))
    while bench.broker.committed != {0: 1}:
        assert not forwarder.board.dead_letters
        forwarder.turns(1)
    assert [each.offset for each in forwarder.board.dead_letters] == [0]


def test_a_record_whose_headers_cannot_be_read_is_a_dead_letter() -> None:
    bench = ForwarderBench()
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
    bench = ForwarderBench()
    bench.feed(b'{"shop": "s", "x": "%s"}' % (b"x" * (MAX_MESSAGE_BYTES - 200)))
    bench.feed(b'{"shop": "s", "x": "%s"}' % (b"x" * (MAX_MESSAGE_BYTES - 500)))
    bench.forwarder().join().turns(2)
    assert [each.topic for each in bench.broker.published] == ["dead-letters", INTERNAL]
    assert dict(bench.broker.published[0].headers)["error-code"] == b"too-large"


def test_a_flood_of_dead_letters_ends_the_forwarder_once_they_are_committed() -> None:
    bench = ForwarderBench(max_consecutive=2)
    bench.feed(b"{}", b"{}", b'{"shop": 1}', b"{}", b"{}")
    forwarder = bench.forwarder().join().turns(2)
    bench.feed(b"{}")
    with pytest.raises(WorkerError, match=r"events\[0\]: 3 records in a row.*missing-model-key"):
        forwarder.turn()
    assert bench.broker.committed == {0: 6}
    assert len(bench.broker.published) == 6


def test_a_flood_that_is_over_by_the_end_of_a_batch_ends_the_forwarder_all_the_same() -> None:
    bench = ForwarderBench(max_consecutive=2)
    bench.feed(b"{}", b"{}", b"{}", b'{"shop": 1}')
    with pytest.raises(WorkerError, match=r"events\[0\]: 3 records in a row"):
        bench.forwarder().join().turns(2)
    assert bench.broker.committed == {0: 4}


def test_a_forwarder_says_whether_its_group_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ForwarderBench()
    forwarder = bench.forwarder()
    assert forwarder.board.forwarder_trouble == "the forwarders' group has not assigned partitions yet"
    forwarder.input.connection = "the last connection failed: invalid credentials"
    forwarder.start()
    forwarder.turns(1)
    refused = "the forwarders' group has not assigned partitions yet: the last connection failed: invalid credentials"
    assert forwarder.board.forwarder_trouble == refused
    forwarder.input.connection = None
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
    bench = ForwarderBench()
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
    bench = ForwarderBench(start=start)
    bench.feed_shops("a", "b")
    forwarder = bench.forwarder().join().turns(2)
    bench.feed_shops("c")
    forwarder.turn()
    assert [key for key, *_ in bench.forwarded()] == keys


def test_a_start_is_chosen_once_and_known_before_anything_is_forwarded() -> None:
    bench = ForwarderBench(start="latest")
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
    bench = ForwarderBench(start="latest")
    bench.feed_shops("not wanted")
    bench.forwarder("one").join().turns(2)
    bench.broker.add_partition()
    bench.feed_shops("a", "b", partition=1)  # producers see it at once, consumers some minutes later
    two = bench.forwarder("two").join().turns(2)
    bench.feed_shops("c", partition=1)
    two.turns(1)
    assert bench.forwarded() == [(b"a", 1, 0), (b"b", 1, 1), (b"c", 1, 2)]


def test_a_member_without_partitions_stands_by() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a")
    one = bench.forwarder("one").join()
    two = bench.forwarder("two")
    two.start()
    two.assigned([])
    one.turns(2)
    two.turns(2)
    assert bench.forwarded() == [(b"a", 0, 0)]


def test_of_two_that_begin_together_the_later_one_starts_where_it_is_told_to() -> None:
    bench = ForwarderBench(2, start="latest")
    bench.feed_shops("not wanted", partition=0)
    bench.feed_shops("not wanted", partition=1)
    bench.forwarder("one").join(0).turns(2)
    two = bench.forwarder("two").join(1).turns(2)
    bench.feed_shops("a", partition=1)
    two.turn()
    assert bench.forwarded() == [(b"a", 1, 1)]


def test_beside_offsets_that_others_have_set_nothing_is_left_out() -> None:
    bench = ForwarderBench(2, start="latest")
    bench.feed_shops("a", partition=1)
    bench.broker.committed[0] = 0
    bench.forwarder().join().turns(2)
    assert bench.forwarded() == [(b"a", 1, 0)]


def test_records_that_were_deleted_before_they_were_forwarded_are_an_error() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a", "b", "c")
    bench.broker.committed[0] = 0
    bench.broker.logs[0].low = 2
    with pytest.raises(WorkerError, match=r"events\[0\]: the next record to forward is 0, there are 2 to 3.*on_gap"):
        bench.forwarder().join().turn()
    assert bench.broker.committed == {0: 0}


def test_a_gap_may_be_accepted() -> None:
    bench = ForwarderBench(on_gap="accept")
    bench.feed_shops("a", "b", "c")
    bench.broker.committed[0] = 0
    bench.broker.logs[0].low = 2
    bench.forwarder().join().turns(2)
    assert bench.forwarded() == [(b"c", 0, 2)]


def test_an_offset_beyond_the_end_is_no_gap() -> None:
    """The topic was made anew: what is in it was never forwarded, and what else was lost is not known."""
    bench = ForwarderBench(on_gap="accept")
    bench.feed_shops("a", "b")
    bench.broker.committed[0] = 9
    forwarder = bench.forwarder().join()
    with pytest.raises(WorkerError, match="the next record to forward is 9, there are 0 to 2") as raised:
        forwarder.turns(1)
    assert "on_gap" not in str(raised.value), "that would not help"
    assert f"set the group {bench.config.kafka['group.id']} to that offset" in str(raised.value)


# Offsets that no record has


def marked_bench(**settings: Any) -> ForwarderBench:
    """Three records, two offsets behind them that no record has, and a forwarder that is gone; then all was deleted."""
    bench = ForwarderBench(**settings)
    bench.feed_shops("a", "b", "c")
    bench.broker.logs[0].mark(2)
    bench.forwarder("one").join().turns(3).close()
    bench.broker.logs[0].retire_all()
    return bench


def goes_on(bench: ForwarderBench, name: str = "next") -> None:
    """What comes next is forwarded as if nothing had happened."""
    before = bench.forwarded()
    offset = bench.broker.logs[0].append(None, b'{"shop": "d"}')
    bench.forwarder(name).join().turns(4).close()
    assert bench.forwarded() == [*before, (b"d", 0, offset)]
    assert bench.broker.committed == {0: offset + 1}


@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_markers_of_transactions_may_be_deleted_behind_the_last_record(on_gap: str) -> None:
    bench = marked_bench(on_gap=on_gap)
    assert bench.broker.committed == {0: 3}, "a commit beyond the last record would hide that the end of a log is lost"
    goes_on(bench)


def test_markers_may_be_deleted_where_there_never_was_a_record() -> None:
    bench = ForwarderBench()
    bench.broker.logs[0].mark(101)
    bench.forwarder("one").join().turns(3).close()
    bench.broker.logs[0].retire_all()
    goes_on(bench)


def test_markers_that_come_later_are_noted_once_and_kept_by_the_next_forwarder() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a")
    one = bench.forwarder("one").join().turns(3)
    bench.broker.logs[0].mark(1)
    one.turns(2)
    n_commits = one.faults.seen.count("commit")
    one.turns(5)
    assert one.faults.seen.count("commit") == n_commits
    one.close()
    bench.broker.logs[0].retire_all()
    for name in ("two", "three"):
        idle = bench.forwarder(name).join().turns(3)
        idle.close()
        assert "commit" not in idle.faults.seen
    goes_on(bench)


def test_a_note_whose_commit_came_to_nothing_is_committed_again() -> None:
    """The offset alone does not tell: it is that of the commit before."""
    bench = ForwarderBench()
    bench.feed_shops("a")
    one = bench.forwarder("one").join().turns(3)
    bench.broker.logs[0].mark(1)
    one.faults.at("commit", Unknown("no answer"))
    one.turns(4)
    assert bench.broker.metadata == {0: "forwarder since partitions 1, no record from 1 to 2"}


def test_an_input_without_transactions_is_committed_along_with_its_records_alone() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a", "b")
    forwarder = bench.forwarder().join().turns(6)
    assert forwarder.faults.seen.count("commit") == 2, "the start, and the records"


def test_markers_that_are_deleted_while_nothing_more_is_read_stop_nobody() -> None:
    bench = ForwarderBench(partitions=2)
    bench.config = with_transactions(bench.config, max_records=2)
    one = bench.forwarder("one").join().turns(2)
    one.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 5)
    bench.feed_shops(*"abcd", partition=1)
    one.turn()
    bench.broker.logs[0].mark(3)
    for _ in range(4):
        bench.clock.now_s += 10
        one.turn()
    assert all(each.is_paused for each in one.forwarder._owned.values())
    bench.broker.logs[0].retire_all()
    one.turns(20)
    bench.feed_shops("e")
    one.turns(2)
    assert sorted(bench.forwarded()) == [(b"a", 1, 0), (b"b", 1, 1), (b"c", 1, 2), (b"d", 1, 3), (b"e", 0, 3)]


def test_a_record_behind_what_was_noted_is_missed() -> None:
    bench = marked_bench()
    bench.feed_shops("d")
    bench.broker.logs[0].retire_all()
    with pytest.raises(WorkerError, match=r"events\[0\]: the next record to forward is 3, there are 6 to 6"):
        bench.forwarder("two").join().turns(2)


def test_a_log_that_has_lost_its_end_is_told_from_deleted_markers() -> None:
    bench = marked_bench()
    log = bench.broker.logs[0]
    log.low = 0
    log.truncate(2)
    bench.feed_shops("d", "e")
    log.low = 3
    with pytest.raises(WorkerError, match="the next record to forward is 3, there are 3 to 4"):
        bench.forwarder("two").join().turns(2)


def test_a_part_of_a_transaction_does_not_pass_for_the_whole() -> None:
    """It is committed with the note of the whole: the records between them are not markers."""
    bench = ForwarderBench()
    bench.feed_shops(*"abcd")
    bench.broker.logs[0].mark(1)
    one = bench.forwarder("one").join()
    one.faults.at("commit", None, *[Abort("NOT_ENOUGH_REPLICAS")] * 3, None, Crash())
    with pytest.raises(Crash):
        one.turns(20)
    assert bench.broker.committed == {0: 2}
    one.input.expire()
    bench.broker.logs[0].low = 4
    with pytest.raises(WorkerError, match="the next record to forward is 2, there are 4 to 5"):
        bench.forwarder("two").join().turns(2)


def test_a_start_is_not_committed_with_what_is_known_of_the_end() -> None:
    """The records between them are read, but not forwarded yet."""
    bench = ForwarderBench()
    bench.feed_shops("a")
    bench.broker.logs[0].mark(1)
    one = bench.forwarder("one").join().turns(1)
    assert bench.broker.committed == {0: 0}
    one.input.expire()
    bench.broker.logs[0].retire_all()
    with pytest.raises(WorkerError, match="the next record to forward is 0, there are 2 to 2"):
        bench.forwarder("two").join().turns(2)


@pytest.mark.parametrize(
    ("metadata", "note"),
    [
        ("forwarder since partitions 3", Note(3)),
        ("forwarder since partitions 3, no record from 5 to 8", Note(3, 5, 8)),
        ("forwarder since partitions 3, and more", None),
        ("forwarder since partitions", None),
        ("", None),
    ],
)
def test_a_note_says_what_it_was_made_of(metadata: str, note: Note | None) -> None:
    assert Note.read(metadata) == note
    if note is not None:
        assert note.metadata() == metadata
        assert [note.covered(offset) for offset in (0, 4)] == [0, 4]
        assert note.covered(9) == 9
        assert note.covered(note.bare_from) == note.bare_to


# Faults


def test_a_failure_ends_it_and_it_leaves_the_group() -> None:
    bench = ForwarderBench()
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
    bench = ForwarderBench(partitions=2)
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


def test_a_broker_that_refuses_transactions_for_hours_is_not_asked_all_the_time_and_takes_no_memory() -> None:
    bench = ForwarderBench()
    bench.config = with_transactions(bench.config, max_records=10)
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
        assert sum(len(each.waiting) for each in bound.forwarder._owned.values()) <= 10
    assert attempts < 3700
    bound.turns(200)
    assert [offset for _, _, offset in bench.forwarded()] == list(range(100))


def test_a_partition_that_goes_while_nothing_more_is_read_is_not_read_on_afterwards() -> None:
    bench = ForwarderBench(partitions=2)
    bench.config = with_transactions(bench.config, max_records=2)
    one, two = bench.forwarder("one").join().turns(2), bench.forwarder("two")
    one.faults.at("commit", *[Abort("NOT_ENOUGH_REPLICAS")] * 5)
    for number in (0, 1):
        bench.feed_shops(*"abcdef", partition=number)
    for _ in range(5):
        bench.clock.now_s += 10
        one.turn()
    assert all(each.is_paused for each in one.forwarder._owned.values())
    two.join(1)
    one.turns(20)
    two.turns(20)
    assert sorted((number, offset) for _, number, offset in bench.forwarded()) == [
        (number, offset) for number in (0, 1) for offset in range(6)
    ]
