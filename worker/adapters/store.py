"""Adapter: object storage. `file://` is a durable backend of our own, all other schemes go through obstore.

obstore's own file backend does not sync, so what it calls written can be gone after a power cut. Credentials, regions
and endpoints of the cloud stores come from their usual environment variables (AWS_*, GOOGLE_*, AZURE_*), never from
the URL, and no message of this module repeats what could hold one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, JoinError, PreconditionError
from obstore.store import MemoryStore, from_url

from worker.base.errors import AlreadyExists, ConfigError, Denied, Fatal, NoRoom, NotFound, Transient
from worker.base.ports import ObjectStore

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

_SEGMENT = r"[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]*"
_NAME = re.compile(f"{_SEGMENT}(/{_SEGMENT})*")
_CLOUD = ("s3", "gs", "az")

_memory: dict[str, MemoryStore] = {}


def open_store(url: str, *, timeout_s: float = 60.0) -> ObjectStore:
    """The store behind `file:///path`, `s3://bucket/path`, `gs://bucket/path`, `az://container/path` or `memory://name`.

    A request to a cloud store ends within `timeout_s` and is retried within that time, so no call waits longer than
    about twice of it per request. `memory://` URLs that are equal name the same store within the process. Nothing is
    contacted or written yet. Raises `ConfigError` for a URL that cannot be used.
    """
    parts = _split(url)
    if parts.scheme == "file":
        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        return ObstoreStore(url, _memory.setdefault(url.rstrip("/"), MemoryStore()))
    timeout = timedelta(seconds=timeout_s)
    try:
        backend = from_url(
            url,
            # Plain HTTP is spoken only to an endpoint whose own URL says http://.
            client_options={
                "timeout": timeout,
                "connect_timeout": min(timeout, timedelta(seconds=5)),
                "allow_http": True,
            },
            retry_config={
                "max_retries": 10,
                "retry_timeout": timeout,
                "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
            },
        )
    except (BaseError, ValueError) as error:
        raise ConfigError(f"cannot use the store {url}: {_reason(error)}") from None
    return ObstoreStore(url, backend)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError("the store URL cannot be parsed") from None
    # With a colon alone it is a password with a slash in it: what it is parted from its `@` by.
    if parts.query or parts.fragment or re.search("[@:]", parts.netloc):
        raise ConfigError(
            f"a {parts.scheme}:// store URL takes no user, query or fragment: credentials come from the environment"
        )
    if parts.scheme not in ("file", "memory", *_CLOUD):
        raise ConfigError(f"cannot use the store {url}: expected file://, s3://, gs://, az:// or memory://")
    if parts.scheme in _CLOUD and not parts.netloc:
        raise ConfigError(f"cannot use the store {parts.scheme}://: expected {parts.scheme}://bucket/folder")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise ConfigError(f"cannot use the store {url}: write an absolute path, file:///path")
    if parts.scheme == "file" and "\0" in unquote(parts.path):
        raise ConfigError(f"cannot use the store {url}: a path has no NUL in it")
    return parts


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Fatal(f"{name!r} is not the name of an object")
    return name


def _objects(names: Iterable[str]) -> list[str]:
    """Those of what a store holds that can be asked for: the backups in somebody's hidden folder, say, cannot."""
    return sorted(filter(_NAME.fullmatch, names))


def _expect_same(name: str, found: bytes, data: bytes) -> None:
    if found != data:
        raise AlreadyExists(f"{name} exists with other content; it was left as it is")


class FileStore:
    """Objects are files below `root`, durable once `create` has returned.

    A file is written and synced under a temporary name, then appears under its own by `link`: it is never seen half
    written and never replaced. Its folder is synced after that, and so are the folders above. Needs hard links.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tmp = root / ".tmp"
        self._durable: set[Path] = set()
        self._remove_stale()

    def create(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with _translated_os("write", path):
            try:
                self._make_folder(self._tmp)
                self._make_folder(path.parent)
                self._publish(path, data)
            except FileNotFoundError:
                # Somebody removed a folder that this store had made: make it again at the next try.
                self._durable.clear()
                raise Transient(f"cannot write {path}: its folder cannot be made, or was removed meanwhile") from None

    def read(self, name: str) -> bytes:
        path = self._path(name)
        with _translated_os("read", path):
            return path.read_bytes()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        path = self._path(name)
        with _translated_os("read", path), path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def list(self, prefix: str) -> list[str]:
        top = self._path(prefix) if prefix else self._root
        with _translated_os("list", top):
            return _objects(path.relative_to(self._root).as_posix() for path in _files(top))

    def delete(self, *names: str) -> None:
        paths = [self._path(name) for name in names]
        for path in paths:
            with _translated_os("delete", path), suppress(*_ABSENT):
                path.unlink()
        for folder in {path.parent for path in paths}:
            with _translated_os("delete from", folder), suppress(*_ABSENT):
                _sync_folder(folder)

    def _path(self, name: str) -> Path:
        return self._root / _checked(name)

    def _publish(self, path: Path, data: bytes) -> None:
        tmp = self._tmp / uuid.uuid4().hex
        try:
            with tmp.open("xb") as file:
                # The lock says that the writer is alive: `_remove_stale` of another process leaves this file alone.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                try:
                    os.link(tmp, path)
                except FileExistsError:
                    _expect_same(str(path), path.read_bytes(), data)
            # Also where the file was there already: its writer may have died before this sync.
            _sync_folder(path.parent)
        finally:
            tmp.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Make `folder` durable, also if it exists: whoever made it may have died before its own sync."""
        if folder in self._durable or folder == folder.parent:
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        try:
            _sync_folder(folder.parent)
        except PermissionError:
            # Folders above the root may be closed to us; then they were not made by us either.
            if folder.is_relative_to(self._root) and folder != self._root:
                raise
        self._durable.add(folder)

    def _remove_stale(self) -> None:
        """Remove what writers left that were killed in the middle of a create."""
        stale = list[Path]()
        # Where there is no folder, or none that we may look into, the next call tells what is wrong with it.
        with suppress(OSError):
            stale += self._tmp.iterdir()
        for tmp in stale:
            # A file that is being written is locked, and one we may not open belongs to another user.
            with suppress(OSError), tmp.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                tmp.unlink()


def _files(top: Path) -> Iterator[Path]:
    def stop(error: OSError) -> None:
        # A folder that cannot be read must not look like an empty one: the checkpoints in it would be forgotten.
        if not isinstance(error, _ABSENT):
            raise error

    for folder, folders, files in os.walk(top, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if not name.startswith("."))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_FULL = {errno.ENOSPC, errno.EDQUOT}
_MAY_PASS = {
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EMFILE,
    errno.ENFILE,
    errno.EAGAIN,
}


@contextmanager
def _translated_os(verb: str, path: Path) -> Iterator[None]:
    try:
        yield
    except _ABSENT as error:
        raise NotFound(f"cannot {verb} {path}: {error.strerror}") from None
    except OSError as error:
        kind = NoRoom if error.errno in _FULL else Transient if error.errno in _MAY_PASS else Denied
        raise kind(f"cannot {verb} {path}: {error.strerror}") from error


class ObstoreStore:
    """A store that obstore reaches. `url` only serves to name it in messages."""

    def __init__(self, url: str, backend: Backend) -> None:
        self._url = url.rstrip("/")
        self._backend = backend

    def create(self, name: str, data: bytes) -> None:
        with self._translated("write", name):
            try:
                obstore.put(self._backend, _checked(name), data, mode="create")
                return
            except FileNotFoundError:
                raise Denied(f"cannot write {self._url}/{name}: the bucket does not exist") from None
            except (AlreadyExistsError, PreconditionError):
                # This may be our own write: obstore retries a put whose answer was lost. So the content decides.
                pass
        try:
            found = self.read(name)
        except NotFound:
            raise Transient(f"cannot write {self._url}/{name}: another write of it is in flight") from None
        _expect_same(f"{self._url}/{name}", found, data)

    def read(self, name: str) -> bytes:
        with self._translated("read", name):
            return bytes(obstore.get(self._backend, _checked(name)).bytes())

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with self._translated("read", name):
            try:
                return bytes(obstore.get_range(self._backend, _checked(name), start=start, length=length))
            except GenericError as error:
                if _PAST_END.search(str(error)):
                    return b""
                raise

    def list(self, prefix: str) -> list[str]:
        folder = _checked(prefix) if prefix else None
        with self._translated("list", prefix):
            return _objects(found["path"] for page in obstore.list(self._backend, folder) for found in page)

    def delete(self, *names: str) -> None:
        with self._translated("delete", ", ".join(names[:1]) + " ..." * (len(names) > 1)):
            try:
                obstore.delete(self._backend, [_checked(name) for name in names])
                return
            except FileNotFoundError:
                # Not all stores take that for done, and then what comes after it may still be there.
                pass
            for name in names:
                with suppress(FileNotFoundError):
                    obstore.delete(self._backend, name)

    @contextmanager
    def _translated(self, verb: str, name: str) -> Iterator[None]:
        # `from None`: the original error spells out the request, which may carry a signature or a token.
        try:
            yield
        except FileNotFoundError as error:
            raise NotFound(f"cannot {verb} {self._url}/{name}: {_reason(error)}") from None
        except (BaseError, OSError, ValueError) as error:
            kind = NoRoom if _is_full(error) else Transient if _may_pass(error) else Denied
            raise kind(f"cannot {verb} {self._url}/{name}: {_reason(error)}") from None


# obstore tells the causes of a GenericError apart in its text only.
_STATUS = re.compile(r"status code: (\d{3})([ \w-]*)")
_ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_ANSWER = re.compile(r"HttpError \{\s*kind: (\w+)")
_PAST_END = re.compile(r"status code: 416|range starting at \d+, but object was only")


def _may_pass(error: Exception) -> bool:
    # To anything but a create a 409 says that another request is in the way; a listing has no error of its own for it.
    if isinstance(error, AlreadyExistsError):
        return True
    if not isinstance(error, GenericError | JoinError | OSError):
        return False
    status = _STATUS.search(str(error))
    return status is None or int(status[1]) >= 500 or status[1] in ("408", "409", "429")


def _is_full(error: Exception) -> bool:
    """Whether a server that keeps a bucket on disks of its own has no room on them."""
    status = _STATUS.search(str(error))
    return status is not None and status[1] == "507"


def _reason(error: Exception) -> str:
    """What went wrong, in the server's words where it answered; no addresses, since those may be signed."""
    text = str(error)
    if status := _STATUS.search(text):
        code = _ERROR_CODE.search(text)
        return f"the server answered {status[1]}{status[2]}" + (f" ({code[1]})" if code else "")
    if no_answer := _NO_ANSWER.search(text):
        return f"no answer from the server ({no_answer[1].lower()})"
    first_line = text.partition("\n")[0]
    return re.sub(r"\S+://\S+", "...", first_line)
