"""Topics and groups that change under the checkpoints, against a real broker, and runs that have an end.

The workers are those of `amf-worker run`, in this process; most of them run to the end of the topic and stop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions

from tests.kafka.broker import Broker
from tests.kafka.conftest import Names
from tests.kafka.topic_job import WITHIN_S, Job, lineage_of, offset_of
from tests.waiting import until
from worker import cli, service
from worker.adapters.kafka import KafkaAdmin, KafkaGroup
from worker.base.errors import WorkerError
from worker.base.metrics import Metrics
from worker.base.records import Record
from worker.config import loads
from worker.runtime import topic_monitor as watch
from worker.task.processor import BatchResult
from worker.task.task import State, Task

pytestmark = pytest.mark.kafka


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


def test_an_input_that_becomes_compacted_ends_its_worker_in_order(job: Job) -> None:
    """Else whoever takes its partitions over would replay what is left, and learn something else in silence."""
    job.create_input()
    job.feed(5)
    with job.running() as end:
        assert len(job.published(5)) == 5
        job.set_settings(job.events, {"cleanup.policy": "compact"})
        assert str(end()).startswith(f"compacted-input: topic {job.events} has cleanup.policy=compact: ")
    assert job.covered() == 5


def test_outputs_that_their_topic_deletes_are_named(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.create_input(retention_ms="-1")
    job.set_settings(job.dead, {"retention.ms": "86400000"})
    job.set_settings(job.predictions, {"cleanup.policy": "compact"})
    (tmp_path / "worker.yaml").write_text(job.text())
    assert cli.main(["check", str(tmp_path / "worker.yaml"), "--connect"]) == 1
    told = capsys.readouterr().out
    assert f"failed  compacted-output: topic {job.predictions} has cleanup.policy=compact: " in told
    assert f"warning  topic {job.dead}: retention.ms=86400000, and the input's is -1: " in told
    with pytest.raises(WorkerError, match="compacted-output"):
        job.run()


def test_a_topic_that_wants_more_replicas_in_sync_than_it_has_takes_outputs_all_the_same(job: Job) -> None:
    """Kafka goes by how many there are, so what is a mistake must not keep a worker from its start."""
    job.create_input()
    job.feed(2)
    job.set_settings(job.predictions, {"min.insync.replicas": "2"})
    job.run()
    assert job.learned() == [(0, 0), (1, 1)]


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
    assert "ok      2 models saved" in capsys.readouterr().out
    changed = job.text(models={"default": {"n_estimators": 2}})
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
    config.write_text(job.text(checkpoint={"lineage": "other"}))
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


def test_partitions_that_were_added_are_seen_before_a_record_is_taken(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 1e6)
    job.create_input(2)
    job.feed(5)
    settings = job.config()
    worker = service.build(settings, KafkaAdmin(settings), job.group, Metrics())
    job.admin.create_partitions([NewPartitions(job.events, 3)])[job.events].result(WITHIN_S)
    deadline = time.monotonic() + WITHIN_S
    with pytest.raises(WorkerError, match="partitions-added"):
        worker.run(lambda: time.monotonic() > deadline)
    assert job.published() == []


def test_partitions_that_are_added_may_begin_with_new_models(job: Job) -> None:
    job.create_input(2)
    job.feed(5)
    with job.running(input={"on_repartition": "new-models", "start": "latest"}) as end:
        # Its own start is at the end of the topic: it has begun once it sees what comes later.
        until(lambda: job.feed(1) is None and len(job.published()) > 0)
        job.admin.create_partitions([NewPartitions(job.events, 3)])[job.events].result(WITHIN_S)
        until(lambda: len(job.admin.list_topics(job.events, timeout=WITHIN_S).topics[job.events].partitions) == 3)
        job.feed(4, 2)
        until(lambda: sum(message.key == b"model-2" for message in job.published()) == 4)
    assert end() is None
    assert {place: partitions for place, (_, partitions) in job.checkpoints().items()}["main/2"] == 3
    job.feed(2, 2)
    job.run(input={"on_repartition": "new-models"})
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
    unsaved.run(input={"on_gap": "accept"})
    assert unsaved.learned()[10:] == [(10, 6), (11, 7)]
    assert [lineage_of(message) for message in unsaved.published()[10:]] == ["main~p0@4"] * 2
    assert unsaved.checkpoints() == {"main/0": (0, 1), "main~p0@4/0": (12, 1)}
    unsaved.feed(1)
    unsaved.run()
    assert unsaved.learned()[12:] == [(12, 8)]


@pytest.mark.parametrize("aborted", [False, True])
def test_markers_and_what_was_aborted_may_be_deleted(job: Job, aborted: bool) -> None:
    job.create_input()
    job.feed(10, transactional=True)
    job.run()
    if aborted:
        job.abort(10)
        job.run()
    job.delete_records(before=22 if aborted else 11)
    job.run()
    job.feed(2, transactional=True)
    job.run()
    assert job.learned() == [*((n, n) for n in range(10)), *((22 + n if aborted else 11 + n, 10 + n) for n in range(2))]
    assert {lineage_of(message) for message in job.published()} == {"main"}


def test_records_of_an_open_transaction_are_not_taken_for_markers(job: Job) -> None:
    job.create_input()
    job.feed(10, transactional=True)
    with job.transaction(5):
        with job.running():
            assert len(job.published(10)) == 10
        assert job.covered() == 11
    job.run()
    assert [learned for _, learned in job.learned()] == [*range(15)]
    assert job.covered() == 17


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
    slowly = {
        "transaction": {"max_records": 1},
        "kafka": {"queued.min.messages": 1, "max.partition.fetch.bytes": 1},
    }
    if on_gap == "fail":
        with pytest.raises(WorkerError, match="every partition of this worker has stopped"):
            unsaved.run(**slowly)
        assert "offset-out-of-range: " in caplog.text
        assert "-events[0]: fetch failed due to requested offset not available" in caplog.text
        return
    unsaved.run(input={"on_gap": "accept"}, **slowly)
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
    job.run(input={"on_rewind": "accept"})
    assert [offset for offset, _ in job.learned()] == [0, 1, 2, 3, 4, 3, 4, 5, 6]


def test_offsets_of_a_group_can_be_set_once_the_session_of_a_named_worker_has_ended(job: Job) -> None:
    """As the runbook says: a worker with a `group.instance.id` is a member for a while after it has stopped."""
    job.create_input()
    job.feed(5)
    job.run(kafka={"group.instance.id": "worker-0", "session.timeout.ms": 6000})
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        job.commit(0)
    until(lambda: not KafkaGroup(job.config()).has_members(), within_s=30.0)
    job.commit(0)


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
