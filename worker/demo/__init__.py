"""The main job on a broker of its own, with a crash in the middle: what `amf-worker demo` and `make demo` run.

A generator publishes events, a real worker process predicts, learns and publishes, and the demo reads the predictions
back and keeps book. Half way it kills the worker with SIGKILL, starts it again, and at the end compares every
prediction with those of forests that nothing ever happened to. `worker.demo.story` tells it from beginning to end.
"""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from worker.base.errors import ConfigError, WorkerError
from worker.cli.dataset import Rows, open_rows
from worker.cli.dataset.glance import labels_are_numbers
from worker.cli.dataset.rows import STDIN
from worker.cli.files import example
from worker.demo.events import Payments
from worker.demo.screen import Screen, open_screen
from worker.demo.story import Story

SHORTEST_S = 5.0
MOST_MODELS = 1000
_LOG_LINES = 15


def demo(seconds: float, models: int, rate: float, file: str | None) -> int:
    """Run the demo; returns its exit code: 0, 1 if anything was not as promised, 130 after Ctrl-C, 143 after SIGTERM.

    `seconds` is how long events flow, `rate` how many a second, `models` how many keys they have. With `file` the
    events are its rows; where it names no label, that is its last column. Raises ConfigError.
    """
    if seconds < SHORTEST_S:
        raise ConfigError(f"--seconds: expected at least {SHORTEST_S:g}, found {seconds:g}: a crash takes its time")
    if models > MOST_MODELS:
        raise ConfigError(f"--models: expected at most {MOST_MODELS}, found {models}")
    rows: Rows = Payments(models)
    if file is not None:
        rows = rows_of(file, models)
        # Spread over the whole time, so that some rows are left for after the crash.
        total = rows.total or sum(1 for _ in rows)
        if total == 0:
            raise ConfigError(f"{file}: there are no rows")
        rate = min(rate, total / seconds)
    folder = Path(tempfile.mkdtemp(prefix="amf-demo-"))
    screen = open_screen()
    with _log_to(folder / "demo.log"), _interrupted_by_signals(), example("demo.yaml") as config:
        try:
            Story(rows, seconds, rate, config, folder, screen).tell()
            return 0
        except WorkerError as error:
            _tell_failure(screen, error, folder)
            return 1
        except (SystemExit, OSError):  # by the first of which rich ends what writes to a closed pipe
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except KeyboardInterrupt as interrupt:
            shutil.rmtree(folder, ignore_errors=True)
            screen.line("Interrupted: worker and broker are ended, what they wrote is removed.")
            [number] = interrupt.args
            return 128 + int(number)


def rows_of(file: str, n_models: int) -> Rows:
    """The rows of a file as events for `n_models` models; where it names no label, that is its last column."""
    if file == STDIN:
        raise ConfigError("--input: expected a file, found stdin: the rows are read again at the end, to compare")
    rows = open_rows(file, n_keys=n_models)
    if not rows.labelled:
        rows = open_rows(file, label=rows.columns[-1], n_keys=n_models)
    if (reason := labels_are_numbers(rows)) is not None:
        raise ConfigError(f"--input: {reason}, and the demo is of classes: `amf-worker evaluate` estimates numbers")
    return rows


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Send what our own clients of the broker report into a file: the screen belongs to the story."""
    log = logging.getLogger("worker")
    handlers, propagate = log.handlers, log.propagate
    log.handlers, log.propagate = [logging.FileHandler(path, delay=True)], False
    try:
        yield
    finally:
        log.handlers, log.propagate = handlers, propagate


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """A request to end, by whatever signal, is a KeyboardInterrupt with its number: all is tidied up as by Ctrl-C."""

    def interrupt(sent: int, _frame: FrameType | None) -> None:
        # Once is enough: a second one must not interrupt the tidying up.
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt(sent)

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_failure(screen: Screen, error: WorkerError, folder: Path) -> None:
    """What went wrong, and the ends of the logs that may say why."""
    screen.line()
    screen.line(f"The demo failed: {error}", "bold red")
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        if lines:
            screen.line(f"The end of {log}:")
            for line in lines[-_LOG_LINES:]:
                screen.line(f"  {line}", "dim")
