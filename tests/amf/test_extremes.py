"""Streams of numbers from one end of float32 to the other: which batches they come in must not show in any bit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from trees import trees_of

import amf
from amf.geometry.boxes import LARGEST

CALM = {"over": "ignore", "under": "ignore", "invalid": "ignore"}
"""Interpreted kernels warn where compiled ones say nothing."""


def hostile(seed):
    """At most 90 rows, of which each feature is bad in its own way, and as many labels of two classes.

    Sizes from 1e-38 to 1e30, in one feature or within a feature; integers, zeros, constants; missing values; far
    offsets; and none of that for some rows, to begin with or in the end.
    """
    rng = np.random.default_rng(seed)
    wild = rng.random() < 0.5
    n, d = int(rng.integers(2, 90)), int(rng.integers(1, 3 if wild else 12))
    x = np.abs(rng.normal(size=(n, d))) if wild else rng.normal(size=(n, d))
    for j in range(d):
        match 1 if wild else rng.integers(8):
            case 0:
                x[:, j] *= 10.0 ** rng.integers(-38, 30)
            case 1:
                x[:, j] *= 10.0 ** rng.integers(-38, 30, n)
            case 2:
                x[:, j] = rng.integers(0, 4, n) * 10.0 ** rng.integers(-38, 30)
            case 3:
                x[:, j] = np.where(rng.random(n) < 0.8, 0.0, x[:, j] * 10.0 ** rng.integers(-38, 30))
            case 4:
                x[:, j] = 10.0 ** rng.integers(-38, 30)
            case 5:
                x[:, j] += 10.0 ** rng.integers(0, 15)
            case 6:
                x[: rng.integers(0, n), j] *= 10.0 ** rng.integers(-38, 30)
            case _:
                x[rng.integers(0, n) :, j] = rng.choice([0.0, -0.0, 1e-45, 1e30, -3e38])
        if rng.random() < 0.6:
            x[rng.random(n) < rng.choice([1 / n, 0.02, 0.5]), j] = np.nan
        if rng.random() < 0.1:
            x[: rng.integers(0, n), j] = np.nan
    y = (rng.random(n) < 0.5).astype(int)
    return x, np.where(rng.random(n) < rng.choice([0.0, 0.3]), None, y).tolist()


def centred(forest, x):
    """Rows as the trees take them."""
    return np.clip(x - forest._scaling.origin, -LARGEST, LARGEST).astype(np.float32)


def parameters_of(seed):
    """Settings in which all the code that looks at boxes has its turn."""
    rng = np.random.default_rng([seed, 1])
    return {
        "n_estimators": 3,
        "seed": seed,
        "scaling": str(rng.choice(["auto", "auto", "none"])),
        "mode": str(rng.choice(["existing", "sampled", "expected"])),
        "split_pure": bool(rng.random() < 0.5),
        "max_bytes": int(rng.choice([64_000_000, 64_000_000, 30_000])),
    }


def batches_of(n, rng):
    """A division of n rows: some batches may be empty."""
    bounds = [0, *np.sort(rng.integers(0, n + 1, rng.integers(0, 8))).tolist(), n]
    return [slice(*pair) for pair in pairwise(bounds)]


@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.AMFRegressor])
@pytest.mark.parametrize("block", range(10))
def test_batches_threads_and_restarts_do_not_change_a_bit_of_a_hostile_stream(kind, block):
    for seed in range(40 * block, 40 * (block + 1)):
        (x, y), rng, parameters = hostile(seed), np.random.default_rng([seed, 2]), parameters_of(seed)
        whole, single, restored = (kind(**parameters) for _ in range(3))
        threaded = kind(n_threads=2, **parameters)
        with np.errstate(**CALM):
            expected = whole.predict_learn(x, y)
            for row in range(len(x)):
                single.predict_learn(x[row : row + 1], y[row : row + 1])
            for rows in batches_of(len(x), rng):
                restored = amf.loads(restored.partial_fit(x[rows], y[rows]).dumps())
            for rows in batches_of(len(x), rng):
                threaded.predict_learn(x[rows], y[rows])
        data = whole.dumps()
        same = [forest.dumps() == data for forest in (single, restored, threaded)]
        assert same == [True] * 3, f"stream {seed}"
        first = next((row for row, label in enumerate(y) if label is not None), len(x))
        assert np.all(np.isfinite(expected[first + 1 :])), f"stream {seed}"


def test_trees_of_hostile_streams_hold_what_they_have_learned():
    """Every box on the way of a sample contains it, however small its distance times its weight was.

    Where an origin has moved, samples are not where they were: there boxes are nested at least.
    """
    n_still = 0
    for seed in range(80):
        x, y = hostile(seed)
        x = np.where(np.isnan(x), 0.0, x)
        learned = [row for row, label in enumerate(y) if label is not None]
        forest = amf.AMFClassifier(2, classes=[0, 1], seed=seed)
        with np.errstate(**CALM):
            forest.partial_fit(x, y)
            rows = centred(forest, x)[learned]
        still = learned and np.array_equal(forest._scaling.origin, x[learned[0]])
        n_still += bool(still)
        for tree in trees_of(forest):
            for row in rows if still else ():
                for node in tree.path(row):
                    assert np.all((tree.low[node] <= row) & (row <= tree.high[node]))
            for child in (tree.child[tree.inner], tree.child[tree.inner] + 1):
                assert np.all(tree.low[tree.inner] <= tree.low[child])
                assert np.all(tree.high[child] <= tree.high[tree.inner])
            assert np.all(np.isfinite(tree.threshold))
            assert not np.any(np.isnan(tree.time))
    assert 10 < n_still < 80
