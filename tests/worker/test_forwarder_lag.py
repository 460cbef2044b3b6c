"""By how many records and seconds a forwarder is behind."""

from __future__ import annotations

import msgspec
import pytest

from tests.worker.support.fake_broker import FIRST_TIMESTAMP_MS
from tests.worker.support.forwarders import BoundForwarder, ForwarderBench
from worker.base.errors import Abort


def lag(forwarder: BoundForwarder) -> dict[int, tuple[float, float | None]]:
    """Records and seconds by which each input partition is behind."""
    seconds = forwarder.metrics.forwarder_lag_seconds.series()
    records = forwarder.metrics.forwarder_lag_records.series()
    return {labels.input_partition: (n, seconds.get(labels)) for labels, n in records.items()}


def test_the_lag_is_what_was_not_forwarded() -> None:
    bench = ForwarderBench(partitions=2)
    bench.feed_shops("a", "b", "c", partition=1)
    forwarder = bench.forwarder().join()
    forwarder.input.batch_records = lambda: 1
    forwarder.turn()
    assert bench.forwarded() == [], "the first transaction has the starts alone"
    assert {number: n for number, (n, _) in lag(forwarder).items()} == {0: 0, 1: 3}
    forwarder.turn()
    assert {number: n for number, (n, _) in lag(forwarder).items()} == {0: 0, 1: 1}
    bench.forwarder("two").join(1)
    forwarder.turn()
    assert lag(forwarder) == {0: (0, 0.0)}


def test_a_backlog_is_as_old_as_what_was_forwarded_last() -> None:
    bench = ForwarderBench()
    bench.feed_shops(*"abcde")
    forwarder = bench.forwarder().join()
    forwarder.input.batch_records = lambda: 1
    n, seconds = lag(forwarder.turns(2))[0]
    assert (n, seconds) == (3, pytest.approx((bench.clock.wall_ms() - FIRST_TIMESTAMP_MS) / 1000, abs=10))
    forwarder.input.batch_records = lambda: 1_000
    assert lag(forwarder.turns(1)) == {0: (0, 0.0)}


def test_what_was_read_and_cannot_be_forwarded_waits() -> None:
    bench = ForwarderBench()
    forwarder = bench.forwarder().join().turns(2)
    forwarder.faults.at("commit", *[Abort("x")] * 1000)
    bench.feed_shops("a")
    for n in (1, 2, 3):
        bench.clock.now_s += 100
        found, seconds = lag(forwarder.turns(1))[0]
        assert found == n
        assert (seconds or 0) > 100 * (n - 1)
        bench.feed_shops("b")  # which is read, and gets no further


def test_a_record_from_the_future_does_not_hide_the_lag() -> None:
    bench = ForwarderBench()
    bench.feed_shops(*"abc")
    log = bench.broker.logs[0]
    ahead_ms = bench.clock.wall_ms() + 86_400_000
    log.records[0] = msgspec.structs.replace(log.records[0], timestamp_ms=ahead_ms)
    forwarder = bench.forwarder().join()
    forwarder.input.batch_records = lambda: 1
    forwarder.turns(1)
    forwarder.input.paused.add(0)
    forwarder.turns(1)
    bench.clock.now_s += 400
    n, seconds = lag(forwarder.turns(1))[0]
    assert (n, seconds) == (2, pytest.approx(400, abs=10))


def test_markers_of_transactions_are_no_lag() -> None:
    bench = ForwarderBench()
    bench.feed_shops("a")
    bench.broker.logs[0].high += 1
    forwarder = bench.forwarder().join().turns(2)
    bench.clock.now_s += 1_000
    assert lag(forwarder.turns(2)) == {0: (0, 0.0)}
