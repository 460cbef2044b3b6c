"""A small Schema Registry, as far as a worker needs one, that can fail in all the ways in which a real one does."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

TYPE = "application/vnd.schemaregistry.v1+json"


class StubRegistry:
    """Serves on a free port of the loopback while the context lasts.

    `fault` is how it fails: None, `down` (connections are closed without an answer), `silent` (no answer before
    `release`), `endless` and `drop by drop` (much and little at a time, until then), `headers drop by drop`,
    `compressed` (unasked), `page` (a page of some proxy), or a status such as 503.
    """

    def __init__(self, user_info: str | None = None) -> None:
        self.fault: str | int | None = None
        self.asked: Counter[str] = Counter()
        self.subjects: dict[str, list[int]] = {}
        self.refuses_schemas = False
        self.withheld: set[int] = set()
        """Ids of schemas that are not registered yet, as far as anybody can see."""
        self.knows_guids = True
        self._user_info = user_info
        self._released = threading.Event()
        self._schemas: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def add(self, subject: str, schema: str, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema; returns its id, the same for the same schema."""
        entry = {"schema": schema, "schemaType": kind, **more}
        with self._lock:
            if entry not in self._schemas:
                self._schemas.append(entry)
            number = self._schemas.index(entry) + 1
            if number not in self.subjects.setdefault(subject, []):
                self.subjects[subject].append(number)
        return number

    def guid(self, number: int) -> str:
        return f"00000000-0000-0000-0000-{number:012x}"

    def schema(self, number: int) -> dict[str, Any]:
        return self._schemas[number - 1]

    def release(self) -> None:
        """Have silent calls end."""
        self._released.set()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of the answer to a request."""
        match method, path.partition("?")[0].strip("/").split("/"):
            case "GET", ["schemas", "types"]:
                return 200, ["JSON", "AVRO"]
            case "GET", ["schemas", "ids", number] if (
                int(number) - 1 in range(len(self._schemas)) and int(number) not in self.withheld
            ):
                return 200, self.schema(int(number))
            case "GET", ["schemas", "guids", guid] if guid in map(self.guid, range(1, len(self._schemas) + 1)):
                return 200, self.schema(int(guid[-12:], 16))
            # An id that is no number of 32 bits and a kind of id that it does not know are no resources of its.
            case "GET", ["schemas", "ids", number] if int(number) >= 2**31:
                pass
            case "GET", ["schemas", "guids", _] if not self.knows_guids:
                pass
            case "GET", ["schemas", "ids" | "guids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "POST", ["subjects", _, "versions"] if self.refuses_schemas:
                return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))}
            case "POST", ["subjects", subject]:
                for number in self.subjects.get(subject, []):
                    if self.schema(number)["schema"] == body["schema"]:
                        return 200, {"subject": subject, "id": number, "version": 1, "schema": body["schema"]}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def _serve(self, method: str) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                registry.asked[f"{method} {self.path.partition('?')[0]}"] += 1
                fault = registry.fault
                if fault == "down":
                    return
                if fault == "silent":
                    registry._released.wait()
                    return
                if fault in ("endless", "drop by drop"):
                    self._send_on_and_on(b"x" * 2**20 if fault == "endless" else b" ")
                elif fault == "headers drop by drop":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Padding: ")
                    self._drip(b" ")
                elif fault == "compressed":
                    self._send(200, TYPE, gzip.compress(b" " * 2**20), "gzip")
                elif fault == "page":
                    self._send(200, "text/html", b"<html>log in, please</html>")
                elif fault == "empty":
                    self._send(200, TYPE, b"{}")
                elif isinstance(fault, int):
                    self._send(fault, "text/html", b"<html>out of order</html>")
                elif registry._user_info is not None and self.headers.get("Authorization") != registry._authorization:
                    self._send(401, TYPE, b'{"error_code": 401, "message": "Unauthorized"}')
                else:
                    status, answer = registry.answer(method, self.path, body)
                    self._send(status, TYPE, json.dumps(answer).encode())

            def _send_on_and_on(self, piece: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", TYPE)
                self.end_headers()
                self._drip(piece)

            def _drip(self, piece: bytes) -> None:
                with suppress(OSError):
                    while not registry._released.wait(0.02):
                        self.wfile.write(piece)

            def _send(self, status: int, kind: str, body: bytes, encoding: str = "identity") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Encoding", encoding)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler

    @property
    def _authorization(self) -> str:
        return f"Basic {base64.b64encode((self._user_info or '').encode()).decode()}"
