"""What one configuration key may hold: a `Kind` knows the words for it, how to read it and how to write it back.

A kind is made by a function named after it (`integer(1, 1000)`, `choice("a", "b")`), so that a declaration reads like a
sentence. Kinds see plain values only; lines, paths and the environment are the reader's business.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Literal, TypeAlias, TypeVar, cast

from worker.base.limits import MAX_CLASS, MAX_FEATURE_NAME_CHARS, MAX_LABEL_CHARS, MIN_CLASS
from worker.config.text import MASK, Plain, UnfitError

T = TypeVar("T")
U = TypeVar("U")
ClassValue: TypeAlias = str | int | bool

SECONDS = {"h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
BYTES = {
    "GB": Fraction(10**9),
    "GiB": Fraction(2**30),
    "MB": Fraction(10**6),
    "MiB": Fraction(2**20),
    "KB": Fraction(10**3),
    "KiB": Fraction(2**10),
    "B": Fraction(1),
}
STORE_SCHEMES = ("file", "memory", "s3", "gs", "az")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """The values of a key: `parse` takes one, or raises ValueError (UnfitError where there is more to say)."""

    expected: str
    parse: Callable[[Plain], T]
    dump: Callable[[T], Plain]
    """The value as a person would write it; secrets are masked."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. Port 0 stands for any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def choice(*options: T) -> Kind[T]:
    def parse(value: Plain) -> T:
        for option in options:
            if value == option:
                return option
        raise ValueError

    return Kind(f"one of {', '.join(map(str, options))}", parse, str)


def text(pattern: str, expected: str) -> Kind[str]:
    """Text that the regular expression matches as a whole."""

    def parse(value: Plain) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        _require_quotes(value, pattern, describe(value))
        raise ValueError

    return Kind(expected, parse, str)


def secret(pattern: str, expected: str) -> Kind[str]:
    """Text that nobody is to read, neither where it is refused nor where it is shown."""

    def parse(value: Plain) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        _require_quotes(value, pattern, "a number")
        raise UnfitError("something else")

    return Kind(expected, parse, lambda _: MASK)


_WEB_SERVER = r"https?://[^\s,@/?#]+"
"""User info in a URL would be shown in logs, so it has no place there."""


def http_url() -> Kind[str]:
    """The URL of one thing on a web server."""
    return _web(rf"{_WEB_SERVER}(?:[/?]\S*)?", "an http:// or https:// URL without user info")


def http_folders() -> Kind[str]:
    """One or more URLs on web servers that paths are added to, so that there is no query in them."""
    url = rf"{_WEB_SERVER}(?:/[^\s,@?#]*)?"
    return _web(rf"{url}(?:,\s*{url})*", "http:// or https:// URLs without user info")


def _web(pattern: str, expected: str) -> Kind[str]:
    """Text that is not shown where it is refused: it may hold the credential that it must not."""
    return Kind(expected, secret(pattern, expected).parse, str)


def folder_name() -> Kind[str]:
    """A name that becomes a folder of the checkpoint store: no separator, and neither `.` nor `..`."""
    return text(r"(?!\.{1,2}\Z)[A-Za-z0-9._~-]{1,200}", "1 to 200 of the characters A-Z a-z 0-9 . _ ~ -")


def topic_name() -> Kind[str]:
    return text(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}", "a topic name: 1 to 249 of the characters A-Z a-z 0-9 . _ -")


def model_key() -> Kind[str]:
    return text(r'key|field:[^"\\\x00-\x1f]+', "key, or field: and the name of a field of the value")


def boolean() -> Kind[bool]:
    def parse(value: Plain) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError

    return Kind("true or false", parse, bool)


def integer(low: int, high: int) -> Kind[int]:
    return Kind(f"an integer between {low} and {high}", lambda value: _integer(value, low, high), int)


def positive_number() -> Kind[float]:
    return _number("a number above 0", lambda value: 0 < value < math.inf)


def number(low: float, high: float) -> Kind[float]:
    return _number(f"a number between {low:g} and {high:g}", lambda value: low <= value <= high)


def positive_share() -> Kind[float]:
    return _number("a number above 0 and at most 1", lambda value: 0 < value <= 1)


def _number(expected: str, fits: Callable[[float], bool]) -> Kind[float]:
    def parse(value: Plain) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and fits(value):
            return float(value)
        raise ValueError

    return Kind(expected, parse, float)


def optional(kind: Kind[T]) -> Kind[T | None]:
    return Kind(
        f"{kind.expected}, or null",
        lambda value: None if value is None else kind.parse(value),
        lambda value: None if value is None else kind.dump(value),
    )


def either(kind: Kind[T], other: Kind[U]) -> Kind[T | U]:
    """What the first one takes, or else the second."""

    def parse(value: Plain) -> T | U:
        try:
            return kind.parse(value)
        except ValueError:
            return other.parse(value)

    def dump(value: T | U) -> Plain:
        try:
            kind.parse(cast(Plain, value))
        except ValueError:
            return other.dump(cast(U, value))
        return kind.dump(cast(T, value))

    return Kind(f"{kind.expected}, or {other.expected}", parse, dump)


def duration(low: str, high: str) -> Kind[float]:
    """A time span in seconds, written `30s`, `500ms`, `2m`, `1h` or as a number of seconds."""
    shortest, longest = _quantity(low, SECONDS), _quantity(high, SECONDS)

    def parse(value: Plain) -> float:
        seconds = _quantity(value, SECONDS)
        if shortest <= seconds <= longest:
            return float(seconds)
        raise ValueError

    expected = f"a duration between {low} and {high} (such as 500ms, 30s, 2m, 1h or a number of seconds)"
    # The shortest decimal form of the float is what was written; its exact binary value would never be a round 500ms.
    return Kind(expected, parse, lambda seconds: _in_units(Fraction(repr(seconds)), SECONDS) or seconds)


def size(low: str, high: str) -> Kind[int]:
    """A number of bytes, written `64MB` (10**6), `64MiB` (2**20), `64KB` or as a number of bytes."""
    smallest, largest = _quantity(low, BYTES), _quantity(high, BYTES)

    def parse(value: Plain) -> int:
        count = _quantity(value, BYTES)
        if count.denominator == 1 and smallest <= count <= largest:
            return int(count)
        raise ValueError

    expected = f"a size between {low} and {high} (such as 64MB, 64MiB or a number of bytes)"
    return Kind(expected, parse, lambda count: _in_units(Fraction(count), BYTES))


def address() -> Kind[Address]:
    form = re.compile(r"(?:\[(?P<ipv6>[A-Za-z0-9:.%_-]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")

    def parse(value: Plain) -> Address:
        match = form.fullmatch(value) if isinstance(value, str) else None
        if match is None or int(match["port"]) > 65535:
            raise ValueError
        if match["ipv6"] is not None:
            ipaddress.IPv6Address(match["ipv6"])
        return Address(match["ipv6"] or match["host"], int(match["port"]))

    return Kind("host:port with a port between 0 and 65535, an IPv6 host in brackets", parse, str)


def classes() -> Kind[Literal["auto"] | tuple[ClassValue, ...]]:
    """`auto`, or the classes in order. Two classes are one where their texts are: 1 and "1", true and "true"."""

    def parse(value: Plain) -> Literal["auto"] | tuple[ClassValue, ...]:
        if value == "auto":
            return "auto"
        if not isinstance(value, list) or not 2 <= len(value) <= 65536:
            raise ValueError
        given = tuple(item for item in value if isinstance(item, str | int))
        if len(given) != len(value):
            raise UnfitError("an item of another type")
        _require_short(given, MAX_LABEL_CHARS)
        if any(isinstance(item, int) and not MIN_CLASS <= item <= MAX_CLASS for item in given):
            raise UnfitError("an integer beyond 64 bits")
        _require_distinct([str(item).lower() if isinstance(item, bool) else str(item) for item in given])
        return given

    expected = "auto or a list of 2 to 65536 different classes (text, integers or booleans)"
    return Kind(expected, parse, _auto_or_list)


def features(most: int) -> Kind[Literal["auto"] | int | tuple[str, ...]]:
    """`auto`, the length of the feature array, or the names of the features of an object."""

    def parse(value: Plain) -> Literal["auto"] | int | tuple[str, ...]:
        if value == "auto":
            return "auto"
        if not isinstance(value, list):
            return _integer(value, 1, most)
        if not 1 <= len(value) <= most:
            raise ValueError
        names = tuple(item for item in value if isinstance(item, str))
        if len(names) != len(value):
            raise UnfitError("an item of another type")
        _require_short(names, MAX_FEATURE_NAME_CHARS)
        _require_distinct(names)
        return names

    expected = f"auto, an array length between 1 and {most}, or a list of different feature names"
    return Kind(expected, parse, lambda value: value if isinstance(value, int) else _auto_or_list(value))


def store_url() -> Kind[str]:
    """The root folder of an object store. What may hold a credential (user info, query) is masked when written."""

    def parse(value: Plain) -> str:
        if not isinstance(value, str):
            raise ValueError
        match = re.fullmatch(r"([a-z][a-z0-9+.-]{0,15})://([^\s#]*)", value)
        # The text is never shown: what is no URL at all may still be a credential.
        if match is None:
            raise UnfitError(
                "a path: file:// belongs before it" if value[:1] == "/" else "something that is no such URL"
            )
        scheme, rest = match.groups()
        if scheme not in STORE_SCHEMES:
            raise UnfitError(f"the scheme {scheme}")
        bucket = re.split(r"[/?]", rest)[0].rpartition("@")[2]
        if scheme == "file" and not rest.startswith("/"):
            raise UnfitError("a file URL without an absolute path")
        if scheme in ("s3", "gs", "az") and not bucket:
            raise UnfitError(f"an {scheme} URL without a bucket")
        return value

    expected = (
        f"a URL with one of the schemes {', '.join(STORE_SCHEMES)} (such as file:///folder or s3://bucket/folder)"
    )
    return Kind(expected, parse, mask_url)


def mask_url(url: str) -> str:
    """The URL with user info and query masked. A stray `/` in a password must not end the mask: the last `@` does."""
    place, question_mark, _ = url.partition("?")
    return re.sub(r"(?<=://).*@", f"{MASK}@", place) + (f"?{MASK}" if question_mark else "")


def describe(value: Plain) -> str:
    """A plain value in the words of an error message, short enough for one line."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, bool):
        return str(value).lower()
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _require_quotes(value: Plain, pattern: str, shown: str) -> None:
    """What lacks nothing but quotes looks like what is expected, where an error shows it."""
    if isinstance(value, int | float) and re.fullmatch(pattern, str(value).lower()):
        raise UnfitError(f"{shown}, which is text in quotes only")


def _integer(value: Plain, low: int, high: int) -> int:
    # bool is an int to Python; to a person who wrote `seed: true` it is a mistake.
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise ValueError


def _quantity(value: Plain, units: dict[str, Fraction]) -> Fraction:
    """A number with a unit, or a bare number in the unit 1, as an exact fraction."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return Fraction(repr(value))
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)", value) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        raise ValueError
    return Fraction(match[1]) * units[match[2]]


def _in_units(quantity: Fraction, units: dict[str, Fraction]) -> str | None:
    """The quantity in the largest unit that holds it a whole number of times, None where no unit does."""
    for name, unit in units.items():
        if (quantity / unit).denominator == 1:
            return f"{quantity / unit}{name}"
    return None


def _require_short(items: Sequence[ClassValue], most: int) -> None:
    """No event could bring what is longer: it would be a dead letter."""
    for item in items:
        if isinstance(item, str) and len(item) > most:
            raise UnfitError(f"text of {len(item)} characters, where {most} are the most")


def _require_distinct(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UnfitError(f"{describe(name)} twice")
        seen.add(name)


def _auto_or_list(value: str | tuple[ClassValue, ...]) -> Plain:
    return value if isinstance(value, str) else list(value)
