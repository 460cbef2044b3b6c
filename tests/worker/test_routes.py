"""What the HTTP server asks the loop, and what it keeps of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from worker.adapters.http import routes
from worker.adapters.http.messages import Request
from worker.adapters.http.routes import Routes
from worker.base.metrics import Metrics
from worker.base.status import Board, OneModel, Question


class Counting(Board):
    """Counts questions, and answers each at once: there is no such model."""

    asked = 0

    def ask(self, question: Question) -> Future[Any]:
        self.asked += 1
        answer: Future[Any] = Future()
        answer.set_result(None)
        return answer


def questions(*keys: str) -> int:
    """How many it takes to answer requests for these models, one after the other."""
    board = Counting()

    async def request(all_keys: Sequence[str]) -> None:
        answer = Routes(Metrics(), board, lambda: None, None, is_local=False)
        for key in all_keys:
            assert (await answer(Request("GET", f"/models/{key}", "", {}))).status == 404

    asyncio.run(request(keys))
    return board.asked


@pytest.mark.parametrize("target", ["/models/ключ", "/models?key=ключ", "/models?key=%D0%BA%D0%BB%D1%8E%D1%87"])
def test_letters_of_a_key_need_no_escape(target: str) -> None:
    asked: list[Question] = []

    class Asked(Counting):
        def ask(self, question: Question) -> Future[Any]:
            asked.append(question)
            return super().ask(question)

    async def request() -> None:
        answer = Routes(Metrics(), Asked(), lambda: None, None, is_local=False)
        await answer(Request.of(f"GET {target} HTTP/1.1\r\n\r\n".encode()))

    asyncio.run(request())
    assert asked == [OneModel("ключ")]


def test_an_answer_is_given_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert questions("k", "k", "k") == 1
    monkeypatch.setattr(routes, "FRESH_S", -1.0)
    assert questions("k", "k", "k") == 3


def test_few_answers_are_kept_whatever_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_ANSWERS", 3)
    assert questions(*"abcd", *"bcd") == 4
    assert questions(*"abcd", "a") == 5


def test_what_the_loop_shows_is_answered_until_it_shows_something_else() -> None:
    board = Board()

    async def request() -> list[str | None]:
        answer = Routes(Metrics(), board, lambda: None, None, is_local=False)
        found = []
        for unready in ("joining", "joining", "opening"):
            board.status = replace(board.status, unready=unready)
            found.append(msgspec.json.decode((await answer(Request("GET", "/status", "", {}))).body)["unready"])
        return found

    assert asyncio.run(request()) == ["joining", "joining", "opening"]


def test_what_the_loop_shows_is_encoded_once_for_all_who_ask() -> None:
    async def request() -> list[bytes]:
        answer = Routes(Metrics(), Board(), lambda: None, None, is_local=False)
        return [(await answer(Request("GET", path, "", {}))).body for path in ("/status", "/status", "/history") * 2]

    bodies = asyncio.run(request())
    assert len(set(map(id, bodies))) == len(set(bodies)) == 2


class Slow(Board):
    """Keeps questions until it is told to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Future[Any]] = []

    def ask(self, question: Question) -> Future[Any]:
        self.waiting.append(super().ask(question))
        return self.waiting[-1]


def test_a_question_that_waits_for_the_loop_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again and again while the loop is busy must not fill the queue of questions."""
    monkeypatch.setattr(routes, "ANSWER_S", 0.01)
    monkeypatch.setattr(routes, "FRESH_S", 0.0)
    board = Slow()

    async def request() -> list[int]:
        answer = Routes(Metrics(), board, lambda: None, None, is_local=False)
        statuses = [(await answer(Request("GET", "/models/k", "", {}))).status for _ in range(3)]
        monkeypatch.setattr(routes, "ANSWER_S", 10.0)
        [question] = board.waiting
        assert question.set_running_or_notify_cancel(), "somebody gave up waiting, but not for all of them"
        question.set_result(None)
        return [*statuses, (await answer(Request("GET", "/models/k", "", {}))).status]

    assert asyncio.run(request()) == [503, 503, 503, 404]
