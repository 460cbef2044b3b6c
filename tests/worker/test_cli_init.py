"""`init`: a configuration from three answers, which passes `check`."""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.worker.support.printed import Main
from worker.base.errors import ConfigError
from worker.cli.init import QUESTIONS, init
from worker.config import load

ANSWERS = {"bootstrap-servers": "broker:9092", "topic": "payments", "checkpoint-url": "s3://bucket/amf"}
FLAGS = [part for option, answer in ANSWERS.items() for part in (f"--{option}", answer)]


def test_init_writes_a_configuration_that_passes_check(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    code, out, err = main("init", path, *FLAGS)
    assert (code, err) == (0, "")
    assert f"`amf-worker run {path}` starts a worker" in out
    assert main("check", path)[0] == 0
    found = load(path, {})
    assert (found.input.topic, found.output.topic) == ("payments", "payments-predictions")
    assert (found.dead_letter.topic, found.checkpoint.url) == ("payments-dead-letters", "s3://bucket/amf")
    assert (found.kafka["bootstrap.servers"], found.kafka["group.id"]) == ("broker:9092", "amf-payments")
    assert path.read_text().count("#") > 60  # every key is still explained


def test_init_has_a_name_of_the_worker_in_a_comment(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    assert main("init", path, *FLAGS)[0] == 0
    assert "group.instance.id" not in load(path, {}).kafka
    text = path.read_text()
    assert text.count("\n  # group.instance.id: ") == 1
    path.write_text(text.replace("  # group.instance.id: ", "  group.instance.id: "))
    assert load(path, {"HOSTNAME": "box-7"}).kafka["group.instance.id"] == "box-7"


def test_init_overwrites_nothing_unasked(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "worker.yaml"
    path.write_text("mine")
    code, out, err = main("init", path, *FLAGS)
    assert (code, out, path.read_text()) == (2, "", "mine")
    assert err == f"amf-worker: {path} is there already: name another file, or overwrite it with --force\n"
    assert main("init", path, *FLAGS, "--force")[0] == 0
    assert load(path, {}).input.topic == "payments"


def test_init_asks_for_what_was_not_given_until_it_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    answers = iter(["two words", "payments", ""])
    asked: list[str] = []

    def ask(text: str) -> str:
        asked.append(text)
        return next(answers)

    init(tmp_path / "new.yaml", {"bootstrap-servers": "${KAFKA:-broker:9092}"}, ask=ask)
    assert asked == [
        "Which topic has the events? [events] ",
        "Which topic has the events? [events] ",
        f"Where do checkpoints go (file://, s3://, gs://, az://)? [file://{tmp_path}/checkpoints] ",
    ]
    [complaint] = re.findall(r"^.*expected.*$", capsys.readouterr().out, re.MULTILINE)
    assert complaint.startswith("input.topic: expected a topic name")
    found = load(tmp_path / "new.yaml", {})
    assert (found.input.topic, found.checkpoint.url) == ("payments", f"file://{tmp_path}/checkpoints")
    assert found.kafka["bootstrap.servers"] == "broker:9092"


def test_init_without_a_terminal_names_its_flags(main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO())
    code, out, err = main("init", tmp_path / "new.yaml", "--topic", "payments")
    assert (code, out) == (2, "")
    assert err == "amf-worker: there is no terminal to ask questions on: give --bootstrap-servers, --checkpoint-url\n"


@pytest.mark.parametrize("option", [question.option for question in QUESTIONS])
@pytest.mark.parametrize("answer", ["", "a: b", "x # y", '"', "'", "\\", "[", "null", "12", "a\nlineage: evil"])
def test_an_answer_is_a_value_and_nothing_else(tmp_path: Path, option: str, answer: str) -> None:
    path = tmp_path / "new.yaml"
    try:
        init(path, {**ANSWERS, option: answer})
    except ConfigError:
        assert list(tmp_path.iterdir()) == []
        return
    found = load(path, {})
    values = {
        "bootstrap-servers": found.kafka["bootstrap.servers"],
        "topic": found.input.topic,
        "checkpoint-url": found.checkpoint.url,
    }
    assert values == {**ANSWERS, option: answer}
    assert found.checkpoint.lineage == "main"
