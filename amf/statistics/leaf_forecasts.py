"""Forecasts of the leaves of trees that are cut up to a lifetime, which may increase with the samples.

Lifetimes are shown, not grown. Trees are cut without end, sample by sample, and forecasts see one down to the first
node that is cut at the lifetime or later, or that has seen too few labels. What a process of cuts draws within a
lifetime is what it draws within any longer one without the later cuts: so what is shown has the law of trees that are
drawn up to the lifetime, and whose leaves keep their samples to be cut again when it increases. A node has counted its
labels already when it becomes a leaf that is shown. What lies below such leaves are their samples, and where memory
ends they are forgotten as those of any other tree (forgetting.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from amf.geometry.boxes import varied
from amf.jit.decorators import index, inlined
from amf.jit.elementary import exp, log
from amf.memory.arena import COUNT, STATS, TIME
from amf.memory.binding import RULES
from amf.memory.paths import head_at
from amf.statistics.class_counts import halve, update
from amf.statistics.interface import Statistics, every_leaf
from amf.statistics.number_means import NUMBER_MEANS, mix

BY_FEATURES = -1.0
"""Stands for the exponent 1 / (2 + number of features in which samples differed)."""


@inlined
def rules_of(numbers):
    """(number of classes, factor and exponent of the lifetime, whether trees vote, whether an empty cell says what its
    parent does, labels below which a node is a leaf), of the words of a forest (binding.py) as float64."""
    return (
        index(numbers[RULES]),
        numbers[RULES + index(1)],
        numbers[RULES + index(2)],
        numbers[RULES + index(3)] != 0.0,
        numbers[RULES + index(4)] != 0.0,
        np.int64(numbers[RULES + index(5)]),
    )


# What forecasts see.


@inlined
def _lifetime_of(nodes, root, rules):
    """factor * n**exponent, of the n labels that the root has counted."""
    factor, exponent = rules[1], rules[2]
    if exponent < 0.0:
        low, half = root * nodes.width, nodes.width // index(2)
        exponent = 1.0 / (2.0 + varied(nodes.boxes, low, low + half, half))
    return factor * exp(exponent * log(np.float64(nodes.ints[root * nodes.words + COUNT])))


@inlined
def _hides(nodes, here, rules, lifetime):
    return nodes.reals[here // index(2) + TIME] >= lifetime or nodes.ints[here + COUNT] < rules[5]


# Classes.


@inlined
def _derive(nodes, path, rules, winners, scales):
    """The label that each node has seen most often, where trees vote; of several the first one. 1 / its labels."""
    n_classes, votes = rules[0], rules[3]
    for k in range(path.length):
        here = head_at(nodes, path, k)
        scales[k] = 1.0 / nodes.ints[here + COUNT]
        if votes:
            winner: Any = index(0)
            for label in range(index(1), n_classes):
                if nodes.ints[here + STATS + label] > nodes.ints[here + STATS + winner]:
                    winner = label
            winners[k] = winner


@inlined
def _predict(nodes, path, rules, winners, scales, stops, fresh, forecasts, tree, i):
    """Class probabilities: those of the leaf that is shown, or of the empty cell in it."""
    n_classes, leaf = rules[0], path.length - index(1)
    for label in range(n_classes):
        if path.length == index(0):
            forecasts[tree, i, label] = 1.0 / n_classes
        else:
            here = head_at(nodes, path, leaf)
            said = _forecast_of(nodes, here, rules, winners[leaf], scales[leaf], label, 0.0, leaf)
            forecasts[tree, i, label] = said if fresh[leaf] == 0.0 else _forecast_of_empty(rules, label, said)


@inlined
def _forecast_of(nodes, here, rules, winner, scale, label, above, k):
    """Probability that a node alone gives to a label."""
    if rules[3]:
        return 1.0 if winner == label else 0.0
    return nodes.ints[here + STATS + index(label)] * scale


@inlined
def _forecast_of_empty(rules, label, above):
    """Probability that an empty cell gives to a label. above: that of the cell above that is not."""
    if rules[4]:
        return above
    return 1.0 if label == index(0) else 0.0


# Numbers.


@inlined
def _predict_number(nodes, path, rules, means, variances, stops, fresh, forecasts, tree, i):
    """Mean and variance of a number at the leaf that is shown; all but which one it is is as in number_means.py."""
    mix(rules[4], path.length, means, variances, stops, fresh, forecasts, tree, i)


@inlined
def _number_of_empty(rules, value, above):
    """The mean that an empty cell gives. above: that of the cell above that is not."""
    return above if rules[4] else 0.0


LEAF_COUNTS = Statistics(
    rules_of=rules_of, derive=_derive, predict=_predict, update=update, halve=halve,
    forecast_of=_forecast_of, forecast_of_empty=_forecast_of_empty, hides=_hides, lifetime_of=_lifetime_of,
)  # fmt: skip
LEAF_MEANS = NUMBER_MEANS._replace(
    rules_of=rules_of, predict=_predict_number, may_split=every_leaf, forecast_of_empty=_number_of_empty,
    hides=_hides, lifetime_of=_lifetime_of,
)  # fmt: skip
