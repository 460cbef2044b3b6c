"""The memory of a forest: two blocks of rows, in which the trees take turns; a node is one row of each.

Row of a node in the block of heads (32-bit word, type):

    0      float64  TIME       when the node splits; a leaf: +inf. Its birth is the TIME of its parent, 0 for the root
    2      float64  ODDS       odds of stopping at the node (aggregation.py); meaningless at a leaf
    4      int32    CHILD      row of the left child, the right one follows it; 0 at a leaf
    5      int32    FEATURE    feature of the split; a leaf keeps what forgetting.py needs in this word and the next
    6      float32  THRESHOLD  `value <= threshold` goes left
    7      int32    COUNT      labels seen
    8      int32    DISTINCT   different labels seen
    9      int32    N_CUTS     for nodes that stand for several cells (cell_walk.py); 0 in other systems
    10     int32    STATS      label statistics, room for `stats_room` words: for classes one count each

and in the block of boxes:

    0      float32  lower bounds of the box, room for `feature_room` of them
    f      float32  upper bounds

A walk reads the heads of a whole path but the boxes of its last few nodes only: so the two live apart. A tree numbers
its rows in order of creation, which the input alone decides; number 0 stays empty, so that siblings never part and no
child is called 0. Eight rows are a chunk, the chunks of all trees take turns, and a link is a row of the block: a
forest grows by appending, and no link changes. When a node is split its row becomes the new parent and its old contents
move to one of two new rows, so nothing has to know its parent.

Heads are seen through three flat views of the same bytes (int32, float32, float64). Kernels index the flat views: a
slice of an array would cost them two atomic operations on its reference count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import index, inlined
from amf.jit.vectors import LANES
from amf.memory.pages import Block

TIME, ODDS = index(0), index(1)  # in float64 words
CHILD, FEATURE, THRESHOLD, COUNT, DISTINCT, N_CUTS, STATS = (index(word) for word in range(4, 11))  # in 32-bit words
LARGEST_COUNT = 2**31 - 1
"""A counter that reaches this is full, and is halved at once (halving.py)."""
LARGEST_BLOCK = 2**31
"""Rows of all trees together: a link is an int32."""
CUT_ROOM = index(6)
"""Words at the end of a head for a cut that lies askew (planes.py), in systems that have such."""
ROOT = index(1)
"""Number of a tree's first row."""
_CHUNK = index(8)


class Nodes(NamedTuple):
    """The rows of all trees of a forest, as kernels see them."""

    ints: Any
    """int32, float32 and float64 views of the heads: all flat, as are the boxes."""
    floats: Any
    reals: Any
    boxes: Any
    """float32; up to 7 words beyond the last box may be read."""
    hulls: Any
    """int32, flat: where hull_cache.py has its hulls; empty in other systems."""
    used: Any
    """uint64 (n_trees,), rows in use of each tree."""
    words: Any
    """32-bit words of a head, and of a box."""
    width: Any


class Layout(NamedTuple):
    """How the words of a row are divided. `stats_room` and `feature_room` may exceed what is in use, in steps."""

    stats_room: int
    feature_room: int
    cut_room: int = 0
    """Words at the end of a head for a cut that lies askew: CUT_ROOM, or none."""
    hull_room: int = 0
    """Words that a row brings along to where hulls are kept (hull_cache.py)."""

    @property
    def head(self) -> int:
        """Words of a head: even, so that the float64 of the next one are aligned."""
        words = int(STATS) + self.stats_room
        return words + words % 2 + self.cut_room

    @property
    def box(self) -> int:
        """Words of a box."""
        return 2 * self.feature_room

    @property
    def nbytes(self) -> int:
        """Bytes of a node."""
        return 4 * (self.head + self.box)

    @property
    def memory(self) -> int:
        """Bytes of memory for a node."""
        return self.nbytes + 4 * self.hull_room


def room_for(count: int) -> int:
    """Room kept for `count` classes or features: exact when small, later in steps of 12 to 25 %.

    A function of the count alone: how a forest came to it must not show in its bytes.
    """
    step = 1 << max(count.bit_length() - 3, 0)
    return -(-count // step) * step


def spare(capacity: Any, rows: Any) -> Any:
    """Whether of so many rows that are reserved for each tree more than a quarter is free, and a little: one by one."""
    return capacity - rows > rows // 4 + 2 * int(_CHUNK)


def whole_chunks(rows: int) -> int:
    """The rows of all chunks that so many rows fill."""
    return rows - rows % int(_CHUNK)


def _rounded_up(rows: int) -> int:
    """The rows of the fewest chunks that hold so many."""
    return whole_chunks(rows + int(_CHUNK) - 1)


class Arena:
    """Rows of all trees of a forest. Kernels fill it; it only grows outside of them.

    hulls: flat int32, what may be lost at any time (hull_cache.py). used: uint64 (n_trees,), rows in use, number 0
    included. Rows that are not in use are zero. capacity: rows reserved for each tree.
    """

    layout: Layout
    capacity: int

    def __init__(self, n_trees: int, layout: Layout) -> None:
        self.used = np.full(n_trees, ROOT)
        self._allocate(layout, 0)

    @classmethod
    def of(cls, sizes: Sequence[int], layout: Layout) -> Self:
        """Rows for so many nodes in each tree, which `unpack` (packing.py) is to bring."""
        arena = cls.__new__(cls)
        arena.used = np.array(sizes, np.uint64) + ROOT
        arena._allocate(layout, _rounded_up(max(sizes) + int(ROOT)))
        return arena

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return self.used.shape[0]

    # Views are made when asked for: of many forests most only grow, and a block that is looked at is copied then.

    @property
    def ints(self) -> NDArray[np.int32]:
        """The heads of all rows, flat."""
        return self._heads.words

    @property
    def floats(self) -> NDArray[np.float32]:
        """The memory of the heads as float32, flat."""
        return self._heads.words.view(np.float32)

    @property
    def reals(self) -> NDArray[np.float64]:
        """The memory of the heads as float64, flat."""
        return self._heads.words.view(np.float64)

    @property
    def boxes(self) -> NDArray[np.float32]:
        """The boxes of all rows, flat."""
        return self._bounds.words.view(np.float32)

    @property
    def hulls(self) -> NDArray[np.int32]:
        """Where hulls are kept, flat."""
        return self._hulls.words

    @property
    def blocks(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """The memory of heads, boxes and hulls, which moves with `reserve`."""
        return self._heads.words, self._bounds.words, self.hulls

    @property
    def sizes(self) -> NDArray[np.uint64]:
        """Nodes of each tree (n_trees,)."""
        return self.used - ROOT

    @property
    def n_nodes(self) -> int:
        """Nodes over all trees."""
        return self.largest_and_all[1]

    @property
    def largest_and_all(self) -> tuple[int, int]:
        """(rows in use in the largest tree, nodes over all trees)."""
        used = self.used.tolist()
        return max(used), sum(used) - int(ROOT) * self.n_trees

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        heads, boxes, hulls = self.blocks
        return heads.nbytes + boxes.nbytes + hulls.nbytes + self.used.nbytes

    @property
    def nodes(self) -> Nodes:
        """The rows as kernels see them: views."""
        blocks = self.ints, self.floats, self.reals, self.boxes, self.hulls
        return Nodes(*blocks, self.used, index(self.layout.head), index(self.layout.box))

    def make_room(self, rows: int, limit: int) -> None:
        """Make room for so many rows in every tree, at most `limit`."""
        needed = _rounded_up(rows)
        if needed > self.capacity:
            # By an eighth at least: what is copied then stays in proportion to what is learned.
            self.reserve(min(max(needed, _rounded_up(self.capacity + self.capacity // 8)), limit))

    def give_up_room(self, rows: int) -> None:
        """Give up all memory but that of so many rows in every tree: those of the largest one."""
        with contextlib.suppress(MemoryError):  # to give memory up may take some
            self.reserve(_rounded_up(rows))

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` rows in every tree, or give up room that is not in use."""
        rows = self.n_trees * capacity
        # Blocks may be larger than that, where memory runs out on the way, but never smaller.
        if capacity < self.capacity:
            self._hulls, self.capacity = _hulls_of(rows, self.layout), capacity
        self._heads.resize(rows * self.layout.head + LANES)
        self._bounds.resize(rows * self.layout.box + LANES)
        if capacity > self.capacity and self.layout.hull_room:
            self._widen_regions(capacity)
        self.capacity = capacity

    def _widen_regions(self, capacity: int) -> None:
        """Make room for the hulls of so many rows in every tree: regions move apart, and their tables to their ends."""
        room, n_old = self.layout.hull_room, self.capacity
        self._hulls.resize(self.n_trees * capacity * room)
        words, old, new = self._hulls.words, n_old * room, capacity * room
        # From the last one on: each comes to lie where it was, or where regions were that have moved already.
        for tree in reversed(range(self.n_trees)):
            begin, end = tree * new, tree * new + new
            table, hulls = words[tree * old + old - n_old : tree * old + old].copy(), old - n_old
            words[begin : begin + hulls] = words[tree * old : tree * old + hulls]
            words[end - capacity : end - n_old] = 0
            words[end - n_old : end] = table

    def relayout(self, layout: Layout) -> None:
        """Change the rooms of a row. New statistics are zero, new bounds are NaN: nothing was seen of them."""
        was = self.layout
        # A head has an even number of words: the last one may be free, and is zero then.
        is_as_wide = (was.head, was.box, was.cut_room, was.hull_room) == (
            layout.head, layout.box, layout.cut_room, layout.hull_room,
        )  # fmt: skip
        if is_as_wide or self.capacity == 0:
            self.layout = layout
            return
        heads, boxes = self.block(), self._boxes()
        self._allocate(layout, self.capacity)
        width = was.head - layout.cut_room
        self.block()[:, :width] = heads[:, :width]
        if layout.cut_room:
            self.block()[:, -layout.cut_room :] = heads[:, -layout.cut_room :]
        new = self._boxes()
        new[:, :, : was.feature_room] = boxes
        if layout.feature_room > was.feature_room:
            for tree in range(self.n_trees):
                new[self.rows(tree), :, was.feature_room :] = np.nan

    def imitate(self, known: int, like: Sequence[int | None]) -> None:
        """The features from `known` on get the bounds [0, 0] in every box that has seen the feature they are like."""
        boxes = self._boxes()
        for column, sibling in enumerate(like, known):
            if sibling is not None:
                for tree in range(self.n_trees):
                    rows = self.rows(tree)
                    seen = rows[~np.isnan(boxes[rows, 0, sibling])]
                    boxes[seen, :, column] = 0.0

    def rows(self, tree: int) -> NDArray[np.int64]:
        """Rows of a tree's nodes in the block, in order of creation."""
        number, chunk = np.arange(int(ROOT), int(self.used[tree])), int(_CHUNK)
        rows: NDArray[np.int64] = (number // chunk * self.n_trees + tree) * chunk + number % chunk
        return rows

    @property
    def roots(self) -> NDArray[np.int64]:
        """Rows of the trees' roots in the block (n_trees,)."""
        return np.arange(self.n_trees) * int(_CHUNK) + int(ROOT)

    def copy(self) -> Arena:
        """The rows in use in memory of their own."""
        twin = Arena.__new__(Arena)
        twin.used = self.used.copy()
        twin._allocate(self.layout, min(self.capacity, _rounded_up(int(self.used.max()))))
        rows = self.n_trees * twin.capacity
        twin.ints[: rows * twin.layout.head] = self.ints[: rows * twin.layout.head]
        twin.boxes[: rows * twin.layout.box] = self.boxes[: rows * twin.layout.box]
        return twin

    def _allocate(self, layout: Layout, capacity: int) -> None:
        self.layout, self.capacity = layout, capacity
        rows = self.n_trees * capacity
        # Counts and boxes are read in whole groups of lanes: the last ones may be overread by less than one group.
        self._heads, self._bounds = Block(rows * layout.head + LANES), Block(rows * layout.box + LANES)
        self._hulls = _hulls_of(rows, layout)

    def block(self) -> NDArray[np.int32]:
        """The heads of all trees, int32 (rows, words), also of rows that are not in use: a view."""
        rows = self.n_trees * self.capacity
        return self.ints[: rows * self.layout.head].reshape(rows, self.layout.head)

    def _boxes(self) -> NDArray[np.float32]:
        rows = self.n_trees * self.capacity
        return self.boxes[: rows * self.layout.box].reshape(rows, 2, self.layout.feature_room)


def _hulls_of(rows: int, layout: Layout) -> Block:
    """Where so many rows have their hulls; one for all arenas whose rows have none."""
    return Block(rows * layout.hull_room) if layout.hull_room else _NO_HULLS


_NO_HULLS = Block(0)


@inlined
def row_of(number, tree, n_trees):
    """Row in the block of the row with this number in its tree."""
    return (number // _CHUNK * n_trees + tree) * _CHUNK + number % _CHUNK


@inlined
def number_of(row, n_trees):
    """Number in its tree of a row of the block."""
    return row // (_CHUNK * n_trees) * _CHUNK + row % _CHUNK


@inlined
def chunk_end(number, end):
    """Number after the last one, before `end`, in the chunk of this one: the rows of a chunk lie side by side."""
    return min((number // _CHUNK + index(1)) * _CHUNK, end)
