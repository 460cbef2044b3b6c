"""`check` beyond the file: make missing topics, and try at the broker and the store what a worker will do there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress

from worker.config import Config
from worker.config.values import mask_url
from worker.errors import AlreadyExists, WorkerError
from worker.kafka import KafkaAdmin
from worker.kafka.errors import CALL_S
from worker.ports import ObjectStore
from worker.store import open_store

_PROBE_FOLDER = "probe"


def create_topics(config: Config, partitions: int) -> list[str]:
    """Make the topics that are missing; returns a sentence for each of them. Raises WorkerError.

    A new input topic gets `partitions` partitions, the other two get as many as the input topic has.
    """
    admin = KafkaAdmin(config)
    source = config.input.topic
    absent = admin.missing(_topics(config))
    if source in absent:
        admin.create([source], partitions)
        _await_topics(admin, [source])
    partitions = admin.facts(source).partitions
    others = [topic for topic in absent if topic != source]
    admin.create(others, partitions)
    _await_topics(admin, others)
    return [f"topic {topic}: made with {partitions} partitions" for topic in absent]


def connect(config: Config) -> Iterator[tuple[bool, str]]:
    """Thing by thing, whether it works and a sentence about it. Raises ConfigError, as a worker would at its start."""
    yield from _try_broker(config)
    yield _try_store(config)


def _topics(config: Config) -> list[str]:
    return [config.input.topic, config.output.topic, config.dead_letter.topic]


def _await_topics(admin: KafkaAdmin, topics: list[str]) -> None:
    """The controller has made them; the broker that is asked next may not have heard of it yet."""
    deadline = time.monotonic() + CALL_S
    while admin.missing(topics):
        if time.monotonic() >= deadline:
            raise WorkerError(f"topics {', '.join(topics)} were made, but the broker does not show them")
        time.sleep(0.05)


def _try_broker(config: Config) -> Iterator[tuple[bool, str]]:
    admin = KafkaAdmin(config)
    try:
        absent = admin.missing(_topics(config))
    except WorkerError as error:
        yield False, str(error)
        return
    yield True, f"broker {config.kafka['bootstrap.servers']}: answers"
    for topic in _topics(config):
        if topic in absent:
            yield False, f"topic {topic}: is missing; --create-topics makes it"
            continue
        try:
            facts = admin.facts(topic)
        except WorkerError as error:
            yield False, str(error)
        else:
            yield True, f"topic {topic}: {facts.partitions} partitions, id {facts.topic_id}"


def _try_store(config: Config) -> tuple[bool, str]:
    url = mask_url(config.checkpoint.url)
    store = open_store(config.checkpoint.url)
    try:
        _probe(store, f"{_PROBE_FOLDER}/{uuid.uuid4().hex}")
    except WorkerError as error:
        return False, f"store {url}: {error}"
    return True, f"store {url}: objects can be created, are never overwritten, and can be read, listed and deleted"


def _probe(store: ObjectStore, name: str) -> None:
    """What checkpoints rely on. Raises WorkerError."""
    store.list(_PROBE_FOLDER)
    store.create(name, b"probe")
    try:
        store.create(name, b"probe")
        with suppress(AlreadyExists):
            store.create(name, b"other")
            raise WorkerError("it overwrites objects; the worker needs one that honours If-None-Match")
        if store.read(name) != b"probe":
            raise WorkerError("an object was read back with other content")
        if name not in store.list(_PROBE_FOLDER):
            raise WorkerError("an object that was created is not listed")
    finally:
        store.delete(name)
