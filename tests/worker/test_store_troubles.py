"""What stores make of the errors of obstore, and of files that are no objects."""

from __future__ import annotations

import os
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    JoinError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
)
from obstore.store import MemoryStore

from worker.adapters.store import ObstoreStore, open_store
from worker.base.errors import AlreadyExists, Denied, Transient, WorkerError


def failing(monkeypatch: pytest.MonkeyPatch, call: str, error: Exception) -> ObstoreStore:
    """A store with one object, of which one call fails."""
    store = ObstoreStore("s3://bucket", MemoryStore())
    store.create("a", b"1")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(obstore, call, fail)
    return store


@pytest.mark.parametrize("error", [AlreadyExistsError("it is"), PreconditionError("it is")], ids=type)
def test_whichever_way_a_store_says_that_an_object_is_there_its_content_decides(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    store = failing(monkeypatch, "put", error)
    store.create("a", b"1")
    with pytest.raises(AlreadyExists):
        store.create("a", b"2")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionDeniedError("no"), Denied),
        (NotSupportedError("no"), Denied),
        (ValueError("no"), Denied),
        (JoinError("a task was lost"), Transient),
        (OSError("no route"), Transient),
        (GenericError("it broke off"), Transient),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else type(each).__name__,
)
def test_an_error_without_a_status_may_pass_or_not(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[WorkerError]
) -> None:
    with pytest.raises(kind) as caught:
        failing(monkeypatch, "get", error).read("a")
    assert type(caught.value) is kind


def test_of_what_went_wrong_the_first_line_is_said_without_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    error = GenericError("no such region at https://host/a?signature=hush, sorry\n\nDebug source:\nhush")
    with pytest.raises(Transient) as caught:
        failing(monkeypatch, "get", error).read("a")
    assert str(caught.value) == "cannot read s3://bucket/a: no such region at ... sorry"


def test_what_is_hidden_in_a_folder_is_no_object(tmp_path: Path) -> None:
    """Of a file manager, or of a network file system: it could not even be asked for by its name."""
    store = open_store(f"file://{tmp_path}")
    store.create("a/b", b"1")
    (tmp_path / "a" / ".nfs0001").write_bytes(b"?")
    assert store.list("") == store.list("a") == ["a/b"]


def test_what_cannot_be_an_object_by_its_name_is_none(tmp_path: Path) -> None:
    """A folder of backups that begins with a dot, say: whoever looked through the store could not go on."""
    files, backend = open_store(f"file://{tmp_path}"), MemoryStore()
    objects = ObstoreStore("s3://bucket", backend)
    for store in (files, objects):
        store.create("a/b", b"1")
    (tmp_path / "a" / "b\n").write_bytes(b"?")
    for name in (".backup/a", "a/.b"):
        obstore.put(backend, name, b"?")
    for store in (files, objects):
        assert store.list("") == store.list("a") == ["a/b"]


def test_a_folder_that_the_system_does_not_let_us_look_into_is_refused_by_the_first_call(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/{'x' * 256}")
    for call in (lambda: store.create("a", b"1"), lambda: store.list(""), lambda: store.read("a")):
        with pytest.raises(Denied, match="File name too long"):
            call()


def test_all_of_a_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync is of what the system has: what is still in a buffer of ours would come behind the name, or never."""
    synced, fsync = list[int](), os.fsync

    def weigh(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    store = open_store(f"file://{tmp_path}")
    store.create("a/1", b"x")
    monkeypatch.setattr(os, "fsync", weigh)
    store.create("a/2", b"x" * 321)
    assert synced[0] == 321
    assert len(synced) == 2, "the file and its folder; those above are durable since the first one"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_store_of_files_keeps_none_of_them_open(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    before = len(os.listdir("/proc/self/fd"))
    for i in range(10):
        store.create(f"{i}/a", b"x")
        store.read_range(f"{i}/a", 0, 1)
        store.delete(f"{i}/a")
    assert len(os.listdir("/proc/self/fd")) == before
