"""How many events may be answered at once: a model with a thousand classes answers by the megabyte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worker.base.records import Label, Reject
from worker.state.model_store import ModelStore
from worker.state.targets import UNKNOWN, ClassTarget, answer_bytes_of


def affordable(
    models: ModelStore, keys: Sequence[str | Reject], labels: Sequence[Label | None], most_bytes: int
) -> int:
    """How many of these events may be answered before answers take more than so many bytes; at least one.

    Their models may meet any of the labels on the way. It is an upper bound, to tell kilobytes from megabytes.
    """
    slots = models.slots(keys)
    sizes = models.table.answer_bytes[slots] if len(models) else np.zeros(len(slots), np.int64)
    if (slots < 0).any():
        fresh = {
            key: _blind_bytes(models, key) for key in {keys[place] for place in np.flatnonzero(slots < 0).tolist()}
        }
        sizes = np.array([fresh.get(key, size) for key, size in zip(keys, sizes.tolist(), strict=True)])
    # Nearly always there are so few classes that it does not matter who meets them.
    more = sum(map(ClassTarget.more_bytes, {label for label in labels if label is not None}))
    if len(keys) * (int(sizes.max()) + more) <= most_bytes:
        return len(keys)
    coming = dict.fromkeys(keys, 0)
    for key, label in set(zip(keys, labels, strict=True)):
        if label is not None and not _is_class(models, key, label):
            coming[key] += ClassTarget.more_bytes(label)
    sizes = sizes + np.array([coming[key] for key in keys])
    return max(1, int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right")))


def _blind_bytes(models: ModelStore, key: str | Reject) -> int:
    """Of an answer of a model that has learned nothing."""
    classes = models.params_for(key).classes if isinstance(key, str) else None
    return answer_bytes_of(classes or ())


def _is_class(models: ModelStore, key: str | Reject, label: Label) -> bool:
    """Whether the model knows the label; of one that is away that is not known."""
    entry = models.entry(key) if isinstance(key, str) else None
    return entry is not None and entry.model is not None and entry.model.target.code(label) != UNKNOWN
