"""Counters that are full: counts still add up, and nothing else depends on when that happens."""

from __future__ import annotations

import numpy as np
import pytest
from trees import nodes_of

import amf
from amf.jit.decorators import exported, index
from amf.memory.arena import CHILD, COUNT, DISTINCT, LARGEST_COUNT, STATS
from amf.statistics import class_counts, number_means
from amf.statistics.number_means import MEAN, SQUARES

KINDS = [amf.AMFClassifier, amf.AMFRegressor, amf.UnrestrictedAMFClassifier]


def columns(forest):
    """Words of a head that are counts."""
    if forest.class_labels is None:
        return [int(COUNT)]
    return list(range(int(STATS), int(STATS) + len(forest.class_labels)))


def nearly_full(kind, missing_until, **parameters):
    """A forest whose roots have counted as much as said, as after samples that came many times; and what to go on with.

    Some leaves have been forgotten, so that counts do not add up to the last one.
    """
    rng = np.random.default_rng(3)
    x = rng.random((600, 3))
    y = ((x[:, 0] + 0.3 * rng.random(600)) * 3).astype(int)
    if kind is not amf.UnrestrictedAMFClassifier:
        parameters["scaling"] = "none"
        x[rng.random(x.shape) < 0.1] = np.nan
    forest = kind(3, max_bytes=10_000, **parameters).partial_fit(x[:400], y[:400])
    heads = forest._arena.block()
    more = missing_until // 400
    words = sorted({int(COUNT), *columns(forest)})
    heads[:, words] *= more
    if forest.class_labels is None:
        heads.view(np.float64)[:, SQUARES] *= more
    for root in forest._arena.roots:
        heads[root, words[-1]] += missing_until - heads[root, COUNT]
        heads[root, COUNT] = missing_until
    forest._scaling.n_labelled[0] = missing_until
    return forest, x[400:], y[400:]


def halve(forest):
    """Halve the counts of every tree."""
    arena = forest._arena
    rules, part = (True, 0.0, False, False), number_means.halve
    if forest.class_labels is not None:
        rules, part = (index(len(forest.class_labels)), 1.0, True, False, False), class_counts.halve
    for tree in range(arena.n_trees):
        exported(part)(arena.nodes, index(tree), rules)


def halved(heads, words):
    """What the counts become, by the definition: int64 (nodes, words)."""
    now = heads[:, words].astype(np.int64)
    was = now.copy()

    def halve(node):
        left = heads[node, CHILD]
        if left:
            forgotten = was[node] - was[left] - was[left + 1]
            assert (forgotten >= 0).all()
            now[node] = halve(left) + halve(left + 1) + forgotten // 2
        else:
            now[node] = was[node] // 2
            if not now[node].any():
                now[node, np.argmax(was[node])] = 1
        return now[node]

    halve(0)
    return now


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_tree_halves_all_that_it_has_counted(kind):
    forest, _, _ = nearly_full(kind, LARGEST_COUNT)
    before = [nodes_of(forest, tree)[0] for tree in range(3)]
    words = columns(forest)
    halve(forest)
    for heads, was in zip((nodes_of(forest, tree)[0] for tree in range(3)), before, strict=True):
        expected = halved(was, words)
        np.testing.assert_array_equal(heads[:, words], expected)
        np.testing.assert_array_equal(heads[:, COUNT], expected.sum(axis=1))
        assert abs(heads[0, COUNT] - LARGEST_COUNT / 2) < len(heads)
        if forest.class_labels is None:
            now, then = heads.view(np.float64), was.view(np.float64)
            np.testing.assert_array_equal(now[:, MEAN], then[:, MEAN])
            variance = then[:, SQUARES] / was[:, COUNT]
            np.testing.assert_allclose(now[:, SQUARES] / heads[:, COUNT], variance, rtol=1e-14)
        else:
            np.testing.assert_array_equal(heads[:, DISTINCT], (expected > 0).sum(axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_counts_add_up_before_and_after_a_counter_is_full(kind):
    forest, x, y = nearly_full(kind, LARGEST_COUNT - 20)
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()
    for row in range(60):
        forest.partial_fit(x[row : row + 1], y[row : row + 1])
        for tree in range(3):
            heads, _ = nodes_of(forest, tree)
            inner = np.flatnonzero(heads[:, CHILD])
            left = heads[inner, CHILD]
            words = columns(forest)
            below = heads[left][:, words].astype(np.int64) + heads[left + 1][:, words]
            assert np.all(heads[inner][:, words] >= below)
            assert np.all(heads[:, COUNT] == heads[:, words].sum(axis=1))
            assert 0 < heads[:, COUNT].min() <= heads[:, COUNT].max() < LARGEST_COUNT
            full = row >= 19
            # Where all leaves on one side are forgotten the other side's first node becomes the root.
            halved_by_now = heads[0, COUNT] < 0.6 * LARGEST_COUNT
            assert halved_by_now == full or (kind is amf.UnrestrictedAMFClassifier and halved_by_now)
        assert amf.loads(forest.dumps()).dumps() == forest.dumps()


@pytest.mark.parametrize("kind", KINDS)
def test_when_a_counter_is_full_depends_on_the_samples_alone(kind):
    """Not on batches, threads, saving, or on how often it is asked."""
    (whole, x, y), (single, _, _), (threads, _, _) = (nearly_full(kind, LARGEST_COUNT - 30) for _ in range(3))
    threads.n_threads = 3
    said = whole.prequential(x, y)
    threads.partial_fit(x[:50], y[:50]).partial_fit(x[50:], y[50:])
    for row in range(len(x)):
        one = slice(row, row + 1)
        asked = single.predict_proba(x[one]) if single.class_labels else single.predict(x[one])
        told = single.prequential(x[one], y[one])[0]
        np.testing.assert_array_equal(asked, told)
        np.testing.assert_array_equal(told, said[0][one])
        if row % 7 == 0:
            single = amf.loads(single.dumps())
    assert single.dumps() == whole.dumps() == threads.dumps()
    assert np.isfinite(said[0]).all()


def test_a_leaf_of_one_label_counts_on():
    """A tree that is one node, whose counter is filled again and again."""
    forest = amf.AMFClassifier(1, classes=[0, 1], scaling="none").partial_fit(np.zeros((2, 1)), [0, 0])
    for label, expected in [(0, [LARGEST_COUNT // 2, 0]), (1, [LARGEST_COUNT // 2, 0])]:
        head = forest._arena.block()[forest._arena.roots[0]]
        head[[COUNT, STATS, STATS + 1]] = LARGEST_COUNT - 1, LARGEST_COUNT - 1, 0
        forest._scaling.n_labelled[0] = LARGEST_COUNT - 1
        forest.partial_fit(np.zeros((1, 1)), [label])
        assert nodes_of(forest, 0)[0][0, [STATS, STATS + 1]].tolist() == expected
