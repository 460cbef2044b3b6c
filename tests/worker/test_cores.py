"""How many cores there are for a process in a container: by the files of both versions of cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.base import cores

V2, V1 = "0::{}\n", "5:memory:/other\n4:cpu,cpuacct:{}\n1:name=systemd:{}\n0::{}\n"


def usable(folder: Path, groups: str, files: dict[str, str]) -> int:
    (folder / "own").write_text(groups)
    for name, text in files.items():
        file = folder / "cgroups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return cores.usable(folder / "cgroups", folder / "own")


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("9000000 100000\n", 64),
        ("max 100000\n", 64),
        ("200000\n", 64),
        ("", 64),
        ("-1 0\n", 64),
        ("1 0\n", 64),
    ],
)
def test_a_quota_of_version_2(tmp_path: Path, cpu_max: str, expected: int) -> None:
    assert usable(tmp_path, V2.format("/"), {"cpu.max": cpu_max}) == expected


@pytest.mark.parametrize(("quota", "expected"), [("400000\n", 4), ("10000\n", 1), ("-1\n", 64)])
@pytest.mark.parametrize("path", ["/", "/docker/4711", "/docker"])
def test_a_quota_of_version_1(tmp_path: Path, quota: str, expected: int, path: str) -> None:
    """Where the container does not see its path of the host the quota is at the top."""
    folder = "cpu/docker" if path == "/docker" else "cpu"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": "100000\n"}
    assert usable(tmp_path, V1.replace("{}", path), files) == expected


def test_a_group_is_under_the_quotas_of_those_above_it_and_not_of_others(tmp_path: Path) -> None:
    files = {
        "a.slice/cpu.max": "300000 100000",
        "a.slice/b.service/cpu.max": "700000 100000",
        "a.slice/c.service/cpu.max": "100000 100000",
    }
    assert usable(tmp_path, V2.format("/a.slice/b.service"), files) == 3


def test_without_any_file_it_is_what_the_process_may_run_on(tmp_path: Path) -> None:
    assert cores.usable(tmp_path / "none", tmp_path / "nothing") == 64
    (tmp_path / "own").write_bytes(b"\xff\n")
    assert cores.usable(tmp_path, tmp_path / "own") == 64
    (tmp_path / "own").write_text("no such line\n")
    assert cores.usable(tmp_path, tmp_path / "own") == 64


def test_where_the_system_tells_nothing_of_the_process_it_is_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores.usable(tmp_path / "none", tmp_path / "nothing") == 1


def test_here_it_is_no_more_than_the_machine_has() -> None:
    assert 1 <= cores.usable() <= 64
