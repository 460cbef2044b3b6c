"""Canonical bytes of a forest, format 11. Everything is little-endian; every part starts at a multiple of 8 bytes.

    magic        4 bytes   b"AMFF"
    format       uint32    10
    header size  uint64    bytes of the header with its padding
    header       JSON in ASCII, keys sorted, no spaces, padded with spaces to a multiple of 8: family, params,
                 classes (labels in the order of their columns, null where a family has none), n_features,
                 feature_names (or null)
    origin       float64 (d,)            see scaling.py
    lowest       float64 (d,)
    highest      float64 (d,)
    last         float64 (d,)
    moves        int64 (d,)
    pairs        float64 (d, 32)         or (d, 0) where features are taken as they are
    weights      float32 (padded d,)
    labelled     int64                   samples learned
    calibration  float64 (...)           see class_calibration.py, number_calibration.py; empty where there is none
    adaptation   float64 (...)           see state.py; empty where a forest does not adapt
    words        uint64 (n_trees,)       state of each tree's generator
    nodes        int64 (n_trees,)        nodes of each tree
    for each tree in turn, its nodes in order of creation:
    heads        int32 (nodes, words)    see arena.py; links count from 0 at the root
    boxes        float32 (nodes, 2, room)
    checksum     32 bytes                SHA-256 of everything before it

Equal states give equal bytes: capacities and thread counts are not written.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amf.adaptation.state import is_sound, room_in, size_of, with_features
from amf.geometry.boxes import padded_width
from amf.geometry.scaling import Scaling, strides_of
from amf.memory.arena import Arena
from amf.serialization.packing import pack, unpack
from amf.serialization.soundness import fault_of, fault_of_scaling
from amf.state.forest_state import ForestState

MAGIC = b"AMFF"
FORMAT = 11
_PREFIX = struct.Struct("<4sIQ")
_CHECKSUM = 32
_NOT_OURS = "the header of the forest is not as this version writes it"
_SEED = re.compile(rb'"seed":(0|[1-9][0-9]*)')
"""In a header: within a text the first quotation mark would be escaped, and the second one not followed by a colon."""
_SMALL, _MOST_KNOWN = 1 << 16, 256
"""What is known of headers that were read: bytes of one at most, and how many."""
_F8, _F4, _I8, _I4, _U8 = (np.dtype(kind) for kind in ("<f8", "<f4", "<i8", "<i4", "<u8"))


class FormatError(ValueError):
    """The bytes are damaged, cut, or not a forest of a format this version reads."""


_known: dict[tuple[int, bytes], ForestState[Any]] = {}
"""By places of seeds in headers, and what is left of these without them: what `_of_header` gives."""


def _size(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8


_AS_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _header(forest: ForestState[Any]) -> bytes:
    values = {
        "family": forest.family,
        "params": forest.params.as_dict(),
        "classes": forest.class_labels,
        "n_features": forest.n_features,
        "feature_names": forest.feature_names,
    }
    header = _AS_JSON.encode(values).encode()
    return header.ljust(_size(len(header)))


def _packed(forest: ForestState[Any]) -> NDArray[np.float64]:
    """The state of the adaptation without room for more samples than are kept."""
    n_trees, d, flat = forest.params.n_estimators, forest.n_features, forest._adaptation
    kept = min(forest._n_kept, room_in(flat, n_trees, d))
    return with_features(flat, n_trees, d, [], forest.n_samples, kept) if flat.size else flat


def dumps(forest: ForestState[Any]) -> bytes:
    """Bytes of a forest; `loads` gives back a forest that continues bit for bit."""
    return dumps_hashed(forest)[0]


def dumps_hashed(forest: ForestState[Any]) -> tuple[bytes, str]:
    """`dumps`, and the SHA-256 of these bytes (64 hexadecimal digits), which takes no second pass over them."""
    scaling, arena, header = forest._scaling, forest._arena, _header(forest)
    columns = (
        scaling.values, scaling.moves, scaling.pairs, scaling.weights, scaling.n_labelled,
        forest._calibration, _packed(forest), forest._words, arena.sizes,
    )  # fmt: skip
    # Each column is a multiple of eight bytes.
    front = b"".join((_PREFIX.pack(MAGIC, FORMAT, len(header)), header, *(column.tobytes() for column in columns)))
    end = len(front) + arena.n_nodes * arena.layout.nbytes
    # The only bytes that can be written to where they are: a large forest is copied once. Their memory comes as zeros
    # from the system page by page when it is first written to, and that is while other threads may run.
    stream = BytesIO(bytes(end + _CHECKSUM))
    with stream.getbuffer() as data:
        data[: len(front)] = front
        pack(arena, np.frombuffer(data[len(front) : end], np.int32))
        hashed = hashlib.sha256(data[:end])
        data[end:] = hashed.digest()
        hashed.update(data[end:])
    return stream.getvalue(), hashed.hexdigest()


class _Reader:
    """Takes arrays off a buffer, never beyond its end."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at

    def array(self, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
        """So many numbers: a view."""
        start, stop = self._at, self._at + dtype.itemsize * length
        self._at = stop
        if length < 0 or stop > len(self._data):
            raise FormatError("the bytes of the forest end too early")
        return np.frombuffer(self._data, dtype, length, start)

    def end(self) -> None:
        if self._at != len(self._data):
            raise FormatError(f"{len(self._data) - self._at} bytes too many after the forest")


def loads(
    data: bytes | bytearray | memoryview, systems: Mapping[str, type[Any]], *, n_threads: int = 1, trusted: bool = False
) -> Any:
    """The forest that `dumps` wrote, of one of these systems by their families.

    trusted: the bytes are known to be what `dumps` gave, and are not looked through; others may crash the process.
    Raises FormatError (a ValueError) for other bytes, TypeError for anything else.
    """
    if isinstance(data, str | PathLike):
        raise TypeError(f"expected the bytes of a forest, got the name of a file: pathlib.Path({data!r}).read_bytes()")
    view = memoryview(data).cast("B")
    if len(view) < _PREFIX.size + _CHECKSUM or view[:4] != MAGIC:
        raise FormatError(f"these {len(view)} bytes are not a forest: they do not begin with {MAGIC!r}")
    _, version, header_size = _PREFIX.unpack_from(view)
    if version != FORMAT:
        raise FormatError(f"the forest has format {version}, this version reads format {FORMAT}")
    if not trusted and hashlib.sha256(view[:-_CHECKSUM]).digest() != view[-_CHECKSUM:]:
        raise FormatError("the checksum of the forest does not match: the bytes are damaged or cut")
    end = len(view) - _CHECKSUM
    at = _PREFIX.size + header_size
    if at > end:
        raise FormatError("the bytes of the forest end too early")
    header = bytes(view[_PREFIX.size : at])
    try:
        with np.errstate(all="ignore"):  # numbers are looked at that may be anything
            forest = _headed(header, end - at, systems)
            reader = _Reader(view[:end].toreadonly(), at)
            forest._scaling = _read_scaling(forest._scaling, reader, trusted=trusted)
            _read_trees(forest, reader, trusted=trusted)
            reader.end()
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"the forest cannot be read: {error!r}") from error
    forest.n_threads = n_threads
    return forest


def _headed(header: bytes, n_bytes: int, systems: Mapping[str, type[ForestState[Any]]]) -> ForestState[Any]:
    """A forest of what the header says; its features and trees are still to be read, from so many bytes."""
    text = header.rstrip(b" ")
    seed = _SEED.search(text)
    if seed is None or len(header) != _size(len(text)):
        raise FormatError(_NOT_OURS)
    # To read a header takes longer than all the rest of a small forest, and most differ in the seed alone.
    rest = seed.start(), text[: seed.start()] + text[seed.end() :]
    known = _known.get(rest)
    if known is None or systems.get(known.family) is not type(known):
        known = _of_header(header, n_bytes, systems)
        if len(text) + known.nbytes <= _SMALL:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[rest] = known
    forest = known._twin()
    forest.params = known.params.with_seed(int(seed[1]))
    return forest


def _of_header(header: bytes, n_bytes: int, systems: Mapping[str, type[ForestState[Any]]]) -> ForestState[Any]:
    """A forest of what the header says, for twins."""
    values = json.loads(header)
    kind = systems.get(values["family"])
    if kind is None:
        raise FormatError(f"the forest is of family {values['family']!r}, this version reads {', '.join(systems)}")
    names, d = values["feature_names"], values["n_features"]
    forest = kind._bare(kind.Parameters(**values["params"]), 1)
    if not d <= forest.params.max_features or (names is not None and not _may_name(names, d)):
        raise FormatError("the header of the forest contradicts itself")
    forest._names = None if names is None else tuple(names) or None
    forest._recall(values["classes"])
    numbers = d * (4 + forest._scaling.pairs.shape[1])
    numbers += forest._n_calibrated(d) if forest.params.calibration else 0
    if numbers * _F8.itemsize > n_bytes:  # asked before there is memory for them
        raise FormatError("the bytes of the forest end too early")
    forest._scaling.grow([None] * d)
    forest._grow_calibration(0, [None] * d)
    forest._relayout()
    if _header(forest) != header:
        raise FormatError(_NOT_OURS)
    return forest


def _may_name(names: Any, n_features: int) -> bool:
    return len(names) == len({*names}) == n_features and all(isinstance(name, str) for name in names)


def _read_scaling(like: Scaling, reader: _Reader, *, trusted: bool) -> Scaling:
    """The features, as many and of the kind of these."""
    scaling, d = Scaling(adaptive=like.adaptive, fixed=like.fixed), like.n_features
    scaling.values, scaling.counts = reader.array(_F8, 4 * d).reshape(4, d).copy(), np.empty((2, d), np.int64)
    scaling.counts[0] = reader.array(_I8, d)
    width = scaling.pairs.shape[1]
    scaling.pairs = reader.array(_F8, d * width).reshape(d, width).copy()
    scaling.weights = reader.array(_F4, padded_width(d)).copy()
    scaling.n_labelled = reader.array(_I8, 1).copy()
    if not trusted and (fault := fault_of_scaling(scaling)):
        raise FormatError(fault)
    scaling.counts[1] = strides_of(scaling.moves)
    return scaling


def _has_read_adaptation(forest: ForestState[Any], reader: _Reader, *, trusted: bool) -> bool:
    """Whether the state of the adaptation is there and sound."""
    if not forest._adaptation.size:
        return True
    n_trees, d = forest.params.n_estimators, forest.n_features
    forest._adaptation = reader.array(_F8, size_of(n_trees, d, 0)).copy()
    if not trusted and not 0.0 <= float(forest._adapted.beginning[0]) <= forest.n_samples:
        return False
    kept = reader.array(_F8, min(forest._n_kept, forest._terms.most_kept) * (d + 1))
    forest._adaptation = np.concatenate((forest._adaptation, kept))
    n_classes = None if forest.class_labels is None else len(forest.class_labels)
    return trusted or is_sound(forest._adapted, forest._terms, forest.n_samples, forest._scaling.moves, n_classes)


def _read_trees(forest: ForestState[Any], reader: _Reader, *, trusted: bool) -> None:
    layout, n_trees = forest._arena.layout, forest.params.n_estimators
    forest._calibration = reader.array(_F8, forest._calibration.shape[0]).copy()
    if not _has_read_adaptation(forest, reader, trusted=trusted):
        raise FormatError("the weights of the features or the roles of the trees of the forest could not be")
    forest._words = reader.array(_U8, n_trees).copy()
    sizes = reader.array(_I8, n_trees).tolist()
    if min(sizes) < 0:
        raise FormatError(f"a tree of the forest has {min(sizes)} nodes")
    if forest._needs_to_forget(max(sizes)):
        raise FormatError(f"a tree of the forest has {max(sizes)} nodes, more than max_bytes allows")
    packed = reader.array(_I4, sum(sizes) * (layout.nbytes // 4))
    # Kernels are compiled for aligned memory; the bytes may begin anywhere.
    if not packed.flags.aligned:
        packed = packed.copy()
        packed.flags.writeable = False
    arena = forest._arena = Arena.of(sizes, layout)
    fault = unpack(packed, arena, forest.n_features)
    if not (fault or trusted):
        fault = fault_of(arena, forest.n_features, forest.n_samples - forest._births, forest._bounds)
    if fault:
        raise FormatError(fault)
    if trusted:
        return
    heads = arena.block()
    if not forest._is_partition(heads):
        raise FormatError("the cells of the forest are not those of its trees")
    if not forest._plausible(heads):
        raise FormatError("the statistics of a node of the forest do not add up")
