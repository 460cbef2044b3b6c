"""The effective configuration, as it is shown: every key in order, and what loads back the same."""

from __future__ import annotations

from dataclasses import replace

import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.configurations import EXAMPLE, document
from worker.config import effective, load, loads

# YAML 1.1 and 1.2 disagree about most of these; whatever they look like, text must come back as text.
TRICKY = st.sampled_from(["no", "1e5", "08", "12:30", "2020-01-01", "~", "", "Null", ".5", "<<", "0x1f", " a ", "# a"])
# No longer than a class may be. With a reference in it text can only have come from the environment.
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=128).filter(
    lambda text: "${" not in text
)


@given(st.lists(st.one_of(TRICKY, ANY_TEXT), min_size=2, unique=True))
def test_any_text_survives_the_effective_configuration(names: list[str]) -> None:
    config = loads(document(), {})
    params = replace(config.models.default, classes=tuple(names), features=tuple(names))
    config = replace(config, models=replace(config.models, default=params))
    assert loads(effective(config), {}) == config


def test_the_effective_configuration_shows_the_keys_of_the_algorithm() -> None:
    override = "{match: a, algorithm: amf-classifier, preset: paper, pause: 1}"
    config = loads(document(models=f"{{default: {{algorithm: amf-regressor}}, overrides: [{override}]}}"), {})
    shown = yaml.safe_load(effective(config))["models"]
    assert "loss" in shown["default"]
    assert "smoothing" not in shown["default"]
    assert shown["overrides"][0]["prior"] == "dirichlet"
    assert loads(effective(config), {}) == config


def test_the_effective_configuration_has_every_key_in_order() -> None:
    config = load(EXAMPLE, {})
    shown, example = yaml.safe_load(effective(config)), yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert list(shown) == list(example)
    assert {name: value for name, value in shown.items() if name != "kafka"} == {
        name: value for name, value in example.items() if name != "kafka"
    }
    assert set(shown["kafka"]) == set(example["kafka"])


def test_the_effective_configuration_loads_back_the_same() -> None:
    config = loads(
        document(
            delivery="at-least-once",
            models="{default: {features: 3, dirichlet: 0.01}, null_key: '5', overrides: [{match: a, seed: 1}]}",
            checkpoint="{url: 's3://bucket/folder', interval: 1500ms}",
            kafka="{bootstrap.servers: b, client.id: 08, enable.metrics.push: false, group.protocol: consumer}",
            metrics="{listen: '[::1]:0'}",
        ),
        {},
    )
    assert loads(effective(config), {}) == config
