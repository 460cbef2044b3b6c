"""Which class comes after which: of labels that stick or come in turns the last one tells what no feature does.

A table counts for each class which ones came after it. By Bayes' rule, as if the last label and the features told of
the next label independently of one another,

    forecast(k) ~ below(k) * after(k) / prior(k)

where `below` is the forecast that knows nothing of the last label, `prior` are the class frequencies so far, and
`after` those of the labels that came after one of the last label's class, with half a label for each class that is
divided as the prior is. A class that was never counted keeps what it has below.

state, of K classes: float64 (1 + K^2,), nothing where there are more than 32: the number of the last label and 1, or 0
before there is one; how many labels of class k came after one of class j, at 1 + j K + k, of which each further label
after one of class j takes away the thousandth part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amf.jit.decorators import index, inlined

MOST_CLASSES = 32
"""More would need more memory than their forecasts do in a small forest."""
_KEPT = 1.0 - 1e-3
"""What is left of the counts after a class at the next label after it."""
_OF_PRIOR = 0.5
"""Labels for each class that are divided as the prior is."""
_MOST_COUNTED = 1.1 / (1.0 - _KEPT)


def n_numbers(n_classes: int) -> int:
    """Of the state of so many classes."""
    return 1 + n_classes * n_classes if n_classes <= MOST_CLASSES else 0


def with_another_class(state: NDArray[np.float64], n_classes: int) -> NDArray[np.float64]:
    """State with one more class, which came after none yet."""
    grown = np.zeros(n_numbers(n_classes + 1))
    if grown.size:
        grown[0] = state[0]
        table = grown[1:].reshape(n_classes + 1, n_classes + 1)
        table[:n_classes, :n_classes] = state[1:].reshape(n_classes, n_classes)
    return grown


def is_sound(state: NDArray[np.float64], n_classes: int) -> bool:
    """Whether labels could have left this state, be it empty."""
    if not state.size:
        return True
    last, *counts = state.tolist()
    return last in range(n_classes + 1) and all(0.0 <= count <= _MOST_COUNTED for count in counts)


@inlined
def size_of(n_classes):
    """Of the state of so many classes, as `n_numbers`."""
    return index(1) + n_classes * n_classes if n_classes <= MOST_CLASSES else index(0)


@inlined
def succeed(below, prior, counted, of_counted, state, succeeded):
    """Fill succeeded (K,): the forecast `below` (K,) with what the last label tells.

    counted: bool (K,), which classes were counted, of_counted: what those have together.
    """
    n_classes, total = index(below.shape[0]), 0.0
    for k in range(n_classes):
        succeeded[k] = below[k]
    if state.shape[0] == 0 or state[0] == 0.0:
        return
    row = index(1) + index(state[0] - 1.0) * n_classes
    for k in range(n_classes):
        if counted[k]:
            succeeded[k] *= state[row + k] / prior[k] + _OF_PRIOR * n_classes
            total += succeeded[k]
    factor = of_counted / total if total > 0.0 else 1.0
    for k in range(n_classes):
        if counted[k]:
            succeeded[k] *= factor


@inlined
def follow_label(label, n_classes, state):
    """Count one label after the last one."""
    if state.shape[0] == 0:
        return
    if state[0] > 0.0:
        row = index(1) + index(state[0] - 1.0) * n_classes
        for k in range(n_classes):
            state[row + k] *= _KEPT
        state[row + label] += 1.0
    state[0] = label + 1.0
