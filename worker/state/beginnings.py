"""New models, made of others that have met the like: of a hundred thousand keys most bring what others have brought."""

from __future__ import annotations

from typing import Any, NamedTuple

from worker.base.records import Event
from worker.config import ModelParams
from worker.state.model import Model
from worker.state.targets import seed_of

_MOST, _MOST_BYTES = 64, 64 * 2**10
"""Models that are remembered, and the memory of one at most: some two hundred features."""


class _Met(NamedTuple):
    """A model that has met an event and learned nothing."""

    params: ModelParams
    model: Model


class Beginnings:
    """Models as they are once they have met their first event, remembered by what that brings."""

    def __init__(self) -> None:
        self._met: dict[tuple[Any, ...], _Met] = {}
        """By the parameters, for which one object stands, the shape of the features, and the class."""

    def __len__(self) -> int:
        return len(self._met)

    def model(self, key: str, params: ModelParams, spec: str, event: Event) -> Model | None:
        """A new model that has met this event, which has a label, and not learned it; None where it has to look."""
        features, label = event.features, event.label
        shape = len(features) if isinstance(features, list) else tuple(features)
        brings = id(params), shape, None if params.labels_are_numbers else label
        known = self._met.get(brings)
        if known is not None and known.model.is_as_met(event):
            forest = known.model.forest.with_seed(seed_of(key, params.seed))
            return Model(key, forest, spec, names_given=known.model.names_given)
        model = Model.new(key, params, spec)
        if not model.meet(event):
            return None
        # Texts, and names that are ignored, are looked at each time: who brings them is of no use to others.
        if model.forest.nbytes <= _MOST_BYTES and model.is_as_met(event):
            if len(self._met) >= _MOST:
                self._met.clear()
            met = Model(key, model.forest.copy(), spec, names_given=model.names_given)
            self._met[brings] = _Met(params, met)
        return model
