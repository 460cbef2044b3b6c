"""Questions about topics and groups: what each answer of a broker is taken for, be it one that hardly comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupState, KafkaError, KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from tests.worker.support.fakes import config
from worker.adapters.kafka import admin, group, internal, topic
from worker.adapters.kafka.admin import DEFAULT_MESSAGE_BYTES, KafkaAdmin
from worker.adapters.kafka.group import KafkaGroup
from worker.adapters.kafka.internal import make_internal_topic
from worker.adapters.kafka.mock import MOCK_CLUSTER
from worker.adapters.kafka.topic import KafkaTopic
from worker.base.errors import Fatal, Transient, Unanswered, WorkerError
from worker.base.ports import TopicState
from worker.config import repartition

FORBIDDEN, AWAY, OTHER = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError.UNKNOWN
FAILURES = [(FORBIDDEN, Fatal), (AWAY, Unanswered)]
"""What is said, and what it is taken for whatever is asked."""


def failed(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, "of the broker"))


def future(outcome: Any) -> Future[Any]:
    found = Future[Any]()
    if isinstance(outcome, KafkaException):
        found.set_exception(outcome)
    else:
        found.set_result(outcome)
    return found


class Client:
    """An admin client of a cluster with these topics: their leaders by partition. What is set instead is an answer, or
    raised where it is an exception."""

    def __init__(self, **topics: list[int]) -> None:
        self.topics = topics
        self.cluster_id = "c"
        self.cluster: list[KafkaException] = []
        """Raised in place of the next answers about the cluster."""
        self.description: Any = SimpleNamespace(topic_id="a+b/c", partitions=[0, 0], authorized_operations=None)
        self.offsets: dict[int, Any] = {}
        self.settings: dict[str, Any] = {}
        """Settings of each topic; an exception in their place."""
        self.creations: dict[str, Any] = {}
        self.created: list[Any] = []
        self.timeouts: list[float] = []
        self.errors: dict[str, KafkaError] = {}

    def poll(self, _: float) -> None: ...

    def list_topics(self, name: str | None = None, timeout: float = 0) -> Any:
        self.timeouts.append(timeout)
        if self.cluster:
            raise self.cluster.pop(0)
        found = {
            each: SimpleNamespace(
                error=self.errors.get(each),
                partitions={n: SimpleNamespace(leader=leader, replicas=[1] * n) for n, leader in enumerate(leaders)},
            )
            for each, leaders in {name or "events": [], **self.topics}.items()
        }
        return SimpleNamespace(cluster_id=self.cluster_id, topics=found, brokers={3: None, 2: None})

    def describe_topics(self, asked: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: future(self.description) for name in asked.topic_names}

    def list_offsets(self, asked: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        found = {each: self.offsets[each.partition] for each in asked}
        return {
            each: future(o if isinstance(o, KafkaException) else SimpleNamespace(offset=o)) for each, o in found.items()
        }

    def describe_configs(self, resources: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
        answers = {each: self.settings[each.name] for each in resources}
        return {
            each: future(
                found
                if isinstance(found, KafkaException)
                else {name: SimpleNamespace(value=value) for name, value in found.items()}
            )
            for each, found in answers.items()
        }

    def create_topics(self, new: Iterable[Any], **_: Any) -> dict[str, Future[Any]]:
        self.created += new
        self.topics |= {each.topic: [1] for each in new}
        return {each.topic: future(self.creations.get(each.topic)) for each in new}

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return future(self.description)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client(events=[1, 1])
    for module in (admin, group, topic):
        monkeypatch.setattr(module, "client", lambda *_: made)
    return made


# --- one topic ----------------------------------------------------------------------------------------------------


def test_a_topic_as_it_is_now_has_the_beginnings_that_there_are_and_its_policy(client: Client) -> None:
    client.topics["events"] = [1, -1, 1, 1]
    client.offsets = {0: 7, 2: failed(OTHER), 3: OFFSET_INVALID}
    client.settings["events"] = {"cleanup.policy": "compact"}
    events = KafkaTopic(config(), "events")
    assert events.state(4) == TopicState("a-b_c", 2, {0: 7}, "compact")
    for untold in (failed(FORBIDDEN), failed(OTHER), {"cleanup.policy": None}):
        client.settings["events"] = untold
        assert events.state(4) == TopicState("a-b_c", 2, {0: 7}), "what else is known is told all the same"
    del client.settings["events"]
    client.timeouts.clear()
    assert events.state(0) == TopicState("a-b_c", 2, {})
    assert client.timeouts == [], "of no partition nothing has to be known"


def test_a_topic_that_is_not_there_has_no_state(client: Client) -> None:
    client.description = failed(KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert KafkaTopic(config(), "events").state(1) is None


@pytest.mark.parametrize(("code", "kind"), [*FAILURES, (OTHER, Transient)])
def test_a_topic_that_cannot_be_asked_about_is_not_taken_for_one_that_is_gone(
    client: Client, code: int, kind: type[WorkerError]
) -> None:
    events = KafkaTopic(config(), "events")
    client.cluster = [failed(code), failed(code)]
    for ask in (lambda: events.is_mock, events.ends):
        with pytest.raises(kind):
            ask()
    client.offsets = {0: 3, 1: failed(code)}
    with pytest.raises(kind, match="offsets of topic events: of the broker"):
        events.ends()
    client.errors = {"events": KafkaError(code, "of the broker")}
    with pytest.raises(kind, match="topic events cannot be described: of the broker"):
        events.state(1)
    client.description = client.settings["events"] = failed(code)
    with pytest.raises(kind, match="topic events cannot be described"):
        events.state(0)
    with pytest.raises(kind, match="settings of topic events") as refused:
        events.settings()
    assert ("DESCRIBE_CONFIGS on topic events" in str(refused.value)) == (code == FORBIDDEN)


def test_a_topic_without_partitions_is_not_shown_yet(client: Client) -> None:
    client.topics["events"] = []
    with pytest.raises(Transient, match="topic events: the broker does not show it"):
        KafkaTopic(config(), "events").ends()


def test_another_topic_is_asked_about_over_the_same_connections(client: Client) -> None:
    client.settings = {"events": {"retention.ms": "5"}, "predictions": {"retention.ms": "7", "told": None}}
    events = KafkaTopic(config(), "events")
    assert events.beside("predictions").settings() == {"retention.ms": "7"}
    assert events.settings() == {"retention.ms": "5"}


@pytest.mark.parametrize(("cluster_id", "is_mock"), [("c", False), (f"{MOCK_CLUSTER}x", True)])
def test_whether_a_cluster_is_a_mock_is_asked_once(client: Client, cluster_id: str, is_mock: bool) -> None:
    client.cluster_id = cluster_id
    events = KafkaTopic(config(), "events")
    assert [events.is_mock, events.is_mock] == [is_mock] * 2
    assert len(client.timeouts) == 1


# --- topics of a start --------------------------------------------------------------------------------------------


def test_a_topic_that_is_not_shown_to_us_is_not_taken_for_missing(client: Client) -> None:
    client.errors = {"predictions": KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)}
    assert KafkaAdmin(config()).missing(["events", "predictions"]) == ["predictions"]
    client.errors = {"predictions": KafkaError(FORBIDDEN)}
    with pytest.raises(Fatal, match="DESCRIBE on topic predictions"):
        KafkaAdmin(config()).missing(["events", "predictions"])


@pytest.mark.parametrize(("code", "kind"), [*FAILURES, (OTHER, Fatal)])
def test_a_start_needs_to_know_its_topics(client: Client, code: int, kind: type[WorkerError]) -> None:
    client.description = failed(code)
    for ask in (lambda of: of.facts("events"), lambda of: of.lacking({"events": "READ"})):
        with pytest.raises(kind, match="topic events cannot be described: of the broker") as failure:
            ask(KafkaAdmin(config()))
        assert ("DESCRIBE on topic events" in str(failure.value)) == (code == FORBIDDEN)


def test_a_topic_of_a_mock_cluster_goes_by_the_cluster(client: Client) -> None:
    assert KafkaAdmin(config()).facts("events") == TopicState("a-b_c", 2, {})
    client.cluster_id, client.description = f"{MOCK_CLUSTER}x", failed(AWAY)
    client.topics["events"] = [1, 1, 1]
    assert KafkaAdmin(config()).facts("events") == TopicState(f"{MOCK_CLUSTER}x", 3, {})
    assert KafkaAdmin(config()).max_message_bytes(["events"]) == DEFAULT_MESSAGE_BYTES


@pytest.mark.parametrize(
    ("codes", "kind", "timeouts"),
    [
        ([AWAY], None, 2),
        ([AWAY, AWAY], Unanswered, 2),
        # Further waiting changes nothing.
        ([KafkaError._AUTHENTICATION], Fatal, 1),
    ],
)
def test_a_broker_that_does_not_answer_at_once_has_more_time(
    client: Client, codes: list[int], kind: type[WorkerError] | None, timeouts: int
) -> None:
    client.cluster = [failed(code) for code in codes]
    if kind is None:
        assert KafkaAdmin(config()).missing(["events"]) == []
    else:
        with pytest.raises(kind, match=r"no broker answers at kafka\.bootstrap\.servers="):
            KafkaAdmin(config()).missing(["events"])
    assert client.timeouts == [admin.FIRST_CALL_S, admin.CALL_S][:timeouts]


def test_rights_that_the_broker_does_not_tell_of_are_not_lacking(client: Client) -> None:
    of_admin, needs = KafkaAdmin(config()), {"events": "READ", "predictions": "WRITE"}
    assert of_admin.lacking(needs) == []
    client.description.authorized_operations = [AclOperation.READ, AclOperation.DESCRIBE]
    assert of_admin.lacking(needs) == ["WRITE on topic predictions"]
    client.cluster_id = MOCK_CLUSTER
    assert of_admin.lacking(needs) == []


def test_a_record_has_to_fit_all_topics_as_far_as_the_broker_tells(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def room() -> int:
        caplog.clear()
        return KafkaAdmin(config()).max_message_bytes(["a", "b"])

    client.settings = {"a": {"max.message.bytes": "7000"}, "b": {"max.message.bytes": "9000"}}
    assert (room(), caplog.messages) == (7000, [])
    client.settings["a"] = {"max.message.bytes": str(DEFAULT_MESSAGE_BYTES + 1)}
    client.settings["b"] = {}
    assert (room(), len(caplog.messages)) == (DEFAULT_MESSAGE_BYTES, 1)
    client.settings["b"] = {"max.message.bytes": None}
    assert (room(), len(caplog.messages)) == (DEFAULT_MESSAGE_BYTES, 1)
    client.settings["b"] = failed(FORBIDDEN)
    assert room() == DEFAULT_MESSAGE_BYTES
    assert "DESCRIBE_CONFIGS on topic b" in caplog.text
    client.settings["b"] = failed(AWAY)
    with pytest.raises(Unanswered):
        room()


def test_a_topic_that_somebody_else_makes_at_the_same_moment_is_as_good(client: Client) -> None:
    client.creations = {"predictions": failed(KafkaError.TOPIC_ALREADY_EXISTS)}
    KafkaAdmin(config()).create(["predictions"], 3, {"cleanup.policy": "delete"})
    [made] = client.created
    assert (made.topic, made.num_partitions, made.config) == ("predictions", 3, {"cleanup.policy": "delete"})
    KafkaAdmin(config()).create([], 3)
    client.creations = {"predictions": failed(FORBIDDEN)}
    with pytest.raises(Fatal, match="CREATE on topic predictions"):
        KafkaAdmin(config()).create(["predictions"], 3)


def test_topics_that_were_made_are_waited_for_until_the_broker_shows_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "CALL_S", 0.2)
    shown = client.list_topics

    def late(name: str | None = None, timeout: float = 0) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions={})})

    monkeypatch.setattr(client, "list_topics", late)
    with pytest.raises(Fatal, match="topics predictions were made, but the broker does not show them"):
        KafkaAdmin(config()).create(["predictions"], 1)
    answers = [late, late, shown]
    monkeypatch.setattr(client, "list_topics", lambda *of, **options: answers.pop(0)(*of, **options))
    KafkaAdmin(config()).create(["predictions"], 1)
    assert answers == []


# --- the internal topic, and a group ------------------------------------------------------------------------------


def test_the_internal_topic_is_kept_as_the_input_is(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    name = repartition.internal_topic(config())
    as_the_input = {"retention.ms": "5", "max.message.bytes": "6"}
    client.settings["events"] = {**as_the_input, "cleanup.policy": "compact", "retention.bytes": None}
    assert make_internal_topic(KafkaAdmin(config()), config())
    [made] = client.created
    assert (made.topic, made.num_partitions, made.config) == (name, 2, {**internal._OWN, **as_the_input})
    assert not make_internal_topic(KafkaAdmin(config()), config()), "it is there"

    del client.topics[name]
    client.settings["events"] = failed(FORBIDDEN)
    assert make_internal_topic(KafkaAdmin(config()), config())
    assert client.created[-1].config == internal._OWN
    assert "the internal topic gets the broker's defaults" in caplog.text


def test_an_internal_topic_that_cannot_be_made_says_what_to_do_and_a_broker_that_is_away_is_waited_for(
    client: Client,
) -> None:
    name = repartition.internal_topic(config())

    def make(of_input: Any, of_topic: KafkaException | None) -> None:
        client.topics.pop(name, None)
        client.settings["events"], client.creations[name] = of_input, of_topic
        make_internal_topic(KafkaAdmin(config()), config())

    with pytest.raises(Fatal, match=r"make it beforehand with 2 partitions and cleanup\.policy=delete"):
        make({}, failed(FORBIDDEN))
    for of_input, of_topic in (({}, failed(AWAY)), (failed(AWAY), None)):
        with pytest.raises(Unanswered):
            make(of_input, of_topic)


@pytest.mark.parametrize(
    ("name", "state", "has_members"),
    [
        ("g", ConsumerGroupState.STABLE, True),
        ("g", ConsumerGroupState.PREPARING_REBALANCING, True),
        ("g", ConsumerGroupState.EMPTY, False),
        ("g", ConsumerGroupState.DEAD, False),
        ("another", ConsumerGroupState.STABLE, False),
    ],
)
def test_whether_anybody_is_in_a_group(client: Client, name: str, state: ConsumerGroupState, has_members: bool) -> None:
    of_group = KafkaGroup(config())
    named = of_group.name if name == "g" else name
    client.description = SimpleNamespace(errors=[], valid=[SimpleNamespace(group_id=named, state=state)])
    assert of_group.has_members() == has_members


@pytest.mark.parametrize(("code", "kind"), [(KafkaError.GROUP_AUTHORIZATION_FAILED, Fatal), (AWAY, Unanswered)])
@pytest.mark.parametrize("of_a_broker", [True, False])
def test_a_group_that_cannot_be_looked_at_is_not_taken_for_empty(
    client: Client, code: int, kind: type[WorkerError], of_a_broker: bool
) -> None:
    client.description = failed(code)
    if of_a_broker:
        client.description = SimpleNamespace(errors=[KafkaError(code)], valid=[])
    with pytest.raises(kind, match=r"group .* cannot be looked at"):
        KafkaGroup(config()).has_members()
