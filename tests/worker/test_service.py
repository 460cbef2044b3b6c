"""One process: whether it is alive, and of worker and forwarder who ends when, and whose error counts."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import amf
from tests.kafka.servers import free_ports
from tests.waiting import until
from tests.worker.support.bench import of_input, saved_bench
from tests.worker.support.configurations import document
from tests.worker.support.fakes import FakeClock
from worker import service
from worker.base.errors import ConfigError, WorkerError
from worker.base.metrics import Metrics
from worker.base.ports import TopicState
from worker.base.retry import Retry
from worker.base.status import Board
from worker.config import Config, loads
from worker.service import Pulse, SystemClock, _announce, _run_both, watched
from worker.until import Until, ends_of, known_part


class Loop:
    """In the place of a worker or a forwarder: runs until it is stopped, or fails at once."""

    def __init__(self, name: str, ended: list[str], error: Exception | None = None) -> None:
        self._name = name
        self._ended = ended
        self._error = error

    def run(self, should_stop: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while self._error is None and not should_stop():
            assert time.monotonic() < deadline, f"nobody stops the {self._name}"
        self._ended.append(self._name)
        if self._error is not None:
            raise self._error


def run_both(worker: Any, forwarder: Any, *, stop: bool) -> None:
    _run_both(worker, forwarder, lambda: stop, Pulse(FakeClock(), 300.0))


def test_the_forwarder_ends_first() -> None:
    ended: list[str] = []
    run_both(Loop("worker", ended), Loop("forwarder", ended), stop=True)
    assert ended == ["forwarder", "worker"]


@pytest.mark.parametrize(
    ("fails", "order"), [("forwarder", ["forwarder", "worker"]), ("worker", ["worker", "forwarder"])]
)
def test_where_one_of_the_two_fails_the_other_ends_in_order_with_its_error(fails: str, order: list[str]) -> None:
    ended: list[str] = []
    loops = {name: Loop(name, ended, WorkerError("not authorized") if name == fails else None) for name in order}
    with pytest.raises(WorkerError, match="not authorized"):
        run_both(loops["worker"], loops["forwarder"], stop=False)
    assert ended == order


@pytest.mark.parametrize(("stops", "order"), [(True, ["worker"]), (False, ["compiled", "worker"])])
def test_a_start_that_is_told_to_stop_does_not_compile_the_learner_first(
    monkeypatch: pytest.MonkeyPatch, stops: bool, order: list[str]
) -> None:
    """That takes longer than whoever sent SIGTERM may wait before he kills it."""
    told, done = list[bool](), list[str]()

    def build(*_: object) -> Loop:
        told.append(stops)
        return Loop("worker", done)

    for name in ("KafkaAdmin", "require_topics", "transactional_id"):
        monkeypatch.setattr(service, name, lambda *_: None)
    monkeypatch.setattr(service, "build", build)
    monkeypatch.setattr(service, "_compile_kernels", lambda _: (done.append("compiled"), told.append(True)))
    monkeypatch.setattr(service.gc_tuning, "calm", lambda: None)
    config, pulse = loads(document(), {}), Pulse(FakeClock(), 300.0)
    service._work(config, "worker.yaml", lambda: any(told), None, Metrics(), Board(), pulse)
    assert done == order


def test_a_worker_of_several_shows_its_own_port_and_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []

    def work(config: Config, *_: object) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{config.metrics.port}/status", timeout=30) as answer:
            shown.append(msgspec.json.decode(answer.read()))

    own, other = free_ports(2)
    monkeypatch.setattr(service, "_work", work)
    monkeypatch.setattr(service.malloc, "give_back_early", lambda: None)
    config = loads(document(checkpoint="{url: 'memory://'}", metrics=f'{{listen: "127.0.0.1:{own}"}}'), {})
    service.run(config, "worker.yaml", lambda: False, workers=(other, own))
    [status] = shown
    assert (status["port"], status["workers"]) == (own, [other, own])


def test_it_is_alive_while_its_loops_move() -> None:
    clock = FakeClock()
    pulse = Pulse(clock, 300.0)
    worker_stops, forwarder_stops = (pulse.at_each_turn(loop, lambda: False) for loop in ("worker", "forwarder"))
    clock.now_s += 300
    assert pulse.trouble() is None
    clock.now_s += 1
    assert pulse.trouble() == "the loop of the worker has not moved for 301 s"
    pulse.beat()
    assert pulse.trouble() is None
    for _ in range(4):
        forwarder_stops()
        clock.now_s += 100
        worker_stops()
    assert pulse.trouble() is None
    clock.now_s += 250
    worker_stops()
    assert pulse.trouble() == "the loop of the forwarder has not moved for 350 s"


def test_a_loop_may_begin_while_somebody_asks_whether_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server and the watchdog ask from threads of their own."""
    clock = FakeClock()
    pulse = Pulse(clock, 300.0)

    def monotonic() -> float:
        monkeypatch.undo()
        pulse.beat("forwarder")
        return clock.now_s

    monkeypatch.setattr(clock, "monotonic", monotonic)
    assert pulse.trouble() is None


STUCK = """
import time
from worker import service
service.WATCH_EVERY_S = 0.05
pulse = service.Pulse(service.SystemClock(), 0.2)
with service.watched(pulse, patience_s=0.2):
    def a_call_that_never_returns():
        time.sleep(60)
    a_call_that_never_returns()
"""


def test_a_process_whose_loop_is_stuck_ends_and_shows_where() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "a_call_that_never_returns" in done.stderr


CLOSES = """
import time
from worker import service
from worker.adapters.kafka import consumer
service.WATCH_EVERY_S, consumer.CLOSE_S = 0.05, 0.5
class Client:
    def close(self):
        time.sleep({seconds})
source = consumer.KafkaInput.__new__(consumer.KafkaInput)
source._consumer, source._is_open = Client(), False
with service.watched(service.Pulse(service.SystemClock(), {within_s}), patience_s={within_s}):
    source.close()
    time.sleep(30)
"""


@pytest.mark.parametrize(("seconds", "within_s", "where"), [(30, 300, "in close"), (0, 0.5, "in <module>")])
def test_a_client_that_does_not_close_and_a_loop_that_does_not_move_each_end_the_process(
    seconds: float, within_s: float, where: str
) -> None:
    program = CLOSES.format(seconds=seconds, within_s=within_s)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert where in done.stderr


def test_a_process_whose_loop_moves_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.service.WATCH_EVERY_S", 0.01)
    armed: list[float] = []
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda seconds, **_: armed.append(seconds))
    pulse = Pulse(SystemClock(), 300.0)
    with watched(pulse, patience_s=300.0):
        until(lambda: len(armed) >= 3)
    n = len(armed)
    time.sleep(0.05)
    assert len(armed) == n, "it goes on after the end"


class Topic:
    """With three partitions."""

    name = "events"
    is_mock = False

    def ends(self) -> dict[int, int]:
        return {0: 10, 1: 20, 2: 0}


def ends(until: Until, partitions: int) -> Mapping[int, int] | None:
    return ends_of(until, Topic(), partitions, Retry(FakeClock(), lambda: False, 1.0))  # type: ignore[arg-type]

    def ends(self) -> dict[int, int]:
        return {0: 10, 1: 20, 2: 0}


@pytest.mark.parametrize(
    ("until", "partitions", "expected"),
    [
        (None, 3, None),
        ("end", 3, {0: 10, 1: 20, 2: 0}),
        ("end", 2, {0: 10, 1: 20}),  # one was added that the models do not know
        ({2: 100, 0: 5}, 3, {2: 100, 0: 5}),
    ],
)
def test_a_run_ends_at_these_offsets(until: Until, partitions: int, expected: dict[int, int] | None) -> None:
    assert ends(until, partitions) == expected


def test_an_end_of_a_partition_that_is_not_there_is_refused() -> None:
    """It would be reached at once, with nothing read and exit code 0."""
    with pytest.raises(ConfigError, match=r"--until names partitions \[2, 7\], .* reads 0 to 1 of topic events\. Name"):
        ends({7: 100, 0: 5, 2: 0}, 2)


def test_a_run_says_which_records_it_waits_for_that_are_not_there(caplog: pytest.LogCaptureFixture) -> None:
    """It may be meant; but a mistyped offset looked like a worker that has nothing to do."""
    ends({0: 10, 1: 19, 2: 0}, 3)
    assert not caplog.records
    ends({0: 11, 1: 20, 2: 100}, 3)
    [said] = caplog.records
    assert said.event.name == "end-ahead"
    assert "partition 0 ends at 10, the run at 11, partition 2 ends at 0, the run at 100" in said.getMessage()


@pytest.mark.parametrize(("on_repartition", "partitions"), [("fail", 2), ("new-models", 3)])
def test_a_run_with_an_end_leaves_added_partitions_alone_where_a_worker_would_refuse_them(
    on_repartition: str, partitions: int
) -> None:
    bench = saved_bench(2)
    config = of_input(bench.config, on_repartition=on_repartition)
    facts = TopicState("topic-id", 3, dict.fromkeys(range(3), 0))
    assert known_part(config, facts, bench.store).partitions == partitions
    assert known_part(config, replace(facts, partitions=2), bench.store).partitions == 2


@pytest.mark.parametrize(
    ("folder", "level", "hint"),
    [
        (
            Path("/var/cache/amf"),
            logging.INFO,
            "kept in /var/cache/amf (the environment variable NUMBA_CACHE_DIR",
        ),
        (None, logging.WARNING, "no folder keeps it. Set the environment variable NUMBA_CACHE_DIR"),
    ],
)
def test_a_start_that_compiles_says_where_it_is_kept_and_which_setting_changes_that(
    caplog: pytest.LogCaptureFixture, folder: Path | None, level: int, hint: str
) -> None:
    caplog.set_level(logging.INFO, "worker")
    _announce(amf.Compilation("generic", folder))
    [said] = caplog.records
    assert said.levelno == level
    assert "compiling the learner for the CPU generic" in said.getMessage()
    assert hint in said.getMessage()
