"""No schedule of crashes, rebalances and errors makes forwarders lose, double or swap a record."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from tests.worker.support.fake_broker import TRANSACTION_TIMEOUT_S
from tests.worker.support.fakes import Crash
from tests.worker.support.forwarders import INTERNAL, BoundForwarder, ForwarderBench, origin
from tests.worker.support.plan import ERRORS
from tests.worker.support.verdict import source
from worker.base.errors import Unknown, WorkerError
from worker.base.metrics import Metrics
from worker.base.records import Record
from worker.repartition.note import Note

METRICS = Metrics()
"""One for all schedules, which do not look at the numbers: to make it takes longer than to run one."""


class Schedule:
    """Forwarders that crash, lose partitions and meet errors at any call, as a seed says; then they may work it off."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.rng = random.Random(seed)
        self.bench = ForwarderBench(self.rng.randint(1, 3))
        self.counts = counts
        self._rate = self.rng.choice((0.03, 0.1, 0.2))
        self._calm = False
        self._entries: list[BoundForwarder | None] = [None] * self.rng.randint(1, 3)

    def run(self) -> None:
        for _ in range(40):
            self._step()
        self._calm = True
        for n in range(12):
            self.bench.clock.now_s += TRANSACTION_TIMEOUT_S
            for entry in range(len(self._entries)):
                self._turn(entry)
            if n < 8:  # Who finds markers deleted needs a turn more than others before it has forwarded anything.
                self._rebalance()

    def _step(self) -> None:
        rng, bench = self.rng, self.bench
        match rng.randint(0, 6):
            case 0:
                values = (b'{"shop": %d}' % rng.randint(0, 9), b"{}")
                number = rng.randrange(len(bench.broker.logs))
                bench.feed(*rng.choices(values, (9, 1), k=rng.randint(1, 5)), partition=number)
                bench.broker.logs[number].mark(rng.randint(0, 2))
            case 1:
                self._rebalance()
            case 2:
                bench.clock.now_s += rng.choice((0.1, 1.0, 15.0))
                bench.broker.deliver_late()
            case 3:
                self._delete()
            case _:
                self._turn(rng.randrange(len(self._entries)))

    def _delete(self) -> None:
        """Retention deletes what is forwarded, with the markers behind it that the group knows of."""
        broker = self.bench.broker
        for number, offset in broker.committed.items():
            note, log = Note.read(broker.metadata[number]), broker.logs[number]
            assert note is not None
            low = max(log.low, note.covered(offset))
            self.counts["markers deleted"] += low > max(offset, log.low)
            log.low = low

    def _turn(self, entry: int) -> None:
        """A turn of the process in this slot, which is started where there is none; it may be its last."""
        member = self._entries[entry]
        try:
            if member is None:
                member = self._entries[entry] = BoundForwarder(
                    self.bench, f"slot-{entry}", lambda point: self._at(entry, point), METRICS
                )
                member.input.batch_records = lambda: 100 if self._calm else self.rng.randint(0, 4)
                member.input.reads_ahead = lambda: self.rng.random() < 0.3
                member.start()
                self._rebalance()
            member.turn()
        except (Crash, WorkerError) as end:
            assert member is not None
            self._entries[entry] = None
            if isinstance(end, WorkerError):
                with suppress(Crash, WorkerError):
                    member.close()
            member.input.expire()

    def _at(self, entry: int, point: str) -> None:
        member = self._entries[entry]
        if member is None:
            raise Crash
        if self._calm or point == "consume":
            member.input.notice()
        if self._calm or self.rng.random() >= self._rate:
            return
        fault = self.rng.choice(("error", "error", "crash", "loss", "rebalance", "late commit"))
        if fault == "error" and point in ERRORS:
            self.counts["error"] += 1
            raise self.rng.choice(ERRORS[point])("injected")
        if fault == "crash":
            self.counts["crash"] += 1
            raise Crash
        if fault == "loss" and member.input.is_member:
            self.counts["loss"] += 1
            member.input.expire()
            self._rebalance()
        if fault == "rebalance":
            self.counts["rebalance"] += 1
            self._rebalance()
        if fault == "late commit" and point == "commit":
            self.counts["late commit"] += 1
            identity = f"slot-{entry}"
            self.bench.broker.commit_late(identity, self.bench.broker.open[identity].epoch)
            raise Unknown("injected: the request is late")

    def _rebalance(self) -> None:
        members = self.bench.broker.group.members
        if members:
            self.bench.broker.group.rebalance({n: self.rng.choice(members) for n in self.bench.broker.logs})


def key_of(record: Record) -> bytes | None:
    return None if record.value == b"{}" else (record.value or b"")[9:-1]


@pytest.mark.usefixtures("quiet")
def test_no_schedule_of_faults_loses_doubles_or_swaps_a_record() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1000):
        schedule = Schedule(seed, counts)
        schedule.run()
        broker = schedule.bench.broker
        assert broker.open == {}, f"seed {seed}"
        for number, log in broker.logs.items():
            expected = [(record.offset, key_of(record)) for record in log.records]
            found = [
                (origin(each)[1], each.key) if each.topic == INTERNAL else (source(each)[1], None)
                for each in broker.published
                if (origin(each) if each.topic == INTERNAL else source(each))[0] == number
            ]
            assert found == expected, f"seed {seed}, partition {number}"
    assert (
        min(counts[fault] for fault in ("error", "crash", "loss", "rebalance", "late commit", "markers deleted")) >= 10
    )
