"""What must be true at the end of a simulation, against a reference that takes the records one by one."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise

from tests.worker.support.fake_broker import Broker
from tests.worker.support.ledger import Failed, Ledger, Written
from tests.worker.support.reference import Reference
from worker.base.records import Outgoing, Record
from worker.config import Config

Ranges = list[tuple[int, int]]
"""Offsets of the records that are in a history: from, to."""
Deployment = tuple[Mapping[int, int], Config]
"""The offsets from which on a configuration holds, by partition, and the configuration."""
_GAP = re.compile(r"gap after offset (\d+) of lineage (\S+)")


@dataclass
class Facts:
    """What has happened."""

    broker: Broker
    ledger: Ledger
    deployments: list[Deployment]
    """In their order."""
    repeats: bool
    """Whether outputs may repeat themselves."""


@dataclass
class Truth:
    """What should have come of the records of a partition."""

    outputs: dict[tuple[str, int], Outgoing] = field(default_factory=dict)
    """By lineage and timestamp of the record."""
    states: defaultdict[tuple[str, int], list[dict[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """By lineage and offset: where the configuration changes, or the end of the log was lost, there are two."""


def judge(facts: Facts) -> None:
    """Raises Failed unless every output and every checkpoint is what it should be."""
    if facts.broker.open:
        raise Failed(f"transactions are left open: {sorted(facts.broker.open)}")
    published: dict[int, list[Outgoing]] = {number: [] for number in facts.broker.logs}
    for output in facts.broker.published:
        published[source(output)[0]].append(output)
    for number in facts.broker.logs:
        try:
            _judge_partition(facts, number, published[number])
            facts.ledger.check_kept(number)
        except Failed as failed:
            raise Failed(f"partition {number}: {failed}") from None


def _judge_partition(facts: Facts, number: int, published: list[Outgoing]) -> None:
    log, written = facts.broker.logs[number], facts.ledger.written[number]
    histories = _histories(written, facts.deployments[0][1].checkpoint.lineage)
    truths = []
    for deployments in _possible(facts.deployments, number, histories.values()):
        truths.append(truth := Truth())
        for records in (*log.former, log.records):
            for lineage, ranges in histories.items():
                offsets = {each.manifest.offset for each in written if each.manifest.location.lineage == lineage}
                own = [record for record in records if _within(record.offset, ranges)]
                coming = [({number: _taken_from(begins.get(number, 0), ranges)}, each) for begins, each in deployments]
                _relive(replace(facts, deployments=coming), number, own, lineage, offsets, truth)
    _compare_checkpoints(written, truths)
    newest = facts.ledger.newest(number)
    if log.records and (newest is None or newest.offset != log.end):
        raise Failed(f"the last checkpoint is before {log.end}, though all stopped in order there")
    failures = [_false_output(published, truth, repeats=facts.repeats) for truth in truths]
    if all(failures):
        raise Failed(failures[0])
    after_gaps = [each for each in written if _GAP.match(each.manifest.origin or "")]
    lost = [(each.committed, each.manifest.offset) for each in after_gaps]
    seen = {output.timestamp_ms for output in published}
    for record in log.records:
        if record.timestamp_ms not in seen and not _within(record.offset, lost):
            raise Failed(f"there is no output for offset {record.offset}")


def _possible(deployments: list[Deployment], number: int, histories: Collection[Ranges]) -> Iterator[list[Deployment]]:
    """What may have been deployed to a partition, all of it first.

    What is replaced before a record was committed under it may have done what it does at its start, such as to let
    models start anew, or not have come to it.
    """
    begins = [begin.get(number, 0) for begin, _ in deployments]
    fleeting = [
        i
        for i, (begin, later) in enumerate(pairwise(begins))
        if i and any(_taken_from(begin, ranges) == _taken_from(later, ranges) for ranges in histories)
    ]
    for n in range(len(fleeting) + 1):
        for passed_over in combinations(fleeting, n):
            yield [each for i, each in enumerate(deployments) if i not in passed_over]


def _histories(written: Iterable[Written], root: str) -> dict[str, Ranges]:
    """Lineage -> the records that its models have learned: what came before the gap it began with, and what after."""
    histories: dict[str, Ranges] = {root: [(0, sys.maxsize)]}
    begun: dict[str, int] = {}
    for _, manifest, _, _ in written:
        lineage = manifest.location.lineage
        is_first = manifest.offset == manifest.start_offset and manifest.revision > begun.get(lineage, -1)
        if is_first and (match := _GAP.match(manifest.origin or "")):
            end, begun[lineage] = int(match[1]), manifest.revision
            before = [(start, min(stop, end)) for start, stop in histories[match[2]]]
            histories[lineage] = [*before, (manifest.offset, sys.maxsize)]
    return histories


def _relive(
    facts: Facts, number: int, records: Sequence[Record], lineage: str, offsets: set[int], truth: Truth
) -> None:
    """Take the records through a reference."""
    reference = Reference(number, facts.deployments[0][1])
    coming = [(begins.get(number, 0), config) for begins, config in facts.deployments[1:]]
    waiting = sorted(offsets)

    def come_to(offset: int) -> None:
        while coming and coming[0][0] <= offset:
            begin, config = coming.pop(0)
            note(begin)
            reference.deploy(config)
            waiting[:] = [each for each in waiting if each >= begin]
        note(offset)
        waiting[:] = [each for each in waiting if each > offset]

    def note(offset: int) -> None:
        for each in waiting:
            if each <= offset:
                truth.states[lineage, each].append(reference.state())

    for record in records:
        come_to(record.offset)
        output = reference.take(record, lineage)
        if facts.broker.refuses(output):
            headers = [*output.headers, ("error-code", b"unpublishable")]
            output = Outgoing("dead-letters", record.key, record.value, headers, record.timestamp_ms)
        truth.outputs[lineage, record.timestamp_ms] = output
    come_to(sys.maxsize)


def _compare_checkpoints(written: Iterable[Written], truths: Sequence[Truth]) -> None:
    """All of them, be they deleted since."""
    for _, manifest, _, furthest in written:
        # After a gap the models are those of before it.
        if manifest.models and manifest.offset > furthest and manifest.offset != manifest.start_offset:
            raise Failed(f"a checkpoint at {manifest.offset} was written when {furthest} was committed")
        found = {key: entry.sha256 for key, entry in manifest.models.items()}
        if not any(found in truth.states[manifest.location.lineage, manifest.offset] for truth in truths):
            raise Failed(f"the checkpoint at {manifest.offset} of {manifest.location.lineage} is false: {found.keys()}")


def _false_output(published: Iterable[Outgoing], truth: Truth, *, repeats: bool) -> str | None:
    """What is wrong with the first output that is not as it should be."""
    times, last = Counter[int](), -1
    for output in published:
        found = Outgoing(
            output.topic,
            output.key,
            output.value,
            [each for each in output.headers if each[0] != "error-reason"],
            output.timestamp_ms,
        )
        lineage = (dict(output.headers)["lineage"] or b"").decode()
        expected = truth.outputs.get((lineage, output.timestamp_ms))
        if found != expected:
            return f"an output is {found}, expected {expected}"
        times[output.timestamp_ms] += 1
        if not repeats and (times[output.timestamp_ms] > 1 or output.timestamp_ms < last):
            return f"an output for offset {source(output)[1]} comes twice, or late"
        last = output.timestamp_ms
    return None


def _taken_from(offset: int, ranges: Ranges) -> int:
    """The first offset from this one on that is in a history: what begins in a gap begins behind it."""
    return next(max(offset, start) for start, stop in ranges if offset < stop)


def _within(offset: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(start <= offset < stop for start, stop in ranges)


def source(output: Outgoing) -> tuple[int, int]:
    """Partition and offset of the input that an output comes from."""
    headers = dict(output.headers)
    return int(headers["source-partition"] or b""), int(headers["source-offset"] or b"")
