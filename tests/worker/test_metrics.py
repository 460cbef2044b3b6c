"""The metrics as the worker writes them: the declarations, and the numbers held."""

from __future__ import annotations

import math
import re
import threading
from typing import Any, get_args

import numpy as np
import pytest

from tests.worker.support.observations import fill
from worker.base.errors import StopCode
from worker.base.families import MOST_WAITING, Histogram
from worker.base.metrics import QUERIES, TOP_MODELS, Metrics, reference
from worker.base.records import ClassScores, Figures, NumberScores, RecentLosses
from worker.base.series import (
    ByChange,
    ByCode,
    ByModel,
    ByOutcome,
    ByPartition,
    ByPartitionState,
    ByStopCode,
    Unlabelled,
)
from worker.base.terms import State

FIGURES = Figures(samples=6, nodes=70, depth=3.5, memory_bytes=9_000, scores=ClassScores(5, 2.25, 4))
ONLY = Unlabelled()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


# The declarations


def test_names_follow_the_conventions(metrics: Metrics) -> None:
    for name, family in metrics.families().items():
        assert re.fullmatch(r"amf_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (family.kind == "counter")
        for unit in ("seconds", "bytes"):
            assert name.removesuffix("_total").endswith(f"_{unit}") == (family.unit == unit)
        assert re.fullmatch(r"\S.*\.", family.sentence)


@pytest.mark.parametrize("query", QUERIES.values())
def test_what_is_asked_most_often_is_there(metrics: Metrics, query: str) -> None:
    names = re.findall(r"\bamf_\w+?(?=(?:_bucket|_sum|_count)?\b)", query)
    assert names
    assert set(names) <= set(metrics.families())


def test_reference_has_one_row_per_metric(metrics: Metrics) -> None:
    _, _, of_metrics = reference().rpartition("\n\n")
    header, _, *rows = [line for line in of_metrics.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[0] for row in cells] == [f"`{name}`" for name in metrics.families()]
    assert {len(row) for row in cells} == {header.count("|") - 1} == {5}
    assert ["`amf_partition_state`", "gauge", "`partition`, `state`"] in [row[:3] for row in cells]


def test_a_wrong_label_fails_at_once(metrics: Metrics) -> None:
    with pytest.raises(TypeError):
        metrics.dead_letters_total.add(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        metrics.dead_letters_total.add(1, kode="not-json")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        metrics.events_total.add(1, "not-json")  # type: ignore[call-arg]
    assert metrics.dead_letters_total.series() == {}


# The numbers


def test_what_is_known_beforehand_starts_at_zero(metrics: Metrics) -> None:
    assert metrics.events_total.series() == {ONLY: 0}
    assert metrics.log_loss.series() == {ONLY: (0, 0)}
    assert metrics.transactions_total.series() == {ByOutcome(o): 0 for o in ("committed", "aborted", "unknown")}
    assert metrics.partition_stops_total.series() == {ByStopCode(code): 0 for code in get_args(StopCode)}
    assert metrics.rebalanced_partitions_total.series() == {ByChange(c): 0 for c in ("assigned", "revoked", "lost")}
    assert metrics.dead_letters_total.series() == metrics.models.series() == metrics.model_log_loss.series() == {}


def test_a_series_is_the_sum_of_what_was_added(metrics: Metrics) -> None:
    for n in (1, 2):
        metrics.dead_letters_total.add(n, code="a")
        metrics.dead_letters_total.add(10 * n, code="b")
        metrics.log_loss.add(n / 2, n)
        metrics.models.set(n)
    assert metrics.dead_letters_total.series() == {ByCode("a"): 3, ByCode("b"): 30}
    assert metrics.log_loss.series() == {ONLY: (1.5, 3)}
    assert metrics.models.series() == {ONLY: 2}


def test_a_bound_belongs_to_its_bucket(metrics: Metrics) -> None:
    metrics.batch_records.observe([10, 30, 31, 1_000_000])
    metrics.batch_records.observe([])
    metrics.batch_records.observe(np.array([1.0]))
    [(counts, total)] = metrics.batch_records.series().values()
    assert counts.tolist() == [1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1]
    assert total == 1_000_072


def test_a_counter_never_falls(metrics: Metrics) -> None:
    with pytest.raises(ValueError, match="only grows"):
        metrics.events_total.add(-1)


# Partitions and models


def test_replace_leaves_nothing_behind(metrics: Metrics) -> None:
    metrics.consumer_lag_records.set(5, partition=0)
    metrics.consumer_lag_records.replace({ByPartition(1): 7, ByPartition(2): 0})
    assert metrics.consumer_lag_records.series() == {ByPartition(1): 7, ByPartition(2): 0}


def test_a_revoked_partition_is_forgotten_everywhere(metrics: Metrics) -> None:
    fill(metrics)
    before = {name: set(family.series()) for name, family in metrics.families().items()}
    metrics.set_partition_states({3: "live", 30: "replay"})
    for family in (
        metrics.consumer_lag_records,
        metrics.consumer_lag_seconds,
        metrics.checkpoint_last_timestamp_seconds,
        metrics.checkpoint_last_size_bytes,
        metrics.checkpoint_replay_cost_seconds,
        metrics.retention_margin_records,
    ):
        family.set(9, partition=30)
    metrics.partition_events_total.add(9, partition=30)
    metrics.forget_partitions([3])
    partitioned = [family for family in metrics.families().values() if "partition" in family.labels]
    assert len(partitioned) == 8
    assert all({labels.partition for labels in family.series()} == {30} for family in partitioned)
    for name, family in metrics.families().items():
        assert family in partitioned or set(family.series()) == before[name]


def test_a_partition_is_in_one_state(metrics: Metrics) -> None:
    metrics.set_partition_states({0: "opening", 1: "live"})
    metrics.set_partition_states({1: "stopped", 2: "replay"})
    found = metrics.partition_state.series()
    assert set(found) == {ByPartitionState(partition, state) for partition in (1, 2) for state in State}
    assert {row for row, value in found.items() if value == 1} == {(1, "stopped"), (2, "replay")}
    assert set(found.values()) == {0, 1}


def test_only_the_largest_models_are_shown(metrics: Metrics) -> None:
    asked: list[str] = []

    def figures(model: str) -> Figures:
        asked.append(model)
        return FIGURES._replace(nodes=len(model))

    metrics.set_models([("gone", (1e9, 1))], figures)
    counts = {f"model-{i:03}": i // 2 for i in range(200)}  # every count twice, so that the order of equals shows
    del asked[:]
    rows = [(key, (0.0, n)) for key, n in counts.items()]
    metrics.set_models(rows, figures)
    largest = [f"model-{i}" for i in range(199, 199 - TOP_MODELS, -1)]
    assert asked == largest
    shown = {name: family.series() for name, family in metrics.families().items() if "model" in family.labels}
    shown = {name: series for name, series in shown.items() if series}
    assert all({labels.model for labels in series} == set(largest) for series in shown.values())
    assert {name: series["model-199",] for name, series in shown.items()} == {
        "amf_model_samples": 6,
        "amf_model_nodes": 9,
        "amf_model_depth": 3.5,
        "amf_model_memory_bytes": 9_000,
        "amf_model_log_loss": (2.25, 5),
        "amf_model_correct_predictions_total": 4,
    }
    metrics.set_models(rows[::-1], figures)
    assert asked == largest * 2, "the order of the models makes no difference"


def test_each_model_has_the_scores_of_its_kind(metrics: Metrics) -> None:
    scores = {"class": ClassScores(5, 2.25, 4), "number": NumberScores(7, 3.5, 6.5, 6)}
    metrics.set_models(
        [("class", (0.0, 1)), ("number", (0.0, 2))], lambda model: FIGURES._replace(scores=scores[model])
    )
    shown = {name: family.series() for name, family in metrics.families().items() if name.startswith("amf_model_")}
    assert {name: series for name, series in shown.items() if len(series) == 1} == {
        "amf_model_log_loss": {ByModel("class"): (2.25, 5)},
        "amf_model_correct_predictions_total": {ByModel("class"): 4},
        "amf_model_squared_error": {ByModel("number"): (3.5, 7)},
        "amf_model_absolute_error": {ByModel("number"): (6.5, 7)},
        "amf_model_covered_predictions_total": {ByModel("number"): 6},
    }


def test_a_model_that_adapts_shows_its_swaps_and_weights(metrics: Metrics) -> None:
    adaptive = FIGURES._replace(swaps=0, feature_weights={"x": 2.5, "y": 0.5})
    rows = [("adaptive", (0.0, 1)), ("plain", (0.0, 2))]
    metrics.set_models(rows, {"adaptive": adaptive, "plain": FIGURES}.__getitem__)
    assert metrics.model_swaps.series() == {("adaptive",): 0}
    assert metrics.model_feature_weight.series() == {("adaptive", "x"): 2.5, ("adaptive", "y"): 0.5}
    metrics.set_models(rows, lambda model: FIGURES)
    assert metrics.model_swaps.series() == metrics.model_feature_weight.series() == {}


def test_a_model_is_shown_beside_its_baseline(metrics: Metrics) -> None:
    losses = {"a": RecentLosses(0.25, 0.5, 0.75), "new": RecentLosses(math.nan, math.nan, math.nan), "kept": None}
    rows = [(key, (0.0, 1)) for key in losses]
    metrics.set_models(rows, lambda model: FIGURES._replace(losses=losses[model]))
    assert metrics.model_recent_loss.series() == {
        ("a", "calibrated"): 0.25,
        ("a", "trees"): 0.5,
        ("a", "baseline"): 0.75,
    }


# Threads


def test_a_snapshot_stays_as_it_is(metrics: Metrics) -> None:
    fill(metrics)
    families = metrics.families()
    before = {name: family.series() for name, family in families.items()}
    shown = repr(before)
    fill(metrics)
    assert repr(before) == shown != repr({name: family.series() for name, family in families.items()})


def test_read_and_write_of_a_series_are_one_step(metrics: Metrics) -> None:
    """The lock is looked at, because two threads that race lose an update far too rarely to show it."""
    touched = []

    def watch(family: Any) -> None:
        class Series(dict[Any, Any]):
            def get(self, key: Any, default: Any = None) -> Any:
                touched.append((family, "read", family._lock.locked()))
                return super().get(key, default)

            def __setitem__(self, key: Any, value: Any) -> None:
                touched.append((family, "write", family._lock.locked()))
                super().__setitem__(key, value)

        family._series = Series(family._series)

    families = [metrics.events_total, metrics.log_loss, metrics.tree_depth]
    for family in families:
        watch(family)
    metrics.events_total.add(1)
    metrics.log_loss.add(0.5, 1)
    metrics.tree_depth.observe([1.0])
    metrics.tree_depth.series()
    assert touched == [(family, access, True) for family in families for access in ("read", "write")]


def test_observations_wait_until_somebody_looks_or_they_are_many(metrics: Metrics) -> None:
    depth, confidence = metrics.tree_depth, metrics.confidence
    for family in (depth, confidence):
        assert family.waiting is not None
    depth.observe([1.0] * (MOST_WAITING - 1))
    metrics.add_confidences([0.5] * (MOST_WAITING - 1), [True] * (MOST_WAITING - 1))
    assert depth._series[()][1] == confidence._series[("0.5",)][1] == 0
    depth.observe([2.0])
    metrics.add_confidences([0.5], [False])
    assert depth._series[()][1] == MOST_WAITING + 1
    assert confidence._series[("0.5",)] == (MOST_WAITING / 2, MOST_WAITING)
    metrics.add_confidences([0.95], [True])
    # Whichever of the two is looked at first.
    assert metrics.confidence_correct_total.series()[("0.9",)] == 1
    assert metrics.confidence_correct_total.series()[("0.5",)] == MOST_WAITING - 1
    assert confidence.series()[("0.9",)] == (0.95, 1)


def test_parts_without_an_observation_do_not_pile_up(metrics: Metrics) -> None:
    assert metrics.tree_depth.waiting is not None
    for _ in range(MOST_WAITING):
        metrics.tree_depth.observe([])
    assert metrics.tree_depth.waiting._parts == []


def test_nothing_is_counted_twice_or_lost_where_threads_look_while_others_observe(metrics: Metrics) -> None:
    def look() -> None:
        while not done.is_set():
            metrics.tree_depth.series()

    done = threading.Event()
    lookers = [threading.Thread(target=look) for _ in range(2)]
    for thread in lookers:
        thread.start()
    for _ in range(2_000):
        metrics.tree_depth.observe([1.0, 3.0])
    done.set()
    for thread in lookers:
        thread.join()
    counts, total = metrics.tree_depth.series()[()]
    assert (int(counts.sum()), total) == (4_000, 8_000.0)


def test_what_waits_is_gone_with_its_series() -> None:
    family = Histogram(ByPartition, "records", "", (1.0,))
    family.observe([0.5], partition=1)
    family.observe([0.5], partition=2)
    family.forget("partition", {1})
    assert set(family.series()) == {(2,)}
    family.observe([0.5], partition=1)
    family.replace({})
    assert family.series() == {}
