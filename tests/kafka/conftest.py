"""Fixtures of the tests that need a real broker; each such test is marked `kafka`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.availability import Unavailable, give_up
from tests.kafka.broker import Broker
from tests.kafka.servers import ExternalServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"broker", "own_broker", "secured"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@contextlib.contextmanager
def running_broker(*, own: bool) -> Iterator[Broker]:
    try:
        with Broker(own=own) as broker:
            yield broker
    except Unavailable as reason:
        give_up(f"no Kafka broker to test against: {reason}")


class JoinedBroker(Broker):
    """A broker that answers already, and that another process will take down."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._server = ExternalServer(bootstrap)


@contextlib.contextmanager
def shared_broker(folder: Path, bring_up: Callable[[], AbstractContextManager[Broker]]) -> Iterator[Broker]:
    """One broker for all processes that name this folder.

    Who comes first brings it up, and takes it down when nobody uses it any more. The file of its address is locked by
    all who use it, and the other file by who joins or leaves: nobody joins a broker that is about to go.
    """
    address, door = folder / "broker", folder / "broker-door"
    with contextlib.ExitStack() as opened:
        with _locked(door):
            is_first = not address.exists()
            broker = opened.enter_context(bring_up()) if is_first else JoinedBroker(address.read_text())
            if is_first:
                address.write_text(broker.bootstrap)
            used = opened.enter_context(address.open())
            fcntl.flock(used, fcntl.LOCK_SH)
        try:
            yield broker
        finally:
            if is_first:
                with _locked(door):
                    address.unlink()
                fcntl.flock(used, fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for the whole run, however many processes share its tests."""
    own = tmp_path_factory.getbasetemp()
    of_all = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with shared_broker(of_all, partial(running_broker, own=False)) as broker:
        yield broker


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A broker of this test alone, to stop and to kill; it takes some seconds to come up."""
    with running_broker(own=True) as broker:
        yield broker


class Names:
    """Names that no other test has, for topics, groups and transactional ids."""

    def __init__(self, broker: Broker, test: str) -> None:
        self._broker = broker
        slug = re.sub(r"[^a-zA-Z0-9]+", "-", test)[:60].strip("-")  # internal topics tell two names apart by --
        self._stem = f"{slug}-{uuid.uuid4().hex[:8]}"

    def name(self, kind: str) -> str:
        """The name of this test's `kind`: the same each time it is asked for."""
        return f"{self._stem}-{kind}"

    def create(self, kind: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create the topic of that name and return it."""
        self._broker.create_topic(self.name(kind), partitions, config)
        return self.name(kind)


@pytest.fixture
def topics(broker: Broker, request: pytest.FixtureRequest) -> Names:
    return Names(broker, request.node.name)
