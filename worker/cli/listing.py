"""What `inspect` shows of the checkpoints under a URL. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import amf
from worker.checkpoint import Listing, Manifest, ModelEntry, describe
from worker.cli.terminal import age, count, size, table
from worker.errors import NotFound
from worker.ports import ObjectStore

_HEADERS = ("partition", "offset", "models", "samples", "nodes", "depth", "bytes", "age", "checkpoints")


def show_all(store: ObjectStore, now_ms: int) -> tuple[int, list[str]]:
    """Print a table for each topic of each lineage; returns how many partitions there are, and what is damaged."""
    # Of two numbers the longer one is the greater.
    listings = sorted(describe(store), key=lambda listing: (len(listing.folder), listing.folder))
    tables: dict[str, list[Sequence[str]]] = {}
    for listing in listings:
        title, row = _partition(listing, now_ms)
        tables.setdefault(title, []).append(row)
    for title, rows in tables.items():
        table(_HEADERS, rows, title=title, left=0)
    return len(listings), [problem for listing in listings for problem in listing.problems]


def show_model(store: ObjectStore, key: str, now_ms: int) -> tuple[int, list[str]]:
    """Print one model as each partition has it; returns in how many it is, and what is damaged."""
    found, problems = 0, []
    for listing in describe(store):
        problems += listing.problems
        manifest = listing.newest
        entry = manifest.models.get(key) if manifest is not None else None
        if manifest is None or entry is None:
            continue
        found += 1
        rows = list(_model(manifest, entry, now_ms))
        try:
            rows += _parameters(store, listing, entry)
        except (NotFound, amf.FormatError) as error:
            problems.append(f"{listing.folder}: model {key!r}: {error}")
        table(
            ("", ""), rows, title=f"model {key} in partition {manifest.location.partition}, {_title(manifest)}", left=2
        )
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


def _parameters(store: ObjectStore, listing: Listing, entry: ModelEntry) -> Iterator[tuple[str, str]]:
    """What the forest itself says. Read by the folder that was listed: the URL may lie below the root of the store."""
    path = f"{listing.folder}/{entry.segment}" if listing.folder else entry.segment
    forest = amf.loads(store.read_range(path, entry.start, entry.length))
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
