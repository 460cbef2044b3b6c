"""The classifier: parameters, an arena, the state of classes and features, and batches through the kernels.

A batch is cut into segments in which everything but the trees is constant: a segment ends where a new class appears
and where the feature weights change. Where it ends follows from the samples, never from the batch, and within it trees
are independent, so neither the batch size nor the number of threads can change a bit.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.arena import CHILD, COUNT, Arena, Layout, room_for
from amf.labels import Classes, Label, distinct, scalars
from amf.params import AMFClassifierParams, check_whole
from amf.rng import seed_words
from amf.scaling import Scaling, first_infinite
from amf.systems.amf_classifier import average, walk

_ROWS_PER_WALK = 1024
_FORECASTS_PER_WALK = 1 << 18  # bounds the buffer of forecasts per tree to 2 MB


class Forecasts(NamedTuple):
    """What `prequential` returns; row i belongs to sample i, before its label was learned."""

    probabilities: NDArray[np.float64]
    """(n, K), columns in the order of `classes_` after the call; 0 for a class not yet known in that row."""
    depth: NDArray[np.float64]
    """(n,), depth of the sample's leaf (root: 0), mean over trees."""
    weighted_depth: NDArray[np.float64]
    """(n,), posterior mean of the depth of the pruning's leaf ([000] Sec. 5.1), mean over trees."""


class _Scratch(threading.local):
    """Buffers that live from call to call: fresh pages for each of them would cost more than small batches do."""

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.float64]] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """An array with anything in it, until the next call with this name."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size)
        return buffer[:size].reshape(shape)


_scratch = _Scratch()


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="amf-trees")


class AMFClassifier:
    """Aggregated Mondrian Forest for classification ([000] Alg. 4-6), learning one sample at a time.

    Each tree is a random Mondrian partition that grows with the data; a forecast is the exact Bayesian average over
    all prunings of the tree, mean over trees. State is a pure function of the parameters and the labelled samples in
    their order: batches, threads and save-load do not change a bit.

    Parameters
    ----------
    n_estimators : number of trees, >= 1. More trees are smoother and slower; 10 is the papers' choice.
    classes : all labels, in the order of the columns, where they are known; None: as they appear.
    seed : of the random partition, 0 <= seed < 2**64.
    scaling : "auto" weighs features by a robust spread (scaling.py), so that units do not matter; "none" takes them
        as they are, as the papers do.
    prior : "parent" shrinks a node's class frequencies to its parent's forecast, with weight `smoothing` times the
        square of the number of different labels it has seen (forecasters.py); "dirichlet" to uniform with `dirichlet`
        pseudo-counts a class (None: 0.5 for two classes, 0.01 for more).
    charge_first : whether a fresh leaf pays for its first sample. True is literal [000]; False favours deep trees and
        predicts better.
    split_pure : whether a leaf splits while all its labels agree. True gives an exact Mondrian partition.
    max_bytes : memory of the trees at most; a forest that reaches it stops splitting and goes on counting.
    max_classes, max_features : more than these raise ValueError.
    n_threads : trees are spread over so many threads. Not part of the state.
    """

    def __init__(
        self,
        n_estimators: int = 10,
        *,
        classes: Sequence[Label] | None = None,
        seed: int = 0,
        scaling: Literal["auto", "none"] = "auto",
        prior: Literal["parent", "dirichlet"] = "parent",
        smoothing: float = 0.4,
        dirichlet: float | None = None,
        charge_first: bool = False,
        split_pure: bool = False,
        max_bytes: int = 64_000_000,
        max_classes: int = 1000,
        max_features: int = 10_000,
        n_threads: int = 1,
    ) -> None:
        self.params = AMFClassifierParams(
            n_estimators=n_estimators,
            classes=None if classes is None else tuple(scalars(np.asarray(classes, object))),  # type: ignore[arg-type]
            seed=seed,
            scaling=scaling,
            prior=prior,
            smoothing=smoothing,
            dirichlet=dirichlet,
            charge_first=charge_first,
            split_pure=split_pure,
            max_bytes=max_bytes,
            max_classes=max_classes,
            max_features=max_features,
        )
        check_whole("n_threads", n_threads, 1, 10_000)
        self.n_threads = n_threads
        self.feature_names: tuple[str, ...] | None = None
        self._classes = Classes(self.params.classes or ())
        self._scaling = Scaling(0, adaptive=scaling == "auto")
        self._arena = Arena(n_estimators, self._layout())
        self._words = seed_words(seed, n_estimators)

    @classmethod
    def from_params(cls, params: AMFClassifierParams, n_threads: int = 1) -> AMFClassifier:
        """A forest that has learned nothing."""
        return cls(**params.as_dict(), n_threads=n_threads)

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels (K,) in the order of the columns, each as it was first seen."""
        return self._classes.as_array()

    @property
    def class_labels(self) -> list[Label]:
        """The same as Python scalars; the forest's own list, not to be changed."""
        return self._classes.labels

    @property
    def n_samples(self) -> int:
        """Labelled samples learned."""
        return int(self._scaling.counters[2])

    @property
    def n_features(self) -> int:
        """Features d, 0 before the first call that learns."""
        return self._scaling.n_features

    @property
    def n_nodes(self) -> int:
        """Nodes over all trees."""
        return self._arena.n_nodes

    @property
    def nbytes(self) -> int:
        """Bytes of memory held by the trees and the per-feature state."""
        return self._arena.nbytes + self._scaling.nbytes

    @property
    def mean_depth(self) -> float:
        """Mean depth of a learned sample's leaf over samples and trees; 0 before the first sample."""
        # Each inner node adds one to the depth of every label counted below it.
        trees = [self._arena.rows(tree) for tree in range(self.params.n_estimators)]
        depths = [
            rows[:, COUNT][rows[:, CHILD] > 0].sum(dtype=np.int64) / max(int(rows[0, COUNT]), 1)
            for rows in trees
            if rows.size
        ]
        return float(np.mean(depths)) if depths else 0.0

    def partial_fit(self, X: ArrayLike, y: Any) -> AMFClassifier:  # noqa: N803
        """Learn the rows in their order. X: (n, d) numbers, NaN where missing. y: (n,) labels, None or NaN: no label.

        Raises ValueError for infinite numbers, wrong shapes, a label outside fixed `classes`, or too many of anything,
        before anything is learned.
        """
        self._pass(X, y, publish=False)
        return self

    def predict_learn(self, X: ArrayLike, y: Any) -> NDArray[np.float64]:  # noqa: N803
        """Predict each row, then learn it: class probabilities (n, K) as `prequential`; arguments as `partial_fit`."""
        return self.prequential(X, y).probabilities

    def prequential(self, X: ArrayLike, y: Any) -> Forecasts:  # noqa: N803
        """Predict each row, then learn it, and also tell how deep the trees were there."""
        return self._pass(X, y, publish=True)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Class probabilities (n, K) in mode `existing` ([000] Alg. 3 on the tree as it is). Changes nothing."""
        return self._forecast(X).probabilities

    def weighted_depth(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Posterior mean depth (n,) at which the averaged prunings end ([000] Sec. 5.1). Changes nothing."""
        return self._forecast(X).weighted_depth

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The likeliest label of each row (n,), ties to the class seen first. Changes nothing."""
        likeliest: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return likeliest

    def add_features(self, names: Sequence[str]) -> None:
        """Append named features of which every earlier sample lacked the value."""
        if self.feature_names is None and self.n_features:
            raise ValueError("the features of this forest have no names: it learned from arrays")
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"the name of a feature is a str, got {list(names)}")
        known = self.feature_names or ()
        if len({*known, *names}) != len(known) + len(names):
            raise ValueError(f"a feature is named twice: {sorted({*known} & {*names}) or list(names)}")
        self._grow_features(len(known) + len(names))
        self.feature_names = (*known, *names) or None

    def dumps(self) -> bytes:
        """Versioned canonical bytes (serialize.py): equal states give equal bytes. `amf.loads` reads them."""
        from amf.serialize import dumps

        return dumps(self)

    def __reduce__(self) -> tuple[Any, ...]:
        from amf.serialize import loads

        return loads, (self.dumps(),)

    def __repr__(self) -> str:
        changed = {k: v for k, v in self.params.as_dict().items() if v != getattr(AMFClassifierParams(), k)}
        arguments = ", ".join(f"{k}={v!r}" for k, v in changed.items())
        return f"AMFClassifier({arguments})"

    def _forecast(self, X: ArrayLike) -> Forecasts:  # noqa: N803
        if not len(self._classes):
            raise ValueError("this forest has seen no label yet and was given no classes: call partial_fit first")
        x = self._rows(X)
        if not self.n_features:
            x = x[:, :0]
        return self._pass_rows(x, np.full(x.shape[0], -1, np.int32), [], publish=True)

    def _pass(self, X: ArrayLike, y: Any, *, publish: bool) -> Forecasts:  # noqa: N803
        x = self._rows(X)
        codes, arrivals = self._encode(y, x.shape[0])
        if not self.n_features:
            if codes.size and codes.max() >= 0:
                self._grow_features(x.shape[1])
            else:
                x = x[:, :0]
        return self._pass_rows(x, codes, arrivals, publish=publish)

    def _rows(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        x = np.asarray(X)
        x = np.ascontiguousarray(x, np.float32 if x.dtype == np.float32 else np.float64)
        if x.ndim != 2:
            raise ValueError(f"X must have two dimensions (rows, features), got shape {x.shape}")
        if not 1 <= x.shape[1] <= self.params.max_features:
            raise ValueError(f"X has {x.shape[1]} features; it needs 1 to max_features={self.params.max_features}")
        if self.n_features and x.shape[1] != self.n_features:
            raise ValueError(f"X has {x.shape[1]} features, this forest learned from {self.n_features}")
        infinite = first_infinite(x)
        if infinite >= 0:
            row, column = divmod(infinite, x.shape[1])
            raise ValueError(f"X[{row}, {column}] is infinite; numbers must be finite, NaN stands for missing")
        return x

    def _encode(self, y: Any, n: int) -> tuple[NDArray[np.int32], list[tuple[int, Label]]]:
        """Numbers of the labels, int32 (n,), -1 where missing, and the rows at which a class is new."""
        labels, places, rows = distinct(y)
        if len(places) != n:
            raise ValueError(f"y has {len(places)} labels for {n} rows of X")
        known = len(self._classes)
        coming = Classes()
        arrivals: list[tuple[int, Label]] = []
        codes = np.full(len(labels), -1, np.int32)
        for place, label in enumerate(labels):
            if label is None:
                continue
            code = self._classes.code(label)
            if code < 0:
                code = known + coming.add(label)
                if code == known + len(arrivals):
                    arrivals.append((int(rows[place]), label))
            codes[place] = code
        if arrivals and self.params.classes is not None:
            row, label = arrivals[0]
            raise ValueError(f"y[{row}] is {label!r}, which is none of the given classes {list(self.params.classes)}")
        if len(self._classes) + len(arrivals) > self.params.max_classes:
            raise ValueError(f"y brings more than max_classes={self.params.max_classes} classes")
        return codes[places], arrivals

    def _pass_rows(
        self, x: NDArray[Any], codes: NDArray[np.int32], arrivals: list[tuple[int, Label]], *, publish: bool
    ) -> Forecasts:
        n = x.shape[0]
        rows = self._scaling.centre(x, codes)
        probabilities = np.zeros((n if publish else 0, len(self._classes) + len(arrivals)))
        depths = np.zeros((n if publish else 0, 2))
        at = dict(arrivals)
        ends = [*at, n]
        start = 0
        while start < n:
            if start in at:
                # The forecast of this row knew only the old classes; the learning knows the new one.
                if publish and len(self._classes):
                    nothing = np.full(1, -1, np.int32)
                    self._walk(rows[start : start + 1], nothing, probabilities[start:], depths[start:])
                self._classes.add(at[start])
                self._arena.relayout(self._layout())
            end = next(row for row in ends if row > start)
            stop = self._scaling.observe(rows[:end], codes, start)
            skip = 1 if start in at else 0
            if skip:
                self._walk(rows[start : start + 1], codes[start : start + 1], None, None)
            if start + skip < stop:
                part = slice(start + skip, stop)
                if publish:
                    self._walk(rows[part], codes[part], probabilities[part], depths[part])
                else:
                    self._walk(rows[part], codes[part], None, None)
            start = stop
        return Forecasts(probabilities, depths[:, 0], depths[:, 1])

    def _walk(
        self,
        rows: NDArray[np.float32],
        codes: NDArray[np.int32],
        probabilities: NDArray[np.float64] | None,
        depths: NDArray[np.float64] | None,
    ) -> None:
        """Pass rows of one segment through all trees, in bites that bound the memory of the forecasts per tree."""
        n_trees, n_classes = self.params.n_estimators, len(self._classes)
        if not n_classes:
            return  # nothing to forecast yet, and no row here has a label
        publish = probabilities is not None
        bite = max(1, min(_ROWS_PER_WALK, rows.shape[0], _FORECASTS_PER_WALK // (n_trees * n_classes)))
        forecasts = _scratch.array("forecasts", (n_trees, bite, n_classes) if publish else (0, 0, 0))
        tree_depths = _scratch.array("depths", (n_trees, bite, 2) if publish else (0, 0, 0))
        for start in range(0, rows.shape[0], bite):
            part = slice(start, min(start + bite, rows.shape[0]))
            self._grow_through(rows[part], codes[part], publish, forecasts, tree_depths)
            if probabilities is not None and depths is not None:
                n = part.stop - part.start
                average(forecasts[:, :n], tree_depths[:, :n], n_classes, probabilities[part], depths[part])

    def _grow_through(
        self,
        rows: NDArray[np.float32],
        codes: NDArray[np.int32],
        publish: bool,
        forecasts: NDArray[np.float64],
        depths: NDArray[np.float64],
    ) -> None:
        """Walk the rows through every tree, giving the arena more room whenever a tree asks for it."""
        arena, layout, params, scaling = self._arena, self._arena.layout, self.params, self._scaling
        n_trees, n_classes, limit = params.n_estimators, len(self._classes), self._limit()
        strength = params.strength(n_classes)
        progress = np.zeros(n_trees, np.int64)

        def trees(first: int, last: int) -> None:
            walk(
                arena.ints, arena.floats, arena.reals, arena.used, self._words,
                first, last, arena.capacity, layout.words, layout.low, layout.high,
                limit,
                rows.reshape(-1), rows.shape[1], codes, self.n_features, scaling.weights, n_classes, scaling.complete,
                strength, params.prior == "parent", params.charge_first, params.split_pure,
                publish, forecasts, depths,
                progress,
            )  # fmt: skip

        n_threads = min(self.n_threads, n_trees)
        bounds = [n_trees * k // n_threads for k in range(n_threads + 1)]
        if arena.capacity == 0:
            arena.grow(limit)
        while True:
            if n_threads == 1:
                trees(0, n_trees)
            else:
                jobs = [_pool(n_threads).submit(trees, *pair) for pair in pairwise(bounds)]
                wait(jobs)
                for job in jobs:
                    job.result()
            if progress.min() == rows.shape[0]:
                return
            arena.grow(limit)

    def _layout(self) -> Layout:
        return Layout(room_for(len(self._classes)), room_for(self._scaling.n_features))

    def _limit(self) -> int:
        """Rows a tree may have under `max_bytes`; the first is always granted."""
        bytes_per_row = 4 * self._arena.layout.words * self.params.n_estimators
        beside_rows = self.nbytes - self._arena.capacity * bytes_per_row
        return max(1, (self.params.max_bytes - beside_rows) // bytes_per_row)

    def _grow_features(self, n_features: int) -> None:
        if n_features > self.params.max_features:
            raise ValueError(f"{n_features} features are more than max_features={self.params.max_features}")
        self._scaling.grow(n_features)
        self._arena.relayout(self._layout())
