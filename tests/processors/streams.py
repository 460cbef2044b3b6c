"""Streams that a forest has to learn to the same bits anywhere, and the program that learns them.

    python streams.py write DATA.npz    the streams; drawn once, since numpy's own generators go to the C library
    python streams.py learn DATA.npz [FAMILY ...]
                                        a line of JSON for each of them: digests of what a forest says and of its bytes

It needs amf and numpy alone, so that it also runs where there is no test suite. Progress goes to stderr.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf


class Stream(NamedTuple):
    """Samples (n, d), NaN where missing, labels (n,), NaN where there is none, and whose forest learns them."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]


def _numbers(rng: np.random.Generator, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nan_to_num(x[:, 0]) + np.sin(np.nan_to_num(x[:, 1])) + rng.normal(size=len(x))


def _tidy(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """A table as most are: numbers near zero, some of them whole, on a few scales."""
    x = rng.normal(size=(n, 16)) * 10.0 ** rng.integers(-2, 3, 16)
    x[:, ::3] = np.round(x[:, ::3])
    return x


def _hostile(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Twenty orders of magnitude within a feature, many zeros, many holes."""
    x = np.exp(rng.normal(0.0, 6.0, (n, 10)))
    x[rng.random(x.shape) < 0.3] = 0.0
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def _extreme(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Numbers at the borders of float64 and float32: the largest, subnormals, zeros of either sign, neighbours."""
    edges = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 1e-45, -1e-42, 1.2e-38, 1.7e308, -1.7e308, 3.5e38, 1e38, -1e30]
    edges += [1.0, float(np.nextafter(1.0, 2.0)), float(np.nextafter(np.float32(1), np.float32(2))), 0.1, 2.0**100]
    x = rng.choice(edges, (n, 9))
    x[:, 0] = rng.normal(size=n)
    x[rng.random(x.shape) < 0.05] = np.nan
    return x


def streams(n: int) -> dict[str, Stream]:
    """All of them by name, n samples in total."""
    rng = np.random.default_rng(20)
    shares = {"tidy": 0.2, "hostile": 0.3, "extreme": 0.1, "noise": 0.1, "numbers": 0.15, "wild": 0.15}
    sizes = {name: int(n * share) for name, share in shares.items()}
    tidy, hostile, extreme = _tidy(rng, sizes["tidy"]), _hostile(rng, sizes["hostile"]), _extreme(rng, sizes["extreme"])
    noise, numbers, wild = rng.random((sizes["noise"], 40)), _tidy(rng, sizes["numbers"]), _hostile(rng, sizes["wild"])
    found = {
        "tidy": Stream(tidy, np.digitize(_numbers(rng, tidy), [-1.0, 1.0]).astype(float)),
        "hostile": Stream(hostile, rng.integers(0, 5, len(hostile)).astype(float)),
        "extreme": Stream(extreme, rng.integers(0, 3, len(extreme)).astype(float)),
        "noise": Stream(noise, rng.integers(0, 2, len(noise)).astype(float)),
        "numbers": Stream(numbers, _numbers(rng, numbers)),
        "wild": Stream(wild, rng.normal(size=len(wild)) * 10.0 ** rng.integers(-60, 60, len(wild))),
    }
    for _, y in found.values():
        y[rng.random(len(y)) < 0.05] = np.nan
    return found


FORESTS: dict[str, list[Callable[[], Any]]] = {
    "tidy": [amf.AMFClassifier, amf.MondrianForestClassifier, lambda: amf.BSPForestClassifier(3)],
    "hostile": [
        amf.AMFClassifier,
        lambda: amf.AMFClassifier(3, max_bytes=200_000, mode="sampled"),
        lambda: amf.AdaptiveAMFClassifier(review_every=16),
    ],
    "extreme": [
        lambda: amf.AMFClassifier(5, mode="expected", split_pure=True),
        lambda: amf.IncreasingLifetimeForestClassifier(5, combine="vote"),
    ],
    "noise": [
        lambda: amf.AMFClassifier.preset("paper"),
        lambda: amf.MondrianForestClassifier(5, lifetime=3.0),
        lambda: amf.IncreasingLifetimeForestClassifier(3, domain="cube"),
        lambda: amf.UnrestrictedAMFClassifier(3),
    ],
    "numbers": [
        amf.AMFRegressor,
        lambda: amf.AMFRegressor(5, loss="square", bound=10.0, mode="expected"),
        lambda: amf.IncreasingLifetimeForestRegressor(5, lifetime_exponent=0.5),
    ],
    "wild": [
        amf.AMFRegressor,
        lambda: amf.MondrianForestRegressor(5, max_bytes=200_000),
        lambda: amf.BSPForestRegressor(2, max_bytes=300_000),
        lambda: amf.AdaptiveAMFRegressor(5, review_every=16),
    ],
}


def _digest(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def learn(found: dict[str, Stream], families: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """(name, digests of what was said before each sample was learned, of the forest, of what it says then).

    Only forests of these families, or all.
    """
    for name, stream in found.items():
        for number, new in enumerate(FORESTS[name]):
            start, forest = time.monotonic(), new()
            if families and forest.family not in families:
                continue
            regresses = isinstance(forest, amf.ForestRegressor)
            y = stream.y if regresses else [None if label != label else int(label) for label in stream.y]
            said = forest.prequential(stream.x, y)
            x = stream.x[:500]
            again = [forest.weighted_depth(x), forest.predict(x)]
            if regresses:
                again += [forest.predict_std(x), forest.predict_quantiles(x, (0.01, 0.3, 0.9))]
            digests = {
                "said": _digest(*said),
                "forest": hashlib.sha256(forest.dumps()).hexdigest(),
                "says": _digest(*again),
            }
            took = time.monotonic() - start
            print(f"  {name} {number}: {len(y):,} samples, {took:.0f} s", file=sys.stderr, flush=True)
            yield f"{name} {number}", digests


def main(task: str, path: str, *more: str) -> None:
    if task == "write":
        drawn = streams(int(*more)).items()
        np.savez(path, **{f"{name} {kind}": array for name, one in drawn for kind, array in one._asdict().items()})
        return
    with np.load(path) as columns:
        found = {name: Stream(columns[f"{name} x"], columns[f"{name} y"]) for name in FORESTS}
    for name, digests in learn(found, more):
        print(json.dumps({"name": name, **digests}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
