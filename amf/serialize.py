"""Canonical bytes of a forest, format 1. Everything is little-endian; every part starts at a multiple of 8 bytes.

    magic        4 bytes   b"AMFF"
    format       uint32    1
    header size  uint64    bytes of the header with its padding
    header       JSON in ASCII, keys sorted, no spaces, padded with spaces to a multiple of 8: family, params,
                 classes (labels in the order of their columns, null where a family has none), n_features,
                 feature_names (or null)
    origin       float64 (d,)            see scaling.py
    lowest       float32 (d,)
    highest      float32 (d,)
    weights      float32 (padded d,)
    counters     int64 (3,)              subsample rows kept, stride, labelled samples
    subsample    float32 (kept, d)
    outlook      float64 (...)           what a family keeps for the whole forest; a classifier nothing
    words        uint64 (n_trees,)       state of each tree's generator
    nodes        int64 (n_trees,)        nodes of each tree
    for each tree in turn, its nodes in order of creation:
    heads        uint32 (nodes, words)   see arena.py; links count from 0 at the root
    boxes        float32 (nodes, 2, room)
    checksum     32 bytes                SHA-256 of everything before it

Equal states give equal bytes: capacities and thread counts are not written, and padding is zero.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.arena import CHILD, FEATURE, ROOT
from amf.boxes import padded
from amf.classifier import AMFClassifier
from amf.forest import Forest
from amf.regressor import AMFRegressor
from amf.scaling import SUBSAMPLE
from amf.unrestricted import UnrestrictedAMFClassifier

MAGIC = b"AMFF"
FORMAT = 1
FAMILIES: dict[str, type[Forest[Any]]] = {
    kind.family: kind for kind in (AMFClassifier, AMFRegressor, UnrestrictedAMFClassifier)
}
_PREFIX = struct.Struct("<4sIQ")
_CHECKSUM = 32
_GROUP_NODES = 10_000


class FormatError(ValueError):
    """The bytes are damaged, cut, or not a forest of a format this version reads."""


def _checksum(data: Any) -> bytes:
    return hashlib.sha256(data).digest()


def _size(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8


def _header(forest: Forest[Any]) -> bytes:
    values = {
        "family": forest.family,
        "params": forest.params.as_dict(),
        "classes": forest.class_labels,
        "n_features": forest.n_features,
        "feature_names": forest.feature_names,
    }
    header = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return header.ljust(_size(len(header)))


def dumps(forest: Forest[Any]) -> bytes:
    """Bytes of a forest; `loads` gives back a forest that continues bit for bit."""
    scaling, arena, header = forest._scaling, forest._arena, _header(forest)
    nodes = arena.used.astype(np.int64) - int(ROOT)
    small: list[NDArray[Any]] = [scaling.origin, scaling.lowest, scaling.highest, scaling.weights, scaling.counters]
    small += [scaling.subsample[: scaling.counters[0]], forest._outlook, forest._words, nodes]
    shapes = [(int(n), arena.layout.head, 2 * arena.layout.feature_room) for n in nodes]
    trees = sum(_size(4 * n * head) + _size(4 * n * box) for n, head, box in shapes)
    # A large array is cheaper to come by than a large bytearray: its memory comes in larger pages.
    data = np.zeros(_PREFIX.size + len(header) + sum(_size(column.nbytes) for column in small) + trees, np.uint8)
    at = _PREFIX.size + len(header)
    data[:at] = np.frombuffer(_PREFIX.pack(MAGIC, FORMAT, len(header)) + header, np.uint8)
    for column in small:
        data[at : at + column.nbytes] = np.frombuffer(np.ascontiguousarray(column).tobytes(), np.uint8)
        at += _size(column.nbytes)
    for tree, (n, head, box) in enumerate(shapes):
        # Straight to where they belong: a large forest is copied once.
        heads = data[at : at + 4 * n * head].view(np.int32).reshape(n, head)
        at += _size(heads.nbytes)
        boxes = data[at : at + 4 * n * box].view(np.float32).reshape(n, 2, box // 2)
        at += _size(boxes.nbytes)
        arena.copy_nodes(tree, heads, boxes)
    return b"".join((data.data, _checksum(data.data)))


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
        return np.frombuffer(self.take(kind.itemsize * math.prod(shape)), kind).reshape(shape)

    def end(self) -> None:
        if self._at != len(self._data):
            raise FormatError(f"{len(self._data) - self._at} bytes too many after the forest")


def loads(data: bytes | bytearray | memoryview, *, n_threads: int = 1) -> Any:
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


def _read(header: dict[str, Any], reader: _Reader, n_threads: int) -> Forest[Any]:
    kind = FAMILIES.get(header["family"])
    if kind is None:
        raise FormatError(f"the forest is of family {header['family']!r}, this version reads {', '.join(FAMILIES)}")
    forest = kind.from_params(kind.Parameters(**header["params"]), n_threads)
    names, d = header["feature_names"], header["n_features"]
    forest._recall(header["classes"])
    if names is not None:
        forest.add_features(names)
    elif d:
        forest._grow_features([None] * d)
    if forest.n_features != d:
        raise FormatError("the header of the forest contradicts itself")
    _fill(forest, reader)
    reader.end()
    return forest


def _fill(forest: Forest[Any], reader: _Reader) -> None:
    scaling, arena, d, n_trees = forest._scaling, forest._arena, forest.n_features, forest.params.n_estimators
    scaling.origin[:] = reader.array("<f8", d)
    scaling.lowest[:] = reader.array("<f4", d)
    scaling.highest[:] = reader.array("<f4", d)
    scaling.weights[:] = reader.array("<f4", padded(d))
    scaling.counters[:] = reader.array("<i8", 3)
    kept = int(scaling.counters[0])
    if not 0 <= kept <= (SUBSAMPLE if scaling.adaptive else 0) or scaling.counters[1] < 1:
        raise FormatError(f"the forest keeps {kept} subsample rows at stride {scaling.counters[1]}")
    scaling.subsample[:kept] = reader.array("<f4", kept, d)
    forest._outlook[:] = reader.array("<f8", forest._outlook.shape[0])
    forest._words[:] = reader.array("<u8", n_trees)
    nodes = reader.array("<i8", n_trees)
    room = arena.layout.feature_room
    trees = [(reader.array("<i4", int(n), arena.layout.head), reader.array("<f4", int(n), 2, room)) for n in nodes]
    arena.prepare([heads.shape[0] for heads, _ in trees])
    # Small trees are looked at together: what there is to do for each of them takes longer than it takes for a node.
    for some in _in_groups(trees):
        heads = np.concatenate([trees[tree][0] for tree in some])
        boxes = np.concatenate([trees[tree][1] for tree in some])
        sizes = np.array([trees[tree][0].shape[0] for tree in some])
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        _check_links(heads, first, np.repeat(sizes, sizes), sizes, d)
        child = heads[:, CHILD]
        child[child > 0] += first[child > 0].astype(np.int32)
        if not forest._plausible(heads):
            raise FormatError("the statistics of a node of the forest do not add up")
        scaling.complete &= not np.isnan(boxes[:, 0, :d]).any()
        arena.fill(np.repeat(np.array(some), sizes), first, heads, boxes)


def _in_groups(trees: list[tuple[NDArray[np.int32], NDArray[np.float32]]]) -> Iterator[list[int]]:
    """Numbers of the trees, as many at a time as have some nodes together."""
    some: list[int] = []
    n_nodes = 0
    for tree, (heads, _) in enumerate(trees):
        some.append(tree)
        n_nodes += heads.shape[0]
        if n_nodes > _GROUP_NODES:
            yield some
            some, n_nodes = [], 0
    if n_nodes:
        yield some


def _check_links(
    heads: NDArray[np.int32],
    first: NDArray[np.int64],
    size: NDArray[np.int64],
    sizes: NDArray[np.int64],
    n_features: int,
) -> None:
    """Refuse links that would lead a kernel out of its tree or in circles, and rows of another layout.

    `first` and `size` are, for each node, the place of the root of its tree and how many nodes that tree has.
    """
    child, feature = heads[:, CHILD], heads[:, FEATURE]
    inner = child != 0
    # Children are pairs of neighbours, and each pair has one parent: then no way down ever meets a node again.
    place = np.arange(heads.shape[0]) - first
    stays = np.all((child[inner] > 0) & (child[inner] < size[inner]))
    pairs = (place + first)[place % 2 == 1]
    if not (stays and np.all(sizes[sizes > 0] % 2 == 1) and np.array_equal(np.sort((child + first)[inner]), pairs)):
        raise FormatError("the nodes of the forest are not linked as a tree")
    if np.any(feature[inner] >= n_features) or np.any(feature < 0):
        raise FormatError("a node of the forest splits on a feature it does not have")
