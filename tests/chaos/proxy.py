"""A TCP proxy that can lose, delay and hold what passes, frame by frame where the frames are Kafka's.

    with Proxy(lambda: broker_port, kafka=True) as proxy:
        with proxy.rule(Rule("hold", REPLY, END_TXN, "w0", first=1)) as rule:
            rule.wait()          # the broker has committed, and w0 does not know

A Kafka frame is a 4-byte size and that many bytes. A request begins with API key (int16), version (int16), correlation
id (int32) and client id (int16 length, text); a reply begins with the correlation id of its request.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from tests.kafka.servers import free_ports

REQUEST, REPLY = "request", "reply"
PRODUCE, FETCH, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT = 0, 1, 9, 11, 12
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 26, 28
"""API keys of the requests that tests are about."""

CHUNK = 65_536


@dataclass(eq=False)
class Rule:
    """What happens to the frames it matches while it is in force; None matches everything."""

    action: Literal["hold", "delay", "drop", "change"]
    """hold: wait until the rule ends, then pass; delay: arrive late by `seconds`; drop: vanish; change: by `change`."""
    direction: str | None = None
    api: int | None = None
    client: str | None = None
    first: int | None = None
    """Only so many frames; later ones pass."""
    seconds: float = 0.0
    change: Callable[[bytes], bytes] = bytes
    caught: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def catches(self, direction: str, api: int | None, client: str | None) -> bool:
        """Whether it takes this frame; a frame that is taken counts."""
        wanted = ((self.direction, direction), (self.api, api), (self.client, client))
        with self.changed:
            if any(want is not None and want != got for want, got in wanted) or self.caught == self.first:
                return False
            self.caught += 1
            self.changed.notify_all()
            return True

    def wait(self, frames: int = 1, timeout_s: float = 60.0) -> bool:
        """Wait until it has caught so many frames; False if it did not."""
        with self.changed:
            return self.changed.wait_for(lambda: self.caught >= frames, timeout_s)


class Proxy:
    """Listens on `port` and passes every connection on to the port that `target` says at that moment."""

    def __init__(self, target: Callable[[], int], *, kafka: bool, port: int | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self._target = target
        self._kafka = kafka
        self._rules: list[Rule] = []
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self.refusing = False
        """Whether connections are closed as soon as they come."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refusing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    @contextlib.contextmanager
    def rule(self, rule: Rule) -> Iterator[Rule]:
        """Put a rule in force; what it holds goes on its way when the block ends."""
        with self._lock:
            self._rules.append(rule)
        try:
            yield rule
        finally:
            with self._lock:
                self._rules.remove(rule)
            rule.ended.set()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """No connection gets through, and those that are open are cut off."""
        self.refusing = True
        self.cut()
        try:
            yield
        finally:
            self.refusing = False

    def cut(self, client: str | None = None) -> int:
        """Close the connections of a client, or all; returns how many there were."""
        with self._lock:
            chosen = [link for link in self._links if client is None or link.client == client]
        for link in chosen:
            link.close()
        return len(chosen)

    def passed(self, link: _Link, direction: str, api: int | None, frame: bytes) -> bytes:
        """Apply the rules to a frame, waiting as long as they say; nothing is left of one that vanishes."""
        with self._lock:
            rule = next((rule for rule in self._rules if rule.catches(direction, api, link.client)), None)
        if rule is None:
            return frame
        if rule.action == "hold":
            rule.ended.wait()
        elif rule.action == "delay":
            time.sleep(rule.seconds)
        elif rule.action == "change":
            return rule.change(frame)
        return b"" if rule.action == "drop" else frame

    def forget(self, link: _Link) -> None:
        with self._lock:
            if link in self._links:
                self._links.remove(link)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.refusing:
                    raise ConnectionRefusedError
                server = socket.create_connection(("127.0.0.1", self._target()), timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            link = _Link(self, client, server, kafka=self._kafka)
            with self._lock:
                self._links.append(link)
            link.start()


class _Link:
    """One connection: two threads that read on one side and write on the other."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket, *, kafka: bool) -> None:
        self.client: str | None = None
        """The client id, once its first request has told."""
        self._proxy = proxy
        self._near, self._far = client, server
        self._frames = _kafka_frames if kafka else _chunks
        self._kafka = kafka
        self._asked: dict[int, int] = {}
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        self._pump_up = threading.Thread(target=self._up, daemon=True)
        self._pump_up.start()
        threading.Thread(target=self._down, daemon=True).start()

    def close(self) -> None:
        for each in (self._near, self._far):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _up(self) -> None:
        """Requests. What was held is delivered even where its sender has gone: that is what makes it late."""
        with contextlib.suppress(OSError):
            for frame in self._frames(self._near):
                api = self._read_request(frame) if self._kafka else None
                self._far.sendall(self._proxy.passed(self, REQUEST, api, frame))
        with contextlib.suppress(OSError):
            self._far.shutdown(socket.SHUT_WR)

    def _down(self) -> None:
        """Replies. They end with the server's side; for a client that has gone they are read and forgotten."""
        with contextlib.suppress(OSError):
            for frame in self._frames(self._far):
                api = self._asked.pop(struct.unpack_from(">i", frame, 4)[0], None) if self._kafka else None
                passed = self._proxy.passed(self, REPLY, api, frame)
                with contextlib.suppress(OSError):
                    self._near.sendall(passed)
        self.close()
        self._pump_up.join()
        self._proxy.forget(self)
        self._near.close()
        self._far.close()

    def _read_request(self, frame: bytes) -> int:
        api, _, correlation, length = struct.unpack_from(">hhih", frame, 4)
        if length > 0:
            self.client = frame[14 : 14 + length].decode()
        self._asked[correlation] = api
        return int(api)


def _kafka_frames(source: socket.socket) -> Iterator[bytes]:
    with source.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            size = struct.unpack(">i", head)[0]
            body = stream.read(size)
            if len(body) < size:
                return
            yield head + body


def _chunks(source: socket.socket) -> Iterator[bytes]:
    while chunk := source.recv(CHUNK):
        yield chunk
