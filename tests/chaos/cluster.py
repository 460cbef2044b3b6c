"""What the workers under test live in: Kafka and a store, each behind a proxy, and topics."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import amf
from tests.chaos.brokers import Network, ProxiedBroker
from tests.chaos.proxy import Proxy
from tests.kafka.broker import MOVING
from tests.worker.support.stores import S3Stub, s3_stub
from worker.adapters.kafka import KafkaAdmin
from worker.config import Config, loads

TRANSACTION_S = 10.0
"""After this long the broker aborts a transaction that is not ended."""

MAX_POLL_S = 20.0
"""A worker that does not come back for records for so long leaves the group; never less than a session."""

IN_USE = {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID}
"""What a group that has members answers to those who are none of them."""

EVENTS, PREDICTIONS, DEAD = "events", "predictions", "dead-letters"

CONFIG = """
input: {{topic: events, tombstones: reset, max_bytes: 10KB, on_rewind: {on_rewind}}}
output: {{topic: predictions}}
dead_letter: {{topic: dead-letters, max_consecutive: 1000000}}
kafka:
  bootstrap.servers: "{bootstrap}"
  group.id: {group}
  client.id: {worker}
  {membership}
  transaction.timeout.ms: {transaction_ms}
  max.poll.interval.ms: {max_poll_ms}
  reconnect.backoff.max.ms: 1000
models:
  default: {{n_estimators: 3, max_bytes: {model_bytes}}}
  overrides:
    - {{match: "adaptive-*", algorithm: adaptive-classifier}}
    - {{match: "numbers-*", algorithm: amf-regressor}}
  cache_bytes: 4MB  # so little that models leave memory, and come back
checkpoint: {{url: "{url}", interval: 1s}}
metrics: {{listen: "127.0.0.1:0"}}
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What a run can choose."""

    nodes: int = 1
    """Of Kafka; three survive the loss of one."""
    partitions: int = 4
    protocol: Literal["classic", "consumer"] = "classic"
    identities: Literal["static", "dynamic", "mixed"] = "static"
    """Whether workers have a group.instance.id, and so the transactional id of the one before; or every other one."""
    store: Literal["s3", "file"] = "s3"
    session_s: float = 6.0
    """After this much silence a worker has left the group."""
    model_bytes: str = "1MB"
    on_rewind: Literal["fail", "accept"] = "fail"
    group: str = "chaos"
    input_is_copied: bool = True
    """Whether every node holds the input; or each partition of it lies on one node, and has no leader without that."""

    def is_static(self, worker: str) -> bool:
        """Whether a worker of this name, which ends in a number, keeps its identity over restarts."""
        return self.identities == "static" or (self.identities == "mixed" and int(worker[-1]) % 2 == 0)

    def config_text(self, worker: str, bootstrap: str, url: str) -> str:
        """The configuration of a worker."""
        membership = [f"group.protocol: {self.protocol}"]
        if self.protocol == "classic":
            membership.append(f"session.timeout.ms: {self.session_s * 1000:.0f}")
        if self.is_static(worker):
            membership.append(f"group.instance.id: {worker}")
        return CONFIG.format(
            bootstrap=bootstrap,
            group=self.group,
            worker=worker,
            membership="\n  ".join(membership),
            transaction_ms=int(TRANSACTION_S * 1000),
            max_poll_ms=int(max(MAX_POLL_S, self.session_s) * 1000),
            model_bytes=self.model_bytes,
            on_rewind=self.on_rewind,
            url=url,
        )


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
        self.engines = {amf.ENGINE}
        """Every version of the learner that a worker of this run had."""
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self.broker = opened.enter_context(ProxiedBroker(self.setup.nodes, self.setup.session_s))
            self.s3: S3Stub = opened.enter_context(s3_stub())
            self._objects = self.s3.objects = Objects()
            self.storage = opened.enter_context(Proxy(lambda: self.s3.server_port, kafka=False))
            admin = KafkaAdmin(self.config())
            if self.setup.input_is_copied:
                admin.create([EVENTS], self.setup.partitions)
            else:
                self.broker.create_topic(EVENTS, self.setup.partitions)
            admin.create([PREDICTIONS], self.setup.partitions)
            admin.create([DEAD], 1)
            self.broker.await_in_sync()
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def bootstrap(self) -> str:
        """Kafka for the harness itself, past the proxies."""
        return self.broker.bootstrap

    @property
    def network(self) -> Network:
        """Between the workers and Kafka."""
        return self.broker.network

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a worker process: the way to the store."""
        return {**self.s3.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.storage.port}"}

    def config_path(self, worker: str) -> Path:
        """The file that a worker of this name reads."""
        path = self.folder / f"{worker}.yaml"
        path.write_text(self._config_text(worker))
        return path

    def config(self, worker: str = "oracle-0") -> Config:
        """What a worker of this name reads from the configuration."""
        return loads(self._config_text(worker), {})

    def manifests(self) -> dict[str, bytes]:
        """Every manifest under checkpoint.url by its name; of the S3 store also those that were collected since."""
        if self.setup.store == "file":
            found = self._files.rglob("*.manifest")
            return {path.relative_to(self._files).as_posix(): path.read_bytes() for path in found}
        with self.s3.lock:
            return {name.removeprefix("checkpoints/"): data for name, data in self._objects.manifests.items()}

    @property
    def _files(self) -> Path:
        return self.folder.absolute() / "store"

    def _config_text(self, worker: str) -> str:
        url = "s3://bucket/checkpoints" if self.setup.store == "s3" else f"file://{self._files}"
        return self.setup.config_text(worker, self.network.bootstrap, url)

    def forget_group(self) -> None:
        """Delete the group with its offsets, once its last member is gone."""
        group = self.setup.group
        self._without_members(lambda admin: admin.delete_consumer_groups([group])[group])

    def move_group(self, offsets: Mapping[int, int]) -> None:
        """Commit other offsets for the group, once its last member is gone."""
        positions = [TopicPartition(EVENTS, number, offset) for number, offset in offsets.items()]
        moved = ConsumerGroupTopicPartitions(self.setup.group, positions)
        self._without_members(lambda admin: admin.alter_consumer_group_offsets([moved])[self.setup.group])

    def _without_members(self, change: Callable[[AdminClient], Future[ConsumerGroupTopicPartitions | None]]) -> None:
        """Change something about the group. A static member that has stopped is in it until its session ends."""
        admin, deadline = self.broker.admin(), time.monotonic() + 10 * self.setup.session_s
        while True:
            try:
                done = change(admin).result()
                for each in [] if done is None else done.topic_partitions:
                    if each.error is not None:
                        raise KafkaException(each.error)
                return
            except KafkaException as exception:
                if exception.args[0].code() not in IN_USE | MOVING or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def ends(self, topic: str, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> dict[int, int]:
        """Offset after the last record of each partition; read_committed: of the first open transaction, if any."""
        partitions = 1 if topic == DEAD else self.setup.partitions
        asked = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(partitions)}
        admin = self.broker.admin()  # its answers come only while there is a reference to it
        admin.list_topics(topic, timeout=30)  # so that it knows the leaders: see `led`
        found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=30)
        return {each.partition: future.result().offset for each, future in found.items()}
