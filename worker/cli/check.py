"""`check` beyond the file: make missing topics, and try at the broker and the store what a worker will do there."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import worker
from worker import task
from worker.adapters.kafka import KafkaAdmin, KafkaInput, KafkaTopic, errors, make_internal_topic
from worker.adapters.kafka.registry import open_registry
from worker.adapters.store import open_store
from worker.base.errors import PartitionStopped, WorkerError
from worker.base.ports import Clock, Deadline, Input, ObjectStore, TopicState
from worker.base.refusals import BACK_OR_RESTART
from worker.base.retry import retry
from worker.base.terms import some
from worker.cli.terminal import progress, status
from worker.config import Config, repartition
from worker.preflight import Finding, examine, of_forwarder, of_group, probe
from worker.service import SystemClock
from worker.task.dry_run import DryRun, SpecChanges

_ANSWERS_WITHIN_S = 20.0
_TWICE = frozenset({"rewind-accepted", "group-without-offset"})
"""What a start warns of by which records are predicted a second time."""


def create_topics(config: Config, partitions: int) -> list[str]:
    """Make the topics that are missing; returns a sentence for each of them. Raises WorkerError.

    A new input topic gets `partitions` partitions, the other two get as many as the input topic has.
    """
    admin = KafkaAdmin(config)
    source = config.input.topic
    absent = admin.missing(_topics(config))
    if source in absent:
        admin.create([source], partitions)
    partitions = admin.facts(source).partitions
    others = [topic for topic in absent if topic != source]
    admin.create(others, partitions)
    if config.input.repartition and make_internal_topic(admin, config):
        absent.append(repartition.internal_topic(config))
    return [f"topic {topic}: made with {some(partitions, 'partition')}" for topic in absent]


def connect(config: Config) -> Iterator[Finding]:
    """Finding by finding, what a worker would meet at its start. Raises ConfigError as it would."""
    topics = list(_try_broker(config))
    yield from topics
    store = open_store(config.checkpoint.url)
    with status("trying the store"):
        of_store = _tried(lambda: probe(store, config.checkpoint.url))
    yield of_store
    if all(finding.level == "ok" for finding in topics):
        taken = repartition.of_worker(config) if config.input.repartition else config
        yield from _try_group(config)
        yield from _try_setting(taken, store if of_store.level != "failed" else None)
    registry = open_registry(config)
    if registry is not None:
        with status("asking the schema registry"):
            found = _tried(lambda: Finding("ok", f"schema registry {config.schema_registry.url}: {registry.probe()}"))
        yield found


def _topics(config: Config) -> list[str]:
    return [config.input.topic, config.output.topic, config.dead_letter.topic]


def _try_broker(config: Config) -> Iterator[Finding]:
    admin, topics = KafkaAdmin(config), _topics(config)
    if config.input.repartition:
        topics.append(repartition.internal_topic(config))
    try:
        with status("asking the broker for the topics"):
            absent = admin.missing(topics)
    except WorkerError as error:
        yield Finding("failed", str(error))
        return
    yield Finding("ok", f"broker {config.kafka['bootstrap.servers']}: answers")
    for topic in topics:
        if topic in absent:
            yield Finding("failed", f"topic {topic}: is missing; --create-topics makes it")
            continue
        try:
            facts = admin.facts(topic)
        except WorkerError as error:
            yield Finding("failed", str(error))
        else:
            yield Finding("ok", f"topic {topic}: {some(facts.partitions, 'partition')}, id {facts.topic_id}")


def _try_group(config: Config) -> Iterator[Finding]:
    """Where the forwarder would begin, or what else the group has done before.

    A broker is given the time that it takes to make a coordinator of the group.
    """
    clock, look = SystemClock(), of_forwarder if config.input.repartition else of_group
    deadline = Deadline.after(clock, _ANSWERS_WITHIN_S)
    try:
        with status("asking the broker for the group"):
            partitions = KafkaAdmin(config).facts(config.input.topic).partitions
            yield from retry(clock, deadline, "the group", lambda: look(config, partitions))
    except WorkerError as error:
        yield Finding("failed", str(error))


def _try_setting(config: Config, store: ObjectStore | None) -> Iterator[Finding]:
    """The settings of the topics and the checkpoints, as far as there is an input by now, and a store that works."""
    try:
        topic = KafkaTopic(config, config.input.topic)
        state = None if topic.is_mock else topic.state(0)
    except WorkerError:
        return  # What does not answer, or is not allowed, has been said already.
    if state is None:
        return
    with status("asking the broker for the settings of the topics"):
        findings = list(examine(config, topic, state, store))
    yield from findings
    if store is not None and all(finding.level != "failed" for finding in findings):
        source = KafkaInput(config)
        try:
            warm_url = config.checkpoint.warm_start
            warm_store = None if warm_url is None else open_store(warm_url)
            yield from dry_runs(config, state, store, source, SystemClock(), warm_store)
        finally:
            source.close()


def dry_runs(
    config: Config,
    state: TopicState,
    store: ObjectStore,
    source: Input,
    clock: Clock,
    warm_store: ObjectStore | None,
) -> Iterator[Finding]:
    """What a start would make of the newest checkpoints: partitions that would stop, models that would be refused.

    `warm_store` is that of `checkpoint.warm_start`.
    """
    dry_run = DryRun(config, state.topic_id, state.partitions, store, clock, warm_store)
    # The first question about a group makes a new broker's coordinator, which takes some seconds.
    patience = partial(retry, clock, Deadline.after(clock, _ANSWERS_WITHIN_S), "the group")
    stops: dict[str, list[tuple[int, str]]] = defaultdict(list)
    warned: dict[str, list[tuple[int, str]]] = defaultdict(list)
    failed: dict[str, list[int]] = defaultdict(list)
    with progress("trying the start", of="partitions") as advance:
        for number in range(state.partitions):
            try:
                for code, warning in _try(dry_run, number, source, patience).items():
                    warned[code].append((number, warning))
            except PartitionStopped as error:
                stops[error.code].append((number, str(error)))
            except WorkerError as error:
                failed[str(error)].append(number)
            advance((number + 1) / state.partitions, number + 1)
    for trouble, numbers in failed.items():
        yield Finding("failed", f"partition {numbers[0]}: {trouble}{_and_so_with(numbers[1:])}")
    for stop in stops.items():
        yield _of_code("failed", *stop)
    for found in warned.items():
        yield _of_code("warning", *found)
    if not failed:  # else there may be more than were seen
        yield _of_models(config, dry_run.models)


def _of_code(verdict: Literal["failed", "warning"], code: str, partitions: Sequence[tuple[int, str]]) -> Finding:
    """What the starts of these partitions have said under one code: the first of them, and which others did."""
    (_, first), *others = partitions
    return Finding(verdict, f"{code}: {first}{_and_so_with([number for number, _ in others])}")


def _and_so_with(numbers: Sequence[int]) -> str:
    """What is said once is true of these partitions, too."""
    return f" (and so with partitions {', '.join(map(str, numbers))})" if numbers else ""


def _try(dry_run: DryRun, number: int, source: Input, patience: Callable[..., Any]) -> dict[str, str]:
    """What a start of the partition would warn of, by code. Raises PartitionStopped, WorkerError.

    A worker may be at work on it meanwhile: a refusal or a warning counts once the group has stood still during it.
    """
    now: tuple[object, int] | None = None
    while True:
        [committed] = patience(partial(source.committed, [number])).values()
        bounds = source.bounds(number)
        before, now = now, (committed, bounds.low)
        try:
            with _not_as_if_it_happened() as warnings:
                opened = dry_run.start(number, committed, bounds)
        except PartitionStopped:
            if now == before:
                raise
        else:
            if not warnings or now == before:
                dry_run.compare(opened)
                return warnings


def _of_models(config: Config, models: SpecChanges) -> Finding:
    if not models.changed:
        return Finding("ok", f"{some(models.total, 'model')} saved, all with the parameters that they have here")
    of = f"{models.n_changed:,} of {models.total:,} saved models have other parameters here"
    if config.models.on_spec_change == "restart":
        return Finding("warning", f"{of} and start anew (models.on_spec_change: restart): {models.describe()}")
    return Finding("failed", f"spec-changed: {of} and would be refused: {models.describe()}. {BACK_OR_RESTART}")


def silent_clients() -> AbstractContextManager[None]:
    """Keep back what librdkafka says of itself: a finding has the reason. Whoever asks for debug messages gets all."""
    is_wanted = logging.getLogger(worker.__name__).isEnabledFor(logging.DEBUG)
    return nullcontext() if is_wanted else _from_level(logging.CRITICAL, errors.__name__)


@contextmanager
def _not_as_if_it_happened() -> Iterator[dict[str, str]]:
    """Keep back what a start tells of the histories that it begins and the gaps that it accepts: it is not true of a
    dry run. Gives what it says of records that are predicted twice, by code."""
    said: dict[str, str] = {}

    def is_to_be_seen(record: logging.LogRecord) -> bool:
        if record.event.name in _TWICE:  # type: ignore[attr-defined]
            said[record.event.name] = record.getMessage()  # type: ignore[attr-defined]
        return False

    log, handler = logging.getLogger(task.__name__), logging.Handler(logging.WARNING)
    handler.addFilter(is_to_be_seen)
    log.addHandler(handler)
    log.propagate = False
    try:
        with _from_level(logging.WARNING, task.__name__):
            yield said
    finally:
        log.propagate = True
        log.removeHandler(handler)


@contextmanager
def _from_level(least: int, name: str) -> Iterator[None]:
    """Of the log of this name let nothing below a level be seen."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(least)
    try:
        yield
    finally:
        log.setLevel(level)


def _tried(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except WorkerError as error:
        return Finding("failed", str(error))
