"""TLS, SASL and ACLs against a real broker: who is let in works, who is not learns why, and no secret is shown."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.availability import Unavailable, give_up
from tests.kafka.broker import committed_offsets, read_all
from tests.kafka.configurations import Sections, configuration
from tests.kafka.secured import SecuredBroker
from tests.kafka.workers import WorkerProcess, page, require_each_once, wait_for_progress, within
from tests.worker.support.fake_clients import NoListener
from worker.adapters.kafka import KafkaInput, KafkaOutput, producer
from worker.adapters.kafka.errors import Admission, client, explained, failure
from worker.base.errors import Abort, ConfigError, Fatal, Transient, Unanswered, WorkerError
from worker.base.records import CommittedOffset, Membership, Outgoing
from worker.config import load

PASSWORD = "hunter2-of-the-user"
OTHER_SECRETS = {
    "OAUTH": "hunter3-of-oauth",
    "CLIENT_SECRET": "hunter4-of-the-client",
    "KEY_PASSWORD": "hunter5-of-the-key",
}
PARTITIONS = 2
ROWS = 200
END_WITHIN_S = 180.0

UNUSED_SECRETS = {
    "sasl.oauthbearer.config": "principal=x secret=${OAUTH}",
    "sasl.oauthbearer.client.secret": "${CLIENT_SECRET}",
    "ssl.key.password": "${KEY_PASSWORD}",
    "debug": "all",
}


REFUSED = {
    "cannot-read": ("TOPIC", "events", "READ"),
    "cannot-see": ("TOPIC", "events", "DESCRIBE"),
    "cannot-write": ("TOPIC", "cannot-write-predictions", "WRITE"),
    "cannot-join": ("GROUP", "cannot-join", "READ"),
    "cannot-transact": ("TRANSACTIONAL_ID", "cannot-transact:one", "WRITE"),
}
"""User -> the type and name of a resource, and the operation there that it lacks and its worker ends without."""
WORDS = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "transactional.id"}
REASONS = {
    "wrong-password": r"invalid credentials.*; check kafka\.sasl\.mechanism and the user's name and secret",
    "unknown-authority": r"certificate verify failed.*; check kafka\.ssl\.ca\.location",
    **{
        user: rf"; the worker's user needs ACLs that allow .*\b{operation} on {WORDS[kind]} {name}(,|$)"
        for user, (kind, name, operation) in REFUSED.items()
    },
}
"""What the last line of each worker that is refused is like."""
WORKING = ("works", "with-token", "just-works", "only-checks")


def grants_of(user: str) -> Iterator[tuple[str, str, str, str]]:
    """What a worker of this user needs, less what this user is not to have. READ and WRITE bring DESCRIBE with them."""
    configs = "" if user == "just-works" else "DESCRIBE_CONFIGS"
    needed = {
        ("TOPIC", "events"): f"READ {configs}",
        ("TOPIC", f"{user}-predictions"): f"WRITE {configs}",
        ("TOPIC", "dead-letters"): f"WRITE {configs}",
        ("GROUP", user): "READ",
        ("TRANSACTIONAL_ID", f"{user}:one"): "WRITE",
    }
    if user in REFUSED:
        kind, name, lacks = REFUSED[user]
        needed[kind, name] = "" if lacks == "DESCRIBE" else "DESCRIBE"
    if user == "just-works":
        needed["TOPIC", "dead-letters"] = "DESCRIBE"
    for (kind, name), operations in needed.items():
        yield user, operations, kind, name


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One secured broker, with users, events, and topics for the predictions of each."""
    try:
        with SecuredBroker(tmp_path_factory.mktemp("certificates")) as broker:
            _fill(broker)
            yield broker
    except Unavailable as reason:
        give_up(str(reason))


def _fill(broker: SecuredBroker) -> None:
    users = [*REFUSED, *WORKING]
    broker.add_users(users, PASSWORD)
    broker.allow(grant for user in users for grant in grants_of(user))
    broker.create_topic("events", PARTITIONS)
    for topic in ("dead-letters", *(f"{user}-predictions" for user in users)):
        broker.create_topic(topic)
    events = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for i in range(ROWS):
        events.produce("events", json.dumps({"features": [i % 7, i % 3], "label": i % 2}), f"model-{i % 4}")
    assert events.flush(30) == 0


def configuration_of(user: str, bootstrap: str, folder: Path, login: Sections) -> str:
    """A worker of a user, whose name is that of its group and begins that of its output."""
    names = {
        "output": {"topic": f"{user}-predictions"},
        "dead_letter": {"topic": "dead-letters"},
        "kafka": {"group.id": user, "group.instance.id": "one"},
    }
    return configuration(bootstrap, folder, names, {"kafka": login})


def write_config(
    broker: SecuredBroker, folder: Path, user: str, login: Sections, authority: Path | None = None
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{user}.yaml"
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority or broker.authority)}
    path.write_text(configuration_of(user, broker.secured, folder, {**tls, **login}))
    return path


def scram(user: str, password: str = "${KAFKA_PASSWORD}") -> dict[str, str]:
    return {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}


def oauthbearer(user: str) -> dict[str, object]:
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": f"principal={user}",
    }


def require_predictions(broker: SecuredBroker, user: str, worker: WorkerProcess) -> None:
    """Each event answered once, in committed transactions."""
    wait_for_progress(broker.bootstrap, f"{user}-predictions", 1, ROWS - 1, [worker])
    messages = read_all(broker.bootstrap, f"{user}-predictions", until=ROWS)
    events = read_all(broker.bootstrap, "events")
    ends = {n: sum(event.partition == n for event in events) for n in range(PARTITIONS)}
    assert len(messages) == ROWS
    require_each_once(messages, ends)
    assert committed_offsets(broker.bootstrap, user, "events") == ends


def check(config: Path, **environ: str) -> tuple[int, str]:
    """Exit code of `amf-worker check --connect`, and all that it writes."""
    command = [sys.executable, "-m", "worker", "check", str(config), "--verbose", "--connect"]
    command += ["--log-level", "debug"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, env={**os.environ, **environ}
    )
    return done.returncode, done.stdout


def require_no_secret(text: str) -> None:
    found = [secret for secret in (PASSWORD, *OTHER_SECRETS.values()) if secret in text]
    assert not found, f"{found[0]} is in: ...{text[max(0, text.find(found[0]) - 200) :][:400]}"


# --- who is let in ----------------------------------------------------------------------------------------------------


def test_a_worker_with_tls_and_scram_works_and_tells_no_secret(secured: SecuredBroker, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    login = scram("works", f"${{file:{tmp_path}/password}}") | UNUSED_SECRETS
    config = write_config(secured, tmp_path, "works", login)
    with WorkerProcess(config, tmp_path / "log", "--log-level", "debug", **OTHER_SECRETS) as worker:
        within(END_WITHIN_S, worker, lambda: "metrics at" in worker.log())
        require_predictions(secured, "works", worker)
        metrics = page(worker, "/metrics")
        assert worker.terminate() == 0
    assert "amf_predictions_total" in metrics
    # librdkafka says at debug level how it is configured: the log is one in which a secret could have been.
    assert "sasl.password = [redacted]" in worker.log()
    require_no_secret(metrics)
    require_no_secret(worker.log())


@pytest.mark.full
def test_a_worker_with_a_token_works(secured: SecuredBroker, tmp_path: Path) -> None:
    config = write_config(secured, tmp_path, "with-token", oauthbearer("with-token"))
    with WorkerProcess(config, tmp_path / "log") as worker:
        require_predictions(secured, "with-token", worker)
        assert worker.terminate() == 0


@pytest.mark.full
def test_what_may_not_be_asked_or_may_not_be_needed_is_a_warning(secured: SecuredBroker, tmp_path: Path) -> None:
    config = write_config(secured, tmp_path, "just-works", scram("just-works"))
    with WorkerProcess(config, tmp_path / "log", KAFKA_PASSWORD=PASSWORD) as worker:
        require_predictions(secured, "just-works", worker)
        assert worker.terminate() == 0
    lines = [json.loads(line) for line in worker.log().splitlines() if line.startswith("{")]
    warnings = "\n".join(str(line) for line in lines if line["level"] == "warning")
    assert {
        "WRITE on topic dead-letters",
        "DESCRIBE_CONFIGS on topic dead-letters",
        "DESCRIBE_CONFIGS on topic just-works-predictions",
    } <= set(re.findall(r"[A-Z_]+ on topic [\w-]+", warnings))


def test_check_says_what_works_and_no_secret(secured: SecuredBroker, tmp_path: Path) -> None:
    config = write_config(secured, tmp_path, "only-checks", scram("only-checks") | UNUSED_SECRETS)
    code, out = check(config, KAFKA_PASSWORD=PASSWORD, **OTHER_SECRETS)
    assert code == 0, out
    assert "sasl.password: '***'" in out
    assert re.search(r"^ok +topic events: 2 partitions", out, re.MULTILINE)
    require_no_secret(out)


def test_check_says_why_nobody_lets_it_in(secured: SecuredBroker, tmp_path: Path) -> None:
    config = write_config(secured, tmp_path, "works", scram("works"))
    code, out = check(config, KAFKA_PASSWORD="hunter2-of-nobody")
    assert code == 1, out
    assert re.search(rf"^failed  no broker answers at .*{secured.secured}: .*{REASONS['wrong-password']}", out, re.M)
    assert "hunter" not in out


# --- who is not -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endings(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Exit code and log of each worker that is refused; they run side by side, since some wait for a deadline."""
    folder = tmp_path_factory.mktemp("refused")
    workers = {
        user: WorkerProcess(
            write_config(secured, folder / user, user, scram(user)), folder / f"{user}.log", KAFKA_PASSWORD=PASSWORD
        )
        for user in REFUSED
    }
    config = write_config(secured, folder / "wrong", "works", scram("works") | UNUSED_SECRETS)
    environ = {"KAFKA_PASSWORD": "hunter2-of-nobody", **OTHER_SECRETS}
    workers["wrong-password"] = WorkerProcess(config, folder / "wrong.log", "--log-level", "debug", **environ)
    config = write_config(secured, folder / "stranger", "works", scram("works"), secured.stranger)
    workers["unknown-authority"] = WorkerProcess(config, folder / "stranger.log", KAFKA_PASSWORD=PASSWORD)
    try:
        codes = {name: worker.process.wait(END_WITHIN_S) for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.process.wait()
    return {name: (code, workers[name].log()) for name, code in codes.items()}


@pytest.mark.parametrize("name", REASONS)
def test_a_worker_that_is_refused_ends_and_says_what_to_do(name: str, endings: dict[str, tuple[int, str]]) -> None:
    code, log = endings[name]
    last = json.loads(log.splitlines()[-1])
    assert (code, "Traceback" in log) == (1, False), log[-4000:]
    assert last["event"] == "ended", log[-4000:]
    assert re.search(REASONS[name], last["fact"]), last
    assert "hunter" not in log


def test_a_consumer_that_is_not_let_in_says_why_as_soon_as_it_reads(secured: SecuredBroker, tmp_path: Path) -> None:
    """A start ends before that; a password may be changed later, or be another one at another broker."""
    path = write_config(secured, tmp_path, "works", scram("works"))
    source = KafkaInput(load(path, {"KAFKA_PASSWORD": "hunter2-of-nobody"}))
    source.subscribe(NoListener())
    deadline = time.monotonic() + 10
    while source.trouble() is None and time.monotonic() < deadline:
        source.consume(1, 0.1)
    assert re.search(REASONS["wrong-password"], source.trouble() or "")
    source.close()


def test_who_is_refused_publishes_nothing(secured: SecuredBroker, endings: dict[str, tuple[int, str]]) -> None:
    assert endings
    for user in REFUSED:
        assert read_all(secured.bootstrap, f"{user}-predictions") == []
        assert committed_offsets(secured.bootstrap, user, "events") == {}


def test_without_transactions_it_ends_too(secured: SecuredBroker, tmp_path: Path) -> None:
    path = write_config(secured, tmp_path, "cannot-write", scram("cannot-write"))
    output = KafkaOutput(load(path, {"KAFKA_PASSWORD": PASSWORD}), None)
    record = Outgoing("cannot-write-predictions", b"k", b"v", [], 0)
    with pytest.raises(WorkerError, match=r"needs ACLs that allow .*WRITE on topic cannot-write-predictions") as caught:
        output.publish([record], {}, Membership("", None))
    assert type(caught.value) is Fatal
    output.close()


# --- in words ---------------------------------------------------------------------------------------------------------


def test_only_needs_of_the_resource_in_question_are_named() -> None:
    needs = ("READ on topic a", "WRITE on topic b", "READ on group g", "IDEMPOTENT_WRITE on cluster")

    def advice(code: int) -> str:
        return explained(KafkaError(code, "no"), "x", *needs).partition(" allow ")[2]

    assert advice(KafkaError.TOPIC_AUTHORIZATION_FAILED) == "READ on topic a, WRITE on topic b"
    assert advice(KafkaError.GROUP_AUTHORIZATION_FAILED) == "READ on group g"
    assert advice(KafkaError.CLUSTER_AUTHORIZATION_FAILED) == "IDEMPOTENT_WRITE on cluster"
    assert advice(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) == "this use of the transactional.id"
    assert explained(KafkaError(KafkaError._TIMED_OUT, "late"), "x", *needs) == "x: late"


def test_what_is_forbidden_is_not_tried_again() -> None:
    forbidden = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "no", retriable=True)
    assert type(failure(forbidden, Transient, "x")) is Fatal
    assert type(failure(KafkaError(KafkaError._STATE, "odd"), Transient, "x")) is Transient


def test_properties_that_were_taken_before_are_no_mistake_of_the_configuration(tmp_path: Path) -> None:
    """A certificate that is being replaced, when a worker at work makes its next client, ends no worker."""
    authority = tmp_path / "ca.pem"

    def made(properties: Mapping[str, str], logger: object) -> object:
        if not authority.exists():
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        return object()

    given = {"ssl.ca.location": str(authority), "client.id": tmp_path.name}
    with pytest.raises(ConfigError, match=r"refuses the properties: ssl\.ca\.location failed"):
        client(made, given)
    authority.touch()
    client(made, given)
    authority.unlink()
    with pytest.raises(Transient, match=r"at the moment: ssl\.ca\.location failed"):
        client(made, {"ssl.ca.location": str(authority)})
    with pytest.raises(ConfigError):
        client(made, given | {"client.id": "another"})


@pytest.mark.parametrize(("otherwise", "kind"), [(Transient, Unanswered), (Fatal, Unanswered), (Abort, Abort)])
def test_where_nobody_answers_it_says_so_unless_more_is_known(
    otherwise: type[WorkerError], kind: type[WorkerError]
) -> None:
    assert type(failure(KafkaError(KafkaError._TIMED_OUT, "late"), otherwise, "x")) is kind
    assert type(failure(KafkaError(KafkaError._TIMED_OUT, "late", fatal=True), otherwise, "x")) is otherwise


class Refusing:
    """A producer whose transaction has failed of what is forbidden before anything asks about it."""

    called: ClassVar[list[str]] = []

    def __init__(self, properties: object, logger: object) -> None:
        self.called.clear()

    def __getattr__(self, method: str) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            self.called.append(method)
            if method == "send_offsets_to_transaction":
                raise KafkaException(KafkaError(KafkaError._STATE, "too late", txn_requires_abort=True))
            if method == "commit_transaction":
                raise KafkaException(
                    KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "forbidden", txn_requires_abort=True)
                )

        return call


def test_a_call_that_comes_too_late_tells_the_reason_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "Producer", Refusing)
    (tmp_path / "x.yaml").write_text(configuration_of("x", "b", tmp_path, {}))
    output = KafkaOutput(load(tmp_path / "x.yaml", {}), "x:one")
    with pytest.raises(WorkerError, match=r"^send_offsets_to_transaction: forbidden; .*WRITE on topic x-predictions"):
        output.publish(
            [Outgoing("x-predictions", b"k", b"v", [], 0)], {0: CommittedOffset(1)}, Membership("m", object())
        )
    assert Refusing.called[-1] == "abort_transaction"


def test_a_broker_that_is_away_is_no_refusal() -> None:
    admission = Admission()
    admission.require("x")
    admission(KafkaError(KafkaError._AUTHENTICATION, "wrong"))
    admission(KafkaError(KafkaError._ALL_BROKERS_DOWN, "all"))
    with pytest.raises(WorkerError, match=r"^x: wrong; check kafka\.sasl\.mechanism"):
        admission.require("x")
    admission(KafkaError(KafkaError._TRANSPORT, "gone"))
    admission.require("x")
