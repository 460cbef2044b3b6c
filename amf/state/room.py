"""The memory of a forest: what it holds, how much there has to be before labels are learned, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from amf.adaptation.rehearsal import has_room_to_spare, lacks_room, room_to_keep, rows_before
from amf.adaptation.state import State, room_in, size_of, state_of, with_features
from amf.geometry.scaling import Scaling
from amf.jit.decorators import index
from amf.jit.vectors import LANES
from amf.kernels.forgetting import shrink
from amf.memory.arena import LARGEST_BLOCK, ROOT, Arena, Layout, room_for, spare, whole_chunks
from amf.memory.binding import (
    CAPACITY,
    KEPT_ROOM,
    LARGEST,
    LIMIT,
    MOST_KEPT,
    N_KEPT,
    REVIEW_EVERY,
    WALK,
    Binding,
    Reached,
    Reals,
    Wholes,
)
from amf.params import MODES
from amf.state.system import Params, System

_SMALLEST_TREE = 16  # rows, below which a tree never splits
_ONE_NODE = 8  # rows of a tree that never splits
_layout_of = lru_cache(maxsize=256)(Layout)
_LARGEST, _N_KEPT, _KEPT_ROOM = int(LARGEST), int(N_KEPT), int(KEPT_ROOM)


class ForestMemory(System[Params]):
    """Trees, features, generators and calibration of a forest, and the memory that they have."""

    _arena: Arena
    _scaling: Scaling
    _words: NDArray[np.uint64]
    _binding: Binding
    _allowed: int
    _names: tuple[str, ...] | None

    @property
    def n_samples(self) -> int:
        """Labelled samples learned."""
        return int(self._scaling.n_labelled[0])

    @property
    def n_features(self) -> int:
        """Features d, 0 before the first call that learns."""
        return self._scaling.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, of the first table that it learned from or by `add_features`; None without any."""
        return self._names

    @property
    def n_nodes(self) -> int:
        """Nodes over all trees."""
        return self._arena.n_nodes

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the trees, the per-feature state and those of the calibration and the adaptation."""
        return self._arena.nbytes + self._scaling.nbytes + self._calibration.nbytes + self._adaptation.nbytes

    def _give_up_room(self, rows: int, kept: int) -> None:
        """Give up memory that so many rows in the largest tree, and so many kept samples, leave free."""
        if self._adaptation.size and has_room_to_spare(self._kept_room, self._terms.review_every, kept):
            self._let_keep(self.n_samples, kept)
        if spare(self._arena.capacity, rows):
            self._binding.expire()
            self._arena.give_up_room(rows)

    def _link(self) -> None:
        """Note where the kernels are that kernels call, which may take compiling them, and changes nothing else."""
        self._current().link(*self._kernels.link(self._code))

    def _bind(self, room: int) -> Binding:
        """The forest as kernels that learn see it (binding.py), with so many free rows in every tree, up to its limit.

        It holds until it expires: when the forest learns a label of a new kind, takes up features, is bound with more
        room or gives some up.
        """
        arena, binding, rows = self._arena, self._current(), 0
        if not binding.is_linked:
            self._link()
        if self._adaptation.size:
            kept, n_labels, (_, every, most) = int(binding.words[_N_KEPT]), room // 2, self._terms
            if lacks_room(int(binding.words[_KEPT_ROOM]), n_labels, kept, most):
                self._let_keep(self.n_samples + n_labels, kept + n_labels)
                self._current()
            rows = int(rows_before(int(binding.words[_LARGEST]), n_labels, every, kept, most))
        rows, allowed = max(rows, int(binding.words[_LARGEST])) + room, self._allowed or _ONE_NODE
        if rows > arena.capacity and arena.capacity < allowed:
            binding.expire()
            before = arena.nbytes
            arena.make_room(rows, allowed)
            # Nothing else has changed, and forests that are small grow with every few samples.
            binding.move(arena.blocks, arena.capacity, arena.nbytes - before)
        return binding

    @property
    def _adapted(self) -> State:
        """The state of the adaptation in parts, all of them empty where the forest does not adapt."""
        return state_of(self._adaptation, self.params.n_estimators, self.n_features)

    @property
    def _births(self) -> NDArray[np.int64]:
        """Labelled samples before the first one of each tree."""
        births: NDArray[np.int64] = self._adapted.births.astype(np.int64)
        return births if births.size else np.zeros(self.params.n_estimators, np.int64)

    @property
    def _n_kept(self) -> int:
        """Samples that are kept for rehearsals."""
        return self.n_samples - int(self._adapted.beginning[0]) if self._adaptation.size else 0

    @property
    def _kept_room(self) -> int:
        """For how many samples that are kept there is room."""
        return room_in(self._adaptation, self.params.n_estimators, self.n_features)

    def _let_keep(self, n_samples: int, kept: int) -> None:
        """Have room for so many kept ones of so many samples."""
        rows = room_to_keep(n_samples, self._terms.review_every, kept, self._terms.most_kept)
        self._binding.expire()
        self._adaptation = with_features(
            self._adaptation, self.params.n_estimators, self.n_features, [], self.n_samples, rows
        )  # fmt: skip

    def _current(self) -> Binding:
        """The forest as kernels see it, with the memory that it has."""
        if not self._binding.is_current:
            self._write_binding()
        return self._binding

    def _write_binding(self) -> None:
        arena, scaling, layout = self._arena, self._scaling, self._arena.layout
        reached = Reached(
            used=arena.used, random=self._words, calibration=self._calibration, adaptation=self._adaptation,
            origin=scaling.origin, lowest=scaling.lowest, highest=scaling.highest, last=scaling.last,
            moves=scaling.moves, strides=scaling.strides, pairs=scaling.pairs, weights=scaling.weights,
            n_labelled=scaling.n_labelled,
        )  # fmt: skip
        (largest, n_nodes), (_, review_every, most_kept) = arena.largest_and_all, self._terms
        wholes = Wholes(
            n_trees=arena.n_trees, head_words=layout.head, box_words=layout.box, hull_words=layout.hull_room,
            capacity=arena.capacity, limit=self._allowed, largest=largest, n_features=self.n_features,
            pair_words=scaling.pairs.shape[1], adaptive=scaling.adaptive,
            n_outputs=self._n_outputs, n_calibration=self._calibration.shape[0],
            mode=MODES.index(self._mode), n_adaptation=self._adaptation.shape[0], review_every=review_every,
            most_kept=most_kept, kept_room=self._kept_room, n_kept=self._n_kept, n_nodes=n_nodes,
            n_samples=self.n_samples, n_bytes=self.nbytes,
        )  # fmt: skip
        reals = Reals(self._purity, *self._pauses, self._lifetime)
        self._binding.write(arena.blocks, reached, wholes, reals, self._rules)

    def _shrink(self, tree: int, limit: int) -> None:
        """Let a tree forget until it may split again within so many rows."""
        shrink(self._arena.nodes, index(tree), index(limit))

    def _needs_to_forget(self, n_nodes: int) -> bool:
        """Whether a tree with so many nodes is one that learning would not leave."""
        return n_nodes + int(ROOT) + 2 > max(self._allowed, _SMALLEST_TREE)

    def _layout(self) -> Layout:
        return _layout_of(self._stats_room, room_for(self.n_features))

    def _relayout(self) -> None:
        """Give rows the rooms they need now; rows that are too long then for `max_bytes` get fewer."""
        self._binding.expire()
        arena, layout = self._arena, self._layout()
        # As if as many samples were kept as may be: a limit that follows them would depend on how rows are batched.
        adaptation = 0
        if self._adaptation.size:
            adaptation = 8 * size_of(self.params.n_estimators, self.n_features, self._terms.most_kept)
        beside_rows = self._scaling.nbytes + self._calibration.nbytes + adaptation + arena.used.nbytes + 2 * 4 * LANES
        rows = (self.params.max_bytes - beside_rows) // (layout.memory * arena.n_trees)
        rows = whole_chunks(min(rows, LARGEST_BLOCK // arena.n_trees))
        self._allowed = rows if rows >= _SMALLEST_TREE else 0
        at_least = max(self._allowed, _SMALLEST_TREE)
        if arena.capacity + 2 > at_least:
            for tree in np.flatnonzero(arena.used + index(2) > at_least).tolist():
                self._shrink(tree, at_least)
        if arena.capacity > at_least:
            arena.reserve(at_least)
        arena.relayout(layout)

    def _require_room_for_features(self, n_more: int) -> None:
        """Raises ValueError where the forest cannot take up so many more features."""
        n_features = self.n_features + n_more
        if n_features > self.params.max_features:
            raise ValueError(f"{n_features} features are more than max_features={self.params.max_features}")

    def _grow_calibration(self, known: int, like: Sequence[int | None]) -> None:
        if self.params.calibration:
            self._calibration = self._calibration_with(known, like)

    def _grow_features(self, like: Sequence[int | None]) -> None:
        known, room = self.n_features, self._kept_room
        self._scaling.grow(like)
        self._grow_calibration(known, like)
        if self._adaptation.size:
            n_trees, rows = self.params.n_estimators, min(room, self._terms.most_kept)
            self._adaptation = with_features(self._adaptation, n_trees, known, like, self.n_samples, rows)
        self._relayout()
        self._arena.imitate(known, like)


def need_room(words: NDArray[np.int64], rooms: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether forests lack anything that `_bind` sees to. words: theirs, (n, N_WORDS). rooms: free rows, (n,)."""
    capacity, rows, kept, most = (words[:, word] for word in (CAPACITY, LARGEST, N_KEPT, MOST_KEPT))
    if most.any():
        rows = rows_before(rows, rooms // 2, words[:, REVIEW_EVERY], kept, most)
    lacks_rows = (rows + rooms > capacity) & (capacity < np.maximum(words[:, LIMIT], _ONE_NODE))
    is_unlinked = words[:, WALK] == 0
    need: NDArray[np.bool_] = is_unlinked | lacks_rows | lacks_room(words[:, KEPT_ROOM], rooms // 2, kept, most)
    return need


def have_room_to_spare(words: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether forests have memory that `_give_up_room` gives up. words: theirs, (n, N_WORDS)."""
    keep_less = has_room_to_spare(words[:, KEPT_ROOM], words[:, REVIEW_EVERY], words[:, N_KEPT])
    spares: NDArray[np.bool_] = spare(words[:, CAPACITY], words[:, LARGEST]) | keep_less
    return spares
