"""Workers in whose memory no model stays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tests.worker.support.bench import Bench, Bound
from tests.worker.support.fakes import FakeSpill


class Tight(Bench):
    """No model stays in the memory of its workers, though a turn may use any number; `spill` takes so many."""

    def __init__(self, partitions: int = 1, room: int = 1000, **settings: Any) -> None:
        super().__init__(partitions, **({"cache_bytes": 1, "interval_s": 60.0} | settings))
        self.spill = FakeSpill(room)
        self.setting = replace(self.setting, spill=self.spill)

    def worker(self, name: str = "one", **settings: Any) -> Bound:
        worker = super().worker(name, **settings)
        worker.limit_models(math.inf)
        return worker

    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def lose(self, newest: int = 1000) -> None:
        """The disk damages what came last."""
        for place in self.spill.places[-newest:]:
            place.damaged = True


def shown(worker: Bound, name: str) -> float:
    """A metric with one series, as it is a second later."""
    worker.bench.clock.now_s += 1
    worker.turn()
    return next(iter(getattr(worker.metrics, name).series().values()))


def saved(bench: Tight) -> Bound:
    """A worker of which the store has all that was fed to it."""
    worker = bench.worker().join().turns(2)
    bench.wait(60)
    return worker.turns(8)
