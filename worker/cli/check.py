"""`check` beyond the file: make missing topics, and try at the broker and the store what a worker will do there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from worker.checks import Finding, examine, probe
from worker.config import Config, repartition
from worker.errors import WorkerError
from worker.kafka import KafkaAdmin, KafkaTopic, make_internal_topic
from worker.kafka.registry import open_registry
from worker.ports import ObjectStore
from worker.store import open_store


def create_topics(config: Config, partitions: int) -> list[str]:
    """Make the topics that are missing; returns a sentence for each of them. Raises WorkerError.

    A new input topic gets `partitions` partitions, the other two get as many as the input topic has.
    """
    admin = KafkaAdmin(config)
    source = config.input.topic
    absent = admin.missing(_topics(config))
    if source in absent:
        admin.create([source], partitions)
    partitions = admin.facts(source).partitions
    others = [topic for topic in absent if topic != source]
    admin.create(others, partitions)
    if config.input.repartition and make_internal_topic(admin, config):
        absent.append(repartition.internal_topic(config))
    return [f"topic {topic}: made with {partitions} partitions" for topic in absent]


def connect(config: Config) -> Iterator[Finding]:
    """Finding by finding, what a worker would meet at its start. Raises ConfigError as it would."""
    topics = list(_try_broker(config))
    yield from topics
    store = open_store(config.checkpoint.url)
    yield _tried(lambda: probe(store, config.checkpoint.url))
    if all(finding.level == "ok" for finding in topics):
        taken = repartition.of_worker(config) if config.input.repartition else config
        yield from _try_setting(taken, store)
    registry = open_registry(config)
    if registry is not None:
        yield _tried(lambda: Finding("ok", f"schema registry {config.schema_registry.url}: {registry.probe()}"))


def _topics(config: Config) -> list[str]:
    return [config.input.topic, config.output.topic, config.dead_letter.topic]


def _try_broker(config: Config) -> Iterator[Finding]:
    admin, topics = KafkaAdmin(config), _topics(config)
    if config.input.repartition:
        topics.append(repartition.internal_topic(config))
    try:
        absent = admin.missing(topics)
    except WorkerError as error:
        yield Finding("failed", str(error))
        return
    yield Finding("ok", f"broker {config.kafka['bootstrap.servers']}: answers")
    for topic in topics:
        if topic in absent:
            yield Finding("failed", f"topic {topic}: is missing; --create-topics makes it")
            continue
        try:
            facts = admin.facts(topic)
        except WorkerError as error:
            yield Finding("failed", str(error))
        else:
            yield Finding("ok", f"topic {topic}: {facts.partitions} partitions, id {facts.topic_id}")


def _try_setting(config: Config, store: ObjectStore) -> Iterator[Finding]:
    """The settings of the topics and the checkpoints, as far as there is an input by now."""
    try:
        topic = KafkaTopic(config, config.input.topic)
        state = None if topic.is_mock else topic.ask(0).result()
    except WorkerError:
        return  # What does not answer, or is not allowed, has been told.
    if state is not None:
        yield from examine(config, topic, state, store)


def _tried(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except WorkerError as error:
        return Finding("failed", str(error))
