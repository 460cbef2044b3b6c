"""Aggregated Mondrian Forests: online learning with exact Bayesian averaging over prunings, reproducible to the bit."""

from amf.attributions import Attributions
from amf.classifier import AMFClassifier, Forecasts
from amf.explain import Description
from amf.features import Column, Columns
from amf.forest import LostForestError
from amf.kernels import compile_kernels
from amf.labels import Label, class_text
from amf.learner import Learner
from amf.losses import Losses
from amf.many import ManyForecasts, predict_learn_many
from amf.params import AMFClassifierParams, AMFRegressorParams, ForestParams
from amf.registry import SYSTEMS, loads
from amf.regressor import AMFRegressor, RegressionForecasts
from amf.serialize import FormatError, dumps
from amf.unrestricted import UnrestrictedAMFClassifier, UnrestrictedAMFClassifierParams

ENGINE = "amf-2"
"""Version of the learner: forests of one engine are equal bit for bit. It changes whenever a bit of a forest would."""

__all__ = [
    "ENGINE",
    "SYSTEMS",
    "AMFClassifier",
    "AMFClassifierParams",
    "AMFRegressor",
    "AMFRegressorParams",
    "Attributions",
    "Column",
    "Columns",
    "Description",
    "Forecasts",
    "ForestParams",
    "FormatError",
    "Label",
    "Learner",
    "Losses",
    "LostForestError",
    "ManyForecasts",
    "RegressionForecasts",
    "UnrestrictedAMFClassifier",
    "UnrestrictedAMFClassifierParams",
    "class_text",
    "compile_kernels",
    "dumps",
    "loads",
    "predict_learn_many",
]
