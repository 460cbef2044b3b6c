"""The worker as people see it: what the loop shows of itself once a second, and what it is asked about its models.

The loop makes a `Status` of values that never change, and puts it on the `Board`; whoever shows it reads it there, at
any moment and from any thread. What is too much to be made every second, such as the features of one model, is asked
for by a `Question`, which the loop answers between two of its turns. So nobody but the loop ever looks at a model.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

RECENT_DEAD_LETTERS = 50
MOST_QUESTIONS = 16
"""Questions that wait for the loop. Who comes when there are as many is sent away."""
MOST_FEATURES = 20
"""Features of a model for each figure of theirs."""
MOST_TREES = 100
_KEY_CHARS = 60
_REASON_CHARS = 300


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that was rejected: where it is and why, but nothing of its value."""

    at_ms: int
    topic: str
    """Of the record; with `input.repartition` it is the one of the input or the internal one."""
    partition: int
    offset: int
    key: str | None
    code: str
    reason: str

    @classmethod
    def of(
        cls, at_ms: int, topic: str, partition: int, offset: int, key: bytes | None, code: str, reason: str
    ) -> DeadLetter:
        """One with key and reason cut to what fits a line: both are what a producer liked to send."""
        shown = (
            None if key is None else short(key[: 4 * _KEY_CHARS + 4].decode("utf-8", "backslashreplace"), _KEY_CHARS)
        )
        return cls(at_ms, topic, partition, offset, shown, code, short(reason, _REASON_CHARS))


def short(text: str, most: int) -> str:
    """The text in UTF-8's characters, with an ellipsis where it is cut to `most` of them."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


class PartitionStatus(msgspec.Struct, frozen=True):
    """One partition of this worker."""

    partition: int
    state: str
    trouble: str | None
    """What its next records need and was not there."""
    position: int
    """Offset of the next record to take, -1 before that is known."""
    lag: int | None
    """Records of the input that are not taken yet."""
    lag_seconds: float | None
    checkpoint_age_seconds: float | None
    """0 where nothing was learned since; None before the first checkpoint."""


class Loss(msgspec.Struct, frozen=True):
    """Recent mean losses of a model's forecasts: nats for classes, squared error for numbers."""

    calibrated: float | None
    trees: float | None
    baseline: float | None
    """Of a forecast that knows the labels alone."""


class ModelRow(msgspec.Struct, frozen=True):
    """One model in a line."""

    key: str
    partition: int
    samples: int
    nodes: int
    bytes: int
    """Memory that it takes; 0 while it is away."""
    in_memory: bool
    loss: Loss | None
    """None where its forest does not keep it."""
    depth: float | None
    """Mean depth of a learned record's leaf; only of the models with the most traffic."""


class Feature(msgspec.Struct, frozen=True):
    """A feature by how much the forecasts rest on it."""

    name: str
    share: float
    """Of the weighted depth, from 0 to 1 in all."""


class FeatureWeight(msgspec.Struct, frozen=True):
    """A feature by how much likelier a cut is of it than in a forest that does not adapt; 1 in the mean."""

    name: str
    weight: float


class Attribution(msgspec.Struct, frozen=True):
    """A feature by how much it moved the last explained forecasts: mean of the absolute values."""

    name: str
    moved: float
    """By so much of the probability of the class that was named, or in the label's unit."""


class Tree(msgspec.Struct, frozen=True):
    """How a tree of a forest that adapts stands beside the others."""

    role: str
    """Forecasts are made of trees that are active or standing-by; silent ones are young, or too far behind."""
    age: int
    """Labelled records since it began, or began anew."""
    loss: float | None
    """Recent mean loss of its own forecasts: nats for classes, squared error for numbers."""


class Adaptation(msgspec.Struct, frozen=True):
    """How a forest that adapts has changed."""

    forecasting: int
    """Trees that forecasts are made of."""
    swaps: int
    """How often a tree was replaced by a better one."""
    feature_weights: Sequence[FeatureWeight]
    """The largest ones."""
    trees: Sequence[Tree]
    """The first of them."""


class ModelDetail(msgspec.Struct, frozen=True):
    """All that is shown of one model. What only its forest tells is None while the model is away."""

    key: str
    partition: int
    spec: str
    samples: int
    nodes: int
    bytes: int
    depth: float
    in_memory: bool
    last_ms: int | None
    """Time of the last record that it learned."""
    loss: Loss | None
    scores: Mapping[str, float]
    """Of the labelled answers since the model came into memory: their number, and how good they were."""
    algorithm: str | None = None
    trees: int | None = None
    n_features: int | None = None
    """The categories of one count as one."""
    features: Sequence[Feature] | None = None
    """Those that it uses most."""
    weighted_depth: float | None = None
    adaptation: Adaptation | None = None
    """None also where its forest does not adapt."""
    attributions: Sequence[Attribution] | None = None
    """Of the features that moved its forecasts most; None also before one was explained (output.explain)."""
    n_classes: int | None = None
    """None also where labels are numbers."""
    classes: Sequence[str] | None = None
    """The first of them."""


class ModelPage(msgspec.Struct, frozen=True):
    """Some of the models of the worker, in the order of partitions and of when they came."""

    total: int
    models: Sequence[ModelRow]


class Point(msgspec.Struct, frozen=True):
    """A second or so of the worker, for curves."""

    at_ms: int
    events_per_second: float
    replayed_per_second: float
    dead_letters_per_second: float
    depth: float | None
    """Mean depth of the leaf of a predicted record."""
    weighted_depth: float | None
    lag: float | None
    lag_seconds: float | None
    latency_p50_seconds: float | None
    latency_p99_seconds: float | None
    checkpoint_age_seconds: float | None
    losses: Mapping[str, tuple[float, float]]
    """Recent loss and that of the baseline, of the models with the most traffic."""


class Confidence(msgspec.Struct, frozen=True):
    """Labelled predictions of like confidence: the probability of the class that each named."""

    mean: float
    correct: float
    """The share that named the label; the same as the mean where the forecasts are calibrated."""
    count: int


class Status(msgspec.Struct, frozen=True):
    """The worker at a moment."""

    version: str = ""
    engine: str = ""
    group: str = ""
    topic: str = ""
    started_ms: int = 0
    port: int = 0
    """Where this worker is found on its own machine; who came through a proxy has used another one."""
    workers: Sequence[int] = ()
    """Ports of all workers that one command has started, this one's among them; none where it was started alone."""
    at_ms: int = 0
    """0 before the loop has come round for the first time."""
    unready: str | None = "it has not come to its loop yet; the log says what it waits for"
    """Why it does not work on all of its partitions yet; None where it does."""
    partitions: Sequence[PartitionStatus] = ()
    totals: Mapping[str, float] = {}
    leaders: Sequence[ModelRow] = ()
    """The models with the most traffic."""
    dead_letters: Sequence[DeadLetter] = ()
    """The last ones, newest first."""
    calibration: Sequence[Confidence | None] = ()
    """By tenths of confidence, of the time of the history; None where there was none."""
    point: Point | None = None


class PageOfModels(msgspec.Struct, frozen=True):
    """Asks for `limit` models from the one at `offset` on. The answer is a ModelPage."""

    offset: int
    limit: int


class OneModel(msgspec.Struct, frozen=True):
    """Asks for the model of a key. The answer is a ModelDetail, or None where no partition of the worker has one."""

    key: str
    partition: int | None = None
    """The partition, where several have a model of that key."""


Question = PageOfModels | OneModel


class Busy(Exception):
    """There are too many questions."""


class Board:
    """What the loop shows. Any thread may read and ask."""

    def __init__(self, status: Status | None = None) -> None:
        self.status = Status() if status is None else status
        """As of the last second."""
        self.history: Sequence[Point] = ()
        """The last points, oldest first."""
        self.dead_letters: deque[DeadLetter] = deque(maxlen=RECENT_DEAD_LETTERS)
        """The last ones, oldest first."""
        self.forwarder_trouble: str | None = None
        """Why the forwarder gets no records; None where it does, or where there is none."""
        self.output_trouble: str | None = None
        """Why nothing can be published; None where it can, as far as is known."""
        self._questions: queue.Queue[tuple[Question, Future[Any]]] = queue.Queue(MOST_QUESTIONS)

    def ask(self, question: Question) -> Future[Any]:
        """What becomes the answer, soon or never: the loop may be at its end. Raises Busy."""
        answer: Future[Any] = Future()
        try:
            self._questions.put_nowait((question, answer))
        except queue.Full:
            raise Busy from None
        return answer

    def next_question(self) -> tuple[Question, Future[Any]] | None:
        """The next one that somebody still waits for."""
        while not self._questions.empty():
            question, answer = self._questions.get_nowait()
            if answer.set_running_or_notify_cancel():
                return question, answer
        return None
