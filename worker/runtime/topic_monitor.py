"""The topics while the worker runs: whether the input is still the one, with as many partitions, that the models know,
and keeps its records; and whether those of outputs and dead letters are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from worker.base.aside import Aside
from worker.base.errors import Fatal, WorkerError
from worker.base.log import Log
from worker.base.ports import Clock, TopicState
from worker.base.refusals import compacted_input, partitions_added, topic_deleted, topic_recreated
from worker.base.status import Board

_log = Log(__name__)

LOOK_EVERY_S = 5.0
"""Of a topic that is deleted and made anew under its name, so many seconds of records may be taken for those of the
former one: the client reads on by the name, from the offset where it was."""
_ABSENCES = 2
"""Looks in a row that do not find a topic which is gone: a broker that has just come up may not know it yet."""


class TopicRecreated(Fatal):
    """The topic is another one under its name. Of which of the two the last records were nobody knows: none is kept."""


Look: TypeAlias = Callable[[int], Aside[TopicState | None]]
"""Begins to ask how a topic is, with the beginnings of so many partitions; None where there is none of its name."""


class _Watched:
    """One topic, asked about now and then. The loop never waits for the answer."""

    def __init__(self, look: Look, clock: Clock) -> None:
        self.absences = 0
        """How many answers in a row have not found it."""
        self._look = look
        self._clock = clock
        self._next_s = clock.monotonic() + LOOK_EVERY_S
        self._looking: Aside[TopicState | None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether an answer is on its way, and is not so late that the next look would be due."""
        return self._looking is not None and self._clock.monotonic() < self._next_s

    def begin(self, partitions: int) -> None:
        """Look at it now. What is under way tells of a moment before this, and is waited for no more."""
        self._next_s = self._clock.monotonic() + LOOK_EVERY_S
        self._looking = self._look(partitions)

    def answered(self, partitions: int) -> Aside[TopicState | None] | None:
        """The answer, if one has come since the last call."""
        answer = None
        if self._looking is not None and self._looking.ends_within(0):
            answer, self._looking = self._looking, None
        if self._looking is None and self._clock.monotonic() >= self._next_s:
            self.begin(partitions)
        return answer

    def take(self, answer: Aside[TopicState | None]) -> TopicState | None:
        """The topic, None where it was not found. Raises WorkerError."""
        found = answer.answer()
        self.absences = 0 if found is not None else self.absences + 1
        return found


class TopicMonitor:
    """Looks at the topic now and then. The loop never waits for the answer."""

    def __init__(
        self,
        topic: str,
        known: TopicState,
        on_repartition: Literal["fail", "new-models"],
        look: Look,
        clock: Clock,
        outputs: OutputMonitor,
    ) -> None:
        self._topic = topic
        self._known = known
        self._on_repartition = on_repartition
        self._outputs = outputs
        self._watched = _Watched(look, clock)
        self._trouble = ""

    @property
    def is_awaited(self) -> bool:
        """Whether the answer to a look is waited for: for `LOOK_EVERY_S` at most, also where the broker gives none."""
        return self._watched.is_awaited

    def look_anew(self) -> None:
        """Look at it now, whatever was seen before."""
        self._watched.absences = 0  # Else two looks of one moment would take it for gone.
        self._watched.begin(self._known.partitions)

    def seen(self) -> TopicState | None:
        """What has been found since the last call, None for nothing new. Raises WorkerError where the topic changed."""
        self._outputs.look()
        answer = self._watched.answered(self._known.partitions)
        return None if answer is None else self._take(answer)

    def _take(self, answer: Aside[TopicState | None]) -> TopicState | None:
        try:
            found = self._watched.take(answer)
        except WorkerError as error:
            # No broker, or no permission: what this can tell is an alarm, not what the guarantees rest on.
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("topic-not-seen", f"topic {self._topic} cannot be looked at", detail=error)
            return None
        self._trouble = ""
        if found is not None:
            self._compare(found)
        elif self._watched.absences >= _ABSENCES:
            raise Fatal(f"topic-deleted: {topic_deleted(self._topic, self._known.topic_id)}")
        return found

    def _compare(self, found: TopicState) -> None:
        known = self._known
        if found.topic_id != known.topic_id:
            raise TopicRecreated(f"topic-recreated: {topic_recreated(self._topic, known.topic_id, found.topic_id)}")
        if compacted := compacted_input(self._topic, found.cleanup_policy):
            raise Fatal(compacted)
        if found.partitions > known.partitions:
            if self._on_repartition == "fail":
                raise Fatal(f"partitions-added: {partitions_added(self._topic, known.partitions, found.partitions)}")
            _log.warning(
                "partitions-added",
                f"topic {self._topic} has {found.partitions} partitions instead of {known.partitions}: models of keys "
                "that moved start anew",
            )
            self._known = found


class OutputMonitor:
    """Looks now and then whether the topics of outputs and dead letters are there.

    That one is gone ends nothing: records wait for it. But no client names it in what it says of a transaction.
    """

    def __init__(self, looks: Mapping[str, Look], board: Board, clock: Clock) -> None:
        self._watched = {topic: _Watched(look, clock) for topic, look in looks.items()}
        self._board = board

    def look(self) -> None:
        """Show what has been found since the last call; nothing is waited for."""
        for topic, watched in self._watched.items():
            answer = watched.answered(0)
            if answer is not None:
                self._take(topic, watched, answer)

    def _take(self, topic: str, watched: _Watched, answer: Aside[TopicState | None]) -> None:
        before = watched.absences
        try:
            found = watched.take(answer)
        except WorkerError:
            return  # No broker, or no permission: that is told of the input, and by who publishes.
        if watched.absences == _ABSENCES:
            _log.error(
                "output-missing",
                f"topic {topic} does not exist any more: nothing can be published or committed",
                hint="Make it again (`amf-worker check CONFIG --create-topics`): records wait for it",
            )
        elif found is not None and before >= _ABSENCES:
            _log.info("output-back", f"topic {topic} is there again")
        self._show()

    def _show(self) -> None:
        gone = [topic for topic, watched in self._watched.items() if watched.absences >= _ABSENCES]
        many, verb = ("s", "do") if len(gone) > 1 else ("", "does")
        self._board.output_trouble = f"topic{many} {', '.join(gone)} {verb} not exist any more" if gone else None
