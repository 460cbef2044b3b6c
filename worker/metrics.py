"""The worker's metrics: what there is to count, and the numbers counted.

Each metric is one row of the table in `Metrics`. The loop adds plain numbers to it, once per batch; exposition.py
shows a copy of them when somebody scrapes. Nothing here survives the process: Prometheus knows what a restart is.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from worker.records import ClassScores, NumberScores, Scores

TOP_MODELS = 20
"""How many models have series of their own: Prometheus keeps each one it ever saw, and model keys have no bound."""

State = Literal["restore", "replay", "live", "stopped"]
Outcome = Literal["committed", "aborted", "unknown"]
Source = Literal["spill", "checkpoint"]


class Unlabelled(NamedTuple):
    """No labels: the family is one series."""


class Build(NamedTuple):
    version: str
    engine: str


class ByCode(NamedTuple):
    code: str


class ByPartition(NamedTuple):
    partition: int


class ByInputPartition(NamedTuple):
    input_partition: int


class BySource(NamedTuple):
    source: Source


class ByPartitionState(NamedTuple):
    partition: int
    state: State


class ByOutcome(NamedTuple):
    outcome: Outcome


class ByModel(NamedTuple):
    model: str


P = ParamSpec("P")
L = TypeVar("L", bound=tuple[Any, ...])
V = TypeVar("V")


class Family(Generic[P, L, V]):
    """The series of one metric: label values -> value.

    The labels are a named tuple, so that their names, number and types are checked wherever a value is given. Any
    thread may write and read: a value is never changed in place, and the lock is taken once per batch and family.
    """

    kind: str

    def __init__(self, labels: Callable[P, L], unit: str, sentence: str) -> None:
        self.labels = tuple(get_type_hints(labels))
        self.unit = unit
        self.sentence = sentence
        self._key = labels
        self._lock = threading.Lock()
        self._series: dict[L, V] = {}

    def series(self) -> dict[L, V]:
        """A copy of all series as of now."""
        with self._lock:
            return self._series.copy()

    def replace(self, series: Mapping[L, V]) -> None:
        """Make these all the series there are, in one step; the others are gone from the next scrape on."""
        with self._lock:
            self._series = dict(series)

    def forget(self, label: str, value: object) -> None:
        """Remove the series with this value of the label; a family without that label stays as it is."""
        if label in self.labels:
            place = self.labels.index(label)
            with self._lock:
                self._series = {labels: kept for labels, kept in self._series.items() if labels[place] != value}


class Gauge(Family[P, L, float]):
    """A number that goes up and down. It has no series until it is set: a zero would be a claim."""

    kind = "gauge"

    def set(self, value: float, /, *args: P.args, **kwargs: P.kwargs) -> None:
        key = self._key(*args, **kwargs)
        with self._lock:
            self._series[key] = value


class Cumulative(Family[P, L, V]):
    """What only grows. Series known beforehand start at zero, so that their first increase is seen as one."""

    zero: V

    def __init__(self, labels: Callable[P, L], unit: str, sentence: str) -> None:
        super().__init__(labels, unit, sentence)
        # One series where there is no label, one per combination of literals, none where a label is any text or number.
        values_known = [get_args(hint) for hint in get_type_hints(labels).values()]
        key: Callable[..., L] = labels
        self._series = {key(*values): self.zero for values in product(*values_known)}


class Counter(Cumulative[P, L, float]):
    """A number of things that happened."""

    kind = "counter"
    zero = 0

    def add(self, amount: float, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if amount < 0:
            raise ValueError(f"a counter only grows: cannot add {amount}")
        key = self._key(*args, **kwargs)
        with self._lock:
            self._series[key] = self._series.get(key, self.zero) + amount


class Summary(Cumulative[P, L, tuple[float, int]]):
    """Sum and number of observations: their mean over any stretch of time."""

    kind = "summary"
    zero = (0.0, 0)

    def add(self, total: float, count: int, /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Add `count` observations whose sum is `total`."""
        key = self._key(*args, **kwargs)
        with self._lock:
            old_total, old_count = self._series.get(key, self.zero)
            self._series[key] = old_total + total, old_count + count


class Histogram(Cumulative[P, L, tuple[NDArray[np.int64], float]]):
    """Number of observations per bucket, and their sum. The bounds are inclusive; the last bucket takes the rest."""

    kind = "histogram"

    def __init__(self, labels: Callable[P, L], unit: str, sentence: str, buckets: Sequence[float]) -> None:
        self.buckets = np.array(buckets, dtype=np.float64)
        self.zero = (np.zeros(len(buckets) + 1, dtype=np.int64), 0.0)
        super().__init__(labels, unit, sentence)

    def observe(self, values: Sequence[float] | NDArray[np.float64], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Add the observations (n,)."""
        array = np.asarray(values, dtype=np.float64)
        counts = np.bincount(np.searchsorted(self.buckets, array), minlength=len(self.buckets) + 1)
        total = float(array.sum())
        key = self._key(*args, **kwargs)
        with self._lock:
            old_counts, old_total = self._series.get(key, self.zero)
            self._series[key] = old_counts + counts, old_total + total


AnyFamily: TypeAlias = Gauge[..., Any] | Counter[..., Any] | Summary[..., Any] | Histogram[..., Any]


class ModelFigures(Protocol):
    """What is shown of one model, beside its number of samples."""

    @property
    def nodes(self) -> int: ...

    @property
    def depth(self) -> float: ...

    @property
    def memory_bytes(self) -> int: ...

    @property
    def scores(self) -> Scores: ...


class Metrics:
    """Every metric: kind, labels, unit, meaning. A metric's name is the name of its attribute with `amf_` before it."""

    def __init__(self) -> None:
        self.build_info = Gauge(Build, "", "Always 1; the labels are the versions of the worker and of the learner.")
        self.loop_last_timestamp_seconds = Gauge(Unlabelled, "seconds", "When the loop last came round.")

        self.events_total = Counter(Unlabelled, "records", "Records taken in by live partitions.")
        self.predictions_total = Counter(Unlabelled, "records", "Predictions published.")
        self.dead_letters_total = Counter(ByCode, "records", "Records rejected, by error code.")
        self.learned_samples_total = Counter(Unlabelled, "records", "Labelled records learned by live partitions.")
        self.log_loss = Summary(Unlabelled, "nats", "Loss of each labelled prediction: -log(probability of the label).")
        self.correct_predictions_total = Counter(Unlabelled, "records", "Labelled predictions that named the label.")
        self.squared_error = Summary(
            Unlabelled, "", "Square of each labelled estimate's error, in the label's unit squared."
        )
        self.absolute_error = Summary(Unlabelled, "", "Error of each labelled estimate, in the label's unit.")
        self.covered_predictions_total = Counter(
            Unlabelled, "records", "Labelled estimates with the label from the 5 % to the 95 % quantile."
        )
        depths = (0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
        self.tree_depth = Histogram(Unlabelled, "edges", "Depth of a predicted record's leaf, mean over trees.", depths)
        self.weighted_depth = Summary(Unlabelled, "edges", "Mean depth at which the averaged prunings end.")

        self.models = Gauge(Unlabelled, "models", "Models in memory.")
        self.nodes = Gauge(Unlabelled, "nodes", "Nodes of all models in memory.")
        self.model_bytes = Gauge(Unlabelled, "bytes", "Memory of all models in memory.")
        self.models_away = Gauge(Unlabelled, "models", "Models that left memory for models.cache_bytes.")
        self.spill_bytes = Gauge(Unlabelled, "bytes", "Files of the models that left memory.")
        self.loads_total = Counter(BySource, "models", "Models that came back into memory, by where from.")
        self.evictions_total = Counter(Unlabelled, "models", "Models that left memory.")
        self.model_samples = Gauge(ByModel, "records", "Labelled records learned by a top model.")
        self.model_nodes = Gauge(ByModel, "nodes", "Nodes of a top model.")
        self.model_depth = Gauge(ByModel, "edges", "Mean depth of a learned record's leaf in a top model.")
        self.model_memory_bytes = Gauge(ByModel, "bytes", "Memory of a top model.")
        self.model_log_loss = Summary(ByModel, "nats", "Loss of each labelled prediction of a top model.")
        self.model_correct_predictions_total = Counter(ByModel, "records", "Correct predictions of a top model.")
        self.model_squared_error = Summary(ByModel, "", "Square of each labelled estimate's error of a top model.")
        self.model_absolute_error = Summary(ByModel, "", "Error of each labelled estimate of a top model.")
        self.model_covered_predictions_total = Counter(ByModel, "records", "Covered labels of a top model.")

        self.partition_state = Gauge(ByPartitionState, "", "1 for the state that the partition is in, else 0.")
        self.partition_stops_total = Counter(ByCode, "partitions", "Partitions stopped to keep a guarantee, by code.")
        self.consumer_lag_records = Gauge(ByPartition, "records", "Records of the input not yet taken in.")
        self.forwarded_records_total = Counter(Unlabelled, "records", "Records forwarded to the internal topic.")
        self.forwarder_lag_records = Gauge(ByInputPartition, "records", "Records of the input not yet forwarded.")
        self.replayed_records_total = Counter(Unlabelled, "records", "Records taken in again after a restore.")
        sizes = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
        self.batch_records = Histogram(Unlabelled, "records", "Records of a batch.", sizes)
        self.transactions_total = Counter(ByOutcome, "transactions", "Transactions ended, by outcome.")
        times = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
        self.transaction_duration_seconds = Histogram(Unlabelled, "seconds", "From begin to commit or abort.", times)

        self.checkpoints_total = Counter(Unlabelled, "checkpoints", "Checkpoints written.")
        self.checkpoint_failures_total = Counter(Unlabelled, "checkpoints", "Checkpoints that could not be written.")
        self.checkpoints_skipped_total = Counter(Unlabelled, "checkpoints", "Corrupt checkpoints passed over.")
        self.checkpoint_duration_seconds = Summary(Unlabelled, "seconds", "Time to write a checkpoint.")
        self.checkpoint_last_timestamp_seconds = Gauge(
            ByPartition, "seconds", "When the newest checkpoint was written."
        )
        self.checkpoint_replay_cost_seconds = Gauge(
            ByPartition, "seconds", "Time that it would take to replay what came since the newest checkpoint, at most."
        )
        self.checkpoint_last_size_bytes = Gauge(ByPartition, "bytes", "Size of the newest checkpoint.")
        self.retention_margin_records = Gauge(
            ByPartition, "records", "From the oldest record of the input to the newest checkpoint; below 0 is a gap."
        )

        self.scrape_duration_seconds = Gauge(Unlabelled, "seconds", "Time that this scrape took in the worker.")

    def families(self) -> dict[str, AnyFamily]:
        """Name of the metric -> its family, in the order of the table."""
        return {f"amf_{attribute}": family for attribute, family in vars(self).items()}

    def set_models(self, samples: Iterable[tuple[str, int]], figures: Callable[[str], ModelFigures]) -> None:
        """Show the TOP_MODELS models with the most samples, and no other.

        `samples` gives (model, labelled samples learned) of all models; `figures` is asked about the shown ones alone.
        """
        top = {ByModel(key): n for key, n in heapq.nlargest(TOP_MODELS, samples, key=lambda row: (row[1], row[0]))}
        shown = {model: figures(model.model) for model in top}
        self.model_samples.replace(top)
        self.model_nodes.replace({model: of.nodes for model, of in shown.items()})
        self.model_depth.replace({model: of.depth for model, of in shown.items()})
        self.model_memory_bytes.replace({model: of.memory_bytes for model, of in shown.items()})
        scores = {model: of.scores for model, of in shown.items()}
        classes = {model: of for model, of in scores.items() if isinstance(of, ClassScores)}
        self.model_log_loss.replace({model: (of.log_loss, of.count) for model, of in classes.items()})
        self.model_correct_predictions_total.replace({model: of.correct for model, of in classes.items()})
        numbers = {model: of for model, of in scores.items() if isinstance(of, NumberScores)}
        self.model_squared_error.replace({model: (of.squared_error, of.count) for model, of in numbers.items()})
        self.model_absolute_error.replace({model: (of.absolute_error, of.count) for model, of in numbers.items()})
        self.model_covered_predictions_total.replace({model: of.covered for model, of in numbers.items()})

    def set_partition_states(self, states: Mapping[int, State]) -> None:
        """Show the state of these partitions, and of no other."""
        self.partition_state.replace(
            {
                ByPartitionState(partition, each): int(each == state)
                for partition, state in states.items()
                for each in get_args(State)
            }
        )

    def forget_partition(self, partition: int) -> None:
        """Remove every series of a partition that this worker no longer owns."""
        for family in self.families().values():
            family.forget("partition", partition)


def reference() -> str:
    """All metrics as a table in Markdown."""
    lines = ["| Metric | Kind | Labels | Unit | Meaning |", "| --- | --- | --- | --- | --- |"]
    for name, family in Metrics().families().items():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{name}` | {family.kind} | {labels} | {family.unit} | {family.sentence} |")
    return "\n".join(lines) + "\n"
