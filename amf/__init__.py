"""Online Mondrian forests for classification and regression.

State and forecasts are reproducible bit for bit: batch sizes, threads, saving and loading change nothing. Docstrings
refer to papers as [AMF], arXiv:1906.10529; [rates], arXiv:1711.02887; [BSP], arXiv:2003.00269; and [MF],
arXiv:1406.2673.
"""

from amf._cache import Compilation
from amf.adaptive import AdaptiveAMFClassifier, AdaptiveAMFRegressor
from amf.attributions import Attributions
from amf.bsp import BSPForestClassifier, BSPForestRegressor
from amf.classifier import AMFClassifier, Forecasts, ForestClassifier
from amf.explain import Adaptation, Description
from amf.features import Column, Columns
from amf.increasing_lifetime import IncreasingLifetimeForestClassifier, IncreasingLifetimeForestRegressor
from amf.kernels import KernelCounts, compile_kernels
from amf.labels import Label, class_text
from amf.learner import Learner
from amf.losses import Losses
from amf.many import Group, Sizes, predict_learn_many
from amf.mondrian import MondrianForestClassifier, MondrianForestRegressor
from amf.params import (
    AdaptiveAMFClassifierParams,
    AdaptiveAMFRegressorParams,
    AMFClassifierParams,
    AMFRegressorParams,
    ForestParams,
)
from amf.partition_params import (
    BSPForestClassifierParams,
    BSPForestRegressorParams,
    IncreasingLifetimeForestClassifierParams,
    IncreasingLifetimeForestRegressorParams,
    MondrianForestClassifierParams,
    MondrianForestRegressorParams,
)
from amf.registry import SYSTEMS, loads
from amf.regressor import AMFRegressor, ForestRegressor, RegressionForecasts
from amf.serialize import FormatError, dumps
from amf.state import LostForestError
from amf.unrestricted import UnrestrictedAMFClassifier, UnrestrictedAMFClassifierParams

ENGINE = "amf-12"
"""Version of the learner: forests of one engine are equal bit for bit. It changes whenever a bit of a forest would."""

__all__ = [
    "ENGINE",
    "SYSTEMS",
    "AMFClassifier",
    "AMFClassifierParams",
    "AMFRegressor",
    "AMFRegressorParams",
    "Adaptation",
    "AdaptiveAMFClassifier",
    "AdaptiveAMFClassifierParams",
    "AdaptiveAMFRegressor",
    "AdaptiveAMFRegressorParams",
    "Attributions",
    "BSPForestClassifier",
    "BSPForestClassifierParams",
    "BSPForestRegressor",
    "BSPForestRegressorParams",
    "Column",
    "Columns",
    "Compilation",
    "Description",
    "Forecasts",
    "ForestClassifier",
    "ForestParams",
    "ForestRegressor",
    "FormatError",
    "Group",
    "IncreasingLifetimeForestClassifier",
    "IncreasingLifetimeForestClassifierParams",
    "IncreasingLifetimeForestRegressor",
    "IncreasingLifetimeForestRegressorParams",
    "KernelCounts",
    "Label",
    "Learner",
    "Losses",
    "LostForestError",
    "MondrianForestClassifier",
    "MondrianForestClassifierParams",
    "MondrianForestRegressor",
    "MondrianForestRegressorParams",
    "RegressionForecasts",
    "Sizes",
    "UnrestrictedAMFClassifier",
    "UnrestrictedAMFClassifierParams",
    "class_text",
    "compile_kernels",
    "dumps",
    "loads",
    "predict_learn_many",
]
