"""A broker with a disk that fails: its log of `events` forgets its end, or a bit of it turns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from tests.availability import Unavailable, give_up
from tests.kafka.broker import Broker
from tests.kafka.servers import JavaServer, Server

WITHIN_S = 60.0


@contextmanager
def forgetful_broker(partitions: int = 1) -> Iterator[ForgetfulBroker]:
    """One with a topic of so many partitions and those that a worker writes; the test is given up without jars."""
    try:
        with ForgetfulBroker(own=True) as broker:
            broker.create_topic("events", partitions)
            for topic in ("predictions", "dead"):
                broker.create_topic(topic)
            yield broker
    except Unavailable as reason:
        give_up(f"no jars of Kafka to test with: {reason}")


class ForgetfulBroker(Broker):
    """A broker whose log of `events` can be put back to an earlier state, and be damaged."""

    def _open(self) -> Server:
        self._java = JavaServer(self._properties)
        self._java.start()
        return self._java

    @property
    def folder(self) -> Path:
        return self._java._home / "data" / "events-0"

    def remember(self, where: Path) -> None:
        self.stop()
        shutil.copytree(self.folder, where)
        self.restart()

    def forget(self, where: Path) -> None:
        """Lose what came to the log since it was remembered."""
        self.stop()
        shutil.rmtree(self.folder)
        shutil.copytree(where, self.folder)
        self.restart()

    def feed(self, n: int) -> None:
        """Events with labels."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for i in range(n):
            producer.produce("events", b'{"features": [1.0], "label": "%d"}' % (i % 2), b"key")
        assert producer.flush(WITHIN_S) == 0

    def damage(self, text: bytes) -> None:
        """Change one bit of a record with this text, as a disk may: the leader serves the log as it is."""
        [log] = self.folder.glob("*.log")
        data = log.read_bytes()
        at = data.index(text)
        with log.open("r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 1]))
