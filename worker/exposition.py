"""Adapter: the metrics in the exposition formats of Prometheus, the HTTP server that shows them, and a reader."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from socket import AF_INET, AF_INET6
from socketserver import ThreadingTCPServer
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from worker.config import Address
from worker.errors import ConfigError
from worker.metrics import AnyFamily, Counter, Gauge, Histogram, Metrics, Summary


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


class _Handler(MetricsHandler):
    timeout = 10  # a connection that says nothing must not hold a thread for ever

    def do_GET(self) -> None:  # noqa: N802
        match self.path.partition("?")[0]:
            case "/metrics":
                super().do_GET()
            case "/live":
                trouble = self._trouble()
                self._say(200 if trouble is None else 503, "alive\n" if trouble is None else f"{trouble}\n")
            case "/":
                self._say(200, "amf-worker: the metrics are at /metrics, whether it is alive is at /live\n")
            case _:
                self._say(404, "Not found: there are /metrics and /live\n")

    def _trouble(self) -> str | None:
        assert isinstance(self.server, _Server)
        return self.server.trouble()

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingTCPServer):
    # Not http.server.HTTPServer, which asks the name service for the name of the machine and may wait for it.
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, collector: Collector, trouble: Callable[[], str | None]) -> None:
        self.trouble = trouble
        self.address_family = AF_INET6 if ":" in host else AF_INET
        registry = CollectorRegistry()
        registry.register(collector)
        super().__init__((host, port), _Handler.factory(registry))

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that went away is no error of ours, and scanners do so all day.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class MetricsServer:
    """The HTTP server of the metrics, in a thread of its own until `close`."""

    def __init__(self, server: ThreadingTCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on, also where any free one was asked for."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening. Once this returns the port is free; a second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(metrics: Metrics, host: str, port: int, trouble: Callable[[], str | None] = lambda: None) -> MetricsServer:
    """Serve the metrics over HTTP at /metrics; port 0 takes any free one. Raises ConfigError if it cannot listen.

    `trouble` says why the process is not alive, None where it is: what /live answers, with status 503 or 200.
    """
    try:
        return MetricsServer(_Server(host, port, _MetricsCollector(metrics), trouble))
    except OSError as error:
        raise ConfigError(
            f"metrics.listen: cannot listen on {Address(host, port)} ({error.strerror}): "
            "end the process that has the port, or give another address; port 0 takes any free one"
        ) from error
