"""The server of metrics and page: slow clients, large requests and answers, and more connections than it takes."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.request
from contextlib import closing

import pytest

from tests.waiting import until
from worker.adapters.http import Server, serve
from worker.adapters.http import server as http_server
from worker.adapters.http.messages import Request, Response
from worker.base.metrics import Metrics

HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /metrics HTTP/1.1", 405),
        (b"GET /live HTTP/1.1", 200),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1", 431),
        (b"no request", 400),
    ],
)
def test_who_sends_a_large_body_gets_its_answer(head: bytes, status: int) -> None:
    """Closed with that unread the connection would be reset, and the answer lost with it."""
    body = b"x" * 2**23
    with closing(serve(Metrics(), HOST, 0)) as server, socket.create_connection((HOST, server.port), 10) as client:
        client.sendall(head + b"\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.1)
        answer = b"".join(iter(lambda: client.recv(2**16), b""))
    assert int(answer.split()[1]) == status
    assert answer.endswith(b"\n")


def test_an_answer_that_is_more_than_sockets_take_comes_whole() -> None:
    async def answer(_: Request) -> Response:
        return Response(200, b"x" * 20_000_000)

    server = Server(socket.create_server((HOST, 0)), answer)
    with closing(server), urllib.request.urlopen(f"http://{HOST}:{server.port}/", timeout=30) as answered:
        assert len(answered.read()) == 20_000_000


def test_who_sends_nothing_more_and_reads_slowly_gets_the_whole_answer() -> None:
    """As netcat does, which closes its side after the request."""

    async def answer(_: Request) -> Response:
        return Response(200, b"x" * 60_000)

    listener = socket.create_server((HOST, 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # less than the answer, as to a far client
    with closing(Server(listener, answer)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect((HOST, server.port))
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        answered = b"".join(iter(lambda: client.recv(2**16), b""))
    assert len(answered.partition(b"\r\n\r\n")[2]) == 60_000


class Slow:
    """A server that answers with the path; /slow not before it may. Connections that are held are closed at the end."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = False
        self.server = Server(socket.create_server((HOST, 0)), self._answer)
        self._held: list[socket.socket] = []

    async def _answer(self, request: Request) -> Response:
        self.asked += 1
        while request.path == "/slow" and not self.may_answer:
            await asyncio.sleep(0.005)
        return Response(200, request.path.encode())

    def connect(self, data: bytes) -> socket.socket:
        # Less than the time after which the server would let go of it anyway.
        connection = socket.create_connection((HOST, self.server.port), timeout=http_server.EXCHANGE_S / 2)
        self._held.append(connection)
        connection.sendall(data)
        return connection

    def ask_slowly(self) -> socket.socket:
        """A connection that waits for its answer by then."""
        before = self.asked
        connection = self.connect(b"GET /slow HTTP/1.1\r\n\r\n")
        until(lambda: self.asked > before)
        return connection

    def close(self) -> None:
        self.server.close()
        for connection in self._held:
            connection.close()


def test_where_all_connections_are_taken_who_waits_for_an_answer_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not come to the end of their request go before it, though they are younger."""
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 3)
    with closing(Slow()) as slow:
        patient = slow.ask_slowly()
        for _ in range(2):
            slow.connect(b"GET /never HTTP/1.1\r\nX-Slow: ")
        until(lambda: len(slow.server._reading) == 2)
        assert slow.connect(b"GET /quick HTTP/1.1\r\n\r\n").recv(1000).endswith(b"/quick")
        slow.may_answer = True
        assert patient.recv(1000).endswith(b"/slow")


def test_where_all_wait_for_their_answers_those_that_came_first_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 2)
    with closing(Slow()) as slow:
        patient = [slow.ask_slowly() for _ in range(4)]
        assert [each.recv(1000) for each in patient[:2]] == [b"", b""]
        slow.may_answer = True
        assert [each.recv(1000)[-5:] for each in patient[2:]] == [b"/slow", b"/slow"]


def test_who_has_its_answer_and_does_not_hang_up_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 3)
    with closing(Slow()) as slow:
        patient, slower = slow.ask_slowly(), slow.connect(b"GET /late HTTP/1.1\r\n")
        for _ in range(5):
            assert slow.connect(b"GET /quick HTTP/1.1\r\n\r\n").recv(1000).endswith(b"/quick")
        slower.sendall(b"\r\n")
        assert slower.recv(1000).endswith(b"/late")
        slow.may_answer = True
        assert patient.recv(1000).endswith(b"/slow")
