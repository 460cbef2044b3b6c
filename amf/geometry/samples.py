"""A sample on its way through trees, and what its features weigh there, for kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from amf.jit.decorators import inlined


class Sample(NamedTuple):
    """A row as the trees see it (scaling.py), within a flat array."""

    values: Any
    """float32, flat; NaN where missing, and from the last feature on up to a whole group of lanes (boxes.py)."""
    at: Any
    """Where the row begins."""
    n_features: Any


class Weights(NamedTuple):
    """Weights of the features, within a flat array."""

    values: Any
    """float32, flat; 0 from the last feature on up to a whole group of lanes (boxes.py)."""
    at: Any
    """Where they begin."""


@inlined
def value_of(sample, j):
    """Value of feature j, NaN where missing."""
    return sample.values[sample.at + j]


@inlined
def has(sample, j):
    """Whether the sample has a value of feature j."""
    return value_of(sample, j) == value_of(sample, j)


@inlined
def weight_of(weights, j):
    """Weight of feature j."""
    return weights.values[weights.at + j]
