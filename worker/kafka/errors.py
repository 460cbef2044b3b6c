"""What an error of librdkafka means, and clients that report theirs. It decides nothing else: what follows is the
runtime's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from worker.errors import Abort, ConfigError, Transient, Unknown, WorkerError

_log = logging.getLogger(__name__)

CALL_S = 10.0
"""Longest wait for one answer of the broker."""


def decision(error: KafkaError) -> type[WorkerError]:
    """What a failed call of the transactional producer means for the open transaction.

    A timeout comes first: librdkafka calls it retriable, but the request may be on its way and, without KIP-890, may
    hit the next transaction; only a new producer epoch rules that out. A fatal error kills the instance and says
    nothing of the transaction, so its outcome is as unknown; so is that of any error not foreseen here.
    """
    if error.code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT) or error.fatal():
        return Unknown
    if error.txn_requires_abort():
        return Abort
    if error.retriable():
        return Transient
    return Unknown


def error_of(exception: KafkaException) -> KafkaError:
    error: KafkaError = exception.args[0]
    return error


def client(kind: Any, properties: Mapping[str, str]) -> Any:
    """A client of librdkafka. Raises ConfigError for a property that it does not take, without naming values."""
    try:
        return kind(dict(properties), logger=_log)
    except KafkaException as exception:
        raise ConfigError(f"kafka: librdkafka refuses the properties: {error_of(exception).str()}") from exception
