"""What the consumer makes of what its client says, be it nonsense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, call

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.worker.support.configurations import document
from worker.adapters.kafka import consumer, errors
from worker.adapters.kafka.consumer import KafkaInput
from worker.base.errors import Abort, Fatal, PartitionStopped, Transient, WorkerError
from worker.base.records import CommittedOffset, Record
from worker.config import loads


class Message:
    """One of the client."""

    def __init__(self, partition: int | None, offset: int, error: int | None = None, reason: str | None = None) -> None:
        self._partition, self._offset = partition, offset
        self._error = None if error is None else KafkaError(error, reason)

    def __len__(self) -> int:
        return 2

    def partition(self) -> int | None:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> list[Any]:
        return []

    def leader_epoch(self) -> int:
        return 0


@pytest.fixture
def client() -> Mock:
    return Mock(**{"memberid.return_value": "me", "assignment.return_value": []})


@pytest.fixture
def source(client: Mock) -> KafkaInput:
    source = KafkaInput(loads(document(), {}))
    source._consumer.close()
    source._consumer = client
    source.subscribe(Mock())
    return source


def read(source: KafkaInput, client: Mock, *messages: Message) -> tuple[dict[int, list[int]], dict[int, Any]]:
    waiting = list(messages)
    client.consume.side_effect = lambda most, timeout_s: [waiting.pop(0) for _ in range(min(most, len(waiting)))]
    records, gone = source.consume(1000, 0.0)
    return {number: [record.offset for record in some] for number, some in records.items()}, gone


def read_in_two(
    source: KafkaInput, client: Mock, first: list[Message], meanwhile: Callable[[], object], second: list[Message]
) -> tuple[dict[int, list[Record]], dict[int, Any]]:
    """What a read gives that takes two calls of the client, something else happening at the beginning of the second.

    The client knows nothing of what it said in an earlier call.
    """
    pieces = [first, second]

    def consume(most: int, timeout_s: float) -> list[Message]:
        if len(pieces) == 1:
            meanwhile()
        return pieces.pop(0)

    client.consume.side_effect = consume
    return source.consume(300, 0.0)


def call_back(client: Mock, name: str, *partitions: int) -> None:
    """What the client calls while it is read, of the last subscription."""
    client.subscribe.call_args.kwargs[name](client, [TopicPartition("events", number) for number in partitions])


@pytest.mark.parametrize("error", [KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED, KafkaError._BAD_COMPRESSION])
def test_what_comes_behind_a_batch_that_cannot_be_read_is_dropped_until_it_is_read_anew(
    source: KafkaInput, client: Mock, error: int
) -> None:
    nonsense = Message(0, 204), Message(1, 3), Message(0, 9, error)
    records, gone = read(source, client, Message(0, 7), Message(0, 8, error), *nonsense)
    assert records == {0: [7], 1: [3]}
    assert isinstance(gone[0], PartitionStopped)
    assert gone[0].code == "unreadable-records"
    client.pause.assert_called_once()
    out_of_range = Message(0, 10, KafkaError._AUTO_OFFSET_RESET)
    assert read(source, client, Message(0, 205), out_of_range, Message(1, 4)) == ({1: [4]}, gone)
    source.assign({0: 8})
    assert read(source, client, Message(0, 8), Message(1, 5)) == ({0: [8], 1: [5]}, {})


@pytest.mark.parametrize("move", [lambda source: source.assign({0: 3}), lambda source: source.hold([0])])
def test_what_was_read_of_a_partition_before_a_callback_moved_it_is_dropped(
    source: KafkaInput, client: Mock, move: Callable[[KafkaInput], None]
) -> None:
    first = [Message(0, 7), *[Message(2, n) for n in range(255)]]
    records, gone = read_in_two(source, client, first, lambda: move(source), [Message(1, 1)])
    assert ([*records], gone) == ([2, 1], {})


@pytest.mark.parametrize("name", ["on_revoke", "on_lost"])
def test_of_a_partition_that_goes_while_a_read_goes_on_only_what_comes_afterwards_counts(
    source: KafkaInput, client: Mock, name: str
) -> None:
    """It may be back within the same read, from another offset on."""
    client.assignment.return_value = [TopicPartition("events", 0)]
    first = [Message(0, 7), *[Message(1, n) for n in range(255)]]
    records, _ = read_in_two(source, client, first, lambda: call_back(client, name, 0, 5), [Message(0, 3)])
    assert [record.offset for record in records[0]] == [3]
    assert len(records[1]) == 255
    client.incremental_unassign.assert_called_once_with([TopicPartition("events", 0)])  # the other is not read


def test_of_a_partition_that_goes_at_the_end_of_a_read_nothing_counts(source: KafkaInput, client: Mock) -> None:
    first = [Message(0, 7), *[Message(1, n) for n in range(255)]]
    records, _ = read_in_two(source, client, first, lambda: call_back(client, "on_lost", 0), [])
    assert [*records] == [1]


def test_an_unreadable_partition_that_goes_is_not_spoken_of_any_more(source: KafkaInput, client: Mock) -> None:
    assert [*read(source, client, Message(0, 7, KafkaError._BAD_MSG))[1]] == [0]
    call_back(client, "on_lost", 0)
    source._listener.lost.assert_called_once_with([0])  # type: ignore[attr-defined]
    assert read(source, client) == ({}, {})


def test_what_does_not_exist_is_said_once_and_its_leader_is_not_asked_for_it(source: KafkaInput, client: Mock) -> None:
    client.seek.side_effect = KafkaException(KafkaError(KafkaError._STATE))
    source.assign({0: 7}, {0: 3})
    assert [*read(source, client, Message(0, 7, KafkaError._AUTO_OFFSET_RESET))[1]] == [0]
    client.seek.reset_mock()
    assert read(source, client) == ({}, {})
    client.seek.assert_not_called()


@pytest.mark.parametrize("error", [KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG])
def test_an_error_of_no_partition_stops_none(source: KafkaInput, client: Mock, error: int) -> None:
    assert read(source, client, Message(None, 0, error), Message(0, 7)) == ({0: [7]}, {})
    client.pause.assert_not_called()


def test_who_is_not_allowed_to_read_ends_and_says_what_it_needs(source: KafkaInput, client: Mock) -> None:
    with pytest.raises(Fatal, match="needs ACLs that allow READ on topic events"):
        read(source, client, Message(0, 0, KafkaError.TOPIC_AUTHORIZATION_FAILED))


@pytest.mark.parametrize("fault", [KafkaError._STATE, KafkaError._UNKNOWN_PARTITION])
@pytest.mark.parametrize("move", [lambda source: source.assign({0: 9}), lambda source: source.hold([0])])
def test_a_partition_that_is_moved_is_not_taken_back_to_where_its_leader_was_to_be_asked(
    source: KafkaInput, client: Mock, fault: int, move: Callable[[KafkaInput], None]
) -> None:
    client.seek.side_effect = KafkaException(KafkaError(fault))
    source.assign({0: 7}, {0: 3})
    client.seek.assert_called_once()
    client.seek.reset_mock(side_effect=True)
    move(source)
    assert read(source, client, Message(0, 9)) == ({0: [9]}, {})
    client.seek.assert_not_called()


def test_of_a_partition_that_goes_no_leader_is_asked(source: KafkaInput, client: Mock) -> None:
    client.seek.side_effect = KafkaException(KafkaError(KafkaError._STATE))
    source.assign({0: 7}, {0: 3})
    call_back(client, "on_revoke", 0)
    client.seek.reset_mock()
    read(source, client)
    client.seek.assert_not_called()


def test_only_a_client_that_ends_may_be_past_giving_a_partition_up(source: KafkaInput, client: Mock) -> None:
    client.incremental_unassign.side_effect = KafkaException(KafkaError(KafkaError._DESTROY))
    call_back(client, "on_lost", 0)
    client.incremental_unassign.side_effect = KafkaException(KafkaError(KafkaError._STATE))
    with pytest.raises(KafkaException):
        call_back(client, "on_lost", 0)


def test_a_seek_that_fails_for_good_is_an_error(source: KafkaInput, client: Mock) -> None:
    client.seek.side_effect = KafkaException(KafkaError(KafkaError._INVALID_ARG))
    with pytest.raises(KafkaException):
        source.assign({0: 7}, {0: 3})


def test_a_partition_that_is_read_is_moved_and_its_pause_ends(source: KafkaInput, client: Mock) -> None:
    """The client refuses to take what it has."""
    client.assignment.return_value = [TopicPartition("events", 0), TopicPartition("others", 1)]
    source.assign({0: 7, 1: 8})
    client.incremental_unassign.assert_called_once_with([TopicPartition("events", 0)])
    client.resume.assert_called_once_with([TopicPartition("events", 0), TopicPartition("events", 1)])
    client.incremental_unassign.reset_mock()
    source.hold([0, 1])
    client.incremental_unassign.assert_called_once_with([TopicPartition("events", 0)])


def test_before_the_first_fetch_nobody_knows_where_a_partition_ends(source: KafkaInput, client: Mock) -> None:
    client.get_watermark_offsets.return_value = (-1001, -1001)
    assert source.high_watermark(0) is None
    client.get_watermark_offsets.return_value = (0, 0)
    assert source.high_watermark(0) == 0


def test_what_is_said_of_a_member_while_it_becomes_another_one_is_of_nobody(source: KafkaInput, client: Mock) -> None:
    assert source.membership().id == "me"
    client.memberid.side_effect = ["me", "another"]
    assert source.membership().id == ""


def test_an_end_counts_once_what_came_before_it_is_returned(source: KafkaInput, client: Mock) -> None:
    """Who is asked in a callback to give a partition up does not have the records of that read yet, nor will it."""
    end, seen = Message(0, 9, KafkaError._PARTITION_EOF), list[int | None]()
    pieces = [[Message(0, 7), end, *[Message(1, n) for n in range(254)]], []]

    def consume(most: int, timeout_s: float) -> list[Message]:
        seen.append(source.end_seen(0))
        return pieces.pop(0)

    client.consume.side_effect = consume
    source.consume(1000, 0.0)
    assert (seen, source.end_seen(0)) == ([None, None], 9)
    source.hold([0])
    assert source.end_seen(0) is None


def test_an_end_behind_records_that_are_read_again_does_not_count(source: KafkaInput, client: Mock) -> None:
    client.seek.side_effect = KafkaException(KafkaError(KafkaError._STATE))
    source.assign({0: 7}, {0: 3})
    end = Message(0, 9, KafkaError._PARTITION_EOF)
    assert (read(source, client, Message(0, 7), end), source.end_seen(0)) == (({}, {}), None)
    client.seek.side_effect = None
    assert (read(source, client, Message(0, 7), end), source.end_seen(0)) == (({0: [7]}, {}), 9)


def outside(source: KafkaInput, client: Mock, *troubles: int) -> None:
    """A read of a client that has been out of its group for too long, since which it has met these troubles."""
    client.memberid.return_value = ""
    source._member_s = source._looked_s = float("-inf")
    for code in troubles:
        source._admission(KafkaError(code, "of the broker"))
    read(source, client)


def test_who_is_out_of_its_group_since_the_broker_does_not_know_it_any_more_ends(
    source: KafkaInput, client: Mock
) -> None:
    """As where its password was changed: only a start reads the new one."""
    with pytest.raises(Fatal, match=r"no member of its group for .* check kafka\.sasl\.mechanism and the user's name"):
        outside(source, client, KafkaError._TRANSPORT, KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)


def test_who_is_out_of_its_group_for_another_reason_joins_anew(
    source: KafkaInput, client: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = Mock(**{"memberid.return_value": "another", "consume.return_value": []})
    monkeypatch.setattr(consumer, "client", lambda *_: anew)
    outside(source, client, KafkaError._AUTHENTICATION, KafkaError._TRANSPORT)
    client.close.assert_called_once()
    anew.subscribe.assert_called_once()


def test_what_a_connection_has_failed_of_is_told_for_a_while(
    source: KafkaInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, source._admission = Passing(), errors.Admission()  # not that of the client that the source was made with
    monkeypatch.setattr(errors, "time", passing)
    assert source.trouble() is None
    source._admission(KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    source._admission(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    said = "the last connection failed: invalid credentials; check kafka.sasl.mechanism and the user's name and secret"
    assert (source.trouble() or "").startswith(said)
    passing.sleep(errors.RECENT_S)
    assert source.trouble() is None


def test_where_a_partition_ends_is_seen_anew_once_it_is_read_from_elsewhere(source: KafkaInput, client: Mock) -> None:
    read(source, client, Message(0, 9, KafkaError._PARTITION_EOF))
    assert source.end_seen(0) == 9
    source.assign({0: 3})
    assert source.end_seen(0) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "", False, True), Transient),
        (KafkaError(KafkaError._TIMED_OUT), Transient),
        (KafkaError(KafkaError.ILLEGAL_GENERATION), Abort),
    ],
)
def test_a_commit_that_may_have_come_through_is_told_from_one_that_has_not(
    source: KafkaInput, client: Mock, error: KafkaError, kind: type[WorkerError]
) -> None:
    client.commit.side_effect = KafkaException(error)
    with pytest.raises(kind, match="commit of offsets"):
        source.commit({0: CommittedOffset(3)})


# Membership


class Passing:
    """The module `time`, which passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch, client: Mock) -> Passing:
    """Each new client is the same one, and so is the time until it passes."""
    passing = Passing()
    monkeypatch.setattr(consumer, "client", lambda *_: client)
    monkeypatch.setattr(consumer, "time", passing)
    return passing


def joined(client: Mock) -> int:
    """How often a client has joined the group."""
    return int(client.subscribe.call_count)


def test_a_client_that_is_no_member_is_replaced_and_the_next_one_has_as_long(passing: Passing, client: Mock) -> None:
    """Else one would follow the other each second while a broker is away, until the worker took itself for a twin."""
    source = KafkaInput(loads(document(), {}))
    source.subscribe(Mock())
    client.memberid.return_value, longest_s = "", source._outside_s
    for n in (2, 3):
        passing.now_s += longest_s - 1
        read(source, client)
        assert joined(client) == n - 1
        passing.now_s += 2
        read(source, client)
        assert joined(client) == n
    for member in ("me", ""):  # who was one a moment ago has as long, too
        client.memberid.return_value = member
        passing.now_s += longest_s - 1
        read(source, client)
    assert joined(client) == 3


def test_a_member_that_is_fenced_again_and_again_gives_way_and_one_that_is_now_and_then_does_not(
    passing: Passing, client: Mock
) -> None:
    source = KafkaInput(loads(document(), {}))
    source.subscribe(Mock())
    fenced = Message(0, 0, KafkaError._FATAL)
    for _ in range(2 * consumer.MOST_REJOINS):
        passing.now_s += consumer.REJOIN_S
        read(source, client, fenced)
    assert joined(client) == 1 + 2 * consumer.MOST_REJOINS
    for _ in range(consumer.MOST_REJOINS - 1):
        read(source, client, fenced)
    with pytest.raises(Fatal, match=r"is there another with its group\.instance\.id"):
        read(source, client, fenced)


def test_who_joins_anew_has_lost_what_it_had(passing: Passing, client: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def make(*arguments: Any) -> Mock:
        made.append(arguments)
        return client

    monkeypatch.setattr(consumer, "client", make)
    source, listener = KafkaInput(loads(document(), {})), Mock()
    source.subscribe(listener)
    call_back(client, "on_assign", 2, 0, 1)
    listener.assigned.assert_called_once_with([0, 1, 2])
    client.seek.side_effect = KafkaException(KafkaError(KafkaError._STATE))
    source.assign({0: 7}, {0: 3})
    assert [*read(source, client, Message(1, 5, KafkaError._BAD_MSG))[1]] == [1]
    assert read(source, client, Message(2, 0, KafkaError._FATAL), Message(2, 6)) == ({}, {})
    listener.lost.assert_called_once_with([0, 1, 2])
    client.seek.reset_mock()
    assert read(source, client) == ({}, {})
    client.seek.assert_not_called()
    assert made[0] == made[-1], "what becomes of its connections is heard too"
    read(source, client, Message(2, 0, KafkaError._FATAL))
    assert listener.lost.call_args.args == ([],)
    drained = client.consume.call_count
    source.close()
    assert client.consume.call_count == drained + 2, "what is due is called before"
    source.close()
    assert client.consume.call_count == drained + 2, "a client that is closed cannot be read"


def test_a_client_that_does_not_end_takes_the_process_along(
    source: KafkaInput, client: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[tuple[float, int]] = []

    @contextmanager
    def within(seconds: float) -> Iterator[None]:
        yield
        watched.append((seconds, client.close.call_count))

    monkeypatch.setattr(consumer, "within", within)
    source.close()
    assert watched == [(consumer.CLOSE_S, 1)]


def test_a_name_that_the_group_has_not_released_is_waited_for(passing: Passing, client: Mock) -> None:
    """It is no twin's while the session of the dead lasts, and may be one afterwards."""
    source = KafkaInput(loads(document(), {}))
    source.subscribe(Mock())
    unreleased = Message(0, 0, KafkaError._FATAL, f"fatal: {consumer._UNRELEASED}")
    for n in range(2):
        begun_s, n_before = passing.now_s, joined(client)
        for _ in range(int(consumer.RELEASE_S / consumer.RELEASE_EVERY_S)):
            read(source, client, unreleased)
        assert passing.now_s - begun_s == consumer.RELEASE_S
        assert joined(client) == n_before + consumer.RELEASE_S / consumer.RELEASE_EVERY_S
        if n == 0:
            call_back(client, "on_assign", 0)
    for _ in range(consumer.MOST_REJOINS):
        read(source, client, unreleased)
    with pytest.raises(Fatal, match=r"is there another with its group\.instance\.id"):
        read(source, client, unreleased)


@pytest.fixture
def listened(client: Mock, source: KafkaInput) -> Mock:
    """A listener that was given partition 0 as one member and 1 as the next one."""
    listener = Mock()
    source.subscribe(listener)
    client.memberid.return_value = "once"
    call_back(client, "on_assign", 0)
    client.memberid.return_value = "now"
    call_back(client, "on_assign", 1)
    listener.reset_mock()
    return listener


def test_partitions_of_a_member_that_was_given_up_are_taken_anew(
    source: KafkaInput, client: Mock, listened: Mock
) -> None:
    """Somebody else may have had them in between, and have committed."""
    assert read(source, client, Message(0, 7), Message(1, 8)) == ({1: [8]}, {})
    assert listened.mock_calls == [call.lost([0]), call.assigned([0])]
    assert read(source, client, Message(0, 5), Message(1, 9)) == ({0: [5], 1: [9]}, {})
    assert len(listened.mock_calls) == 2


def test_who_is_joining_knows_of_no_other_member_yet(source: KafkaInput, client: Mock, listened: Mock) -> None:
    client.memberid.return_value = ""
    assert read(source, client, Message(0, 7), Message(1, 8)) == ({0: [7], 1: [8]}, {})
    assert listened.mock_calls == []


def test_of_partitions_that_are_revoked_those_of_a_member_that_was_given_up_are_lost(
    source: KafkaInput, client: Mock, listened: Mock
) -> None:
    """Nothing of them must be committed any more."""
    call_back(client, "on_revoke", 1, 0)
    assert listened.mock_calls == [call.lost([0]), call.revoked([1])]
    read(source, client)
    assert len(listened.mock_calls) == 2
