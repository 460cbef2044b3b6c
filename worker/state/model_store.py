"""The models of one partition: model key -> model, and which of them changed since the last snapshot.

Most of them may be away (cache.py); they come back when they are asked for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import amf
from worker.base.errors import StateLost, Transient
from worker.base.records import Event, Reject
from worker.checkpoint import SavedModel, Source
from worker.codec.dead_letters import DECODER, REJECT_CODES
from worker.config import ModelParams
from worker.state.cache import Cache
from worker.state.copy_on_write import CopyOnWrite
from worker.state.entry import UNKNOWN_MS, Entry, Fetch, Prefetch
from worker.state.model import Applied, Model, Run, spec_of

JUDGED_SAMPLES = 100
"""Labels after which a model is held against the baseline: the losses of fewer say nothing."""


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
    ) -> None:
        self._params_for = params_for
        self._cache = Cache() if cache is None else cache
        self._max_models = max_models
        self._fetch = fetch
        self._prefetch = prefetch
        self._decoder = decoder
        self._entries: dict[str, Entry] = {}
        self._dirty: set[str] = set()
        self._removed: set[str] = set()
        self._copies: dict[str, CopyOnWrite] = {}
        self._untimed: set[str] = set()
        self._leaders: list[Entry] = []
        self._learned: set[str] | None = None
        self.loss_ratios: dict[str, float] = {}
        """Recent loss over that of a baseline, of models with JUDGED_SAMPLES; as of the last `leaders`."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Model]:
        """Every model; those that are away come for the moment only."""
        for entry in list(self._entries.values()):
            yield self._load(entry) if entry.model is None else entry.model

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def room(self) -> float:
        """How many more models there may be."""
        return float("inf") if self._max_models is None else self._max_models - len(self._entries)

    def get(self, key: str) -> Model:
        """The model of a key, or one that has learned nothing and is not kept yet. Raises StateLost."""
        entry = self._entries.get(key)
        if entry is None:
            params = self._params_for(key)
            kind = Model if self.room > 0 else ModelBeyondLimit
            return kind.new(key, params, self.configured_spec(key))
        if entry.model is None:
            from_store = entry.is_remote
            model = self._load(entry)
            entry.come_back(model)
            self._cache.came_back(entry, from_store=from_store)
            return model
        self._cache.use(entry)
        return entry.model

    def fetch(self, keys: Iterable[str | Reject]) -> None:
        """Bring the models of these keys into memory that only the store has: before any of them learns.

        Raises Transient where the store does not answer, or not soon, StateLost.
        """
        if self._cache.any_remote:
            named = {key for key in keys if isinstance(key, str)}
            remote = sorted(key for key in named if key in self._entries and self._entries[key].is_remote)
            if remote and self._prefetch is not None:
                self._prefetch(remote)
            for key in remote:
                self.get(key)

    def configured_spec(self, key: str) -> str:
        """Spec that the configuration gives to a key; the spec of a restored model may be another."""
        entry = self._entries.get(key)
        if entry is not None and entry.configured_spec is not None:
            return entry.configured_spec
        spec = spec_of(key, self._params_for(key), self._decoder)
        if entry is not None:
            # One text where they are equal, as they nearly always are.
            entry.configured_spec = entry.spec if spec == entry.spec else spec
        return spec

    def has_changed_spec(self, model: Model | Entry) -> bool:
        """Whether the model was made with parameters that the configuration does not give it any more."""
        # One that is not kept was made a moment ago.
        return model.key in self._entries and model.spec != self.configured_spec(model.key)

    def changed_specs(self) -> list[str]:
        """Keys of the models of which that is so."""
        return [entry.key for entry in self._entries.values() if self.has_changed_spec(entry)]

    def drop_changed_specs(self) -> bool:
        """Drop those models; whether there were any."""
        changed = self.changed_specs()
        for key in changed:
            self.drop(key)
        return bool(changed)

    def restore(self, key: str, saved: SavedModel) -> None:
        """Take a model that is in the last checkpoint. Raises amf.FormatError."""
        entry = Entry(key, saved.spec, self._fetch)
        entry.recall(saved)
        if entry.names_given is None:
            # There are no names, or the checkpoint is of a version that did not write it: then the configuration says.
            entry.names_given = isinstance(self._params_for(key).features, tuple)
        entry.model = self._model(entry, saved.data)
        entry.names_given = entry.model.names_given
        entry.clean = True
        self._entries[key] = entry
        self._cache.admit(entry, saved.data)

    def sources(self) -> dict[str, Source]:
        """Every model as it is."""
        return {key: entry.saved for key, entry in self._entries.items()}

    def close(self) -> None:
        """Give up the memory and the space on disk of all models."""
        for entry in self._entries.values():
            self._cache.forget(entry)
        self._entries = {}

    # --- changes, and snapshots of them -------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether anything changed since the last snapshot."""
        return bool(self._dirty or self._removed)

    def hold(self, key: str) -> None:
        """The model of this key may be about to change: what a snapshot is to have of it is put aside first."""
        if key in self._copies:
            self._copies[key].hold()

    def waiting_bytes(self, key: str) -> int:
        """What `hold` would have to copy."""
        return self._copies[key].waiting_bytes if key in self._copies else 0

    @property
    def in_copy_on_write(self) -> bool:
        """Whether a snapshot is on its way to the store."""
        return bool(self._copies)

    def keep(self, model: Model) -> None:
        """The model has learned: it is part of the state, as it is now."""
        key = model.key
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(key, model.spec, self._fetch)
            entry.configured_spec, entry.names_given = model.spec, model.names_given
        entry.learned(model)
        self._cache.enter(entry)
        self._dirty.add(key)
        self._removed.discard(key)
        self._untimed.add(key)
        if self._learned is not None:
            self._learned.add(key)

    def drop(self, key: str) -> None:
        """Remove the model, if there is one: its next event starts it anew."""
        if key in self._entries:
            self.hold(key)
            entry = self._entries.pop(key)
            self._cache.forget(entry)
            self._dirty.discard(key)
            self._removed.add(key)
            self._untimed.discard(key)
            self.loss_ratios.pop(key, None)
            if entry in self._leaders:
                self._learned = None

    def snapshot(self) -> tuple[dict[str, CopyOnWrite], set[str]]:
        """Models changed since the last snapshot, as they are now, and the keys of those that are gone.

        They are held until `snapshot_done` or `snapshot_failed`.
        """
        self._copies = {key: CopyOnWrite(self._entries[key]) for key in self._dirty}
        removed = self._removed
        self._dirty, self._removed = set(), set()
        return self._copies, removed

    def snapshot_done(self) -> None:
        """The snapshot is in the store: it has the models as they are, unless they changed in the meantime."""
        for key in self._copies.keys() - self._dirty:
            if key in self._entries:
                self._entries[key].clean = True
        self._copies = {}

    def snapshot_failed(self, removed: set[str]) -> None:
        """The snapshot did not reach the store: its models, and these keys, are still to be saved."""
        self._dirty |= {key for key in self._copies if key in self._entries}
        self._removed |= {key for key in removed | self._copies.keys() if key not in self._entries}
        self._copies = {}

    def mark_all_changed(self) -> None:
        """The next snapshot holds every model."""
        self._dirty = set(self._entries)

    # --- figures ------------------------------------------------------------------------------------------------------

    def entry(self, key: str) -> Entry | None:
        """The model of a key as it is, be it away: to look at, which is no use of it."""
        return self._entries.get(key)

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """Some of them, in the order in which they came."""
        return islice(self._entries.values(), start, stop)

    def note_times(self, time_ms: Callable[[str], int | None]) -> None:
        """Model key -> when it was last met, in ms since the epoch: for the models that learned since the last call."""
        for key in self._untimed:
            entry = self._entries[key]
            entry.last_ms = max(entry.last_ms, time_ms(key) or UNKNOWN_MS)
        self._untimed.clear()

    def leaders(self, n: int, now_s: float) -> list[Entry]:
        """The n models that learned most of late, behind them those that learned most before this process.

        Looks only at those that may have come among them since the last call.
        """
        if self._learned is None:
            candidates = list(self._entries.values())
        else:
            others = self._learned.difference(entry.key for entry in self._leaders)
            candidates = self._leaders + [self._entries[key] for key in others if key in self._entries]
        for entry in candidates:
            entry.note_traffic(now_s)
            self._judge(entry)
        self._leaders = heapq.nlargest(n, candidates, key=lambda entry: (entry.traffic, entry.key))
        self._learned = set()
        return self._leaders

    def _judge(self, entry: Entry) -> None:
        losses = entry.losses
        if losses is not None and entry.samples >= JUDGED_SAMPLES:
            # Where the labels are all alike there is nothing to gain on the baseline, whose loss goes to 0.
            self.loss_ratios[entry.key] = losses.calibrated / losses.baseline if losses.baseline > 0 else 1.0

    def _load(self, entry: Entry) -> Model:
        assert entry.place is not None
        try:
            data = entry.place.read()
        except StateLost:
            if not entry.clean or self._fetch is None:
                raise
            data = self._fetched(entry.key)
        try:
            return self._model(entry, data)
        except amf.FormatError as error:
            raise StateLost(f"model {entry.key!r} does not come back: {error}") from error

    @staticmethod
    def _model(entry: Entry, data: bytes) -> Model:
        return Model(entry.key, amf.loads(data), entry.spec, names_given=entry.names_given)

    def _fetched(self, key: str) -> bytes:
        """A model that the spill has lost, from the last checkpoint: in the middle of a batch, so nobody waits."""
        assert self._fetch is not None
        try:
            return self._fetch(key)
        except Transient as error:
            raise StateLost(f"model {key!r} is lost on disk, and the store does not answer: {error}") from error


class ModelBeyondLimit(Model):
    """The model of a key for which there is no room: it answers, and refuses to learn."""

    def read(self, events: Sequence[Event], *, publish: bool, explain: int = 0) -> tuple[Applied, Run]:
        refused = Reject("too-many-models", REJECT_CODES["too-many-models"])
        places = [place for place, event in enumerate(events) if event.label is None]
        applied, run = super().read([events[place] for place in places], publish=publish, explain=explain)
        outcomes = iter(applied.outcomes)
        applied.outcomes = [next(outcomes) if event.label is None else refused for event in events]
        return applied, run._replace(rows=[places[row] for row in run.rows])
