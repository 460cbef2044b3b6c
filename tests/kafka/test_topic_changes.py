"""Topics and groups that change under the checkpoints, against a real broker, and runs that have an end.

The workers are those of `amf-worker run`, in this process; most of them run to the end of the topic and stop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, ResourceType

from tests.kafka.broker import Broker, Message, read_all
from tests.kafka.conftest import Names
from worker import cli, service
from worker.adapters.kafka import KafkaAdmin
from worker.adapters.store import open_store
from worker.base.errors import WorkerError
from worker.base.metrics import Metrics
from worker.base.records import Record
from worker.checkpoint import describe
from worker.config import Config, loads
from worker.runtime import topic_monitor as watch
from worker.task.processor import BatchResult
from worker.task.task import State, Task

pytestmark = pytest.mark.kafka

WITHIN_S = 30.0

CONFIG = """
input: {{topic: {events}{input}}}
output: {{topic: {predictions}}}
dead_letter: {{topic: {dead}}}
transaction: {{interval: 10ms{transaction}}}
kafka:
  bootstrap.servers: "{bootstrap}"
  group.id: {group}
  topic.metadata.refresh.interval.ms: 200
{kafka}
models: {{default: {{n_estimators: 1}}}}
checkpoint: {{url: "file://{folder}/checkpoints", interval: 1h, recovery_budget: 1h}}
metrics: {{listen: "127.0.0.1:0"}}
"""


class Crash(Exception):
    """The worker drops everything."""


class Job:
    """Topics, a group and a folder of checkpoints."""

    def __init__(self, broker: Broker, topics: Names, folder: Path) -> None:
        self.broker = broker
        self.admin = broker.admin()
        self.events, self.predictions = topics.name("events"), topics.name("predictions")
        self.dead, self.group = topics.name("dead"), topics.name("group")
        self.folder = folder
        self.sent: dict[int, int] = {}
        for topic in (self.predictions, self.dead):
            broker.create_topic(topic)

    def create_input(self, partitions: int = 1, **config: str) -> None:
        self.broker.create_topic(self.events, partitions, {name.replace("_", "."): v for name, v in config.items()})

    def delete_input(self) -> None:
        self.admin.delete_topics([self.events])[self.events].result(WITHIN_S)
        until(lambda: self.events not in self.admin.list_topics(timeout=WITHIN_S).topics)

    def feed(self, n: int, partition: int = 0, *, transactional: bool = False) -> None:
        """Events of one model for each partition; each is a batch of its own."""
        properties = {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0}
        producer = Producer({**properties, **({"transactional.id": self.events} if transactional else {})})
        if transactional:
            producer.init_transactions(WITHIN_S)
            producer.begin_transaction()
        for _ in range(n):
            i = self.sent[partition] = self.sent.get(partition, 0) + 1
            event = {"id": str(i), "features": [i % 7, i % 3], "label": "ab"[i % 2]}
            producer.produce(self.events, json.dumps(event), f"model-{partition}", partition=partition)
            assert producer.flush(WITHIN_S) == 0
        if transactional:
            producer.commit_transaction(WITHIN_S)

    def config(self, input: str = "", transaction: str = "", kafka: str = "") -> Config:
        return loads(self.text(input, transaction, kafka), {})

    def text(self, input: str = "", transaction: str = "", kafka: str = "") -> str:
        names = {"events": self.events, "predictions": self.predictions, "dead": self.dead, "group": self.group}
        places = {"bootstrap": self.broker.bootstrap, "folder": self.folder}
        return CONFIG.format(input=input, transaction=transaction, kafka=kafka, **names, **places)

    def run(self, should_stop: Callable[[], bool] | None = None, metrics: Metrics | None = None, **config: str) -> None:
        """A worker to the end of the topic as it is now, or until it is told to stop."""
        settings = self.config(**config)
        deadline = time.monotonic() + WITHIN_S

        def gives_up() -> bool:
            assert time.monotonic() < deadline, "the worker did not come to the end of the topic"
            return False

        worker = service.build(
            settings, KafkaAdmin(settings), self.group, metrics or Metrics(), None if should_stop else "end"
        )
        worker.run(should_stop or gives_up)

    def crash_after(self, n: int) -> None:
        """A worker that publishes n records and saves nothing of them but the beginning."""
        metrics = Metrics()

        def crashes() -> bool:
            if sum(metrics.events_total.series().values()) >= n:
                raise Crash
            return False

        with pytest.raises(Crash):
            self.run(crashes, metrics)

    @contextmanager
    def running(self, **config: str) -> Iterator[Callable[[], BaseException | None]]:
        """A worker at work; what is yielded waits until it ends by itself and says why."""
        stop, ended = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                self.run(stop.is_set, **config)
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=work)

        def end() -> BaseException | None:
            thread.join(WITHIN_S)
            assert not thread.is_alive(), "the worker goes on"
            return ended[0] if ended else None

        thread.start()
        try:
            yield end
        finally:
            stop.set()
            thread.join(WITHIN_S)

    def delete_records(self, before: int) -> None:
        place = TopicPartition(self.events, 0, before)
        self.admin.delete_records([place])[place].result(WITHIN_S)

    def commit(self, offset: int) -> None:
        """Set the group to another offset."""
        place = ConsumerGroupTopicPartitions(self.group, [TopicPartition(self.events, 0, offset)])
        until(lambda: self.admin.list_consumer_groups().result(WITHIN_S) is not None)
        self.admin.alter_consumer_group_offsets([place])[self.group].result(WITHIN_S)

    def published(self, n: int = 0) -> list[Message]:
        return read_all(self.broker.bootstrap, self.predictions, until=n, timeout=WITHIN_S)

    def learned(self) -> list[tuple[int, int]]:
        """(offset, how many events the model had learned) of every prediction."""
        return [(offset_of(each), json.loads(each.value or b"")["learned"]) for each in self.published()]

    def checkpoints(self) -> dict[str, Any]:
        """Offset, state and number of partitions of the newest checkpoint in each folder, by lineage and partition."""
        found = {}
        for listing in describe(open_store(f"file://{self.folder}/checkpoints")):
            assert listing.newest is not None
            place = f"{listing.newest.location.lineage}/{listing.newest.location.partition}"
            found[place] = (listing.newest.offset, listing.newest.partitions)
        return found


def until(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"


def offset_of(message: Message) -> int:
    return int(dict(message.headers)["source-offset"] or b"")


def lineage_of(message: Message) -> str:
    return (dict(message.headers)["lineage"] or b"").decode()


@pytest.fixture
def job(broker: Broker, topics: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.2)
    return Job(broker, topics, tmp_path)


# Another topic


def test_a_topic_made_anew_is_refused_with_both_ids(job: Job) -> None:
    job.create_input()
    job.feed(5)
    job.run()
    before = KafkaAdmin(job.config()).facts(job.events).topic_id
    job.delete_input()
    job.create_input()
    after = KafkaAdmin(job.config()).facts(job.events).topic_id
    job.feed(5)
    with pytest.raises(WorkerError, match=rf"topic-recreated: .* has the id {after}, .* with the id {before}"):
        job.run()
    assert len(job.published()) == 5


def test_a_topic_that_is_deleted_ends_its_worker(job: Job) -> None:
    job.create_input()
    job.feed(5)
    with job.running() as end:
        assert len(job.published(5)) == 5
        job.delete_input()
        assert str(end()).startswith(f"topic-deleted: topic {job.events}")


@pytest.mark.full
def test_a_topic_of_outputs_that_is_deleted_is_named_and_waited_for(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    job.create_input()
    job.feed(5)
    with job.running():
        assert len(job.published(5)) == 5
        job.admin.delete_topics([job.predictions])[job.predictions].result(WITHIN_S)
        job.feed(5)
        # Each attempt at a transaction waits for ten seconds, and so does the loop.
        until(lambda: f"topic {job.predictions} does not exist any more" in caplog.text, within_s=90.0)
        job.broker.create_topic(job.predictions)
        until(lambda: f"topic {job.predictions} is there again" in caplog.text, within_s=90.0)
        assert [offset_of(each) for each in job.published(5)] == [*range(5, 10)]


def test_a_compacted_input_is_refused(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.create_input(cleanup_policy="compact,delete", retention_ms="60000", retention_bytes="1000000")
    with pytest.raises(WorkerError, match=r"compacted-input: .* cleanup.policy=compact,delete"):
        job.run()
    (tmp_path / "worker.yaml").write_text(job.text())
    assert cli.main(["check", str(tmp_path / "worker.yaml"), "--connect"]) == 1
    told = capsys.readouterr().out
    assert "failed  compacted-input: " in told
    assert f"ok      topic {job.predictions}: 1 replicas, min.insync.replicas=1" in told


def test_outputs_that_their_topic_deletes_are_told(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.create_input(retention_ms="-1")
    for topic, name, value in ((job.dead, "retention.ms", "86400000"), (job.predictions, "cleanup.policy", "compact")):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        job.admin.incremental_alter_configs([resource])[resource].result(WITHIN_S)
    (tmp_path / "worker.yaml").write_text(job.text())
    assert cli.main(["check", str(tmp_path / "worker.yaml"), "--connect"]) == 1
    told = capsys.readouterr().out
    assert f"failed  compacted-output: topic {job.predictions} has cleanup.policy=compact: " in told
    assert f"warning  topic {job.dead}: retention.ms=86400000, and the input's is -1: " in told
    with pytest.raises(WorkerError, match="compacted-output"):
        job.run()


# Another configuration


def test_check_and_the_start_say_what_a_changed_configuration_refuses(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    job.create_input(2)
    job.feed(5)
    job.feed(2, 1)
    job.run()
    config = tmp_path / "worker.yaml"
    config.write_text(job.text())
    assert cli.main(["check", str(config), "--connect"]) == 0
    assert "ok      2 models are saved" in capsys.readouterr().out
    changed = job.text().replace("n_estimators: 1", "n_estimators: 2")
    config.write_text(changed)
    saved = job.checkpoints()
    assert cli.main(["check", str(config), "--connect"]) == 1
    told = capsys.readouterr().out
    assert "failed  spec-changed: 2 of 2 saved models have other parameters here and would be refused" in told
    assert "n_estimators was 1 and is 2" in told
    assert job.checkpoints() == saved
    job.feed(3)
    worker = service.build(loads(changed, {}), KafkaAdmin(job.config()), job.group, Metrics(), "end")
    worker.run(lambda: False)
    lines = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert any(line.startswith("partition 0: 1 of 1 models, 'model-0' among them") for line in lines)
    assert any(line.startswith("partition 0: dead letters with the code spec-changed: 3, ") for line in lines)


def test_check_says_where_a_lineage_leads_nowhere(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.create_input()
    job.feed(5)
    job.run()
    config = tmp_path / "worker.yaml"
    config.write_text(job.text().replace("checkpoint: {", "checkpoint: {lineage: other, "))
    assert cli.main(["check", str(config), "--connect"]) == 1
    assert f"failed  no-checkpoint: {job.events}[0]: the group is at offset 5" in capsys.readouterr().out


# More partitions


def test_partitions_that_are_added_end_the_worker_and_no_other_starts(job: Job) -> None:
    job.create_input(2)
    job.feed(5)
    with job.running() as end:
        job.published(5)
        job.admin.create_partitions([NewPartitions(job.events, 3)])[job.events].result(WITHIN_S)
        error = end()
    told = f"partitions-added: topic {job.events} has 3 partitions, its models were learned with 2"
    assert isinstance(error, WorkerError)
    assert str(error).startswith(told)
    assert job.checkpoints() == {"main/0": (5, 2), "main/1": (0, 2)}
    with pytest.raises(WorkerError, match=told):
        job.run(lambda: False)


def test_partitions_that_are_added_may_begin_with_new_models(job: Job) -> None:
    job.create_input(2)
    job.feed(5)
    with job.running(input=", on_repartition: new-models, start: latest") as end:
        # Its own start is at the end of the topic: it has begun once it sees what comes later.
        until(lambda: job.feed(1) is None and len(job.published()) > 0)
        job.admin.create_partitions([NewPartitions(job.events, 3)])[job.events].result(WITHIN_S)
        until(lambda: len(job.admin.list_topics(job.events, timeout=WITHIN_S).topics[job.events].partitions) == 3)
        job.feed(4, 2)
        until(lambda: sum(message.key == b"model-2" for message in job.published()) == 4)
    assert end() is None
    assert {place: partitions for place, (_, partitions) in job.checkpoints().items()}["main/2"] == 3
    job.feed(2, 2)
    job.run(input=", on_repartition: new-models")
    job.run()
    assert {partitions for _, partitions in job.checkpoints().values()} == {3}
    new = [json.loads(message.value or b"")["learned"] for message in job.published() if message.key == b"model-2"]
    assert new == [*range(6)]


# Records that are gone


@pytest.fixture
def unsaved(job: Job) -> Job:
    """Ten records are committed, none of them is in a checkpoint."""
    job.create_input()
    job.feed(10)
    job.crash_after(10)
    return job


def test_a_retention_gap_stops_the_partition(unsaved: Job, caplog: pytest.LogCaptureFixture) -> None:
    unsaved.delete_records(before=4)
    unsaved.feed(2)
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        unsaved.run()
    assert "the checkpoint is at offset 0, the group at 10, but the topic begins at 4: 4 records" in caplog.text


def test_a_retention_gap_that_is_accepted_goes_on_under_another_lineage(unsaved: Job) -> None:
    unsaved.delete_records(before=4)
    unsaved.feed(2)
    unsaved.run(input=", on_gap: accept")
    assert unsaved.learned()[10:] == [(10, 6), (11, 7)]
    assert [lineage_of(message) for message in unsaved.published()[10:]] == ["main~p0@4"] * 2
    assert unsaved.checkpoints() == {"main/0": (0, 1), "main~p0@4/0": (12, 1)}
    unsaved.feed(1)
    unsaved.run()
    assert unsaved.learned()[12:] == [(12, 8)]


@pytest.mark.parametrize("on_gap", ["fail", "accept"])
def test_records_that_vanish_in_a_replay(
    unsaved: Job, on_gap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process, first = Task.process, True

    def and_delete(task: Task, records: Sequence[Record], **options: Any) -> BatchResult:
        nonlocal first
        if first and task.state is State.REPLAY:
            unsaved.delete_records(before=8)
            first = False
        return process(task, records, **options)

    monkeypatch.setattr(Task, "process", and_delete)
    unsaved.feed(2)
    # One record at a time, and none ahead of it: what was fetched before it vanished would be there all the same.
    slowly = {"transaction": ", max_records: 1", "kafka": "  queued.min.messages: 1\n  max.partition.fetch.bytes: 1"}
    if on_gap == "fail":
        with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
            unsaved.run(**slowly)
        assert "offset-out-of-range: " in caplog.text
        assert "-events[0]: fetch failed due to requested offset not available" in caplog.text
        return
    unsaved.run(input=", on_gap: accept", **slowly)
    (offset, learned), (last, _) = unsaved.learned()[10:]
    assert (offset, last) == (10, 11)
    assert 3 <= learned < 10
    assert {lineage_of(message) for message in unsaved.published()[10:]} == {"main~p0@8"}


# Another offset of the group


def test_offsets_that_are_set_back_publish_the_same_again(unsaved: Job) -> None:
    before = unsaved.published()
    unsaved.commit(6)
    unsaved.run()
    again = unsaved.published()[10:]
    assert [(each.key, each.value, each.headers) for each in again] == [
        (each.key, each.value, each.headers) for each in before[6:]
    ]


def test_a_group_before_its_checkpoint_stops_unless_that_is_accepted(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.create_input()
    job.feed(5)
    job.run()
    job.commit(3)
    job.feed(2)
    with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
        job.run()
    assert "group-rewound: " in caplog.text
    assert "the group is at offset 3, but has been at 5" in caplog.text
    assert len(job.published()) == 5
    job.run(input=", on_rewind: accept")
    assert [offset for offset, _ in job.learned()] == [0, 1, 2, 3, 4, 3, 4, 5, 6]


def test_offsets_that_are_set_ahead_are_learned_and_not_published(unsaved: Job) -> None:
    unsaved.feed(5)
    unsaved.commit(13)
    unsaved.run()
    assert unsaved.learned()[10:] == [(13, 13), (14, 14)]


def test_offsets_that_have_expired_go_on_from_the_newest_checkpoint(job: Job) -> None:
    job.create_input()
    job.feed(5)
    job.run()
    job.admin.delete_consumer_groups([job.group])[job.group].result(WITHIN_S)
    job.feed(2)
    job.run()
    assert job.learned() == [(offset, offset) for offset in range(7)]


# Runs with an end


def test_a_backfill_equals_a_live_run(job: Job, broker: Broker, topics: Names, tmp_path: Path) -> None:
    job.create_input(2)
    job.feed(7, transactional=True)
    job.feed(3, 1, transactional=True)
    # The marker of the transaction is the last thing in the partition: no record is at its end.
    job.run()
    backfilled, saved = job.published(), job.checkpoints()
    assert saved == {"main/0": (7, 2), "main/1": (3, 2)}
    live = Job.__new__(Job)
    live.__dict__ |= job.__dict__ | {"group": topics.name("live"), "folder": tmp_path / "live"}
    with live.running():
        live.published(20)
    assert live.checkpoints() == saved
    by_place = lambda messages: sorted((m.key or b"", m.value or b"", str(m.headers)) for m in messages)  # noqa: E731
    assert by_place(live.published()[10:]) == by_place(backfilled)


def test_run_until_offsets_or_the_end_is_a_command(job: Job, tmp_path: Path) -> None:
    job.create_input(2)
    (tmp_path / "worker.yaml").write_text(job.text())

    def run(end: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "worker", "run", str(tmp_path / "worker.yaml"), "--until", end]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WITHIN_S)
        assert done.returncode == code, done.stderr[-4000:]
        return done.stderr

    assert "--until names partitions [7]" in run("7:4", code=2)
    run("end")
    assert job.published() == []
    job.feed(6)
    job.feed(2, 1)
    run("0:4")
    assert sorted(job.learned()) == [(offset, offset) for offset in range(4)]
