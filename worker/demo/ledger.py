"""The demo's book of what came out: every prediction once, duplicates compared, figures of each model.

At-least-once means that a crash may repeat predictions. A reader drops the repeated ones by their source headers, as
`Ledger` does; that they are equal to the first ones, byte for byte, is what it checks on the way.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean

import msgspec

from worker.adapters.kafka import KafkaInput
from worker.base.errors import Fatal
from worker.base.records import Label, Record
from worker.cli.dataset import Row, record_of
from worker.cli.evaluate import task_of_rows
from worker.codec import envelope
from worker.config import Config

RECENT = 1000
"""Predictions of a model that its recent log-loss is the mean of."""
_CHUNK_ROWS = 4096
_MAX_READ = 5000


class Reader:
    """All records of a topic, from its first on, outside of any group."""

    def __init__(self, config: Config, topic: str, partitions: int) -> None:
        self._topic = topic
        self._input = KafkaInput(replace(config, input=replace(config.input, topic=topic)))
        self._input.assign(dict.fromkeys(range(partitions), 0))

    def read(self, timeout_s: float) -> list[Record]:
        """The next records. Raises WorkerError where some are gone already."""
        records, missing = self._input.consume(_MAX_READ, timeout_s)
        if missing:
            raise Fatal(f"the embedded broker dropped records of {self._topic} before they were read: {missing}")
        return [record for some in records.values() for record in some]

    def close(self) -> None:
        self._input.close()


class _Published(msgspec.Struct):
    """What the demo needs of a published prediction."""

    id: str
    model: str
    learned: int
    prediction: Label | None = None
    label: Label | None = None
    loss: float | None = None


@dataclass(slots=True)
class Tally:
    """One model as its published predictions show it."""

    events: int = 0
    labelled: int = 0
    correct: int = 0
    loss: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    curve: list[float] = field(default_factory=list)
    """The recent log-loss, once a second."""

    @property
    def log_loss(self) -> float | None:
        return self.loss / self.labelled if self.labelled else None

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.labelled if self.labelled else None

    @property
    def recent_log_loss(self) -> float | None:
        return fmean(self.recent) if self.recent else None

    def since(self, earlier: Tally) -> Tally:
        """What came after an earlier state of this tally; figures alone."""
        return Tally(
            self.events - earlier.events,
            self.labelled - earlier.labelled,
            self.correct - earlier.correct,
            self.loss - earlier.loss,
        )


class Ledger:
    """Predictions and dead letters, each source record once."""

    def __init__(self) -> None:
        self.models: defaultdict[str, Tally] = defaultdict(Tally)
        self.rows: dict[int, int] = {}
        """Row number -> hash of the value that was published for it."""
        self.duplicates = 0
        self.differing = 0
        """Duplicates that are not equal to the first record, byte for byte."""
        self.mean_bytes = 1000.0
        """Size of a published record; a guess before the first."""
        self._first: dict[tuple[bytes, bytes], int] = {}
        self._dead: set[tuple[bytes, bytes]] = set()
        self._decode = msgspec.json.Decoder(_Published).decode

    @property
    def dead_letters(self) -> int:
        return len(self._dead)

    @property
    def handled(self) -> int:
        """Source records that came out, as a prediction or as a dead letter."""
        return len(self._first) + len(self._dead)

    def take(self, predictions: Iterable[Record]) -> None:
        """Enter records of the output topic."""
        for record in predictions:
            place, content = _source(record), hash((record.key, record.value, *record.headers))
            if place in self._first:
                self.duplicates += 1
                self.differing += content != self._first[place]
            else:
                self._first[place] = content
                self._enter(record)

    def take_dead_letters(self, records: Iterable[Record]) -> None:
        """Enter records of the dead-letter topic."""
        self._dead |= {_source(record) for record in records}

    def count_equal(self, expected: Iterable[tuple[int, bytes | None]]) -> int:
        """How many rows came out as expected: (row number, value), None where there should be no prediction."""
        return sum(self.rows.get(number) == (None if value is None else hash(value)) for number, value in expected)

    def sample_curves(self) -> None:
        """Add a point to each model's curve; to be called once a second."""
        for tally in self.models.values():
            if tally.recent:
                tally.curve.append(fmean(tally.recent))

    def _enter(self, record: Record) -> None:
        assert record.value is not None, "predictions have values"
        published = self._decode(record.value)
        self.rows[int(published.id)] = hash(record.value)
        size = envelope.record_bytes(record.key, record.value, record.headers)
        self.mean_bytes += (size - self.mean_bytes) / len(self._first)
        tally = self.models[published.model]
        tally.events += 1
        if published.loss is not None:
            tally.labelled += 1
            tally.correct += published.prediction == published.label
            tally.loss += published.loss
            tally.recent.append(published.loss)


def _source(record: Record) -> tuple[bytes, bytes]:
    headers = dict(record.headers)
    partition, offset = headers["source-partition"], headers["source-offset"]
    assert partition is not None, "the worker names the source of every record"
    assert offset is not None, "the worker names the source of every record"
    return partition, offset


def uninterrupted(rows: Iterable[Row], config: Config) -> Iterator[tuple[int, bytes | None]]:
    """Row number -> the value to be published, None for a dead letter: learned here, in one go, without Kafka."""
    task, rest = task_of_rows(config), iter(rows)
    while chunk := list(islice(rest, _CHUNK_ROWS)):
        published = task.process([record_of(row, config.input.codec) for row in chunk]).outgoing
        for row, outgoing in zip(chunk, published, strict=True):
            yield row.number, outgoing.value if outgoing.topic == config.output.topic else None
