"""The state of one partition: records in, one output each; replay, snapshots, and what stops it."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.events import Source
from tests.worker.support.fake_broker import Log
from tests.worker.support.fakes import config
from tests.worker.support.tasks import restore
from worker.base.errors import CorruptCheckpoint
from worker.base.records import NumberScores, Outgoing, Record
from worker.checkpoint import SavedModel
from worker.config import Config
from worker.state.copy_on_write import CopyOnWrite
from worker.task.task import State, Task

Restored = dict[str, SavedModel]


def partition(settings: Config, models: Restored | None = None, offset: int = 0, live_from: int | None = None) -> Task:
    """One at an offset, live unless it has to replay first."""
    here = Task(3, settings, 1_000_000)
    restore(here, (models or {}).items(), offset, offset if live_from is None else live_from)
    if live_from is None:
        here.go_live()
    return here


def records(*contents: tuple[str | None, Any]) -> list[Record]:
    """Records of (key, value); a value that is neither bytes nor None is an event."""
    log = Log()
    for key, value in contents:
        data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
        log.append(None if key is None else key.encode(), data)
    return log.records


def labelled(key: str, x: float = 1.0, label: Any = "a") -> tuple[str, Any]:
    return key, {"features": [x], "label": label}


def taken(frozen: dict[str, CopyOnWrite]) -> dict[str, SavedModel]:
    """The models of a snapshot as they are written."""
    return {key: model.take() for key, model in frozen.items()}


def state(here: Task) -> dict[str, bytes]:
    return {model.key: model.forest.dumps() for model in here.models}


def value_of(output: Outgoing) -> Any:
    assert output.value is not None
    return msgspec.json.decode(output.value)


def header(output: Outgoing, name: str) -> bytes | None:
    return dict(output.headers)[name]


def codes(outputs: Sequence[Outgoing]) -> list[str | None]:
    """The error code of each dead letter, None for a prediction."""
    found = [dict(output.headers).get("error-code") for output in outputs]
    return [None if code is None else code.decode() for code in found]


def drawn(seed: int, n: int) -> list[Record]:
    """Records of every sort."""
    rng = random.Random(seed)
    source, log = Source(rng), Log()
    for _ in range(n):
        log.append(*source.draw(0), gap=rng.choice((0, 0, 2)))
    return log.records


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
    told = [value_of(output) for output in partition(config()).process(source).outgoing]
    assert [each["learned"] for each in told] == [0, 1, 0, 2]
    assert [each["model"] for each in told] == ["k", "k", "other", "k"]
    assert told[3]["probabilities"] == {"a": 1.0}
    assert "label" not in told[3]


def test_records_without_a_key_go_to_the_model_that_is_named_for_them() -> None:
    here = partition(config(null_key="nobody"))
    outputs = here.process(records((None, {"features": [1.0], "label": "a"}))).outgoing
    assert codes(outputs) == [None]
    assert (outputs[0].key, value_of(outputs[0])["model"]) == (None, "nobody")
    assert state(here).keys() == {"nobody"}


def test_a_batch_is_counted() -> None:
    source = records(labelled("k"), ("k", {"features": [1.0]}), ("k", b"{"), (None, None), labelled("k", label="b"))
    result = partition(config()).process(source)
    told = [value_of(output) for output in result.outgoing if output.topic == "predictions"]
    assert (result.events, result.predictions, result.learned) == (5, 3, 2)
    assert dict(result.rejects.counts) == {"malformed-json": 1, "null-key": 1}
    scores = result.class_scores
    assert (scores.count, scores.log_loss) == (2, sum(each.get("loss", 0.0) for each in told))
    assert result.number_scores == NumberScores()


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
    assert result.number_scores == NumberScores(1, 0.25, 0.5, 0)
    assert result.class_scores.count == 1


def test_a_model_is_kept_once_it_has_learned() -> None:
    here = partition(config())
    here.process(records(("asked", {"features": [1.0]}), ("broken", b"{"), labelled("taught")))
    assert state(here).keys() == {"taught"}


# Batches and replay


@given(st.integers(0, 10**9), st.lists(st.integers(0, 40), max_size=6), st.sampled_from(["reset", "dead-letter"]))
def test_batches_do_not_matter(seed: int, cuts: list[int], tombstones: str) -> None:
    settings = config(tombstones=tombstones, max_classes=3, max_features=2)
    source = drawn(seed, 40)
    whole, parts = partition(settings), partition(settings)
    expected = whole.process(source).outgoing
    ends = sorted({*cuts, 0, len(source)})
    found = [output for start, end in pairwise(ends) for output in parts.process(source[start:end]).outgoing]
    assert found == expected
    assert state(parts) == state(whole)


@given(st.integers(0, 10**9), st.integers(0, 40), st.integers(0, 40), st.sampled_from(["reset", "dead-letter"]))
def test_replay_from_any_snapshot_is_what_live_was(seed: int, saved_at: int, died_at: int, tombstones: str) -> None:
    saved_at, died_at = sorted((saved_at, died_at))
    settings = config(tombstones=tombstones, null_key="nobody", max_classes=3)
    source = drawn(seed, 40)
    live = partition(settings)
    live.process(source[:saved_at])
    saved = taken(live.models.snapshot()[0])
    offset = live.position
    live.process(source[saved_at:died_at])

    again = partition(settings, saved, offset, live_from=live.position)
    again.process(source[saved_at:died_at])
    again.go_live()
    assert state(again) == state(live)
    assert again.position == live.position
    assert again.process(source[died_at:]).outgoing == live.process(source[died_at:]).outgoing


def test_replay_tells_how_much_it_learned() -> None:
    here = partition(config(), live_from=9)
    assert here.process(records(labelled("k"), ("k", {"features": [1.0]}), ("k", b"{"), labelled("k"))).learned == 2


# Tombstones


def test_without_leave_a_tombstone_is_a_dead_letter() -> None:
    here = partition(config())
    assert codes(here.process(records(labelled("k"), ("k", None))).outgoing) == [None, "null-value"]
    assert state(here).keys() == {"k"}


def test_a_tombstone_starts_its_model_anew_between_its_neighbours() -> None:
    here = partition(config(tombstones="reset"))
    outputs = here.process(
        records(labelled("k"), labelled("other"), ("k", None), labelled("k"), labelled("other"))
    ).outgoing
    assert outputs[2].value is None
    assert (outputs[2].topic, outputs[2].key) == ("predictions", b"k")
    assert [value_of(output)["learned"] for output in outputs if output.value] == [0, 0, 0, 1]
    fresh = partition(config(tombstones="reset"))
    fresh.process(records(labelled("k")))
    assert state(here)["k"] == state(fresh)["k"]


def test_a_tombstone_of_a_model_that_is_not_there_does_nothing() -> None:
    here = partition(config(tombstones="reset"))
    outputs = here.process(records(("k", None))).outgoing
    assert outputs[0].value is None
    assert here.models.snapshot() == ({}, set())


@pytest.mark.parametrize("size", [1, 2, 4])
def test_where_there_are_more_models_than_may_be_tombstones_make_room_one_by_one(size: int) -> None:
    full = partition(config())
    full.process(records(*[labelled(f"k{i}") for i in range(5)]))
    here = partition(config(max_models=3, tombstones="reset"), taken(full.models.snapshot()[0]))
    arriving = records(labelled("new"), ("k0", None), ("k1", None), ("k2", None), labelled("new"))
    outputs = [output for i in range(0, 5, size) for output in here.process(arriving[i : i + size]).outgoing]
    assert codes(outputs) == ["too-many-models", None, None, None, None]
    assert sorted(state(here)) == ["k3", "k4", "new"]


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


# Snapshots


def test_a_snapshot_holds_what_changed_since_the_last_one() -> None:
    here = partition(config())
    here.process(records(labelled("a"), labelled("b")))
    changed, removed = here.models.snapshot()
    assert {key: (model.spec, model.data) for key, model in taken(changed).items()} == {
        key: (here.models.configured_spec(key), data) for key, data in state(here).items()
    }
    assert removed == set()
    here.process(records(labelled("b"), ("a", {"features": [1.0]})))
    assert here.models.snapshot()[0].keys() == {"b"}
    assert here.models.snapshot() == ({}, set())


def test_a_snapshot_tells_figures_for_people() -> None:
    here = partition(config())
    here.process(records(*(labelled("k", float(i % 5), "ab"[i % 2]) for i in range(30))))
    [saved] = taken(here.models.snapshot()[0]).values()
    forest = here.models.get("k").forest
    expected = {"samples": 30, "nodes": forest.n_nodes, "depth": round(forest.mean_depth), "bytes": len(saved.data)}
    assert saved.summary == expected | {"last_ms": 1_600_000_000_029}


def test_a_snapshot_names_the_models_that_are_gone() -> None:
    here = partition(config(tombstones="reset"))
    here.process(records(labelled("a"), labelled("b")))
    here.models.snapshot()
    here.process(records(("a", None), ("b", None), labelled("b")))
    changed, removed = here.models.snapshot()
    assert (changed.keys(), removed) == ({"b"}, {"a"})


@pytest.mark.parametrize(
    ("then", "changed", "removed"),
    [
        ([], {"a", "b"}, {"c"}),
        ([labelled("c")], {"a", "b", "c"}, set()),
        ([("a", None)], {"b"}, {"a", "c"}),
        ([("a", None), labelled("a")], {"a", "b"}, {"c"}),
    ],
)
def test_what_a_failed_snapshot_held_is_in_the_next_one(
    then: list[tuple[str, Any]], changed: set[str], removed: set[str]
) -> None:
    here = partition(config(tombstones="reset"))
    here.process(records(labelled("a"), labelled("b"), labelled("c")))
    here.models.snapshot()
    here.process(records(labelled("a"), labelled("b"), ("c", None)))
    _, gone = here.models.snapshot()
    here.process(records(*then))
    here.models.snapshot_failed(gone)
    assert here.models.dirty
    saved, gone = here.models.snapshot()
    assert (saved.keys(), gone) == (changed, removed)
    assert {key: model.data for key, model in taken(saved).items()} == {key: state(here)[key] for key in changed}


def test_all_models_can_be_asked_for() -> None:
    here = partition(config())
    here.process(records(labelled("a"), labelled("b")))
    here.models.snapshot()
    here.models.mark_all_changed()
    assert here.models.snapshot()[0].keys() == {"a", "b"}


def test_damaged_bytes_are_refused_and_change_nothing() -> None:
    live = partition(config())
    live.process(records(labelled("a"), labelled("b")))
    saved = taken(live.models.snapshot()[0])
    saved["b"] = msgspec.structs.replace(saved["b"], data=saved["b"].data[:-1])
    here = Task(3, config(), 1_000_000)
    with pytest.raises(CorruptCheckpoint, match="model 'b' at offset 2"):
        restore(here, saved.items(), 2, 2)
    assert (here.state, here.position, len(here.models)) == (State.OPENING, -1, 0)


# A specification that changed


def after_a_change(on_spec_change: str) -> tuple[Task, bytes]:
    """A partition at offset 2 whose model `old` has another spec than the configuration, and that model's bytes."""
    before = partition(config(seed=1))
    before.process(records(labelled("old"), labelled("old", 2.0, "b")))
    now = partition(config(), live_from=2)
    now.process(records(labelled("same"), labelled("same")))
    both = taken(before.models.snapshot()[0]) | taken(now.models.snapshot()[0])
    return partition(config(on_spec_change=on_spec_change), both, 2, live_from=2), both["old"].data


def test_a_changed_model_is_refused_and_the_others_go_on() -> None:
    here, _ = after_a_change("fail")
    assert here.go_live() is False
    outputs = here.process(records(labelled("old"), labelled("same"), labelled("new"))).outgoing
    assert codes(outputs) == ["spec-changed", None, None]
    assert (
        header(outputs[0], "spec")
        == here.models.get("old").spec.encode()
        != here.models.configured_spec("old").encode()
    )
    assert b"the configuration now says" in (header(outputs[0], "error-reason") or b"")
    assert [value_of(output)["learned"] for output in outputs[1:]] == [2, 0]


def test_another_algorithm_is_another_spec() -> None:
    before = partition(config())
    before.process(records(labelled("k", 1.0, 7), labelled("k", 1.0, 8)))
    saved = taken(before.models.snapshot()[0])
    regressor = config(algorithm="amf-regressor")
    here = partition(regressor, saved, 2, live_from=2)
    here.go_live()
    [refused] = here.process(records(labelled("k", 2.0, 9))).outgoing
    assert header(refused, "error-code") == b"spec-changed"
    anew = partition(config(algorithm="amf-regressor", on_spec_change="restart"), saved, 2, live_from=2)
    assert anew.go_live() is True
    [told] = anew.process(records(labelled("k", 2.0, 9.5))).outgoing
    assert (value_of(told)["learned"], value_of(told)["quantiles"]) == (0, None)


def test_replay_of_a_refused_model_is_what_live_was() -> None:
    """Were it frozen while it is refused, a crash would thaw it: replay cannot know since when it was refused."""
    live, _ = after_a_change("fail")
    again, _ = after_a_change("fail")
    live.go_live()
    source = records(labelled("old"), labelled("same"), labelled("old", 3.0))
    live.process(source)
    again.process(source)
    assert state(again) == state(live)
    assert live.models.get("old").forest.n_samples == 4


@pytest.mark.parametrize(
    ("made_with", "meanwhile"),
    [
        ({"features": ("x", "y")}, {"features": "auto"}),
        ({"features": "auto"}, {"features": ("x", "y")}),
        ({"features": ("x", "y")}, {"features": ("x", "z")}),
        ({"features": "auto"}, {"features": 2}),
        ({"features": ("x", "y")}, {"algorithm": "amf-regressor", "features": ("z",)}),
        ({"max_features": 3}, {"max_features": 30}),
        ({"classes": ("a", "b")}, {"classes": "auto"}),
    ],
)
def test_what_a_refused_model_learns_follows_from_what_it_was_made_with(
    made_with: dict[str, Any], meanwhile: dict[str, Any]
) -> None:
    """Through another configuration and back it is, byte for byte, what it would have been without it."""
    names, labels = ({"x": 1.0}, {"x": 0.5, "y": "Rome"}, {"y": 2.0, "z": 3.0}, {"z": "Oslo", "x": 4.0}), "abbca"
    source = records(*(("k", {"features": names[i % 4], "label": labels[i % 5]}) for i in range(60)))
    parts = (made_with, meanwhile, meanwhile, made_with)
    uninterrupted, saved = partition(config(**made_with)), {}
    uninterrupted.process(source)
    for start, settings in zip(range(0, 60, 15), parts, strict=True):
        here = partition(config(**settings), saved, start)
        here.models.mark_all_changed()
        here.process(source[start : start + 15])
        saved = taken(here.models.snapshot()[0])
    assert saved["k"].data == state(uninterrupted)["k"]
    assert saved == taken(uninterrupted.models.snapshot()[0])


def test_a_model_of_a_checkpoint_that_does_not_tell_takes_the_names_that_the_configuration_gives() -> None:
    """Versions before this one did not write whether names were given."""
    before = partition(config(features=("x",)))
    before.process(records(("k", {"features": {"x": 1.0}, "label": "a"})))
    [saved] = taken(before.models.snapshot()[0]).values()
    former = {name: value for name, value in saved.summary.items() if name != "names_given"}
    here = partition(config(features=("x",)), {"k": SavedModel(saved.spec, saved.data, former)}, 1)
    for each in (before, here):
        each.process(records(("k", {"features": {"x": 2.0, "y": 1.0}, "label": "a"})))
    assert former != saved.summary
    assert taken(here.models.snapshot()[0]) == taken(before.models.snapshot()[0])


def test_a_changed_model_starts_anew_where_that_is_wanted() -> None:
    here, old = after_a_change("restart")
    assert state(here)["old"] == old
    assert here.go_live() is True
    assert here.models.dirty
    assert here.models.snapshot() == ({}, {"old"})
    outputs = here.process(records(labelled("old"), labelled("same"))).outgoing
    assert codes(outputs) == [None, None]
    assert [value_of(output)["learned"] for output in outputs] == [0, 2]
    assert header(outputs[0], "spec") == here.models.configured_spec("old").encode()


def test_nothing_is_saved_out_of_band_where_no_model_changed() -> None:
    before = partition(config())
    before.process(records(labelled("k")))
    here = partition(config(on_spec_change="restart"), taken(before.models.snapshot()[0]), 1, live_from=1)
    assert here.go_live() is False
    assert state(here) == state(before)


def test_a_record_beyond_the_end_of_a_run_does_not_end_it_once_those_before_are_dropped() -> None:
    here = Task(3, config(), 1_000_000, end=3)
    restore(here, (), 0, 0)
    here.go_live()
    stream = records(*(("k", {"features": [0.5], "label": 1}) for _ in range(5)))
    assert not here.add(stream)
    assert here.has_ended()
    # They are read again, since what they need was not there.
    here.wait(0.0)
    assert not here.has_ended()
    here.resume()
    assert here.add(stream[:2])
    assert not here.has_ended()
