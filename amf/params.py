"""Parameters of the forests: frozen, validated once, part of the bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from amf.labels import Label, class_text


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Raise ValueError unless `value` is an int from `least` to `most`."""
    whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    _check(whole, f"{name} must be a whole number from {least} to {most}, got {value!r}")


def _positive(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1e9
    _check(number, f"{name} must be a positive number up to 1e9, got {value!r}")


@dataclass(frozen=True, slots=True)
class AMFClassifierParams:
    """Everything that, with the samples, determines an AMF classifier. See AMFClassifier for the meanings."""

    n_estimators: int = 10
    classes: tuple[Label, ...] | None = None
    seed: int = 0
    scaling: Literal["auto", "none"] = "auto"
    prior: Literal["parent", "dirichlet"] = "parent"
    smoothing: float = 0.4
    dirichlet: float | None = None
    charge_first: bool = False
    split_pure: bool = False
    max_bytes: int = 64_000_000
    max_classes: int = 1000
    max_features: int = 10_000

    def __post_init__(self) -> None:
        check_whole("n_estimators", self.n_estimators, 1, 10_000)
        check_whole("seed", self.seed, 0, 2**64 - 1)
        _check(self.scaling in ("auto", "none"), f"scaling must be 'auto' or 'none', got {self.scaling!r}")
        _check(self.prior in ("parent", "dirichlet"), f"prior must be 'parent' or 'dirichlet', got {self.prior!r}")
        _positive("smoothing", self.smoothing)
        if self.dirichlet is not None:
            _positive("dirichlet", self.dirichlet)
            _check(self.prior == "dirichlet", "dirichlet needs prior='dirichlet'")
        for name in ("charge_first", "split_pure"):
            _check(isinstance(getattr(self, name), bool), f"{name} must be True or False, got {getattr(self, name)!r}")
        check_whole("max_bytes", self.max_bytes, 1, 2**63 - 1)
        check_whole("max_classes", self.max_classes, 2, 65_536)
        check_whole("max_features", self.max_features, 1, 1_000_000)
        if self.classes is not None:
            _check(None not in self.classes, "classes holds None or NaN, which stand for a missing label")
            texts = [class_text(label) for label in self.classes]
            _check(len(texts) >= 2, f"classes needs at least two labels, got {len(texts)}")
            _check(len(set(texts)) == len(texts), f"classes names one class twice: {texts}")
            _check(
                len(texts) <= self.max_classes, f"classes has {len(texts)} labels, max_classes is {self.max_classes}"
            )

    def strength(self, n_classes: int) -> float:
        """Weight of the prior in a forecast (forecasters.py), in labels."""
        if self.prior == "parent":
            return float(self.smoothing)
        # The public package's choice: Krichevsky-Trofimov for two classes, far sparser for more.
        return (self.dirichlet or (0.5 if n_classes <= 2 else 0.01)) * n_classes

    def as_dict(self) -> dict[str, Any]:
        """Plain values, in the order of declaration."""
        return asdict(self)
