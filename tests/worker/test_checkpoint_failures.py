"""Whatever call to the store fails, and whenever the process dies, a whole checkpoint is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.support.checkpoints import HERE, HOUR_MS, files, first_whole, write
from tests.worker.support.manifests import taken_apart
from tests.worker.support.stores import DictStore, Fault, FaultyStore
from worker.base.errors import Transient
from worker.checkpoint import Checkpoints, Manifest


def scenario(checkpoints: Checkpoints, confirmed: dict[int, dict[str, bytes]]) -> None:
    """A life of checkpoints with compaction and garbage collection; `confirmed` gets each state once it is written."""
    state: dict[str, bytes] = {}
    previous = None
    for offset in range(1, 7):
        dirty = {f"k{offset % 3}": b"%d" % offset * 10, "hot": b"%d" % offset * 30}
        removed = [f"k{(offset + 1) % 3}"] if offset % 2 else []
        state = {key: data for key, data in state.items() if key not in removed} | dirty
        previous = write(checkpoints, offset, dirty, removed=removed, previous=previous, created_ms=0)
        confirmed[offset] = state
        if offset % 3 == 0:
            checkpoints.collect_garbage(1000 * HOUR_MS, previous)


EXPECTED: dict[int, dict[str, bytes]] = {}
JOURNAL = FaultyStore(DictStore(), {})
scenario(Checkpoints(JOURNAL, HERE), EXPECTED)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("step", range(len(JOURNAL.log)))
def test_a_crash_at_any_step_leaves_a_whole_checkpoint(store: DictStore, step: int, fault: Fault) -> None:
    confirmed: dict[int, dict[str, bytes]] = {}
    with pytest.raises(Transient):
        scenario(Checkpoints(FaultyStore(store, {step: fault}), HERE), confirmed)

    survivor = Checkpoints(store, HERE)
    found = first_whole(survivor)
    if found is None:
        assert confirmed == {}
        return
    manifest, state = found
    assert manifest.offset >= max(confirmed, default=0)
    assert state == EXPECTED[manifest.offset]
    assert survivor.skipped == []

    write(survivor, 7, {"after": b"crash"}, previous=manifest)
    survivor.collect_garbage(2000 * HOUR_MS)
    assert first_whole(survivor)[1] == EXPECTED[manifest.offset] | {"after": b"crash"}


def test_the_scenario_compacts_and_collects() -> None:
    calls = {(call, name.rpartition(".")[2]) for call, name in JOURNAL.log}
    assert {("read", "segment"), ("delete", "manifest"), ("delete", "segment")} <= calls


@dataclass
class Life:
    """A worker that checkpoints over a failing store, beside a dict that says what is true."""

    store: DictStore = field(default_factory=DictStore)
    truth: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Offset -> state, as far as a checkpoint of it may exist."""
    state: dict[str, bytes] = field(default_factory=dict)
    dirty: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    offset: int = 0
    confirmed: int = -1
    previous: Manifest | None = None

    def learn(self, changes: Mapping[str, bytes | None]) -> None:
        self.offset += 1
        for key, data in changes.items():
            if data is None:
                self.removed |= {key} & self.state.keys()
                self.state.pop(key, None)
                self.dirty.discard(key)
            else:
                self.state[key] = data
                self.dirty.add(key)

    def save(self, faults: Mapping[int, Fault]) -> None:
        self.truth[self.offset] = dict(self.state)
        try:
            self.previous = write(
                Checkpoints(FaultyStore(self.store, faults), HERE),
                self.offset,
                {key: self.state[key] for key in self.dirty},
                removed=self.removed,
                previous=self.previous,
                created_ms=self.offset * HOUR_MS,
            )
        except Transient:
            return
        self.confirmed = self.offset
        self.dirty, self.removed = set(), set()

    def collect(self, faults: Mapping[int, Fault]) -> None:
        checkpoints = Checkpoints(FaultyStore(self.store, faults), HERE)
        try:
            checkpoints.collect_garbage(self.offset * HOUR_MS + 10 * HOUR_MS, self.previous)
        except Transient:
            return

    def crash(self) -> None:
        found = first_whole(Checkpoints(self.store, HERE))
        if found is None:
            assert self.confirmed == -1
            return
        self.previous, self.state = found
        self.offset = self.previous.offset
        assert self.offset >= self.confirmed
        assert self.state == self.truth[self.offset]
        self.dirty, self.removed = set(), set()

    def lose_newest(self) -> None:
        """The newest checkpoint rots on disk; those that do not need it must still be whole."""
        manifests = files(self.store, "manifest")
        bases = {taken_apart(self.store.objects[name])[0]["base"] for name in manifests}
        if len(manifests) > 1:
            newest = [name for name in manifests if name.rpartition("/")[2] not in bases][-1]
            self.store.objects[newest] += b" "
            manifests.remove(newest)
            self.confirmed = int(manifests[-1].rpartition("/")[2][:20])


KEYS = st.sampled_from("abcdef")
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(min_size=1, max_size=12), max_size=4)
FAULTS = st.dictionaries(st.integers(0, 6), st.sampled_from(Fault), max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("learn"), CHANGES),
    st.tuples(st.just("save"), FAULTS),
    st.tuples(st.just("save"), st.just({})),
    st.tuples(st.just("collect"), FAULTS),
    st.tuples(st.just("crash")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_any_life_can_be_resumed_from_its_newest_checkpoint(steps: list[Any], rot: bool) -> None:
    life = Life()
    for step, *arguments in steps:
        getattr(life, step)(*arguments)
    if rot:
        life.lose_newest()
    life.crash()
