"""What the worker rests on, of any broker: the same tests for the one in memory and for Kafka itself.

Whoever inherits from BrokerContract has a fixture `cluster`. What the simulation proves is worth as much as the
likeness that is tested here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from worker.base.errors import Abort, Refused, Unknown
from worker.base.ports import Input, Output
from worker.base.records import CommittedOffset, Outgoing

WITHIN_S = 30.0
LARGEST_BYTES = 100_000
"""Records that are larger the output topic refuses."""


class Cluster(Protocol):
    """A broker with an input topic of two partitions, an output topic, and one group."""

    output_topic: str

    def consumer(self) -> Input:
        """A consumer of the group that is no member yet; it sees ends."""
        ...

    def producer(self, identity: str) -> Output:
        """The producer of a transactional id. Those before it are fenced."""
        ...

    def append(self, partition: int, n: int) -> None:
        """So many records more in the input."""
        ...

    def delete_before(self, partition: int, offset: int) -> None:
        """As retention does."""
        ...

    def published(self, at_least: int) -> list[bytes | None]:
        """The values that a read_committed reader finds, once there are so many."""
        ...

    def settle(self) -> None:
        """Let the group find out who has come and gone, where it does not by itself."""
        ...


class Member:
    """A member of the group that holds what it is given, and notes what it reads."""

    def __init__(self, cluster: Cluster) -> None:
        self.input = cluster.consumer()
        self.owned = set[int]()
        self.offsets = dict[int, list[int]]()
        self.epochs = set[int | None]()
        self.missing = dict[int, str]()
        self._cluster = cluster
        self.input.subscribe(self)

    def assigned(self, partitions: Sequence[int]) -> None:
        assert self.owned.isdisjoint(partitions)
        self.owned |= set(partitions)
        self.input.hold(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        assert self.owned.issuperset(partitions)
        self.owned -= set(partitions)

    lost = revoked

    def poll(self) -> None:
        self._cluster.settle()
        records, missing = self.input.consume(100, 0.05)
        self.missing |= missing
        for number, some in records.items():
            assert number in self.owned
            self.offsets.setdefault(number, []).extend(record.offset for record in some)
            self.epochs.update(record.leader_epoch for record in some)

    def number_read(self, partition: int) -> int:
        return len(self.offsets.get(partition, ()))


def poll_until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        for member in members:
            member.poll()


def joined(cluster: Cluster) -> Member:
    """A member that has both partitions."""
    member = Member(cluster)
    poll_until(lambda: member.owned == {0, 1}, member)
    return member


class BrokerContract:
    """The tests."""

    @staticmethod
    def outputs(cluster: Cluster, *values: bytes) -> list[Outgoing]:
        return [Outgoing(cluster.output_topic, b"key", value, [], 1_600_000_000_000) for value in values]

    # --- what is read -------------------------------------------------------------------------------------------------

    def test_what_is_held_is_read_from_where_it_is_assigned_and_not_before(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        member = joined(cluster)
        cluster.append(0, 5)
        for _ in range(20):
            member.poll()
        assert member.offsets == {}
        member.input.assign({0: 2})
        cluster.append(0, 5)
        poll_until(lambda: member.number_read(0) >= 13, member)
        assert member.offsets == {0: [*range(2, 15)]}

    def test_what_is_read_can_be_held_again(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        member = joined(cluster)
        member.input.assign({0: 0})
        poll_until(lambda: member.number_read(0) == 5, member)
        member.input.hold([0])
        cluster.append(0, 5)
        for _ in range(20):
            member.poll()
        assert member.offsets == {0: [*range(5)]}
        member.input.assign({0: 3})
        poll_until(lambda: member.number_read(0) >= 12, member)
        assert member.offsets == {0: [*range(5), *range(3, 10)]}

    def test_a_pause_ends_with_the_next_assignment(self, cluster: Cluster) -> None:
        for number in (0, 1):
            cluster.append(number, 5)
        member = joined(cluster)
        member.input.assign({0: 0, 1: 0})
        poll_until(lambda: [member.number_read(n) for n in (0, 1)] == [5, 5], member)
        for number in (0, 1):
            member.input.pause(number)
        other = Member(cluster)
        poll_until(lambda: len(other.owned) == len(member.owned) == 1, member, other)
        [moved] = other.owned
        other.input.close()
        poll_until(lambda: member.owned == {0, 1}, member)
        cluster.append(moved, 5)
        member.input.assign({moved: 5})
        poll_until(lambda: member.number_read(moved) >= 10, member)
        assert member.offsets == {moved: [*range(10)], 1 - moved: [*range(5)]}

    def test_bounds_are_those_of_the_records_that_exist(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        member = joined(cluster)
        assert (member.input.bounds(0), member.input.bounds(1)) == ((0, 5, 5), (0, 0, 0))
        cluster.delete_before(0, 3)
        assert member.input.bounds(0) == (3, 5, 5)

    def test_what_is_read_and_does_not_exist_is_missing(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        cluster.append(1, 5)
        cluster.delete_before(0, 3)
        member = joined(cluster)
        member.input.assign({0: 1, 1: 1})
        poll_until(lambda: 0 in member.missing and member.number_read(1) == 4, member)
        assert member.offsets == {1: [1, 2, 3, 4]}
        member.input.assign({0: 3})
        poll_until(lambda: member.number_read(0) == 2, member)
        member.input.assign({1: 9})
        poll_until(lambda: 1 in member.missing, member)

    def test_records_carry_the_epoch_of_their_leader_and_committed_offsets_too(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        member, output = joined(cluster), cluster.producer("a")
        member.input.assign({0: 0})
        poll_until(lambda: member.number_read(0) == 5, member)
        [epoch] = member.epochs
        assert epoch is not None
        offsets = {0: CommittedOffset(5, "there", epoch), 1: CommittedOffset(1, "", epoch + 7)}
        output.publish([], offsets, member.input.membership())
        assert member.input.committed([0, 1]) == offsets
        member.input.commit({0: CommittedOffset(4, "alone", epoch + 1), 1: CommittedOffset(2)})
        assert member.input.committed([0, 1]) == {0: CommittedOffset(4, "alone", epoch + 1), 1: CommittedOffset(2)}

    def test_an_offset_is_missing_if_the_record_before_it_is_lost(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        member = joined(cluster)
        member.input.assign({0: 0})
        poll_until(lambda: member.number_read(0) == 5, member)
        [epoch] = member.epochs
        assert epoch is not None
        for _ in range(3):
            member.input.assign({0: 3}, {0: epoch})
            member.offsets.clear()
            poll_until(lambda: member.number_read(0) == 2, member)
            assert (member.offsets, member.missing) == ({0: [3, 4]}, {})
            # Of that epoch the leader knows no record.
            member.input.assign({0: 3}, {0: epoch + 1})
            member.offsets.clear()
            poll_until(lambda: 0 in member.missing, member)
            assert member.offsets == {}
            member.missing.clear()

    def test_an_end_is_seen_once_all_before_it_is_read(self, cluster: Cluster) -> None:
        cluster.append(0, 5)
        member = joined(cluster)
        assert member.input.end_seen(0) is None
        member.input.assign({0: 0, 1: 0})
        poll_until(lambda: (member.input.end_seen(0), member.input.end_seen(1)) == (5, 0), member)
        assert member.offsets == {0: [*range(5)]}

    # --- the group ----------------------------------------------------------------------------------------------------

    def test_what_was_only_held_is_given_up_in_order(self, cluster: Cluster) -> None:
        member = joined(cluster)
        other = Member(cluster)
        poll_until(lambda: len(other.owned) == len(member.owned) == 1, member, other)
        assert member.owned | other.owned == {0, 1}
        member.input.close()
        assert member.owned == set()
        poll_until(lambda: other.owned == {0, 1}, other)

    def test_offsets_are_committed_with_their_metadata(self, cluster: Cluster) -> None:
        member, output = joined(cluster), cluster.producer("a")
        assert member.input.committed([0, 1]) == {0: None, 1: None}
        output.publish([], {0: CommittedOffset(3, "there")}, member.input.membership())
        assert member.input.committed([0, 1]) == {0: CommittedOffset(3, "there"), 1: None}
        # Without a record, too, and at the same offset.
        output.publish([], {0: CommittedOffset(3, "later"), 1: CommittedOffset(0)}, member.input.membership())
        assert member.input.committed([0, 1]) == {0: CommittedOffset(3, "later"), 1: CommittedOffset(0)}
        member.input.commit({1: CommittedOffset(1, "alone")})
        assert member.input.committed([1]) == {1: CommittedOffset(1, "alone")}

    def test_who_has_left_commits_nothing_and_publishes_nothing(self, cluster: Cluster) -> None:
        member, output = joined(cluster), cluster.producer("a")
        metadata = member.input.membership()
        member.input.close()
        other = joined(cluster)
        with pytest.raises(Abort):
            output.publish(self.outputs(cluster, b"late"), {0: CommittedOffset(1)}, metadata)
        output.abort()
        output.publish(self.outputs(cluster, b"good"), {0: CommittedOffset(2)}, other.input.membership())
        assert cluster.published(1) == [b"good"]
        assert other.input.committed([0]) == {0: CommittedOffset(2)}

    def test_who_was_a_member_of_an_earlier_generation_commits_nothing(self, cluster: Cluster) -> None:
        member, output = joined(cluster), cluster.producer("a")
        before = member.input.membership()
        other = Member(cluster)
        poll_until(lambda: len(other.owned) == len(member.owned) == 1, member, other)
        with pytest.raises(Abort):
            output.publish(self.outputs(cluster, b"late"), {0: CommittedOffset(1)}, before)
        output.abort()
        assert member.input.committed([0]) == {0: None}

    # --- transactions -------------------------------------------------------------------------------------------------

    def test_outputs_and_offsets_are_there_together(self, cluster: Cluster) -> None:
        member, output = joined(cluster), cluster.producer("a")
        for n in (1, 2):
            values = [b"%d" % i for i in range(2 * n - 2, 2 * n)]
            output.publish(self.outputs(cluster, *values), {0: CommittedOffset(2 * n)}, member.input.membership())
        assert cluster.published(4) == [b"0", b"1", b"2", b"3"]
        assert member.input.committed([0]) == {0: CommittedOffset(4)}

    def test_a_producer_of_the_same_id_fences_the_one_before(self, cluster: Cluster) -> None:
        member, zombie = joined(cluster), cluster.producer("a")
        zombie.publish(self.outputs(cluster, b"before"), {0: CommittedOffset(1)}, member.input.membership())
        output = cluster.producer("a")
        with pytest.raises(Unknown):
            zombie.publish(self.outputs(cluster, b"zombie"), {0: CommittedOffset(9)}, member.input.membership())
        zombie.close()
        output.publish(self.outputs(cluster, b"after"), {0: CommittedOffset(2)}, member.input.membership())
        assert cluster.published(2) == [b"before", b"after"]
        assert member.input.committed([0]) == {0: CommittedOffset(2)}

    def test_producers_of_other_ids_do_not_fence_each_other(self, cluster: Cluster) -> None:
        member, one = joined(cluster), cluster.producer("a")
        other = cluster.producer("b")
        one.publish(self.outputs(cluster, b"one"), {0: CommittedOffset(1)}, member.input.membership())
        other.publish(self.outputs(cluster, b"other"), {1: CommittedOffset(1)}, member.input.membership())
        assert sorted(map(bytes, filter(None, cluster.published(2)))) == [b"one", b"other"]

    def test_a_record_that_is_refused_takes_its_transaction_with_it(self, cluster: Cluster) -> None:
        member, output = joined(cluster), cluster.producer("a")
        values = b"small", b"x" * (2 * LARGEST_BYTES)
        with pytest.raises(Refused):
            output.publish(self.outputs(cluster, *values), {0: CommittedOffset(2)}, member.input.membership())
        output.abort()
        # Kafka's client may stumble once more over what the refused record has left behind.
        for _ in range(3):
            try:
                output.publish(self.outputs(cluster, b"small"), {0: CommittedOffset(1)}, member.input.membership())
                break
            except Abort:
                output.abort()
        assert cluster.published(1) == [b"small"]
        assert member.input.committed([0]) == {0: CommittedOffset(1)}
