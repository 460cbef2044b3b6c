"""The arrays of a forest as kernels see them: views of the memory to which its words point (binding.py)."""

from __future__ import annotations

import numpy as np

from amf.adaptation.state import state_of_compiled
from amf.geometry.scaling import Features
from amf.jit.decorators import called, index, inlined
from amf.jit.vectors import LANES
from amf.memory.addresses import floats_at, ints_at, longs_at, reals_at, words_at
from amf.memory.arena import Nodes
from amf.memory.binding import (
    ADAPTATION,
    ADAPTIVE,
    BOX_WORDS,
    BOXES,
    CAPACITY,
    HEAD_WORDS,
    HEADS,
    HIGHEST,
    HULL_WORDS,
    HULLS,
    LAST,
    LOWEST,
    MOVES,
    N_ADAPTATION,
    N_FEATURES,
    N_LABELLED,
    N_TREES,
    ORIGIN,
    PAIR_WORDS,
    PAIRS,
    STRIDES,
    USED,
    WEIGHTS,
)

_LANES = index(LANES)


@inlined
def padded(n_features):
    """Words of a row as the trees see it (boxes.py)."""
    return (n_features + _LANES - index(1)) // _LANES * _LANES


@called
def features_of(words):
    """What is known of the features of a forest (scaling.py): views."""
    d, width = words[N_FEATURES], words[PAIR_WORDS]
    return Features(
        reals_at(words[ORIGIN], d),
        reals_at(words[LOWEST], d),
        reals_at(words[HIGHEST], d),
        reals_at(words[LAST], d),
        longs_at(words[MOVES], d),
        longs_at(words[STRIDES], d),
        reals_at(words[PAIRS], d * width).reshape((np.intp(d), np.intp(width))),
        floats_at(words[WEIGHTS], padded(d)),
        longs_at(words[N_LABELLED], index(1)),
        words[ADAPTIVE] != index(0),
    )


@called
def nodes_of(words):
    """The rows of all trees of a forest: views."""
    head, box = words[HEAD_WORDS], words[BOX_WORDS]
    reserved = words[N_TREES] * words[CAPACITY]
    return Nodes(
        ints_at(words[HEADS], reserved * head),
        floats_at(words[HEADS], reserved * head),
        reals_at(words[HEADS], reserved * head // index(2)),
        floats_at(words[BOXES], reserved * box + _LANES),
        ints_at(words[HULLS], reserved * words[HULL_WORDS]),
        words_at(words[USED], words[N_TREES]),
        head,
        box,
    )


@called
def adaptation_of(words):
    """The state of the adaptation: views."""
    flat = reals_at(words[ADAPTATION], words[N_ADAPTATION])
    return state_of_compiled(flat, np.intp(words[N_TREES]), np.intp(words[N_FEATURES]))


@inlined
def weigh(weights, learned, table, row):
    """Fill a row with the weights of features. learned: those that multiply them, none where nothing was learned."""
    for j in range(weights.shape[0]):
        table[row, j] = weights[j]
    for j in range(learned.shape[0]):
        table[row, j] = np.float32(learned[j] * np.float64(weights[j]))
