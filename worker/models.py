"""The models of one partition: model key -> model, and which of them changed since the last snapshot.

Most of them may be away (cache.py); they come back when they are asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import amf
from worker.cache import Cache
from worker.checkpoint import Model as Saved
from worker.checkpoint import Source
from worker.config import ModelParams
from worker.errors import StateLost, Transient
from worker.learners import forest_of
from worker.model import Applied, Model, spec_of
from worker.records import Event, Reject
from worker.rejects import DECODER, REJECT_CODES
from worker.slot import UNKNOWN_MS, Fetch, Prefetch, Slot
from worker.snapshot import Frozen

_REMEMBERED_SPECS = 100_000


class Models:
    """Only a model that has learned is kept: asking leaves no trace.

    `cache` holds the models that are in memory, `fetch` gives those that only the last checkpoint has. There are at
    most `max_models`.
    """

    def __init__(
        self,
        params_for: Callable[[str], ModelParams],
        cache: Cache | None = None,
        max_models: int | None = None,
        fetch: Fetch | None = None,
        decoder: str = DECODER,
        prefetch: Prefetch | None = None,
    ) -> None:
        self._params_for = params_for
        self._cache = Cache() if cache is None else cache
        self._max_models = max_models
        self._fetch = fetch
        self._prefetch = prefetch
        self._decoder = decoder
        self._slots: dict[str, Slot] = {}
        self._specs: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._removed: set[str] = set()
        self._frozen: dict[str, Frozen] = {}
        self._untimed: set[str] = set()
        self._leaders: list[Slot] = []
        self._learned: set[str] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Model]:
        """Every model; those that are away come for the moment only."""
        for slot in list(self._slots.values()):
            yield self._load(slot) if slot.model is None else slot.model

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    @property
    def room(self) -> float:
        """How many more models there may be."""
        return float("inf") if self._max_models is None else self._max_models - len(self._slots)

    def get(self, key: str) -> Model:
        """The model of a key, or one that has learned nothing and is not kept yet. Raises StateLost."""
        slot = self._slots.get(key)
        if slot is None:
            params = self._params_for(key)
            kind = Model if self.room > 0 else Stranger
            return kind(key, params, forest_of(key, params), self.configured_spec(key))
        if slot.model is None:
            from_store = slot.is_remote
            model = self._load(slot)
            slot.come_back(model)
            self._cache.came_back(slot, from_store=from_store)
            return model
        self._cache.use(slot)
        return slot.model

    def fetch(self, keys: Iterable[str | Reject]) -> None:
        """Bring the models of these keys into memory that only the store has: before any of them learns.

        Raises Transient where the store does not answer, or not soon, StateLost.
        """
        if self._cache.any_remote:
            named = {key for key in keys if isinstance(key, str)}
            remote = sorted(key for key in named if key in self._slots and self._slots[key].is_remote)
            if remote and self._prefetch is not None:
                self._prefetch(remote)
            for key in remote:
                self.get(key)

    def configured_spec(self, key: str) -> str:
        """Spec that the configuration gives to a key; the spec of a restored model may be another."""
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) == _REMEMBERED_SPECS:
                self._specs.clear()
            spec = self._specs[key] = spec_of(key, self._params_for(key), self._decoder)
        return spec

    def has_changed_spec(self, model: Model | Slot) -> bool:
        """Whether the model was made with parameters that the configuration does not give it any more."""
        return model.spec != self.configured_spec(model.key)

    def drop_changed_specs(self) -> bool:
        """Drop the models of which that is so; whether there were any."""
        changed = [slot.key for slot in self._slots.values() if self.has_changed_spec(slot)]
        for key in changed:
            self.drop(key)
        return bool(changed)

    def restore(self, key: str, saved: Saved) -> None:
        """Take a model that is in the last checkpoint. Raises amf.FormatError."""
        slot = Slot(key, saved.spec, self._fetch)
        slot.recall(saved)
        slot.model = Model(key, self._params_for(key), amf.loads(saved.data), saved.spec)
        slot.clean = True
        self._slots[key] = slot
        self._cache.admit(slot, saved.data)

    def sources(self) -> dict[str, Source]:
        """Every model as it is."""
        return {key: slot.saved for key, slot in self._slots.items()}

    def close(self) -> None:
        """Give up the memory and the space on disk of all models."""
        for slot in self._slots.values():
            self._cache.forget(slot)
        self._slots = {}

    # --- changes, and snapshots of them -------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether anything changed since the last snapshot."""
        return bool(self._dirty or self._removed)

    def hold(self, key: str) -> None:
        """The model of this key may be about to change: what a snapshot is to have of it is put aside first."""
        if key in self._frozen:
            self._frozen[key].hold()

    def waiting_bytes(self, key: str) -> int:
        """What `hold` would have to copy."""
        return self._frozen[key].waiting_bytes if key in self._frozen else 0

    @property
    def in_snapshot(self) -> bool:
        """Whether a snapshot is on its way to the store."""
        return bool(self._frozen)

    def keep(self, model: Model) -> None:
        """The model has learned: it is part of the state, as it is now."""
        key = model.key
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = Slot(key, model.spec, self._fetch)
        slot.learned(model)
        self._cache.enter(slot)
        self._dirty.add(key)
        self._removed.discard(key)
        self._untimed.add(key)
        if self._learned is not None:
            self._learned.add(key)

    def drop(self, key: str) -> None:
        """Remove the model, if there is one: its next event starts it anew."""
        if key in self._slots:
            self.hold(key)
            slot = self._slots.pop(key)
            self._cache.forget(slot)
            self._dirty.discard(key)
            self._removed.add(key)
            self._untimed.discard(key)
            if slot in self._leaders:
                self._learned = None

    def snapshot(self) -> tuple[dict[str, Frozen], set[str]]:
        """Models changed since the last snapshot, as they are now, and the keys of those that are gone.

        They are held until `snapshot_done` or `snapshot_failed`.
        """
        self._frozen = {key: Frozen(self._slots[key]) for key in self._dirty}
        removed = self._removed
        self._dirty, self._removed = set(), set()
        return self._frozen, removed

    def snapshot_done(self) -> None:
        """The snapshot is in the store: it has the models as they are, unless they changed in the meantime."""
        for key in self._frozen.keys() - self._dirty:
            if key in self._slots:
                self._slots[key].clean = True
        self._frozen = {}

    def snapshot_failed(self, removed: set[str]) -> None:
        """The snapshot did not reach the store: its models, and these keys, are still to be saved."""
        self._dirty |= {key for key in self._frozen if key in self._slots}
        self._removed |= {key for key in removed | self._frozen.keys() if key not in self._slots}
        self._frozen = {}

    def mark_all_changed(self) -> None:
        """The next snapshot holds every model."""
        self._dirty = set(self._slots)

    # --- figures ------------------------------------------------------------------------------------------------------

    def note_times(self, time_ms: Callable[[str], int | None]) -> None:
        """Model key -> when it was last met, in ms since the epoch: for the models that learned since the last call."""
        for key in self._untimed:
            slot = self._slots[key]
            slot.last_ms = max(slot.last_ms, time_ms(key) or UNKNOWN_MS)
        self._untimed.clear()

    def leaders(self, n: int) -> list[Slot]:
        """The n models that learned most. Looks only at those that may have come among them since the last call."""
        if self._learned is None:
            candidates = list(self._slots.values())
        else:
            others = self._learned.difference(slot.key for slot in self._leaders)
            candidates = self._leaders + [self._slots[key] for key in others if key in self._slots]
        self._leaders = heapq.nlargest(n, candidates, key=lambda slot: (slot.samples, slot.key))
        self._learned = set()
        return self._leaders

    def _load(self, slot: Slot) -> Model:
        assert slot.place is not None
        try:
            data = slot.place.read()
        except StateLost:
            if not slot.clean or self._fetch is None:
                raise
            data = self._fetched(slot.key)
        try:
            return Model(slot.key, self._params_for(slot.key), amf.loads(data), slot.spec)
        except amf.FormatError as error:
            raise StateLost(f"model {slot.key!r} does not come back: {error}") from error

    def _fetched(self, key: str) -> bytes:
        """A model that the spill has lost, from the last checkpoint: in the middle of a batch, so nobody waits."""
        assert self._fetch is not None
        try:
            return self._fetch(key)
        except Transient as error:
            raise StateLost(f"model {key!r} is lost on disk, and the store does not answer: {error}") from error


class Stranger(Model):
    """The model of a key for which there is no room: it answers, and refuses to learn."""

    def apply(self, events: Sequence[Event], *, publish: bool) -> Applied:
        refused = Reject("too-many-models", REJECT_CODES["too-many-models"])
        unlabelled = [event for event in events if event.label is None]
        applied = super().apply(unlabelled, publish=publish)
        outcomes = iter(applied.outcomes)
        applied.outcomes = [next(outcomes) if event.label is None else refused for event in events]
        return applied
