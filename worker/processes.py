"""Several workers from one command: a process each, all members of one group, started again when they end unasked.

Each of them is an ordinary worker, who knows the ports of the others, for its page, and no more. What tells them apart
is put above the configuration: the `group.instance.id`, where there is one, else a `client.id`, and the port of the
metrics.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from types import FrameType

from worker.base.errors import ConfigError
from worker.base.log import Log
from worker.base.retry import backoff_s
from worker.config import Address, Config

_log = Log(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before a process is started again, doubled from one failure to the next."""
STEADY_S = 60.0
"""Who has lived so long has not failed at its start: the next pause is a first one again."""
MOST_FAILURES = 8
"""In a row, of every process, while none of them runs: then whoever started them all is to know."""
LEAVE_S = 60.0
"""Longest time for an orderly end; then they are killed, which loses nothing."""
_LOOK_EVERY_S = 0.05
_PRCTL, _SET_PDEATHSIG = getattr(ctypes.CDLL(None), "prctl", None), 1


def of_member(config: Config, number: int) -> dict[str, str]:
    """The settings of worker `number`, from 1 on, above the configuration that all have. Raises ConfigError."""
    settings = {}
    instance = config.kafka.get("group.instance.id")
    if instance is not None:
        settings["kafka.group.instance.id"] = json.dumps(f"{instance}-{number}")
    elif "client.id" not in config.kafka:  # one that is given may be what quotas go by
        settings["kafka.client.id"] = json.dumps(f"amf-worker-{number}")
    for port in ports(config, number)[-1:]:
        if port >= 2**16:
            raise ConfigError(
                f"metrics.listen: each process has a port of its own, from {config.metrics.port} on, and {port} is none"
            )
        settings["metrics.listen"] = json.dumps(str(Address(config.metrics.host, port)))
    return settings


def ports(config: Config, n: int) -> range:
    """Where the first n workers are found; empty where each takes any free port."""
    first = config.metrics.port
    return range(first, first + n) if first else range(0)


def command_line(program: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    """The command line of a worker with these settings."""
    return [*program, *(part for name, value in settings.items() for part in ("--set", f"{name}={value}"))]


class _Member:
    """A process, or the pause before it is started again."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.failures = 0
        """In a row."""
        self.code: int | None = None
        """How it ended, if that was for good."""
        self.start_at_s = 0.0
        self.has_worked = False
        """Whether it has ever lived for a while: what it is given could be used then."""
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def has_given_up(self) -> bool:
        """Whether it has failed too often in a row, and does not run at present."""
        return not self.runs and self.failures >= MOST_FAILURES

    def start(self) -> None:
        self._started_s = time.monotonic()
        try:
            # A group of its own: a terminal sends Ctrl-C to all of a group, and a second signal means to end at once.
            self._process = subprocess.Popen(
                self._command, process_group=0, preexec_fn=partial(_end_with_parent, os.getpid())
            )
        except OSError as error:
            self.fail(f"could not be started ({error})")

    def ended(self) -> int | None:
        """The exit code of a process that has ended since this was asked last."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._process = None
            self.has_worked |= self._is_steady()
        return code

    def fail(self, how: str) -> None:
        """It does not run, though it should: it is to be started again after a pause."""
        self.failures = 1 if self._is_steady() else self.failures + 1
        pause_s = backoff_s(self.failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self.start_at_s = time.monotonic() + pause_s
        _log.warning("process-ended", f"{self.name} {how}, to be started again in {pause_s:g} s")

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _is_steady(self) -> bool:
        return time.monotonic() - self._started_s >= STEADY_S


def run(commands: Sequence[Sequence[str]], *, final: int, have_end: bool) -> int:
    """Run these commands until SIGTERM or SIGINT, which all get as SIGTERM, or until each has come to its end.

    Only where they have one is it an end in order, with 0: one that has none was stopped by somebody else. Those
    that end otherwise are started again, at longer and longer intervals. `final` is the exit code of what no other
    start would change: all are stopped then. Not so where it comes from one that has worked before: somebody may
    be at its file, or have its port, and the others work. Returns the exit code, 0 if all have ended in order. A second
    signal ends all at once.
    """
    members = [_Member(f"process {number} of {len(commands)}", command) for number, command in enumerate(commands, 1)]
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        received.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, receive)
    return _end(members, received, _watch(members, received, final, have_end))


def _watch(members: Sequence[_Member], received: Sequence[int], final: int, have_end: bool) -> int:
    """Start again who ends, until all are to end; returns the exit code for that reason."""
    while not received:
        for member in members:
            code = member.ended()
            if (code == 0 and have_end) or (code == final and not member.has_worked):
                member.code = code
            elif code is not None:
                member.fail(f"ended with {_meaning(code)}")
            elif not member.runs and member.code is None and member.start_at_s <= time.monotonic():
                member.start()
        if any(member.code == final for member in members):
            return final
        if all(member.code == 0 for member in members):
            return 0
        if all(member.code == 0 or member.has_given_up for member in members):
            _log.error("processes-failed", f"every process has failed {MOST_FAILURES} times in a row")
            return 1
        time.sleep(_LOOK_EVERY_S)
    name = signal.Signals(received[0]).name
    _log.info("stopping", f"{name}: all processes are finishing; a second signal ends them at once")
    return 0


def _end(members: Sequence[_Member], received: Sequence[int], code: int) -> int:
    """Wait for an orderly end of all, no longer than LEAVE_S."""
    until_s = time.monotonic() + LEAVE_S
    for member in members:
        member.signal(signal.SIGTERM)
    while any(member.runs for member in members):
        for member in members:
            # SIGTERM itself ends a process that has not come to its work yet.
            if member.ended() not in (None, 0, -signal.SIGTERM, 128 + signal.SIGTERM):
                code = code or 1
        if len(received) > 1 or time.monotonic() > until_s:
            for member in members:
                member.signal(signal.SIGKILL)
            return 128 + received[-1] if received else code or 1
        time.sleep(_LOOK_EVERY_S)
    return code


def _meaning(code: int) -> str:
    if code == 0:
        return "code 0, as after a SIGTERM of its own"
    return f"code {code}" if code > 0 else signal.Signals(-code).name


def _end_with_parent(parent: int) -> None:
    """Have the system send SIGTERM to this process once its parent is gone, where it can: Linux.

    Else workers that are left behind would go on under the names that the next start gives to others.
    """
    if _PRCTL is None:
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not what the parent does about it: the program is yet to be loaded
    _PRCTL(_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # It was gone before it could be asked for.
        os.kill(os.getpid(), signal.SIGTERM)
