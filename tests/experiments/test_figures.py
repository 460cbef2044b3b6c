"""The experiments at a size at which they take seconds."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from tests.datasets import load
from tests.experiments import (
    common,
    complexity,
    figure1_rates,
    figure3_bsp,
    figure4_bsp,
    figure5_bsp,
    figure8_amf,
    figure9_amf,
    figure10_amf,
    figure11_amf,
    figure12_amf,
)
from tests.experiments.__main__ import EXPERIMENTS

FOLDER = Path(__file__).parent
TINY = {"sizes": (30, 120), "n_trees": 5, "n_test": 200}


def two_classes():
    """500 rows, of which 8 % have changed sides, by three features and two of noise."""
    rng = np.random.default_rng(0)
    x = rng.random((500, 5))
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0.75).astype(np.int64)
    return x, np.where(rng.random(500) < 0.08, 1 - y, y)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_command_a_picture_and_a_chapter(name):
    module = name.replace("-", "_")
    assert callable(import_module(f"tests.experiments.{module}").main)
    assert 10_000 < (FOLDER / f"{module}.png").stat().st_size < 150_000
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"## {name}" in text
    assert f"({module}.png)" in text


def test_of_figure_8_amf_alone_is_deeper_where_the_signal_is_rough():
    found = figure8_amf.seen("bumps", 0, n_trees=10, n_samples=1000)
    rough = figure8_amf.roughness("bumps")
    deeper = {kind: figure8_amf.contrast(of.depth, rough) for kind, of in found.items()}
    assert deeper["AMF"] > 2.0 + max(deeper["Mondrian"], 0.0)
    truth = figure8_amf.signal("bumps", figure8_amf.GRID)
    assert common.rmse(found["AMF"].said, truth) < 0.5 * truth.std()


@pytest.mark.parametrize("name", figure8_amf.SIGNALS)
def test_signals_of_figure_8_reach_from_0_to_1(name):
    values = figure8_amf.signal(name, figure8_amf.GRID)
    assert (values.min(), values.max()) == pytest.approx((0.0, 1.0))


def test_contrast_is_the_depth_of_rough_places_less_that_of_smooth_ones():
    rough = np.array([0.0, 5.0, 1.0, 2.0, 3.0, 0.0, 0.5, 4.0, 1.5, 1.2])
    assert figure8_amf.contrast(10.0 * (rough >= 4.0) + 1.0 * (rough < 1.3), rough) == pytest.approx(10.0 - 1.0)


def test_of_figure_9_amf_is_smoother_and_loses_less_than_a_random_forest():
    own, batch = (figure9_amf.figures(name, "moons", 0, n_trees=10) for name in ("AMF, our defaults", "random forest"))
    assert own[0] < batch[0]
    assert own[1] < 0.9 * batch[1]


def test_variation_counts_the_way_up_and_down():
    step = np.repeat([[0.0, 1.0]], 4, axis=0)
    assert figure9_amf.variation(step) == 0.5  # 1 along each row, none along the columns
    assert figure9_amf.variation(np.zeros((3, 3))) == 0.0


@pytest.mark.parametrize("n_classes", [2, 4])
def test_sgd_of_figure_10_is_that_of_scikit_learn(n_classes):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 5)), rng.integers(0, n_classes, 60)
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, alpha=1e-4)
    said = figure10_amf.sgd(x, y, n_classes)
    for row in range(60):
        if row:
            assert said[row] == pytest.approx(model.predict_proba(x[row : row + 1])[0], abs=1e-12)
        model.partial_fit(x[row : row + 1], y[row : row + 1], classes=np.arange(n_classes))


def test_of_figure_10_every_learner_but_the_dummy_beats_the_dummy_and_amf_the_path_mean():
    found = {name: charges.mean() for name, charges in figure10_amf.losses(*two_classes(), range(2)).items()}
    assert found["AMF, as its package"] < found["Mondrian, path_mean"]
    assert max(found["AMF, as its package"], found["AMF, our defaults"], found["SGD"]) < found["Dummy"]


def test_of_figure_11_online_forests_improve_and_batch_forests_stay():
    places, found = figure11_amf.areas(0, *two_classes())
    assert places[0] == figure11_amf.FIRST
    assert places[-1] == 350
    assert {*found} == {*common.CLASSIFIERS, "SGD", *figure11_amf.BATCH}
    for name in figure11_amf.BATCH:
        assert np.ptp(found[name]) == 0.0
    assert all(0.75 < areas[-1] <= 1.0 for areas in found.values()), found


def test_of_figure_12_more_trees_are_better():
    found = figure12_amf.areas(0, *two_classes(), trees=(1, 30))
    for name, (one, many) in found.items():
        assert 0.6 < one < many, name


def test_of_figure_1_what_has_a_fixed_lifetime_alone_stops_to_learn():
    rng = np.random.default_rng(0)
    x = rng.random((1200, 2)) * [1.0, 1000.0]
    y = 2 * (x[:, 0] > 0.6) + (x[:, 1] > 300.0)
    found = figure1_rates.accuracies(0, x, y, n_trees=10)
    assert list(found) == [*figure1_rates.ONLINE, *figure1_rates.BATCH]
    increasing, fixed = figure1_rates.ONLINE
    assert 0.5 < found.pop(fixed)[-1] < found[increasing][-1] - 0.1
    for name, shares in found.items():
        assert len(shares) == len(figure1_rates.TENTHS)
        assert shares[0] < shares[-1], name
        assert shares[-1] > 0.9, name


def test_every_forest_of_figure_3_learns_digits_from_their_components():
    x, y = load("digits")
    x = figure3_bsp.reduced(x)
    assert x.shape == (1797, figure3_bsp.N_COMPONENTS)
    assert (x.min(), x.max()) == pytest.approx((0.0, 1.0))
    found = figure3_bsp.accuracies(0, x[:900], y[:900], shares=(0.1, 0.8), n_trees=10)
    for name, (few, many) in found.items():
        assert 0.3 < few < many, name


def test_every_forest_of_figure_4_learns_the_friedman_function():
    found = figure4_bsp.errors(0, **TINY)
    assert list(found) == [*figure4_bsp.ONLINE, *figure4_bsp.BATCH]
    rng = np.random.default_rng(0)
    knows_nothing = common.friedman(rng.random((1000, 5))).std()
    for name, errors in found.items():
        assert errors[1] < min(errors[0], 0.9 * knows_nothing), name


def test_figure_4_has_features_of_noise_from_the_sixth_on():
    rng = np.random.default_rng(0)
    x = rng.random((50, 10))
    assert common.friedman(x).tolist() == common.friedman(x[:, :5]).tolist()
    assert all(np.isfinite(errors).all() for errors in figure4_bsp.errors(0, d=10, **TINY).values())


@pytest.mark.parametrize("kind", figure5_bsp.KINDS)
def test_of_figure_5_a_larger_budget_cuts_more_and_more_samples_help(kind):
    coarse, fine = (figure5_bsp.cut(kind, 0, 1000, budget, n_trees=5) for budget in (0.2, 1.0))
    assert 1.0 <= coarse.leaves < fine.leaves
    assert fine.error < coarse.error
    assert figure5_bsp.cut(kind, 0, 100, 1.0, n_trees=5).error > fine.error
    assert figure5_bsp.cut(kind, 0, 1000, 1e-9, n_trees=5).leaves == 1.0


def test_complexity_stops_a_system_whose_nodes_grow_too_large(monkeypatch):
    every = complexity.costs("AMF", 1, (64, 256, 1024), 5)
    assert len(every) == 3
    assert all(cost.learn > 0.0 and cost.predict > 0.0 for cost in every)
    assert every[0].nbytes < every[-1].nbytes
    monkeypatch.setattr(complexity, "MOST_BYTES", 4 * every[1].nbytes - 1)
    assert len(complexity.costs("AMF", 1, (64, 256, 1024), 5)) == 2


def test_what_is_said_of_repetitions():
    mean, error = common.summary(np.array([[1.0, 5.0], [3.0, 5.0]]))
    assert mean.tolist() == [2.0, 5.0]
    assert error == pytest.approx([1.96, 0.0])
    assert common.with_errors(np.array([[1.0, 5.0], [3.0, 5.0]])) == ["2.000 +- 1.960", "5.000 +- 0.000"]


def test_an_impossible_label_is_charged_the_least_probability():
    charged = common.log_losses(np.array([[1.0, 0.0], [0.25, 0.75]]), np.array([1, 1]))
    assert charged == pytest.approx([-np.log(common.LEAST_PROBABILITY), -np.log(0.75)])


def test_a_table_is_markdown(capsys):
    common.show("title", "corner", (1, 2), {"row": ["a", "b"]})
    assert capsys.readouterr().out == "\ntitle\n\n| corner | 1 | 2 |\n|---|---|---|\n| row | a | b |\n"
