"""What must be true when the dust has settled, said by a single process that reads the input and never fails.

The reference takes each partition of the input topic, as it lies there, through the worker's own partition in one go:
no broker, no commit, no checkpoint, no restart. Its outputs are compared byte for byte, with topic, key, headers and
timestamp, and its state is compared with every checkpoint that any worker ever wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import IsolationLevel

import amf
from tests.chaos.cluster import DEAD, EVENTS, PREDICTIONS, Cluster
from tests.kafka.broker import Message, read_all
from tests.kafka.workers import source_of
from tests.worker.support.stores import DictStore
from tests.worker.support.tasks import live
from worker.adapters.kafka import KafkaAdmin
from worker.base.records import Outgoing, Record
from worker.checkpoint import Checkpoints, Location, Manifest, Reader
from worker.task.task import Task

READ_WITHIN_S = 600.0
CHUNK_RECORDS = 10_000


@dataclass
class Verdict:
    """Counts of what went wrong; all but `records` and `checkpoints` must be 0."""

    records: int = 0
    checkpoints: int = 0
    """Manifests whose state hash was compared with the reference at their offset."""
    lost: int = 0
    duplicated: int = 0
    differing: int = 0
    wrong_states: int = 0
    unfinished: int = 0
    """Partitions whose newest checkpoint is not at the end of the input."""
    open_transactions: int = 0
    examples: list[str] = field(default_factory=list)

    def complain(self, what: str) -> None:
        if len(self.examples) < 10:
            self.examples.append(what)

    @property
    def good(self) -> bool:
        return not (
            self.lost
            or self.duplicated
            or self.differing
            or self.wrong_states
            or self.unfinished
            or self.open_transactions
        )


def judge(cluster: Cluster) -> Verdict:
    """Compare what was published and saved with the reference, once every worker has stopped in order."""
    verdict = Verdict()
    _judge_transactions(cluster, verdict)
    config, topic = cluster.config(), KafkaAdmin(cluster.config())
    topic_id = topic.facts(EVENTS).topic_id
    max_bytes = topic.max_message_bytes([PREDICTIONS, DEAD])
    published = _published(cluster, verdict)
    inputs: dict[int, list[Record]] = {n: [] for n in range(cluster.setup.partitions)}
    for message in read_all(cluster.bootstrap, EVENTS, timeout=READ_WITHIN_S):
        inputs[message.partition].append(
            Record(message.offset, message.timestamp, message.key, message.value, message.headers)
        )
    manifests = cluster.manifests()
    for number, records in inputs.items():
        location = Location(config.kafka["group.id"], config.checkpoint.lineage, EVENTS, topic_id, number)
        partition = Task(number, config, max_bytes)
        _judge_partition(partition, records, published, _Checkpointed(manifests, location), verdict)
    for source in published:
        verdict.differing += 1
        verdict.complain(f"{source}: published, and there is no such input record")
    return verdict


def _judge_partition(
    partition: Task,
    records: list[Record],
    published: dict[tuple[int, int], tuple[object, ...]],
    checkpointed: _Checkpointed,
    verdict: Verdict,
) -> None:
    live(partition)
    end = records[-1].offset + 1 if records else 0
    if max(checkpointed.manifests, default=-1) != end:
        verdict.unfinished += 1
        verdict.complain(f"partition {partition.number}: the newest checkpoint is not at {end}, the end")
    for chunk in _cut(records, checkpointed.manifests):
        for record, want in zip(chunk, partition.process(chunk).outgoing, strict=True):
            verdict.records += 1
            source = (partition.number, record.offset)
            got = published.pop(source, None)
            if got is None:
                verdict.lost += 1
                verdict.complain(f"{source}: no output")
            elif got != _seen_of(want):
                verdict.differing += 1
                verdict.complain(f"{source}: published {got}, the reference says {_seen_of(want)}")
        checkpointed.compare(partition, verdict)


def _cut(records: list[Record], offsets: Iterable[int]) -> Iterable[list[Record]]:
    """The records in chunks that end wherever there is a checkpoint."""
    ends = set(offsets)
    chunk: list[Record] = []
    for record in records:
        chunk.append(record)
        if record.offset + 1 in ends or len(chunk) == CHUNK_RECORDS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _Checkpointed:
    """The checkpoints of one partition, and what the reference would have written in their place."""

    def __init__(self, manifests: Mapping[str, bytes], location: Location) -> None:
        self.manifests: dict[int, list[Manifest]] = {}
        store = DictStore()
        store.objects = dict(manifests)
        reader = Reader(store, location.prefix)
        for name in sorted(manifests):
            folder, _, file = name.rpartition("/")
            if folder == location.prefix:
                manifest = reader.read(file)
                self.manifests.setdefault(manifest.offset, []).append(manifest)
        self._reference = Checkpoints(DictStore(), location)
        self._previous: Manifest | None = None

    def compare(self, partition: Task, verdict: Verdict) -> None:
        """Look at the checkpoints at the partition's offset, where there are any."""
        found = self.manifests.get(partition.position, [])
        if not found:
            return
        frozen, removed = partition.models.snapshot()
        dirty = {key: model.take for key, model in frozen.items()}
        self._previous = self._reference.write(found[0].about, dirty, removed, self._previous)
        partition.models.snapshot_done()
        for manifest in found:
            verdict.checkpoints += 1
            if manifest.state_hash != self._previous.state_hash:
                verdict.wrong_states += 1
                verdict.complain(f"partition {partition.number}: a checkpoint at {manifest.offset} differs")


def _judge_transactions(cluster: Cluster, verdict: Verdict) -> None:
    for topic in (PREDICTIONS, DEAD):
        stable = cluster.ends(topic, IsolationLevel.READ_COMMITTED)
        for number, end in cluster.ends(topic).items():
            if stable[number] != end:
                verdict.open_transactions += 1
                verdict.complain(f"{topic}[{number}] is stable up to {stable[number]} of {end} only")


def _published(cluster: Cluster, verdict: Verdict) -> dict[tuple[int, int], tuple[object, ...]]:
    """What a read_committed reader sees, by source; more than one output of a source is counted."""
    published: dict[tuple[int, int], tuple[object, ...]] = {}
    times: Counter[tuple[int, int]] = Counter()
    for topic in (PREDICTIONS, DEAD):
        for message in read_all(cluster.bootstrap, topic, timeout=READ_WITHIN_S):
            source, seen = source_of(message), _seen(topic, message, cluster.engines)
            times[source] += 1
            if published.setdefault(source, seen) != seen:
                verdict.differing += 1
                verdict.complain(f"{source}: published {published[source]}, and again {seen}")
    for source, n in times.items():
        if n > 1:
            verdict.duplicated += n - 1
            verdict.complain(f"{source}: {n} outputs")
    return published


def _seen(topic: str, message: Message, engines: Collection[str]) -> tuple[object, ...]:
    """What a reader gets; who of those that were at work made it, the header `engine`, is all the same."""
    ours = {("engine", engine.encode()): ("engine", amf.ENGINE.encode()) for engine in engines}
    headers = tuple(ours.get(header, header) for header in message.headers)
    return topic, message.key, message.value, headers, message.timestamp


def _seen_of(outgoing: Outgoing) -> tuple[object, ...]:
    headers = tuple(outgoing.headers)
    return outgoing.topic, outgoing.key, outgoing.value, headers, max(outgoing.timestamp_ms, 0)
