"""What an algorithm decides: which labels a model takes, and what it makes of its forest's forecasts. No I/O."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from amf import class_text
from worker.base.limits import MAX_CLASS, MIN_CLASS
from worker.base.records import Answer, ClassScores, Estimate, Event, Label, NumberScores, Prediction, Reject, Scores
from worker.base.terms import KindChange
from worker.config import ModelParams

Rows = NDArray[np.float64]

_SMALLEST_PROBABILITY = 5e-324  # keeps a loss finite, and so JSON
NO_LABEL, UNKNOWN = -1, -2


def seed_of(key: str, seed: int) -> int:
    """Seed of a model's random stream: of (seed, key) alone, so that any worker and any partition grow one forest."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "little")


def forest_of(key: str, params: ModelParams) -> amf.OnlineForest:
    """A forest that has learned nothing."""
    forest = amf.SYSTEMS[params.algorithm].from_params(params.of_forest(seed_of(key, params.seed)))
    if isinstance(params.features, tuple):
        forest.add_features([str(amf.Column(name)) for name in params.features])
    return forest


def compile_kernels(
    algorithms: Iterable[str],
    *,
    explain: bool,
    announce: Callable[[amf.Compilation], None] | None = None,
) -> amf.KernelCounts:
    """Compile, or load from disk, what models of these algorithms need, and what explains their forecasts.

    `announce` is called once, before the first is compiled.
    """
    systems = (amf.SYSTEMS[algorithm] for algorithm in algorithms)
    return amf.compile_kernels(systems, attributions=explain, announce=announce)


class ForecastColumns(NamedTuple):
    """What forests say of events, in their order; columns as lists, since they are read number by number."""

    depth: NDArray[np.float64]
    """(n,), depth of the leaf of an event, mean over trees."""
    weighted_depth: list[float]
    """Posterior mean depth at which the averaged prunings end."""
    columns: tuple[list[Any], ...]
    """As the target's `answers` takes them."""
    probabilities: NDArray[np.float64] | None
    """(n, n_classes), where labels are classes."""

    def part(self, part: slice) -> ForecastColumns:
        """Those of some of the events."""
        columns = tuple(column[part] for column in self.columns)
        probabilities = None if self.probabilities is None else self.probabilities[part]
        return ForecastColumns(self.depth[part], self.weighted_depth[part], columns, probabilities)


class Answered(NamedTuple):
    """What a model says of events, in their order."""

    answers: list[Answer]
    scored: Sequence[int]
    """Places of the events whose labels there was something to compare with."""
    scores: tuple[Sequence[float], ...]
    """Of each of these what `Scores` sums up: a column for each sum."""
    confidences: Sequence[float] = ()
    """Probability of the likeliest class in each forecast that came with a label."""
    hits: Sequence[bool] = ()
    """Whether the label was that class."""


ANSWER_BYTES, CLASS_BYTES = 1024, 160
"""Of an answer without its probabilities, and of each of these without the text of its class."""


class Target(ABC):
    """What labels mean to a forest, and to all others that have met the same."""

    __slots__ = ()

    Scores: ClassVar[type[Scores]]

    @property
    @abstractmethod
    def answer_bytes(self) -> int:
        """What an answer takes at most, about, until it is published."""

    @staticmethod
    @abstractmethod
    def more_bytes(label: Label) -> int:
        """By how much that grows with a label that is new."""

    @abstractmethod
    def code(self, label: Label) -> int:
        """Number of a label that is known to be good, UNKNOWN for one to be looked at: see `refusal` and `admit`."""

    @abstractmethod
    def codes(self, labels: Sequence[Label | None]) -> list[int]:
        """Numbers of labels, see `code`, and NO_LABEL for None."""

    @abstractmethod
    def refusal(self, label: Label) -> Reject | None:
        """Why the model cannot learn a label that has no code; None if it can."""

    @abstractmethod
    def admit(self, label: Label) -> int:
        """Give a label a code that has none and is not refused."""

    def kind_change(self, label: Label) -> KindChange | None:
        """How a label without a code differs in its kind from all that have one, None where it does not."""
        return None

    @abstractmethod
    def blind(self, event: Event) -> Answer:
        """What there is to say of an unlabelled event before anything was learned."""

    @staticmethod
    @abstractmethod
    def given(events: Sequence[Event]) -> Any:
        """Labels as the forest's own methods take them."""

    @staticmethod
    @abstractmethod
    def as_numbers(events: Sequence[Event], codes: Sequence[int]) -> Sequence[float]:
        """Labels as `amf.Group` takes them, which the forest knows."""

    @staticmethod
    @abstractmethod
    def forecasts(said: Any) -> ForecastColumns:
        """What forests have said of events, as `answers` takes it."""

    @abstractmethod
    def answers(
        self,
        events: Sequence[Event],
        codes: Sequence[int],
        forecasts: ForecastColumns,
        learned: Iterable[int],
        known: Iterable[int],
    ) -> Answered:
        """What is answered to events of which their forests said this, and how good it was.

        learned: samples that the forest of each event had learned before it. known: its classes then.
        """


class ClassTarget(Target):
    """Labels are classes: text, 64-bit integers and booleans."""

    __slots__ = ("_answer_bytes", "_are_texts", "_codes", "_params", "labels", "texts")

    Scores = ClassScores

    def __init__(self, labels: list[Label], params: Any) -> None:
        """labels: the forest's own list, in which it will have those that are admitted."""
        self.labels, self._params = labels, params
        self.texts = [class_text(label) for label in labels]
        self._are_texts = {isinstance(label, str) for label in labels}
        # By type, for 1 and True are one key: all classes as text, of the other types the labels met so far.
        self._codes: dict[type, dict[Label | None, int]] = {str: {None: NO_LABEL}}
        self._codes[str].update((text, code) for code, text in enumerate(self.texts))
        self._answer_bytes = answer_bytes_of(self.texts)

    @property
    def answer_bytes(self) -> int:
        return self._answer_bytes

    @staticmethod
    def more_bytes(label: Label) -> int:
        return CLASS_BYTES + len(class_text(label).encode(errors="replace"))

    def code(self, label: Label) -> int:
        if isinstance(label, float) or not (isinstance(label, str) or MIN_CLASS <= label <= MAX_CLASS):
            return UNKNOWN
        return self._codes[str].get(class_text(label), UNKNOWN)

    def codes(self, labels: Sequence[Label | None]) -> list[int]:
        types = set(map(type, labels))
        types.discard(type(None))
        if len(types) > 1:
            return [NO_LABEL if label is None else self.code(label) for label in labels]
        met = self._codes.setdefault(types.pop() if types else str, {None: NO_LABEL})
        codes = list(map(met.get, labels, repeat(UNKNOWN)))
        if UNKNOWN in codes:
            # One that is a class of this model, though not met in this type yet, is remembered.
            coming = {label for label in labels if label is not None and label not in met}
            met.update((label, code) for label in coming if (code := self.code(label)) != UNKNOWN)
            codes = list(map(met.get, labels, repeat(UNKNOWN)))
        return codes

    def refusal(self, label: Label) -> Reject | None:
        if isinstance(label, float):
            return Reject("wrong-type", "label: expected a string, an integer, a boolean or null, got a decimal number")
        if not isinstance(label, str) and not MIN_CLASS <= label <= MAX_CLASS:
            return Reject("number-out-of-range", "label does not fit a 64-bit integer")
        # The forest's own limits: those of a restored model may not be what the configuration says by now.
        text, limits = class_text(label), self._params
        if limits.classes is not None:
            return Reject("unknown-class", f"label {text!r} is none of the {len(self.texts)} given classes")
        if len(self.texts) >= limits.max_classes:
            return Reject("too-many-classes", f"label {text!r} would be class {len(self.texts) + 1}")
        return None

    def admit(self, label: Label) -> int:
        text = class_text(label)
        code = self._codes[str][text] = len(self.texts)
        self.texts.append(text)
        self._are_texts.add(isinstance(label, str))
        self._answer_bytes += self.more_bytes(text)
        return code

    def kind_change(self, label: Label) -> KindChange | None:
        # As 1 beside "yes" and "no": most likely the same class by another producer.
        if self._are_texts != {not isinstance(label, str)}:
            return None
        return "number-to-text" if isinstance(label, str) else "text-to-number"

    def blind(self, event: Event) -> Prediction:
        """Uniform over given classes, else nothing."""
        n = len(self.texts)
        first = self.labels[0] if n else None
        return Prediction(first, self.texts, [1.0 / n for _ in range(n)], None, None, 0, event.id)

    @staticmethod
    def given(events: Sequence[Event]) -> list[Label | None]:
        return [event.label for event in events]

    @staticmethod
    def as_numbers(events: Sequence[Event], codes: Sequence[int]) -> Sequence[float]:
        return codes

    @staticmethod
    def forecasts(said: amf.Forecasts) -> ForecastColumns:
        rows = said.probabilities
        winners = rows.argmax(axis=1).tolist() if rows.shape[1] else [0] * len(rows)
        return ForecastColumns(said.depth, said.weighted_depth.tolist(), (rows.tolist(), winners), rows)

    def answers(
        self,
        events: Sequence[Event],
        codes: Sequence[int],
        forecasts: ForecastColumns,
        learned: Iterable[int],
        known: Iterable[int],
    ) -> Answered:
        labels, texts, log = self.labels, self.texts, math.log
        answers: list[Answer] = []
        scored: list[int] = []
        losses: list[float] = []
        confidences: list[float] = []
        hits: list[bool] = []
        rows, winners = forecasts.columns
        for event, code, row, winner, before, n in zip(events, codes, rows, winners, learned, known, strict=True):
            loss = None
            if n < len(row):
                row = row[:n]
            prediction = labels[winner] if n else None
            if code >= 0:
                # 0.0 - x and not -x: a certain forecast has loss 0, not -0.
                loss = 0.0 - log(row[code] or _SMALLEST_PROBABILITY) if code < n else log(before + 2)
                scored.append(len(answers))
                losses.append(loss)
                hits.append(code == winner and code < n)
                confidences.append(row[winner] if n else 0.0)
            answers.append(Prediction(prediction, texts, row, event.label, loss, before, event.id))
        return Answered(answers, scored, (losses, hits), confidences, hits)


class NumberTarget(Target):
    """Labels are numbers."""

    __slots__ = ()

    Scores = NumberScores
    answer_bytes = ANSWER_BYTES

    @staticmethod
    def more_bytes(label: Label) -> int:
        return 0

    def code(self, label: Label) -> int:
        return UNKNOWN if isinstance(label, str | bool) else 0

    def codes(self, labels: Sequence[Label | None]) -> list[int]:
        return [NO_LABEL if label is None else self.code(label) for label in labels]

    def refusal(self, label: Label) -> Reject | None:
        got = f"the string {label[:40]!r}" if isinstance(label, str) else "a boolean"
        return Reject("wrong-type", f"label: expected a number or null, got {got}")

    def admit(self, label: Label) -> int:
        raise AssertionError("a label without a code is refused")

    def blind(self, event: Event) -> Estimate:
        return Estimate(None, None, None, None, None, 0, event.id)

    @staticmethod
    def given(events: Sequence[Event]) -> NDArray[np.float64]:
        return np.array(NumberTarget.as_numbers(events, ()))

    @staticmethod
    def as_numbers(events: Sequence[Event], codes: Sequence[int]) -> list[float]:
        return [math.nan if event.label is None else float(event.label) for event in events]

    @staticmethod
    def forecasts(said: amf.RegressionForecasts) -> ForecastColumns:
        columns = said.mean.tolist(), said.std.tolist(), said.quantiles.tolist()
        return ForecastColumns(said.depth, said.weighted_depth.tolist(), columns, None)

    def answers(
        self,
        events: Sequence[Event],
        codes: Sequence[int],
        forecasts: ForecastColumns,
        learned: Iterable[int],
        known: Iterable[int],
    ) -> Answered:
        answers: list[Answer] = []
        scored: list[int] = []
        squares: list[float] = []
        distances: list[float] = []
        covered: list[bool] = []
        for event, before, mean, std, quantiles in zip(events, learned, *forecasts.columns, strict=True):
            label: Any = event.label
            if not before:
                answers.append(Estimate(None, None, None, label, None, 0, event.id))
                continue
            loss = None
            if label is not None:
                loss = (float(label) - mean) ** 2
                scored.append(len(answers))
                squares.append(loss)
                distances.append(abs(label - mean))
                covered.append(quantiles[0] <= label <= quantiles[-1])
            answers.append(Estimate(mean, std, quantiles, label, loss, before, event.id))
        return Answered(answers, scored, (squares, distances, covered))


def scores_of(labels: list[Label] | None) -> type[Scores]:
    """The kind of the scores of forests with these labels, which is None where they are numbers."""
    return (NumberTarget if labels is None else ClassTarget).Scores


def answer_bytes_of(labels: Iterable[Label]) -> int:
    """What an answer takes at most, about, until it is published, where these are the classes."""
    return ANSWER_BYTES + sum(map(ClassTarget.more_bytes, labels))


def target_of(labels: list[Label] | None, params: amf.ForestParams) -> Target:
    """The target of forests with these labels, which is None where they are numbers."""
    return NumberTarget() if labels is None else ClassTarget(labels, params)
