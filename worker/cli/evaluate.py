"""The worker's learning without Kafka: rows of a file through the models, one prequential pass.

Each row is encoded as `produce` would send it and goes through the worker's own codec and models, so what comes out is
what the worker publishes, bit for bit. Rows are taken in chunks and grouped by model, as in a batch of the worker; what
is counted is counted in the order of the rows, so that the size of a chunk changes nothing.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from amf import class_text
from worker import codec
from worker.cli import saving
from worker.cli.dataset import Row, Rows, message
from worker.cli.predictions import Classes, PredictionsFile
from worker.cli.ranking import Ranking
from worker.cli.terminal import Advance, count, table
from worker.config import Config, Input, ModelParams
from worker.config import Models as ModelsConfig
from worker.learners import compile_kernels
from worker.models import Models
from worker.ports import ObjectStore
from worker.records import Answer, ClassScores, Event, NumberScores, Prediction, Reject
from worker.rejects import DECODERS

CHUNK_ROWS = 2048


@dataclass(slots=True)
class Report:
    """Figures of a pass. Scores are of the rows that came with a label, depths of every forecast."""

    rows: int = 0
    labelled: int = 0
    classes: ClassScores = field(default_factory=ClassScores)
    numbers: NumberScores = field(default_factory=NumberScores)
    std: float = 0.0
    """Mean standard deviation of the scored estimates."""
    rejects: Counter[str] = field(default_factory=Counter)
    first_rejects: dict[str, str] = field(default_factory=dict)
    """Code -> the first row that was refused under it, and why."""
    auc: float | None = None
    """Area under the ROC curve where there are two classes."""
    positive: str | None = None
    """The class whose probability `auc` ranks by: the greater text of the two."""
    depth: float = 0.0
    """Mean depth of the leaf of a row."""
    weighted_depth: float = 0.0
    """Mean of the posterior mean depth at which the averaged prunings end."""
    models: int = 0
    nodes: int = 0
    seconds: float = 0.0

    @property
    def log_loss(self) -> float | None:
        return _mean(self.classes.log_loss, self.classes.count)

    @property
    def accuracy(self) -> float | None:
        return _mean(self.classes.correct, self.classes.count)

    @property
    def rmse(self) -> float | None:
        return _mean(self.numbers.squared_error, self.numbers.count, math.sqrt)

    @property
    def mae(self) -> float | None:
        return _mean(self.numbers.absolute_error, self.numbers.count)

    @property
    def coverage(self) -> float | None:
        """Share of the labels from the 5 % to the 95 % quantile."""
        return _mean(self.numbers.covered, self.numbers.count)


def _mean(total: float, count: int, scale: Callable[[float], float] = float) -> float | None:
    return scale(total / count) if count else None


def evaluate(
    rows: Rows,
    config: Config | None = None,
    out: PredictionsFile | None = None,
    save_to: ObjectStore | None = None,
    *,
    advance: Advance = lambda share, rows: None,
    chunk_rows: int = CHUNK_ROWS,
) -> Report:
    """Predict every row, then learn it; the predictions go to `out`, the models as they are at the end to `save_to`.

    Parameters come from the `models` section of `config`, without it they are the defaults. A row that the worker would
    refuse is counted under the code of its dead letter, and is not in `out`. Raises ConfigError for a row that cannot
    be read, and before the first row if `save_to` is not empty.
    """
    if save_to is not None:
        saving.require_empty(save_to)
    evaluation = _Evaluation(config, out)
    # Now, so that it does not count as learning: some seconds after an installation, later a moment.
    compile_kernels(evaluation.algorithms)
    started = time.perf_counter()
    every = iter(rows)
    while chunk := list(islice(every, chunk_rows)):
        evaluation.take(chunk)
        advance(rows.fraction, evaluation.report.rows)
    report = evaluation.finish(time.perf_counter() - started)
    if save_to is not None:
        saving.save(save_to, rows.path.name, report.rows, evaluation.models)
    return report


class _Evaluation:
    """The models and the figures so far."""

    def __init__(self, config: Config | None, out: PredictionsFile | None) -> None:
        models = config.models if config else ModelsConfig(default=ModelParams())
        self.report = Report()
        self.algorithms = models.algorithms
        self._max_bytes = config.input.max_bytes if config else Input(topic="").max_bytes
        self.models = Models(models.params_for, decoder=DECODERS[config.input.codec if config else "json"])
        self._out = out
        self._classes = Classes()
        self._ranking = Ranking()
        self._forecasts = 0

    def take(self, chunk: Sequence[Row]) -> None:
        """Rows through their models, then into the figures in their own order."""
        outcomes: list[Answer | Reject | None] = [None] * len(chunk)
        groups: dict[str, tuple[list[int], list[Event]]] = {}
        for place, row in enumerate(chunk):
            event = self._event(row)
            if isinstance(event, Reject):
                outcomes[place] = event
                continue
            places, events = groups.setdefault(row.key, ([], []))
            places.append(place)
            events.append(event)
        for key, (places, events) in groups.items():
            for place, outcome in zip(places, self._apply(key, events), strict=True):
                outcomes[place] = outcome
        for row, outcome in zip(chunk, outcomes, strict=True):
            if isinstance(outcome, Reject):
                self._refuse(row, outcome)
            elif outcome is not None:
                self._count(row, outcome)

    def finish(self, seconds: float) -> Report:
        report, classes = self.report, self._classes.texts
        report.seconds = seconds
        report.models = len(self.models)
        report.nodes = sum(model.forest.n_nodes for model in self.models)
        report.depth /= max(self._forecasts, 1)
        report.weighted_depth /= max(self._forecasts, 1)
        report.std /= max(report.numbers.count, 1)
        if len(classes) == 2:
            report.positive = max(classes)
            report.auc = self._ranking.auc(classes.index(report.positive))
        self._ranking.close()
        if self._out is not None:
            self._out.finish(classes)
        return report

    def _event(self, row: Row) -> Event | Reject:
        key = codec.decode_key(row.key.encode())
        return key if isinstance(key, Reject) else codec.decode(message(row), self._max_bytes)

    def _apply(self, key: str, events: list[Event]) -> list[Answer | Reject | None]:
        model = self.models.get(key)
        applied = model.apply(events, publish=True)
        if applied.learned:
            self.models.keep(model)
        self._forecasts += sum(map(len, applied.depths))
        self.report.depth += sum(float(depths.sum()) for depths in applied.depths)
        self.report.weighted_depth += applied.weighted_depth
        return applied.outcomes

    def _count(self, row: Row, answer: Answer) -> None:
        report = self.report
        report.rows += 1
        report.labelled += answer.label is not None
        spread: list[float | None] = []
        if isinstance(answer, Prediction):
            spread = self._classes.spread(row.key, answer)
            self._score(answer, spread)
        else:
            report.numbers.score(answer)
            if answer.loss is not None and answer.std is not None:
                report.std += answer.std
        if self._out is not None:
            self._out.write(row.number, row.key, answer, spread)

    def _score(self, prediction: Prediction, spread: list[float | None]) -> None:
        if prediction.label is None or prediction.loss is None:
            return
        label, scores = class_text(prediction.label), self.report.classes
        scores.count += 1
        scores.log_loss += prediction.loss
        scores.correct += prediction.prediction is not None and class_text(prediction.prediction) == label
        self._ranking.add(self._classes.column(label), spread)

    def _refuse(self, row: Row, reject: Reject) -> None:
        self.report.rows += 1
        self.report.rejects[reject.code] += 1
        self.report.first_rejects.setdefault(reject.code, f"row {row.number}: {reject.reason}")


def show(report: Report) -> None:
    """Print the figures."""

    rows = [
        ("rows", count(report.rows)),
        ("refused", count(report.rejects.total())),
        ("labelled", count(report.labelled)),
        *_scores(report),
        ("depth", f"{report.depth:.2f}"),
        ("weighted depth", f"{report.weighted_depth:.2f}"),
        ("models", count(report.models)),
        ("nodes", count(report.nodes)),
        ("events/s", f"{report.rows / report.seconds:,.0f}"),
    ]
    table(("", ""), rows)
    for code, n in report.rejects.most_common():
        print(f"{n:,} rows were refused as {code}, first {report.first_rejects[code]}")


def _scores(report: Report) -> Iterator[tuple[str, str]]:
    """Those of the sorts of models that there are; of classes where there is none yet."""

    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:.4f}"

    if report.classes.count or not report.numbers.count:
        yield "log-loss", figure(report.log_loss)
        yield "accuracy", figure(report.accuracy)
    if report.auc is not None:
        yield f"AUC (class {report.positive})", figure(report.auc)
    if report.numbers.count:
        # In the unit of the label, which may be any: figures that matter, not decimals.
        for name, value in (("RMSE", report.rmse), ("MAE", report.mae), ("std", report.std)):
            yield name, "-" if value is None else f"{value:.5g}"
        yield "coverage of 90 %", figure(report.coverage)
