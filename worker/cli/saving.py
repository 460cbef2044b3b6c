"""What `evaluate --save` leaves behind: models as checkpoints, for `inspect` and for checkpoint.warm_start."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import partial

import msgspec

import amf
from worker.base.errors import ConfigError
from worker.base.ports import ObjectStore
from worker.checkpoint import About, Checkpoints, Location, Manifest, SavedModel, Source
from worker.codec.dead_letters import DECODERS
from worker.config import Config
from worker.preflight import probe
from worker.state.model import spec_of


def require_place(store: ObjectStore, url: str) -> None:
    """Raise ConfigError, or what the store does, where `save` could not write, before there is anything to write."""
    # One URL holds one lineage, or nobody could tell which one to start from.
    if store.list(""):
        raise ConfigError("--save takes the URL of an empty folder: there is something in this one")
    probe(store, url)


def save(store: ObjectStore, name: str, rows: int, models: Mapping[str, Source], config: Config) -> Manifest:
    """Write the models that so many rows of the file `name` made, for a worker with this configuration.

    Their specs are those of its codec, also where the rows were read by another one: an event is the same.
    """

    def saved(key: str, source: Source) -> SavedModel:
        spec = spec_of(key, config.models.params_for(key), DECODERS[config.input.codec])
        return msgspec.structs.replace(source(), spec=spec)

    location = Location("evaluate", "main", re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".") or "file", "file", 0)
    about = About(
        engine=amf.ENGINE,
        location=location,
        start_offset=0,
        offset=rows,
        covered=rows,
        created_ms=time.time_ns() // 1_000_000,
    )
    return Checkpoints(store, location).write(
        about, {key: partial(saved, key, source) for key, source in models.items()}
    )
