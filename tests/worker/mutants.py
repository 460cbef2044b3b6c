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
    "worker.snapshot",
    "worker.models",
    "worker.intake",
    "worker.partition",
    "worker.keeper",
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


PUBLISH = "publish(outgoing, pending.offsets, pending.metadata)"
WAS_COMMITTED = "if pending.unknown and self._was_committed(pending):"
READ_AGAIN = """self._abort()
            self._pending = None
            self._input.assign({n: o or 0 for n, o in self._input.committed(list(pending.offsets)).items()})
            return
        except (Unknown"""

MUTANTS = {
    # The transaction.
    "outputs are not sent": in_runtime(PUBLISH, "publish([], pending.offsets, pending.metadata)"),
    "offsets are not committed": in_runtime(PUBLISH, "publish(outgoing, {}, pending.metadata)"),
    "metadata taken late": in_runtime(PUBLISH, "publish(outgoing, pending.offsets, self._input.group_metadata())"),
    "sent again although committed": in_runtime(WAS_COMMITTED, "if False:"),
    "dropped although not committed": in_runtime(WAS_COMMITTED, "if pending.unknown:"),
    "learned twice after an abort": in_runtime(
        "self._abort()\n            return\n        except (Unknown", READ_AGAIN
    ),
    "transaction not aborted": in_runtime("            self._output.abort()\n", "            pass\n"),
    "producer kept after an unknown result": in_runtime("        self._output = None\n\n", "\n"),
    # Partitions that go.
    "pending outputs kept after a loss": in_runtime("self._pending.drop(partitions)", "pass"),
    "models kept after a loss": in_runtime(
        "            partition = Partition(number, self._config, self._setting.max_message_bytes)\n",
        "            if not hasattr(self, 'kept'): self.kept = {}\n"
        "            new = Partition(number, self._config, self._setting.max_message_bytes)\n"
        "            partition = self.kept.setdefault(number, new)\n",
    ),
    # Checkpoints.
    "checkpoint before the commit is known": in_runtime(
        "a checkpoint.\n        if self._pending is None:\n", "a checkpoint.\n        if True:\n"
    ),
    "last checkpoint before the commit is known": in_runtime("not unsettled and ", ""),
    "failed snapshot forgotten": in_keeper("partition.snapshot_failed(writing.removed)", "pass"),
    "models saved as they are when they are written": in_intake("    models.hold(key)\n", ""),
    "a model taken by the loop is taken again": in_snapshot(
        "self._saved, self._model = _saved(self._model), None", "self._saved = _saved(self._model)"
    ),
    "records held back are dropped": in_runtime("                self._backlog[number] = records[n:]\n", ""),
    "removed models stay in checkpoints": in_keeper("                removed=removed,\n", ""),
    # Where to start.
    "replay one too far": in_runtime("record.offset < partition.live_from]", "record.offset <= partition.live_from]"),
    "replay one too short": in_runtime(
        "record.offset < partition.live_from]", "record.offset < partition.live_from - 1]"
    ),
    "no replay": in_keeper("return manifest.offset, live_from", "return manifest.offset, manifest.offset"),
    "start at the committed offset": in_keeper("return manifest.offset, live_from", "return live_from, live_from"),
    "fall back without reading again": in_runtime("self._input.assign({number: partition.position})", "pass"),
    "records read before a fall back kept": in_runtime("            self._backlog.pop(number, None)\n", ""),
    "next offset off by one": in_partition("records[-1].offset + 1\n", "records[-1].offset\n"),
    # What is learned.
    "unlabelled events counted as learned": in_learners("learned += code >= 0", "learned += 1"),
    "unlabelled events of a regressor counted as learned": in_learners("learned += labelled", "learned += 1"),
    "text learned as a number": in_learners("isinstance(label, str | bool)", "isinstance(label, bool)"),
    "what was said not remembered in replay": in_learners(
        "self.forest.partial_fit(rows, _numbers(events))",
        "self.forest.partial_fit(rows, _numbers(events)); self.forest._outlook[:] = 0",
    ),
    "rejected events counted as learned": in_model(
        "applied.outcomes[i] = refused\n", "applied.outcomes[i] = refused\n                    applied.learned += 1\n"
    ),
    "a model that learned nothing is kept": in_intake("if applied.learned:\n", "if True:\n"),
    "first labels not learned in replay": in_model(
        "if label is None and self._kind is None:", "if self._kind is None and not publish:"
    ),
    "reset ignored in replay": in_intake(
        "                models.drop(key)\n", "                if publish:\n                    models.drop(key)\n"
    ),
    "reset before the events before it": in_intake(
        "                finish(key)\n                specs", "specs".rjust(21)
    ),
}
