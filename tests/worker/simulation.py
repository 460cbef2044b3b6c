"""A seeded simulation of workers, broker and store: events, faults and the order of everything follow from one number.

Processes take turns of their loops, one at a time. At every call that a worker makes something may happen: an error
with or without effect, a crash, a loss of its partitions, or the process is held there while the others go on and wakes
up as a zombie. When the faults are over and everything is worked off, verdict.py looks at what is left.

    python -m tests.worker.simulation SEED     runs one schedule and says what happens in it
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter

from tests.worker.events import Source
from tests.worker.fake_broker import TRANSACTION_TIMEOUT_S, Broker
from tests.worker.fakes import FakeClock
from tests.worker.plan import CRITICAL, ERRORS, Plan
from tests.worker.process import SETTING, Process
from tests.worker.verdict import Failed, Ledger, judge, source
from worker.errors import Unknown
from worker.records import Outgoing
from worker.runtime import Worker

MOST_ROUNDS = 100
DAY_MS = 24 * 3600 * 1000


class Simulation:
    """One schedule. `worker` is what is tested, `counts` adds up what was done to it."""

    def __init__(
        self, seed: int, worker: type[Worker] = Worker, counts: Counter[str] | None = None, *, verbose: bool = False
    ) -> None:
        self.worker = worker
        self.counts: Counter[str] = Counter() if counts is None else counts
        self.rng = random.Random(seed)
        self.plan = Plan.draw(self.rng)
        self.clock = FakeClock()
        self.broker = Broker(self.plan.partitions, self.clock)
        self.broker.refuses = self._refuses
        self.store = Ledger(self.broker)
        self._seed = seed
        self._verbose = verbose
        params_for = self.plan.config.models.params_for
        self._source = Source(self.rng, lambda key: params_for(key).labels_are_numbers)
        self._processes: list[Process] = []
        self._latest: dict[int, Process] = {}
        self._damaged: dict[str, bytes] = {}
        self._calm = False

    def run(self) -> None:
        """Raises Failed."""
        try:
            self._feed(self.rng.randint(0, 12))
            for slot in range(self.plan.slots):
                self._start(slot)
            for _ in range(self.plan.steps):
                self._step()
            self._finish()
            judge(self.broker, self.store, self.plan.config, SETTING.max_message_bytes)
        except Exception as error:
            replay = f"To see it: python -m tests.worker.simulation {self._seed}"
            raise Failed(f"seed {self._seed}: {type(error).__name__}: {error}\n{replay}") from error

    def say(self, process: Process | None, what: str) -> None:
        if self._verbose:
            print(f"{self.clock.now_s:9.3f} {process.name if process else '':>5} {what}")

    def _refuses(self, outgoing: Outgoing) -> bool:
        every = self.plan.refused_every
        return bool(every) and outgoing.topic == "predictions" and source(outgoing)[1] % every == 0

    # --- what happens between the turns -------------------------------------------------------------------------------

    def _step(self) -> None:
        rng = self.rng
        awake = [process for process in self._processes if process.awake]
        if awake and rng.random() < 0.75:
            rng.choice(awake).turn()
            # Some turns take their time, or what waits for another attempt would wait for most of a schedule.
            self.clock.now_s += rng.choice((0.0, 0.0, 0.5))
            return
        process = rng.choice(self._processes)
        match rng.randint(0, 9):
            case 0 | 1:
                self._feed(rng.randint(1, 8))
            case 2 | 3:
                self._rebalance()
            case 4:
                if process.awake:
                    process.write_checkpoint()
            case 5 | 6:
                self._bury()
                if not self._latest[process.slot].alive or (self.plan.static and rng.random() < 0.2):
                    self._start(process.slot)
                elif process.awake and "crash" in self.plan.faults:
                    self.say(process, "is told to stop")
                    process.stop()
            case 7:
                self._damage()
                if "spill damage" in self.plan.faults:
                    for each in awake:
                        self._damage_spill(each, "rest")
            case 8:
                self._retire_records()
            case 9:
                self.clock.now_s += rng.choice((0.1, 1.0, 15.0))
                self.clock.wall_offset_ms += rng.choice((-2, 2)) * DAY_MS
                self.broker.deliver_late()

    def _feed(self, n: int) -> None:
        for i in range(n):
            number = self.rng.randrange(self.plan.partitions)
            key, value = self._source.draw(number)
            headers = [("trace", b"%d" % i)] if i % 2 else []
            self.broker.logs[number].append(key, value, headers, gap=self.rng.choice((0, 0, 0, 0, 1, 3)))

    def _start(self, slot: int) -> Process:
        """A new process for a slot; under a static name it takes the place of the old one, be that alive or not."""
        plan, name = self.plan, f"{slot}.{len(self._processes)}"
        if slot in self._latest and plan.static:
            old = self._latest[slot].input
            self.broker.group.remove(old)
            old.replaced = True
        identity = None
        if plan.config.delivery == "exactly-once":
            identity = f"slot-{slot}" if plan.static else name
        process = Process(self, plan, name, identity, slot)
        process.input.batch_records = self._batch_records
        process.input.reads_ahead = lambda: not self._calm and self.rng.random() < 0.2
        process.pool.is_done_within = self._is_done_within
        process.askers.is_done_within = self._is_done_within
        self._processes.append(process)
        self._latest[slot] = process
        self.say(process, "starts")
        process.start()
        self._rebalance()
        return process

    def _rebalance(self) -> None:
        members = self.broker.group.members
        if members:
            self.broker.group.rebalance({number: self.rng.choice(members) for number in self.broker.logs})

    def _bury(self) -> None:
        """The group gives up waiting for the dead."""
        for process in self._processes:
            if not process.alive and process.input.is_member:
                process.input.expire()

    def _damage(self) -> None:
        names = sorted(self.store.objects.keys() - self._damaged.keys())
        if not names:
            return
        name = self.rng.choice(names[-4:] if self.rng.random() < 0.5 else names)
        data = self._damaged[name] = self.store.objects[name]
        place = self.rng.randrange(len(data) or 1)
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"?"
        damaged = self.rng.choice((data[:place], flipped, self.store.objects[self.rng.choice(names)], None))
        if damaged is None:
            del self.store.objects[name]
        else:
            self.store.objects[name] = damaged
        self.counts["damage"] += 1
        self.say(None, f"damages {name[-29:]}")

    def _repair(self) -> None:
        self.store.objects |= self._damaged
        for process in self._processes:
            for place in process.spill.places:
                place.damaged = False

    def _retire_records(self) -> None:
        """Retention deletes records, none that the newest checkpoint has yet to see."""
        if self.plan.config.delivery == "at-least-once":
            return  # Here a zombie may move the group back, behind what is deleted.
        for number, log in self.broker.logs.items():
            newest = max((manifest.offset for manifest, _ in self.store.manifests[number]), default=0)
            log.low = max(log.low, min(newest, self.rng.randint(0, log.high)))

    # --- what happens at a call ---------------------------------------------------------------------------------------

    def at(self, process: Process, point: str) -> None:
        """A process is at this point of its program."""
        if self._calm:
            process.input.notice()
            return
        if point == "consume" and self.rng.random() < 0.5:
            process.input.notice()
        if self.rng.random() >= self.plan.fault_rate * (3 if point in CRITICAL else 1):
            return
        fault = self.rng.choice(self.plan.faults)
        if fault == "error":
            self._raise(process, point)
        elif fault == "late commit":
            self._commit_late(process, point)
        elif fault == "crash":
            self._note(process, fault, point)
            process.kill()
        elif fault == "rebalance":
            self._note(process, fault, point)
            self._rebalance()
        elif fault == "damage":
            self._damage()
        elif fault == "spill damage":
            self._damage_spill(process, point)
        elif fault in ("loss", "unnoticed loss"):
            self._lose(process, fault, point)
        elif fault in ("hold", "zombie"):
            self._hold(process, fault, point)

    def _raise(self, process: Process, point: str) -> None:
        if point in ERRORS:
            error = self.rng.choice(ERRORS[point])
            self._note(process, error.__name__, point)
            raise error("injected")

    def _commit_late(self, process: Process, point: str) -> None:
        if point == "commit" and process.output is not None:
            process.output.commit_late()
            self._note(process, "late commit", point)
            raise Unknown("injected: the request is late")

    def _lose(self, process: Process, fault: str, point: str) -> None:
        if process.input.is_member:
            self._note(process, fault, point)
            process.input.expire(self.rng.choice(("lost", "lost", "revoked")))
            if fault == "loss":
                process.input.notice()
            self._rebalance()

    def _damage_spill(self, process: Process, point: str) -> None:
        if process.spill.places:
            self._note(process, "spill damage", point)
            for place in process.spill.places:
                place.damaged |= self.rng.random() < 0.7

    def _hold(self, process: Process, fault: str, point: str) -> None:
        if sum(each.held for each in self._processes) == 2:
            return
        self._note(process, fault, point)
        process.held = True
        if fault == "zombie":
            self._lose(process, "unnoticed loss", point)
        self.clock.now_s += self.rng.choice((0.0, 1.0, 12.0))
        for _ in range(self.rng.choice((1, 2, 4, 8, 16))):
            self._step()
        process.held = False
        if self.rng.random() < 0.5:
            process.input.notice(rejoin=self.rng.random() < 0.7)
        self.say(process, "goes on")

    def _batch_records(self) -> int:
        most = self.plan.batch_records
        return self.rng.randint(most, 10 * most) if self._calm else self.rng.randint(0, most)

    def _is_done_within(self, seconds: float) -> bool:
        """Whether a checkpoint that is being written is done by then."""
        if self._calm or "slow store" not in self.plan.faults:
            return True
        return self.rng.random() < (0.9 if seconds else 0.5)

    def _note(self, process: Process, what: str, point: str) -> None:
        self.counts[what] += 1
        self.say(process, f"{what} at {point}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """No more faults: everything is worked off, then all stop in order."""
        self._calm = True
        self.say(None, "no more faults")
        # A record that the topic refuses is found by halves, and takes some rounds of its own.
        refused = sum(len(log.records) for log in self.broker.logs.values()) if self.plan.refused_every else 0
        most = MOST_ROUNDS + 10 * refused
        for _ in range(most):
            self._round()
            if self.broker.group.owners.keys() != self.broker.logs.keys():
                self._rebalance()
            elif self._is_done():
                break
        else:
            raise Failed(f"no end after {most} rounds: committed {self.broker.committed}")
        self._repair()
        for process in self._processes:
            process.stop()
        self.clock.now_s += 2 * TRANSACTION_TIMEOUT_S
        self.broker.end_overdue()

    def _round(self) -> None:
        for slot, process in list(self._latest.items()):
            if not process.alive:
                self._start(slot)
        for process in self._processes:
            if process.alive:
                process.turn()
                if process.input.paused or not process.alive:
                    # A partition has stopped: somebody repairs the store, the worker is started again.
                    self._repair()
                    process.stop()
        self._bury()
        self.broker.deliver_late()

    def _is_done(self) -> bool:
        positions = {
            number: process.input.positions.get(number, -1)
            for process in self._processes
            if process.alive
            for number in process.input.positions
        }
        return all(
            self.broker.committed.get(number, 0) >= log.end <= positions.get(number, -1)
            for number, log in self.broker.logs.items()
        )


if __name__ == "__main__":
    logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
    Simulation(int(sys.argv[1]), verbose=True).run()
    print("all is as it should be")
