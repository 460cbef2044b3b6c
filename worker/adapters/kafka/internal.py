"""The internal topic of `input.repartition`, made where it is missing."""

from __future__ import annotations

from collections.abc import Mapping

from worker.adapters.kafka.admin import KafkaAdmin
from worker.adapters.kafka.topic import KafkaTopic
from worker.base.errors import Fatal, Unanswered, WorkerError
from worker.base.log import Log
from worker.config import Config, repartition

_log = Log(__name__)

_AS_THE_INPUT = (
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "retention.bytes",
    "retention.ms",
)
_OWN = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}


def make_internal_topic(admin: KafkaAdmin, config: Config) -> bool:
    """Make it if it is missing, with as many partitions as the input topic; True where it was. Raises WorkerError.

    It is kept for as long as the input: what a worker replays must be there, and nobody else tells when it is not
    needed any more. Keys stay where they are when the input gets more partitions later.
    """
    topic = repartition.internal_topic(config)
    if not admin.missing([topic]):
        return False
    partitions = admin.facts(config.input.topic).partitions
    try:
        admin.create([topic], partitions, {**_OWN, **_settings(config)})
    except Unanswered:
        raise
    except WorkerError as error:
        raise Fatal(
            f"{error}. input.repartition needs this topic: let the worker's user make it, or make it beforehand with "
            f"{partitions} partitions and cleanup.policy=delete"
        ) from error
    _log.info(
        "topic-made", f"made topic {topic} with {partitions} partitions, kept for as long as {config.input.topic}"
    )
    return True


def _settings(config: Config) -> Mapping[str, str]:
    """What it has in common with the input topic."""
    of_input = KafkaTopic(config, config.input.topic)
    if of_input.is_mock:
        return {}
    try:
        found = of_input.settings()
    except Unanswered:
        raise
    except WorkerError as error:
        _log.warning("broker-defaults", "the internal topic gets the broker's defaults", detail=error)
        return {}
    return {name: found[name] for name in _AS_THE_INPUT if name in found}
