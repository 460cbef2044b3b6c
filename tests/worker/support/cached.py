"""Partitions whose models share a bounded memory, and a store that has the last checkpoint of one."""

from __future__ import annotations

from tests.worker.support.fakes import config
from tests.worker.support.tasks import labelled, records, restore, taken
from worker.checkpoint import SavedModel
from worker.config import Config
from worker.state.cache import Cache
from worker.state.entry import Entry
from worker.task.task import Task


class Store:
    """The last checkpoint, as a partition asks for models of it."""

    def __init__(self) -> None:
        self.saved: dict[str, SavedModel] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None

    def fetch(self, key: str) -> bytes:
        self.asked.append(key)
        if self.error is not None:
            raise self.error
        return self.saved[key].data

    def save(self, here: Task) -> None:
        changed, removed = here.models.snapshot()
        self.saved = {key: each for key, each in (self.saved | taken(changed)).items() if key not in removed}
        here.models.snapshot_done()


def cached_partition(cache: Cache, settings: Config | None = None, store: Store | None = None) -> Task:
    """A live one whose models are in this cache, from the models of a store on."""
    store = store or Store()
    here = Task(3, settings or config(), 1_000_000, cache)
    restore(here, list(store.saved.items()), 0, 0, store.fetch)
    here.go_live()
    return here


def away(here: Task) -> set[str]:
    """The keys of its models that are not in memory."""
    return {entry.key for entry in here.models.entries() if entry.model is None}


def entry_of(here: Task, key: str) -> Entry:
    found = here.models.entry(key)
    assert found is not None
    return found


def learn(here: Task, *keys: str) -> None:
    """One label for the model of each key."""
    here.process(records(*map(labelled, keys)))
