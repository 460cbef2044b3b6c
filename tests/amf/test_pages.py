"""Memory of trees: what it holds stays when it is resized, and what is new is zero."""

from __future__ import annotations

import errno
import mmap

import numpy as np
import pytest

import amf
from amf.memory.pages import _LARGE, Block

WORDS = _LARGE // 4
SIZES = [10, 1000, WORDS - 1, WORDS, WORDS + 5000, 3 * WORDS, WORDS, WORDS - 1, 7, 2 * WORDS, 0, 12]


@pytest.mark.parametrize("looks_on", [False, True], ids=["alone", "viewed"])
def test_a_block_keeps_what_it_holds_and_is_zero_beyond(looks_on):
    block, expected = Block(5), np.zeros(5, np.int32)
    for step, size in enumerate(SIZES, 1):
        view, before = (block.words if looks_on else None), expected.copy()
        block.resize(size)
        grown = np.zeros(size, np.int32)
        kept = min(size, expected.size)
        grown[:kept] = expected[:kept]
        assert np.array_equal(block.words, grown)
        if view is not None:
            assert np.array_equal(view, before)  # memory that an array refers to does not go away
        block.words[:] = expected = np.arange(step, size + step, dtype=np.int32)


@pytest.mark.parametrize("size", [100, 2 * WORDS], ids=["plain", "mapped"])
def test_memory_that_cannot_be_had_changes_nothing(size):
    block = Block(size)
    block.words[:] = 7
    with pytest.raises(MemoryError):
        block.resize(2**58)
    assert block.words.shape == (size,)
    assert np.all(block.words == 7)


def test_what_comes_back_after_a_block_was_smaller_is_zero():
    block = Block(3 * WORDS)
    block.words[:] = 1
    block.resize(2 * WORDS + 5)
    block.resize(3 * WORDS)
    assert not block.words[2 * WORDS + 5 :].any()


def test_large_pages_are_advice_that_a_system_may_refuse(monkeypatch):
    class Plain(mmap.mmap):
        def madvise(self, *_):
            raise OSError(errno.EINVAL, "no large pages here")

    monkeypatch.setattr(mmap, "mmap", Plain)
    block = Block(WORDS)
    assert block.words.shape == (WORDS,)


def test_a_forest_that_moves_to_large_pages_goes_on_as_one_that_starts_there():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6000, 40))
    y = (x[:, 0] + x[:, 1] > rng.normal(size=6000)).astype(int)
    forest = amf.AMFClassifier(4, seed=1)
    for start in range(0, 6000, 500):
        forest.partial_fit(x[start : start + 500], y[start : start + 500])
        if start == 3000:
            resumed = amf.loads(forest.dumps())
    assert forest._arena.boxes.nbytes > _LARGE
    assert resumed.partial_fit(x[3500:], y[3500:]).dumps() == forest.dumps()
