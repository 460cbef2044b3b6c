"""The prediction modes `sampled` and `expected` of a reference tree ([AMF] Alg. 6: the sample comes for a moment).

Alg. 6 passes the sample through the tree as learning would, but without a label, so that a leaf does not pause because
its labels agree. At the first node that splits, a new parent and a fresh leaf appear, the averaged weights of all
ancestors are refreshed (which the printed algorithm forgets: above an inner node they are stale), the sample is
predicted in this temporary tree, and the tree is put back. The fresh leaf forecasts what an empty node does: uniform,
or its parent's forecast where that is the prior. `sampled` does this literally, with one draw; `expected` is the mean
over that draw in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
from parts import expm1, log1p
from reference import GOLDEN_GAMMA, Node, ReferenceForest, ReferenceTree, SplitMix64, extensions, lane_sum, mix

Mode = Literal["existing", "sampled", "expected"]


class Outlook(NamedTuple):
    """Forecast (K,) at a sample, depth of its leaf, and posterior mean of the depth at which a pruning ends."""

    forecast: np.ndarray
    depth: float
    weighted_depth: float


@contextmanager
def branched_off(tree: ReferenceTree, node: Node, x: np.ndarray) -> Iterator[None]:
    """The tree with a new parent over `node` whose other child is a fresh leaf for `x`, for as long as it is needed."""
    word, n_nodes = tree.rng.word, tree.n_nodes
    terms = extensions(node, x, tree.weights)
    up = tree.split_above(node, x, node.time, terms, lane_sum(terms)).parent
    try:
        yield
    finally:
        node.parent = up.parent
        if up.parent is None:
            tree.root = node
        elif up.parent.left is up:
            up.parent.left = node
        else:
            up.parent.right = node
        for ancestor in node.lineage():
            ancestor.refresh()
        tree.rng.word, tree.n_nodes = word, n_nodes


def hazards(tree: ReferenceTree, x: np.ndarray) -> list[tuple[Node, float]]:
    """The nodes on the way of `x`, each with the integral of the rate at which `x` splits off while the node lives."""
    found, birth = [], 0.0
    for node, _ in tree.path(x):
        rate = lane_sum(extensions(node, x, tree.weights))
        found.append((node, rate * (node.time - birth) if rate > 0 else 0.0))
        birth = node.time
    return found


def draw(tree: ReferenceTree, x: np.ndarray) -> float:
    """The uniform that a forecast at `x` uses: a hash of the state of the tree's generator and of the sample's values.

    So it leaves no trace in the state, and it does not matter in which batch the sample comes.
    """
    row = 0
    for j, value in enumerate(x):
        if tree.root is not None and not np.isnan(value) and not np.isnan(tree.root.lo[j]):
            bits = int((value + np.float32(0)).view(np.uint32))
            row = mix((row + GOLDEN_GAMMA) % 2**64 ^ (j << 32 | bits))
    return SplitMix64((tree.rng.word ^ row) - GOLDEN_GAMMA).uniform()


def existing(tree: ReferenceTree, x: np.ndarray) -> Outlook:
    """The forecast of the tree as it is ([AMF] Alg. 3)."""
    return Outlook(tree.predict(x), max(len(list(tree.path(x))) - 1, 0), tree.weighted_depth(x))


def sampled(tree: ReferenceTree, x: np.ndarray, u: float | None = None) -> Outlook:
    """Alg. 6 with the uniform `u`, `draw` by default: one exponential for the whole path, as in learning."""
    x = np.asarray(x, dtype=np.float32)
    budget = -log1p(-(draw(tree, x) if u is None else u))
    for node, hazard in hazards(tree, x):
        if budget < hazard:
            with branched_off(tree, node, x):
                return existing(tree, x)
        budget -= hazard
    return existing(tree, x)


def expected(tree: ReferenceTree, x: np.ndarray) -> Outlook:
    """The mean of `sampled` over its draw, in one pass down the path (algorithms.md A.3)."""
    x = np.asarray(x, dtype=np.float32)
    if tree.root is None:
        return existing(tree, x)

    def values(forecast: np.ndarray, depth: int) -> np.ndarray:
        # A forecast and its depth are averaged with the same probabilities: they travel as one vector.
        return np.array([*forecast, depth])

    mean, depth, passed_by, reach = 0.0, 0.0, 1.0, 1.0
    from_above = values(np.zeros(tree.n_classes), 0)
    for level, (node, hazard) in enumerate(hazards(tree, x)):
        splits_off = -expm1(-hazard)
        here = values(tree.forecast(node), level)
        empty = tree.forecast(node) if tree.prior == "parent" else np.full(tree.n_classes, 1 / tree.n_classes)
        stop = 0.5 if node.is_leaf else node.stop_probability
        inside = from_above + reach * (stop * here + values(empty, level + 1) / 2)
        mean += passed_by * splits_off * inside / (1 - reach * (0.5 - stop))
        depth += passed_by * splits_off * (level + 1)
        passed_by *= 1 - splits_off
        from_above = from_above + reach * node.stop_probability * here
        reach *= 1 - node.stop_probability
    mean, depth = mean + passed_by * from_above, depth + passed_by * level
    return Outlook(mean[:-1], depth, float(mean[-1]))


MODES = {"existing": existing, "sampled": sampled, "expected": expected}


def outlook(forest: ReferenceForest, x: np.ndarray, mode: Mode) -> Outlook:
    """Mean over the trees of a forest."""
    outlooks = [MODES[mode](tree, x) for tree in forest.trees]
    return Outlook(*(sum(column) / len(outlooks) for column in zip(*outlooks, strict=True)))
