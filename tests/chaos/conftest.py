"""Clusters for tests, which are skipped, and say why, where there is no Java to run a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.availability import Unavailable, give_up
from tests.chaos.cluster import Cluster, Setup


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of the `Setup` that the test is parametrized with, else of the default one."""
    try:
        with Cluster(tmp_path, getattr(request, "param", Setup())) as cluster:
            yield cluster
    except Unavailable as reason:
        give_up(str(reason))
