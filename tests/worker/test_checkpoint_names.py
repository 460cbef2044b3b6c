"""Where the checkpoints of a partition lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.worker.support.checkpoints import HERE, files, write
from tests.worker.support.stores import DictStore, FaultyStore
from worker.adapters.store import FileStore
from worker.checkpoint import Checkpoints, Location
from worker.checkpoint.siblings import of_another_topic, of_any_partition


@pytest.mark.parametrize(
    "location",
    [
        Location("..", ".tmp", "a.b_c-d", "id", 0),
        Location("a/b", "x~p3@7", "t", "-_id", 12),
        Location("группа", "a b%", "t", "i", 1),
    ],
)
def test_any_group_and_lineage_has_a_folder_of_its_own(store: DictStore, location: Location) -> None:
    checkpoints = Checkpoints(store, location)
    write(checkpoints, 1, {"a": b"1"})
    assert checkpoints.newest() is not None
    segments = location.prefix.split("/")
    assert len(segments) == 4
    assert not any(segment.startswith(".") or not segment.isascii() for segment in segments)


def test_other_lineages_of_a_topic_are_found_by_the_names_that_a_configuration_gives_them(store: DictStore) -> None:
    checkpoints = Checkpoints(store, replace(HERE, lineage="asked for"))
    assert checkpoints.other_lineages() == []
    write(checkpoints, 1, {"a": b"1"})
    for other in (
        replace(HERE, lineage="b/ä%", partition=3),
        replace(HERE, lineage="a~p2@70", partition=2),  # which went on after a gap
        replace(HERE, lineage="asked for~p3@9", partition=3),
        replace(HERE, lineage="of another topic", topic_id="other"),
        replace(HERE, lineage="of another group", group="other"),
    ):
        write(Checkpoints(store, other), 1, {"a": b"1"})
    # What else people put there: a copy of a partition, and notes.
    for name in files(store, "manifest"):
        folder, _, file = name.rpartition("/")
        store.objects[f"{folder}.bak/{file}"] = store.objects[name]
    store.objects["group/to%20come/events-topic-id/3/README"] = b"?"
    store.objects[f"{checkpoints.location.prefix}/notes.manifest"] = b"?"
    assert checkpoints.other_lineages() == ["a", "b/ä%"]
    assert of_any_partition(store, checkpoints.location).location == checkpoints.location


def test_of_many_partitions_the_one_of_the_lowest_number_speaks(store: DictStore) -> None:
    """Not that of the first name: of those that were added later none knows how many there were."""
    for number in (2, 10):
        write(Checkpoints(store, replace(HERE, partition=number)), 1, {"a": b"1"})
    assert of_any_partition(store, HERE).location.partition == 2


def test_only_checkpoints_of_a_former_topic_are_read_to_find_it(store: DictStore) -> None:
    for topic, topic_id in (("events", "former"), ("events-of-others", "id"), ("a-topic", "id")):
        write(Checkpoints(store, replace(HERE, topic=topic, topic_id=topic_id)), 1, {"a": b"1"})
    journal = FaultyStore(store, {})
    former = of_another_topic(journal, HERE)
    assert former is not None
    assert former.location.topic_id == "former"
    assert [name.split("/")[2] for call, name in journal.log if call == "read"] == ["events-former"]


def test_names_of_any_length_have_folders_that_a_file_system_takes(tmp_path: Path) -> None:
    store, topics = FileStore(tmp_path), ["t" * 249, "t" * 248 + "u", "t" * 233, "t" * 232]
    groups = ["é" * 300, "é" * 301, "a" + "é" * 300, "ab" + "é" * 300]
    locations = [Location(group, group, topic, "i" * 22, 0) for topic in topics for group in groups]
    for location in locations:
        write(Checkpoints(store, location), 1, {"a": b"1"})
    assert len({location.prefix for location in locations}) == len(locations)
    for segment in {segment for location in locations for segment in location.prefix.split("/")}:
        assert len(segment) <= 255
        assert re.fullmatch(r"([^%]|%[0-9A-F]{2})+", segment)


def test_names_that_a_file_system_takes_are_their_own_folders() -> None:
    location = Location("g" * 255, "l" * 255, "t" * 232, "i" * 22, 0)
    assert location.prefix == f"{'g' * 255}/{'l' * 255}/{'t' * 232}-{'i' * 22}/0"
