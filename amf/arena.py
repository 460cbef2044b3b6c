"""The memory of a forest: one block, a tree is a segment of rows, a node is a row of 32-bit words.

Row of a node (word index, type):

    0      float64  TIME       when the node splits; a leaf: +inf. Its birth is the TIME of its parent, 0 for the root
    2      float64  ODDS       odds of stopping at the node (aggregation.py); meaningless at a leaf
    4      int32    CHILD      row of the left child, the right one follows it; 0 at a leaf (the root is nobody's child)
    5      int32    FEATURE    feature of the split
    6      float32  THRESHOLD  `value <= threshold` goes left
    7      int32    COUNT      labels seen
    8      int32    DISTINCT   different labels seen
    9      int32    STATS      label statistics, room for `stats_room` of them: for classes one count each
    9+s    float32  lower bounds of the box, room for `feature_room` of them
    9+s+f  float32  upper bounds

The block is seen through three flat views of the same bytes (int32, float32, float64), so that everything a walk needs
of a node lies in neighbouring cache lines, a forest costs one allocation, and growing it is one copy. Kernels index the
flat views: a slice of an array would cost them two atomic operations on its reference count. When a node is
split its row becomes the new parent and its old contents move to one of two new rows, so nothing has to know its
parent. Rows are handed out in order of creation, which the input alone decides: equal states are equal bytes.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from amf._kernel import called
from amf.boxes import LANES

TIME, ODDS = 0, 1  # in float64 words
CHILD, FEATURE, THRESHOLD, COUNT, DISTINCT, STATS = 4, 5, 6, 7, 8, 9  # in 32-bit words
LARGEST_COUNT = 2**31 - 1
_SMALL_TREE = 60  # rows
_SMALLEST_KEPT = 100_000  # bytes: smaller blocks come from the allocator's own lists


@dataclass(frozen=True, slots=True)
class Layout:
    """How the words of a row are divided. `stats_room` and `feature_room` may exceed what is in use, in steps."""

    stats_room: int
    feature_room: int

    @property
    def low(self) -> int:
        """First lower bound."""
        return STATS + self.stats_room

    @property
    def high(self) -> int:
        """First upper bound."""
        return self.low + self.feature_room

    @property
    def words(self) -> int:
        """Words of a row: even, so that the float64 of the next row are aligned."""
        words = self.high + self.feature_room
        return words + words % 2


def room_for(count: int) -> int:
    """Room kept for `count` classes or features: exact when small, later in steps of 12 to 25 %.

    A function of the count alone: how a forest came to it must not show in its bytes.
    """
    step = 1 << max(count.bit_length() - 3, 0)
    return -(-count // step) * step


class _Blocks:
    """Blocks given back, to be used again at the same size.

    Forests of one shape grow through the same sizes; a fresh block costs more in page faults than in copying.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._free: dict[int, list[NDArray[np.int32]]] = {}
        # Reentrant: a collection of garbage that strikes under the lock may give back the block of a dead forest.
        self._lock = threading.RLock()
        probe = np.zeros(1, np.int32)
        self._holders_of_a_lone_block = self._holders(probe)

    def take(self, words: int) -> NDArray[np.int32]:
        """A block of zeros."""
        with self._lock:
            free = self._free.get(words)
            block = free.pop() if free else None
            if block is not None:
                self._bytes -= block.nbytes
        if block is None:
            return np.zeros(words, np.int32)
        block.fill(0)
        return block

    def give(self, block: NDArray[np.int32]) -> None:
        """Take a block back, unless it is small or somebody beside the caller's variable still looks at it."""
        if block.nbytes < _SMALLEST_KEPT or self._holders(block) > self._holders_of_a_lone_block + 1:
            return
        with self._lock:
            if self._bytes + block.nbytes <= self._most_bytes:
                self._free.setdefault(block.shape[0], []).append(block)
                self._bytes += block.nbytes

    @staticmethod
    def _holders(block: NDArray[np.int32]) -> int:
        return sys.getrefcount(block)

    def clear(self) -> None:
        """Give everything back to the system."""
        with self._lock:
            self._free.clear()
            self._bytes = 0


_blocks = _Blocks(64_000_000)


def release_memory() -> None:
    """Give the blocks that are kept for trees to grow into back to the system."""
    _blocks.clear()


class Arena:
    """Rows of all trees of a forest. Kernels fill it; it only grows outside of them.

    ints, floats, reals: the flat int32, float32 and float64 views; the row of a node starts at 32-bit word
    (tree * capacity + node) * layout.words. used: int64 (n_trees,), rows in use; unused rows are zero.
    """

    def __init__(self, n_trees: int, layout: Layout, capacity: int = 0) -> None:
        self.layout = layout
        self.used = np.zeros(n_trees, np.int64)
        self.allocate(capacity)

    def allocate(self, capacity: int) -> None:
        """Empty rows: `capacity` for each tree."""
        self.capacity = capacity
        words = self.used.shape[0] * capacity * self.layout.words
        # A box is read in whole groups of lanes: the last row may be overread by less than one group.
        self.ints: NDArray[np.int32] = _blocks.take(words + LANES)
        self.floats: NDArray[np.float32] = self.ints.view(np.float32)
        self.reals: NDArray[np.float64] = self.ints.view(np.float64)

    def __del__(self) -> None:
        if hasattr(self, "reals"):
            block = self.ints
            del self.ints, self.floats, self.reals
            _blocks.give(block)

    def rows(self, tree: int) -> NDArray[np.int32]:
        """Rows of a tree that are in use, int32 (used, words): a view."""
        words = self.layout.words
        start = tree * self.capacity * words
        return self.ints[start : start + int(self.used[tree]) * words].reshape(-1, words)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return int(self.ints.nbytes + self.used.nbytes)

    @property
    def n_nodes(self) -> int:
        """Rows in use over all trees."""
        return int(self.used.sum())

    def grow(self, limit: int) -> None:
        """Make room for more rows in every tree, at most `limit`; the larger the trees, the fewer copies."""
        more = self.capacity if self.capacity >= _SMALL_TREE else self.capacity // 2 + 4
        self._move(self.layout, max(1, min(self.capacity + more, limit)))

    def relayout(self, layout: Layout) -> None:
        """Change the rooms of a row. New statistics are zero, new bounds are NaN: nothing was seen of them."""
        if layout != self.layout:
            self._move(layout, self.capacity)

    def _move(self, layout: Layout, capacity: int) -> None:
        was, rows, old = self.layout, int(self.used.max(initial=0)), self._block()
        before_block = self.ints
        self.layout = layout
        self.allocate(capacity)
        new = self._block()
        if was == layout:
            new[:, :rows] = old[:, :rows]
        else:
            new[:, :rows, : STATS + was.stats_room] = old[:, :rows, : STATS + was.stats_room]
            for start, before in ((layout.low, was.low), (layout.high, was.high)):
                new[:, :rows, start : start + was.feature_room] = old[:, :rows, before : before + was.feature_room]
            for tree, used in enumerate(self.used):
                for start in (layout.low, layout.high):
                    unseen = new[tree, :used, start + was.feature_room : start + layout.feature_room]
                    unseen[:] = np.float32(np.nan).view(np.int32)
        del old
        _blocks.give(before_block)

    def _block(self) -> NDArray[np.int32]:
        """All rows, int32 (n_trees, capacity, words): a view."""
        n_trees, words = self.used.shape[0], self.layout.words
        return self.ints[: n_trees * self.capacity * words].reshape(n_trees, self.capacity, words)


@called
def split(ints, used, tree, capacity, node, words, box_goes_left):
    """Give `node` two children: its old self and an empty row; returns the empty one.

    The row of `node` keeps its contents and becomes the parent; the caller sets its split, odds and box. Nothing is
    checked: the caller has reserved two rows.
    """
    first = used[tree]
    used[tree] = first + 2
    old, fresh = (first, first + 1) if box_goes_left else (first + 1, first)
    source, target = (tree * capacity + node) * words, (tree * capacity + old) * words
    for word in range(words):
        ints[target + word] = ints[source + word]
    ints[source + CHILD] = first
    return fresh
