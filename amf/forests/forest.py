"""A forest as its users see it, whatever its system: what it is, what it learns and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.calibration.losses import Losses
from amf.forests.description import Adaptation, Description, Survey
from amf.inputs.batch import BatchForecasts, names_of, require_names, rows_at_once
from amf.inputs.scalars import plain, require_whole_characters
from amf.jit.rng import seed_words
from amf.kernels.attributions import Attributions
from amf.params import check_whole
from amf.serialization import canonical
from amf.state.forest_state import ForestState
from amf.state.system import Params
from amf.state.threads import side_by_side, spans
from amf.state.turns import one_call


def _unpickled(system: type[Any], data: bytes, n_threads: int) -> Any:
    return canonical.loads(data, {system.family: system}, n_threads=n_threads)


class Forest(ForestState[Params]):
    """A forest of Mondrian trees that learns one sample at a time.

    State is a pure function of the parameters and the labelled samples in their order: batches, threads and save-load
    do not change a bit.

    Calls on one forest are serialised, so threads may share it; different forests run in parallel. After a fork, a
    forest that another thread was using raises LostForestError in the child; all others go on.
    """

    def __init__(self, n_estimators: int = 10, *, n_threads: int = 1, **parameters: Any) -> None:
        self._require_known(parameters)
        self._set_up(self.Parameters(n_estimators=n_estimators, **parameters), n_threads)
        self._start()

    @classmethod
    def preset(cls, name: str, *, n_threads: int = 1, **overrides: Any) -> Self:
        """A forest with the parameters under a name: "default" or "paper" (params.py)."""
        cls._require_known(overrides)
        return cls.from_params(cls.Parameters.preset(name, **overrides), n_threads)

    @classmethod
    def _require_known(cls, parameters: Mapping[str, Any]) -> None:
        known = [field.name for field in fields(cls.Parameters)]
        for name in parameters.keys() - known:
            listed = ", ".join(sorted({"n_threads", *known}))
            raise TypeError(f"{cls.__name__} has no parameter {name!r}; there are {listed}")

    @classmethod
    def from_params(cls, params: Params, n_threads: int = 1) -> Self:
        """A forest that has learned nothing. Raises TypeError for the parameters of another system."""
        if type(params) is not cls.Parameters:
            what = f"{cls.__name__} has {cls.Parameters.__name__}, got {params!r:.100}"
            raise TypeError(f"{what}: bytes of it could not be read")
        forest = cls._bare(params, n_threads)
        forest._start()
        return forest

    # What it is.

    @property
    def mean_depth(self) -> float:
        """Mean depth of a learned sample's leaf over samples and trees; 0 before the first sample."""
        with self._turn:
            return self._survey().mean_depth

    @property
    def losses(self) -> Losses | None:
        """Recent mean losses of the forecasts that were calibrated, those of the trees alone, and of a baseline that
        knows the labels alone (losses.py); None where the forest is not calibrated."""
        with self._turn:
            return Losses.of(self._losses) if self.params.calibration else None

    def describe(self) -> Description:
        """The forest in numbers; `print` shows them as a sentence."""
        with self._turn:
            found = self._survey()
            return Description(
                n_trees=self.params.n_estimators,
                n_samples=self.n_samples,
                n_features=self.n_features,
                n_nodes=self.n_nodes,
                n_leaves=found.n_leaves,
                mean_depth=found.mean_depth,
                max_depth=found.max_depth,
                mean_weighted_depth=found.mean_weighted_depth,
                nbytes=self.nbytes,
                classes=None if self.class_labels is None else tuple(self.class_labels),
                losses=self.losses,
                adaptation=self.adaptation,
            )

    @property
    def adaptation(self) -> Adaptation | None:
        """How the forest has changed with its samples; None where it does not adapt."""
        return None

    def feature_usage(self) -> NDArray[np.float64]:
        """How much forecasts of learned samples rest on splits on each feature, (d,); the sum is the weighted depth.

        A diagnostic: a feature that is used much need not be causal, nor one of two equal features be used at all.
        """
        with self._turn:
            return self._survey(self._forecasts).usage

    @property
    def _forecasts(self) -> NDArray[np.bool_]:
        """Of each tree whether forecasts are made of it."""
        return np.ones(self.params.n_estimators, np.bool_)

    @one_call
    def _survey(self, asked: NDArray[np.bool_] | None = None) -> Survey:
        """What all trees look like, or those that are asked."""
        words, trees = self._current().words, np.ones(self.params.n_estimators, np.bool_) if asked is None else asked
        return Survey.of(partial(self._kernels.survey, words), trees, self.n_features)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.params.changed().items())
        return f"{type(self).__name__}({arguments})"

    # What it learns and says.

    def _learn(self, X: ArrayLike, y: Any, *, asked: bool) -> BatchForecasts:  # noqa: N803
        if type(X) is np.ndarray:  # many streams come one row at a time
            return super()._learn(X, y, asked=asked)
        with self._turn:
            self._require_names(X)
            return super()._learn(X, y, asked=asked)

    def _question(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        if type(X) is not np.ndarray:
            self._require_names(X)
        return super()._question(X)

    def _require_names(self, X: Any) -> None:  # noqa: N803
        """Raises ValueError where the columns of X have names, and others than the features of the forest, or such as
        it cannot take."""
        names = names_of(X)
        if self.feature_names:
            require_names(names, self.feature_names)
        else:
            require_whole_characters(*names or ())

    def partial_fit(self, X: ArrayLike, y: Any) -> Self:  # noqa: N803
        """Learn the rows in their order. X: (n, d) numbers, NaN where missing. y: (n,) labels, None or NaN: no label.

        Where X is a table whose columns have names, the first that is learned gives them to the forest, and a later one
        needs the same in the same order, here and wherever rows are asked for; an array is taken by position.

        Raises ValueError for infinite numbers, wrong shapes, labels that the forest cannot learn, or too many of
        anything, before anything is learned. What a signal raises, such as KeyboardInterrupt, mostly comes between
        rows: the forest has learned those up to there, and says how many labels (`n_samples`). MemoryError, and
        whatever comes while several threads learn or memory grows, destroys the forest, since half of a batch cannot
        be undone and keeping the state before each call would double the memory: every later use raises
        LostForestError. The handler of a signal cannot use a forest that is in the middle of a call (RuntimeError).
        """
        self._learn(X, y, asked=False)
        return self

    def weighted_depth(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Posterior mean depth (n,) at which the averaged prunings end ([AMF] Sec. 5.1). Changes nothing."""
        return self._ask(X).depths[:, 1]

    @one_call
    def attribute(self, X: ArrayLike) -> Attributions:  # noqa: N803
        """How much each feature moved the forecast of each row; X: (n, d). Changes nothing.

        In each tree a split from a node to its child moves the forecast by the difference of what they say times the
        posterior probability that a pruning goes that deep ([AMF] Eq. 21-27), credited to the feature of the split,
        also where its value is missing; trees are taken as in mode "existing" whatever `mode` is (forests on the unit
        cube: extended by the row; original Mondrian forests: their leaves). What calibration makes of their mean it
        makes of these moves, and each of its linear models adds what a feature adds there: so what is told is what
        moved the forecast that is published, and forecasts = prior + sum over features + unexplained, up to rounding.
        What is unexplained follows from labels, not from features.

        It says what the forecast rests on, not what would happen if a value were another one, and takes about as long
        as two forecasts.
        """
        x = self._question(X)
        (n, d), n_said = x.shape, self._n_said
        found = Attributions(*(np.zeros((n, *shape, n_said)) for shape in ((), (), (d,), ())))
        known = slice(self.n_features)  # before the first sample a row has no features that a tree could ask for
        said = self._pass(x[:, known], self._unlabelled(n), asked=True).outputs
        found.forecasts[:] = said[:, :n_said]
        at_once = rows_at_once(self.params.n_estimators, self._n_outputs)
        for first in range(0, n, at_once):
            here = slice(first, first + at_once)
            part = Attributions(*(array[here] for array in found))
            self._attribute(x[here, known], part._replace(features=part.features[:, known]))
        return found

    def _attribute(self, x: NDArray[np.float64], found: Attributions) -> None:
        """Attribute the forecasts of the rows x, by threads that share these."""
        words, parts = self._current().words, spans(x.shape[0], self._n_threads)
        if len(parts) == 1:
            self._explain(words, x, found)
            return
        rows = [slice(int(first), int(last)) for first, last in parts]
        shares = [(words, x[part], Attributions(*(array[part] for array in found))) for part in rows]
        side_by_side(self._n_threads, self._explain, shares)

    def _explain(self, words: NDArray[np.uint64], x: NDArray[np.float64], found: Attributions) -> None:
        forecasts = np.empty((self.params.n_estimators, x.shape[0], self._n_outputs))
        self._kernels.attribute(words, x, forecasts, found)
        self._kernels.explain(words, x, forecasts, found)

    @one_call
    def add_features(self, names: Sequence[str] | int, *, like: Sequence[int | None] | None = None) -> None:
        """Append named features; or, where a forest has none yet, so many without names, as the first array would.

        For earlier samples the value counts as missing. `like[i]` may name a column: then it counts as 0 wherever that
        column had a value, as a new category needs it beside the known ones of its feature.
        """
        names = plain(names)
        if isinstance(names, int):
            if like is not None:
                raise ValueError("like is of features that have names")
            self._add_nameless_features(names)
            return
        given = names if isinstance(names, str) else list(names)
        if isinstance(given, str) or not all(isinstance(name, str) for name in given):
            raise TypeError(f"the name of a feature is a str in a list of names, got {names!r}")
        names = [plain(name) for name in given]
        known, columns = self._named(names), self._columns_like(like, len(names))
        self._take_up(columns)
        self._names = known or None

    def _add_nameless_features(self, n: int) -> None:
        check_whole("names", n, 1, self.params.max_features)
        if self.n_features:
            raise ValueError(f"this forest has {self.n_features} features already: others need names")
        self._take_up([None] * n)

    def _take_up(self, columns: Sequence[int | None]) -> None:
        """Grow by these features. Raises ValueError where that cannot be, and changes nothing then."""
        self._require_room_for_features(len(columns))
        try:
            self._grow_features(columns)
        except BaseException as error:
            self._lose(error)
            raise

    def _named(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names of all features with these ones at the end. Raises ValueError where they cannot have them."""
        if self.feature_names is None and self.n_features:
            raise ValueError("the features of this forest have no names: it learned from arrays")
        known = self.feature_names or ()
        require_whole_characters(*names)
        if len({*known, *names}) != len(known) + len(names):
            raise ValueError(f"a feature is named twice: {sorted({*known} & {*names}) or list(names)}")
        return (*known, *names)

    def _columns_like(self, like: Sequence[int | None] | None, n_more: int) -> list[int | None]:
        """The column that each of so many new ones is like. Raises ValueError or TypeError for what is no such list."""
        columns: list[int | None] = [None] * n_more if like is None else [plain(column) for column in like]
        if len(columns) != n_more:
            raise ValueError(f"like has {len(columns)} entries for {n_more} names")
        if not all(column is None or type(column) is int for column in columns):
            raise TypeError(f"like holds places of columns, or None, got {columns}")
        known = self.n_features
        if not all(column is None or 0 <= column < known + place for place, column in enumerate(columns)):
            raise ValueError(f"like names a column that comes later or not at all: {columns}")
        return columns

    @one_call
    def dumps(self) -> bytes:
        """Versioned canonical bytes (canonical.py): equal states give equal bytes. `amf.loads` reads them."""
        return canonical.dumps(self)

    @one_call
    def dumps_hashed(self) -> tuple[bytes, str]:
        """Like `dumps`, with the SHA-256 of these bytes (64 hexadecimal digits) beside them, which costs nothing."""
        return canonical.dumps_hashed(self)

    @one_call
    def copy(self) -> Self:
        """This forest in memory of its own: both go on bit for bit, and neither sees what the other learns.

        Takes as long as copying `nbytes` bytes does; calls that learn wait meanwhile.
        """
        twin = self._twin()
        twin._scaling, twin._arena = self._scaling.copy(), self._arena.copy()
        twin._words, twin._calibration = self._words.copy(), self._calibration.copy()
        if self._adaptation.size:
            twin._adaptation = self._adaptation.copy()
        return twin

    def with_seed(self, seed: int) -> Self:
        """A forest with another seed that has met the same features, names and classes, in a quarter of the time.

        Raises ValueError where this one has learned: its trees are those of its own seed.
        """
        with self._turn:  # a call that is just learning ends before it is asked whether it has
            if self.n_samples:
                raise ValueError(f"this forest has learned {self.n_samples} labels with its own seed")
            twin = self.copy()
        twin.params = self.params.with_seed(seed)
        twin._words = seed_words(twin.params.seed, self.params.n_estimators)
        return twin

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        data = self.dumps()
        # A class that derives may have given the forest attributes of its own: they go along beside the bytes.
        ours = vars(self.from_params(self.params))
        of_derived = {name: value for name, value in vars(self).items() if name not in ours}
        return _unpickled, (type(self), data, self.n_threads), of_derived or None
