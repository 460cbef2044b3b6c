"""A model whose specification is not that of the configuration is refused, or starts anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.worker.support.bench import saved_bench
from tests.worker.support.fakes import config
from tests.worker.support.tasks import codes, header, labelled, partition, records, state, taken, value_of
from worker.checkpoint import SavedModel
from worker.task.task import Task


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
    [output] = anew.process(records(labelled("k", 2.0, 9.5))).outgoing
    assert (value_of(output)["learned"], value_of(output)["quantiles"]) == (0, None)


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


@pytest.mark.parametrize(("on_spec_change", "said"), [("fail", 1), ("restart", 0)])
def test_models_that_are_refused_are_named_once_as_the_partition_comes(
    on_spec_change: str, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = saved_bench()
    models = config(on_spec_change=on_spec_change, n_estimators=3).models
    bench.config = replace(bench.config, models=models)
    bench.worker("two").join().turns(3)
    lines = [each.getMessage() for each in caplog.records if "their events are refused" in each.getMessage()]
    assert len(lines) == said
    assert all(line.startswith("partition 0: 1 of 1 models, ") for line in lines)
