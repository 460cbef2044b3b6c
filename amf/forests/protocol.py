"""What every system of the library can do, whatever it learns: what a program that takes any of them may rely on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.calibration.losses import Losses
from amf.forests.description import Adaptation, Description
from amf.inputs.labels import Label
from amf.kernels.attributions import Attributions
from amf.params import ForestParams


class Forecast(Protocol):
    """What `prequential` returns: a named tuple of arrays, a row for each sample; these two are in each of them."""

    @property
    def depth(self) -> NDArray[np.float64]:
        """(n,), depth at which the sample ends (root: 0), mean over trees."""

    @property
    def weighted_depth(self) -> NDArray[np.float64]:
        """(n,), posterior mean of the depth at which the averaged prunings end, mean over trees."""


class OnlineForest(Protocol):
    """A forest that learns one sample at a time, of any system: `amf.SYSTEMS` has their classes.

    Its state is a pure function of `params` and of the labelled samples in their order. Batches, threads, copies and
    bytes do not change a bit of it, and neither do samples without a label, nor predictions. A call that
    raises ValueError or TypeError leaves it as it was; what is cut short by anything else may be lost, and says so then
    (`amf.LostForestError`). Calls take turns, from whichever threads they come. What a label is, and what a forecast is
    beyond a `Forecast`, is the system's own.

    X is (n, d) numbers, NaN where missing; y is (n,) labels, None or NaN where there is none. ValueError and TypeError
    say what is wrong with them.
    """

    Parameters: ClassVar[type[Any]]
    """The class of `params`, a dataclass."""
    family: ClassVar[str]
    """Name of the system: its key in `amf.SYSTEMS`."""
    VARIANTS: ClassVar[tuple[dict[str, Any], ...]]
    """Parameters for each of which the system has kernels of its own."""
    n_threads: int
    """Threads over which the trees are spread. Not part of the state."""

    @classmethod
    def from_params(cls, params: Any, n_threads: int = 1) -> Self:
        """A forest with these `Parameters` that has learned nothing."""

    @classmethod
    def preset(cls, name: str, *, n_threads: int = 1, **overrides: Any) -> Self:
        """A forest with the parameters under a name: "default" or "paper" (params.py)."""

    @property
    def params(self) -> ForestParams:
        """Everything that, with the samples, determines the forest."""

    @property
    def variant(self) -> tuple[str, ...]:
        """The system, and those parameters that decide on its kernels: forests that agree may learn in one call of
        `amf.predict_learn_many`."""

    @property
    def in_unit_cube(self) -> bool:
        """Whether features have to be numbers from 0 to 1, none missing, and all there from the first sample on."""

    @property
    def n_samples(self) -> int:
        """Labelled samples learned."""

    @property
    def n_features(self) -> int:
        """Features d, 0 before the first call that learns."""

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, None where they have none."""

    @property
    def class_labels(self) -> list[Label] | None:
        """The labels that have columns, None where labels are numbers; the forest's own list, not to be changed."""

    @property
    def n_nodes(self) -> int:
        """Nodes over all trees."""

    @property
    def nbytes(self) -> int:
        """Bytes held by the trees, which `params.max_bytes` bounds, features, calibration and adaptation."""

    @property
    def mean_depth(self) -> float:
        """Mean depth of a learned sample's leaf over samples and trees."""

    @property
    def losses(self) -> Losses | None:
        """Recent mean losses of its forecasts, and of a baseline; None where the forest is not calibrated."""

    @property
    def adaptation(self) -> Adaptation | None:
        """How the forest has changed with its samples; None where it does not adapt."""

    def partial_fit(self, X: ArrayLike, y: Any) -> Self:  # noqa: N803
        """Learn the rows in their order."""

    def prequential(self, X: ArrayLike, y: Any) -> Forecast:  # noqa: N803
        """Predict each row, then learn it."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The label (n,) to expect at each row. ValueError before the first label."""

    def weighted_depth(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Posterior mean depth (n,) at which the averaged prunings end."""

    def attribute(self, X: ArrayLike) -> Attributions:  # noqa: N803
        """How much each feature moved the forecast of each row."""

    def add_features(self, names: Sequence[str] | int, *, like: Sequence[int | None] | None = None) -> None:
        """Append named features, or to none so many without names; a system may take them before its first sample only,
        and raise ValueError later."""

    def add_classes(self, labels: Iterable[Label]) -> None:
        """Append classes of which there was no label yet. ValueError where labels are numbers."""

    def describe(self) -> Description:
        """The forest in numbers."""

    def feature_usage(self) -> NDArray[np.float64]:
        """How much forecasts of learned samples rest on splits on each feature, (d,); the sum is the weighted depth."""

    def dumps(self) -> bytes:
        """Canonical bytes, which `amf.loads` reads."""

    def dumps_hashed(self) -> tuple[bytes, str]:
        """Canonical bytes, and their SHA-256 (64 hexadecimal digits)."""

    def copy(self) -> Self:
        """A copy of the forest, in memory of its own, that goes on bit for bit."""

    def with_seed(self, seed: int) -> Self:
        """A forest with another seed that has met the same features and classes. ValueError after the first label."""
