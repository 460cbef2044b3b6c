"""Features and labels that change their kind in mid-stream, counted and logged: they are learned, but hardly meant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from worker.base.log import Field, Log
from worker.base.metrics import Metrics
from worker.base.series import ByKindChange
from worker.base.terms import KindChange

_log = Log(__name__)

_FACTS: dict[KindChange, str] = {
    "number-to-text": "were numbers and come as text",
    "text-to-number": "were text and come as numbers",
}
_HINT = (
    "Each kind is learned by itself, and the other is missing then: repair the producer; reset the models where what "
    "they have learned meanwhile is to be forgotten"
)


@dataclass(slots=True)
class KindChanges:
    """Features of a partition's models, or their labels, that changed their kind: how many, and the first of them."""

    counts: Counter[ByKindChange] = field(default_factory=Counter)
    first: dict[ByKindChange, tuple[int, str, str | None]] = field(default_factory=dict)
    """Offset, model key and feature, None for the label."""

    def add(self, offset: int, model: str, feature: str | None, change: KindChange) -> None:
        """The record at `offset` is the first with the other kind of a feature, or of the label where that is None."""
        by = ByKindChange("label" if feature is None else "feature", change)
        self.counts[by] += 1
        self.first.setdefault(by, (offset, model, feature))

    def extend(self, later: KindChanges) -> None:
        """Add those that came after these."""
        self.counts += later.counts
        self.first = later.first | self.first

    def report(self, metrics: Metrics, partition: int) -> None:
        """Count them, and tell the operator, once the records are committed."""
        for by, count in self.counts.items():
            metrics.kind_changes_total.add(count, of=by.of, change=by.change)
            offset, model, feature = self.first[by]
            was, now = by.change.split("-to-")
            what = f"{count} {by.of}s of models {_FACTS[by.change]}"
            fact = f"partition {partition}: {what}, the first at offset {offset}"
            fields: dict[str, Field] = {"partition": partition, "offset": offset, "model": model}
            fields |= {"was": was, "now": now, "count": count}
            if feature is None:
                _log.warning("label-kind-changed", fact, detail=f"the label of model {model!r}", hint=_HINT, **fields)
            else:
                detail = f"feature {feature!r} of model {model!r}"
                _log.warning("feature-kind-changed", fact, detail=detail, hint=_HINT, feature=feature, **fields)
