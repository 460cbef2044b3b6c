"""How long a call is tried again: pauses, deadlines, and answers that end it."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest

from tests.worker.support.fakes import FakeClock
from worker.base.errors import Denied, Transient, Unanswered, WorkerError
from worker.base.ports import Deadline
from worker.base.retry import Retry, Stopped, backoff_s, retry


def test_patience_ends_with_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    calls = []

    def call() -> None:
        calls.append(clock.monotonic())
        raise Transient("not yet")

    with pytest.raises(Transient, match="not yet"):
        retry(clock, Deadline.after(clock, 2.0), "it", call)
    assert [at - 1000.0 for at in calls] == [0.0, 0.5, 1.0, 1.5]
    assert caplog.messages == ["it: not there yet, trying again: not yet"] * 3


def test_patience_passes_on_the_answer() -> None:
    clock = FakeClock()
    answers: list[Any] = [Transient("not yet"), 7]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Transient):
            raise answer
        return answer

    assert retry(clock, Deadline.after(clock, 2.0), "it", call) == 7


def test_who_gives_no_answer_is_named_long_before_a_deadline_is_up(caplog: pytest.LogCaptureFixture) -> None:
    clock, release = FakeClock(), threading.Event()

    def should_stop() -> bool:
        clock.now_s += 1.0  # of which there is one for each look
        if len(caplog.messages) or clock.now_s > 1060.0:
            release.set()
        return False

    def call() -> int:
        release.wait(60.0)
        return 7

    assert Retry(clock, should_stop, 60.0).ask("object store", call) == 7
    assert caplog.messages == ["object store: no answer for 10 s, waiting on"]
    assert 1010.0 <= clock.now_s < 1020.0


class Silent:
    """Raises what it has, one after the other, then the last of them for ever, or gives 7; it takes `each_s` a time."""

    def __init__(self, clock: FakeClock, *errors: Exception | None, each_s: float = 12.0) -> None:
        self._clock = clock
        self._errors = list(errors)
        self._each_s = each_s
        self.asked_s: list[float] = []

    def __call__(self) -> int:
        self.asked_s.append(self._clock.now_s)
        self._clock.now_s += self._each_s
        error = self._errors[0] if len(self._errors) == 1 else self._errors.pop(0)
        if error is not None:
            raise error
        return 7


@pytest.mark.parametrize(("failures", "pause"), [(0, 0.0), (1, 0.05), (3, 0.2), (6, 1.0), (5_000, 1.0), (10**9, 1.0)])
def test_pauses_are_doubled_up_to_the_longest_however_often_it_fails(failures: int, pause: float) -> None:
    assert backoff_s(failures, 0.05, 1.0) == pause


def test_a_start_waits_for_an_answer_as_long_as_it_takes_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, moved = FakeClock(), []
    ask = Silent(clock, *[Unanswered("no broker")] * 100, None)
    patience = Retry(clock, lambda: False, 60.0, lambda: moved.append(clock.now_s))
    caplog.set_level("INFO")
    assert patience.ask("broker", ask) == 7
    assert ask.asked_s[-1] - ask.asked_s[0] == 100 * 12.5
    assert moved == ask.asked_s
    logged = [record.getMessage() for record in caplog.records]
    waits = "broker: not there yet, trying again for as long as it takes: no broker"
    assert logged == [waits] * 100 + ["broker: there is an answer"]


def test_a_start_whose_question_is_answered_at_once_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert Retry(FakeClock(), lambda: False, 60.0).ask("broker", lambda: 7) == 7
    assert caplog.messages == []


def test_a_client_that_did_not_start_is_gone_at_the_next_attempt() -> None:
    """Threads and connections of each would live until garbage is collected, which may be in an hour."""

    class Client: ...

    clients: list[weakref.ref[Client]] = []

    def ask() -> int:
        assert [each() for each in clients] == [None] * len(clients)
        client = Client()
        clients.append(weakref.ref(client))
        if len(clients) < 5:
            raise Unanswered(f"no coordinator for {client}")
        return len(clients)

    gc.disable()
    try:
        assert Retry(FakeClock(), lambda: False, 60.0).ask("producer", ask) == 5
    finally:
        gc.enable()


def test_a_start_that_gets_a_bad_answer_gives_up_after_a_minute_of_them() -> None:
    clock = FakeClock()
    ask = Silent(clock, *[Unanswered("no broker")] * 20, *[Transient("no good")] * 2, Unanswered("x"), Transient("bad"))
    with pytest.raises(Transient, match="bad"):
        Retry(clock, lambda: False, 60.0).ask("broker", ask)
    assert len(ask.asked_s) == 20 + 2 + 1 + 6


@pytest.mark.parametrize("error", [WorkerError("not authorized"), Denied("no leave"), ValueError("a bug")])
def test_what_is_fatal_ends_a_start_at_once(error: Exception) -> None:
    ask = Silent(FakeClock(), error)
    with pytest.raises(type(error), match=str(error)):
        Retry(FakeClock(), lambda: False, 60.0).ask("broker", ask)
    assert len(ask.asked_s) == 1


def test_a_start_that_is_told_to_stop_waits_for_no_call() -> None:
    hangs, began, stop = threading.Event(), time.monotonic(), threading.Event()

    def call() -> None:
        stop.set()
        hangs.wait(60)

    with pytest.raises(Stopped):
        Retry(FakeClock(), stop.is_set, 60.0).ask("broker", call)
    hangs.set()
    assert time.monotonic() - began < 10


def test_a_start_that_is_told_to_stop_ends_though_every_call_fails_at_once() -> None:
    clock = FakeClock()
    ask = Silent(clock, Unanswered("no broker"), each_s=0.0)
    with pytest.raises(Stopped):
        Retry(clock, lambda: len(ask.asked_s) == 3, 60.0).ask("broker", ask)
    assert len(ask.asked_s) == 3


def test_a_start_that_is_told_to_stop_asks_no_more_though_all_is_answered_at_once() -> None:
    """It would go on to join its group, and have the others give up partitions to it that it gives back at once."""
    asked: list[int] = []
    start = Retry(FakeClock(), lambda: bool(asked), 60.0)
    start.ask("broker", lambda: asked.append(1))
    with pytest.raises(Stopped):
        start.ask("producer", lambda: asked.append(2))
    assert asked == [1]


def test_what_a_library_raises_beside_errors_is_no_answer() -> None:
    class Panic(BaseException):
        """As Rust's are to Python."""

    def call() -> None:
        raise Panic("at line 7")

    with pytest.raises(Panic, match="at line 7"):
        Retry(FakeClock(), lambda: False, 60.0).ask("store", call)
