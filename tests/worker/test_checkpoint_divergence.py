"""Two states at one offset are found, and those that may differ are not."""

from __future__ import annotations

from tests.worker.support.checkpoints import HERE, files, sources_of, write
from tests.worker.support.stores import DictStore
from worker.checkpoint import Checkpoints


def test_equal_models_do_not_diverge(checkpoints: Checkpoints) -> None:
    first = write(checkpoints, 1, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"b": b"3"}, previous=first)
    write(checkpoints, 2, {"a": b"1", "b": b"3"}, created_ms=99)
    assert len(checkpoints.offsets()) == 2
    assert checkpoints.diverged(2) == []


def test_different_bytes_for_one_model_at_one_offset_are_found(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 2, {"a": b"1", "b": b"2", "c": b"3"})
    write(checkpoints, 2, {"a": b"1", "b": b"x", "c": b"y"})
    write(checkpoints, 3, {"a": b"other"})
    assert checkpoints.diverged(2) == ["b", "c"]
    assert len(files(store, "manifest")) == 3
    assert checkpoints.newest(2) == Checkpoints(store, HERE).newest(2)


def test_a_model_that_only_one_of_them_has_is_found(checkpoints: Checkpoints) -> None:
    write(checkpoints, 2, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"a": b"1"})
    assert checkpoints.diverged(2) == ["b"]


def test_states_with_a_change_out_of_band_or_another_beginning_may_differ(
    checkpoints: Checkpoints,
) -> None:
    write(checkpoints, 2, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, {"a": b"2"}, revision=1)
    write(checkpoints, 2, {"a": b"3"}, start_offset=1)
    assert checkpoints.diverged(2) == []
    write(checkpoints, 2, {"a": b"4"}, revision=1)
    assert checkpoints.diverged(2) == ["a"]


def test_another_engine_or_spec_may_differ(checkpoints: Checkpoints) -> None:
    write(checkpoints, 2, {"a": b"1"})
    write(checkpoints, 2, {"a": b"2"}, engine="engine-2")
    write(checkpoints, 2, dirty=sources_of({"a": b"3"}, spec="other"))
    assert checkpoints.diverged(2) == []


def test_where_a_model_has_two_specs_it_may_be_gone_as_well(checkpoints: Checkpoints) -> None:
    """A worker that starts models anew whose parameters have changed has none of it before its next event."""
    write(checkpoints, 2, {"a": b"1", "b": b"2"})
    write(checkpoints, 2, dirty=sources_of({"a": b"3"}, spec="other") | sources_of({"b": b"2"}))
    write(checkpoints, 2, {"b": b"2"})
    assert checkpoints.diverged(2) == []
    write(checkpoints, 2, {"a": b"1"})
    assert checkpoints.diverged(2) == ["b"]
