"""The rows of an arena as named columns, for tests that look at trees."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

import amf
from amf.memory.arena import CHILD, COUNT, FEATURE, N_CUTS, ODDS, STATS, THRESHOLD, TIME


@dataclass(frozen=True)
class Tree:
    """Columns of one tree, node 0 is the root. child: row of the left child, the right one follows; 0 at a leaf."""

    child: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    time: NDArray[np.float64]
    odds: NDArray[np.float64]
    count: NDArray[np.int32]
    counts: NDArray[np.int32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]

    @property
    def inner(self) -> NDArray[np.intp]:
        """Rows of the inner nodes."""
        return np.flatnonzero(self.child)

    @property
    def leaves(self) -> NDArray[np.intp]:
        """Rows of the leaves."""
        return np.flatnonzero(self.child == 0)

    def cut(self, row: int) -> tuple[int, float]:
        """Feature and threshold of a node, -1 and 0 of a leaf."""
        return (int(self.feature[row]), float(self.threshold[row])) if self.child[row] else (-1, 0.0)

    def in_order(self) -> list[int]:
        """All rows, left subtree first. Without recursion: on the unit cube trees are deep."""
        found, waiting, node = [], [], 0
        while True:
            while self.child[node]:
                waiting.append(node)
                node = int(self.child[node])
            found.append(node)
            if not waiting:
                return found
            found.append(waiting.pop())
            node = int(self.child[found[-1]]) + 1

    def path(self, x: NDArray[np.float32]) -> list[int]:
        """Rows from the root to the leaf of a sample (d,) without missing values, centred as the forest does it."""
        path = [0]
        while child := int(self.child[path[-1]]):
            path.append(child + int(x[self.feature[path[-1]]] > self.threshold[path[-1]]))
        return path


def nodes_of(forest: amf.AMFClassifier, tree: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Copies of a tree's nodes in order of creation: heads, int32 (n, words), boxes, float32 (n, 2, feature_room).

    CHILD counts from 0 at the root.
    """
    arena = forest._arena
    layout, rows = arena.layout, arena.rows(tree)
    n_rows = arena.n_trees * arena.capacity
    heads = arena.block()[rows]
    boxes = arena.boxes[: n_rows * layout.box].reshape(n_rows, 2, layout.feature_room)[rows]
    inner = heads[:, CHILD] > 0
    heads[inner, CHILD] = np.searchsorted(rows, heads[inner, CHILD])
    return heads, boxes


def n_cuts_of(forest: amf.UnrestrictedAMFClassifier) -> list[NDArray[np.int32]]:
    """The column of each tree that only this system has."""
    return [nodes_of(forest, tree)[0][:, N_CUTS] for tree in range(forest.params.n_estimators)]


def trees_of(forest: amf.AMFClassifier) -> list[Tree]:
    """The trees of a forest, copied."""
    d, k = forest.n_features, len(forest.class_labels or ())
    trees = []
    for tree in range(forest.params.n_estimators):
        ints, boxes = nodes_of(forest, tree)
        floats, reals = ints.view(np.float32), ints.view(np.float64)
        columns = ints[:, CHILD], ints[:, FEATURE], floats[:, THRESHOLD], reals[:, TIME], reals[:, ODDS]
        statistics = ints[:, COUNT], ints[:, int(STATS) : int(STATS) + k]
        trees.append(Tree(*columns, *statistics, boxes[:, 0, :d], boxes[:, 1, :d]))
    return trees


def same_structure(tree, node, row=0):
    """One tree of a forest and that of the reference, bit by bit, from a node down."""
    assert tree.low[row].tolist() == pytest.approx(node.lo.tolist(), abs=0.0, nan_ok=True)
    assert tree.high[row].tolist() == pytest.approx(node.hi.tolist(), abs=0.0, nan_ok=True)
    assert tree.count[row] == node.n
    assert (tree.child[row] == 0) == node.is_leaf
    if not node.is_leaf:
        found = tree.feature[row], tree.threshold[row], tree.time[row]
        assert found == (node.feature, node.threshold, node.time)
        same_structure(tree, node.left, tree.child[row])
        same_structure(tree, node.right, tree.child[row] + 1)


def same_means(forest, trees, points, labels, rel):
    """A forest of numbers predicts and learns what the trees of the reference do; labels are NaN where missing."""
    got = forest.prequential(points, labels)
    for row, (x, label) in enumerate(zip(points, labels, strict=True)):
        if row:
            assert got.mean[row] == pytest.approx(np.mean([tree.predict_mean(x) for tree in trees]), rel=rel)
        if not math.isnan(label):
            for tree in trees:
                tree.learn(x, float(label))
    for tree, other in zip(trees_of(forest), trees, strict=True):
        same_structure(tree, other.root)
