"""A headless Chromium, the one that is installed, with a profile of its own and without a word to anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, expect, sync_playwright

from tests.availability import program

DESKTOP, PHONE = (1240, 900), (390, 844)
PATIENCE_MS = 120_000
"""The machine may be busy."""
expect.set_options(timeout=PATIENCE_MS)
Scheme = Literal["light", "dark"]
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def opened(
    folder: Path,
    url: str,
    size: tuple[int, int] = DESKTOP,
    scheme: Scheme = "light",
    scale: float = 1.0,
) -> Iterator[Page]:
    """The page at the URL in a browser with an empty profile below `folder`."""
    width, height = size
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch_persistent_context(
            folder / f"profile-{width}-{scheme}",
            executable_path=program("chromium"),
            args=_ARGUMENTS,
            chromium_sandbox=False,
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            device_scale_factor=scale,
            locale="en-GB",
        ) as context,
    ):
        page = context.pages[0]
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url)
        yield page
