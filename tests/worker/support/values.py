"""Values of events and answers, and what codecs made of them."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from worker.base.records import Event, Prediction, Reject


def code_of(decoded: Event | str | Reject) -> str | None:
    """The code of a reject, None for an event or a key."""
    return decoded.code if isinstance(decoded, Reject) else None


NUMBERS = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**25), 10**25)
MIXED = NUMBERS | st.text(max_size=3) | st.sampled_from(["NaN", "-inf", "infinity", "12.5"])
MESSAGES = st.fixed_dictionaries(
    {"features": st.lists(NUMBERS, max_size=4) | st.dictionaries(st.text(max_size=3), MIXED, max_size=4)},
    optional={
        "label": st.none() | st.text(max_size=4) | st.integers() | st.booleans() | st.floats(-1e80, 1e80),
        "id": st.none() | st.text(max_size=4) | st.integers(),
        "x": st.recursive(NUMBERS | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=4),
    },
)


def bits(value: float | str | None) -> bytes | str | None:
    """A number by its bits, so that 0.0 and -0.0 differ; what is none, as it is."""
    return value if value is None or isinstance(value, str) else struct.pack(">d", value)


def prediction(**changes: Any) -> Prediction:
    """One of two classes, with other values where they are given."""
    fields = dict(
        prediction="b", classes=["a", "b"], probabilities=[0.25, 0.75], label="a", loss=1.5, learned=9, id="7"
    )
    return Prediction(**fields | changes)


def outcome(decoded: Event | Reject) -> Any:
    """The code of a reject, or an event with the bits of its numbers."""
    if isinstance(decoded, Reject):
        return decoded.code
    features = decoded.features
    names = list(features) if isinstance(features, dict) else None
    values = features.values() if isinstance(features, dict) else features
    return names, [bits(value) for value in values], (type(decoded.label), decoded.label), decoded.id
