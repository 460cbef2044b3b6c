"""`check`: what is said of a configuration, and with --connect of broker and store."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.worker.support.printed import Main
from tests.worker.support.stores import DictStore
from worker.base.errors import Transient, WorkerError
from worker.base.ports import TopicState
from worker.cli import check, commands
from worker.config import Config, effective, load
from worker.preflight import Finding


def test_check_prints_what_is_in_effect_without_secrets(main: Main, worker_yaml: Path) -> None:
    code, out, err = main("check", worker_yaml, "--verbose")
    assert (code, err) == (0, "")
    assert out == f"{effective(load(worker_yaml, {}))}\nok      {worker_yaml}: can be used\n"
    assert "hunter2" not in out


def test_check_is_one_line_where_nothing_is_wrong(main: Main, worker_yaml: Path) -> None:
    expected = f"ok      {worker_yaml}: can be used; --verbose prints it as it is in effect\n"
    assert main("check", worker_yaml) == (0, expected, "")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("chek.crcs: true", 'No such configuration property: "chek.crcs"'),
        ("socket.timeout.ms: soon", 'Invalid value for configuration property "socket.timeout.ms"'),
        ("security.protocol: hunter2", 'Invalid value *** for configuration property "security.protocol"'),
        ("security.protocol: sasl_ssl, sasl.mechanism: hunter2", "Unsupported SASL mechanism: ***"),
    ],
)
def test_check_names_a_property_that_the_client_does_not_take(
    main: Main, worker_yaml: Path, properties: str, said: str
) -> None:
    text = worker_yaml.read_text()
    assert text.count("kafka: {") == 1
    worker_yaml.write_text(text.replace("kafka: {", f"kafka: {{{properties}, "))
    for command in (("check",), ("reset", "key", "--set", "input.tombstones=reset"), ("reshard",)):
        code, out, err = main(command[0], worker_yaml, *command[1:])
        assert (code, out) == (2, "")
        assert err.startswith(f"amf-worker: {worker_yaml}:4: kafka: librdkafka refuses the properties: ")
        assert said in err
        assert "hunter2" not in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("linger.ms: soon", 'Invalid value for configuration property "queue.buffering.max.ms"'),
        ("compression.type: hunter2", 'Invalid value *** for configuration property "compression.codec"'),
        ("retries: many", 'Invalid value for configuration property "message.send.max.retries"'),
        ("delivery.timeout.ms: soon", 'Invalid value for configuration property "message.timeout.ms"'),
    ],
)
def test_a_property_that_the_client_calls_by_another_name_has_its_line(
    main: Main, worker_yaml: Path, given: str, said: str
) -> None:
    worker_yaml.write_text(worker_yaml.read_text().replace("kafka: {", f"kafka: {{{given}, "))
    code, _, err = main("check", worker_yaml)
    assert code == 2
    assert err.startswith(f"amf-worker: {worker_yaml}:4: kafka: librdkafka refuses the properties: {said}")


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
@pytest.mark.parametrize(
    ("content", "fault"),
    [(None, "No such file or directory"), ("nonsense", "is it PEM, of what is asked for")],
)
def test_a_file_that_cannot_be_used_is_named_with_its_property(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | None, fault: str
) -> None:
    """OpenSSL itself calls a missing one "BIO lib"."""
    path, text = worker_yaml.with_name("some.pem"), worker_yaml.read_text()
    if content is not None:
        path.write_text(content)
    for given, shown in ((path, path), ("${FILE}", "***")):
        monkeypatch.setenv("FILE", str(path))
        changed = text.replace("kafka: {", f'kafka: {{security.protocol: ssl, {name}: "{given}", ')
        worker_yaml.write_text(changed)
        for command in (("check",), ("run", "--set", "metrics.listen=127.0.0.1:0")):
            code, _, err = main(command[0], worker_yaml, *command[1:])
            assert code == 2
            assert f"{worker_yaml}:4: kafka.{name}: the file {shown} cannot be used: {fault}" in err


def test_a_folder_in_place_of_a_file_is_named(main: Main, worker_yaml: Path) -> None:
    given = f'ssl.key.location: "{worker_yaml.parent}"'
    worker_yaml.write_text(worker_yaml.read_text().replace("kafka: {", f"kafka: {{security.protocol: ssl, {given}, "))
    code, out, err = main("check", worker_yaml)
    assert (code, out) == (2, "")
    assert f"kafka.ssl.key.location: the file {worker_yaml.parent} cannot be used: Is a directory" in err


def test_check_names_what_a_schema_registry_needs_and_is_not_there(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_registry = "--set", "input.codec=avro", "--set", "schema_registry.url=http://localhost:1"
    assert main("check", worker_yaml, *of_registry)[0] == 0
    absent = tmp_path / "absent.pem"
    code, out, err = main("check", worker_yaml, *of_registry, "--set", f"schema_registry.ca_location={absent}")
    assert (code, out) == (2, "")
    assert err.startswith(f"amf-worker: schema_registry.ca_location: the file {absent} cannot be used: ")
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    code, out, err = main("check", worker_yaml, *of_registry)
    assert (code, out) == (2, "")
    assert "codecs avro and json-schema need a library that is missing (jsonschema_rs): pip install" in err


def test_run_names_the_line_of_a_property_that_the_client_does_not_take(main: Main, worker_yaml: Path) -> None:
    worker_yaml.write_text(worker_yaml.read_text().replace("kafka: {", "kafka: {\n  chek.crcs: true,\n  "))
    code, _, err = main("run", worker_yaml, "--set", "metrics.listen=127.0.0.1:0")
    assert code == 2
    assert f"{worker_yaml}:5: kafka: librdkafka refuses the properties: No such configuration property" in err
    code, _, err = main("check", worker_yaml, "--set", "kafka.chek.crcs=false")
    assert err.startswith("amf-worker: --set: kafka: ")


def test_what_is_kept_out_of_the_file_is_not_shown(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A secret may be given to a property whose name does not say so; what logs name all the same is shown."""
    (tmp_path / "secret").write_text("hunter3")
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("GROUP", "fraud")
    kept = f'client.rack: "a ${{SECRET}}", sasl.username: "${{file:{tmp_path}/secret}}", group.id: "${{GROUP}}"'
    worker_yaml.write_text(worker_yaml.read_text().replace("kafka: {", f"kafka: {{{kept}, ssl.cipher.suites: AES, "))
    code, out, err = main("check", worker_yaml, "--verbose")
    assert code == 0
    shown = yaml.safe_load(out.partition("\nok ")[0])["kafka"]
    names = ("client.rack", "sasl.username", "group.id", "ssl.cipher.suites")
    assert [shown[name] for name in names] == ["***", "***", "fraud", "AES"]
    assert "hunter" not in out + err


def test_check_keeps_back_what_the_client_says_of_itself(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)

    def client_speaks(*options: str) -> bool:
        code, out, err = main("check", worker_yaml, "--connect", *options)
        assert [line.split()[0] for line in out.splitlines() if line[:2] in ("ok", "fa")] == ["ok", "failed", "ok"]
        assert code == 1
        return "kafka-client" in err

    assert not client_speaks()
    assert client_speaks("--verbose")
    assert client_speaks("--log-level", "debug")


def test_check_names_every_mistake(main: Main, worker_yaml: Path) -> None:
    worker_yaml.write_text(worker_yaml.read_text() + "models: {default: {n_estimators: 0}}\ndelivry: at-least-once\n")
    code, out, err = main("check", worker_yaml)
    assert (code, out) == (2, "")
    assert re.findall(r"^amf-worker: .*worker\.yaml:(\d): (\S+):", err, re.MULTILINE) == [
        ("6", "models.default.n_estimators"),
        ("7", "delivry"),
    ]


def test_connect_says_what_works_and_what_does_not(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)
    code, out, err = main("check", worker_yaml, "--connect", "--log-level", "error")
    assert code == 1
    assert re.search(r"^failed  no broker answers at kafka\.bootstrap\.servers=127\.0\.0\.1:1", out, re.MULTILINE)
    assert f"ok      store file://{tmp_path}/checkpoints: objects can be created, are never overwritten" in out
    assert not [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]
    assert "hunter2" not in out + err


def test_nothing_that_others_say_reaches_the_terminal_as_a_command(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Finding("failed", "the schema registry says \x1b[31mred\nok      all is well\u202e")
    monkeypatch.setattr(check, "connect", lambda _: [said])
    _, out, _ = main("check", worker_yaml, "--connect")
    assert out.splitlines()[1:] == [
        r"failed  the schema registry says \x1b[31mred",
        r"        ok      all is well\u202e",
    ]


class Overwriting(DictStore):
    def create(self, name: str, data: bytes) -> None:
        self.objects[name] = data


class Forgetful(DictStore):
    def list(self, prefix: str) -> list[str]:
        return []


class Closed(DictStore):
    def create(self, name: str, data: bytes) -> None:
        raise WorkerError("cannot write: permission denied")


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        (Overwriting(), "it overwrites objects"),
        (Forgetful(), "an object that was created is not listed"),
        (Closed(), "cannot write: permission denied"),
    ],
)
def test_connect_finds_a_store_that_checkpoints_cannot_rely_on(
    worker_yaml: Path, monkeypatch: pytest.MonkeyPatch, store: DictStore, complaint: str
) -> None:
    monkeypatch.setattr("worker.adapters.kafka.admin.CALL_S", 0.2)
    monkeypatch.setattr(check, "open_store", lambda _: store)
    *_, finding = check.connect(load(worker_yaml, {}))
    assert finding.level == "failed"
    assert complaint in finding.sentence
    assert not store.objects


def test_hostname_is_known_where_the_shell_does_not_pass_it_on(
    main: Main, worker_yaml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = worker_yaml.read_text()
    worker_yaml.write_text(text.replace("kafka: {", "kafka: {group.instance.id: '${HOSTNAME}', "))
    monkeypatch.setattr(commands, "gethostname", lambda: "box-7")
    monkeypatch.delenv("HOSTNAME", raising=False)
    code, out, err = main("check", worker_yaml, "--verbose")
    assert (code, err) == (0, "")
    assert "group.instance.id: box-7" in out
    monkeypatch.setenv("HOSTNAME", "given")
    assert "group.instance.id: given" in main("check", worker_yaml, "--verbose")[1]


def test_of_a_store_that_fails_it_is_said_once(worker_yaml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the topics are looked at all the same, and no start is tried."""

    class Topic:
        is_mock = False

        def __init__(self, _: Config, name: str) -> None:
            self.name = name

        def beside(self, name: str) -> Topic:
            return Topic(load(worker_yaml, {}), name)

        def state(self, partitions: int) -> TopicState:
            return TopicState("topic-id", 4, {})

        def settings(self) -> dict[str, str]:
            return {"retention.ms": "-1"}

        def replicas(self) -> int:
            return 1

    class Silent(DictStore):
        def list(self, prefix: str) -> list[str]:
            raise Transient("no answer")

    monkeypatch.setattr(check, "_try_broker", lambda _: [Finding("ok", "broker: answers")])
    monkeypatch.setattr(check, "_try_group", lambda _: [])
    monkeypatch.setattr(check, "KafkaTopic", Topic)
    monkeypatch.setattr(check, "open_store", lambda _: Silent())
    found = list(check.connect(load(worker_yaml, {})))
    assert [finding.level for finding in found] == ["ok", "failed", "ok", "ok", "ok"]
    assert [finding.sentence for finding in found if "no answer" in finding.sentence] == [found[1].sentence]
