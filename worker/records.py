"""Value types that travel through the worker: consumed records, decoded events, what is published."""

from __future__ import annotations

import msgspec

Headers = list[tuple[str, bytes | None]]
Label = str | int | bool
Features = dict[str, float | None] | list[float | None]


class Record(msgspec.Struct, frozen=True, gc=False):
    """One consumed record of a partition, undecoded."""

    offset: int
    timestamp_ms: int
    """Timestamp of the record in ms since the epoch, -1 where the broker gave none."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class Event(msgspec.Struct, frozen=True, gc=False):
    """A decoded record: what a model predicts from, and learns from where `label` is not None."""

    features: Features
    label: Label | None
    id: str | None


class Reject(msgspec.Struct, frozen=True, gc=False):
    """Why a record is a dead letter: a stable code and a sentence for people."""

    code: str
    reason: str


class Prediction(msgspec.Struct, frozen=True, gc=False):
    """What a model said of one event before it learned the event's label."""

    prediction: Label | None
    """The likeliest class as its label was first seen; None before the model's first label."""
    classes: list[str]
    """Texts of the model's classes; the first `len(probabilities)` of them were known to this forecast."""
    probabilities: list[float]
    label: Label | None
    loss: float | None
    """-log of the probability given to the label, log(learned + 2) where its class was new; None without a label."""
    learned: int
    """Labelled samples the model had learned before this event."""
    id: str | None


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One record to publish."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
