"""The worker's learning without Kafka: rows of a file through the models, one prequential pass.

Each row is encoded as `produce` would send it and goes through the worker's own `Task`, which has all the rows as one
partition would, so what comes out is what the worker publishes, bit for bit. What is counted is counted in the order of
the rows, so that the size of a chunk changes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from amf import class_text
from worker.base.records import Answer, Prediction, Reject
from worker.checkpoint import Source
from worker.cli.dataset import Row, Rows, record_of
from worker.cli.predictions import Classes, PredictionsFile
from worker.cli.ranking import Ranking
from worker.cli.report.figures import N_BINS, ModelFigures, Report
from worker.cli.survey import survey
from worker.cli.terminal import Advance, Interrupt
from worker.config import REGISTRY_CODECS, Codec, Config, loads
from worker.task.task import Task

CHUNK_ROWS = 2048
_DEFAULTS = """
input: {topic: rows}
output: {topic: predictions}
dead_letter: {topic: dead-letters}
kafka: {bootstrap.servers: none}
checkpoint: {url: "memory://"}
"""


class Evaluated(NamedTuple):
    """What a pass came to. Nothing is written of it yet, so that nothing that fails to be written takes it along."""

    report: Report
    classes: Sequence[str]
    """Those that the rows showed, in that order."""
    models: Mapping[str, Source]
    """As they are at the end."""


def evaluate(
    rows: Rows,
    config: Config | None = None,
    out: PredictionsFile | None = None,
    *,
    advance: Advance = lambda share, rows: None,
    interrupt: Interrupt | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Evaluated:
    """Predict every row, then learn it; `out` takes the predictions, and is to be finished with the classes.

    Without `config` all is as it is by default. A row that the worker would refuse is counted under the code of its
    dead letter, and is not in `out`; however many they are, the pass goes on. Once `interrupt` is pressed it ends
    as if there were no more rows. Raises ConfigError for a row that cannot be read.
    """
    config, interrupt = config or config_of_rows(), interrupt or Interrupt()
    # Events are taken as they stand, and rows have no schema that a registry could know.
    codec: Codec = "json" if rows.are_events or config.input.codec in REGISTRY_CODECS else config.input.codec
    evaluation = _Evaluation(config, codec, out)
    started = time.perf_counter()
    every = iter(rows)
    while chunk := _read(every, chunk_rows, interrupt):
        evaluation.take(chunk)
        advance(rows.fraction, evaluation.report.rows)
        if interrupt.pressed:
            break
    evaluation.report.interrupted = interrupt.pressed
    report = evaluation.finish(time.perf_counter() - started, has_key=rows.has_key)
    report.notes += rows.notes
    return Evaluated(report, evaluation.classes.texts, evaluation.task.models.sources())


def _read(every: Iterator[Row], n: int, interrupt: Interrupt) -> list[Row]:
    """The next n rows, fewer at the end of the file, or where nobody wants to wait for the others."""
    chunk: list[Row] = []
    with interrupt.at_once():
        for row in islice(every, n):
            chunk.append(row)
    return chunk


def config_of_rows(settings: Mapping[str, str] = MappingProxyType({})) -> Config:
    """A configuration that says nothing of the models but these settings. Raises ConfigError."""
    return loads(_DEFAULTS, {}, settings=settings)


def task_of_rows(config: Config) -> Task:
    """One partition, live, that has the rows of a file from the first on."""
    task = Task(0, config, max_message_bytes=sys.maxsize)
    task.open(task.load((), 0), position=0, live_from=0)
    task.go_live()
    return task


class _Evaluation:
    """The models and the figures so far."""

    def __init__(self, config: Config, codec: Codec, out: PredictionsFile | None) -> None:
        self.report = Report()
        self._codec = codec
        source, output = replace(config.input, codec=codec), replace(config.output, codec="json")
        self.task = task_of_rows(replace(config, input=source, output=output))
        self._null_key = config.models.null_key or ""
        self._out = out
        self.classes = Classes()
        self._ranking = Ranking()
        self._forecasts = 0

    def take(self, chunk: Sequence[Row]) -> None:
        """Rows through their models, then into the figures in their own order."""
        result = self.task.process([record_of(row, self._codec) for row in chunk], publish=False)
        self._forecasts += sum(map(len, result.tally.depths))
        self.report.depth += sum(float(depths.sum()) for depths in result.tally.depths)
        self.report.weighted_depth += result.tally.weighted_depth
        for row, answer in zip(chunk, result.answers, strict=True):
            if isinstance(answer, Reject):
                self._refuse(row, answer)
            else:
                assert answer is not None, "a row has a value, and is predicted"
                self._count(row, answer)

    def finish(self, seconds: float, *, has_key: bool) -> Report:
        report, classes = self.report, self.classes.texts
        report.seconds = seconds
        report.models = len(self.task.models)
        survey(self.task.models, report, has_key=has_key)
        report.depth /= max(self._forecasts, 1)
        report.weighted_depth /= max(self._forecasts, 1)
        report.std /= max(report.numbers.count, 1)
        report.calibration = report.confidence()
        if len(classes) == 2:
            # The rarer class is the one that somebody looks for; of two that are as frequent the one like 1 or "yes".
            labels = report.labels
            report.positive = min(sorted(classes, reverse=True), key=lambda each: labels[each])
            ranked = self._ranking.ranked(classes.index(report.positive))
            if ranked is not None:
                report.auc, report.average_precision = ranked.auc(), ranked.average_precision()
                report.roc, report.precision_recall = ranked.curves()
                report.calibration = ranked.calibration(N_BINS)
        self._ranking.close()
        return report

    def _count(self, row: Row, answer: Answer) -> None:
        report = self.report
        key = row.key if row.key is not None else self._null_key
        model = report.by_model.setdefault(key, ModelFigures())
        report.rows += 1
        model.rows += 1
        report.labelled += answer.label is not None
        spread: list[float | None] = []
        if isinstance(answer, Prediction):
            spread = self.classes.spread(key, answer)
            if answer.label is not None and answer.loss is not None:
                report.score_class(answer, model)
                self._ranking.add(self.classes.column(class_text(answer.label)), spread)
        else:
            report.score_number(answer, model)
        if self._out is not None:
            self._out.write(row, answer, spread)

    def _refuse(self, row: Row, reject: Reject) -> None:
        self.report.rows += 1
        self.report.rejects[reject.code] += 1
        self.report.first_rejects.setdefault(reject.code, f"row {row.number}: {reject.reason}")
