"""Pictures of what people see: `python -m tests.page.pictures [FOLDER]` takes them, by default into deploy/pictures.

The page of a worker that has been at work on payments for some minutes, so no two of them are the same to the bit; and
what `evaluate` says of 30,000 such payments, on the terminal and as a report, and of the features of Friedman's
function, of which five tell the label and five are noise.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tempfile
import time
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, expect
from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from tests.page.browser import DESKTOP, PHONE, opened
from tests.page.traffic import faulty, traffic
from worker.demo.events import Payments

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "pictures"
PAYMENTS, FRIEDMAN = 30_000, 8_000
"""Rows that are evaluated."""
COLUMNS, TERMINAL = 100, (1000, 900)
"""Of a terminal, in characters and in pixels."""
AT_WORK_S = 180.0
RATE = 600.0


def main(folder: Path) -> None:
    _take_evaluation(folder)
    _take_feature_weights(folder)
    with tempfile.TemporaryDirectory() as scratch, traffic(Path(scratch)) as worker:
        with opened(Path(scratch), worker.url) as page:
            expect(page.locator("#state")).to_have_text("live")
        worker.send(faulty(), RATE)
        time.sleep(AT_WORK_S)
        with opened(Path(scratch), worker.url, DESKTOP, "light") as page:
            _take(page, folder / "page.png")
            page.get_by_role("button", name="hotels", exact=True).click()
            expect(page.locator("#model-moves li")).to_have_count(5)
            page.locator("#model-moves li").last.scroll_into_view_if_needed()
            _take(page, folder / "page-model.png", whole=False)
        with opened(Path(scratch), worker.url, DESKTOP, "dark") as page:
            _take(page, folder / "page-dark.png")
        with opened(Path(scratch), worker.url, PHONE, "light", scale=2.0) as page:
            _take(page, folder / "page-phone.png", whole=False)


def _take_evaluation(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        _write_payments(scratch / "payments.csv")
        command = "amf-worker evaluate payments.csv --label label --key shop --report report.html"
        # Through a terminal, or it would write plain lines.
        shown = subprocess.run(
            ["script", "-qec", f"stty columns {COLUMNS}; exec {sys.executable} -m worker {command[11:]}", "/dev/null"],
            cwd=scratch, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        terminal = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
        terminal.print(f"$ {command}")
        # What a progress bar had drawn before it was wiped is between two escape sequences that move the cursor.
        terminal.print(Text.from_ansi(re.split(r"\x1b\[(?:2K|1A|\?25[hl])", shown)[-1].strip("\r\n")))
        (scratch / "terminal.html").write_text(terminal.export_html(theme=SVG_EXPORT_THEME))
        with opened(scratch, (scratch / "terminal.html").as_uri(), TERMINAL) as page:
            page.add_style_tag(content="body { margin: 16px } pre { margin: 0 }")
            _save(page.locator("pre").first.screenshot(), folder / "evaluate.png")
        with opened(scratch, (scratch / "report.html").as_uri(), DESKTOP, "light") as page:
            _save(page.screenshot(full_page=False), folder / "report.png")


def _take_feature_weights(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        _write_friedman(scratch / "friedman.csv")
        settings = ["--set", "algorithm=adaptive-regressor", "--set", "output.explain=1"]
        subprocess.run(
            [sys.executable, "-m", "worker", "evaluate", "friedman.csv", "--label", "y", "--report", "report.html",
             *settings],
            cwd=scratch, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True,
        )  # fmt: skip
        with opened(scratch, (scratch / "report.html").as_uri(), DESKTOP, "light", scale=1.5) as page:
            _save(page.locator("section:has(table.bars)").screenshot(), folder / "feature-weights.png")


def _write_friedman(path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((FRIEDMAN, 10))
    signal = 10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4]
    names = [f"{kind} {place}" for kind in ("signal", "noise") for place in range(1, 6)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "y"])
        writer.writerows(np.column_stack([x, signal + rng.normal(size=FRIEDMAN)]).tolist())


def _write_payments(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for i, row in enumerate(islice(Payments(3), PAYMENTS)):
            if i == 0:
                writer.writerow(["shop", *row.features, "label"])
            writer.writerow([row.key, *row.features.values(), row.label])


def _take(page: Page, path: Path, *, whole: bool = True) -> None:
    """Save what is to be seen once there is something in every curve; `whole` goes on below the window."""
    expect(page.locator(".plot .empty:visible")).to_have_count(0)
    page.wait_for_timeout(1500)
    _save(page.screenshot(full_page=whole), path)


def _save(screenshot: bytes, path: Path) -> None:
    picture = Image.open(BytesIO(screenshot)).convert("RGB")
    # A third of the size, as no eye sees: pictures travel with the repository.
    few_colors = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few_colors.save(path, optimize=True)
    print(path, path.stat().st_size // 1024, "kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
