"""What a system decides: what its labels are, and how its trees grow and forecast."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from amf.adaptation.state import NEVER, Terms
from amf.geometry.boxes import LARGEST
from amf.inputs.batch import BatchForecasts, Labels
from amf.inputs.labels import Label
from amf.kernels.pipeline import Kernels
from amf.params import ForestParams

NO_STATE = np.empty(0)
Params = TypeVar("Params", bound=ForestParams)


class System(ABC, Generic[Params]):
    """The part of a forest in which systems differ. What is abstract each of them has to say."""

    Parameters: ClassVar[type[Any]]
    family: ClassVar[str]
    """Name of the system (registry.py)."""
    VARIANTS: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    """Parameters for each of which the system has kernels of its own."""
    _code: ClassVar[type[Any]]
    """Type of labels as kernels take them."""

    params: Params
    _calibration: NDArray[np.float64]
    _adaptation: NDArray[np.float64]

    @property
    def variant(self) -> tuple[str, ...]:
        """The system, and those parameters that decide on its kernels: forests that agree may learn in one call."""
        return (self.family, *(str(getattr(self.params, name)) for name in self.VARIANTS[0]))

    @property
    def in_unit_cube(self) -> bool:
        """Whether features have to be numbers from 0 to 1, none missing, and all there from the first sample on.

        They are taken as they are then, neither centred nor weighted.
        """
        return False

    @property
    def class_labels(self) -> list[Label] | None:
        """The labels that have columns, None where labels are numbers; the forest's own list, not to be changed."""
        return None

    def _prepare(self) -> None:
        """Make the state of the labels, before anything is learned."""

    def _take_over_labels(self) -> None:
        """Have the state of the labels for itself, which another forest had until now."""

    @abstractmethod
    def _recall(self, classes: Any) -> None:
        """Take the labels over that the bytes of a forest name. Raises ValueError for any that cannot be its own."""

    @abstractmethod
    def _plausible(self, heads: NDArray[np.int32]) -> bool:
        """Whether the statistics in the heads of a tree could be."""

    def _is_partition(self, heads: NDArray[np.int32]) -> bool:
        """Whether the trees are parts of the partition that the words of their generators fix, where these do."""
        return True

    @abstractmethod
    def _encode(self, y: Any, n: int) -> Labels:
        """Labels of n rows. Raises ValueError or TypeError for labels that the forest cannot learn."""

    @abstractmethod
    def _given(self, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """(labels as kernels take them, which of them are labels) of what `Group.predict_learn` was given.

        Raises ValueError or TypeError for what can be no labels of such forests."""

    @abstractmethod
    def _published(self, forecasts: BatchForecasts) -> Any:
        """What `prequential` returns of what was said of rows."""

    @property
    @abstractmethod
    def _stats_room(self) -> int:
        """Words of label statistics in a node."""

    @property
    @abstractmethod
    def _n_outputs(self) -> int:
        """Numbers in a tree's forecast of one row; 0 while there is nothing to forecast."""

    @abstractmethod
    def _fresh_calibration(self) -> NDArray[np.float64]:
        """State of the calibration of a forest that has learned nothing."""

    @abstractmethod
    def _n_calibrated(self, n_features: int) -> int:
        """Numbers in the state of the calibration that are of so many features."""

    @abstractmethod
    def _calibration_with(self, known: int, like: Sequence[int | None]) -> NDArray[np.float64]:
        """State of the calibration, of so many features, with one more for each entry of `like` (linear_models.py)."""

    @property
    def _terms(self) -> Terms:
        """On which the forest adapts (adaptation/)."""
        return NEVER

    @property
    def _follows_forecasts(self) -> bool:
        """Whether what is learned depends on what the forest said before: then it has to be said."""
        return self.params.calibration or self._adaptation.size > 0

    @property
    @abstractmethod
    def _losses(self) -> NDArray[np.float64]:
        """The part of the state of the calibration that holds the recent losses (losses.py)."""

    @property
    def _n_said(self) -> int:
        """Numbers in a tree's forecast that are means of what its nodes say: the first ones."""
        return self._n_outputs

    @property
    def _knows_nothing(self) -> bool:
        """Whether there is nothing to forecast yet."""
        return self._n_outputs == 0

    @property
    @abstractmethod
    def _rules(self) -> tuple[Any, ...]:
        """At most N_RULES numbers, of which kernels make the rules of the statistics (`Statistics.rules_of`)."""

    @property
    def _mode(self) -> str:
        """How a sample outside of the boxes is forecast (modes.py)."""
        return "existing"

    @property
    def _purity(self) -> float:
        """Until when leaves whose labels all agree split (walk.py)."""
        return 0.0

    @property
    def _pauses(self) -> tuple[float, float]:
        """At which evidence for a label an inner node does not split for it; the same in a tree a quarter full."""
        return math.inf, math.inf

    @property
    @abstractmethod
    def _kernels(self) -> Kernels: ...

    @property
    def _bounds(self) -> tuple[float, float]:
        """Within which the values lie that trees see."""
        return (0.0, 1.0) if self.in_unit_cube else (-float(LARGEST), float(LARGEST))

    @property
    def _lifetime(self) -> float:
        """Time from which on no node splits."""
        return math.inf

    def _admit(self, label: Any) -> None:
        """Prepare for a label of a new kind: its row has been forecast and is about to be learned."""
        raise NotImplementedError
