"""The CSV file of predictions: one row for each published prediction, one column for each class there ever was.

    row,model,label,prediction,learned,loss,std,q:0.05,q:0.5,q:0.95,p:CLASS,...

The columns from std to q:0.95 are there if a model estimates numbers. Floats have the fewest digits that give back the
same bits. A cell is empty where a class was not known yet, where the event had no label, where there was no prediction,
and where a column is not of the model's kind.
"""

from __future__ import annotations

import csv
import errno
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

from amf import class_text
from worker.errors import ConfigError
from worker.records import QUANTILES, Answer, Estimate, Prediction

_COLUMNS = ["row", "model", "label", "prediction", "learned", "loss"]
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


class PredictionsFile:
    """Writes the file, which is there when all is written, and not before.

    The header needs all classes, but the last row may bring a new one: until then the rows are kept in a temporary
    file without a name. Raises ConfigError where the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            self._rows = TemporaryFile("w+", encoding="utf-8", newline="", dir=path.parent)  # noqa: SIM115
        except OSError as error:
            raise self._error(error) from None
        self._writer = csv.writer(self._rows)
        self._has_numbers = False

    def write(self, row: int, model: str, answer: Answer, spread: Sequence[float | None]) -> None:
        """Add a row; `spread` holds the probabilities by class, as `Classes` gives them."""
        texts = (None if it is None else class_text(it) for it in (answer.label, answer.prediction))
        numbers: list[float | None] = [None] * len(_NUMBERS)
        if isinstance(answer, Estimate):
            self._has_numbers = True
            if answer.quantiles is not None:
                numbers = [answer.std, *answer.quantiles]
        # The csv module writes a float by repr and None as nothing.
        self._writer.writerow([row, model, *texts, answer.learned, answer.loss, *numbers, *spread])

    def finish(self, classes: Sequence[str]) -> None:
        """Write the file itself: the header and the rows, each with a cell for every class."""
        header = [*_COLUMNS, *_NUMBERS, *(f"p:{text}" for text in classes)]
        left_out = slice(0, 0) if self._has_numbers else slice(len(_COLUMNS), len(_COLUMNS) + len(_NUMBERS))
        unfinished = self._path.with_name(f".{self._path.name}.part")
        try:
            self._rows.seek(0)
            with unfinished.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                for row in chain([header], csv.reader(self._rows)):
                    row += [""] * (len(header) - len(row))
                    writer.writerow(row[: left_out.start] + row[left_out.stop :])
            os.replace(unfinished, self._path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise self._error(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()

    def _error(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self._path}: cannot be written: {error.strerror}")
