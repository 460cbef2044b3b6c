"""What starting a partition would do, found out without writing anything.

It runs the worker's own recovery (recovery.py) on a store whose writes stay in memory. Models are not loaded: the
manifest has their specs, which decide whether they would be refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import amf
from worker.base.errors import AlreadyExists, WorkerError
from worker.base.metrics import Metrics
from worker.base.ports import Clock, ObjectStore
from worker.base.records import Bounds, CommittedOffset
from worker.checkpoint import Checkpoints, Location, Manifest, Source
from worker.codec.dead_letters import DECODERS
from worker.config import Config, history_of
from worker.state.model import spec_of
from worker.state.model_store import ModelStore
from worker.state.targets import forest_of
from worker.task.recovery import Opened, Recovery, Terms
from worker.task.warm_start import WarmStart

_CHANGES_SHOWN = 3


@dataclass(slots=True)
class SpecChanges:
    """The saved models beside what the configuration says of them by now."""

    total: int = 0
    changed: dict[str, list[str]] = field(default_factory=dict)
    """What has changed, as far as one model of each kind shows it -> keys of these models."""

    @property
    def n_changed(self) -> int:
        return sum(map(len, self.changed.values()))

    def describe(self) -> str:
        """What has changed, the most frequent first."""
        ordered = sorted(self.changed.items(), key=lambda each: (-len(each[1]), each[0]))
        shown = [f"{what} ({_whose(keys)})" for what, keys in ordered[:_CHANGES_SHOWN]]
        rest = len(ordered) - len(shown)
        return "; ".join([*shown, *([f"and {rest} other changes"] if rest else [])])


def _whose(keys: Sequence[str]) -> str:
    """What is said of the models of these keys."""
    return f"model {keys[0]!r}" if len(keys) == 1 else f"{len(keys):,} models, {keys[0]!r} among them"


class DryRun:
    """The start of all partitions of a topic, one after the other."""

    def __init__(
        self,
        config: Config,
        topic_id: str,
        partitions: int,
        store: ObjectStore,
        clock: Clock,
        warm_store: ObjectStore | None,
    ) -> None:
        """`warm_store` is that of `checkpoint.warm_start`."""
        self.models = SpecChanges()
        """Of the partitions that were tried."""
        self._config = config
        self._topic_id = topic_id
        self._store = store
        self._warm_start = None if warm_store is None else _Unread.of(warm_store, config, topic_id, partitions)
        self._metrics = Metrics()
        self._terms = Terms.of(config, partitions)
        self._clock = clock
        self._of_kind: dict[tuple[str, ...], str] = {}

    def start(self, partition: int, committed: CommittedOffset | None, bounds: Bounds) -> Opened:
        """Try it, with the group's offset and the records that the broker has. Raises PartitionStopped, WorkerError."""
        warm_start = self._warm_start
        location = Location(*history_of(self._config), self._topic_id, partition)
        # What one of them would write is nothing to the next: all of it together takes ever longer to look through.
        overlay = OverlayStore(self._store)
        recovery = Recovery(overlay, location, self._terms, self._clock, self._metrics, warm_start)
        return recovery.open(committed, bounds, lambda *_: ModelStore(self._config.models.params_for))

    def compare(self, opened: Opened) -> None:
        """Take the models of the partition that was started last into account."""
        self._compare(self._store, opened.restored, opened.restored.models)
        if self._warm_start is not None:
            for manifest, keys in self._warm_start.take():
                self._compare(self._warm_start.store, manifest, keys)

    def _compare(self, store: ObjectStore, manifest: Manifest, keys: Collection[str]) -> None:
        models, decoder = self._config.models, DECODERS[self._config.input.codec]
        self.models.total += len(keys)
        for key in keys:
            if manifest.models[key].spec != spec_of(key, models.params_for(key), decoder):
                self.models.changed.setdefault(self._change(store, manifest, key), []).append(key)

    def _change(self, store: ObjectStore, manifest: Manifest, key: str) -> str:
        """What has changed of a model: of each kind, which has the same overrides, one is looked at."""
        kind = tuple(override.match for override in self._config.models.overrides_for(key))
        if kind not in self._of_kind:
            where = ", ".join(f"models.overrides {match!r}" for match in kind) or "models.default"
            self._of_kind[kind] = f"{where}: {self._difference(store, manifest, key)}"
        return self._of_kind[kind]

    def _difference(self, store: ObjectStore, manifest: Manifest, key: str) -> str:
        try:
            was = amf.loads(Checkpoints(store, manifest.location).load_one(manifest, key))
        except (WorkerError, amf.FormatError) as error:
            return f"what it was cannot be read: {error}"
        now = forest_of(key, self._config.models.params_for(key))
        if was.family != now.family:
            return f"algorithm was {was.family} and is {now.family}"
        then, by_now = was.params.as_dict(), now.params.as_dict()
        differing = [name for name in then if then[name] != by_now[name]]
        # That of a forest is made of its key and the one that is configured, which it does not know any more; nor does
        # it know which features were named, or how values were written.
        shown = [name if name == "seed" else f"{name} was {then[name]} and is {by_now[name]}" for name in differing]
        return ", ".join(shown) or "features or input.codec"


class _Unread(WarmStart):
    """Notes which models a partition would begin with, and reads none of them."""

    def __init__(self, store: ObjectStore, partitions: int, begun: str | None = None) -> None:
        super().__init__(store, partitions, begun)
        self.store = store
        self._manifests: Sequence[Manifest] | None = None
        self._taken: list[tuple[Manifest, list[str]]] = []

    def models_of(self, partition: int) -> tuple[str, Mapping[str, Source]]:
        self._taken = self.keys_of(partition, self.manifests())
        return "", {}

    def manifests(self) -> Sequence[Manifest]:
        """Read once: as many partitions as there may be would all ask for the same."""
        if self._manifests is None:
            self._manifests = super().manifests()
        return self._manifests

    def take(self) -> list[tuple[Manifest, list[str]]]:
        """The models of the last partition; none where it has begun before."""
        taken, self._taken = self._taken, []
        return taken


class OverlayStore:
    """A store as it would be: what is written stays in memory, over the one below, which does not change."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._created: dict[str, bytes] = {}
        self._deleted: set[str] = set()

    def create(self, name: str, data: bytes) -> None:
        if self._created.setdefault(name, data) != data:
            raise AlreadyExists(f"{name} has other content")
        self._deleted.discard(name)

    def read(self, name: str) -> bytes:
        return self._created[name] if name in self._created else self._store.read(name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if name in self._created:
            return self._created[name][start : start + length]
        return self._store.read_range(name, start, length)

    def list(self, prefix: str) -> list[str]:
        ours = {name for name in self._created if not prefix or name.startswith(f"{prefix}/")}
        return sorted(ours.union(self._store.list(prefix)) - self._deleted)

    def delete(self, *names: str) -> None:
        for name in names:
            self._created.pop(name, None)
        self._deleted.update(names)
