"""What a worker did and has, as metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from worker.base.metrics import TOP_MODELS, Metrics
from worker.base.ports import Clock, Input
from worker.base.records import Record
from worker.base.status import ModelRow
from worker.codec.dead_letters import REJECT_CODES, UNPUBLISHABLE
from worker.state import descriptions
from worker.state.cache import Cache
from worker.task.processor import BatchResult
from worker.task.task import Task


def expect(metrics: Metrics) -> None:
    """Show what may come as zero, so that `rate()` sees the first one of it."""
    for code in REJECT_CODES:
        metrics.dead_letters_total.add(0, code=code)


def count(metrics: Metrics, partition: int, result: BatchResult, now_ms: int, refused: Sequence[Record] = ()) -> None:
    """Count a batch whose outputs are committed by now, dead letters in place of those of the `refused` records."""
    tally = result.tally
    metrics.events_total.add(result.events)
    metrics.partition_events_total.add(result.events, partition=partition)
    # A reset that is passed on has no value, and is no prediction.
    metrics.predictions_total.add(tally.predicted - sum(each.value is not None for each in refused))
    for record in refused:
        result.rejects.add(record, UNPUBLISHABLE)
    result.rejects.report(metrics, f"partition {partition}", partition)
    result.kind_changes.report(metrics, partition)
    metrics.learned_samples_total.add(tally.learned)
    classes, numbers = tally.classes, tally.numbers
    metrics.log_loss.add(classes.log_loss, classes.count)
    metrics.correct_predictions_total.add(classes.correct)
    metrics.squared_error.add(numbers.squared_error, numbers.count)
    metrics.absolute_error.add(numbers.absolute_error, numbers.count)
    metrics.covered_predictions_total.add(numbers.covered)
    metrics.weighted_depth.add(tally.weighted_depth, sum(map(len, tally.depths)))
    metrics.add_confidences(tally.confidences, tally.hits)
    for depths in tally.depths:
        metrics.tree_depth.observe(depths)
    # The clocks of two machines differ: what came from the future took no time.
    times_ms = np.fromiter(result.timestamps_ms, np.int64, len(result.timestamps_ms))
    metrics.end_to_end_latency_seconds.observe(np.maximum(now_ms - times_ms, 0) / 1000)


def show(metrics: Metrics, cache: Cache, partitions: Mapping[int, Task], source: Input, clock: Clock) -> list[ModelRow]:
    """Figures of the models and partitions as of now, for the next scrapes. Returns the models that are shown."""
    cache.show(metrics)
    rows = [
        (number, entry)
        for number, each in partitions.items()
        for entry in each.models.leaders(TOP_MODELS, clock.monotonic())
    ]
    # Several partitions may have a model of one key, that of records without a key above all: the busiest is shown.
    leaders = {entry.key: (number, entry) for number, entry in sorted(rows, key=lambda row: row[1].traffic)}
    traffic = ((key, entry.traffic) for key, (_, entry) in leaders.items())
    shown = metrics.set_models(traffic, lambda key: leaders[key][1].watch())
    metrics.set_verdicts([each.models.loss_ratios for each in partitions.values()])
    metrics.set_partition_states({number: partition.state for number, partition in partitions.items()})
    for number, partition in partitions.items():
        high = source.high_watermark(number)
        if high is not None:
            n, seconds = partition.lag(high, source.end_seen(number), clock.wall_ms())
            metrics.consumer_lag_records.set(n, partition=number)
            if seconds is not None:
                metrics.consumer_lag_seconds.set(seconds, partition=number)
    return [descriptions.row(*leaders[key], figures.depth) for key, figures in shown.items()]
