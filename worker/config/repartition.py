"""With `input.repartition` events pass through an internal topic that is keyed by model: who reads and writes what.

    input.topic --- forwarder, group <group.id>-repartition ---> <group.id>--<input.topic>-repartition --- worker --->

The forwarder and the worker are given configurations of their own, so that neither knows of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from worker.config.schema import Config
from worker.config.values import topic_name

_FIELD = "field:"
_SUFFIX = "-repartition"
_NO_NAMES = ("features", "label")
"""Fields of an event that are no model's name: one is no text, by the other a model would see one label."""
_BETWEEN = "--"
"""Between group and topic: once in their name, it tells where the one ends and the other begins. With a single dash the
group a of the topic b-c would share a topic with the group a-b of the topic c, and learn from its events."""


def key_field(config: Config) -> str | None:
    """Name of the field of the value that holds the model key; None where the record's key is it."""
    model_key = config.input.model_key
    return model_key.removeprefix(_FIELD) if model_key.startswith(_FIELD) else None


def internal_topic(config: Config) -> str:
    """Name of the topic that is keyed by model."""
    return f"{config.kafka['group.id']}{_BETWEEN}{config.input.topic}{_SUFFIX}"


def of_worker(config: Config) -> Config:
    """What the worker goes by: the internal topic is its input.

    It is read from its beginning, whatever `input.start` says: the forwarder has chosen where to start already.
    """
    return replace(config, input=replace(config.input, topic=internal_topic(config), start="earliest"))


def of_forwarder(config: Config) -> Config:
    """What the forwarder goes by: the internal topic is its output, and it has a consumer group of its own.

    It forwards exactly once whatever `delivery` says: what comes twice would be learned twice.
    """
    group = f"{config.kafka['group.id']}{_SUFFIX}"
    return replace(
        config,
        output=replace(config.output, topic=internal_topic(config)),
        delivery="exactly-once",
        kafka=MappingProxyType({**config.kafka, "group.id": group}),
    )


def forwarder_id(transactional_id: str) -> str:
    """The forwarder's transactional id beside the worker's; no worker has it, whose name has no colon."""
    return f"{transactional_id}:repartition"


def problems(config: Config) -> Iterator[tuple[str, str]]:
    """What does not go together, as the key that is to blame and the problem."""
    if key_field(config) is not None:
        yield from _field_problems(config)
    if config.input.repartition:
        internal = internal_topic(config)
        if (problem := problem_of_name(config)) is not None:
            yield "input.repartition", problem
        if internal in (config.output.topic, config.dead_letter.topic):
            yield "input.repartition", f"expected a topic of its own, found {internal} at another key too"


def problem_of_name(config: Config) -> str | None:
    """Why group and topic make no name of an internal topic, None where they do."""
    internal = internal_topic(config)
    try:
        topic_name().parse(internal)
    except ValueError:
        return f"expected kafka.group.id and input.topic to make a topic name, found {internal}"
    if internal.find(_BETWEEN) != internal.rfind(_BETWEEN):
        expected = f"kafka.group.id and input.topic to be told apart in it, without {_BETWEEN} of their own"
        return f"expected {expected}, found {internal}"
    return None


def _field_problems(config: Config) -> Iterator[tuple[str, str]]:
    path = "input.model_key"
    if key_field(config) in _NO_NAMES:
        yield path, f"expected a field beside features and label, found {config.input.model_key}: it names no model"
    if not config.input.repartition:
        reason = "all events of a model must come through one partition, and those of the topic go by the records' keys"
        yield path, f"expected input.repartition: true beside it: {reason}"
    if config.input.codec not in ("json", "msgpack"):
        yield path, f"expected input.codec: json or msgpack beside it, found {config.input.codec}"
    if config.input.tombstones == "reset":
        yield path, "expected input.tombstones: dead-letter beside it: a record without a value has no field"
    if config.models.null_key is not None:
        reason = "a record without that field is a dead letter"
        yield "models.null_key", f"expected null beside {path}: {config.input.model_key}: {reason}"
