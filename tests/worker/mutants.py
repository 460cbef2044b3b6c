"""The worker with a mistake in it, to show that the simulation would see the mistake."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from worker.runtime import Worker

ROOT = Path(__file__).parents[2]
CORE = (
    "worker.learners",
    "worker.model",
    "worker.slot",
    "worker.cache",
    "worker.snapshot",
    "worker.models",
    "worker.intake",
    "worker.partition",
    "worker.keeper",
    "worker.pending",
    "worker.transaction",
    "worker.backlog",
    "worker.runtime",
)
"""Modules that a mistake may be in, each after those that it imports."""


@dataclass(frozen=True)
class Mutant:
    """A text that a module holds once, and the mistake to write in its place."""

    module: str
    text: str
    mistake: str

    def worker(self) -> type[Worker]:
        """The worker of a core of its own that has the mistake."""
        originals = {name: sys.modules[name] for name in CORE}
        try:
            for name in CORE:
                sys.modules[name] = module = ModuleType(name)
                exec(compile(self._source(name), f"<{name} with a mistake>", "exec"), module.__dict__)
            mutated: type[Worker] = sys.modules["worker.runtime"].Worker
            return mutated
        finally:
            sys.modules.update(originals)

    def _source(self, name: str) -> str:
        source = (ROOT / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        if name != self.module:
            return source
        assert source.count(self.text) == 1, (
            f"{name} has changed: there is no one place any more that says {self.text!r}"
        )
        return source.replace(self.text, self.mistake)


def in_runtime(text: str, mistake: str) -> Mutant:
    return Mutant("worker.runtime", text, mistake)


def in_transaction(text: str, mistake: str) -> Mutant:
    return Mutant("worker.transaction", text, mistake)


def in_keeper(text: str, mistake: str) -> Mutant:
    return Mutant("worker.keeper", text, mistake)


def in_partition(text: str, mistake: str) -> Mutant:
    return Mutant("worker.partition", text, mistake)


def in_snapshot(text: str, mistake: str) -> Mutant:
    return Mutant("worker.snapshot", text, mistake)


def in_learners(text: str, mistake: str) -> Mutant:
    return Mutant("worker.learners", text, mistake)


def in_model(text: str, mistake: str) -> Mutant:
    return Mutant("worker.model", text, mistake)


def in_intake(text: str, mistake: str) -> Mutant:
    return Mutant("worker.intake", text, mistake)


def in_models(text: str, mistake: str) -> Mutant:
    return Mutant("worker.models", text, mistake)


def in_slot(text: str, mistake: str) -> Mutant:
    return Mutant("worker.slot", text, mistake)


def in_cache(text: str, mistake: str) -> Mutant:
    return Mutant("worker.cache", text, mistake)


PUBLISH = "publish(outgoing, offsets, pending.metadata)"
WAS_COMMITTED = "pending.unknown and self._was_committed(pending)"
READ_AGAIN = """self._abort(pending)
            self._input.assign({n: o or 0 for n, o in self._input.committed(list(pending.offsets)).items()})
            pending.offsets.clear()
            return True
        except (Unknown"""

MUTANTS = {
    # The transaction.
    "outputs are not sent": in_transaction(PUBLISH, "publish([], offsets, pending.metadata)"),
    "offsets are not committed": in_transaction(PUBLISH, "publish(outgoing, {}, pending.metadata)"),
    "metadata taken late": in_transaction(PUBLISH, "publish(outgoing, offsets, self._input.group_metadata())"),
    "sent again although committed": in_transaction(WAS_COMMITTED, "False"),
    "dropped although not committed": in_transaction(WAS_COMMITTED, "pending.unknown"),
    "learned twice after an abort": in_transaction(
        "self._abort(pending)\n            return False\n        except (Unknown", READ_AGAIN
    ),
    "transaction not aborted": in_transaction("            self._output.abort()\n", "            pass\n"),
    "producer kept after an unknown result": in_transaction(
        "        self._output = None\n\n    def _was", "\n    def _was"
    ),
    "offsets of the whole with a part of the outputs": Mutant(
        "worker.pending", "else self.records[number][n - 1].offset + 1\n", "else self.offsets[number]\n"
    ),
    "outputs of a part sent again with the rest": Mutant(
        "worker.pending", "del self.outgoing[number][:n], self.records[number][:n]", "pass"
    ),
    "nothing in place of a refused output": Mutant(
        "worker.pending", "self.outgoing[number][0] = letter\n", "del self.outgoing[number][0]\n"
    ),
    # Partitions that go.
    "pending outputs kept after a loss": in_runtime("self._transactions.drop(partitions)", "pass"),
    "opened although it was taken away": in_runtime("            self._opening.drop(number)\n", ""),
    # Checkpoints.
    "checkpoint before the commit is known": in_runtime(
        "a checkpoint.\n        if self._transactions.pending is None:\n", "a checkpoint.\n        if True:\n"
    ),
    "last checkpoint before the commit is known": in_runtime("not unsettled and ", ""),
    "failed snapshot forgotten": in_keeper("partition.snapshot_failed(writing.removed)", "pass"),
    "models saved as they are when they are written": in_intake("    models.hold(key)\n", ""),
    "a model taken by the loop is taken again": in_snapshot(
        "self._aside, self._slot = self._slot.put_aside(), None", "self._aside = self._slot.put_aside()"
    ),
    "records held back are dropped": in_runtime(
        "                self._backlog.put_back(number, records[n:])\n", "                pass\n"
    ),
    "removed models stay in checkpoints": in_keeper("                removed=removed,\n", ""),
    # Where to start.
    "replay one too far": in_runtime("(records, partition.live_from,", "(records, partition.live_from + 1,"),
    "replay one too short": in_runtime("(records, partition.live_from,", "(records, partition.live_from - 1,"),
    "no replay": in_keeper("return start.live_from", "return start.offset"),
    "read from the committed offset on": in_runtime(
        "assign({partition.number: partition.position})", "assign({partition.number: partition.live_from})"
    ),
    "records read of a partition that goes kept": Mutant(
        "worker.backlog", "        self._records.pop(number, None)\n", ""
    ),
    "next offset off by one": in_partition("records[-1].offset + 1\n", "records[-1].offset\n"),
    # What is learned.
    "unlabelled events counted as learned": in_learners(
        "                learned += 1\n            answers", "            learned += 1\n            answers"
    ),
    "unlabelled events of a regressor counted as learned": in_learners("learned += labelled", "learned += 1"),
    "text learned as a number": in_learners("isinstance(label, str | bool)", "isinstance(label, bool)"),
    "what was said not remembered in replay": in_learners(
        "self.forest.partial_fit(rows, _numbers(events))",
        "self.forest.partial_fit(rows, _numbers(events)); self.forest._calibration[:] = 0",
    ),
    "rejected events counted as learned": in_model(
        "applied.outcomes[i] = refused\n", "applied.outcomes[i] = refused\n                    applied.learned += 1\n"
    ),
    "a model that learned nothing is kept": in_intake("if applied.learned:\n", "if True:\n"),
    "first labels not learned in replay": in_model(
        "if label is None and self._kind is None:", "if self._kind is None and not publish:"
    ),
    "reset ignored in replay": in_intake(
        "                    models.drop(key)\n", "                    if publish: models.drop(key)\n"
    ),
    # Models that leave memory.
    "what came back and learned leaves as it was": in_slot(
        "            self.place.free()\n            self.place = None\n", "            pass\n"
    ),
    "a model that has learned counts as saved": in_slot("        self.clean = False\n        if", "        if"),
    "what changed while it was saved counts as saved": in_models("self._frozen.keys() - self._dirty:", "self._frozen:"),
    "what left without being saved is fetched": in_cache("place is None and slot.clean and", "place is None and"),
    "fetched from the checkpoint before the last": in_keeper(
        "done()\n        self._previous = self._confirmed = manifest", "done()\n        self._previous = manifest"
    ),
    "a model that is lost starts anew": in_models(
        "fetch is None:\n                raise\n",
        "fetch is None:\n                return Model(slot.key, self._params_for(slot.key), "
        "forest_of(slot.key, self._params_for(slot.key)), slot.spec)\n",
    ),
    # How many models there may be.
    "one model too many": in_models("if self.room > 0 else", "if self.room >= 0 else"),
    "the order within a batch decides who gets the last place": in_partition(
        "end = n if self.models.room >= n - start else self._end_of_part(arrivals, start)", "end = n"
    ),
    "room that a tombstone makes is there before it": in_partition("return max(i, start + 1)", "return i + 1"),
    "room that a tombstone makes is not there after it": in_partition("if room == 0 and event is None:", "if False:"),
    "reset before the events before it": in_intake("finish(key, groups.pop(key))", "pass"),
}
