"""The course of the demo: broker, worker, events; the kill and the comeback; the end and the reckoning."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from itertools import islice
from pathlib import Path
from statistics import fmean

from worker.base.errors import Fatal
from worker.cli.dataset import Rows
from worker.cli.terminal import size
from worker.demo import watch
from worker.demo.ledger import RECENT, Tally, uninterrupted
from worker.demo.processes import Process
from worker.demo.screen import Screen
from worker.demo.stage import Stage

READY_S = 90.0
COMEBACK_S = 60.0
PATIENCE_S = 30.0
"""How much longer than planned a part of the demo may take."""
STOP_S = 25.0


class Story:
    """Told once. `tell` raises WorkerError where anything is not as promised."""

    def __init__(
        self, rows: Rows, seconds: float, rate: float, config_path: Path, folder: Path, screen: Screen
    ) -> None:
        self._rows = rows
        self._seconds = seconds
        self._rate = rate
        self._config_path = config_path
        self._folder = folder
        self._screen = screen
        self._down_s = 0.0
        self._replayed = 0
        self._equal = 0

    def tell(self) -> None:
        """From the start of the broker to the summary."""
        self._screen.line("amf-worker at work, on a broker of its own, with a crash. Ctrl-C ends it.", "bold")
        with Stage(self._config_path, self._folder, self._screen) as stage:
            with self._screen:
                self._begin(stage)
                self._crash(stage)
                self._end(stage)
                self._compare(stage)
            self._sum_up(stage)
            self._require_all_well(stage)

    def _begin(self, stage: Stage) -> None:
        step = self._screen.step
        step(
            f"embedded broker (librdkafka's mock cluster) at {stage.servers}",
            "It gives at-least-once. A real broker gives exactly-once.",
        )
        started_s = time.monotonic()
        worker = self._start_worker(stage)
        self._screen.note("On a fresh machine its kernels are compiled first: half a minute or so.")
        stage.until(lambda: watch.state(stage.samples) in ("ready", "live"), READY_S, "the worker's start")
        step(
            f"worker {worker.pid} is ready after {time.monotonic() - started_s:.1f} s",
            f"What it does, all the time: http://127.0.0.1:{stage.metrics_port}/",
        )
        stage.start_events(iter(self._rows), self._rate, self._seconds)
        step(f"events flow, {self._rate:,.0f} a second: each is predicted first, then learned")

    def _crash(self, stage: Stage) -> None:
        """In the middle, once there is a checkpoint to come back to: SIGKILL, and the same command again."""
        step, ledger = self._screen.step, stage.ledger
        stage.until(
            lambda: stage.elapsed_s >= self._seconds / 2 and sum(stage.checkpoints.values()) > 0,
            self._seconds / 2 + PATIENCE_S,
            "the first checkpoint",
        )
        killed_s, pid = time.monotonic(), stage.kill_worker()
        step(f"kill -9 {pid}", style="bold red")
        before = ledger.handled
        at_kill = deepcopy(ledger.models)
        worker = self._start_worker(stage)
        committed = stage.committed()
        due = sum(committed.values()) - sum(stage.checkpoints.values())
        session_s = int(stage.config.kafka["session.timeout.ms"]) / 1000
        self._screen.note(
            f"The checkpoints are at offsets  {_offsets(stage.checkpoints)},",
            f"the group has committed         {_offsets(committed)}:",
            f"{due:,} events are to be learned again. First the dead worker's",
            f"partitions must be free, after {session_s:g} s of silence.",
        )
        stage.until(lambda: ledger.handled > before, COMEBACK_S, "the comeback of the worker")
        self._down_s = time.monotonic() - killed_s
        stage.until(lambda: watch.replayed(stage.samples) >= due, PATIENCE_S, "the replay")
        self._replayed = watch.replayed(stage.samples)
        step(
            f"worker {worker.pid} goes on where the other was, {self._down_s:.1f} s after the kill",
            f"{self._replayed:,} events replayed in silence: their predictions are already out",
        )
        self._go_on(stage, at_kill)

    def _go_on(self, stage: Stage, at_kill: Mapping[str, Tally]) -> None:
        """Whether the forests are as good after the crash as before it, each model counting alike."""
        models = stage.ledger.models

        def since(key: str) -> Tally:
            return models[key].since(at_kill[key])

        stage.until(
            lambda: stage.elapsed_s >= self._seconds or all(since(key).labelled >= RECENT for key in at_kill),
            self._seconds + PATIENCE_S,
            "events after the crash",
        )
        before = _mean(tally.recent_log_loss for tally in at_kill.values())
        after = _mean(since(key).log_loss for key in at_kill)
        self._screen.step(f"log-loss, mean of the models: {before} just before the kill, {after} since")

    def _end(self, stage: Stage) -> None:
        stage.until(lambda: stage.elapsed_s >= self._seconds, self._seconds + PATIENCE_S, "the end")
        stage.stop_events()
        stage.until(lambda: stage.ledger.handled >= stage.published, PATIENCE_S, "the last predictions")
        code = stage.stop_worker(STOP_S)
        if code != 0:
            raise Fatal(
                f"the worker did not end within {STOP_S:g} s of SIGTERM" if code is None
                else f"the worker ended with exit code {code} after SIGTERM"
            )  # fmt: skip
        stage.tidy_checkpoints()
        self._screen.step("SIGTERM: the worker saved its models and ended with exit code 0")

    def _compare(self, stage: Stage) -> None:
        """Learn the same events here, in one go, and compare what comes out."""
        self._screen.note("Now the same events without Kafka and without a crash, to compare.")
        rows = islice(self._rows, stage.published)
        self._equal = stage.ledger.count_equal(uninterrupted(rows, stage.config))
        self._screen.step(f"{self._equal:,} of {stage.published:,} predictions are equal, byte for byte")

    def _start_worker(self, stage: Stage) -> Process:
        worker = stage.start_worker()
        self._screen.step(f"amf-worker run {_relative(self._config_path)}   (process {worker.pid})")
        return worker

    def _sum_up(self, stage: Stage) -> None:
        line, ledger = self._screen.line, stage.ledger
        missing = stage.published - ledger.handled
        repeated = (
            f"{ledger.duplicates:,} predictions came twice, {ledger.differing or 'none'} of them with other bytes"
            if ledger.duplicates
            else "No prediction came twice this time, but some might have"
        )
        line()
        line("What you saw", "bold")
        line(f"  {stage.published:,} events for {len(ledger.models)} models, {missing or 'none'} without a prediction.")
        if ledger.dead_letters:
            line(f"  {ledger.dead_letters:,} of them could not be used and are dead letters, with the reason.")
        line(
            f"  A worker killed with SIGKILL, back after {self._down_s:.1f} s with {self._replayed:,} events replayed."
        )
        line(f"  {repeated}: at-least-once.")
        line("  On a real broker outputs and offsets are one transaction: exactly-once.")
        line(f"  {self._equal:,} of {stage.published:,} predictions as if nothing had happened, byte for byte.")
        line()
        line("Where to look next", "bold")
        checkpoints = self._folder / "checkpoints"
        # In an environment that is not active the shell does not know the name alone.
        program = "amf-worker" if shutil.which("amf-worker") else str(_relative(Path(sys.argv[0])))
        for command, what in (
            (f"{program} inspect {checkpoints.as_uri()}", "the forests that the demo leaves behind"),
            (f"{program} evaluate FILE --label COLUMN", "your own rows, without Kafka"),
            (f"{program} check {_relative(self._config_path)} --verbose", "the configuration that you saw at work"),
            (str(_relative(self._config_path.with_name("worker.yaml"))), "every key that there is"),
            ("README.md", "what events and predictions look like, and what is promised"),
        ):
            line(f"  {command}")
            line(f"      {what}", "dim")
        line()
        line(f"Checkpoints and logs are left in {self._folder}, {size(_bytes_below(self._folder))}.", "dim")

    def _require_all_well(self, stage: Stage) -> None:
        """Raises WorkerError where the figures above are not as promised."""
        missing = stage.published - stage.ledger.handled
        unequal = stage.published - self._equal
        if missing or unequal or stage.ledger.differing:
            raise Fatal(
                f"{missing} events have no prediction, {unequal} predictions are not those of an uninterrupted run, "
                f"{stage.ledger.differing} are different the second time"
            )


def _mean(losses: Iterable[float | None]) -> str:
    known = [loss for loss in losses if loss is not None]
    return f"{fmean(known):.3f}" if known else "-"


def _offsets(offsets: Mapping[int, int]) -> str:
    return " ".join(f"{offsets[number]:,}" for number in sorted(offsets))


def _relative(path: Path) -> Path:
    """The path as one would type it here, if it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
