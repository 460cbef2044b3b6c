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
    """What a model says of events, in their order."""

    answers: Sequence[Answer]
    depth: NDArray[np.float64]
    """(n,), depth of the leaf of an event, mean over trees."""
    weighted_depth: NDArray[np.float64]
    """(n,), posterior mean depth at which the averaged prunings end."""
    probabilities: NDArray[np.float64] | None = None
    """(n, n_classes), where labels are classes."""
    confidences: Sequence[float] = ()
    """Probability of the likeliest class in each forecast that came with a label."""
    hits: Sequence[bool] = ()
    """Whether the label was that class."""


class Learner(ABC):
    """A forest and the meaning of its labels."""

    __slots__ = ("forest",)

    forest: Forest

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
    def prequential(self, rows: Rows, events: Sequence[Event], codes: Sequence[int], scores: Scores) -> Forecasts:
        """Predict each event, then learn it; `rows` are what the forest takes of them."""

    def learn(self, rows: Rows, events: Sequence[Event]) -> None:
        """Learn the events."""
        self.forest.partial_fit(rows, [event.label for event in events])


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

    def prequential(self, rows: Rows, events: Sequence[Event], codes: Sequence[int], scores: Scores) -> Forecasts:
        assert isinstance(scores, ClassScores)
        learned, known = self.forest.n_samples, len(self.forest.class_labels)
        forecasts = self.forest.prequential(rows, [event.label for event in events])
        best = forecasts.probabilities.argmax(axis=1).tolist() if self.texts else [0] * len(events)
        labels, texts, answers = self.forest.class_labels, self.texts, []
        width, log, log_loss = len(texts), math.log, 0.0
        confidences: list[float] = []
        hits: list[bool] = []
        for event, code, row, winner in zip(events, codes, forecasts.probabilities.tolist(), best, strict=True):
            loss = None
            if known < width:
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
        return Forecasts(answers, forecasts.depth, forecasts.weighted_depth, forecasts.probabilities, confidences, hits)


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

    def learn(self, rows: Rows, events: Sequence[Event]) -> None:
        self.forest.partial_fit(rows, _numbers(events))

    def prequential(self, rows: Rows, events: Sequence[Event], codes: Sequence[int], scores: Scores) -> Forecasts:
        assert isinstance(scores, NumberScores)
        learned, labels = self.forest.n_samples, _numbers(events)
        forecasts = self.forest.prequential(rows, labels)
        answers = []
        columns = labels.tolist(), forecasts.mean.tolist(), forecasts.std.tolist(), forecasts.quantiles.tolist()
        for event, label, mean, std, quantiles in zip(events, *columns, strict=True):
            labelled = event.label is not None
            shown: Any = event.label
            if not learned:
                answer = Estimate(None, None, None, shown, None, 0, event.id)
            else:
                loss = (label - mean) ** 2 if labelled else None
                answer = Estimate(mean, std, quantiles, shown, loss, learned, event.id)
                scores.score(answer)
            answers.append(answer)
            learned += labelled
        return Forecasts(answers, forecasts.depth, forecasts.weighted_depth)


def learner_of(forest: Forest) -> Learner:
    """The learner with this forest, be it a new one or restored."""
    if isinstance(forest, amf.ForestClassifier):
        return Classifier(forest)
    assert isinstance(forest, amf.ForestRegressor)
    return Regressor(forest)


def _numbers(events: Sequence[Event]) -> NDArray[np.float64]:
    """Labels (n,), NaN where there is none."""
    return np.array([event.label for event in events], np.float64)
