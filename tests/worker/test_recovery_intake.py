"""What is replayed is taken and learned as it was predicted: by the same intake and the same learner."""

from __future__ import annotations

import pytest

import amf
from tests.worker.support.bench import Bench, add_partitions, learned, of_input, run_into_stop, saved_bench
from tests.worker.support.manifests import forge, put_together, taken_apart


def test_what_must_be_replayed_must_be_taken_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"aba")
    bench.worker("one").join().turns(2).kill()
    former = bench.config
    bench.config = of_input(former, max_bytes=10, tombstones="reset")
    assert run_into_stop(bench.worker("two")) == {"intake-changed": 1}
    assert "3 records up to offset 3" in caplog.text
    assert "input.max_bytes was 1000000 and is 10, input.tombstones was dead-letter and is reset" in caplog.text
    # As the message says: once more with the former values.
    changed, bench.config = bench.config, former
    bench.worker("three").join().turns(2).close()
    bench.config = of_input(changed, max_bytes=1_000_000)
    bench.feed("b")
    worker = bench.worker("four").join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, [0, 1, 2, 3])


def test_what_must_be_replayed_must_be_learned_by_the_same_learner(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"aba")
    bench.worker("one").join().turns(2).kill()
    engine = amf.ENGINE
    monkeypatch.setattr(amf, "ENGINE", "another")
    assert run_into_stop(bench.worker("two")) == {"engine-changed": 1}
    assert (
        f"3 records up to offset 3 must be replayed as they were learned, by {engine}, and this is another"
        in caplog.text
    )
    # As the message says: once more with the former version.
    monkeypatch.undo()
    bench.worker("three").join().turns(2).close()
    monkeypatch.setattr(amf, "ENGINE", "another")
    bench.feed("b")
    worker = bench.worker("four").join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, [0, 1, 2, 3])


def test_another_learner_is_on_record_before_anything_is_committed_under_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed before its first checkpoint it learns again what it has learned, and the former version must not."""
    bench = saved_bench()
    bench.feed("b")
    engine = amf.ENGINE
    monkeypatch.setattr(amf, "ENGINE", "another")
    worker = bench.worker("two").join().turns(2)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")
    manifest = bench.newest()
    assert (manifest.offset, manifest.engine, manifest.revision > 0) == (5, "another", True)
    worker.kill()
    monkeypatch.undo()
    assert run_into_stop(bench.worker("three")) == {"engine-changed": 1}
    assert f"1 records up to offset 6 must be replayed as they were learned, by another, and this is {engine}" in (
        caplog.text
    )
    monkeypatch.setattr(amf, "ENGINE", "another")
    bench.feed("a")
    worker = bench.worker("four").join().turns(2)
    assert (worker.stops(), learned(bench)) == ({}, list(range(7)))


def test_another_intake_is_on_record_before_anything_is_committed_under_it() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, tombstones="reset")
    bench.feed("b")
    worker = bench.worker("two").join().turns(2)
    assert worker.faults.seen.index("store create:done") < worker.faults.seen.index("begin")
    manifest = bench.newest()
    assert (manifest.offset, manifest.revision > 0) == (5, True)
    assert (manifest.intake or {})["input.tombstones"] == "reset"
    worker.kill()
    # So that a replay of what came since knows what to compare with.
    bench.config = of_input(bench.config, tombstones="dead-letter")
    assert run_into_stop(bench.worker("three")) == {"intake-changed": 1}


def test_there_is_no_fallback_to_a_checkpoint_of_another_intake() -> None:
    bench = saved_bench()
    bench.config = of_input(bench.config, tombstones="reset")
    bench.feed("b")
    bench.worker("two").join().turns(2).close()
    bench.damage("segment", newest=2)
    bench.feed("b")
    assert run_into_stop(bench.worker("three")) == {"corrupt-checkpoint": 1}


def test_checkpoints_that_do_not_know_are_believed() -> None:
    bench = Bench(2, interval_s=60.0)
    bench.feed(*"aba")
    bench.worker("one").join().turns(2).kill()
    forget_what_is_new(bench)
    bench.config = of_input(bench.config, max_bytes=999_999)
    add_partitions(bench, 3)
    worker = bench.worker("two").join().turns(3)
    assert (worker.stops(), worker.replayed()) == ({}, 3)


def forget_what_is_new(bench: Bench) -> None:
    """Turn every manifest into one of a version that knew neither partitions nor intake."""
    renamed: dict[str | None, str | None] = {None: None}
    for name in sorted(name for name in bench.store.objects if name.endswith("manifest")):
        header, entries = taken_apart(bench.store.objects.pop(name))
        del header["partitions"], header["intake"]
        header["base"] = renamed[header["base"]]
        folder, _, file = name.rpartition("/")
        forged = forge(bench.store, folder, header["offset"], put_together(header, entries))
        renamed[file] = forged.rpartition("/")[2]


@pytest.mark.parametrize("what", ["intake", "engine"])
def test_what_is_left_to_be_replayed_behind_a_gap_is_taken_as_it_was_predicted_or_not_at_all(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(interval_s=60.0)
    bench.feed(*"ababa")
    bench.worker("one").join().turns(2).close()
    bench.feed(*"babab")
    bench.worker("two").join().turns(2).kill()
    # The checkpoint is of 5, and 10 is committed: 5 and 6 are lost, 7 to 9 are to be replayed.
    bench.broker.logs[0].low = 7
    bench.config = of_input(bench.config, on_gap="accept")
    if what == "intake":
        bench.config = of_input(bench.config, tombstones="reset")
    else:
        monkeypatch.setattr(amf, "ENGINE", "another")
    assert run_into_stop(bench.worker("three")) == {f"{what}-changed": 1}
