"""What a worker did and has, as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from worker.cache import Cache
from worker.intake import BatchResult
from worker.metrics import TOP_MODELS, Metrics
from worker.partition import Partition
from worker.ports import Input
from worker.records import Outgoing


def count(metrics: Metrics, result: BatchResult, refused: Sequence[Outgoing] = ()) -> None:
    """Count a batch whose outputs are committed, dead letters in place of those that were refused."""
    metrics.events_total.add(result.events)
    # A reset that is passed on has no value, and is no prediction.
    metrics.predictions_total.add(result.predictions - sum(each.value is not None for each in refused))
    rejects = result.rejects + Counter({"unpublishable": len(refused)})
    for code, n in rejects.items():
        metrics.dead_letters_total.add(n, code=code)
    metrics.learned_samples_total.add(result.learned)
    classes, numbers = result.class_scores, result.number_scores
    metrics.log_loss.add(classes.log_loss, classes.count)
    metrics.correct_predictions_total.add(classes.correct)
    metrics.squared_error.add(numbers.squared_error, numbers.count)
    metrics.absolute_error.add(numbers.absolute_error, numbers.count)
    metrics.covered_predictions_total.add(numbers.covered)
    metrics.weighted_depth.add(result.weighted_depth, sum(map(len, result.depths)))
    for depths in result.depths:
        metrics.tree_depth.observe(depths)


def show(metrics: Metrics, cache: Cache, partitions: Mapping[int, Partition], source: Input) -> None:
    """Figures of the models and partitions as of now, for the next scrapes."""
    cache.show(metrics)
    slots = {slot.key: slot for each in partitions.values() for slot in each.models.leaders(TOP_MODELS)}
    metrics.set_models(((key, slot.samples) for key, slot in slots.items()), lambda key: slots[key].figures())
    metrics.set_partition_states({number: partition.state.value for number, partition in partitions.items()})
    for number, partition in partitions.items():
        high = source.high_watermark(number)
        if high is not None:
            metrics.consumer_lag_records.set(max(0, high - max(partition.position, 0)), partition=number)
