"""What becomes of a transaction that fails: the table of errors and what follows, at every step of the protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.worker.support.fake_broker import Broker
from tests.worker.support.fake_clients import FakeInput, FakeOutput, NoListener
from tests.worker.support.fakes import FakeClock, Faults
from worker.base.errors import Abort, Refused, Transient, Unknown, WorkerError
from worker.base.metrics import Metrics
from worker.base.records import CommittedOffset, Membership, Outgoing, Record
from worker.base.rewinds import REWOUND_S
from worker.commit.pending import STEADY_PARTS
from worker.commit.transactions import Pending, Transactions

OUTPUTS = [Outgoing("predictions", b"k", b"%d" % i, [], 0) for i in range(3)]
OFFSETS = {0: 3, 1: 5}


def no_dead_letter(*_: object) -> None: ...


class Bench:
    """Transactions of one member through producers of one id; `faults` meets all their calls."""

    def __init__(self, *, exactly_once: bool = True) -> None:
        self.clock = FakeClock()
        self.broker = Broker(2, self.clock)
        self.faults = Faults()
        self.metrics = Metrics()
        self.input = FakeInput(self.broker, self.faults)
        self.opened = 0
        self.outputs: list[FakeOutput] = []
        self._identity = "one" if exactly_once else None
        delivery = "exactly-once" if exactly_once else "at-least-once"
        self.transactions = Transactions(self.input, self._open_output, delivery, self.metrics, self.clock)
        self.input.subscribe(NoListener())
        self.transactions.open()

    def begin(self, offsets: dict[int, int] = OFFSETS) -> None:
        outgoing = {0: OUTPUTS[:2], 1: OUTPUTS[2:]}
        self.transactions.pending = Pending(self.input.membership(), no_dead_letter)
        for number, offset in offsets.items():
            records = [Record(i, 0, b"k", b"", []) for i in range(len(outgoing[number]))]
            self.transactions.pending.add(number, records, outgoing[number], CommittedOffset(offset))

    def settle(self) -> bool:
        """Returns whether it is done; until then it goes on pending."""
        done = self.transactions.settle()
        assert done == (self.transactions.pending is None)
        return done

    def outcomes(self) -> dict[str, float]:
        return {labels.outcome: n for labels, n in self.metrics.transactions_total.series().items() if n}

    def _open_output(self) -> FakeOutput:
        self.opened += 1
        self.outputs.append(FakeOutput(self.broker, self._identity, self.faults))
        return self.outputs[-1]


def late(bench: Bench) -> None:
    bench.broker.commit_late("one", 1)
    raise Unknown("no answer")


SAME, NEW = 1, 2
"""Producers that it takes."""


@pytest.mark.parametrize(
    ("point", "error", "outcome", "producers", "sent"),
    [
        # The step of the protocol, what it raises there -> how that counts, which producer goes on, how often it sends
        ("begin", Unknown, "unknown", NEW, 1),
        ("produce", Abort, "aborted", SAME, 2),
        ("produce", Transient, "unknown", NEW, 2),
        ("produce", Unknown, "unknown", NEW, 2),
        ("offsets", Abort, "aborted", SAME, 2),
        ("offsets", Unknown, "unknown", NEW, 2),
        ("commit", Abort, "aborted", SAME, 2),
        ("commit", Unknown, "unknown", NEW, 2),
        ("commit", late, "unknown", NEW, 2),
        # It had been committed, as the committed offsets tell.
        ("commit:done", Unknown, "unknown", NEW, 1),
    ],
)
def test_what_follows_from_an_error(
    point: str, error: type[WorkerError] | Callable[[Bench], None], outcome: str, producers: int, sent: int
) -> None:
    bench = Bench()
    if isinstance(error, type):
        bench.faults.at(point, error("injected"))
    else:
        bench.faults.at(point, lambda: error(bench))
    bench.begin()
    assert not bench.settle()
    assert bench.outcomes() == {outcome: 1}
    assert bench.settle()
    bench.broker.deliver_late()
    assert bench.broker.published == OUTPUTS
    assert bench.broker.committed == OFFSETS
    assert bench.broker.open == {}
    assert (bench.opened, bench.faults.seen.count("produce")) == (producers, sent)


@pytest.mark.parametrize("point", ["abort", "abort:done"])
def test_where_the_abort_fails_a_new_producer_goes_on(point: str) -> None:
    bench = Bench()
    bench.faults.at("commit", Abort("injected"))
    bench.faults.at(point, Unknown("injected"))
    bench.begin()
    assert [bench.settle(), bench.settle()] == [False, True]
    assert bench.broker.published == OUTPUTS
    assert bench.opened == NEW


def test_a_new_producer_in_place_of_one_that_could_not_abort_comes_with_the_next_turn() -> None:
    """Each of the two may take as long as a client waits for an answer, and the callbacks of the group wait, too."""
    bench = Bench()
    bench.faults.at("produce", Refused("injected"))
    bench.faults.at("abort", Unknown("injected"))
    bench.begin()
    assert (bench.settle(), bench.opened) == (False, 1)
    assert (bench.settle(), bench.opened) == (True, NEW)
    assert bench.broker.published == OUTPUTS


@pytest.mark.parametrize("error", [Abort, Transient, Unknown])
def test_a_first_producer_that_is_not_to_be_had_may_be_had_later(error: type[WorkerError]) -> None:
    bench = Bench()
    bench.faults.at("init", error("injected"))
    with pytest.raises(Transient, match="injected"):
        bench.transactions.open()
    bench.transactions.open()


@pytest.mark.parametrize("took_effect", [True, False])
def test_offsets_alone_are_sent_again_with_what_is_committed_along_with_them(took_effect: bool) -> None:
    """The offsets themselves may be those of the commit before: they do not tell whether this one took effect."""
    bench = Bench()
    bench.begin()
    assert bench.settle()
    offsets = {number: CommittedOffset(offset, "changed") for number, offset in OFFSETS.items()}
    bench.transactions.pending = pending = Pending(bench.input.membership(), no_dead_letter)
    for number, offset in offsets.items():
        pending.add(number, [], [], offset)
    bench.faults.at("commit:done" if took_effect else "commit", Unknown("injected"))
    assert [bench.settle(), bench.settle()] == [False, True]
    assert bench.broker.metadata == dict.fromkeys(OFFSETS, "changed")
    assert bench.broker.published == OUTPUTS


def begin_beside_offsets(bench: Bench) -> Pending:
    """Outputs of one partition, and of another one the offset alone."""
    bench.begin({0: 3})
    assert bench.transactions.pending is not None
    bench.transactions.pending.add(1, [], [], CommittedOffset(5, "mine"))
    return bench.transactions.pending


def test_offsets_beside_outputs_are_sent_again_as_well() -> None:
    """Where a successor has come as far, that is no word of what was committed along with an offset that stays."""
    bench = Bench()
    pending = begin_beside_offsets(bench)
    bench.faults.at("commit", Unknown("injected"))
    assert not bench.settle()
    bench.input.expire()
    bench.broker.commit({0: CommittedOffset(3, "of another"), 1: CommittedOffset(5, "of another")})
    assert not bench.settle()
    assert pending.shares.keys() == {1}
    assert (bench.transactions.committed(0), bench.transactions.committed(1)) == (3, 0)
    assert bench.broker.metadata == dict.fromkeys(OFFSETS, "of another")


def test_offsets_beside_outputs_that_were_committed_with_them_are_so_once_more() -> None:
    bench = Bench()
    begin_beside_offsets(bench)
    bench.faults.at("commit:done", Unknown("injected"))
    assert [bench.settle(), bench.settle()] == [False, True]
    assert bench.broker.published == OUTPUTS[:2]
    assert (bench.broker.committed, bench.broker.metadata[1]) == (OFFSETS, "mine")


@pytest.mark.parametrize("error", [Abort, Transient, Unknown])
def test_nothing_is_decided_while_no_new_producer_or_no_answer_is_to_be_had(error: type[WorkerError]) -> None:
    bench = Bench()
    bench.faults.at("commit:done", Unknown("injected"))
    bench.begin()
    assert not bench.settle()
    bench.faults.at("init", error("injected"))
    bench.faults.at("committed", Transient("injected"))
    assert [bench.settle(), bench.settle(), bench.settle()] == [False, False, True]
    assert bench.broker.published == OUTPUTS
    assert bench.faults.seen.count("produce") == 1


@pytest.mark.parametrize("point", ["begin", "produce", "offsets", "commit"])
def test_any_other_error_is_the_callers(point: str) -> None:
    bench = Bench()
    bench.faults.at(point, WorkerError("not authorized"))
    bench.begin()
    with pytest.raises(WorkerError, match="not authorized"):
        bench.settle()
    assert bench.broker.published == []


def in_doubt(took_effect: bool) -> tuple[Bench, dict[int, int]]:
    """A transaction is committed; of the next one, up to these offsets, the outcome is unknown."""
    bench, later = Bench(), {number: offset + 2 for number, offset in OFFSETS.items()}
    bench.begin()
    assert bench.settle()
    bench.faults.at("commit:done" if took_effect else "commit", Unknown("injected"))
    bench.begin(later)
    assert not bench.settle()
    return bench, later


@pytest.mark.parametrize("took_effect", [True, False])
def test_offsets_before_those_that_were_committed_earlier_are_no_answer(took_effect: bool) -> None:
    bench, later = in_doubt(took_effect)
    # A coordinator that has just come back may not have read all of its log when it answers.
    truth, bench.broker.committed = bench.broker.committed, {0: 1, 1: 2}
    assert [bench.settle(), bench.settle()] == [False, False]
    bench.broker.committed = truth
    assert bench.settle()
    assert bench.broker.published == OUTPUTS * 2
    assert bench.broker.committed == later


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_partition_whose_commits_are_forgotten_is_given_up_in_the_end_and_the_others_go_on(took_effect: bool) -> None:
    bench, later = in_doubt(took_effect)
    bench.broker.committed[0] = 1
    for _ in range(12):
        assert not bench.settle()
        assert bench.transactions.take_given_up() == {}
        bench.clock.sleep(REWOUND_S / 12)
    assert [bench.settle(), bench.settle()] == [False, True]
    [(number, stop)] = bench.transactions.take_given_up().items()
    assert (number, stop.code) == (0, "group-rewound")
    assert "at offset 1, but this worker committed 3" in str(stop)
    assert bench.broker.published == OUTPUTS + (OUTPUTS if took_effect else OUTPUTS[2:])
    assert bench.broker.committed == {0: 1, 1: later[1]}


def test_a_broker_that_forgets_once_in_a_while_has_all_its_time_again() -> None:
    bench = Bench()
    bench.begin()
    assert bench.settle()
    truth, forgotten = dict(bench.broker.committed), {0: 1, 1: 2}
    for offset in range(10, 14):
        bench.faults.at("commit", Unknown("injected"))
        bench.begin({0: offset, 1: offset})
        assert not bench.settle()
        bench.broker.committed = dict(forgotten)
        assert not bench.settle()
        bench.clock.sleep(REWOUND_S / 2)
        bench.broker.committed = truth
        assert bench.settle()
        truth = dict(bench.broker.committed)
    assert bench.transactions.take_given_up() == {}


def test_each_partition_that_a_broker_forgets_has_its_own_time() -> None:
    """One that was found where it belongs in between has all of it again, though another one was not."""
    bench, _ = in_doubt(took_effect=False)
    truth = dict(bench.broker.committed)
    for forgotten in (0, 1, 0):
        bench.broker.committed = truth | {forgotten: 1}
        assert not bench.settle()
        bench.clock.sleep(REWOUND_S / 2)
    assert not bench.settle()
    assert bench.transactions.take_given_up() == {}
    bench.clock.sleep(REWOUND_S / 2)
    assert not bench.settle()
    assert [*bench.transactions.take_given_up()] == [0]


def test_a_partition_that_comes_again_has_all_its_time_again() -> None:
    bench, later = in_doubt(took_effect=False)
    bench.broker.committed = {0: 1, 1: 2}
    assert not bench.settle()
    bench.transactions.drop([0, 1])
    assert bench.settle()
    bench.clock.sleep(REWOUND_S)
    bench.begin(later)
    assert bench.settle()
    bench.faults.at("commit", Unknown("injected"))
    bench.begin({0: 10, 1: 10})
    assert not bench.settle()
    bench.broker.committed = {0: 1, 1: 2}
    assert not bench.settle()
    assert bench.transactions.take_given_up() == {}


def test_a_partition_that_comes_again_may_be_anywhere() -> None:
    bench = Bench()
    bench.begin()
    assert bench.settle()
    bench.transactions.drop([0, 1])
    bench.broker.committed = {0: 1, 1: 2}
    bench.faults.at("commit", Unknown("injected"))
    bench.begin({0: 2, 1: 3})
    assert [bench.settle(), bench.settle()] == [False, True]
    assert bench.broker.committed == {0: 2, 1: 3}


def test_after_a_row_of_failures_parts_become_as_large_as_they_were() -> None:
    pending, parts = Pending(None, no_dead_letter), 0
    pending.add(0, [Record(i, 0, b"k", b"", []) for i in range(10_000)], [OUTPUTS[0]] * 10_000, CommittedOffset(10_000))
    for _ in range(18):
        pending.cut()
        pending.failed(sent=True)
    assert pending.size() == 1
    while pending.shares:
        pending.cut()
        pending.advance()
        parts += 1
    assert parts < 30


def test_what_was_too_much_at_once_is_not_tried_again_before_some_parts_were_committed() -> None:
    """Else every second transaction would fail where a broker takes no more in time."""
    pending, sizes = Pending(None, no_dead_letter), []
    pending.add(0, [Record(i, 0, b"k", b"", []) for i in range(100)], [OUTPUTS[0]] * 100, CommittedOffset(100))
    for _ in range(10):
        pending.cut()
        pending.failed(sent=True)
    for _ in range(STEADY_PARTS + 3):
        pending.cut()
        sizes.append(pending.size())
        pending.advance()
    assert sizes == [*[1] * (STEADY_PARTS + 1), 2, 4]


def test_an_attempt_that_sent_nothing_says_nothing_of_the_size_of_a_part() -> None:
    pending = Pending(None, no_dead_letter)
    pending.add(0, [Record(i, 0, b"k", b"", []) for i in range(3)], OUTPUTS, CommittedOffset(3))
    for _ in range(10):
        pending.cut()
        pending.failed(sent=False)
    pending.cut()
    assert pending.outputs() == OUTPUTS


def test_dead_letters_in_place_of_outputs_go_with_their_partition() -> None:
    """Else they would be counted where it comes back before the rest is committed."""
    pending = Pending(None, lambda *_: OUTPUTS[1])
    pending.add(0, [Record(0, 0, b"k", b"", [])], OUTPUTS[:1], CommittedOffset(1))
    pending.cut()
    assert pending.replace_refused("too large") is None
    assert pending.replaced
    pending.drop([0])
    assert not pending.replaced


@pytest.mark.parametrize("error", [Abort, Unknown])
@pytest.mark.parametrize("alone", [False, True])
def test_attempts_in_vain_are_further_and_further_apart(error: type[WorkerError], alone: bool) -> None:
    """The first two pauses are none: a turn of the loop may be all that was missing. Of offsets alone it is no success
    that an earlier commit has come as far."""
    bench = Bench()
    bench.begin()
    if alone:
        assert bench.settle()
        bench.transactions.pending = Pending(bench.input.membership(), no_dead_letter)
        bench.transactions.pending.add(0, [], [], CommittedOffset(OFFSETS[0]))
    began_s, tried_s = bench.clock.now_s, []
    bench.faults.at("begin", *[lambda: tried_s.append(round(bench.clock.now_s - began_s, 2))] * 1000)
    bench.faults.at("commit", *[error("injected")] * 1000)
    while bench.clock.now_s < began_s + 10:
        assert not bench.transactions.settle(at_once=False)
        bench.clock.sleep(0.01)
    assert tried_s[:3] == [0, 0.01, 0.02]
    assert tried_s[3:6] == pytest.approx([0.07, 0.17, 0.37], abs=0.025)
    assert 14 <= len(tried_s) <= 17


def test_no_producer_outlives_its_use() -> None:
    bench = Bench()
    bench.faults.at("commit", Unknown("injected"))
    bench.begin()
    assert [bench.settle(), bench.settle()] == [False, True]
    assert [each.is_closed for each in bench.outputs] == [True, False]
    bench.begin()
    bench.transactions.close()
    assert [each.is_closed for each in bench.outputs] == [True, True]
    assert bench.transactions.pending is None


def test_the_time_of_a_transaction_is_that_from_its_begin_to_its_commit() -> None:
    bench = Bench()
    bench.faults.at("commit", lambda: bench.clock.sleep(2))
    bench.begin()
    assert bench.settle()
    [(counts, total)] = bench.metrics.transaction_duration_seconds.series().values()
    assert (counts.sum(), total) == (1, 2)


def test_pauses_of_a_transaction_that_never_succeeds_have_an_end() -> None:
    assert Pending(None, no_dead_letter, attempts=5_000).pause_s == 1.0


def test_what_is_dropped_is_not_sent_again() -> None:
    bench = Bench()
    bench.faults.at("commit", Abort("injected"))
    bench.begin()
    assert not bench.settle()
    bench.transactions.drop([0])
    assert bench.settle()
    assert bench.broker.published == OUTPUTS[2:]
    assert bench.broker.committed == {1: OFFSETS[1]}


def test_where_all_is_dropped_nothing_is_sent() -> None:
    bench = Bench()
    bench.faults.at("commit", Unknown("injected"))
    bench.begin()
    assert not bench.settle()
    bench.transactions.drop([0, 1])
    assert bench.settle()
    assert bench.broker.published == []
    assert bench.broker.open == {}
    assert bench.faults.seen.count("begin") == 1


def test_where_what_is_in_doubt_is_dropped_nobody_asks_about_it_and_the_rest_is_sent() -> None:
    bench = Bench()
    bench.faults.at("commit", Unknown("injected"))
    bench.begin()
    assert bench.transactions.pending is not None
    bench.transactions.pending.most = 2
    assert not bench.settle()
    bench.transactions.drop([0])
    assert bench.settle()
    assert bench.broker.published == OUTPUTS[2:]
    assert "committed" not in bench.faults.seen


def test_offsets_are_committed_in_the_transaction_alone() -> None:
    """Once more behind it, they could fail where all is committed, and all would be sent again."""
    bench = Bench()
    bench.begin()
    assert bench.settle()
    assert "commit offsets" not in bench.faults.seen


def test_nobody_without_an_id_goes_on_with_what_was_read_without_one() -> None:
    pending = Pending(Membership("", None), no_dead_letter)
    assert not pending.renew(Membership("", None))


def test_at_least_once_what_is_not_known_is_sent_again() -> None:
    bench = Bench(exactly_once=False)
    bench.faults.at("commit offsets:done", Transient("injected"))
    bench.begin()
    assert [bench.settle(), bench.settle()] == [False, True]
    assert bench.broker.published == OUTPUTS * 2
    assert bench.broker.committed == OFFSETS
