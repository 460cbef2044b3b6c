"""A new system is a file like this one and its entry in the registry: here a forest of plain Mondrian trees.

Its process has a fixed lifetime, nothing is averaged over prunings, and a tree forecasts the mean of the leaf: a
Mondrian forest as Lakshminarayanan, Roy and Teh (2014) begin with, on the statistics of the regressor that is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from trees import nodes_of, trees_of

import amf
from amf import registry
from amf.calibration.number_calibration import CALIBRATION
from amf.kernels.composition import tree_kernels
from amf.memory.arena import CHILD, TIME
from amf.params import AMFRegressorParams
from amf.serialization import canonical
from amf.statistics.number_means import NUMBER_MEANS

# The system.


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianParams(AMFRegressorParams):
    """lifetime: of the Mondrian process, in units of 1 / spread of the features."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}

    lifetime: float = 3.0
    split_pure: bool = True
    purity: float = 0.0
    calibration: bool = False


class MondrianRegressor(amf.AMFRegressor):
    """Trees that stop growing at a time, and forecast the mean of the leaf."""

    Parameters = MondrianParams
    family = "mondrian-regressor"
    _kernels = tree_kernels(NUMBER_MEANS, CALIBRATION, aggregates=False)

    @property
    def _lifetime(self) -> float:
        return self.params.lifetime


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    systems = {**registry.SYSTEMS, MondrianRegressor.family: MondrianRegressor}
    monkeypatch.setattr(registry, "SYSTEMS", systems)


# What it is held to.


def stream(n: int, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.random((n, d))
    return x, np.sin(6.0 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("lifetime", [0.5, 3.0, 20.0])
def test_no_node_splits_after_the_lifetime(lifetime):
    x, y = stream(800)
    forest = MondrianRegressor(3, lifetime=lifetime).partial_fit(x, y)
    for tree in range(3):
        heads, _ = nodes_of(forest, tree)
        times = heads.view(np.float64)[:, int(TIME)][heads[:, CHILD] > 0]
        assert times.size
        assert times.max() < lifetime
    longer = MondrianRegressor(3, lifetime=2.0 * lifetime).partial_fit(x, y)
    assert longer.n_nodes > forest.n_nodes


def test_a_forecast_is_the_mean_of_the_leaf():
    x, y = stream(600)
    forest = MondrianRegressor(4).partial_fit(x, y)
    origin, rows = forest._scaling.origin, stream(900)[0][600:]
    expected = np.zeros(len(rows))
    for number, tree in enumerate(trees_of(forest)):
        heads, _ = nodes_of(forest, number)
        labels = [[] for _ in heads]
        for sample, label in zip((x - origin).astype(np.float32), y, strict=True):
            labels[tree.path(sample)[-1]].append(label)
        leaves = [tree.path(row)[-1] for row in (rows - origin).astype(np.float32)]
        expected += [np.mean(labels[leaf]) for leaf in leaves]
    np.testing.assert_allclose(forest.predict(rows), expected / 4, rtol=1e-12)
    said = forest.attribute(rows)
    np.testing.assert_allclose(said.prior + said.features.sum(axis=1), expected / 4, rtol=1e-12)


def test_it_learns_and_goes_on_bit_for_bit():
    x, y = stream(900)
    forest = MondrianRegressor(5, lifetime=10.0, n_threads=2).partial_fit(x[:500], y[:500])
    assert np.mean((forest.predict(x[500:]) - y[500:]) ** 2) < 0.2 * np.var(y)
    resumed = registry.loads(forest.dumps())
    assert isinstance(resumed, MondrianRegressor)
    for row in range(500, 900):
        resumed.partial_fit(x[row : row + 1], y[row : row + 1])
    assert resumed.dumps() == forest.partial_fit(x[500:], y[500:]).dumps()
    with pytest.raises(canonical.FormatError, match="mondrian-regressor"):
        canonical.loads(forest.dumps(), {"amf-regressor": amf.AMFRegressor})
