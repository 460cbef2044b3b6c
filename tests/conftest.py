"""Set-up that all tests share: the shared data sets, hypothesis, options."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No deadline anywhere: the first example of a test may be the one that compiles a kernel. CI draws the same examples
# each time, so that a red build is about the change and not about luck; elsewhere each run looks at new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI", "").lower() == "true" else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hostile", metavar="SEEDS", help="streams of tests/amf/test_hostile.py to run alone: 17,1234")
