"""A forest as kernels see it: an array of 64-bit words, of which the address is all that a kernel is given.

The first words are addresses of arrays (arena.py, scaling.py, the calibrations, selection.py), then come numbers,
whole ones and float64. Python writes them anew when they are asked for after an array has moved, and keeps the arrays
alive; of the numbers kernels change four, LARGEST, N_KEPT, N_NODES and N_SAMPLES. Addresses never get into the bytes of
a forest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import index, kernel
from amf.memory.addresses import address_of

HEADS, BOXES, HULLS, USED, RANDOM, CALIBRATION, ADAPTATION = (index(word) for word in range(7))
ORIGIN, LOWEST, HIGHEST, LAST, MOVES, STRIDES, PAIRS, WEIGHTS, N_LABELLED = (index(word) for word in range(7, 16))
N_TREES, HEAD_WORDS, BOX_WORDS, HULL_WORDS, CAPACITY, LIMIT, LARGEST = (index(word) for word in range(16, 23))
"""Trees; words of a head, of a box and for hulls, of each row; rows reserved and allowed for a tree; rows in use in the
largest tree."""
N_FEATURES, PAIR_WORDS, ADAPTIVE, N_OUTPUTS, N_CALIBRATION, MODE = (index(word) for word in range(23, 29))
"""Features; numbers in the pairs of one, 0 where features are taken as they are; whether they are weighed; numbers in a
forecast and in the state of the calibration; see modes.py."""
N_ADAPTATION, REVIEW_EVERY, MOST_KEPT, KEPT_ROOM, N_KEPT = (index(word) for word in range(29, 34))
"""Numbers in the state of the adaptation, 0 where a forest does not adapt; samples between two reviews; samples that
are kept for rehearsals at most, as there is memory, and as there are."""
N_NODES, N_SAMPLES, N_BYTES, IS_CURRENT = (index(word) for word in range(34, 38))
"""Nodes of all trees; labelled samples; bytes of memory; whether the words are those of the forest as it is: 0 once
memory may have moved."""
PURITY, PAUSE, FULL_PAUSE, LIFETIME, RULES = (index(word) for word in range(38, 43))
"""float64: when nodes split (walk.py), and six numbers of which the system makes its rules."""
N_RULES = 6
N_WORDS = int(RULES) + N_RULES
_WHOLES, _IS_CURRENT = int(N_TREES), int(IS_CURRENT)
_CAPACITY, _N_BYTES = int(CAPACITY), int(N_BYTES)


@kernel
def _find_blocks(heads, boxes, hulls, words):
    """Write the addresses of the arrays that may be resized in place. A kernel reads them off the arrays, which takes
    Python microseconds."""
    words[HEADS], words[BOXES], words[HULLS] = heads.ctypes.data, boxes.ctypes.data, hulls.ctypes.data


@kernel
def _find_others(
    used, random, calibration, adaptation,
    origin, lowest, highest, last, moves, strides, pairs, weights, n_labelled,
    words,
):  # fmt: skip
    """Write the addresses of the others."""
    words[USED], words[RANDOM] = used.ctypes.data, random.ctypes.data
    words[CALIBRATION], words[ADAPTATION] = calibration.ctypes.data, adaptation.ctypes.data
    words[ORIGIN], words[LOWEST], words[HIGHEST], words[LAST] = (
        origin.ctypes.data, lowest.ctypes.data, highest.ctypes.data, last.ctypes.data,
    )  # fmt: skip
    words[MOVES], words[STRIDES], words[PAIRS] = moves.ctypes.data, strides.ctypes.data, pairs.ctypes.data
    words[WEIGHTS], words[N_LABELLED] = weights.ctypes.data, n_labelled.ctypes.data


class Binding:
    """The words of one forest, in memory that never moves.

    words: uint64 (N_WORDS,). address: of them. addresses: the same as an array of one, as kernels take it.
    """

    __slots__ = ("address", "addresses", "words")

    def __init__(self) -> None:
        self.words = np.zeros(N_WORDS, np.uint64)
        self.address = address_of(self.words)
        self.addresses = np.array([self.address], np.uint64)

    @property
    def is_current(self) -> bool:
        """Whether the words are those of the forest as it is."""
        return bool(self.words[_IS_CURRENT])

    def expire(self) -> None:
        """Memory of the forest is about to move, or what the words say of it to change."""
        self.words[_IS_CURRENT] = 0

    def write(
        self,
        blocks: Sequence[NDArray[Any]],
        reached: tuple[NDArray[Any], ...],
        wholes: Sequence[int],
        fractions: Sequence[float],
    ) -> None:
        """Write all words, which hold until they expire.

        blocks: arrays that may be resized in place. reached: the others, in the order of the words. wholes: from
        N_TREES to N_BYTES.
        """
        _find_blocks(*blocks, self.words)
        _find_others(*reached, self.words)
        self.words[_WHOLES:_IS_CURRENT] = wholes
        self.words.view(np.float64)[int(PURITY) : int(PURITY) + len(fractions)] = fractions
        self.words[_IS_CURRENT] = 1

    def move(self, blocks: Sequence[NDArray[Any]], capacity: int, more_bytes: int) -> None:
        """Words that have expired hold again: of what they say these blocks were resized, and nothing else changed."""
        _find_blocks(*blocks, self.words)
        self.words[_CAPACITY] = capacity
        self.words[_N_BYTES] += np.uint64(more_bytes)
        self.words[_IS_CURRENT] = 1
