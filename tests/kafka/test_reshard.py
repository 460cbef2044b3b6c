"""Partitions are added to a topic in use: the steps of `reshard`, what each mistake in them makes, and the way out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from tests.kafka.broker import Broker
from tests.kafka.configurations import Sections, merged
from tests.kafka.conftest import Names
from tests.kafka.topic_job import WITHIN_S, Job, lineage_of, offset_of
from tests.waiting import until
from worker import cli
from worker.adapters.store import open_store
from worker.base.errors import WorkerError
from worker.base.partitioner import partition_of

pytestmark = pytest.mark.kafka

KEYS = [f"key-{number}" for number in range(6)]


class Keyed(Job):
    """Events of some models, each where a producer would send it."""

    def __init__(self, broker: Broker, topics: Names, folder: Path) -> None:
        super().__init__(broker, topics, folder)
        self.lineage = "main"
        self.warm_start: str | None = None
        self.of_key: dict[str, int] = defaultdict(int)

    def text(self, **changes: Sections) -> str:
        checkpoint = {"lineage": self.lineage, "warm_start": self.warm_start}
        return super().text(**merged(changes, {"checkpoint": checkpoint}))

    def send(self, partitions: int, n: int = 2, keys: list[str] = KEYS) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for _ in range(n):
            for key in keys:
                i = self.of_key[key]
                self.of_key[key] += 1
                event = json.dumps({"id": f"{key} {i}", "features": [i % 7, i % 3], "label": "ab"[i % 2]})
                producer.produce(self.events, event, key, partition=partition_of(key.encode(), partitions))
        assert producer.flush(WITHIN_S) == 0

    def add_partitions(self, n: int) -> None:
        self.admin.create_partitions([NewPartitions(self.events, n)])[self.events].result(WITHIN_S)
        until(lambda: len(self.admin.list_topics(self.events, timeout=WITHIN_S).topics[self.events].partitions) == n)

    def command(self, name: str, *options: str) -> int:
        """A command on the configuration as it is now."""
        path = self.folder / "worker.yaml"
        path.write_text(self.text())
        return cli.main([name, str(path), *options])

    def work_off(self) -> int:
        """The second step, by the command; what it needs of a process is not there in this one."""
        path = self.folder / "worker.yaml"
        path.write_text(self.text())
        command = [sys.executable, "-m", "worker", "run", str(path), "--until", "end"]
        return subprocess.run(command, timeout=4 * WITHIN_S, stderr=subprocess.DEVNULL).returncode

    def each_once_by_one_model(self) -> bool:
        """Whether every event was predicted once, by a model that had learned all events of its key before it."""
        found = sorted((each["id"], each["learned"]) for each in (json.loads(m.value or b"") for m in self.published()))
        return found == sorted((f"{key} {i}", i) for key in self.of_key for i in range(self.of_key[key]))

    def damage_newest(self, partition: int) -> None:
        places = (self.folder / "checkpoints").glob(f"*/main/*/{partition}/*.manifest")
        path = max(places, key=lambda place: place.name)
        path.write_bytes(path.read_bytes() + b"?")


@pytest.fixture
def job(broker: Broker, topics: Names, tmp_path: Path) -> Keyed:
    made = Keyed(broker, topics, tmp_path)
    made.create_input(2)
    made.send(2)
    made.run()
    return made


def test_models_move_in_the_order_of_the_steps_and_each_missing_one_is_named(
    job: Keyed, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(step: int, why: str) -> None:
        capsys.readouterr()
        assert job.command("reshard") == 1
        err = " ".join(capsys.readouterr().err.replace("amf-worker:", "").split())
        steps = "The steps, in their order: 1. stop the producers 2. "
        assert re.search(rf"step {step} is not done: {why}.* {re.escape(steps)}", err), err

    refused(4, rf"topic {job.events} has 2 partitions, and the models were learned with 2")
    with job.running():
        job.send(2, 1)
        until(lambda: len(job.published()) == 18)
        refused(3, rf"group {job.group} has live members")
    # Partitions are added before all is worked off.
    job.send(2, 1)
    job.add_partitions(3)
    with pytest.raises(WorkerError, match=r"partitions-added: .*`amf-worker run CONFIG --until end`"):
        job.run(lambda: False)
    refused(2, "there are records that no model has learned: ")
    assert job.command("check", "--connect") == 1
    assert "failed  partitions-added: " in capsys.readouterr().out

    assert job.work_off() == 0
    assert set(job.checkpoints()) == {"main/0", "main/1"}
    assert job.command("reshard") == 0
    assert "set checkpoint.lineage to main~3" in capsys.readouterr().out
    job.lineage = "main~3"
    assert job.command("check", "--connect") == 0
    job.send(3, 1)
    job.run()
    assert job.each_once_by_one_model()
    assert {offset_of(message) for message in job.published() if lineage_of(message) == "main~3"} >= {0}


@pytest.mark.full
def test_models_of_events_that_came_too_early_can_be_left_out(job: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    """The producers go on after partitions were added: keys that moved get second models in old partitions."""
    job.add_partitions(3)
    job.send(3, 1)
    assert job.work_off() == 0
    assert job.command("reshard") == 1
    assert "--drop-astray leaves them out" in capsys.readouterr().err
    assert job.command("reshard", "--drop-astray") == 0
    job.lineage = "main~3"
    job.send(3, 1)
    job.run()
    found = [json.loads(message.value or b"") for message in job.published()]
    assert sorted(each["id"] for each in found) == sorted(f"{key} {i}" for key in KEYS for i in range(4))
    # Of a key that moved at most the event is missing that came in between.
    last = {each["model"]: each["learned"] for each in found if each["id"].endswith(" 3")}
    assert set(last.values()) == {2, 3}


@pytest.mark.full
def test_whoever_goes_back_after_a_reshard_can_do_it_again(
    job: Keyed, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    job.add_partitions(3)
    assert job.command("reshard") == 0
    # Producers that did not know of the new partition yet, and a worker of the lineage before.
    job.send(2, 1)
    assert job.work_off() == 0
    job.lineage = "main~3"
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        job.run()
    assert "not-drained: " in caplog.text
    assert "`amf-worker reshard CONFIG --into` another name" in caplog.text
    assert job.command("check", "--connect") == 1
    job.lineage = "main"
    assert job.work_off() == 0
    assert job.command("reshard") == 1
    assert "Name another lineage than main~3 with --into" in capsys.readouterr().err
    assert job.command("reshard", "--into", "again") == 0
    job.lineage = "again"
    job.send(3, 1)
    job.run()
    assert job.each_once_by_one_model()


@pytest.mark.full
def test_a_damaged_checkpoint_is_made_whole_before(job: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    job.add_partitions(3)
    job.damage_newest(0)
    assert job.command("reshard") == 1
    err = capsys.readouterr().err
    [damaged] = set(re.findall(r"(\S+\.manifest) is damaged", err))
    assert "delete the manifests that are named" in err
    assert job.work_off() == 0
    assert job.command("reshard") == 1
    (job.folder / "checkpoints" / damaged).unlink()
    assert job.work_off() == 0
    assert job.command("reshard") == 0
    job.lineage = "main~3"
    job.send(3, 1)
    job.run()
    assert job.each_once_by_one_model()


@pytest.mark.full
def test_models_move_to_a_new_topic(job: Keyed, capsys: pytest.CaptureFixture[str]) -> None:
    new = f"{job.events}-new"
    job.broker.create_topic(new, 1)
    assert job.command("reshard", "--topic", new) == 0
    assert "set checkpoint.lineage to main~1" in capsys.readouterr().out
    job.events, job.lineage = new, "main~1"
    job.send(1, 2)
    job.run()
    assert job.each_once_by_one_model()


# The ways out of a history that cannot go on


def test_a_topic_made_anew_goes_on_with_the_models_of_the_old_one(job: Keyed) -> None:
    job.delete_input()
    job.create_input(3)
    job.lineage, job.warm_start = "second", f"file://{job.folder}/checkpoints"
    job.send(3, 2)
    # One partition after the other: those that begin later find what the first has written.
    job.run()
    job.run()
    assert job.each_once_by_one_model()


@pytest.mark.full
def test_a_history_begins_anew_once_the_offsets_of_the_group_are_deleted(
    job: Keyed, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    job.lineage = "anew"
    assert job.command("check", "--connect") == 1
    with pytest.raises(WorkerError, match="every partition"):
        job.run()
    assert "no-checkpoint: " in caplog.text
    assert "delete the group's offsets of the topic while no worker runs" in caplog.text
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            job.admin.delete_consumer_groups([job.group])[job.group].result(WITHIN_S)
            break
        except Exception:
            assert time.monotonic() < deadline, "the group does not become empty"
    assert job.command("check", "--connect") == 0
    job.run()
    again = [json.loads(m.value or b"")["learned"] for m in job.published() if lineage_of(m) == "anew"]
    assert sorted(again) == sorted([0, 1] * len(KEYS))


def test_nothing_of_a_reshard_is_lost_where_it_is_asked_of_an_empty_store(
    job: Keyed, capsys: pytest.CaptureFixture[str]
) -> None:
    job.lineage = "other"
    job.add_partitions(3)
    assert job.command("reshard") == 1
    assert "found none" in capsys.readouterr().err
    assert list(open_store(f"file://{job.folder}/checkpoints").list("other")) == []
