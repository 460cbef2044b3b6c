"""What a seed decides once for its schedule, and which faults there are."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from tests.worker.support.fakes import config, with_transactions
from worker.base.errors import Abort, Transient, Unknown, WorkerError
from worker.config import Config
from worker.runtime.loop import Worker

ERRORS: dict[str, tuple[type[WorkerError], ...]] = {
    "committed": (Transient,),
    "bounds": (Transient,),
    "init": (Transient, Abort, Unknown),
    "begin": (Unknown,),
    "produce": (Abort, Transient, Unknown),
    "produce:done": (Unknown,),
    "offsets": (Abort, Unknown),
    "commit": (Abort, Unknown),
    "commit:done": (Unknown,),
    "abort": (Unknown,),
    "abort:done": (Unknown,),
    "commit offsets": (Abort, Transient),
    "commit offsets:done": (Abort, Transient),
    **{
        f"store {method}{when}": (Transient,)
        for method in ("create", "read", "read_range", "list", "delete")
        for when in ("", ":done")
    },
}
"""What the worker's adapters may raise, by the point at which they do; see worker/base/ports.py."""
ALGORITHMS = ("amf-classifier", "amf-classifier", "amf-regressor")
OTHER_ALGORITHMS = (
    "mondrian-classifier",
    "mondrian-regressor",
    "increasing-lifetime-classifier",
    "increasing-lifetime-regressor",
    "bsp-classifier",
    "bsp-regressor",
    "adaptive-classifier",
    "adaptive-regressor",
)
CRITICAL = {
    "begin",
    "produce",
    "offsets",
    "commit",
    "commit:done",
    "abort",
    "metadata:done",
    "spill read",
    "store read_range",
}
"""Points at which faults are more frequent: what lies between them must be atomic."""
FAULTS = (
    "error",
    "error",
    "late commit",
    "crash",
    "hold",
    "zombie",
    "loss",
    "unnoticed loss",
    "rebalance",
    "damage",
    "damage",
    "spill damage",
    "slow store",
    "stale offsets",
)
BESIDE = (
    *FAULTS,
    *("overtaken", "overtaken", "overtaken", "late write", "late write", "torn list", "torn list"),
    *("open input", "open input", "open input"),
)
"""Faults of schedules of their own: what comes between a thread and its store, and between records and their reader."""
DISASTERS = ("gap", "rewind", "truncation", "disagreement", "foreign files", "deployment")
"""What no worker can mend: see disasters.py. A schedule has one of them, or none."""


@dataclass(frozen=True)
class Plan:
    """What a seed decides once."""

    config: Config
    partitions: int
    entries: int
    """Processes that are meant to run side by side."""
    steps: int
    batch_records: int
    """Records of a partition in one batch at most."""
    fault_rate: float
    faults: tuple[str, ...]
    """Faults of this schedule: most have few sorts, which reach further than all at once."""
    look_s: float
    """Time that passes whenever a worker looks at the clock."""
    copied_bytes: int
    """How much of the models that wait to be saved a turn copies at most."""
    turn_bytes: float | None
    """Memory that the models of a turn may take; None where that follows from what all may take."""
    spill_room: int
    """How many models the spill takes."""
    refused_every: int
    """Predictions of every so manyth offset are refused by the topic; 0 if none is."""
    disaster: str | None
    seconds_per_record: float
    """Time that it takes to send a record of a transaction."""
    marked: bool
    """Whether what is produced has a marker at its end, as transactions have."""
    pieces: int
    """How often records are predicted before they are committed."""
    static: bool
    """Whether a process takes over the name, and so the transactional id, of the one before it."""

    @classmethod
    def draw(cls, rng: random.Random) -> Plan:
        delivery = "at-least-once" if rng.random() < 0.1 else "exactly-once"
        faults = rng.sample(FAULTS, rng.randint(1, rng.choice((2, 4, len(FAULTS)))))
        # At least once, a zombie may set the group back, to before what is lost or changed on purpose.
        disaster = rng.choice(DISASTERS) if delivery == "exactly-once" and rng.random() < 0.6 else None
        if disaster is not None:
            faults = [fault for fault in faults if fault != "damage"] or ["crash"]
        plan = cls(
            config=config(
                on_gap=rng.choice(("fail", "accept")) if disaster is not None and "gap" in disaster else "fail",
                on_rewind=rng.choice(("fail", "accept")) if disaster == "rewind" else "fail",
                tombstones=rng.choice(("dead-letter", "reset")),
                null_key=rng.choice((None, "nobody")),
                delivery=delivery,
                max_consecutive=rng.choice((2, 1000, 1000)),
                interval_s=rng.choice((0.001, 0.05, 0.5, 100.0)),
                recovery_budget_s=rng.choice((0.001, 0.01, 10.0)),
                algorithm=rng.choice(ALGORITHMS),
                # The keys of a partition are numbered: the middle one may have another algorithm than its neighbours.
                overrides=[{"match": "*.1", "algorithm": rng.choice(ALGORITHMS)}],
                n_estimators=rng.choice((1, 1, 2)),
                scaling=rng.choice(("auto", "none")),
                split_pure=rng.random() < 0.5,
                mode=rng.choice(("existing", "existing", "sampled", "expected")),
                charge_first=rng.random() < 0.2,
                calibration=rng.random() < 0.8,
                max_classes=rng.choice((2, 3, 100)),
                max_features=rng.choice((2, 4, 100)),
                max_categories=rng.choice((1, 2, 100)),
                cache_bytes=rng.choice((None, 1, 1, 1, 40_000)),
                max_models=rng.choice((1, 2, 1000, 1000)),
            ),
            partitions=rng.choice((1, 2, 2, 3, 3, 4)),
            entries=rng.choice((1, 2, 2, 3)),
            steps=(steps := rng.randint(8, 40)),
            pieces=1 + 2 * (steps % 2),
            marked=steps % 5 == 0,
            batch_records=rng.choice((1, 2, 3, 5, 10)),
            fault_rate=rng.choice((0.01, 0.03, 0.06, 0.12)),
            faults=tuple(faults),
            disaster=disaster,
            seconds_per_record=rng.choice((0.0, 0.0, 0.0, 0.2, 4.0)),
            look_s=rng.choice((0.0, 0.001)),
            copied_bytes=rng.choice((1, 10_000, Worker.copied_bytes)),
            turn_bytes=None if steps % 3 == 0 else math.inf,
            spill_room=rng.choice((0, 0, 1, 1000, 1000)),
            refused_every=rng.choice((0, 0, 0, 0, 1, 3, 7)),
            static=rng.random() < 0.5,
        )
        # Not drawn: the schedules of the other seeds stay what they were.
        most = {2: 2, 5: 3}.get(steps % 8, 10_000)
        return replace(plan, config=with_transactions(plan.config, max_records=most))
