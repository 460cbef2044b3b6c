"""The specification of a model: what changes it, and that every parameter reaches the forest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest

import amf
from tests.worker.support.fakes import config
from tests.worker.support.models import PARAMS, event, reject_codes
from worker.base.records import ClassScores
from worker.codec.dead_letters import DECODER
from worker.config import ModelParams
from worker.config.model import SYSTEMS, fits
from worker.state.model import Model, spec_of
from worker.state.model_store import ModelStore
from worker.state.targets import forest_of, seed_of

spec = partial(spec_of, decoder=DECODER)

OTHER_VALUES: dict[str, Any] = {
    "n_estimators": 3,
    "seed": 1,
    "classes": ("no", "yes"),
    "features": 3,
    "scaling": "none",
    "max_bytes": 1_000_000,
    "max_classes": 999,
    "max_features": 9_999,
    "max_categories": 99,
    "prior": "dirichlet",
    "dirichlet": 0.25,
    "smoothing": 2.0,
    "pause": 0.5,
    "loss": "square",
    "bound": 2.0,
    "calibration": False,
    "mode": "expected",
    "charge_first": True,
    "split_pure": True,
    "purity": 4.0,
    "discount": 0.5,
    "lifetime": 2.0,
    "min_samples_split": 5,
    "lifetime_exponent": 0.5,
    "combine": "vote",
    "domain": "cube",
    "empty_cells": "zero",
    "rate_scale": 1.0,
    "background": 0.5,
    "review_every": 32,
}
NEEDED = {"dirichlet": {"prior": "dirichlet"}, "loss": {"bound": 1.0}, "bound": {"loss": "square", "bound": 1.0}}
"""What a parameter needs beside it to have a meaning."""
MEANT_OTHERWISE: dict[str, dict[str, Any]] = {
    "mondrian-classifier": {"smoothing": "path_mean"},
    "bsp-classifier": {"max_features": 19},
    "bsp-regressor": {"max_features": 19},
}
"""Values of parameters whose name means something else to an algorithm."""


def calibrates(algorithm: str) -> bool:
    """Whether an algorithm calibrates its forecasts, unless a key says otherwise."""
    return bool(amf.SYSTEMS[algorithm].Parameters().calibration)


@pytest.mark.parametrize("algorithm", SYSTEMS)
def test_the_spec_changes_with_every_parameter_and_with_the_key(algorithm: str) -> None:
    assert OTHER_VALUES.keys() | {"algorithm", "preset"} == {each.name for each in fields(ModelParams)}
    params = replace(PARAMS, algorithm=algorithm)
    own = {name: value for name, value in OTHER_VALUES.items() if fits(name, algorithm)}
    own["calibration"] = not calibrates(algorithm)
    own |= MEANT_OTHERWISE.get(algorithm, {})
    specs = {spec("key", replace(params, **{name: value})) for name, value in own.items()}
    specs |= {spec("key", params), spec("other", params)}
    assert len(specs) == len(own) + 2
    for name in OTHER_VALUES.keys() - own.keys():
        assert spec("key", replace(params, **{name: OTHER_VALUES[name]})) == spec("key", params)


@pytest.mark.parametrize("key", ["key", "", 'a"b\\\n', "Zürich \U0001f333", "\ud800"])
@pytest.mark.parametrize("classes", ["auto", (1, 2), (1.0, 2.0), (True, False), ("no", "yes")], ids=str)
def test_the_spec_is_a_hash_of_all_that_determines_a_state(key: str, classes: Any) -> None:
    params = replace(PARAMS, classes=classes)
    whole = {"params": params.determining(), "key": key, "decoder": DECODER}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    for _ in range(2):  # made once, and used again
        assert spec(key, params) == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_spec_tells_whether_forecasts_are_calibrated_and_not_who_said_so() -> None:
    for algorithm, on in (("amf-classifier", True), ("unrestricted-amf-classifier", False)):
        params = replace(PARAMS, algorithm=algorithm)
        assert spec("key", params) == spec("key", replace(params, calibration=on))
        assert spec("key", params) != spec("key", replace(params, calibration=not on))


def test_the_spec_changes_with_the_algorithm() -> None:
    assert len({spec("key", replace(PARAMS, algorithm=algorithm)) for algorithm in SYSTEMS}) == len(SYSTEMS)


def test_the_spec_does_not_change_with_anything_else() -> None:
    one = config()
    two = config(
        start="latest", tombstones="reset", max_consecutive=5, delivery="at-least-once", null_key="key",
        on_spec_change="restart", interval_s=9.0,
    )  # fmt: skip
    specs = [ModelStore(each.models.params_for).configured_spec("key") for each in (one, two)]
    assert specs[0] == specs[1] == spec("key", PARAMS)
    assert len(specs[0]) == 16


@pytest.mark.parametrize("algorithm", SYSTEMS)
@pytest.mark.parametrize(("name", "value"), OTHER_VALUES.items())
def test_every_parameter_reaches_the_forest(name: str, value: Any, algorithm: str) -> None:
    """A parameter of which the spec tells but the forest does not know would be a lie in both directions."""
    plain = replace(PARAMS, algorithm=algorithm, **NEEDED.get(name, {}))
    if name == "calibration":
        value = not calibrates(algorithm)
    value = MEANT_OTHERWISE.get(algorithm, {}).get(name, value)
    changed = replace(plain, **{name: value})
    if not fits(name, algorithm):
        assert forest_of("key", changed).dumps() == forest_of("key", plain).dumps()
        return
    if name == "features":
        assert reject_codes(Model.new("key", changed, "").apply([event([1.0])], predict=True)) == ["feature-count"]
    else:
        assert forest_of("key", changed).dumps() != forest_of("key", plain).dumps()


def test_the_random_stream_depends_on_seed_and_key_alone() -> None:
    assert seed_of("key", 0) == seed_of("key", 0)
    assert len({seed_of("key", 0), seed_of("key", 1), seed_of("other", 0), seed_of("", 0)}) == 4
    assert 0 <= seed_of("key", 2**63 - 1) < 2**64


def test_one_key_grows_one_forest_whatever_else_there_is() -> None:
    events = [event([float(i % 7), float(i % 3)], "ab"[i % 2]) for i in range(50)]
    alone, beside = ModelStore(config().models.params_for), ModelStore(config().models.params_for)
    first = beside.get("other")
    first.apply(events, predict=True)
    beside.keep(first, ClassScores())
    grown = []
    for models in (alone, beside):
        here = models.get("key")
        here.apply(events, predict=True)
        grown.append(here.forest.dumps())
    assert grown[0] == grown[1] != first.forest.dumps()


def test_lists_of_classes_and_features_may_be_longer_than_auto_would_take_in() -> None:
    forest = forest_of(
        "key", replace(PARAMS, classes=("a", "b", "c"), max_classes=2, features=("x", "y"), max_features=1)
    )
    assert forest.class_labels == ["a", "b", "c"]
    assert forest.feature_names == ("x", "y")
