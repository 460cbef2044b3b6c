"""The generator: SplitMix64, one uint64 word of state per tree.

The word lives in the forest and travels with its bytes, so that a restored forest continues the same stream. It is
advanced only by labelled samples: how often a forest was asked for a forecast leaves no trace.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import inlined

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 1.0 / 9007199254740992.0  # 2**-53


@inlined
def mix(z):
    """Finalising step of SplitMix64: a bijection of uint64 in which every input bit reaches every output bit."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@inlined
def uniform(words, tree):
    """Next number of the tree's stream, uniform on [0, 1) in steps of 2**-53. `words`: uint64 (n_trees,)."""
    words[tree] += GOLDEN
    return to_unit(mix(words[tree]))


@inlined
def to_unit(word):
    """The upper 53 bits of a word as a number on [0, 1)."""
    return (word >> np.uint64(11)) * _TO_UNIT


def seed_words(seed: int, n_trees: int) -> NDArray[np.uint64]:
    """First word of each tree, uint64 (n_trees,): the mixed words that follow `seed` in SplitMix64's own sequence."""
    steps = np.arange(1, n_trees + 1, dtype=np.uint64) * GOLDEN + np.uint64(seed % 2**64)
    steps = (steps ^ (steps >> np.uint64(30))) * _MIX_1
    steps = (steps ^ (steps >> np.uint64(27))) * _MIX_2
    return steps ^ (steps >> np.uint64(31))
