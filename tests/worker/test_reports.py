"""What a worker at work shows in its metrics."""

from __future__ import annotations

import random
from typing import Any, get_args

import msgspec
import pytest

from tests.worker.support.bench import Bench, Bound, gathering
from tests.worker.support.fake_broker import FIRST_TIMESTAMP_MS
from worker.base.errors import Abort, StopCode
from worker.base.lag import Lag
from worker.base.log import LogEvent
from worker.base.metrics import JUDGED_SAMPLES, TOP_FEATURES, WORST_MODELS, Metrics
from worker.base.records import Record
from worker.base.series import ByPartition
from worker.codec.dead_letters import REJECT_CODES
from worker.runtime import reports
from worker.runtime.loop import GAUGES_EVERY_S
from worker.task.allowance import Allowance


def test_every_code_is_there_before_it_comes() -> None:
    metrics = Metrics()
    reports.expect(metrics)
    assert {labels.code: n for labels, n in metrics.dead_letters_total.series().items()} == dict.fromkeys(
        REJECT_CODES, 0
    )
    worker = Bench().worker()
    assert len(worker.metrics.dead_letters_total.series()) == len(REJECT_CODES)
    assert len(worker.metrics.partition_stops_total.series()) == len(get_args(StopCode)) > 10


def test_partitions_that_change_hands_are_counted() -> None:
    bench = Bench(partitions=3)
    one, two = bench.worker("one").join().turns(2), bench.worker("two").join(0)
    one.turn()
    two.turn()
    one.input.expire()
    one.input.notice()
    one.turn()
    two.close()

    def changes(metrics: Metrics) -> dict[str, float]:
        return {labels.change: n for labels, n in metrics.rebalanced_partitions_total.series().items()}

    assert changes(one.metrics) == {"assigned": 3, "revoked": 1, "lost": 2}
    assert changes(two.metrics) == {"assigned": 1, "revoked": 1, "lost": 0}


def test_a_partition_that_comes_has_taken_nothing_so_that_its_first_events_are_seen_as_an_increase() -> None:
    bench = Bench(partitions=2)
    worker = bench.worker().join()
    assert worker.metrics.partition_events_total.series() == {ByPartition(0): 0, ByPartition(1): 0}
    bench.feed("a", partition=1)
    worker.turns(2)
    assert worker.metrics.partition_events_total.series() == {ByPartition(0): 0, ByPartition(1): 1}


def test_partitions_that_go_together_are_forgotten_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one it is all series for each of them: 80 seconds of a rebalance with 10,000 partitions."""
    worker = Bench(partitions=20).worker().join().turns(2)
    asked: list[list[int]] = []
    forget = Metrics.forget_partitions

    def noted(metrics: Metrics, gone: list[int]) -> None:
        asked.append(gone)
        forget(metrics, gone)

    monkeypatch.setattr(Metrics, "forget_partitions", noted)
    worker.close()
    assert [sorted(gone) for gone in asked if gone] == [list(range(20))]
    assert worker.metrics.partition_events_total.series() == {}


def test_a_partition_has_no_checkpoint_before_it_is_open() -> None:
    bench = Bench()
    worker = bench.worker().join_idle()
    worker.take()
    assert worker.metrics.checkpoint_last_timestamp_seconds.series() == {}
    worker.turns(2)
    [written_s] = worker.metrics.checkpoint_last_timestamp_seconds.series().values()
    assert written_s == bench.newest().created_ms / 1000


def test_dead_letters_that_are_committed_together_are_logged_with_the_last_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(max_consecutive=10)
    worker = gathering(bench)
    for _ in range(3):
        bench.feed_bad(1)
        worker.turn()
    bench.clock.now_s += 10
    worker.turn()
    events = [each for line in caplog.records if isinstance(each := getattr(line, "event", None), LogEvent)]
    [letters] = [event.fields for event in events if event.name == "dead-letter"]
    assert (letters["count"], letters["offset"]) == (3, 2)


# What forecasts are worth


def test_probabilities_are_held_against_what_came() -> None:
    metrics = Metrics()
    metrics.add_confidences([0.95, 1.0, 0.91, 0.55, 0.0], [True, True, False, True, False])
    shown = {labels.confidence: of for labels, of in metrics.confidence.series().items() if of[1]}
    assert shown == {"0.0": (0.0, 1), "0.5": (0.55, 1), "0.9": (pytest.approx(2.86), 3)}
    correct = {labels.confidence: n for labels, n in metrics.confidence_correct_total.series().items() if n}
    assert correct == {"0.5": 1, "0.9": 2}


def test_the_worst_models_are_named_and_all_are_counted() -> None:
    metrics = Metrics()
    metrics.set_verdicts([{f"m{i}": i / 20 for i in range(30)}, {"bad": 9.0}])
    assert {labels.verdict: n for labels, n in metrics.models_judged.series().items()} == {"useful": 21, "useless": 10}
    worst = {labels.model: ratio for labels, ratio in metrics.worst_model_loss_ratio.series().items()}
    assert len(worst) == WORST_MODELS
    assert worst["bad"] == 9.0
    assert "m20" not in worst
    metrics.set_verdicts([{"both": 3.0}, {"both": 1.5}])
    assert {labels.model: ratio for labels, ratio in metrics.worst_model_loss_ratio.series().items()} == {"both": 3.0}
    metrics.set_verdicts([])
    assert metrics.worst_model_loss_ratio.series() == {}


def test_of_a_model_that_was_reset_nothing_is_shown_any_more() -> None:
    bench = Bench(interval_s=60.0, tombstones="reset")
    bench.feed(*"ab" * JUDGED_SAMPLES)
    worker = bench.worker().join().turns(3)

    def shown() -> tuple[int, float]:
        bench.clock.sleep(GAUGES_EVERY_S)
        worker.turns(2)
        return len(worker.metrics.model_samples.series()), sum(worker.metrics.models_judged.series().values())

    assert shown() == (1, 1)
    bench.broker.logs[0].append(b"k", None)
    assert shown() == (0, 0)
    bench.feed("a", key="other")
    assert shown() == (1, 0)


def test_a_worker_at_work_shows_how_its_models_rank_and_what_each_partition_takes() -> None:
    bench = Bench(partitions=2)
    worker = bench.worker().join()
    worker.turns(2)
    for _ in range(20):
        bench.feed(*"abcab", key="top")
        bench.feed(None, None, partition=1)
        bench.clock.sleep(GAUGES_EVERY_S)
        worker.turns(2)
    events = {labels.partition: n for labels, n in worker.metrics.partition_events_total.series().items()}
    assert events == {0: 100, 1: 40}
    [auc] = worker.metrics.model_auc.series().values()
    # The only feature is the offset modulo 5, which says what the label is.
    assert auc > 0.9
    predictions = sum(count for _, count in worker.metrics.confidence.series().values())
    correct = sum(worker.metrics.confidence_correct_total.series().values())
    assert predictions == 100
    assert correct == sum(worker.metrics.correct_predictions_total.series().values()) > 60


def test_of_a_key_with_models_in_several_partitions_the_busiest_is_shown() -> None:
    bench = Bench(partitions=3, null_key="nobody")
    worker = bench.worker().join().turns(2)
    for partition, n in enumerate((2, 7, 3)):
        for _ in range(n):
            bench.broker.logs[partition].append(None, b'{"features": [1.0], "label": "a"}')
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.turns(2)
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.turns(1)
    [shown] = worker.board.status.leaders
    assert (shown.key, shown.partition, shown.samples) == ("nobody", 1, 7)
    assert list(worker.metrics.model_samples.series().values()) == [7]


def test_who_leads_does_not_depend_on_the_time_of_day() -> None:
    bench = Bench()
    worker = bench.worker().join().turns(2)
    for key, n in (("before", 3), ("behind", 9)):
        bench.feed(*"a" * n, key=key)
        bench.clock.sleep(GAUGES_EVERY_S)
        worker.turns(2)
        # Somebody sets the clock of the machine right.
        bench.clock.wall_offset_ms -= 86_400_000
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.turns(1)
    assert [row.key for row in worker.board.status.leaders] == ["behind", "before"]


def swaps_and_weights(worker: Bound) -> tuple[dict[str, float], dict[str, float]]:
    """Of the model k."""
    weights = {labels.feature: weight for labels, weight in worker.metrics.model_feature_weight.series().items()}
    return {labels.model: n for labels, n in worker.metrics.model_swaps.series().items()}, weights


def test_swaps_and_weights_of_models_that_adapt_are_there_again_after_a_restart() -> None:
    adaptive: dict[str, Any] = {"match": "k", "algorithm": "adaptive-classifier", "background": 0.5, "review_every": 8}
    bench = Bench(n_estimators=4, overrides=[adaptive])
    worker = bench.worker().join().turns(2)
    rng = random.Random(0)
    for i in range(400):
        values = [rng.random() for _ in range(TOP_FEATURES + 3)]
        event = {"features": {f"f{place}": value for place, value in enumerate(values)}}
        event["label"] = "ab"[(values[0] > 0.5) == (i < 200)]
        bench.broker.logs[0].append(b"k", msgspec.json.encode(event))
    bench.feed(*"ab" * 10, key="plain")
    bench.clock.sleep(GAUGES_EVERY_S)
    worker.turns(2)
    swaps, weights = swaps_and_weights(worker)
    assert swaps.keys() == {"k"}
    assert swaps["k"] > 0
    assert len(weights) == TOP_FEATURES
    assert max(weights, key=lambda name: weights[name]) == "f0"
    entry = worker._worker._tasks[0].models.entry("k")
    assert entry is not None
    assert entry.model is not None
    found = entry.model.forest.describe().adaptation
    assert found is not None
    assert swaps["k"] == found.n_swaps
    assert set(weights.values()) == set(sorted(found.feature_weights)[-TOP_FEATURES:])
    worker.close()
    again = bench.worker("two").join().turns(1)
    bench.clock.sleep(GAUGES_EVERY_S)
    again.turns(1)
    assert swaps_and_weights(again) == (swaps, weights)


# Latency and lag


def lag(worker: Bound) -> tuple[float, float | None]:
    """Records and seconds by which the first partition is behind."""
    n = worker.metrics.consumer_lag_records.series()[ByPartition(0)]
    return n, worker.metrics.consumer_lag_seconds.series().get(ByPartition(0))


def test_latency_is_from_the_record_to_the_commit() -> None:
    bench = Bench(interval_s=60.0)
    worker = bench.worker().join()
    now_ms = bench.clock.wall_ms()
    for age_ms in (2_000, 40_000, -5_000):
        record = Record(bench.broker.logs[0].high, now_ms - age_ms, b"k", b'{"features": [1.0]}', [])
        bench.broker.logs[0].records.append(record)
        bench.broker.logs[0].high += 1
    bench.broker.logs[0].append(b"k", b"{")
    nobody_knows_when = msgspec.structs.replace(bench.broker.logs[0].records[-1], timestamp_ms=-1)
    bench.broker.logs[0].records[-1] = nobody_knows_when
    worker.faults.at("commit", Abort("once"))
    worker.turn()
    [(counts, _)] = worker.metrics.end_to_end_latency_seconds.series().values()
    assert counts.sum() == 0, "nothing is committed yet"
    worker.turn()
    [(counts, total)] = worker.metrics.end_to_end_latency_seconds.series().values()
    waited_s = (bench.clock.wall_ms() - now_ms) / 1000
    assert counts.sum() == 3
    assert 0 < waited_s < 5
    assert total == pytest.approx(2 + 40 + 2 * waited_s)


def test_an_idle_partition_has_no_lag_and_gets_none_by_its_next_record() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b")
    worker = bench.worker().join().turns(3)
    bench.clock.now_s += 86_400
    worker.turns(2)
    assert lag(worker) == (0, 0.0)
    worker.input.paused.add(0)
    bench.feed("a")
    bench.clock.now_s += 2
    worker.turns(1)
    n, seconds = lag(worker)
    assert n == 1
    assert 2 <= (seconds or 0) < 5
    bench.clock.now_s += 100
    worker.turns(1)
    assert 102 <= (lag(worker)[1] or 0) < 105


def test_a_backlog_is_as_old_as_what_was_taken_last() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", "a", "b", "a")
    worker = bench.worker().join_idle()
    worker.input.batch_records = lambda: 1
    worker.take()
    worker.turns(2)
    bench.clock.now_s += 2
    worker.turns(1)
    n, seconds = lag(worker)
    assert 0 < n < 5
    assert seconds == pytest.approx((bench.clock.wall_ms() - FIRST_TIMESTAMP_MS) / 1000, abs=10)


def test_a_producer_whose_clock_is_ahead_hides_no_lag() -> None:
    bench = Bench(interval_s=60.0)
    worker = bench.worker().join_idle()
    worker.input.batch_records = lambda: 1
    log, now_ms = bench.broker.logs[0], bench.clock.wall_ms()
    for ahead_ms in (0, 3_600_000, *[0] * 8):
        log.records.append(Record(log.high, now_ms + ahead_ms, b"k", b'{"features": [1.0]}', []))
        log.high += 1
    worker.take()
    worker.turns(1)
    while worker.position(0) < 2:
        bench.clock.now_s += GAUGES_EVERY_S
        worker.turn()
    worker.input.paused.add(0)
    bench.clock.now_s += 300
    worker.turns(1)
    n, seconds = lag(worker)
    assert n == 8
    assert 300 <= (seconds or 0) < 320


def test_a_batch_in_which_one_record_is_ahead_hides_no_lag() -> None:
    lag, now_ms = Lag(), 1_000_000
    lag.took([now_ms - 300_000, now_ms])
    assert lag.seconds(1, now_ms) == 300.0


def test_a_few_late_records_in_each_batch_are_no_lag_of_a_worker_that_keeps_up() -> None:
    """Such as labels that come an hour late, with the time of their event, where the input never ends."""
    lag, now_ms = Lag(), 1_000_000_000
    for _ in range(10):
        now_ms += 60_000
        lag.took([now_ms - 200, now_ms - 3_600_000, now_ms - 150, now_ms - 100])
        assert lag.seconds(1, now_ms) == 0.2


def test_records_without_a_time_do_not_wait_since_1970() -> None:
    lag = Lag()
    lag.took([-1, 5])
    assert lag.seconds(1, 1_000) is None


def test_records_that_come_out_of_order_do_not_make_a_backlog_older() -> None:
    lag, now_ms = Lag(), 1_000_000
    lag.took([now_ms - 5_000])
    lag.took([now_ms - 300_000])
    assert lag.seconds(1, now_ms) == 5.0


def test_a_record_from_the_future_does_not_hide_the_lag() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", "a")
    log = bench.broker.logs[0]
    log.records[0] = msgspec.structs.replace(log.records[0], timestamp_ms=bench.clock.wall_ms() + 86_400_000)
    worker = bench.worker().join_idle()
    worker.input.batch_records = lambda: 1
    worker.take()
    while not worker.metrics.consumer_lag_seconds.series():
        bench.clock.now_s += 2
        worker.turns(1)
    worker.input.paused.add(0)
    bench.clock.now_s += 400
    worker.turns(1)
    n, seconds = lag(worker)
    assert n > 0
    assert (seconds or 0) >= 400


def test_markers_of_transactions_are_no_lag() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a")
    bench.broker.logs[0].high += 1
    worker = bench.worker().join().turns(2)
    bench.clock.now_s += 1000
    worker.turns(2)
    assert lag(worker) == (0, 0.0)


def test_records_that_were_read_and_wait_to_be_taken_are_a_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "affordable", lambda self, records, model_key, models: 1)
    bench = Bench(interval_s=60.0)
    bench.feed(*"abab")
    worker = bench.worker().join()
    bench.clock.now_s += 1
    worker.turn()
    assert worker.buffered() == 4 - worker.position(0) > 0
    assert lag(worker)[0] == worker.buffered()


def test_a_turn_tells_when_it_ended_in_seconds() -> None:
    bench = Bench()
    worker = bench.worker().join()
    for wait_s in (0.0, 100.5):
        bench.clock.now_s += wait_s
        worker.turn()
        [shown] = worker.metrics.loop_last_timestamp_seconds.series().values()
        assert shown == pytest.approx(bench.clock.wall_offset_ms / 1000 + bench.clock.now_s, abs=0.01)


def test_answers_are_scored_in_the_metrics() -> None:
    bench = Bench(interval_s=60.0, overrides=[{"match": "n", "algorithm": "amf-regressor"}])
    bench.feed("a", "b", "a", None)
    bench.feed(1.0, 2.5, None, 7, "a", 3.0, key="n")
    worker = bench.worker().join().turns(2)
    answers = [msgspec.json.decode(each.value or b"") for each in bench.published() if each.topic == "predictions"]
    classes = [each for each in answers if "label" in each and "probabilities" in each]
    numbers = [each for each in answers if each.get("loss") is not None and "quantiles" in each]
    assert (len(classes), len(numbers)) == (3, 3)
    shown = {name: list(family.series().values()) for name, family in worker.metrics.families().items()}
    assert shown["amf_log_loss"] == [(sum(each["loss"] for each in classes), 3)]
    assert shown["amf_correct_predictions_total"] == [sum(each["label"] == each["prediction"] for each in classes)]
    assert shown["amf_squared_error"] == [(sum(each["loss"] for each in numbers), 3)]
    assert shown["amf_absolute_error"] == [(sum(abs(each["label"] - each["prediction"]) for each in numbers), 3)]
    inside = [each["quantiles"]["0.05"] <= each["label"] <= each["quantiles"]["0.95"] for each in numbers]
    assert shown["amf_covered_predictions_total"] == [sum(inside)]
    assert 0 < sum(inside) < 3
    assert shown["amf_learned_samples_total"] == [7]


def test_the_weighted_depth_is_a_mean_over_predictions() -> None:
    bench = Bench(interval_s=60.0)
    bench.feed("a", "b", "a", None)
    bench.feed("a", "b", key="other")
    worker = bench.worker().join().turns(2)
    [(_, n)] = worker.metrics.weighted_depth.series().values()
    assert n == sum(worker.metrics.predictions_total.series().values()) == 6
