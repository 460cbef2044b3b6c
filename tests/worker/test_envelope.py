"""Records to publish: headers of an output, and a dead letter that always fits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.support.malformed import MAX_BYTES
from worker.base.records import Headers, Record, Reject
from worker.codec import envelope
from worker.codec.envelope import Provenance, dead_letter, record_bytes

PROVENANCE: Headers = Provenance("events", 3, "amf-1", "main").headers(12, "abc")


def record(**changes: Any) -> Record:
    fields = dict(offset=12, timestamp_ms=1_700, key=b"k", value=b"value", headers=[("trace", b"1"), ("empty", None)])
    return Record(**fields | changes)


def test_provenance_is_these_headers() -> None:
    assert PROVENANCE == [
        ("source-topic", b"events"),
        ("source-partition", b"3"),
        ("source-offset", b"12"),
        ("spec", b"abc"),
        ("engine", b"amf-1"),
        ("lineage", b"main"),
    ]
    assert ("spec", None) in Provenance("events", 3, "amf-1", "main").headers(12, None)


def test_prediction_record_keeps_key_timestamp_and_headers_ours_last() -> None:
    of = record(headers=[("source-topic", b"upstream"), ("source-topic", b"twice")])
    out = envelope.prediction_record("predictions", of, b"{}", PROVENANCE, MAX_BYTES)
    assert (out.topic, out.key, out.value, out.timestamp_ms) == ("predictions", b"k", b"{}", 1_700)
    assert out.headers == of.headers + PROVENANCE


def test_a_prediction_does_not_carry_the_schema_of_the_events_value() -> None:
    of = record(headers=[("a", b"1"), ("__value_schema_id", b"\1" + b"x" * 16), ("__key_schema_id", b"\1")])
    out = envelope.prediction_record("predictions", of, b"{}", PROVENANCE, MAX_BYTES)
    assert out.headers == [("a", b"1"), ("__key_schema_id", b"\1"), *PROVENANCE]
    assert dead_letter("dead", of, Reject("a", "b"), PROVENANCE, MAX_BYTES).headers[:3] == of.headers


def test_prediction_record_drops_the_inputs_headers_only_where_they_do_not_fit() -> None:
    of = record(headers=[("a", b"x" * 500), ("ä", b"y" * 500)])
    whole = record_bytes(b"k", b"{}", of.headers + PROVENANCE)
    fits = envelope.prediction_record("p", of, b"{}", PROVENANCE, whole)
    assert fits.headers == of.headers + PROVENANCE
    out = envelope.prediction_record("p", of, b"{}", PROVENANCE, whole - 1)
    assert out.headers == [*PROVENANCE, ("headers-dropped", b"2")]
    assert out.value == b"{}"


def test_dead_letter_is_the_input_and_the_error() -> None:
    out = dead_letter("dead", record(), Reject("wrong-type", "größer"), PROVENANCE, MAX_BYTES)
    assert (out.topic, out.key, out.value, out.timestamp_ms) == ("dead", b"k", b"value", 1_700)
    error = [("error-code", b"wrong-type"), ("error-reason", "größer".encode())]
    assert out.headers == record().headers + PROVENANCE + error
    assert dead_letter("dead", record(value=None), Reject("a", "b"), PROVENANCE, MAX_BYTES).value is None


def test_a_dead_letter_that_is_published_once_more_leaves_its_error_behind() -> None:
    """Who tells outputs from dead letters by the header, or reads the first one of a name, was misled by it."""
    letter = dead_letter("dead", record(), Reject("unknown-class", "first"), PROVENANCE, MAX_BYTES)
    again = record(key=letter.key, value=letter.value, headers=letter.headers)
    out = envelope.prediction_record("predictions", again, b"{}", PROVENANCE, MAX_BYTES)
    assert out.headers == record().headers + PROVENANCE + PROVENANCE
    second = dead_letter("dead", again, Reject("wrong-type", "second"), PROVENANCE, MAX_BYTES)
    error = [("error-code", b"wrong-type"), ("error-reason", b"second")]
    assert second.headers == record().headers + PROVENANCE + PROVENANCE + error


def test_what_a_dead_letter_had_lost_before_is_said_once() -> None:
    whole = record(value=b"x" * 9_000)
    letter = dead_letter("dead", whole, Reject("too-large", "first"), PROVENANCE, 5_000)
    again = record(value=letter.value, headers=letter.headers)
    for most_bytes, size in ((MAX_BYTES, b"9000"), (5_000, b"%d" % len(letter.value))):
        second = dead_letter("dead", again, Reject("malformed-json", "second"), PROVENANCE, most_bytes)
        names = [name for name, _ in second.headers if name.startswith("error-")]
        assert sorted(names) == ["error-code", "error-reason", "error-sha256", "error-size", "error-truncated"]
        assert dict(second.headers)["error-size"] == size


def test_errors_of_others_are_headers_like_all() -> None:
    of = record(headers=[("error-code", b"7"), ("error-reason", b"theirs"), ("error-id", None)])
    out = envelope.prediction_record("predictions", of, b"{}", PROVENANCE, MAX_BYTES)
    assert out.headers == of.headers + PROVENANCE
    assert dead_letter("dead", of, Reject("a", "b"), PROVENANCE, MAX_BYTES).headers[:3] == of.headers


def test_dead_letter_cuts_a_value_that_does_not_fit() -> None:
    of = record(value=bytes(range(256)) * 100)
    out = dead_letter("dead", of, Reject("too-large", "r"), PROVENANCE, 5_000)
    assert of.value.startswith(out.value)
    assert record_bytes(out.key, out.value, out.headers) == 5_000
    assert out.headers[: len(of.headers)] == of.headers
    assert out.headers[-3:] == [
        ("error-truncated", b"true"),
        ("error-size", b"25600"),
        ("error-sha256", hashlib.sha256(of.value).hexdigest().encode()),
    ]
    assert dead_letter("dead", of, Reject("too-large", "r"), PROVENANCE, 5_000) == out
    whole = record_bytes(of.key, of.value, dead_letter("d", of, Reject("a", "b"), PROVENANCE, MAX_BYTES).headers)
    assert dead_letter("d", of, Reject("a", "b"), PROVENANCE, whole).value == of.value
    assert dead_letter("d", of, Reject("a", "b"), PROVENANCE, whole - 1).value != of.value


def test_dead_letter_drops_headers_before_it_cuts_the_value() -> None:
    of = record(headers=[("big", b"x" * 6_000), ("small", b"")])
    out = dead_letter("dead", of, Reject("wrong-type", "r"), PROVENANCE, 5_000)
    assert out.value == b"value"
    assert out.headers[0] == PROVENANCE[0]
    assert out.headers[-1] == ("error-headers-dropped", b"2")

    out = dead_letter("dead", record(headers=of.headers, value=b"v" * 9_000), Reject("a", "r"), PROVENANCE, 5_000)
    names = [name for name, _ in out.headers]
    assert names[-4:] == ["error-truncated", "error-size", "error-sha256", "error-headers-dropped"]
    assert record_bytes(out.key, out.value, out.headers) == 5_000


HOSTILE_TRACES: list[Headers] = [
    [("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("tracestate", b"vendor=1,other=2")],
    [("traceparent", None), ("tracestate", b"")],
    [("traceparent", b"\xff\x00\n\x1b[2J"), ("tracestate", "grüße".encode("utf-16"))],
    [("traceparent", b"a"), ("traceparent", b"b"), ("Traceparent", b"c"), ("traceparent", b"a")],
    [("tracestate", b"x" * 700)],
]


@pytest.mark.parametrize("trace", HOSTILE_TRACES)
def test_the_trace_of_a_record_is_that_of_its_output_and_its_dead_letter_byte_for_byte(trace: Headers) -> None:
    of = record(headers=trace)
    out = envelope.prediction_record("p", of, b"{}", PROVENANCE, MAX_BYTES)
    letter = dead_letter("d", of, Reject("a", "b"), PROVENANCE, MAX_BYTES)
    assert (out.headers[: len(trace)], letter.headers[: len(trace)]) == (trace, trace)


@pytest.mark.parametrize("trace", HOSTILE_TRACES[:3])
def test_the_trace_outlives_headers_that_do_not_fit(trace: Headers) -> None:
    of = record(headers=[("big", b"x" * 6_000), *trace, ("small", b"")])
    for out in (
        envelope.prediction_record("p", of, b"{}", PROVENANCE, 5_000),
        dead_letter("d", of, Reject("a", "b"), PROVENANCE, 5_000),
    ):
        assert out.headers[: len(trace)] == trace
        assert out.headers[-1][1] == b"2"
        assert record_bytes(out.key, out.value, out.headers) <= 5_000


def test_a_trace_without_measure_is_dropped_with_the_other_headers() -> None:
    for trace in ([("tracestate", b"x" * 2_000)], [("traceparent", b"")] * 200):
        of = record(headers=[("big", b"x" * 6_000), *trace], value=b"v" * 9_000)
        out = dead_letter("d", of, Reject("a", "b"), PROVENANCE, 5_000)
        assert out.headers[0] == PROVENANCE[0]
        assert record_bytes(out.key, out.value, out.headers) == 5_000
    # Nor does it make an output too large that would fit without it.
    of = record(headers=[("big", b"x" * 6_000), *HOSTILE_TRACES[4]])
    bare = record_bytes(b"k", b"v" * 1_000, [*PROVENANCE, ("headers-dropped", b"2")])
    out = envelope.prediction_record("p", of, b"v" * 1_000, PROVENANCE, bare)
    assert out.headers == [*PROVENANCE, ("headers-dropped", b"2")]


def test_dead_letter_drops_a_key_that_fits_nowhere() -> None:
    out = dead_letter("dead", record(key=b"k" * 5_000), Reject("invalid-key", "r"), PROVENANCE, 5_000)
    assert out.key is None
    assert ("error-key-dropped", b"5000") in out.headers
    assert out.value == b"value"
    assert out.headers[: len(record().headers)] == record().headers


@pytest.fixture(scope="module")
def librdkafka() -> Iterator[Producer]:
    """A producer without a broker: librdkafka refuses what is too large when it is handed over."""
    producer = Producer({"bootstrap.servers": "localhost:1", "message.max.bytes": 4096, "log_level": 0})
    yield producer
    producer.purge()


@given(
    key=st.none() | st.integers(0, 9_000),
    value=st.none() | st.integers(0, 9_000),
    headers=st.lists(st.tuples(st.sampled_from(["h", "größe"]), st.none() | st.integers(0, 5_000)), max_size=300),
    reason=st.integers(0, 2_000).map(lambda n: "\U0001f600" * n),
)
@settings(max_examples=200, deadline=None)
def test_dead_letter_always_fits(
    librdkafka: Producer, key: int | None, value: int | None, headers: list[tuple[str, int | None]], reason: str
) -> None:
    def filled(size: int | None) -> bytes | None:
        return None if size is None else b"x" * size

    of = record(key=filled(key), value=filled(value), headers=[(name, filled(size)) for name, size in headers])
    out = dead_letter("dead", of, Reject("too-large", reason), PROVENANCE, 4096)
    assert record_bytes(out.key, out.value, out.headers) <= 4096
    assert all(header in out.headers for header in PROVENANCE)
    assert (out.value is None) == (value is None)
    librdkafka.produce(out.topic, out.value, out.key, headers=out.headers)


def test_dead_letter_fits_whatever_the_key_leaves() -> None:
    of = [record(key=b"k" * size, value=b"v" * 5_000) for size in range(3_000, 4_096)]
    out = [dead_letter("dead", record, Reject("a", "r"), PROVENANCE, 4_096) for record in of]
    assert max(record_bytes(letter.key, letter.value, letter.headers) for letter in out) == 4_096
    assert {letter.key is None for letter in out} == {True, False}


@pytest.mark.parametrize("headers", [[], [("h", b"x" * 64)] * 40, [("ö" * 30, None)] * 40])
def test_record_bytes_bounds_what_librdkafka_counts(librdkafka: Producer, headers: Headers) -> None:
    largest = 4_096 - record_bytes(b"key", None, headers)
    librdkafka.produce("dead", b"v" * largest, b"key", headers=headers)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        librdkafka.produce("dead", b"v" * (largest + 500), b"key", headers=headers)
