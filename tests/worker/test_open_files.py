"""A worker has as many open files as the system lets it have, whatever the shell that started it has set."""

from __future__ import annotations

import subprocess
import sys

import pytest

IN_A_PROCESS = """
import resource
from worker.adapters.open_files import allow_all

most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
{call}
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


@pytest.mark.parametrize(("call", "has_all"), [("allow_all()", "True"), ("", "False")])
def test_the_soft_limit_is_raised_to_the_hard_one(call: str, has_all: str) -> None:
    code = IN_A_PROCESS.format(call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == has_all


def test_where_the_system_refuses_it_the_worker_starts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from worker.adapters import open_files

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(open_files.resource, "getrlimit", lambda _: (64, -1))
    monkeypatch.setattr(open_files.resource, "setrlimit", refuse)
    open_files.allow_all()
