"""The metrics in the exposition formats of Prometheus, and a reader."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, make_asgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from worker.adapters.http.messages import Request, Response
from worker.base.families import AnyFamily, Counter, Gauge, Histogram, Summary
from worker.base.metrics import Metrics

_NO_GZIP = re.compile(r"\bgzip\s*;\s*q=0(\.0*)?\s*(,|\Z)", re.IGNORECASE)
"""What the library takes for the wish to have it."""


def parse(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Read a page of metrics: name of the sample -> label values -> value. Raises ValueError if it is none.

    The values of the labels come in the order of the labels' names, so a series without labels is at `()`. Sums, counts
    and buckets have names of their own: `amf_log_loss_sum`.
    """
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def _exposed(name: str, family: AnyFamily) -> Metric:
    """The series of a family, as of now, in the types of prometheus_client."""
    match family:
        case Gauge():
            gauge = GaugeMetricFamily(name, family.sentence, labels=family.labels)
            for labels, value in family.series().items():
                gauge.add_metric(_texts(labels), value)
            return gauge
        case Counter():
            counter = CounterMetricFamily(name, family.sentence, labels=family.labels)
            for labels, value in family.series().items():
                counter.add_metric(_texts(labels), value)
            return counter
        case Summary():
            summary = SummaryMetricFamily(name, family.sentence, labels=family.labels)
            for labels, (total, count) in family.series().items():
                summary.add_metric(_texts(labels), count_value=count, sum_value=total)
            return summary
        case Histogram():
            histogram = HistogramMetricFamily(name, family.sentence, labels=family.labels)
            bounds = [*map(floatToGoString, family.buckets), "+Inf"]
            for labels, (counts, total) in family.series().items():
                buckets = list(zip(bounds, counts.cumsum().tolist(), strict=True))
                histogram.add_metric(_texts(labels), buckets, sum_value=total)
            return histogram


def _texts(labels: Iterable[object]) -> list[str]:
    # Half a surrogate pair in a model key has no UTF-8 and would fail the whole scrape.
    return [str(label).encode("utf-8", "backslashreplace").decode() for label in labels]


class _MetricsCollector(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        started = time.perf_counter()
        duration = self._metrics.scrape_duration_seconds  # the last row of the table
        for name, family in self._metrics.families().items():
            if family is duration:
                duration.set(time.perf_counter() - started)
            yield _exposed(name, family)


def exposition(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    """What answers a scrape, in the format and the compression that it asks for."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)  # memory, CPU time and open files, under the names that every client uses
    registry.register(_MetricsCollector(metrics))
    app = make_asgi_app(registry)

    async def scraped(request: Request) -> Response:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, str]:
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        accept, encodings = (request.headers.get(name, "") for name in ("accept", "accept-encoding"))
        headers = [
            (b"accept", (accept if _is_understood(accept) else "").encode()),
            (b"accept-encoding", _NO_GZIP.sub("", encodings).encode()),
        ]
        # Without the query: of the families that it may name the library finds none, as they are not declared to it.
        await app({"type": "http", "headers": headers, "query_string": b""}, receive, send)
        start, body = sent
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        return Response(start["status"], body["body"], told.pop("Content-Type"), told)

    return scraped


def _is_understood(accept: str) -> bool:
    """Whether the library, which fails at a version that is none, can tell which format is asked for."""
    try:
        choose_encoder(accept)
    except (TypeError, ValueError):
        return False
    return True
