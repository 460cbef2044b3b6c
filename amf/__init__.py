"""Aggregated Mondrian Forests: online learning with exact Bayesian averaging over prunings, reproducible to the bit."""

from amf.forest import AMFClassifier, Forecasts
from amf.labels import Label, class_text
from amf.params import AMFClassifierParams
from amf.serialize import FormatError, dumps, loads

ENGINE = "amf-1"
"""Version of the learner: forests of one engine are equal bit for bit. It changes whenever a bit of a forest would."""

__all__ = [
    "ENGINE",
    "AMFClassifier",
    "AMFClassifierParams",
    "Forecasts",
    "FormatError",
    "Label",
    "class_text",
    "dumps",
    "loads",
]
