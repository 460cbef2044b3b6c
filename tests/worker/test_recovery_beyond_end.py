"""A group or a checkpoint beyond the end of its partition stops, and is never taken for a gap."""

from __future__ import annotations

import pytest

from tests.worker.support.bench import Bench, learned, of_input, run_into_stop, saved_bench
from worker.base.records import Bounds


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_a_group_beyond_the_end_stops_instead_of_learning_what_it_never_predicts(
    saved: bool, on_gap: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(2, interval_s=60.0)
    bench.feed(*"ababa")
    bench.feed("a", partition=1)
    one = bench.worker("one").join().turns(2)
    if saved:
        one.close()
    else:
        one.kill()
    # The broker has lost the last records, and others take their place.
    bench.config = of_input(bench.config, on_gap=on_gap)
    log = bench.broker.logs[0]
    log.records, log.high = log.records[:3], 3
    bench.feed("b")
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {"offset-out-of-range": 1}
    assert "events[0]: the group is at offset 5, but the topic ends at 4" in caplog.text
    bench.feed(*"baba")
    bench.feed("b", partition=1)
    worker.turns(2)
    assert (len(bench.published(0)), learned(bench, 1)) == (5, [0, 1])
    assert bench.broker.committed == {0: 5, 1: 2}


def test_a_group_that_was_set_behind_an_open_transaction_is_not_beyond_the_end() -> None:
    """What the transaction has written is in the log, and is replayed once it can be read."""
    bench = saved_bench()
    log = bench.broker.logs[0]
    readable = log.high
    bench.broker.committed[0] = readable + 2
    worker = bench.worker("two")
    worker.input.bounds = lambda _: Bounds(log.low, log.high, readable + 2)  # type: ignore[method-assign]
    worker.join().turns(3)
    assert worker.stops() == {}
    n_published = len(bench.published())
    bench.feed(*"bab")
    worker.turns(3)
    assert [dict(each.headers)["source-offset"] for each in bench.published()[n_published:]] == [b"%d" % (readable + 2)]


def test_a_group_without_offsets_whose_checkpoint_is_beyond_the_end_stops_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = saved_bench()
    bench.broker.committed.clear()
    log = bench.broker.logs[0]
    log.records, log.high = log.records[:3], 3
    assert run_into_stop(bench.worker("two")) == {"offset-out-of-range": 1}
    beyond = "events[0]: the group has no offset, the newest checkpoint is at offset 5, but the topic ends at 3"
    assert beyond in caplog.text


def test_an_offset_beyond_the_end_is_no_gap() -> None:
    bench = saved_bench(2)
    bench.config = of_input(bench.config, on_gap="accept")
    worker = bench.worker("two").join().turns(1)
    consume = worker.input.consume
    worker.input.consume = lambda *wanted: (consume(*wanted)[0], {0: "out of range"})  # type: ignore[method-assign]
    worker.turn()
    assert worker.stops() == {"offset-out-of-range": 1}
