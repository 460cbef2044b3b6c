"""How many cores this process may use: those that it may run on, or the quota that its container has of their time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_QUOTA_AND_PERIOD = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}
"""The files of a group with both, by the version of cgroups. Without a quota it is -1, or `max`."""


def usable(cgroups: Path = _CGROUPS, own_groups: Path = _OWN_GROUPS) -> int:
    """At least one. Of a core that is there for a part of the time no worker could live."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([cores, *_quotas(cgroups, own_groups)])))


def _quotas(cgroups: Path, own_groups: Path) -> Iterator[float]:
    """The quotas of the groups that this process is in, in cores: each group is also under those of the groups above.

    A container may be told its path on the host, where it sees nothing but itself, at the top.
    """
    for line in _text(own_groups).splitlines():
        match line.split(":", 2):
            case [_, "", path]:
                top, files = cgroups, _QUOTA_AND_PERIOD[2]
            case [_, controllers, path] if "cpu" in controllers.split(","):
                top, files = cgroups / "cpu", _QUOTA_AND_PERIOD[1]
            case _:
                continue
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            match " ".join(_text(top / each / file) for file in files).split():
                case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period):
                    yield int(quota) / int(period)


def _text(file: Path) -> str:
    """What is in a file of the system, nothing where it has none."""
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""
