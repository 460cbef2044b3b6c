"""The demo: the whole of it once, shortened, in processes of its own; its parts one by one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from tests.availability import give_up
from tests.worker.support.fakes import config as defaults
from worker import config as configuration
from worker.adapters.http import serve
from worker.adapters.kafka import KafkaAdmin, start_mock_cluster
from worker.adapters.store import open_store
from worker.base.errors import ConfigError
from worker.base.metrics import Metrics
from worker.base.records import ClassScores, Figures, Record
from worker.checkpoint import describe
from worker.cli.dataset import Row
from worker.demo import demo, rows_of, watch
from worker.demo.events import Payments
from worker.demo.ledger import Ledger, uninterrupted
from worker.demo.screen import LiveScreen, ModelRow, PlainScreen, Screen, View
from worker.demo.stage import Generator

ROOT = Path(__file__).parents[2]


# --- the whole --------------------------------------------------------------------------------------------------------


@contextmanager
def running_demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`amf-worker demo` with a pipe for a terminal; what it leaves behind is in `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "worker", "demo", *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        # Not SIGKILL, which would leave the demo's own processes behind.
        process.terminate()
        process.communicate(timeout=30)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def worker_pids(told: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"amf-worker run .*\(process (\d+)\)", told)]


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if words in line:
            return told
    pytest.fail(f"the demo never said {words!r}, but:\n{told}")


def test_the_demo_survives_its_kill_without_losing_or_changing_a_prediction(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--seconds", "6", "--rate", "1000", "--models", "3") as process:
        told, _ = process.communicate(timeout=150)

    assert process.returncode == 0, told
    first, second = worker_pids(told)
    assert f"kill -9 {first}" in told
    assert f"worker {second} goes on where the other was" in told
    assert not is_alive(first)
    assert not is_alive(second)
    assert "\x1b" not in told

    due = re.search(r"([\d,]+) events are to be learned again", told)
    replayed = re.search(r"([\d,]+) events replayed in silence", told)
    assert due, told
    assert replayed, told
    assert due[1] == replayed[1] != "0"

    published = re.search(r"([\d,]+) events for 3 models, none without a prediction", told)
    assert published, told
    assert f"{published[1]} of {published[1]} predictions are equal, byte for byte" in told
    repeated = re.search(r"No prediction came twice|predictions came twice, none of them with other bytes", told)
    assert repeated, told

    # What the worker left behind says the same: every event was learned, and none twice.
    [folder] = tmp_path.glob("amf-demo-*")
    assert learned_samples(folder / "checkpoints") == int(published[1].replace(",", "")) > 1000


def learned_samples(checkpoints: Path) -> int:
    """Samples of all models in the newest checkpoint of each partition."""
    manifests = [listing.newest for listing in describe(open_store(checkpoints.as_uri())) if listing.newest]
    return sum(model.summary["samples"] for manifest in manifests for model in manifest.models.values())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_everything_and_leaves_nothing(number: int, code: int, tmp_path: Path) -> None:
    with running_demo(tmp_path) as process:
        [worker] = worker_pids(read_until(process, "amf-worker run"))
        process.send_signal(number)
        told, _ = process.communicate(timeout=30)

    assert process.returncode == code
    assert "Interrupted" in told
    assert not is_alive(worker)
    assert not list(tmp_path.iterdir())


def test_who_has_seen_enough_ends_everything_and_leaves_nothing(tmp_path: Path) -> None:
    with running_demo(tmp_path) as process:
        [worker] = worker_pids(read_until(process, "amf-worker run"))
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.wait(60) == 1

    assert not is_alive(worker)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_behind_stdout_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        give_up("there is no device that is always full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "worker", "demo"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (1, "amf-worker: stdout: cannot be written: No space left on device\n")
    assert not list(tmp_path.iterdir())


def test_a_worker_that_ends_by_itself_fails_the_demo_and_its_log_is_shown(tmp_path: Path) -> None:
    with running_demo(tmp_path) as process:
        [worker] = worker_pids(read_until(process, "is ready"))
        os.kill(worker, signal.SIGTERM)
        told, _ = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "the worker has ended by itself" in told
    [log] = tmp_path.glob("amf-demo-*/worker.log")
    assert f"The end of {log}" in told
    assert log.read_text().splitlines()[-1] in told


@pytest.mark.parametrize("options", [{"seconds": 1.0}, {"models": 100_000}])
def test_options_that_make_no_demo_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"--{next(iter(options))}: expected at"):
        demo(**{"seconds": 45.0, "models": 6, "rate": 2000.0, "file": None} | options)  # type: ignore[arg-type]


# --- events -----------------------------------------------------------------------------------------------------------


def test_payments_are_the_same_each_time_and_reach_every_model() -> None:
    payments = Payments(8)
    rows = list(islice(payments, 3000))

    assert rows == list(islice(payments, 3000))
    assert [row.number for row in rows] == list(range(3000))
    assert len({row.key for row in rows}) == 8
    assert {tuple(row.features) for row in rows} == {("amount", "hour", "card_days", "distance_km", "attempts")}
    assert any(row.features["distance_km"] is None for row in rows)


def test_the_last_column_of_a_csv_is_the_label(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,b,outcome\n1,2,yes\n3,,no\n")

    assert list(rows_of(str(file), 2)) == [
        Row(0, "model-0", {"a": 1.0, "b": 2.0}, "yes"),
        Row(1, "model-1", {"a": 3.0, "b": None}, "no"),
    ]


def test_labels_that_are_quantities_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a,price\n" + "".join(f"1,{i}.5\n" for i in range(100)))
    with pytest.raises(ConfigError, match="--input: the labels are numbers, 100 different ones"):
        rows_of(str(file), 2)


def test_rows_that_can_be_read_but_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="--input: expected a file, found stdin"):
        demo(45.0, 6, 2000.0, "-")


class FakePublisher:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, key: bytes, value: bytes) -> None:
        self.sent.append(value)

    def wait(self, seconds: float) -> None: ...


def test_the_generator_keeps_its_pace_as_far_as_there_is_room() -> None:
    publisher = FakePublisher()
    generator = Generator(iter(Payments(1)), 100.0, publisher)  # type: ignore[arg-type]

    generator.publish(1.0, 1000)
    assert generator.published == len(publisher.sent) == 100
    generator.publish(2.0, 30)
    assert generator.published == 130
    generator.publish(2.0, -5)
    assert generator.published == 130
    generator.publish(2.0, 1000)
    assert generator.published == 200
    assert generator.mean_bytes == pytest.approx(sum(map(len, publisher.sent)) / 200)


# --- the book ---------------------------------------------------------------------------------------------------------


def predictions(n: int) -> list[tuple[int, Record]]:
    """(row number, record of the output topic) for the first payments of one shop, all from partition 0."""
    values = uninterrupted(islice(Payments(1), n), defaults())
    return [
        (number, Record(i, 0, b"books", value, [("source-partition", b"0"), ("source-offset", b"%d" % number)]))
        for i, (number, value) in enumerate(values)
    ]


def test_the_ledger_drops_duplicates_and_tells_those_that_differ() -> None:
    ledger = Ledger()
    records = [record for _, record in predictions(10)]
    ledger.take(records)
    ledger.take(records[:4])
    assert (ledger.handled, ledger.duplicates, ledger.differing) == (10, 4, 0)

    ledger.take([Record(99, 0, records[0].key, records[1].value, records[0].headers)])
    assert (ledger.handled, ledger.duplicates, ledger.differing) == (10, 5, 1)
    assert ledger.models["books"].events == 10


def test_the_ledger_counts_the_rows_that_came_out_as_expected() -> None:
    ledger = Ledger()
    published = predictions(10)
    expected = [(number, record.value) for number, record in published]
    ledger.take([record for _, record in published[:9]])
    assert ledger.count_equal(expected) == 9  # row 9 is missing

    assert ledger.count_equal([(9, None)]) == 1  # a dead letter has no prediction
    assert ledger.count_equal([(0, None)]) == 0
    assert ledger.count_equal([(0, expected[1][1])]) == 0


def test_a_source_record_is_handled_as_a_prediction_or_as_a_dead_letter() -> None:
    ledger = Ledger()
    records = [record for _, record in predictions(3)]
    ledger.take(records[:2])
    ledger.take_dead_letters([records[2], records[2]])
    assert (ledger.handled, ledger.dead_letters) == (3, 1)


# --- the view from outside --------------------------------------------------------------------------------------------


FIGURES = Figures(samples=3, nodes=7, depth=2.5, memory_bytes=1000, scores=ClassScores(3, 1.0, 2))


def test_the_state_of_the_worker_is_read_off_its_metrics() -> None:
    metrics = Metrics()
    server = serve(metrics, "127.0.0.1", 0)
    try:
        assert watch.state(watch.scrape(server.port)) == "compiling"
        metrics.loop_last_timestamp_seconds.set(1.0)
        assert watch.state(watch.scrape(server.port)) == "joining the group"
        metrics.set_partition_states({0: "opening", 1: "opening"})
        assert watch.state(watch.scrape(server.port)) == "ready"
        metrics.set_partition_states({0: "opening", 1: "live"})
        assert watch.state(watch.scrape(server.port)) == "live"
        metrics.set_partition_states({0: "replay", 1: "live"})
        assert watch.state(watch.scrape(server.port)) == "replaying"

        metrics.set_models([('say "hi", you', (0.0, 3)), ("books", (0.0, 5))], lambda key: FIGURES)
        metrics.replayed_records_total.add(12)
        for partition, (size, at_s) in enumerate([(10, 100.0), (10, 90.0), (0, 1.0)]):
            metrics.checkpoint_last_size_bytes.set(size, partition=partition)
            metrics.checkpoint_last_timestamp_seconds.set(at_s, partition=partition)
        samples = watch.scrape(server.port)
        assert watch.replayed(samples) == 12
        assert watch.oldest_checkpoint_s(samples, wall_s=101.0) == 11.0
        assert len(samples["amf_model_samples"]) == 2
        for figure in ("depth", "nodes", "memory_bytes"):
            assert samples[f"amf_model_{figure}"]["books",] == getattr(FIGURES, figure)
    finally:
        server.close()
    assert watch.state(watch.scrape(server.port)) == "starting"


def test_a_mock_cluster_answers_what_the_worker_asks_at_its_start() -> None:
    cluster, servers = start_mock_cluster(["events", "predictions"])
    text = (ROOT / "config" / "demo.yaml").read_text()
    admin = KafkaAdmin(configuration.loads(text, {"AMF_DEMO_BOOTSTRAP": servers}))

    assert admin.missing(["events", "predictions", "dead-letters"]) == ["dead-letters"]
    facts = admin.facts("events")
    assert facts.partitions == 4
    assert facts.topic_id.startswith("mockCluster")
    assert admin.max_message_bytes(["events"]) == 1_000_000
    del cluster


# --- the screen -------------------------------------------------------------------------------------------------------


def view(n_models: int) -> View:
    row = ModelRow(
        "a-model-with-a-long-name", 1_234_567, 0.12345, 0.1, 0.98765, 31.4, 123_456.0, 12_345_678.0, [0.6, 0.4]
    )
    return View(12.0, 45.0, "replaying", 12_345.6, 4_321, 12.3, [row] * n_models)


@pytest.mark.parametrize("kind", [PlainScreen, LiveScreen])
def test_a_view_fits_into_80_columns_and_24_lines(kind: type[Screen]) -> None:
    console = Console(width=80, height=24, record=True, file=StringIO(), force_terminal=kind is LiveScreen)
    with kind(console) as screen:  # type: ignore[call-arg]
        screen.show(view(30))
        lines = console.export_text().splitlines()

    assert any("12,346 events/s" in line for line in lines)
    assert any("1,234,567" in line and "98.8%" in line for line in lines)
    assert "more models" in lines[-1]
    assert max(map(len, lines)) <= 80
    assert kind is PlainScreen or len(lines) <= 24
