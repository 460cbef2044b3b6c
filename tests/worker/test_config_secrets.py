"""Secrets of the configuration reach the clients, and no error, log or view."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.support.configurations import document, the_problem, with_kafka
from worker.base.errors import ConfigError
from worker.config import effective, loads
from worker.config.values import mask_url

SECRET = "hunter2"
SECRET_PROPERTIES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "ssl.certificate.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.jaas.config",
    "basic.auth.user.info",
    "plugin.library.paths",
    "some.api.Token",
]


@pytest.mark.parametrize("name", SECRET_PROPERTIES)
def test_secret_properties_reach_the_clients_and_no_view(name: str) -> None:
    config = loads(with_kafka(f"{name}: '${{SECRET}}'"), {"SECRET": SECRET})
    assert config.consumer_properties()[name] == config.producer_properties()[name] == SECRET
    assert config.admin_properties()[name] == SECRET
    assert f"{name}: '***'" in effective(config)
    assert SECRET not in effective(config) + repr(config) + str(config)


@pytest.mark.parametrize("name", SECRET_PROPERTIES)
def test_secret_properties_that_stand_in_the_file_are_in_no_view_either(name: str) -> None:
    assert SECRET not in effective(loads(with_kafka(f"{name}: {SECRET}"), {}))


def test_what_the_environment_gives_to_any_property_may_be_a_secret_and_is_in_no_view() -> None:
    config = loads(with_kafka("sasl.username: '${SECRET}', group.id: '${GROUP}'"), {"SECRET": SECRET, "GROUP": "mine"})
    assert config.consumer_properties()["sasl.username"] == SECRET
    assert SECRET not in effective(config)
    assert "group.id: mine" in effective(config), "the logs have it all the same"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("s3://key:hunter2@bucket/folder", "s3://***@bucket/folder"),
        ("s3://key:hun/ter2@bucket/folder", "s3://***@bucket/folder"),
        ("az://container/folder?sig=hunter2&x", "az://container/folder?***"),
        ("gs://bucket/folder", "gs://bucket/folder"),
        ("file:///a/b", "file:///a/b"),
        ("memory://", "memory://"),
    ],
)
def test_credentials_in_the_checkpoint_url_are_masked(url: str, masked: str) -> None:
    config = loads(document(checkpoint=f"{{url: '{url}'}}"), {})
    assert config.checkpoint.url == url
    assert mask_url(url) == masked
    assert f"url: {masked}\n" in effective(config)
    assert "ter2" not in effective(config) + repr(config)


@pytest.mark.parametrize(
    "text",
    [
        with_kafka("sasl.password: [hunter2]"),
        with_kafka("sasl.password: {hunter2: hunter2}"),
        with_kafka("sasl.password: !vault hunter2"),
        with_kafka("sasl.password: *hunter2"),
        with_kafka("sasl.password: !hunter2!x y"),
        with_kafka("sasl.password:hunter2"),
        with_kafka("sasl.password: hunter2, sasl.password: hunter2"),
        with_kafka("transactional.id: hunter2"),
        document(kafka="sasl.password:hunter2"),
        document(kafka="\n  sasl.password: 'hunter2\n"),
        document(kafka="\n  sasl.password: hunter2: x\n"),
        document(input="{topic: events, sasl.password: hunter2}"),
        document(input="{topic: events, password:hunter2}"),
        document(checkpoint="{url: 'http://key:hunter2@host'}"),
        document(checkpoint="{url: 'hunter2'}"),
        document(checkpoint="{url: 's3://key:hunter2@bucket/#x'}"),
        document(checkpoint="url:s3://key:hunter2@bucket"),
        document(checkpoint="{url: '${SECRET}'}"),
        document(checkpoint="{url: 'memory://', interval: '${SECRET}'}"),
        document(checkpoint="{url: 'memory://', lineage: 'a/${SECRET}'}"),
        document(models="{default: {n_estimators: '${SECRET}'}}"),
        document(models="{default: {classes: ['${SECRET}', '${SECRET}']}}"),
        document(kafka="{bootstrap.servers: b, group.id: '${SECRET}/'}"),
        document(kafka="{bootstrap.servers: b, group.protocol: '${SECRET}'}"),
        document(kafka="{bootstrap.servers: b, '${SECRET}': 1}"),
    ],
)
def test_no_error_tells_a_secret(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, {"SECRET": SECRET})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "section",
    [
        {"input": "{{topic: '{}/'}}"},
        {"checkpoint": "{{url: '{}'}}"},
        {"checkpoint": "{{url: 'memory://', interval: '{}'}}"},
        {"models": "{{default: {{classes: ['{}', '{}']}}}}"},
        {"kafka": "{{bootstrap.servers: b, group.protocol: '{}'}}"},
    ],
)
def test_no_error_tells_what_a_file_holds(section: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    reference = f"${{file:{tmp_path}/secret}}"
    problem = the_problem(document(**{name: text.format(reference, reference) for name, text in section.items()}))
    assert problem.endswith(f"found another value in {reference}") or "', '" in section.get("models", "")
    assert SECRET not in problem


@pytest.mark.parametrize("token", ["1234", "true", "[1234]", "0.1234"])
def test_a_secret_that_is_no_text_is_refused_and_not_shown(token: str) -> None:
    problem = the_problem(document(metrics=f"{{token: {token}}}"))
    assert problem.startswith("worker.yaml:6: metrics.token: expected 16 or more of the characters")
    assert "1234" not in problem


def test_a_file_that_is_not_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET.encode() + b"\xff")
    problem = the_problem(with_kafka(f"sasl.password: '${{file:{tmp_path}/secret}}'"))
    assert problem.endswith(f"found ${{file:{tmp_path}/secret}}, which is not text in UTF-8")
