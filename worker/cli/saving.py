"""What `evaluate --save` leaves behind: models as checkpoints, for `inspect` and for checkpoint.warm_start."""

from __future__ import annotations

import re
import time

import amf
from worker.checkpoint import Checkpoints, Location, Manifest
from worker.errors import ConfigError
from worker.models import Models
from worker.ports import ObjectStore


def require_empty(store: ObjectStore) -> None:
    """Before the work: one URL holds one lineage, or nobody could tell which one to start from. Raises ConfigError."""
    if store.list(""):
        raise ConfigError("--save takes the URL of an empty folder: there is something in this one")


def save(store: ObjectStore, name: str, rows: int, models: Models) -> Manifest:
    """Write the models that so many rows of the file `name` made."""
    location = Location("evaluate", "main", re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".") or "file", "file", 0)
    return Checkpoints(store, location).write(
        offset=rows,
        start_offset=0,
        engine=amf.ENGINE,
        created_ms=time.time_ns() // 1_000_000,
        dirty=models.sources(),
    )
