"""JSON that is no event: the code and the reason, the same each time, whatever the bytes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.support.malformed import MAX_BYTES, malformed
from tests.worker.support.values import MESSAGES, bits, code_of
from worker.base.records import Reject
from worker.codec import decode
from worker.codec.dead_letters import REJECT_CODES

# --- values that are none ---------------------------------------------------------------------------------------------


def test_every_malformed_value_gets_its_code() -> None:
    wrong = [
        (value[:200] if value else value, code, decoded)
        for value, code in malformed(seed=3, count=2_000)
        if code_of(decoded := decode(value, MAX_BYTES)) != code
    ]
    assert wrong == []


def test_malformed_values_are_the_same_each_time_and_cover_the_codec() -> None:
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
        (b'{"features": [1,,]}', "the value is not JSON at character 16"),
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


# --- mutated values ---------------------------------------------------------------------------------------------------


TOKENS = b'" \\ , : { } [ ] - . 0 1 e9 E400 null NaN true \\ud800 "label": "features": "id": \xc3 \xe2\x82\xac'.split()
fragments = st.binary(max_size=2) | st.sampled_from([*TOKENS, b" ", b"9" * 30])
edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), fragments), max_size=4)

NON_FINITE = re.compile(r"[ \t\n\r\f\v]*[+-]?(nan|inf(inity)?)[ \t\n\r\f\v]*", re.IGNORECASE | re.ASCII)


@given(MESSAGES, st.booleans(), edits)
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
