"""What start-up says of settings that it finds; tests/kafka/test_topic_changes.py looks at real ones."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.support.bench import Bench
from tests.worker.support.fakes import config
from tests.worker.support.stores import DictStore
from worker import preflight as checks
from worker.base.errors import AlreadyExists, Fatal, Transient, WorkerError
from worker.base.ports import TopicState
from worker.base.records import CommittedOffset
from worker.config import Config
from worker.preflight import of_checkpoints, of_input, of_output, of_protocol, probe

WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000), "retention.bytes": "-1"}
PROTOCOLS = "group.coordinator.rebalance.protocols"
SETTINGS: Config = config(interval_s=30.0, recovery_budget_s=10.0)


def levels(settings: dict[str, str]) -> list[str]:
    return [finding.level for finding in of_input(SETTINGS, {**WEEK, **settings})]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["ok"]),
        ({"retention.ms": "-1"}, ["ok"]),
        ({"cleanup.policy": "compact"}, ["failed"]),
        ({"cleanup.policy": "compact,delete"}, ["failed"]),
        ({"cleanup.policy": "delete,compact"}, ["failed"]),
        # 10 times (30 s + 10 s), and an hour.
        ({"retention.ms": "4000000"}, ["ok"]),
        ({"retention.ms": "3999999"}, ["warning"]),
        ({"retention.ms": "30000"}, ["warning"]),
        ({"retention.ms": "29999"}, ["failed"]),
        ({"retention.ms": "0"}, ["failed"]),
        ({"retention.bytes": "1000000000"}, ["warning"]),
        ({"retention.ms": "60000", "retention.bytes": "1000"}, ["warning", "warning"]),
    ],
)
def test_the_input_must_keep_what_a_replay_needs(settings: dict[str, str], expected: list[str]) -> None:
    assert levels(settings) == expected


def test_what_is_said_of_retention_has_its_numbers() -> None:
    [kept], [for_ever] = of_input(SETTINGS, WEEK), of_input(SETTINGS, {**WEEK, "retention.ms": "-1"})
    assert kept.sentence == "topic events: records are kept for 604800 s, and not compacted"
    assert for_ever.sentence == "topic events: records are kept for ever, and not compacted"
    short, small = of_input(SETTINGS, {**WEEK, "retention.ms": "60000", "retention.bytes": "8000000"})
    why = "10 times checkpoint.interval=30 s and recovery_budget=10 s, and an hour of downtime, make 4000 s"
    assert short.sentence == f"topic events: retention.ms=60000 leaves little room for a replay: {why}"
    assert small.sentence == (
        f"topic events: retention.bytes=8000000 is enough for at most 2,000 bytes/s in each partition: {why}"
    )


@pytest.mark.parametrize(
    ("replicas", "in_sync", "level"), [(1, 1, "ok"), (3, 2, "ok"), (3, 1, "warning"), (1, 2, "warning")]
)
def test_outputs_must_outlive_a_broker(replicas: int, in_sync: int, level: str) -> None:
    [finding] = of_output("predictions", {"min.insync.replicas": str(in_sync)}, replicas, WEEK)
    assert finding.level == level
    assert finding.sentence.startswith(f"topic predictions: {replicas} replicas, min.insync.replicas={in_sync}")


DAY_MS = str(24 * 3600 * 1000)
BY_ARRIVAL = {"message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    ("settings", "of_source", "expected"),
    [
        ({}, {}, ["ok"]),
        ({"cleanup.policy": "compact"}, {}, ["ok", "failed"]),
        ({"cleanup.policy": "compact,delete"}, {}, ["ok", "warning"]),
        ({"cleanup.policy": "delete,compact"}, {}, ["ok", "warning"]),
        ({"cleanup.policy": "delete,compact", "retention.ms": DAY_MS}, {}, ["ok", "warning", "warning"]),
        ({"retention.ms": DAY_MS}, {}, ["ok", "warning"]),
        ({"retention.ms": DAY_MS, **BY_ARRIVAL}, {}, ["ok"]),
        ({"retention.ms": DAY_MS}, {"retention.ms": DAY_MS}, ["ok"]),
        ({"retention.ms": "-1"}, {}, ["ok"]),
        ({"retention.ms": "-1"}, {"retention.ms": "-1"}, ["ok"]),
        ({}, {"retention.ms": "-1"}, ["ok", "warning"]),
        # Nothing is deleted by its age where compaction is all there is.
        ({"cleanup.policy": "compact", "retention.ms": DAY_MS}, {}, ["ok", "failed"]),
    ],
)
def test_what_is_published_must_stay(settings: dict[str, str], of_source: dict[str, str], expected: list[str]) -> None:
    found = of_output("predictions", {**WEEK, **settings}, 1, {**WEEK, **of_source})
    assert [finding.level for finding in found] == expected


HOUR, NO_LIMIT = "3600000", str(checks.NO_LIMIT)
AHEAD, BEHIND = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"


@pytest.mark.parametrize(
    ("settings", "of_source", "expected"),
    [
        ({AHEAD: HOUR, BEHIND: NO_LIMIT}, {AHEAD: HOUR, BEHIND: NO_LIMIT}, 0),
        ({AHEAD: HOUR}, {AHEAD: NO_LIMIT}, 1),
        ({AHEAD: HOUR, BEHIND: HOUR}, {AHEAD: NO_LIMIT, BEHIND: DAY_MS}, 2),
        ({AHEAD: NO_LIMIT}, {AHEAD: HOUR}, 0),
        ({AHEAD: HOUR}, {}, 0),
        ({}, {AHEAD: NO_LIMIT}, 0),
        # Which the broker gives them: it refuses none of those.
        ({AHEAD: HOUR, **BY_ARRIVAL}, {AHEAD: NO_LIMIT}, 0),
        # And these have it of the broker, so that they are never far from now.
        ({AHEAD: HOUR}, {AHEAD: NO_LIMIT, **BY_ARRIVAL}, 0),
    ],
)
def test_what_is_published_must_be_taken_whatever_its_time(
    settings: dict[str, str], of_source: dict[str, str], expected: int
) -> None:
    _, *found = of_output("predictions", {**WEEK, **settings}, 1, {**WEEK, **of_source})
    assert [finding.level for finding in found] == ["warning"] * expected
    assert all("message.timestamp." in finding.sentence for finding in found)


def test_what_is_said_of_outputs_names_the_settings() -> None:
    both = {"cleanup.policy": "compact,delete", "retention.ms": DAY_MS}
    _, compacted, short = of_output("predictions", both, 1, {"retention.ms": "-1"})
    assert compacted.sentence.startswith("topic predictions has cleanup.policy=compact,delete: of records with the ")
    assert "retention.ms=86400000, and the input's is -1: " in short.sentence
    [_, refused] = of_output("dead-letters", {"cleanup.policy": "compact"}, 1, {})
    assert refused.sentence.startswith("compacted-output: topic dead-letters has cleanup.policy=compact: ")


def test_outputs_are_looked_at_where_the_input_may_not_be() -> None:
    assert [finding.level for finding in of_output("predictions", {"retention.ms": DAY_MS}, 1, {})] == ["ok"]


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({PROTOCOLS: "classic,consumer,streams"}, "ok"),
        ({PROTOCOLS: "classic"}, "failed"),
        (
            {PROTOCOLS: "classic,consumer", "inter.broker.protocol.version": "3.9"},
            "failed",
        ),
        ({}, "failed"),
    ],
)
def test_the_newer_group_protocol_needs_brokers_that_have_it(settings: dict[str, str], level: str) -> None:
    assert of_protocol(settings).level == level


def test_what_the_broker_does_not_tell_is_a_warning() -> None:
    class Silent:
        def __init__(self, _: Config, topic: str) -> None:
            self.name = topic

        def beside(self, topic: str) -> Silent:
            return Silent(settings, topic)

        def settings(self) -> dict[str, str]:
            raise WorkerError(f"settings of {self.name}: not authorized; needs DESCRIBE_CONFIGS on topic {self.name}")

        def broker_settings(self) -> dict[str, str]:
            raise WorkerError("settings of broker 1: not authorized; needs DESCRIBE_CONFIGS on cluster")

    settings = replace(SETTINGS, kafka={**SETTINGS.kafka, "group.protocol": "consumer"})
    source: Any = Silent(settings, "events")
    found = list(checks.examine(settings, source, TopicState("topic-id", 1, {}), DictStore()))
    assert [(finding.level, finding.sentence.rpartition("needs ")[2]) for finding in found] == [
        ("warning", "DESCRIBE_CONFIGS on topic events"),
        ("warning", "DESCRIBE_CONFIGS on topic predictions"),
        ("warning", "DESCRIBE_CONFIGS on topic dead-letters"),
        ("warning", "DESCRIBE_CONFIGS on cluster"),
        ("ok", "lineage main: no checkpoints yet"),
    ]


@pytest.mark.parametrize(
    ("committed", "group", "levels"),
    [
        ((), "amf", []),
        (("events",), "amf", []),
        (("amf--events-repartition",), "amf", ["failed"]),
        # Where that was meant it has gone on since.
        (("amf--events-repartition", "events"), "amf", []),
        # What is no topic was none before.
        (("a~b--events-repartition",), "a~b", []),
        (Fatal("Topic authorization failed"), "amf", []),
    ],
)
def test_a_group_that_worked_with_input_repartition_does_not_begin_anew_without_it(
    committed: tuple[str, ...] | WorkerError, group: str, levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Offsets:
        def __init__(self, config: Config) -> None:
            self.topic = config.input.topic

        def committed(self, partitions: range) -> dict[int, CommittedOffset | None]:
            if isinstance(committed, WorkerError):
                raise committed
            return dict.fromkeys(partitions) | ({1: CommittedOffset(7)} if self.topic in committed else {})

    monkeypatch.setattr(checks, "Offsets", Offsets)
    monkeypatch.setattr(checks, "KafkaTopic", lambda *_: SimpleNamespace(is_mock=False))
    settings = replace(SETTINGS, kafka={**SETTINGS.kafka, "group.id": group})
    findings = checks.of_group(settings, 3)
    assert [finding.level for finding in findings] == levels
    assert all("group amf has worked off events through amf--events-repartition" in each.sentence for each in findings)


@pytest.mark.parametrize(
    ("forwarder_was", "has_forwarded", "worker_was", "level", "words"),
    [
        (False, False, False, "ok", "begins to forward events (input.start: "),
        (True, True, False, "ok", "forwards events from where it was"),
        # It has found dead letters alone so far, or nothing of what it sent is left.
        (True, False, True, "ok", "forwards events from where it was"),
        (False, True, False, "failed", "to forward all again would double them"),
        (False, True, True, "failed", "to forward all again would double them"),
        (False, False, True, "failed", "group amf has worked off events itself"),
    ],
)
def test_a_forwarder_goes_on_where_it_was_or_begins_with_what_is_nobodys(
    forwarder_was: bool, has_forwarded: bool, worker_was: bool, level: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Offsets:
        def __init__(self, config: Config) -> None:
            self.is_known = worker_was if config.kafka["group.id"] == "amf" else forwarder_was

        def committed(self, partitions: range) -> dict[int, CommittedOffset | None]:
            return dict.fromkeys(partitions) | ({1: CommittedOffset(7)} if self.is_known else {})

    ends = {0: 0, 1: 3 if has_forwarded else 0}
    monkeypatch.setattr(checks, "Offsets", Offsets)
    monkeypatch.setattr(checks, "KafkaTopic", lambda *_: SimpleNamespace(is_mock=False, ends=lambda: ends))
    of_input = replace(SETTINGS.input, repartition=True, model_key="field:shop")
    [found] = checks.of_forwarder(replace(SETTINGS, input=of_input, kafka={**SETTINGS.kafka, "group.id": "amf"}), 2)
    assert found.level == level
    assert words in found.sentence


def test_a_broker_that_does_not_know_the_group_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: object) -> Any:
        raise Transient("the coordinator is loading")

    monkeypatch.setattr(checks, "Offsets", silent)
    monkeypatch.setattr(checks, "KafkaTopic", lambda *_: SimpleNamespace(is_mock=False))
    with pytest.raises(Transient):
        checks.of_group(SETTINGS, 1)


@pytest.mark.parametrize(
    ("state", "on_repartition", "told"),
    [
        (TopicState("topic-id", 2, {}), "fail", ("ok", "lineage main: checkpoints of this topic")),
        (TopicState("topic-id", 3, {}), "fail", ("failed", "partitions-added: topic events has 3 partitions")),
        (TopicState("topic-id", 3, {}), "new-models", ("warning", "partitions-added: topic events has 3 partitions")),
        (TopicState("other", 2, {}), "fail", ("failed", "topic-recreated: topic events has the id other")),
    ],
)
def test_the_checkpoints_must_be_of_this_topic(state: TopicState, on_repartition: str, told: tuple[str, str]) -> None:
    bench = Bench(2)
    bench.feed("a")
    bench.worker().join().turns(2).close()
    settings = replace(bench.config, input=replace(bench.config.input, on_repartition=on_repartition))
    finding = of_checkpoints(settings, state, bench.store)
    assert (finding.level, finding.sentence[: len(told[1])]) == told
    # To take them along is advice for who has not decided yet.
    assert ("amf-worker reshard" in finding.sentence) is (told[0] == "failed" and state.topic_id == "topic-id")


def test_checkpoints_of_another_topic_may_be_those_of_another_cluster() -> None:
    """Then they are in use, and the advice must not be to delete them."""
    bench = Bench(1)
    bench.feed("a")
    bench.worker().join().turns(2).close()
    sentence = of_checkpoints(bench.config, TopicState("other", 1, {}), bench.store).sentence
    assert "If that one was deleted, begin anew" in sentence
    assert "a topic of another cluster that shares this checkpoint.url, " in sentence
    assert sentence.endswith("delete nothing: give each cluster a URL of its own")


class Store(DictStore):
    """Has one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    def create(self, name: str, data: bytes) -> None:
        if self._fault == "overwrites":
            self.objects[name] = data
        elif self._fault == "repeats nothing" and name in self.objects:
            raise AlreadyExists("the object is there")
        else:
            super().create(name, data)

    def read(self, name: str) -> bytes:
        return b"?" if self._fault == "damages" else super().read(name)

    def list(self, prefix: str) -> list[str]:
        if self._fault == "silent":
            raise Transient("no answer")
        return [] if self._fault == "lists late" else super().list(prefix)

    def delete(self, *names: str) -> None:
        if self._fault == "keeps":
            raise WorkerError("AccessDenied")
        super().delete(*names)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("overwrites", "it overwrites objects"),
        # Who had no answer creates the same object again.
        ("repeats nothing", "the object is there"),
        ("damages", "read back with other content"),
        ("lists late", "is not listed"),
    ],
)
def test_a_store_that_checkpoints_cannot_rely_on_is_refused(fault: str, told: str) -> None:
    store = Store(fault)
    with pytest.raises(WorkerError, match=rf"store s3://\*\*\*@host/x: .*{told}"):
        probe(store, "s3://secret@host/x")
    assert store.objects == {}


def test_a_store_that_does_not_answer_may_later() -> None:
    with pytest.raises(Transient, match="no answer"):
        probe(Store("silent"), "file:///x")


def test_a_store_that_nothing_can_be_deleted_from_will_do() -> None:
    assert probe(Store("keeps"), "file:///x").level == "warning"
    good = Store("")
    assert (probe(good, "file:///x").level, good.objects) == ("ok", {})
