"""What must be true at the end of a simulation, against one partition object that takes the records one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from tests.worker.fake_broker import Broker
from tests.worker.stores import DictStore
from worker.checkpoint import Manifest
from worker.config import Config
from worker.partition import Partition
from worker.records import Outgoing, Record

Refuses = Callable[[Outgoing], bool]


class Failed(AssertionError):
    """A guarantee is broken."""


class Ledger(DictStore):
    """A store that remembers every manifest ever written, and the furthest offset that was committed by then."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self.manifests: dict[int, list[tuple[Manifest, int]]] = {number: [] for number in broker.logs}
        self._broker = broker

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data)
        if name.endswith("manifest"):
            manifest = msgspec.json.decode(data, type=Manifest)
            number = manifest.location.partition
            self.manifests[number].append((manifest, self._broker.furthest[number]))


class Reference:
    """The outputs of a partition and the hash of each of its models at any offset, without a worker."""

    def __init__(self, number: int, config: Config, max_message_bytes: int, refuses: Refuses = lambda _: False) -> None:
        self._refuses = refuses
        self.outputs: list[Outgoing] = []
        self.state: dict[str, str] = {}
        self._partition = Partition(number, config, max_message_bytes)
        self._partition.restore({}, 0, 0)
        self._partition.go_live()

    def take(self, record: Record) -> None:
        for output in self._partition.apply([record]).outgoing:
            if self._refuses(output):
                letter = self._partition.dead_letter_for(record, output, "message size too large")
                assert letter is not None
                output = letter
            self.outputs.append(output)

    def look(self) -> dict[str, str]:
        """Model key -> hash of its bytes, as of now."""
        changed, removed = self._partition.snapshot()
        self.state |= {key: hashlib.sha256(model.take().data).hexdigest() for key, model in changed.items()}
        for key in removed:
            self.state.pop(key, None)
        return self.state


def judge(broker: Broker, ledger: Ledger, config: Config, max_message_bytes: int) -> None:
    """Raises Failed unless every output and every checkpoint is what it should be."""
    if broker.open:
        raise Failed(f"transactions are left open: {sorted(broker.open)}")
    published: dict[int, list[Outgoing]] = {number: [] for number in broker.logs}
    for output in broker.published:
        published[source(output)[0]].append(output)
    for number, log in broker.logs.items():
        reference = Reference(number, config, max_message_bytes, broker.refuses)
        try:
            _compare_checkpoints(ledger.manifests[number], reference, log.records)
            _compare_outputs(published[number], reference.outputs, repeats=config.delivery == "at-least-once")
        except Failed as failed:
            raise Failed(f"partition {number}: {failed}") from None


def _compare_checkpoints(written: list[tuple[Manifest, int]], reference: Reference, records: list[Record]) -> None:
    """All of them, be they deleted since; takes the reference through all records."""
    waiting = sorted(written, key=lambda each: each[0].offset)
    for record in records:
        while waiting and waiting[0][0].offset <= record.offset:
            _compare_checkpoint(*waiting.pop(0), reference)
        reference.take(record)
    for each in waiting:
        _compare_checkpoint(*each, reference)
    newest = max((manifest.offset for manifest, _ in written), default=0)
    if records and newest != records[-1].offset + 1:
        raise Failed(f"the last checkpoint is at {newest}, though all stopped in order at {records[-1].offset + 1}")


def _compare_checkpoint(manifest: Manifest, committed: int, reference: Reference) -> None:
    if manifest.models and manifest.offset > committed:
        raise Failed(f"a checkpoint at {manifest.offset} was written when {committed} was committed")
    found = {key: entry.sha256 for key, entry in manifest.models.items()}
    true = reference.look()
    if found != true:
        keys = sorted(key for key in found.keys() | true.keys() if found.get(key) != true.get(key))
        raise Failed(f"the checkpoint at {manifest.offset} is false: models {keys}")


def _compare_outputs(found: list[Outgoing], expected: list[Outgoing], *, repeats: bool) -> None:
    if repeats:
        # What repeats must repeat itself; the first of each offset is what counts.
        first: dict[int, Outgoing] = {}
        for output in found:
            if first.setdefault(source(output)[1], output) != output:
                raise Failed(f"two different outputs for offset {source(output)[1]}")
        found = [first[offset] for offset in sorted(first)]
    for i in range(max(len(found), len(expected))):
        if found[i : i + 1] != expected[i : i + 1]:
            raise Failed(f"output {i} is {found[i : i + 1]}, expected {expected[i : i + 1]}")


def source(output: Outgoing) -> tuple[int, int]:
    """Partition and offset of the input that an output comes from."""
    headers = dict(output.headers)
    return int(headers["source-partition"] or b""), int(headers["source-offset"] or b"")
