"""The README tells the truth where a test can tell: codes, commands, files, defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from worker import config
from worker.rejects import REJECT_CODES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_reject_code_is_explained():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", README, re.MULTILINE))
    assert {code: rows.get(code) for code in REJECT_CODES} == REJECT_CODES


def test_the_smallest_configuration_is_one():
    block = next(block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "dead_letter" in block)
    parsed = config.loads(block, {"HOSTNAME": "worker-0"})
    assert parsed.models.params_for("fraud-cards").n_estimators == 20


def test_every_file_that_it_names_exists():
    named = set(re.findall(r"`((?:tests|config|worker|amf)/[\w./-]+\.\w+)`|\]\((config/[\w.]+)\)", README))
    paths = {one or other for one, other in named}
    assert len(paths) > 5
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", ["amf", "worker"])
def test_the_layout_names_every_module(package):
    layout = README.partition("## How it is laid out")[2].partition("## Develop")[0]
    section = layout.partition(f"\n{package}/")[2].partition("\nworker/" if package == "amf" else "\nconfig/")[0]
    names = {path.stem if path.is_file() else path.name for path in (ROOT / package).iterdir()}
    names -= {"__init__", "__main__", "_kernel", "__pycache__", "py"}
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", section)] == []
