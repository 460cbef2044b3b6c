"""What clients of Kafka say of themselves, which they say too often."""

from __future__ import annotations

import logging

from tests.worker.fakes import FakeClock
from worker.kafka.errors import QUIET_S, Quiet


def test_a_client_says_the_same_once_a_minute() -> None:
    clock = FakeClock()
    quiet = Quiet(clock.monotonic)

    def passes(client: str, broker: str, state: str) -> bool:
        said = f"FAIL [rdkafka#{client}] [thrd:{broker}]: {broker}: Connection refused ({state})"
        return bool(quiet.filter(logging.LogRecord("x", logging.ERROR, "", 0, said, (), None)))

    assert passes("producer-1", "a:9092", "after 0ms in state CONNECT")
    assert not passes("producer-1", "a:9092", "after 12ms in state CONNECT, 7 identical error(s) suppressed")
    assert not passes("consumer-2", "a:9092", "after 0ms in state CONNECT")
    assert passes("producer-1", "b:9092", "after 0ms in state CONNECT")
    assert passes("producer-1", "a:9092", "after 0ms in state UP")
    clock.now_s += QUIET_S - 1
    assert not passes("producer-1", "a:9092", "after 0ms in state CONNECT")
    clock.now_s += 1
    assert passes("producer-1", "a:9092", "after 0ms in state CONNECT")
    assert not passes("producer-1", "a:9092", "after 0ms in state CONNECT")
