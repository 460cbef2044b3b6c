"""The tree that YAML makes of a file, before anything is known of its values, and what errors say of it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from worker.config.text import core_scalar

TOO_DEEP = "expected some levels of lists and mappings, found hundreds"
TEXT = "tag:yaml.org,2002:str"


class Loader(yaml.SafeLoader):
    """Composes nodes without guessing types; `core_scalar` types the plain ones."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (pyyaml's own name and place for it)


NOT_IN_FILE = yaml.Mark("--set", 0, -1, 0, "", 0)
"""Where nodes are that stand on no line of the file."""


class _LoaderBeside(Loader):
    """Of a text beside the file."""

    def get_mark(self) -> yaml.Mark:
        return NOT_IN_FILE


def compose(text: str, *, in_file: bool = True) -> yaml.Node | None:
    """The tree of a text. Raises YAMLError, and RecursionError where it is nested too deep."""
    loader = Loader(text) if in_file else _LoaderBeside(text)
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError):
        # yaml passes on what Python says of "\UFFFFFFFF", and of a version of thousands of digits.
        raise yaml.MarkedYAMLError(problem="a number is too large", problem_mark=loader.get_mark()) from None
    finally:
        loader.dispose()


def is_null(node: yaml.Node) -> bool:
    """Whether a node is null, or nothing at all."""
    return isinstance(node, yaml.ScalarNode) and not node.style and core_scalar(node.value) is None


def type_of(node: yaml.Node | None) -> str:
    """What a node is, without its value."""
    if node is None or is_null(node):
        return "nothing"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


def syntax_problem(error: yaml.YAMLError, text: str) -> str:
    """Line and problem of a syntax error, without the words of the file that yaml quotes: they may be a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"{text.count(chr(10), 0, error.position) + 1}: expected YAML, found a character that it does not allow"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "1: expected YAML, found something else"
    problem = re.sub(r"'[\w!.-]{2,}'", "'...'", ", ".join(filter(None, (error.context, error.problem))))
    lines = text.splitlines() or [""]
    line = min(error.problem_mark.line, len(lines) - 1)  # the end of the text is behind its last line
    hint = "; inside { } and [ ] a ${reference} needs quotes" if "${" in lines[line] else ""
    return f"{line + 1}: expected YAML, found a syntax error: {problem}{hint}"
