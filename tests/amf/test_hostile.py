"""No stream breaks a forest: forecasts stay distributions, and bits stay the same however the stream is cut.

The streams are those of streams.py. A failure names the seeds; `pytest tests/amf/test_hostile.py --hostile 17,1234`
runs these alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from properties import (
    in_batches,
    in_one_batch,
    proper_inside,
    proper_numbers,
    proper_probabilities,
    row_by_row,
    same_bytes,
)
from streams import case

import amf

STREAMS = {
    "amf-classifier": 2_500,
    "amf-regressor": 1_800,
    "unrestricted-amf-classifier": 800,
    "mondrian-classifier": 800,
    "mondrian-regressor": 600,
    "increasing-lifetime-classifier": 600,
    "increasing-lifetime-regressor": 500,
    "adaptive-classifier": 800,
    "adaptive-regressor": 600,
    "bsp-classifier": 600,
    "bsp-regressor": 500,
}
"""How many there are of each family."""
BLOCK = 100
QUICK = 2 * BLOCK
"""The first ones of each family are the quick check."""
FLOOR = 1e-12
"""Least probability of a known class with the default parameters."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Blocks of seeds of each family."""
    if "seeds" not in metafunc.fixturenames:
        return
    named = metafunc.config.getoption("--hostile")
    blocks = []
    for family, n_streams in STREAMS.items():
        if named:
            blocks.append(pytest.param(family, [int(seed) for seed in named.split(",")], id=family))
            continue
        for first in range(0, n_streams, BLOCK):
            marks = [pytest.mark.full] if first >= QUICK else []
            blocks.append(pytest.param(family, range(first, first + BLOCK), id=f"{family}-{first}", marks=marks))
    metafunc.parametrize(("family", "seeds"), blocks)


def test_no_stream_breaks_a_forest(family, seeds):
    broken = []
    for seed in seeds:
        hostile = case(family, seed)
        try:
            expected, whole = in_one_batch(hostile)
            in_batches(hostile, expected, whole)
            row_by_row(hostile, expected, whole)
        except Exception as error:
            broken.append(f"{hostile.name}\n    {type(error).__name__}: {error}")
    if broken:
        pytest.fail(f"{len(broken)} of {len(seeds)} streams:\n" + "\n".join(broken[:50]), pytrace=False)


# Streams that have been the end of a forest, or of its bits.


def test_a_sample_that_brings_the_second_feature_leaves_a_sound_forest():
    x = np.full((5, 3), np.nan, np.float32)
    x[:, 2], x[3:, 1] = [1.0, 8.0, 2.0, 4.0, 6.0], [3.0, 5.0]
    for seed in range(20):
        forest = amf.BSPForestClassifier(1, seed=seed, lifetime=30.0, rate_scale=1e9, scaling="none", calibration=False)
        for row in range(len(x)):
            forest.partial_fit(x[row : row + 1], [row % 2])
            amf.loads(forest.dumps())


@pytest.mark.parametrize("new", [amf.AMFClassifier, amf.AMFRegressor])
@pytest.mark.parametrize("parameters", [{}, {"split_pure": True}, {"mode": "expected"}], ids=str)
def test_a_missing_value_changes_nothing_of_the_rows_before_it(new, parameters):
    """1e-30 lies outside of a box that ends at 0, by an extension that is 0 once it is weighted by 1e-30."""
    x, y = np.array([[0.0], [1e30], [1e-30], [np.nan]]), [0, 1, 0, 0]
    whole, single = new(1, **parameters).partial_fit(x, y), new(1, **parameters)
    for row in range(len(y)):
        single.partial_fit(x[row : row + 1], y[row : row + 1])
    same_bytes(single, whole, "row by row")


def test_a_class_that_never_came_keeps_a_probability():
    """Between neighbours of a heavy-tailed feature trees become deep, and each level takes its share."""
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.normal(0, 3, (2000, 3))), rng.integers(0, 2, 2000)
    forest = amf.AMFClassifier(1, classes=range(3))
    proper_probabilities(forest.predict_learn(x, y), np.full(len(y), 3), FLOOR)
    proper_probabilities(forest.predict_proba(x), np.full(len(y), 3), FLOOR)


@pytest.mark.parametrize("declared", [True, False])
def test_a_label_that_comes_once_after_forty_thousand_others(declared):
    """Deep trees, none of which has ever seen it, over features that come in bunches."""
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(0, 3, (40_000, 8)))
    x[rng.random(x.shape) < 0.3] = 0.0
    x[rng.random(len(x)) < 0.6] = 0.0
    y = rng.integers(0, 2, len(x))
    forest = amf.AMFClassifier(classes=[0, 1, 2] if declared else None).partial_fit(x, y)
    proper_probabilities(forest.predict_learn(x[:1], [2]), np.array([3 if declared else 2]), FLOOR)
    for later in (forest, amf.loads(forest.dumps())):
        proper_inside(later)
        proper_probabilities(later.predict_learn(x[:2000], y[:2000]), np.full(2000, 3), FLOOR)


@pytest.mark.parametrize("charge_first", [True, False])
@pytest.mark.parametrize("label", [200.0, -1e6, 1e75])
def test_a_number_far_beyond_the_bound_of_the_square_loss(label, charge_first):
    """It is refused and leaves no trace, or it is learned: either way the forest goes on."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(500, 3)), rng.uniform(-1, 1, 500)
    forest = amf.AMFRegressor(loss="square", bound=1.0, charge_first=charge_first).partial_fit(x, y)
    before = forest.dumps()
    try:
        forest.partial_fit(x[:1], [label])
    except ValueError:
        assert forest.dumps() == before
    for later in (forest, amf.loads(forest.dumps())):
        said = later.prequential(x, y)
        proper_numbers(said.mean, said.std, said.quantiles)
        proper_inside(later)
