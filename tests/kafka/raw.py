"""A record as its bytes say, past a client that refuses to send what others do."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

PRODUCE, PRODUCE_VERSION = 0, 3
ANSWER_WITHIN_S = 10.0


def produce(
    bootstrap: str,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    *,
    partition: int = 0,
    timestamp_ms: int | None = None,
) -> int:
    """Append a record whose header names are any bytes, by one request of our own to the one broker there is.

    Returns its offset. Raises RuntimeError where the broker does not take it.
    """
    stamp_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
    batch = _batch(_record(key, value, headers), stamp_ms)
    of_partition = struct.pack(">ii", 1, partition) + struct.pack(">i", len(batch)) + batch
    topics = struct.pack(">i", 1) + _text(topic) + of_partition
    body = _text(None) + struct.pack(">hi", -1, int(ANSWER_WITHIN_S * 1000)) + topics
    request = struct.pack(">hhi", PRODUCE, PRODUCE_VERSION, 1) + _text("raw") + body
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), ANSWER_WITHIN_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            [size] = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    # Correlation id, one topic with its name, one partition: number, error, base offset.
    start = 4 + 4 + 2 + len(topic.encode()) + 4
    _, error, offset = struct.unpack_from(">ihq", answer, start)
    if error:
        raise RuntimeError(f"the broker refused the record with error {error}")
    return int(offset)


def _text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _record(key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    named = b"".join(_sized(name) + _sized(content) for name, content in headers)
    body = b"\0" + _varint(0) + _varint(0) + _sized(key) + _sized(value) + _varint(len(headers)) + named
    return _sized(body)


def _batch(record: bytes, timestamp_ms: int) -> bytes:
    """A batch of one record in format version 2, of no producer in particular."""
    no_producer = struct.pack(">qhi", -1, -1, -1)
    times = struct.pack(">qq", timestamp_ms, timestamp_ms)
    checked = struct.pack(">hi", 0, 0) + times + no_producer + struct.pack(">i", 1) + record
    tail = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
