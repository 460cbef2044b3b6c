"""What a test needs of the machine. Where it is missing CI fails; elsewhere the test is skipped, and says why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import NoReturn

import pytest


class Unavailable(Exception):
    """This machine cannot provide what a test needs; the message says why."""


def give_up(reason: str, environment: Mapping[str, str] = os.environ) -> NoReturn:
    """Skip the test, but fail it where the run is to prove something (CI=true)."""
    if environment.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str) -> str:
    """Path of a program that the test runs."""
    path = shutil.which(name)
    if path is None:
        give_up(f"{name} is not installed")
    return path
