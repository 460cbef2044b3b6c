"""Models of the configuration: algorithms, presets, and overrides that go together or not."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import amf
from tests.worker.support.configurations import REQUIRED, document, models_in, the_problem
from worker.config import ModelParams, loads
from worker.config.model import SYSTEMS, fits, preset_values
from worker.config.overrides import earlier_that_meet, may_match_both

# --- overrides --------------------------------------------------------------------------------------------------------


def test_every_matching_override_applies_in_order() -> None:
    overrides = """
  overrides:
  - {match: "fraud-*", n_estimators: 20, classes: ["no", "yes"]}
  - {match: "fraud-[ab]", n_estimators: 30}
  - {match: "FRAUD-*", seed: 7}"""
    models = loads(document(models=overrides), {}).models
    fraud = replace(models.default, n_estimators=20, classes=("no", "yes"))
    assert models.params_for("churn") == models.default
    assert models.params_for("fraud-c") == fraud
    assert models.params_for("fraud-a") == replace(fraud, n_estimators=30)
    assert models.params_for("FRAUD-a") == replace(models.default, seed=7)


# --- algorithms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", SYSTEMS)
def test_a_forest_has_the_defaults_of_the_library(algorithm: str) -> None:
    assert ModelParams(algorithm=algorithm).of_forest(0) == SYSTEMS[algorithm]()


@pytest.mark.parametrize(
    ("text", "path", "algorithm"),
    [
        ("{default: {algorithm: amf-regressor,\n  smoothing: 1}}", "models.default.smoothing", "amf-regressor"),
        ("{default: {algorithm: amf-regressor,\n  classes: auto}}", "models.default.classes", "amf-regressor"),
        ("{default: {seed: 1,\n  loss: student}}", "models.default.loss", "amf-classifier"),
        ("{overrides: [{match: a,\n  bound: 1}]}", "models.overrides[0].bound", "amf-classifier"),
        (
            "{overrides: [{match: a, algorithm: amf-regressor,\n  pause: 1}]}",
            "models.overrides[0].pause",
            "amf-regressor",
        ),
        (
            "{overrides: [{match: a, algorithm: amf-classifier,\n  bound: 1}], default: {algorithm: amf-regressor}}",
            "models.overrides[0].bound",
            "amf-classifier",
        ),
        (
            "{default: {algorithm: unrestricted-amf-classifier,\n  pause: 1}}",
            "models.default.pause",
            "unrestricted-amf-classifier",
        ),
    ],
)
def test_a_key_of_another_algorithm_is_a_mistake(text: str, path: str, algorithm: str) -> None:
    line = len(REQUIRED) + 2
    problem = f"worker.yaml:{line}: {path}: expected a key of algorithm {algorithm}, found another's: leave it out"
    way_out = "" if "algorithm" in text else ", or name its algorithm beside it"
    assert the_problem(document(models=text)) == problem + way_out


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{default: {algorithm: amf-regressor, loss: square}}", "models.default"),
        ("{default: {algorithm: amf-regressor, preset: paper}}", "models.default"),
        ("{overrides: [{match: a, algorithm: amf-regressor, preset: paper}]}", "models.overrides[0]"),
        (
            "{default: {algorithm: amf-regressor, bound: 1}, overrides: [{match: a, loss: square}]}",
            "models.overrides[0]",
        ),
    ],
)
def test_a_loss_that_needs_a_bound_has_it_beside_it(text: str, path: str) -> None:
    problem = the_problem(document(models=text))
    assert problem.startswith(f"worker.yaml:{len(REQUIRED) + 1}: {path}: expected parameters that a forest takes: ")
    assert problem.endswith("needs bound, the largest absolute value of a label")


def test_the_library_has_the_last_word() -> None:
    found = the_problem(document(models="{default: {smoothing: 1e10}}"))
    assert "smoothing must be a number from 1e-09 to 1e+09" in found


@pytest.mark.parametrize("features", ["21", "[" + ", ".join(f"f{n}" for n in range(21)) + "]"])
def test_too_many_features_for_a_bsp_forest_are_refused_with_what_to_do(features: str) -> None:
    found = the_problem(document(models=f"{{default: {{algorithm: bsp-classifier, features: {features}}}}}"))
    assert "got 21: a BSP forest takes 20 features at most" in found
    assert re.search(r"leave columns out .*\(PCA\), or take another algorithm", found)


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (
            "{default: {features: 30}, overrides: [{match: a},\n {match: b, algorithm: bsp-classifier}]}",
            "7: models.overrides[1]: expected parameters that a forest takes on top of the default: max_features ",
            "got 30: a BSP forest takes 20 features at most",
        ),
        (
            "{overrides: [{match: 'a*', features: 30},\n {match: '*b', algorithm: bsp-regressor}]}",
            "7: models.overrides[1]: expected parameters that a forest takes on top of overrides[0]: max_features ",
            "got 30",
        ),
        (
            "{overrides: [{match: ab, algorithm: bsp-regressor},\n {match: 'a*', features: 30}]}",
            "7: models.overrides[1]: expected parameters that a forest takes on top of overrides[0]: max_features ",
            "got 30",
        ),
        (
            "{default: {smoothing: 2}, overrides: [{match: a, algorithm: mondrian-classifier}]}",
            "6: models.overrides[0]: expected parameters that a forest takes on top of the default: smoothing ",
            "'ikn' or 'path_mean', got 2.0",
        ),
        (
            "{default: {algorithm: mondrian-classifier, smoothing: path_mean}, overrides: [{match: a, "
            "algorithm: adaptive-classifier}]}",
            "6: models.overrides[0]: expected parameters that a forest takes on top of the default: smoothing ",
            "got 'path_mean'",
        ),
    ],
)
def test_overrides_that_together_make_no_forest_are_refused_before_a_record_comes(
    text: str, place: str, says: str
) -> None:
    found = the_problem(document(models=text))
    assert found.startswith(f"worker.yaml:{place}")
    assert says in found


@pytest.mark.parametrize(
    "text",
    [
        "{default: {features: 30}, overrides: [{match: b, algorithm: bsp-classifier, features: 2}]}",
        "{default: {smoothing: 2}, overrides: [{match: b, algorithm: mondrian-classifier, smoothing: null}]}",
        "{overrides: [{match: 'a*', features: 30}, {match: 'b*', algorithm: bsp-regressor}]}",
        "{overrides: [{match: '*-a', features: 30}, {match: '*-b', algorithm: bsp-regressor}]}",
        "{overrides: [{match: ab, features: 30}, {match: 'a[cd]', algorithm: bsp-regressor}]}",
        "{overrides: [{match: ab, features: 30}, {match: abc, algorithm: bsp-regressor}]}",
    ],
)
def test_overrides_that_never_meet_need_not_go_together(text: str) -> None:
    found = models_in(text)
    for key in ("a", "b", "ab", "abc", "ac", "bb", "x-a", "x-b"):
        found.params_for(key).of_forest(0)


@given(st.text("ab*?[]", max_size=4), st.text("ab*?[]", max_size=4), st.text("ab[]", max_size=4))
@example("[ab]", "a", "a")
@example("a?", "ab", "ab")
@example("a*", "ab*", "ab")
@example("ab*", "a*", "ab")
@example("*b", "*ab", "ab")
@example("*ab", "*b", "ab")
def test_patterns_that_are_said_never_to_match_one_key_never_do(one: str, other: str, key: str) -> None:
    if fnmatchcase(key, one) and fnmatchcase(key, other):
        assert may_match_both(one, other)


@given(st.lists(st.text("ab*?[]", max_size=4), max_size=12))
def test_of_overrides_none_is_missed_that_meets_another_one(patterns: list[str]) -> None:
    assert list(earlier_that_meet(patterns)) == [
        [other for other in range(place) if may_match_both(patterns[other], pattern)]
        for place, pattern in enumerate(patterns)
    ]


def test_thousands_of_overrides_that_do_not_meet_are_not_compared_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[str, str]] = []
    monkeypatch.setattr("worker.config.overrides.may_match_both", lambda *pair: compared.append(pair) or True)
    patterns = [f"customer-{number:04d}-*" for number in range(5000)] + ["customer-0007-x"]
    assert list(earlier_that_meet(patterns)) == [*[[]] * 5000, [7]]
    assert compared == [("customer-0007-*", "customer-0007-x")]


def test_overrides_go_together_in_any_combination() -> None:
    square, student = "{match: '*a*', loss: square, bound: 2}", "{match: '*b*', loss: student, bound: null}"
    for overrides in (
        f"{square}, {student}",
        f"{student}, {square}",
        f"{student}, {square}, {{match: c, bound: null}}",
    ):
        found = models_in(f"{{default: {{algorithm: amf-regressor}}, overrides: [{overrides}]}}")
        for key in ("a", "b", "ab", "abc", "c"):
            loss = found.params_for(key).loss
            assert found.params_for(key).of_forest(0).bound == (2.0 if loss == "square" else None)  # type: ignore


def test_no_bound_is_none_to_put_in_the_place_of_another() -> None:
    overrides = "overrides: [{match: a, bound: null}, {match: b, loss: student, bound: null}]"
    found = models_in(f"{{default: {{algorithm: amf-regressor, loss: square, bound: 9}}, {overrides}}}")
    assert [found.params_for(key).of_forest(0).bound for key in "ac"] == [9.0, 9.0]  # type: ignore[union-attr]


def test_models_that_match_the_same_overrides_have_the_same_parameters() -> None:
    found = models_in(
        "{overrides: [{match: '*a*', seed: 1}, {match: '*b*', seed: 2, n_estimators: 3}, {match: '*a*', seed: 4}]}"
    )
    params = {key: found.params_for(key) for key in ("c", "a", "b", "ab", "xa", "bxa")}
    assert [(each.seed, each.n_estimators) for each in params.values()] == [
        (0, 10),
        (4, 10),
        (2, 3),
        (4, 3),
        (4, 10),
        (4, 3),
    ]
    # What is made of them once, is made for all of them.
    assert params["c"] is found.default is found.params_for("d")
    assert params["a"] is params["xa"]
    assert params["ab"] is params["bxa"]


def test_an_override_may_name_another_algorithm() -> None:
    found = models_in("{default: {smoothing: 2, seed: 5}, overrides: [{match: 'price-*', algorithm: amf-regressor}]}")
    assert found.algorithms == {"amf-classifier", "amf-regressor"}
    price = found.params_for("price-1").of_forest(7)
    assert price == amf.AMFRegressorParams(seed=7)
    assert found.params_for("churn").of_forest(7) == amf.AMFClassifierParams(seed=7, smoothing=2.0)


def test_forecasts_are_calibrated_as_the_algorithm_has_it_unless_a_key_says_so() -> None:
    unrestricted = "algorithm: unrestricted-amf-classifier"
    found = models_in(f"{{overrides: [{{match: u*, {unrestricted}}}, {{match: '*+', calibration: true}}]}}")
    assert [found.params_for(key).of_forest(0).calibration for key in ("a", "u", "u+")] == [True, False, True]
    found = models_in(
        f"{{default: {{calibration: false}}, overrides: [{{match: u, {unrestricted}, calibration: null}}]}}"
    )
    assert [found.params_for(key).of_forest(0).calibration for key in ("a", "u")] == [False, False]


def test_smoothing_is_what_the_algorithm_makes_of_it() -> None:
    mondrian = "algorithm: mondrian-classifier"
    found = models_in(
        f"{{overrides: [{{match: m*, {mondrian}, discount: 2}}, {{match: '*-plain', {mondrian}, smoothing: path_mean}},"
        " {match: a+, smoothing: 2}]}"
    )
    assert [found.params_for(key).of_forest(3) for key in ("a", "a+", "m", "m-plain")] == [
        amf.AMFClassifierParams(seed=3),
        amf.AMFClassifierParams(seed=3, smoothing=2.0),
        amf.MondrianForestClassifierParams(seed=3, discount=2.0),
        amf.MondrianForestClassifierParams(seed=3, smoothing="path_mean"),
    ]
    assert [found.params_for(key).determining()["smoothing"] for key in ("a", "m", "m-plain")] == [
        1.5,
        "ikn",
        "path_mean",
    ]
    assert "smoothing must be a number" in the_problem(document(models="{default: {smoothing: ikn}}"))
    wrong = the_problem(document(models=f"{{default: {{{mondrian}, smoothing: 2}}}}"))
    assert "smoothing must be 'ikn' or 'path_mean'" in wrong
    assert "number above 0, or one of ikn, path_mean, or null" in the_problem(
        document(models="{default: {smoothing: kn}}")
    )


def test_an_unrestricted_forest_leaves_less_to_choose() -> None:
    found = models_in(
        "{default: {pause: 0.5, scaling: auto}, overrides: [{match: u, algorithm: unrestricted-amf-classifier}]}"
    )
    assert found.params_for("u").of_forest(7) == amf.UnrestrictedAMFClassifierParams(seed=7)
    for name in amf.UnrestrictedAMFClassifierParams.FIXED:
        assert fits(name, "amf-classifier")
        assert not fits(name, "unrestricted-amf-classifier")


def test_a_preset_is_short_for_its_keys() -> None:
    found = models_in(
        "{default: {preset: paper, pause: 0.5}, overrides: [{match: b, preset: default, mode: expected},"
        " {match: c, algorithm: amf-regressor, preset: paper, bound: 3, calibration: true}]}"
    )
    assert found.params_for("a").of_forest(0) == amf.AMFClassifierParams.preset("paper", pause=0.5)
    assert found.params_for("b").of_forest(0) == amf.AMFClassifierParams(mode="expected")
    assert found.params_for("c").of_forest(0) == amf.AMFRegressorParams.preset("paper", bound=3.0, calibration=True)


@pytest.mark.parametrize("algorithm", SYSTEMS)
def test_presets_are_those_of_the_library(algorithm: str) -> None:
    for name, values in SYSTEMS[algorithm].PRESETS.items():
        bound = {"bound": 1.0} if values.get("loss") == "square" else {}
        params = ModelParams(algorithm=algorithm, **preset_values(algorithm, name), **bound)
        assert params.of_forest(0) == SYSTEMS[algorithm].preset(name, **bound)
