"""Records to publish: predictions and dead letters with the headers that say where they come from, made to fit."""

from __future__ import annotations

import hashlib

from worker.base.records import Headers, Outgoing, Record, Reject
from worker.codec.framing import SCHEMA_HEADER

_RECORD_OVERHEAD_BYTES = 61 + 36
"""A batch header, and a record's lengths, offset and timestamp at their longest (record format version 2)."""
_HEADER_OVERHEAD_BYTES = 10
"""The two lengths of a header at their longest."""
_MARKERS_BYTES = 512
"""More than all headers that can be added while a dead letter is made to fit."""
_MAX_REASON_CHARS = 500
_OF_DEAD_LETTER = frozenset({"lineage", "error-code", "error-reason"})
"""What each dead letter of a worker has."""
_ERROR = "error-"
"""How the names of headers begin that say why a record is a dead letter, and what it has lost."""
_TRACE_HEADERS = frozenset({"traceparent", "tracestate"})
"""W3C Trace Context: what ties an output to the request that it came of."""
_MAX_TRACE_BYTES = 1024
"""That of one request takes some 600 at most."""


class Provenance:
    """Writes the headers that say where an output comes from; one per input partition."""

    def __init__(self, topic: str, partition: int, engine: str, lineage: str) -> None:
        self._source = [("source-topic", topic.encode()), ("source-partition", b"%d" % partition)]
        self._learner = [("engine", engine.encode()), ("lineage", lineage.encode())]

    def headers(self, offset: int, spec: str | None) -> Headers:
        """The headers for the record at `offset`; `spec` is None, and its header null, where there is no model."""
        of_model = "spec", None if spec is None else spec.encode()
        return [*self._source, ("source-offset", b"%d" % offset), of_model, *self._learner]


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """An upper bound of the size of a record alone in its batch, uncompressed."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        # A character takes up to four bytes; names are short and mostly ASCII.
        size += _HEADER_OVERHEAD_BYTES + (len(name) if name.isascii() else len(name.encode())) + len(content or b"")
    return size


def prediction_record(topic: str, record: Record, value: bytes | None, provenance: Headers, max_bytes: int) -> Outgoing:
    """The output record with the encoded prediction `value` for the input `record`.

    It carries the input's headers as they are, then `provenance`; but not the one that names the schema of its value,
    which says nothing of a prediction, and not the error where the input was a dead letter before. Where they make it
    larger than `max_bytes`, the input's headers are dropped and counted in `headers-dropped`, those of W3C Trace
    Context last.
    """
    headers = provenance
    if record.headers:
        room = max_bytes - len(record.key or b"") - len(value or b"")
        inherited = [header for header in record.headers if header[0] != SCHEMA_HEADER]
        if _was_dead_letter(inherited):
            inherited = [header for header in inherited if not header[0].startswith(_ERROR)]
        headers = _with_input_headers(inherited, provenance, room, "headers-dropped")
    return Outgoing(topic, record.key, value, headers, record.timestamp_ms)


def dead_letter(topic: str, record: Record, why: Reject, provenance: Headers, max_bytes: int) -> Outgoing:
    """The dead letter for `record`: key, value and headers as they came, then `provenance` and the error.

    That takes the place of the error of an earlier dead letter.

    Where that is larger than `max_bytes`, which must be 4096 or more, it is made to fit, the same way every time: the
    input's headers are dropped if they leave no room for the value (`error-headers-dropped`: how many), then the value
    is cut (`error-truncated`: true, `error-size` and `error-sha256` of the whole value). A key that does not even fit
    alone becomes null (`error-key-dropped`: its size).
    """
    key, value = record.key, record.value
    ours = [*provenance, ("error-code", why.code.encode()), ("error-reason", why.reason[:_MAX_REASON_CHARS].encode())]
    if key and record_bytes(key, None, ours) + _MARKERS_BYTES > max_bytes:
        ours.append(("error-key-dropped", b"%d" % len(key)))
        key = None
    headers = _with_input_headers(_beside(ours, record), ours, max_bytes - len(key or b""), "error-headers-dropped")
    if value and record_bytes(key, value, headers) > max_bytes:
        ours += [
            ("error-truncated", b"true"),
            ("error-size", b"%d" % len(value)),
            ("error-sha256", hashlib.sha256(value).hexdigest().encode()),
        ]
        headers = _with_input_headers(_beside(ours, record), ours, max_bytes - len(key or b""), "error-headers-dropped")
        value = value[: max(0, max_bytes - record_bytes(key, None, headers))]
    return Outgoing(topic, key, value, headers, record.timestamp_ms)


def _with_input_headers(inherited: Headers, ours: Headers, room: int, dropped: str) -> Headers:
    """The input's headers and ours, if they fit into `room` bytes; else ours and, under `dropped`, how many went.

    The trace goes with the others only where it does not fit either, or is none.
    """
    if not inherited:
        return ours
    headers = [*inherited, *ours]
    if record_bytes(None, None, headers) <= room:
        return headers
    trace = [header for header in inherited if header[0] in _TRACE_HEADERS]
    if record_bytes(None, None, trace) <= _MAX_TRACE_BYTES:
        headers = [*trace, *ours, (dropped, b"%d" % (len(inherited) - len(trace)))]
        if record_bytes(None, None, headers) <= room:
            return headers
    return [*ours, (dropped, b"%d" % len(inherited))]


def _beside(ours: Headers, record: Record) -> Headers:
    """The input's headers, without what an earlier dead letter said of an error where ours say it anew."""
    if not _was_dead_letter(record.headers):
        return record.headers
    said_anew = {name for name, _ in ours if name.startswith(_ERROR)}
    return [header for header in record.headers if header[0] not in said_anew]


def _was_dead_letter(headers: Headers) -> bool:
    """Whether a record with these is a dead letter of a worker, which somebody has published once more."""
    return _OF_DEAD_LETTER.issubset(name for name, _ in headers)
