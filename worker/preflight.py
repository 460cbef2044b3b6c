"""What start-up makes sure of, for `run` and for `check --connect`: the topics, the brokers and the store are such that
the guarantees hold.

What the broker does not tell us is a warning that names the missing permission: the worker may run all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from worker.adapters.kafka import KafkaTopic, Offsets
from worker.adapters.kafka.topic import CLIENT_VERSION
from worker.base.errors import AlreadyExists, Fatal, WorkerError
from worker.base.ports import ObjectStore, TopicState
from worker.base.refusals import compacted_input, partitions_added, topic_recreated
from worker.checkpoint import History
from worker.checkpoint.siblings import of_another_topic, of_any_partition
from worker.config import Config, history_of, repartition
from worker.config.values import mask_url

DOWNTIME_S = 3600.0
"""Longest time that all workers may be down without a gap, to which retention should leave room."""
CADENCES = 10
"""And so many checkpoints may fail in a row."""
NO_LIMIT = 2**63 - 1
"""Of the age of a record, as brokers have it."""
_TIME_LIMITS = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
_PROBE_FOLDER = "probe"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Literal["ok", "warning", "failed"]
    sentence: str


def examine(config: Config, source: KafkaTopic, state: TopicState, store: ObjectStore | None) -> Iterator[Finding]:
    """All findings on the topics, of which `source` is the input as in `state`, the brokers and the checkpoints.

    There are none on the checkpoints without a store: of one that does not work it is said once that it does not.
    """
    of_source: dict[str, str] = {}

    def on_input() -> list[Finding]:
        of_source.update(source.settings())
        return of_input(config, of_source)

    yield from _or_warning(on_input)
    for output in (config.output.topic, config.dead_letter.topic):
        yield from _or_warning(partial(_on_output, source.beside(output), of_source))
    if config.kafka.get("group.protocol") == "consumer":
        yield from _or_warning(lambda: [of_protocol(source.broker_settings())])
    if store is not None:
        yield from _or_warning(lambda: [of_checkpoints(config, state, store)])


def _on_output(topic: KafkaTopic, of_source: Mapping[str, str]) -> list[Finding]:
    return of_output(topic.name, topic.settings(), topic.replicas(), of_source)


def _or_warning(look: Callable[[], list[Finding]]) -> list[Finding]:
    """What is found; a warning where the broker or the store does not tell."""
    try:
        return look()
    except WorkerError as error:
        return [Finding("warning", str(error))]


def of_input(config: Config, settings: Mapping[str, str]) -> list[Finding]:
    """Whether what the input keeps, and for how long, allows to replay it."""
    topic = config.input.topic
    if compacted := compacted_input(topic, settings.get("cleanup.policy", "")):
        return [Finding("failed", compacted)]
    interval_s = config.checkpoint.interval_s
    needed_s = CADENCES * (interval_s + config.checkpoint.recovery_budget_s) + DOWNTIME_S
    why = (
        f"{CADENCES} times checkpoint.interval={interval_s:g} s and recovery_budget="
        f"{config.checkpoint.recovery_budget_s:g} s, and an hour of downtime, make {needed_s:g} s"
    )
    kept_ms, kept_bytes = int(settings.get("retention.ms", -1)), int(settings.get("retention.bytes", -1))
    findings = []
    if 0 <= kept_ms < interval_s * 1000:
        sentence = f"retention.ms={kept_ms} is less than checkpoint.interval={interval_s:g} s: a replay will find a gap"
        return [Finding("failed", f"short-retention: topic {topic}: {sentence}")]
    if 0 <= kept_ms < needed_s * 1000:
        sentence = f"retention.ms={kept_ms} leaves little room for a replay: {why}"
        findings.append(Finding("warning", f"topic {topic}: {sentence}"))
    if kept_bytes >= 0:
        rate = kept_bytes / needed_s
        sentence = f"retention.bytes={kept_bytes} is enough for at most {rate:,.0f} bytes/s in each partition: {why}"
        findings.append(Finding("warning", f"topic {topic}: {sentence}"))
    kept = "for ever" if kept_ms < 0 else f"for {kept_ms / 1000:g} s"
    return findings or [Finding("ok", f"topic {topic}: records are kept {kept}, and not compacted")]


def of_output(topic: str, settings: Mapping[str, str], replicas: int, of_source: Mapping[str, str]) -> list[Finding]:
    """Whether what was acknowledged outlives a broker, and what the topic deletes of it by itself.

    `of_source` are the settings of the input, as far as they are known.
    """
    findings, policy = [_of_replicas(topic, settings, replicas)], settings.get("cleanup.policy", "delete").split(",")
    if "compact" in policy:
        # The last record of each key may be all that somebody wants: who says both policies has thought of it.
        level: Literal["warning", "failed"]
        level, code = ("warning", "") if "delete" in policy else ("failed", "compacted-output: ")
        sentence = (
            f"{code}topic {topic} has cleanup.policy={','.join(policy)}: of records with the same key the last one "
            "alone stays, and one without a key is refused. Set cleanup.policy=delete"
            + (", or compact,delete where the last one of each key is all that is wanted" if code else "")
        )
        findings.append(Finding(level, sentence))
    kept_ms, source_ms = int(settings.get("retention.ms", -1)), int(of_source.get("retention.ms", 0))
    by_event = settings.get("message.timestamp.type", "CreateTime") == "CreateTime"
    if "delete" in policy and by_event and kept_ms >= 0 and (source_ms < 0 or kept_ms < source_ms):
        sentence = (
            f"topic {topic}: retention.ms={kept_ms}, and the input's is {source_ms}: records have the time of the "
            "event that they are about, so those about older events are deleted as soon as they are there. Keep them "
            "for as long as the input (retention.ms), or by when they come (message.timestamp.type=LogAppendTime)"
        )
        findings.append(Finding("warning", sentence))
    if by_event and of_source.get("message.timestamp.type", "CreateTime") == "CreateTime":
        findings += _of_time_limits(topic, settings, of_source)
    return findings


def _of_time_limits(topic: str, settings: Mapping[str, str], of_source: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the topic takes what has the time of a record of the input, whatever that is."""
    for name in _TIME_LIMITS:
        if int(settings.get(name, NO_LIMIT)) < int(of_source.get(name, 0)):
            sentence = (
                f"topic {topic}: {name}={settings[name]}, and the input's is {of_source[name]}: records have the time "
                "of the event that they are about, and one that the input takes and this topic does not stops its "
                f"partition (output-refused). Have this topic take as much ({name}), or go by when records come "
                "(message.timestamp.type=LogAppendTime)"
            )
            yield Finding("warning", sentence)


def _of_replicas(topic: str, settings: Mapping[str, str], replicas: int) -> Finding:
    in_sync = int(settings.get("min.insync.replicas", 1))
    sentence = f"topic {topic}: {replicas} replicas, min.insync.replicas={in_sync}"
    if in_sync > replicas:
        found = f"{sentence}: recent brokers go by {replicas} all the same, older ones write nothing to it"
        return Finding("warning", found)
    if replicas > 1 and in_sync == 1:
        return Finding("warning", f"{sentence}: one broker that fails can take acknowledged records along; make it 2")
    return Finding("ok", sentence)


def of_protocol(broker_settings: Mapping[str, str]) -> Finding:
    """Whether group.protocol: consumer is there, in a broker and a client that have it without its early faults."""
    protocols = broker_settings.get("group.coordinator.rebalance.protocols", "")
    # Brokers before 4.0, where it was a preview, still have a protocol version to be told.
    if "consumer" not in protocols.split(",") or "inter.broker.protocol.version" in broker_settings:
        return Finding("failed", "group.protocol: consumer needs brokers of Kafka 4.0 or later; take classic")
    return Finding("ok", f"group.protocol: consumer, with {CLIENT_VERSION}")


def of_forwarder(config: Config, partitions: int) -> list[Finding]:
    """Whether the forwarder of `input.repartition` goes on where it was, or begins with what is nobody's yet.

    `partitions` of the input, whose internal topic is there. Raises WorkerError.
    """
    own, topic = repartition.of_forwarder(config), config.input.topic
    internal = KafkaTopic(own, own.output.topic)
    if internal.is_mock:
        return []
    group, of_worker = own.kafka["group.id"], config.kafka["group.id"]
    # In this order: an offset is committed before the first record is forwarded.
    has_forwarded = any(internal.ends().values())
    if _has_committed(own, partitions):
        return [Finding("ok", f"group {group}: forwards {topic} from where it was")]
    if has_forwarded:
        sentence = (
            f"group {group} has no committed offsets on {topic} though its records are in {own.output.topic}: they "
            "have expired or were deleted, and to forward all again would double them. Commit for each partition the "
            "offset after the last header origin-offset there (kafka-consumer-groups --reset-offsets), or begin anew "
            "under another kafka.group.id"
        )
        return [Finding("failed", sentence)]
    if _has_committed(config, partitions):
        sentence = (
            f"group {of_worker} has worked off {topic} itself, without input.repartition: forwarded from input.start "
            "on, its records would be predicted once more, or left out, by models that know nothing of them. Take "
            "another kafka.group.id; or, where that is meant, delete the group's offsets of the topic while no worker "
            "runs (kafka-consumer-groups --delete-offsets)"
        )
        return [Finding("failed", sentence)]
    return [Finding("ok", f"group {group}: begins to forward {topic} (input.start: {config.input.start})")]


def of_group(config: Config, partitions: int) -> list[Finding]:
    """Whether the group of a worker without `input.repartition` has worked with it before.

    `partitions` of the input. Raises WorkerError where the broker does not tell yet; who may not ask of the internal
    topic is taken for one that has none.
    """
    of_worker = repartition.of_worker(replace(config, input=replace(config.input, repartition=True)))
    if repartition.problem_of_name(config) is not None or KafkaTopic(config, config.input.topic).is_mock:
        return []
    try:
        if not _has_committed(of_worker, partitions) or _has_committed(config, partitions):
            return []
    except Fatal:
        return []
    group, topic, internal = config.kafka["group.id"], config.input.topic, of_worker.input.topic
    sentence = (
        f"group {group} has worked off {topic} through {internal}, with input.repartition: without it, from "
        "input.start on, its records would be predicted once more, or left out, by models that know nothing of them. "
        "Set input.repartition: true, or take another kafka.group.id; or, where that is meant, delete the group's "
        f"offsets of {internal} while no worker runs (kafka-consumer-groups --delete-offsets)"
    )
    return [Finding("failed", sentence)]


def _has_committed(config: Config, partitions: int) -> bool:
    """Whether the group of a configuration has been anywhere in its topic. Raises WorkerError."""
    committed = Offsets(config).committed(range(partitions))
    return any(offset is not None for offset in committed.values())


def of_checkpoints(config: Config, state: TopicState, store: ObjectStore) -> Finding:
    """Whether the checkpoints are of this topic, with as many partitions as it has now."""
    topic, wanted = config.input.topic, _history(config, state)
    found = of_any_partition(store, wanted)
    if found is None:
        former = of_another_topic(store, wanted)
        if former is not None:
            reason = topic_recreated(topic, former.location.topic_id, state.topic_id)
            return Finding("failed", f"topic-recreated: {reason}")
        return Finding("ok", f"lineage {config.checkpoint.lineage}: no checkpoints yet")
    if found.partitions not in (None, state.partitions):
        if config.input.on_repartition == "fail":
            return Finding("failed", f"partitions-added: {partitions_added(topic, found.partitions, state.partitions)}")
        return Finding(
            "warning",
            f"partitions-added: topic {topic} has {state.partitions} partitions instead of {found.partitions}: models "
            "of keys that moved start anew (input.on_repartition: new-models)",
        )
    return Finding("ok", f"lineage {config.checkpoint.lineage}: checkpoints of this topic")


def known_partitions(config: Config, state: TopicState, store: ObjectStore) -> int | None:
    """How many the topic had when its newest checkpoint was made; None where that is not known."""
    found = of_any_partition(store, _history(config, state))
    return None if found is None else found.partitions


def _history(config: Config, state: TopicState) -> History:
    return History(*history_of(config), state.topic_id)


def probe(store: ObjectStore, url: str) -> Finding:
    """Try what checkpoints rely on. Raises WorkerError, Transient where the store does not answer."""
    url, name = mask_url(url), f"{_PROBE_FOLDER}/{uuid.uuid4().hex}"
    try:
        _try(store, name)
    except WorkerError as error:
        with suppress(WorkerError):
            store.delete(name)
        raise type(error)(f"store {url}: {error}") from error
    try:
        store.delete(name)
    except WorkerError as error:
        return Finding("warning", f"store {url}: objects cannot be deleted, so old checkpoints will stay: {error}")
    sentence = "objects can be created, are never overwritten, and can be read, listed and deleted"
    return Finding("ok", f"store {url}: {sentence}")


def _try(store: ObjectStore, name: str) -> None:
    store.list(_PROBE_FOLDER)
    store.create(name, b"probe")
    store.create(name, b"probe")
    with suppress(AlreadyExists):
        store.create(name, b"other")
        raise Fatal("it overwrites objects; the worker needs one that honours If-None-Match")
    if store.read(name) != b"probe":
        raise Fatal("an object was read back with other content")
    if name not in store.list(_PROBE_FOLDER):
        raise Fatal("an object that was created is not listed")
