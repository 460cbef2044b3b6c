"""What is shown of all checkpoints of a store."""

from __future__ import annotations

import msgspec
import pytest

from tests.worker.support.checkpoints import HERE, files, write
from tests.worker.support.manifests import forge, put_together
from tests.worker.support.stores import DictStore
from worker.base.errors import WorkerError
from worker.base.ports import ObjectStore
from worker.checkpoint import Checkpoints, describe, history


class Below:
    """The part of a store below a folder, as a URL with that folder in its path shows it."""

    def __init__(self, store: DictStore, folder: str) -> None:
        self.store, self.folder = store, folder

    def list(self, prefix: str) -> list[str]:
        assert prefix == ""
        return [name.removeprefix(self.folder + "/") for name in self.store.list(self.folder)]

    def read(self, name: str) -> bytes:
        return self.store.read(f"{self.folder}/{name}")


def test_describe_walks_all_locations(store: DictStore) -> None:
    others = [msgspec.structs.replace(HERE, partition=4), msgspec.structs.replace(HERE, lineage="trial")]
    for location in (HERE, *others):
        write(Checkpoints(store, location), 1, {"a": b"1"})
        write(Checkpoints(store, location), 2, {"a": b"2"})
    store.objects["unrelated/file"] = b"?"
    listings = list(describe(store))
    assert [listing.folder for listing in listings] == [HERE.prefix, others[0].prefix, others[1].prefix]
    assert [(listing.manifests, listing.newest.offset, listing.problems) for listing in listings] == [(2, 2, [])] * 3


def test_describe_starts_at_any_folder(store: DictStore, checkpoints: Checkpoints) -> None:
    manifest = write(checkpoints, 1, {"a": b"1"})
    parts = HERE.prefix.split("/")
    for depth in range(1, 5):
        view: ObjectStore = Below(store, "/".join(parts[:depth]))
        (listing,) = describe(view)
        assert listing.folder == "/".join(parts[depth:])
        assert (listing.newest, listing.problems) == (manifest, [])


def test_a_store_in_a_folder_of_this_one_is_another_one(store: DictStore) -> None:
    begun = msgspec.structs.replace(HERE, partition=0)
    manifest = write(Checkpoints(store, begun), 1, {"a": b"1"}, partitions=1)
    for name, data in [*store.objects.items()]:
        store.objects[f"other/{name}"] = data
    [listing] = describe(store)
    assert (listing.newest, listing.problems) == (manifest, [])
    assert history(store) == [manifest]
    [listing] = describe(Below(store, "other"))
    assert (listing.newest, listing.problems) == (manifest, [])


def test_describe_tells_what_is_wrong(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"1"})
    gone = files(store, "segment")[0]
    del store.objects[gone]
    damaged = forge(store, HERE.prefix, 5, put_together({"format": 99}, []))
    (listing,) = describe(store)
    assert (listing.manifests, listing.newest.offset) == (2, 1)
    assert [problem.split(" ")[0] for problem in listing.problems] == [
        damaged,
        gone,
    ]


def test_segments_without_a_manifest_are_no_whole_history(store: DictStore, checkpoints: Checkpoints) -> None:
    """As a worker leaves them that dies in its first checkpoint, or somebody who deletes the only manifest."""
    write(checkpoints, 1, {"a": b"1"})
    store.objects.pop(files(store, "manifest")[0])
    with pytest.raises(WorkerError, match=f"must not be left out:\n{HERE.prefix} has no manifest"):
        history(store)


def test_a_history_that_is_not_whole_is_refused_by_what_is_wrong(store: DictStore, checkpoints: Checkpoints) -> None:
    write(checkpoints, 1, {"a": b"1"})
    segment = files(store, "segment")[0]
    store.objects.pop(segment)
    with pytest.raises(WorkerError, match=f"must not be left out:\n{segment} is missing"):
        history(store)


@pytest.mark.parametrize("there", [[0, 2], [0, 1]])
def test_a_history_that_lacks_partitions_is_refused_be_they_its_last_ones(store: DictStore, there: list[int]) -> None:
    """A copy that was interrupted lacks the last ones: whoever began with it would have their models start anew."""
    for number in there:
        write(Checkpoints(store, msgspec.structs.replace(HERE, partition=number)), 1, {"a": b"1"}, partitions=3)
    with pytest.raises(WorkerError, match=rf"some of 3 partitions have no checkpoint: found those of \{there}"):
        history(store)


def test_of_a_topic_that_was_made_anew_both_are_named(store: DictStore) -> None:
    for topic_id in ("was", "is"):
        write(Checkpoints(store, msgspec.structs.replace(HERE, partition=0, topic_id=topic_id)), 1, {"a": b"1"})
    named = [rf"events \({topic_id}\) of group group, lineage main" for topic_id in ("is", "was")]
    with pytest.raises(WorkerError, match="; ".join(named)):
        history(store)


def test_a_history_is_not_taken_from_a_url_that_is_a_folder_too_far(store: DictStore, checkpoints: Checkpoints) -> None:
    """Its manifests say where they lie: nothing that is told by them would be found."""
    write(checkpoints, 1, {"a": b"1"})
    with pytest.raises(WorkerError, match=r"URL of the store must be the one that group/ lies in"):
        history(Below(store, "group"))  # type: ignore[arg-type]
