"""The matrix says what is there: every proof exists, every fault stands in a row."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.events import events
from tests.chaos.faults import FAULTS
from tests.chaos.matrix import MATRIX, Row
from tests.chaos.runner import draw

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row.fault[:40])
def test_every_row_is_proved_or_says_why_not(row: Row):
    assert row.proofs or row.open
    for proof in row.proofs:
        if proof in FAULTS:
            continue
        path, _, test = proof.partition("::")
        assert not test or f"def {test}(" in (ROOT / path).read_text(), f"{proof} is neither a fault nor a test"
        assert (ROOT / path).is_file()


def test_every_fault_stands_in_one_row():
    named = [proof for row in MATRIX for proof in row.proofs if proof in FAULTS]
    assert sorted(named) == sorted(FAULTS)


def test_a_seed_decides_events_and_faults():
    assert list(islice(events(1), 500)) == list(islice(events(1), 500))
    assert list(islice(events(1), 500)) != list(islice(events(2), 500))
    first, again, other = (list(islice(draw(seed, sorted(FAULTS)), 50)) for seed in (1, 1, 2))
    assert [(name, rng.random()) for name, rng in first] == [(name, rng.random()) for name, rng in again]
    assert [name for name, _ in first] != [name for name, _ in other]
    assert isinstance(first[0][1], random.Random)
