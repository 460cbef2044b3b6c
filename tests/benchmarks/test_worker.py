"""What the benchmarks of the worker make of logs, metrics and outputs."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

import pytest

from tests.benchmarks.worker import (
    checkpoint_pause,
    latency,
    many_models,
    metrics_cost,
    quix_streams,
    recovery,
    rolling_restart,
    testbed,
)
from tests.benchmarks.worker.output_reader import Coverage, Digest
from tests.benchmarks.worker.workload import N_FEATURES
from tests.kafka.workers import WorkerProcess
from worker.base.records import Event
from worker.codec import decode


class Output:
    """An output as the client gives it."""

    def __init__(self, partition: int, offset: int, value: bytes = b"{}", timestamp_ms: int = 0) -> None:
        self._partition, self._offset, self._value, self._timestamp_ms = partition, offset, value, timestamp_ms

    def partition(self) -> int:
        return self._partition

    def headers(self) -> list[tuple[str, bytes]]:
        return [("source-partition", b"%d" % self._partition), ("source-offset", b"%d" % self._offset)]

    def key(self) -> bytes:
        return b"model-1"

    def value(self) -> bytes:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms


def test_a_metric_is_summed_over_its_series_and_not_mixed_up_with_another():
    text = (
        '# TYPE amf_lag gauge\namf_lag{partition="0"} 2\namf_lag{partition="1"} 3e3\namf_lag_seconds 7\namf_alone 1.5\n'
    )
    assert testbed.total(text, "amf_lag") == 3002
    assert testbed.total(text, "amf_alone") == 1.5
    assert testbed.total(text, "amf_absent") == 0


def test_a_log_is_read_from_the_present_life_on(tmp_path, monkeypatch):
    monkeypatch.setattr(WorkerProcess, "start", lambda self: None)
    log = tmp_path / "worker.log"
    worker = testbed.Worker(tmp_path / "worker.yaml", log, "a")
    log.write_text('{"time": "1970-01-01T00:00:01.500Z", "fact": "partition 0 is live at offset 5"}\n')
    assert worker.moments("is live") == [1.5]
    worker.start()
    with log.open("a") as file:
        file.write('{"time": "1970-01-01T00:01:00.250Z", "fact": "partition 0 is live at offset 90"}\n')
    assert worker.moments("is live") == [60.25]
    assert recovery.live_offsets(worker.said()) == {0: 90}


def test_coverage_counts_what_is_missing_and_what_is_too_much():
    coverage = Coverage([3, 2])
    coverage.take([Output(0, 0), Output(1, 1), Output(0, 0)])
    coverage.take([])
    coverage.take([Output(0, 0), Output(0, 2)])
    assert (coverage.missing, coverage.surplus) == (2, 2)
    with pytest.raises(IndexError):
        coverage.take([Output(1, 2)])


def digest(*outputs: Output) -> str:
    made = Digest()
    for output in outputs:
        made.take([output])
    return made.value


def test_a_digest_tells_contents_sources_and_repetitions_apart_but_not_orders():
    first, second = Output(0, 1, b"a"), Output(0, 2, b"b")
    assert digest(first, second) == digest(second, first)
    others = [Output(0, 2, b"c"), Output(1, 2, b"b"), Output(0, 3, b"b")]
    several = [digest(first, other) for other in [second, *others]]
    several += [digest(first), digest(first, first), digest(first, second, second), digest()]
    assert len(set(several)) == len(several)


def test_the_first_new_prediction_is_the_first_at_or_after_where_its_partition_goes_live():
    sightings = recovery.Sightings()
    sightings.take(10.0, [Output(0, 99), Output(1, 49)])
    assert sightings.first_after({0: 100, 1: 50}) is None
    sightings.take(13.0, [Output(1, 50), Output(1, 60)])
    sightings.take(14.0, [Output(0, 100)])
    assert sightings.first_after({0: 100, 1: 50}) == 13.0
    assert sightings.first_after({0: 100, 1: 61}) == 14.0


def test_the_parts_of_a_recovery_add_up_to_the_first_prediction():
    assert recovery.Recovery(start=1.0, kernels=0.5, join=0.25, replay=4.0, all_live=9.0).total == 5.75


def test_the_longest_silence_is_of_each_partition_alone():
    flow = rolling_restart.Flow()
    for now, partitions in ((0.0, (0, 1)), (1.0, (0,)), (5.0, (0, 1, 1)), (6.0, (1,))):
        flow.take(now, [Output(partition, 0) for partition in partitions])
    assert flow.silences == {0: 4.0, 1: 5.0}
    assert flow.count == 7


def test_the_peers_rate_is_that_between_two_counts():
    progress = quix_streams.Progress()
    for now, n in ((100.0, 5), (102.0, 10), (104.0, 30), (110.0, 1)):
        progress.take(now, [Output(0, 0)] * n)
    assert progress.rate(15, 40) == 30 / 2
    assert progress.rate(15, 46) == 31 / 8


def test_latencies_are_counted_from_the_timestamp_and_after_the_warm_up():
    latencies = latency.Latencies()
    latencies.take(100.0, [Output(0, n, timestamp_ms=0) for n in range(20)])
    latencies.take(100.0, [Output(0, n, timestamp_ms=100_000 - n) for n in range(81)][1:])
    steady = latencies.steady()
    assert steady.p50 == pytest.approx(40.5)
    assert (steady.max, math.floor(steady.p99)) == (80, 79)


def test_every_key_comes_once_and_then_by_zipfs_law():
    n_keys, n = 50, 20_000
    events = list(many_models.popular(n_keys, n))
    assert len({key for key, _ in islice(events, n_keys)}) == n_keys
    counts = Counter(key for key, _ in events[n_keys:])
    for rank in (2, 5, 20):
        assert counts[b"key-0"] / counts[b"key-%d" % (rank - 1)] == pytest.approx(rank**1.1, rel=0.1)
    event = decode(events[-1][1], 1_000_000)
    assert isinstance(event, Event)
    assert len(event.features) == N_FEATURES
    assert events == list(many_models.popular(n_keys, n))


def test_what_metrics_cost_is_measured_of_a_worker_of_today():
    without_us, ratio, count_us, show_us = metrics_cost.measured(n_models=3, pairs=metrics_cost.GATHERED)
    assert 0 < without_us < 100_000
    assert 0 < ratio < 100
    assert 0 < count_us < without_us
    assert 0 < show_us < 10_000_000


def test_pauses_are_measured_of_a_checkpoint_of_today():
    found = checkpoint_pause.pauses(n_models=20, nbytes=200_000)
    assert found.turns > 1
    assert 0 < found.longest_ms <= found.total_ms < found.written_s * 1e3
