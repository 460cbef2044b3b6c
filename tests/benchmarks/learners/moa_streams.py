"""Streams of MOA's generators, five that change and the same ones as they are before they do.

    SEA         three features, of which two tell: their sum is above a threshold or not; a tenth of labels wrong
    Agrawal     nine features of people who ask for a loan, texts as their numbers; another rule for each part
    LED         24 digits, 17 of them irrelevant; 1, 3, 5 and 7 of those that tell change places with others
    RBF         50 centres of five classes in ten features, which move
    hyperplane  ten features; the plane between two classes turns; a twentieth of labels wrong

The first three change all at once, after every quarter. A seed decides on the rows, and on the centres and the plane.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.benchmarks.learners.tables import Table
from tests.benchmarks.peers.catalogue import Moa
from tests.benchmarks.peers.process import CACHE

ROWS, PARTS = 40_000, 4
_RBF, _PLANE = "RandomRBFGenerator{drift} -n 50 -c 5 -r {seed}", "HyperplaneGenerator -a 10"
_SEA, _AGRAWAL = (
    [f"SEAGenerator -f {f} -p 10" for f in (1, 2, 3, 4)],
    [f"AgrawalGenerator -f {f}" for f in (1, 2, 3, 4)],
)
_LED = [f"LEDGeneratorDrift -d {n}" for n in (1, 3, 5, 7)]
CHANGING = {
    "SEA": _SEA,
    "Agrawal": _AGRAWAL,
    "LED": _LED,
    "RBF": [f"{_RBF.replace('{drift}', 'Drift')} -k 50 -s 0.0001"],
    "hyperplane": [f"{_PLANE} -k 10 -t 0.001"],
}
"""Name of a stream -> MOA's generator of each of its parts."""
STILL = {
    "SEA, still": _SEA[:1],
    "Agrawal, still": _AGRAWAL[:1],
    "LED, still": _LED[:1],
    "RBF, still": [_RBF.replace("{drift}", "")],
    "hyperplane, still": [_PLANE],
}


def generator(parts: list[str], seed: int, rows: int = ROWS) -> str:
    """The parts one after the other, for MOA: the last ones are what the first one changes into."""
    first, *others = (f"(generators.{part.format(seed=seed)} -i {PARTS * seed + k})" for k, part in enumerate(parts))
    length = rows // PARTS
    stream = others.pop() if others else ""
    while others:
        stream = f"(ConceptDriftStream -s {others.pop()} -d {stream} -p {length} -w 1)"
    return f"ConceptDriftStream -s {first} -d {stream} -p {length} -w 1" if stream else first[1:-1]


def changes(name: str, rows: int = ROWS) -> list[int]:
    """The rows with which a stream changes all at once."""
    parts = len(CHANGING.get(name, [""]))
    return [k * rows // parts for k in range(1, parts)]


def written(moa: Moa, name: str, seed: int, rows: int = ROWS) -> tuple[Path, Table]:
    """A stream as a file of MOA's, written once, and as a table."""
    arff = CACHE / "streams" / f"{name.replace(', ', '-')}-{seed}-{rows}.arff"
    if not arff.exists():
        arff.parent.mkdir(parents=True, exist_ok=True)
        unfinished = arff.with_suffix(".unfinished")
        moa.write(generator((CHANGING | STILL)[name], seed, rows), unfinished, rows)
        unfinished.rename(arff)
    return arff, table_of(name, arff.read_text())


def table_of(name: str, text: str) -> Table:
    """A file of MOA's as a table: of texts the numbers, in the order of their declaration."""
    head, _, body = text.partition("@data")
    kinds = [line.split(" ", 2)[2] for line in head.splitlines() if line.startswith("@attribute")]
    codes = [
        {value: k for k, value in enumerate(kind.strip("{}").split(","))} if kind.startswith("{") else None
        for kind in kinds
    ]
    rows = [line.rstrip(",").split(",") for line in body.split()]
    columns = [
        [float(value) if known is None else known[value] for value in column]
        for column, known in zip(zip(*rows, strict=True), codes, strict=True)
    ]
    labels = codes[-1]
    assert labels is not None
    return Table(name, np.column_stack(columns[:-1]).astype(float), np.array(columns[-1]), len(labels))
