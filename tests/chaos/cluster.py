"""What the workers under test live in: a broker and a store, each behind a proxy, and topics.

The broker has two listeners. The harness talks to it directly; the address that it gives to the workers is the proxy's,
so that no byte of theirs goes another way.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.chaos.proxy import Proxy
from tests.kafka.broker import Broker
from tests.kafka.servers import JavaServer, free_ports
from tests.worker.stores import S3Stub, s3_stub
from worker.config import Config, loads

SESSION_S = 6.0
"""After this much silence a worker has left the group."""
TRANSACTION_S = 10.0
"""After this long the broker aborts a transaction that nobody ends."""

MAX_POLL_S = 20.0
"""A worker that does not come back for records for so long leaves the group."""

EVENTS, PREDICTIONS, DEAD = "events", "predictions", "dead-letters"

CONFIG = """
input: {{topic: events, tombstones: reset, max_bytes: 10KB}}
output: {{topic: predictions}}
dead_letter: {{topic: dead-letters, max_consecutive: 1000000}}
kafka:
  bootstrap.servers: "127.0.0.1:{port}"
  group.id: {group}
  client.id: "${{WORKER}}"
  {membership}
  transaction.timeout.ms: {transaction_ms}
  max.poll.interval.ms: {max_poll_ms}
  reconnect.backoff.max.ms: 1000
models: {{default: {{n_estimators: 3, max_bytes: 1MB}}}}
checkpoint: {{url: "s3://bucket/checkpoints", interval: {interval}}}
metrics: {{listen: "127.0.0.1:0"}}
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What a run can choose."""

    partitions: int = 4
    protocol: str = "classic"
    static: bool = True
    """Whether workers have a group.instance.id, and so the transactional id of the one before."""
    interval: str = "1s"
    group: str = "chaos"

    def config_text(self, port: int) -> str:
        membership = [f"group.protocol: {self.protocol}"]
        if self.protocol == "classic":
            membership.append(f"session.timeout.ms: {SESSION_S * 1000:.0f}")
        if self.static:
            membership.append('group.instance.id: "${WORKER}"')
        return CONFIG.format(
            port=port,
            group=self.group,
            membership="\n  ".join(membership),
            transaction_ms=int(TRANSACTION_S * 1000),
            max_poll_ms=int(MAX_POLL_S * 1000),
            interval=self.interval,
        )


class _TwoListeners(JavaServer):
    """A broker that is at `bootstrap` for us, and at `proxy_port` for whom it meets at `inner_port`."""

    def __init__(self, proxy_port: int) -> None:
        direct, self.inner_port, controller = free_ports(3)
        super().__init__(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{self.inner_port},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{proxy_port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "group.consumer.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
                "group.consumer.min.session.timeout.ms": "1000",
                "group.consumer.heartbeat.interval.ms": "500",
                "group.consumer.min.heartbeat.interval.ms": "500",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            }
        )
        self.bootstrap = f"127.0.0.1:{direct}"


class ProxiedBroker(Broker):
    """A broker of our own, from Kafka's jars, whose workers come through `proxy`. Raises Unavailable without Java."""

    def __init__(self) -> None:
        super().__init__(own=True)
        [port] = free_ports(1)
        self._two = _TwoListeners(port)
        self.proxy = Proxy(lambda: self._two.inner_port, kafka=True, port=port)

    def __enter__(self) -> Self:
        self._server = self._two
        try:
            self._server.start()
            self._await_ready()
            self.proxy.__enter__()
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.proxy.__exit__(kind, error, trace)
        self._server.close()


class Objects(dict[str, bytes]):
    """The objects of a store, and every manifest that was ever among them."""

    def __init__(self) -> None:
        super().__init__()
        self.manifests: dict[str, bytes] = {}

    def __setitem__(self, name: str, data: bytes) -> None:
        super().__setitem__(name, data)
        if name.endswith(".manifest"):
            self.manifests.setdefault(name, data)


class Cluster:
    """Broker, store and topics of one run; `folder` takes the configuration and the logs."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.folder, self.setup = folder, setup
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self.broker = opened.enter_context(ProxiedBroker())
            self.s3: S3Stub = opened.enter_context(s3_stub())
            self._objects = self.s3.objects = Objects()
            self.storage = opened.enter_context(Proxy(lambda: self.s3.server_port, kafka=False))
            for topic, partitions in ((EVENTS, self.setup.partitions), (PREDICTIONS, self.setup.partitions), (DEAD, 1)):
                self.broker.create_topic(topic, partitions)
            self.config_path = self.folder / "worker.yaml"
            self.config_path.write_text(self.setup.config_text(self.broker.proxy.port))
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def bootstrap(self) -> str:
        """The broker for the harness itself, past the proxy."""
        return self.broker.bootstrap

    @property
    def network(self) -> Proxy:
        """Between the workers and the broker."""
        return self.broker.proxy

    def environment(self, worker: str) -> dict[str, str]:
        """Variables of a worker process."""
        endpoint = f"http://127.0.0.1:{self.storage.port}"
        return {**self.s3.environment, "AWS_ENDPOINT_URL": endpoint, "WORKER": worker}

    def config(self, worker: str = "oracle") -> Config:
        """What a worker of this name reads from the configuration."""
        return loads(self.config_path.read_text(), {"WORKER": worker})

    def manifests(self) -> dict[str, bytes]:
        """Every manifest that was ever written under checkpoint.url, by its name, be it collected since or not."""
        with self.s3.lock:
            return {name.removeprefix("checkpoints/"): data for name, data in self._objects.manifests.items()}

    def ends(self, topic: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> dict[int, int]:
        """Offset after the last record of each partition; read_committed: of the first open transaction, if any."""
        partitions = 1 if topic == DEAD else self.setup.partitions
        asked = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(partitions)}
        admin = self.broker.admin()  # its answers come only as long as somebody holds it
        found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=30)
        return {each.partition: future.result().offset for each, future in found.items()}
