"""Every system of the library by its name: the one list of them, for the bytes of forests and for a choice by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from amf.forests.adaptive import AdaptiveAMFClassifier, AdaptiveAMFRegressor
from amf.forests.amf import AMFClassifier, AMFRegressor
from amf.forests.bsp import BSPForestClassifier, BSPForestRegressor
from amf.forests.forest import Forest
from amf.forests.increasing_lifetime import IncreasingLifetimeForestClassifier, IncreasingLifetimeForestRegressor
from amf.forests.mondrian import MondrianForestClassifier, MondrianForestRegressor
from amf.forests.protocol import OnlineForest
from amf.forests.unrestricted import UnrestrictedAMFClassifier
from amf.serialization import canonical

_CLASSES: tuple[type[OnlineForest], ...] = (
    AMFClassifier,
    AMFRegressor,
    UnrestrictedAMFClassifier,
    MondrianForestClassifier,
    MondrianForestRegressor,
    IncreasingLifetimeForestClassifier,
    IncreasingLifetimeForestRegressor,
    BSPForestClassifier,
    BSPForestRegressor,
    AdaptiveAMFClassifier,
    AdaptiveAMFRegressor,
)

SYSTEMS: Mapping[str, type[OnlineForest]] = MappingProxyType({system.family: system for system in _CLASSES})
"""Name of a system, its `family`, -> the class of its forests."""


def dumps(forest: OnlineForest) -> bytes:
    """The bytes of a forest, as its own `dumps` gives them in its turn. Raises TypeError for what is no forest."""
    if not isinstance(forest, Forest):
        raise TypeError(
            f"expected a forest, got {forest!r:.100}: an estimator for scikit-learn has its own as `forest_`, a model "
            "for river as `forest`"
        )
    return forest.dumps()


def loads(data: bytes | bytearray | memoryview, *, n_threads: int = 1, trusted: bool = False) -> Any:
    """The forest that `dumps` wrote, of whatever system. Raises FormatError (a ValueError) for anything else.

    trusted: whether the bytes are known to be what `dumps` gave, as those are that nobody else could write to. Then
    neither the checksum nor the state is looked at, and a forest comes back in a third to a tenth of the time; other
    bytes may crash the process, or go on as a forest that no samples lead to.
    """
    return canonical.loads(data, SYSTEMS, n_threads=n_threads, trusted=trusted)
