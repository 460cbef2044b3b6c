"""What passes between the server and what answers: requests without a body, and responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_WHOLE = re.compile(r"https?://([^/?]+)", re.IGNORECASE)
"""How a target begins where it is a whole address, as of those who take this server for a proxy."""


class BadRequest(Exception):
    """The text of a request is none of HTTP."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request. Texts are those on the wire, a character for each byte."""

    method: str
    path: str
    """Still with its percent signs."""
    query: str
    headers: Mapping[str, str]
    """By their names in lower case."""

    @classmethod
    def of(cls, head: bytes) -> Request:
        """Read the head of a request. Raises BadRequest."""
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BadRequest
        method, target, _ = words
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadRequest
            headers[name.lower()] = value.strip()
        if whole := _WHOLE.match(target):
            headers["host"] = whole[1]  # which then counts, whatever the header says (RFC 9112, 3.2.2)
            target = target[whole.end() :]
        elif not target.startswith("/"):
            raise BadRequest
        path, _, query = target.partition("?")
        return cls(method, path or "/", query, headers)


@dataclass(frozen=True, slots=True)
class Response:
    """A response, whole."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
