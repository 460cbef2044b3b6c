"""The input topic while the worker runs: whether it is still the one, with as many partitions, that the models know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from worker.base.errors import Fatal, WorkerError
from worker.base.log import Log
from worker.base.ports import Clock, TopicState
from worker.base.refusals import partitions_added, topic_deleted, topic_recreated

_log = Log(__name__)

LOOK_EVERY_S = 30.0


class Looking(Protocol):
    """A question on its way."""

    def done(self) -> bool:
        """Whether the answer is there."""
        ...

    def result(self) -> TopicState | None:
        """The topic; None where there is none of that name. Raises WorkerError."""
        ...


class TopicMonitor:
    """Looks at the topic now and then. The loop never waits for the answer."""

    def __init__(
        self,
        topic: str,
        known: TopicState,
        on_repartition: Literal["fail", "new-models"],
        look: Callable[[int], Looking],
        clock: Clock,
    ) -> None:
        self._topic = topic
        self._known = known
        self._on_repartition = on_repartition
        self._look = look
        self._clock = clock
        self._next_s = clock.monotonic() + LOOK_EVERY_S
        self._looking: Looking | None = None
        self._trouble = ""
        self._absent = False

    def seen(self) -> TopicState | None:
        """What has been found since the last call, None for nothing new. Raises WorkerError where the topic changed."""
        found = None
        if self._looking is not None and self._looking.done():
            looking, self._looking = self._looking, None
            found = self._answer(looking)
        if self._looking is None and self._clock.monotonic() >= self._next_s:
            self._next_s = self._clock.monotonic() + LOOK_EVERY_S
            self._looking = self._look(self._known.partitions)
        return found

    def _answer(self, looking: Looking) -> TopicState | None:
        try:
            found = looking.result()
        except WorkerError as error:
            # No broker, or no permission: what this can tell is an alarm, not what the guarantees rest on.
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("topic-not-seen", f"topic {self._topic} cannot be looked at", detail=error)
            return None
        self._trouble = ""
        if found is None:
            # A broker that has just come up may not know the topic yet: once is not enough.
            if self._absent:
                raise Fatal(f"topic-deleted: {topic_deleted(self._topic, self._known.topic_id)}")
            self._absent = True
            return None
        self._absent = False
        self._compare(found)
        return found

    def _compare(self, found: TopicState) -> None:
        known = self._known
        if found.topic_id != known.topic_id:
            raise Fatal(f"topic-recreated: {topic_recreated(self._topic, known.topic_id, found.topic_id)}")
        if found.partitions > known.partitions:
            if self._on_repartition == "fail":
                raise Fatal(f"partitions-added: {partitions_added(self._topic, known.partitions, found.partitions)}")
            _log.warning(
                "partitions-added",
                f"topic {self._topic} has {found.partitions} partitions instead of {known.partitions}: models of keys "
                "that moved start anew",
            )
            self._known = found
