"""Unrestricted Aggregated Mondrian Forest on [0, 1]^d, classification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf._kernel import index
from amf.arena import CHILD, N_CUTS, ODDS
from amf.cells import MAX_CUTS
from amf.classifier import AMFClassifier
from amf.params import AMFClassifierParams
from amf.systems import unrestricted


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrestrictedAMFClassifierParams(AMFClassifierParams):
    """Everything that, with the samples, determines an unrestricted AMF classifier: AMFClassifierParams, of which

    those in FIXED have one value only: features are taken as they are, a leaf holds one point, and a forecast is always
    made in the tree extended by the sample. What is proven holds of forecasts that are not calibrated, so these are
    the default.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True},
    }

    FIXED: ClassVar[frozenset[str]] = frozenset({"scaling", "split_pure", "purity", "pause", "mode"})

    scaling: Literal["none"] = "none"
    split_pure: Literal[True] = True
    purity: float = 0.0
    calibration: bool = False
    pause: float = 1.0
    mode: Literal["expected"] = "expected"

    def __post_init__(self) -> None:
        super(UnrestrictedAMFClassifierParams, self).__post_init__()
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in self.FIXED and value != each.default:
                raise ValueError(f"{each.name} can only be {each.default!r} in an unrestricted forest, got {value!r}")


class UnrestrictedAMFClassifier(AMFClassifier):
    """Unrestricted Aggregated Mondrian Forest for classification on [0, 1]^d ([000] Alg. 1-3).

    The partition covers the cube and does not depend on the samples, so that what is proven of AMF holds to the letter:
    with charge_first=True the cumulative log-loss of a tree is minus the logarithm of its averaged weight, and so at
    most that of any pruning plus log 2 for each of its nodes that is no leaf of the tree. On most real data
    AMFClassifier predicts better. Numbers outside [0, 1] and missing ones raise ValueError, and all features have to be
    there from the first sample on. Parameters: those of UnrestrictedAMFClassifierParams, and `n_threads`.
    """

    Parameters: ClassVar[type[Any]] = UnrestrictedAMFClassifierParams
    family = "unrestricted-amf-classifier"
    _kernels = unrestricted.KERNELS
    _fixed = True
    _bounds = 0.0, 1.0

    def _rows(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        x = super()._rows(X)
        refused = ~((x >= 0) & (x <= 1))
        if refused.any():
            row, column = np.argwhere(refused)[0]
            raise ValueError(
                f"X[{row}, {column}] is {x[row, column]}; an unrestricted forest takes numbers from 0 to 1"
            )
        return x

    def _require_room_for_features(self, n_more: int) -> None:
        if self.n_samples:
            raise ValueError("an unrestricted forest cannot take up features after its first sample")
        super()._require_room_for_features(n_more)

    def _heads(self) -> Iterator[NDArray[np.int32]]:
        for heads in super()._heads():
            inner, n_cells = _chains(heads)
            odds = heads.view(np.float64)[:, ODDS]
            odds[inner] *= np.ldexp(1.0, np.minimum(n_cells, 1000)) - 1.0
            yield heads

    def _plausible(self, heads: NDArray[np.int32]) -> bool:
        inner, n_cells = _chains(heads)
        in_order = (n_cells > 0) & (heads[inner, N_CUTS] <= MAX_CUTS)
        unshifted = not self._scaling.origin.any()
        return bool(in_order.all()) and unshifted and self._is_partition() and super()._plausible(heads)

    def _is_partition(self) -> bool:
        arena = self._arena
        found = unrestricted.is_partition(
            arena.ints, arena.floats, arena.reals, arena.boxes, arena.used, index(arena.layout.head),
            index(arena.layout.box), index(self.n_features), self._words,
        )  # fmt: skip
        return bool(found)


def _chains(heads: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Inner nodes of a tree, and for each how many cells it stands for (systems/unrestricted.py)."""
    child, n_cuts = heads[:, CHILD], heads[:, N_CUTS].astype(np.int64)
    inner = np.flatnonzero(child)
    cuts_above = np.zeros_like(n_cuts)
    for side in (0, 1):
        cuts_above[child[inner] + side] = n_cuts[inner]
    return inner, (n_cuts - cuts_above)[inner]
