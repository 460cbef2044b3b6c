"""The file as a whole: the example, defaults, what every key decides, unknown and missing keys, what is no YAML."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import yaml

from tests.worker.support.configurations import EXAMPLE, REQUIRED, document, problems, the_problem
from worker.base.errors import ConfigError
from worker.config import Config, ModelParams, intake_of, load, loads
from worker.config import kafka as config_kafka
from worker.config.keys import Decides, Key, Section, keys
from worker.config.keys import key as declare
from worker.config.model import SYSTEMS, fits
from worker.config.values import size

# --- the example file -------------------------------------------------------------------------------------------------


def test_the_example_loads_to_exactly_the_defaults() -> None:
    assert load(EXAMPLE, {}) == loads(document(), {})


def test_the_example_says_every_key_with_its_sentence() -> None:
    # Keys of the other algorithm stand in comments; a long sentence goes on in the next line.
    text = EXAMPLE.read_text(encoding="utf-8")
    lines = re.sub(r"(?m)^ *(# *)*", "# ", text)

    def check(section: type, data: dict[str, object]) -> None:
        declared = keys(section)
        assert list(data) == [name for name in declared if section is not ModelParams or fits(name, "amf-classifier")]
        for name, key in declared.items():
            sentence = re.escape(key.sentence).replace(r"\ ", r"(?: |\n# )")
            assert re.search(rf"# {sentence}.*\n(?:# .*\n)*# {name}:", lines), name
            if isinstance(key.kind, Section):
                value = data[name]
                assert isinstance(value, dict)
                check(key.kind.type, value)

    check(Config, yaml.safe_load(text))
    assert set(config_kafka.DEFAULTS) | {"bootstrap.servers"} == set(yaml.safe_load(text)["kafka"])


def test_defaults_are_those_of_the_documentation() -> None:
    config = loads(document(), {})
    assert (config.input.start, config.input.tombstones, config.input.max_bytes) == ("earliest", "dead-letter", 10**6)
    assert (config.dead_letter.max_consecutive, config.delivery) == (1000, "exactly-once")
    assert config.models.default == ModelParams(
        algorithm="amf-classifier",
        preset="default",
        n_estimators=10,
        seed=0,
        classes="auto",
        features="auto",
        scaling="auto",
        max_bytes=64_000_000,
        max_classes=1000,
        max_features=10_000,
        max_categories=100,
        prior="parent",
        dirichlet=None,
        smoothing=None,
        pause=0.7,
        loss="student",
        bound=None,
        calibration=None,
        mode="existing",
        charge_first=False,
        split_pure=False,
        purity=16.0,
        discount=None,
        lifetime=None,
        min_samples_split=None,
        background=0.2,
        review_every=64,
    )
    assert (config.models.overrides, config.models.null_key, config.models.on_spec_change) == ((), None, "fail")
    assert (config.checkpoint.interval_s, config.checkpoint.lineage) == (30.0, "main")
    assert (config.metrics.host, config.metrics.port) == ("127.0.0.1", 9464)
    assert config.kafka["group.id"] == "amf"
    assert config.kafka["session.timeout.ms"] == config.kafka["transaction.timeout.ms"] == "10000"


# --- what a key decides -----------------------------------------------------------------------------------------------


def declared(section: type = Config, path: str = "") -> dict[str, Key]:
    """Every key that is no section, by its path."""
    found: dict[str, Key] = {}
    for name, each in keys(section).items():
        inner = declared(each.kind.type, f"{path}{name}.") if isinstance(each.kind, Section) else {path + name: each}
        found |= inner
    return found


def test_every_key_says_what_it_decides() -> None:
    assert {path for path, each in declared().items() if not isinstance(each.decides, Decides)} == set()
    with pytest.raises(TypeError, match="decides"):
        declare(size("1B", "1GB"), "A key whose author forgot.")  # type: ignore[call-arg]


def test_checkpoints_hold_every_key_that_decides_which_records_are_learned_and_no_other() -> None:
    """Word by word: a replay compares what earlier versions have written."""
    assert intake_of(loads(document(), {})) == {
        "input.codec": "json",
        "input.max_bytes": "1000000",
        "input.model_key": "key",
        "input.tombstones": "dead-letter",
        "models.max_models": "1000000",
        "models.null_key": "null",
        "schema_registry.on_unknown": "wait",
    }
    assert intake_of(loads(document(models="{null_key: 'null', max_models: 7}"), {}))["models.null_key"] == "'null'"
    marked = {path for path, each in declared().items() if each.decides is Decides.INTAKE}
    assert intake_of(loads(document(), {})).keys() == marked


@pytest.mark.parametrize("algorithm", SYSTEMS)
def test_a_spec_holds_every_parameter_of_its_algorithm_that_decides_what_is_learned(algorithm: str) -> None:
    marked = {each.attribute for each in keys(ModelParams).values() if each.decides is Decides.SPEC}
    assert keys(ModelParams).keys() - marked == {"preset"}
    assert ModelParams(algorithm=algorithm).determining().keys() == {name for name in marked if fits(name, algorithm)}


# --- the file as a whole ----------------------------------------------------------------------------------------------


def test_all_problems_come_at_once_in_the_order_of_the_file_and_what_is_missing_last() -> None:
    text = document(
        input="{topik: events, [topic]: events}",
        output="{topic: a, topic: b}",
        models="\n  default: {n_estimators: 0}\n  overrides:\n  - {match: a}\n  - {match: b, n_estimators: -1}\n  - 5",
        metric="{}",
    )
    starts = [
        "worker.yaml:1: input....: expected the name of a property, found something else",
        "worker.yaml:1: input.topik: unknown key",
        "worker.yaml:2: output.topic: expected one value, found another on line 2",
        "worker.yaml:7: models.default.n_estimators: expected an integer between 1 and 1000, found 0",
        "worker.yaml:10: models.overrides[1].n_estimators: expected an integer between 1 and 1000, found -1",
        "worker.yaml:11: models.overrides[2]: expected a mapping, found a single value",
        "worker.yaml:12: metric: unknown key",
        "worker.yaml:1: input.topic: expected a topic name",
        "worker.yaml:11: models.overrides[2].match: expected",
    ]
    found = problems(text)
    assert [problem.startswith(start) for problem, start in zip(found, starts, strict=True)] == [True] * len(starts), (
        found
    )


def test_a_merge_key_of_yaml_is_named() -> None:
    assert ": models.<<: unknown key, expected one of default," in the_problem(document(models="{<<: {threads: 2}}"))


@pytest.mark.parametrize(
    ("section", "text", "path", "nearest"),
    [
        ("inputs", "{}", "inputs", "input"),
        ("input", "{topic: e, strat: latest}", "input.strat", "start"),
        ("dead_letter", "{topic: d, max-consecutive: 5}", "dead_letter.max-consecutive", "max_consecutive"),
        ("models", "{default: {n_estimator: 5}}", "models.default.n_estimator", "n_estimators"),
        ("models", "{overrides: [{match: a, sed: 5}]}", "models.overrides[0].sed", "seed"),
    ],
)
def test_an_unknown_key_comes_with_the_nearest_known_one(section: str, text: str, path: str, nearest: str) -> None:
    problem = the_problem(document(**{section: text}))
    assert f": {path}: unknown key (did you mean {nearest}?), expected one of " in problem


def test_a_misspelt_key_is_named_before_the_key_that_is_missing_for_it() -> None:
    assert [problem.split(": expected")[0].split(",")[0] for problem in problems(document(output="{topik: a}"))] == [
        "worker.yaml:2: output.topik: unknown key (did you mean topic?)",
        "worker.yaml:2: output.topic",
    ]


def test_an_unknown_key_far_from_any_other_has_no_guess() -> None:
    assert the_problem(document(output="{topic: a, zzz: 1}")).endswith(
        "output.zzz: unknown key, expected one of topic, codec, explain"
    )


@pytest.mark.parametrize("missing", list(REQUIRED))
def test_a_missing_required_key_is_named_with_its_line(missing: str) -> None:
    key = {"kafka": "bootstrap.servers", "checkpoint": "url"}.get(missing, "topic")
    for text in (document(**{missing: ""}), document(**{missing: "{}"})):
        line = list(REQUIRED).index(missing) + 1
        problem = the_problem(text)
        assert problem.startswith(f"worker.yaml:{line}: {missing}.{key}: expected ")
        assert problem.endswith(", found nothing")


def test_an_empty_file_misses_every_required_key() -> None:
    assert [problem.split(": ")[1] for problem in problems("")] == [
        "checkpoint.url",
        "dead_letter.topic",
        "input.topic",
        "kafka.bootstrap.servers",
        "output.topic",
    ]


@pytest.mark.parametrize(
    ("first", "second"), [("input", "output"), ("input", "dead_letter"), ("output", "dead_letter")]
)
def test_the_topics_must_differ(first: str, second: str) -> None:
    line = list(REQUIRED).index(second) + 1
    problem = the_problem(document(**{first: "{topic: same}", second: "{topic: same}"}))
    assert problem == f"worker.yaml:{line}: {second}.topic: expected a topic of its own, found that of {first}.topic"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("input: [a", "worker.yaml:1: expected YAML, found a syntax error: while parsing a flow sequence"),
        ("input: [a\n", "worker.yaml:1: expected YAML, found a syntax error: while parsing a flow sequence"),
        ('a: "b\n', "worker.yaml:1: expected YAML, found a syntax error: while scanning a quoted scalar"),
        ("a: " + 3000 * "[", "worker.yaml: expected some levels of lists and mappings, found hundreds"),
        ("a: 1\n b: 2", "worker.yaml:2: expected YAML, found a syntax error: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2", "worker.yaml:2: expected YAML, found a syntax error: expected a single document"),
        ('a: 1\nb: "\\UFFFFFFFF"', "worker.yaml:2: expected YAML, found a syntax error: a number is too large"),
        ('a: 1\nb: "\\U00110000"', "worker.yaml:2: expected YAML, found a syntax error: a number is too large"),
        (
            f"%YAML 1.{'1' * 5000}\n---\na: 1",
            "worker.yaml:1: expected YAML, found a syntax error: a number is too large",
        ),
        ("a: 1\nb: \x07", "worker.yaml:2: expected YAML, found a character that it does not allow"),
        (
            "input: {topic: ${TOPIC}}",
            "worker.yaml:1: expected YAML, found a syntax error: while parsing a flow mapping",
        ),
    ],
)
def test_what_is_not_yaml_is_named_with_its_line(text: str, problem: str) -> None:
    assert the_problem(text).startswith(problem)
    assert the_problem(text).endswith("needs quotes") == ("$" in text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load(tmp_path / "missing.yaml", {})
    (tmp_path / "latin.yaml").write_bytes("# é".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml: expected text in UTF-8"):
        load(tmp_path / "latin.yaml", {})


def test_a_file_of_data_is_refused_before_it_is_taken_for_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML would take minutes to make nothing of it; of a device without an end there is no all of it."""
    monkeypatch.setattr("worker.config.compose", lambda text: pytest.fail("it is read"))
    (tmp_path / "rows.csv").write_text("a,b,c\n" * 100_000)
    for path in (tmp_path / "rows.csv", Path("/dev/zero")):
        with pytest.raises(ConfigError, match=rf"{path}: expected a configuration, of at most 262,144 characters"):
            load(path, {})


def test_the_configuration_cannot_be_changed() -> None:
    config = loads(document(models="{overrides: [{match: a, seed: 1}]}"), {})
    with pytest.raises(FrozenInstanceError):
        config.input.topic = "other"  # type: ignore[misc]
    for mapping in (config.kafka, config.models.overrides[0].params):
        with pytest.raises(TypeError):
            mapping["seed"] = "2"  # type: ignore[index]
