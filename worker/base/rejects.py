"""Dead letters, counted and logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.records import Outgoing, Reject
from worker.base.refusals import SPEC_CHANGED

_log = Log(__name__)

_HINT = "The dead-letter topic has each of them, with the reason in its headers"
_HINTS = {"spec-changed": SPEC_CHANGED}


@dataclass(slots=True)
class Rejects:
    """Records of a partition that became dead letters, by code: how many, and the last of them."""

    counts: Counter[str] = field(default_factory=Counter)
    _last: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, offset: int, reject: Reject) -> None:
        """The record at `offset` is one."""
        self.counts[reject.code] += 1
        self._last[reject.code] = offset, reject.reason

    def extend(self, later: Rejects) -> None:
        """Add those that came after these."""
        self.counts += later.counts
        self._last |= later._last

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


def offset_in(output: Outgoing, header: str) -> int:
    """The offset in a header of an output: of the record that it was made of."""
    return int(dict(output.headers)[header] or b"-1")


def unpublishable(refused: Iterable[Outgoing], offset_header: str) -> Rejects:
    """For outputs that the broker refuses, in whose place dead letters went out; a header has their offsets."""
    rejects = Rejects()
    for each in refused:
        rejects.add(
            offset_in(each, offset_header),
            Reject("unpublishable", "the broker refuses what was to be published of the record"),
        )
    return rejects
