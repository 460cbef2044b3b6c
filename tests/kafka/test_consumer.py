"""The consumer of the group on a real broker: what is held, moved, paused and given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kafka.broker import Broker
from tests.kafka.conftest import Names
from worker.config import loads
from worker.kafka import KafkaInput

WITHIN_S = 30.0
CONFIG = """
input: {{topic: {topic}}}
output: {{topic: predictions}}
dead_letter: {{topic: dead-letters}}
kafka: {{bootstrap.servers: "{bootstrap}", group.id: {group}, group.protocol: {protocol}}}
checkpoint: {{url: "memory://consumer"}}
"""


class Member:
    """A member of a group that holds what it is given, and notes what it reads."""

    def __init__(self, text: str) -> None:
        self.input = KafkaInput(loads(text, {}))
        self.owned = set[int]()
        self.offsets = dict[int, list[int]]()
        self.input.subscribe(self)

    def assigned(self, partitions: Sequence[int]) -> None:
        self.owned |= set(partitions)
        self.input.hold(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self.owned -= set(partitions)

    lost = revoked

    def poll(self) -> None:
        records, missing = self.input.consume(100, 0.05)
        assert missing == {}
        for number, some in records.items():
            self.offsets.setdefault(number, []).extend(record.offset for record in some)


class PastBeingAsked:
    """A consumer in whose close a callback comes after the last moment at which it answers."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assignment(self) -> NoReturn:
        raise KafkaException(KafkaError(KafkaError._DESTROY))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def poll_until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        for member in members:
            member.poll()


class Group:
    """A group on a topic of its own."""

    def __init__(self, broker: Broker, topics: Names, protocol: str) -> None:
        self.topic = topics.create("events", 2)
        self._bootstrap = broker.bootstrap
        self._text = CONFIG.format(
            topic=self.topic, bootstrap=broker.bootstrap, group=topics.name("group"), protocol=protocol
        )
        self._members: list[Member] = []

    def join(self) -> Member:
        self._members.append(Member(self._text))
        return self._members[-1]

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        member.input.close()

    def produce(self, n: int, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for _ in range(n):
            producer.produce(self.topic, b"value", b"key", partition)
        assert producer.flush(WITHIN_S) == 0

    def close(self) -> None:
        for member in list(self._members):
            self.leave(member)


@pytest.fixture(params=["classic", "consumer"])
def group(request: pytest.FixtureRequest, broker: Broker, topics: Names) -> Iterator[Group]:
    made = Group(broker, topics, request.param)
    yield made
    made.close()


def test_what_is_held_is_read_from_where_it_is_assigned_and_not_before(group: Group) -> None:
    group.produce(5)
    member = group.join()
    poll_until(lambda: 0 in member.owned, member)
    group.produce(5)
    for _ in range(20):
        member.poll()
    assert member.offsets == {}
    member.input.assign({0: 2})
    group.produce(5)
    poll_until(lambda: len(member.offsets.get(0, ())) >= 13, member)
    assert member.offsets == {0: [*range(2, 15)]}


def test_what_is_read_can_be_held_again(group: Group) -> None:
    group.produce(5)
    member = group.join()
    poll_until(lambda: 0 in member.owned, member)
    member.input.assign({0: 0})
    poll_until(lambda: len(member.offsets.get(0, ())) == 5, member)
    member.input.hold([0])
    group.produce(5)
    for _ in range(20):
        member.poll()
    assert member.offsets == {0: [*range(5)]}
    member.input.assign({0: 3})
    poll_until(lambda: len(member.offsets[0]) >= 12, member)
    assert member.offsets == {0: [*range(5), *range(3, 10)]}


def test_a_consumer_that_is_past_being_asked_is_closed_all_the_same(group: Group) -> None:
    member = group.join()
    poll_until(lambda: member.owned == {0, 1}, member)
    member.input.assign({0: 0, 1: 0})
    member.input._consumer = PastBeingAsked(member.input._consumer)
    group.leave(member)
    assert member.owned == set()


def test_a_pause_ends_with_the_next_assignment(group: Group) -> None:
    for number in (0, 1):
        group.produce(5, number)
    member = group.join()
    poll_until(lambda: member.owned == {0, 1}, member)
    member.input.assign({0: 0, 1: 0})
    poll_until(lambda: [len(member.offsets.get(n, ())) for n in (0, 1)] == [5, 5], member)
    for number in (0, 1):
        member.input.pause(number)
    other = group.join()
    poll_until(lambda: len(other.owned) == len(member.owned) == 1, member, other)
    [moved] = other.owned
    group.leave(other)
    poll_until(lambda: member.owned == {0, 1}, member)
    group.produce(5, moved)
    member.input.assign({moved: 5})
    poll_until(lambda: len(member.offsets[moved]) >= 10, member)
    assert member.offsets == {moved: [*range(10)], 1 - moved: [*range(5)]}


def test_what_was_only_held_is_given_up_in_order(group: Group) -> None:
    member = group.join()
    poll_until(lambda: member.owned == {0, 1}, member)
    other = group.join()
    poll_until(lambda: len(other.owned) == len(member.owned) == 1, member, other)
    assert member.owned | other.owned == {0, 1}
    group.leave(member)
    poll_until(lambda: other.owned == {0, 1}, other)
