"""Settings of the command line: --set stands above the file, and needs none."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.worker.support.configurations import document
from tests.worker.support.printed import Main, without_speed
from worker.base.errors import ConfigError
from worker.cli.words import by_name, setting
from worker.config import loads
from worker.config.nodes import compose
from worker.config.settings import with_settings


def test_settings_need_no_file(main: Main, churn_csv: Path, worker_yaml: Path) -> None:
    few = ["evaluate", churn_csv, "--label", "churned", "--drop", "id", "--drop", "when"]
    _, plain, _ = main(*few)
    code, out, err = main(*few, "--set", "split_pure=true", "--set", "models.default.n_estimators=3")
    assert (code, err) == (0, "")
    worker_yaml.write_text(worker_yaml.read_text() + "models: {default: {split_pure: true, n_estimators: 3}}\n")
    _, same, _ = main(*few, "--config", worker_yaml)
    assert without_speed(out) == without_speed(same) != without_speed(plain)
    _, above, _ = main(*few, "--config", worker_yaml, "--set", "n_estimators=10", "--set", "split_pure=")
    assert main(*few, "--set", "split_pure=")[0] == 2
    assert above == ""


def test_a_setting_stands_above_the_file() -> None:
    kafka = "{bootstrap.servers: b, sasl.password: hunter2}"
    text = document(kafka=kafka, models="{default: {n_estimators: 3, seed: 7}, max_models: 5}")
    settings = {"n_estimators": "20", "models.max_models": "6", "kafka.group.id": "g.1", "classes": "[a, 'no']"}
    found = loads(text, {}, settings=settings)
    assert (found.models.default.n_estimators, found.models.default.seed, found.models.max_models) == (20, 7, 6)
    assert (found.kafka["group.id"], found.kafka["sasl.password"]) == ("g.1", "hunter2")
    assert found.models.default.classes == ("a", "no")
    assert loads(text, {}).models.max_models == 5


def test_a_setting_may_be_of_many_properties() -> None:
    found = loads(document(kafka="{bootstrap.servers: b}"), {}, settings={"kafka": "{group.id: g, linger.ms: 7}"})
    assert [found.kafka[name] for name in ("bootstrap.servers", "group.id", "linger.ms")] == ["b", "g", "7"]


def test_a_setting_does_not_hide_that_a_key_is_there_twice() -> None:
    text = document() + "models: {max_models: 5}\nmodels: {threads: 2}\n"
    with pytest.raises(ConfigError, match=r"models: expected one value, found another on line \d") as alone:
        loads(text, {})
    with pytest.raises(ConfigError, match=re.escape(str(alone.value))):
        loads(text, {}, settings={"n_estimators": "3"})


def test_each_setting_stands_above_those_before_it() -> None:
    text = document(models="{default: {seed: 1, n_estimators: 3}}")

    def seed(*settings: str) -> int:
        found = loads(text, {}, settings=by_name(map(setting, settings)))
        assert found.models.default.n_estimators == 3
        return found.models.default.seed

    assert seed("models.default.seed=2", "seed=3") == 3
    assert seed("seed=2", "models.default.seed=3", "seed=4") == 4
    assert seed("seed=2", "models={default: {seed: 3}}", "models.default={n_estimators: 3}") == 3
    assert loads(text, {}, settings={"models": "5", "seed": "6"}).models.default.n_estimators == 10


def test_eight_times_as_many_settings_take_about_eight_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    root, value = compose(document()), compose("1")
    monkeypatch.setattr("worker.config.settings.compose", lambda *_, **__: value)

    def time_s(n: int) -> float:
        settings = {f"kafka.plugin.{i}": "1" for i in range(n)}
        start_s = time.process_time()
        assert with_settings(root, settings) is not None
        return time.process_time() - start_s

    assert min(time_s(8000) for _ in range(3)) < 24 * min(time_s(1000) for _ in range(3))


def test_settings_that_are_too_deep_to_be_put_together_are_refused() -> None:
    name = "models.default" + ".x" * 3000
    with pytest.raises(ConfigError, match=r"^--set: expected some levels of lists and mappings, found hundreds$"):
        loads(document(), {}, settings={f"{name}.a": "1", f"{name}.b": "1"})


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("n_estimators=0", "--set: models.default.n_estimators: expected "),
        ("zzz=5", "--set: zzz: unknown key, expected one of "),
        ("n_estimator=5", "--set: n_estimator: unknown key (did you mean n_estimators?), expected one of "),
        ("delivry=x", "--set: delivry: unknown key (did you mean delivery?), expected one of "),
        ("models.default.zzz=5", "--set: models.default.zzz: unknown key, expected one of "),
        ("models.default={zzz: 5}", "--set: models.default.zzz: unknown key, expected one of "),
        ("models={overrides: [{seed: 5}]}", "--set: models.overrides[0].match: expected a glob pattern"),
        ("output={codec: json, codec: json}", "--set: output.codec: expected one value, found another in --set"),
        ("models=[[[[[" + "[" * 2000, "--set models: expected some levels of lists and mappings, found hundreds"),
        ("n_estimators=[", "--set n_estimators: expected YAML, found a syntax error"),
        (
            'n_estimators="\\UFFFFFFFF"',
            "--set n_estimators: expected YAML, found a syntax error: a number is too large",
        ),
        ("kafka.isolation.level=x", "--set: kafka.isolation.level: reserved: "),
        ("models=5", "--set: models: expected a mapping, found a single value"),
        ("n_estimators", "expected KEY=VALUE such as n_estimators=20, found 'n_estimators'"),
        ("a b=1", "expected KEY=VALUE"),
    ],
)
def test_a_wrong_setting_is_named(main: Main, churn_csv: Path, setting: str, complaint: str) -> None:
    code, out, err = main(
        "evaluate", churn_csv, "--label", "churned", "--drop", "id", "--drop", "when", "--set", setting
    )
    assert (code, out) == (2, "")
    assert complaint in err


@pytest.mark.parametrize("command", ["run", "check", "produce", "evaluate", "reset", "reshard"])
def test_every_command_with_a_configuration_takes_settings_above_it(
    main: Main, worker_yaml: Path, rows_npz: Path, command: str
) -> None:
    given = [rows_npz, "--config", worker_yaml] if command in ("produce", "evaluate") else [worker_yaml]
    code, _, err = main(command, *given, "--set", "output.explain=1", "--set", "input.topic=a/b")
    assert code == 2
    assert re.fullmatch(r"amf-worker: --set: input\.topic: expected a topic name: .*, found 'a/b'\n", err)
