"""Model key -> forest: creation, what each model accepts, and events through a forest. No I/O."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from amf import class_text
from worker.config import ModelParams
from worker.records import Event, Features, Prediction, Reject
from worker.rejects import DECODER

_SMALLEST_PROBABILITY = 5e-324  # keeps a loss finite, and so JSON


def spec_of(key: str, params: ModelParams) -> str:
    """Hash of everything that, with the input, determines the state of this model: 16 hexadecimal digits."""
    values = {each.name: getattr(params, each.name) for each in fields(params)}
    parts = {"params": values, "key": key, "decoder": DECODER}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def seed_of(key: str, seed: int) -> int:
    """Seed of a model's random stream: of (seed, key) alone, so that any worker and any partition grow one forest."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).digest(), "little")


def forest_of(key: str, params: ModelParams) -> amf.AMFClassifier:
    """A forest that has learned nothing."""
    # max_classes and max_features bound what `auto` takes in; what is listed is meant.
    n_classes = 0 if params.classes == "auto" else len(params.classes)
    n_features = params.features if isinstance(params.features, int) else len(params.features)
    forest = amf.AMFClassifier(
        params.n_estimators,
        classes=None if params.classes == "auto" else params.classes,
        seed=seed_of(key, params.seed),
        scaling=params.scaling,
        prior=params.prior,
        smoothing=params.smoothing,
        dirichlet=params.dirichlet if params.prior == "dirichlet" else None,
        split_pure=params.split_pure,
        max_bytes=params.max_bytes,
        max_classes=max(params.max_classes, n_classes),
        max_features=params.max_features if params.features == "auto" else max(params.max_features, n_features),
    )
    if isinstance(params.features, tuple):
        forest.add_features(params.features)
    return forest


class Figures(NamedTuple):
    """One model in numbers."""

    samples: int
    nodes: int
    depth: float
    memory_bytes: int
    loss: float
    labelled: int
    correct: int


class Applied:
    """What became of the events of one model in a batch, and figures for the metrics."""

    __slots__ = ("correct", "depths", "learned", "loss", "outcomes", "predicted", "scored", "weighted_depth")

    def __init__(self, n: int) -> None:
        self.outcomes: list[Prediction | Reject | None] = [None] * n
        """Event by event; None where the event was only learned."""
        self.predicted = 0
        self.learned = 0
        self.correct = 0
        self.loss = 0.0
        self.scored = 0
        self.depths: list[NDArray[np.float64]] = []
        self.weighted_depth = 0.0


class Model:
    """One model key: its forest, and the rules by which the forest accepts events.

    The rules depend on what was learned: the first labelled event fixes array or object and the length of an array,
    labelled events may bring names and classes. An event that breaks a rule is rejected and changes nothing.
    """

    def __init__(self, key: str, params: ModelParams, forest: amf.AMFClassifier, spec: str) -> None:
        self.key = key
        self.params = params
        self.forest = forest
        self.spec = spec
        self.loss, self.labelled, self.correct = 0.0, 0, 0  # since this worker has the model; for the metrics alone
        self.texts = [class_text(label) for label in forest.class_labels]
        self._codes = {text: code for code, text in enumerate(self.texts)}
        self._names = list(forest.feature_names or ())
        self._width: int | None = forest.n_features or None
        if self._width is None and isinstance(params.features, int):
            self._width = params.features
        self._kind: type[list[Any]] | type[dict[str, Any]] | None = None
        if self._width is not None or params.features != "auto":
            self._kind = list
            if forest.feature_names is not None:
                self._kind = dict

    def apply(self, events: Sequence[Event], *, publish: bool) -> Applied:
        """Predict and learn the events in their order; with `publish` False only learn (replay)."""
        applied = Applied(len(events))
        run = _Run()
        for i, event in enumerate(events):
            features, label = event.features, event.label
            code = -1
            if label is not None:
                known = self._codes.get(label if type(label) is str else class_text(label))
                code = len(self.texts) if known is None else known
            # Nearly every event looks like the one before it; only the others are looked at closely.
            if not self._fits(features) or code == len(self.texts):
                refused = self._refusal(event, code)
                if refused is not None:
                    applied.outcomes[i] = refused
                    continue
                if label is None and self._kind is None:
                    if publish:
                        applied.outcomes[i] = self._blind(event)
                        applied.predicted += 1
                    continue
                new = self._new_names(event)
                if new:
                    # The forest grows in between: rows before this one are learned without the new names.
                    self._pass(run, applied, publish=publish)
                    run = _Run()
                    self._add_names(new)
                if self._kind is None:
                    self._kind, self._width = list, len(features)
            run.rows.append(i)
            run.events.append(event)
            run.codes.append(code)
            run.known.append(len(self.texts))
            if label is not None and code == len(self.texts):
                self._codes[class_text(label)] = code
                self.texts.append(class_text(label))
        self._pass(run, applied, publish=publish)
        self.loss += applied.loss
        self.labelled += applied.scored
        self.correct += applied.correct
        return applied

    def figures(self) -> Figures:
        """What the metrics show of this model."""
        forest = self.forest
        return Figures(
            forest.n_samples,
            forest.n_nodes,
            forest.mean_depth,
            forest.nbytes,
            self.loss,
            self.labelled,
            self.correct,
        )

    def _fits(self, features: Features) -> bool:
        """Whether the features are just those of the model, in its order."""
        if type(features) is list:
            return self._kind is list and len(features) == self._width
        return self._kind is dict and list(features) == self._names

    def _refusal(self, event: Event, code: int) -> Reject | None:
        """Why this model cannot take the event, None if it can. Looks only."""
        # The forest's own limits: those of a restored model may not be what the configuration says by now.
        features, limits = event.features, self.forest.params
        most = limits.max_features
        if self._kind is not None and type(features) is not self._kind:
            is_array = type(features) is list
            got, takes = ("an array", "an object") if is_array else ("an object", "an array")
            return Reject("feature-kind", f"features is {got}, this model takes {takes}")
        if type(features) is list:
            if self._width is not None and len(features) != self._width:
                return Reject("feature-count", f"features has {len(features)} numbers, this model takes {self._width}")
            if self._width is None and len(features) > most:
                return Reject("too-many-features", f"features has {len(features)} numbers, max_features is {most}")
        elif (new := self._new_names(event)) and len(self._names) + len(new) > most:
            return Reject("too-many-features", f"features brings the model to more than max_features={most} names")
        if event.label is not None and code == len(self.texts):
            text = class_text(event.label)
            if limits.classes is not None:
                return Reject("unknown-class", f"label {text!r} is none of the {len(self.texts)} given classes")
            if len(self.texts) >= limits.max_classes:
                return Reject("too-many-classes", f"label {text!r} would be class {len(self.texts) + 1}")
        return None

    def _new_names(self, event: Event) -> list[str]:
        """Names that a labelled event brings. Names outside a configured list are ignored."""
        if event.label is None or type(event.features) is list or isinstance(self.params.features, tuple):
            return []
        known = set(self._names)
        return [name for name in event.features if name not in known]  # type: ignore[misc]

    def _add_names(self, names: list[str]) -> None:
        self.forest.add_features(names)
        self._names += names
        self._kind = dict

    def _matrix(self, events: list[Event]) -> NDArray[np.float64]:
        """Features as rows in the order of the model's columns, NaN where missing."""
        rows: list[Any]
        if self._kind is list:
            rows = [event.features for event in events]
        else:
            names = self._names
            # Most producers write the names in one order: then no name has to be looked up.
            rows = [
                list(event.features.values())  # type: ignore[union-attr]
                if list(event.features) == names
                else [event.features.get(name) for name in names]  # type: ignore[union-attr]
                for event in events
            ]
        return np.array(rows, np.float64)

    def _pass(self, run: _Run, applied: Applied, *, publish: bool) -> None:
        """Put a run of accepted events through the forest."""
        if not run.rows:
            return
        labels = [event.label for event in run.events]
        learned = self.forest.n_samples
        if publish:
            told = self.forest.prequential(self._matrix(run.events), labels)
            self._tell(run, learned, told, applied)
        else:
            self.forest.partial_fit(self._matrix(run.events), labels)
        applied.learned += self.forest.n_samples - learned

    def _tell(self, run: _Run, learned: int, told: amf.Forecasts, applied: Applied) -> None:
        """Turn forecasts into predictions."""
        best = told.probabilities.argmax(axis=1).tolist() if self.texts else [0] * len(run.rows)
        rows = told.probabilities.tolist()
        labels: list[Any] = self.forest.class_labels
        for i, event, code, known, row, winner in zip(
            run.rows, run.events, run.codes, run.known, rows, best, strict=True
        ):
            loss = None
            if code >= 0:
                if code < known:
                    # 0.0 - x and not -x: a certain forecast has loss 0, not -0.
                    loss = 0.0 - math.log(max(row[code], _SMALLEST_PROBABILITY))
                    applied.correct += code == winner
                else:
                    loss = math.log(learned + 2)
                applied.loss += loss
                applied.scored += 1
            applied.outcomes[i] = Prediction(
                labels[winner] if known else None,
                self.texts,
                row if known == len(row) else row[:known],
                event.label,
                loss,
                learned,
                event.id,
            )
            learned += code >= 0
        applied.predicted += len(run.rows)
        applied.depths.append(told.depth)
        applied.weighted_depth += float(told.weighted_depth.sum())

    def _blind(self, event: Event) -> Prediction:
        """Forecast of an unlabelled event before anything was learned: uniform over given classes, else nothing."""
        n = len(self.texts)
        first: Any = self.forest.class_labels[0] if n else None
        return Prediction(first, self.texts, [1.0 / n for _ in range(n)], None, None, 0, event.id)


class _Run:
    """Accepted events on their way through a forest, with what is known of each."""

    __slots__ = ("codes", "events", "known", "rows")

    def __init__(self) -> None:
        self.rows: list[int] = []
        """Positions in the batch."""
        self.events: list[Event] = []
        self.codes: list[int] = []
        """Class numbers, -1 without a label."""
        self.known: list[int] = []
        """Classes known before the event."""


class Models:
    """The models of one partition. Only a model that has learned is kept: asking leaves no trace."""

    def __init__(self, params_for: Callable[[str], ModelParams]) -> None:
        self._params_for = params_for
        self._models: dict[str, Model] = {}
        self._specs: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def __contains__(self, key: str) -> bool:
        return key in self._models

    def get(self, key: str) -> Model:
        """The model of a key, or one that has learned nothing and is not kept yet."""
        model = self._models.get(key)
        if model is None:
            params = self._params_for(key)
            model = Model(key, params, forest_of(key, params), self.configured_spec(key))
        return model

    def keep(self, model: Model) -> None:
        """Make the model part of the state."""
        self._models[model.key] = model

    def forget(self, key: str) -> None:
        """Drop the model: its next event starts it anew."""
        self._models.pop(key, None)

    def configured_spec(self, key: str) -> str:
        """Spec that the configuration gives to a key; the spec of a restored model may be another."""
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = spec_of(key, self._params_for(key))
        return spec

    def restore(self, key: str, spec: str, data: bytes) -> None:
        """Take a model from its bytes. Raises amf.FormatError."""
        self._models[key] = Model(key, self._params_for(key), amf.loads(data), spec)
