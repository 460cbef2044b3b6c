"""What an algorithm decides: which labels a model takes, and what it makes of its forest's forecasts. No I/O."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from amf import class_text
from worker.base.records import Answer, ClassScores, Estimate, Event, Label, NumberScores, Prediction, Reject, Scores
from worker.codec.dead_letters import MAX_CLASS, MIN_CLASS
from worker.config import ModelParams

Forest = amf.Learner
Rows = NDArray[np.float64]

_SMALLEST_PROBABILITY = 5e-324  # keeps a loss finite, and so JSON
NO_LABEL, UNKNOWN = -1, -2


def seed_of(key: str, seed: int) -> int:
    """Seed of a model's random stream: of (seed, key) alone, so that any worker and any partition grow one forest."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "little")


def forest_of(key: str, params: ModelParams) -> Forest:
    """A forest that has learned nothing."""
    forest = amf.SYSTEMS[params.algorithm].from_params(params.of_forest(seed_of(key, params.seed)))
    if isinstance(params.features, tuple):
        forest.add_features([str(amf.Column(name)) for name in params.features])
    return forest


def compile_kernels(
    algorithms: Iterable[str],
    *,
    explain: bool = False,
    announce: Callable[[amf.Compilation], None] | None = None,
) -> amf.Kernels:
    """Compile, or load from disk, what models of these algorithms need, and what explains their forecasts.

    `announce` is called once, before the first is compiled.
    """
    systems = (amf.SYSTEMS[algorithm] for algorithm in algorithms)
    return amf.compile_kernels(systems, attributions=explain, announce=announce)


class Forecasts(NamedTuple):
    """What forests say of events, in their order; columns as lists, since they are read number by number."""

    depth: NDArray[np.float64]
    """(n,), depth of the leaf of an event, mean over trees."""
    weighted_depth: list[float]
    """Posterior mean depth at which the averaged prunings end."""
    columns: tuple[list[Any], ...]
    """As the learner's `answers` takes them."""
    probabilities: NDArray[np.float64] | None
    """(n, n_classes), where labels are classes."""

    def part(self, part: slice) -> Forecasts:
        """Those of some of the events."""
        columns = tuple(column[part] for column in self.columns)
        probabilities = None if self.probabilities is None else self.probabilities[part]
        return Forecasts(self.depth[part], self.weighted_depth[part], columns, probabilities)


class Answered(NamedTuple):
    """What a model says of events, in their order."""

    answers: list[Answer]
    confidences: Sequence[float] = ()
    """Probability of the likeliest class in each forecast that came with a label."""
    hits: Sequence[bool] = ()
    """Whether the label was that class."""


class Met(NamedTuple):
    """What a forest had met before some events."""

    samples: int
    classes: int


class Learner(ABC):
    """A forest and the meaning of its labels."""

    __slots__ = ("forest",)

    forest: Forest

    @property
    def met(self) -> Met:
        """What the forest has met so far."""
        return Met(self.forest.n_samples, len(self.forest.class_labels or ()))

    @abstractmethod
    def scores(self) -> Scores:
        """Sums of nothing."""

    @abstractmethod
    def code(self, label: Label) -> int:
        """Number of a label that is known to be good, UNKNOWN for one to be looked at: see `refusal` and `admit`."""

    @abstractmethod
    def known_codes(self, labels: Sequence[Label | None]) -> list[int] | None:
        """Numbers of labels, NO_LABEL for None; None where one of them is to be looked at."""

    @abstractmethod
    def refusal(self, label: Label) -> Reject | None:
        """Why the model cannot learn a label that has no code; None if it can."""

    @abstractmethod
    def admit(self, label: Label) -> int:
        """Give a label a code that has none and is not refused."""

    @abstractmethod
    def blind(self, event: Event) -> Answer:
        """What there is to say of an unlabelled event before anything was learned."""

    @abstractmethod
    def knows(self, codes: Sequence[int]) -> bool:
        """Whether the forest has met labels of all these kinds."""

    @staticmethod
    @abstractmethod
    def labels(events: Sequence[Event]) -> Any:
        """Labels as the forest's own methods take them."""

    @staticmethod
    @abstractmethod
    def targets(events: Sequence[Event], codes: Sequence[int]) -> Sequence[float]:
        """Labels as `amf.predict_learn_many` takes them, which the forest knows."""

    @staticmethod
    @abstractmethod
    def forecasts(said: Any) -> Forecasts:
        """What forests have said of events, as `answers` takes it."""

    @abstractmethod
    def answers(
        self, events: Sequence[Event], codes: Sequence[int], forecasts: Forecasts, before: Met, scores: Scores
    ) -> Answered:
        """What is answered to events of which the forest said this; counts in `scores` how good that was."""


class Classifier(Learner):
    """Labels are classes: text, 64-bit integers and booleans."""

    __slots__ = ("_codes", "texts")

    forest: amf.ForestClassifier[Any]

    def __init__(self, forest: amf.ForestClassifier[Any]) -> None:
        self.forest = forest
        self.texts = [class_text(label) for label in forest.class_labels]
        # By type, for 1 and True are one key: all classes as text, of the other types the labels met so far.
        self._codes: dict[type, dict[Label | None, int]] = {str: {None: NO_LABEL}}
        self._codes[str].update((text, code) for code, text in enumerate(self.texts))

    def scores(self) -> ClassScores:
        return ClassScores()

    def code(self, label: Label) -> int:
        if isinstance(label, float) or not (isinstance(label, str) or MIN_CLASS <= label <= MAX_CLASS):
            return UNKNOWN
        return self._codes[str].get(class_text(label), UNKNOWN)

    def known_codes(self, labels: Sequence[Label | None]) -> list[int] | None:
        types = set(map(type, labels))
        types.discard(type(None))
        if len(types) > 1:
            return None
        met = self._codes.setdefault(types.pop() if types else str, {None: NO_LABEL})
        codes = list(map(met.get, labels, repeat(UNKNOWN)))
        if UNKNOWN in codes:
            # One that is a class of this model, though not met in this type yet, is remembered.
            coming = {label for label in labels if label is not None and label not in met}
            met.update((label, code) for label in coming if (code := self.code(label)) != UNKNOWN)
            codes = list(map(met.get, labels, repeat(UNKNOWN)))
        return None if UNKNOWN in codes else codes

    def refusal(self, label: Label) -> Reject | None:
        if isinstance(label, float):
            return Reject("wrong-type", "label: expected a string, an integer, a boolean or null, got a decimal number")
        if not isinstance(label, str) and not MIN_CLASS <= label <= MAX_CLASS:
            return Reject("number-out-of-range", "label does not fit a 64-bit integer")
        # The forest's own limits: those of a restored model may not be what the configuration says by now.
        text, limits = class_text(label), self.forest.params
        if limits.classes is not None:
            return Reject("unknown-class", f"label {text!r} is none of the {len(self.texts)} given classes")
        if len(self.texts) >= limits.max_classes:
            return Reject("too-many-classes", f"label {text!r} would be class {len(self.texts) + 1}")
        return None

    def admit(self, label: Label) -> int:
        text = class_text(label)
        code = self._codes[str][text] = len(self.texts)
        self.texts.append(text)
        return code

    def blind(self, event: Event) -> Prediction:
        """Uniform over given classes, else nothing."""
        n = len(self.texts)
        first = self.forest.class_labels[0] if n else None
        return Prediction(first, self.texts, [1.0 / n for _ in range(n)], None, None, 0, event.id)

    def knows(self, codes: Sequence[int]) -> bool:
        return max(codes) < len(self.forest.class_labels)

    @staticmethod
    def labels(events: Sequence[Event]) -> list[Label | None]:
        return [event.label for event in events]

    @staticmethod
    def targets(events: Sequence[Event], codes: Sequence[int]) -> Sequence[float]:
        return codes

    @staticmethod
    def forecasts(said: amf.Forecasts) -> Forecasts:
        rows = said.probabilities
        winners = rows.argmax(axis=1).tolist() if rows.shape[1] else [0] * len(rows)
        return Forecasts(said.depth, said.weighted_depth.tolist(), (rows.tolist(), winners), rows)

    def answers(
        self, events: Sequence[Event], codes: Sequence[int], forecasts: Forecasts, before: Met, scores: Scores
    ) -> Answered:
        assert isinstance(scores, ClassScores)
        learned, known = before
        labels, texts, log, log_loss = self.forest.class_labels, self.texts, math.log, 0.0
        answers: list[Answer] = []
        confidences: list[float] = []
        hits: list[bool] = []
        for event, code, row, winner in zip(events, codes, *forecasts.columns, strict=True):
            loss = None
            if known < len(row):
                row = row[:known]
            prediction = labels[winner] if known else None
            learned_before = learned
            if code >= 0:
                # 0.0 - x and not -x: a certain forecast has loss 0, not -0.
                loss = 0.0 - log(row[code] or _SMALLEST_PROBABILITY) if code < known else log(learned + 2)
                hits.append(code == winner and code < known)
                confidences.append(row[winner] if known else 0.0)
                known = max(known, code + 1)
                log_loss += loss
                learned += 1
            answers.append(Prediction(prediction, texts, row, event.label, loss, learned_before, event.id))
        scores.count += len(hits)
        scores.log_loss += log_loss
        scores.correct += sum(hits)
        return Answered(answers, confidences, hits)


class Regressor(Learner):
    """Labels are numbers."""

    __slots__ = ()

    forest: amf.ForestRegressor[Any]

    def __init__(self, forest: amf.ForestRegressor[Any]) -> None:
        self.forest = forest

    def scores(self) -> NumberScores:
        return NumberScores()

    def code(self, label: Label) -> int:
        return UNKNOWN if isinstance(label, str | bool) else 0

    def known_codes(self, labels: Sequence[Label | None]) -> list[int] | None:
        if not set(map(type, labels)) <= {int, float, type(None)}:
            return None
        return [NO_LABEL if label is None else 0 for label in labels]

    def refusal(self, label: Label) -> Reject | None:
        got = "a boolean" if isinstance(label, bool) else "a string"
        return Reject("wrong-type", f"label: expected a number or null, got {got}")

    def admit(self, label: Label) -> int:
        raise AssertionError("a label without a code is refused")

    def blind(self, event: Event) -> Estimate:
        return Estimate(None, None, None, None, None, 0, event.id)

    def knows(self, codes: Sequence[int]) -> bool:
        return True

    @staticmethod
    def labels(events: Sequence[Event]) -> NDArray[np.float64]:
        return np.array(Regressor.targets(events, ()))

    @staticmethod
    def targets(events: Sequence[Event], codes: Sequence[int]) -> list[float]:
        return [math.nan if event.label is None else float(event.label) for event in events]

    @staticmethod
    def forecasts(said: amf.RegressionForecasts) -> Forecasts:
        columns = said.mean.tolist(), said.std.tolist(), said.quantiles.tolist()
        return Forecasts(said.depth, said.weighted_depth.tolist(), columns, None)

    def answers(
        self, events: Sequence[Event], codes: Sequence[int], forecasts: Forecasts, before: Met, scores: Scores
    ) -> Answered:
        assert isinstance(scores, NumberScores)
        learned = before.samples
        answers: list[Answer] = []
        for event, mean, std, quantiles in zip(events, *forecasts.columns, strict=True):
            label: Any = event.label
            if not learned:
                answer = Estimate(None, None, None, label, None, 0, event.id)
            else:
                loss = None if label is None else (float(label) - mean) ** 2
                answer = Estimate(mean, std, quantiles, label, loss, learned, event.id)
                scores.score(answer)
            answers.append(answer)
            learned += label is not None
        return Answered(answers)


def learner_of(forest: Forest) -> Learner:
    """The learner with this forest, be it a new one or restored."""
    if isinstance(forest, amf.ForestClassifier):
        return Classifier(forest)
    assert isinstance(forest, amf.ForestRegressor)
    return Regressor(forest)
