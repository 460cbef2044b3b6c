"""Fixtures of the tests of the worker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from worker import cli

Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def main(capsys: pytest.CaptureFixture[str]) -> Main:
    """Run a command line: exit code, stdout, stderr."""

    def run(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = cli.main([str(argument) for argument in argv])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run
