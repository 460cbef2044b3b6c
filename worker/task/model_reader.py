"""Models that only the store has, read from the newest checkpoint when a batch needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from worker.base.errors import CorruptCheckpoint, NotFound, StateLost, Transient
from worker.base.ports import Clock
from worker.checkpoint import Checkpoints, Manifest

FETCH_S = 0.5
"""Longest time that the loop waits for models which only the store has. Their partition waits for more, no other."""


class ModelReader:
    """Gives the models of one partition as its newest checkpoint has them, for the thread of the loop.

    A thread that saves all models, since that checkpoint is damaged, fetches some of them at the same time.

    They are read by threads that no other partition has, which `new_fetchers` makes: reads that hang hold up no one
    else's. Without them the loop reads and waits itself.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        manifest: Manifest,
        clock: Clock,
        new_fetchers: Callable[[], Executor] | None,
    ) -> None:
        self._newest = checkpoints, manifest
        self._clock = clock
        self._new_fetchers = new_fetchers
        self._fetchers: Executor | None = None
        """Made when the first model is read: most partitions have all of theirs in memory."""
        self._reading: dict[str, Future[bytes]] = {}
        """Models that are being read from that checkpoint, or have been and were not taken yet."""
        self._failure = ""
        """Why the last one did not come that was asked for again."""

    def follow(self, checkpoints: Checkpoints, manifest: Manifest) -> None:
        """Read from this checkpoint from now on, the newest one that is known to be in the store."""
        self._give_up()
        self._newest = checkpoints, manifest

    def close(self) -> None:
        """Read nothing more. The threads end when what they are reading has come, or has not."""
        self._give_up()
        self._fetchers = self._new_fetchers = None

    def _give_up(self) -> None:
        given_up, self._reading, self._failure = [*self._reading.values()], {}, ""
        for reading in given_up:
            reading.cancel()

    def prefetch(self, keys: Sequence[str]) -> None:
        """Have models read beside the loop, all at once, and wait for them for a moment only. Raises Transient.

        None is taken before all of them are there: what comes into memory one by one might have to leave again.
        """
        if self._new_fetchers is None:
            return
        self._fetchers = self._fetchers or self._new_fetchers()
        # Who did not answer within that time before is not waited for again: others wait for the loop.
        is_late = any(not reading.done() for reading in [*self._reading.values()])
        wanted: dict[str, Future[bytes]] = {}
        for key in keys:
            reading = self._reading.get(key)
            if reading is not None and reading.done() and (error := reading.exception()) is not None:
                self._failure, reading = f", after: {error}", None
            if reading is None:
                reading = self._reading[key] = self._fetchers.submit(_read, *self._newest, key)
            wanted[key] = reading
        until_s = self._clock.monotonic() + (0.0 if is_late else FETCH_S)
        for key, reading in wanted.items():
            try:
                reading.exception(max(0.0, until_s - self._clock.monotonic()))
            except TimeoutError:
                waited = f"model {key!r} has not come from the store in {FETCH_S:g} s"
                raise Transient(f"{waited}{self._failure}") from None

    def fetch(self, key: str) -> bytes:
        """One model, for any thread. Raises Transient, StateLost."""
        found = self._reading.pop(key, None)
        return _read(*self._newest, key) if found is None else found.result()


def _read(checkpoints: Checkpoints, manifest: Manifest, key: str) -> bytes:
    try:
        return checkpoints.load_one(manifest, key)
    except (CorruptCheckpoint, NotFound) as error:
        raise StateLost(f"{manifest.location.title}: {error}") from error
