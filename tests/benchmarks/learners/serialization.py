"""Saving and loading: MB/s of dumps and of loads, and the size of the bytes beside that of the live columns.

python -m tests.benchmarks bytes
"""

from __future__ import annotations

from itertools import islice
from statistics import median

import amf
from tests.benchmarks.learners.endless_stream import N_CLASSES, chunks
from tests.benchmarks.measure import seconds
from tests.benchmarks.report import at_least, at_most, show

ROUNDS = 9
CHUNKS = 12
"""About 100,000 samples: a forest of tens of MB."""


def live_bytes(forest: amf.AMFClassifier) -> int:
    """Bytes of the nodes in use. What the forest holds (`nbytes`) has room to grow, which no file needs."""
    return forest.n_nodes * forest._arena.layout.nbytes


def main(count: int = CHUNKS) -> None:
    forest = amf.AMFClassifier(classes=range(N_CLASSES))
    for x, y in islice(chunks(), count):
        forest.partial_fit(x, y)
    data = forest.dumps()
    assert amf.loads(data).dumps() == data
    saved_s, loaded_s = [], []
    for _ in range(ROUNDS):
        saved_s.append(seconds(forest.dumps))
        loaded_s.append(seconds(lambda: amf.loads(data)))
    megabytes = len(data) / 1e6
    print(f"\nSerialization: 10 trees, {forest.n_samples:,} samples, {megabytes:,.1f} MB", flush=True)
    show("dumps, MB/s", megabytes / median(saved_s), at_least(500), digits=0)
    show("loads, MB/s", megabytes / median(loaded_s), at_least(500), digits=0)
    show("size of the bytes / live columns", len(data) / live_bytes(forest), at_most(1.1), digits=3)
