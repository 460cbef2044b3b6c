"""Fail points: orders are understood, a point acts at its passage, and every point of the table is on the way."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import worker
from worker.base.failpoints import FAIL_POINTS, Injected, bind

WORKER = Path(worker.__file__).parent


def test_without_an_order_nothing_happens():
    for order in (None, ""):
        for point in FAIL_POINTS:
            bind(order)(point)


def test_it_acts_at_the_nth_passage_of_its_own_point_and_never_again():
    failpoint = bind("learned:3:raise")
    for point in ["learned", "consumed", "learned", "committed"]:
        failpoint(point)
    with pytest.raises(Injected, match="learned"):
        failpoint("learned")
    failpoint("learned")


@pytest.mark.parametrize(
    "order", ["learned", "learned:0", "learned:1:explode", "elsewhere:1", "learned:1:sleep=", ":1"]
)
def test_an_order_that_means_nothing_is_refused(order):
    with pytest.raises(ValueError, match="AMF_FAILPOINT"):
        bind(order)


@pytest.mark.parametrize(("action", "status"), [("", signal.SIGKILL), (":kill", signal.SIGKILL), (":stop", None)])
def test_it_ends_or_freezes_the_process(action, status):
    code = "from worker.base.failpoints import failpoint; failpoint('learned'); print('went on')"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=WORKER.parent,
        env={**os.environ, "AMF_FAILPOINT": f"learned:1{action}"},
        stdout=subprocess.PIPE,
    )
    if status is None:
        _, stopped = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(stopped)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=30)[0] == b"went on\n"
    else:
        assert process.communicate(timeout=30)[0] == b""
        assert process.returncode == -status


def test_every_point_of_the_table_is_passed_at_one_place():
    passed = Counter[str]()
    for path in WORKER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint":
                [name] = node.args
                assert isinstance(name, ast.Constant)
                passed[name.value] += 1
    assert passed == dict.fromkeys(FAIL_POINTS, 1)
