"""The proxy passes frames as they are, and its rules do to them what they say."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.proxy import END_TXN, PRODUCE, REPLY, REQUEST, Proxy, Rule

WITHIN_S = 10.0


class EchoServer:
    """Answers each frame with its correlation id; keeps what it has read."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received: list[bytes] = []
        self._came = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def await_frames(self, count: int) -> list[bytes]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.received) >= count, WITHIN_S)
        return self.received

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while head := stream.read(4):
                body = stream.read(struct.unpack(">i", head)[0])
                with self._came:
                    self.received.append(head + body)
                    self._came.notify_all()
                connection.sendall(struct.pack(">i", 4) + body[4:8])


def request(api: int, correlation: int, client: str = "w0") -> bytes:
    body = struct.pack(">hhih", api, 0, correlation, len(client)) + client.encode() + b"payload"
    return struct.pack(">i", len(body)) + body


def answer(connection: socket.socket) -> int:
    """Correlation id of the next answer."""
    data = b""
    while len(data) < 8:
        chunk = connection.recv(8 - len(data))
        if not chunk:
            raise ConnectionResetError
        data += chunk
    return int(struct.unpack(">ii", data)[1])


@pytest.fixture
def server() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[Proxy]:
    with Proxy(lambda: server.port, kafka=True) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), WITHIN_S) as connection:
        yield connection


def test_frames_pass_unchanged(connection, server):
    sent = [request(PRODUCE, 1), request(END_TXN, 2)]
    connection.sendall(sent[0] + sent[1][:7])
    connection.sendall(sent[1][7:])
    assert [answer(connection), answer(connection)] == [1, 2]
    assert server.received == sent


def test_a_dropped_answer_is_the_one_of_its_request(connection, proxy, server):
    with proxy.rule(Rule("drop", REPLY, END_TXN, "w0", first=1)) as rule:
        connection.sendall(request(PRODUCE, 1) + request(END_TXN, 2) + request(END_TXN, 3))
        assert [answer(connection), answer(connection)] == [1, 3]
    assert (rule.caught, len(server.received)) == (1, 3)


def test_a_rule_for_one_client_leaves_the_others(connection, proxy):
    with proxy.rule(Rule("drop", client="w1")) as rule:
        connection.sendall(request(PRODUCE, 1))
        assert answer(connection) == 1
    assert rule.caught == 0


def test_a_held_request_arrives_late_though_its_sender_has_gone(connection, proxy, server):
    late = request(END_TXN, 2)
    with proxy.rule(Rule("hold", REQUEST, END_TXN)) as rule:
        connection.sendall(request(PRODUCE, 1) + late)
        assert rule.wait(timeout_s=WITHIN_S)
        connection.close()
        assert server.await_frames(1) == [request(PRODUCE, 1)]
    assert server.await_frames(2)[1] == late


def test_an_outage_cuts_and_refuses_until_it_ends(connection, proxy):
    connection.sendall(request(PRODUCE, 1))
    assert answer(connection) == 1
    with proxy.outage():
        assert connection.recv(1) == b""
        with socket.create_connection(("127.0.0.1", proxy.port), WITHIN_S) as other:
            assert other.recv(1) == b""
    with socket.create_connection(("127.0.0.1", proxy.port), WITHIN_S) as again:
        again.sendall(request(PRODUCE, 2))
        assert answer(again) == 2
