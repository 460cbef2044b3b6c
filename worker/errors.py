"""Exceptions of the worker. Each type is a recovery decision, not a place where something happened."""


class WorkerError(Exception):
    """Base of all errors that the worker raises on purpose; the message says what, where and what to do."""


class ConfigError(WorkerError):
    """The configuration or the command line cannot be used: refuse to start (exit code 2)."""


class Transient(WorkerError):
    """A dependency did not answer or is overloaded: try again until the deadline, nothing is lost."""


class Unanswered(Transient):
    """Nobody answered, or who did is not ready yet: a start waits for that without a limit, all others as above."""


class Abort(WorkerError):
    """The open transaction must be aborted; its outputs are kept and sent again in the next one."""


class Refused(WorkerError):
    """The broker will never take a record of the transaction: abort it, find the record, send the others."""


class Unknown(WorkerError):
    """The outcome of a transaction is unknown: replace the producer, read the committed offsets, then decide."""


class PartitionStopped(WorkerError):
    """One partition cannot go on without breaking a guarantee: it stops under a name, the others go on.

    `code` is stable and short (it is a metric label); the message carries the numbers and the way out.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StateLost(WorkerError):
    """What a partition knew is gone from this worker: load its newest checkpoint again and replay."""


class CorruptCheckpoint(WorkerError):
    """A checkpoint file is damaged or foreign: fall back to the one before it and replay more."""


class NotFound(WorkerError):
    """The object store has no object of that name."""


class AlreadyExists(WorkerError):
    """A create-only write found an object of that name with other content."""
