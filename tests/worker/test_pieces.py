"""Messages of the client, some at a time: no more than some megabytes, and else as one call gives them."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from worker.adapters.kafka import messages
from worker.adapters.kafka.messages import READ_BYTES, Pieces, record_of
from worker.base.records import Record


class Client:
    """Messages of these sizes are there at once."""

    def __init__(self, *sizes: int) -> None:
        self.waiting = [bytes(size) for size in sizes]
        self.calls: list[tuple[int, float]] = []

    def consume(self, most: int, timeout_s: float) -> list[bytes]:
        self.calls.append((most, timeout_s))
        some, self.waiting = self.waiting[:most], self.waiting[most:]
        return some


def read(client: Client, pieces: Pieces, most: int = 10_000, timeout_s: float = 0.1) -> list[bytes]:
    return list(pieces.of(client.consume, most, timeout_s))


def test_all_that_is_there_comes_in_its_order_up_to_so_many() -> None:
    client, pieces = Client(*range(3000)), Pieces()
    assert [len(each) for each in read(client, pieces, 2500)] == list(range(2500))
    assert [len(each) for each in read(client, pieces)] == list(range(2500, 3000))
    assert read(client, pieces) == []


def test_nobody_waits_longer_than_the_timeout_and_behind_it_what_is_there_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 5.0
    monkeypatch.setattr(messages.time, "monotonic", lambda: now_s)
    client, pieces = Client(*[100] * 1000), Pieces()

    def slow(most: int, timeout_s: float) -> list[bytes]:
        nonlocal now_s
        now_s += 0.04
        return client.consume(most, timeout_s)

    assert len(list(pieces.of(slow, 10_000, 0.1))) == 1000
    waits = [timeout_s for _, timeout_s in client.calls]
    assert waits[:3] == pytest.approx([0.1, 0.06, 0.02])
    assert set(waits[3:]) == {0.0}


def test_a_read_ends_with_some_megabytes_whatever_the_size_of_messages() -> None:
    for size in (0, 1000, 900_000, 5_000_000):
        client, pieces = Client(*[size] * 20_000 if size < 10_000 else [size] * 300), Pieces()
        n_bytes = sum(map(len, read(client, pieces, 100_000)))
        assert n_bytes <= READ_BYTES + 5_000_000, size
        assert size > 10_000 or not client.waiting


def test_messages_that_are_suddenly_large_go_beyond_that_by_one_piece() -> None:
    client, pieces = Client(*[10] * 1000, *[900_000] * 6000), Pieces()
    assert sum(map(len, read(client, pieces))) <= READ_BYTES + 256 * 900_000
    while client.waiting:
        assert sum(map(len, read(client, pieces))) <= READ_BYTES + 900_000


def record(headers: Any) -> Record:
    """That of a message whose headers are these, or raise this."""
    of = {"offset": 3, "timestamp": (1, 5), "key": b"k", "value": b"v", "leader_epoch": 2}
    message = Mock(**{f"{name}.return_value": value for name, value in of.items()})
    message.headers.side_effect = headers if isinstance(headers, BaseException) else [headers]
    return record_of(message)


def test_a_message_without_headers_is_a_record_with_none() -> None:
    assert record(None) == record([]) == Record(3, 5, b"k", b"v", [], None, 2)
    assert record([("a", b"1")]).headers == [("a", b"1")]


@pytest.mark.parametrize("size", [3, 50])
def test_a_header_whose_name_is_no_text_is_named_and_the_record_is_there(size: int) -> None:
    outer, name = SystemError("a result with an exception set"), b"\xff" * size
    outer.__cause__ = UnicodeDecodeError("utf-8", name, 0, 1, "invalid start byte")
    for error in (outer, outer.__cause__):
        found = record(error)
        assert (found.value, found.headers) == (b"v", [])
        shown = repr(name) if size == 3 else f"{name[:40]!r}... (50 bytes)"
        assert found.headers_fault == f"the name of a header is not UTF-8: {shown}"


def test_another_error_of_the_headers_says_nothing_of_them() -> None:
    with pytest.raises(SystemError):
        record(SystemError("of the client"))
