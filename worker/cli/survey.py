"""What models tell of themselves at the end of a pass: their size, which features they use, how they have adapted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from amf import Column
from worker.cli.report.figures import FeatureFigures, Report
from worker.state.model import Model

MOST_SURVEYED = 1000
"""Models that are asked for the features they use: that takes a look at every node."""
MOST_NOTES = 5
"""Features of which a sentence says that they have too many categories."""
_NOTE = (
    "{0!r} has {1} different texts or more, and those beyond max_categories={1} look alike: where they recur, raise it"
)
_OR_KEY = ", or make {0!r} the model key"


def survey(models: Iterable[Model], report: Report, *, has_key: bool) -> None:
    """Add to the report what the models tell; `has_key` says whether a column is the model key already."""
    usage, weights, moves, full = _Sums(), _Sums(), _Sums(), dict[str, int]()
    for number, model in enumerate(models):
        forest, adaptation = model.forest, model.forest.adaptation
        n = forest.n_samples
        report.nodes += forest.n_nodes
        if adaptation is not None:
            report.swaps = (report.swaps or 0) + adaptation.n_swaps
        if model.key in report.by_model:
            figures = report.by_model[model.key]
            figures.nodes, figures.depth = forest.n_nodes, forest.mean_depth
        if number < MOST_SURVEYED:
            features = model.features
            full |= dict.fromkeys(_full(model), forest.params.max_categories)
            usage.add(features.names, features.sums(forest.feature_usage()), n)
            if adaptation is not None:
                weights.add(features.names, model.feature_weights(adaptation), n)
            if model.explainer is not None:
                moves.add(features.names, model.explainer.mean_moves, n)
    total = sum(usage.totals.values())
    report.features = [
        FeatureFigures(name, used / total, weights.mean(name), moves.mean(name))
        for name, used in sorted(usage.totals.items(), key=lambda item: -item[1])
        if total
    ]
    note = _NOTE if has_key else _NOTE + _OR_KEY
    report.notes += [note.format(name, most) for name, most in list(full.items())[:MOST_NOTES]]


def _full(model: Model) -> list[str]:
    """The features of a model that have as many categories as they may have columns, so that further ones are lost."""
    columns = map(Column.parse, model.forest.feature_names or ())
    counts = Counter(column.feature for column in columns if column.category is not None)
    return [name for name, n in counts.items() if n >= max(model.forest.params.max_categories, 2)]


class _Sums:
    """Sums over models of a figure of each feature, weighed by how many labels each model learned."""

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        self._labels: defaultdict[str, int] = defaultdict(int)

    def add(self, names: Sequence[str], values: NDArray[np.float64], n: int) -> None:
        """The figures of the first features of a model that learned so many labels."""
        for name, value in zip(names, values.tolist(), strict=False):
            self.totals[name] += n * value
            self._labels[name] += n

    def mean(self, name: str) -> float | None:
        """None where no model told."""
        return self.totals[name] / self._labels[name] if self._labels[name] else None
