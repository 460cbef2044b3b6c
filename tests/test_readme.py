"""The README tells the truth where a test can tell: codes, commands, files, defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from worker import config
from worker.base import metrics
from worker.codec.dead_letters import REJECT_CODES
from worker.config import reference

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    *sorted(path for room in ("amf", "worker", "config", "deploy", "tests") for path in (ROOT / room).rglob("*.md")),
]


def test_every_reject_code_is_explained():
    contract = (ROOT / "worker/codec/README.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", contract, re.MULTILINE))
    assert {code: rows.get(code) for code in REJECT_CODES} == REJECT_CODES


def test_the_smallest_configuration_is_one():
    block = next(block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "dead_letter" in block)
    parsed = config.loads(block, {"HOSTNAME": "worker-0"})
    assert parsed.models.params_for("fraud-cards").n_estimators == 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [target.partition("#")[0] for target in re.findall(r"\]\((?!https?:)([^)]*)\)", text)]
    named = re.findall(r"`((?:tests|config|worker|amf|deploy)/[\w./-]+\.\w+)`", text)
    assert [path for path in links if path and not (page.parent / path).exists()] == []
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", ["amf", "worker"])
def test_the_page_of_a_package_names_every_module(package: str):
    page = (ROOT / package / "README.md").read_text()
    paths = [path for path in (ROOT / package).rglob("*") if path.suffix == ".py" or (path / "__init__.py").exists()]
    names = {path.stem for path in paths} - {"__init__", "__main__"}
    assert [name for name in sorted(names) if not re.search(rf"`(?:\w+/)?{name}/?`", page)] == []


def test_the_layout_names_every_folder():
    layout = README.partition("## How it is laid out")[2].partition("## Develop")[0]
    folders = {path.parent for room in ("amf", "worker", "tests") for path in (ROOT / room).glob("*/*.py")}
    assert [folder.name for folder in sorted(folders) if f"{folder.name}/" not in layout] == []


def test_generated_pages_are_up_to_date():
    shown = (ROOT / "deploy/metrics.md").read_text()
    assert shown == metrics.reference(), "python -m worker.base.metrics > deploy/metrics.md"
    shown = (ROOT / "config/README.md").read_text()
    assert shown == reference.reference(), "python -m worker.config.reference > config/README.md"
