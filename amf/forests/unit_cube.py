"""Forests whose trees may be parts of a partition of [0, 1]^d that never depends on the samples (cell_walk.py)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.forests.forest import Forest
from amf.geometry.cells import MAX_CUTS
from amf.jit.decorators import index
from amf.kernels.cell_walk import is_partition
from amf.memory.arena import CHILD, N_CUTS
from amf.state.system import Params


class CubeForest(Forest[Params]):
    """What they have in common, where they are: `in_unit_cube`."""

    def _rows(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        x = super()._rows(X)
        if self.in_unit_cube:
            refused = ~((x >= 0) & (x <= 1))
            if refused.any():
                row, column = np.argwhere(refused)[0]
                raise ValueError(f"X[{row}, {column}] is {x[row, column]}; this forest takes numbers from 0 to 1")
        return x

    def _require_room_for_features(self, n_more: int) -> None:
        if self.in_unit_cube and self.n_samples:
            raise ValueError("a forest on the unit cube cannot take up features after its first sample")
        super()._require_room_for_features(n_more)

    def _is_partition(self, heads: NDArray[np.int32]) -> bool:
        if not self.in_unit_cube:
            return True
        inner, n_cells = chains_of(heads)
        if self._scaling.origin.any() or not ((n_cells > 0) & (heads[inner, N_CUTS] <= MAX_CUTS)).all():
            return False
        return bool(is_partition(self._arena.nodes, index(self.n_features), self._words))


def chains_of(heads: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Inner nodes of a tree, and for each how many cells it stands for (cell_walk.py)."""
    child, n_cuts = heads[:, CHILD], heads[:, N_CUTS].astype(np.int64)
    inner = np.flatnonzero(child)
    cuts_above = np.zeros_like(n_cuts)
    for side in (0, 1):
        cuts_above[child[inner] + side] = n_cuts[inner]
    return inner, (n_cuts - cuts_above)[inner]
