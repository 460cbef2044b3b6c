"""`completion`: what a shell needs to complete commands, options and files, written by shtab from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

_FILES = frozenset({"config", "file", "input", "keys_from", "out", "path", "report"})


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell to read at its start."""
    for action in _actions(parser):
        if action.dest in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
