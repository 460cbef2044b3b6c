"""A registry that cannot be asked decides nothing, is asked no more than it must be, and shows no secret."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.worker.support.configurations import document
from tests.worker.support.malformed import MAX_BYTES
from tests.worker.support.registry import StubRegistry
from tests.worker.support.schemas import JSON_EVENT, MAP, avro_bytes, event_schema, framed, open_codec
from tests.worker.support.values import outcome
from worker.adapters.kafka import registry as adapter
from worker.adapters.kafka.reading import AvroReader, JsonValidator
from worker.base.errors import ConfigError, Transient, WorkerError
from worker.base.records import Event, Record, Reject
from worker.codec import codec_of, envelope
from worker.config import effective, loads


@pytest.mark.parametrize("name", ["avro", "json-schema"])
@pytest.mark.parametrize("shortage", [MemoryError, RecursionError])
def test_a_machine_without_memory_or_stack_makes_no_dead_letters(
    stub_registry: StubRegistry, name: str, shortage: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What becomes of a record follows from its bytes: a replay, with more of it, would learn what was refused."""
    events, _ = open_codec(name, stub_registry.url)
    schema, payload = event_schema(MAP), avro_bytes(event_schema(MAP), {"features": {"a": 1.0}})
    if name == "json-schema":
        schema, payload = JSON_EVENT, b'{"features": [1], "label": "yes"}'
    value = framed(stub_registry.add("events-value", schema, "AVRO" if name == "avro" else "JSON"), payload)
    assert isinstance(events.decode(value, MAX_BYTES), Event)

    def exhausted(*_: object) -> object:
        raise shortage

    with monkeypatch.context() as patched:
        patched.setattr(AvroReader, "datum", exhausted)
        patched.setattr(JsonValidator, "refusal", exhausted)
        with pytest.raises(shortage):
            events.decode(value, MAX_BYTES)
    assert isinstance(events.decode(value, MAX_BYTES), Event)


def test_what_a_library_says_of_an_object_is_said_alike_by_every_process(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead letter of a record has to be the same when it is made again."""
    events, _ = open_codec("avro", stub_registry.url)
    value = framed(stub_registry.add("events-value", event_schema(MAP)), b"\x02")
    reasons = set()
    for address in (0x7F00DEADBEEF, 0x7F00C0FFEE00):

        def refuse(*_: object, address: int = address) -> object:
            raise ValueError(f"cannot read from <BytesIO object at {address:#x}>\nat all" + 300 * "!")

        with monkeypatch.context() as patched:
            patched.setattr(AvroReader, "datum", refuse)
            found = events.decode(value, MAX_BYTES)
            assert isinstance(found, Reject)
            reasons.add(found.reason)
    [reason] = reasons
    assert "cannot read from <BytesIO object> at all!!" in reason
    assert len(reason) < 300


HALF = "\ud800"
"""Half of a surrogate pair: JSON can say it, and no text that is published can."""


@pytest.mark.parametrize(
    ("name", "schema", "more"),
    [
        ("avro", json.dumps(HALF), {}),
        ("avro", event_schema({"type": "bytes", "logicalType": "decimal", "precision": HALF}), {}),
        ("avro", event_schema(MAP), {"kind": HALF}),
        ("avro", event_schema(MAP), {"references": [{"name": "X", "subject": HALF, "version": 1}]}),
        ("json-schema", json.dumps({"$ref": HALF}), {"kind": "JSON"}),
    ],
)
def test_what_a_schema_holds_may_be_no_text_and_the_dead_letter_says_so_all_the_same(
    stub_registry: StubRegistry, name: str, schema: str, more: dict[str, Any]
) -> None:
    events, _ = open_codec(name, stub_registry.url)
    value = framed(stub_registry.add("events-value", schema, **more), b'{"features": [1]}')
    refused = events.decode(value, MAX_BYTES)
    assert isinstance(refused, Reject)
    letter = envelope.dead_letter("dead-letters", Record(0, 0, b"k", value, []), refused, [], 4096)
    headers = dict(letter.headers)
    assert headers["error-code"] == b"unusable-schema"
    assert rb"\ud800" in (headers["error-reason"] or b"")


def test_what_a_registry_says_may_be_no_text_and_the_page_shows_it_all_the_same(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, _ = open_codec("avro", stub_registry.url)
    monkeypatch.setattr(stub_registry, "answer", lambda *_: (500, {"error_code": 500, "message": HALF}))
    with pytest.raises(Transient, match="HTTP status 500") as failed:
        events.decode(framed(1, b"x"), MAX_BYTES)
    msgspec.json.encode(str(failed.value))


SLOW = ("silent", "drop by drop", "headers drop by drop")
FAULTS = ["down", *SLOW, "endless", "page", "empty", 500, 503, 429, 401, 404]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_registry_that_cannot_be_asked_decides_nothing(
    stub_registry: StubRegistry, asked_at_once: None, fault: str | int
) -> None:
    schema = event_schema(MAP)
    known, unknown = (
        stub_registry.add("events-value", schema),
        stub_registry.add("events-value", event_schema({"type": "map", "values": "int"})),
    )
    payload = avro_bytes(schema, {"features": {"a": 1.5}})
    events, registry = open_codec("avro", stub_registry.url, timeout="200ms" if fault in SLOW else "30s")
    good = outcome(Event({"a": 1.5}, None, None))
    assert outcome(events.decode(framed(known, payload), MAX_BYTES)) == good
    stub_registry.fault = fault
    with pytest.raises(Transient, match="schema registry"):
        events.decode(framed(unknown, b"\2\2a\2\0\0\0"), MAX_BYTES)
    with pytest.raises(Transient):
        events.prepare()
    if fault != "empty":  # An answer without a schema makes the client itself forget.
        assert outcome(events.decode(framed(known, payload), MAX_BYTES)) == good
    stub_registry.fault = None
    stub_registry.release()
    assert registry._asking is not None
    assert registry._asking.ends_within(10)
    assert outcome(events.decode(framed(unknown, b"\2\2a\2\0\0\0"), MAX_BYTES)) == outcome(
        Event({"a": 1.0}, None, None)
    )


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("endless", "more than 16,777,216 bytes"),
        ("drop by drop", "has not come to its end"),
        ("headers drop by drop", r"no answer in 0\.6 s"),
        ("compressed", "compressed, which was not asked for"),
    ],
)
def test_an_answer_that_takes_too_much_is_named(stub_registry: StubRegistry, fault: str, why: str) -> None:
    events, _ = open_codec("avro", stub_registry.url, timeout="200ms" if fault in SLOW else "30s")
    stub_registry.fault = fault
    with pytest.raises(Transient, match=why):
        events.decode(framed(1, b"x"), MAX_BYTES)


def test_while_a_question_has_no_end_no_other_is_asked(stub_registry: StubRegistry, asked_at_once: None) -> None:
    """Each would leave a thread behind."""
    events, registry = open_codec("avro", stub_registry.url, timeout="100ms")
    stub_registry.fault = "headers drop by drop"
    for why in ("no answer in", "an earlier question", "an earlier question"):
        with pytest.raises(Transient, match=why):
            events.decode(framed(1, b"x"), MAX_BYTES)
    assert stub_registry.asked.total() == 1
    stub_registry.fault = None
    stub_registry.release()
    assert registry._asking is not None
    assert registry._asking.ends_within(10)
    assert "AVRO" in registry.probe()


@pytest.mark.parametrize("answer", [None, 5, True])
def test_an_answer_that_names_no_types_is_none(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    """`check` says so, and goes on."""
    _, registry = open_codec("avro", stub_registry.url)
    monkeypatch.setattr(stub_registry, "answer", lambda method, path, body: (200, answer))
    with pytest.raises(Transient, match=r"the schema registry at .* cannot be asked"):
        registry.probe()


def test_a_registry_that_failed_is_left_alone_for_a_while(stub_registry: StubRegistry) -> None:
    events, _ = open_codec("avro", stub_registry.url)
    stub_registry.fault = 503
    for number in (1, 2, 3):
        with pytest.raises(Transient):
            events.decode(framed(number, b"x"), MAX_BYTES)
    assert stub_registry.asked.total() == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_registry_that_has_too_much_to_do_or_fails_refuses_nothing(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """It says so as a registry does, and a start is to wait for it."""
    answers, _ = open_codec("avro", stub_registry.url)
    busy = status, {"error_code": status, "message": "come again later"}
    monkeypatch.setattr(stub_registry, "answer", lambda method, path, body: busy)
    with pytest.raises(Transient, match=f"HTTP status {status}"):
        answers.prepare()


def test_a_schema_that_is_not_registered_is_not_asked_for_with_every_record(stub_registry: StubRegistry) -> None:
    events, _ = open_codec("avro", stub_registry.url)
    for _ in range(3):
        with pytest.raises(Transient, match="has no schema of id 7"):
            events.decode(framed(7, b"x"), MAX_BYTES)
    assert stub_registry.asked.total() == 1
    with pytest.raises(Transient, match="has no schema of id 8"):
        events.decode(framed(8, b"x"), MAX_BYTES)
    assert stub_registry.asked.total() == 2, "of the one nothing follows for the other"


def test_a_path_that_is_not_there_is_no_word_of_a_registry_about_a_schema(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a URL of something else all records would be dead letters."""
    events, _ = open_codec("avro", stub_registry.url, ", on_unknown: dead-letter")
    no_path = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
    monkeypatch.setattr(stub_registry, "answer", lambda method, path, body: no_path)
    with pytest.raises(Transient, match="cannot be asked: HTTP status 404"):
        events.decode(framed(1, b"x"), MAX_BYTES)


def test_a_schema_that_may_not_be_read_holds_up_no_other(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each partition needs another one, the first would else be all that is ever asked for."""
    schema, answer = event_schema(MAP), stub_registry.answer
    payload = avro_bytes(schema, {"features": {"a": 1.0}})
    denied, other = (
        stub_registry.add("a", schema),
        stub_registry.add("b", event_schema(MAP, {"name": "x", "type": MAP})),
    )
    no = 403, {"error_code": 40301, "message": "User is denied operation Read on Subject"}
    monkeypatch.setattr(
        stub_registry, "answer", lambda method, path, body: no if f"/{denied}" in path else answer(method, path, body)
    )
    events, _ = open_codec("avro", stub_registry.url, ", on_unknown: dead-letter")
    for _ in range(3):
        with pytest.raises(Transient, match=r"cannot be asked: HTTP status 403.*User is denied"):
            events.decode(framed(denied, payload), MAX_BYTES)
        assert isinstance(events.decode(framed(other, payload + b"\0"), MAX_BYTES), Event)
    assert stub_registry.asked.total() == 2
    monkeypatch.setattr(adapter, "REST_S", 0.0)
    events, _ = open_codec("avro", stub_registry.url)
    for _ in range(2):
        with pytest.raises(Transient, match="HTTP status 403"):
            events.decode(framed(denied, payload), MAX_BYTES)
    assert stub_registry.asked.total() == 4, "once it has rested it is asked for again"


@pytest.mark.parametrize(
    "fails", [(500, {"error_code": 50001, "message": "Error in the backend data store"}), (200, {"schema": None})]
)
def test_schemas_with_which_a_registry_fails_for_good_hold_up_no_other_for_good(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch, fails: tuple[int, Any]
) -> None:
    """Whoever needs them asks first each time: they would be all that is ever asked for."""
    schema, answer, now_s = event_schema(MAP), stub_registry.answer, [1000.0]
    payload = avro_bytes(schema, {"features": {"a": 1.0}})
    damaged = [stub_registry.add(name, event_schema(MAP, {"name": name, "type": MAP})) for name in "xyz"]
    good = stub_registry.add("good", schema)
    monkeypatch.setattr(
        stub_registry,
        "answer",
        lambda method, path, body: answer(method, path, body) if path.endswith(f"/{good}") else fails,
    )
    monkeypatch.setattr(adapter, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    events, _ = open_codec("avro", stub_registry.url)
    found = []
    while not found and now_s[0] < 1100:
        for number in damaged:
            with pytest.raises(Transient, match=r"cannot be asked: (HTTP status 500|no schema)|a moment ago"):
                events.decode(framed(number, payload), MAX_BYTES)
        with suppress(Transient):
            found.append(events.decode(framed(good, payload), MAX_BYTES))
        now_s[0] += 1
    assert isinstance(found[0], Event)
    assert now_s[0] - 1000 <= adapter.LONGEST_REST_S


def test_schemas_that_nobody_has_take_no_more_memory_than_those_that_there_are(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything may stand where a schema is named."""
    monkeypatch.setattr(adapter, "MAX_SCHEMAS", 3)
    events, registry = open_codec("avro", stub_registry.url, ", on_unknown: dead-letter")
    for number in range(1, 9):
        assert outcome(events.decode(framed(number, b"x"), MAX_BYTES)) == "unknown-schema"
        assert 1 <= len(registry._withheld) <= 3


def test_a_schema_is_asked_for_once(stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = [event_schema({"type": "map", "values": kind}) for kind in ("int", "long", "double")]
    numbers = [stub_registry.add("events-value", schema) for schema in schemas]
    events, _ = open_codec("avro", stub_registry.url)
    payload = avro_bytes(schemas[0], {"features": {"a": 1}})
    for number in numbers[:2] * 3:
        assert isinstance(events.decode(framed(number, payload), MAX_BYTES), Event)
    assert stub_registry.asked.total() == 2
    # The bound: one more, and all are asked for again.
    monkeypatch.setattr(adapter, "MAX_SCHEMAS", 2)
    events.decode(framed(numbers[0], payload), MAX_BYTES)
    assert stub_registry.asked.total() == 2
    for number in (numbers[2], numbers[0]):
        events.decode(framed(number, payload), MAX_BYTES)
    assert stub_registry.asked.total() == 4


def test_it_goes_in_with_user_and_password_and_shows_them_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with StubRegistry(user_info="amf:hunter2") as stub:
        _, registry = open_codec("avro", stub.url, ', user_info: "amf:hunter2"')
        assert registry.probe() == "answers, and has schemas of the types AVRO, JSON"
        events, wrong = open_codec("avro", stub.url, ', user_info: "amf:hunter3"')
        with pytest.raises(WorkerError) as caught:
            wrong.probe()
        with pytest.raises(Transient):
            events.decode(framed(1, b"x"), MAX_BYTES)
    assert "401" in str(caught.value)
    assert "hunter" not in caplog.text + str(caught.value) + repr(caught.value)


def test_a_missing_library_and_a_missing_file_are_errors_of_the_configuration(
    stub_registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"schema_registry\.ca_location: the file /nowhere/ca\.pem .*No such file"):
        open_codec("avro", stub_registry.url, ", ca_location: /nowhere/ca.pem")
    with pytest.raises(ConfigError, match=rf"schema_registry\.ca_location: the file {__file__} cannot be used"):
        open_codec("avro", stub_registry.url, f", ca_location: {__file__}")
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[registry\]'"):
        open_codec("avro", stub_registry.url)
    with pytest.raises(ConfigError, match=r"codec avro needs schema_registry\.url"):
        codec_of("avro", "predictions", None)


@pytest.mark.parametrize(
    ("name", "section", "problem"),
    [
        ("avro", "{}", "schema_registry.url: expected a URL, which codecs avro and json-schema need"),
        ("json", '{url: "ftp://registry"}', "schema_registry.url: expected http:// or https:// URLs without user info"),
        ("avro", '{url: "http://amf:hunter2@registry"}', "URLs without user info, or null, found something else"),
        (
            "avro",
            '{url: "http://registry", user_info: hunter2}',
            "expected user:password, or null, found something else",
        ),
    ],
)
def test_a_section_that_cannot_be_used_is_refused_without_showing_it(name: str, section: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(document(input=f"{{topic: events, codec: {name}}}", schema_registry=section), {})
    assert problem in str(caught.value)
    assert str(caught.value).count("expected") == 1, "one mistake is one problem"
    assert "hunter" not in str(caught.value)


def test_the_user_info_is_masked_wherever_the_configuration_is_shown() -> None:
    section = '{url: "http://one:8081, https://two/registry", user_info: "${USER_INFO}"}'
    text = document(input="{topic: events, codec: avro}", schema_registry=section)
    config = loads(text, {"USER_INFO": "amf:hunter2"})
    assert config.schema_registry.user_info == "amf:hunter2"
    assert "hunter" not in effective(config) + repr(config)
    assert "url: http://one:8081, https://two/registry" in effective(config)


def test_a_value_is_read_by_a_schema_of_its_codec_alone_and_to_its_last_byte(stub_registry: StubRegistry) -> None:
    """What is of another type may pass for a schema, and what is left behind a value for nothing."""
    events, _ = open_codec("avro", stub_registry.url)
    schema, payload = event_schema(MAP), avro_bytes(event_schema(MAP), {"features": {"a": 1.5}})
    strange, own = stub_registry.add("events-value", schema, "JSON"), stub_registry.add("events-value", schema)
    assert outcome(events.decode(framed(strange, payload), MAX_BYTES)) == "unusable-schema"
    assert outcome(events.decode(framed(own, payload + b"\0"), MAX_BYTES)) == "malformed-avro"
    assert isinstance(events.decode(framed(own, payload), MAX_BYTES), Event)
