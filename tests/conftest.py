"""Set-up that all tests share: the shared data sets, hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline anywhere: the first example of a test may be the one that compiles a kernel. CI draws the same examples
# each time, so that a red build is about the change and not about luck; elsewhere each run looks at new ones.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI", "").lower() == "true" else "dev")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of the shared data sets: adult, car, cardio, default_cb and letter, each an .npz of X and y."""
    named = os.environ.get("AMF_DATA")
    if not named:
        pytest.skip("AMF_DATA is not set: it names the folder of the shared data sets (adult.npz, car.npz, ...)")
    folder = Path(named)
    if not (folder / "adult.npz").is_file():
        pytest.fail(f"AMF_DATA is set to {folder}, where there is no adult.npz")
    return folder
