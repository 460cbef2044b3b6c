"""How the cost of a sample grows with the number of samples learned: one tree, up to ten million of them.

    python -m tests.benchmarks growth

A line for each power of two: time per sample of predict and learn over the samples between the last power and this
one, the forest's growing included; and the mean depth of a sample's leaf. Both have to be straight lines over log n:
the line through the first half of the powers has to foretell the last, the cost up to a half more: what it grows by
beyond the depth (ns/level) is the way to memory, as the tree leaves one cache after the other. The exact Mondrian tree,
which splits pure leaves too, is as deep as log n by theory; the default is another tree, and is shown beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import amf
from tests.benchmarks.learners.endless_stream import CHUNK, N_CLASSES, chunks, load_kernels
from tests.benchmarks.measure import seconds
from tests.benchmarks.report import at_most, show

SAMPLES = 10_000_000
FIRST = 2 * CHUNK
SETTINGS: dict[str, dict[str, Any]] = {"default": {}, "exact Mondrian tree": {"split_pure": True}}


class Step(NamedTuple):
    """n: samples learned so far. ns: of each sample since the step before. depth: mean over leaves of all samples."""

    n: int
    ns: float
    depth: float


def steps(samples: int, settings: dict[str, Any]) -> Iterator[Step]:
    """One step at each power of two from FIRST on, and one at the end."""
    forest = amf.AMFClassifier(1, classes=range(N_CLASSES), max_bytes=10**12, **settings)
    spent_s, since = 0.0, 0
    for x, y in chunks():
        spent_s += seconds(lambda: forest.predict_learn(x, y))  # noqa: B023  # called at once
        n = forest.n_samples
        if (n >= FIRST and n & (n - 1) == 0) or n >= samples:
            yield Step(n, spent_s / (n - since) * 1e9, forest.mean_depth)
            spent_s, since = 0.0, n
        if n >= samples:
            return


def above_line(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The last cost over what the line over log n through the first half foretells: 1 for log n; NaN: no such line."""
    x, half = np.log2(sizes), max(2, len(sizes) // 2)
    slope, start = np.polyfit(x[:half], costs[:half], 1)
    return float(costs[-1] / (start + slope * x[-1])) if slope > 0 else float("nan")


def main(samples: int = SAMPLES) -> None:
    load_kernels()
    print(f"\nGrowth: one tree, {samples:,} generated samples", flush=True)
    for name, settings in SETTINGS.items():
        print(f"{name:<20} {'samples':>12} {'ns/sample':>10} {'ns/log2(n)':>11} {'depth':>6} {'ns/level':>9}")
        taken = []
        for step in steps(samples, settings):
            taken.append(step)
            per_log, per_level = step.ns / np.log2(step.n), step.ns / step.depth
            figures = f"{step.ns:>10,.0f} {per_log:>11.1f} {step.depth:>6.1f} {per_level:>9.1f}"
            print(f"{'':<20} {step.n:>12,} {figures}", flush=True)
        sizes = [step.n for step in taken]
        show("depth at the end / line over log n", above_line(sizes, [step.depth for step in taken]), at_most(1.05), 3)
        show("cost at the end / line over log n", above_line(sizes, [step.ns for step in taken]), at_most(1.5), 3)
