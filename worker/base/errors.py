"""Exceptions of the worker. Each type is a recovery decision, not a place where something happened."""

from __future__ import annotations

from typing import Literal

StopCode = Literal[
    "corrupt-checkpoint",
    "divergence",
    "engine-changed",
    "group-rewound",
    "intake-changed",
    "no-checkpoint",
    "not-drained",
    "offset-out-of-range",
    "output-refused",
    "partitions-added",
    "retention-gap",
    "state-lost",
    "too-many-dead-letters",
    "topic-recreated",
    "unreadable-records",
]
"""Why a partition stops. Stable: they are values of a metric's label, from zero on, and rows of the runbook."""


class WorkerError(Exception):
    """Base of all errors that the worker raises on purpose; the text says what, where and what to do.

    The last is the hint, where it is told apart from the fact.
    """

    def __init__(self, fact: str, hint: str | None = None) -> None:
        super().__init__(f"{fact}. {hint}" if hint else fact)
        self.fact = fact
        self.hint = hint


class Fatal(WorkerError):
    """The worker cannot go on: it ends in order, saves what is committed, and says why (exit code 1)."""


class ConfigError(WorkerError):
    """The configuration or the command line cannot be used: refuse to start (exit code 2)."""


class Transient(WorkerError):
    """A dependency did not answer or is overloaded: try again until the deadline, nothing is lost."""


class Unanswered(Transient):
    """No answer, or a "not yet": a start waits for that without a limit, everything else until its deadline."""


class NoRoom(Transient):
    """A store is full: what nobody needs any more is cleared away before the next try."""


class Denied(Transient):
    """A dependency refuses, for want of a right or an object's state: a start ends with it, a worker at work waits.

    Its partitions would only move on to others, who are refused as well; whoever gives the right back finds it working.
    """


class Abort(WorkerError):
    """The open transaction must be aborted; its outputs are kept and sent again in the next one."""


class Refused(WorkerError):
    """The broker will never take a record of the transaction: abort it, find the record, send the others."""


class Unknown(WorkerError):
    """The outcome of a transaction is unknown: replace the producer, read the committed offsets, then decide."""


class PartitionStopped(WorkerError):
    """One partition cannot go on without breaking a guarantee: it stops under a name, the others go on.

    The fact carries the numbers, the hint the way out.
    """

    def __init__(self, code: StopCode, fact: str, hint: str | None = None) -> None:
        super().__init__(fact, hint)
        self.code = code


class StateLost(WorkerError):
    """What a partition knew is gone from this worker: load its newest checkpoint again and replay."""


class CorruptCheckpoint(WorkerError):
    """A checkpoint file is damaged or foreign: fall back to the one before it and replay more."""


class NotFound(WorkerError):
    """The object store has no object of that name."""


class AlreadyExists(WorkerError):
    """A create-only write found an object of that name with other content."""
