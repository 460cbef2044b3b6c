"""Tasks that are opened without a store."""

from __future__ import annotations

from collections.abc import Iterable

from worker.checkpoint import SavedModel
from worker.state.entry import Fetch, Prefetch
from worker.task.task import Task


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
