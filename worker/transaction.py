"""Outputs and offsets into one transaction after the other, each of them kept until it is known to be committed.

What a failure means is the error's type; what follows from it is decided here and nowhere else:

    committed                                 done
    Abort                                     abort; the same is sent again by the same producer
    Refused                                   abort; what was sent is sent in halves, until the record is alone that the
                                              broker refuses. A dead letter goes out in its place; where that is refused
                                              too, its partition is given up
    Unknown, Transient, or the abort fails    a new producer, which ends what the old one left open; then the committed
                                              offsets tell whether it took effect: done, or sent again. Where they
                                              are before what was committed earlier they tell nothing: ask once more
    any other error                           nobody can go on: it is the caller's

What fails a third time is sent in halves, too: it may have been too much for one transaction. Nothing is computed
twice: what is sent again are the same bytes, less those of partitions that were taken away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Literal

from worker.errors import Abort, Refused, Transient, Unknown
from worker.failpoints import failpoint
from worker.metrics import Metrics
from worker.pending import Pending
from worker.ports import Input, Output

_log = logging.getLogger(__name__)


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
    ) -> None:
        self.pending: Pending | None = None
        self._committed: dict[int, int] = {}
        """Offsets that are known to be committed, since a partition came."""
        self._input = source
        self._open_output = open_output
        self._output: Output | None = None
        self._delivery = delivery
        self._metrics = metrics
        self._given_up: dict[int, str] = {}

    def open(self) -> None:
        """Get the first producer. Raises Transient where another call may succeed, Unanswered where nobody answered."""
        try:
            self._output = self._open_output()
        except (Abort, Unknown) as error:
            raise Transient(str(error)) from error

    def drop(self, partitions: Collection[int]) -> None:
        """Forget partitions that this worker does not own any more."""
        for number in partitions:
            self._committed.pop(number, None)
        if self.pending is not None:
            self.pending.drop(partitions)

    def settle(self) -> bool:
        """Try to bring the pending transaction to its end; False where it is still pending, to be tried once more."""
        pending = self.pending
        assert pending is not None
        for _ in range(PARTS_A_TURN):
            if not self._settle_part(pending):
                return False
            if not pending.offsets:
                self.pending = None
                return True
        return False

    def take_given_up(self) -> dict[int, str]:
        """Partitions of which a record cannot be published at all, and why; each is told once."""
        given_up, self._given_up = self._given_up, {}
        return given_up

    def _settle_part(self, pending: Pending) -> bool:
        """Try to bring a part of it to its end; whether to go on with the next one at once."""
        started, sent = time.perf_counter(), False
        try:
            if self._output is None:
                self.open()
                failpoint("reopened")
            # Without offsets: all of its partitions were taken away.
            if not pending.offsets:
                return True
            if pending.unknown and self._was_committed(pending):
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
            _log.warning("transaction aborted, its outputs will be sent again: %s", error)
            pending.failed()
            self._abort(pending)
            return False
        except (Unknown, Transient) as error:
            self._metrics.transactions_total.add(1, outcome="unknown")
            _log.warning("outcome of a transaction unknown, asking the broker: %s", error)
            if sent:
                pending.failed()
            self._replace_output(pending)
            return False
        self._done(pending)
        self._metrics.transactions_total.add(1, outcome="committed")
        self._metrics.transaction_duration_seconds.observe([time.perf_counter() - started])
        failpoint("settled")
        return True

    def close(self) -> None:
        """Drop the producer, and with it what is still pending."""
        self.pending = None
        if self._output is not None:
            self._output.close()

    def _done(self, pending: Pending) -> None:
        self._committed |= pending.part_offsets()
        pending.advance()

    def _publish(self, pending: Pending) -> None:
        assert self._output is not None
        outgoing, offsets = pending.outputs(), pending.part_offsets()
        self._output.publish(outgoing, offsets, pending.metadata)
        if self._delivery == "at-least-once":
            self._input.commit(offsets)

    def _narrow(self, pending: Pending, error: Refused) -> None:
        """Send less, or something else, after the broker has refused a record of the part."""
        if pending.size() > 1:
            _log.warning("the broker refuses one of %d records, they are sent in halves: %s", pending.size(), error)
            pending.halve()
            return
        given_up = pending.replace_refused(str(error))
        if given_up is None:
            _log.error("a dead letter goes out in place of an output: %s", error)
        else:
            self._given_up[given_up] = str(error)
            pending.drop([given_up])

    def _abort(self, pending: Pending) -> None:
        assert self._output is not None
        try:
            self._output.abort()
        except Unknown as error:
            _log.warning("abort failed: %s", error)
            self._replace_output(pending)

    def _replace_output(self, pending: Pending) -> None:
        """Drop the producer. The next one, opened under the same id, ends what this one left open."""
        pending.unknown = self._delivery == "exactly-once"
        if self._output is not None:
            self._output.close()
        self._output = None

    def _was_committed(self, pending: Pending) -> bool:
        """Ask whether the part took effect; its offsets were committed all or none. Raises Transient."""
        offsets = pending.part_offsets()
        if not offsets:
            return False
        found = {number: offset or 0 for number, offset in self._input.committed(list(offsets)).items()}
        rewound = {number: offset for number, offset in found.items() if offset < self._committed.get(number, 0)}
        if rewound:
            # A coordinator that came back and has not read all of its log yet has been seen to answer like this.
            known = {number: self._committed[number] for number in rewound}
            raise Transient(f"the broker has the group at {rewound} (by partition), but {known} was committed")
        pending.unknown = False
        return all(found[number] >= offset for number, offset in offsets.items())
