"""What an error of librdkafka means, and clients that report theirs. It decides nothing else: what follows is the
runtime's."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from worker.base.errors import Abort, ConfigError, Fatal, Refused, Transient, Unanswered, Unknown, WorkerError
from worker.base.log import LONGEST, LogEvent
from worker.config.text import MASK

_log = logging.getLogger(__name__)

CALL_S = 10.0
"""Longest wait for one answer of the broker."""
RECENT_S = 60.0
"""Connections that fail are tried again every 10 s at least; what was heard longer ago than a few of them is over."""

_VALUE = re.compile(r'(?<=Invalid value )".*"(?= for )|(?<=Unsupported SASL mechanism: ).*', re.DOTALL)
"""Where librdkafka repeats the value of a property. A secret may have been given to the wrong one."""
_INCIDENTAL = re.compile(r"\[rdkafka#[^]]*\]|after \d+ms|, \d+ identical error\(s\) suppressed")

_RESOURCES = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional.id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
"""What the broker does not allow to be used, by the code that says so."""

_REFUSALS = {
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    KafkaError._INVALID_DIFFERENT_RECORD,
}
"""What is said of a record, or of one in the same batch, that will be refused however often it is sent."""

_UNANSWERED = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
}
"""What is said where no broker answers, or not the one that could."""

_ADMISSION = {
    KafkaError._AUTHENTICATION: "check kafka.sasl.mechanism and the user's name and secret beside it",
    KafkaError._SSL: "check kafka.ssl.ca.location and the certificates, and whether the port expects TLS",
}
"""What to do where a connection is not let in."""


def decision(error: KafkaError) -> type[WorkerError]:
    """What a failed call of the transactional producer means for the open transaction.

    A timeout comes first: librdkafka calls it retriable, but the request may be on its way and, without KIP-890, may
    hit the next transaction; only a new producer epoch rules that out. A fatal error kills the instance and says
    nothing of the transaction, so its outcome is as unknown; so is that of any error not foreseen here. Before all that
    comes what the broker does not allow: no retry and no new producer helps, so the worker ends (Fatal). A record
    that is refused is refused again: the transaction that it is in must not be sent as it is.
    """
    if forbidden(error):
        return Fatal
    if refused(error) and not error.fatal():
        return Refused
    if error.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT) or error.fatal():
        return Unknown
    if error.txn_requires_abort():
        return Abort
    if error.retriable():
        return Transient
    return Unknown


def error_of(exception: KafkaException | KafkaError) -> KafkaError:
    """The client lists now the one, now the other."""
    error: KafkaError = exception if isinstance(exception, KafkaError) else exception.args[0]
    return error


def forbidden(error: KafkaError) -> bool:
    """Whether the broker knows who asks and does not allow it."""
    return error.code() in _RESOURCES


def refused(error: KafkaError) -> bool:
    """Whether the broker, or the client before it, will not take a record for what it is."""
    return error.code() in _REFUSALS


def unanswered(error: KafkaError) -> bool:
    """Whether nobody answered who could have, which may be so for as long as brokers are away."""
    return error.code() in _UNANSWERED and not error.fatal()


def shut_out(error: KafkaError) -> bool:
    """Whether a connection failed of who asks, and how; a broker that goes down may look so for a moment with TLS."""
    return error.code() in _ADMISSION


def explained(error: KafkaError, what: str, *needs: str) -> str:
    """What failed and why; where nobody is let in or allowed to, also what to do.

    `needs` say what the broker must allow, such as "READ on topic events"; those of the resource in question are told.
    """
    resource = _RESOURCES.get(error.code())
    if resource is not None:
        found = [need for need in needs if f" on {resource}" in need] or [f"this use of the {resource}"]
        advice = f"the worker's user needs ACLs that allow {', '.join(found)}"
    else:
        advice = _ADMISSION.get(error.code(), "")
    return f"{what}: {error.str()}" + (f"; {advice}" if advice else "")


def failure(fault: KafkaException | KafkaError, otherwise: type[WorkerError], what: str, *needs: str) -> WorkerError:
    """The exception for a failed call: Fatal where it is forbidden, else `otherwise`.

    Unanswered comes in place of Transient and of Fatal where nobody answered: both say nothing of a transaction.
    """
    error, kind = error_of(fault), otherwise
    if forbidden(error):
        kind = Fatal
    elif unanswered(error) and otherwise in (Transient, Fatal):
        kind = Unanswered
    return kind(explained(error, what, *needs))


class Admission:
    """Hears what becomes of a client's connections. While they are not let in, its calls only time out."""

    def __init__(self) -> None:
        self.trouble: KafkaError | None = None
        """What the last connection that failed has failed of."""
        self._heard_s = -math.inf

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # it follows the reason
            self.trouble, self._heard_s = error, time.monotonic()

    def recent(self) -> str | None:
        """That trouble in words, if it is no older than what one that lasts would have been heard again in."""
        is_recent = time.monotonic() - self._heard_s < RECENT_S
        return explained(self.trouble, "the last connection failed") if is_recent and self.trouble is not None else None

    def require(self, what: str) -> None:
        """Raises WorkerError where the broker does not know us. Troubles with TLS may be a broker that goes down."""
        if self.trouble is not None and self.trouble.code() == KafkaError._AUTHENTICATION:
            raise Fatal(explained(self.trouble, what))


class _Said(logging.Filter):
    """Makes an event of what a client says of itself: it says the same ten times a second, in slightly other words."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Nothing is kept back: that is decided where lines are written.

        None is more than a warning: what comes of it the calls tell that fail, and whoever made them says it. A group
        that rebalances is an error to its client.
        """
        if record.levelno > logging.WARNING:
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        record.event = LogEvent("kafka-client", _INCIDENTAL.sub("", record.getMessage())[:LONGEST], None, None, {})
        return True


_log.addFilter(_Said())


class PropertyRefused(ConfigError):
    """A property that librdkafka does not take."""


_taken: set[tuple[str, str]] = set()
"""Properties with which clients were made in this process."""


def client(kind: Any, properties: Mapping[str, str], admission: Admission | None = None) -> Any:
    """A client of librdkafka. Raises PropertyRefused, without naming values.

    Raises Transient where others were taken with the same ones: that is no mistake of the configuration, but a file
    that is being replaced, or too many open ones.
    """
    listener = {} if admission is None else {"error_cb": admission}
    try:
        made = kind({**properties, **listener}, logger=_log)
    except KafkaException as exception:
        refused_for = _VALUE.sub(MASK, error_of(exception).str())
        if _taken.issuperset(properties.items()):
            raise Transient(f"kafka: no client can be made at the moment: {refused_for}") from exception
        raise PropertyRefused(f"kafka: librdkafka refuses the properties: {refused_for}") from exception
    _taken.update(properties.items())
    return made
