"""Faults one after the other, drawn with a seed from the weighted list, and what became of it all."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.arena import START_WITHIN_S, Arena
from tests.chaos.faults import FAULTS, Missed
from tests.chaos.oracle import Verdict

CALM_S = 2.0
"""Longest pause after a fault."""


@dataclass
class Outcome:
    """What a run has shown."""

    verdict: Verdict
    exits: list[str]
    """Workers that ended unasked, or took too long to end when they were asked."""
    injected: Counter[str]
    missed: Counter[str]
    """Faults whose moment did not come, of those injected."""

    @property
    def good(self) -> bool:
        return self.verdict.good and not self.exits

    def report(self) -> str:
        verdict = self.verdict
        rows = [
            f"{n:6}  {name}" + (f", {self.missed[name]} missed" if self.missed[name] else "")
            for name, n in sorted(self.injected.items())
        ]
        figures = (
            f"{self.injected.total()} faults, {verdict.records:,} records, {verdict.checkpoints:,} checkpoints: "
            f"{verdict.lost} lost, {verdict.duplicated} duplicated, {verdict.differing} differing, "
            f"{verdict.wrong_states} wrong states, {verdict.unfinished} unfinished, "
            f"{verdict.open_transactions} open transactions, {len(self.exits)} exits unasked or late"
        )
        return "\n".join([*rows, *self.exits, *verdict.examples, figures])


Strike = tuple[str, random.Random]
"""The name of a fault, and the source of all that it chooses."""


def draw(seed: int, names: Sequence[str]) -> Iterator[Strike]:
    """Faults of these names without end, by their weights, of which one at least is not 0; the seed says which."""
    rng = random.Random(f"{seed} {' '.join(names)}")
    weights = [FAULTS[name].weight for name in names]
    while True:
        [name] = rng.choices(names, weights)
        yield name, random.Random(rng.random())


def in_order(seed: int, names: Sequence[str], times: int = 1) -> Iterator[Strike]:
    """These faults in this order, each so many times in a row."""
    return ((name, random.Random(f"{seed} {name} {n}")) for name in names for n in range(times))


def run(arena: Arena, strikes: Iterable[Strike], say: Callable[[str], None] = print) -> Outcome:
    """Inject one fault after the other, settle, and judge. Raises TimeoutError where the system does not recover."""
    injected, missed = Counter[str](), Counter[str]()
    arena.await_progress(START_WITHIN_S)
    started = time.monotonic()
    for name, rng in strikes:
        injected[name] += 1
        arena.rng = rng
        try:
            what = FAULTS[name].inject(arena)
        except Missed as miss:
            what = f"{miss}, missed"
            missed[name] += 1
        say(f"{time.monotonic() - started:7.1f} s  fault {injected.total():4}  {name}: {what}")
        time.sleep(rng.uniform(0, CALM_S))
        arena.fleet.supervise()
        # Now and then the next fault hits the recovery from this one.
        if rng.random() < 0.7:
            arena.await_progress()
    return Outcome(arena.finish(), arena.fleet.exits, injected, missed)
