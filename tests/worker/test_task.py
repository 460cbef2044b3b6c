"""The records of one partition: one output each in its place, what is counted, and what stops it."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.worker.support.fake_broker import Log
from tests.worker.support.fakes import config
from tests.worker.support.tasks import codes, header, labelled, partition, records, restore, state, value_of
from worker.base.records import NumberScores
from worker.base.terms import State
from worker.task.task import Task

# Its life


def test_it_is_restored_replays_goes_live_and_stops() -> None:
    here = Task(0, config(), 1_000_000)
    assert here.state is State.OPENING
    restore(here, (), 5, 9)
    assert (here.state, here.position, here.live_from) == (State.REPLAY, 5, 9)
    here.go_live()
    assert here.state is State.LIVE
    here.stop()
    assert here.state is State.STOPPED


@pytest.mark.parametrize(
    ("so_far", "then"),
    [
        ([], Task.go_live),
        ([restore], Task.resume),
        ([restore, Task.go_live], Task.go_live),
        ([restore, Task.go_live], restore),
        ([restore, Task.stop], Task.go_live),
        ([restore, Task.stop], restore),
    ],
)
def test_it_goes_no_other_way(so_far: list[Callable[[Task], object]], then: Callable[[Task], object]) -> None:
    here = Task(0, config(), 1_000_000)
    for step in so_far:
        step(here)
    with pytest.raises(AssertionError, match="partition 0: from "):
        then(here)


@pytest.mark.parametrize(("last_epoch", "asks"), [(None, False), (0, True)])
def test_a_replay_without_records_asks_for_the_last_one_that_was_predicted_where_it_is_known_which(
    last_epoch: int | None, asks: bool
) -> None:
    here = Task(0, config(), 1_000_000)
    here.open(here.load((), 5), 5, 9, last_epoch=last_epoch)
    log = Log()
    log.append(*_bytes(labelled("k")), gap=9)
    here.add(log.records)
    assert (here.has_leapt, here.has_replayed) == (asks, not asks)


def test_the_position_is_the_offset_after_the_last_record() -> None:
    here = partition(config())
    log = Log()
    log.append(*_bytes(labelled("k")))
    log.append(*_bytes(labelled("k")), gap=4)
    here.process(log.records)
    assert here.position == 6
    here.process([])
    assert here.position == 6


def _bytes(content: tuple[str, Any]) -> tuple[bytes, bytes]:
    return content[0].encode(), msgspec.json.encode(content[1])


def test_a_record_beyond_the_end_of_a_run_does_not_end_it_once_those_before_are_dropped() -> None:
    here = Task(3, config(), 1_000_000, end=3)
    restore(here, (), 0, 0)
    here.go_live()
    stream = records(*(("k", {"features": [0.5], "label": 1}) for _ in range(5)))
    assert not here.add(stream)
    assert here.has_ended(None)
    # They are read again, since what they need was not there.
    here.wait(0.0)
    assert not here.has_ended(None)
    here.resume()
    assert here.add(stream[:2])
    assert not here.has_ended(None)


def test_records_that_come_while_it_waits_are_left_to_be_read_again() -> None:
    """They are read from its position on once it goes on: what it took in meanwhile would be learned twice."""
    here = partition(config())
    stream = records(labelled("k"), labelled("k"))
    here.add(stream[:1])
    here.wait(0.0)
    assert here.add(stream[1:])
    assert here.buffer == []
    here.resume()
    here.add(stream)
    assert here.buffer == stream


# Outputs


@pytest.mark.parametrize("value", [b'{"features": [1.0], "label": "a"}', b"{", None])
def test_a_record_whose_headers_cannot_be_read_is_a_dead_letter_live_and_in_replay(value: bytes | None) -> None:
    source = records(labelled("k"), ("k", value), labelled("k"))
    source[1] = msgspec.structs.replace(source[1], headers_fault="a name is not UTF-8")
    live, replayed = partition(config(tombstones="reset")), partition(config(tombstones="reset"), live_from=3)
    outputs = live.process(source).outgoing
    replayed.process(source)
    assert codes(outputs) == [None, "invalid-headers", None]
    assert (outputs[1].key, outputs[1].value, outputs[1].timestamp_ms) == (b"k", value, source[1].timestamp_ms)
    assert header(outputs[1], "error-reason") == b"a name is not UTF-8"
    assert value_of(outputs[2])["learned"] == 1
    assert state(live) == state(replayed)


def test_every_record_has_one_output_in_its_place() -> None:
    source = records(labelled("a"), labelled("b"), ("a", b"{"), (None, {"features": [1]}), labelled("a"), ("b", None))
    outputs = partition(config()).process(source).outgoing
    assert [int(header(output, "source-offset") or b"") for output in outputs] == [0, 1, 2, 3, 4, 5]
    assert codes(outputs) == [None, None, "malformed-json", "null-key", None, "null-value"]
    assert [output.topic for output in outputs] == [
        "predictions" if code is None else "dead-letters" for code in codes(outputs)
    ]
    assert [(output.key, output.timestamp_ms) for output in outputs] == [
        (each.key, each.timestamp_ms) for each in source
    ]
    assert {header(output, "source-topic") for output in outputs} == {b"events"}
    assert {header(output, "source-partition") for output in outputs} == {b"3"}
    assert {header(output, "lineage") for output in outputs} == {b"main"}


def test_outputs_carry_the_spec_of_their_model_and_none_where_there_is_no_model() -> None:
    here = partition(config())
    outputs = here.process(records(labelled("a"), labelled("b"), ("a", b"{"), (None, {"features": [1]}))).outgoing
    specs = [here.models.configured_spec(key).encode() for key in ("a", "b", "a")]
    assert [header(output, "spec") for output in outputs] == [*specs, None]
    assert specs[0] != specs[1]


def test_the_forecast_is_of_the_model_before_the_record() -> None:
    source = records(labelled("k"), labelled("k"), ("other", {"features": [1.0]}), ("k", {"features": [2.0]}))
    values = [value_of(output) for output in partition(config()).process(source).outgoing]
    assert [each["learned"] for each in values] == [0, 1, 0, 2]
    assert [each["model"] for each in values] == ["k", "k", "other", "k"]
    assert values[3]["probabilities"] == {"a": 1.0}
    assert "label" not in values[3]


def test_records_without_a_key_go_to_the_model_that_is_named_for_them() -> None:
    here = partition(config(null_key="anonymous"))
    outputs = here.process(records((None, {"features": [1.0], "label": "a"}))).outgoing
    assert codes(outputs) == [None]
    assert (outputs[0].key, value_of(outputs[0])["model"]) == (None, "anonymous")
    assert state(here).keys() == {"anonymous"}


def test_a_batch_counts_its_events_predictions_rejects_and_scores() -> None:
    source = records(labelled("k"), ("k", {"features": [1.0]}), ("k", b"{"), (None, None), labelled("k", label="b"))
    result = partition(config()).process(source)
    values = [value_of(output) for output in result.outgoing if output.topic == "predictions"]
    assert (result.events, result.tally.predicted, result.tally.learned) == (5, 3, 2)
    assert dict(result.rejects.counts) == {"malformed-json": 1, "null-key": 1}
    scores = result.tally.classes
    assert (scores.count, scores.log_loss) == (2, sum(each.get("loss", 0.0) for each in values))
    assert result.tally.numbers == NumberScores()


def test_models_of_classes_and_of_numbers_stand_side_by_side() -> None:
    settings = config(overrides=[{"match": "n*", "algorithm": "amf-regressor"}])
    source = [labelled("n", 1.0, 2.5), labelled("c"), labelled("n", 1.0, 3), labelled("c", 1.0, 2.5), labelled("n")]
    result = partition(settings).process(records(*source))
    assert codes(result.outgoing) == [None, None, None, "wrong-type", "wrong-type"]
    first, _, second = [value_of(output) for output in result.outgoing if output.topic == "predictions"]
    assert first == {
        "id": None, "model": "n", "prediction": None, "std": None, "quantiles": None,
        "label": 2.5, "loss": None, "learned": 0,
    }  # fmt: skip
    assert second == {
        "id": None, "model": "n", "prediction": 2.5, "std": 0.0, "quantiles": {"0.05": 2.5, "0.5": 2.5, "0.95": 2.5},
        "label": 3, "loss": 0.25, "learned": 1,
    }  # fmt: skip
    assert result.tally.numbers == NumberScores(1, 0.25, 0.5, 0)
    assert result.tally.classes.count == 1


def test_a_model_is_kept_once_it_has_learned() -> None:
    here = partition(config())
    here.process(records(("asked", {"features": [1.0]}), ("broken", b"{"), labelled("taught")))
    assert state(here).keys() == {"taught"}


# Dead letters in a row


def test_too_many_dead_letters_in_a_row_stop_it_after_the_batch() -> None:
    here = partition(config(max_consecutive=2))
    result = here.process(records(labelled("k"), ("k", b"{"), ("k", b""), (None, None), labelled("k")))
    assert len(result.outgoing) == here.position == 5
    assert result.stop is not None
    assert result.stop.code == "too-many-dead-letters"
    assert "partition 3: 3 records in a row" in str(result.stop)
    assert "max_consecutive is 2" in str(result.stop)


@pytest.mark.parametrize(
    ("settings", "events", "advice"),
    [
        ({}, [("k", b"{")] * 3, "Repair the producer"),
        ({"max_models": 1}, [labelled("a"), *[labelled("b")] * 3], "Raise models.max_models"),
    ],
)
def test_what_to_do_about_too_many_dead_letters_depends_on_why(settings: Any, events: Any, advice: str) -> None:
    result = partition(config(max_consecutive=2, **settings)).process(records(*events))
    assert result.stop is not None
    assert result.stop.hint is not None
    assert result.stop.hint.startswith(advice)


def test_dead_letters_are_counted_across_batches() -> None:
    here = partition(config(max_consecutive=2))
    assert here.process(records(("k", b"{"), ("k", b"{"))).stop is None
    assert here.process(records(("k", b"{"))).stop is not None


def test_one_good_record_begins_the_count_anew() -> None:
    here = partition(config(max_consecutive=2))
    bad = ("k", b"{")
    assert here.process(records(bad, bad, labelled("k"), bad, bad)).stop is None


def test_a_batch_without_dead_letters_begins_the_count_anew() -> None:
    here = partition(config(max_consecutive=2))
    bad = ("k", b"{")
    batches = [bad, bad], [labelled("k")], [bad, bad]
    assert [here.process(records(*batch)).stop for batch in batches] == [None, None, None]


# Memory


def held_bytes(act: Callable[[], object]) -> int:
    """Memory that is still in use after something was done."""
    gc.collect()
    tracemalloc.start()
    try:
        act()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_keys_without_a_model_take_no_memory() -> None:
    """There may be any number of them, in each partition: they are no part of models.cache_bytes."""
    here, rng = partition(config()), random.Random(0)

    def take(n: int) -> None:
        here.process(records(*((rng.randbytes(256).hex(), {"features": [1.0]}) for _ in range(n))))

    take(1000)
    assert held_bytes(lambda: [take(1000) for _ in range(2)]) < 2000 * 300


def test_texts_that_are_no_category_are_not_remembered() -> None:
    here = partition(config())
    found: list[str | None] = []

    def take() -> None:
        source = records(*(("k", {"features": {"x": character * 100_000}}) for character in "abcdefghij"))
        found.extend(codes(here.process(source).outgoing))

    assert held_bytes(take) < 100_000
    assert found == ["category-too-long"] * 10
