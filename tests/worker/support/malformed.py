"""Malformed record values, each with the one reject code it must end under. Deterministic: a seed gives the same set.

Every value has exactly one fault, so that its code is no matter of taste. The kinds take turns; what varies within a
kind (the good message around the fault, the place of the fault, its size) is random.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random

MAX_BYTES = 1_000_000
"""The `max_bytes` that the values are made for; only those meant to be `too-large` are longer."""

HUGE_BYTES = 10_000_000
DEPTHS = (65, 66, 200, 900, 1_000, 5_000, 100_000)

Malformed = tuple[bytes | None, str]
Fields = dict[str, str]
"""The fields of a message under construction: name -> JSON text, so that a fault can be any text."""


def malformed(seed: int, count: int) -> Iterator[Malformed]:
    """`count` pairs of a malformed value and its reject code.

    Large values are few, since they may have to go through a broker: every 100th is longer than MAX_BYTES, and every
    500th has ten megabytes.
    """
    random = Random(seed)
    for i in range(count):
        if i % 500 == 250:
            yield _padded(random, HUGE_BYTES), "too-large"
        elif i % 100 == 50:
            yield _padded(random, MAX_BYTES + random.choice([1, 2, 1_000])), "too-large"
        else:
            yield KINDS[i % len(KINDS)](random)


# --- good messages, to be spoiled -------------------------------------------------------------------------------------


def good_fields(random: Random) -> Fields:
    """The fields of a valid message: an object or an array of features, often a label, an id, unknown fields."""
    count = random.randint(1, 12)
    if random.random() < 0.5:
        features = _array([_number(random) for _ in range(count)])
    else:
        features = _object([_value(random) for _ in range(count)])
    fields = {"features": features}
    if random.random() < 0.7:
        fields["label"] = random.choice(['"yes"', '"größe"', "1", "-3", "2.5", "1e3", "true", "false", "null"])
    if random.random() < 0.7:
        fields["id"] = random.choice([f'"{random.randint(0, 999)}"', "4711", '"\\ud83d\\ude00"', "null"])
    if random.random() < 0.5:
        fields["meta"] = random.choice(['{"source": ["a", {"b": null}]}', '"x"', "1e999", "[[], {}]", "-0.0"])
    return fields


def text_of(fields: Fields, random: Random) -> str:
    """The message with these fields, in any order."""
    members = [f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in fields.items()]
    random.shuffle(members)
    return "{" + ", ".join(members) + "}"


def _array(values: list[str]) -> str:
    return "[" + ", ".join(values) + "]"


def _object(values: list[str]) -> str:
    return "{" + ", ".join(f'"f{j}": {value}' for j, value in enumerate(values)) + "}"


def _value(random: Random) -> str:
    """What a feature of an object may be."""
    if random.random() < 0.7:
        return _number(random)
    return random.choice(['"red"', '"größe"', '"\\u00e4"', '""', '"1.5"', '"nano"', '"x y"', '"' + "x" * 256 + '"'])


def _number(random: Random) -> str:
    return random.choice(
        [
            repr(random.gauss(0, 10)),
            repr(random.random() * 10.0 ** random.randint(-300, 300)),
            str(random.randint(-(10**30), 10**30)),
            str(random.randint(-9, 9)),
            "null",
            "-0.0",
            "1E+2",
        ]
    )


def _with(random: Random, **spoiled: str) -> bytes:
    return text_of(good_fields(random) | spoiled, random).encode()


def _with_feature(random: Random, bad: str) -> bytes:
    """A message with one bad feature value, in an object or an array, among good ones."""
    return (_with_item if random.random() < 0.5 else _with_member)(random, bad)


def _with_item(random: Random, bad: str) -> bytes:
    """One bad value in an array."""
    return _with(random, features=_array(_among(random, bad, _number)))


def _with_member(random: Random, bad: str) -> bytes:
    """One bad value in an object."""
    return _with(random, features=_object(_among(random, bad, _value)))


def _among(random: Random, bad: str, good: Callable[[Random], str]) -> list[str]:
    values = [good(random) for _ in range(random.randint(0, 9))]
    values.insert(random.randint(0, len(values)), bad)
    return values


def _with_string(random: Random, bad: str) -> str:
    """A message with a bad JSON string in any place where the contract allows a string."""
    fields = good_fields(random)
    place = random.choice(["label", "id", "unknown", "nested", "feature name", "category", "field name"])
    if place == "feature name":
        fields["features"] = f"{{{bad}: 1}}"
    elif place == "category":
        fields["features"] = _object(_among(random, bad, _value))
    elif place == "nested":
        fields["meta"] = f'[{{"a": {bad}}}]'
    elif place == "field name":
        return text_of(fields, random)[:-1] + f", {bad}: 1}}"
    else:
        fields[place] = bad
    return text_of(fields, random)


# --- text that is not JSON --------------------------------------------------------------------------------------------


def _null(random: Random) -> Malformed:
    return None, "null-value"


def _blank(random: Random) -> Malformed:
    return random.choice([b"", b" ", b"\n\n", b"\t \r\n", b" " * 5_000]), "malformed-json"


def _truncated(random: Random) -> Malformed:
    value = _with(random)
    return value[: random.randint(1, len(value) - 1)], "malformed-json"


def _binary(random: Random) -> Malformed:
    first = random.choice([0x00, 0x01, 0x7F, 0x80, 0x93, 0xC0, 0xFE, 0xFF])
    return bytes([first]) + random.randbytes(random.randint(0, 2_000)), "malformed-json"


def _not_utf8(random: Random) -> Malformed:
    bad = random.choice([b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"a\x80b", b"\xe2\x82"])
    return _with_string(random, '"@@"').encode().replace(b"@@", bad), "malformed-json"


def _other_encoding(random: Random) -> Malformed:
    encoding = random.choice(["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    return _with(random).decode().encode(encoding), "malformed-json"


def _lone_surrogate(random: Random) -> Malformed:
    escape = random.choice(["\\ud800", "\\udfff", "\\uDC00x", "\\ud800\\u0041", "x\\udbff", "\\ude00\\ud83d"])
    return _with_string(random, f'"{escape}"').encode(), "malformed-json"


def _bad_string(random: Random) -> Malformed:
    bad = random.choice(["\x00", "\x1f", "\n", "\\x", "\\u12", "\\u12g4", "\\'", "\\"])
    return _with_string(random, f'"{bad}"').encode(), "malformed-json"


def _too_deep(random: Random) -> Malformed:
    depth = random.choice(DEPTHS)
    left, right = random.choice([("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
    nested = left * depth + "0" + right * depth
    if random.random() < 0.3:
        nested = left * depth
    if random.random() < 0.2:
        return nested.encode(), "malformed-json"
    return _with(random, **{random.choice(["features", "label", "id", "meta"]): nested}), "malformed-json"


def _bad_number(random: Random) -> Malformed:
    bad = random.choice(["01", "-", "+1", ".5", "1.", "1e", "1e+", "0x10", "1_000", "--1", "1,5.", "-01", "٣", "1f"])
    place = random.choice([_with_feature(random, bad), _with(random, label=bad), _with(random, meta=bad)])
    return place, "malformed-json"


def _bad_literal(random: Random) -> Malformed:
    bad = random.choice(
        ["True", "None", "nul", "undefined", "nan", "inf", "+Infinity", "-NaN", "'a'", "yes", ",", "truE"]
    )
    place = random.choice([_with_feature(random, bad), _with(random, id=bad), _with(random, meta=bad)])
    return place, "malformed-json"


def _bad_punctuation(random: Random) -> Malformed:
    good = text_of(good_fields(random), random)
    bad = random.choice(
        [
            good[:-1] + ",}",
            good + random.choice(["}", "]", ",", " x", "\x00", good, "\n" + good]),
            good[1:],
            good.replace(":", "=", 1),
            good.replace('": ', '" ', 1),
            "{," + good[1:],
            "/* c */" + good,
            good + "// c",
            good.replace('"features"', "features"),
            good.replace('"features"', "'features'"),
            "(" + good[1:-1] + ")",
            "<event>1</event>",
            "features=1&label=2",
        ]
    )
    return bad.encode(), "malformed-json"


def _bare_nan_elsewhere(random: Random) -> Malformed:
    token = random.choice(["NaN", "Infinity", "-Infinity"])
    place = random.choice(["id", "meta", "features"])
    if random.random() < 0.2:
        return token.encode(), "malformed-json"
    nested = random.choice([token, f"[{token}]", f'{{"a": {token}}}']) if place == "meta" else token
    return _with(random, **{place: nested}), "malformed-json"


# --- JSON that is not an event ----------------------------------------------------------------------------------------


def _not_an_object(random: Random) -> Malformed:
    bad = random.choice(["null", "true", "1", "-1.5e3", '"a"', '""', "[]", "[1, 2]", '[{"features": [1]}]', "1e999"])
    return bad.encode(), "wrong-type"


def _wrong_features(random: Random) -> Malformed:
    bad = random.choice(["null", "true", "0", "1.5", '"a"', '"[1]"', "9" * 400])
    return _with(random, features=bad), "wrong-type"


def _wrong_feature(random: Random) -> Malformed:
    if random.random() < 0.3:
        # Text is a category in an object alone.
        return _with_item(random, random.choice(['"1.5"', '"a"', '""', '"NaN0"'])), "wrong-type"
    depth = random.randint(1, 40)
    bad = random.choice(["[]", "{}", "[1]", '["a"]', "[" * depth + "]" * depth])
    return _with_feature(random, bad), "wrong-type"


def _wrong_label(random: Random) -> Malformed:
    bad = random.choice(["[]", "[1.5]", '["a"]', "{}", '{"a": "b"}'])
    return _with(random, label=bad), "wrong-type"


def _wrong_id(random: Random) -> Malformed:
    return _with(random, id=random.choice(["1.0", "1e3", "1.5", "true", "[]", '["a"]', "{}"])), "wrong-type"


def _wrong_duplicate(random: Random) -> Malformed:
    """A name that occurs twice, wrong in the first or the last place: the other occurrence heals nothing."""
    pair = random.choice(
        [
            ('"features": "x"', '"features": [1]'),
            ('"features": [[]]', '"features": {"a": 1}'),
            ('"label": [1], "features": [1]', '"label": 1'),
            ('"id": 7.5, "features": [1]', '"id": "7"'),
            ('"features": {"a": {}, "b": 1, "a": 2}', '"id": null'),
            ('"features": {"a": "2", "b": 1, "a": []}', '"id": null'),
        ]
    )
    first, last = random.sample(pair, 2)
    return f"{{{first}, {last}}}".encode(), "wrong-type"


def _non_finite_token(random: Random) -> Malformed:
    token = random.choice(["NaN", "Infinity", "-Infinity"])
    return random.choice([_with_feature(random, token), _with(random, label=token)]), "non-finite-number"


def _non_finite_text(random: Random) -> Malformed:
    texts = ["NaN", "nan", "NAN", "-nan", "inf", "-inf", "+Inf", "Infinity", "-Infinity", "+infinity", " NaN", "inf "]
    return _with_feature(random, json.dumps(random.choice(texts))), "non-finite-number"


def _feature_out_of_range(random: Random) -> Malformed:
    digits = "".join(random.choices("123456789", k=random.randint(310, 6_000)))
    bad = random.choice(["1e400", "-1e309", "1.8e308", "1e99999999999", "0.1e310", digits, "-" + digits, digits + ".5"])
    return _with_feature(random, bad), "number-out-of-range"


def _label_out_of_range(random: Random) -> Malformed:
    size = random.randint(76, 300)
    bad = random.choice([str(10**size), str(-(10**size)), f"1e{size}", f"-0.1e{size + 1}", "1e400", "7" * 5_000])
    return _with(random, label=bad), "number-out-of-range"


def _id_out_of_range(random: Random) -> Malformed:
    bad = random.choice([str(2**64), str(-(2**63) - 1), "1" * 30, "7" * 5_000])
    return _with(random, id=bad), "number-out-of-range"


def _missing_features(random: Random) -> Malformed:
    fields = good_fields(random)
    features = fields.pop("features")
    if random.random() < 0.5:
        fields[random.choice(["Features", "feature", "features ", "", "x"])] = features
    return text_of(fields, random).encode(), "missing-features"


def _empty_features(random: Random) -> Malformed:
    return _with(random, features=random.choice(["{}", "[]", "{ }", "[\n]"])), "empty-features"


def _long_text(random: Random, limit: int) -> str:
    character = random.choice(["x", "ä", "\U0001f600", "\\n", "\\u00e4", "\\ud83d\\ude00"])
    return '"' + character * random.choice([limit + 1, limit + random.randint(1, 5_000)]) + '"'


def _long_feature_name(random: Random) -> Malformed:
    return _with(random, features=f'{{"a": 1, {_long_text(random, 256)}: 2}}'), "feature-name-too-long"


def _long_category(random: Random) -> Malformed:
    return _with_member(random, _long_text(random, 256)), "category-too-long"


def _long_label(random: Random) -> Malformed:
    return _with(random, label=_long_text(random, 128)), "label-too-long"


def _long_id(random: Random) -> Malformed:
    return _with(random, id=_long_text(random, 1024)), "id-too-long"


def _padded(random: Random, size: int) -> bytes:
    """A good message with so long an unknown field that it has `size` bytes."""
    value = _with(random)
    return value[:-1] + b', "padding": "' + b"x" * (size - len(value) - 15) + b'"}'


KINDS: list[Callable[[Random], Malformed]] = [
    _null,
    _blank,
    _truncated,
    _binary,
    _not_utf8,
    _other_encoding,
    _lone_surrogate,
    _bad_string,
    _too_deep,
    _bad_number,
    _bad_literal,
    _bad_punctuation,
    _bare_nan_elsewhere,
    _not_an_object,
    _wrong_features,
    _wrong_feature,
    _wrong_label,
    _wrong_id,
    _wrong_duplicate,
    _non_finite_token,
    _non_finite_text,
    _feature_out_of_range,
    _label_out_of_range,
    _id_out_of_range,
    _missing_features,
    _empty_features,
    _long_feature_name,
    _long_category,
    _long_label,
    _long_id,
]
