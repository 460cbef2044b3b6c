"""How well forecasts of two classes rank and what they promise: exact, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.cli.report.figures import Bin

_SCORE = Struct("=d")
_BLOCK = 1 << 16
_POINTS = 200
_FEWEST = 20
_SPREAD = 20_000


class Ranked(NamedTuple):
    """Scores of a class, of its own samples and of the others, both sorted."""

    above: NDArray[np.float64]
    below: NDArray[np.float64]

    def auc(self) -> float:
        """Area under the ROC curve."""
        half_wins = 0
        for block in self._blocks():
            half_wins += sum(int(np.searchsorted(self.below, block, side).sum()) for side in ("left", "right"))
        return half_wins / (2 * len(self.above) * len(self.below))

    def average_precision(self) -> float:
        """Mean over the samples of the class of the share of the class among all that score at least as much."""
        total = 0.0
        for block in self._blocks():
            own, others = self._at_least(block)
            total += float((own / (own + others)).sum())
        return total / len(self.above)

    def curves(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Points of the ROC curve, from none to all, and of precision over recall."""
        # Where either class has its quantiles, so that both ends of the curves are as fine as the middle.
        thresholds = np.unique(np.concatenate([_spread(self.above, _POINTS), _spread(self.below, _POINTS)]))[::-1]
        own, others = self._at_least(thresholds)
        recall = own / len(self.above)
        roc = list(zip((others / len(self.below)).tolist(), recall.tolist(), strict=True))
        # The share among the first few is chance, and would be a spike at the left end.
        enough = own + others >= min(_FEWEST, len(self.above))
        precision = list(zip(recall[enough].tolist(), (own / (own + others))[enough].tolist(), strict=True))
        return [(0.0, 0.0), *roc, (1.0, 1.0)], precision

    def calibration(self, n_bins: int) -> list[Bin]:
        """What came true of forecasts, in bins of about as many forecasts each."""
        n = len(self.above) + len(self.below)
        some = [_spread(scores, max(1, _SPREAD * len(scores) // n)) for scores in self]
        weights = [len(scores) / len(part) for scores, part in zip(self, some, strict=True)]
        scores = np.concatenate(some)
        order = np.argsort(scores, kind="stable")
        ranks = np.cumsum(np.repeat(weights, [len(part) for part in some])[order])
        edges = np.unique(scores[order][np.searchsorted(ranks, n * np.arange(1, n_bins) / n_bins)])
        bins = []
        places = [[0, *np.searchsorted(part, edges, "right").tolist(), len(part)] for part in self]
        for (own, own_end), (other, other_end) in zip(*(pairwise(place) for place in places), strict=True):
            count = own_end - own + other_end - other
            if count:
                total = float(self.above[own:own_end].sum() + self.below[other:other_end].sum())
                bins.append(Bin(count, total / count, (own_end - own) / count))
        return bins

    def _blocks(self) -> Iterator[NDArray[np.float64]]:
        return (self.above[start : start + _BLOCK] for start in range(0, len(self.above), _BLOCK))

    def _at_least(self, scores: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """How many of either class score at least so much."""
        return [len(part) - np.searchsorted(part, scores, "left") for part in self]


def _spread(scores: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """At most n of the sorted scores, the least and the greatest among them."""
    places = np.linspace(0, len(scores) - 1, min(n, len(scores))).astype(np.intp)
    return np.asarray(scores[places])


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

    def ranked(self, positive: int) -> Ranked | None:
        """The scores of one of the two classes; None where there were more, or only samples of one."""
        if not self._files:
            return None
        above, below = (_mapped(self._files[label][positive]) for label in (positive, 1 - positive))
        if not (len(above) and len(below)):
            return None
        above.sort()
        below.sort()
        return Ranked(above, below)

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
