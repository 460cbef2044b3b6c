"""What the demo puts on: broker, worker, generator and readers, moved on together by one thread."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from worker import config as configuration
from worker.adapters.kafka import KafkaAdmin, KafkaInput, KafkaPublisher
from worker.adapters.store import open_store
from worker.base.errors import Fatal
from worker.checkpoint import KEPT_MS, Checkpoints, Location
from worker.cli.dataset import Row, key_of, message
from worker.config import history_of
from worker.demo import watch
from worker.demo.ledger import Ledger, Reader
from worker.demo.processes import Process, free_port, start_broker, start_worker
from worker.demo.screen import ModelRow, Screen, View

TOPICS = ("events", "predictions", "dead-letters")
LOG_BYTES = 4_000_000
"""The embedded broker keeps 5 MB of a partition, and all keys may be in one: what is still needed must be less."""
_TICK_S = 0.05
_LOOK_S = 1.0
_RATE_OVER_S = 3.0
_BURST = 1000


class Generator:
    """Publishes rows at a steady rate, as far as there is room for them."""

    def __init__(self, rows: Iterator[Row], rate: float, publisher: KafkaPublisher) -> None:
        self.published = 0
        self.mean_bytes = 500.0
        """Size of an event; a guess before the first."""
        self._rows = rows
        self._rate = rate
        self._publisher = publisher

    def publish(self, elapsed_s: float, room: int) -> None:
        """Publish what is due by now, at most `room` events; the rest stays due."""
        due = min(int(self._rate * elapsed_s) - self.published, room, _BURST)
        for row in islice(self._rows, max(due, 0)):
            value = message(row)
            self._publisher.send(key_of(row), value)
            self.published += 1
            self.mean_bytes += (len(value) - self.mean_bytes) / self.published
        self._publisher.wait(0)


class Stage:
    """The running demo. Leaving the `with` block ends every process of it, in whatever state it is."""

    def __init__(self, config_path: Path, folder: Path, screen: Screen) -> None:
        self.ledger = Ledger()
        self.worker: Process | None = None
        self.samples: watch.Samples = {}
        self.checkpoints: dict[int, int] = {}
        """Partition -> offset of the newest checkpoint."""
        self._config_path = config_path
        self._folder = folder
        self._screen = screen
        self._generator: Generator | None = None
        self._flowing_since_s = 0.0
        self._length_s = 0.0
        self._looked_s = 0.0
        self._progress: deque[tuple[float, int]] = deque()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            broker, self.servers = start_broker(TOPICS, self._folder)
            opened.enter_context(broker)
            self.metrics_port = free_port()
            self._environ = {
                **os.environ,
                "AMF_DEMO_BOOTSTRAP": self.servers,
                "AMF_DEMO_CHECKPOINTS": (self._folder / "checkpoints").as_uri(),
                "AMF_DEMO_METRICS_PORT": str(self.metrics_port),
            }
            self.config = configuration.load(self._config_path, self._environ)
            facts = KafkaAdmin(self.config).facts(self.config.input.topic)
            self._topic_id, partitions = facts.topic_id, facts.partitions
            output, dead = self.config.output.topic, self.config.dead_letter.topic
            self._predictions = opened.enter_context(closing(Reader(self.config, output, partitions)))
            self._dead_letters = opened.enter_context(closing(Reader(self.config, dead, partitions)))
            self._store = open_store(self.config.checkpoint.url)
            self._partitions = range(partitions)
            self._open = opened.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def start_worker(self) -> Process:
        """Start the worker's process; it joins the group when it is ready."""
        self.worker = self._open.enter_context(start_worker(self._config_path, self._folder, self._environ))
        return self.worker

    def start_events(self, rows: Iterator[Row], rate: float, length_s: float) -> None:
        """From now on publish `rate` rows a second."""
        self._generator = Generator(rows, rate, KafkaPublisher(self.config, self.config.input.topic))
        self._flowing_since_s = time.monotonic()
        self._length_s = length_s

    def stop_events(self) -> None:
        """Publish nothing more."""
        self._length_s = self.elapsed_s
        self._flowing_since_s = 0.0

    @property
    def elapsed_s(self) -> float:
        """How long events have been flowing."""
        return time.monotonic() - self._flowing_since_s if self._flowing_since_s else self._length_s

    @property
    def published(self) -> int:
        return self._generator.published if self._generator else 0

    def until(self, done: Callable[[], bool], within_s: float, what: str) -> None:
        """Go on until `done`. Raises WorkerError when that takes too long, and when the worker ends by itself."""
        deadline_s = time.monotonic() + within_s
        while not done():
            self._tick()
            if self.worker is not None and self.worker.exit_code is not None:
                raise Fatal(f"the worker has ended by itself, with exit code {self.worker.exit_code}")
            if time.monotonic() > deadline_s:
                raise Fatal(f"{what}: not within {within_s:.0f} s")

    def kill_worker(self) -> int:
        """SIGKILL; then take in what it had published. Returns its process id."""
        worker, self.worker = self.worker, None
        assert worker is not None
        worker.kill()
        self.samples = {}
        while records := self._predictions.read(4 * _TICK_S):
            self.ledger.take(records)
        self._look()
        return worker.pid

    def stop_worker(self, within_s: float) -> int | None:
        """SIGTERM, and its exit code; None if it has not ended by then."""
        worker, self.worker = self.worker, None
        assert worker is not None
        worker.terminate()
        deadline_s = time.monotonic() + within_s
        while worker.exit_code is None and time.monotonic() < deadline_s:
            self._tick()
        self._look()
        return worker.exit_code

    def tidy_checkpoints(self) -> None:
        """Remove the checkpoints that the worker itself would remove a day later: what is left is for people to see."""
        for number in self._partitions:
            self._checkpoints_of(number).collect_garbage(time.time_ns() // 1_000_000 + KEPT_MS)

    def committed(self) -> dict[int, int]:
        """Partition -> offset that the group has committed."""
        with closing(KafkaInput(self.config)) as group:
            found = group.committed(self._partitions)
            return {number: 0 if each is None else each.offset for number, each in found.items()}

    def _checkpoints_of(self, number: int) -> Checkpoints:
        return Checkpoints(self._store, Location(*history_of(self.config), self._topic_id, number))

    def _tick(self) -> None:
        if self._generator is not None and self._flowing_since_s:
            self._generator.publish(self.elapsed_s, self._room(self._generator))
        self.ledger.take(self._predictions.read(_TICK_S))
        self.ledger.take_dead_letters(self._dead_letters.read(0.0))
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            self._look()
        self._progress.append((now_s, self.ledger.handled))
        while now_s - self._progress[0][0] > _RATE_OVER_S:
            self._progress.popleft()
        if self._screen.due():
            self._screen.show(self._view())

    def _room(self, generator: Generator) -> int:
        """How many events the broker has room for: for them until a checkpoint has them, for what comes out until read.

        An event may come out twice, hence half of the space for outputs.
        """
        unsaved = generator.published - sum(self.checkpoints.values())
        unread = generator.published - self.ledger.handled
        return int(min(LOG_BYTES / generator.mean_bytes - unsaved, LOG_BYTES / 2 / self.ledger.mean_bytes - unread))

    def _look(self) -> None:
        """What is looked at now and then: the metrics, the checkpoints, the course of the log-loss."""
        self.samples = watch.scrape(self.metrics_port) if self.worker else {}
        offsets = {number: self._checkpoints_of(number).offsets() for number in self._partitions}
        self.checkpoints = {number: each[-1] for number, each in offsets.items() if each}
        self.ledger.sample_curves()

    def _view(self) -> View:
        ledger = self.ledger
        (since_s, before), (now_s, now) = self._progress[0], self._progress[-1]
        return View(
            self.elapsed_s,
            self._length_s,
            watch.state(self.samples) if self.worker else "ended",
            (now - before) / max(now_s - since_s, _TICK_S),
            self.published - ledger.handled,
            watch.oldest_checkpoint_s(self.samples, time.time()),
            [self._row(key) for key in sorted(ledger.models)],
        )

    def _row(self, key: str) -> ModelRow:
        tally = self.ledger.models[key]
        depth, nodes, memory = (
            self.samples.get(f"amf_model_{figure}", {}).get((key,)) for figure in ("depth", "nodes", "memory_bytes")
        )
        return ModelRow(
            key, tally.events, tally.log_loss, tally.recent_log_loss, tally.accuracy, depth, nodes, memory, tally.curve
        )
