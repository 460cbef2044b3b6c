"""What is raised while partitions come or go, from within the client's calls, on librdkafka's mock cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.kafka.configurations import configuration
from worker.adapters.kafka import KafkaInput, KafkaOutput
from worker.adapters.kafka.mock import start_mock_cluster
from worker.base.errors import Abort
from worker.base.records import CommittedOffset, Membership, Outgoing
from worker.config import Config, loads


def member_config(bootstrap: str) -> Config:
    return loads(configuration(bootstrap, Path("/nowhere"), {"kafka": {"group.instance.id": "one"}}), {})


class Member:
    """Asks who it is when its partitions are revoked, and fails, if it is to, when they are assigned."""

    def __init__(self, bootstrap: str, *, fails: bool = False) -> None:
        self.input = KafkaInput(member_config(bootstrap))
        self.fails, self.owned = fails, 0
        self.when_revoked: Membership | None = None
        self.input.subscribe(self)

    def assigned(self, partitions: Sequence[int]) -> None:
        if self.fails:
            int("seven")
        self.owned = len(partitions)
        self.input.assign(dict.fromkeys(partitions, 0))

    def revoked(self, partitions: Sequence[int]) -> None:
        self.when_revoked = self.input.membership()

    def lost(self, partitions: Sequence[int]) -> None: ...

    def join(self) -> None:
        for _ in range(200):
            self.input.consume(1, 0.1)
            if self.owned:
                return
        pytest.fail("no partitions within 20 s")


def test_what_a_listener_raises_arrives_as_it_was_raised() -> None:
    """An interpreter before 3.12 leaves it to whoever catches it to make an exception of a type and a text."""
    _cluster, bootstrap = start_mock_cluster(["events"])
    member = Member(bootstrap, fails=True)
    with pytest.raises(ValueError, match="'seven'"):
        member.join()


def test_a_client_that_cannot_say_who_it_is_is_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is being closed may be past being asked, when its partitions are revoked."""

    class Ending(Consumer):
        def consumer_group_metadata(self) -> object:
            raise RuntimeError("Consumer group metadata not available")

    _cluster, bootstrap = start_mock_cluster(["events"])
    monkeypatch.setattr("worker.adapters.kafka.consumer.Consumer", Ending)
    member = Member(bootstrap)
    member.join()
    member.input.close()
    assert member.when_revoked == Membership("", None)


def test_offsets_of_no_member_are_not_sent() -> None:
    """What a closing client says of itself may be handed to the producer with what is pending."""
    _cluster, bootstrap = start_mock_cluster(["events", "predictions", "dead"])
    output = KafkaOutput(member_config(bootstrap), "id")
    with pytest.raises(Abort, match="no member of the group"):
        output.publish([Outgoing("predictions", b"k", b"v", [], 1)], {0: CommittedOffset(1)}, Membership("", None))
