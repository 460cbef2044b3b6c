"""Models that have not learned for long: which they are, and the list of their keys as tombstones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.worker.support.checkpoints import write
from tests.worker.support.configurations import document
from tests.worker.support.printed import Main
from worker.adapters.store import open_store
from worker.base.errors import ConfigError
from worker.checkpoint import Checkpoints, Location, SavedModel
from worker.cli import idle

DAY_MS = 86_400_000


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "worker.yaml"
    path.write_text(
        document(
            input="{topic: events, tombstones: reset}",
            kafka='{bootstrap.servers: "127.0.0.1:1"}',
            models="{null_key: anonymous}",
            checkpoint=f'{{url: "file://{tmp_path}/checkpoints"}}',
        )
    )
    return path


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes, bytes | None]]:
    """What is published: (topic, key, value)."""
    records: list[tuple[str, bytes, bytes | None]] = []

    def publisher(_: Any, topic: str, most_bytes: int) -> SimpleNamespace:
        return SimpleNamespace(
            send=lambda key, value: records.append((topic, key, value)), finish=lambda: None, delivered=len(records) + 7
        )

    monkeypatch.setattr(idle, "KafkaPublisher", publisher)
    monkeypatch.setattr(idle, "KafkaAdmin", lambda _: Mock(missing=lambda topics: []))
    return records


def save(
    url: str, last_ms: dict[str, int | None], partition: int = 0, lineage: str = "main", topic: str = "events"
) -> None:
    """A checkpoint of models of 10 bytes that learned last at these times."""

    def source(time_ms: int | None) -> SavedModel:
        return SavedModel("spec", b"x" * 10, {} if time_ms is None else {"last_ms": time_ms})

    checkpoints = Checkpoints(open_store(url), Location("group", lineage, topic, "id", partition))
    write(checkpoints, 1, dirty={key: partial(source, time_ms) for key, time_ms in last_ms.items()})


# The list


def test_idle_models_are_listed_the_idlest_first(main: Main, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    save(url, {"new": 40 * DAY_MS, "old": 9 * DAY_MS, "edge": 10 * DAY_MS})
    save(url, {"older": 0, "unknown": None, "new too": 39 * DAY_MS}, partition=1)
    code, out, err = main("inspect", url, "--idle", "30d")
    assert (code, out.splitlines()) == (0, ["older", "old"])
    assert err == "2 of 6 models are idle, 20 B; of 1 it is not known when they learned\n"


@pytest.mark.parametrize(("span", "found"), [("30m", 2), ("1.5h", 1), ("7200s", 1), ("3h", 0)])
def test_a_span_has_a_unit(main: Main, tmp_path: Path, span: str, found: int) -> None:
    url = f"file://{tmp_path}/store"
    save(url, {"new": DAY_MS, "an hour": DAY_MS - DAY_MS // 24, "more": DAY_MS - DAY_MS // 24 * 5 // 2})
    assert len(main("inspect", url, "--idle", span)[1].splitlines()) == found


@pytest.mark.parametrize("newest", ["main", "next"])
def test_of_a_model_in_several_lineages_the_newest_time_counts(main: Main, tmp_path: Path, newest: str) -> None:
    url = f"file://{tmp_path}/store"
    for lineage in ("main", "next"):
        save(url, {"a": 99 * DAY_MS if lineage == newest else 0, "b": 0}, lineage=lineage)
    assert main("inspect", url, "--idle", "30d")[1] == "b\n"


def test_models_of_which_no_time_is_known_are_counted(main: Main, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    save(url, {"a": None, "b": None, "c": 0})
    said = "0 of 3 models are idle, 0 B; of 2 it is not known when they learned\n"
    assert main("inspect", url, "--idle", "30d") == (0, "", said)


def test_a_topic_that_goes_on_makes_no_model_of_another_one_idle(main: Main, tmp_path: Path) -> None:
    """One URL may have the models of many workers, and the list of it removes those of one."""
    url = f"file://{tmp_path}/store"
    save(url, {"a": 9 * DAY_MS, "b": 8 * DAY_MS, "both": 0, "c": 1 * DAY_MS, "here": 0})
    save(url, {"x": 99 * DAY_MS, "y": 0, "both": 0, "here": 98 * DAY_MS, "z": None}, topic="others")
    code, out, err = main("inspect", url, "--idle", "7d")
    assert (code, out.splitlines()) == (0, ["both", "y", "c"])
    assert err == "3 of 8 models are idle, 30 B; of 1 it is not known when they learned\n"


def test_a_partition_without_a_whole_checkpoint_is_named_and_the_others_are_listed(main: Main, tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    save(url, {"old": 0, "new": 2 * DAY_MS})
    save(url, {"lost": 0}, partition=1)
    for manifest in tmp_path.rglob("1/*.manifest"):
        manifest.write_bytes(b"damaged")
    code, out, err = main("inspect", url, "--idle", "1d")
    assert (code, out) == (1, "old\n")
    summary, problem = err.splitlines()
    assert summary == "1 of 2 models are idle, 10 B"
    assert "/1/" in problem
    assert "is damaged" in problem


def test_a_producer_whose_clock_is_ahead_makes_no_model_idle(main: Main, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    save(url, {"new": 40 * DAY_MS, "old": 9 * DAY_MS, "ahead": 10**6 * DAY_MS})
    assert main("inspect", url, "--idle", "30d")[1] == "old\n"


@pytest.mark.parametrize("span", ["30", "d", "-1d", "1w", "", "9" * 400 + "d"])
def test_a_span_without_a_unit_is_refused(main: Main, span: str) -> None:
    code, _, err = main("inspect", "file:///nowhere", "--idle", span)
    assert code == 2
    assert "--idle" in err


def test_where_nothing_lies_nothing_is_idle(main: Main, tmp_path: Path) -> None:
    code, out, err = main("inspect", f"file://{tmp_path}/none", "--idle", "1d")
    assert (code, out) == (1, "")
    assert "there are no checkpoints" in err


@given(st.lists(st.text(min_size=1, max_size=8)))
@example(["a\nb", " a", '"', '"a"', "\x1b[31m", "\u2028", "a\r", "ключ"])
def test_a_list_of_keys_is_read_as_it_was_written(keys: list[str]) -> None:
    text = "".join(f"{idle.line_of(key)}\n" for key in keys)
    assert list(idle.keys_in(text.splitlines(keepends=True), "list")) == keys
    assert all(character.isprintable() for character in text if character != "\n")


def test_a_mark_of_the_encoding_is_no_part_of_the_first_key() -> None:
    assert list(idle.keys_in(["\ufeffcustomer-1\n", "customer-2\n"], "stdin")) == ["customer-1", "customer-2"]


def test_a_line_that_is_no_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"keys\.txt, line 3"):
        list(idle.keys_in(["a\n", "\n", '"b\n'], "keys.txt"))


# Tombstones


def test_keys_become_tombstones(
    main: Main, config: Path, tmp_path: Path, published: list[tuple[str, bytes, bytes | None]]
) -> None:
    (tmp_path / "keys").write_text('c\n\n"d\\ne"\na\n')
    code, out, _ = main("reset", config, "a", "b", "--keys-from", tmp_path / "keys")
    assert (code, out) == (0, "published 7 tombstones to topic events\n")
    assert published == [("events", key, None) for key in (b"a", b"b", b"c", b"d\ne")]


@pytest.mark.parametrize(
    "words",
    [
        ("CONFIG", "--set", "models.max_models=5", "a", "b"),
        ("CONFIG", "a", "--set", "models.max_models=5", "b"),
        ("--set", "models.max_models=5", "CONFIG", "a", "b"),
        ("CONFIG", "a", "b", "--set", "models.max_models=5"),
    ],
)
def test_keys_may_stand_before_options_and_behind_them(
    main: Main, config: Path, published: list[tuple[str, bytes, bytes | None]], words: tuple[str, ...]
) -> None:
    assert main("reset", *(config if word == "CONFIG" else word for word in words))[0] == 0
    assert [key for _, key, _ in published] == [b"a", b"b"]


def test_keys_that_look_like_options_stand_behind_two_dashes(
    main: Main, config: Path, published: list[tuple[str, bytes, bytes | None]]
) -> None:
    assert main("reset", config, "--set", "models.max_models=5", "a", "--", "-b", "--set")[0] == 0
    assert [key for _, key, _ in published] == [b"a", b"-b", b"--set"]
    code, _, err = main("reset", config, "--set", "models.max_models=5", "a", "--unknown")
    assert (code, "unrecognized arguments: --unknown" in err) == (2, True)


@pytest.mark.parametrize(
    ("change", "keys", "reason"),
    [
        ("tombstones: dead-letter", ["a"], "would end as a dead letter"),
        ("", ["a", ""], "is no model key"),
        ("", ["a", "k" * 513], "is no model key"),
        ("", ["a", "\udcff"], "is no model key"),
        ("", ["a", "anonymous"], "records without a key"),
        ("", [], "--keys-from"),
    ],
)
def test_what_would_remove_no_model_is_refused_before_anything_is_published(
    main: Main,
    config: Path,
    published: list[tuple[str, bytes, bytes | None]],
    change: str,
    keys: list[str],
    reason: str,
) -> None:
    config.write_text(config.read_text().replace("tombstones: reset", change or "tombstones: reset"))
    code, _, err = main("reset", config, *keys)
    assert (code, published) == (2, [])
    assert reason in err


def test_a_list_of_keys_that_is_no_text_is_named(main: Main, config: Path, published: list[Any]) -> None:
    path = config.with_name("keys")
    path.write_bytes(b"a\n\xff\n")
    assert main("reset", config, "--keys-from", path) == (
        2,
        "",
        f"amf-worker: {path}: expected text in UTF-8, found other bytes\n",
    )
    assert published == []


def test_a_topic_that_is_not_there_is_named(
    main: Main, config: Path, published: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "KafkaAdmin", lambda _: SimpleNamespace(missing=lambda topics: topics))
    assert main("reset", config, "a")[0] == 2
    assert published == []
