"""How much each feature moved a probability, and the logarithm it follows from: one follows from the other.

Class k has probability q_k, and would have prior_k without a look at the sample. Trees move probabilities, and what
linear models add up are logarithms. Between two probabilities the one follows from the other by their logarithmic mean
L(a, b) = (a - b) / (log a - log b):

    q_k - prior_k = L_k (s_k - sum over l of L_l s_l / sum over l of L_l),    L_k = L(q_k, prior_k)

where the s_k are log q_k - log prior_k, or that and any number for all classes alike, since the q_k and the prior_k sum
to 1. That is linear in s: where s is a sum of what features add to it, q - prior is the sum of what each of them moves,
and nothing is left over (logarithmic mean Divisia index [1]).

[1] B. W. Ang, The LMDI approach to decomposition analysis: a practical guide, Energy Policy 33, 2005.
"""

from __future__ import annotations

from amf.jit.decorators import index, inlined
from amf.jit.elementary import log

_NEAR = 1e-4
"""Of a number, how far another one may be from it that the difference of their logarithms is taken for a series."""
_SMALLEST = 1e-200
"""Probabilities below it are 0 here, as what they move is."""


@inlined
def _logarithmic_mean(a, b):
    """Of two numbers that are not negative, 0 where one of them is none."""
    if not (a > _SMALLEST and b > _SMALLEST):
        return 0.0
    beside = (a - b) / b
    if abs(beside) < _NEAR:
        return b * (1.0 + beside * (0.5 - beside / 12.0))
    return (a - b) / (log(a) - log(b))


@inlined
def to_scores(moved, probabilities, prior, scores):
    """Fill scores (d, K) with what features add to the logarithms of probabilities (K,), each of which they moved by
    moved (d, K) from the prior (K,) on."""
    for k in range(index(prior.shape[0])):
        mean = _logarithmic_mean(probabilities[k], prior[k])
        for j in range(index(moved.shape[0])):
            scores[j, k] = moved[j, k] / mean if mean > 0.0 else 0.0


@inlined
def to_moves(scores, probabilities, prior, means):
    """Replace scores (d, K), what features add to the logarithms of probabilities (K,), by what they move these, from
    the prior (K,) on. means: (K,), to work in."""
    total = 0.0
    for k in range(index(prior.shape[0])):
        means[k] = _logarithmic_mean(probabilities[k], prior[k])
        total += means[k]
    for j in range(index(scores.shape[0])):
        of_all = 0.0
        for k in range(index(prior.shape[0])):
            of_all += means[k] * scores[j, k]
        for k in range(index(prior.shape[0])):
            scores[j, k] = means[k] * (scores[j, k] - of_all / total) if total > 0.0 else 0.0
