"""Rows of a file as events on the input topic, by an idempotent producer."""

from __future__ import annotations

import time

from worker.adapters.kafka import KafkaAdmin, KafkaPublisher, KafkaTopic
from worker.base.errors import ConfigError
from worker.base.log import Log
from worker.base.terms import some
from worker.cli.dataset import Rows, key_of, message
from worker.cli.terminal import Advance
from worker.config import Config, repartition

_log = Log(__name__)


def produce(
    rows: Rows,
    config: Config,
    config_path: str,
    *,
    rate: float | None = None,
    advance: Advance = lambda share, rows: None,
) -> int:
    """Publish every row, `rate` a second if given, else as fast as they are taken; returns how many were delivered.

    Raises ConfigError for a missing topic and for a row that cannot be read, and then has published the rows before;
    WorkerError where some could not be delivered.
    """
    topic = config.input.topic
    admin = KafkaAdmin(config)
    if admin.missing([topic]):
        raise ConfigError(f"there is no topic {topic}. `amf-worker check {config_path} --create-topics` makes it")
    publisher = KafkaPublisher(config, topic, admin.max_message_bytes([topic]))
    kept_since_ms, key_field = _kept_since_ms(config), repartition.key_field(config)
    started = time.monotonic()
    try:
        for row in rows:
            if kept_since_ms is not None and 0 <= row.time_ms < kept_since_ms:
                _log.warning(
                    "events-expire",
                    f"row {row.number} is older than topic {topic} keeps events (retention.ms): Kafka deletes such "
                    "ones within minutes, be they read or not, and their predictions, which have their times, too",
                    hint="Raise retention.ms of both topics before, or leave --time out",
                )
                kept_since_ms = None
            if rate is not None:
                publisher.wait(started + row.number / rate - time.monotonic())
            publisher.send(key_of(row), message(row, config.input.codec, key_field), row.time_ms)
            advance(rows.fraction, row.number + 1)
    except (ConfigError, KeyboardInterrupt):
        publisher.finish()
        if n := publisher.delivered:
            _log.warning("partly-published", f"published before that: {some(n, 'row')}")
        raise
    publisher.finish()
    return publisher.delivered


def _kept_since_ms(config: Config) -> int | None:
    """What is older than this the broker deletes from the input topic; None where it deletes nothing by age."""
    topic = KafkaTopic(config, config.input.topic)
    kept_ms = -1 if topic.is_mock else int(topic.settings().get("retention.ms", -1))
    return None if kept_ms < 0 else time.time_ns() // 1_000_000 - kept_ms
