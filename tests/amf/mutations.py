"""Bytes of forests that are wrong under a right checksum, and what a process makes of them."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amf
from amf.serialization.canonical import FORMAT

Bytes = bytes | bytearray
PREFIX = struct.Struct("<4sIQ")
Settings = list[dict[str, Any]]
_MONDRIAN: Settings = [{"split_pure": True}, {"lifetime": 2.0, "min_samples_split": 3}, {"calibration": False}]
_INCREASING: Settings = [{"lifetime": 2.0, "lifetime_exponent": 0.0}, {"lifetime_exponent": 0.6, "calibration": False}]
_BSP: Settings = [{"lifetime": 2.0, "min_samples_split": 3}, {"rate_scale": 2.0, "calibration": False}]
SYSTEMS: dict[Any, Settings] = {
    amf.AMFClassifier: [{"split_pure": True}],
    amf.AMFRegressor: [{"split_pure": True}],
    amf.UnrestrictedAMFClassifier: [],
    amf.MondrianForestClassifier: _MONDRIAN,
    amf.MondrianForestRegressor: _MONDRIAN,
    amf.IncreasingLifetimeForestClassifier: [*_INCREASING, {"combine": "vote", "domain": "cube"}],
    amf.IncreasingLifetimeForestRegressor: [*_INCREASING, {"empty_cells": "zero", "domain": "cube"}],
    amf.BSPForestClassifier: [*_BSP, {"combine": "vote"}],
    amf.BSPForestRegressor: _BSP,
    amf.AdaptiveAMFClassifier: [{"background": 0.5, "review_every": 7}],
    amf.AdaptiveAMFRegressor: [{"background": 0.5, "review_every": 7}],
}
"""Systems and parameters of their own."""
MEMORY = 512 << 20
"""Bytes of address space that loading and learning may take beyond what a process of these kernels has."""
SECONDS = 20
"""Of a processor, for one of them."""


def stream(n: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    return x, (x[:, 0] * 2 + rng.random(n)).astype(np.int64)


def originals() -> list[bytes]:
    """Small forests of all systems: new, young, with missing values, full, and with other parameters."""
    x, y = stream(60, 0)
    found = [system(2).dumps() for system in SYSTEMS]
    for system, settings in SYSTEMS.items():
        every: Settings = [{}, {"max_bytes": 4_000}, *settings]
        found += [system(2, **setting).partial_fit(x, y).dumps() for setting in every]
        found.append(system(3).partial_fit(x[:3], y[:3]).dumps())
    holes = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    for system in (amf.AMFClassifier, amf.AMFRegressor):
        forest = system(2, scaling="none", mode="sampled").partial_fit(holes, y)
        found += [system(2).partial_fit(holes, y).dumps(), forest.dumps()]
    return found


def split(data: Bytes) -> tuple[bytes, bytearray]:
    """Header and body."""
    end = PREFIX.size + PREFIX.unpack_from(data)[2]
    return bytes(data[PREFIX.size : end]), bytearray(data[end:-32])


def sealed(header: bytes, body: Bytes) -> bytes:
    header = header.ljust(-(-len(header) // 8) * 8)
    front = PREFIX.pack(b"AMFF", FORMAT, len(header)) + header + bytes(body)
    return front + hashlib.sha256(front).digest()


def lie(header: bytes, body: bytearray, rng: np.random.Generator) -> tuple[bytes, bytearray]:
    """Change values of the header, in the form in which it is written."""
    values = json.loads(header)
    for _ in range(rng.integers(1, 3)):
        part = values["params"] if rng.random() < 0.7 and isinstance(values["params"], dict) else values
        key = str(rng.choice(sorted(part)))
        number = int(rng.choice([0, 1, 2, 3, 17, 700, 1_500, 5_000, 10**4, 2**31, 2**40, 2**63 - 1]))
        choices = [number, not part[key], None, -1, 0.5, "none", "sampled", "dirichlet", "auto", [0, 1], 1e9, 1e-9]
        part[key] = choices[rng.integers(len(choices))] if rng.random() < 0.6 else number
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode(), body


def flip(header: bytes, body: bytearray, rng: np.random.Generator) -> tuple[bytes, bytearray]:
    """Flip bits."""
    for at in rng.integers(0, len(body), rng.integers(1, 4)):
        body[at] ^= 1 << int(rng.integers(8))
    return header, body


def overwrite(header: bytes, body: bytearray, rng: np.random.Generator) -> tuple[bytes, bytearray]:
    """Put a number of some type where another one was."""
    for _ in range(rng.integers(1, 3)):
        kind = str(rng.choice(["<f4", "<f8", "<i4", "<i8"]))
        numbers = [0, 1, -1, 2, 1e-300, -0.0, 1e30, 1e300, 2**31 - 1, 2**31, 2**53, 2**63 - 1, np.nan, np.inf, 1e-45]
        with np.errstate(all="ignore"):
            word = np.array(numbers[rng.integers(len(numbers))]).astype(kind).tobytes()
        at = int(rng.integers(0, len(body) // len(word))) * len(word)
        body[at : at + len(word)] = word
    return header, body


def exchange(header: bytes, body: bytearray, rng: np.random.Generator) -> tuple[bytes, bytearray]:
    """Two parts of the same length take each other's places."""
    size = 4 * int(rng.integers(1, max(len(body) // 12, 2)))
    a, b = (4 * int(rng.integers(0, max((len(body) - size) // 4, 1))) for _ in range(2))
    one, other = bytes(body[a : a + size]), bytes(body[b : b + size])
    body[a : a + size], body[b : b + size] = other, one
    return header, body


def resize(header: bytes, body: bytearray, rng: np.random.Generator) -> tuple[bytes, bytearray]:
    """Insert or leave out words."""
    at, size = 8 * int(rng.integers(0, len(body) // 8)), 8 * int(rng.integers(1, 9))
    if rng.random() < 0.5:
        del body[at : at + size]
    else:
        body[at:at] = rng.bytes(size) if rng.random() < 0.5 else bytes(size)
    return header, body


MUTATIONS: tuple[Callable[..., tuple[bytes, bytearray]], ...] = (lie, lie, flip, overwrite, overwrite, exchange, resize)


def mutated(seed: int, sources: list[bytes]) -> bytes:
    """Bytes that are none of the sources, as a rule."""
    rng = np.random.default_rng(seed)
    header, body = split(sources[rng.integers(len(sources))])
    for _ in range(1 + (rng.random() < 0.3)):
        header, body = MUTATIONS[rng.integers(len(MUTATIONS))](header, body, rng)
        if len(body) < 16 or not header.startswith(b"{"):
            break
    return sealed(header, body)


def fate(data: bytes) -> str:
    """ "refused" or "alive"; raises AssertionError for a forest that is neither."""
    try:
        forest = amf.loads(data)
    except amf.FormatError:
        return "refused"
    d = forest.n_features or 3
    x, y = np.random.default_rng(2).random((50, d)), [0, 1] * 25
    if forest.feature_names is None and not forest.n_features and forest.params.max_features < d:
        x = x[:, :1]
    labels = None if forest.class_labels is None else list(forest.class_labels)
    if labels is not None:
        known = (labels * 50)[:50] if labels else y
        y = y if forest.params.classes is None and forest.params.max_classes >= len(labels) + 2 else known
    said = forest.prequential(x, y)
    forecasts = said[0]
    if labels is None:
        after = forest.predict(x)
        assert np.isfinite(after).all(), "a forecast that is no number"
        assert np.isfinite(forecasts[1:]).all(), "a forecast that is no number"
    else:
        after = forest.predict_proba(x)
        for table in (forecasts if labels else after, after):
            assert np.isfinite(table).all(), "a probability that is no number"
            assert (table >= 0).all(), "a negative probability"
            np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=1e-8)
    again = amf.loads(forest.dumps())
    assert again.dumps() == forest.dumps()
    forest.describe()
    return "alive"


def address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main(first: int, last: int) -> None:
    """Print a line for each seed before, and its fate after: whoever reads knows which one ended the process."""
    faulthandler.enable()
    sources = originals()
    for data in sources:
        assert fate(data) == "alive"
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY,) * 2)
    for seed in range(first, last):
        print(seed, end=" ", flush=True)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + SECONDS, resource.RLIM_INFINITY))
        try:
            print(fate(mutated(seed, sources)), flush=True)
        except Exception as error:
            print("wrong:", " ".join(repr(error).split())[:300], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
