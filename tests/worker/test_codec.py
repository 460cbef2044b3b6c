"""What goes into and comes out of the codec: events and rejects, predictions, headers, dead letters."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from amf.labels import LARGEST_NUMBER
from tests.worker.support.malformed import MAX_BYTES, good_fields, malformed, text_of
from worker.base.limits import MAX_DEPTH, MAX_NUMBER
from worker.base.records import Estimate, Event, Headers, Prediction, Record, Reject
from worker.codec import decode, decode_key, encode_answers, envelope
from worker.codec import json as json_codec
from worker.codec.dead_letters import REJECT_CODES, is_too_deep
from worker.codec.envelope import Provenance, dead_letter, record_bytes


def code_of(decoded: Event | str | Reject) -> str | None:
    return decoded.code if isinstance(decoded, Reject) else None


# --- values that are events -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "event"),
    [
        (b'{"features": {"a": 1.5, "b": null}, "label": "x", "id": "7"}', Event({"a": 1.5, "b": None}, "x", "7")),
        (b'{"features": [1, -2e3, null]}', Event([1.0, -2000.0, None], None, None)),
        (b' {"id": null, "label": null, "features": [0]}\n', Event([0.0], None, None)),
        (b'{"features": [0], "label": true}', Event([0.0], True, None)),
        (b'{"features": {"a": true, "b": false, "c": 2}}', Event({"a": 1.0, "b": 0.0, "c": 2.0}, None, None)),
        (b'{"features": {"a": "x", "b": true}}', Event({"a": "x", "b": 1.0}, None, None)),
        (b'{"features": [true, null, 2]}', Event([1.0, None, 2.0], None, None)),
        (b'{"features": [0], "id": 4711}', Event([0.0], None, "4711")),
        (b'{"features": {"a": "x"}, "id": -9223372036854775808}', Event({"a": "x"}, None, "-9223372036854775808")),
        (b'{"features": [0], "id": 18446744073709551615}', Event([0.0], None, "18446744073709551615")),
        (b'{"features": [0], "label": 1}', Event([0.0], 1, None)),
        (b'{"features": [0], "label": 1.0}', Event([0.0], 1.0, None)),
        (b'{"features": [0], "label": -2.5e3}', Event([0.0], -2500.0, None)),
        (b'{"features": [0], "label": 100000000000000000000}', Event([0.0], 10**20, None)),
        (b'{"features": [0], "label": ""}', Event([0.0], "", None)),
        (b'{"features": [0], "label": "NaN"}', Event([0.0], "NaN", None)),
        (b'{"features": [99999999999999999999999, 1e-400]}', Event([1e23, 0.0], None, None)),
        (b'{"features": {"": 1}, "\\u006cabel": "\\ud83d\\ude00"}', Event({"": 1.0}, "\U0001f600", None)),
        (b'{"features": [0], "other": [{"features": "x"}, 1e999]}', Event([0.0], None, None)),
        (b'{"features": {"a": 1, "b": 2, "a": 3}}', Event({"a": 3.0, "b": 2.0}, None, None)),
        (b'{"features": {"a": "x", "b": 2, "c": null}}', Event({"a": "x", "b": 2.0, "c": None}, None, None)),
        (b'{"features": {"a": "12.5", "b": ""}}', Event({"a": "12.5", "b": ""}, None, None)),
        (
            b'{"features": {"a": "nano", "b": "in", "c": "NaN1"}}',
            Event({"a": "nano", "b": "in", "c": "NaN1"}, None, None),
        ),
        (b'{"features": {"a": "x", "a": 3}}', Event({"a": 3.0}, None, None)),
        (b'{"features": {"a": 3, "a": "\\u0078"}}', Event({"a": "x"}, None, None)),
        (b'{"features": [], "label": 1, "features": {"a": 0}, "label": 2}', Event({"a": 0.0}, 2, None)),
    ],
)
def test_good_value(value: bytes, event: Event) -> None:
    decoded = decode(value, MAX_BYTES)
    assert decoded == event
    assert type(decoded.label) is type(event.label)


def test_integers_become_floats() -> None:
    event = decode(b'{"features": {"a": 1}}', MAX_BYTES)
    assert type(event.features["a"]) is float


def test_generated_good_messages_decode() -> None:
    random = Random(0)
    values = [text_of(good_fields(random), random).encode() for _ in range(500)]
    assert [value for value in values if isinstance(decode(value, MAX_BYTES), Reject)] == []


def message(**fields: Any) -> bytes:
    return json.dumps({"features": [1]} | fields, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("largest", "beyond", "code"),
    [
        (message(features={"ä" * 256: 1}), message(features={"ä" * 257: 1}), "feature-name-too-long"),
        (message(features={"a": "ä" * 256}), message(features={"a": "ä" * 257}), "category-too-long"),
        (message(label="ä" * 128), message(label="ä" * 129), "label-too-long"),
        (message(id="\U0001f600" * 1024), message(id="\U0001f600" * 1025), "id-too-long"),
        (message(label=1e75), message(label=math.nextafter(1e75, 2e75)), "number-out-of-range"),
        (message(id=2**64 - 1), message(id=2**64), "number-out-of-range"),
        (message(id=-(2**63)), message(id=-(2**63) - 1), "number-out-of-range"),
        (message(label=-1e75), message(label=-1.1e75), "number-out-of-range"),
        (message(label=int(1e75)), message(label=int(1e75) + 1), "number-out-of-range"),
        (message(features=[int(sys.float_info.max)]), message(features=[2**1024]), "number-out-of-range"),
    ],
)
def test_limits(largest: bytes, beyond: bytes, code: str) -> None:
    assert code_of(decode(largest, MAX_BYTES)) is None
    assert code_of(decode(beyond, MAX_BYTES)) == code
    assert code_of(decode(largest, len(largest))) is None
    assert code_of(decode(largest, len(largest) - 1)) == "too-large"


def test_what_is_within_the_limits_is_not_the_fault() -> None:
    assert code_of(decode(message(features={"a" * 256: 1, "b": "NaN"}), MAX_BYTES)) == "non-finite-number"
    assert code_of(decode(message(features={"a": "x" * 256, "b": []}), MAX_BYTES)) == "wrong-type"
    for label in ("x" * 128, 1e75, -int(1e75), 1.5, None, True):
        assert code_of(decode(message(label=label, id=7.5), MAX_BYTES)) == "wrong-type"
    assert code_of(decode(message(id="i" * 1024, label=[]), MAX_BYTES)) == "wrong-type"


def nested(levels: int) -> bytes:
    """A message whose deepest value is `levels` deep, arrays and objects mixed."""
    pairs, odd = divmod(levels - 1, 2)
    return b'{"features": [1], "x": ' + b'[{"a":' * pairs + b"[" * odd + b"0" + b"]" * odd + b"}]" * pairs + b"}"


def test_depth_limit() -> None:
    assert code_of(decode(nested(MAX_DEPTH), MAX_BYTES)) is None
    assert code_of(decode(nested(MAX_DEPTH + 1), MAX_BYTES)) == "malformed-json"


def test_brackets_are_nesting_only_where_they_nest() -> None:
    wide = b'{"features": [1], "x": [' + b"[{}], " * 500 + b"0]}"
    text = b'{"features": [1], "x": "' + b'[{\\"' * 500 + b'\\\\"}'
    assert code_of(decode(wide, MAX_BYTES)) is None
    assert code_of(decode(text, MAX_BYTES)) is None


def test_verdict_does_not_depend_on_the_stack() -> None:
    def decode_below(frames: int, value: bytes) -> Event | Reject:
        return decode(value, MAX_BYTES) if frames == 0 else decode_below(frames - 1, value)

    for levels in (MAX_DEPTH, MAX_DEPTH + 1, 300, 600):
        for value in (nested(levels), nested(levels)[:-1], b'"' + nested(levels), b"]" + nested(levels)):
            assert decode_below(500, value) == decode(value, MAX_BYTES)


@pytest.mark.parametrize("value", [message(), message(features={"a": "x"}), nested(MAX_DEPTH), b'{"features": [1'])
def test_a_stack_without_room_makes_no_dead_letter(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the levels of the value that count, not those of the stack."""

    def exhausted(_: bytes) -> object:
        raise RecursionError

    monkeypatch.setattr(json_codec, "_decode_numbers", exhausted)
    with pytest.raises(RecursionError):
        decode(value, MAX_BYTES)
    assert code_of(decode(nested(MAX_DEPTH + 1), MAX_BYTES)) == "malformed-json"


def test_a_string_without_an_end_is_looked_at_once() -> None:
    """In a text of escaped quotes each might begin another string."""
    started = time.perf_counter()
    assert is_too_deep(b"[" * (MAX_DEPTH + 1) + b'"' + b'\\"' * 500_000)
    assert time.perf_counter() - started < 5


# --- values that are none ---------------------------------------------------------------------------------------------


def test_malformed_set_gets_the_right_codes() -> None:
    wrong = [
        (value[:200] if value else value, code, decoded)
        for value, code in malformed(seed=3, count=2_000)
        if code_of(decoded := decode(value, MAX_BYTES)) != code
    ]
    assert wrong == []


def test_malformed_set_is_deterministic_and_covers_the_codec() -> None:
    values = list(malformed(seed=5, count=300))
    assert values == list(malformed(seed=5, count=300))
    assert values != list(malformed(seed=6, count=300))
    keys_and_models = {
        "null-key", "invalid-key", "invalid-headers", "missing-model-key", "feature-kind", "feature-count",
        "too-many-features",
        "outside-unit-cube", "too-many-classes", "too-many-models", "unknown-class", "spec-changed", "unpublishable",
    }  # fmt: skip
    other_codecs = {
        "malformed-msgpack", "malformed-avro", "no-schema", "unknown-schema", "unusable-schema", "schema-mismatch",
    }  # fmt: skip
    assert {code for _, code in values} == REJECT_CODES.keys() - keys_and_models - other_codecs


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"features": {"a": 1, "b": []}}', "features['b']: expected a number, text, a boolean or null, got an array"),
        (
            b'{"features": {"a": "x", "b": [1]}}',
            "features['b']: expected a number, text, a boolean or null, got an array",
        ),
        (b'{"features": [1, {}]}', "features[1]: expected a number, a boolean or null, got an object"),
        (b'{"features": [1, "2"]}', "features[1]: expected a number, a boolean or null, got a string"),
        (b'{"features": 3}', "features: expected an object or an array, got an integer"),
        (b'{"features": [1], "label": [1]}', "label: expected a string, a number, a boolean or null, got an array"),
        (b'{"features": [1], "label": 2e75}', "label lies beyond 1e+75"),
        (b'{"features": [1], "id": {}}', "id: expected a string, an integer or null, got an object"),
        (b"[1]", "the value: expected an object, got an array"),
        (b'{"features": [NaN]}', "features[0] is NaN"),
        (b'{"features": {"a": " -inf"}}', "features['a'] is -inf"),
        (b'{"features": [1], "label": NaN}', "label is NaN"),
        (b'{"features": [1,]}', "the value is not JSON at character 16"),
        (b'{"features": ["\xff"]}', "the value is not UTF-8 at byte 15"),
        (b'{"features": [1], "id": "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_reason_says_where_and_what(value: bytes, reason: str) -> None:
    assert reason in decode(value, MAX_BYTES).reason


def test_text_comes_before_types_and_types_in_the_order_of_the_text() -> None:
    assert code_of(decode(b'{"features": [[]], "label": []} x', MAX_BYTES)) == "malformed-json"
    assert code_of(decode(b'{"features": ["a"], "x": ' + b"[" * 99 + b"]" * 99 + b"}", MAX_BYTES)) == "malformed-json"
    assert decode(b'{"label": [], "features": [[]]}', MAX_BYTES).reason.startswith("label")
    assert decode(b'{"features": [[]], "label": []}', MAX_BYTES).reason.startswith("features[0]")


def test_reason_can_always_be_published() -> None:
    value = b'{"features": {"\\ud800' + b"a" * 10_000 + b'": []}}'
    assert len(decode(value, MAX_BYTES).reason.encode()) < 200


def test_key() -> None:
    assert decode_key("größe ".encode()) == "größe "
    assert decode_key(b"k" * 512) == "k" * 512
    assert code_of(decode_key(b"k" * 513)) == "invalid-key"
    assert code_of(decode_key(b"")) == "invalid-key"
    assert code_of(decode_key(b"a\xff")) == "invalid-key"


# --- mutated values ---------------------------------------------------------------------------------------------------

numbers = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**25), 10**25)
mixed = numbers | st.text(max_size=3) | st.sampled_from(["NaN", "-inf", "infinity", "12.5"])
messages = st.fixed_dictionaries(
    {"features": st.lists(numbers, max_size=4) | st.dictionaries(st.text(max_size=3), mixed, max_size=4)},
    optional={
        "label": st.none() | st.text(max_size=4) | st.integers() | st.booleans() | st.floats(-1e80, 1e80),
        "id": st.none() | st.text(max_size=4) | st.integers(),
        "x": st.recursive(numbers | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=4),
    },
)
TOKENS = b'" \\ , : { } [ ] - . 0 1 e9 E400 null NaN true \\ud800 "label": "features": "id": \xc3 \xe2\x82\xac'.split()
fragments = st.binary(max_size=2) | st.sampled_from([*TOKENS, b" ", b"9" * 30])
edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), fragments), max_size=4)


NON_FINITE = re.compile(r"[ \t\n\r\f\v]*[+-]?(nan|inf(inity)?)[ \t\n\r\f\v]*", re.IGNORECASE | re.ASCII)


def bits(value: float | str | None) -> bytes | str | None:
    return value if value is None or isinstance(value, str) else struct.pack(">d", value)


@given(messages, st.booleans(), edits)
@settings(max_examples=500, deadline=None)
def test_mutated_values_decode_as_json_says(
    message: dict[str, Any], ascii_only: bool, edits: list[tuple[float, int, bytes]]
) -> None:
    value = json.dumps(message, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    for place, removed, inserted in edits:
        at = round(place * len(value))
        value = value[:at] + inserted + value[at + removed :]

    decoded = decode(value, MAX_BYTES)
    if isinstance(decoded, Reject):
        assert decoded.code in REJECT_CODES
        assert decoded.reason.encode()
        return
    expected = json.loads(value.decode())
    features = expected["features"]
    assert type(decoded.features) is type(features)
    if isinstance(features, dict):
        assert list(decoded.features) == list(features)
        features, got = list(features.values()), list(decoded.features.values())
    else:
        got = decoded.features
    assert [bits(value) for value in got] == [bits(value) for value in features]
    assert not any(isinstance(value, str) and NON_FINITE.fullmatch(value) for value in features)
    assert (decoded.label, type(decoded.label)) == (expected.get("label"), type(expected.get("label")))
    name = expected.get("id")
    assert decoded.id == (str(name) if type(name) is int else name)


# --- predictions ------------------------------------------------------------------------------------------------------


def prediction(**changes: Any) -> Prediction:
    fields = dict(
        prediction="b", classes=["a", "b"], probabilities=[0.25, 0.75], label="a", loss=1.5, learned=9, id="7"
    )
    return Prediction(**fields | changes)


@pytest.mark.parametrize(
    ("published", "value"),
    [
        (
            prediction(),
            b'{"id":"7","model":"m","prediction":"b","probabilities":{"a":0.25,"b":0.75},"label":"a","loss":1.5,"learned":9}',
        ),
        (
            prediction(prediction=1, label=None, loss=None, id=None),
            b'{"id":null,"model":"m","prediction":1,"probabilities":{"a":0.25,"b":0.75},"learned":9}',
        ),
        (
            prediction(prediction=None, probabilities=[], label=False, loss=0.0, learned=0),
            b'{"id":"7","model":"m","prediction":null,"probabilities":{},"label":false,"loss":0.0,"learned":0}',
        ),
        (
            prediction(prediction=True, classes=["true", "né", "new"], probabilities=[1.0, 0.0], label=0),
            '{"id":"7","model":"m","prediction":true,"probabilities":{"true":1.0,"né":0.0},"label":0,"loss":1.5,'
            '"learned":9}'.encode(),
        ),
    ],
)
def test_prediction_value(published: Prediction, value: bytes) -> None:
    assert encode_answers(["m"], [published])[0] == value


@pytest.mark.parametrize(
    ("published", "value"),
    [
        (
            Estimate(1.5, 0.25, [1.0, 1.5, 2.0], 2, 0.25, 9, "7"),
            b'{"id":"7","model":"m","prediction":1.5,"std":0.25,"quantiles":{"0.05":1.0,"0.5":1.5,"0.95":2.0},'
            b'"label":2,"loss":0.25,"learned":9}',
        ),
        (
            Estimate(1.5, 0.25, [1.0, 1.5, 2.0], None, None, 9, None),
            b'{"id":null,"model":"m","prediction":1.5,"std":0.25,"quantiles":{"0.05":1.0,"0.5":1.5,"0.95":2.0},'
            b'"learned":9}',
        ),
        (
            Estimate(None, None, None, 10**20, None, 0, None),
            b'{"id":null,"model":"m","prediction":null,"std":null,"quantiles":null,"label":100000000000000000000,'
            b'"loss":null,"learned":0}',
        ),
    ],
)
def test_estimate_value(published: Estimate, value: bytes) -> None:
    assert encode_answers(["m"], [published])[0] == value


def test_a_forest_takes_every_number_that_is_a_label() -> None:
    assert MAX_NUMBER <= LARGEST_NUMBER


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_published_floats_keep_their_bits(floats: list[float]) -> None:
    names = [str(i) for i in range(len(floats))]
    value = json.loads(encode_answers(["m"], [prediction(classes=names, probabilities=floats, loss=floats[0])])[0])
    assert [bits(p) for p in value["probabilities"].values()] == [bits(p) for p in floats]
    assert bits(value["loss"]) == bits(floats[0])


# --- headers and sizes ------------------------------------------------------------------------------------------------

PROVENANCE: Headers = Provenance("events", 3, "amf-1", "main").headers(12, "abc")


def record(**changes: Any) -> Record:
    fields = dict(offset=12, timestamp_ms=1_700, key=b"k", value=b"value", headers=[("trace", b"1"), ("empty", None)])
    return Record(**fields | changes)


def test_provenance_headers() -> None:
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


def test_a_trace_without_measure_goes_with_the_other_headers() -> None:
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
