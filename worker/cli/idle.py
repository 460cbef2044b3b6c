"""Models that have not learned for long, and how to remove them: a list of keys, and tombstones for the keys of a list.

A list has one key on each line. A key that would not survive that (line breaks, blanks at its ends) is written as a
JSON string, and so is one that looks like a JSON string.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

import msgspec

from worker.adapters.kafka import KafkaAdmin, KafkaPublisher
from worker.base.errors import ConfigError
from worker.base.ports import ObjectStore
from worker.base.records import Reject
from worker.checkpoint import describe
from worker.cli.terminal import Advance, count, size, status
from worker.codec import decode_key
from worker.config import Config


def show_idle(store: ObjectStore, idle_s: float, now_ms: int) -> tuple[int, list[str]]:
    """Print the keys of models that learned nothing in the last `idle_s` seconds of event time, the idlest first.

    What counts is the newest record that any model learned: a topic that stands still makes no model idle. One from
    after `now_ms`, by a producer whose clock is ahead, makes none idle either. Returns how many checkpoints there are,
    and what is damaged.
    """
    found, problems, sizes, last_ms = 0, [], dict[str, int](), dict[str, int]()
    with status("reading checkpoints"):
        for listing in describe(store):
            found += 1
            problems += listing.problems
            for key, entry in listing.newest.models.items() if listing.newest is not None else ():
                # Of a key that several lineages have the newest time counts.
                last_ms[key] = max(last_ms.get(key, -1), entry.summary.get("last_ms", -1))
                sizes[key] = entry.length
    known = {key: time_ms for key, time_ms in last_ms.items() if time_ms >= 0}
    until_ms = max((time_ms for time_ms in known.values() if time_ms <= now_ms), default=0) - round(idle_s * 1000)
    idle = sorted((time_ms, key) for key, time_ms in known.items() if time_ms < until_ms)
    for _, key in idle:
        print(line_of(key))
    summary = f"{count(len(idle))} of {count(len(last_ms))} models are idle, {size(sum(sizes[key] for _, key in idle))}"
    if len(known) < len(last_ms):
        summary += f"; of {count(len(last_ms) - len(known))} it is not known when they learned"
    print(summary, file=sys.stderr)
    return found, problems


def line_of(key: str) -> str:
    """A key as a line of a list."""
    plain = key.isprintable() and key == key.strip() and not key.startswith('"')
    return key if plain else json.dumps(key)


def keys_in(lines: Iterable[str], name: str) -> Iterator[str]:
    """The keys of a list that is called `name`; empty lines are none. Raises ConfigError."""
    for number, line in enumerate(lines, 1):
        # Stdin may begin with a mark of its encoding, as a file may; a key that does is written as a JSON string.
        text = line.removeprefix("\ufeff").strip() if number == 1 else line.strip()
        if not text.startswith('"'):
            if text:
                yield text
            continue
        try:
            yield msgspec.json.decode(text, type=str)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{name}, line {number}: expected a model key or a JSON string: {error}") from None


def reset(keys: Iterable[str], config: Config, config_path: str, *, advance: Advance) -> int:
    """Publish a tombstone for each key, so that its model starts anew; returns how many were delivered.

    Raises ConfigError, before anything is published, where that would remove no model; WorkerError where some could
    not be delivered.
    """
    topic, distinct = config.input.topic, list(dict.fromkeys(keys))
    if config.input.tombstones != "reset":
        raise ConfigError(
            f"{config_path}: input.tombstones is {config.input.tombstones}: a tombstone would end as a dead letter. "
            "Stop the workers in order, set it to reset, and start them again"
        )
    for key in distinct:
        # What in an argument is no text has a place in it all the same.
        refused = decode_key(key.encode("utf-8", "surrogateescape"))
        if isinstance(refused, Reject):
            raise ConfigError(f"{key[:40]!r} is no model key: {refused.reason}")
        if key == config.models.null_key:
            raise ConfigError(
                f"{key!r} is the model of records without a key, one in each partition: a tombstone has one"
            )
    if KafkaAdmin(config).missing([topic]):
        raise ConfigError(f"there is no topic {topic}: no model can have learned from it")
    publisher = KafkaPublisher(config, topic)
    for n, key in enumerate(distinct, 1):
        publisher.send(key.encode(), None)
        advance(n / len(distinct), n)
    publisher.finish()
    return publisher.delivered
