"""Whatever bytes say under a right checksum: they are refused, or are a forest that learns. No process dies of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from mutations import fate, sealed, split, stream
from trees import nodes_of

import amf
from amf.memory.arena import CHILD, COUNT, DISTINCT, FEATURE, ODDS, STATS, THRESHOLD, TIME

ROOT = Path(__file__).parents[2]


def fates(first: int, last: int) -> list[str]:
    """What a process of its own makes of these mutations, a line each; it has to live to the end."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("mutations.py")), str(first), str(last)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    return done.stdout.splitlines()


def judged(lines: list[str], n: int) -> None:
    wrong = [line for line in lines if "wrong" in line]
    assert not wrong, "\n".join(wrong)
    found = Counter(line.split()[1] for line in lines)
    assert found.total() == n
    assert found["alive"] > 0.03 * n
    assert found["refused"] > 0.5 * n


def test_five_hundred_mutations_are_refused_or_learn_on():
    judged(fates(0, 500), 500)


@pytest.mark.full
def test_twenty_thousand_mutations_are_refused_or_learn_on():
    # Two processes side by side: each takes as long to begin as for thousands of mutations.
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda first: fates(first, first + 10_000), (500, 10_500))
    judged([line for part in parts for line in part], 20_000)


def test_a_limit_of_memory_that_the_trees_exceed_is_refused():
    x, y = stream(100, 0)
    header, body = split(amf.AMFClassifier(2, max_bytes=7_000).partial_fit(x, y).dumps())
    assert amf.loads(sealed(header, body)).n_samples == 100
    for lie in (b"1000", b"2000", b"3000"):
        with pytest.raises(amf.FormatError, match="more than max_bytes allows"):
            amf.loads(sealed(header.replace(b'"max_bytes":7000', b'"max_bytes":' + lie), body))


def root(forest):
    """Head of a tree's root, which is an inner node, as int32, float32 and float64: views."""
    head = forest._arena.block()[forest._arena.roots[1]]
    assert head[CHILD]
    return head, head.view(np.float32), head.view(np.float64)


def leaf_of(forest):
    arena = forest._arena
    rows = arena.rows(1)
    return arena.block()[rows[arena.block()[rows, CHILD] == 0][0]]


WRONG = {
    "odds": [np.nan, np.inf, -1.0, 0.0, 1e-251, 1e251],
    "time": [np.nan, np.inf, -1.0, 1e300],
    "time of a leaf": [np.nan, 1e300, -np.inf, 0.0],
    "threshold": [np.nan, np.inf, -np.inf, 1e30, -1e30],
    "count": [-1, 0, 99, 101, 2**31 - 1],
    "distinct": [-1, 0, 1, 5],
    "statistics": [-1, 10_000],
    "statistics of no class": [1, -1],
    "lower bound": [np.nan, np.inf, 1e30, -1e38],
    "upper bound": [np.nan, -np.inf, -1e30, 1e38],
    "bound of no feature": [0.0, np.inf],
    "weight": [np.nan, np.inf, 0.0, -1.0],
    "origin": [np.inf, -np.inf],
    "lowest": [np.nan, np.inf, 1e20],
    "pairs": [np.nan, np.inf, 1e35],
    "last": [np.nan, np.inf, 1e35],
    "samples": [-1, 0, 99, 2**62],
    "moves": [-1, 0, 100, 2**62],
    "calibration": [np.nan, np.inf, -1.0],
}


def spoil(forest, part, value):
    ints, floats, reals = root(forest)
    scaling, arena = forest._scaling, forest._arena
    low = int(arena.roots[1]) * arena.layout.box
    match part:
        case "odds":
            reals[ODDS] = value
        case "time":
            reals[TIME] = value
        case "time of a leaf":
            leaf_of(forest).view(np.float64)[TIME] = value
        case "threshold":
            floats[THRESHOLD] = value
        case "count":
            ints[COUNT] = value
        case "distinct":
            ints[DISTINCT] = value
        case "statistics":
            ints[STATS] = value
        case "statistics of no class":
            ints[-1] = value
        case "lower bound":
            arena.boxes[low] = value
        case "upper bound":
            arena.boxes[low + arena.layout.feature_room] = value
        case "bound of no feature":
            arena.boxes[low + forest.n_features] = value
        case "samples":
            scaling.n_labelled[0] = value
        case "weight":
            scaling.weights[0] = value
        case "calibration":
            forest._calibration[0] = value
        case _:
            getattr(scaling, part).reshape(-1)[0] = value


@pytest.mark.parametrize("part", WRONG)
def test_each_number_that_cannot_be_is_refused(part):
    rng = np.random.default_rng(0)
    x, y = rng.random((100, 9)), rng.integers(0, 9, 100)
    original = amf.AMFClassifier(3, purity=0.0).partial_fit(x, y)
    assert original._arena.layout.feature_room > 9
    assert original._arena.layout.stats_room > 9
    for value in WRONG[part]:
        forest = original.copy()
        spoil(forest, part, value)
        assert forest.dumps() != original.dumps()
        with pytest.raises(amf.FormatError):
            amf.loads(forest.dumps())


@pytest.mark.parametrize("system", [amf.AMFClassifier, amf.AMFRegressor])
def test_whatever_a_number_of_the_calibration_is_it_is_refused_or_learned_with(system):
    original = system(2).partial_fit(*stream(60, 0))
    found = Counter()
    for place in range(original._calibration.size):
        for value in (0.0, 1e-314, 0.5, -1.0, 1e30):
            forest = original.copy()
            forest._calibration[place] = value
            found[fate(forest.dumps())] += 1
    assert min(found["refused"], found["alive"]) > 100


def test_an_unrestricted_tree_whose_cells_are_not_those_of_its_word_is_refused():
    x, y = stream(80, 1)
    original = amf.UnrestrictedAMFClassifier(2).partial_fit(x, y)
    for word in ("word", "threshold", "time", "cell"):
        forest = original.copy()
        head, floats, reals = root(forest)
        if word == "word":
            forest._words[1] += np.uint64(1)
        elif word == "threshold":
            floats[THRESHOLD] = np.nextafter(floats[THRESHOLD], np.float32(1))
        elif word == "time":
            reals[TIME] = np.nextafter(reals[TIME], 0.0)
        else:
            arena, (_, boxes) = forest._arena, nodes_of(forest, 1)
            side = int(head[FEATURE])
            assert boxes[0, 0, side] < floats[THRESHOLD]
            arena.boxes[int(arena.roots[1]) * arena.layout.box + side] -= np.float32(2.0**-30)
        with pytest.raises(amf.FormatError):
            amf.loads(forest.dumps())
