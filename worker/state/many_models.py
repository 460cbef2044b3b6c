"""The events of many models through their forests, in as few calls of the library as there are kinds of forests.

A turn brings a thousand models one or two events each: a call for each would cost many times what its forest does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

import numpy as np

import amf
from worker.base.records import Event
from worker.state.learners import Met
from worker.state.model import Applied, Model, Run

FEW = 32
"""Most events with which a model joins others. With more of them a call of its own costs little, and what the forest
has said is answered while it is still in the processor's caches."""


class Share(NamedTuple):
    """Events of one model, in their order."""

    model: Model
    events: Sequence[Event]
    publish: bool
    """Whether they are predicted; else they are only learned."""


class _Part(NamedTuple):
    """What a model has read, on its way through the forests."""

    model: Model
    run: Run
    applied: Applied
    before: Met


def apply_all(shares: Sequence[Share], explain: int = 0) -> list[Applied]:
    """Predict and learn the events of each model, of which there are no two shares: as `Model.apply` does one by one.

    explain: how many features are named with each forecast that moved it most.
    """
    done: list[Applied] = []
    joint: dict[tuple[Any, ...], list[_Part]] = {}
    for model, events, publish in shares:
        applied, run = model.read(events, publish=publish, explain=explain)
        done.append(applied)
        before = model.learner.met
        if len(run.rows) <= FEW and model.may_join(run, applied, before):
            # In one call all rows of forecasts are as wide as the forest with the most classes has them.
            kind = publish, model.forest.variant, model.forest.n_features, before.classes
            joint.setdefault(kind, []).append(_Part(model, run, applied, before))
        else:
            model.finish(run, applied, publish=publish)
    for (publish, *_), parts in joint.items():
        _pass(parts, publish=publish)
    return done


def _pass(parts: Sequence[_Part], *, publish: bool) -> None:
    """Pass what models with forests of one kind have read through these in one call."""
    bounds = [0, *accumulate(len(part.run.rows) for part in parts)]
    forests: list[Any] = [part.model.forest for part in parts]
    rows = np.empty((bounds[-1], forests[0].n_features))
    slices = [slice(*ends) for ends in pairwise(bounds)]
    for part, here in zip(parts, slices, strict=True):
        rows[here] = part.model.rows_of(part.run)
    said = amf.predict_learn_many(
        forests,
        rows,
        np.repeat(np.arange(len(parts)), np.diff(bounds)),
        np.array([*chain.from_iterable(model.learner.targets(run.events, run.codes) for model, run, *_ in parts)]),
        predict=publish,
    )
    forecasts = parts[0].model.learner.forecasts(said) if publish else None
    for (model, run, applied, before), here in zip(parts, slices, strict=True):
        model.settle(run, applied, before, None if forecasts is None else forecasts.part(here))
