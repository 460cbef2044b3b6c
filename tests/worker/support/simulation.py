"""A seeded simulation of workers, broker and store: events, faults and the order of everything follow from one number.

Processes take turns of their loops, one at a time. At every call that a worker makes something may happen: an error
with or without effect, a crash, a loss of its partitions, or the process is held there while the others go on and wakes
up as a zombie. When the faults are over and everything is worked off, verdict.py looks at what is left.

    python -m tests.worker.support.simulation SEED     runs one schedule and says what happens in it
"""

from __future__ import annotations

import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tests.worker.support.damage import Damage
from tests.worker.support.disasters import DISASTERS, SEVERAL, Disaster
from tests.worker.support.events import Source
from tests.worker.support.fake_broker import TRANSACTION_TIMEOUT_S, Broker
from tests.worker.support.fakes import FakeClock
from tests.worker.support.ledger import Failed, Ledger
from tests.worker.support.plan import CRITICAL, ERRORS, Plan
from tests.worker.support.process import Process
from tests.worker.support.verdict import Facts, judge, source
from worker.base.errors import Unknown
from worker.base.records import Outgoing
from worker.checkpoint.pointer import Pointer
from worker.config import Config
from worker.runtime.loop import WAIT_S, Worker

MOST_ROUNDS = 100
MOST_STARTS = 8
MOST_FAULTS = 1000
"""In a schedule: what happens while a process is held, or opens with many files, may bring on more than it ends."""
DAY_MS = 24 * 3600 * 1000


class Simulation:
    """One schedule. `worker` is what is tested, `counts` adds up what was done to it."""

    def __init__(
        self, seed: int, worker: type[Worker] = Worker, counts: Counter[str] | None = None, *, verbose: bool = False
    ) -> None:
        self.worker = worker
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._most_counts = sum(self.counts.values()) + MOST_FAULTS
        self.rng = random.Random(seed)
        self.plan = Plan.draw(self.rng)
        self.config = self.plan.config
        self.repeats = self.config.delivery == "at-least-once"
        """Whether outputs may repeat themselves."""
        self.quiet: set[int] = set()
        """Partitions to which nothing is produced."""
        self.clock = FakeClock()
        self.broker = Broker(self.plan.partitions, self.clock)
        self.broker.refuses = self._refuses
        self.broker.seconds_per_record = self.plan.seconds_per_record
        self.store = Ledger(self.broker, lambda: self.config.input.on_gap == "accept", goes_back=self.repeats)
        self._seed = seed
        self._verbose = verbose
        self._disaster = (DISASTERS | SEVERAL).get(self.plan.disaster or "", Disaster)(self)
        self._deployments: list[tuple[dict[int, int], Config]] = [({}, self.config)]
        params_for = self.config.models.params_for
        self._source = Source(self.rng, lambda key: params_for(key).labels_are_numbers)
        self._processes: list[Process] = []
        self._latest: dict[int, Process] = {}
        self._damage = Damage(self.rng, self.store, self._note_damage)
        self._late: list[Callable[[], object]] = []
        """Objects on their way to the store, of which those who sent them have given up hearing."""
        self._calm = False

    def run(self) -> None:
        """Raises Failed."""
        random.seed(self._seed)  # What a worker draws for itself.
        try:
            self.feed(self.rng.randint(0, 12))
            for entry in range(self.plan.entries):
                self._start(entry)
            for _ in range(self.plan.steps):
                self._step()
            self._finish()
            judge(Facts(self.broker, self.store, self._deployments, self.repeats))
        except Exception as error:
            replay = f"To see it: python -m tests.worker.support.simulation {self._seed}"
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
            if "overtaken" in self.plan.faults:
                rng.choice(awake).write_checkpoint()
            # Some turns take their time, or what waits for another attempt would wait for most of a schedule.
            self.clock.now_s += rng.choice((0.0, 0.0, 0.5))
            return
        process = rng.choice(self._processes)
        is_in_between = any(each.held or each.thread == "waiting" for each in self._processes)
        if rng.random() < 0.2 and not is_in_between:
            self._see_to_stops()
        if self.plan.disaster and rng.random() < 0.15 and not is_in_between:
            self.say(None, f"the disaster strikes: {self.plan.disaster}")
            self.counts[self.plan.disaster] += 1
            self._disaster.strike()
            return
        match rng.randint(0, 10):
            case 0 | 1:
                self.feed(rng.randint(1, 8))
            case 2 | 3:
                self._rebalance()
            case 4:
                if process.awake:
                    process.write_checkpoint()
            case 5 | 6:
                self._bury()
                if not self._latest[process.entry].alive or (self.plan.static and rng.random() < 0.2):
                    self._start(process.entry)
                elif process.awake and "crash" in self.plan.faults:
                    self.say(process, "is told to stop")
                    process.stop()
            case 7:
                if "damage" in self.plan.faults:
                    self._damage.strike()
                if "spill damage" in self.plan.faults:
                    for each in awake:
                        self._damage_spill(each, "rest")
            case 8:
                self._retire_records()
            case 9:
                self.clock.now_s += rng.choice((0.1, 1.0, 15.0))
                self.clock.wall_offset_ms += rng.choice((-2, 2)) * DAY_MS
                self._deliver_late()
            case 10:
                number = rng.choice(sorted(self.broker.logs))
                self.broker.leaderless ^= {number}
                self.broker.logs[number].elect()
                self.say(None, f"partition {number} has {'no' if number in self.broker.leaderless else 'a'} leader")

    def feed(self, n: int) -> None:
        """Produce so many records."""
        in_doubt = "open input" in self.plan.faults
        self._source.feed(self.broker.logs, n, self.quiet, marked=self.plan.marked, in_doubt=in_doubt)

    def _start(self, entry: int) -> Process:
        """A new process for a slot; under a static name it takes the place of the old one, be that alive or not."""
        plan, name = self.plan, f"{entry}.{len(self._processes)}"
        if entry in self._latest and plan.static:
            old = self._latest[entry].input
            self.broker.group.remove(old)
            old.replaced = True
        identity = None
        if self.config.delivery == "exactly-once":
            identity = f"slot-{entry}" if plan.static else name
        process = Process(self, plan, self.config, name, identity, entry)
        process.input.batch_records = self._batch_records
        process.input.reads_ahead = lambda: not self._calm and self.rng.random() < 0.2
        process.pool.is_done_within = self._is_done_within
        process.askers.is_done_within = self._is_done_within
        self._processes.append(process)
        self._latest[entry] = process
        self.say(process, "starts")
        process.start()
        self._rebalance()
        return process

    def _rebalance(self) -> None:
        members = self.broker.group.members
        if members:
            self.broker.group.rebalance({number: self.rng.choice(members) for number in self.broker.logs})

    def kill_all(self) -> None:
        """All processes die, and the group knows it."""
        for process in self._processes:
            process.kill()
        self._bury()

    def start_all(self) -> None:
        """A new process in place of each of the dead."""
        for entry, process in list(self._latest.items()):
            if not process.alive:
                self._start(entry)

    def deploy(self, config: Config) -> None:
        """Stop all processes in order, and start them with another configuration.

        What could not be saved, of models whose spill was damaged, say, is saved by those who start once more before.
        """
        self._calm = True
        self.broker.leaderless.clear()
        for _ in range(MOST_STARTS):
            self._work_off_and_commit()
            is_damaged = any(place.damaged for process in self._processes for place in process.spill.places)
            for process in self._processes:
                process.stop()
            self._repair()
            self._bury()
            if not is_damaged and all(map(self.is_saved, self.broker.logs)):
                break
        self.config = replace(config, input=replace(config.input, on_gap=self.config.input.on_gap))
        self._deployments.append(({number: log.end for number, log in self.broker.logs.items()}, self.config))
        self._calm = False
        self.start_all()

    def _bury(self) -> None:
        """The group gives up waiting for the dead."""
        for process in self._processes:
            if not process.alive and process.input.is_member:
                process.input.expire()

    def _repair(self) -> None:
        self._damage.repair()
        for process in self._processes:
            for place in process.spill.places:
                place.damaged = False

    def _retire_records(self) -> None:
        """Retention deletes records that neither the newest checkpoint nor any worker has yet to see."""
        if self.config.delivery == "at-least-once" or self._disaster.keeps_records:
            return  # Here a zombie may move the group back, behind what is deleted.
        for number, log in self.broker.logs.items():
            newest = self.store.newest(number)
            readers = [
                each.input.positions[number] for each in self._processes if each.alive and each.input.reads(number)
            ]
            needed = min([0 if newest is None else newest.covered, *readers])
            log.low = max(log.low, min(needed, self.rng.randint(0, log.high)))

    # --- what happens at a call ---------------------------------------------------------------------------------------

    def at(self, process: Process, point: str) -> None:
        """A process is at this point of its program."""
        if self._calm:
            process.input.notice()
            process.store.delay = None
            return
        if point == "store list:page":
            self._hold(process, "torn list", point)
            return
        if point == "consume" and self.rng.random() < 0.5:
            process.input.notice()
        if point == "committed" and "stale offsets" in self.plan.faults:
            process.input.forgetful = self.rng.random() < 0.5
        if process.thread == "at work" and "overtaken" in self.plan.faults and self.rng.random() < 0.3:
            self._overtake(process, point)
        if point == "store read_range" and "damage" in self.plan.faults and self.rng.random() < 0.5:
            self._damage.forge_models()
        if self.rng.random() >= self.plan.fault_rate * (3 if point in CRITICAL else 1):
            return
        if sum(self.counts.values()) >= self._most_counts:
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
            self._damage.strike()
        elif fault == "spill damage":
            self._damage_spill(process, point)
        elif fault in ("loss", "unnoticed loss"):
            self._lose(process, fault, point)
        elif fault in ("hold", "zombie"):
            self._hold(process, fault, point)
        elif fault == "late write":
            self._note(process, fault, point)
            process.store.delay = self._late.append
        elif fault == "torn list":
            process.store.is_torn = True

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
        stuck: set[int] = set()
        if fault == "zombie":
            # Who comes after it takes up what it had, be it only a part.
            stuck = {number for number in process.input.positions if self.rng.random() < 0.2} - self.broker.leaderless
            self.broker.leaderless |= stuck
            self._lose(process, "unnoticed loss", point)
        self.clock.now_s += self.rng.choice((0.0, 1.0, 12.0))
        for _ in range(self.rng.choice((1, 2, 4, 8, 16))):
            self._step()
        process.held = False
        self.broker.leaderless -= stuck
        for number in stuck:
            self.broker.logs[number].elect()
        if self.rng.random() < 0.5:
            process.input.notice(rejoin=self.rng.random() < 0.7)
        self.say(process, "goes on")

    def _overtake(self, process: Process, point: str) -> None:
        """Its loop goes on, and so do all others, while one of its threads waits for the store."""
        if not point.startswith("store"):
            return
        self._note(process, "overtaken", point)
        process.thread = "waiting"
        for _ in range(self.rng.choice((1, 2, 4, 8))):
            if process.awake:
                process.turn()
            self._step()
        process.thread = "at work"

    def _deliver_late(self) -> None:
        self.broker.deliver_late()
        late, self._late = self._late, []
        for arrive in late:
            arrive()
        for log in self.broker.logs.values():
            if log.open_from is not None and (self._calm or self.rng.random() < 0.5):
                self.counts["open input"] += 1
                self._source.settle(log)

    def _batch_records(self) -> int:
        most = self.plan.batch_records
        return self.rng.randint(most, 10 * most) if self._calm else self.rng.randint(0, most)

    def _is_done_within(self, seconds: float) -> bool:
        """Whether a checkpoint that is being written is done by then."""
        if self._calm or not {"slow store", "overtaken"} & {*self.plan.faults}:
            return True
        return self.rng.random() < (0.9 if seconds else 0.5)

    def _note_damage(self, name: str) -> None:
        self.counts["damage"] += 1
        self.say(None, f"damages {name[-29:]}")

    def _note(self, process: Process, what: str, point: str) -> None:
        self.counts[what] += 1
        self.say(process, f"{what} at {point}")

    # --- the end ------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """No more faults: everything is worked off, then all stop in order."""
        self._calm = True
        self.say(None, "no more faults")
        self._deliver_late()
        self.broker.leaderless.clear()
        if self.plan.partitions > 1 and self.rng.random() < 0.5:
            self._work_off_the_others()
        self._work_off_and_commit()
        self._disaster.pass_by()
        self._repair()
        # Processes that find everything saved take one more record, and their first checkpoint cleans up undisturbed.
        for attempt in range(MOST_STARTS):
            for process in self._processes:
                process.stop()
            self._bury()
            finds_all_saved = attempt > 0 and all(map(self.is_saved, self.broker.logs))
            self._work_off_and_commit()
            if finds_all_saved:
                break
        for log in self.broker.logs.values():
            log.append(b"last", b'{"features": [1.5], "label": "a"}')
        self._work_off()
        for process in self._processes:
            process.stop()
        self.clock.now_s += 2 * TRANSACTION_TIMEOUT_S
        self.broker.end_overdue()

    def _work_off_the_others(self) -> None:
        """Whatever one partition lacks, the others go on: a leader here, or its files in the store."""
        number = self.rng.choice(sorted(self.broker.logs))
        newest = self.store.newest(number)
        if newest is None or self.rng.random() < 0.5:
            self.broker.leaderless.add(number)
        elif all(self.store.newest(each) for each in self.broker.logs):  # Who has none looks at those of others.
            self.store.silent = f"{newest.location.prefix}/"
        self.say(None, f"partition {number} is stuck: the others go on")
        self._work_off(but=number)
        self.broker.leaderless.clear()
        self.store.silent = "-"

    def _work_off(self, but: int | None = None) -> None:
        """Go on until every record is predicted, of all partitions or of all but one. Raises Failed."""
        # A partition that is stuck is read again now and then: in between are several turns, for the others.
        turns_a_second = 1 if but is None else round(4 / WAIT_S)
        n_records = sum(len(log.records) for log in self.broker.logs.values())
        # A record that the topic refuses is found by halves, and what takes too long is: that takes rounds of its own.
        most = MOST_ROUNDS + (10 * n_records if self.plan.refused_every or self.plan.seconds_per_record else 0)
        most += self.plan.pieces * n_records // self.config.transaction.max_records
        for _ in range(most * turns_a_second):
            self._round(1 / turns_a_second)
            if self.broker.group.owners.keys() != self.broker.logs.keys():
                self._rebalance()
            elif all(self._is_done(number) for number in self.broker.logs if number != but):
                return
        raise Failed(f"no end after {most} rounds: committed {self.broker.committed}")

    def _work_off_and_commit(self) -> None:
        """Work off, and go on until what changed out of band is committed: by itself, some turns after it is saved.

        Who is stopped before leaves that to the next process, which changes and saves it once more.
        """
        self._work_off()
        for _ in range(3):
            if all(map(self._is_committed, self.broker.logs)):
                return
            self._round()

    def _round(self, seconds: float = 1.0) -> None:
        self.start_all()
        for process in self._processes:
            if process.alive:
                process.turn()
        self._see_to_stops()
        self._bury()
        self.clock.now_s += seconds
        self._deliver_late()

    def _see_to_stops(self) -> None:
        """Where partitions have stopped somebody sees to what is named, repairs the store, and stops the worker."""
        for process in self._processes:
            if process.stops:
                if unexplained := set(process.stops) - self._explained():
                    raise Failed(f"partitions of {process.name} have stopped without a reason: {unexplained}")
                process.stops.clear()
            elif not (self._calm and process.alive and process.has_stopped_unasked):
                continue
            self._disaster.answer()
            self._repair()
            process.stop()

    def _explained(self) -> set[str]:
        """The names under which partitions may stop in this schedule."""
        stops = {"too-many-dead-letters"} | self._disaster.stops
        if "damage" in self.plan.faults:
            stops |= {"corrupt-checkpoint", "no-checkpoint", "retention-gap", "offset-out-of-range"}
        return stops | ({"state-lost"} if "spill damage" in self.plan.faults else set())

    def is_saved(self, number: int) -> bool:
        """Whether there is a checkpoint of all that there is."""
        newest, log = self.store.newest(number), self.broker.logs[number]
        return not log.records or (newest is not None and newest.offset == log.end)

    def _is_committed(self, number: int) -> bool:
        """Whether the committed offset names a checkpoint of the newest revision there."""
        newest, pointer = self.store.newest(number), Pointer.read(self.broker.metadata.get(number, ""))
        return newest is None or (pointer is not None and pointer.revision >= newest.revision)

    def _is_done(self, number: int) -> bool:
        log = self.broker.logs[number]
        positions = [p.input.positions[number] for p in self._processes if p.alive and p.input.reads(number)]
        committed = self.broker.committed.get(number, 0)
        if self.config.delivery == "at-least-once":  # A zombie may have set the group back since.
            committed = self.broker.furthest[number]
        # What retention has deleted is not waited for. A group beyond the end is to be noticed.
        return log.high >= max(committed, log.low) >= log.end <= max(positions, default=-1)


if __name__ == "__main__":
    logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
    Simulation(int(sys.argv[1]), verbose=True).run()
    print("all is as it should be")
