"""Headers whose names are not UTF-8, which the protocol allows and clients of other languages send."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, Message, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.conftest import Names
from tests.kafka.raw import produce
from tests.kafka.workers import WorkerProcess
from worker.adapters.kafka import KafkaInput
from worker.adapters.kafka.mock import start_mock_cluster
from worker.base.records import Headers, Record
from worker.config import loads

WITHIN_S = 60.0
WARM = 50
"""Records before the odd one: by then an interpreter has specialised the loop and checks the calls in it no more."""
EVENT = b'{"shop": "s", "features": [1.5], "label": "a"}'
STAMP_MS = 1_700_000_000_123


class Reader:
    """A member that reads all partitions from their beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        text = configuration(bootstrap, Path("/nowhere"), {"input": {"topic": topic}})
        self.input = KafkaInput(loads(text, {}))
        self.input.subscribe(self)

    def assigned(self, partitions: Sequence[int]) -> None:
        self.input.assign(dict.fromkeys(partitions, 0))

    def revoked(self, partitions: Sequence[int]) -> None: ...

    lost = revoked

    def read(self, n: int) -> list[Record]:
        """The first `n` records of partition 0."""
        found: list[Record] = []
        deadline = time.monotonic() + WITHIN_S
        while len(found) < n and time.monotonic() < deadline:
            records, _ = self.input.consume(1000, 0.1)
            found += records.get(0, [])
        return found


@pytest.mark.parametrize("warm", [0, WARM])
def test_a_record_with_a_header_that_cannot_be_read_is_read_all_the_same(warm: int) -> None:
    _cluster, bootstrap = start_mock_cluster(["events"])
    bad: list[list[tuple[bytes, bytes | None]]] = [
        [(b"good", b"x"), (b"b\xffd", b"y")],
        [(b"\xe9", None), (b"\xfe", b"y"), (b"\xfd", b"y")],
        [(b"x\xff" * 5000, b"y")],
        [(b"%d\xff" % i, None) for i in range(3000)],
    ]
    for headers in [[(b"gr\xc3\xbc\xc3\x9fe", b"1"), (b"", None)]] * (warm + 1) + [*bad, []]:
        produce(bootstrap, "events", b"key", b"value", headers, timestamp_ms=STAMP_MS)
    reader = Reader(bootstrap, "events")
    records = reader.read(warm + 6)
    reader.input.close()
    assert {(record.key, record.value, record.timestamp_ms) for record in records} == {(b"key", b"value", STAMP_MS)}
    assert [record.offset for record in records] == [*range(warm + 6)]
    good: Headers = [("grüße", b"1"), ("", None)]
    assert [record.headers for record in records] == [good] * (warm + 1) + [[]] * 5
    faults = [record.headers_fault for record in records]
    assert faults[: warm + 1] == [None] * (warm + 1)
    long = repr(b"x\xff" * 20)
    assert faults[warm + 1 :] == [
        r"the name of a header is not UTF-8: b'b\xffd'",
        r"the name of a header is not UTF-8: b'\xe9'",
        f"the name of a header is not UTF-8: {long}... (10000 bytes)",
        r"the name of a header is not UTF-8: b'0\xff'",
        None,
    ]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "repartition",
    [
        pytest.param({}, id="worker"),
        pytest.param({"model_key": "field:shop", "repartition": True}, id="forwarder", marks=pytest.mark.full),
    ],
)
def test_one_record_with_such_a_header_stops_nobody(
    broker: Broker, topics: Names, tmp_path: Path, repartition: dict[str, object]
) -> None:
    events, predictions, dead = topics.create("events"), topics.create("predictions"), topics.create("dead")
    bad: list[tuple[bytes, bytes | None]] = [(b"trace", b"t"), (b"b\xffd", b"y")]
    for i in range(2 * WARM):
        headers = bad if i == WARM else [(b"trace", b"t")]
        produce(broker.bootstrap, events, b"s", EVENT, headers, timestamp_ms=STAMP_MS + i)
    config = tmp_path / "worker.yaml"
    changes = {"input": repartition, "kafka": {"group.instance.id": "one"}}
    config.write_text(configuration(broker.bootstrap, tmp_path, named(topics), changes))
    with WorkerProcess(config, tmp_path / "log") as worker:
        found = read_all(broker.bootstrap, predictions, until=2 * WARM - 1, timeout=WITHIN_S)
        worker.require_alive()
        letters = read_all(broker.bootstrap, dead, until=1, timeout=WITHIN_S)
        # Both come back to where they were: nothing is published again.
        assert worker.terminate() == 0
        worker.start()
        produce(broker.bootstrap, events, b"s", EVENT, timestamp_ms=STAMP_MS)
        found = read_all(broker.bootstrap, predictions, until=2 * WARM, timeout=WITHIN_S)
        assert worker.terminate() == 0
    assert len(found) == 2 * WARM
    assert [_learned(message) for message in found] == [*range(2 * WARM)]
    [letter] = letters
    assert read_all(broker.bootstrap, dead) == [letter]
    assert (letter.key, letter.value, letter.timestamp) == (b"s", EVENT, STAMP_MS + WARM)
    of_letter = dict(letter.headers)
    assert (of_letter["error-code"], of_letter["source-offset"]) == (b"invalid-headers", b"%d" % WARM)
    assert rb"b'b\xffd'" in (of_letter["error-reason"] or b"")


def _learned(message: Message) -> int:
    text = (message.value or b"").decode()
    return int(text.rpartition('"learned":')[2].rstrip("}"))
