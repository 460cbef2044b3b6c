"""The parameters of a model: which algorithm, and those of its forest.

A forest's parameters are declared in `amf`: their defaults, their presets, what each algorithm has, and how they go
together. Here they get what makes them keys: a kind, with the bounds of a worker, and a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args, get_type_hints

import amf
from worker.base.limits import MAX_NEW_COLUMNS, YOUNG_SAMPLES
from worker.config import values as kinds
from worker.config.keys import Decides, Key, key, keys
from worker.config.values import ClassValue, Kind

SYSTEMS: Mapping[str, type[amf.ForestParams]] = {name: system.Parameters for name, system in amf.SYSTEMS.items()}
"""Algorithm -> the parameters of its forests."""
PRESETS = tuple(amf.AMFClassifierParams.PRESETS)

_OWN_KEYS = {name: {each.name for each in fields(system)} - system.FIXED for name, system in SYSTEMS.items()}
_OWN_DEFAULTS = {name: {each.name: each.default for each in fields(system)} for name, system in SYSTEMS.items()}
_ALL_KEYS = set().union(*_OWN_KEYS.values())
# What a key may be, and is by default, is what the first system says that has it: a later one may leave less to choose.
_SYSTEMS = tuple(SYSTEMS.values())[::-1]
_DEFAULTS = {each.name: each.default for system in _SYSTEMS for each in fields(system)}
# Where algorithms have defaults of their own null stands for them; max_features has a bound of theirs besides.
_DEFAULTS |= {
    name: None
    for name in _ALL_KEYS - {"max_features"}
    if len({repr(_OWN_DEFAULTS[system][name]) for system, owned in _OWN_KEYS.items() if name in owned}) > 1
}
_TYPES = {name: hint for system in _SYSTEMS for name, hint in get_type_hints(system).items()}

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""JSON of a value, in which the same values are always the same characters."""


def fits(name: str, algorithm: str) -> bool:
    """Whether a key is one of this algorithm: a parameter that its forests let choose, or none of any forest's."""
    return name in _OWN_KEYS[algorithm] or name not in _ALL_KEYS


def preset_values(algorithm: str, preset: str) -> dict[str, Any]:
    """The keys that a preset stands for, with their values: those that any preset of the algorithm sets."""
    presets = SYSTEMS[algorithm].PRESETS
    return {name: presets[preset].get(name, _DEFAULTS[name]) for each in presets.values() for name in each}


def _of_forest(name: str, kind: Kind[Any], sentence: str) -> Any:
    """A parameter that a forest declares."""
    return field(default=_DEFAULTS[name], metadata=key(kind, sentence, Decides.SPEC))


def _choice_of_forest(name: str, sentence: str) -> Any:
    return _of_forest(name, kinds.choice(*get_args(_TYPES[name])), sentence)


@dataclass(frozen=True, kw_only=True)
class ModelParams:
    """The parameters of one model's forest; each of them is part of what determines its state."""

    algorithm: str = field(
        default="amf-classifier",
        metadata=key(
            kinds.choice(*SYSTEMS),
            "The learner: amf-classifier, whose labels are classes, amf-regressor, whose labels are numbers, "
            "unrestricted-amf-classifier: classes, all features from 0 to 1 and none of them ever missing, "
            "mondrian-classifier and mondrian-regressor, the forests that the others are compared with, "
            "increasing-lifetime-classifier and increasing-lifetime-regressor, of which the rate is proven, "
            "bsp-classifier and bsp-regressor, whose cuts are oblique, for at most 20 features, or "
            "adaptive-classifier and adaptive-regressor, which learn what matters and forget what has changed, for "
            "a tenth to a half more time: where features may be useless or the world changes.",
            Decides.SPEC,
        ),
    )
    preset: str = field(
        default="default",
        metadata=key(
            kinds.choice(*PRESETS),
            "Short for the keys that it sets, unless they are given: default predicts best, paper follows the papers.",
            Decides.NOTHING,
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
        metadata=key(
            kinds.classes(), "The classes, or auto: each is taken in when its first label comes.", Decides.SPEC
        ),
    )
    features: Literal["auto"] | int | tuple[str, ...] = field(
        default="auto",
        metadata=key(
            kinds.features(100_000),
            "An array's length, a list of an object's names, or auto: what the labelled records bring.",
            Decides.SPEC,
        ),
    )
    scaling: str = _choice_of_forest("scaling", "auto weights features by their robust spread, none leaves them.")
    max_bytes: int = _of_forest(
        "max_bytes",
        kinds.size("64KB", "1000GB"),
        "Memory of one forest, its features aside; a tree that is full forgets the leaves that matter least.",
    )
    max_classes: int = _of_forest(
        "max_classes",
        kinds.integer(2, 65_536),
        "Most classes that auto takes in; a label beyond is a dead letter.",
    )
    max_features: int = _of_forest(
        "max_features",
        kinds.integer(1, 100_000),
        "Most features, each value of text being one, that auto takes in; at most half may say where one is missing. "
        "A record beyond is a dead letter, and so is "
        f"one that would bring more than {MAX_NEW_COLUMNS} new ones and more than the model has, once that has learned "
        f"{YOUNG_SAMPLES} labels. "
        "All nodes have room for each, for good. A bsp-classifier or bsp-regressor never takes in more than 20.",
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
    smoothing: float | str | None = _of_forest(
        "smoothing",
        kinds.optional(kinds.either(kinds.positive_number(), kinds.choice("ikn", "path_mean"))),
        "With prior: parent, its weight in samples, times the square of the number of classes a node has seen. Of a "
        "mondrian-classifier whether nodes shrink to their parents (ikn) or not (path_mean). Null: 1.5, or ikn.",
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
    discount: float | None = _of_forest(
        "discount",
        kinds.optional(kinds.positive_number()),
        "With smoothing: ikn, how fast a node forgets its parent with its age; null: 10 times the number of features.",
    )
    lifetime: float | None = _of_forest(
        "lifetime",
        kinds.optional(kinds.positive_number()),
        "The time from which on no node is split, in units of 1 / spread of the features; null: never. "
        "With increasing lifetime, and of a bsp forest, that after the first label; null: 1.",
    )
    min_samples_split: int | None = _of_forest(
        "min_samples_split",
        kinds.optional(kinds.integer(1, 2**31 - 1)),
        "A node that has seen fewer labels is a leaf. Null: 2 of a mondrian, 4 of a bsp forest.",
    )
    background: float = _of_forest(
        "background",
        kinds.number(0.0, 0.9),
        "Share of the trees, rounded down, that stand by to replace the worst of the others; 0: none is replaced, and "
        "the weights of the features adapt all the same.",
    )
    review_every: int = _of_forest(
        "review_every",
        kinds.integer(1, 1_000_000),
        "Labelled samples after which features get new weights, and trees are replaced; at reviews 1, 2, 4, 8 and so "
        "on all trees learn the samples so far once more, as long as these are 512 at most.",
    )
    lifetime_exponent: float | None = _of_forest(
        "lifetime_exponent",
        kinds.optional(kinds.number(0.0, 10.0)),
        "The power of the number of labels with which the lifetime increases; 0: not at all; null: 1 / (features + 2).",
    )
    combine: str = _choice_of_forest(
        "combine", "What trees give: the class frequencies of their leaves (average), or each a vote for one class."
    )
    domain: str = _choice_of_forest(
        "domain",
        "What trees split: the ranges of their samples (range), or all of the unit cube (cube), which takes features "
        "from 0 to 1 of which none is ever missing.",
    )
    empty_cells: str = _choice_of_forest(
        "empty_cells",
        "With domain: cube, what a cell without samples says: what that around it does (parent), or the first class, "
        "or 0 (zero).",
    )
    rate_scale: float = _of_forest(
        "rate_scale", kinds.positive_number(), "Rate of the cuts of a bsp forest, for each unit of perimeter of a hull."
    )

    @property
    def labels_are_numbers(self) -> bool:
        """Whether the model estimates a number; else it chooses a class."""
        return "classes" not in _OWN_KEYS[self.algorithm]

    def determining(self) -> dict[str, Any]:
        """What determines the state of a model, with its key and its input."""
        return {name: self._chosen(name) for name in _OF_SPEC if fits(name, self.algorithm)}

    @cached_property
    def determining_text(self) -> str:
        """`determining` as JSON, made once for all models that have these parameters."""
        return canonical(self.determining())

    def _chosen(self, name: str) -> Any:
        """The value of a key, be it given or the default of the algorithm, which may take few features."""
        value = getattr(self, name)
        if name == "max_features":
            return min(value, SYSTEMS[self.algorithm].MOST_FEATURES)
        return _OWN_DEFAULTS[self.algorithm].get(name) if value is None else value

    def of_forest(self, seed: int) -> amf.ForestParams:
        """The parameters of a forest with its own seed. Raises ValueError where they do not go together."""
        return self._of_any_forest.with_seed(seed)

    @cached_property
    def _of_any_forest(self) -> amf.ForestParams:
        # Checked once: there may be a million models, each with a seed of its own.
        values = {name: self._chosen(name) for name in _OWN_KEYS[self.algorithm]}
        # max_classes and max_features bound what `auto` takes in; what is listed is meant.
        if self.features != "auto":
            listed = self.features if isinstance(self.features, int) else len(self.features)
            values["max_features"] = max(values["max_features"], listed)
        if values.get("classes") == "auto":
            values["classes"] = None
        elif "classes" in values:
            values["max_classes"] = max(self.max_classes, len(self.classes))
        # What belongs to another choice than is made does not count.
        for name, means_nothing in (
            ("bound", self.loss != "square"),
            ("dirichlet", self.prior != "dirichlet"),
            ("discount", self.smoothing == "path_mean"),
        ):
            if name in values and means_nothing:
                values[name] = None
        return SYSTEMS[self.algorithm](**values)


_OF_SPEC = tuple(each.attribute for each in keys(ModelParams).values() if each.decides is Decides.SPEC)


@dataclass(frozen=True, slots=True)
class Override:
    """Other parameters for the models whose key matches."""

    match: str = field(
        metadata=key(
            kinds.text(r"(?s).+", "a glob pattern such as fraud-*"), "Glob pattern of model keys.", Decides.SPEC
        )
    )
    params: Mapping[str, Any]
    """Some fields of ModelParams with their values."""


OVERRIDE_KEYS: Mapping[str, Key] = {**keys(Override), **keys(ModelParams)}
