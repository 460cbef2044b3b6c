"""Parameters of the forests: frozen, validated once, part of the bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal, Self, get_args

from amf.inputs.labels import Label, class_text, require_finite, scalars
from amf.inputs.scalars import LARGEST_NUMBER, plain, require_whole_characters

Mode = Literal["existing", "sampled", "expected"]
MODES: tuple[str, ...] = get_args(Mode)
"""How a forecast is made of a tree (modes.py)."""


def check(holds: bool, message: str) -> None:
    """Raise ValueError with this message unless what is asked for holds."""
    if not holds:
        raise ValueError(message)


def check_whole(name: str, value: Any, least: int, most: int, advice: str = "") -> None:
    """Raise ValueError unless `value` is an int from `least` to `most`."""
    whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    said = f"{name} must be a whole number from {least} to {most}, got {value!r}"
    check(whole, f"{said}: {advice}" if advice else said)


def check_number(name: str, value: Any, least: float, most: float) -> None:
    """Raise ValueError unless `value` is a number from `least` to `most`."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    check(number, f"{name} must be a number from {least:g} to {most:g}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the choices."""
    if value not in choices:
        *most, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {value!r}")


def check_flags(params: Any, *names: str) -> None:
    """Raise ValueError unless the parameters with these names are True or False."""
    for name in names:
        value = getattr(params, name)
        check(isinstance(value, bool), f"{name} must be True or False, got {value!r}")


def _as_declared(value: Any, kind: str) -> Any:
    """A scalar as one of Python's own, a float where one is declared: equal parameters are written as equal bytes."""
    value = plain(value)
    return float(value) if type(value) is int and "float" in kind and abs(value) < 2**1023 else value


def checked_classes(classes: Any, max_classes: int) -> tuple[Label, ...] | None:
    """The labels that are given as all there are, or None. Raises ValueError where they cannot be."""
    check_whole("max_classes", max_classes, 2, 65_536)
    if classes is None:
        return None
    check(not isinstance(classes, set | frozenset), "classes is a set, which has no order; give a list")
    is_list = isinstance(classes, Iterable) and not isinstance(classes, str | bytes | Mapping)
    check(is_list, f"classes is a {type(classes).__name__}; give a list of the labels, in the order of the columns")
    labels = tuple(scalars(classes, "classes"))
    require_finite(labels, "classes")
    check(None not in labels, "classes holds None or NaN, which stand for a missing label")
    known = tuple(label for label in labels if label is not None)
    require_whole_characters(*known)
    texts = [class_text(label) for label in known]
    check(len(texts) >= 2, f"classes needs at least two labels, got {len(texts)}")
    check(len(set(texts)) == len(texts), f"classes names one class twice: {texts}")
    check(len(texts) <= max_classes, f"classes has {len(texts)} labels, max_classes is {max_classes}")
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestParams:
    """What all systems have in common.

    n_estimators: trees, >= 1. More trees are smoother and slower; 10 is the papers' choice.
    seed: of the random partition, 0 <= seed < 2**64.
    scaling: "auto" weighs features by a robust spread (scaling.py), so that units do not matter; "none" takes them as
        they are, as the papers do.
    calibration: whether forecasts are corrected by what came true of the forest's earlier ones (class_calibration.py,
        number_calibration.py); else they are those of the trees alone, as in the papers.
    max_bytes: memory of the trees at most, and never more than 2**31 nodes of all trees together. A tree that is full
        forgets the leaves that matter least (forgetting.py).
    max_features: more than these raise ValueError.
    max_categories: columns that one feature of text may have (columns.py).
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}
    FIXED: ClassVar[frozenset[str]] = frozenset()
    """Parameters that have one value only in this system, their default."""
    MOST_FEATURES: ClassVar[int] = 1_000_000
    """What max_features can be at most."""
    WHY_SO_FEW: ClassVar[str] = ""
    """Why that is little, and what to do about it."""

    n_estimators: int = 10
    seed: int = 0
    scaling: Literal["auto", "none"] = "auto"
    calibration: bool = True
    max_bytes: int = 64_000_000
    max_features: int = 10_000
    max_categories: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _as_declared(getattr(self, field.name), str(field.type)))
        check_whole("n_estimators", self.n_estimators, 1, 10_000)
        check_whole("seed", self.seed, 0, 2**64 - 1)
        check_choice("scaling", self.scaling, ("auto", "none"))
        check_flags(self, "calibration")
        check_whole("max_bytes", self.max_bytes, 1, 2**63 - 1)
        check_whole("max_features", self.max_features, 1, self.MOST_FEATURES, self.WHY_SO_FEW)
        check_whole("max_categories", self.max_categories, 1, 1_000_000)

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Parameters under a name: "default", or "paper", which follows the papers to the letter."""
        check_choice("preset", name, tuple(cls.PRESETS))
        return cls(**{**cls.PRESETS[name], **overrides})

    def with_seed(self, seed: int) -> Self:
        """A copy with another seed. Raises ValueError where it is out of range."""
        seed = plain(seed)
        check_whole("seed", seed, 0, 2**64 - 1)
        twin = object.__new__(type(self))
        for name in self._names():  # all others have been checked
            object.__setattr__(twin, name, getattr(self, name))
        object.__setattr__(twin, "seed", seed)
        return twin

    @classmethod
    @cache
    def _names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, in the order of declaration."""
        return {name: getattr(self, name) for name in self._names()}

    def changed(self) -> dict[str, Any]:
        """Those that differ from the defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationParams(ForestParams):
    """What the forests have in common that average over prunings: ForestParams and

    charge_first: whether the first sample of a new leaf counts in the leaf's likelihood. True is literal [AMF]; False
        favours deep trees and predicts better.
    split_pure: whether a node may split for a label that it predicts already. True gives exact Mondrian partitions;
        False saves nodes: see `purity`, and `pause` of classifiers.
    purity: how long leaves whose labels all agree go on splitting, in Mondrian time: those born before purity / d do,
        d being the number of features that vary; later ones wait for another label. So a rare label inside a region of
        others is found, by cells of about a `purity`-th of the spread of the features. 0: such a leaf never splits, as
        in the papers.
    mode: how a sample outside of the boxes is forecast (modes.py): "existing" by the tree as it is; "sampled" is
        literal [AMF] Alg. 6; "expected" its exact mean.
    """

    charge_first: bool = False
    split_pure: bool = False
    purity: float = 16.0
    mode: Mode = "existing"

    def __post_init__(self) -> None:
        super(AggregationParams, self).__post_init__()
        check_choice("mode", self.mode, MODES)
        check_number("purity", self.purity, 0.0, 1e9)
        check_flags(self, "charge_first", "split_pure")


@dataclass(frozen=True, slots=True, kw_only=True)
class AMFClassifierParams(AggregationParams):
    """Everything that, with the samples, determines an AMF classifier: AggregationParams and

    classes: all labels, in the order of the columns, where they are known; None: as they appear.
    prior: "parent" shrinks a node's class frequencies to its parent's forecast, with weight `smoothing` times the
        square of the number of different labels it has seen (shrinkage.py); "dirichlet" to uniform with `dirichlet`
        pseudo-counts a class (None: 0.5 for two classes, 0.01 for more).
    pause: an inner node that already gives its label at least this probability is not split for a sample; the sample
        goes on down and splits off nearer to its like, so that trees need fewer nodes. 1: never, as in the papers,
        where only leaves pause.
    max_classes: more than these raise ValueError.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {
            "scaling": "none",
            "prior": "dirichlet",
            "dirichlet": 0.5,
            "pause": 1.0,
            "purity": 0.0,
            "charge_first": True,
            "mode": "sampled",
            "calibration": False,
        },
    }

    classes: tuple[Label, ...] | None = None
    prior: Literal["parent", "dirichlet"] = "parent"
    smoothing: float = 1.5
    dirichlet: float | None = None
    pause: float = 0.7
    max_classes: int = 1000

    def __post_init__(self) -> None:
        super(AMFClassifierParams, self).__post_init__()
        check_choice("prior", self.prior, ("parent", "dirichlet"))
        check_number("smoothing", self.smoothing, 1e-9, 1e9)
        if self.dirichlet is not None:
            check_number("dirichlet", self.dirichlet, 1e-9, 1e9)
            check(self.prior == "dirichlet", "dirichlet needs prior='dirichlet'")
        check_number("pause", self.pause, 1e-6, 1.0)
        object.__setattr__(self, "classes", checked_classes(self.classes, self.max_classes))

    def strength(self, n_classes: int) -> float:
        """Weight of the prior in a forecast (shrinkage.py), in labels."""
        if self.prior == "parent":
            return float(self.smoothing)
        # The public package's choice: Krichevsky-Trofimov for two classes, far sparser for more.
        return float(self.dirichlet or (0.5 if n_classes <= 2 else 0.01)) * n_classes


def check_adaptation(params: Any) -> None:
    """Raise ValueError unless the parameters of an adaptive forest are in range."""
    check_number("background", params.background, 0.0, 0.9)
    check_whole("review_every", params.review_every, 1, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveAMFClassifierParams(AMFClassifierParams):
    """Everything that, with the samples, determines an adaptive AMF classifier: AMFClassifierParams, `purity` counting
    threefold, and

    background: share of the trees, rounded down, that stand by to replace the worst of the others (tree_roles.py).
        0: no tree is replaced; the weights of the features adapt, and trees rehearse.
    review_every: labelled samples after which features get new weights, and trees new roles; at reviews 1, 2, 4, 8 and
        so on all trees rehearse, as long as all samples are kept, 512 at most.
    """

    background: float = 0.2
    review_every: int = 64

    def __post_init__(self) -> None:
        super(AdaptiveAMFClassifierParams, self).__post_init__()
        check_adaptation(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AMFRegressorParams(AggregationParams):
    """Everything that, with the samples, determines an AMF regressor: AggregationParams and

    loss: "student" weighs prunings by a density that follows the spread of the labels (number_means.py);
        "square" by the square loss over 8 bound**2, as the paper does.
    bound: B of [AMF]; for the square loss only, which needs it. Labels and means beyond [-B, B] weigh prunings as if
        they were at its end, so that one label cannot decide everything; they are learned as they are.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "paper": {
            "scaling": "none",
            "loss": "square",
            "charge_first": True,
            "split_pure": True,
            "purity": 0.0,
            "mode": "sampled",
            "calibration": False,
        },
    }

    loss: Literal["student", "square"] = "student"
    bound: float | None = None

    def __post_init__(self) -> None:
        super(AMFRegressorParams, self).__post_init__()
        check_choice("loss", self.loss, ("student", "square"))
        if self.loss == "square":
            check(self.bound is not None, "loss='square' needs bound, the largest absolute value of a label")
            check_number("bound", self.bound, 1e-75, LARGEST_NUMBER)
        else:
            check(self.bound is None, "bound needs loss='square'")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveAMFRegressorParams(AMFRegressorParams):
    """Everything that, with the samples, determines an adaptive AMF regressor: AMFRegressorParams and

    background: share of the trees, rounded down, that stand by to replace the worst of the others (tree_roles.py).
        0: no tree is replaced; the weights of the features adapt, and trees rehearse.
    review_every: labelled samples after which features get new weights, and trees new roles; at reviews 1, 2, 4, 8 and
        so on all trees rehearse, as long as all samples are kept, 512 at most.
    """

    background: float = 0.2
    review_every: int = 64

    def __post_init__(self) -> None:
        super(AdaptiveAMFRegressorParams, self).__post_init__()
        check_adaptation(self)
