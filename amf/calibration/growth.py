"""States that grow: which numbers go where depends on the shapes alone, so it is worked out once for each of them.

Where most of a hundred thousand forests are young, every second label is the first one of a class in its forest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_NUMBERS = 4096
"""Of states for which it is remembered: to make a longer one anew takes little more than to copy it."""
_MARK = 2.0**40
"""More than any number that is put into a state when it grows."""


def grown(grow: Callable[..., NDArray[np.float64]], state: NDArray[np.float64], *shape: int) -> NDArray[np.float64]:
    """`grow(state, *shape)`, which puts numbers of the state, whatever they are, between others."""
    if state.size > _MOST_NUMBERS:
        return grow(state, *shape)
    fresh, places, numbers = _layout(grow, state.size, shape)
    larger = fresh.copy()
    larger[places] = state[numbers]
    return larger


@lru_cache(maxsize=64)
def _layout(grow: Callable[..., NDArray[np.float64]], size: int, shape: tuple[int, ...]) -> tuple[NDArray[Any], ...]:
    """(a state with the others, the places of numbers that were there, which these are)."""
    marked = grow(_MARK + np.arange(size), *shape)
    places = np.flatnonzero(marked >= _MARK)
    numbers = (marked[places] - _MARK).astype(np.intp)
    return marked, places, numbers
