"""Stores for tests: one in memory without any library, one that fails on purpose, and a small S3 server."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from worker.base.errors import AlreadyExists, NotFound, Transient
from worker.base.ports import ObjectStore


class DictStore:
    """Objects in a dict, open to tests that want to damage them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> None:
        if self.objects.setdefault(name, data) != data:
            raise AlreadyExists(name)

    def read(self, name: str) -> bytes:
        if name not in self.objects:
            raise NotFound(name)
        return self.objects[name]

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self.read(name)[start : start + length]

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self.objects if not prefix or name.startswith(f"{prefix}/"))

    def delete(self, *names: str) -> None:
        for name in names:
            self.objects.pop(name, None)


class Fault(Enum):
    """What a failing call leaves behind."""

    BEFORE = "nothing happened"
    AFTER = "it happened, the answer was lost"


class PassingStore(ABC):
    """Passes calls on to a store, names to be deleted one by one; `_call` says what happens on the way."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def create(self, name: str, data: bytes) -> None:
        self._call(self.inner.create, name, data)

    def read(self, name: str) -> bytes:
        return self._call(self.inner.read, name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._call(self.inner.read_range, name, start, length)

    def list(self, prefix: str) -> list[str]:
        return self._call(self.inner.list, prefix)

    def delete(self, *names: str) -> None:
        for name in names:
            self._call(self.inner.delete, name)

    @abstractmethod
    def _call(self, method: Callable[..., Any], name: str, *arguments: Any) -> Any: ...


class FaultyStore(PassingStore):
    """The calls numbered in `faults` (from 0) raise Transient."""

    def __init__(self, inner: ObjectStore, faults: Mapping[int, Fault]) -> None:
        super().__init__(inner)
        self.faults = faults
        self.log: list[tuple[str, str]] = []
        """Method and name of each call."""

    def _call(self, method: Callable[..., Any], name: str, *arguments: Any) -> Any:
        fault = self.faults.get(len(self.log))
        self.log.append((method.__name__, name))
        if fault is Fault.BEFORE:
            raise Transient("injected before the call")
        answer = method(name, *arguments)
        if fault is Fault.AFTER:
            raise Transient("injected after the call")
        return answer


class S3Stub(ThreadingHTTPServer):
    """As much of S3 as the object store client speaks to one bucket, without authentication.

    `scripted` holds statuses for the next requests, one each: the request is carried out, then its answer is replaced
    by that status. 0 stands for an answer that never comes, -1 for one that breaks off in its body.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _S3Handler)
        self.objects: dict[str, bytes] = {}
        self.scripted: list[int] = []
        self.requests: list[str] = []
        self.lock = threading.Lock()
        self.closing = threading.Event()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point S3 clients here."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ACCESS_KEY_ID": "the-access-key",
            "AWS_SECRET_ACCESS_KEY": "the-secret-key",
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def s3_stub() -> Iterator[S3Stub]:
    with S3Stub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


class _S3Handler(BaseHTTPRequestHandler):
    server: S3Stub
    protocol_version = "HTTP/1.1"
    # The answer leaves in one packet; otherwise each waits for the client's delayed acknowledgement.
    wbufsize = -1
    stamps: ClassVar[dict[str, str]] = {"ETag": '"1"', "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT"}

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        with self.server.lock:
            if "list-type" in query:
                self._answer(200, self._listing(query.get("prefix", [""])[0]))
            elif self._key() not in self.server.objects:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            else:
                self._get(self.server.objects[self._key()])

    def do_PUT(self) -> None:
        data = self._body()
        with self.server.lock:
            if self.headers.get("If-None-Match") == "*" and self._key() in self.server.objects:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            else:
                self.server.objects[self._key()] = data
                self._answer(200, b"", self.stamps)

    def do_POST(self) -> None:
        keys = [part.partition(b"</Key>")[0].decode() for part in self._body().split(b"<Key>")[1:]]
        with self.server.lock:
            for key in keys:
                self.server.objects.pop(key, None)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def log_message(self, *_: Any) -> None:
        pass

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket/")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _get(self, data: bytes) -> None:
        if "Range" not in self.headers:
            self._answer(200, data, self.stamps)
            return
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        if part:
            span = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
            self._answer(206, part, {**self.stamps, "Content-Range": span})
        else:
            self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")

    def _listing(self, prefix: str) -> bytes:
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-21T12:00:00.000Z</LastModified>"
            f"<ETag>1</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in self.server.objects.items()
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.server.requests.append(self.command)
        scripted = self.server.scripted.pop(0) if self.server.scripted else status
        if scripted == 0:
            self.server.lock.release()
            self.server.closing.wait()
            self.server.lock.acquire()
            return
        if scripted > 0 and scripted != status:
            status, body, headers = scripted, b"<Error><Code>Scripted</Code></Error>", {}
        self.send_response(status)
        for header, value in (headers or {}).items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if scripted == -1 else body)
        self.wfile.flush()
        self.close_connection = scripted == -1
