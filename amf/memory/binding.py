"""A forest as kernels see it: an array of 64-bit words, of which the address is all that a kernel is given.

The first words are addresses: of arrays (arena.py, scaling.py, the calibrations, adaptation/), and of the two kernels
that others call (`link` of Kernels, pipeline.py). Then come numbers, whole ones and float64. Python writes them anew
when they are asked for after an array has moved, and keeps the arrays alive; of the numbers kernels change four,
LARGEST, N_KEPT, N_NODES and N_SAMPLES. Addresses never get into the bytes of a forest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import index, kernel
from amf.memory.addresses import address_of


class Reached(NamedTuple):
    """Arrays that never move while the words hold: of each the address is a word, in this order."""

    used: NDArray[Any]
    random: NDArray[Any]
    calibration: NDArray[Any]
    adaptation: NDArray[Any]
    origin: NDArray[Any]
    lowest: NDArray[Any]
    highest: NDArray[Any]
    last: NDArray[Any]
    moves: NDArray[Any]
    strides: NDArray[Any]
    pairs: NDArray[Any]
    weights: NDArray[Any]
    n_labelled: NDArray[Any]


class Wholes(NamedTuple):
    """Whole numbers, each of them a word, in this order."""

    n_trees: int
    head_words: int
    """Of each row."""
    box_words: int
    hull_words: int
    capacity: int
    """Rows that are reserved for a tree."""
    limit: int
    """Rows that are allowed for a tree."""
    largest: int
    """Rows in use in the largest tree."""
    n_features: int
    pair_words: int
    """Numbers in the pairs of a feature, 0 where features are taken as they are."""
    adaptive: int
    """Whether features are weighed."""
    n_outputs: int
    """Numbers in a forecast."""
    n_calibration: int
    """Numbers in the state of the calibration."""
    mode: int
    """See modes.py."""
    n_adaptation: int
    """Numbers in the state of the adaptation, 0 where a forest does not adapt."""
    review_every: int
    """Samples between two reviews."""
    most_kept: int
    """Samples that are kept for rehearsals at most."""
    kept_room: int
    """Those for which there is memory."""
    n_kept: int
    n_nodes: int
    """Of all trees."""
    n_samples: int
    """Labelled ones."""
    n_bytes: int


class Reals(NamedTuple):
    """Numbers that are float64, each of them a word, in this order: when nodes split (walk.py)."""

    purity: float
    pause: float
    full_pause: float
    lifetime: float


_ADDRESSES = "heads", "boxes", "hulls", *Reached._fields, "walk", "gather"
_PLACES = {
    name: place for place, name in enumerate((*_ADDRESSES, *Wholes._fields, "is_current", *Reals._fields, "rules"))
}


def _words(*names: str) -> Iterator[Any]:
    """Where these are among the words."""
    return (index(_PLACES[name]) for name in names)


HEADS, BOXES, HULLS = _words("heads", "boxes", "hulls")
USED, RANDOM, CALIBRATION, ADAPTATION = _words("used", "random", "calibration", "adaptation")
ORIGIN, LOWEST, HIGHEST, LAST = _words("origin", "lowest", "highest", "last")
MOVES, STRIDES, PAIRS, WEIGHTS, N_LABELLED = _words("moves", "strides", "pairs", "weights", "n_labelled")
WALK, GATHER = _words("walk", "gather")
N_TREES, HEAD_WORDS, BOX_WORDS, HULL_WORDS = _words("n_trees", "head_words", "box_words", "hull_words")
CAPACITY, LIMIT, LARGEST = _words("capacity", "limit", "largest")
N_FEATURES, PAIR_WORDS, ADAPTIVE, N_OUTPUTS = _words("n_features", "pair_words", "adaptive", "n_outputs")
N_CALIBRATION, MODE = _words("n_calibration", "mode")
N_ADAPTATION, REVIEW_EVERY, MOST_KEPT = _words("n_adaptation", "review_every", "most_kept")
KEPT_ROOM, N_KEPT = _words("kept_room", "n_kept")
N_NODES, N_SAMPLES, N_BYTES, IS_CURRENT = _words("n_nodes", "n_samples", "n_bytes", "is_current")
"""The last of these: whether the words are those of the forest as it is, 0 once memory may have moved."""
PURITY, PAUSE, FULL_PAUSE, LIFETIME, RULES = _words("purity", "pause", "full_pause", "lifetime", "rules")
"""The last of these: where the numbers begin, float64, of which the system makes its rules."""
N_RULES = 6
N_WORDS = int(RULES) + N_RULES
_WALK, _WHOLES, _IS_CURRENT, _REALS, _RULES = int(WALK), int(N_TREES), int(IS_CURRENT), int(PURITY), int(RULES)
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
    """Write the addresses of the others, which are the fields of `Reached`."""
    words[USED], words[RANDOM] = used.ctypes.data, random.ctypes.data
    words[CALIBRATION], words[ADAPTATION] = calibration.ctypes.data, adaptation.ctypes.data
    words[ORIGIN], words[LOWEST], words[HIGHEST], words[LAST] = (
        origin.ctypes.data, lowest.ctypes.data, highest.ctypes.data, last.ctypes.data,
    )  # fmt: skip
    words[MOVES], words[STRIDES], words[PAIRS] = moves.ctypes.data, strides.ctypes.data, pairs.ctypes.data
    words[WEIGHTS], words[N_LABELLED] = weights.ctypes.data, n_labelled.ctypes.data


class Binding:
    """The words of one forest, in memory that never moves.

    words: uint64 (N_WORDS,). address: of them. addresses: the same as an array of one, as kernels take it. is_linked:
    whether the words hold the addresses of kernels, which stay where they are.
    """

    __slots__ = ("address", "addresses", "is_linked", "words")

    def __init__(self) -> None:
        self.words = np.zeros(N_WORDS, np.uint64)
        self.address = address_of(self.words)
        self.addresses = np.array([self.address], np.uint64)
        self.is_linked = False

    @property
    def is_current(self) -> bool:
        """Whether the words are those of the forest as it is."""
        return bool(self.words[_IS_CURRENT])

    def link(self, walk: int, gather: int) -> None:
        """Note the addresses of the kernels that kernels call."""
        self.words[_WALK:_WHOLES] = walk, gather
        self.is_linked = True

    def expire(self) -> None:
        """Memory of the forest is about to move, or what the words say of it to change."""
        self.words[_IS_CURRENT] = 0

    def write(
        self,
        blocks: Sequence[NDArray[Any]],
        reached: Reached,
        wholes: Wholes,
        reals: Reals,
        rules: Sequence[float],
    ) -> None:
        """Write all words, which hold until they expire. blocks: arrays that may be resized in place."""
        _find_blocks(*blocks, self.words)
        _find_others(*reached, self.words)
        self.words[_WHOLES:_IS_CURRENT] = wholes
        self.words.view(np.float64)[_REALS : _RULES + len(rules)] = (*reals, *rules)
        self.words[_IS_CURRENT] = 1

    def move(self, blocks: Sequence[NDArray[Any]], capacity: int, more_bytes: int) -> None:
        """Words that have expired hold again: of what they say these blocks were resized, and nothing else changed."""
        _find_blocks(*blocks, self.words)
        self.words[_CAPACITY] = capacity
        self.words[_N_BYTES] += np.uint64(more_bytes)
        self.words[_IS_CURRENT] = 1
