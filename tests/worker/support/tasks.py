"""Tasks that are opened without a store, records for them, and what is read of their outputs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tests.worker.support.events import Source
from tests.worker.support.fake_broker import Log
from worker.base.records import Outgoing, Record
from worker.checkpoint import SavedModel
from worker.config import Config
from worker.runtime.tasks import Setting
from worker.state.copy_on_write import CopyOnWrite
from worker.state.entry import Fetch, Prefetch
from worker.task.task import Task

SETTING = Setting(
    topic_id="topic-id",
    partitions=1,
    max_message_bytes=1_000_000,
    warm_start=None,
    ends=None,
    registry=None,
    spill=None,
    give_back=lambda: None,
)


def restore(
    task: Task,
    models: Iterable[tuple[str, SavedModel]] = (),
    offset: int = 0,
    live_from: int = 0,
    fetch: Fetch | None = None,
    prefetch: Prefetch | None = None,
) -> Task:
    """Open a task with these models at an offset; it replays the records before `live_from`."""
    task.open(task.load(models, offset, fetch, prefetch), offset, live_from)
    return task


def live(task: Task) -> Task:
    """Open a task without models at the begin of its partition, to predict at once."""
    restore(task).go_live()
    return task


Restored = dict[str, SavedModel]


def partition(settings: Config, models: Restored | None = None, offset: int = 0, live_from: int | None = None) -> Task:
    """One at an offset, live unless it has to replay first."""
    here = Task(3, settings, 1_000_000)
    restore(here, (models or {}).items(), offset, offset if live_from is None else live_from)
    if live_from is None:
        here.go_live()
    return here


def records(*contents: tuple[str | None, Any]) -> list[Record]:
    """Records of (key, value); a value that is neither bytes nor None is an event."""
    log = Log()
    for key, value in contents:
        data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
        log.append(None if key is None else key.encode(), data)
    return log.records


def labelled(key: str, x: float = 1.0, label: Any = "a") -> tuple[str, Any]:
    return key, {"features": [x], "label": label}


def taken(frozen: dict[str, CopyOnWrite]) -> dict[str, SavedModel]:
    """The models of a snapshot as they are written."""
    return {key: model.take() for key, model in frozen.items()}


def state(here: Task) -> dict[str, bytes]:
    return {model.key: model.forest.dumps() for model in here.models}


def value_of(output: Outgoing) -> Any:
    assert output.value is not None
    return msgspec.json.decode(output.value)


def header(output: Outgoing, name: str) -> bytes | None:
    return dict(output.headers)[name]


def codes(outputs: Sequence[Outgoing]) -> list[str | None]:
    """The error code of each dead letter, None for a prediction."""
    found = [dict(output.headers).get("error-code") for output in outputs]
    return [None if code is None else code.decode() for code in found]


def drawn(seed: int, n: int) -> list[Record]:
    """Records of every sort."""
    rng = random.Random(seed)
    source, log = Source(rng), Log()
    for _ in range(n):
        log.append(*source.draw(0), gap=rng.choice((0, 0, 2)))
    return log.records
