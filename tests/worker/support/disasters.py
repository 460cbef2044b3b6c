"""What no worker can mend: records, offsets or files that change behind it, and what operators do about that.

Of each it is said under which names partitions may stop because of it. A name that nothing explains is a fault of the
worker.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import amf
from tests.worker.support.fake_broker import TRANSACTION_TIMEOUT_S, Broker
from tests.worker.support.ledger import Ledger
from tests.worker.support.stores import DictStore
from tests.worker.support.verdict import source
from worker.checkpoint import Checkpoints, Manifest, SavedModel
from worker.config import Config


class World(Protocol):
    """What a disaster strikes."""

    rng: random.Random
    broker: Broker
    store: Ledger
    config: Config
    repeats: bool
    quiet: set[int]

    def feed(self, n: int) -> None: ...
    def kill_all(self) -> None: ...
    def start_all(self) -> None: ...
    def deploy(self, config: Config) -> None: ...
    def is_saved(self, number: int) -> bool: ...


class Disaster:
    """One that never strikes."""

    stops: ClassVar[set[str]] = set()
    """Names under which partitions may stop because of it."""
    keeps_records: ClassVar[bool] = False
    """Whether retention deletes nothing meanwhile, since the group may be set back behind it."""

    def __init__(self, world: World) -> None:
        self.world = world

    def strike(self) -> None:
        """It happens."""

    def answer(self) -> None:
        """A partition has stopped: somebody sees to it, then the worker is started again."""

    def pass_by(self) -> None:
        """It is over, though it may not have been noticed."""

    def _pick(self) -> tuple[int, Manifest] | None:
        """A partition and its newest checkpoint."""
        number = self.world.rng.choice(sorted(self.world.broker.logs))
        manifest = self.world.store.newest(number)
        return None if manifest is None else (number, manifest)

    def _kill_all(self) -> None:
        """The group is empty, and no transaction is open."""
        self.world.kill_all()
        self.world.broker.clock.now_s += 2 * TRANSACTION_TIMEOUT_S
        self.world.broker.deliver_late()


class Gap(Disaster):
    """Retention deletes records that the newest checkpoint has yet to see."""

    stops: ClassVar = {"retention-gap", "offset-out-of-range"}

    def strike(self) -> None:
        if found := self._pick():
            log = self.world.broker.logs[found[0]]
            log.low = self.world.rng.randint(log.low, log.stable)

    def answer(self) -> None:
        config = self.world.config
        if config.input.on_gap == "fail":
            self.world.config = replace(config, input=replace(config.input, on_gap="accept"))
            self.world.kill_all()


class Rewind(Disaster):
    """The group is set back. Where that is not accepted, it is set to where it was again."""

    stops: ClassVar = {"group-rewound", "no-checkpoint", "retention-gap"}
    keeps_records: ClassVar = True

    def strike(self) -> None:
        self._kill_all()
        found, broker = self._pick(), self.world.broker
        if found and found[0] in broker.committed:
            number, manifest = found
            accepted = self.world.config.input.on_rewind == "accept"
            # Behind the newest checkpoint it could not be known, nor by one with which a history begins behind a gap.
            known = manifest.offset if manifest.offset > manifest.start_offset else 0
            furthest = broker.committed[number] if accepted else known
            if furthest > 0:
                self.world.repeats |= accepted
                broker.set_offsets({number: self.world.rng.randrange(furthest)})
        self.world.start_all()

    def answer(self) -> None:
        self._kill_all()
        broker = self.world.broker
        broker.set_offsets({number: offset for number, offset in broker.furthest.items() if offset >= 0})

    pass_by = answer


class Truncation(Disaster):
    """The end of a log is lost, and with it records that were predicted; other records come in their place."""

    stops: ClassVar = {"offset-out-of-range"}
    keeps_records: ClassVar = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._predicted: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Timestamps of the records that the group has come to, by partition and offset."""
        self._noted = 0

    def strike(self) -> None:
        oldest = {number: self.world.store.oldest(number) for number in sorted(self.world.broker.logs)}
        # Where no checkpoint is left there is nothing to be done but to begin anew. Where somebody has set the group's
        # offset nobody could tell, before the next commit.
        exposed = {
            number: low
            for number, low in oldest.items()
            if low is not None
            and low < self.world.broker.logs[number].high
            and number not in self.world.broker.set_by_hand
        }
        if not exposed:
            return
        number = self.world.rng.choice(list(exposed))
        log, low = self.world.broker.logs[number], exposed[number]
        # Mostly the workers are away meanwhile, and the producers are not, or are away for longer.
        are_away = self.world.rng.random() < 0.8
        if are_away:
            self._kill_all()
        log.truncate(self._cut(number, low))
        if are_away:
            if self.world.rng.random() < 0.3:
                self.world.quiet.add(number)
            self.world.feed(self.world.rng.randint(0, 12 * len(self.world.broker.logs)))
            self.world.start_all()

    def _cut(self, number: int, low: int) -> int:
        """Where the log will end: anywhere, or among what is predicted and not saved."""
        rng, high = self.world.rng, self.world.broker.logs[number].high
        newest, committed = self.world.store.newest(number), self.world.broker.committed.get(number, 0)
        if newest is not None and newest.offset < min(committed, high) and rng.random() < 0.7:
            return rng.randrange(newest.offset, min(committed, high))
        return rng.randint(low, high - 1)

    def answer(self) -> None:
        self._kill_all()
        self._note_predictions()
        self.world.quiet.clear()
        broker, store = self.world.broker, self.world.store
        for number, predicted in self._predicted.items():
            end = self._end_of_what_is_left(number)
            if end is None:
                continue
            for offset in [offset for offset in predicted if offset >= end]:
                del predicted[offset]
            broker.set_offsets({number: end})
            broker.furthest[number] = end
            for name in list(store.objects):
                if f"/{number}/" in name and int(name.rpartition("/")[2][:20]) > end:
                    del store.objects[name]
                    store.tampered.add(name)

    def _note_predictions(self) -> None:
        published = self.world.broker.published
        for output in published[self._noted :]:
            number, offset = source(output)
            self._predicted[number][offset] = output.timestamp_ms
        self._noted = len(published)

    def _end_of_what_is_left(self, number: int) -> int | None:
        """Where the log was cut off, if that was before what was predicted."""
        log = self.world.broker.logs[number]
        ever = {record.timestamp_ms: record for records in (*log.former, log.records) for record in records}
        there = {record.timestamp_ms for record in log.records}
        lost = [ever[time_ms] for time_ms in self._predicted[number].values() if time_ms not in there]
        return min((log.end_of(record.leader_epoch or 0) for record in lost), default=None)


class Disagreement(Disaster):
    """A faulty machine has learned something else from the same records, and saved it."""

    stops: ClassVar = {"divergence"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._written: set[str] = set()

    def strike(self) -> None:
        self.pass_by()
        found = self._pick()
        if found is None or not found[1].models:
            return
        manifest, forge = found[1], DictStore()
        forge.objects = dict(self.world.store.objects)
        checkpoints = Checkpoints(forge, manifest.location)
        key = self.world.rng.choice(sorted(manifest.models))
        entry = manifest.models[key]
        forest: Any = amf.loads(checkpoints.load_one(manifest, key))
        label = 1.0 if isinstance(forest, amf.AMFRegressor) else forest.class_labels[0]
        forest.partial_fit([[0.5] * forest.n_features], [label])
        dirty = {key: lambda: SavedModel(entry.spec, forest.dumps(), entry.summary)}
        checkpoints.write(manifest.about, dirty, previous=manifest)
        self._written = forge.objects.keys() - self.world.store.objects.keys()
        self.world.store.objects |= {name: forge.objects[name] for name in self._written}
        self.world.store.tampered |= self._written
        self.world.kill_all()
        self.world.start_all()

    def pass_by(self) -> None:
        for name in self._written:
            self.world.store.objects.pop(name, None)
        self._written = set()

    answer = pass_by


class ForeignFiles(Disaster):
    """The files of one partition are copied into the folder of another."""

    # A name alone counts as a sign that its offset was committed, whoever the file belongs to.
    stops: ClassVar = {"corrupt-checkpoint", "no-checkpoint", "group-rewound"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._copied: set[str] = set()

    def strike(self) -> None:
        one, other = self._pick(), self._pick()
        if one is None or other is None or one[0] == other[0]:
            return
        store = self.world.store
        source, target = one[1].location.prefix, other[1].location.prefix
        for name in store.list(source):
            copy = f"{target}/{name.rpartition('/')[2]}"
            if copy not in store.objects:
                store.objects[copy] = store.objects[name]
                self._copied.add(copy)
        store.tampered |= self._copied

    def pass_by(self) -> None:
        for name in self._copied:
            self.world.store.objects.pop(name, None)
        self._copied.clear()

    answer = pass_by


class Deployment(Disaster):
    """All workers are stopped in order, and started with another configuration."""

    def strike(self) -> None:
        rng, config = self.world.rng, self.world.config
        models, given = config.models, config.input
        default = replace(
            models.default,
            n_estimators=rng.choice((1, models.default.n_estimators, 2)),
            seed=rng.choice((models.default.seed, 7)),
        )
        self.world.deploy(
            replace(
                config,
                input=replace(given, tombstones=rng.choice(("dead-letter", "reset"))),
                models=replace(
                    models,
                    default=default,
                    overrides=rng.choice((models.overrides, ())),
                    on_spec_change=rng.choice(("fail", "restart")),
                    max_models=rng.choice((1, 2, 1000, models.max_models)),
                    cache_bytes=rng.choice((None, 1, 40_000)),
                ),
            )
        )


class Expiry(Disaster):
    """The group's offsets expire while nobody runs; all had stopped in order, and saved what there was."""

    def strike(self) -> None:
        self.world.deploy(self.world.config)
        self._kill_all()
        broker = self.world.broker
        if all(map(self.world.is_saved, broker.logs)):
            broker.expire_offsets()
            # Or nothing would ever be committed, which tells that all is worked off.
            for log in broker.logs.values():
                log.append(b"again", b'{"features": [1.5], "label": "a"}')
        self.world.start_all()


class Growth(Disaster):
    """A partition is added to the topic."""

    most: ClassVar = 6

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.config = replace(world.config, input=replace(world.config.input, on_repartition="new-models"))

    def strike(self) -> None:
        number = len(self.world.broker.logs)
        if number < self.most:
            self.world.broker.add_partition()
            self.world.store.written[number] = []


class Several(Disaster):
    """Now the one strikes, now another one."""

    parts: ClassVar[tuple[type[Disaster], ...]]

    def __init_subclass__(cls) -> None:
        cls.stops = set().union(*(part.stops for part in cls.parts))
        cls.keeps_records = any(part.keeps_records for part in cls.parts)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._disasters = [part(world) for part in self.parts]

    def strike(self) -> None:
        self.world.rng.choice(self._disasters).strike()

    def answer(self) -> None:
        for disaster in self._disasters:
            disaster.answer()

    def pass_by(self) -> None:
        for disaster in self._disasters:
            disaster.pass_by()


DISASTERS: dict[str, type[Disaster]] = {
    "gap": Gap,
    "rewind": Rewind,
    "truncation": Truncation,
    "disagreement": Disagreement,
    "foreign files": ForeignFiles,
    "deployment": Deployment,
}
_ALL = DISASTERS | {"expiry": Expiry, "growth": Growth}


def _several(names: str) -> type[Disaster]:
    """The disasters of these names in one schedule."""

    class Together(Several):
        parts = tuple(map(_ALL.__getitem__, names.split(", ")))

    return Together


SEVERAL = {
    names: _several(names)
    for names in (
        *("gap, rewind", "gap, deployment", "rewind, deployment", "gap, rewind, deployment", "rewind, truncation"),
        *("gap, expiry", "deployment, expiry", "gap, growth", "deployment, growth"),
    )
}
"""Schedules of their own have these, by the names of what they hold."""
