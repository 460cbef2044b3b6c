"""Canonical bytes of a forest, format 1. Everything is little-endian; every part starts at a multiple of 8 bytes.

    magic        4 bytes   b"AMFF"
    format       uint32    1
    header size  uint64    bytes of the header with its padding
    header       JSON in ASCII, keys sorted, no spaces, padded with spaces to a multiple of 8: family, params,
                 classes (labels in the order of their columns), n_features, feature_names (or null)
    origin       float64 (d,)            see scaling.py
    lowest       float32 (d,)
    highest      float32 (d,)
    weights      float32 (padded d,)
    counters     int64 (3,)              subsample rows kept, stride, labelled samples
    subsample    float32 (kept, d)
    used         int64 (n_trees,)        rows of each tree
    words        uint64 (n_trees,)       state of each tree's generator
    rows         uint32 (used[t], row words) of each tree in turn, see arena.py
    checksum     32 bytes                SHA-256 of everything before it

Equal states give equal bytes: capacities and thread counts are not written, and padding is zero.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.arena import CHILD, COUNT, FEATURE, STATS
from amf.boxes import padded
from amf.forest import AMFClassifier
from amf.labels import Classes, scalars
from amf.params import AMFClassifierParams
from amf.scaling import SUBSAMPLE

MAGIC = b"AMFF"
FORMAT = 1
FAMILY = "amf-classifier"
_PREFIX = struct.Struct("<4sIQ")
_CHECKSUM = 32


class FormatError(ValueError):
    """The bytes are damaged, cut, or not a forest of a format this version reads."""


def _checksum(data: Any) -> bytes:
    return hashlib.sha256(data).digest()


def _size(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8


def _header(forest: AMFClassifier) -> bytes:
    values = {
        "family": FAMILY,
        "params": forest.params.as_dict(),
        "classes": forest.class_labels,
        "n_features": forest.n_features,
        "feature_names": forest.feature_names,
    }
    header = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return header.ljust(_size(len(header)))


def dumps(forest: AMFClassifier) -> bytes:
    """Bytes of a forest; `loads` gives back a forest that continues bit for bit."""
    scaling, arena, header = forest._scaling, forest._arena, _header(forest)
    parts: list[Any] = [_PREFIX.pack(MAGIC, FORMAT, len(header)), header]
    columns = [scaling.origin, scaling.lowest, scaling.highest, scaling.weights, scaling.counters]
    columns += [scaling.subsample[: scaling.counters[0]], arena.used, forest._words]
    columns += [arena.rows(tree) for tree in range(arena.used.shape[0])]
    for column in columns:
        parts.append(np.ascontiguousarray(column).view(np.uint8).reshape(-1).data if column.size else b"")
        parts.append(bytes(_size(column.nbytes) - column.nbytes))
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    parts.append(checksum.digest())
    return b"".join(parts)


class _Reader:
    """Takes arrays off a buffer, never beyond its end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, n_bytes: int) -> memoryview:
        if n_bytes < 0 or self._at + _size(n_bytes) > len(self._data):
            raise FormatError("the bytes of the forest end too early")
        part = self._data[self._at : self._at + n_bytes]
        padding = self._data[self._at + n_bytes : self._at + _size(n_bytes)]
        if any(padding):
            raise FormatError("the padding of the forest is not zero")
        self._at += _size(n_bytes)
        return part

    def array(self, dtype: str, *shape: int) -> NDArray[Any]:
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(kind.itemsize * int(np.prod(shape, dtype=np.int64))), kind).reshape(shape)

    def end(self) -> None:
        if self._at != len(self._data):
            raise FormatError(f"{len(self._data) - self._at} bytes too many after the forest")


def loads(data: bytes | bytearray | memoryview, *, n_threads: int = 1) -> AMFClassifier:
    """The forest that `dumps` wrote. Raises FormatError (a ValueError) for anything else."""
    view = memoryview(data).cast("B")
    if len(view) < _PREFIX.size + _CHECKSUM or view[:4] != MAGIC:
        raise FormatError(f"these {len(view)} bytes are not a forest: they do not begin with {MAGIC!r}")
    _, version, header_size = _PREFIX.unpack_from(view)
    if version != FORMAT:
        raise FormatError(f"the forest has format {version}, this version reads format {FORMAT}")
    if _checksum(view[:-_CHECKSUM]) != view[-_CHECKSUM:]:
        raise FormatError("the checksum of the forest does not match: the bytes are damaged or cut")
    reader = _Reader(view[:-_CHECKSUM])
    reader.take(_PREFIX.size)
    header = bytes(reader.take(header_size))
    try:
        forest = _read(json.loads(header), reader, n_threads)
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"the forest cannot be read: {error!r}") from error
    if _header(forest) != header:
        raise FormatError("the header of the forest is not as this version writes it")
    return forest


def _read(header: dict[str, Any], reader: _Reader, n_threads: int) -> AMFClassifier:
    if header["family"] != FAMILY:
        raise FormatError(f"the forest is of family {header['family']!r}, expected {FAMILY!r}")
    values = header["params"]
    if values["classes"] is not None:
        values["classes"] = tuple(values["classes"])
    forest = AMFClassifier.from_params(AMFClassifierParams(**values), n_threads)
    labels, names, d = header["classes"], header["feature_names"], header["n_features"]
    forest._classes = Classes(label for label in scalars(labels) if label is not None)
    if names is not None:
        forest.add_features(names)
    elif d:
        forest._grow_features(d)
    params, n_classes = forest.params, len(forest._classes)
    if forest.n_features != d or n_classes != len(labels) or n_classes > params.max_classes:
        raise FormatError("the header of the forest contradicts itself")
    if params.classes is not None and params.classes != tuple(labels):
        raise FormatError("the classes of the forest are not those it was given")
    _fill(forest, reader)
    reader.end()
    return forest


def _fill(forest: AMFClassifier, reader: _Reader) -> None:
    scaling, arena, d, n_trees = forest._scaling, forest._arena, forest.n_features, forest.params.n_estimators
    arena.relayout(forest._layout())
    scaling.origin[:] = reader.array("<f8", d)
    scaling.lowest[:] = reader.array("<f4", d)
    scaling.highest[:] = reader.array("<f4", d)
    scaling.weights[:] = reader.array("<f4", padded(d))
    scaling.counters[:] = reader.array("<i8", 3)
    kept = int(scaling.counters[0])
    if not 0 <= kept <= (SUBSAMPLE if scaling.adaptive else 0) or scaling.counters[1] < 1:
        raise FormatError(f"the forest keeps {kept} subsample rows at stride {scaling.counters[1]}")
    scaling.subsample[:kept] = reader.array("<f4", kept, d)
    used = reader.array("<i8", n_trees)
    forest._words[:] = reader.array("<u8", n_trees)
    words = arena.layout.words
    trees = [reader.array("<u4", int(n), words) for n in used]
    arena.allocate(max((rows.shape[0] for rows in trees), default=0))
    for tree, rows in enumerate(trees):
        arena.used[tree] = rows.shape[0]
        arena.rows(tree)[:] = rows.view("<i4")
        _check_rows(arena.rows(tree), len(forest._classes), d)
        lows = arena.rows(tree)[:, arena.layout.low : arena.layout.low + d].view(np.float32)
        scaling.complete &= not np.isnan(lows).any()


def _check_rows(rows: NDArray[np.int32], n_classes: int, n_features: int) -> None:
    """Refuse links that would lead a kernel out of its tree or in circles, and rows of another layout."""
    child, feature = rows[:, CHILD], rows[:, FEATURE]
    inner = child != 0
    # Children are pairs of neighbours, and each pair has one parent: then no way down ever meets a node again.
    is_tree = rows.shape[0] % 2 == 1 and np.array_equal(np.sort(child[inner]), np.arange(1, rows.shape[0], 2))
    if rows.shape[0] and not is_tree:
        raise FormatError("the nodes of the forest are not linked as a tree")
    if np.any(feature[inner] >= n_features) or np.any(feature < 0):
        raise FormatError("a node of the forest splits on a feature it does not have")
    if np.any(rows[:, STATS : STATS + n_classes].sum(axis=1, dtype=np.int64) != rows[:, COUNT]):
        raise FormatError("the counts of a node of the forest do not add up")
