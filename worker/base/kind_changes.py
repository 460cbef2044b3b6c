"""Features and labels that change their kind in mid-stream, counted and logged: they are learned, but hardly meant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from worker.base.labels import KindChange
from worker.base.log import Log
from worker.base.metrics import Metrics

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

    counts: Counter[KindChange] = field(default_factory=Counter)
    first: dict[KindChange, tuple[int, str, str]] = field(default_factory=dict)
    """Offset, model key and feature, "label" for the label."""

    def add(self, offset: int, model: str, feature: str, change: KindChange) -> None:
        """The record at `offset` is the first with the other kind."""
        self.counts[change] += 1
        self.first.setdefault(change, (offset, model, feature))

    def extend(self, later: KindChanges) -> None:
        """Add those that came after these."""
        self.counts += later.counts
        self.first = later.first | self.first

    def report(self, metrics: Metrics, partition: int) -> None:
        """Count them, and tell the operator, once the records are committed."""
        for change, count in self.counts.items():
            metrics.feature_kind_changes_total.add(count, change=change)
            offset, model, feature = self.first[change]
            was, now = change.split("-to-")
            _log.warning(
                "feature-kind-changed",
                f"partition {partition}: {count} features of models {_FACTS[change]}, the first at offset {offset}",
                detail=f"feature {feature!r} of model {model!r}",
                hint=_HINT,
                partition=partition,
                offset=offset,
                model=model,
                feature=feature,
                was=was,
                now=now,
                count=count,
            )
