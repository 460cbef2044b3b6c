"""The models of one partition: model key -> model, and which of them changed since the last snapshot.

Most of them may be away (cache.py); they come back when they are asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amf
from worker.base.errors import StateLost, Transient
from worker.base.metrics import JUDGED_SAMPLES
from worker.base.records import Event, Reject, Scores
from worker.checkpoint import SavedModel, Source
from worker.codec.dead_letters import DECODER, REJECT_CODES
from worker.config import ModelParams
from worker.state.beginnings import Beginnings
from worker.state.cache import MODEL_BYTES, Cache
from worker.state.copy_on_write import CopyOnWrite
from worker.state.entry import Entry, Fetch, Prefetch, Remote
from worker.state.model import Model, spec_of
from worker.state.rules import Rules
from worker.state.runs import Applied
from worker.state.targets import ForecastColumns

NEW_MODEL_BYTES = 24 * 2**10
"""Memory of a model that has learned its first events, about: ten trees of few nodes."""


class ModelStore:
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
        n_threads: int = 1,
    ) -> None:
        self.params_for = params_for
        self._cache = Cache() if cache is None else cache
        self._max_models = max_models
        self._fetch = fetch
        self._prefetch = prefetch
        self._decoder = decoder
        self.n_threads = n_threads
        """Over which the models of a turn may be spread."""
        self.beginnings = Beginnings()
        self._slots: dict[str, int] = {}
        self.table = self._cache.new_table()
        self._removed: set[str] = set()
        self._copies: dict[str, CopyOnWrite] = {}
        self._leaders: list[Entry] | None = None
        """Those of the last call of `leaders`; None where they have to be looked for among all."""
        self.loss_ratios: dict[str, float] = {}
        """Recent loss over that of a baseline, of models with JUDGED_SAMPLES; as of the last `leaders`."""

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Model]:
        """Every model; those that are away come for the moment only."""
        for entry in list(self.entries()):
            yield self._load(entry) if entry.model is None else entry.model

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    @property
    def room(self) -> float:
        """How many more models there may be."""
        return float("inf") if self._max_models is None else self._max_models - len(self._slots)

    def get(self, key: str) -> Model:
        """The model of a key, or one that has learned nothing and is not kept yet. Raises StateLost."""
        entry = self.entry(key)
        if entry is None:
            params = self.params_for(key)
            kind = Model if self.room > 0 else ModelBeyondLimit
            return kind.new(key, params, self.configured_spec(key))
        if entry.model is None:
            return self._bring_back(entry)
        self._cache.use(entry)
        return entry.model

    def _bring_back(self, entry: Entry) -> Model:
        from_store = entry.is_remote
        model = self._load(entry)
        entry.come_back(model)
        self._cache.came_back(entry, from_store=from_store)
        return model

    def fetch(self, keys: Iterable[str | Reject]) -> None:
        """Bring the models of these keys into memory that only the store has: before any of them learns.

        Raises Transient where the store does not answer, or not soon, StateLost.
        """
        if self._cache.any_remote:
            named = {key for key in keys if isinstance(key, str)}
            remote = sorted(key for key in named if (entry := self.entry(key)) is not None and entry.is_remote)
            if remote and self._prefetch is not None:
                self._prefetch(remote)
            for key in remote:
                self.get(key)

    def configured_spec(self, key: str) -> str:
        """Spec that the configuration gives to a key; the spec of a restored model may be another."""
        entry = self.entry(key)
        if entry is not None and entry.configured_spec is not None:
            return entry.configured_spec
        spec = spec_of(key, self.params_for(key), self._decoder)
        if entry is not None:
            # One text where they are equal, as they nearly always are.
            entry.configured_spec = entry.spec if spec == entry.spec else spec
        return spec

    def has_changed_spec(self, model: Model | Entry) -> bool:
        """Whether the model was made with parameters that the configuration does not give it any more."""
        # One that is not kept was made a moment ago.
        return model.key in self._slots and model.spec != self.configured_spec(model.key)

    def changed_specs(self) -> list[str]:
        """Keys of the models of which that is so."""
        return [entry.key for entry in self.entries() if self.has_changed_spec(entry)]

    def drop_changed_specs(self) -> bool:
        """Drop those models; whether there were any."""
        changed = self.changed_specs()
        for key in changed:
            self.drop(key)
        return bool(changed)

    def restore(self, key: str, saved: SavedModel) -> None:
        """Take a model that is in the last checkpoint. Raises amf.FormatError."""
        entry = Entry(key, saved.spec, self._fetch, self.table)
        entry.recall(saved)
        if entry.names_given is None:
            # There are no names, or the checkpoint is of a version that did not write it: then the configuration says.
            entry.names_given = isinstance(self.params_for(key).features, tuple)
        entry.come_back(self._model(entry, saved.data))
        assert entry.model is not None
        entry.names_given = entry.model.names_given
        entry.clean = True
        self._slots[key] = entry.slot
        self._cache.admit(entry, saved.data)

    def sources(self) -> dict[str, Source]:
        """Every model as it is, sorted by their keys."""
        return {key: self.table.entries[slot].saved for key, slot in sorted(self._slots.items())}

    def close(self) -> None:
        """Give up the memory and the space on disk of all models."""
        for entry in self.entries():
            self._cache.forget(entry)
        self._slots = {}
        self._cache.drop_table(self.table)

    # --- many at once -------------------------------------------------------------------------------------------------

    def slots(self, keys: Iterable[str | Reject]) -> NDArray[np.int64]:
        """The slots of the models of these keys, -1 where there is none."""
        return np.fromiter(map(self._slots.get, keys, repeat(-1)), np.int64)  # type: ignore[arg-type]

    def rules(self, slots: NDArray[np.int64]) -> list[Rules | None]:
        """What these models take as they stand; None where a model has to be looked at by itself, or is none.

        They are in memory afterwards. Raises StateLost.
        """
        of_slots = self.table.rules
        return [None if slot < 0 else of_slots[slot] or self._admit(slot) for slot in slots.tolist()]

    def _admit(self, slot: int) -> Rules | None:
        """The rules of a model that was looked at by itself, or was away, the last time."""
        entry = self.table.entries[slot]
        assert entry is not None
        model = self._bring_back(entry) if entry.model is None else entry.model
        if not self.has_changed_spec(entry):
            self.table.rules[slot] = self.table.book.admit(slot, model)
        return self.table.rules[slot]

    def specs(self, slots: NDArray[np.int64]) -> list[str]:
        """The specs of the models in these slots."""
        entries: list[Any] = self.table.entries
        return [entries[slot].spec for slot in slots.tolist()]

    def rank(self, slot: int, forecasts: ForecastColumns, codes: NDArray[np.int64]) -> None:
        """Count forecasts of a model that is asked how well it ranks."""
        entry = self.table.entries[slot]
        assert entry.model is not None
        entry.model.rank(forecasts, codes)

    def joined(
        self, slots: NDArray[np.int64], sizes: amf.Sizes, learned: NDArray[np.bool_], scores: NDArray[np.float64]
    ) -> None:
        """These models have been through events together: how large they are now, whether each learned, its scores."""
        table = self.table
        self._cache.have_changed(table, slots, sizes)
        table.scores[slots, : scores.shape[1]] += scores
        changed = slots[learned]
        for slot in changed[table.placed[changed]].tolist():
            table.entries[slot].outdate()
        table.clean[changed] = False
        table.have_learned(changed)

    # --- changes, and snapshots of them -------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether anything changed since the last snapshot."""
        return bool(self._removed) or bool(self.table.changed.any())

    def hold(self, key: str) -> None:
        """The model of this key may be about to change: what a snapshot is to have of it is put aside first."""
        if key in self._copies:
            self._copies[key].hold()

    def memory(self, key: str) -> tuple[int, int]:
        """Memory of the model of this key if it is there, and what it will take, about, if it comes back or is new."""
        entry = self.entry(key)
        if entry is None:
            return 0, NEW_MODEL_BYTES
        n_bytes = entry.nbytes + MODEL_BYTES
        return (0, n_bytes) if entry.model is None else (n_bytes, 0)

    def note_use(self, key: str) -> None:
        """The model of this key, if it is there, will be among the last to leave memory."""
        entry = self.entry(key)
        if entry is not None and entry.model is not None:
            self._cache.use(entry)

    def waiting_bytes(self, key: str) -> int:
        """What `hold` would have to copy."""
        return self._copies[key].waiting_bytes if key in self._copies else 0

    @property
    def in_copy_on_write(self) -> bool:
        """Whether a snapshot is on its way to the store."""
        return bool(self._copies)

    def keep(self, model: Model, scores: Scores) -> None:
        """The model has learned: it is part of the state, as it is now. scores: of what it answered meanwhile."""
        key = model.key
        entry = self.entry(key)
        if entry is None:
            entry = Entry(key, model.spec, self._fetch, self.table)
            self._slots[key] = entry.slot
            entry.configured_spec, entry.names_given = model.spec, model.names_given
        entry.learned(model)
        entry.count(scores)
        self._cache.enter(entry)
        self._removed.discard(key)
        self.table.separate(entry.slot)
        self.table.have_learned(entry.slot)

    def drop(self, key: str) -> None:
        """Remove the model, if there is one: its next event starts it anew."""
        entry = self.entry(key)
        if entry is not None:
            self.hold(key)
            del self._slots[key]
            self._cache.forget(entry)
            self._removed.add(key)
            self.loss_ratios.pop(key, None)
            if self._leaders is not None and entry in self._leaders:
                self._leaders = None

    def snapshot(self) -> tuple[dict[str, CopyOnWrite], set[str]]:
        """Models changed since the last snapshot, as they are now, and the keys of those that are gone.

        They are held until `snapshot_done` or `snapshot_failed`, and take memory until they are dropped.
        """
        changed = np.flatnonzero(self.table.changed).tolist()
        self._copies = {entry.key: CopyOnWrite(entry, self._cache) for entry in self._at(changed)}
        removed, self._removed = self._removed, set()
        self.table.changed[:] = False
        return self._copies, removed

    def snapshot_done(self) -> None:
        """The snapshot is in the store: it has the models as they are, unless they changed in the meantime."""
        saved = self.slots(self._copies)
        saved = saved[saved >= 0]
        self.table.clean[saved[~self.table.changed[saved]]] = True
        self._copies = {}

    def snapshot_failed(self, removed: set[str]) -> None:
        """The snapshot did not reach the store: its models, and these keys, are still to be saved."""
        failed = self.slots(self._copies)
        self.table.changed[failed[failed >= 0]] = True
        self._removed |= {key for key in removed if key not in self._slots}
        self._copies = {}

    def mark_all_changed(self) -> None:
        """The next snapshot holds every model."""
        self.table.changed[[*self._slots.values()]] = True

    # --- figures ------------------------------------------------------------------------------------------------------

    def entry(self, key: str) -> Entry | None:
        """The model of a key as it is, be it away: to look at, which is no use of it."""
        slot = self._slots.get(key)
        return None if slot is None else self.table.entries[slot]

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """All, or some of them, in the order in which they came."""
        return self._at(islice(self._slots.values(), start, stop))

    def _at(self, slots: Iterable[int]) -> Iterator[Entry]:
        """The models in these slots."""
        return map(self.table.entries.__getitem__, slots)

    def note_times(self, keys: Sequence[str | Reject], times_ms: Sequence[int]) -> None:
        """Records of these keys came at these times, in ms since the epoch: for what learned since the last call."""
        table, slots, times = self.table, self.slots(keys), np.array(times_ms, np.int64)
        learned = slots >= 0
        learned[learned] = table.untimed[slots[learned]]
        slots = slots[learned]
        np.maximum.at(table.last_ms, slots, times[learned])
        table.untimed[slots] = False

    def leaders(self, n: int, now_s: float) -> list[Entry]:
        """The n models that learned most of late, behind them those that learned most before this process.

        Looks only at those that may have come among them since the last call.
        """
        table = self.table
        if self._leaders is None:
            slots = np.array([*self._slots.values()], np.int64)
        else:
            slots = np.union1d([entry.slot for entry in self._leaders], np.flatnonzero(table.learned)).astype(np.int64)
        table.note_traffic(slots, now_s)
        for slot in slots[table.samples[slots] >= JUDGED_SAMPLES].tolist():
            self._judge(table.entries[slot])
        if slots.size > n:
            # Most of many models are soon left out; of those that are equal so far a look decides.
            recent = table.recent[slots]
            slots = slots[recent >= np.partition(recent, -n)[-n]]
        self._leaders = heapq.nlargest(n, self._at(slots.tolist()), key=lambda entry: (entry.traffic, entry.key))
        table.learned[:] = False
        return self._leaders

    def _judge(self, entry: Entry) -> None:
        losses = entry.losses
        if losses is not None:
            # Where the labels are all alike there is nothing to gain on the baseline, whose loss goes to 0.
            self.loss_ratios[entry.key] = losses.calibrated / losses.baseline if losses.baseline > 0 else 1.0

    def _load(self, entry: Entry) -> Model:
        assert entry.place is not None
        # The spill gives back the bytes that this process has put there, or raises.
        trusted = not isinstance(entry.place, Remote)
        try:
            data = entry.place.read()
        except StateLost:
            if not entry.clean or self._fetch is None:
                raise
            data, trusted = self._fetched(entry.key), False
        try:
            return self._model(entry, data, trusted=trusted)
        except amf.FormatError as error:
            raise StateLost(f"model {entry.key!r} does not come back: {error}") from error

    @staticmethod
    def _model(entry: Entry, data: bytes, *, trusted: bool = False) -> Model:
        return Model(entry.key, amf.loads(data, trusted=trusted), entry.spec, names_given=entry.names_given)

    def _fetched(self, key: str) -> bytes:
        """A model that the spill has lost, from the last checkpoint: in the middle of a batch, so nobody waits."""
        assert self._fetch is not None
        try:
            return self._fetch(key)
        except Transient as error:
            raise StateLost(f"model {key!r} is lost on disk, and the store does not answer: {error}") from error


class ModelBeyondLimit(Model):
    """The model of a key for which there is no room: it answers, and refuses to learn."""

    def apply(self, events: Sequence[Event], *, predict: bool, explain: int = 0) -> Applied:
        refused = Reject("too-many-models", REJECT_CODES["too-many-models"])
        applied = super().apply([event for event in events if event.label is None], predict=predict, explain=explain)
        outcomes = iter(applied.outcomes)
        applied.outcomes = [next(outcomes) if event.label is None else refused for event in events]
        return applied
