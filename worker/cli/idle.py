"""Models that have not learned for long, and how to remove them: a list of keys, and tombstones for the keys of a list.

A list has one key on each line. A key that would not survive that (line breaks, blanks at its ends) is written as a
JSON string, and so is one that looks like a JSON string.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
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

    What counts is the newest record that any model of the topic learned: a topic that stands still makes no model idle,
    nor does another topic that goes on. A record from after `now_ms`, by a producer whose clock is ahead, makes none
    idle either. A key is listed where it is idle in each topic. Returns how many checkpoints there are, and what is
    damaged.
    """
    found, problems, sizes = 0, [], dict[str, int]()
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    with status("reading checkpoints"):
        for listing in describe(store):
            found += 1
            problems += listing.problems
            if listing.newest is None:
                continue
            last_ms = topics[listing.newest.location.topic]
            for key, entry in listing.newest.models.items():
                # Of a key that several lineages have the newest time counts.
                last_ms[key] = max(last_ms.get(key, -1), entry.summary.get("last_ms", -1))
                sizes[key] = entry.length
    idle, busy = dict[str, int](), set[str]()
    for last_ms in topics.values():
        until_ms = max((time_ms for time_ms in last_ms.values() if time_ms <= now_ms), default=0) - round(idle_s * 1000)
        for key, time_ms in last_ms.items():
            if time_ms >= max(until_ms, 0):
                busy.add(key)
            elif time_ms >= 0:
                idle[key] = max(time_ms, idle.get(key, 0))
    listed = sorted(idle.keys() - busy, key=lambda key: (idle[key], key))
    for key in listed:
        print(line_of(key))
    summary = f"{count(len(listed))} of {count(len(sizes))} models are idle, {size(sum(sizes[key] for key in listed))}"
    if n_unknown := len(sizes.keys() - busy - idle.keys()):
        summary += f"; of {count(n_unknown)} it is not known when they learned"
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
    admin = KafkaAdmin(config)
    if admin.missing([topic]):
        raise ConfigError(f"there is no topic {topic}: no model can have learned from it")
    publisher = KafkaPublisher(config, topic, admin.max_message_bytes([topic]))
    for n, key in enumerate(distinct, 1):
        publisher.send(key.encode(), None)
        advance(n / len(distinct), n)
    publisher.finish()
    return publisher.delivered
