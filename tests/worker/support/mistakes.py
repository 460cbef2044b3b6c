"""Mistakes that the simulation sees: for each rule on which a guarantee rests, the worker without it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from tests.worker.support.mutants import Mutant
from tests.worker.support.simulation import Simulation

SEEN_WITHIN = 2000
"""Schedules in which every mistake must show."""


def mistake(module: str, *texts: str) -> Mutant:
    """Texts of a module of the worker, each followed by what is wrongly in its place."""
    return Mutant(f"worker.{module}", tuple(zip(texts[::2], texts[1::2], strict=True)))


PUBLISH = "publish(pending.outputs(), offsets, pending.member)"
WAS_COMMITTED = "pending.unknown and self._was_committed(pending)"
READ_AGAIN = """self._abort(pending)
            found = self._input.committed(list(pending.shares))
            self._input.assign({n: each.offset if each else 0 for n, each in found.items()})
            pending.shares.clear()
            return True
        except (Unknown"""

MISTAKES = {
    # The transaction.
    "outputs are not sent": mistake("commit.transactions", PUBLISH, "publish([], offsets, pending.member)"),
    "offsets are not committed": mistake(
        "commit.transactions", PUBLISH, "publish(pending.outputs(), {}, pending.member)"
    ),
    "committed by who was given up and is back": mistake(
        "commit.pending", "        if not member.id or member.id != self.member.id:\n            return False\n", ""
    ),
    "metadata taken late": mistake(
        "commit.transactions", PUBLISH, "publish(pending.outputs(), offsets, self._input.membership())"
    ),
    "sent again although committed": mistake("commit.transactions", WAS_COMMITTED, "False"),
    "dropped although not committed": mistake("commit.transactions", WAS_COMMITTED, "pending.unknown"),
    "learned twice after an abort": mistake(
        "commit.transactions", "self._abort(pending)\n            return False\n        except (Unknown", READ_AGAIN
    ),
    "transaction not aborted": mistake(
        "commit.transactions", "            self._output.abort()\n", "            pass\n"
    ),
    "producer kept after an unknown result": mistake(
        "commit.transactions", "output, self._output = self._output, None", "output = self._output"
    ),
    "offsets of the whole with a part of the outputs": mistake(
        "commit.pending", "CommittedOffset(last.offset + 1,", "CommittedOffset(self.offset.offset,"
    ),
    "outputs of a part sent again with the rest": mistake(
        "commit.pending", "del share.outgoing[: share.sending], share.records[: share.sending]", "pass"
    ),
    "nothing in place of a refused output": mistake(
        "commit.pending", "share.outgoing[0] = letter\n", "del share.outgoing[0]\n"
    ),
    # Partitions that go.
    "pending outputs kept after a loss": mistake("runtime.loop", "self._executor.drop(partitions)", "pass"),
    "gathered outputs kept after a loss": mistake(
        "runtime.executor", "        self.discard_gathered(partitions)\n", ""
    ),
    "what is gathered counts as committed": mistake(
        "runtime.executor",
        "for each in (self._gathered, self._transactions.pending))",
        "for each in (None, self._transactions.pending))",
    ),
    "more is taken while a transaction is in doubt": mistake(
        "runtime.loop",
        "        if not self._executor.is_committing:\n            self._process(",
        "        if True:\n            self._process(",
    ),
    "opened although it was taken away": mistake("runtime.tasks", "            self._restorer.drop(number)\n", ""),
    # Checkpoints.
    "checkpoint before the commit is known": mistake(
        "runtime.loop",
        "a checkpoint.\n        if self._pace.is_due and self._executor.is_clear:\n",
        "a checkpoint.\n        if True:\n",
    ),
    "last checkpoint before the commit is known": mistake(
        "runtime.loop", " and not self._executor.has_pending(task.number)", ""
    ),
    "failed snapshot forgotten": mistake("task.checkpointer", "self._models.snapshot_failed(writing.removed)", "pass"),
    "models saved as they are when they are written": mistake("task.processor", "        models.hold(key)\n", ""),
    "models that learn together saved as they are when they are written": mistake(
        "state.many_models", "            models.hold(keys[place])\n", "            pass\n"
    ),
    "a model taken by the loop is taken again": mistake(
        "state.copy_on_write",
        "self._aside, self._entry = self._entry.put_aside(), None",
        "self._aside = self._entry.put_aside()",
    ),
    "records held back are dropped": mistake("task.task", "self.buffer[result.n_taken :]\n", "[]\n"),
    "removed models stay in checkpoints": mistake(
        "task.checkpointer", "dirty, removed, previous)", "dirty, (), previous)"
    ),
    # Where to start.
    "replay one too far": mistake("task.task", "(self.buffer, self.live_from,", "(self.buffer, self.live_from + 1,"),
    "replay one too short": mistake("task.task", "(self.buffer, self.live_from,", "(self.buffer, self.live_from - 1,"),
    "no replay": mistake("task.recovery", "max(offset, start.live_from)\n", "offset\n"),
    "read from the committed offset on": mistake(
        "runtime.tasks",
        "{task.number: task.place for task in tasks}",
        "{task.number: task.place._replace(offset=task.live_from) for task in tasks}",
    ),
    "next offset off by one": mistake("task.task", "records[-1].offset + 1, records", "records[-1].offset, records"),
    # What is learned.
    "unlabelled events counted as learned": mistake(
        "state.model", "(code != NO_LABEL for code in run.codes[:-1])", "(True for code in run.codes[:-1])"
    ),
    "unlabelled events of models that learn together counted as learned": mistake(
        "state.many_models",
        "so_far = labelled.cumsum() - labelled",
        "so_far = np.arange(len(labelled))",
    ),
    "text learned as a number": mistake("state.targets", "isinstance(label, str | bool)", "isinstance(label, bool)"),
    "what was said not remembered in replay": mistake(
        "state.model",
        "self.forest.partial_fit(rows, self.target.given(run.events))",
        "self.forest.partial_fit(rows, self.target.given(run.events)); self.forest._calibration[:] = 0",
    ),
    "models that learn in one call are answered like the first": mistake(
        "state.many_models", "else forecasts.part(here)", "else forecasts.part(slice(0, stop - start))"
    ),
    "what brings a new class is not learned where models learn together": mistake(
        "state.many_models",
        "slots[coming], codes[coming], predict=False)\n",
        "slots[coming], np.full(len(coming), -1), predict=False)\n",
    ),
    "a class that was just met is known to the first forecast": mistake(
        "state.rules", "self.n_classes if n else self._n_given", "self.n_classes"
    ),
    "rejected events counted as learned": mistake(
        "state.model",
        "applied.outcomes[i] = refused\n",
        "applied.outcomes[i] = refused\n                    applied.tally.learned += 1\n",
    ),
    "a model that learned nothing is kept": mistake("task.processor", "if applied.tally.learned:\n", "if True:\n"),
    "first labels not learned in replay": mistake(
        "state.model", "if label is None and self._kind is None:", "if self._kind is None and not predict:"
    ),
    "reset ignored in replay": mistake(
        "task.processor", "                models.drop(key)\n", "                if predict: models.drop(key)\n"
    ),
    # Models that leave memory.
    "what came back and learned leaves as it was": mistake(
        "state.entry", "            self.place.free()\n            self.place = None\n", "            pass\n"
    ),
    "what came back and learned with others leaves as it was": mistake(
        "state.model_store", "in changed[table.placed[changed]].tolist():", "in []:"
    ),
    "a model that has learned with others counts as saved": mistake(
        "state.model_store", "        table.clean[changed] = False\n", ""
    ),
    "a model that has learned with others is not saved": mistake(
        "state.model_store", "table.have_learned(changed)", "table.untimed[changed] = table.learned[changed] = True"
    ),
    "a model that has learned counts as saved": mistake(
        "state.entry", "        self.clean = False\n        self.outdate", "        self.outdate"
    ),
    "what changed while it was saved counts as saved": mistake(
        "state.model_store", "saved[~self.table.changed[saved]]", "saved"
    ),
    "what left without being saved is fetched": mistake(
        "state.cache", "place is None and entry.clean and", "place is None and"
    ),
    "fetched from the checkpoint before the last": mistake(
        "task.checkpointer", "        self._reader.follow(self._checkpoints, manifest)\n", ""
    ),
    "a model that is lost starts anew": mistake(
        "state.model_store",
        "fetch is None:\n                raise\n",
        "fetch is None:\n                return Model.new(entry.key, self.params_for(entry.key), entry.spec)\n",
    ),
    # How many models there may be.
    "one model too many": mistake("state.model_store", "if self.room > 0 else", "if self.room >= 0 else"),
    "the order within a batch decides who gets the last place": mistake(
        "task.task", "end = n if self.models.room >= n - start else self._end_of_part(arrivals, start)", "end = n"
    ),
    "room that a tombstone makes is there before it": mistake("task.task", "return max(i, start + 1)", "return i + 1"),
    "room that a tombstone makes is not there after it": mistake(
        "task.task", "if room <= 0 and event is None:", "if False:"
    ),
    "reset before the events before it": mistake("task.processor", "if key in waiting:", "if False:"),
    # What an unknown outcome means.
    "a broker that has forgotten commits is believed": mistake("commit.transactions", "if rewound:", "if False:"),
    "a doubt that never ends": mistake(
        "commit.transactions", "        pending.unknown = False\n        return pending", "        return pending"
    ),
    # Where to start.
    "a group that was set back is taken as it is": mistake("task.requirements", "if committed < newest:", "if False:"),
    "records that are gone are not missed": mistake(
        "task.recovery", "offset = low if is_gap else manifest.offset", "offset = manifest.offset"
    ),
    "a gap is accepted unasked": mistake("task.recovery", 'if is_gap and self._terms.on_gap == "fail":', "if False:"),
    "markers that are gone are missed": mistake("task.recovery", "low > manifest.covered", "low > manifest.offset"),
    "an end counts before the records that came with it are taken": mistake(
        "task.task", "self.buffer[0].offset if self.buffer else end_seen or 0", "end_seen or 0"
    ),
    "a group beyond the end of the topic is taken as it is": mistake(
        "task.requirements", "if live_from > end:", "if False:"
    ),
    "records in place of those that were predicted are replayed": mistake(
        "task.requirements", "record.leader_epoch > last_epoch:", "False:"
    ),
    "the leader epoch of what was predicted is not committed": mistake(
        "task.task", "self.checkpointer.metadata, self._leader_epoch)", "self.checkpointer.metadata)"
    ),
    "nobody asks whether what was predicted is there": mistake(
        "runtime.tasks", "{number: place.leader_epoch for number, place in places.items()}", "{}"
    ),
    "models that have lost records keep their lineage": mistake(
        "task.recovery", "if offset > manifest.offset:", "if False:"
    ),
    # Checkpoints in the store.
    "no disagreement is found": mistake(
        "checkpoint.checkpoints",
        "return differing(self._readable(sorted(names)))",
        "return []",
    ),
    "one checkpoint is kept": mistake("checkpoint.retention", "KEPT_MANIFESTS = 3", "KEPT_MANIFESTS = 1"),
    "segments of older checkpoints are deleted": mistake(
        "checkpoint.checkpoints", ".union(*(each.segments for each in kept.values()))", ""
    ),
    "checkpoints are never deleted": mistake(
        "checkpoint.checkpoints",
        "retention.expired(found, now_ms, committed, {*bases, *(found.keys() - known)}, reached)",
        "list[list[str]]()",
    ),
    "segments are never deleted": mistake(
        "checkpoint.checkpoints",
        "expired.append(retention.unneeded(long_there, needed, above=unreadable, below=below))",
        "pass",
    ),
    "dead bytes are never reclaimed": mistake("checkpoint.segments", "if dead <= limit:", "if True:"),
    "models are not verified": mistake("checkpoint.segments", "if sha256(data) != entry.sha256:", "if False:"),
    "a manifest is taken for what it is not": mistake(
        "checkpoint.manifest", '    if not f"/{state.location', '    return None\n    if not f"/{state.location'
    ),
    # Bases and deltas.
    "a delta is taken for its base": mistake(
        "checkpoint.manifest",
        "models = base.models.less(header.removed).plus(entries, header.segments).saved(None, header.deltas)",
        "models = base.models",
        "if header.state_hash != models.state_hash:",
        "if False:",
    ),
    "a delta forgets what earlier ones had": mistake(
        "checkpoint.catalogue", "dict(self._changed), set(self._removed)", "{}, set(self._removed)"
    ),
    "a removed model comes back with its base": mistake(
        "checkpoint.catalogue", "                    catalogue._removed.add(key)\n", "                    pass\n"
    ),
    "a model that came back stays removed": mistake(
        "checkpoint.catalogue", "            catalogue._removed.discard(key)\n", ""
    ),
    "a delta counts as a base": mistake(
        "checkpoint.checkpoints", "saved(name if header.base is None else None, header.deltas)", "saved(name, 0)"
    ),
    "a base is deleted before its deltas": mistake("checkpoint.retention", "if name not in needed]", "]"),
    "all checkpoints that are kept have one base": mistake(
        "checkpoint.retention", "_base_of(name, manifests) != of_newest", "False"
    ),
    # Other configurations.
    "models that start anew are no news": mistake(
        "task.checkpointer", "        self.must_be_saved = True\n", "        pass\n"
    ),
    "what a refused model learns is not kept": mistake(
        "task.processor", "if applied.tally.learned:\n", "if applied.tally.learned and (answers or not predict):\n"
    ),
}

SEEN_AT = {
    "outputs are not sent": 0,
    "offsets are not committed": 0,
    "committed by who was given up and is back": 1211,
    "metadata taken late": 219,
    "sent again although committed": 314,
    "dropped although not committed": 2,
    "learned twice after an abort": 4,
    "transaction not aborted": 1,
    "producer kept after an unknown result": 2,
    "offsets of the whole with a part of the outputs": 14,
    "outputs of a part sent again with the rest": 1,
    "nothing in place of a refused output": 1,
    "pending outputs kept after a loss": 4,
    "gathered outputs kept after a loss": 92,
    "what is gathered counts as committed": 54,
    "more is taken while a transaction is in doubt": 3,
    "opened although it was taken away": 1,
    "checkpoint before the commit is known": 1,
    "last checkpoint before the commit is known": 4,
    "failed snapshot forgotten": 124,
    "models saved as they are when they are written": 6,
    "models that learn together saved as they are when they are written": 5,
    "a model taken by the loop is taken again": 6,
    "records held back are dropped": 6,
    "removed models stay in checkpoints": 19,
    "replay one too far": 26,
    "replay one too short": 2,
    "no replay": 11,
    "read from the committed offset on": 2,
    "next offset off by one": 0,
    "unlabelled events counted as learned": 6,
    "unlabelled events of models that learn together counted as learned": 17,
    "text learned as a number": 0,
    "what was said not remembered in replay": 2,
    "models that learn in one call are answered like the first": 212,
    "what brings a new class is not learned where models learn together": 4,
    "a class that was just met is known to the first forecast": 4,
    "rejected events counted as learned": 0,
    "a model that learned nothing is kept": 0,
    "first labels not learned in replay": 2,
    "reset ignored in replay": 52,
    "what came back and learned leaves as it was": 30,
    "what came back and learned with others leaves as it was": 33,
    "a model that has learned with others counts as saved": 46,
    "a model that has learned with others is not saved": 5,
    "a model that has learned counts as saved": 32,
    "what changed while it was saved counts as saved": 26,
    "what left without being saved is fetched": 2,
    "fetched from the checkpoint before the last": 32,
    "a model that is lost starts anew": 234,
    "one model too many": 1,
    "the order within a batch decides who gets the last place": 14,
    "room that a tombstone makes is there before it": 585,
    "room that a tombstone makes is not there after it": 585,
    "reset before the events before it": 2,
    "a broker that has forgotten commits is believed": 661,
    "a doubt that never ends": 14,
    "a group that was set back is taken as it is": 212,
    "records that are gone are not missed": 83,
    "a gap is accepted unasked": 83,
    "markers that are gone are missed": 92,
    "an end counts before the records that came with it are taken": 1230,
    "a group beyond the end of the topic is taken as it is": 387,
    "records in place of those that were predicted are replayed": 60,
    "the leader epoch of what was predicted is not committed": 50,
    "nobody asks whether what was predicted is there": 50,
    "models that have lost records keep their lineage": 83,
    "no disagreement is found": 58,
    "one checkpoint is kept": 2,
    "segments of older checkpoints are deleted": 6,
    "checkpoints are never deleted": 6,
    "segments are never deleted": 6,
    "dead bytes are never reclaimed": 47,
    "models are not verified": 1501,
    "a manifest is taken for what it is not": 180,
    "a delta is taken for its base": 6,
    "a delta forgets what earlier ones had": 6,
    "a removed model comes back with its base": 6,
    "a model that came back stays removed": 6,
    "a delta counts as a base": 5,
    "a base is deleted before its deltas": 6,
    "all checkpoints that are kept have one base": 6,
    "models that start anew are no news": 53,
    "what a refused model learns is not kept": 24,
}
"""For every mistake the seed of a schedule that shows it: without it a test tries all seeds.

Where schedules change they are found anew by

    python -m tests.worker.support.mistakes [NAME...]
"""


def first_seen(name: str, seeds: Iterable[int]) -> int | None:
    """The first of these schedules that goes wrong with a mistake in the worker; None where none does."""
    worker = MISTAKES[name].worker()
    for seed in seeds:
        try:
            Simulation(seed, worker).run()
        except Exception:  # a mistake may show in any way
            return seed
    return None


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for asked in sys.argv[1:] or MISTAKES:
        print(f'    "{asked}": {first_seen(asked, range(SEEN_WITHIN))},', flush=True)
