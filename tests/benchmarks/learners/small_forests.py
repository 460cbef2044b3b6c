"""Many small forests: what one of them weighs, what making, saving and loading one costs, and a call for one event.

    python -m tests.benchmarks small

The overhead of a call is measured from outside. The same events go through copies of one forest, once in calls of a
single event and once in calls of 64. An event costs k + o in the first and k + o / 64 in the second, where o is what a
call costs whatever it brings and k, the kernel, what an event costs wherever it comes. Two equations give both. The
forest is small enough for the cache: in a large one the calls of 64 also save on the way to memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import amf
from tests.benchmarks.learners.endless_stream import CHUNK, N_CLASSES, chunks, load_kernels
from tests.benchmarks.measure import held_bytes, seconds
from tests.benchmarks.report import at_most, show

FORESTS = 100_000
SAMPLES = 20
FEW = 5
EVENTS = 512
CALL = 64
ROUNDS = 41
MEGA = 1_000_000


def weigh(count: int) -> tuple[float, float, float]:
    """Of `count` forests that have learned SAMPLES samples: resident bytes and `nbytes` of one, and us to make one."""
    before = held_bytes()
    forests: list[amf.AMFClassifier] = []
    made_s = seconds(lambda: forests.extend(amf.AMFClassifier(10, seed=seed) for seed in range(count)))
    stream = chunks()
    x, y = next(stream)
    for seed, forest in enumerate(forests):
        start = seed * SAMPLES % (CHUNK - SAMPLES)
        forest.partial_fit(x[start : start + SAMPLES], y[start : start + SAMPLES])
    nbytes = sum(forest.nbytes for forest in forests) / count
    return (held_bytes() - before) / count, nbytes, made_s / count * 1e6


def call_us() -> tuple[float, float]:
    """(overhead of a call, kernel time of an event), us, see the module."""
    x, y = next(chunks())
    forest = amf.AMFClassifier(10, classes=range(N_CLASSES)).partial_fit(x[:EVENTS], y[:EVENTS])
    x, y, learned = x[EVENTS : 2 * EVENTS], y[EVENTS : 2 * EVENTS], forest.dumps()

    def event_us(size: int) -> float:
        copy = amf.loads(learned)
        parts = [(x[first:last], y[first:last]) for first, last in pairwise(range(0, EVENTS + 1, size))]
        return seconds(lambda: [copy.predict_learn(*part) for part in parts]) / EVENTS * 1e6

    rounds = [(event_us(1), event_us(CALL)) for _ in range(ROUNDS)]
    single, shared = (median(times) for times in zip(*rounds, strict=True))
    overhead = (single - shared) * CALL / (CALL - 1)
    return overhead, single - overhead


def show_keeping() -> None:
    """Print what it costs to save a forest, to load it, to copy it, and to say how deep it is."""
    x, y = next(chunks())
    forest = amf.AMFClassifier(10).partial_fit(x[:FEW], y[:FEW])
    data = forest.dumps()
    hash_us = _us(lambda: hashlib.sha256(data))
    print(f"keeping one that learned {FEW} samples, {len(data) / 1e3:.1f} kB, of which hashing takes {hash_us:.1f} us")
    show("us to save it, without hashing", _us(forest.dumps) - hash_us, at_most(40))
    show("us to load it, without hashing", _us(lambda: amf.loads(data)) - hash_us, at_most(80))
    show("us to load it from trusted bytes", _us(lambda: amf.loads(data, trusted=True)), at_most(60))
    show("us to copy it", _us(forest.copy), at_most(40))
    show("us to say how deep it is", _us(lambda: forest.mean_depth), at_most(30))


def _us(work: Callable[[], Any]) -> float:
    """Time of a short piece of work: the best of some rounds, which nobody disturbed."""
    work()
    return min(seconds(lambda: [work() for _ in range(ROUNDS)]) for _ in range(ROUNDS)) / ROUNDS * 1e6


def main(count: int = FORESTS) -> None:
    load_kernels()
    print(f"\nSmall forests: {count:,} of 10 trees, each with {SAMPLES} samples of 10 features learned", flush=True)
    held, nbytes, made_us = weigh(count)
    show("kB of memory for one (resident)", held / 1e3, at_most(64))
    show("kB of memory for one (as it says: nbytes)", nbytes / 1e3, at_most(64))
    print(f"a million of them: {held * MEGA / 1e9:,.1f} GB resident")
    show("us to make one", made_us, at_most(50))
    show_keeping()
    overhead, kernel = call_us()
    show(f"us of overhead of a call for one event (kernel: {kernel:.1f} us)", overhead, at_most(15))
