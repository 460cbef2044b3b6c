"""What librdkafka does when connections break, and what the adapter makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from tests.chaos.cluster import EVENTS, PREDICTIONS, Cluster, Setup
from tests.kafka.broker import committed_offsets, read_all
from worker.errors import Unknown, WorkerError
from worker.kafka import KafkaInput, KafkaOutput
from worker.records import Outgoing

pytestmark = [pytest.mark.kafka, pytest.mark.full]

WITHIN_S = 60.0


class Member:
    """A member of the group that starts its partitions at 0 and notes what happens to it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.input = KafkaInput(cluster.config(name))
        self.owned = set[int]()
        self.losses = 0
        self.input.subscribe(self)

    def assigned(self, partitions: Sequence[int]) -> None:
        self.owned |= set(partitions)
        self.input.assign(dict.fromkeys(partitions, 0))

    def revoked(self, partitions: Sequence[int]) -> None:
        self.owned -= set(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self.owned -= set(partitions)
        self.losses += 1


def poll_until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        for member in members:
            member.input.consume(1, 0.05)


def test_a_publish_ends_although_its_connections_broke_before(cluster: Cluster):
    member = Member(cluster, "w0")
    poll_until(lambda: len(member.owned) == cluster.setup.partitions, member)
    record = Outgoing(PREDICTIONS, b"key", b"value", [], 1)
    first = KafkaOutput(cluster.config("w0"), "the-id")
    first.publish([record], {0: 1}, member.input.group_metadata())
    assert cluster.network.cut("w0") > 0
    outcome = list[str]()

    def publish() -> None:
        try:
            first.publish([record], {0: 2}, member.input.group_metadata())
            outcome.append("published")
        except Unknown:
            outcome.append("unknown")

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    # The client may find its way or may not; what must not happen is that nobody ever hears of it.
    assert outcome in (["published"], ["unknown"])
    first.close()
    poll_until(lambda: len(member.owned) == cluster.setup.partitions, member)
    KafkaOutput(cluster.config("w0"), "the-id").publish([record], {0: 3}, member.input.group_metadata())
    assert committed_offsets(cluster.bootstrap, cluster.setup.group, EVENTS) == {0: 3}
    assert len(read_all(cluster.bootstrap, PREDICTIONS)) == (3 if outcome == ["published"] else 2)
    member.input.close()


@pytest.mark.parametrize("cluster", [Setup(), Setup(protocol="consumer")], indirect=True, ids=["classic", "consumer"])
def test_of_two_with_one_identity_one_gives_way_and_the_other_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("worker.kafka.consumer.RELEASE_S", 2.0)
    first = Member(cluster, "w0")
    poll_until(lambda: len(first.owned) == cluster.setup.partitions, first)
    second = Member(cluster, "w0")
    members, errors = [first, second], list[WorkerError]()

    def one_gave_way() -> bool:
        for member in members:
            try:
                member.input.consume(1, 0.05)
            except WorkerError as error:
                errors.append(error)
                members.remove(member)
                member.input.close()
        return bool(errors)

    poll_until(one_gave_way)
    assert "group.instance.id" in str(errors[0])
    [survivor] = members
    poll_until(lambda: len(survivor.owned) == cluster.setup.partitions, survivor)
    survivor.input.close()
