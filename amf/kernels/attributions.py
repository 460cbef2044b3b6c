"""What each feature moved a forecast, split by split on the way of the sample: exact, and as cheap as the forecast.

Let E_k be the forecast of the node at depth k of the path by itself, and q_k the probability of stopping there, given
that it is reached. The average over all prunings is A_k = q_k E_k + (1 - q_k) A_(k+1) from a node on, and A = E at the
leaf ([AMF] Eq. 21-27). Written from the root on, that is

    A_0 = E_0 + sum over k >= 1 of reach_k * (E_k - E_(k-1)),    reach_k = product over j < k of (1 - q_j)

so the split by which the sample comes from node k-1 to node k moves the forecast by reach_k * (E_k - E_(k-1)), and that
is given to the feature of the split. What is left is the forecast of the root, which knows nothing of the sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from amf.adaptation.state import SILENT
from amf.geometry.interface import Geometry
from amf.geometry.samples import Sample
from amf.geometry.scaling import centre
from amf.jit.decorators import called, index, inlined
from amf.kernels.aggregation import fill_stopping
from amf.kernels.modes import EXISTING, share_out
from amf.kernels.walk import DEPTH, LANES
from amf.memory.arena import FEATURE
from amf.memory.paths import Path, head_at, scratch_of, upper_part
from amf.statistics.interface import Statistics, make_shown


class Attributions(NamedTuple):
    """What a forest publishes, and what each feature moved of it: forecasts = prior + sum of `features` over d +
    unexplained, up to rounding.

    A classifier says K numbers of a row, one for each class in the order of `classes_`. A regressor says one, and K is
    left out of the shapes.
    """

    forecasts: NDArray[np.float64]
    """(n, K), what `predict_proba`, or `predict`, says."""
    prior: NDArray[np.float64]
    """(n, K), what the roots say, mean over trees: the same in each row."""
    features: NDArray[np.float64]
    """(n, d, K), what each feature adds: splits on it, mean over trees, and all that calibration makes of these and of
    the feature itself. Over the classes it sums to 0."""
    unexplained: NDArray[np.float64]
    """(n, K), what follows from no feature: from the labels of late, biases and bounds of the calibration, and from the
    mode, since trees are taken as they are. Without calibration, in mode "existing", it is 0."""


def make_way(*, aggregates: bool) -> Any:
    """The way through a tree as it is, for kernels. aggregates: whether it is averaged over prunings."""

    @inlined
    def way(trees, tree, path, numbers, sample, cell):
        """Fill the shares (modes.py) of the nodes of a path, of which there is one at least, that are shown.

        Returns (nodes that have a share, feature of the cut above the empty leaf: there is none). tree, sample, cell:
        float32 (2 d,), used up, for ways that extend the tree for the moment.
        """
        fill_stopping(aggregates, False, trees.nodes, path, numbers)
        share_out(EXISTING, 0.0, trees.nodes, path, path.length, numbers)
        return path.length, index(0)

    return way


@inlined
def _reach(length, stops, fresh, reaches):
    """Fill `reaches` with the probability that a pruning goes as far as each node: the shares of all below it."""
    reach = 0.0
    for j in range(length):
        k = length - index(1) - j
        reach += stops[k] + fresh[k]
        reaches[k] = reach


@called
def _divide(n_trees, sums):
    for place in range(index(sums.shape[0])):
        sums[place] /= n_trees


@inlined
def n_forecasting(n_trees, roles):
    """How many trees forecast. roles: of the trees in a forest that adapts (tree_roles.py), else empty."""
    n = n_trees
    for tree in range(index(roles.shape[0])):
        n -= index(roles[tree] == SILENT)
    return n


@called
def find_unexplained(found):
    """Fill `unexplained` with what is left of the forecasts of `found`."""
    n, d, n_said = found.features.shape
    for i in range(n):
        for k in range(n_said):
            rest = found.forecasts[i, k] - found.prior[i, k]
            for j in range(d):
                rest -= found.features[i, j, k]
            found.unexplained[i, k] = rest


def _make_move(statistics: Statistics) -> Any:
    """The function that adds what one tree says to the attributions, for kernels."""
    forecast_of, forecast_of_empty = statistics.forecast_of, statistics.forecast_of_empty

    @inlined
    def move(trees, path, numbers, reaches, feature, said, i, found):
        """Add what one tree says at its root to the prior of row i, and what each step down its path moves.

        said: float64 (K,), used up. feature: of the cut above the empty leaf at the end of the path.
        """
        nodes, rules, first, second = trees.nodes, trees.rules, numbers.first, numbers.second
        for k in range(path.length):
            here, by = head_at(nodes, path, k), index(0)
            if k > index(0):
                by = index(nodes.ints[head_at(nodes, path, k - index(1)) + FEATURE])
            for value in range(index(said.shape[0])):
                above = said[value]
                said[value] = forecast_of(nodes, here, rules, first[k], second[k], value, above, k)
                if k > index(0):
                    found.features[i, by, value] += reaches[k] * (said[value] - above)
                else:
                    found.prior[i, value] += said[value]
        empty = numbers.fresh[path.length - index(1)]
        if empty > 0.0:
            for value in range(index(said.shape[0])):
                moved = forecast_of_empty(rules, value, said[value]) - said[value]
                found.features[i, feature, value] += empty * moved

    return move


def _make_ask(statistics: Statistics, way: Any) -> Any:
    """The function that adds a row's way through one tree to the attributions, for kernels."""
    derive, predict, shown, move = statistics.derive, statistics.predict, make_shown(statistics), _make_move(statistics)

    @inlined
    def ask(trees, tree, path, numbers, sample, cell, said, forecasts, place, i, found):
        """cell, said: used up. place: of the tree among those that forecast."""
        nodes, rules, feature = trees.nodes, trees.rules, index(0)
        path = upper_part(path, shown(nodes, path, rules))
        derive(nodes, path, rules, numbers.first, numbers.second)
        if path.length > index(0):
            length, feature = way(trees, tree, path, numbers, sample, cell)
            path = upper_part(path, length)
            _reach(length, numbers.stops, numbers.fresh, numbers.given)
            move(trees, path, numbers, numbers.given, feature, said, i, found)
        predict(nodes, path, rules, numbers.first, numbers.second, numbers.stops, numbers.fresh, forecasts, place, i)
        if path.length == index(0):
            for value in range(index(said.shape[0])):
                found.prior[i, value] += forecasts[place, i, value]

    return ask


def _make_ask_trees(statistics: Statistics, way: Any, geometry: Geometry) -> Any:
    """The function that adds a row's way through some trees to the attributions, for kernels."""
    descend, ask = geometry.descend, _make_ask(statistics, way)

    @inlined
    def ask_trees(trees, first_tree, lanes, row, n_features, roles, scratch, cell, said, forecasts, i, found):
        """Whether there was room for the paths: else nothing has happened. row: float32, as the trees see it."""
        sample = Sample(row, index(0), n_features)
        if not descend(trees.nodes, first_tree, lanes, sample, False, scratch):
            return False
        for lane in range(lanes):
            tree = first_tree + lane
            if index(roles.shape[0]) == index(0) or roles[tree] != SILENT:
                path = Path(scratch.rows, lane * scratch.depth, scratch.lengths[lane])
                place = n_forecasting(tree, roles[:tree])
                ask(trees, tree, path, scratch.numbers, sample, cell, said, forecasts, place, i, found)
        return True

    return ask_trees


def make_attributions(statistics: Statistics, way: Any, geometry: Geometry) -> Any:
    """The attributions for one kind of statistics and of trees, a function for kernels.

    way: fills the shares of a path, as that of `make_way` does in a tree as it is.
    """
    ask_trees = _make_ask_trees(statistics, way, geometry)

    @called
    def attribute(trees, origin, x, stride, roles, forecasts, found):
        """Fill the prior and the features of `found`, which are all 0 before, and what trees say.

        x: float64 (n, d), NaN where missing; stride: padded(d). roles: of the trees in a forest that adapts
        (tree_roles.py), else empty. forecasts: float64 (n_trees, n, numbers that a tree says), those of the trees that
        forecast come first. Rows know nothing of each other, and trees are always added in their order.
        """
        n_trees, n_features, scratch = index(trees.nodes.used.shape[0]), index(x.shape[1]), scratch_of(LANES, DEPTH)
        n_asked = n_forecasting(n_trees, roles)
        rows, cell = np.empty((1, np.intp(stride)), np.float32), np.empty(index(2) * n_features, np.float32)
        row, said = rows.reshape(-1), np.empty(found.prior.shape[1])
        for i in range(index(x.shape[0])):
            centre(x, i, i + index(1), origin, rows, index(0))
            for block in range(index(0), n_trees, LANES):
                lanes = min(LANES, n_trees - block)
                while not ask_trees(
                    trees, block, lanes, row, n_features, roles, scratch, cell, said, forecasts, i, found
                ):
                    scratch = scratch_of(LANES, index(2) * scratch.depth)
            _divide(n_asked, found.prior[i])
            _divide(n_asked, found.features[i].reshape(-1))

    return attribute
