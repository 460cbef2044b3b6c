"""Set-up that all tests share: the shared data sets, hypothesis, options."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

# Without it, set before SciPy is imported, scikit-learn leaves its checks of other array libraries out.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# A broker of a test does not live for as long as Java's second compiler takes to earn a third of the start.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# No deadline anywhere: the first example of a test may be the one that compiles a kernel. CI draws the same examples
# each time, so that a red build is about the change and not about luck; elsewhere each run looks at new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI", "").lower() == "true" else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hostile", metavar="SEEDS", help="streams of tests/amf/test_hostile.py to run alone: 17,1234")


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: the tests on a broker mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """To collect the tests makes half a million objects that stay: to look for garbage among them is in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


WAITING = {"chaos", "deployment", "kafka", "page"}
"""Folders of tests that wait for brokers, workers and browsers for most of their time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait come first, in their order.

    Processes that share the tests are given one part of the list each, of as many tests: so one of them waits while the
    others compute. In the order of the names all of them would wait at the end, with nothing left to compute meanwhile.
    """
    items.sort(key=lambda item: item.path.parent.name not in WAITING)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command sets up the log of the process."""
    logs = [logging.getLogger(name) for name in ("worker", "asyncio")]
    before = [(log.handlers, log.level) for log in logs]
    yield
    for log, (handlers, level) in zip(logs, before, strict=True):
        for handler in log.handlers:
            if handler not in handlers:
                handler.close()
        log.handlers, log.level = handlers, level
