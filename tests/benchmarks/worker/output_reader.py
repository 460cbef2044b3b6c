"""What the readers of the outputs see: how they come in, that each is there once, and whether two outputs are equal."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

CHUNK = 10_000
READ_WITHIN_S = 600.0
CALL_S = 30.0


class Tail:
    """Reads a topic, committed records only, in a thread of its own; stopped on exit, which raises what it raised.

    `take` gets the records as they come, with the moment (time.time) at which they were all here. It begins at the
    start of the topic, or with `from_end` at its end as of now, records of open transactions left behind.
    """

    def __init__(
        self, bootstrap: str, topic: str, take: Callable[[float, list[Message]], None], *, from_end: bool = False
    ) -> None:
        self._consumer = reader(bootstrap)
        self._take = take
        self._stop = threading.Event()
        self._error: BaseException | None = None
        places = partitions(self._consumer, topic)
        for place in places:
            place.offset = OFFSET_BEGINNING
            if from_end:
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=CALL_S)
        self._consumer.assign(places)
        self._thread = threading.Thread(target=self._run, name=f"tail of {topic}", daemon=True)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                # The first record ends the wait; `consume` alone would wait for more of them.
                first = self._consumer.poll(0.1)
                if first is not None:
                    records = [sound(first), *map(sound, self._consumer.consume(CHUNK, 0))]
                    self._take(time.time(), records)
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        if self._error is not None and error is None:
            raise self._error


def read(bootstrap: str, topic: str) -> Iterator[list[Message]]:
    """Every committed record of a topic up to its end, in chunks. Raises TimeoutError."""
    consumer = reader(bootstrap, **{"enable.partition.eof": True})
    deadline = time.monotonic() + READ_WITHIN_S
    try:
        places = partitions(consumer, topic)
        consumer.assign([TopicPartition(topic, each.partition, OFFSET_BEGINNING) for each in places])
        ended: set[int] = set()
        while len(ended) < len(places):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the end of {topic} was not reached within {READ_WITHIN_S:g} s")
            records = consumer.consume(CHUNK, 0.1)
            ended |= {record.partition() for record in records if _is_end(record)}
            yield [sound(record) for record in records if not _is_end(record)]
    finally:
        consumer.close()


def _is_end(record: Message) -> bool:
    error = record.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


class Coverage:
    """How many outputs each offset of the input has; `ends` are the ends of its partitions."""

    def __init__(self, ends: list[int]) -> None:
        self._counts = [np.zeros(end, np.int64) for end in ends]

    def take(self, records: list[Message]) -> None:
        """Raises IndexError for an output of a record that does not exist."""
        sources = np.array([source_of(record) for record in records]).reshape(-1, 2)
        for partition in np.unique(sources[:, 0]):
            np.add.at(self._counts[partition], sources[sources[:, 0] == partition, 1], 1)

    @property
    def missing(self) -> int:
        """Offsets without an output."""
        return sum(int((counts == 0).sum()) for counts in self._counts)

    @property
    def surplus(self) -> int:
        """Outputs beyond the first of their offset."""
        return sum(int((counts - (counts > 0)).sum()) for counts in self._counts)


class Digest:
    """A hash of outputs that does not depend on the order in which they are read: source, key, value and headers."""

    def __init__(self) -> None:
        self.records = 0
        self._sum = 0

    def take(self, records: list[Message]) -> None:
        for record in records:
            # The headers name the source; two outputs of one record differ in nothing, but the sum counts both.
            content = repr((record.key(), record.value(), record.headers())).encode()
            self._sum += int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "little")
        self.records += len(records)

    @property
    def value(self) -> str:
        return f"{self._sum % 2**128:032x}"


def source_of(record: Message) -> tuple[int, int]:
    """(partition, offset) of the input record that an output was made from."""
    headers: dict[str, Any] = dict(record.headers() or ())
    return int(headers["source-partition"]), int(headers["source-offset"])


def ends(bootstrap: str, topic: str) -> list[int]:
    """How many records have gone into each partition of a topic that is not written in transactions."""
    consumer = reader(bootstrap)
    try:
        return [consumer.get_watermark_offsets(each, timeout=CALL_S)[1] for each in partitions(consumer, topic)]
    finally:
        consumer.close()


def reader(bootstrap: str, **properties: Any) -> Consumer:
    """A consumer of committed records that waits for no company and commits nothing."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",  # required by the client; it is never joined
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "log_level": 0,  # a broker that is away is the business of who sent it away
            **properties,
        }
    )


def partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """The partitions of a topic in order."""
    found = consumer.list_topics(topic, timeout=CALL_S).topics[topic].partitions
    return [TopicPartition(topic, partition) for partition in sorted(found)]


def sound(record: Message) -> Message:
    """The record itself. Raises KafkaException where it is an error."""
    if error := record.error():
        raise KafkaException(error)
    return record
