"""Records from outside of Kafka into a topic."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from worker.adapters.kafka.errors import client, error_of, explained
from worker.base.errors import Fatal, WorkerError
from worker.config import Config

STALL_S = 30.0
"""Longest wait for the next acknowledgement while a publisher has records to deliver."""
POLL_EVERY_RECORDS = 256
_LOOK_EVERY_S = 0.02
"""Between two looks for acknowledgements, where nothing else is to do."""


class KafkaPublisher:
    """An idempotent producer of records from outside of Kafka. An instance that raised must not be used again."""

    def __init__(self, config: Config, topic: str, max_message_bytes: int | None = None) -> None:
        self.delivered = 0
        """Records that the broker has acknowledged."""
        self._topic = topic
        self._sent = 0
        self._failed: KafkaError | None = None
        self._producer: Producer = client(Producer, config.producer_properties(most_bytes=max_message_bytes))

    def send(self, key: bytes | None, value: bytes | None, time_ms: int = -1) -> None:
        """Queue a record, a tombstone where there is no value; waits while the queue is full. Raises WorkerError.

        `time_ms` is the record's timestamp in ms since the epoch; the time of sending where it is not above 0.
        """
        self._sent += 1
        timestamp = max(time_ms, 0)  # 0 is librdkafka's word for now
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._on_delivery, timestamp=timestamp)
                break
            except BufferError:
                self._await_delivery()
            except KafkaException as exception:
                raise self._undelivered(self._explained(error_of(exception))) from exception
        if self._sent % POLL_EVERY_RECORDS == 0:
            self.wait(0)

    def wait(self, seconds: float) -> None:
        """Take note of deliveries for so long. Raises WorkerError."""
        until = time.monotonic() + seconds
        while True:
            try:
                # The client does not wait here itself: a Ctrl-C during its own wait comes out of it as a SystemError.
                self._producer.poll(0)
            except KafkaException as exception:  # an instance that is fatally ill says so here
                raise self._undelivered(self._explained(error_of(exception))) from exception
            if self._failed is not None:
                raise self._undelivered(self._explained(self._failed))
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, _LOOK_EVERY_S))

    def finish(self) -> None:
        """Wait until every record is delivered. Raises WorkerError."""
        while self.delivered < self._sent:
            self._await_delivery()

    def _await_delivery(self) -> None:
        before, deadline = self.delivered, time.monotonic() + STALL_S
        while self.delivered == before:
            if time.monotonic() >= deadline:
                raise self._undelivered(f"the broker took nothing for {STALL_S:g} s")
            self.wait(0.05)

    def _explained(self, error: KafkaError) -> str:
        return explained(error, "produce", f"WRITE on topic {self._topic}")

    def _undelivered(self, reason: str) -> WorkerError:
        with suppress(KafkaException):  # one that is fatally ill says so once more
            self._producer.purge()
            self._producer.flush(0)
        return Fatal(
            f"{self._sent - self.delivered} of {self._sent} records for {self._topic} were not delivered: {reason}"
        )

    def _on_delivery(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.delivered += 1
        elif self._failed is None:
            self._failed = error
