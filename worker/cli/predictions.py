"""The CSV file of predictions: one row for each published prediction, one column for each class there ever was.

    row,id,model,label,prediction,learned,loss,std,q:0.05,q:0.5,q:0.95,p:CLASS,...

The column id is there if rows have ids of their own, those from std to q:0.95 if a model estimates numbers. Floats have
the fewest digits that give back the same bits. A cell is empty where a class was not known yet, where the event had no
label, where there was no prediction, and where a column is not of the model's kind.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from amf import class_text
from worker.base.records import QUANTILES, Answer, Estimate, Prediction
from worker.cli.dataset import Row
from worker.cli.files import errors, replacing, require_place, temporary_for

_COLUMNS = ["row", "id", "model", "label", "prediction", "learned", "loss"]
_NUMBERS = ["std", *(f"q:{name}" for name in QUANTILES)]


class Classes:
    """The classes of all models, in the order in which the rows show them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._columns: dict[str, int] = {}
        self._by_model: dict[str, list[int]] = {}

    def column(self, text: str) -> int:
        """Number of a class, a new one where it is new."""
        column = self._columns.setdefault(text, len(self.texts))
        if column == len(self.texts):
            self.texts.append(text)
        return column

    def spread(self, model: str, prediction: Prediction) -> list[float | None]:
        """Probabilities by the numbers of their classes, None for a class that the forecast did not know.

        The class of the event's own label has a number from now on.
        """
        columns = self._by_model.setdefault(model, [])
        known = len(prediction.probabilities)
        if len(columns) < known:
            columns += map(self.column, prediction.classes[len(columns) : known])
        if prediction.label is not None:
            self.column(class_text(prediction.label))
        spread: list[float | None] = [None] * len(self.texts)
        for column, probability in zip(columns, prediction.probabilities, strict=True):
            spread[column] = probability
        return spread


class _Lines:
    """Rows of csv.writer as lines that end as all files here do. Told to end them so, it would quote no carriage
    return in a cell, by which a row ends for whoever reads the file."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, row: str) -> None:
        self._file.write(row.removesuffix("\r\n") + "\n")


class PredictionsFile:
    """Writes the file, which is there when all is written, and not before.

    The header needs all classes, but the last row may bring a new one: until then the rows are kept in a temporary
    file without a name. Raises ConfigError where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        require_place(path)
        self._path = path
        self._rows = temporary_for(path)
        self._writer = csv.writer(self._rows)
        self._left_out = {"id", *_NUMBERS}

    def write(self, row: Row, answer: Answer, spread: Sequence[float | None]) -> None:
        """Add a row; `spread` holds the probabilities by class, as `Classes` gives them."""
        said: list[object] = [answer.label, answer.prediction]
        numbers: list[float | None] = [None] * len(_NUMBERS)
        if not isinstance(answer, Estimate):
            said = [None if it is None else class_text(it) for it in (answer.label, answer.prediction)]
        else:
            self._left_out.difference_update(_NUMBERS)
            if answer.quantiles is not None:
                numbers = [answer.std, *answer.quantiles]
        if row.id is not None:
            self._left_out.discard("id")
        # The csv module writes a float by repr and None as nothing.
        with errors(self._path):
            self._writer.writerow([row.number, row.id, row.key, *said, answer.learned, answer.loss, *numbers, *spread])

    def finish(self, classes: Sequence[str]) -> None:
        """Write the file itself: the header and the rows, each with a cell for every class."""
        header = [*_COLUMNS, *_NUMBERS, *(f"p:{text}" for text in classes)]
        kept = [column for column, name in enumerate(header) if name not in self._left_out]
        with replacing(self._path) as file:
            self._rows.seek(0)
            writer = csv.writer(_Lines(file))
            for row in chain([header], csv.reader(self._rows)):
                row += [""] * (len(header) - len(row))
                writer.writerow([row[column] for column in kept])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()
