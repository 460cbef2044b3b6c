"""The `kafka:` section: librdkafka properties that are passed on as they are, and those that the guarantees reserve.

Which client accepts which property is the C/P column of librdkafka's CONFIGURATION.md: a property of the other kind of
client is ignored there with a warning, so each client gets only its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from worker.config.text import MASK
from worker.config.values import Kind, choice, folder_name, http_url, text

REQUIRED = "bootstrap.servers"
CHECKED: Mapping[str, Kind[str]] = {
    "batch.size": text(r"[1-9][0-9]{0,9}", "a number of bytes"),
    REQUIRED: text(r"\s*[^\s,]+(?:\s*,\s*[^\s,]+)*\s*", "host:port of one or more brokers, with commas between them"),
    "client.id": text(r"[ -~]{1,249}", "1 to 249 ASCII characters"),
    "group.id": folder_name(),
    "group.instance.id": text(r"[A-Za-z0-9._-]{1,249}", "1 to 249 letters, digits, `.`, `_` and `-`"),
    "group.protocol": choice("classic", "consumer"),
    "max.poll.interval.ms": text(r"[1-9][0-9]{0,7}", "a number of milliseconds"),
    "message.max.bytes": text(r"[1-9][0-9]{3,9}", "a number of bytes"),
    "sasl.oauthbearer.token.endpoint.url": http_url(),
}
"""Properties that the worker itself depends on, and a URL that librdkafka repeats in its logs. The values of all others
are librdkafka's to check.

In what librdkafka says of itself it cuts the client's id at a byte, which of other than ASCII may be half a character.
"""

ALIASES: Mapping[str, str] = {
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "retries": "message.send.max.retries",
    "sasl.mechanisms": "sasl.mechanism",
}
"""Second names of properties, and the first ones, by which librdkafka calls them whichever was given."""

_ANY = text(r"(?s).*", "text, a number, true or false")

DEFAULTS: Mapping[str, str] = {
    "group.id": "amf",
    # After 10 s a dead worker's partitions are free, and its open transaction no longer holds up its readers.
    "session.timeout.ms": "10000",
    "transaction.timeout.ms": "10000",
    # A record damaged on the way would be learned for ever; the Java client checks too.
    "check.crcs": "true",
    # A full prefetch queue pauses fetching for this long; librdkafka's 1000 ms lets a fast worker run dry.
    "fetch.queue.backoff.ms": "100",
    # One answer of the broker for many records: with a single byte each of a producer's batches is fetched by itself.
    "fetch.min.bytes": "65536",
    "fetch.wait.max.ms": "20",
    # Partitions that were added are found when clients ask anew: librdkafka's own do so every five minutes.
    "topic.metadata.refresh.interval.ms": "30000",
    # A commit flushes without lingering, so this makes batches larger and no transaction longer.
    "linger.ms": "20",
    # Room for the outputs of a large micro-batch, so that producing does not stop half way for a full queue.
    "queue.buffering.max.messages": "500000",
}
"""What the worker sets unless the user does. Nothing here carries a guarantee."""

BATCH_BYTES = 1_000_000
"""librdkafka's own bound of a batch, where `batch.size` is not set."""

CONSUMER_GUARANTEES: Mapping[str, str] = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "isolation.level": "read_committed",
}
CLASSIC_GUARANTEES: Mapping[str, str] = {"partition.assignment.strategy": "cooperative-sticky"}
PRODUCER_GUARANTEES: Mapping[str, str] = {
    "acks": "all",
    "allow.auto.create.topics": "false",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",
}
ADMIN_GUARANTEES: Mapping[str, str] = {"allow.auto.create.topics": "false"}

_OFFSETS = "the worker commits offsets itself, together with the outputs they belong to"
_IDEMPOTENCE = "every output is written once and in order, by an idempotent producer with acks=all"
_REPORTS = "the worker relies on the delivery report of every output"

RESERVED: Mapping[str, str] = {
    "isolation.level": "without read_committed the worker would learn aborted records and start at unstable offsets",
    "auto.offset.reset": "a lost offset must not skip or repeat records in silence; a new group starts at input.start",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "offset.store.path": _OFFSETS,
    "offset.store.sync.interval.ms": _OFFSETS,
    "partition.assignment.strategy": "partitions are taken and given up one by one, which needs cooperative-sticky",
    "enable.partition.eof": "the worker sets it itself: the client then says where a partition ends",
    "transactional.id": "the worker makes it from group.id and group.instance.id, so that a restart fences the old one",
    "enable.idempotence": _IDEMPOTENCE,
    "enable.gapless.guarantee": _IDEMPOTENCE,
    "acks": _IDEMPOTENCE,
    "request.required.acks": _IDEMPOTENCE,
    "max.in.flight": _IDEMPOTENCE,
    "max.in.flight.requests.per.connection": _IDEMPOTENCE,
    "queuing.strategy": _IDEMPOTENCE,
    "queue.buffering.backpressure.threshold": _IDEMPOTENCE,
    "partitioner": "keys must land where Java clients put them, by murmur2_random",
    "allow.auto.create.topics": "a missing topic is an error; `amf-worker check --create-topics` makes it",
    "delivery.report.only.error": _REPORTS,
    "produce.offset.report": _REPORTS,
    "default.topic.config": "topic properties go beside the others",
}
"""Properties that a user must not set, and why."""

_CALLBACKS = re.compile(
    r".*_cb|on_.*|logger|opaque|interceptors|enabled_events|msg_order_cmp|default_topic_conf|ssl_.*"
)

_SECRET = re.compile(
    r"pass(w|phrase)|secret|token|jaas|pem|kinit|oauthbearer\.(config|extensions)|user\.info|plugin", re.IGNORECASE
)

_CLASSIC_ONLY = frozenset({"group.protocol.type", "heartbeat.interval.ms", "session.timeout.ms"})

_CONSUMER_ONLY = re.compile(
    r"fetch\..*|group\..*|queued\..*|share\..*|max\.poll\..*|max\.partition\.fetch\.bytes|session\.timeout\.ms"
    r"|receive\.message\.max\.bytes|heartbeat\.interval\.ms|coordinator\.query\.interval\.ms|check\.crcs"
    r"|consume\.callback\.max\.messages"
)
_PRODUCER_ONLY = re.compile(
    r"batch\..*|compression\..*|queue\.buffering\..*|sticky\..*|linger\.ms|retries|message\.send\.max\.retries"
    r"|(delivery|message|request|transaction)\.timeout\.ms"
)


class Origin(NamedTuple):
    """Where the value of a property comes from."""

    place: str
    """In the words of an error: file and line, or the option."""
    is_reference: bool
    """Whether it is, or holds, what the environment or another file says."""


def kind_of(name: str) -> Kind[str]:
    return CHECKED.get(name, _ANY)


def refusal(name: str, given: Mapping[str, str]) -> str | None:
    """Why the user must not set this property, None where that is fine."""
    if name in RESERVED:
        return RESERVED[name]
    if _CALLBACKS.fullmatch(name):
        return "a callback or an object of the program cannot come from a file"
    if name in _CLASSIC_ONLY and given.get("group.protocol") == "consumer":
        return "with group.protocol: consumer the broker decides it"
    return None


def merge(given: Mapping[str, str]) -> dict[str, str]:
    """The user's properties over our own defaults."""
    left_out = set(_CLASSIC_ONLY) if given.get("group.protocol") == "consumer" else set()
    if "queue.buffering.max.ms" in given:
        left_out.add("linger.ms")  # one property under two names: the user's must not compete with ours
    return {name: value for name, value in DEFAULTS.items() if name not in left_out} | dict(given)


def for_consumer(properties: Mapping[str, str]) -> dict[str, str]:
    classic = properties.get("group.protocol") != "consumer"
    own = _without(_named(properties), _PRODUCER_ONLY)
    return {**own, **CONSUMER_GUARANTEES, **(CLASSIC_GUARANTEES if classic else {})}


def for_producer(properties: Mapping[str, str], transactional_id: str | None, most_bytes: int | None) -> dict[str, str]:
    own = _without(_named(properties), _CONSUMER_ONLY)
    if most_bytes is not None:
        # A topic takes no batch that is larger than its largest record, and a client fills its own without asking.
        own["batch.size"] = str(min(int(own.get("batch.size", BATCH_BYTES)), most_bytes))
        if most_bytes < BATCH_BYTES:
            # Behind a batch that is refused others would be for their numbers, and one may be waited for in vain.
            own["max.in.flight.requests.per.connection"] = "1"
    if transactional_id is None:
        own.pop("transaction.timeout.ms", None)
        return {**own, **PRODUCER_GUARANTEES}
    return {**own, **PRODUCER_GUARANTEES, "transactional.id": transactional_id}


def for_admin(properties: Mapping[str, str]) -> dict[str, str]:
    return {**_without(_without(_named(properties), _CONSUMER_ONLY), _PRODUCER_ONLY), **ADMIN_GUARANTEES}


def _named(properties: Mapping[str, str]) -> dict[str, str]:
    """With the name under which the broker's logs, metrics and quotas have the client."""
    return {"client.id": properties.get("group.instance.id", "amf-worker"), **properties}


def masked(properties: Mapping[str, str], origins: Mapping[str, Origin]) -> dict[str, str]:
    """The properties with every value that is or may hold a secret replaced.

    A secret is kept out of the file, by a reference, and may be given to any property; but those that the worker itself
    depends on are in its logs all the same.
    """
    referring = {name for name, origin in origins.items() if origin.is_reference} - CHECKED.keys()
    return {name: MASK if name in referring or _SECRET.search(name) else value for name, value in properties.items()}


def _without(properties: Mapping[str, str], foreign: re.Pattern[str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if not foreign.fullmatch(name)}
