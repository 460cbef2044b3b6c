"""The worker's metrics: what there is to count, and the numbers counted.

Each metric is one row of the table in `Metrics`. The loop adds plain numbers to it, once per batch;
adapters/http/exposition.py shows a copy of them when somebody scrapes. Nothing here survives the process: Prometheus
knows what a restart is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from worker.base.families import AnyFamily, Counter, Gauge, Histogram, Summary, Waiting
from worker.base.records import ClassScores, Figures, NumberScores
from worker.base.series import (
    Build,
    ByChange,
    ByCode,
    ByConfidence,
    ByInputPartition,
    ByKindChange,
    ByModel,
    ByModelFeature,
    ByModelForecast,
    ByOutcome,
    ByPartition,
    ByPartitionState,
    BySource,
    ByStopCode,
    ByVerdict,
    Tenth,
    Unlabelled,
)
from worker.base.terms import State

TOP_MODELS = 20
"""How many models have series of their own: Prometheus keeps each one it ever saw, and model keys have no bound."""

TOP_FEATURES = 5
"""How many features of such a model have a series."""

WORST_MODELS = 10
"""How many of the models have a series that do worst against their baselines."""

JUDGED_SAMPLES = 100
"""Labels after which a model is held against its baseline: the losses of fewer say nothing."""

RANKED_CLASSES = 8
"""Classes whose ranking is looked at, the first that a model met: the counts have a bound."""

RANKED_LABELS = 5_000
"""Labels whose ranking is forgotten together: what is shown is that of the last one to two times so many."""

_TENTHS = tuple(map(ByConfidence, get_args(Tenth)))

Traffic: TypeAlias = tuple[float, int]
"""How much a model learned of late, in any unit, and in all: which of two is the larger is what counts."""


class Metrics:
    """Every metric: kind, labels, unit, meaning. A metric's name is the name of its attribute with `amf_` before it."""

    def __init__(self) -> None:
        self.build_info = Gauge(Build, "", "Always 1; the labels are versions, group and topic.")
        self.ready = Gauge(Unlabelled, "", "1 where the worker is ready, 0 where /ready says what is in the way.")
        self.loop_last_timestamp_seconds = Gauge(Unlabelled, "seconds", "When the loop last came round.")
        self._declare_events()
        self._declare_models()
        self._declare_top_models()
        self._declare_partitions()
        self._declare_checkpoints()
        self.scrape_duration_seconds = Gauge(Unlabelled, "seconds", "Time that this scrape took in the worker.")

    def _declare_events(self) -> None:
        self.events_total = Counter(Unlabelled, "records", "Records taken in by live partitions.")
        self.partition_events_total = Counter(ByPartition, "records", "Records taken in by a live partition.")
        self.predictions_total = Counter(Unlabelled, "records", "Predictions published.")
        self.dead_letters_total = Counter(ByCode, "records", "Records rejected, by error code.")
        self.kind_changes_total = Counter(
            ByKindChange,
            "",
            "Features and labels of models that were numbers and came as text, or the reverse; each of a model once.",
        )
        self.learned_samples_total = Counter(Unlabelled, "records", "Labelled records learned by live partitions.")
        self.log_loss = Summary(Unlabelled, "nats", "Loss of each labelled prediction: -log(probability of the label).")
        self.correct_predictions_total = Counter(Unlabelled, "records", "Labelled predictions that named the label.")
        self.confidence = Summary(
            ByConfidence,
            "",
            "Probability of the class that a labelled prediction named, by its first decimal. Where forecasts are "
            "calibrated its mean is the share of `amf_confidence_correct_total`.",
        )
        self.confidence_correct_total = Counter(
            ByConfidence, "records", "Labelled predictions that named the label, by the probability that they gave it."
        )
        self.confidence.waiting = self.confidence_correct_total.waiting = Waiting(self._count_confidences)
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

    def _declare_models(self) -> None:
        self.models = Gauge(Unlabelled, "models", "Models in memory.")
        self.nodes = Gauge(Unlabelled, "nodes", "Nodes of all models in memory.")
        self.model_bytes = Gauge(Unlabelled, "bytes", "Memory of the models, and of copies that wait to be saved.")
        self.models_away = Gauge(Unlabelled, "models", "Models that left memory for models.cache_bytes.")
        self.spill_bytes = Gauge(Unlabelled, "bytes", "Files of the models that left memory.")
        self.loads_total = Counter(BySource, "models", "Models that came back into memory, by where from.")
        self.evictions_total = Counter(Unlabelled, "models", "Models that left memory.")
        self.models_judged = Gauge(
            ByVerdict,
            "models",
            f"Models with {JUDGED_SAMPLES} labels; useless are those whose recent loss is above the baseline's.",
        )

    def _declare_top_models(self) -> None:
        self.model_samples = Gauge(ByModel, "records", "Labelled records learned by a top model.")
        self.model_nodes = Gauge(ByModel, "nodes", "Nodes of a top model.")
        self.model_depth = Gauge(ByModel, "edges", "Mean depth of a learned record's leaf in a top model.")
        self.model_memory_bytes = Gauge(ByModel, "bytes", "Memory of a top model.")
        self.model_recent_loss = Gauge(
            ByModelForecast,
            "",
            "Mean loss of the last thousand labels or so, that of the trees alone, and that of a forecast that knows "
            "the labels alone: nats for classes, squared error for numbers. It is part of the model's state.",
        )
        self.model_auc = Gauge(
            ByModel,
            "",
            f"Area under the ROC curve of a top model's last {RANKED_LABELS:,} to {2 * RANKED_LABELS:,} labels, each "
            f"of its first {RANKED_CLASSES} classes against the others, mean; .5 is guessing.",
        )
        self.model_swaps = Gauge(
            ByModel,
            "trees",
            "Trees that a top model of an adaptive algorithm has replaced so far by better ones: its answer to change. "
            "It is part of the model's state.",
        )
        self.model_feature_weight = Gauge(
            ByModelFeature,
            "",
            f"The {TOP_FEATURES} largest feature weights of a top model of an adaptive algorithm: how much likelier a "
            "cut is of the feature than without weights, 1 in the mean. They are part of the model's state.",
        )
        self.worst_model_loss_ratio = Gauge(
            ByModel,
            "",
            f"Recent loss over the baseline's, of the {WORST_MODELS} models with {JUDGED_SAMPLES} labels where it is "
            "largest; above 1 the features are of no use.",
        )
        self.model_log_loss = Summary(ByModel, "nats", "Loss of each labelled prediction of a top model.")
        self.model_correct_predictions_total = Counter(ByModel, "records", "Correct predictions of a top model.")
        self.model_squared_error = Summary(ByModel, "", "Square of each labelled estimate's error of a top model.")
        self.model_absolute_error = Summary(ByModel, "", "Error of each labelled estimate of a top model.")
        self.model_covered_predictions_total = Counter(ByModel, "records", "Covered labels of a top model.")

    def _declare_partitions(self) -> None:
        self.topic_partitions = Gauge(Unlabelled, "partitions", "Partitions of the input topic, whoever has them.")
        self.partition_state = Gauge(ByPartitionState, "", "1 for the state that the partition is in, else 0.")
        self.rebalanced_partitions_total = Counter(
            ByChange, "partitions", "Partitions that the group gave to this worker, asked back, or gave to another."
        )
        self.partition_stops_total = Counter(
            ByStopCode, "partitions", "Partitions stopped to keep a guarantee, by code."
        )
        self.consumer_lag_records = Gauge(ByPartition, "records", "Records of the input not yet taken in.")
        self.consumer_lag_seconds = Gauge(
            ByPartition,
            "seconds",
            "Since when records wait to be taken in, by the time of the last ones taken; 0 where none waits.",
        )
        self.forwarded_records_total = Counter(Unlabelled, "records", "Records forwarded to the internal topic.")
        self.forwarder_dead_letters_total = Counter(
            Unlabelled,
            "records",
            "Records rejected in place of being forwarded. They are in `amf_dead_letters_total` too, and no events.",
        )
        self.forwarder_topic_partitions = Gauge(
            Unlabelled, "partitions", "Partitions of the topic to forward when this worker started, whoever has them."
        )
        self.forwarder_lag_records = Gauge(ByInputPartition, "records", "Records of the input not yet forwarded.")
        self.forwarder_lag_seconds = Gauge(
            ByInputPartition,
            "seconds",
            "Since when records wait to be forwarded, by the time of the last ones taken; 0 where none waits.",
        )
        self.replayed_records_total = Counter(Unlabelled, "records", "Records taken in again after a restore.")
        sizes = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)
        self.batch_records = Histogram(Unlabelled, "records", "Outputs of a transaction.", sizes)
        attempts = "Attempts at transactions, by outcome; unknown also where no producer opened, or no offset came."
        self.transactions_total = Counter(ByOutcome, "transactions", attempts)
        times = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
        self.transaction_duration_seconds = Histogram(Unlabelled, "seconds", "From begin to commit.", times)

        ages = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)
        self.end_to_end_latency_seconds = Histogram(
            Unlabelled, "seconds", "From the timestamp of a record to the commit of what became of it.", ages
        )

    def _declare_checkpoints(self) -> None:
        self.checkpoints_total = Counter(Unlabelled, "checkpoints", "Checkpoints written.")
        self.checkpoint_failures_total = Counter(Unlabelled, "checkpoints", "Checkpoints that could not be written.")
        self.checkpoint_cleanup_failures_total = Counter(Unlabelled, "", "Attempts to remove old ones that failed.")
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

    def families(self) -> dict[str, AnyFamily]:
        """Name of the metric -> its family, in the order of the table."""
        return {f"amf_{attribute}": family for attribute, family in vars(self).items()}

    def set_models(
        self, traffic: Iterable[tuple[str, Traffic]], figures: Callable[[str], Figures]
    ) -> dict[str, Figures]:
        """Show the TOP_MODELS models with the most traffic, and no other. Returns the figures of these.

        `traffic` is that of all that may be among them; `figures` is asked about the shown ones alone.
        """
        top = heapq.nlargest(TOP_MODELS, traffic, key=lambda row: (row[1], row[0]))
        shown = {key: figures(key) for key, _ in top}
        gauges: tuple[tuple[Gauge[..., ByModel], Callable[[Figures], float | None]], ...] = (
            (self.model_samples, lambda of: of.samples),
            (self.model_nodes, lambda of: of.nodes),
            (self.model_depth, lambda of: of.depth),
            (self.model_memory_bytes, lambda of: of.memory_bytes),
            (self.model_auc, lambda of: None if math.isnan(of.auc) else of.auc),
            (self.model_swaps, lambda of: of.swaps),
        )
        for gauge, read in gauges:
            values = {ByModel(key): read(of) for key, of in shown.items()}
            gauge.replace({model: value for model, value in values.items() if value is not None})
        losses = {key: of.losses for key, of in shown.items() if of.losses and not math.isnan(of.losses.baseline)}
        self.model_recent_loss.replace(
            {ByModelForecast(key, "calibrated"): of.calibrated for key, of in losses.items()}
            | {ByModelForecast(key, "trees"): of.trees for key, of in losses.items()}
            | {ByModelForecast(key, "baseline"): of.baseline for key, of in losses.items()}
        )
        weights = ((key, name, weight) for key, of in shown.items() for name, weight in of.feature_weights.items())
        self.model_feature_weight.replace({ByModelFeature(key, name): weight for key, name, weight in weights})
        scores = {ByModel(key): of.scores for key, of in shown.items()}
        classes = {model: of for model, of in scores.items() if isinstance(of, ClassScores)}
        self.model_log_loss.replace({model: (of.log_loss, of.count) for model, of in classes.items()})
        self.model_correct_predictions_total.replace({model: of.correct for model, of in classes.items()})
        numbers = {model: of for model, of in scores.items() if isinstance(of, NumberScores)}
        self.model_squared_error.replace({model: (of.squared_error, of.count) for model, of in numbers.items()})
        self.model_absolute_error.replace({model: (of.absolute_error, of.count) for model, of in numbers.items()})
        self.model_covered_predictions_total.replace({model: of.covered for model, of in numbers.items()})
        return shown

    def set_verdicts(self, loss_ratios: Sequence[Mapping[str, float]]) -> None:
        """Show how many models are of use, and the worst: recent losses over the baseline's, of each partition."""
        n = sum(map(len, loss_ratios))
        useful = sum(ratio <= 1 for ratios in loss_ratios for ratio in ratios.values())
        self.models_judged.set(useful, verdict="useful")
        self.models_judged.set(n - useful, verdict="useless")
        rows = (row for ratios in loss_ratios for row in ratios.items())
        worst = heapq.nlargest(WORST_MODELS, rows, key=lambda row: (row[1], row[0]))
        # From the best of them to the worst, who is shown where several partitions have a model of one key.
        self.worst_model_loss_ratio.replace({ByModel(key): ratio for key, ratio in reversed(worst)})

    def add_confidences(self, confidences: Sequence[float], hits: Sequence[bool]) -> None:
        """Count labelled predictions by the probability of the class that each named, and whether it was the label."""
        if not confidences:
            return
        assert self.confidence.waiting is not None
        # With the type and the number given, lists become arrays in half of the time.
        n = len(confidences)
        part = np.fromiter(confidences, np.float64, n), np.fromiter(hits, np.bool_, n)
        self.confidence.waiting.add(part, n)

    def _count_confidences(self, parts: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]]) -> None:
        values, right = map(np.concatenate, zip(*parts, strict=True))
        tenths = np.minimum((values * 10).astype(np.int64), 9)
        counts, totals = np.bincount(tenths, minlength=10).tolist(), np.bincount(tenths, values, 10).tolist()
        self.confidence.add_all(dict(zip(_TENTHS, zip(totals, counts, strict=True), strict=True)))
        correct = np.bincount(tenths[right], minlength=10).tolist()
        self.confidence_correct_total.add_all(dict(zip(_TENTHS, correct, strict=True)))

    def set_partition_states(self, states: Mapping[int, State]) -> None:
        """Show the state of these partitions, and of no other."""
        self.partition_state.replace(
            {
                ByPartitionState(partition, each): int(each == state)
                for partition, state in states.items()
                for each in State
            }
        )

    def forget_partitions(self, partitions: Iterable[int]) -> None:
        """Remove every series of partitions that this worker no longer owns."""
        gone = set(partitions)
        for family in self.families().values():
            family.forget("partition", gone)


QUERIES = {
    "How many events a second?": "sum(rate(amf_events_total[1m]))",
    "How far behind?": "max(amf_consumer_lag_seconds)",
    "How far behind is the forwarder of `input.repartition`?": "max(amf_forwarder_lag_seconds)",
    "How long from a record to its prediction, at 99 %?": "histogram_quantile(0.99, sum by (le) "
    "(rate(amf_end_to_end_latency_seconds_bucket[5m])))",
    "What log-loss?": "sum(rate(amf_log_loss_sum[15m])) / sum(rate(amf_log_loss_count[15m]))",
    "What is refused, and why?": "sum by (code) (increase(amf_dead_letters_total[1h])) > 0",
}


def reference() -> str:
    """All metrics as a page in Markdown."""
    lines = [
        "# Metrics of amf-worker",
        "",
        "What `/metrics` shows at `metrics.listen`, made of the declarations in `worker/base/metrics.py` by",
        "`python -m worker.base.metrics`. What is known beforehand starts at zero, so that `rate()` sees the first",
        "increase. A summary has the series `_sum` and `_count`, a histogram `_bucket` besides.",
        f"At most {TOP_MODELS} models have series of their own, those with the most traffic of late; where several",
        "partitions have a model of one key, such as that of `models.null_key`, it is the one with the most.",
        "What else there is at `metrics.listen`, such as a page for people, is in [http.md](http.md).",
        "",
        "Memory, CPU time and open files of the process are there under the names that every Prometheus client uses:",
        "`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_cpu_seconds_total`,",
        "`process_open_fds`, `process_max_fds`, `process_start_time_seconds`.",
        "",
        "Asked most often:",
        "",
        "| Question | Query |",
        "| --- | --- |",
        *(f"| {question} | `{query}` |" for question, query in QUERIES.items()),
        "",
        "| Metric | Kind | Labels | Unit | Meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, family in Metrics().families().items():
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{name}` | {family.kind} | {labels} | {family.unit} | {family.sentence} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
