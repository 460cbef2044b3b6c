"""The rules of deploy/prometheus, and promtool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from tests.availability import program

FOLDER = Path(__file__).parents[2] / "deploy/prometheus"
RULES = [rule for group in yaml.safe_load((FOLDER / "amf-rules.yaml").read_text())["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> str:
    """What promtool says; an AssertionError where it does not like something."""
    done = subprocess.run([program("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
