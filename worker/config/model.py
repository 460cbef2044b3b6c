"""The parameters of a model: which algorithm, and those of its forest.

A forest's parameters are declared in `amf`: their defaults, their presets, what each algorithm has, and how they go
together. Here they get what makes them keys: a kind, with the bounds of a worker, and a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

import amf
from worker.config import values as kinds
from worker.config.keys import Key, key, keys
from worker.config.values import ClassValue, Kind

ForestParams: TypeAlias = amf.AMFClassifierParams | amf.AMFRegressorParams
SYSTEMS: Mapping[str, type[ForestParams]] = {name: system.Parameters for name, system in amf.SYSTEMS.items()}
"""Algorithm -> the parameters of its forests."""
PRESETS = tuple(amf.AMFClassifierParams.PRESETS)

_OWN_KEYS = {name: {each.name for each in fields(system)} - system.FIXED for name, system in SYSTEMS.items()}
_ALL_KEYS = set().union(*_OWN_KEYS.values())
# What a key may be, and is by default, is what the first system says that has it: a later one may leave less to choose.
_SYSTEMS = tuple(SYSTEMS.values())[::-1]
_DEFAULTS = {each.name: each.default for system in _SYSTEMS for each in fields(system)} | {"calibration": None}
_TYPES = {name: hint for system in _SYSTEMS for name, hint in get_type_hints(system).items()}


def fits(name: str, algorithm: str) -> bool:
    """Whether a key is one of this algorithm: a parameter that its forests let choose, or none of any forest's."""
    return name in _OWN_KEYS[algorithm] or name not in _ALL_KEYS


def preset_values(algorithm: str, preset: str) -> dict[str, Any]:
    """The keys that a preset stands for, with their values: those that any preset of the algorithm sets."""
    presets = SYSTEMS[algorithm].PRESETS
    return {name: presets[preset].get(name, _DEFAULTS[name]) for each in presets.values() for name in each}


def _of_forest(name: str, kind: Kind[Any], sentence: str) -> Any:
    """A parameter that a forest declares."""
    return field(default=_DEFAULTS[name], metadata=key(kind, sentence))


def _choice_of_forest(name: str, sentence: str) -> Any:
    return _of_forest(name, kinds.choice(*get_args(_TYPES[name])), sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParams:
    """The parameters of one model's forest; each of them is part of what determines its state."""

    algorithm: str = field(
        default="amf-classifier",
        metadata=key(
            kinds.choice(*SYSTEMS),
            "The learner: amf-classifier, whose labels are classes, amf-regressor, whose labels are numbers, or "
            "unrestricted-amf-classifier: classes, all features from 0 to 1 and none of them ever missing.",
        ),
    )
    preset: str = field(
        default="default",
        metadata=key(
            kinds.choice(*PRESETS),
            "Short for the keys that it sets, unless they are given: default predicts best, paper follows the papers.",
        ),
    )
    n_estimators: int = _of_forest(
        "n_estimators", kinds.integer(1, 1000), "Trees of a forest; time and memory grow in proportion."
    )
    seed: int = _of_forest(
        "seed", kinds.integer(0, 2**63 - 1), "A model's random stream depends on this and its key alone."
    )
    classes: Literal["auto"] | tuple[ClassValue, ...] = field(
        default="auto",
        metadata=key(kinds.classes(), "The classes, or auto: each is taken in when its first label comes."),
    )
    features: Literal["auto"] | int | tuple[str, ...] = field(
        default="auto",
        metadata=key(
            kinds.features(100_000),
            "An array's length, a list of an object's names, or auto: what the labelled records bring.",
        ),
    )
    scaling: str = _choice_of_forest("scaling", "auto weights features by their robust spread, none leaves them.")
    max_bytes: int = _of_forest(
        "max_bytes",
        kinds.size("64KB", "1000GB"),
        "Memory of one forest; a tree that is full forgets the leaves that matter least.",
    )
    max_classes: int = _of_forest(
        "max_classes",
        kinds.integer(2, 65_536),
        "Most classes that auto takes in; a label beyond is a dead letter.",
    )
    max_features: int = _of_forest(
        "max_features",
        kinds.integer(1, 100_000),
        "Most features, each value of text being one, that auto takes in; a record beyond is a dead letter.",
    )
    max_categories: int = _of_forest(
        "max_categories",
        kinds.integer(1, 100_000),
        "Most values of a text feature with a column of their own; all further ones look alike.",
    )
    prior: str = _choice_of_forest(
        "prior", "What smooths a node's class counts: its parent's forecast, or the dirichlet prior of the papers."
    )
    dirichlet: float | None = _of_forest(
        "dirichlet",
        kinds.optional(kinds.positive_number()),
        "With prior: dirichlet, the pseudo-count of each class; null chooses it by the number of classes.",
    )
    smoothing: float = _of_forest(
        "smoothing",
        kinds.positive_number(),
        "With prior: parent, its weight in samples, times the square of the number of classes a node has seen.",
    )
    pause: float = _of_forest(
        "pause",
        kinds.positive_share(),
        "A node that gives a label at least this probability is not split for it; with 1 only leaves pause.",
    )
    loss: str = _choice_of_forest(
        "loss", "What weighs prunings: student, a density that follows the labels, or square, the papers' loss."
    )
    bound: float | None = _of_forest(
        "bound",
        kinds.optional(kinds.positive_number()),
        "With loss: square, which needs it, the largest absolute value of a label.",
    )
    calibration: bool | None = _of_forest(
        "calibration",
        kinds.optional(kinds.boolean()),
        "Whether forecasts are corrected by what came true of the model's earlier ones; null: as the algorithm has it, "
        "which is true but for unrestricted-amf-classifier.",
    )
    mode: str = _choice_of_forest(
        "mode",
        "How a sample outside of all that was seen is predicted: by the tree as it is (existing), in the tree that it "
        "would make (sampled), or by the mean of those (expected).",
    )
    charge_first: bool = _of_forest(
        "charge_first", kinds.boolean(), "Whether a fresh leaf pays for its first sample, as in the papers."
    )
    split_pure: bool = _of_forest(
        "split_pure", kinds.boolean(), "Whether nodes are split for labels that they expect anyway, as in the papers."
    )
    purity: float = _of_forest(
        "purity",
        kinds.number(0.0, 1e9),
        "How finely regions with one label are split all the same, so that rare labels are found; 0: not at all.",
    )

    @property
    def labels_are_numbers(self) -> bool:
        """Whether the model estimates a number; else it chooses a class."""
        return issubclass(SYSTEMS[self.algorithm], amf.AMFRegressorParams)

    @property
    def calibrates(self) -> bool:
        """Whether forecasts are calibrated, be it by the key or by the algorithm."""
        if self.calibration is None:
            return next(bool(each.default) for each in fields(SYSTEMS[self.algorithm]) if each.name == "calibration")
        return self.calibration

    def determining(self) -> dict[str, Any]:
        """What determines the state of a model, with its key and its input."""
        names = [each.name for each in fields(self) if each.name != "preset" and fits(each.name, self.algorithm)]
        return {**{name: getattr(self, name) for name in names}, "calibration": self.calibrates}

    def of_forest(self, seed: int) -> ForestParams:
        """The parameters of a forest with its own seed. Raises ValueError where they do not go together."""
        values = {name: getattr(self, name) for name in _OWN_KEYS[self.algorithm]}
        values["calibration"] = self.calibrates
        # max_classes and max_features bound what `auto` takes in; what is listed is meant.
        if self.features != "auto":
            listed = self.features if isinstance(self.features, int) else len(self.features)
            values["max_features"] = max(self.max_features, listed)
        if self.labels_are_numbers:
            values["bound"] = self.bound if self.loss == "square" else None
        elif self.classes == "auto":
            values["classes"] = None
        else:
            values["max_classes"] = max(self.max_classes, len(self.classes))
        if self.prior != "dirichlet" and not self.labels_are_numbers:
            values["dirichlet"] = None
        return SYSTEMS[self.algorithm](**{**values, "seed": seed})


@dataclass(frozen=True, slots=True)
class Override:
    """Other parameters for the models whose key matches."""

    match: str = field(
        metadata=key(kinds.text(r"(?s).+", "a glob pattern such as fraud-*"), "Glob pattern of model keys.")
    )
    params: Mapping[str, Any]
    """Some fields of ModelParams with their values."""


OVERRIDE_KEYS: Mapping[str, Key] = {**keys(Override), **keys(ModelParams)}
