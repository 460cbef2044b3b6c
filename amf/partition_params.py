"""Parameters of the forests whose forecasts are those of one partition: [rates], [BSP] and [MF]. See params.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from amf.inputs.labels import Label
from amf.params import ForestParams, check, check_choice, check_flags, check_number, check_whole, checked_classes


def _check_schedule(lifetime: float, exponent: float | None) -> None:
    """Raise ValueError unless lifetime * n**exponent is a lifetime after any number n of labels."""
    check_number("lifetime", lifetime, 1e-30, 1e30)
    if exponent is not None:
        check_number("lifetime_exponent", exponent, 0.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianParams(ForestParams):
    """What the original Mondrian forests have in common: ForestParams and

    lifetime: of the Mondrian process, in units of 1 / spread of the features, > 0; None: it never ends.
    min_samples_split: a node that has seen fewer labels is a leaf, >= 1.
    split_pure: whether a node is split whose labels all agree; else it is a leaf until another label comes.
    """

    lifetime: float | None = None
    min_samples_split: int = 2
    split_pure: bool = False

    def __post_init__(self) -> None:
        super(MondrianParams, self).__post_init__()
        if self.lifetime is not None:
            check_number("lifetime", self.lifetime, 1e-30, 1e30)
        check_whole("min_samples_split", self.min_samples_split, 1, 2**31 - 1)
        check_flags(self, "split_pure")


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianForestClassifierParams(MondrianParams):
    """Everything that, with the samples, determines an original Mondrian forest classifier: MondrianParams and

    classes: all labels in the order of the columns, where they are known; None: as they appear.
    max_classes: more than these raise ValueError.
    smoothing: "ikn" smooths the labels of a node hierarchically, towards its ancestors, by interpolated Kneser-Ney;
        "path_mean" takes the plain frequencies of the nodes at which the sample could branch off.
    discount: with smoothing="ikn" how fast a node forgets its parent with its age, > 0: the gamma of [MF]. None: 10
        times the number of features in which samples differed.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "paper": {"scaling": "none", "calibration": False}}

    classes: tuple[Label, ...] | None = None
    smoothing: Literal["ikn", "path_mean"] = "ikn"
    discount: float | None = None
    max_classes: int = 1000

    def __post_init__(self) -> None:
        super(MondrianForestClassifierParams, self).__post_init__()
        check_choice("smoothing", self.smoothing, ("ikn", "path_mean"))
        if self.discount is not None:
            check_number("discount", self.discount, 1e-9, 1e9)
            check(self.smoothing == "ikn", "discount needs smoothing='ikn'")
        object.__setattr__(self, "classes", checked_classes(self.classes, self.max_classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class MondrianForestRegressorParams(MondrianParams):
    """Everything that, with the samples, determines an original Mondrian forest regressor: MondrianParams."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "paper": {"scaling": "none", "calibration": False}}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncreasingLifetimeParams(ForestParams):
    """What the Mondrian forests with increasing lifetime have in common: ForestParams and

    lifetime: of the Mondrian process after the first label, in units of 1 / spread of the features, > 0. After n labels
        it is lifetime * n**lifetime_exponent.
    lifetime_exponent: from 0, with which it does not increase, to 10. None: 1 / (d + 2), with which forecasts come as
        fast to the truth as any can, where that is a Lipschitz function; d is the number of features in which samples
        differed, on the cube of all.
    domain: "range" splits trees within the ranges of their samples, as the experiments of [rates] do; "cube" all of
        [0, 1]^d, as its theorems do: then features have to be numbers from 0 to 1, all there from the first sample on,
        and are taken as they are, whatever `scaling` says.
    empty_cells: of the cube, which have no samples: "parent" lets them say what the smallest cell around them does that
        has some, "zero" the first class, or 0.
    """

    lifetime: float = 1.0
    lifetime_exponent: float | None = None
    domain: Literal["range", "cube"] = "range"
    empty_cells: Literal["parent", "zero"] = "parent"

    def __post_init__(self) -> None:
        super(IncreasingLifetimeParams, self).__post_init__()
        _check_schedule(self.lifetime, self.lifetime_exponent)
        check_choice("domain", self.domain, ("range", "cube"))
        check_choice("empty_cells", self.empty_cells, ("parent", "zero"))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncreasingLifetimeForestClassifierParams(IncreasingLifetimeParams):
    """Everything that, with the samples, determines such a classifier: IncreasingLifetimeParams and

    classes: all labels in the order of the columns, where they are known; None: as they appear.
    max_classes: more than these raise ValueError.
    combine: "average" takes the class frequencies of the leaf in each tree, and their mean over trees; "vote" the
        label that the leaf has seen most often, and the share of the trees that say so ([rates] Alg. 4).
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {"scaling": "none", "calibration": False, "combine": "vote", "empty_cells": "zero"},
    }

    classes: tuple[Label, ...] | None = None
    combine: Literal["average", "vote"] = "average"
    max_classes: int = 1000

    def __post_init__(self) -> None:
        super(IncreasingLifetimeForestClassifierParams, self).__post_init__()
        check_choice("combine", self.combine, ("average", "vote"))
        object.__setattr__(self, "classes", checked_classes(self.classes, self.max_classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncreasingLifetimeForestRegressorParams(IncreasingLifetimeParams):
    """Everything that, with the samples, determines such a regressor: IncreasingLifetimeParams."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {"scaling": "none", "calibration": False, "empty_cells": "zero"},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BSPParams(ForestParams):
    """What the BSP forests have in common: ForestParams and

    lifetime: the budget of a tree's cuts after the first label, > 0. After n labels it is
        lifetime * n**lifetime_exponent.
    lifetime_exponent: from 0, with which it does not increase, to 10. None: 1 / (d + 2), as in [BSP]; d is the number
        of features in which samples differed.
    rate_scale: of a node whose hulls have the perimeters L the rate of cuts is rate_scale * L, > 0; [BSP] has 1 in its
        algorithms and 0.5 in its experiments.
    min_samples_split: a node that has seen fewer labels is a leaf, >= 1.
    max_features: at most 20, since nodes have a hull for each pair of features: of more columns leave those out that
        tell little, or reduce them to a few by principal components (PCA).

    A pair of features of which a sample lacks one says nothing of that sample, and a feature alone counts only while no
    sample has shown two: where samples seldom have two features at once trees hardly grow. Fill such gaps, or take
    another algorithm.
    """

    MOST_FEATURES: ClassVar[int] = 20
    WHY_SO_FEW: ClassVar[str] = (
        "a BSP forest takes 20 features at most, since nodes have a hull for each pair of them; leave columns out that "
        "tell little, reduce them to a few by principal components (PCA), or take another algorithm"
    )

    lifetime: float = 1.0
    lifetime_exponent: float | None = None
    rate_scale: float = 0.5
    min_samples_split: int = 4
    max_features: int = MOST_FEATURES

    def __post_init__(self) -> None:
        super(BSPParams, self).__post_init__()
        _check_schedule(self.lifetime, self.lifetime_exponent)
        check_number("rate_scale", self.rate_scale, 1e-9, 1e9)
        check_whole("min_samples_split", self.min_samples_split, 1, 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BSPForestClassifierParams(BSPParams):
    """Everything that, with the samples, determines a BSP forest classifier: BSPParams and

    classes: all labels in the order of the columns, where they are known; None: as they appear.
    max_classes: more than these raise ValueError.
    combine: "average" takes the class frequencies of the leaf in each tree, and their mean over trees; "vote" the
        label that the leaf has seen most often, and the share of the trees that say so.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {"scaling": "none", "calibration": False, "combine": "vote"},
    }

    classes: tuple[Label, ...] | None = None
    combine: Literal["average", "vote"] = "average"
    max_classes: int = 1000

    def __post_init__(self) -> None:
        super(BSPForestClassifierParams, self).__post_init__()
        check_choice("combine", self.combine, ("average", "vote"))
        object.__setattr__(self, "classes", checked_classes(self.classes, self.max_classes))


@dataclass(frozen=True, slots=True, kw_only=True)
class BSPForestRegressorParams(BSPParams):
    """Everything that, with the samples, determines a BSP forest regressor: BSPParams."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "paper": {"scaling": "none", "calibration": False}}
