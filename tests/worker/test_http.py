"""The metrics as a scraper sees them: everything goes through the HTTP server and the client library's own parser."""

from __future__ import annotations

import errno
import gzip
import math
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.availability import give_up
from tests.waiting import until
from tests.worker.support.observations import fill
from tests.worker.support.promtool import complaints
from worker.adapters.http import parse, serve
from worker.base.errors import ConfigError
from worker.base.metrics import Metrics
from worker.base.series import ByModel
from worker.base.terms import State

Get = Callable[..., str]
HOST = "127.0.0.1"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def get(metrics: Metrics) -> Iterator[Get]:
    """Ask the server of `metrics` for a path."""
    server = serve(metrics, HOST, 0)

    def ask(path: str = "/metrics", **headers: str) -> str:
        request = urllib.request.Request(f"http://{HOST}:{server.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    yield ask
    server.close()


def samples(exposition: str) -> dict[tuple[str, ...], float]:
    """(name, label value, ...) -> value, the label values in the order of their names."""
    found = {}
    for family in parse_text(exposition):
        for sample in family.samples:
            row = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert row not in found, "a series is there twice"
            found[row] = sample.value
    return found


# The exposition


def test_every_family_is_exposed_as_declared(metrics: Metrics, get: Get) -> None:
    fill(metrics)
    declared = {name.removesuffix("_total"): family.kind for name, family in metrics.families().items()}
    assert {family.name: family.type for family in _ours(parse_text(get()))} == declared
    openmetrics = parse_openmetrics(get(Accept="application/openmetrics-text; version=1.0.0"))
    assert {family.name: family.type for family in _ours(openmetrics)} == declared


@pytest.mark.parametrize("version", ["abc", "", "1", "1..0", "-1.0.0", "²"])
def test_who_asks_for_what_nobody_knows_gets_what_everybody_reads(metrics: Metrics, get: Get, version: str) -> None:
    fill(metrics)
    asked = get(Accept=f"application/openmetrics-text;version={version}, text/plain;version={version}")
    assert "amf_events_total" in asked


@pytest.mark.parametrize(
    ("encodings", "is_compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0.01, br;q=0", True),
        ("gzip;q=0", False),
        ("identity;q=1, GZIP ; q=0.00", False),
        ("gzip; q=0, br", False),
        ("deflate", False),
        ("", False),
    ],
)
def test_a_scrape_is_compressed_for_those_who_want_it(metrics: Metrics, encodings: str, is_compressed: bool) -> None:
    with closing(serve(metrics, HOST, 0)) as server:
        request = urllib.request.Request(f"http://{HOST}:{server.port}/metrics", headers={"Accept-Encoding": encodings})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.headers["Content-Encoding"] == ("gzip" if is_compressed else None)
            body = answer.read()
    assert b"amf_events_total" in (gzip.decompress(body) if is_compressed else body)


def test_a_scrape_has_all_metrics_whatever_it_names(get: Get) -> None:
    """Libraries of clients know `name[]`; that of Python showed none at all."""
    assert samples(get("/metrics?name[]=amf_events_total")).keys() == samples(get()).keys()


def _ours(families: Iterable[Metric]) -> list[Metric]:
    return [family for family in families if family.samples and family.name.startswith("amf_")]


def test_the_process_is_there_under_the_names_that_every_client_uses(get: Get) -> None:
    found = samples(get())
    assert 1e7 < found["process_resident_memory_bytes",] < 1e11
    assert found["process_cpu_seconds_total",] > 0
    assert found["process_open_fds",] > 3


@pytest.mark.full
def test_promtool_finds_nothing_to_complain_about(metrics: Metrics, get: Get) -> None:
    fill(metrics)
    assert complaints(get()) == ""
    assert "non-histogram and non-summary metrics should not have" in complaints("# TYPE a_count gauge\na_count 1\n")


def test_what_is_known_beforehand_starts_at_zero(get: Get) -> None:
    found = samples(get())
    assert found["amf_events_total",] == 0
    assert found["amf_log_loss_count",] == found["amf_log_loss_sum",] == 0
    assert found["amf_tree_depth_bucket", "+Inf"] == found["amf_tree_depth_count",] == 0
    assert {row for row in found if row[0] == "amf_transactions_total"} == {
        ("amf_transactions_total", outcome) for outcome in ("committed", "aborted", "unknown")
    }
    # No gauge claims anything yet, but the one that measures the scrape itself.
    assert {row[0] for row in found if re.match(r"amf_(?!.*_(total|sum|count|bucket)$)", row[0])} == {
        "amf_scrape_duration_seconds"
    }


def test_figures_are_the_sums_of_all_batches(metrics: Metrics, get: Get) -> None:
    rng = np.random.default_rng(7)
    batches = [rng.integers(1, 1000, rng.integers(0, 50)) / 8 for _ in range(20)]  # eighths: exact sums
    for batch in batches:
        metrics.events_total.add(len(batch))
        metrics.dead_letters_total.add(1, code="even" if len(batch) % 2 == 0 else "odd")
        metrics.weighted_depth.add(batch.sum(), len(batch))
        metrics.tree_depth.observe(batch)
        metrics.models.set(len(batch))
    found, everything = samples(get()), np.concatenate(batches)
    assert found["amf_events_total",] == len(everything)
    assert found["amf_dead_letters_total", "even"] == sum(len(batch) % 2 == 0 for batch in batches)
    assert found["amf_dead_letters_total", "odd"] == sum(len(batch) % 2 == 1 for batch in batches)
    assert found["amf_weighted_depth_sum",] == found["amf_tree_depth_sum",] == everything.sum()
    assert found["amf_weighted_depth_count",] == found["amf_tree_depth_count",] == len(everything)
    assert found["amf_models",] == len(batches[-1])
    buckets = {float(row[1]): value for row, value in found.items() if row[0] == "amf_tree_depth_bucket"}
    assert buckets == {bound: (everything <= bound).sum() for bound in (*metrics.tree_depth.buckets, math.inf)}


def test_a_bound_belongs_to_its_bucket(metrics: Metrics, get: Get) -> None:
    metrics.batch_records.observe([10, 30, 31, 1_000_000])
    metrics.batch_records.observe([])
    found = samples(get())
    bounds = ("3.0", "10.0", "30.0", "100.0", "30000.0", "+Inf")
    assert [found["amf_batch_records_bucket", bound] for bound in bounds] == [0, 1, 2, 3, 3, 4]


def test_a_scrape_tells_how_long_it_took(get: Get) -> None:
    assert 0 < samples(get())["amf_scrape_duration_seconds",] < 10


def test_a_model_key_is_any_text(metrics: Metrics, get: Get) -> None:
    keys = ['say "a"', "back\\slash", "two\nlines", "\\n", "{a='1',}", " ", "", "# HELP", "é\U0001f384\x00\r"]
    metrics.model_nodes.replace({ByModel(key): 1 for key in keys})
    assert {row[1] for row in samples(get()) if row[0] == "amf_model_nodes"} == set(keys)


def test_a_model_key_without_utf8_does_not_fail_the_scrape(metrics: Metrics, get: Get) -> None:
    metrics.model_nodes.replace({ByModel("\ud800"): 1, ByModel("\udc00"): 2})
    found = samples(get())
    assert found["amf_model_nodes", "\\ud800"] == 1
    assert found["amf_model_nodes", "\\udc00"] == 2


def test_scrapes_and_two_writers_at_once(metrics: Metrics, get: Get) -> None:
    enough = threading.Event()
    rounds = []

    def write(writer: str) -> None:
        i = 0
        while i < 1_000_000 and not enough.is_set():
            metrics.events_total.add(1)
            metrics.log_loss.add(0.5, 1)
            metrics.tree_depth.observe([0.5, 3.0])
            metrics.dead_letters_total.add(1, f"{writer}-{i % 500}")
            metrics.set_partition_states({0: "live" if i % 2 else "replay"})
            i += 1
        rounds.append(i)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    try:
        scrapes = [samples(get()) for _ in range(10)]
    finally:
        enough.set()
        for writer in writers:
            writer.join()
    scrapes.append(samples(get()))

    for found in scrapes:
        assert found["amf_log_loss_sum",] == 0.5 * found["amf_log_loss_count",]
        assert found["amf_tree_depth_sum",] == 1.75 * found["amf_tree_depth_count",]
        assert found["amf_tree_depth_bucket", "2.0"] * 2 == found["amf_tree_depth_bucket", "4.0"]
        states = [value for row, value in found.items() if row[0] == "amf_partition_state"]
        assert sorted(states) in ([], [0] * (len(State) - 1) + [1])
    assert [found["amf_events_total",] for found in scrapes] == sorted(found["amf_events_total",] for found in scrapes)
    assert scrapes[-1]["amf_events_total",] == scrapes[-1]["amf_log_loss_count",] == sum(rounds)
    assert sum(value for row, value in scrapes[-1].items() if row[0] == "amf_dead_letters_total") == sum(rounds)


# The reader


def test_the_reader_finds_what_was_counted(metrics: Metrics, get: Get) -> None:
    metrics.events_total.add(3)
    metrics.log_loss.add(1.5, 2)
    metrics.model_nodes.replace({ByModel("a\n"): 7, ByModel(""): 9})
    metrics.set_partition_states({12: "live"})
    page = get()
    found = parse(page)
    assert found["amf_events_total"] == {(): 3}
    assert found["amf_log_loss_sum"] == {(): 1.5}
    assert found["amf_log_loss_count"] == {(): 2}
    assert found["amf_model_nodes"] == {("a\n",): 7, ("",): 9}
    assert found["amf_partition_state"]["12", "live"] == 1
    assert {(name, *labels): value for name, row in found.items() for labels, value in row.items()} == samples(page)


def test_the_reader_orders_labels_by_their_names() -> None:
    assert parse('a{y="1",x="2"} 3\na{x="4",y="5"} +Inf\n') == {"a": {("2", "1"): 3, ("4", "5"): math.inf}}


@pytest.mark.parametrize("text", ["<html>hello</html>", "a{ 1", "a b"])
def test_what_is_no_page_of_metrics_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse(text)


# The server


def test_the_metrics_have_one_path(get: Get) -> None:
    assert "amf_events_total" in get("/metrics?whatever")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get("/metricss")


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://127.0.0.1:9464/metrics", "127.0.0.1:9464", 200),
        ("HTTP://localhost/metrics?x", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost?x", "localhost", 200),
        ("http://localhost/nowhere", "localhost", 404),
        ("http://evil.example/metrics", "localhost", 421),
        ("http://localhost@evil.example/metrics", "localhost", 421),
        ("http://localhost/metrics", "evil.example", 200),
        ("http:///metrics", "localhost", 400),
        ("ftp://localhost/metrics", "localhost", 400),
        ("*", "localhost", 400),
    ],
)
def test_a_request_may_have_the_whole_address_which_then_counts(
    metrics: Metrics, target: str, host: str, status: int
) -> None:
    """So ask those who take the worker for a proxy (RFC 9112, 3.2.2)."""
    with closing(serve(metrics, HOST, 0)) as server, socket.create_connection((HOST, server.port), 30) as connection:
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 %d " % status)


def test_who_listens_for_other_machines_has_any_name(metrics: Metrics) -> None:
    """As in a network of containers, where Prometheus asks for worker-0."""
    with closing(serve(metrics, "0.0.0.0", 0)) as server:
        named = urllib.request.Request(f"http://{HOST}:{server.port}/metrics", headers={"Host": "worker-0:9464"})
        with urllib.request.urlopen(named, timeout=10) as answer:
            assert answer.status == 200


def test_it_says_whether_the_process_is_alive(metrics: Metrics) -> None:
    trouble: str | None = None
    server = serve(metrics, HOST, 0, lambda: trouble)
    try:
        with urllib.request.urlopen(f"http://{HOST}:{server.port}/live", timeout=10) as answer:
            assert (answer.status, answer.read()) == (200, b"alive\n")
        trouble = "the loop has not moved"
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(f"http://{HOST}:{server.port}/live", timeout=10)
        assert refused.value.read() == b"the loop has not moved\n"
    finally:
        server.close()


def test_close_frees_the_port(metrics: Metrics) -> None:
    server = serve(metrics, HOST, 0)
    port = server.port
    server.close()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port), timeout=10)
    again = serve(metrics, HOST, port)
    assert again.port == port
    again.close()


def test_a_client_that_has_not_sent_its_request_is_no_trouble_at_the_end(
    metrics: Metrics, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server = serve(metrics, HOST, 0)
    with socket.create_connection((HOST, server.port), timeout=10) as client:
        client.sendall(b"GET /metr")
        until(lambda: server._reading)
        server.close()
        assert client.recv(1) == b""
    assert (caplog.records, capfd.readouterr().err) == ([], "")


def test_without_file_descriptors_it_says_so_once_a_second_at_most(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And answers again when there are some."""
    full = threading.Event()
    accept = socket.socket.accept

    def refuse(listener: socket.socket) -> object:
        if full.is_set():
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", refuse)
    server = serve(metrics, HOST, 0)
    full.set()
    url = f"http://{HOST}:{server.port}/live"
    waiting = [socket.create_connection((HOST, server.port), timeout=10) for _ in range(20)]
    until(lambda: caplog.records)
    time.sleep(0.3)
    record, *others = caplog.records.copy()
    assert all(later.created - earlier.created > 0.9 for earlier, later in pairwise([record, *others]))
    assert record.name == "worker.adapters.http.server"
    assert record.getMessage() == (
        "the server of metrics and page met OSError: socket.accept() out of system resource: [Errno 24] Too many open "
        "files. Let the process have more open files (ulimit -n, LimitNOFILE)"
    )
    full.clear()
    for client in waiting:
        client.close()
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == 200
    server.close()


def test_only_where_files_are_lacking_it_says_how_to_have_more(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: socket.socket) -> object:
        raise OSError(errno.ENOBUFS, "No buffer space available")

    monkeypatch.setattr(socket.socket, "accept", refuse)
    with closing(serve(metrics, HOST, 0)) as server, socket.create_connection((HOST, server.port), timeout=10):
        until(lambda: caplog.records)
    assert caplog.records[0].getMessage() == (
        "the server of metrics and page met OSError: socket.accept() out of system resource: [Errno 105] No buffer "
        "space available"
    )


def test_a_taken_port_is_a_mistake_in_the_configuration(metrics: Metrics) -> None:
    server = serve(metrics, HOST, 0)
    with pytest.raises(
        ConfigError, match=rf"metrics\.listen.* {HOST}:{server.port} .*in use.*port 0 takes any free one"
    ):
        serve(metrics, HOST, server.port)
    server.close()


def test_an_address_of_another_machine_is_one_too(metrics: Metrics) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listen.* 192\.0\.2\.1:9464 "):
        serve(metrics, "192.0.2.1", 9464)


def test_an_address_of_ipv6_is_served_and_taken_once(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        give_up("this machine has no IPv6")
    server = serve(metrics, "::1", 0)
    with urllib.request.urlopen(f"http://[::1]:{server.port}/metrics", timeout=10) as answer:
        assert answer.status == 200
    foreign = urllib.request.Request(f"http://[::1]:{server.port}/metrics", headers={"Host": "page.example"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(foreign, timeout=10)
    assert caplog.text == "", "it is of this machine alone, as is 127.0.0.1"
    with pytest.raises(ConfigError, match=rf"\[::1\]:{server.port} "):
        serve(metrics, "::1", server.port)
    server.close()


def test_a_machine_without_ipv6_has_a_mistake_in_the_configuration(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", refused)
    with pytest.raises(ConfigError, match=r"metrics\.listen.* \[::\]:9464 \(Address family not supported"):
        serve(metrics, "::", 9464)
