"""Outputs and offsets into one transaction after the other, each of them kept until it is known to be committed.

What a failure means is the error's type; what follows from it is decided here and nowhere else:

    committed                                 done
    Abort                                     abort; the same is sent again by the same producer
    Refused                                   abort; what was sent is sent in halves, until the record is alone that the
                                              broker refuses. A dead letter goes out in its place; where that is refused
                                              too, its partition is given up
    Unknown, Transient, or the abort fails    a new producer, which ends what the old one left open; then the committed
                                              offsets tell whether it took effect: done, or sent again. Where they
                                              are before what was committed earlier they tell nothing: ask once more,
                                              for REWOUND_S; then those partitions are given up, the others go on
    any other error                           nobody can go on: it is the caller's

What fails a third time is sent in halves, too: it may have been too much for one transaction. Nothing is computed
twice: what is sent again are the same bytes, less those of partitions that were taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from worker.base.errors import Abort, PartitionStopped, Refused, Transient, Unknown
from worker.base.failpoints import failpoint
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock, Input, Output
from worker.base.refusals import output_refused
from worker.base.rewinds import Rewinds
from worker.commit.pending import Pending

_log = Log(__name__)


PARTS_A_TURN = 8
"""Transactions after which the loop gets its turn, for the callbacks of the group are waiting."""


class Transactions:
    """At most one transaction at a time, through as many producers as it takes. All calls come from one thread."""

    def __init__(
        self,
        source: Input,
        open_output: Callable[[], Output],
        delivery: Literal["exactly-once", "at-least-once"],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.pending: Pending | None = None
        self._again_s = 0.0
        """When the pause after the last attempt is over."""
        self._committed: dict[int, int] = {}
        """Offsets that are known to be committed, since a partition came."""
        self._input = source
        self._open_output = open_output
        self._output: Output | None = None
        self._delivery = delivery
        self._metrics = metrics
        self._clock = clock
        self._given_up: dict[int, PartitionStopped] = {}
        self._rewinds = Rewinds(clock)

    def open(self) -> None:
        """Get the first producer. Raises Transient where another call may succeed, Unanswered where nobody answered."""
        try:
            self._output = self._open_output()
        except (Abort, Unknown) as error:
            raise Transient(str(error)) from error

    def committed(self, number: int) -> int:
        """The offset that this worker is known to have committed of a partition since it came; 0 where it has not."""
        return self._committed.get(number, 0)

    def drop(self, partitions: Collection[int]) -> None:
        """Forget partitions that this worker does not own any more."""
        for number in partitions:
            self._committed.pop(number, None)
            self._rewinds.forget(number)
        if self.pending is not None:
            self.pending.drop(partitions)

    def settle(self, *, at_once: bool = True) -> bool:
        """Try to bring the pending transaction to its end; False where it is still pending, to be tried once more.

        at_once: however often others failed; else not before the pause is over that grows with them.
        """
        pending, now = self.pending, self._clock.monotonic()
        assert pending is not None
        if now < self._again_s and not at_once:
            return False
        settled = self._settle_parts(pending)
        self._again_s = now + pending.pause_s
        return settled

    def _settle_parts(self, pending: Pending) -> bool:
        for _ in range(PARTS_A_TURN):
            if not self._settle_part(pending):
                return False
            if not pending.shares:
                self.pending = None
                return True
        return False

    def take_given_up(self) -> dict[int, PartitionStopped]:
        """Partitions that cannot go on, and why; each is given once, and nothing of it is pending any more."""
        given_up, self._given_up = self._given_up, {}
        return given_up

    def _settle_part(self, pending: Pending) -> bool:
        """Try to bring a part of it to its end; whether to go on with the next one at once."""
        started_s, sent = self._clock.monotonic(), False
        try:
            if self._output is None:
                self.open()
                failpoint("reopened")
            # Nothing is left: all of its partitions were taken away.
            if not pending.shares:
                return True
            if pending.unknown and self._was_committed(pending):
                pending.leave_offsets()
                self._done(pending)
                return True
            pending.cut()
            sent = True
            self._publish(pending)
        except Refused as error:
            self._metrics.transactions_total.add(1, outcome="aborted")
            self._narrow(pending, error)
            self._abort(pending)
            return self._output is not None
        except Abort as error:
            self._metrics.transactions_total.add(1, outcome="aborted")
            _log.warning("transaction-aborted", "transaction aborted, its outputs will be sent again", detail=error)
            pending.failed(sent=sent)
            self._abort(pending)
            return False
        except (Unknown, Transient) as error:
            self._metrics.transactions_total.add(1, outcome="unknown")
            _log.warning("transaction-unknown", "outcome of a transaction unknown, asking the broker", detail=error)
            pending.failed(sent=sent)
            self._replace_output(pending)
            return False
        self._done(pending)
        self._metrics.transactions_total.add(1, outcome="committed")
        self._metrics.transaction_duration_seconds.observe([self._clock.monotonic() - started_s])
        failpoint("settled")
        return True

    def close(self) -> None:
        """Drop the producer, and with it what is still pending."""
        self.pending = None
        self._close_output()

    def _done(self, pending: Pending) -> None:
        self._committed |= {number: each.offset for number, each in pending.part_offsets().items()}
        pending.advance()

    def _publish(self, pending: Pending) -> None:
        assert self._output is not None
        offsets = pending.part_offsets()
        self._output.publish(pending.outputs(), offsets, pending.member)
        if self._delivery == "at-least-once":
            self._input.commit(offsets)

    def _narrow(self, pending: Pending, error: Refused) -> None:
        """Send less, or something else, after the broker has refused a record of the part."""
        if pending.size() > 1:
            fact = f"the broker refuses one of {pending.size()} records, they are sent in halves"
            _log.warning("records-refused", fact, detail=error)
            pending.halve()
            return
        given_up = pending.replace_refused(str(error))
        if given_up is None:
            _log.error("output-refused", "a dead letter goes out in place of an output", detail=error)
        else:
            self._give_up(pending, given_up, output_refused(given_up, str(error)))

    def _give_up(self, pending: Pending, number: int, why: PartitionStopped) -> None:
        self._given_up[number] = why
        pending.drop([number])

    def _abort(self, pending: Pending) -> None:
        assert self._output is not None
        try:
            self._output.abort()
        except Unknown as error:
            _log.warning("abort-failed", "abort failed", detail=error)
            self._replace_output(pending)

    def _replace_output(self, pending: Pending) -> None:
        """Drop the producer. The next one, opened under the same id, ends what this one left open."""
        pending.unknown = self._delivery == "exactly-once"
        self._close_output()

    def _close_output(self) -> None:
        output, self._output = self._output, None
        if output is not None:
            output.close()

    def _was_committed(self, pending: Pending) -> bool:
        """Ask whether the part took effect; its offsets were committed all or none. Raises Transient.

        Without outputs an offset may be that of a commit before, or of somebody else, with something else along with
        it: such a share is sent again, which changes nothing where it was committed.
        """
        offsets = pending.part_offsets()
        if not offsets:
            return False
        answer = self._input.committed(list(offsets))
        found = {number: 0 if each is None else each.offset for number, each in answer.items()}
        # What becomes of the others is asked anew: their offsets are what a restart would go by, too.
        for number, why in self._rewinds.look(found, self._committed).items():
            self._give_up(pending, number, why)
        rewound = {number: found[number] for number in self._rewinds.partitions}
        if rewound:
            known = {number: self._committed[number] for number in rewound}
            raise Transient(f"the broker has the group at {rewound} (by partition), but {known} was committed")
        pending.unknown = False
        return pending.size() > 0 and all(found[number] >= each.offset for number, each in offsets.items())
