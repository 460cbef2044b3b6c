"""The configuration of `input.repartition`: what goes together, and what the forwarder and the worker make of it."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest

from tests.worker.support.configurations import document
from worker.adapters.kafka import transactional_id
from worker.base.errors import ConfigError
from worker.config import Config, loads, repartition


def text_of(
    model_key: str = "field:shop",
    repartition: str = "true",
    codec: str = "json",
    topic: str = "events",
    output: str = "predictions",
    group: str = "amf",
    more: str = "start: latest",
) -> str:
    return document(
        input=f'{{topic: {topic}, model_key: "{model_key}", repartition: {repartition}, codec: {codec}, {more}}}',
        output=f"{{topic: {output}}}",
        delivery="at-least-once",
        kafka=f'{{bootstrap.servers: "b:9092", group.id: {group}, client.id: me}}',
    )


def load(model_key: str = "field:shop", **more: str) -> Config:
    return loads(text_of(model_key, **more), {})


@pytest.mark.parametrize("codec", ["json", "msgpack"])
@pytest.mark.parametrize("model_key", ["key", "field:shop"])
def test_any_model_key_may_be_repartitioned(model_key: str, codec: str) -> None:
    """With `key` too: a topic may be keyed by model and yet be written by another partitioner."""
    assert load(model_key, codec=codec).input.repartition


def test_a_field_without_repartition_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"input\.model_key: .*all events of a model must come through one partition"):
        load(repartition="false")


def test_a_field_must_be_in_values_that_can_be_read() -> None:
    with pytest.raises(ConfigError, match=r"input\.model_key: .*input\.codec: json or msgpack.* found avro"):
        load(codec="avro")


def test_a_field_cannot_be_in_a_tombstone() -> None:
    with pytest.raises(ConfigError, match=r"input\.model_key: .*input\.tombstones: dead-letter"):
        load(more="tombstones: reset")


def test_a_record_without_the_field_has_no_model_whatever_name_is_given_to_those_without_a_key() -> None:
    models = "\nmodels: {null_key: other}"
    assert loads(text_of("key") + models, {}).models.null_key == "other"
    with pytest.raises(ConfigError, match=r"models\.null_key: expected null beside input\.model_key: field:shop"):
        loads(text_of() + models, {})


@pytest.mark.parametrize("name", ["features", "label"])
def test_what_an_event_is_learned_by_names_no_model(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"input.model_key: expected a field beside features and label, found field:{name}"
    ):
        load(f"field:{name}")


@pytest.mark.parametrize("name", ["", 'a\\"b', "a\\\\b", "a\\nb"])
def test_a_field_has_a_name_that_needs_no_escape_in_json(name: str) -> None:
    with pytest.raises(ConfigError, match=r"input\.model_key: expected key, or field: and the name"):
        load(f"field:{name}")


@pytest.mark.parametrize(("group", "topic"), [("a~b", "events"), ("g" * 100, "t" * 140)])
def test_the_internal_topic_must_have_a_name(group: str, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"input\.repartition: expected kafka\.group\.id and input\.topic to make"):
        load(group=group, topic=topic)


def test_no_two_pipelines_share_an_internal_topic() -> None:
    """The events of the one would become models of the other."""
    words = ("a", "b", "a-b", "b-c", "a-", "-b", "-", "a--b", "--", "a-repartition", "repartition")
    taken: dict[str, tuple[str, str]] = {}
    for group, topic in product(words, words):
        with suppress(ConfigError):
            name = repartition.internal_topic(load(group=f'"{group}"', topic=f'"{topic}"'))
            assert taken.setdefault(name, (group, topic)) == (group, topic)
    assert len(taken) > 30


@pytest.mark.parametrize(("group", "topic"), [("a--b", "c"), ("a", "b--c"), ("a-", "b"), ("a", "-b")])
def test_names_that_cannot_be_told_apart_are_refused(group: str, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"input\.repartition: expected kafka\.group\.id and input\.topic to be told"):
        load(group=f'"{group}"', topic=f'"{topic}"')


def test_the_internal_topic_is_a_topic_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"input\.repartition: expected a topic of its own, found amf--events-repart"):
        load(output="amf--events-repartition")


def test_the_forwarder_reads_the_input_in_a_group_of_its_own_exactly_once() -> None:
    config = repartition.of_forwarder(load())
    assert (config.input.topic, config.output.topic) == ("events", "amf--events-repartition")
    assert config.consumer_properties()["group.id"] == "amf-repartition"
    assert config.consumer_properties()["client.id"] == "me"
    assert (config.input.start, config.delivery) == ("latest", "exactly-once")
    assert repartition.forwarder_id("amf:one") == "amf:one:repartition"


def test_no_two_workers_or_forwarders_have_one_transactional_id() -> None:
    """They would fence each other for ever."""
    names = [("amf", "prod.w-0"), ("amf.prod", "w-0"), ("amf", "w"), ("amf", "w-repartition"), ("amf-repartition", "w")]
    text = text_of("key", group='"${GROUP}", group.instance.id: "${NAME}"')
    ids = [transactional_id(loads(text, {"GROUP": group, "NAME": name})) for group, name in names]
    ids += [repartition.forwarder_id(each) for each in ids]
    assert len(set(ids)) == len(ids)


def test_the_worker_reads_the_internal_topic_from_its_beginning() -> None:
    config = repartition.of_worker(load())
    assert (config.input.topic, config.output.topic) == ("amf--events-repartition", "predictions")
    assert config.consumer_properties()["group.id"] == "amf"
    assert (config.input.start, config.delivery) == ("earliest", "at-least-once")
