"""Where a broker comes from: the environment, a container, or a Java process of our own.

A server can be started, stopped and killed; whether it answers is for `Broker` to find out.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import functools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, ClassVar, Protocol

from confluent_kafka.admin import NewTopic

from tests.availability import Unavailable
from tests.kafka.jars import KAFKA_VERSION, find_java, java_version, kafka_libs
from worker.adapters.kafka.asker import AdminClient

HEAP = "-Xmx512m"
ARCHIVED_WITHIN_S = ENDED_WITHIN_S = 120.0


class Server(Protocol):
    """One broker node. After `stop` or `kill`, `start` brings it back with the same address and data.

    The constructor and the first `start` raise Unavailable where this machine cannot provide it.
    """

    bootstrap: str

    def start(self) -> None:
        """Launch it, without waiting until it answers."""

    def stop(self) -> None:
        """Shut it down in order (SIGTERM) and wait until it is gone."""

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""

    def close(self) -> None:
        """Remove it with its data."""

    def is_running(self) -> bool:
        """Whether it has not exited."""

    def log(self) -> str:
        """What it has written so far."""


class ExternalServer:
    """A broker that runs already. It is used as it is, and never stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        pass

    def stop(self) -> None:
        raise RuntimeError(f"the broker at {self.bootstrap} is not ours to stop")

    kill = stop

    def close(self) -> None:
        pass

    def is_running(self) -> bool:
        return True

    def log(self) -> str:
        return "(the log is not ours)"


def named_server(properties: Mapping[str, str]) -> ExternalServer:
    """The broker that KAFKA_BOOTSTRAP names."""
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    if not bootstrap:
        raise Unavailable("KAFKA_BOOTSTRAP is not set")
    return ExternalServer(bootstrap)


class ContainerServer:
    """Apache's image through testcontainers, on a fixed port of the host, so that a restart keeps the address."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        import docker
        from testcontainers.core.container import DockerContainer

        # A client without an engine is common: ask once, with a short timeout, before anything retries.
        try:
            with contextlib.closing(docker.from_env(timeout=3)) as engine:
                engine.ping()
        except docker.errors.DockerException:
            raise Unavailable("no Docker engine answers") from None
        [port] = free_ports(1)
        self._container = DockerContainer(f"apache/kafka:{KAFKA_VERSION}").with_bind_ports(port, port)
        self.bootstrap = f"{self._container.get_docker_client().host()}:{port}"
        for name, value in server_properties(f"0.0.0.0:{port}", self.bootstrap, "127.0.0.1:9093", properties).items():
            self._container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        self._container.with_env("KAFKA_HEAP_OPTS", HEAP)

    def start(self) -> None:
        import docker

        created = self._container.get_wrapped_container()
        if created is not None:
            created.start()
            return
        try:
            self._container.start()
        except docker.errors.DockerException as error:
            raise Unavailable(f"Docker could not start {self._container.image}: {error}") from None

    def stop(self) -> None:
        self._container.get_wrapped_container().stop(timeout=30)

    def kill(self) -> None:
        created = self._container.get_wrapped_container()
        created.kill()
        created.wait()

    def close(self) -> None:
        self._container.stop()

    def is_running(self) -> bool:
        created = self._container.get_wrapped_container()
        created.reload()
        return created.status == "running"

    def log(self) -> str:
        return self._container.get_wrapped_container().logs().decode(errors="replace")


class JavaServer:
    """Kafka's jars in a Java process of our own, its data in a temporary folder.

    classes: an option about Kafka's classes for the Java of the broker; without it they come from `archived_classes`,
    which saves a third of the CPU time of a start.
    """

    heap: ClassVar[str] = HEAP

    def __init__(self, properties: Mapping[str, str], classes: str = "") -> None:
        self._java = find_java()
        self._classpath = f"{kafka_libs()}/*"
        # Where Java cannot use an archive, it takes the classes from the jars.
        self._classes = classes or f"-XX:SharedArchiveFile={archived_classes()}"
        port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="amf-kafka-", ignore_cleanup_errors=True)
        self._home = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None
        settings = server_properties(self.bootstrap, self.bootstrap, f"127.0.0.1:{controller_port}", properties)
        settings["log.dirs"] = str(self._home / "data")
        (self._home / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._format()

    def _format(self) -> None:
        arguments = ("format", "--config", "server.properties", "--cluster-id", cluster_id())
        command = self._command("kafka.tools.StorageTool", *arguments)
        with self._open_log() as log:
            done = subprocess.run(command, cwd=self._home, stdout=log, stderr=log, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"Kafka's storage tool failed:\n{self.log()}")

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = (self.heap, "-XX:+UseSerialGC", self._classes, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        return [self._java, *options, "-cp", self._classpath, main, *arguments]

    def _open_log(self) -> IO[bytes]:
        return open(self._home / "kafka.log", "ab")

    def start(self) -> None:
        with self._open_log() as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", "server.properties"),
                cwd=self._home,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=ENDED_WITHIN_S)

    def close(self) -> None:
        self.kill()  # the data go too, so nothing is worth an orderly shutdown
        self._folder.cleanup()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return (self._home / "kafka.log").read_text(errors="replace")


@functools.cache
def archived_classes() -> Path:
    """Kafka's classes as Java had them in memory when a broker had served some requests; made once for each Java.

    Raises Unavailable.
    """
    made_by = zlib.crc32(java_version(find_java()).encode())
    archive = kafka_libs().parent / f"classes-{made_by:08x}.jsa"
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes one makes it, and the others wait
        if not archive.is_file():
            _archive_classes(archive)
    return archive


def _archive_classes(archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    server = JavaServer({}, "-Xshare:auto")
    server._classes = f"-XX:ArchiveClassesAtExit={unfinished}"
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.list_topics(timeout=ARCHIVED_WITHIN_S)  # which waits until the broker answers
        admin.create_topics([NewTopic("events", 1, 1)])["events"].result(ARCHIVED_WITHIN_S)
        server.stop()
        if unfinished.is_file():
            unfinished.rename(archive)
        else:
            archive.touch()  # a Java that makes none takes the classes from the jars
    finally:
        server.close()


def open_server(properties: Mapping[str, str], *, own: bool) -> Server:
    """The first server that this machine can provide, started; raises Unavailable with all the reasons.

    `own` leaves out the server that is not ours to stop.
    """
    kinds: list[Callable[[Mapping[str, str]], Server]] = [ContainerServer, JavaServer]
    if not own:
        kinds.insert(0, named_server)
    reasons = []
    for kind in kinds:
        try:
            server = kind(properties)
            server.start()
        except Unavailable as reason:
            reasons.append(str(reason))
        else:
            return server
    raise Unavailable("; ".join(reasons))


def server_properties(listen: str, advertised: str, controller: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Settings of one node that is broker and controller, with internal topics that need no second node."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{listen},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{advertised}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # 50 partitions each, the default, only make the first group and the first transaction slow.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        # The controller lets a killed broker back in when its session has ended, which is 9 s by default.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        # With group.protocol=consumer members hear of a change at their next heartbeat, which is after 5 s by default.
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.heartbeat.interval.ms": "300",
        "auto.create.topics.enable": "false",
        # Records keep the timestamps of their input, which may be decades old: none may expire while a test reads.
        "log.retention.ms": "-1",
        # A test record of 10 MB fits, with its headers.
        "message.max.bytes": "12000000",
        **properties,
    }


def cluster_id() -> str:
    """A fresh cluster id: 22 characters of URL-safe base64 that do not begin with a dash."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def free_ports(count: int) -> list[int]:
    """Ports that no program listens on, below the range that the system gives to outgoing connections.

    In that range a client that tries to reach a stopped broker can be given the broker's own port: it connects to
    itself, and the broker that comes back finds its address in use.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            port = random.SystemRandom().randrange(20_000, 32_000)
            listener = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                found.append(port)
    return found


def die_with_parent() -> None:
    """Runs in the child before Java: a test process that is killed must not leave a broker behind (Linux only)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
