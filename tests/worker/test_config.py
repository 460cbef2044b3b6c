"""The configuration: what a file may say, what it becomes, and what an error tells (and never tells)."""

from __future__ import annotations

import logging
import re
from dataclasses import FrozenInstanceError, replace
from fnmatch import fnmatchcase
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

import amf
from worker.base.errors import ConfigError
from worker.base.limits import MAX_LABEL_CHARS
from worker.config import Config, ModelParams, Models, effective, intake_of, load, loads
from worker.config import kafka as config_kafka
from worker.config.keys import Decides, Key, Section, keys
from worker.config.keys import key as declare
from worker.config.model import SYSTEMS, fits, preset_values
from worker.config.overrides import may_match_both
from worker.config.text import Plain
from worker.config.values import Kind, address, classes, duration, features, mask_url, positive_share, size

EXAMPLE = Path(__file__).parents[2] / "config" / "worker.yaml"

HALF = "half of a surrogate pair, which is no character"
"""What is found in a text that has one."""
LONG = "text of {} characters, where {} are the most"
REQUIRED = {
    "input": "{topic: events}",
    "output": "{topic: predictions}",
    "dead_letter": "{topic: dead-letters}",
    "kafka": "{bootstrap.servers: 'localhost:9092'}",
    "checkpoint": "{url: 'file:///var/lib/amf/checkpoints'}",
}


def document(**sections: str) -> str:
    """A file with what must be given, each section on its own line in the order of REQUIRED; then what is added."""
    return "".join(f"{name}: {value}\n" for name, value in {**REQUIRED, **sections}.items())


def problems(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, environ or {}, "worker.yaml")
    return str(caught.value).splitlines()


def the_problem(text: str, environ: dict[str, str] | None = None) -> str:
    found = problems(text, environ)
    assert len(found) == 1, found
    return found[0]


def kafka(properties: str) -> str:
    return document(kafka=f"{{bootstrap.servers: 'localhost:9092', {properties}}}")


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


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "text", "path", "expected"),
    [
        ("input", "{topic: e, start: latest}", "input.start", "latest"),
        ("input", "{topic: e, tombstones: reset}", "input.tombstones", "reset"),
        ("input", "{topic: e, max_bytes: 10MiB}", "input.max_bytes", 10 * 2**20),
        ("input", "{topic: e, max_bytes: 1GB}", "input.max_bytes", 10**9),
        ("input", "{topic: e, max_bytes: 1.5KB}", "input.max_bytes", 1500),
        ("dead_letter", "{topic: d, max_consecutive: 1}", "dead_letter.max_consecutive", 1),
        ("delivery", "at-least-once", "delivery", "at-least-once"),
        ("checkpoint", "{url: 'memory://', interval: 500ms}", "checkpoint.interval_s", 0.5),
        ("checkpoint", "{url: 'memory://', interval: 2m}", "checkpoint.interval_s", 120.0),
        ("checkpoint", "{url: 'memory://', interval: 1h}", "checkpoint.interval_s", 3600.0),
        ("checkpoint", "{url: 'memory://', interval: 168h}", "checkpoint.interval_s", 604_800.0),
        ("checkpoint", "{url: 'memory://', interval: 7}", "checkpoint.interval_s", 7.0),
        ("checkpoint", "{url: 'memory://', interval: 0.25}", "checkpoint.interval_s", 0.25),
        ("checkpoint", "{url: 's3://bucket/folder'}", "checkpoint.url", "s3://bucket/folder"),
        ("checkpoint", "{url: 'memory://', lineage: main~2}", "checkpoint.lineage", "main~2"),
        ("metrics", "{listen: '[::1]:0'}", "metrics.host", "::1"),
        ("metrics", "{listen: 'localhost:65535'}", "metrics.port", 65535),
        ("models", "{null_key: anonymous}", "models.null_key", "anonymous"),
        ("models", "{on_spec_change: restart}", "models.on_spec_change", "restart"),
        ("models", "{default: {n_estimators: 1000}}", "models.default.n_estimators", 1000),
        ("models", "{default: {seed: 9223372036854775807}}", "models.default.seed", 2**63 - 1),
        ("models", "{default: {classes: [no, yes]}}", "models.default.classes", ("no", "yes")),
        ("models", "{default: {classes: [1, 2, true, '3']}}", "models.default.classes", (1, 2, True, "3")),
        ("models", "{default: {features: 10}}", "models.default.features", 10),
        ("models", "{default: {features: [age, '2']}}", "models.default.features", ("age", "2")),
        ("models", "{default: {dirichlet: 0.5}}", "models.default.dirichlet", 0.5),
        ("models", "{default: {smoothing: 2}}", "models.default.smoothing", 2.0),
        ("models", "{default: {smoothing: 1e-3}}", "models.default.smoothing", 0.001),
        ("models", "{default: {split_pure: true}}", "models.default.split_pure", True),
        ("models", "{default: {pause: 1}}", "models.default.pause", 1.0),
        ("models", "{default: {mode: expected}}", "models.default.mode", "expected"),
        ("models", "{default: {charge_first: true}}", "models.default.charge_first", True),
        ("models", "{default: {algorithm: amf-regressor, calibration: false}}", "models.default.calibration", False),
        ("models", "{default: {algorithm: amf-regressor, loss: square, bound: 9}}", "models.default.bound", 9.0),
    ],
)
def test_a_value_is_parsed_with_its_type(section: str, text: str, path: str, expected: object) -> None:
    value: object = loads(document(**{section: text}), {})
    for name in path.split("."):
        value = getattr(value, name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("section", "text", "path", "found"),
    [
        ("input", "{topic: 5}", "input.topic", "5"),
        ("input", "{topic: a/b}", "input.topic", "'a/b'"),
        ("input", "{topic: ..}", "input.topic", "'..'"),
        ("input", f"{{topic: {'x' * 250}}}", "input.topic", f"'{'x' * 56}..."),
        ("input", "{topic: e, start: end}", "input.start", "'end'"),
        ("input", "{topic: e, start: }", "input.start", "nothing"),
        ("input", "{topic: e, max_bytes: 0}", "input.max_bytes", "0"),
        ("input", "{topic: e, max_bytes: 1001MB}", "input.max_bytes", "'1001MB'"),
        ("input", "{topic: e, max_bytes: 1.5B}", "input.max_bytes", "'1.5B'"),
        ("input", "{topic: e, max_bytes: -1}", "input.max_bytes", "-1"),
        ("input", "{topic: e, max_bytes: 1mb}", "input.max_bytes", "'1mb'"),
        ("dead_letter", "{topic: d, max_consecutive: 0}", "dead_letter.max_consecutive", "0"),
        ("dead_letter", "{topic: d, max_consecutive: 1.0}", "dead_letter.max_consecutive", "1.0"),
        ("delivery", "exactly_once", "delivery", "'exactly_once'"),
        ("delivery", "{mode: exactly-once}", "delivery", "a mapping"),
        ("delivery", "!mine exactly-once", "delivery", "a value with a YAML tag"),
        ("kafka", "{bootstrap.servers: no host}", "kafka.bootstrap.servers", "'no host'"),
        ("checkpoint", "{url: /var/lib}", "checkpoint.url", "a path: file:// belongs before it"),
        ("checkpoint", "{url: var/lib}", "checkpoint.url", "something that is no such URL"),
        ("checkpoint", "{url: 'http://host'}", "checkpoint.url", "the scheme http"),
        ("checkpoint", "{url: 'file://var/lib'}", "checkpoint.url", "a file URL without an absolute path"),
        ("checkpoint", "{url: 's3:///folder'}", "checkpoint.url", "an s3 URL without a bucket"),
        ("checkpoint", "{url: 's3://key:x@/folder'}", "checkpoint.url", "an s3 URL without a bucket"),
        ("checkpoint", "{url: 'memory://', interval: 0}", "checkpoint.interval", "0"),
        ("checkpoint", "{url: 'memory://', interval: 169h}", "checkpoint.interval", "'169h'"),
        ("checkpoint", "{url: 'memory://', interval: 30 seconds}", "checkpoint.interval", "'30 seconds'"),
        ("checkpoint", "{url: 'memory://', interval: true}", "checkpoint.interval", "true"),
        ("checkpoint", "{url: 'memory://', interval: 1e999}", "checkpoint.interval", "inf"),
        ("checkpoint", "{url: 'memory://', lineage: ..}", "checkpoint.lineage", "'..'"),
        ("checkpoint", f"{{url: 'memory://', lineage: {'x' * 201}}}", "checkpoint.lineage", f"'{'x' * 56}..."),
        ("checkpoint", "{url: 'memory://', lineage: a@b}", "checkpoint.lineage", "'a@b'"),
        ("metrics", "{listen: '127.0.0.1'}", "metrics.listen", "'127.0.0.1'"),
        ("metrics", "{listen: '127.0.0.1:65536'}", "metrics.listen", "'127.0.0.1:65536'"),
        ("metrics", "{listen: '::1:80'}", "metrics.listen", "'::1:80'"),
        ("metrics", "{listen: '[1.2.3.4]:80'}", "metrics.listen", "'[1.2.3.4]:80'"),
        ("models", "{null_key: ''}", "models.null_key", "''"),
        ("models", '{null_key: "\\ud800"}', "models.null_key", HALF),
        ("models", '{default: {classes: [a, "x\\udfff"]}}', "models.default.classes", HALF),
        ("models", "{overrides: {match: a}}", "models.overrides", "a mapping"),
        ("models", "{overrides: }", "models.overrides", "nothing"),
        ("models", "{overrides: [{match: ''}]}", "models.overrides[0].match", "''"),
        ("models", "{overrides: [{match: a}, {seed: 1}]}", "models.overrides[1].match", "nothing"),
        ("models", "{default: {algorithm: forest}}", "models.default.algorithm", "'forest'"),
        ("models", "{default: {n_estimators: 0}}", "models.default.n_estimators", "0"),
        ("models", "{default: {n_estimators: 1001}}", "models.default.n_estimators", "1001"),
        ("models", "{default: {n_estimators: '10'}}", "models.default.n_estimators", "'10'"),
        ("models", "{default: {seed: true}}", "models.default.seed", "true"),
        ("models", "{default: {seed: 9223372036854775808}}", "models.default.seed", "9223372036854775808"),
        ("models", "{default: {classes: [a]}}", "models.default.classes", "a list of 1"),
        ("models", "{default: {classes: [1, '1']}}", "models.default.classes", "'1' twice"),
        ("models", "{default: {classes: [true, 'true']}}", "models.default.classes", "'true' twice"),
        ("models", "{default: {classes: [a, 0.5]}}", "models.default.classes", "an item of another type"),
        ("models", "{default: {classes: [a, [b]]}}", "models.default.classes", "a list"),
        ("models", f"{{default: {{classes: [a, {'b' * 129}]}}}}", "models.default.classes", LONG.format(129, 128)),
        (
            "models",
            "{default: {classes: [1, 18446744073709551616]}}",
            "models.default.classes",
            "an integer beyond 64 bits",
        ),
        (
            "models",
            "{default: {classes: [1, -9223372036854775809]}}",
            "models.default.classes",
            "an integer beyond 64 bits",
        ),
        ("models", f"{{default: {{features: [a, {'b' * 257}]}}}}", "models.default.features", LONG.format(257, 256)),
        ("models", "{default: {features: 0}}", "models.default.features", "0"),
        ("models", "{default: {features: []}}", "models.default.features", "a list of 0"),
        ("models", "{default: {features: [a, 1]}}", "models.default.features", "an item of another type"),
        ("models", "{default: {features: [a, a]}}", "models.default.features", "'a' twice"),
        ("models", "{default: {scaling: robust}}", "models.default.scaling", "'robust'"),
        ("models", "{default: {max_bytes: 63KB}}", "models.default.max_bytes", "'63KB'"),
        ("models", "{default: {max_classes: 1}}", "models.default.max_classes", "1"),
        ("models", "{default: {max_classes: 65537}}", "models.default.max_classes", "65537"),
        ("models", "{default: {max_features: 100001}}", "models.default.max_features", "100001"),
        ("models", "{default: {max_categories: 0}}", "models.default.max_categories", "0"),
        ("models", "{default: {prior: none}}", "models.default.prior", "'none'"),
        ("models", "{default: {dirichlet: 0}}", "models.default.dirichlet", "0"),
        ("models", "{default: {smoothing: -1.0}}", "models.default.smoothing", "-1.0"),
        ("models", "{default: {split_pure: yes}}", "models.default.split_pure", "'yes'"),
        ("models", "{default: {pause: 0}}", "models.default.pause", "0"),
        ("models", "{default: {pause: 1.01}}", "models.default.pause", "1.01"),
        ("models", "{default: {algorithm: amf}}", "models.default.algorithm", "'amf'"),
        ("models", "{default: {preset: papers}}", "models.default.preset", "'papers'"),
    ],
)
def test_values_that_do_not_fit(section: str, text: str, path: str, found: str) -> None:
    line = [*{**REQUIRED, section: text}].index(section) + 1
    problem = the_problem(document(**{section: text}))
    assert problem.startswith(f"worker.yaml:{line}: {path}: expected ")
    assert problem.endswith(f", found {found}")


def durations() -> st.SearchStrategy[float]:
    written = st.tuples(st.integers(1, 10**6), st.sampled_from([0.001, 1.0, 60.0, 3600.0])).map(
        lambda of: of[0] * of[1]
    )
    return st.one_of(st.floats(0.001, 604_800.0), written.filter(lambda seconds: 0.001 <= seconds <= 604_800.0))


@given(durations())
def test_durations_survive_being_written(seconds: float) -> None:
    kind = duration("1ms", "168h")
    assert kind.parse(kind.dump(seconds)) == seconds


@given(st.integers(1, 10**12))
def test_sizes_survive_being_written(count: int) -> None:
    kind = size("1B", "1000GB")
    assert kind.parse(kind.dump(count)) == count


@pytest.mark.parametrize(("count", "text"), [(64_000_000, "64MB"), (2**26, "64MiB"), (64_000, "64KB"), (1, "1B")])
def test_sizes_are_written_in_the_largest_whole_unit(count: int, text: str) -> None:
    assert size("1B", "1GB").dump(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(30.0, "30s"), (0.5, "500ms"), (0.007, "7ms"), (120.0, "2m"), (90.0, "90s"), (7200.0, "2h")]
)
def test_durations_are_written_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert duration("1ms", "168h").dump(seconds) == text


# YAML 1.1 and 1.2 disagree about most of these; whatever they look like, text must come back as text.
TRICKY = st.sampled_from(["no", "1e5", "08", "12:30", "2020-01-01", "~", "", "Null", ".5", "<<", "0x1f", " a ", "# a"])
# Text with a reference in it can only have come from the environment and cannot be written into a file.
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=MAX_LABEL_CHARS).filter(
    lambda text: "${" not in text
)


@given(st.lists(st.one_of(TRICKY, ANY_TEXT), min_size=2, unique=True))
def test_any_text_survives_the_effective_configuration(names: list[str]) -> None:
    config = loads(document(), {})
    params = replace(config.models.default, classes=tuple(names), features=tuple(names))
    config = replace(config, models=replace(config.models, default=params))
    assert loads(effective(config), {}) == config


# Which parser is asked does not matter: none may raise anything but ValueError, which is how it says no.
@pytest.mark.parametrize(
    "kind",
    [duration("1ms", "1h"), size("1B", "1GB"), address(), classes(), features(10), positive_share()],
    ids=lambda kind: kind.expected,
)
@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.one_of(st.none(), st.text()))
    )
)
def test_no_value_breaks_a_parser(kind: Kind[object], value: Plain) -> None:
    try:
        parsed = kind.parse(value)
    except ValueError:
        return
    assert kind.parse(kind.dump(parsed)) == parsed


# --- the environment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("${N}", {"N": "20"}, 20),
        ("'${N}'", {"N": "20"}, 20),
        ("${N}", {"N": " 20\n"}, 20),
        ("${N:-30}", {}, 30),
        ("${N:-30}", {"N": ""}, 30),
        ("${N:-30}", {"N": "20"}, 20),
        ("${N}0", {"N": "5"}, 50),
        ("'${N}0'", {"N": "5"}, None),
    ],
)
def test_a_value_from_the_environment_is_typed_as_yaml(
    text: str, environ: dict[str, str], expected: int | None
) -> None:
    source = document(models=f"\n  default:\n    n_estimators: {text}")
    if expected is None:
        assert the_problem(source, environ).endswith("found another value in ${N}")
    else:
        assert loads(source, environ).models.default.n_estimators == expected


@pytest.mark.parametrize(
    ("text", "environ", "topic"),
    [
        ("${STAGE}-events", {"STAGE": "test"}, "test-events"),
        ("${STAGE}.${TEAM:-core}.events", {"STAGE": "test"}, "test.core.events"),
        ("${TOPIC}", {"TOPIC": "2024"}, "2024"),
        ("${TOPIC:-a-b}", {}, "a-b"),
    ],
)
def test_references_inside_text(text: str, environ: dict[str, str], topic: str) -> None:
    assert loads(document(input=f'{{topic: "{text}"}}'), environ).input.topic == topic


def test_a_value_is_not_expanded_twice() -> None:
    properties = loads(kafka('sasl.password: "${PASSWORD}"'), {"PASSWORD": "${HOME} 08"}).kafka
    assert properties["sasl.password"] == "${HOME} 08"


@pytest.mark.parametrize(
    ("content", "password"),
    [
        ("hunter2", "hunter2"),
        ("hunter2\n", "hunter2"),
        ("hunter2\r\n\n", "hunter2"),
        (" 0123 \n", " 0123 "),
        ("-----BEGIN-----\nhunter2\n", "-----BEGIN-----\nhunter2"),
        ("${HOME}", "${HOME}"),
    ],
)
def test_a_reference_to_a_file_is_its_text_without_the_last_line_end(
    content: str, password: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_bytes(content.encode())
    properties = loads(kafka(f'sasl.password: "${{file:{tmp_path}/password}}"'), {}).kafka
    assert properties["sasl.password"] == password


def test_references_to_files_and_variables_go_together(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("prod\n")
    text = f'{{topic: "${{file:{tmp_path}/a b}}-${{file}}.${{file:-events}}"}}'
    assert loads(document(input=text), {"file": "x"}).input.topic == "prod-x.x"
    (tmp_path / "trees").write_text(" 20\n")
    model = loads(document(models=f"\n  default:\n    n_estimators: ${{file:{tmp_path}/trees}}"), {}).models.default
    assert model.n_estimators == 20


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("${TOPIC}", "${TOPIC}, which is not set in the environment and has no default"),
        ("a-${TOPIC}", "${TOPIC}, which is not set in the environment and has no default"),
        ("${TOPIC", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${TOPIC-x}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${TOPIC:-${OTHER}}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${file:relative}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${file:/}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${file:/tmp}", "${file:/tmp}, which cannot be read: Is a directory"),
        ("${file:/no/such/file}", "${file:/no/such/file}, which cannot be read: No such file or directory"),
        (r"${file:/a\0b}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
        ("${1}", "an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}"),
    ],
)
def test_references_that_cannot_be_resolved(text: str, found: str) -> None:
    problem = the_problem(document(output=f'{{topic: "{text}"}}'))
    assert problem.startswith("worker.yaml:2: output.topic: expected a topic name")
    assert problem.endswith(f", found {found}")


# --- the file as a whole ----------------------------------------------------------------------------------------------


def test_all_problems_come_at_once_in_the_order_of_the_file_and_what_is_missing_last() -> None:
    text = document(
        input="{topik: events}",
        output="{topic: a, topic: b}",
        models="\n  default: {n_estimators: 0}\n  overrides:\n  - {match: a}\n  - {match: b, n_estimators: -1}\n  - 5",
        metric="{}",
    )
    starts = [
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
    assert f": {path}: unknown key, expected one of " in problem
    assert problem.endswith(f"; did you mean {nearest}?")


def test_a_misspelt_key_is_named_before_the_key_that_is_missing_for_it() -> None:
    assert [problem.split(": expected")[0].split(",")[0] for problem in problems(document(output="{topik: a}"))] == [
        "worker.yaml:2: output.topik: unknown key",
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
        ("a: 1\nb: \x07", "worker.yaml:2: expected YAML, found a character that it does not allow"),
        (
            "input: {topic: ${TOPIC}}",
            "worker.yaml:1: expected YAML, found a syntax error: while parsing a flow mapping",
        ),
    ],
)
def test_what_is_not_yaml(text: str, problem: str) -> None:
    assert the_problem(text).startswith(problem)
    assert the_problem(text).endswith("needs quotes") == ("$" in text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load(tmp_path / "missing.yaml", {})
    (tmp_path / "latin.yaml").write_bytes("# é".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml: expected text in UTF-8"):
        load(tmp_path / "latin.yaml", {})


def test_the_configuration_cannot_be_changed() -> None:
    config = loads(document(models="{overrides: [{match: a, seed: 1}]}"), {})
    with pytest.raises(FrozenInstanceError):
        config.input.topic = "other"  # type: ignore[misc]
    for mapping in (config.kafka, config.models.overrides[0].params):
        with pytest.raises(TypeError):
            mapping["seed"] = "2"  # type: ignore[index]


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


def models(text: str) -> Models:
    return loads(document(models=text), {}).models


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
    problem = f"worker.yaml:{line}: {path}: expected a key of algorithm {algorithm}, found another's"
    assert the_problem(document(models=text)) == problem


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
    found = models(text)
    for key in ("a", "b", "ab", "abc", "ac", "bb", "x-a", "x-b"):
        found.params_for(key).of_forest(0)


@given(st.text("ab*?[]", max_size=4), st.text("ab*?[]", max_size=4), st.text("ab[]", max_size=4))
def test_patterns_that_are_said_never_to_match_one_key_never_do(one: str, other: str, key: str) -> None:
    if fnmatchcase(key, one) and fnmatchcase(key, other):
        assert may_match_both(one, other)


def test_overrides_go_together_in_any_combination() -> None:
    square, student = "{match: '*a*', loss: square, bound: 2}", "{match: '*b*', loss: student, bound: null}"
    for overrides in (
        f"{square}, {student}",
        f"{student}, {square}",
        f"{student}, {square}, {{match: c, bound: null}}",
    ):
        found = models(f"{{default: {{algorithm: amf-regressor}}, overrides: [{overrides}]}}")
        for key in ("a", "b", "ab", "abc", "c"):
            loss = found.params_for(key).loss
            assert found.params_for(key).of_forest(0).bound == (2.0 if loss == "square" else None)  # type: ignore


def test_models_that_match_the_same_overrides_have_the_same_parameters() -> None:
    found = models(
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
    found = models("{default: {smoothing: 2, seed: 5}, overrides: [{match: 'price-*', algorithm: amf-regressor}]}")
    assert found.algorithms == {"amf-classifier", "amf-regressor"}
    price = found.params_for("price-1").of_forest(7)
    assert price == amf.AMFRegressorParams(seed=7)
    assert found.params_for("churn").of_forest(7) == amf.AMFClassifierParams(seed=7, smoothing=2.0)


def test_forecasts_are_calibrated_as_the_algorithm_has_it_unless_a_key_says_so() -> None:
    unrestricted = "algorithm: unrestricted-amf-classifier"
    found = models(f"{{overrides: [{{match: u*, {unrestricted}}}, {{match: '*+', calibration: true}}]}}")
    assert [found.params_for(key).of_forest(0).calibration for key in ("a", "u", "u+")] == [True, False, True]
    found = models(f"{{default: {{calibration: false}}, overrides: [{{match: u, {unrestricted}, calibration: null}}]}}")
    assert [found.params_for(key).of_forest(0).calibration for key in ("a", "u")] == [False, False]


def test_smoothing_is_what_the_algorithm_makes_of_it() -> None:
    mondrian = "algorithm: mondrian-classifier"
    found = models(
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
    found = models(
        "{default: {pause: 0.5, scaling: auto}, overrides: [{match: u, algorithm: unrestricted-amf-classifier}]}"
    )
    assert found.params_for("u").of_forest(7) == amf.UnrestrictedAMFClassifierParams(seed=7)
    for name in amf.UnrestrictedAMFClassifierParams.FIXED:
        assert fits(name, "amf-classifier")
        assert not fits(name, "unrestricted-amf-classifier")


def test_a_preset_is_short_for_its_keys() -> None:
    found = models(
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


def test_the_effective_configuration_shows_the_keys_of_the_algorithm() -> None:
    override = "{match: a, algorithm: amf-classifier, preset: paper, pause: 1}"
    config = loads(document(models=f"{{default: {{algorithm: amf-regressor}}, overrides: [{override}]}}"), {})
    shown = yaml.safe_load(effective(config))["models"]
    assert "loss" in shown["default"]
    assert "smoothing" not in shown["default"]
    assert shown["overrides"][0]["prior"] == "dirichlet"
    assert loads(effective(config), {}) == config


# --- kafka properties -------------------------------------------------------------------------------------------------


def test_kafka_values_are_the_text_that_was_written() -> None:
    given_text = "a: 0123, b: True, c: 1.50, d: 'True', e: 1e3, f: off, g: '${FLAG}', h: 'x ${FLAG}'"
    properties = loads(kafka(given_text), {"FLAG": "True"}).kafka
    assert {name: properties[name] for name in "abcdefgh"} == {
        "a": "0123",
        "b": "true",
        "c": "1.50",
        "d": "True",
        "e": "1e3",
        "f": "off",
        "g": "True",
        "h": "x True",
    }


@pytest.mark.parametrize("url", ["https://host/token", "http://host:80", "https://host/a/token?p=policy&user=a@b"])
def test_the_url_of_tokens_reaches_the_clients(url: str) -> None:
    name = "sasl.oauthbearer.token.endpoint.url"
    assert loads(kafka(f"{name}: '{url}'"), {}).consumer_properties()[name] == url


@pytest.mark.parametrize(
    ("properties", "path", "end"),
    [
        ("client.rack: ", "client.rack", "expected text, a number, true or false, found nothing"),
        ("client.rack: [a]", "client.rack", "expected text, a number, true or false, found a list of 1"),
        ("client.rack: {a: b}", "client.rack", "expected text, a number, true or false, found a mapping"),
        (
            "client.rack: '${ID:-}'",
            "client.rack",
            "expected text, a number, true or false, found another value in ${ID}",
        ),
        ("client.id: händler", "client.id", "expected 1 to 249 ASCII characters, found 'händler'"),
        ("group.instance.id: w 1", "group.instance.id", "letters, digits, `.`, `_` and `-`, found 'w 1'"),
        ("group.id: a/b", "group.id", "found 'a/b'"),
        ("group.id: '..'", "group.id", "found '..'"),
        ("max.poll.interval.ms: abc", "max.poll.interval.ms", "expected a number of milliseconds, found 'abc'"),
        ("message.max.bytes: 1MB", "message.max.bytes", "expected a number of bytes, found '1MB'"),
        (
            "sasl.oauthbearer.token.endpoint.url: 'https://me:hunter2@host/token'",
            "sasl.oauthbearer.token.endpoint.url",
            "expected an http:// or https:// URL without user info, found something else",
        ),
        ("group.protocol: modern", "group.protocol", "expected one of classic, consumer, found 'modern'"),
        ("group.protocol: consumer, session.timeout.ms: 1", "session.timeout.ms", "the broker decides it"),
        ("group.protocol: consumer, heartbeat.interval.ms: 1", "heartbeat.interval.ms", "the broker decides it"),
    ],
)
def test_kafka_properties_that_do_not_fit(properties: str, path: str, end: str) -> None:
    problem = the_problem(kafka(properties))
    assert problem.startswith(f"worker.yaml:4: kafka.{path}: ")
    assert problem.endswith(end)


# Beyond what the worker sets itself: what would undo it, or would have no effect or no place in a file.
ALSO_RESERVED = """
enable.partition.eof auto.commit.interval.ms auto.commit.enable offset.store.method request.required.acks max.in.flight
max.in.flight.requests.per.connection queuing.strategy on_commit error_cb rebalance_cb dr_msg_cb logger interceptors
default_topic_conf default.topic.config
"""


@pytest.mark.parametrize("name", sorted({*config_kafka.RESERVED, *re.findall(r"\S+", ALSO_RESERVED)}))
def test_reserved_properties_say_why(name: str) -> None:
    problem = the_problem(kafka(f"{name}: hidden-value"))
    assert re.fullmatch(rf"worker\.yaml:4: kafka\.{re.escape(name)}: reserved: .{{20,}}", problem)
    assert "hidden-value" not in problem


def test_what_the_guarantees_set_is_reserved() -> None:
    config = loads(document(), {})
    clients = (config.consumer_properties(), config.producer_properties("tx"), config.admin_properties())
    set_by_us = set().union(*clients) - set(config.kafka) - {"client.id"}  # it carries no guarantee
    assert {"isolation.level", "transactional.id", "partitioner", "enable.auto.commit"} <= set_by_us
    assert set_by_us <= set(config_kafka.RESERVED)


def test_properties_of_the_consumer() -> None:
    properties = loads(kafka("max.poll.interval.ms: 60000, linger.ms: 1, group.id: g"), {}).consumer_properties()
    assert properties == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "amf-worker",
        "group.id": "g",
        "max.poll.interval.ms": "60000",
        "session.timeout.ms": "10000",
        "check.crcs": "true",
        "fetch.queue.backoff.ms": "100",
        "fetch.min.bytes": "65536",
        "fetch.wait.max.ms": "20",
        "allow.auto.create.topics": "false",
        "auto.offset.reset": "error",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
    }


def test_the_consumer_protocol_leaves_out_what_the_broker_decides() -> None:
    config = loads(kafka("group.protocol: consumer"), {})
    classic_only = {
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "group.protocol.type",
    }
    assert not classic_only & set(config.consumer_properties())
    assert config.consumer_properties()["group.protocol"] == "consumer"


def test_properties_of_the_producers() -> None:
    config = loads(kafka("compression.type: zstd, fetch.min.bytes: 2"), {})
    idempotent = {
        "bootstrap.servers": "localhost:9092",
        "client.id": "amf-worker",
        "compression.type": "zstd",
        "linger.ms": "20",
        "queue.buffering.max.messages": "500000",
        "acks": "all",
        "allow.auto.create.topics": "false",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
    }
    assert config.producer_properties() == idempotent
    transactional = {"transactional.id": "amf-0", "transaction.timeout.ms": "10000"}
    assert config.producer_properties("amf-0") == idempotent | transactional


def test_an_admin_client_gets_what_all_clients_share() -> None:
    given = "security.protocol: ssl, linger.ms: 1, group.instance.id: w-0"
    # The last two have to go together, or no client is made.
    config = loads(kafka(f"{given}, fetch.max.bytes: 1000000, receive.message.max.bytes: 2000000"), {})
    assert config.admin_properties() == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "w-0",
        "security.protocol": "ssl",
        "allow.auto.create.topics": "false",
    }


@pytest.mark.parametrize("name", ["linger.ms", "queue.buffering.max.ms"])
def test_a_default_yields_to_the_user_under_either_name(name: str) -> None:
    properties = loads(kafka(f"{name}: 3"), {}).producer_properties()
    assert {k: v for k, v in properties.items() if k in ("linger.ms", "queue.buffering.max.ms")} == {name: "3"}


# Every property that librdkafka documents for one kind of client only and that is not reserved, with a value it takes.
ONE_SIDED = """
check.crcs: true, consume.callback.max.messages: 0, coordinator.query.interval.ms: 1000, fetch.error.backoff.ms: 500,
fetch.max.bytes: 52428800, fetch.message.max.bytes: 1048576, fetch.min.bytes: 1, fetch.queue.backoff.ms: 10,
fetch.wait.max.ms: 500, group.id: g, group.instance.id: i, group.protocol: classic, group.protocol.type: consumer,
group.remote.assignor: uniform, heartbeat.interval.ms: 3000, max.partition.fetch.bytes: 1048576,
max.poll.interval.ms: 300000, queued.max.messages.kbytes: 65536, queued.min.messages: 1000, session.timeout.ms: 10000,
share.acknowledgement.mode: implicit, batch.num.messages: 10000, batch.size: 1000000, compression.codec: none,
compression.level: -1, compression.type: none, delivery.timeout.ms: 10000, linger.ms: 5, message.send.max.retries: 5,
message.timeout.ms: 10000, queue.buffering.max.kbytes: 1000, queue.buffering.max.messages: 1000,
queue.buffering.max.ms: 5, request.timeout.ms: 500, retries: 5, sticky.partitioning.linger.ms: 10,
transaction.timeout.ms: 10000
"""


@pytest.mark.parametrize("properties", ["client.id: w", " ".join(ONE_SIDED.split()), "group.protocol: consumer"])
def test_librdkafka_takes_the_properties_of_each_client_without_a_word(properties: str) -> None:
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.Logger("librdkafka")
    logger.addHandler(Listener())
    config = loads(kafka(properties), {})
    consumer = confluent_kafka.Consumer(config.consumer_properties(), logger=logger)
    clients = [
        consumer,
        confluent_kafka.Producer(config.producer_properties(), logger=logger),
        confluent_kafka.Producer(config.producer_properties("amf-0"), logger=logger),
        AdminClient(config.admin_properties(), logger=logger),
    ]
    for client in clients:
        client.poll(0)
    consumer.close()
    # A client may say so, too, that it has lost its only broker before it had come up: no word on the properties.
    notices = [line for line in said if line.startswith("CONF") and "No `bootstrap.servers`" not in line]
    assert notices == []


# --- secrets ----------------------------------------------------------------------------------------------------------

SECRET = "hunter2"
SECRET_PROPERTIES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "ssl.certificate.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.jaas.config",
    "basic.auth.user.info",
    "plugin.library.paths",
    "some.api.Token",
]


@pytest.mark.parametrize("name", SECRET_PROPERTIES)
def test_secret_properties_reach_the_clients_and_nobody_else(name: str) -> None:
    config = loads(kafka(f"{name}: '${{SECRET}}'"), {"SECRET": SECRET})
    assert config.consumer_properties()[name] == config.producer_properties()[name] == SECRET
    assert config.admin_properties()[name] == SECRET
    assert f"{name}: '***'" in effective(config)
    assert SECRET not in effective(config) + repr(config) + str(config)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("s3://key:hunter2@bucket/folder", "s3://***@bucket/folder"),
        ("s3://key:hun/ter2@bucket/folder", "s3://***@bucket/folder"),
        ("az://container/folder?sig=hunter2&x", "az://container/folder?***"),
        ("gs://bucket/folder", "gs://bucket/folder"),
        ("file:///a/b", "file:///a/b"),
        ("memory://", "memory://"),
    ],
)
def test_credentials_in_the_checkpoint_url_are_masked(url: str, masked: str) -> None:
    config = loads(document(checkpoint=f"{{url: '{url}'}}"), {})
    assert config.checkpoint.url == url
    assert mask_url(url) == masked
    assert f"url: {masked}\n" in effective(config)
    assert "ter2" not in effective(config) + repr(config)


@pytest.mark.parametrize(
    "text",
    [
        kafka("sasl.password: [hunter2]"),
        kafka("sasl.password: {hunter2: hunter2}"),
        kafka("sasl.password: !vault hunter2"),
        kafka("sasl.password: *hunter2"),
        kafka("sasl.password: !hunter2!x y"),
        kafka("sasl.password:hunter2"),
        kafka("sasl.password: hunter2, sasl.password: hunter2"),
        kafka("transactional.id: hunter2"),
        document(kafka="sasl.password:hunter2"),
        document(kafka="\n  sasl.password: 'hunter2\n"),
        document(kafka="\n  sasl.password: hunter2: x\n"),
        document(input="{topic: events, sasl.password: hunter2}"),
        document(input="{topic: events, password:hunter2}"),
        document(checkpoint="{url: 'http://key:hunter2@host'}"),
        document(checkpoint="{url: 'hunter2'}"),
        document(checkpoint="{url: 's3://key:hunter2@bucket/#x'}"),
        document(checkpoint="url:s3://key:hunter2@bucket"),
        document(checkpoint="{url: '${SECRET}'}"),
        document(checkpoint="{url: 'memory://', interval: '${SECRET}'}"),
        document(checkpoint="{url: 'memory://', lineage: 'a/${SECRET}'}"),
        document(models="{default: {n_estimators: '${SECRET}'}}"),
        document(models="{default: {classes: ['${SECRET}', '${SECRET}']}}"),
        document(kafka="{bootstrap.servers: b, group.id: '${SECRET}/'}"),
        document(kafka="{bootstrap.servers: b, group.protocol: '${SECRET}'}"),
        document(kafka="{bootstrap.servers: b, '${SECRET}': 1}"),
    ],
)
def test_no_error_tells_a_secret(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, {"SECRET": SECRET})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "section",
    [
        {"input": "{{topic: '{}/'}}"},
        {"checkpoint": "{{url: '{}'}}"},
        {"checkpoint": "{{url: 'memory://', interval: '{}'}}"},
        {"models": "{{default: {{classes: ['{}', '{}']}}}}"},
        {"kafka": "{{bootstrap.servers: b, group.protocol: '{}'}}"},
    ],
)
def test_no_error_tells_what_a_file_holds(section: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    reference = f"${{file:{tmp_path}/secret}}"
    problem = the_problem(document(**{name: text.format(reference, reference) for name, text in section.items()}))
    assert problem.endswith(f"found another value in {reference}") or "', '" in section.get("models", "")
    assert SECRET not in problem


def test_a_file_that_is_not_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET.encode() + b"\xff")
    problem = the_problem(kafka(f"sasl.password: '${{file:{tmp_path}/secret}}'"))
    assert problem.endswith(f"found ${{file:{tmp_path}/secret}}, which is not text in UTF-8")


# --- the effective configuration --------------------------------------------------------------------------------------


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
