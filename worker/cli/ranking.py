"""Area under the ROC curve of two classes, exact, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from tempfile import TemporaryFile
from typing import IO

import numpy as np
from numpy.typing import NDArray

_SCORE = Struct("=d")
_BLOCK = 1 << 16


class Ranking:
    """The chance that a sample of one class is ranked above one of the other; ties count half.

    That needs every score, and for either class, since it may turn out late which one is ranked: they are kept in
    temporary files, 16 bytes a sample. A class that a forecast did not know has score 0. A third class ends it all.
    """

    def __init__(self) -> None:
        self._files: list[list[IO[bytes]]] = [[_file() for _scored in range(2)] for _label in range(2)]

    def add(self, label: int, scores: Sequence[float | None]) -> None:
        """A sample of class `label` and its probabilities by the numbers of their classes, from 0."""
        if len(scores) > 2:
            self.close()
        if self._files:
            for file, score in zip(self._files[label], [*scores, None][:2], strict=True):
                file.write(_SCORE.pack(score or 0.0))

    def auc(self, positive: int) -> float | None:
        """The area for one of the two classes; None where there were more, or only samples of one."""
        if not self._files:
            return None
        above, below = (_mapped(self._files[label][positive]) for label in (positive, 1 - positive))
        if not (len(above) and len(below)):
            return None
        below.sort()
        half_wins = 0
        for start in range(0, len(above), _BLOCK):
            block = above[start : start + _BLOCK]
            half_wins += sum(int(np.searchsorted(below, block, side).sum()) for side in ("left", "right"))
        return half_wins / (2 * len(above) * len(below))

    def close(self) -> None:
        """Drop the scores."""
        for file in [file for files in self._files for file in files]:
            file.close()
        self._files = []


def _file() -> IO[bytes]:
    return TemporaryFile()


def _mapped(file: IO[bytes]) -> NDArray[np.float64]:
    """The numbers in a file; sorting them sorts the file, and the system decides what of it is in memory."""
    file.flush()
    return np.memmap(file, np.float64, "r+") if file.tell() else np.empty(0)
