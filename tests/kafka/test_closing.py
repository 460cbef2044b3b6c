"""A member that is closed while its group rebalances comes to an end, whatever callback is due."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.configurations import configuration
from worker.adapters.kafka import KafkaInput
from worker.config import loads

ROOT = Path(__file__).parents[2]
CLOSES = 40
WITHIN_S = 100.0


class Member:
    """A static member, which asks who it is when its partitions are revoked."""

    def __init__(self, bootstrap: str) -> None:
        text = configuration(bootstrap, Path("/nowhere"), {"kafka": {"group.instance.id": "one"}})
        self.input = KafkaInput(loads(text, {}))
        self.input.subscribe(self)

    def assigned(self, partitions: Sequence[int]) -> None:
        self.input.hold(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self.input.membership()

    def lost(self, partitions: Sequence[int]) -> None: ...


@pytest.mark.full
def test_a_static_member_that_is_closed_while_it_joins_comes_to_an_end(own_broker: Broker) -> None:
    """Its partitions are there, and the callback that says so is not called yet: the client would wait for itself."""
    own_broker.create_topic("events", 4)
    program = [sys.executable, "-m", "tests.kafka.test_closing", own_broker.bootstrap]
    subprocess.run(program, cwd=ROOT, timeout=WITHIN_S, check=True)


if __name__ == "__main__":
    rng = random.Random(1)
    for _ in range(CLOSES):
        member = Member(sys.argv[1])
        time.sleep(rng.uniform(0.0, 0.4))
        member.input.close()
