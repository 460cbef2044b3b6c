"""What is answered on which path. Nothing is computed from the worker's state here: that is the loop's, see Board."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote_to_bytes

import msgspec

from worker.adapters.http.exposition import exposition
from worker.adapters.http.messages import Request, Response
from worker.adapters.http.server import CpuBudget
from worker.base.metrics import Metrics
from worker.base.status import Board, Busy, ModelDetail, ModelPage, OneModel, PageOfModels, Point, Question, short

ANSWER_S = 3.0
"""Longest wait for the loop to answer a question."""
FRESH_S = 2.0
"""Time for which an answer is given again."""
MOST_ANSWERS = 64
"""Answers that are kept for that."""
MOST_CURVES = 8
"""Models that have a curve."""
DEFAULT_LIMIT, MOST_LIMIT = 50, 200
"""Models of one answer."""
_MOST_NUMBER = 1_000_000_000
_LATER = {"Retry-After": "1"}
T = TypeVar("T")
_JSON = "application/json"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_FOLDER = files("worker.adapters.http").joinpath("page")
_PAGE = {
    f"/{file.name.removesuffix('index.html')}": Response(
        200, file.read_bytes(), f"{_TYPES[file.name.rpartition('.')[2]]}; charset=utf-8", _HEADERS
    )
    for file in _FOLDER.iterdir()
}
"""The page, which is the same for everybody and tells nothing: path -> response."""


class _Refused(Exception):
    """There is no answer but this sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers


class Routes:
    """Answers requests. All calls come from the thread of the server."""

    def __init__(
        self,
        metrics: Metrics,
        board: Board,
        trouble: Callable[[], str | None],
        token: str | None,
        *,
        is_local: bool,
    ) -> None:
        """`is_local` says that only this machine can connect."""
        self._exposition = exposition(metrics)
        self._board = board
        self._trouble = trouble
        self._token = token
        self._is_local = is_local
        self._budget = CpuBudget()
        self._answers: OrderedDict[Question, tuple[float, asyncio.Future[Any]]] = OrderedDict()
        self._encoded: dict[str, tuple[object, Response]] = {}

    async def __call__(self, request: Request) -> Response:
        try:
            response = await self._answer(request)
        except _Refused as refused:
            response = Response(refused.status, msgspec.json.encode({"error": str(refused)}), _JSON, refused.headers)
        return replace(response, headers={**_HEADERS, **response.headers})

    async def _answer(self, request: Request) -> Response:
        match request.path:
            # These come first: whoever floods the server must not have the worker taken for dead.
            case "/live":
                return _said(self._trouble(), "alive")
            case "/ready":
                return _said(self._trouble() or self._board.status.unready, "ready")
        if self._budget.is_spent:
            raise _Refused(503, "too many requests, which take the worker's CPU", _LATER)
        if self._is_local and not _is_this_machine(request.headers.get("host", "localhost")):
            # A page of the web that has its own name resolved to this machine could read all of it otherwise.
            raise _Refused(421, "metrics.listen is for this machine alone: ask for localhost, or for its address")
        if request.path in _PAGE:
            return _PAGE[request.path]
        if not self._is_allowed(request):
            raise _Refused(401, "expected the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        return await self._figures(request)

    def _is_allowed(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if self._token is None:
            return True
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token.encode())

    async def _figures(self, request: Request) -> Response:
        match request.path:
            case "/metrics":
                return await self._exposition(request)
            case "/status":
                return self._once("/status", self._board.status, lambda status: status)
            case "/history":
                return self._once("/history", self._board.history, self._curves)
            case "/models":
                query = _query(request)
                # The same as /models/KEY, for keys such as `..` that browsers take for another path.
                return await (self._model(query["key"], query) if "key" in query else self._models(query))
        if request.path.startswith("/models/"):
            return await self._model(_unescaped(request.path.removeprefix("/models/")), _query(request))
        raise _Refused(404, "not found: there are /, /metrics, /live, /ready, /status, /history, /models, /models/KEY")

    def _once(self, path: str, source: T, shown: Callable[[T], object]) -> Response:
        """What is shown of a value that never changes, encoded when it is first asked for."""
        known = self._encoded.get(path)
        if known is None or known[0] is not source:
            known = self._encoded[path] = source, _json(shown(source))
        return known[1]

    def _curves(self, points: Sequence[Point]) -> dict[str, object]:
        """The points as columns, which are far shorter."""
        names = [each for each in Point.__struct_fields__ if each != "losses"]
        shown = [row.key for row in self._board.status.leaders if row.loss is not None][:MOST_CURVES]
        gap = (None, None)
        losses = {key: list(zip(*(each.losses.get(key, gap) for each in points), strict=True)) for key in shown}
        models = [{"key": key, "loss": of[0], "baseline": of[1]} for key, of in losses.items() if of]
        return {name: [getattr(each, name) for each in points] for name in names} | {"models": models}

    async def _models(self, query: Mapping[str, str]) -> Response:
        limit = _number(query, "limit", 1, MOST_LIMIT, DEFAULT_LIMIT)
        offset = _number(query, "offset", 0, _MOST_NUMBER, 0)
        page: ModelPage = await self._asked(PageOfModels(offset, limit))
        more = f"models?offset={offset + limit}&limit={limit}" if offset + limit < page.total else None
        return _json({"total": page.total, "offset": offset, "next": more, "models": page.models})

    async def _model(self, key: str, query: Mapping[str, str]) -> Response:
        partition = _number(query, "partition", 0, _MOST_NUMBER, -1)
        model: ModelDetail | None = await self._asked(OneModel(key, None if partition < 0 else partition))
        if model is None:
            where = "the partitions of this worker" if partition < 0 else f"partition {partition} of this worker"
            raise _Refused(404, f"no model has the key {short(key, 60)!r} in {where}")
        return _json(model)

    async def _asked(self, question: Question) -> Any:
        """The loop's answer. Who asks the same soon gets the same."""
        loop = asyncio.get_running_loop()
        known = self._answers.get(question)
        if known is None or (known[1].done() and known[0] < loop.time()):
            try:
                known = loop.time() + FRESH_S, asyncio.wrap_future(self._board.ask(question))
            except Busy:
                raise _Refused(503, "the loop has questions enough; come again later", _LATER) from None
            self._answers[question] = known
            if len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(known[1])
        except TimeoutError:
            why = f"the loop has not answered within {ANSWER_S:g} s: it has not begun, or is busy"
            raise _Refused(503, why, _LATER) from None


def _said(trouble: str | None, well: str) -> Response:
    """What a probe is told: whether all is well is the status, the text is for people."""
    return Response(200 if trouble is None else 503, f"{well if trouble is None else trouble}\n".encode())


def _json(value: object) -> Response:
    return Response(200, msgspec.json.encode(value), _JSON)


def _query(request: Request) -> dict[str, str]:
    """The parameters of a query, the last one of a name. Raises _Refused."""
    try:
        query = request.query.encode("latin-1").decode()
        found = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=10)
    except ValueError:
        raise _Refused(400, "expected a query of few parameters in UTF-8 with % escapes") from None
    return {name: values[-1] for name, values in found.items()}


def _unescaped(text: str) -> str:
    """A part of a path without its percent signs. Raises _Refused."""
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise _Refused(404, "no model has this key: expected UTF-8 with % escapes") from None


def _number(query: Mapping[str, str], name: str, low: int, high: int, default: int) -> int:
    """A whole number of a query. Raises _Refused."""
    given = query.get(name)
    if given is None:
        return default
    if not re.fullmatch(r"[0-9]{1,12}", given) or not low <= int(given) <= high:
        raise _Refused(400, f"{name}: expected an integer between {low} and {high}, found {short(given, 40)!r}")
    return int(given)


def _is_this_machine(host: str) -> bool:
    """Whether the name in a header Host is an address, or that of the machine itself."""
    name = re.sub(r":[0-9]*\Z", "", host).strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True
