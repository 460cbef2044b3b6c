"""`produce` without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.worker.support.rows import CsvFile
from worker.cli import produce
from worker.cli.dataset import open_rows
from worker.config import load


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes all that is sent to it."""
    fake = Mock(delivered=0)
    fake.send.side_effect = lambda *_: setattr(fake, "delivered", fake.delivered + 1)
    monkeypatch.setattr(produce, "KafkaPublisher", lambda config, topic, most_bytes: fake)
    monkeypatch.setattr(produce, "KafkaAdmin", lambda config: Mock(missing=lambda topics: []))
    monkeypatch.setattr(produce, "KafkaTopic", lambda config, topic: Mock(is_mock=True))
    return fake


@pytest.mark.parametrize(
    ("text", "said"),
    [("a\n1,2\n", None), ("a\n1\n1,2\n", "published before that: 1 row"), ("a\n1\n2\n3,3\n", "before that: 2 rows")],
)
def test_what_was_published_before_a_bad_row_is_said_if_anything_was(
    publisher: Any, csv_file: CsvFile, worker_yaml: Path, caplog: pytest.LogCaptureFixture, text: str, said: str | None
) -> None:
    config = load(worker_yaml, {})
    with pytest.raises(produce.ConfigError, match="expected 1 cells as in the header"):
        produce.produce(open_rows(csv_file(text)), config, str(worker_yaml))
    assert said in caplog.text if said else not caplog.records


def test_events_are_published_as_they_stand(publisher: Any, tmp_path: Path, worker_yaml: Path) -> None:
    lines = [b'{"features": {"a": 1e0}, "label": 1, "shop": "x"}', b'{"shop": "y",  "features": [NaN]}', b"3"]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert produce.produce(open_rows(path, key="shop"), load(worker_yaml, {}), str(worker_yaml)) == 3
    assert [call.args[:2] for call in publisher.send.call_args_list] == [
        (b"x", lines[0]),
        (b"y", lines[1]),
        (None, lines[2]),
    ]
