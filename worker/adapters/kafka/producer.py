"""The producer of outputs, with or without transactions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from worker.adapters.kafka.consumer import positions
from worker.adapters.kafka.errors import CALL_S, Admission, client, decision, error_of, failure, refused, unanswered
from worker.adapters.kafka.offsets import needs_of_reader
from worker.base.aside import Aside
from worker.base.errors import Abort, Refused, Transient, Unanswered, Unknown, WorkerError
from worker.base.failpoints import failpoint
from worker.base.records import CommittedOffset, Membership, Outgoing
from worker.config import Config

SEND_OFFSETS_S = 5.0
"""Longest wait for the group to take the offsets of a transaction: milliseconds, unless the client is stuck."""

DROP_S, DROP_EVERY_S = 5.0, 0.05
"""How long a producer is given to drop its records: milliseconds, unless a thread of it is stuck."""

ROOM_EVERY_S = 0.1
"""How often it is looked whether the queue has room."""

_ANY = -1
"""Of the partitions of an output: the one of its key."""


def transactional_id(config: Config) -> str:
    """Stable over restarts where the worker has a name, so that a restart settles what the dead one left open.

    The colon is in no group's and no worker's name: two with one id would fence each other for ever.
    """
    instance = config.kafka.get("group.instance.id") or secrets.token_hex(8)
    return f"{config.kafka['group.id']}:{instance}"


def _allowed(config: Config, transactional_id: str | None) -> str:
    """What an ACL has to name: who has no name of its own is another one at each start."""
    if transactional_id is None or config.kafka.get("group.instance.id"):
        return str(transactional_id)
    return f"{transactional_id.partition(':')[0]}: (a prefix: without kafka.group.instance.id each start has another)"


class KafkaOutput:
    """A producer: transactional where the delivery is exactly-once, else idempotent. See `Output`."""

    def __init__(self, config: Config, transactional_id: str | None, max_message_bytes: int | None = None) -> None:
        self._topic = config.input.topic
        self._transactional = transactional_id is not None
        self._failed: KafkaError | None = None
        self._is_closed = False
        self._needs = (
            *needs_of_reader(config),
            f"WRITE on topic {config.output.topic}",
            f"WRITE on topic {config.dead_letter.topic}",
            f"WRITE on transactional.id {_allowed(config, transactional_id)}",
            "IDEMPOTENT_WRITE on cluster",
        )
        self._admission = Admission()
        self._producer: Producer = client(
            Producer, config.producer_properties(transactional_id, max_message_bytes), self._admission
        )
        if self._transactional:
            self._init()

    def publish(self, outgoing: Sequence[Outgoing], offsets: Mapping[int, CommittedOffset], member: Membership) -> None:
        try:
            self._publish(outgoing, offsets, member)
        except (Abort, Refused, Transient, Unknown):
            raise
        except WorkerError:
            # The worker ends: nobody comes back for the transaction, and readers would wait until it times out.
            with suppress(WorkerError):
                self.abort()
            raise

    def _publish(
        self, outgoing: Sequence[Outgoing], offsets: Mapping[int, CommittedOffset], member: Membership
    ) -> None:
        if self._transactional:
            if member.metadata is None:
                raise Abort("the consumer is no member of the group at the moment")
            self._call("begin_transaction")
            sending = self._begin_to_send_offsets(positions(self._topic, offsets), member.metadata)
            try:
                self._send(outgoing)
            finally:
                # No other call of the transaction is allowed meanwhile; and where this one failed, records are refused.
                self._await_sent(sending)
            failpoint("offsets-sent")
            self._call("commit_transaction", CALL_S)
            failpoint("committed")
        else:
            self._failed = None
            self._send(outgoing)
            left = self._serve("flush", CALL_S)
            if left or self._failed:
                self._producer.purge()
                if self._failed is not None:
                    kind = Refused if refused(self._failed) and not left else Unknown
                    raise failure(self._failed, kind, "produce", *self._needs)
                raise Unknown(f"produce: {left} records not acknowledged in {CALL_S:g} s")

    def abort(self) -> None:
        if self._transactional:
            try:
                self._call("abort_transaction", CALL_S)
            except (Abort, Refused, Transient) as error:
                raise Unknown(str(error)) from error

    def close(self) -> None:
        """Drop what was not sent, and end the client, be there others that refer to this instance.

        A thread of the client that asks for an address holds that up. It ends when no record is left: librdkafka 2.16
        frees what it keeps of a transaction's error when it begins to end, and once more where a broker then answers
        that the producer was fenced.
        """
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + DROP_S
        left = True
        while left and time.monotonic() < deadline:
            with suppress(KafkaException):  # a producer that was fenced says so once more
                self._producer.purge()
                self._producer.flush(DROP_EVERY_S)
            left = len(self._producer) > 0
        del self._producer

    def _send(self, outgoing: Sequence[Outgoing]) -> None:
        produce: Any = self._producer.produce
        # In a transaction a failed delivery fails the commit; only without one have reports to be looked at.
        report = None if self._transactional else self._on_delivery
        for record in outgoing:
            failpoint("producing")
            while True:
                try:
                    # A zero would be the time of day, another one each time that the record is sent.
                    timestamp = record.timestamp_ms or 1
                    # By place: to give them by their names makes the call take half as long again. The report has two
                    # places, `callback` and `on_delivery`; where the first is given, be it None, the other is not read.
                    produce(record.topic, record.value, record.key, _ANY, report, None, timestamp, record.headers)
                    break
                except BufferError:
                    self._await_room()
                except KafkaException as exception:
                    error = error_of(exception)
                    raise failure(error, decision(error), "produce", f"WRITE on topic {record.topic}") from exception
        self._serve("poll", 0.0)

    def _await_room(self) -> None:
        """Wait until a record has left the queue, whatever else the client says meanwhile. Raises Unknown."""
        n, deadline = len(self._producer), time.monotonic() + CALL_S
        while len(self._producer) >= n:
            if time.monotonic() >= deadline:
                raise Unknown(f"produce: the queue did not move in {CALL_S:g} s")
            self._serve("poll", ROOM_EVERY_S)

    def _serve(self, method: str, timeout_s: float) -> int:
        """`poll` or `flush`; an instance that is fatally ill says so in either of them. Raises Unknown."""
        try:
            served: int = getattr(self._producer, method)(timeout_s)
        except KafkaException as exception:
            raise failure(exception, Unknown, "produce", *self._needs) from exception
        return served

    def _on_delivery(self, error: KafkaError | None, _: Any) -> None:
        # Beside a refusal the other records of its batch fail too, for no reason of their own.
        if error is not None and (self._failed is None or not refused(self._failed)):
            self._failed = error

    def _begin_to_send_offsets(self, offsets: list[TopicPartition], metadata: Any) -> Aside[None]:
        """Offsets into the transaction, while its records are handed over: the coordinator takes as long as those."""
        arguments = offsets, metadata, SEND_OFFSETS_S
        return Aside("send-offsets", lambda: self._call("send_offsets_to_transaction", *arguments))

    def _await_sent(self, sending: Aside[None]) -> None:
        """Raises what the call has raised, or Unknown where it does not return in time.

        Once librdkafka has lost a connection to the group's coordinator, it may wait for ever, whatever timeout it is
        given (its issues 5456, 5511). Then the thread that waits is left behind with its producer; should it go on one
        day, the epoch of the next producer has fenced it.
        """
        if not sending.ends_within(SEND_OFFSETS_S):
            raise Unknown(f"send_offsets_to_transaction did not return in {SEND_OFFSETS_S:g} s")
        sending.answer()

    def _init(self) -> None:
        try:
            self._call("init_transactions", CALL_S)
        except Unknown as unknown:
            self._serve("poll", 0.0)  # the connections report here, and nowhere else
            self._admission.require("init_transactions")
            if isinstance(unknown.__cause__, KafkaException) and unanswered(error_of(unknown.__cause__)):
                trouble = self._admission.trouble
                raise Unanswered(str(unknown) + (f" ({trouble.str()})" if trouble else "")) from unknown
            raise

    def _call(self, method: str, *arguments: Any) -> None:
        """One call of the transactional API; retriable errors are tried again a few times."""
        for attempt in range(3):
            try:
                getattr(self._producer, method)(*arguments)
                return
            except KafkaException as exception:
                error = self._cause(error_of(exception))
                kind = decision(error)
                if kind is Transient and attempt < 2:
                    continue
                if kind is Transient:
                    kind = Unknown
                raise failure(error, kind, method, *self._needs) from exception

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why a transaction has failed, where a call merely came too late: its commit is refused with the reason."""
        if error.code() == KafkaError._STATE and error.txn_requires_abort():
            try:
                self._producer.commit_transaction(CALL_S)
            except KafkaException as exception:
                return error_of(exception)
        return error
