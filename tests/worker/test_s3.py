"""The store of s3:// URLs against a real server: what the contract of all stores (test_store.py) does not ask."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest

from tests.availability import Unavailable
from tests.worker.support.versitygw import VERSITYGW, S3Server
from worker.adapters.store import open_store
from worker.base.errors import AlreadyExists, Denied, Transient
from worker.base.ports import ObjectStore

pytestmark = pytest.mark.full

N_WRITERS = 4


CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "read": lambda store: store.read("a"),
    "read_range": lambda store: store.read_range("a", 0, 1),
    "create": lambda store: store.create("a", b"1"),
    "list": lambda store: store.list(""),
    "delete": lambda store: store.delete("a"),
}


def test_without_the_server_and_without_go_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="versitygw is not installed, and neither is Go"):
        VERSITYGW.find(tmp_path / "cache")


def test_an_interrupted_build_leaves_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho half > "$GOBIN/versitygw"\necho no network >&2\nexit 1\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(Unavailable, match="no network"):
        VERSITYGW.find(tmp_path / "cache")
    assert [path.name for path in tmp_path.glob("cache/*/*")] == ["lock"]


@pytest.fixture
def store(s3_server: S3Server) -> ObjectStore:
    return open_store(f"{s3_server.url}/folder")


def create(store: ObjectStore, name: str, data: bytes) -> None:
    """A server that refuses a large object may hang up while it is still being sent: that is tried again."""
    for _ in range(100):
        with suppress(Transient):
            return store.create(name, data)
    raise AssertionError(f"no answer to 100 attempts at {name}")


def test_a_large_object_is_written_once_too(store: ObjectStore) -> None:
    """One that clients send in parts unless they are asked not to overwrite."""
    data = bytes(range(256)) * 50_000
    create(store, "large", data)
    create(store, "large", data)
    with pytest.raises(AlreadyExists):
        create(store, "large", data[:-1] + b"x")
    assert store.read("large") == data
    assert store.read_range("large", len(data) - 3, 10) == data[-3:]


def test_a_listing_of_several_pages_is_whole(s3_server: S3Server, store: ObjectStore) -> None:
    names = [f"part-{number % 3}/{number:05}" for number in range(2_500)]  # S3 lists 1,000 at a time
    for name in names:
        path = s3_server.bucket / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert store.list("") == sorted(names)
    assert store.list("part-1") == sorted(names[1::3])


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_secret_is_refused_and_not_repeated(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    with pytest.raises(Denied, match=r"the server answered 403 Forbidden \(SignatureDoesNotMatch\)") as error:
        CALLS[call](open_store(f"{s3_server.url}/folder"))
    assert "hush" not in str(error.value)
    assert list(s3_server.bucket.iterdir()) == []


def test_a_bucket_that_does_not_exist_is_named(s3_server: S3Server) -> None:
    with pytest.raises(Denied, match="s3://nowhere/a: the bucket does not exist"):
        open_store("s3://nowhere").create("a", b"1")


@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_is_away_is_transient_and_back_as_it_was(s3_server: S3Server, call: str) -> None:
    store = open_store(f"{s3_server.url}/folder", timeout_s=0.5)
    store.create("a", b"1")
    s3_server.kill()
    with pytest.raises(Transient, match="no answer from the server"):
        CALLS[call](store)
    s3_server.start()
    assert store.read("a") == b"1"
    CALLS[call](store)


def test_a_write_that_began_while_the_server_was_away_is_done_when_it_comes_back(
    s3_server: S3Server, store: ObjectStore
) -> None:
    store.create("before", b"1")
    s3_server.kill()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.create, "meanwhile", b"2")
        s3_server.start()
        writing.result()
    assert store.list("") == ["before", "meanwhile"]


def content(name: str) -> bytes:
    return name.encode() * 20_000


def write_until_the_end(store: ObjectStore, writer: int, written: list[str]) -> str:
    """Create one object after the other and note each in `written`; the name of the one that failed."""
    while True:
        name = f"{writer}/{len(written)}"
        try:
            store.create(name, content(name))
        except Transient:
            return name
        written.append(name)


def test_of_a_server_that_dies_in_the_middle_no_object_is_half_or_lost(s3_server: S3Server) -> None:
    """What was acknowledged is there; what was not is absent or whole, and can be written again."""
    store = open_store(s3_server.url, timeout_s=0.5)
    written: list[list[str]] = [[] for _ in range(N_WRITERS)]
    with ThreadPoolExecutor(N_WRITERS) as pool:
        running = [pool.submit(write_until_the_end, store, writer, names) for writer, names in enumerate(written)]
        while min(map(len, written)) < 10:
            done, _ = wait(running, timeout=0.01)
            assert not done, "a writer ended before the server died"
        s3_server.kill()
        interrupted = [writer.result() for writer in running]
    s3_server.start()

    present = store.list("")
    for name in present:
        assert store.read(name) == content(name)
    acknowledged = {name for names in written for name in names}
    assert acknowledged <= set(present) <= acknowledged | set(interrupted)
    for name in interrupted:
        store.create(name, content(name))
        with pytest.raises(AlreadyExists):
            store.create(name, b"other")
