"""What `inspect` shows, and takes out, of the checkpoints under a URL. Of the store it reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from heapq import nsmallest
from pathlib import Path
from typing import Any, NamedTuple

import amf
from worker.base.errors import ConfigError, NotFound
from worker.base.ports import ObjectStore
from worker.checkpoint import Listing, Manifest, ModelEntry, describe, look_again
from worker.cli.files import replacing, require_place
from worker.cli.terminal import age, count, size, status, table

_HEADERS = ("partition", "offset", "models", "samples", "nodes", "depth", "bytes", "age", "checkpoints")
_MODEL_HEADERS = ("model", "partition", "samples", "nodes", "depth", "bytes", "last learned")


class Choice(NamedTuple):
    """Which models are listed."""

    pattern: str
    """Glob pattern of their keys."""
    by: str
    """What puts them in order: the largest first, by their keys the least, by `idle` the idlest."""
    most: int


def show_all(store: ObjectStore, now_ms: int, chosen: Choice) -> tuple[int, list[str]]:
    """Print a table for each topic of each lineage, and one of its models; returns how many partitions there are, and
    what is damaged.
    """
    with status("reading checkpoints"):
        # Of two numbers the longer one is the greater.
        listings = sorted(describe(store), key=lambda listing: (len(listing.folder), listing.folder))
    tables: dict[str, list[Sequence[str]]] = {}
    models: dict[str, list[_Found]] = {}
    for listing in listings:
        title, row = _partition(listing, now_ms)
        tables.setdefault(title, []).append(row)
        if listing.newest is not None:
            number = listing.newest.location.partition
            entries = listing.newest.models.items()
            found = (_Found(key, number, entry) for key, entry in entries if fnmatchcase(key, chosen.pattern))
            models.setdefault(title, []).extend(found)
    for title, rows in tables.items():
        table(_HEADERS, rows, title=title, left=0)
        if models.get(title):
            print()
            _show_models(models[title], chosen, now_ms)
    return len(listings), [problem for listing in listings for problem in listing.problems]


class _Found(NamedTuple):
    key: str
    partition: int
    entry: ModelEntry

    def rank(self, by: str) -> Any:
        """What is least comes first."""
        match by:
            case "key":
                return self.key
            case "idle":
                return self.entry.summary.get("last_ms", -1)
            case "bytes":
                return -self.entry.length
        return -_figure(self.entry, by)


def _show_models(found: Sequence[_Found], chosen: Choice, now_ms: int) -> None:
    shown = nsmallest(chosen.most, found, key=lambda each: (each.rank(chosen.by), each.key))
    rows = []
    for key, partition, entry in shown:
        figures = (count(_figure(entry, name)) for name in ("samples", "nodes", "depth"))
        last = age((now_ms - _figure(entry, "last_ms")) / 1000) if "last_ms" in entry.summary else "-"
        rows.append((key, str(partition), *figures, size(entry.length), last))
    title = "models" if len(shown) == len(found) else f"models: {len(shown)} of {count(len(found))} by {chosen.by}"
    table(_MODEL_HEADERS, rows, title=title)


def export(store: ObjectStore, key: str, path: Path) -> tuple[int, list[str]]:
    """Write the bytes of one model to a file, for `amf.loads`; returns in how many partitions it is, and what is
    damaged. Raises ConfigError where several partitions have it, or the file cannot be written.
    """
    require_place(path)
    found, problems = _having(store, key)
    if len(found) > 1:
        folders = ", ".join(folder for folder, _ in found)
        raise ConfigError(f"model {key!r} is in several folders: add one of them to the URL: {folders}")
    for folder, manifest in found:
        try:
            _, data = _read(store, folder, manifest, key)
            forest = amf.loads(data)
        except (NotFound, amf.FormatError) as error:
            return len(found), [*problems, f"{folder}: model {key!r}: {error}"]
        with replacing(path, "wb") as file:
            file.write(data)
        print(f"{forest.family} of {count(forest.n_samples)} samples in {path}: amf.loads takes its bytes")
    return len(found), problems


def show_model(store: ObjectStore, key: str, now_ms: int) -> tuple[int, list[str]]:
    """Print one model as each partition has it; returns in how many it is, and what is damaged."""
    found, problems = _having(store, key)
    for folder, manifest in found:
        parameters: list[tuple[str, str]] = []
        try:
            manifest, data = _read(store, folder, manifest, key)
            parameters += _parameters(data)
        except (NotFound, amf.FormatError) as error:
            problems.append(f"{folder}: model {key!r}: {error}")
        rows = [*_model(manifest, manifest.models[key], now_ms), *parameters]
        table(
            ("", ""), rows, title=f"model {key} in partition {manifest.location.partition}, {_title(manifest)}", left=2
        )
    return len(found), problems


def _having(store: ObjectStore, key: str) -> tuple[list[tuple[str, Manifest]], list[str]]:
    """The folders that have a model, with what has it there, and what is damaged."""
    found, problems = [], []
    with status("reading checkpoints"):
        for listing in describe(store):
            problems += listing.problems
            if listing.newest is not None and key in listing.newest.models:
                found.append((listing.folder, listing.newest))
    return found, problems


def _partition(listing: Listing, now_ms: int) -> tuple[str, Sequence[str]]:
    """Title of the table that a partition belongs to, and its row."""
    manifest = listing.newest
    if manifest is None:
        title, _, partition = listing.folder.rpartition("/")
        return title, [partition, *["?"] * 7, count(listing.manifests)]
    entries = manifest.models.values()
    samples = sum(_figure(entry, "samples") for entry in entries)
    depth = sum(_figure(entry, "samples") * _figure(entry, "depth") for entry in entries) / max(samples, 1)
    return _title(manifest), [
        str(manifest.location.partition),
        count(manifest.offset),
        count(len(entries)),
        count(samples),
        count(sum(_figure(entry, "nodes") for entry in entries)),
        f"{depth:.1f}",
        size(sum(entry.length for entry in entries)),
        age((now_ms - manifest.created_ms) / 1000),
        count(listing.manifests),
    ]


def _title(manifest: Manifest) -> str:
    where = manifest.location
    return f"group {where.group}, lineage {where.lineage}, topic {where.topic} ({where.topic_id})"


def _figure(entry: ModelEntry, name: str) -> int:
    return entry.summary.get(name, 0)


def _model(manifest: Manifest, entry: ModelEntry, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "offset", count(manifest.offset)
    yield "age", age((now_ms - manifest.created_ms) / 1000)
    for name in ("samples", "nodes", "depth"):
        yield name, count(_figure(entry, name))
    if "last_ms" in entry.summary:
        yield "last learned", age((now_ms - _figure(entry, "last_ms")) / 1000)
    yield "bytes", size(entry.length)
    yield "spec", entry.spec
    yield "engine", manifest.engine
    yield "sha256", entry.sha256


def _read(store: ObjectStore, folder: str, manifest: Manifest, key: str) -> tuple[Manifest, bytes]:
    """The bytes of a model, and what has them: where workers have gone on since and collected them, the newest by now.

    Read by the folder that was listed: the URL may lie below the root of the store. Raises NotFound.
    """
    try:
        return manifest, _bytes_of(store, folder, manifest.models[key])
    except NotFound:
        newest = look_again(store, folder).newest
        if newest is None or key not in newest.models:
            raise
        return newest, _bytes_of(store, folder, newest.models[key])


def _bytes_of(store: ObjectStore, folder: str, entry: ModelEntry) -> bytes:
    path = f"{folder}/{entry.segment}" if folder else entry.segment
    return store.read_range(path, entry.start, entry.length)


def _parameters(data: bytes) -> Iterator[tuple[str, str]]:
    """What the forest itself says."""
    forest = amf.loads(data)
    found = forest.describe()
    yield "leaves", count(found.n_leaves)
    yield "mean depth", f"{found.mean_depth:.1f}"
    yield "weighted depth", f"{found.mean_weighted_depth:.1f}"
    yield "largest depth", count(found.max_depth)
    yield "memory", size(found.nbytes)
    yield "algorithm", forest.family
    if found.classes is not None:
        yield "classes", ", ".join(map(amf.class_text, found.classes))
    yield "features", ", ".join(forest.feature_names) if forest.feature_names else count(forest.n_features)
    for name, value in forest.params.as_dict().items():
        if name != "classes":
            yield name, str(value)
