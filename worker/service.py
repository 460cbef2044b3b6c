"""One worker process: the adapters joined to the runtime, signals, and the metrics server."""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import amf
from worker import __version__
from worker.config import Config
from worker.exposition import serve
from worker.kafka import KafkaAdmin, KafkaInput, KafkaOutput, require_topics, transactional_id
from worker.learners import compile_kernels
from worker.metrics import Metrics
from worker.runtime import Setting, Worker
from worker.store import open_store
from worker.warm_start import WarmStart

_log = logging.getLogger(__name__)


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


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


def run(config: Config, path: str) -> None:
    """Work until SIGTERM or SIGINT. Raises ConfigError, WorkerError."""
    signals = Signals()
    metrics = Metrics()
    metrics.build_info.set(1, version=__version__, engine=amf.ENGINE)
    server = serve(metrics, config.metrics.host, config.metrics.port)
    try:
        _log.info("metrics at http://%s:%d/metrics", config.metrics.host, server.port)
        admin = KafkaAdmin(config)
        require_topics(admin, config, path)
        facts, warm_url = admin.facts(config.input.topic), config.checkpoint.warm_start
        setting = Setting(
            facts.topic_id,
            admin.max_message_bytes([config.output.topic, config.dead_letter.topic]),
            None if warm_url is None else WarmStart(open_store(warm_url), facts.partitions),
        )
        store = open_store(config.checkpoint.url)
        identity = transactional_id(config) if config.delivery == "exactly-once" else None
        worker = Worker(
            config,
            setting,
            KafkaInput(config),
            lambda: KafkaOutput(config, identity),
            store,
            metrics,
            SystemClock(),
            ThreadPoolExecutor(2, thread_name_prefix="checkpoints"),
            ThreadPoolExecutor(2, thread_name_prefix="partitions"),
        )
        _compile_kernels(config)
        _calm_the_collector()
        worker.run(lambda: signals.stop)
        _log.info("stopped in order")
    finally:
        server.close()


def _calm_the_collector() -> None:
    """A batch makes tens of thousands of small objects and no cycle; looking for some took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


def _compile_kernels(config: Config) -> None:
    """Before joining the group: nobody should wait for that with partitions."""
    started = time.monotonic()
    compile_kernels(config.models.algorithms)
    _log.info("kernels ready in %.1f s", time.monotonic() - started)
