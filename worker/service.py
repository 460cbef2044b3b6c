"""One worker process: the adapters joined to the runtime, signals, and the metrics server."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Literal

import amf
from worker import __version__
from worker.allocator import give_back_early
from worker.checks import Finding, examine, probe
from worker.config import Config, repartition
from worker.errors import ConfigError, WorkerError
from worker.exposition import serve
from worker.forwarder import Forwarder
from worker.kafka import (
    KafkaAdmin,
    KafkaInput,
    KafkaOutput,
    KafkaTopic,
    make_internal_topic,
    require_topics,
    transactional_id,
)
from worker.kafka.registry import open_registry
from worker.learners import compile_kernels
from worker.metrics import Metrics
from worker.model_key import key_reader
from worker.patience import ASKING, Patience, Stopped
from worker.ports import Clock
from worker.runtime import Setting, Worker
from worker.spill import Spill
from worker.store import open_store
from worker.until import Until
from worker.warm_start import WarmStart
from worker.watch import Watch

_log = logging.getLogger(__name__)

START_S = 60.0
"""Longest time that a start waits for a store that does not answer, or for a better answer of a broker."""
MOVE_S = 300.0
"""Longest time without a move of a loop that is alive: what it takes to be shut out of the group, if not more."""

ASKERS = 32
"""Partitions of which it is asked at a time where they start. Those that have no leader do nothing but wait."""
FETCHERS = 8
"""Models that are read from the store at a time, where only the store has them."""
LEAVE_S = 2.0
"""Longest wait at the end for threads that are still at the store."""
_WRITERS = "checkpoints"


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Pulse:
    """Whether the start goes on, and then each of the loops. Any thread may call."""

    def __init__(self, clock: Clock, within_s: float) -> None:
        self._clock = clock
        self._within_s = within_s
        self._moved_s = {"worker": clock.monotonic()}

    def moved(self, loop: str = "worker") -> None:
        """The loop is at its next turn, or the start at its next attempt."""
        self._moved_s[loop] = self._clock.monotonic()

    def at_each_turn(self, loop: str, should_stop: Callable[[], bool]) -> Callable[[], bool]:
        """What a loop asks before each turn, which tells that it moves."""

        def asked() -> bool:
            self.moved(loop)
            return should_stop()

        return asked

    def trouble(self) -> str | None:
        """Why the process is not alive, None where it is."""
        for loop, moved_s in self._moved_s.copy().items():
            silence_s = self._clock.monotonic() - moved_s
            if silence_s > self._within_s:
                return f"the loop of the {loop} has not moved for {silence_s:.0f} s"
        return None


class Signals:
    """SIGTERM or SIGINT asks for an orderly end; a second one ends the process at once, which loses nothing."""

    def __init__(self) -> None:
        self.stop = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def _received(self, number: int, _: FrameType | None) -> None:
        if self.stop:
            os._exit(128 + number)
        self.stop = True
        _log.info("%s: finishing; a second signal ends at once", signal.Signals(number).name)


def run(config: Config, path: str, until: Literal["end"] | Mapping[int, int] | None = None) -> None:
    """Work until SIGTERM or SIGINT, or until the partitions are at their ends. Raises ConfigError, WorkerError.

    A start waits for its broker for as long as it takes. What the broker refuses ends it.
    """
    if until is not None and config.input.repartition:
        raise ConfigError("--until does not go with input.repartition: the internal topic has no end")
    give_back_early()
    signals = Signals()
    metrics = Metrics()
    metrics.build_info.set(1, version=__version__, engine=amf.ENGINE)
    pulse = Pulse(SystemClock(), max(MOVE_S, int(config.kafka.get("max.poll.interval.ms", 0)) / 1000))
    server = serve(metrics, config.metrics.host, config.metrics.port, pulse.trouble)
    try:
        _log.info("metrics at http://%s:%d/metrics", config.metrics.host, server.port)
        _work(config, path, until, metrics, signals, pulse)
    except Stopped:
        _log.info("told to stop before it had begun")
    finally:
        server.close()
    _log.info("stopped in order")


def _work(
    config: Config,
    path: str,
    until: Literal["end"] | Mapping[int, int] | None,
    metrics: Metrics,
    signals: Signals,
    pulse: Pulse,
) -> None:
    """Start, and work to the end. Raises ConfigError, WorkerError; Stopped where it comes to no start."""
    start = Patience(SystemClock(), lambda: signals.stop, START_S, pulse.moved)
    admin = KafkaAdmin(config)
    start.ask("broker", lambda: require_topics(admin, config, path))
    identity = transactional_id(config)
    forwarder = None
    if config.input.repartition:
        forwarder = _forwarder(config, admin, identity, metrics, start)
        config = repartition.of_worker(config)
    worker = build(config, admin, identity, metrics, until, start)
    _compile_kernels(config)
    calm_the_collector()
    if forwarder is None:
        worker.run(pulse.at_each_turn("worker", lambda: signals.stop))
    else:
        _run_both(worker, forwarder, lambda: signals.stop, pulse)


def held_up_by() -> str | None:
    """Who does not answer and would hold up the end of the process, for as long as the deadline of a call."""
    until = time.monotonic() + LEAVE_S
    writers = _threads(_WRITERS)
    for thread in writers:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in writers):
        return "the checkpoint store"
    # Of a start that was told to stop: it has nothing to lose.
    return "what it waited for" if _threads(ASKING) else None


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def build(
    config: Config,
    admin: KafkaAdmin,
    identity: str,
    metrics: Metrics,
    until: Literal["end"] | Mapping[int, int] | None = None,
    start: Patience | None = None,
) -> Worker:
    """The worker with its adapters, once it is sure that topics and store are fit for it. Raises WorkerError."""
    store, clock, topic = open_store(config.checkpoint.url), SystemClock(), KafkaTopic(config, config.input.topic)
    start = start or Patience(clock, lambda: False, START_S)
    _require([start.ask("store", lambda: probe(store, config.checkpoint.url))])
    facts, warm_url = start.ask("broker", lambda: admin.facts(config.input.topic)), config.checkpoint.warm_start
    watch = None
    if not start.ask("broker", lambda: topic.is_mock):
        _require(examine(config, topic, facts, store))
        watch = Watch(config.input.topic, facts, config.input.on_repartition, topic.ask, clock)
    setting = Setting(
        facts.topic_id,
        facts.partitions,
        _room(start, admin, config),
        None if warm_url is None else WarmStart(open_store(warm_url), facts.partitions),
        registry=open_registry(config),
        spill=_spill(config),
    )
    ends = start.ask("ends of the topic", topic.ends) if until == "end" else until
    return Worker(
        config,
        setting,
        KafkaInput(config, sees_ends=until is not None),
        lambda: KafkaOutput(config, identity if config.delivery == "exactly-once" else None),
        store,
        metrics,
        clock,
        ThreadPoolExecutor(2, thread_name_prefix=_WRITERS),
        ThreadPoolExecutor(2, thread_name_prefix="partitions"),
        ThreadPoolExecutor(ASKERS, thread_name_prefix="starts"),
        watch=watch,
        until=None if ends is None else Until(ends),
        fetchers=ThreadPoolExecutor(FETCHERS, thread_name_prefix=f"{_WRITERS}-fetch"),
    )


def _room(start: Patience, admin: KafkaAdmin, config: Config) -> int:
    """Largest record that can be published."""
    return start.ask("broker", lambda: admin.max_message_bytes([config.output.topic, config.dead_letter.topic]))


def _forwarder(config: Config, admin: KafkaAdmin, identity: str, metrics: Metrics, start: Patience) -> Forwarder:
    """What fills the internal topic, which is made if it is missing."""
    own = repartition.of_forwarder(config)
    source = KafkaInput(own)
    if not start.ask("internal topic", lambda: make_internal_topic(admin, config)):
        _require_offsets(own, admin, source, start)
    return Forwarder(
        own,
        key_reader(own),
        _room(start, admin, own),
        source,
        lambda: KafkaOutput(own, repartition.forwarder_id(identity)),
        metrics,
        SystemClock(),
    )


def _require_offsets(config: Config, admin: KafkaAdmin, source: KafkaInput, start: Patience) -> None:
    """Raises WorkerError where the forwarders have forwarded, but the group has forgotten how far they came."""
    internal = KafkaTopic(config, config.output.topic)
    numbers = range(start.ask("broker", lambda: admin.facts(config.input.topic)).partitions)
    # In this order: an offset is committed before the first record is forwarded.
    if start.ask("broker", lambda: internal.is_mock) or not any(start.ask("internal topic", internal.ends).values()):
        return
    committed = start.ask("committed offsets", lambda: source.committed(numbers))
    if all(offset is None for offset in committed.values()):
        raise WorkerError(
            f"group {config.kafka['group.id']} has no committed offsets on {config.input.topic} though its records are "
            f"in {config.output.topic}: they have expired or were deleted, and to forward all again would double them. "
            "Commit for each partition the offset after the last header origin-offset there (kafka-consumer-groups "
            "--reset-offsets), or begin anew under another kafka.group.id"
        )


def _run_both(
    worker: Worker,
    forwarder: Forwarder,
    should_stop: Callable[[], bool],
    pulse: Pulse,
) -> None:
    """Run the forwarder beside the worker; it ends first, and where one of them fails the other ends in order."""
    worker_ended = False
    with ThreadPoolExecutor(1, thread_name_prefix="forwarder") as thread:
        forwarding = thread.submit(
            forwarder.run, pulse.at_each_turn("forwarder", lambda: worker_ended or should_stop())
        )
        try:
            worker.run(pulse.at_each_turn("worker", forwarding.done))
        finally:
            worker_ended = True
    forwarding.result()


def _require(findings: Iterable[Finding]) -> None:
    """Say what was found. Raises WorkerError for the first that must not be."""
    for finding in findings:
        if finding.level == "failed":
            raise WorkerError(finding.sentence)
        _log.log(logging.WARNING if finding.level == "warning" else logging.INFO, "%s", finding.sentence)


def _spill(config: Config) -> Spill | None:
    models = config.models
    return None if models.cache_bytes is None else Spill(models.spill, models.spill_bytes)


def calm_the_collector() -> None:
    """A batch makes tens of thousands of small objects and no cycle; looking for some took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


def _compile_kernels(config: Config) -> None:
    """Before joining the group: nobody should wait for that with partitions."""
    started = time.monotonic()
    compile_kernels(config.models.algorithms)
    _log.info("kernels ready in %.1f s", time.monotonic() - started)
