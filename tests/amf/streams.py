"""Hostile streams and parameters, each a function of a seed alone: what no forest may break on.

Features come column by column in the kinds of COLUMNS, all columns in one of them or each in its own, and are then
spoiled as a table by SPOILERS. Labels come in the kinds of CLASSES or NUMBERS, and some lose stretches of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amf

Generator = np.random.Generator
Column = NDArray[np.float64]
Table = NDArray[np.float64]
NEVER = (-1, -2, -3)
"""Classes that are declared at times and never come."""
NO_FLOOR = -1.0
"""Of forests that may rule a class out."""


@dataclass(frozen=True)
class Case:
    """A stream, the forest that is to learn it, and how.

    new: makes the forest, which has learned nothing. x: (n, d). y: n labels, None where there is none. probes: (m, d)
    rows to ask about once all is learned. cuts: rows at which the stream is cut into batches. floor: what each known
    class is given at least. name: all of it in words.
    """

    name: str
    new: Callable[..., Any]
    x: NDArray[Any]
    y: list[Any]
    probes: NDArray[Any]
    cuts: list[int]
    floor: float = 0.0


# Columns: (generator, n) -> float64 (n,).


def late_move(rng: Generator, n: int) -> Column:
    """Constant, until a late row moves it once."""
    column = np.full(n, rng.normal())
    column[int(rng.integers(n // 2, n)) :] += rng.choice([1e-6, 1.0, 1e6])
    return column


def sparse(rng: Generator, n: int) -> Column:
    return np.where(rng.random(n) < rng.choice([0.3, 0.9, 0.99]), 0.0, rng.normal(size=n))


def sparse_heavy(rng: Generator, n: int) -> Column:
    return np.where(rng.random(n) < 0.3, 0.0, np.exp(rng.normal(0, 3, n)))


def magnitudes(lowest: float, highest: float) -> Callable[[Generator, int], Column]:
    """Numbers of either sign whose logarithms are uniform."""
    return lambda rng, n: rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(lowest, highest, n)


COLUMNS: dict[str, Callable[[Generator, int], Column]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, rng.choice([0.0, 1.0, -1e30, 1e-30])),
    "late move": late_move,
    "sparse": sparse,
    "sparse heavy": sparse_heavy,
    "exp(N(0, 3))": lambda rng, n: np.exp(rng.normal(0, 3, n)),
    "exp(N(0, 6))": lambda rng, n: np.exp(rng.normal(0, 6, n)),
    "ties": lambda rng, n: rng.integers(0, rng.choice([2, 3, 10]), n).astype(float),
    "large integers": lambda rng, n: 1.7e9 + rng.integers(0, 100, n),
    "random walk": lambda rng, n: np.cumsum(rng.normal(size=n)),
    "rising": lambda rng, n: np.arange(n) * rng.choice([1e-9, 1.0, 1e9]),
    "1e-30 and 1e30": lambda rng, n: rng.choice([1e-30, -1e-30, 1e30, -1e30, 0.0], n),
    "1e-38 to 1e38": magnitudes(-38, 38),
    "1e-300 to 1e300": magnitudes(-300, 300),
    "denormal": lambda rng, n: rng.integers(-3, 4, n) * 5e-324,
    "neighbours": lambda rng, n: 1.0 + rng.integers(0, 4, n) * np.finfo(np.float32).eps,
}


# Spoilers change a table in place.


def outliers_first(rng: Generator, x: Table) -> None:
    first = slice(0, int(rng.integers(1, 4)))
    x[first] = rng.choice([1e3, 1e12, 1e38]) * rng.choice([-1.0, 1.0], x[first].shape)


def rare_outliers(rng: Generator, x: Table) -> None:
    x[rng.random(x.shape) < 0.02] = rng.choice([-1e9, 1e30])


def missing(rng: Generator, x: Table) -> None:
    x[rng.random(x.shape) < rng.choice([0.05, 0.5, 0.95])] = np.nan


def missing_later(rng: Generator, x: Table) -> None:
    x[int(rng.integers(0, len(x))) :, rng.random(x.shape[1]) < 0.5] = np.nan


def missing_at_first(rng: Generator, x: Table) -> None:
    x[: int(rng.integers(0, len(x))), rng.random(x.shape[1]) < 0.5] = np.nan


def all_missing(rng: Generator, x: Table) -> None:
    x[:, rng.random(x.shape[1]) < 0.7] = np.nan


def rows_of_nothing(rng: Generator, x: Table) -> None:
    x[rng.random(len(x)) < 0.6] = rng.choice([0.0, np.nan])


def duplicates(rng: Generator, x: Table) -> None:
    x[:] = x[rng.integers(0, max(1, int(len(x) * rng.choice([0.02, 0.3]))), len(x))]


def one_hot(rng: Generator, x: Table) -> None:
    x[:] = np.eye(x.shape[1])[rng.integers(0, x.shape[1], len(x))]


SPOILERS = [
    outliers_first, rare_outliers, missing, missing_later, missing_at_first, all_missing, rows_of_nothing, duplicates,
    one_hot,
]  # fmt: skip


# Classes: (generator, x) -> n integers.


def odd_one(rng: Generator, x: Table) -> NDArray[Any]:
    """One label for long, then once another one."""
    labels = np.zeros(len(x), int)
    labels[int(rng.integers(len(x) // 2, len(x)))] = 1
    return labels


def noise_and_odd_one(rng: Generator, x: Table) -> NDArray[Any]:
    """Two labels at random for long, then once a third one."""
    labels = rng.integers(0, 2, len(x))
    labels[int(rng.integers(len(x) // 2, len(x)))] = 2
    return labels


def runs(rng: Generator, x: Table) -> NDArray[Any]:
    """Long stretches of one label each."""
    return np.cumsum(rng.random(len(x)) < 0.03) % rng.integers(2, 6)


CLASSES: dict[str, Callable[[Generator, Table], NDArray[Any]]] = {
    "random": lambda rng, x: rng.integers(0, rng.integers(2, 7), len(x)),
    "signal": lambda rng, x: (np.nan_to_num(x[:, 0]) > np.median(np.nan_to_num(x[:, 0]))).astype(int),
    "constant": lambda rng, x: np.zeros(len(x), int),
    "odd one": odd_one,
    "noise, odd one": noise_and_odd_one,
    "runs": runs,
    "arriving": lambda rng, x: rng.integers(0, 1 + np.arange(len(x)) * 8 // len(x)),
    "imbalanced": lambda rng, x: (rng.random(len(x)) < 0.01).astype(int),
    "1,000 classes": lambda rng, x: rng.integers(0, 1000, len(x)),
    "all different": lambda rng, x: np.arange(len(x)) % 1000,
}


# Numbers: (generator, n) -> float64 (n,).


def jumps(rng: Generator, n: int) -> Column:
    """The scale changes all at once."""
    return rng.normal(size=n) * np.where(np.arange(n) < n // 2, *rng.permutation([1e-6, 1e6]))


def constant_and_one(rng: Generator, n: int) -> Column:
    labels = np.full(n, rng.choice([0.0, -3.5, 1e9]))
    labels[int(rng.integers(n // 2, n))] += rng.choice([1e-6, 1.0, 1e9])
    return labels


NUMBERS: dict[str, Callable[[Generator, int], Column]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, rng.choice([0.0, 7.0, -1e12])),
    "constant and one": constant_and_one,
    "integers": lambda rng, n: rng.integers(-2, 3, n).astype(float),
    "1e-9 to 1e12": magnitudes(-9, 12),
    "1e-300 to 1e-100": magnitudes(-300, -100),
    "1e70 to 1e75": magnitudes(70, 75),
    "huge offset": lambda rng, n: 1e12 + rng.normal(size=n),
    "outliers": lambda rng, n: rng.normal(size=n) * np.where(rng.random(n) < 0.02, 1e9, 1.0),
    "outlier first": lambda rng, n: np.append(rng.choice([-1e12, 1e75]), rng.normal(size=n - 1)),
    "jumps": jumps,
}


# Cases.


def case(family: str, seed: int) -> Case:
    """The hostile case of a seed. family: that of a forest ("amf-classifier", ...)."""
    rng = np.random.default_rng([seed, *family.encode()])
    n, d = _length(rng), int(rng.choice([1, 2, 3, 5, 8, 17, 40], p=[0.15, 0.2, 0.2, 0.2, 0.15, 0.07, 0.03]))
    d = min(d, amf.SYSTEMS[family].Parameters.MOST_FEATURES)
    features, x = _table(rng, n, d)
    probes = np.vstack([x[rng.integers(0, n, 5)], [np.full(d, value) for value in (0.0, np.nan, 1e30, -1e30, 1e-30)]])
    on_cube = "increasing" in family and seed % 3 == 0
    if family == "unrestricted-amf-classifier" or on_cube:
        x, probes = _in_unit_cube(x), _in_unit_cube(probes)
    elif rng.random() < 0.1 and not np.any(np.abs(x) > 1e38):
        x, probes = x.astype(np.float32), probes.astype(np.float32)
    draw = _numbers if family.endswith("regressor") else _classes
    labels, y, parameters, floor = draw(rng, family, x)
    if on_cube:
        parameters |= {"domain": "cube", "empty_cells": str(rng.choice(["parent", "zero"]))}
    hidden = _unlabelled(rng, n)
    y = [None if hide else label for hide, label in zip(hidden, y, strict=True)]
    cuts = sorted(rng.integers(0, n + 1, rng.integers(1, 6)).tolist())
    new = _maker(family, parameters)
    said = ", ".join(f"{key}={_short(value)}" for key, value in parameters.items())
    name = f"{family}, seed {seed}: {n} rows of {d} features ({features}); labels: {labels}; {said}"
    return Case(name, new, x, y, probes, cuts, floor)


def _length(rng: Generator) -> int:
    kind = rng.random()
    if kind < 0.02:
        return int(rng.integers(400, 1500))
    return int(rng.integers(100, 200) if kind < 0.2 else rng.integers(20, 100))


def _table(rng: Generator, n: int, d: int) -> tuple[str, Table]:
    kinds = rng.choice([*COLUMNS], d) if rng.random() < 0.5 else np.full(d, rng.choice([*COLUMNS]))
    x = np.column_stack([COLUMNS[kind](rng, n) for kind in kinds])
    spoilers = [spoil for spoil in SPOILERS if rng.random() < 0.12]
    for spoil in spoilers:
        spoil(rng, x)
    return ", ".join([*dict.fromkeys(kinds.tolist()), *(spoil.__name__ for spoil in spoilers)]), x


def _in_unit_cube(x: Table) -> Table:
    """Numbers between 0 and 1, in their order, the whole of the range included."""
    x = np.nan_to_num(x)
    return np.clip(x / (1.0 + np.abs(x)) * 0.75 + 0.5, 0.0, 1.0)


def _unlabelled(rng: Generator, n: int) -> NDArray[np.bool_]:
    """A run of rows without a label, or some here and there, or none."""
    hidden = np.zeros(n, np.bool_)
    kind = rng.random()
    if kind < 0.2:
        start = int(rng.integers(0, n))
        hidden[start : start + int(rng.integers(1, n))] = True
    elif kind < 0.4:
        hidden = rng.random(n) < rng.choice([0.1, 0.9])
    return hidden


def _classes(rng: Generator, family: str, x: Table) -> tuple[str, list[Any], dict[str, Any], float]:
    """(kind, labels, parameters, floor)."""
    kind = str(rng.choice([*CLASSES], p=_rare({"1,000 classes": 0.03, "all different": 0.03}, CLASSES)))
    y = CLASSES[kind](rng, x).tolist()
    parameters = _parameters(rng, family)
    if rng.random() < 0.4:
        parameters["classes"] = sorted({*y, *range(2)}) + list(NEVER if rng.random() < 0.3 else ())
    prior = rng.random()
    if family.startswith(("increasing", "bsp")):
        return kind, y, parameters | ({"combine": "vote"} if prior < 0.3 else {}), NO_FLOOR
    if family == "mondrian-classifier":
        return kind, y, parameters | _of_mondrian_classes(prior, rng), NO_FLOOR
    if prior < 0.1:
        parameters |= {"prior": "dirichlet", "dirichlet": float(rng.choice([1e-9, 0.01, 0.5, 1e9]))}
    elif prior < 0.2:
        parameters |= {"prior": "dirichlet"}
    elif prior < 0.3:
        parameters |= {"smoothing": float(rng.choice([1e-9, 0.1, 10.0, 1e9]))}
    ordinary = parameters.get("preset", "default") == "default" and not {"dirichlet", "smoothing"} & {*parameters}
    return kind, y, parameters, 1e-12 if ordinary else 0.0


def _of_mondrian_classes(choice: float, rng: Generator) -> dict[str, Any]:
    if choice < 0.2:
        return {"smoothing": "path_mean"}
    return {"discount": float(rng.choice([1e-9, 1.0, 1e9]))} if choice < 0.4 else {}


def _rare(shares: dict[str, float], kinds: dict[str, Any]) -> list[float]:
    """Probabilities of the kinds: some have theirs, the others what remains."""
    rest = (1.0 - sum(shares.values())) / (len(kinds) - len(shares))
    return [shares.get(kind, rest) for kind in kinds]


def _numbers(rng: Generator, family: str, x: Table) -> tuple[str, list[Any], dict[str, Any], float]:
    """(kind, labels, parameters, no floor)."""
    kind = str(rng.choice([*NUMBERS]))
    y = NUMBERS[kind](rng, len(x))
    parameters = _parameters(rng, family)
    aggregates = family in ("amf-regressor", "adaptive-regressor")
    if aggregates and (parameters.get("preset") == "paper" or rng.random() < 0.15):
        # Labels beyond the bound break a promise of the caller's: no reason to break down.
        bound = np.abs(y).max() * rng.choice([1.0, 1.0, 0.1, 0.001])
        parameters |= {"loss": "square", "bound": float(np.clip(bound, 1e-9, 1e9))}
    if rng.random() < 0.2:
        parameters["calibration"] = False
    return kind, y.tolist(), parameters, 0.0


def _parameters(rng: Generator, family: str) -> dict[str, Any]:
    """What all forests have. "preset" stands for the preset's."""
    parameters: dict[str, Any] = {"n_estimators": int(rng.integers(1, 6)), "seed": int(rng.integers(0, 2**63))}
    shows_lifetimes, of_adaptive = family.startswith(("increasing", "bsp")), family.startswith("adaptive")
    restricted, aggregates = family != "unrestricted-amf-classifier", "amf" in family or of_adaptive
    if rng.random() < 0.2:
        parameters["preset"] = "paper"
    elif restricted and aggregates and rng.random() < 0.3:
        parameters["mode"] = str(rng.choice(["sampled", "expected"]))
    if aggregates and rng.random() < 0.2:
        parameters["charge_first"] = bool(rng.integers(0, 2))
    if restricted and not shows_lifetimes and rng.random() < 0.25:
        parameters["split_pure"] = True
    if restricted and rng.random() < 0.25:
        parameters["scaling"] = "none"
    if rng.random() < 0.3:
        parameters["max_bytes"] = int(rng.choice([1, 5_000, 20_000, 100_000]))
    if not aggregates:
        parameters |= _of_lifetimes(rng, family) if shows_lifetimes else _of_mondrians(rng)
    if of_adaptive:
        parameters |= {"review_every": int(rng.choice([1, 5, 20])), "background": float(rng.choice([0.0, 0.4, 0.9]))}
    return parameters


def _of_mondrians(rng: Generator) -> dict[str, Any]:
    """What the forests have that average over no prunings."""
    parameters: dict[str, Any] = {}
    if rng.random() < 0.3:
        parameters["lifetime"] = float(rng.choice([1e-30, 0.01, 1.0, 30.0, 1e30]))
    if rng.random() < 0.3:
        parameters["min_samples_split"] = int(rng.choice([1, 3, 20, 2**31 - 1]))
    return parameters


def _of_lifetimes(rng: Generator, family: str) -> dict[str, Any]:
    """What the forests have whose trees are seen up to a lifetime."""
    parameters: dict[str, Any] = {}
    if rng.random() < 0.4:
        parameters["lifetime"] = float(rng.choice([1e-30, 0.01, 30.0, 1e30]))
    if rng.random() < 0.4:
        parameters["lifetime_exponent"] = float(rng.choice([0.0, 0.01, 1.0, 10.0]))
    if family.startswith("bsp") and rng.random() < 0.3:
        parameters["rate_scale"] = float(rng.choice([1e-9, 0.01, 1.0, 1e9]))
        parameters["min_samples_split"] = int(rng.choice([1, 3, 20, 2**31 - 1]))
    return parameters


FAMILIES = amf.SYSTEMS


def _maker(family: str, parameters: dict[str, Any]) -> Callable[[], Any]:
    plain = {name: value for name, value in parameters.items() if name != "preset"}
    preset = parameters.get("preset", "default")
    return lambda: FAMILIES[family].preset(preset, **plain)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(value)} of them)"
