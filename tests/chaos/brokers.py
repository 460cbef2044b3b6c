"""The Kafka of a run: one node, or several that hold every partition, and a proxy before each.

A node has two listeners. The harness talks to it directly; the address that it gives to whom it meets at the other one
is its proxy's, so that no byte of the workers goes another way.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import ClassVar, Self

from confluent_kafka import KafkaException

from tests.chaos.proxy import Proxy, Rule
from tests.kafka.broker import Broker
from tests.kafka.servers import JavaServer, Server, cluster_id, free_ports

IN_SYNC_WITHIN_S = 120.0
ANSWER_WITHIN_S = 5.0
POLL_S = 0.2


class Node(JavaServer):
    """One node. It is at `bootstrap` for us, and at its proxy's port for whom it meets at `inner_port`."""

    heap: ClassVar[str] = "-Xmx256m"

    def __init__(self, number: int, controllers: Sequence[int], cluster: str, session_s: float) -> None:
        direct, self.inner_port, self.proxy_port = free_ports(3)
        self.number, self._cluster = number, cluster
        controller, copies = controllers[number - 1], str(len(controllers))
        in_sync = str(len(controllers) // 2 + 1)
        super().__init__(
            {
                "node.id": str(number),
                "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1)),
                "listeners": f"PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{self.inner_port},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{direct},PROXIED://127.0.0.1:{self.proxy_port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "default.replication.factor": copies,
                "min.insync.replicas": in_sync,
                # One partition each: its leader coordinates every group, or every transaction.
                "offsets.topic.num.partitions": "1",
                "offsets.topic.replication.factor": copies,
                "transaction.state.log.num.partitions": "1",
                "transaction.state.log.replication.factor": copies,
                "transaction.state.log.min.isr": in_sync,
                # A node that went away is missed after this time, not after 30 s.
                "replica.lag.time.max.ms": "5000",
                "group.consumer.session.timeout.ms": f"{session_s * 1000:.0f}",
                "group.consumer.min.session.timeout.ms": "1000",
                "group.consumer.heartbeat.interval.ms": "500",
                "group.consumer.min.heartbeat.interval.ms": "500",
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            }
        )
        self.bootstrap = f"127.0.0.1:{direct}"

    def _format(self) -> None:
        super()._format()
        # The tool was given an id that no other node has; ours are one cluster.
        meta = self._home / "data" / "meta.properties"
        meta.write_text(re.sub(r"cluster\.id=.*", f"cluster.id={self._cluster}", meta.read_text()))


class Nodes:
    """Nodes of one cluster as one server: they start, stop and die together."""

    def __init__(self, count: int, session_s: float) -> None:
        controllers, cluster = free_ports(count), cluster_id()
        self.each = [Node(n, controllers, cluster, session_s) for n in range(1, count + 1)]
        self.bootstrap = ",".join(node.bootstrap for node in self.each)

    def start(self) -> None:
        for node in self.each:
            node.start()

    def stop(self) -> None:
        """In order, which is only possible while a majority of the others is there to hear of it."""
        for node in self.each:
            node.stop()

    def kill(self) -> None:
        for node in self.each:
            node.kill()

    def close(self) -> None:
        for node in self.each:
            node.close()

    def is_running(self) -> bool:
        return all(node.is_running() for node in self.each)

    def log(self) -> str:
        return "\n".join(node.log() for node in self.each)


class Network:
    """The proxies before all nodes as one: what is done to it is done to each of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._proxies = [Proxy(lambda node=node: node.inner_port, kafka=True, port=node.proxy_port) for node in nodes]
        self.bootstrap = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for proxy in self._proxies:
            self._open.enter_context(proxy)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @contextlib.contextmanager
    def rule(self, rule: Rule) -> Iterator[Rule]:
        """Put a rule in force, as `Proxy.rule`; it counts what it catches at any of the nodes."""
        with contextlib.ExitStack() as rules:
            for proxy in self._proxies:
                rules.enter_context(proxy.rule(rule))
            yield rule

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """No node can be reached."""
        with contextlib.ExitStack() as outages:
            for proxy in self._proxies:
                outages.enter_context(proxy.outage())
            yield

    def cut(self, client: str | None = None) -> int:
        """Close the connections of a client, or all; returns how many there were."""
        return sum(proxy.cut(client) for proxy in self._proxies)


class ProxiedBroker(Broker):
    """A cluster of our own, from Kafka's jars, whose workers come through `network`. Raises Unavailable without Java.

    With three nodes every partition has three copies, and a write counts once two of them have it.
    """

    def __init__(self, nodes: int, session_s: float) -> None:
        super().__init__(own=True)
        self._nodes = Nodes(nodes, session_s)
        self.network = Network(self._nodes.each)
        self._open_network = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            super().__enter__()
            opened.callback(self._nodes.close)
            self.await_in_sync()
            opened.enter_context(self.network)
            self._open_network = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open_network.close()

    def leader(self, topic: str, partition: int) -> Node:
        """The node that leads a partition, be it one of an internal topic."""
        admin = self.admin()
        found = admin.list_topics(topic, timeout=IN_SYNC_WITHIN_S).topics[topic]
        return self._nodes.each[found.partitions[partition].leader - 1]

    def await_in_sync(self) -> None:
        """Wait until every node is there and every copy of a partition is up to date. Raises TimeoutError."""
        admin, deadline, count = self.admin(), time.monotonic() + IN_SYNC_WITHIN_S, len(self._nodes.each)
        state = "no node answers"
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):  # a node that has just come back may not answer yet
                found = admin.list_topics(timeout=ANSWER_WITHIN_S)
                partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
                behind = sum(each.leader < 0 or len(each.isrs) < len(each.replicas) for each in partitions)
                if len(found.brokers) == count and not behind:
                    return
                state = f"{len(found.brokers)} of {count} nodes, {behind} partitions with a copy missing"
            time.sleep(POLL_S)
        raise TimeoutError(f"after {IN_SYNC_WITHIN_S:g} s: {state}")

    def restart(self) -> None:
        super().restart()
        self.await_in_sync()

    def _open(self) -> Server:
        self._nodes.start()
        return self._nodes
