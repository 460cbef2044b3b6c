"""Unrestricted Aggregated Mondrian Forest on [0, 1]^d, classification."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from amf.forests.amf import AMFClassifier
from amf.forests.unit_cube import CubeForest
from amf.params import AMFClassifierParams
from amf.systems import unrestricted


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrestrictedAMFClassifierParams(AMFClassifierParams):
    """Everything that, with the samples, determines an unrestricted AMF classifier: AMFClassifierParams, of which

    those in FIXED have one value only: features are taken as they are, a leaf holds one point, and a forecast is always
    made in the tree extended by the sample. What is proven holds of forecasts that are not calibrated, so these are
    the default.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {"prior": "dirichlet", "dirichlet": 0.5, "charge_first": True},
    }

    FIXED: ClassVar[frozenset[str]] = frozenset({"scaling", "split_pure", "purity", "pause", "mode"})

    scaling: Literal["none"] = "none"
    split_pure: Literal[True] = True
    purity: float = 0.0
    calibration: bool = False
    pause: float = 1.0
    mode: Literal["expected"] = "expected"

    def __post_init__(self) -> None:
        super(UnrestrictedAMFClassifierParams, self).__post_init__()
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in self.FIXED and value != each.default:
                raise ValueError(f"{each.name} can only be {each.default!r} in an unrestricted forest, got {value!r}")


class UnrestrictedAMFClassifier(CubeForest[AMFClassifierParams], AMFClassifier):
    """Unrestricted Aggregated Mondrian Forest for classification on [0, 1]^d ([AMF] Alg. 1-3).

    The partition covers the cube and does not depend on the samples, so that what is proven of AMF holds to the letter:
    with charge_first=True the cumulative log-loss of a tree is minus the logarithm of its averaged weight, and so at
    most that of any pruning plus log 2 for each of its nodes that is no leaf of the tree. On most real data
    AMFClassifier predicts better. Numbers outside [0, 1] and missing ones raise ValueError, and all features have to be
    there from the first sample on.

    Parameters are the fields of UnrestrictedAMFClassifierParams, and `n_threads`: threads that share the trees; results
    do not depend on it.
    """

    Parameters: ClassVar[type[Any]] = UnrestrictedAMFClassifierParams
    family = "unrestricted-amf-classifier"
    _kernels = unrestricted.KERNELS
    in_unit_cube = True
