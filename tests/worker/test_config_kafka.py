"""Kafka properties: what may be given, and what each client gets."""

from __future__ import annotations

import logging
import re

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.worker.support.configurations import document, the_problem, with_kafka
from worker.config import kafka as config_kafka
from worker.config import loads


def test_kafka_values_are_the_text_that_was_written() -> None:
    given_text = "a: 0123, b: True, c: 1.50, d: 'True', e: 1e3, f: off, g: '${FLAG}', h: 'x ${FLAG}'"
    properties = loads(with_kafka(given_text), {"FLAG": "True"}).kafka
    assert {name: properties[name] for name in "abcdefgh"} == {
        "a": "0123",
        "b": "true",
        "c": "1.50",
        "d": "True",
        "e": "1e3",
        "f": "off",
        "g": "True",
        "h": "x True",
    }


@pytest.mark.parametrize("url", ["https://host/token", "http://host:80", "https://host/a/token?p=policy&user=a@b"])
def test_the_url_of_tokens_reaches_the_clients(url: str) -> None:
    name = "sasl.oauthbearer.token.endpoint.url"
    assert loads(with_kafka(f"{name}: '{url}'"), {}).consumer_properties()[name] == url


@pytest.mark.parametrize(
    ("properties", "path", "end"),
    [
        ("client.rack: ", "client.rack", "expected text, a number, true or false, found nothing"),
        ("client.rack: [a]", "client.rack", "expected text, a number, true or false, found a list of 1"),
        ("client.rack: {a: b}", "client.rack", "expected text, a number, true or false, found a mapping"),
        (
            "client.rack: '${ID:-}'",
            "client.rack",
            "expected text, a number, true or false, found another value in ${ID}",
        ),
        ("client.id: händler", "client.id", "expected 1 to 249 ASCII characters, found 'händler'"),
        ("group.instance.id: w 1", "group.instance.id", "letters, digits, `.`, `_` and `-`, found 'w 1'"),
        ("group.id: a/b", "group.id", "found 'a/b'"),
        ("group.id: '..'", "group.id", "found '..'"),
        ("max.poll.interval.ms: abc", "max.poll.interval.ms", "expected a number of milliseconds, found 'abc'"),
        ("batch.size: 1MB", "batch.size", "expected a number of bytes, found '1MB'"),
        ("message.max.bytes: 1MB", "message.max.bytes", "expected a number of bytes, found '1MB'"),
        (
            "sasl.oauthbearer.token.endpoint.url: 'https://me:hunter2@host/token'",
            "sasl.oauthbearer.token.endpoint.url",
            "expected an http:// or https:// URL without user info, found something else",
        ),
        ("group.protocol: modern", "group.protocol", "expected one of classic, consumer, found 'modern'"),
        ("group.protocol: consumer, session.timeout.ms: 1", "session.timeout.ms", "the broker decides it"),
        ("group.protocol: consumer, heartbeat.interval.ms: 1", "heartbeat.interval.ms", "the broker decides it"),
    ],
)
def test_a_kafka_property_that_does_not_fit_is_named(properties: str, path: str, end: str) -> None:
    problem = the_problem(with_kafka(properties))
    assert problem.startswith(f"worker.yaml:4: kafka.{path}: ")
    assert problem.endswith(end)


# Beyond what the worker sets itself: what would undo it, or would have no effect or no place in a file.
ALSO_RESERVED = """
enable.partition.eof auto.commit.interval.ms auto.commit.enable offset.store.method request.required.acks max.in.flight
max.in.flight.requests.per.connection queuing.strategy on_commit error_cb rebalance_cb dr_msg_cb logger interceptors
default_topic_conf default.topic.config
"""


@pytest.mark.parametrize("name", sorted({*config_kafka.RESERVED, *re.findall(r"\S+", ALSO_RESERVED)}))
def test_reserved_properties_say_why(name: str) -> None:
    problem = the_problem(with_kafka(f"{name}: hidden-value"))
    assert re.fullmatch(rf"worker\.yaml:4: kafka\.{re.escape(name)}: reserved: .{{20,}}", problem)
    assert "hidden-value" not in problem


def test_what_the_guarantees_set_is_reserved() -> None:
    config = loads(document(), {})
    clients = (config.consumer_properties(), config.producer_properties("tx"), config.admin_properties())
    set_by_us = set().union(*clients) - set(config.kafka) - {"client.id"}  # it carries no guarantee
    assert {"isolation.level", "transactional.id", "partitioner", "enable.auto.commit"} <= set_by_us
    assert set_by_us <= set(config_kafka.RESERVED)


def test_the_consumer_gets_these_properties_and_no_other() -> None:
    properties = loads(with_kafka("max.poll.interval.ms: 60000, linger.ms: 1, group.id: g"), {}).consumer_properties()
    assert properties == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "amf-worker",
        "group.id": "g",
        "max.poll.interval.ms": "60000",
        "session.timeout.ms": "10000",
        "check.crcs": "true",
        "fetch.queue.backoff.ms": "100",
        "fetch.min.bytes": "65536",
        "fetch.wait.max.ms": "20",
        "topic.metadata.refresh.interval.ms": "30000",
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "error",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
    }


def test_the_consumer_protocol_leaves_out_what_the_broker_decides() -> None:
    config = loads(with_kafka("group.protocol: consumer"), {})
    classic_only = {
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "group.protocol.type",
    }
    assert not classic_only & set(config.consumer_properties())
    assert config.consumer_properties()["group.protocol"] == "consumer"


def test_the_producers_get_these_properties_and_no_other() -> None:
    config = loads(with_kafka("compression.type: zstd, fetch.min.bytes: 2"), {})
    idempotent = {
        "bootstrap.servers": "localhost:9092",
        "client.id": "amf-worker",
        "compression.type": "zstd",
        "topic.metadata.refresh.interval.ms": "30000",
        "linger.ms": "20",
        "queue.buffering.max.messages": "500000",
        "acks": "all",
        "allow.auto.create.topics": "false",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
    }
    assert config.producer_properties() == idempotent
    transactional = {"transactional.id": "amf-0", "transaction.timeout.ms": "10000"}
    assert config.producer_properties("amf-0") == idempotent | transactional


@pytest.mark.parametrize(
    ("given", "most_bytes", "expected"),
    [
        ("linger.ms: 3", None, None),
        ("linger.ms: 3", 5_000_000, "1000000"),
        ("linger.ms: 3", 4096, "4096"),
        ("batch.size: 5000", 4096, "4096"),
        ("batch.size: 3000", 4096, "3000"),
    ],
)
def test_a_batch_is_no_larger_than_topics_take(given: str, most_bytes: int | None, expected: str | None) -> None:
    config = loads(with_kafka(given), {})
    assert config.producer_properties(most_bytes=most_bytes).get("batch.size") == expected
    assert config.producer_properties("id", most_bytes).get("batch.size") == expected


def test_where_topics_take_little_one_batch_is_on_its_way_at_a_time() -> None:
    """Behind one that is refused the client would have others refused, and wait for one of them until it times out."""
    config = loads(with_kafka("linger.ms: 3"), {})
    for most_bytes, expected in ((None, None), (1_000_000, None), (999_999, "1")):
        properties = config.producer_properties("id", most_bytes)
        assert properties.get("max.in.flight.requests.per.connection") == expected


def test_an_admin_client_gets_what_all_clients_share() -> None:
    given = "security.protocol: ssl, linger.ms: 1, group.instance.id: w-0"
    # The last two have to go together, or no client is made.
    config = loads(with_kafka(f"{given}, fetch.max.bytes: 1000000, receive.message.max.bytes: 2000000"), {})
    assert config.admin_properties() == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "w-0",
        "security.protocol": "ssl",
        "topic.metadata.refresh.interval.ms": "30000",
        "allow.auto.create.topics": "false",
    }


@pytest.mark.parametrize("name", ["linger.ms", "queue.buffering.max.ms"])
def test_a_default_yields_to_the_user_under_either_name(name: str) -> None:
    properties = loads(with_kafka(f"{name}: 3"), {}).producer_properties()
    assert {k: v for k, v in properties.items() if k in ("linger.ms", "queue.buffering.max.ms")} == {name: "3"}


# Every property that librdkafka documents for one kind of client only and that is not reserved, with a value it takes.
ONE_SIDED = """
check.crcs: true, consume.callback.max.messages: 0, coordinator.query.interval.ms: 1000, fetch.error.backoff.ms: 500,
fetch.max.bytes: 52428800, fetch.message.max.bytes: 1048576, fetch.min.bytes: 1, fetch.queue.backoff.ms: 10,
fetch.wait.max.ms: 500, group.id: g, group.instance.id: i, group.protocol: classic, group.protocol.type: consumer,
group.remote.assignor: uniform, heartbeat.interval.ms: 3000, max.partition.fetch.bytes: 1048576,
max.poll.interval.ms: 300000, queued.max.messages.kbytes: 65536, queued.min.messages: 1000, session.timeout.ms: 10000,
share.acknowledgement.mode: implicit, batch.num.messages: 10000, batch.size: 1000000, compression.codec: none,
compression.level: -1, compression.type: none, delivery.timeout.ms: 10000, linger.ms: 5, message.send.max.retries: 5,
message.timeout.ms: 10000, queue.buffering.max.kbytes: 1000, queue.buffering.max.messages: 1000,
queue.buffering.max.ms: 5, request.timeout.ms: 500, retries: 5, sticky.partitioning.linger.ms: 10,
transaction.timeout.ms: 10000
"""


@pytest.mark.parametrize("properties", ["client.id: w", " ".join(ONE_SIDED.split()), "group.protocol: consumer"])
def test_librdkafka_takes_the_properties_of_each_client_without_a_word(properties: str) -> None:
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.Logger("librdkafka")
    logger.addHandler(Listener())
    config = loads(with_kafka(properties), {})
    consumer = confluent_kafka.Consumer(config.consumer_properties(), logger=logger)
    clients = [
        consumer,
        confluent_kafka.Producer(config.producer_properties(), logger=logger),
        confluent_kafka.Producer(config.producer_properties("amf-0"), logger=logger),
        AdminClient(config.admin_properties(), logger=logger),
    ]
    for client in clients:
        client.poll(0)
    consumer.close()
    # A client may say so, too, that it has lost its only broker before it had come up: no word on the properties.
    notices = [line for line in said if line.startswith("CONF") and "No `bootstrap.servers`" not in line]
    assert notices == []
