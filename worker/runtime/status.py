"""What the loop puts on the board: a point of the curves and a status each second, and answers to questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from worker.base.families import Counter, Gauge
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock
from worker.base.series import ByPartition, ByVerdict, Unlabelled
from worker.base.standing import Standing
from worker.base.status import (
    Board,
    Confidence,
    ModelDetail,
    ModelPage,
    ModelRow,
    OneModel,
    PageOfModels,
    PartitionStatus,
    Point,
    Question,
)
from worker.base.terms import State
from worker.state import descriptions
from worker.task.task import Task

_log = Log(__name__)

HISTORY = 900
"""Points that are kept: a quarter of an hour."""
TURN_S = 0.002
"""Time after which a turn answers no further question."""
REST = 100
"""How many times as long as answers took none is given: they cost the loop one hundredth of its time at most."""
NO_LABEL_AFTER = 1000
"""Events without any label after which the log warns."""
_MOST_NAMED = 10


class _Sums(NamedTuple):
    """What only grows, as of a moment."""

    at_s: float
    events: float
    replayed: float
    dead_letters: float
    depth: tuple[float, int]
    weighted_depth: tuple[float, int]
    latencies: NDArray[np.int64]

    @classmethod
    def of(cls, metrics: Metrics, at_s: float) -> _Sums:
        counts, depth = metrics.tree_depth.series()[Unlabelled()]
        return cls(
            at_s,
            _total(metrics.events_total),
            _total(metrics.replayed_records_total),
            _total(metrics.dead_letters_total),
            (depth, int(counts.sum())),
            metrics.weighted_depth.series()[Unlabelled()],
            metrics.end_to_end_latency_seconds.series()[Unlabelled()][0],
        )


class Reporter:
    """Shows the worker on its board. All calls come from the thread of the loop."""

    def __init__(self, board: Board, metrics: Metrics, clock: Clock) -> None:
        self._board = board
        self._metrics = metrics
        self._clock = clock
        self._points: deque[Point] = deque(maxlen=HISTORY)
        self._before = _Sums.of(metrics, clock.monotonic())
        self._confidences = deque([_confidences(metrics)], maxlen=HISTORY)
        self._rest_until_s = 0.0
        self.standing = Standing(clock)
        self._awaits_label = True
        """Whether no event has had a label yet, and nothing was said about it."""

    # --- what is shown ------------------------------------------------------------------------------------------------

    def refresh(self, tasks: Mapping[int, Task], leaders: Sequence[ModelRow]) -> None:
        """Show the worker as of now; `leaders` are the models with the most traffic, first the first."""
        self._look_for_labels(leaders)
        now_ms = self._clock.wall_ms()
        partitions = list(self._partitions(tasks, now_ms / 1000))
        unready = self._unready(tasks)
        self._metrics.ready.set(unready is None)
        self._points.append(self._point(now_ms, partitions, leaders))
        self._board.history = tuple(self._points)
        self._board.status = msgspec.structs.replace(
            self._board.status,
            at_ms=now_ms,
            unready=unready,
            partitions=partitions,
            totals=self._totals(),
            leaders=leaders,
            dead_letters=list(self._board.dead_letters)[::-1],
            calibration=self._calibration(),
            point=self._points[-1],
        )

    def _look_for_labels(self, leaders: Sequence[ModelRow]) -> None:
        """Say once that nothing is learned: a name that is misspelt in every event is no error in any of them."""
        if not self._awaits_label:
            return
        # Models that are gone with their partition, as all are in the end, may have learned.
        learned = self._metrics.learned_samples_total.series().get(Unlabelled())
        if learned or any(each.samples for each in leaders):
            self._awaits_label = False
        elif (predicted := int(self._metrics.predictions_total.series()[Unlabelled()])) >= NO_LABEL_AFTER:
            self._awaits_label = False
            _log.warning(
                "no-labels",
                f"none of the first {predicted:,} events that were predicted had a label: nothing is learned",
                hint="A label stands beside `features` and is called `label`",
            )

    def _partitions(self, tasks: Mapping[int, Task], now_s: float) -> Iterator[PartitionStatus]:
        lag, lag_seconds, saved, unsaved = (
            family.series()
            for family in (
                self._metrics.consumer_lag_records,
                self._metrics.consumer_lag_seconds,
                self._metrics.checkpoint_last_timestamp_seconds,
                self._metrics.checkpoint_replay_cost_seconds,
            )
        )
        for number, task in sorted(tasks.items()):
            records, written_s = lag.get(ByPartition(number)), saved.get(ByPartition(number))
            age_s = None if written_s is None else max(0.0, now_s - written_s)
            if age_s is not None and not unsaved.get(ByPartition(number)):
                age_s = 0.0  # The checkpoint has all there is, however old it is.
            yield PartitionStatus(
                number,
                task.state,
                task.trouble,
                task.position,
                None if records is None else int(records),
                lag_seconds.get(ByPartition(number)),
                age_s,
            )

    def _point(self, now_ms: int, partitions: Sequence[PartitionStatus], leaders: Sequence[ModelRow]) -> Point:
        before, now = self._before, _Sums.of(self._metrics, self._clock.monotonic())
        self._before = now
        seconds = max(now.at_s - before.at_s, 1e-3)
        bounds, latencies = self._metrics.end_to_end_latency_seconds.buckets, now.latencies - before.latencies
        lags = [each.lag for each in partitions if each.lag is not None]
        return Point(
            now_ms,
            (now.events - before.events) / seconds,
            (now.replayed - before.replayed) / seconds,
            (now.dead_letters - before.dead_letters) / seconds,
            _mean(before.depth, now.depth),
            _mean(before.weighted_depth, now.weighted_depth),
            sum(lags) if lags else None,
            _largest(each.lag_seconds for each in partitions),
            _quantile(0.5, bounds, latencies),
            _quantile(0.99, bounds, latencies),
            _largest(each.checkpoint_age_seconds for each in partitions),
            {
                row.key: (row.loss.calibrated, row.loss.baseline)
                for row in leaders
                if row.loss is not None and row.loss.calibrated is not None and row.loss.baseline is not None
            },
        )

    def _calibration(self) -> list[Confidence | None]:
        self._confidences.append(_confidences(self._metrics))
        of_late = self._confidences[-1] - self._confidences[0]
        return [Confidence(total / n, correct / n, int(n)) if n else None for total, n, correct in of_late.tolist()]

    def _totals(self) -> dict[str, float]:
        metrics = self._metrics
        verdicts = metrics.models_judged.series()
        return {
            "events": _total(metrics.events_total),
            "learned": _total(metrics.learned_samples_total),
            "dead_letters": _total(metrics.dead_letters_total),
            "kind_changes": _total(metrics.kind_changes_total),
            "models": _total(metrics.models),
            "models_away": _total(metrics.models_away),
            "model_bytes": _total(metrics.model_bytes),
            "nodes": _total(metrics.nodes),
            "models_useful": verdicts.get(ByVerdict("useful"), 0),
            "models_useless": verdicts.get(ByVerdict("useless"), 0),
            "checkpoint_failures": _total(metrics.checkpoint_failures_total),
        }

    def _unready(self, tasks: Mapping[int, Task]) -> str | None:
        # Of a topic that is gone the broker says nothing, and the member is put out of its group meanwhile.
        outside = self._board.output_trouble or self.standing.trouble() or self._board.forwarder_trouble
        if outside is not None:
            return outside
        others = [(number, task.state) for number, task in sorted(tasks.items()) if task.state is not State.LIVE]
        named = ", ".join(f"{number} ({state})" for number, state in others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        return f"not live: partition {named}{more}" if others else None

    # --- questions ----------------------------------------------------------------------------------------------------

    def answer(self, tasks: Mapping[int, Task]) -> None:
        """Answer questions that wait, as many as there is time for in a turn."""
        began_s = now_s = self._clock.monotonic()
        if now_s < self._rest_until_s:
            return
        while now_s - began_s <= TURN_S and (asked := self._board.next_question()) is not None:
            question, answer = asked
            # Nobody's question may end the worker.
            try:
                answer.set_result(_answer(question, tasks))
            except Exception as error:
                _log.exception("no-answer", f"no answer to {question}")
                answer.set_exception(error)
            now_s = self._clock.monotonic()
            self._rest_until_s = now_s + REST * (now_s - began_s)


def _answer(question: Question, tasks: Mapping[int, Task]) -> Any:
    match question:
        case PageOfModels():
            return _page(question, tasks)
        case OneModel():
            return _one(question, tasks)


def _page(question: PageOfModels, tasks: Mapping[int, Task]) -> ModelPage:
    rows: list[ModelRow] = []
    start = question.offset
    for number, task in sorted(tasks.items()):
        stop = start + question.limit - len(rows)
        rows += [descriptions.row(number, entry) for entry in task.models.entries(start, stop)]
        start = max(start - len(task.models), 0)
    return ModelPage(sum(len(task.models) for task in tasks.values()), rows)


def _one(question: OneModel, tasks: Mapping[int, Task]) -> ModelDetail | None:
    for number, task in sorted(tasks.items()):
        entry = task.models.entry(question.key)
        if entry is not None and question.partition in (None, number):
            return descriptions.detail(number, entry)
    return None


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _total(family: Counter[..., Any] | Gauge[..., Any]) -> float:
    return sum(family.series().values())


def _confidences(metrics: Metrics) -> NDArray[np.float64]:
    """(10, 3): sum of the confidences in a tenth, their number, how many were right."""
    correct = metrics.confidence_correct_total.series()
    rows = [(*totals, correct[tenth]) for tenth, totals in sorted(metrics.confidence.series().items())]
    return np.array(rows, dtype=np.float64)


def _mean(before: tuple[float, int], now: tuple[float, int]) -> float | None:
    """Of what came between two moments of a sum and a number."""
    n = now[1] - before[1]
    return (now[0] - before[0]) / n if n else None


def _largest(values: Iterator[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _quantile(q: float, bounds: NDArray[np.float64], counts: NDArray[np.int64]) -> float | None:
    """Estimate of a quantile from the counts of buckets, as Prometheus makes it: linear within a bucket."""
    total = int(counts.sum())
    if not total:
        return None
    cumulated = counts.cumsum()
    i = int(np.searchsorted(cumulated, q * total))
    if i == len(bounds):
        return float(bounds[-1])
    low = float(bounds[i - 1]) if i else 0.0
    below = int(cumulated[i - 1]) if i else 0
    return low + (float(bounds[i]) - low) * (q * total - below) / int(counts[i])
