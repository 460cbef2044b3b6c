"""Where a run with an end ends (`run --until`), and which partitions of the topic it works off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from worker.adapters.kafka import KafkaTopic
from worker.base.errors import ConfigError
from worker.base.log import Log
from worker.base.ports import ObjectStore, TopicState
from worker.base.retry import Retry
from worker.config import Config
from worker.preflight import known_partitions

_log = Log(__name__)

Until: TypeAlias = Literal["end"] | Mapping[int, int] | None
"""Where a run ends: at the ends of all partitions as they are now, at offsets of some, or never by itself."""


def ends_of(until: Until, topic: KafkaTopic, partitions: int, start: Retry) -> Mapping[int, int] | None:
    """Where the run ends. Raises ConfigError for a partition that is not there, and never read."""
    if until == "end":
        found = start.ask("ends of the topic", topic.ends)
        return {number: found[number] for number in range(partitions)}
    strange = sorted(number for number in until or () if number >= partitions)
    if strange:
        raise ConfigError(
            f"--until names partitions {strange}, and this run reads 0 to {partitions - 1} of topic {topic.name}",
            "Name some of those, or take `end` for all of them",
        )
    if until is not None and not start.ask("broker", lambda: topic.is_mock):
        _warn_of_ends_ahead(until, start.ask("ends of the topic", topic.ends), topic.name)
    return until


def _warn_of_ends_ahead(until: Mapping[int, int], now: Mapping[int, int], topic: str) -> None:
    """It may be meant; or a number is mistyped, and the run never ends."""
    ahead = {number: end for number, end in sorted(until.items()) if end > now[number]}
    if ahead:
        shown = ", ".join(f"partition {n} ends at {now[n]}, the run at {end}" for n, end in ahead.items())
        _log.warning(
            "end-ahead",
            f"topic {topic} has not come to where this run ends, which waits for the records: {shown}",
            hint="`--until end` takes the ends as they are",
        )


def known_part(config: Config, facts: TopicState, store: ObjectStore) -> TopicState:
    """The topic as the models know it, for a run that works it off: partitions that were added since are left alone.

    So `reshard` can take along what all other runs refuse to go on with.
    """
    known = known_partitions(config, facts, store)
    if known is None or known >= facts.partitions or config.input.on_repartition != "fail":
        return facts
    topic, found = config.input.topic, facts.partitions
    _log.warning(
        "partitions-added", f"topic {topic} has {found} partitions, this run reads the {known} that its models know"
    )
    return replace(facts, partitions=known)
