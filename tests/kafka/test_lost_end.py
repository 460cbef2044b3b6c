"""A broker that loses the end of a partition's log, as after an unclean election, and workers that had predicted it.

The loss is real: while the broker is stopped the partition's folder is put back to what it was earlier. Who leads it
after that has a greater leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import read_all
from tests.kafka.configurations import configuration
from tests.kafka.forgetful import ForgetfulBroker, forgetful_broker
from tests.kafka.workers import WorkerProcess, wait_for_progress

pytestmark = pytest.mark.kafka

WITHIN_S = 60.0


@pytest.fixture
def broker() -> Iterator[ForgetfulBroker]:
    with forgetful_broker() as broker:
        yield broker


@pytest.mark.parametrize("saved", [True, False])
def test_records_that_come_in_place_of_predicted_ones_stop_the_partition(
    broker: ForgetfulBroker, saved: bool, tmp_path: Path
) -> None:
    config = tmp_path / "worker.yaml"
    rare = {"checkpoint": {"interval": "1h", "recovery_budget": "1h"}}
    config.write_text(configuration(broker.bootstrap, tmp_path, rare))
    broker.feed(4)
    broker.remember(tmp_path / "log")
    broker.feed(4)
    with WorkerProcess(config, tmp_path / "one.log") as worker:
        wait_for_progress(broker.bootstrap, "predictions", 1, 8, [worker])
        if saved:
            assert worker.terminate() == 0
        else:
            worker.kill()
    assert len(read_all(broker.bootstrap, "predictions", until=8)) == 8
    broker.forget(tmp_path / "log")
    broker.feed(8)
    with WorkerProcess(config, tmp_path / "two.log") as worker:
        assert worker.process.wait(WITHIN_S) == 1
        assert "offset-out-of-range" in worker.log()
        assert (
            "log truncation detected" if saved else "what was predicted, up to the group's offset 8"
        ) in worker.log()
    assert len(read_all(broker.bootstrap, "predictions", until=8)) == 8
