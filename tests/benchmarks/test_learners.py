"""The benchmarks of quality: tables are as they say, no learner sees what comes, scores are what they are called."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.benchmarks.learners.baselines import PEERS, REFIT, ask, forests
from tests.benchmarks.learners.concept_drift import WINDOW, Run
from tests.benchmarks.learners.imbalance import BINS, calibration_error
from tests.benchmarks.learners.irrelevant_features import with_irrelevant
from tests.benchmarks.learners.label_noise import frequencies
from tests.benchmarks.learners.moa_streams import changes, generator, table_of
from tests.benchmarks.learners.tables import NOISE, bundled, clusters, disc, fraud, noise, top_share

LEARNERS = forests([10]) | PEERS


@pytest.mark.parametrize("share", [0.10, 0.003])
def test_the_share_of_positives_is_exact(share):
    for table in (clusters(share, 5, 0, 2000), disc(share, 0, 2000)):
        assert (table.x.shape[0], table.y.sum()) == (2000, share * 2000)
    assert fraud(0, 2000).y.sum() == 24


def test_a_tenth_of_the_positives_of_a_disc_lies_elsewhere():
    table = disc(0.1, 3, 2000)
    inside = top_share(-(table.x**2).sum(axis=1), 0.1)
    assert np.sum(table.y & (inside == 0)) == NOISE * 200
    assert np.abs(table.x[inside == 1]).max() < 0.4


def test_a_seed_is_a_table_and_another_seed_another_one():
    for make in (lambda seed: clusters(0.1, 5, seed, 500), lambda seed: disc(0.1, seed, 500), lambda s: fraud(s, 500)):
        np.testing.assert_array_equal(make(1).x, make(1).x)
        assert not np.array_equal(make(1).x, make(2).x, equal_nan=True)


def test_irrelevant_features_come_behind_the_others():
    table = disc(0.3, 0, 200)
    wide = with_irrelevant(table, 1, 7)
    np.testing.assert_array_equal(wide.x[:, :2], table.x)
    assert wide.x.shape == (200, 9)
    assert not np.array_equal(wide.x[:, 2:], with_irrelevant(table, 2, 7).x[:, 2:])
    assert np.abs(np.corrcoef(wide.x.T, wide.y)[-1, 2:-1]).max() < 0.3


def test_texts_are_texts_to_those_who_take_them_and_columns_to_the_others():
    table = fraud(0, 300)
    objects, numbers = table.objects(), table.numbers()
    assert np.isfinite(numbers).all()
    for row, features in enumerate(objects):
        assert {f"x{j}" for j in range(7) if not np.isnan(table.x[row, j])} == features.keys()
        assert isinstance(features["x4" if "x4" in features else "x6"], str)
    countries = len(np.unique(table.x[~np.isnan(table.x[:, 4]), 4]))
    assert numbers[:, 5 : 5 + countries].sum(axis=1).tolist() == (~np.isnan(table.x[:, 4])).astype(float).tolist()


def test_the_sets_of_the_packages_are_there_and_shuffled():
    tables = {table.name: table for table in bundled(1000)}
    assert tables.keys() == {"digits", "breast_cancer", "wine", "Phishing", "ImageSegments", "Bananas"}
    for table in tables.values():
        assert np.isfinite(table.x).all()
        assert len(np.unique(table.y[:100])) == table.n_classes


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(
    "make", [lambda: disc(0.3, 0, REFIT + 60), lambda: fraud(0, REFIT + 60)], ids=["disc", "fraud"]
)
def test_a_forecast_knows_earlier_rows_alone(name, make):
    """What comes from some row on is altered; the forecasts up to it stay, and some after it do not."""
    table, at = make(), REFIT - 20
    y = table.y.copy()
    y[at:] = 1 - y[at:]
    before, after = (ask(LEARNERS[name], one, 0).probabilities for one in (table, replace(table, y=y)))
    np.testing.assert_array_equal(before[: at + 1], after[: at + 1])
    assert not np.array_equal(before[REFIT:], after[REFIT:])


def test_the_calibration_error_is_the_distance_between_forecast_and_frequency():
    y = np.tile([0, 0, 0, 1], 15 * BINS)
    assert calibration_error(np.full(len(y), 0.25), y) == pytest.approx(0.0)
    assert calibration_error(np.full(len(y), 0.35), y) == pytest.approx(0.1)
    # A bin of its own for each forecast: errors of opposite signs do not cancel.
    sure = np.where(np.arange(len(y)) < len(y) * 8 // BINS, 0.05, 0.45)
    assert calibration_error(sure, y) == pytest.approx(0.2)


@pytest.mark.parametrize(("n_classes", "entropy"), [(2, math.log(2)), (26, 2.7)])
def test_nothing_is_lost_by_who_counts_labels_without_a_signal(n_classes, entropy):
    table, of_labels = noise(n_classes, 5, 0, 20_000)
    assert of_labels == pytest.approx(entropy, rel=0.05)
    said = frequencies(table, 0)
    loss = -np.log(said[np.arange(len(table.y)), table.y]).mean()
    assert loss == pytest.approx(of_labels, abs=0.02)


def test_a_learner_has_recovered_when_it_is_nearly_as_good_as_at_the_end_of_the_part():
    correct = np.ones(4000, bool)
    correct[2000:2600] = False
    run = Run(correct, 1.0)
    # A window of which a twentieth is wrong is good enough.
    assert run.recovery([2000]) == 600 - WINDOW // 20
    assert run.recovery([1000, 2000]) == (0 + 600 - WINDOW // 20) / 2
    assert math.isnan(run.recovery([]))


def test_a_stream_of_parts_changes_after_each_of_them():
    assert changes("SEA") == [10_000, 20_000, 30_000]
    assert changes("RBF") == changes("SEA, still") == []
    assert generator(["A -x"], 1) == "generators.A -x -i 4"
    nested = generator(["A", "B", "C"], 0, 800)
    last = "(ConceptDriftStream -s (generators.B -i 1) -d (generators.C -i 2) -p 200 -w 1)"
    assert nested == f"ConceptDriftStream -s (generators.A -i 0) -d {last} -p 200 -w 1"


def test_a_file_of_moa_is_a_table_of_numbers():
    head = "@relation r\n\n@attribute a numeric\n@attribute b {low,high}\n@attribute class {no,yes}\n\n@data\n\n"
    table = table_of("made", head + "1.5,high,yes,\n-2.0,low,no,\n")
    assert table.x.tolist() == [[1.5, 1.0], [-2.0, 0.0]]
    assert (table.y.tolist(), table.n_classes) == ([1, 0], 2)
