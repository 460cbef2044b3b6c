"""Why a record is a dead letter: the stable codes, the limits behind them, and the diagnosis of a bad value.

A value is diagnosed only after the fast decoder refused it: it is read again by the standard library's parser, slowly
and leniently, only to say which code it is. Where it has several faults, broken text comes first (`malformed-json`),
then the first wrong field in the order of the text, then absent or empty features. Of a name that occurs twice every
occurrence must be of a right type, and the last one counts. What other codecs decode is judged by `refusal` too, as if
it had been JSON, so that one event has one code however it is written.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

from worker.base.limits import (
    MAX_CATEGORY_CHARS,
    MAX_CLASS,
    MAX_DECIMAL_DIGITS,
    MAX_DEPTH,
    MAX_EMPTY_PARTS,
    MAX_FEATURE_NAME_CHARS,
    MAX_ID_CHARS,
    MAX_KEY_BYTES,
    MAX_LABEL_CHARS,
    MAX_NEW_COLUMNS,
    MAX_NUMBER,
    MAX_PARTS,
    MIN_CLASS,
    YOUNG_SAMPLES,
)
from worker.base.records import Reject

_LIMITS = (
    f"{MAX_KEY_BYTES} {MAX_FEATURE_NAME_CHARS} {MAX_CATEGORY_CHARS} {MAX_LABEL_CHARS} {MAX_ID_CHARS} {MAX_DEPTH}"
    f" {MAX_NUMBER:g} {MAX_NEW_COLUMNS} {YOUNG_SAMPLES}"
)
DECODERS = {
    "json": f"json-4 {_LIMITS}",
    "msgpack": f"msgpack-3 {_LIMITS}",
    "avro": f"avro-7 {_LIMITS}",
    "json-schema": f"json-schema-6 {_LIMITS}",
}
"""Version and limits of each codec's `decode`. Part of every model's spec, since they decide what it learns."""
DECODER = DECODERS["json"]

REJECT_CODES = {
    "null-key": "The record has no key and `models.null_key` names no model.",
    "invalid-key": f"The record key is empty, longer than {MAX_KEY_BYTES} bytes or not UTF-8.",
    "invalid-headers": "The name of a header is not UTF-8. Of such a record no headers are kept.",
    "missing-model-key": "The field that `input.model_key` names is absent, null, or neither text nor an integer nor a"
    " boolean; or the value cannot be read.",
    "null-value": "The record has no value and `input.tombstones` is not `reset`.",
    "too-large": "The value is longer than the worker accepts, or its JSON Schema has so many parts that to judge a"
    " value of its length would take long.",
    "malformed-json": f"The value is not JSON, not UTF-8 or nested deeper than {MAX_DEPTH} levels.",
    "malformed-msgpack": f"The value is not MessagePack, has a text that is not UTF-8 or a key that is no text, or is"
    f" nested deeper than {MAX_DEPTH} levels.",
    "malformed-avro": "The bytes of the value are not what its schema says, or more than that, or a decimal has more"
    " digits than its precision.",
    "no-schema": "The value names no schema: it does not begin with a zero byte and the 4 bytes of a schema id, and no"
    " header `__value_schema_id` names one.",
    "unknown-schema": "The value names a schema by an id that no registry has; or by one that its registry does not"
    " have, and `schema_registry.on_unknown` is `dead-letter`.",
    "unusable-schema": "The schema of the value is none of the codec, refers to other documents or to what is nowhere"
    f" or no schema, is nested deeper than {MAX_DEPTH} levels, what it refers to included, or within itself, has arrays"
    f" of items without bytes or decimals of more than {MAX_DECIMAL_DIGITS} digits, leads to more than {MAX_PARTS}"
    f" parts, or (Avro) to {MAX_EMPTY_PARTS} for which there are no bytes, or has a pattern that only backtracking can"
    " match.",
    "schema-mismatch": "The value is JSON, but not as its JSON Schema demands.",
    "wrong-type": "A field has a type that the contract does not allow there, such as text in an array of features."
    " A number with a fraction or an exponent is no class, be it 1.0; text and booleans are no label of a regressor.",
    "non-finite-number": "A feature or the label is NaN or infinite, as a bare token or (features) as text.",
    "number-out-of-range": "A feature does not fit a 64-bit float, a label lies beyond 1e75, or an integer that is to"
    " be a class or an id does not fit 64 bits.",
    "missing-features": "The value has no field `features`.",
    "empty-features": "`features` holds no feature.",
    "feature-kind": "`features` is an array where the model has an object, or the reverse.",
    "feature-count": "The array `features` is not as long as the model's.",
    "outside-unit-cube": "The model lives on the unit cube (`unrestricted-amf-classifier`, or `domain: cube`), and a"
    " feature is missing, text or not"
    " from 0 to 1, or a labelled event brings one that was not in the first.",
    "too-many-features": f"The model would have more features than `max_features`; or it has learned {YOUNG_SAMPLES}"
    f" labels, and one event would bring more than {MAX_NEW_COLUMNS} new features and more than it has.",
    "feature-name-too-long": f"A feature name is longer than {MAX_FEATURE_NAME_CHARS} characters.",
    "category-too-long": f"A feature is text of more than {MAX_CATEGORY_CHARS} characters.",
    "label-too-long": f"The label is longer than {MAX_LABEL_CHARS} characters.",
    "id-too-long": f"The id is longer than {MAX_ID_CHARS} characters.",
    "too-many-classes": "The model would have more classes than `max_classes`.",
    "unknown-class": "The model's classes are fixed and the label is none of them.",
    "too-many-models": "The key has no model, and its partition has as many as `models.max_models` allows.",
    "spec-changed": "The model's specification changed and `models.on_spec_change` is `fail`.",
    "unpublishable": "The broker refuses what was to be published of the record, by its size, its timestamp or its"
    " missing key. The model has learned it all the same.",
}
"""Every reject code with its sentence. The codes are stable: people alert on them and filter by them."""
UNPUBLISHABLE = Reject("unpublishable", REJECT_CODES["unpublishable"])
"""For a record of which the broker refuses what is published."""


class Object(list[tuple[str, Any]]):
    """The members of an object, repeated names included."""


class _Integer(str):
    """The text of a number without fraction and exponent, of any length."""


class _Decimal(str):
    """The text of a number with a fraction or an exponent."""


class _NonFinite(str):
    """A bare NaN, Infinity or -Infinity, which is no JSON, but what many serialisers write for such a number."""


class _Foreign:
    """A value of a type that JSON does not have."""


_lenient_decode = json.JSONDecoder(
    object_pairs_hook=Object, parse_int=_Integer, parse_float=_Decimal, parse_constant=_NonFinite
).decode
_NON_FINITE_TEXT = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE | re.ASCII)
_KIND = {
    type(None): "null",
    bool: "a boolean",
    str: "a string",
    list: "an array",
    Object: "an object",
    _Integer: "an integer",
    _Decimal: "a decimal number",
    _NonFinite: "a number that is not finite",
    _Foreign: "a type that JSON does not have",
}


def diagnose(value: bytes) -> Reject:
    """The code and the reason for a value that `decode` refuses."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Reject("malformed-json", f"the value is not UTF-8 at byte {error.start}")
    # Before it is parsed: how deep the parser can follow depends on how deep the stack is already.
    if is_too_deep(value):
        return Reject("malformed-json", f"the value is nested deeper than {MAX_DEPTH} levels")
    try:
        root = _lenient_decode(text)
    except json.JSONDecodeError as error:
        return Reject("malformed-json", f"the value is not JSON at character {error.pos}: {error.msg}")
    # What the lenient parser lets pass outside of the fields that are checked:
    rest = "the value is not JSON: it has a bare NaN or Infinity, or a \\u escape that is half of a surrogate pair"
    return _check_root(root) or Reject("malformed-json", rest)


def refusal(value: object) -> Reject | None:
    """The code and the reason for a decoded value that is no event; None where it is one.

    It consists of what Python has for JSON, with `Object` or dict for an object, and is nested MAX_DEPTH deep at most.
    """
    root = _as_parsed(value)
    refused = _check_root(root)
    if refused is not None:
        return refused
    if not isinstance(root, Object):
        return _wrong_type("the value", "an object", root)
    # Numbers that are not finite are left to the parser of a text, which takes them for broken text.
    for name, member in root:
        if name in ("features", "id") and isinstance(member, _NonFinite):
            expected = "an object or an array" if name == "features" else "a string, an integer or null"
            return _wrong_type(name, expected, member)
    return None


def _as_parsed(value: object) -> Any:
    """A decoded value in the form that the lenient parser gives it."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Object | dict):
        members = value.items() if isinstance(value, dict) else value
        return Object((name, _as_parsed(member)) for name, member in members)
    if isinstance(value, list):
        return [_as_parsed(item) for item in value]
    if isinstance(value, int):
        return _Integer(value)
    if isinstance(value, float):
        return _Decimal(repr(value)) if math.isfinite(value) else _NonFinite(value)
    return _Decimal(value) if isinstance(value, Decimal) else _Foreign()


def _check_root(root: Any) -> Reject | None:
    if isinstance(root, _NonFinite):
        return None
    if not isinstance(root, Object):
        return _wrong_type("the value", "an object", root)
    features = None
    for name, member in root:
        if name == "features":
            features, problem = member, _check_features(member)
        elif name == "label":
            problem = _check_label(member)
        elif name == "id":
            problem = _check_id(member)
        else:
            continue
        if problem is not None:
            return problem
    if features is None:
        return Reject("missing-features", "the value has no field features")
    return None if features else Reject("empty-features", "features holds no feature")


def _check_features(features: Any) -> Reject | None:
    if isinstance(features, _NonFinite):
        return None
    if isinstance(features, Object):
        for name, value in features:
            path = f"features[{name[:40]!r}]"
            too_long = _check_length("feature-name-too-long", f"the name of {path}", name, MAX_FEATURE_NAME_CHARS)
            if (problem := too_long or _check_feature(path, value)) is not None:
                return problem
        return None
    if isinstance(features, list):
        problems = (_check_item(f"features[{i}]", value) for i, value in enumerate(features))
        return next((problem for problem in problems if problem is not None), None)
    return _wrong_type("features", "an object or an array", features)


def _check_feature(path: str, value: Any) -> Reject | None:
    """Of an object: text is a category, unless it is what some serialisers write for a number that is not finite."""
    if type(value) is str and not is_non_finite(value):
        return _check_length("category-too-long", path, value, MAX_CATEGORY_CHARS)
    return _check_item(path, value, "a number, text, a boolean or null")


def _check_item(path: str, value: Any, expected: str = "a number, a boolean or null") -> Reject | None:
    if isinstance(value, _Integer | _Decimal):
        if math.isinf(float(value)):
            return Reject("number-out-of-range", f"{path} does not fit a 64-bit float")
        return None
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and is_non_finite(value):
        return Reject("non-finite-number", f"{path} is {value.strip()}; write null for a missing value")
    return None if value is None else _wrong_type(path, expected, value)


def is_non_finite(text: str) -> bool:
    """Whether the text is what some serialisers write for NaN or infinity."""
    if len(text) > MAX_CATEGORY_CHARS:
        return _NON_FINITE_TEXT.fullmatch(text) is not None
    return _is_short_non_finite(text)


@lru_cache(maxsize=10_000)
def _is_short_non_finite(text: str) -> bool:
    """Whether a text no longer than a category is NaN or infinity. Categories recur: the answer is remembered."""
    return _NON_FINITE_TEXT.fullmatch(text) is not None


def _check_label(label: Any) -> Reject | None:
    if isinstance(label, _NonFinite):
        return Reject("non-finite-number", f"label is {label}; leave it out, or write null, where there is none")
    if isinstance(label, _Integer | _Decimal):
        number = _whole(label) if isinstance(label, _Integer) else float(label)
        return None if abs(number) <= MAX_NUMBER else Reject("number-out-of-range", f"label lies beyond {MAX_NUMBER:g}")
    if label is None or isinstance(label, bool):
        return None
    if not isinstance(label, str):
        return _wrong_type("label", "a string, a number, a boolean or null", label)
    return _check_length("label-too-long", "label", label, MAX_LABEL_CHARS)


def _check_id(value: Any) -> Reject | None:
    if value is None or isinstance(value, _NonFinite):
        return None
    if isinstance(value, _Integer):
        fits = MIN_CLASS <= _whole(value) <= MAX_CLASS
        return None if fits else Reject("number-out-of-range", "id is an integer that does not fit 64 bits")
    if type(value) is not str:
        return _wrong_type("id", "a string, an integer or null", value)
    return _check_length("id-too-long", "id", value, MAX_ID_CHARS)


def _whole(text: _Integer) -> int | float:
    """Its value; infinite where it has more digits than Python reads."""
    return int(text) if len(text) < 100 else float(text)


def _check_length(code: str, path: str, text: str, limit: int) -> Reject | None:
    if len(text) <= limit:
        return None
    return Reject(code, f"{path} has {len(text)} characters, expected at most {limit}")


def _wrong_type(path: str, expected: str, value: Any) -> Reject:
    return Reject("wrong-type", f"{path}: expected {expected}, got {_KIND[type(value)]}")


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, up to the end of the text where it does not end before."""
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(value: bytes) -> bool:
    """Whether a text of JSON, well-formed or not, is nested deeper than MAX_DEPTH."""
    brackets = rest = _brackets(value)
    # Each round removes the innermost ones. Of good values that leaves nothing, sooner than they could be counted.
    for _ in range(MAX_DEPTH):
        rest = rest.replace(b"[]", b"")
        if not rest:
            return False
    return _most_open(brackets) > MAX_DEPTH


def nesting(value: bytes) -> int:
    """Levels of nesting of a text of JSON, well-formed or not: the most brackets that are open at a time."""
    return _most_open(_brackets(value))


def _most_open(brackets: bytes) -> int:
    return max(accumulate(1 if bracket == ord("[") else -1 for bracket in brackets), default=0)


def _brackets(value: bytes) -> bytes:
    """The brackets of a text of JSON that are not in strings, all of them square."""
    return _STRING.sub(b"", value).translate(_AS_SQUARE, _NO_BRACKETS)
