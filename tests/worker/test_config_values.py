"""What a value of the configuration may be, what it becomes, and what an error says was found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.support.configurations import REQUIRED, document, the_problem
from worker.config import loads
from worker.config.text import Plain
from worker.config.values import Kind, address, classes, duration, features, positive_share, size

HALF = "half of a surrogate pair, which is no character"
"""What is found in a text that has one."""
QUOTES = "{}, which is text in quotes only"
LONG = "text of {} characters, where {} are the most"


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
        (
            "models",
            "{default: {classes: [-9223372036854775808, 18446744073709551615]}}",
            "models.default.classes",
            (-(2**63), 2**64 - 1),
        ),
        ("models", f"{{default: {{classes: [a, {'b' * 128}]}}}}", "models.default.classes", ("a", "b" * 128)),
        ("models", "{default: {features: 10}}", "models.default.features", 10),
        ("models", "{default: {purity: 0}}", "models.default.purity", 0.0),
        ("models", "{default: {purity: 1e9}}", "models.default.purity", 1e9),
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
        ("input", "{topic: 5}", "input.topic", QUOTES.format(5)),
        ("models", "{null_key: 007}", "models.null_key", QUOTES.format(7)),
        ("models", "{overrides: [{match: true}]}", "models.overrides[0].match", QUOTES.format("true")),
        ("metrics", "{token: 1234567890123456}", "metrics.token", QUOTES.format("a number")),
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
        ("checkpoint", "{url: 5}", "checkpoint.url", "5"),
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
        # What the system is not even asked for, by any name: Python raises TypeError for it.
        ("metrics", "{listen: 'ü..ü:80'}", "metrics.listen", "'ü..ü:80'"),
        ("metrics", '{listen: "a\\0b:80"}', "metrics.listen", r"'a\x00b:80'"),
        ("metrics", "{listen: '[::1%ü]:80'}", "metrics.listen", "'[::1%ü]:80'"),
        ("models", "{null_key: ''}", "models.null_key", "''"),
        ("models", '{null_key: "\\ud800"}', "models.null_key", HALF),
        ("models", '{default: {classes: [a, "x\\udfff"]}}', "models.default.classes", HALF),
        ("models", "{overrides: {match: a}}", "models.overrides", "a mapping"),
        ("models", "{overrides: }", "models.overrides", "nothing"),
        ("models", "{overrides: [{match: ''}]}", "models.overrides[0].match", "''"),
        ("models", "{overrides: [{match: a}, {seed: 1}]}", "models.overrides[1].match", "nothing"),
        ("models", "{default: {algorithm: forest}}", "models.default.algorithm", "'forest'"),
        # Which keys go with it is not known then.
        ("models", "{default: {algorithm: forest, loss: student}}", "models.default.algorithm", "'forest'"),
        (
            "models",
            "{default: {algorithm: forest}, overrides: [{match: a, loss: student}]}",
            "models.default.algorithm",
            "'forest'",
        ),
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
        ("models", "{default: {dirichlet: 1e999}}", "models.default.dirichlet", "inf"),
        ("models", "{default: {dirichlet: true}}", "models.default.dirichlet", "true"),
        ("models", "{default: {purity: 1e10}}", "models.default.purity", "10000000000.0"),
        ("input", "{topic: e, model_key: 'field:'}", "input.model_key", "'field:'"),
        ("input", "{topic: e, model_key: 'field:a\"b'}", "input.model_key", "'field:a\"b'"),
        ("input", "{topic: e, model_key: 'field:a\\b'}", "input.model_key", r"'field:a\\b'"),
        ("input", '{topic: e, model_key: "field:a\\tb"}', "input.model_key", r"'field:a\tb'"),
        ("models", "{default: {split_pure: yes}}", "models.default.split_pure", "'yes'"),
        ("models", "{default: {pause: 0}}", "models.default.pause", "0"),
        ("models", "{default: {pause: 1.01}}", "models.default.pause", "1.01"),
        ("models", "{default: {algorithm: amf}}", "models.default.algorithm", "'amf'"),
        ("models", "{default: {preset: papers}}", "models.default.preset", "'papers'"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_line(section: str, text: str, path: str, found: str) -> None:
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


@pytest.mark.parametrize(
    ("kind", "most"), [(classes(), 65_536), (features(10), 10), (features(1), 1)], ids=["classes", "features", "one"]
)
def test_a_list_is_as_long_as_it_may_be(kind: Kind[object], most: int) -> None:
    names: list[Plain] = [f"n{i}" for i in range(most + 1)]
    assert kind.parse(names[:-1]) == tuple(names[:-1])
    with pytest.raises(ValueError, match=r"^$"):
        kind.parse(names)
