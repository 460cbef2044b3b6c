"""The worker as others see it: its metrics over HTTP."""

from __future__ import annotations

import urllib.request
from http.client import HTTPException

from worker.adapters.http import parse

SCRAPE_S = 0.5

_WORDS = {"stopped": "stopped", "replay": "replaying", "live": "live"}
"""State of a partition -> what it makes of the worker; the first one that occurs counts."""

Samples = dict[str, dict[tuple[str, ...], float]]
"""Metric -> values of its labels -> value."""


def scrape(port: int) -> Samples:
    """The worker's metrics; none while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_S) as answer:
            text = answer.read().decode()
    except (OSError, HTTPException):
        return {}
    return parse(text)


def state(samples: Samples) -> str:
    """What the worker is doing, in a word or two."""
    if not samples:
        return "starting"
    if "amf_loop_last_timestamp_seconds" not in samples:
        return "compiling"
    states = {state for (_, state), value in samples.get("amf_partition_state", {}).items() if value}
    if not states:
        return "joining the group"
    # A partition to which no key belongs is never restored; it tells nothing.
    return next((word for each, word in _WORDS.items() if each in states), "ready")


def replayed(samples: Samples) -> int:
    """Events that the worker has learned again since it started."""
    return int(samples.get("amf_replayed_records_total", {}).get((), 0))


def oldest_checkpoint_s(samples: Samples, wall_s: float) -> float | None:
    """Age of the oldest of the newest checkpoints, over the partitions that have models; None if none has one."""
    sizes = samples.get("amf_checkpoint_last_size_bytes", {})
    written = samples.get("amf_checkpoint_last_timestamp_seconds", {})
    ages = [wall_s - at for partition, at in written.items() if sizes.get(partition)]
    return max(ages, default=None)
