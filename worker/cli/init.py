"""`init`: a configuration to start with, which is the commented example with three answers in it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from worker.base.errors import ConfigError
from worker.cli.files import example, replacing
from worker.config import loads


class Question(NamedTuple):
    """What has to be known, under the name of its option."""

    option: str
    text: str
    default: Callable[[], str]


QUESTIONS = (
    Question("bootstrap-servers", "Which brokers are to be asked first?", lambda: "localhost:9092"),
    Question("topic", "Which topic has the events?", lambda: "events"),
    Question("checkpoint-url", "Where do checkpoints go (file://, s3://, gs://, az://)?", lambda: _here("checkpoints")),
)


def init(path: Path, given: Mapping[str, str], *, force: bool = False, ask: Callable[[str], str] = input) -> None:
    """Write the configuration; asks on a terminal for what was not given. Raises ConfigError."""
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already: name another file, or overwrite it with --force")
    missing = [question for question in QUESTIONS if question.option not in given]
    if missing and not sys.stdin.isatty():
        options = ", ".join(f"--{question.option}" for question in missing)
        raise ConfigError(f"there is no terminal to ask questions on: give {options}")
    answers = {**{question.option: question.default() for question in QUESTIONS}, **given}
    with example("worker.yaml") as template:
        text = template.read_text(encoding="utf-8")
    _check(text, answers)
    for question in missing:
        _ask(question, text, answers, ask)
    with replacing(path) as file:
        file.write(configured(text, answers))
    print(f"{path} is written. `amf-worker check {path} --connect --create-topics` makes its topics,")
    print(f"`amf-worker run {path}` starts a worker")


def configured(text: str, answers: Mapping[str, str]) -> str:
    """The example with the answers in it: topics and group are called after the input, so that workers do not meet."""
    topic = answers["topic"]
    lines = {
        "  bootstrap.servers: ": answers["bootstrap-servers"],
        "  topic: events": topic,
        "  topic: predictions": f"{topic}-predictions",
        "  topic: dead-letters": f"{topic}-dead-letters",
        "  group.id: ": f"amf-{topic}",
        "  url: file": answers["checkpoint-url"],
    }
    written = text.splitlines(keepends=True)
    for start, value in lines.items():
        [place] = (number for number, line in enumerate(written) if line.startswith(start))
        written[place] = f"{start[: start.index(': ')]}: {json.dumps(value, ensure_ascii=False)}\n"
    return "".join(written)


def _ask(question: Question, text: str, answers: dict[str, str], ask: Callable[[str], str]) -> None:
    """Ask until the answer is one that a configuration takes."""
    default = answers[question.option]
    while True:
        try:
            answers[question.option] = ask(f"{question.text} [{default}] ").strip() or default
        except EOFError:
            raise ConfigError(f"no answer to that; --{question.option} gives one") from None
        try:
            return _check(text, answers)
        except ConfigError as error:
            print(error)


def _check(text: str, answers: Mapping[str, str]) -> None:
    """Raise ConfigError where the answers make no configuration; the first mistake stands for all, which it causes."""
    try:
        loads(configured(text, answers), os.environ)
    except ConfigError as error:
        _place, _, problem = str(error).splitlines()[0].partition(": ")
        raise ConfigError(problem) from None


def _here(name: str) -> str:
    return (Path.cwd() / name).as_uri()
