"""Models named by a field, on a real broker: forwarded, predicted and published exactly once, killed or not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType

from tests.kafka.broker import Broker, Message, committed_offsets, read_all
from tests.kafka.configurations import configuration, named
from tests.kafka.workers import WorkerProcess, page, wait_for_progress, within
from tests.waiting import until
from worker.adapters.kafka import KafkaAdmin, make_internal_topic
from worker.base.errors import WorkerError
from worker.base.partitioner import partition_of
from worker.config import load

pytestmark = pytest.mark.kafka

PARTITIONS = 3
SHOPS = [f"shop-{i}" for i in range(6)] + [7, True]
SEED = 20261122
KILLS = 4
JAVA_PARTITIONS = {"foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107, "21": -973932308}
"""Hashes that Kafka's own tests publish for its Java client."""


class Job:
    """Topics and a configuration of one test."""

    def __init__(self, broker: Broker, topics, folder: Path, partitions: int = PARTITIONS) -> None:
        self.broker = broker
        self.events, self.predictions, self.dead = (topics.name(kind) for kind in ("events", "predictions", "dead"))
        self.group = topics.name("group")
        self.internal = f"{self.group}--{self.events}-repartition"
        settings = {"retention.ms": "86400000", "message.timestamp.after.max.ms": "7200000"}
        broker.create_topic(self.events, partitions, settings)
        broker.create_topic(self.predictions, partitions)
        broker.create_topic(self.dead)
        self.folder = folder
        self.config = folder / "worker.yaml"
        changes = {
            "input": {"model_key": "field:shop", "repartition": True},
            "kafka": {"group.instance.id": "${INSTANCE}"},
        }
        self.config.write_text(configuration(broker.bootstrap, folder, named(topics), changes))

    def worker(self, name: str, **environ: str) -> WorkerProcess:
        return WorkerProcess(self.config, self.folder / f"{name}.log", INSTANCE=name, **environ)

    def command(self, *words: str) -> tuple[int, str]:
        """Exit code of a command on this configuration, and what it says of a failure."""
        name, *options = words
        done = subprocess.run(
            [sys.executable, "-m", "worker", name, str(self.config), *options],
            env={**os.environ, "INSTANCE": "a"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stderr if done.returncode else ""

    def feed(self, n: int, seed: int, *, transactional: bool = False) -> None:
        """Events without a key, so that those of one shop lie in all partitions; one in fifty names no shop."""
        rng = random.Random(seed)
        how = {"transactional.id": f"{self.events}-feeder"} if transactional else {"enable.idempotence": True}
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **how})
        if transactional:
            producer.init_transactions(60)
            producer.begin_transaction()
        for i in range(n):
            x = rng.random()
            value = {"id": f"{seed}-{i}", "features": [x, rng.random()], "label": x > 0.5, "shop": rng.choice(SHOPS)}
            if rng.random() < 0.02:
                del value["shop"]
            producer.produce(self.events, json.dumps(value), partition=i % PARTITIONS)
        if transactional:
            producer.commit_transaction(60)
        assert producer.flush(60) == 0

    def require_exact(self, n: int, *workers: WorkerProcess) -> None:
        """Each event is forwarded or a dead letter, once; what is forwarded is predicted once, in its model's order."""
        events = {(each.partition, each.offset): each for each in read_all(self.broker.bootstrap, self.events)}
        keyed = {place for place, each in events.items() if "shop" in json.loads(each.value or b"")}
        wait_for_progress(self.broker.bootstrap, self.predictions, PARTITIONS, 0, list(workers))
        predictions = read_all(self.broker.bootstrap, self.predictions, until=len(keyed), timeout=120)
        forwarded = read_all(self.broker.bootstrap, self.internal)
        dead = read_all(self.broker.bootstrap, self.dead, until=len(events) - len(keyed), timeout=60)
        assert len(events) == n
        assert Counter(map(origin, forwarded)) == Counter(keyed)
        assert Counter(place(each, "source") for each in dead) == Counter(events.keys() - keyed)
        for each in forwarded:
            self._require_unchanged(each, events[origin(each)])
        assert Counter(map(origin, predictions)) == Counter(keyed)
        assert {source_topic(each) for each in predictions} == {self.internal.encode()}
        self._require_learned_in_order(predictions)

    def _require_unchanged(self, forwarded: Message, event: Message) -> None:
        shop = json.loads(event.value or b"")["shop"]
        assert forwarded.key == (shop if isinstance(shop, str) else json.dumps(shop)).encode()
        assert (forwarded.value, forwarded.timestamp) == (event.value, event.timestamp)
        assert forwarded.partition == partition_of(forwarded.key, PARTITIONS)

    def _require_learned_in_order(self, predictions: list[Message]) -> None:
        """Every event has a label, so that a model has learned one more at each."""
        learned: dict[bytes, list[int]] = {}
        for each in sorted(predictions, key=lambda each: place(each, "source")):
            learned.setdefault(each.key or b"", []).append(json.loads(each.value or b"")["learned"])
        assert {key: list(range(len(counts))) for key, counts in learned.items()} == learned


def place(message: Message, of: str) -> tuple[int, int]:
    headers = dict(message.headers)
    return int(headers[f"{of}-partition"] or b""), int(headers[f"{of}-offset"] or b"")


def origin(message: Message) -> tuple[int, int]:
    return place(message, "origin")


def source_topic(message: Message) -> bytes | None:
    return dict(message.headers)["source-topic"]


@pytest.fixture
def job(broker, topics, tmp_path) -> Job:
    return Job(broker, topics, tmp_path)


def test_models_named_by_a_field_learn_from_events_of_all_partitions(job: Job):
    job.feed(900, SEED)
    with job.worker("a") as a, job.worker("b") as b:
        job.require_exact(900, a, b)
        assert (a.terminate(), b.terminate()) == (0, 0)
    committed = committed_offsets(job.broker.bootstrap, f"{job.group}-repartition", job.events)
    assert committed == dict.fromkeys(range(PARTITIONS), 300)
    with job.worker("a") as a:
        job.feed(300, SEED + 1)
        job.require_exact(1200, a)
        assert a.terminate() == 0


def test_an_internal_topic_that_retention_has_emptied_stops_nobody(job: Job):
    """It is written in transactions: what is gone behind the last prediction are their markers."""
    job.feed(60, SEED)
    with job.worker("a") as a:
        job.require_exact(60, a)
        assert a.terminate() == 0
    admin, ends = job.broker.admin(), [TopicPartition(job.internal, n, OFFSET_END) for n in range(PARTITIONS)]
    emptied = admin.delete_records(ends)
    assert all(each.result(30).low_watermark > 0 for each in emptied.values())
    job.feed(60, SEED + 1)
    keyed = sum("shop" in json.loads(each.value or b"") for each in read_all(job.broker.bootstrap, job.events))
    with job.worker("a") as a:
        predictions = read_all(job.broker.bootstrap, job.predictions, until=keyed, timeout=60)
        assert (len(predictions), a.terminate()) == (keyed, 0), a.log()
    job._require_learned_in_order(predictions)


def test_an_input_in_transactions_that_retention_has_emptied_stops_no_forwarder(job: Job):
    """What is gone behind the last record that was forwarded are markers; the group still stands at that record."""
    job.feed(60, SEED, transactional=True)
    group = f"{job.group}-repartition"
    with job.worker("a") as a:
        job.require_exact(60, a)
        within(30, a, lambda: all("no record from" in each for each in notes(job, group)))
        assert a.terminate() == 0
    assert committed_offsets(job.broker.bootstrap, group, job.events) == dict.fromkeys(range(PARTITIONS), 20)
    admin, ends = job.broker.admin(), [TopicPartition(job.events, n, OFFSET_END) for n in range(PARTITIONS)]
    assert {each.result(30).low_watermark for each in admin.delete_records(ends).values()} == {21}
    job.feed(60, SEED + 1, transactional=True)
    forwarded = len(read_all(job.broker.bootstrap, job.internal))
    with job.worker("a") as a:
        keyed = sum("shop" in json.loads(each.value or b"") for each in read_all(job.broker.bootstrap, job.events))
        assert keyed > 50
        found = read_all(job.broker.bootstrap, job.internal, until=forwarded + keyed, timeout=60)
        assert (len(found), a.terminate()) == (forwarded + keyed, 0), a.log()


def notes(job: Job, group: str) -> list[str]:
    """What is committed along with the group's offsets on the input."""
    asking = Consumer({"bootstrap.servers": job.broker.bootstrap, "group.id": group})
    found = asking.committed([TopicPartition(job.events, n) for n in range(PARTITIONS)], timeout=30)
    asking.close()
    return [each.metadata or "" for each in found]


@pytest.mark.full
def test_a_worker_is_ready_once_its_forwarder_is_in_its_group_be_it_to_stand_by(broker, topics, tmp_path):
    job = Job(broker, topics, tmp_path, partitions=1)

    def is_ready(worker: WorkerProcess) -> bool:
        with suppress(AssertionError, OSError):  # It is not served yet, or answers 503.
            return page(worker, "/ready") == "ready\n"
        return False

    with job.worker("a") as a, job.worker("b") as b:
        for worker in (a, b):
            within(120, worker, lambda worker=worker: is_ready(worker))
        shown = [page(worker, "/metrics") for worker in (a, b)]
        assert all("\namf_forwarder_topic_partitions 1.0\n" in metrics for metrics in shown)
        lag = '\namf_forwarder_lag_records{input_partition="0"} 0.0\n'
        within(30, a, lambda: sum(lag in page(worker, "/metrics") for worker in (a, b)) == 1)
        assert (a.terminate(), b.terminate()) == (0, 0)


@pytest.mark.full
def test_models_move_when_partitions_are_added_to_the_internal_topic(job: Job):
    job.feed(300, SEED)
    with job.worker("a") as a:
        job.require_exact(300, a)
        assert a.terminate() == 0
    admin = job.broker.admin()
    added = admin.create_partitions([NewPartitions(job.internal, 5)])
    added[job.internal].result(30)
    assert job.command("run", "--until", "end") == (0, "")
    deadline = time.monotonic() + 60
    # Who leaves with a group.instance.id is a member until the session has ended.
    while (refused := job.command("reshard"))[0]:
        assert "step 3 is not done" in refused[1]
        assert time.monotonic() < deadline
    job.config.write_text(job.config.read_text().replace("checkpoint: {", "checkpoint: {lineage: main~5, "))
    with job.worker("a") as a:
        job.feed(300, SEED + 1)
        wait_for_progress(job.broker.bootstrap, job.predictions, PARTITIONS, 0, [a])
        predictions = read_all(job.broker.bootstrap, job.predictions, until=580, timeout=120)
        assert a.terminate() == 0
    learned: dict[bytes, list[int]] = {}
    for each in predictions:
        learned.setdefault(each.key or b"", []).append(json.loads(each.value or b"")["learned"])
    assert {key: sorted(counts) for key, counts in learned.items()} == {
        key: list(range(len(counts))) for key, counts in learned.items()
    }
    assert {place(each, "source")[0] for each in predictions} == {
        partition_of(each.key or b"", n) for each in predictions for n in (3, 5)
    }


@pytest.mark.full
def test_killed_at_random_moments_it_publishes_the_same(job: Job):
    moments = random.Random(SEED)
    fed = came = 0
    with job.worker("a") as a, job.worker("b") as b:
        for _ in range(KILLS):
            job.feed(300, fed)
            fed += 300
            came = wait_for_progress(job.broker.bootstrap, job.predictions, PARTITIONS, came, [a, b])
            victim = moments.choice([a, b])
            victim.kill()
            victim.start()
        job.require_exact(fed, a, b)


@pytest.mark.parametrize(
    "point",
    [
        "offsets-sent:1",
        *(
            pytest.param(point, marks=pytest.mark.full)
            for point in ("learned:1", "producing:100", "committed:1", "offsets-sent:2")
        ),
    ],
)
def test_killed_within_a_transaction_it_publishes_the_same(job: Job, point: str):
    """The first transaction of a process is the forwarder's; only the worker learns."""
    job.feed(300, SEED)
    with job.worker("a", AMF_FAILPOINT=point) as doomed:
        assert doomed.process.wait(60) == -9
    with job.worker("a") as worker:
        job.require_exact(300, worker)


def test_the_internal_topic_is_kept_as_the_input_and_may_be_made_beforehand(job: Job):
    command = [sys.executable, "-m", "worker", "check", str(job.config), "--create-topics"]
    for expected in (f"ok      topic {job.internal}: made with {PARTITIONS} partitions\n", ""):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"INSTANCE": "x"})
        assert done.returncode == 0, done.stderr
        assert done.stdout.partition("\n")[2] == expected
    connected = subprocess.run(
        [*command[:-1], "--connect"], capture_output=True, text=True, timeout=60, env={"INSTANCE": "x"}
    )
    assert f"ok      topic {job.internal}: {PARTITIONS} partitions" in connected.stdout
    settings = topic_settings(job.broker, job.internal)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("86400000", "delete")
    assert settings["message.timestamp.after.max.ms"] == "7200000"


def test_where_the_internal_topic_must_not_be_made_the_error_says_what_to_do(job: Job):
    class Forbidden(KafkaAdmin):
        def create(self, topics, partitions, settings=None):
            raise WorkerError(f"topic {topics[0]} cannot be made; the worker's user needs ACLs that allow CREATE")

    config = load(job.config, {"INSTANCE": "x"})
    with pytest.raises(WorkerError, match=rf"{job.internal} .*allow CREATE.*make it beforehand with {PARTITIONS} part"):
        make_internal_topic(Forbidden(config), config)


def test_a_failure_of_the_forwarder_ends_the_worker(job: Job):
    producer = Producer({"bootstrap.servers": job.broker.bootstrap})
    for _ in range(20):
        producer.produce(job.events, b"{}")
    assert producer.flush(60) == 0
    job.config.write_text(job.config.read_text().replace("dead_letter: {", "dead_letter: {max_consecutive: 3, "))
    with job.worker("a") as worker:
        assert worker.process.wait(60) == 1
        assert "could not be forwarded ({'missing-model-key':" in worker.log()


@pytest.mark.full
def test_a_group_that_forgot_its_offsets_does_not_forward_all_again(job: Job):
    job.feed(60, SEED)
    with job.worker("a") as worker:
        job.require_exact(60, worker)
        assert worker.terminate() == 0
    # As after offsets.retention.minutes without a member.
    group, admin = f"{job.group}-repartition", job.broker.admin()
    until(lambda: forgotten(admin, group))
    forwarded = read_all(job.broker.bootstrap, job.internal)
    with job.worker("a") as worker:
        assert worker.process.wait(60) == 1
        assert f"group {group} has no committed offsets on {job.events}" in worker.log()
    assert read_all(job.broker.bootstrap, job.internal) == forwarded


def test_a_group_that_has_worked_without_it_does_not_predict_all_again(job: Job):
    job.feed(60, SEED)
    of_group = Consumer({"bootstrap.servers": job.broker.bootstrap, "group.id": job.group})
    of_group.commit(offsets=[TopicPartition(job.events, 0, 7)], asynchronous=False)
    of_group.close()
    said = f"group {job.group} has worked off {job.events} itself, without input.repartition"
    assert job.command("check", "--create-topics") == (0, "")
    require_refused(job, said)
    assert read_all(job.broker.bootstrap, job.internal) == []
    assert forgotten(job.broker.admin(), job.group)
    with job.worker("a") as worker:
        job.require_exact(60, worker)
        assert worker.terminate() == 0


def test_a_group_that_has_worked_with_it_does_not_predict_all_again_without(job: Job):
    job.feed(60, SEED)
    with job.worker("a") as worker:
        job.require_exact(60, worker)
        assert worker.terminate() == 0
    predictions = read_all(job.broker.bootstrap, job.predictions)
    with_it = job.config.read_text()
    without = with_it.replace('"repartition": true', '"repartition": false').replace("field:shop", "key")
    job.config.write_text(without)
    assert without.count('"repartition": false') == 1
    said = f"group {job.group} has worked off {job.events} through {job.internal}, with input.repartition"
    require_refused(job, said)
    assert read_all(job.broker.bootstrap, job.predictions) == predictions
    job.config.write_text(with_it)
    with job.worker("a") as worker:
        job.feed(60, SEED + 1)
        job.require_exact(120, worker)
        assert worker.terminate() == 0


def require_refused(job: Job, said: str) -> None:
    """Neither a look at the broker nor a start finds it well, and both say why."""
    connected = subprocess.run(
        [sys.executable, "-m", "worker", "check", str(job.config), "--connect"],
        capture_output=True, text=True, timeout=60, env={"INSTANCE": "x"},
    )  # fmt: skip
    assert (connected.returncode, f"failed  {said}" in connected.stdout) == (1, True)
    with job.worker("a") as worker:
        assert worker.process.wait(60) == 1
        assert said in worker.log()


def forgotten(admin: AdminClient, group: str) -> bool:
    """Delete a group, which needs to be empty: its static member is gone once its session has ended."""
    [future] = admin.delete_consumer_groups([group]).values()
    try:
        future.result(10)
    except KafkaException as exception:
        return exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    return True


def test_librdkafka_and_our_partitioner_place_keys_as_java_does(broker, topics):
    topic = topics.create("keys", 7)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    keys = [*JAVA_PARTITIONS, *(f"key-{i}" for i in range(200)), "caf\u00e9", "x" * 500]
    for key in keys:
        producer.produce(topic, b"", key.encode())
    assert producer.flush(60) == 0
    found = {(each.key or b"").decode(): each.partition for each in read_all(broker.bootstrap, topic, until=len(keys))}
    assert found == {key: partition_of(key.encode(), 7) for key in keys}
    assert {key: found[key] for key in JAVA_PARTITIONS} == {
        key: (hashed & 0x7FFFFFFF) % 7 for key, hashed in JAVA_PARTITIONS.items()
    }


def topic_settings(broker: Broker, topic: str) -> dict[str, str]:
    admin = broker.admin()
    [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(30).items()}
