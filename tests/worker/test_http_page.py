"""The page and its figures over HTTP: paths, keys, tokens; and what floods and slow clients can do."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from tests.worker.support.bench import Bench
from worker.adapters.http import Server, serve
from worker.adapters.http import server as http_server
from worker.adapters.http.paths import PATHS, REFERENCE
from worker.adapters.http.routes import ANSWER_S, MOST_LIMIT
from worker.adapters.http.server import CpuBudget
from worker.base.metrics import Metrics
from worker.base.status import Board, DeadLetter, Loss, ModelRow, Point, Status
from worker.runtime.loop import GAUGES_EVERY_S

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
TOKEN = "a-token-of-some-length"
KEYS = (
    "plain", "with space", "a/b", "..", ".", "?x=1#y", "100%", "+", "ключ", "\u202eback", "\x00", "two\nlines",
    "<script>alert(1)</script>", '"quoted"', "k" * 512,
)  # fmt: skip


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    with closing(http.client.HTTPConnection(HOST, server.port, timeout=30)) as connection:
        connection.request(method, path, headers=headers)
        found = connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())


@pytest.fixture(scope="module")
def worker() -> Iterator[Server]:
    """The server of a worker whose loop turns: two partitions, a model for each of KEYS, some dead letters."""
    bench = Bench(partitions=2)
    bound = bench.worker().join()
    for i, key in enumerate(KEYS):
        for label in "abab":
            bench.feed(label, partition=i % 2, key=key)
    bench.broker.logs[0].append(b"</script>", b'{"features": {"<b>": []}}')
    for _ in range(3):
        bench.clock.sleep(GAUGES_EVERY_S)
        bound.turns(1)
    enough = threading.Event()

    def turn() -> None:
        while not enough.wait(0.005):
            bound.turns(1)

    loop = threading.Thread(target=turn)
    loop.start()
    server = serve(bound.metrics, HOST, 0, board=bound.board)
    yield server
    enough.set()
    loop.join()
    server.close()


@pytest.fixture
def bare() -> Iterator[Server]:
    """The server of a worker that has not come to its loop."""
    server = serve(Metrics(), HOST, 0)
    yield server
    server.close()


# --- what there is ----------------------------------------------------------------------------------------------------


def test_the_page_is_of_one_host_and_safe(bare: Server) -> None:
    page = ask(bare, "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in ("/page.js", "/page.css", "/charts.js", "/model.js", "/ask.js", "/text.js", "/uplot.js", "/uplot.css"):
        assert ask(bare, path).status == 200
        named = path[1:].encode()
        assert named in page.body or named in ask(bare, "/page.js").body or named in ask(bare, "/model.js").body
    assert b"MIT License" in ask(bare, "/uplot-license.txt").body


def test_nothing_of_the_page_is_markup_made_of_text(bare: Server) -> None:
    for path in ("/page.js", "/charts.js", "/model.js", "/text.js", "/ask.js", "/uplot.js"):
        for sink in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval(", b"Function("):
            assert sink not in ask(bare, path).body


def test_everything_is_said_to_be_what_it_is_and_not_to_be_kept(worker: Server) -> None:
    for path in ("/", "/metrics", "/live", "/ready", "/status", "/history", "/models", "/models/plain", "/nowhere"):
        headers = ask(worker, path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_the_status_tells_of_partitions_models_and_dead_letters(worker: Server) -> None:
    status = ask(worker, "/status").json()
    assert [each["state"] for each in status["partitions"]] == ["live", "live"]
    assert {each["key"] for each in status["leaders"]} <= set(KEYS)
    assert status["totals"]["models"] == len(KEYS)
    [letter] = status["dead_letters"]
    assert (letter["key"], letter["code"]) == ("</script>", "wrong-type")
    assert letter.keys() == {"at_ms", "topic", "partition", "offset", "key", "code", "reason"}


def test_the_history_has_columns_of_one_length(worker: Server) -> None:
    history = ask(worker, "/history").json()
    models = history.pop("models")
    [n] = {len(column) for column in history.values()}
    assert n > 0
    assert 0 < len(models) <= 8
    assert {len(each[name]) for each in models for name in ("loss", "baseline")} == {n}


def test_models_that_keep_no_losses_take_no_curve_of_others() -> None:
    """Else the page would ask for the history again and again, in the hope of a curve more."""
    losses = [None] * 10 + [Loss(0.5, 0.6, 0.7)] * 10
    rows = [ModelRow(f"model-{i}", 0, 9, 9, 9, True, loss, None) for i, loss in enumerate(losses)]
    board = Board(Status(leaders=rows))
    board.history = (Point(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {row.key: (0.5, 0.7) for row in rows if row.loss}),)
    server = serve(Metrics(), HOST, 0, board=board)
    with closing(server):
        curves = ask(server, "/history").json()["models"]
    assert [each["key"] for each in curves] == [f"model-{i}" for i in range(10, 18)]
    assert curves[0] == {"key": "model-10", "loss": [0.5], "baseline": [0.7]}


def test_there_may_be_models_before_the_history_has_a_point() -> None:
    row = ModelRow("k", 0, 9, 9, 9, True, Loss(0.5, 0.6, 0.7), None)
    with closing(serve(Metrics(), HOST, 0, board=Board(Status(leaders=[row])))) as server:
        found = ask(server, "/history")
    assert (found.status, found.json()["models"]) == (200, [])


def test_every_path_of_the_reference_is_there_and_the_reference_is_up_to_date(worker: Server) -> None:
    assert (ROOT / "deploy/http.md").read_text() == REFERENCE, "python -m worker.adapters.http.paths > deploy/http.md"
    for path in PATHS:
        assert ask(worker, path.replace("KEY", "plain")).status == 200
        assert path in ask(worker, "/nowhere").json()["error"]


def test_what_is_not_there_is_said_in_json(worker: Server) -> None:
    missing = ask(worker, "/nowhere")
    assert (missing.status, missing.headers["content-type"]) == (404, "application/json")
    assert "/models/KEY" in missing.json()["error"]


def test_nothing_can_be_changed(worker: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        refused = ask(worker, "/status", method)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_a_body(worker: Server) -> None:
    head, got = ask(worker, "/models", "HEAD"), ask(worker, "/models")
    assert raw(worker, b"HEAD /models HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(got.body))


# --- probes -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_starts_is_alive_and_not_ready(bare: Server) -> None:
    assert (ask(bare, "/live").status, ask(bare, "/live").body) == (200, b"alive\n")
    not_yet = b"it has not come to its loop yet; the log says what it waits for\n"
    assert (ask(bare, "/ready").status, ask(bare, "/ready").body) == (503, not_yet)


def test_a_worker_whose_partitions_are_live_is_ready(worker: Server) -> None:
    assert (ask(worker, "/ready").status, ask(worker, "/ready").body) == (200, b"ready\n")


def test_a_worker_that_is_not_alive_is_not_ready() -> None:
    server = serve(Metrics(), HOST, 0, lambda: "the loop has not moved", Board(Status(unready=None)))
    with closing(server):
        assert (ask(server, "/ready").status, ask(server, "/ready").body) == (503, b"the loop has not moved\n")


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_a_model_is_found_by_its_key_whatever_it_is(worker: Server, key: str) -> None:
    for path in (f"/models/{urllib.parse.quote(key, safe='')}", "/models?" + urllib.parse.urlencode({"key": key})):
        found = ask(worker, path)
        assert found.status == 200, found.body
        assert (found.json()["key"], found.json()["samples"]) == (key, 4)


def test_a_slash_in_a_key_needs_no_escape(worker: Server) -> None:
    assert ask(worker, "/models/a/b").json()["key"] == "a/b"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/models/nobody", 404, "no model has the key 'nobody' in the partitions of this worker"),
        ("/models/plain?partition=1", 404, "no model has the key 'plain' in partition 1"),
        ("/models/with%20space?partition=0", 404, "no model has the key 'with space' in partition 0"),
        ("/models/", 404, "no model has the key ''"),
        ("/models/%ff%fe", 404, "UTF-8"),
        ("/models/" + "x" * 3000, 404, "no model has the key 'xxx"),
        ("/models/plain?partition=x", 400, "partition: expected an integer"),
        ("/models?limit=0", 400, f"limit: expected an integer between 1 and {MOST_LIMIT}, found '0'"),
        (f"/models?limit={MOST_LIMIT + 1}", 400, "limit: expected"),
        ("/models?limit=", 400, "limit: expected"),
        ("/models?limit=1&limit=0", 400, "limit: expected"),  # the last one of a name
        ("/models?offset=-1", 400, "offset: expected"),
        ("/models?offset=" + "9" * 5000, 400, "offset: expected"),  # which Python reads as no integer
        ("/models?offset=%D9%A1", 400, "offset: expected"),
        ("/models?key=%ff", 400, "UTF-8"),
        ("/models?" + "&".join(f"a{i}" for i in range(50)), 400, "few parameters"),
    ],
)
def test_what_cannot_be_found_or_read_is_a_clear_error(worker: Server, path: str, status: int, words: str) -> None:
    refused = ask(worker, path)
    assert refused.status == status, refused.body
    assert words in refused.json()["error"]
    assert len(refused.body) < 300


def test_models_are_read_page_by_page(worker: Server) -> None:
    keys, path = [], "models?limit=4"
    while path is not None:
        page = ask(worker, f"/{path}").json()
        assert page["total"] == len(KEYS)
        keys += [each["key"] for each in page["models"]]
        path = page["next"]
    assert sorted(keys) == sorted(KEYS)
    assert ask(worker, f"/models?limit={len(KEYS)}").json()["next"] is None, "there would be an empty page"
    assert len(ask(worker, f"/models?limit={MOST_LIMIT}").json()["models"]) == len(KEYS)


def test_who_asks_the_same_soon_gets_the_same_answer(worker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    board_ask = Board.ask
    monkeypatch.setattr(Board, "ask", lambda self, question: asked.append(question) or board_ask(self, question))
    path = "/models/plain?partition=0"
    threads = [threading.Thread(target=ask, args=(worker, path)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A second may have passed on a machine that is very busy, but not five of them.
    assert 1 <= len(asked) < 5


def test_a_loop_that_does_not_answer_is_a_clear_error(bare: Server) -> None:
    began = time.monotonic()
    refused = ask(bare, "/models/k")
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert "the loop has not answered" in refused.json()["error"]
    assert time.monotonic() - began >= ANSWER_S * 0.9


def test_too_many_questions_are_refused_at_once(bare: Server) -> None:
    statuses: list[tuple[int, str]] = []

    def look(i: int) -> None:
        answer = ask(bare, f"/models/{i}")
        statuses.append((answer.status, answer.json()["error"]))

    threads = [threading.Thread(target=look, args=(i,)) for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in statuses} == {503}
    assert sum("questions enough" in error for _, error in statuses) == 30 - 16


# --- who may look -----------------------------------------------------------------------------------------------------


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("worker.adapters.http.routes.ANSWER_S", 0.2)  # there is no loop that would answer
    board = Board(Status(group="payments", unready=None))
    board.dead_letters.append(DeadLetter.of(0, "events", 0, 0, b"k", "wrong-type", "why"))
    server = serve(Metrics(), HOST, 0, board=board, token=TOKEN)
    yield server
    server.close()


@pytest.mark.parametrize("path", ["/metrics", "/status", "/history", "/models", "/models/k", "/nowhere"])
def test_with_a_token_figures_are_for_those_who_have_it(locked: Server, path: str) -> None:
    for wrong in (
        {}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Authorization": "Bearer \xff"},
    ):  # fmt: skip
        refused = ask(locked, path, **wrong)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert b"payments" not in refused.body
    assert ask(locked, path, Authorization=f"Bearer {TOKEN}").status != 401
    assert ask(locked, path, authorization=f"bearer  {TOKEN}").status != 401


@pytest.mark.parametrize(
    ("host", "token", "warns"), [("0.0.0.0", None, True), ("0.0.0.0", "secret", False), ("127.0.0.1", None, False)]
)
def test_figures_that_are_served_to_a_network_without_a_token_are_warned_of(
    host: str, token: str | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    serve(Metrics(), host, 0, token=token).close()
    assert ("metrics.listen is 0.0.0.0:0, and there is no token" in caplog.text) == warns


def test_a_token_in_the_address_is_none(locked: Server) -> None:
    assert ask(locked, f"/status?token={TOKEN}").status == 401


def test_probes_and_the_empty_page_need_no_token(locked: Server) -> None:
    assert [ask(locked, path).status for path in ("/live", "/ready", "/", "/page.js")] == [200] * 4


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example"]
)
def test_a_page_of_the_web_cannot_read_it_under_a_name_of_its_own(worker: Server, host: str) -> None:
    assert ask(worker, "/status", Host=host).status == 421
    assert ask(worker, "/live", Host=host).status == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "LOCALHOST", "127.0.0.1:80", "[::1]:80", "10.0.0.1"])
def test_addresses_and_localhost_are_names_of_this_machine(worker: Server, host: str) -> None:
    assert ask(worker, "/status", Host=host).status == 200


# --- floods, slow clients, nonsense -----------------------------------------------------------------------------------


def raw(server: Server, data: bytes) -> bytes:
    """What comes back until the server closes the connection."""
    with socket.create_connection((HOST, server.port), timeout=30) as connection:
        connection.sendall(data)
        told = b""
        try:
            while got := connection.recv(65536):
                told += got
        except ConnectionError:
            pass
        return told


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET status HTTP/1.1\r\n\r\n", 400),
        (b"GET /status HTTP/2\r\n\r\n", 400),
        (b"GET  /status HTTP/1.1\r\n\r\n", 400),
        (b"GET /status HTTP/1.1 more\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\n: a\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\n folded: a\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /status HTTP/1.0\r\n\r\n", 200),
        (b"GET /\xff\xfe HTTP/1.1\r\nX: \xff\r\n\r\n", 404),
    ],
)
def test_nonsense_is_answered_and_forgotten(
    worker: Server, data: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    told = raw(worker, data)
    assert told.startswith(b"HTTP/1.1 %d " % status) or (status == 431 and told == b"")
    assert ask(worker, "/live").status == 200
    assert caplog.text == ""


def test_random_bytes_do_no_harm(worker: Server) -> None:
    rng = random.Random(1)
    for _ in range(100):
        data = rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n"
        assert raw(worker, rng.choice([b"", b"GET /", b"GET /models/"]) + data)[:9] in (b"", b"HTTP/1.1 ")
    assert ask(worker, "/status").status == 200


def test_slow_clients_keep_nobody_out(bare: Server) -> None:
    """All connections are taken by clients that never come to the end of their request, and more of them."""
    with ExitStack() as held:
        for _ in range(2 * http_server.MOST_CONNECTIONS):
            connection = held.enter_context(socket.create_connection((HOST, bare.port), timeout=30))
            connection.sendall(b"GET /status HTTP/1.1\r\nX-Slow: ")
        assert ask(bare, "/live").status == 200
        assert ask(bare, "/status").status == 200
        assert len(bare._open) <= http_server.MOST_CONNECTIONS


def test_a_request_that_does_not_end_is_given_up(bare: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.2)
    assert raw(bare, b"GET /status HTTP/1.1\r\nX: ").startswith(b"HTTP/1.1 408 ")


def test_who_does_not_read_the_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "EXCHANGE_S", 0.3)
    board = Board()
    board.dead_letters.extend(DeadLetter.of(0, "events", 0, i, b"k" * 60, "wrong-type", "x" * 300) for i in range(50))
    board.status = Status(dead_letters=list(board.dead_letters) * 1000)  # some 20 MB, more than sockets take
    server = serve(Metrics(), HOST, 0, board=board)
    with closing(server), socket.create_connection((HOST, server.port), timeout=30) as connection:
        connection.sendall(b"GET /status HTTP/1.1\r\n\r\n")
        until(lambda: server._open)
        until(lambda: not server._open)
        assert ask(server, "/live").status == 200
    assert caplog.text == ""


def test_a_flood_is_refused_while_probes_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    # So little that any machine spends it within some requests.
    monkeypatch.setattr("worker.adapters.http.routes.CpuBudget", lambda: CpuBudget(share=0.0, burst_s=0.05))
    server = serve(Metrics(), HOST, 0)
    with closing(server):
        statuses = [ask(server, "/metrics").status for _ in range(200)]
        assert statuses[0] == 200
        refused = ask(server, "/status")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "too many requests" in refused.json()["error"]
        assert [ask(server, path).status for path in ("/live", "/ready")] == [200, 503]
        assert "loop" in ask(server, "/ready").body.decode()


def test_the_budget_is_a_share_of_the_time_and_a_burst() -> None:
    now, used = [0.0], [0.0]
    budget = CpuBudget(0.1, 1.0, lambda: now[0], lambda: used[0])

    def after(seconds: float, cpu_s: float) -> bool:
        now[0] += seconds
        used[0] += cpu_s
        return budget.is_spent

    assert not after(0.0, 0.0)
    assert not after(1.0, 0.9)
    assert after(1.0, 0.4)
    assert not after(3.0, 0.0)
    assert after(0.0, 50.0)
    assert not after(10.5, 0.0), "after a flood it takes no longer than a burst to come back"
    assert not after(1e6, 0.99)
    assert after(0.0, 0.02), "what was not taken does not pile up beyond the burst"


def test_a_fault_of_ours_is_logged_and_answered_without_its_words(
    bare: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Callable[..., object]:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("worker.adapters.http.routes.Routes._figures", broken)
    refused = ask(bare, "/status")
    assert refused.status == 500
    assert b"secret" not in refused.body
    assert "ZeroDivisionError" in caplog.text


def test_a_client_that_goes_away_is_no_error(bare: Server, caplog: pytest.LogCaptureFixture) -> None:
    for data in (b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\n\r\n"):
        for is_reset in (False, True):
            connection = socket.create_connection((HOST, bare.port), timeout=30)
            connection.sendall(data)
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()
    assert ask(bare, "/live").status == 200
    assert caplog.text == ""
