"""Online Mondrian forests for classification and regression.

State and forecasts are reproducible bit for bit: batch sizes, threads, saving and loading change nothing. Docstrings
refer to papers as [AMF], arXiv:1906.10529; [rates], arXiv:1711.02887; [BSP], arXiv:2003.00269; and [MF],
arXiv:1406.2673.
"""

from amf.calibration.losses import Losses
from amf.forests.adaptive import AdaptiveAMFClassifier, AdaptiveAMFRegressor
from amf.forests.amf import AMFClassifier, AMFRegressor
from amf.forests.bsp import BSPForestClassifier, BSPForestRegressor
from amf.forests.classifier import Forecasts, ForestClassifier
from amf.forests.description import Adaptation, Description
from amf.forests.group import Group, Sizes, predict_learn_many
from amf.forests.increasing_lifetime import IncreasingLifetimeForestClassifier, IncreasingLifetimeForestRegressor
from amf.forests.mondrian import MondrianForestClassifier, MondrianForestRegressor
from amf.forests.protocol import OnlineForest
from amf.forests.regressor import ForestRegressor, RegressionForecasts
from amf.forests.unrestricted import UnrestrictedAMFClassifier, UnrestrictedAMFClassifierParams
from amf.inputs.columns import Column, Columns
from amf.inputs.labels import Label, class_text
from amf.jit.cache import Compilation
from amf.kernels.attributions import Attributions
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
from amf.precompile import KernelCounts, compile_kernels
from amf.registry import SYSTEMS, dumps, loads
from amf.serialization.canonical import FormatError
from amf.state.forest_state import LostForestError

ENGINE = "amf-25"
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
    "Losses",
    "LostForestError",
    "MondrianForestClassifier",
    "MondrianForestClassifierParams",
    "MondrianForestRegressor",
    "MondrianForestRegressorParams",
    "OnlineForest",
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
