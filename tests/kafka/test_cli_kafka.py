"""The commands that talk to a broker, against a real one."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kafka.broker import Broker, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from worker import cli
from worker.adapters.kafka import KafkaPublisher
from worker.base.errors import WorkerError
from worker.config import load


@pytest.fixture
def config(broker: Broker, topics: Names, tmp_path: Path) -> Path:
    path = tmp_path / "worker.yaml"
    path.write_text(configuration(broker.bootstrap, tmp_path, named(topics)))
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """500 rows of two classes, with gaps."""
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=500)
    x = rng.normal(y[:, None], 1.0, (500, 3)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    np.savez(tmp_path / "rows.npz", X=x, y=y)
    return tmp_path / "rows.npz"


def test_create_topics_makes_what_is_missing_and_connect_finds_it(
    config: Path, broker: Broker, topics: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = f"topic {topics.name('events')}: is missing"
    assert cli.main(["check", str(config), "--connect"]) == 1
    assert f"failed  {missing}; --create-topics makes it" in capsys.readouterr().out

    topics.create("predictions", partitions=2)
    assert cli.main(["check", str(config), "--create-topics", "--partitions", "3", "--connect"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^ok      topic \S+?-(events|dead): made with (\d) partitions", out, re.MULTILINE) == [
        ("events", "3"),
        ("dead", "3"),
    ]
    found = re.findall(r"^ok      topic \S+?-(events|predictions|dead): (\d) partitions, id \S{22}$", out, re.MULTILINE)
    assert found == [("events", "3"), ("predictions", "2"), ("dead", "3")]
    assert f"ok      broker {broker.bootstrap}: answers" in out
    assert "failed" not in out

    assert cli.main(["check", str(config), "--create-topics", "--partitions", "9"]) == 0
    assert "made with" not in capsys.readouterr().out


def test_new_outputs_get_as_many_partitions_as_the_input_has(
    config: Path, topics: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.create("events", partitions=6)
    assert cli.main(["check", str(config), "--create-topics"]) == 0
    assert re.findall(r"-(predictions|dead): made with (\d) partitions", capsys.readouterr().out) == [
        ("predictions", "6"),
        ("dead", "6"),
    ]


def test_produce_publishes_each_row_once_and_in_order(
    config: Path, rows: Path, broker: Broker, topics: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create("events", partitions=4)
    assert cli.main(["produce", str(rows), "--config", str(config), "--keys", "5"]) == 0
    assert re.fullmatch(rf"published 500 events to topic {topic} in [\d.]+ s\n", capsys.readouterr().out)
    messages = read_all(broker.bootstrap, topic, until=500)
    events = [json.loads(message.value or b"") for message in messages]
    assert sorted(int(event["id"]) for event in events) == list(range(500))
    data = np.load(rows)
    positions: dict[bytes | None, list[int]] = {}
    for message, event in zip(messages, events, strict=True):
        row = int(event["id"])
        positions.setdefault(message.key, []).append(row)
        assert message.key == f"model-{row % 5}".encode()
        assert event["label"] == data["y"][row]
        values = [np.nan if value is None else value for value in event["features"].values()]
        np.testing.assert_array_equal(values, data["X"][row].astype(np.float64))
        assert list(event["features"]) == ["f0", "f1", "f2"]
    assert all(numbers == sorted(numbers) for numbers in positions.values())
    # Where a Java client would put these keys: murmur2 of the key, its sign bit cleared, modulo 4.
    assert {message.key: message.partition for message in messages} == {
        f"model-{i}".encode(): (murmur2(f"model-{i}".encode()) & 0x7FFFFFFF) % 4 for i in range(5)
    }


def test_produce_takes_ids_and_times_from_columns(config: Path, broker: Broker, topics: Names, tmp_path: Path) -> None:
    topic = topics.create("events")
    (tmp_path / "rows.csv").write_text("id,when,a\ntx-1,2024-05-17T12:30:00Z,1\n,,2\n")
    command = ["produce", str(tmp_path / "rows.csv"), "--config", str(config), "--id", "id", "--time", "when"]
    assert cli.main(command) == 0
    timed, other = read_all(broker.bootstrap, topic, until=2)
    assert json.loads(timed.value or b"") == {"id": "tx-1", "features": {"a": 1.0}}
    assert json.loads(other.value or b"") == {"id": "1", "features": {"a": 2.0}}
    assert timed.timestamp == 1715949000_000
    assert abs(other.timestamp - time.time() * 1000) < 3_600_000


def test_produce_says_that_events_are_older_than_the_topic_keeps_them(
    config: Path, topics: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create("events", config={"retention.ms": "86400000"})
    (tmp_path / "rows.csv").write_text("when,a\n2024-05-17T12:30:00Z,1\n2024-05-17T12:30:01Z,2\n")
    command = ["produce", str(tmp_path / "rows.csv"), "--config", str(config), "--time", "when"]
    assert cli.main(command) == 0
    assert capsys.readouterr().err.count(f"row 0 is older than topic {topic} keeps events (retention.ms)") == 1
    assert cli.main(command[:-2]) == 0
    assert "older than topic" not in capsys.readouterr().err


def test_a_row_from_a_pipe_is_published_before_the_next_one_comes(config: Path, broker: Broker, topics: Names) -> None:
    topic = topics.create("events")
    command = [sys.executable, "-m", "worker", "produce", "-", "--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"a,b\n1,x\n")
        producer.stdin.flush()
        [first] = read_all(broker.bootstrap, topic, until=1)
        assert producer.poll() is None
        out, _ = producer.communicate(b"2,y\n", timeout=120)
    assert json.loads(first.value or b"")["features"] == {"a": 1.0, "b": "x"}
    assert (producer.returncode, out.startswith(b"published 2 events")) == (0, True)


def test_produce_keeps_to_its_rate(config: Path, topics: Names, tmp_path: Path) -> None:
    topics.create("events")
    (tmp_path / "rows.csv").write_text("a,k\n" + "1,x\n" * 31)
    started = time.monotonic()
    assert (
        cli.main(
            ["produce", str(tmp_path / "rows.csv"), "--config", str(config), "--key", "k", "--rate", "60"],
        )
        == 0
    )
    assert time.monotonic() - started >= 0.5


def test_produce_fills_no_batch_beyond_what_the_topic_takes(config: Path, topics: Names, tmp_path: Path) -> None:
    topics.create("events", config={"max.message.bytes": "4096"})
    (tmp_path / "rows.csv").write_text("a,k\n" + "1,x\n" * 1000)
    assert cli.main(["produce", str(tmp_path / "rows.csv"), "--config", str(config), "--key", "k"]) == 0


def test_produce_needs_the_topic(config: Path, rows: Path, topics: Names, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["produce", str(rows), "--config", str(config)]) == 2
    err = capsys.readouterr().err
    assert f"there is no topic {topics.name('events')}. `amf-worker check {config} --create-topics` makes it" in err


def test_a_bad_row_ends_produce_after_the_good_ones(
    config: Path, broker: Broker, topics: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create("events")
    (tmp_path / "rows.csv").write_text("\n".join(["a", *map(str, range(1500)), "3,3", "4"]))
    assert cli.main(["produce", str(tmp_path / "rows.csv"), "--config", str(config)]) == 2
    err = capsys.readouterr().err
    assert "rows.csv:1502: expected 1 cells as in the header, found 2" in err
    assert "published before that: 1,500 rows" in err
    assert [json.loads(m.value or b"")["id"] for m in read_all(broker.bootstrap, topic, until=1500)] == list(
        map(str, range(1500))
    )


def test_a_full_queue_is_waited_for(config: Path, broker: Broker, topics: Names) -> None:
    config.write_text(config.read_text().replace("kafka: {", "kafka: {queue.buffering.max.messages: 10, "))
    topic = topics.create("events")
    publisher = KafkaPublisher(load(config, {}), topic)
    for i in range(200):
        publisher.send(b"k", b"%d" % i)
    publisher.finish()
    assert publisher.delivered == 200
    assert [m.value for m in read_all(broker.bootstrap, topic, until=200)] == [b"%d" % i for i in range(200)]


def test_records_that_nobody_takes_are_an_error(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.adapters.kafka.publisher.STALL_S", 0.2)
    config.write_text(re.sub(r'servers: "[^"]*"', 'servers: "127.0.0.1:1"', config.read_text()))
    publisher = KafkaPublisher(load(config, {}), "events")
    publisher.send(b"k", b"v")
    with pytest.raises(WorkerError, match=r"1 of 1 records for events were not delivered: the broker took nothing"):
        publisher.finish()


def test_ctrl_c_while_a_publisher_waits_is_no_error_of_the_client(config: Path, topics: Names) -> None:
    publisher = KafkaPublisher(load(config, {}), topics.create("events"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in the background of a shell
    try:
        for _ in range(5):
            publisher.send(b"k", b"v")
            interrupt = threading.Timer(0.15, os.kill, [os.getpid(), signal.SIGINT])
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                publisher.wait(5.0)
            interrupt.join()
    finally:
        signal.signal(signal.SIGINT, before)
    publisher.finish()
    assert publisher.delivered == 5


def test_a_record_that_is_too_large_is_an_error(config: Path, topics: Names) -> None:
    publisher = KafkaPublisher(load(config, {}), topics.create("events"))
    with pytest.raises(WorkerError, match=r"1 of 1 records for .* were not delivered: .*[Tt]oo large"):
        publisher.send(b"k", bytes(2_000_000))


def test_run_publishes_what_evaluate_computes_and_ends_at_sigterm(
    config: Path, rows: Path, broker: Broker, topics: Names, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(config), "--create-topics"]) == 0
    assert cli.main(["produce", str(rows), "--config", str(config), "--keys", "3"]) == 0
    worker = subprocess.Popen([sys.executable, "-m", "worker", "run", str(config)], stderr=subprocess.PIPE, text=True)
    try:
        messages = read_all(broker.bootstrap, topics.name("predictions"), until=500)
    finally:
        worker.send_signal(signal.SIGTERM)
        _, log = worker.communicate(timeout=60)
    assert (worker.returncode, "Traceback" in log) == (0, False), log

    out = tmp_path / "predictions.csv"
    assert cli.main(["evaluate", str(rows), "--config", str(config), "--keys", "3", "--out", str(out)]) == 0
    with out.open(newline="") as file:
        expected = {row["row"]: row for row in csv.DictReader(file)}
    published = {value["id"]: value for value in (json.loads(message.value or b"") for message in messages)}
    assert len(published) == len(expected) == len(messages) == 500
    for number, row in expected.items():
        assert as_row(published[number], row) == row

    capsys.readouterr()
    assert cli.main(["inspect", f"file://{tmp_path}/checkpoints", "--model", "model-1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^samples +167$", shown, re.MULTILINE)
    assert re.search(r"^features +f0, f1, f2, f1\\missing, f2\\missing, f0\\missing$", shown, re.MULTILINE)


def as_row(value: dict[str, Any], columns: dict[str, str]) -> dict[str, str]:
    """A published prediction as a row of the file of `evaluate`."""
    probabilities = value["probabilities"]
    return {
        "row": value["id"],
        "model": value["model"],
        "label": str(value["label"]),
        "prediction": "" if value["prediction"] is None else str(value["prediction"]),
        "learned": str(value["learned"]),
        "loss": repr(value["loss"]),
        **{
            name: repr(probabilities[name[2:]]) if name[2:] in probabilities else "" for name in columns if "p:" in name
        },
    }


def murmur2(data: bytes) -> int:
    """The hash of Kafka's own partitioner, as its Java client defines it."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    n = len(data) // 4 * 4
    for i in range(0, n, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if data[n:]:
        h = (h ^ int.from_bytes(data[n:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
