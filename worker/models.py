"""The models of one partition: model key -> model, and which of them changed since the last snapshot. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import amf
from worker.config import ModelParams
from worker.learners import forest_of
from worker.model import Model, spec_of
from worker.snapshot import Frozen


class Models:
    """Only a model that has learned is kept: asking leaves no trace."""

    def __init__(self, params_for: Callable[[str], ModelParams]) -> None:
        self._params_for = params_for
        self._models: dict[str, Model] = {}
        self._specs: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._removed: set[str] = set()
        self._frozen: dict[str, Frozen] = {}

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __contains__(self, key: str) -> bool:
        return key in self._models

    def get(self, key: str) -> Model:
        """The model of a key, or one that has learned nothing and is not kept yet."""
        model = self._models.get(key)
        if model is None:
            params = self._params_for(key)
            model = Model(key, params, forest_of(key, params), self.configured_spec(key))
        return model

    def configured_spec(self, key: str) -> str:
        """Spec that the configuration gives to a key; the spec of a restored model may be another."""
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = spec_of(key, self._params_for(key))
        return spec

    def has_changed_spec(self, model: Model) -> bool:
        """Whether the model was made with parameters that the configuration does not give it any more."""
        return model.spec != self.configured_spec(model.key)

    def restore(self, key: str, spec: str, data: bytes) -> None:
        """Take a model from its bytes, which are in the last snapshot. Raises amf.FormatError."""
        self._models[key] = Model(key, self._params_for(key), amf.loads(data), spec)

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
        self._models[model.key] = model
        self._dirty.add(model.key)
        self._removed.discard(model.key)

    def drop(self, key: str) -> None:
        """Remove the model, if there is one: its next event starts it anew."""
        if self._models.pop(key, None) is not None:
            self._dirty.discard(key)
            self._removed.add(key)

    def snapshot(self) -> tuple[dict[str, Frozen], set[str]]:
        """Models changed since the last snapshot, as they are now, and the keys of those that are gone.

        They are held until `snapshot_done` or `snapshot_failed`.
        """
        self._frozen = {key: Frozen(self._models[key]) for key in self._dirty}
        removed = self._removed
        self._dirty, self._removed = set(), set()
        return self._frozen, removed

    def snapshot_done(self) -> None:
        """The snapshot is in the store."""
        self._frozen = {}

    def snapshot_failed(self, removed: set[str]) -> None:
        """The snapshot did not reach the store: its models, and these keys, are still to be saved."""
        self._dirty |= {key for key in self._frozen if key in self._models}
        self._removed |= {key for key in removed | self._frozen.keys() if key not in self._models}
        self._frozen = {}

    def mark_all_changed(self) -> None:
        """The next snapshot holds every model."""
        self._dirty = set(self._models)
