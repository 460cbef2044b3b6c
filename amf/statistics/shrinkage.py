"""What a node predicts from the labels it has seen: class counts shrunk towards a prior.

    forecast(k) = (count(k) + strength * prior(k)) / (n + strength)

Two priors. "parent" (the default): the forecast of the parent node, with strength = smoothing * distinct ** 2, where
`distinct` counts the different labels the node has seen: a node that has seen one class trusts itself more than one
whose labels disagree, as in Witten-Bell smoothing. "dirichlet": uniform, with strength = a * K, which is the forecaster
Dirichlet(a) of [AMF] (a = 1/2: Krichevsky-Trofimov, Eq. 5 with n of the node). Either way a forecast depends on the
node and its ancestors alone, so the averaging over prunings stays exact.
"""

from __future__ import annotations

from amf.jit.decorators import inlined

UNIFORM_SHARE = 1e-4
"""Share of the uniform distribution in a prior that is the parent's forecast."""


@inlined
def prior_strength(strength, distinct, inherit):
    """Weight of the prior at a node, in labels. inherit: whether the prior is the parent's forecast."""
    return strength * (distinct * distinct) if inherit else strength


@inlined
def class_forecast(count, prior, strength, scale):
    """Probability of one class at a node that counted it `count` times; scale = 1 / (n + strength)."""
    return (count + strength * prior) * scale
