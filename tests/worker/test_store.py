"""One contract suite over all stores, then what is particular to files and to cloud stores."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import LocalStore

from tests.worker.support.stores import DictStore, S3Stub, s3_stub
from tests.worker.support.versitygw import S3Server
from worker.adapters.store import ObstoreStore, open_store
from worker.base.errors import AlreadyExists, ConfigError, Denied, NoRoom, NotFound, Transient, WorkerError
from worker.base.ports import Deadline, ObjectStore


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Stub]:
    with s3_stub() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["dict", "file", "memory", "s3 stub", pytest.param("s3", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind; "s3" is a real server's."""
    if request.param == "dict":
        return DictStore()
    if request.param == "file":
        return open_store(f"file://{tmp_path}/store")
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4()}")
    if request.param == "s3 stub":
        request.getfixturevalue("s3")
        return open_store("s3://bucket/some/folder")
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(f"{server.url}/some/folder")


def test_an_object_is_read_as_it_was_created(store: ObjectStore) -> None:
    data = bytes(range(256)) * 300
    store.create("a/b", data)
    store.create("a/empty", b"")
    assert store.read("a/b") == data
    assert type(store.read("a/b")) is bytes
    assert store.read("a/empty") == b""


def test_ranges_end_with_the_object(store: ObjectStore) -> None:
    store.create("a", b"0123456789")
    assert store.read_range("a", 0, 10) == b"0123456789"
    assert store.read_range("a", 3, 4) == b"3456"
    assert store.read_range("a", 8, 5) == b"89"
    assert store.read_range("a", 10, 5) == b""
    assert store.read_range("a", 50, 5) == b""


def test_creating_again_with_the_same_content_succeeds(store: ObjectStore) -> None:
    store.create("a", b"1")
    store.create("a", b"1")
    assert store.read("a") == b"1"


def test_an_object_is_never_replaced(store: ObjectStore) -> None:
    store.create("a", b"1")
    with pytest.raises(AlreadyExists):
        store.create("a", b"2")
    assert store.read("a") == b"1"


def test_what_is_absent_is_not_found_and_is_deleted_without_complaint(store: ObjectStore) -> None:
    store.create("folder/a", b"1")
    for name in ("b", "folder", "folder/b", "folder/a/b"):
        with pytest.raises(NotFound):
            store.read(name)
        with pytest.raises(NotFound):
            store.read_range(name, 0, 1)
        store.delete(name)
    assert store.list("") == ["folder/a"]


def test_list_is_sorted_and_goes_by_folder(store: ObjectStore) -> None:
    for name in ("b/2", "b/10/x", "a", "b/1", "bb/1", "c/d/e"):
        store.create(name, b"1")
    assert store.list("") == ["a", "b/1", "b/10/x", "b/2", "bb/1", "c/d/e"]
    assert store.list("b") == ["b/1", "b/10/x", "b/2"]
    assert store.list("c/d") == ["c/d/e"]
    assert store.list("none/such") == []


def test_many_objects_are_deleted_though_some_are_not_there(store: ObjectStore) -> None:
    for i in range(1200):
        store.create(f"a/{i}", b"1")
    store.delete("none/such", *(f"a/{i}" for i in range(1, 1300)), "b")
    assert store.list("") == ["a/0"]


def test_deleted_objects_are_gone_and_can_be_created_anew(store: ObjectStore) -> None:
    store.create("a/1", b"1")
    store.create("a/2", b"2")
    store.delete("a/1")
    assert store.list("a") == ["a/2"]
    with pytest.raises(NotFound):
        store.read("a/1")
    store.create("a/1", b"other")
    assert store.read("a/1") == b"other"


def test_names_keep_their_characters(store: ObjectStore) -> None:
    names = ["a%2Fb/c", "m@1~p3+=,:;()", "with space/x", "äö/ü", "x.tmp/y..z"]
    for name in names:
        store.create(name, name.encode())
    assert store.list("") == sorted(names)
    assert [store.read(name) for name in names] == [name.encode() for name in names]


def test_of_many_concurrent_creates_one_content_wins(store: ObjectStore) -> None:
    outcomes: list[bytes | None] = [None] * 8
    start = threading.Barrier(len(outcomes))

    def create(number: int) -> None:
        data = b"even" if number % 2 == 0 else b"odd"
        start.wait()
        try:
            store.create("folder/a", data)
        except AlreadyExists:
            return
        outcomes[number] = data

    threads = [threading.Thread(target=create, args=(number,)) for number in range(len(outcomes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = store.read("folder/a")
    expected = [data if data == winner else None for data in [b"even", b"odd"] * 4]
    assert outcomes == expected


@pytest.mark.parametrize("name", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".tmp/x", "a/.b", "a\0b", "a\nb"])
@pytest.mark.parametrize("url", ["file:///nowhere", "memory://names"])
def test_names_that_could_escape_are_refused(url: str, name: str) -> None:
    store = open_store(url)
    for call in (store.read, store.delete, lambda name: store.create(name, b""), lambda n: store.read_range(n, 0, 1)):
        with pytest.raises(WorkerError, match="is not the name of an object"):
            call(name)
    if name:
        with pytest.raises(WorkerError, match="is not the name of an object"):
            store.list(name)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("bogus://x", "expected file://, s3://"),
        ("/a/path", "expected file://, s3://"),
        ("file://a/path", "write an absolute path"),
        ("file:a/path", "write an absolute path"),
        ("file:///a%00path", "a path has no NUL"),
        ("s3://", "cannot use the store s3://"),
        ("s3://key:hush@bucket/x", "credentials come from the environment"),
        ("s3://key:hu/sh@bucket/x", "credentials come from the environment"),
        ("s3://hush@bucket/x", "credentials come from the environment"),
        ("s3:key:hush@bucket/x", "expected s3://bucket/folder"),
        ("az://container/x?sig=hush", "credentials come from the environment"),
        ("s3://bucket/x#hush", "credentials come from the environment"),
        ("s3://[hush", "cannot be parsed"),
    ],
)
def test_urls_that_cannot_be_used(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_store(url)
    assert not re.search("hush|hu/sh", str(caught.value))


def test_memory_stores_are_shared_by_url() -> None:
    url = f"memory://{uuid.uuid4()}"
    open_store(url).create("a", b"1")
    assert open_store(url + "/").read("a") == b"1"
    assert open_store(url + "2").list("") == []


def test_file_url_is_unquoted(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/with%20space").create("a/b", b"1")
    assert (tmp_path / "with space" / "a" / "b").read_bytes() == b"1"


class Journal:
    """What the file store asked of the operating system, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, Path]] = []
        fsync, link = os.fsync, os.link

        def recorded_fsync(descriptor: int) -> None:
            self.events.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
            fsync(descriptor)

        def recorded_link(source: Path, target: Path) -> None:
            self.events.append(("link", Path(source)))
            link(source, target)

        monkeypatch.setattr(os, "fsync", recorded_fsync)
        monkeypatch.setattr(os, "link", recorded_link)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_file_is_synced_before_it_appears_and_its_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "new" / "store"
    journal = Journal(monkeypatch)
    store = open_store(f"file://{root}")
    store.create("a/b/object", b"1")

    (linked,) = [number for number, (call, _) in enumerate(journal.events) if call == "link"]
    temporary = journal.events[linked][1]
    assert ("fsync", temporary) in journal.events[:linked]
    assert journal.events[linked + 1 :] == [("fsync", root / "a" / "b")]
    for folder in (root / "a", root, root.parent, tmp_path):
        assert ("fsync", folder) in journal.events[:linked]
    assert not temporary.exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_what_another_writer_left_unsynced_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "object").write_bytes(b"1")
    journal = Journal(monkeypatch)
    open_store(f"file://{tmp_path}").create("a/object", b"1")
    assert ("fsync", tmp_path) in journal.events
    assert journal.events[-1] == ("fsync", tmp_path / "a")


@pytest.mark.parametrize("above", ["", "more"])
def test_folders_above_the_root_may_be_closed_to_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    root = tmp_path / above / "store"
    closed = tmp_path

    def sync(folder: Path) -> None:
        if folder == closed:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("worker.adapters.store._sync_folder", sync)
    open_store(f"file://{root}").create("a/object", b"1")
    closed = root
    with pytest.raises(WorkerError, match="Permission denied"):
        open_store(f"file://{root}").create("b/object", b"1")


def test_a_delete_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    store.create("a/object", b"1")
    synced = []
    monkeypatch.setattr("worker.adapters.store._sync_folder", synced.append)
    store.delete("a/object")
    assert synced == [tmp_path / "a"]


def test_a_failed_write_leaves_nothing_and_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    store.create("first", b"1")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Transient, match="No space left"):
            store.create("second", b"2")
    assert store.list("") == ["first"]
    assert list((tmp_path / ".tmp").iterdir()) == []
    store.create("second", b"2")
    assert store.read("second") == b"2"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        *((getattr(errno, name), NoRoom) for name in ("ENOSPC", "EDQUOT")),
        *((getattr(errno, name), Transient) for name in ("EIO", "ESTALE", "ETIMEDOUT")),
        *((getattr(errno, name), Transient) for name in ("EMFILE", "ENFILE", "EAGAIN")),
        *((getattr(errno, name), Denied) for name in ("EACCES", "EPERM", "EROFS", "ENAMETOOLONG")),
    ],
    ids=lambda each: errno.errorcode.get(each) if isinstance(each, int) else None,
)
def test_trouble_that_may_pass_is_told_from_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[WorkerError]
) -> None:
    store = open_store(f"file://{tmp_path}")
    store.create("a", b"1")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for call, method in {"read": "read_bytes", "delete": "unlink"}.items():
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, fail)
            with pytest.raises(kind, match=re.escape(os.strerror(number))) as caught:
                CALLS[call](store)
        assert type(caught.value) is kind
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(kind, match=re.escape(os.strerror(number))) as caught:
            store.create("b", b"1")
    assert type(caught.value) is kind


def test_a_folder_that_vanished_is_made_again(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    store.create("a/1", b"1")
    (tmp_path / "a" / "1").unlink()
    (tmp_path / "a").rmdir()
    with pytest.raises(Transient):
        store.create("a/1", b"1")
    store.create("a/1", b"1")
    assert store.read("a/1") == b"1"


def test_opening_removes_temporary_files_of_dead_writers_only(tmp_path: Path) -> None:
    folder = tmp_path / ".tmp"
    folder.mkdir()
    (folder / "dead").write_bytes(b"half")
    with (folder / "alive").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store = open_store(f"file://{tmp_path}")
        assert [path.name for path in folder.iterdir()] == ["alive"]
    assert store.list("") == []


def test_a_store_that_is_opened_while_another_one_writes_leaves_its_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, link, opened = f"file://{tmp_path}", os.link, list[ObjectStore]()

    def open_and_link(source: Path, target: Path) -> None:
        opened.append(open_store(url))
        link(source, target)

    writing = open_store(url)
    monkeypatch.setattr(os, "link", open_and_link)
    writing.create("a", b"1")
    [other] = opened
    assert other.read("a") == b"1"


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"file://{tmp_path}")
    store.create("a/b/c", b"1")
    scandir = os.scandir

    def closed(path: str | Path) -> object:
        if Path(path).name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(WorkerError, match="Permission denied"):
        store.list("")


def test_an_answer_that_was_lost_on_the_way_is_a_success(s3: S3Stub) -> None:
    store = open_store("s3://bucket/folder")
    s3.scripted = [500]
    store.create("a", b"1")
    assert s3.requests == ["PUT", "PUT", "GET"]
    assert store.read("a") == b"1"


def test_another_write_in_flight_is_tried_again_later(s3: S3Stub) -> None:
    store = open_store("s3://bucket/folder")
    s3.objects["folder/a"] = b"1"
    s3.scripted = [409, 404]
    with pytest.raises(Transient, match="in flight"):
        store.create("a", b"1")


CALLS: dict[str, Callable[[ObjectStore], object]] = {
    "read": lambda store: store.read("a"),
    "read_range": lambda store: store.read_range("a", 0, 1),
    "create": lambda store: store.create("a", b"1"),
    "list": lambda store: store.list("a"),
    "delete": lambda store: store.delete("a"),
}


@pytest.mark.parametrize(
    ("call", "status"),
    [
        *((call, 503) for call in CALLS),
        *((call, 409) for call in CALLS if call != "create"),
        ("read", 500),
        ("read", 429),
        ("read", 408),
        ("create", 507),
    ],
)
def test_an_overloaded_server_is_transient_and_a_full_one_has_no_room(s3: S3Stub, call: str, status: int) -> None:
    store = open_store("s3://bucket/folder", timeout_s=0.5)
    s3.scripted = [status] * 12
    with pytest.raises(Transient, match=f"s3://bucket/folder/a: the server answered {status}") as e:
        CALLS[call](store)
    assert type(e.value) is (NoRoom if status == 507 else Transient), "no refusal, with which a start would end"
    assert len(s3.scripted) > 2, "gave up when the time was over"


@pytest.mark.parametrize(("call", "status"), [*((call, 403) for call in CALLS), ("read", 400), ("read", 401)])
def test_a_call_that_the_server_refuses_is_denied_and_not_tried_again(s3: S3Stub, call: str, status: int) -> None:
    s3.scripted = [status]
    with pytest.raises(WorkerError, match=rf"s3://bucket/folder/a: the server answered {status}.*\(Scripted\)") as e:
        CALLS[call](open_store("s3://bucket/folder"))
    assert type(e.value) is Denied


def test_a_missing_bucket_is_named_when_writing(s3: S3Stub) -> None:
    s3.scripted = [404]
    with pytest.raises(WorkerError, match="the bucket does not exist"):
        open_store("s3://bucket/folder").create("a", b"1")


def test_a_server_that_does_not_answer_is_given_up_on(s3: S3Stub) -> None:
    store = open_store("s3://bucket/folder", timeout_s=0.2)
    s3.scripted = [0]
    started = time.monotonic()
    with pytest.raises(Transient, match=r"no answer from the server \(timeout\)"):
        store.create("a", b"1")
    assert time.monotonic() - started < 5


def test_a_store_that_stops_at_what_is_not_there_deletes_what_comes_after_it_too(tmp_path: Path) -> None:
    """As the local one of obstore does."""
    store = ObstoreStore("local://store", LocalStore(tmp_path))
    names = [f"a/{i}" for i in range(20)]
    for name in names:
        store.create(name, b"1")
    store.delete("none/such", *names[:10], "a/none", *names[10:19], "b")
    assert store.list("") == ["a/19"]


def test_an_answer_that_breaks_off_is_transient(s3: S3Stub) -> None:
    store = open_store("s3://bucket/folder", timeout_s=0.3)
    store.create("a", b"12345678")
    s3.scripted = [-1] * 12
    with pytest.raises(Transient):
        store.read("a")


def test_a_server_that_does_not_listen_is_transient_and_leaks_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_stub() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
    store = open_store("s3://bucket/folder", timeout_s=0.3)
    with pytest.raises(
        Transient, match=r"cannot read s3://bucket/folder/a: no answer from the server \(connect\)"
    ) as e:
        store.read("a")
    assert "key" not in str(e.value)
    assert (e.value.__cause__, e.value.__suppress_context__) == (None, True)


def test_the_signed_request_of_an_absent_object_is_not_repeated(s3: S3Stub) -> None:
    with pytest.raises(NotFound, match=r"s3://bucket/folder/a: the server answered 404 Not Found \(NoSuchKey\)") as e:
        open_store("s3://bucket/folder").read("a")
    assert str(s3.server_port) not in str(e.value)
    assert (e.value.__cause__, e.value.__suppress_context__) == (None, True)


class HandClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


def test_a_deadline_is_shared_and_ends() -> None:
    clock = HandClock()
    deadline = Deadline.after(clock, 5.0)
    assert (deadline.remaining(), deadline.passed()) == (5.0, False)
    clock.now_s += 4.0
    assert deadline.remaining() == 1.0
    clock.now_s += 4.0
    assert (deadline.remaining(), deadline.passed()) == (0.0, True)
