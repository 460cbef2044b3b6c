"""One worker process: the adapters joined to the runtime, and the metrics server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import amf
from worker import __version__
from worker.adapters import malloc, open_files
from worker.adapters.http import serve
from worker.adapters.kafka import (
    KafkaAdmin,
    KafkaInput,
    KafkaOutput,
    KafkaTopic,
    make_internal_topic,
    require_topics,
    transactional_id,
)
from worker.adapters.kafka.registry import open_registry
from worker.adapters.spill import Spill
from worker.adapters.store import open_store
from worker.base import gc_tuning
from worker.base.errors import Fatal
from worker.base.log import Log
from worker.base.metrics import Metrics
from worker.base.ports import Clock
from worker.base.retry import ASKING, START_S, Retry, Stopped
from worker.base.status import Board, Status
from worker.base.watchdog import Guard
from worker.checkpoint import MOST_WRITES
from worker.config import Address, Config, repartition
from worker.preflight import Finding, examine, of_forwarder, of_group, probe
from worker.repartition.forwarder import Forwarder
from worker.repartition.model_key import key_reader
from worker.runtime.loop import Worker
from worker.runtime.tasks import Pools, Setting
from worker.runtime.topic_monitor import OutputMonitor, TopicMonitor
from worker.state.targets import compile_kernels
from worker.task.warm_start import WarmStart
from worker.until import Until, ends_of, known_part

_log = Log(__name__)

MOVE_S = 300.0
"""Longest time without a move of a loop that is alive: what it takes to be shut out of the group, if not more."""
WATCH_EVERY_S = 1.0

ASKERS = 32
"""Partitions of which it is asked at a time where they start. Those that have no leader do nothing but wait."""
CLEANERS = 2
"""Partitions of which old checkpoints are removed at a time: each takes memory for manifests."""
LOADERS = 2
"""Partitions whose models are loaded at a time: each takes memory for a segment."""
FETCHERS = 8
"""Models of a partition that are read from the store at a time, where only the store has them."""
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

    def beat(self, loop: str = "worker") -> None:
        """The loop is at its next turn, or the start at its next attempt."""
        self._moved_s[loop] = self._clock.monotonic()

    def at_each_turn(self, loop: str, should_stop: Callable[[], bool]) -> Callable[[], bool]:
        """What a loop asks before each turn, which tells that it moves."""

        def asked() -> bool:
            self.beat(loop)
            return should_stop()

        return asked

    def trouble(self) -> str | None:
        """Why the process is not alive, None where it is."""
        # A copy: a loop may come to its first turn meanwhile.
        for loop, moved_s in self._moved_s.copy().items():
            silence_s = self._clock.monotonic() - moved_s
            if silence_s > self._within_s:
                return f"the loop of the {loop} has not moved for {silence_s:.0f} s"
        return None


@contextmanager
def watched(pulse: Pulse, patience_s: float) -> Iterator[None]:
    """End a process that is not alive for so much longer, with the stacks of its threads; nothing is lost by that.

    A call into a library that never returns keeps the partitions from others.
    """
    ended, guard = threading.Event(), Guard()

    def watch() -> None:
        while not ended.wait(WATCH_EVERY_S):
            if pulse.trouble() is None:
                guard.renew(patience_s + WATCH_EVERY_S)

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        guard.lift()


def run(
    config: Config, path: str, should_stop: Callable[[], bool], until: Until = None, workers: Sequence[int] = ()
) -> None:
    """Work until it should stop, or until the partitions are at their ends. Raises ConfigError, WorkerError.

    A start waits for its broker for as long as it takes. What the broker refuses ends it. With an end and
    `input.repartition` it is the internal topic that is worked off. workers: ports of all that were started with it.
    """
    malloc.give_back_early()
    open_files.allow_all()
    metrics = Metrics()
    group, topic, port = str(config.kafka["group.id"]), config.input.topic, config.metrics.port
    metrics.build_info.set(1, version=__version__, engine=amf.ENGINE, group=group, topic=topic)
    metrics.ready.set(0)
    move_s = max(MOVE_S, int(config.kafka.get("max.poll.interval.ms", 0)) / 1000)
    pulse = Pulse(SystemClock(), move_s)
    board = Board(Status(__version__, amf.ENGINE, group, topic, SystemClock().wall_ms(), port, workers))
    server = serve(metrics, config.metrics.host, port, pulse.trouble, board, config.metrics.token)
    try:
        address = Address(config.metrics.host, server.port)
        served = f"metrics at http://{address}/metrics, a page that shows them at http://{address}/"
        _log.info("metrics-served", served)
        with watched(pulse, patience_s=move_s):
            _work(config, path, should_stop, until, metrics, board, pulse)
    except Stopped:
        _log.info("stopped", "stopped before it began")
    finally:
        server.close()
    _log.info("stopped", "stopped in order")


def _work(
    config: Config,
    path: str,
    should_stop: Callable[[], bool],
    until: Until,
    metrics: Metrics,
    board: Board,
    pulse: Pulse,
) -> None:
    """Start, and work to the end. Raises ConfigError, WorkerError; Stopped where it comes to no start."""
    start = Retry(SystemClock(), should_stop, START_S, pulse.beat)
    admin = KafkaAdmin(config)
    start.ask("broker", lambda: require_topics(admin, config, path))
    identity = transactional_id(config)
    forwarder = None
    if config.input.repartition:
        # A run with an end works off what was forwarded: with a forwarder beside it there would be none.
        if until is None:
            forwarder = _forwarder(config, admin, identity, metrics, board, start)
        config = repartition.of_worker(config)
    worker = build(config, admin, identity, metrics, until, start, board)
    if not should_stop():  # which takes half a minute; the worker then ends without having joined the group
        _compile_kernels(config)
    gc_tuning.calm()
    if forwarder is None:
        worker.run(pulse.at_each_turn("worker", should_stop))
    else:
        _run_both(worker, forwarder, should_stop, pulse)


def is_held_up() -> bool:
    """Whether somebody who does not answer would hold up the end of the process, for as long as the deadline of a call.

    The log says who.
    """
    until = time.monotonic() + LEAVE_S
    writers = _threads(_WRITERS)
    for thread in writers:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in writers):
        _log.warning("ended", "the checkpoint store does not answer, going without it")
        return True
    if _threads(ASKING):
        # Of a start that was stopped, maybe as soon as it had asked: it has nothing to lose.
        _log.info("ended", "what it waited for does not answer, going without it")
        return True
    return False


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def build(
    config: Config,
    admin: KafkaAdmin,
    identity: str,
    metrics: Metrics,
    until: Until = None,
    start: Retry | None = None,
    board: Board | None = None,
) -> Worker:
    """The worker with its adapters, once it is sure that topics and store are fit for it. Raises WorkerError."""
    store, clock, topic = open_store(config.checkpoint.url), SystemClock(), KafkaTopic(config, config.input.topic)
    start, board = start or Retry(clock, lambda: False, START_S), board or Board()
    _require([start.ask("store", lambda: probe(store, config.checkpoint.url))])
    facts, warm_url = start.ask("broker", lambda: admin.facts(config.input.topic)), config.checkpoint.warm_start
    monitor = None
    if not start.ask("broker", lambda: topic.is_mock):
        looks = {name: topic.beside(name).ask for name in (config.output.topic, config.dead_letter.topic)}
        outputs = OutputMonitor(looks, board, clock)
        monitor = TopicMonitor(config.input.topic, facts, config.input.on_repartition, topic.ask, clock, outputs)
        if not config.input.repartition:
            _require(start.ask("committed offsets", lambda: of_group(config, facts.partitions)))
        if until is not None:
            facts = start.ask("checkpoints", partial(known_part, config, facts, store))
        _require(start.ask("checkpoints", lambda: list(examine(config, topic, facts, store))))
    room = _room(start, admin, config)
    setting = Setting(
        facts.topic_id,
        facts.partitions,
        room,
        None if warm_url is None else WarmStart.of(open_store(warm_url), config, facts.topic_id, facts.partitions),
        ends=ends_of(until, topic, facts.partitions, start),
        registry=open_registry(config),
        spill=_spill(config),
        give_back=malloc.give_back,
    )
    return Worker(
        config,
        setting,
        KafkaInput(config),
        lambda: KafkaOutput(config, identity if config.delivery == "exactly-once" else None, room),
        store,
        metrics,
        clock,
        Pools(
            writers=ThreadPoolExecutor(MOST_WRITES, thread_name_prefix=_WRITERS),
            cleaners=ThreadPoolExecutor(CLEANERS, thread_name_prefix=f"{_WRITERS}-clean"),
            loaders=ThreadPoolExecutor(LOADERS, thread_name_prefix=f"{_WRITERS}-load"),
            askers=ThreadPoolExecutor(ASKERS, thread_name_prefix="starts"),
            appliers=ThreadPoolExecutor(2, thread_name_prefix="partitions"),
            new_fetchers=partial(ThreadPoolExecutor, FETCHERS, thread_name_prefix=f"{_WRITERS}-fetch"),
        ),
        board,
        monitor,
    )


def _room(start: Retry, admin: KafkaAdmin, config: Config) -> int:
    """Largest record that can be published."""
    return start.ask("broker", lambda: admin.max_message_bytes([config.output.topic, config.dead_letter.topic]))


def _forwarder(
    config: Config, admin: KafkaAdmin, identity: str, metrics: Metrics, board: Board, start: Retry
) -> Forwarder:
    """What fills the internal topic, which is made if it is missing."""
    own = repartition.of_forwarder(config)
    source = KafkaInput(own)
    partitions = start.ask("broker", lambda: admin.facts(config.input.topic)).partitions
    metrics.forwarder_topic_partitions.set(partitions)
    start.ask("internal topic", lambda: make_internal_topic(admin, config))
    _require(start.ask("committed offsets", lambda: of_forwarder(config, partitions)))
    room = _room(start, admin, own)
    return Forwarder(
        own,
        key_reader(own),
        room,
        partitions,
        source,
        lambda: KafkaOutput(own, repartition.forwarder_id(identity), room),
        metrics,
        SystemClock(),
        board,
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
            raise Fatal(finding.sentence)
        say = _log.warning if finding.level == "warning" else _log.info
        say("start-up-check", finding.sentence)


def _spill(config: Config) -> Spill | None:
    models = config.models
    return None if models.cache_bytes is None else Spill(models.spill, models.spill_bytes)


def _compile_kernels(config: Config) -> None:
    """Before joining the group: nobody should wait for that with partitions."""
    started = time.monotonic()
    explain = config.output.explain > 0
    loaded, compiled = compile_kernels(config.models.algorithms, explain=explain, announce=_announce)
    took = f"{time.monotonic() - started:.1f} s"
    _log.info("kernels-ready", f"kernels ready in {took}: {loaded} loaded, {compiled} compiled")


def _announce(compilation: amf.Compilation) -> None:
    """Say why this start takes long, and what makes the next one short."""
    cpu, folder = compilation
    fact = f"compiling the learner for the CPU {cpu}, which takes half a minute or more"
    if folder is None:
        _log.warning(
            "kernels-compiled",
            f"{fact}, and so at every start, since no folder keeps it",
            hint="Set the environment variable NUMBA_CACHE_DIR to one that is written to and stays, or use an image "
            "that brings it along (deploy/Dockerfile)",
        )
    else:
        kept = f"it is kept in {folder} (the environment variable NUMBA_CACHE_DIR names another folder)"
        _log.info("kernels-compiled", f"{fact}; {kept}")
