"""Dead letters, counted and logged."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.records import Record, Reject
from worker.base.refusals import SPEC_CHANGED
from worker.base.status import RECENT_DEAD_LETTERS, DeadLetter

_log = Log(__name__)

_HINT = "The dead-letter topic has each of them, with the reason in its headers"
_HINTS = {"spec-changed": SPEC_CHANGED}


@dataclass(slots=True)
class Rejects:
    """Records of a partition that became dead letters, by code: how many, and the last of them."""

    counts: Counter[str] = field(default_factory=Counter)
    _last: dict[str, tuple[int, str]] = field(default_factory=dict)
    _recent: deque[tuple[Record, Reject]] = field(default_factory=lambda: deque(maxlen=RECENT_DEAD_LETTERS))

    def add(self, record: Record, reject: Reject) -> None:
        """The record is one."""
        self.counts[reject.code] += 1
        self._last[reject.code] = record.offset, reject.reason
        self._recent.append((record, reject))

    def extend(self, later: Rejects) -> None:
        """Add those that came after these."""
        self.counts += later.counts
        self._last |= later._last
        self._recent += later._recent

    def letters(self, now_ms: int, topic: str, partition: int) -> Iterator[DeadLetter]:
        """The last of them for the board, once they are committed."""
        for record, why in self._recent:
            yield DeadLetter.of(now_ms, topic, partition, record.offset, record.key, why.code, why.reason)

    def report(self, metrics: Metrics, where: str, partition: int) -> None:
        """Count them, and tell the operator, once the dead letters are committed."""
        for code, count in self.counts.items():
            metrics.dead_letters_total.add(count, code=code)
            offset, reason = self._last[code]
            _log.warning(
                "dead-letter",
                f"{where}: dead letters with the code {code}: {count}, the last at offset {offset}",
                detail=reason,
                hint=_HINTS.get(code, _HINT),
                partition=partition,
                code=code,
                offset=offset,
                count=count,
            )


@dataclass(slots=True)
class Streak:
    """Dead letters of a partition in a row, by which `dead_letter.max_consecutive` is measured."""

    longest: int = 0
    """Of the rows that the present batch has met; one may have begun before it."""
    _length: int = 0

    def begin_batch(self) -> None:
        """Measure the rows that the records from here on meet."""
        self.longest = 0

    def note(self, *, is_reject: bool) -> None:
        """The next record is a dead letter, or is none."""
        self._length = self._length + 1 if is_reject else 0
        self.longest = max(self.longest, self._length)

    def end(self) -> None:
        """The records so far end with one that is no dead letter."""
        self.longest = self._length = 0
