"""Single values, as callers have them: what each of them is to the library, and which of them are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST_NUMBER = 1e75
"""Labels that are numbers may be as large as this: the square of their sum stays finite."""
_LARGEST_WHOLE = 2**63 - 1
_NO_REALS = {"M": "dates", "m": "durations", "c": "complex numbers", "S": "bytes", "V": "records"}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
PYTHONS_OWN = frozenset({str, int, float, bool})


def plain(value: Any) -> Any:
    """A scalar as one of Python's own: of numpy, or of a class that derives from str, int or float; others as they are.

    So the member of an enumeration is its value, as in JSON, whatever its class says when it is asked for a text.
    """
    if type(value) in PYTHONS_OWN:
        return value
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def require_whole_characters(*values: Any) -> None:
    """Raises ValueError where a text has a character as two halves of a pair: JSON joins them to another text."""
    for text in values:
        if isinstance(text, str) and _PAIR.search(text):
            joined = 'text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")'
            raise ValueError(f"{text!r} has a character as two halves of a surrogate pair: give {joined}")


def is_na(value: Any) -> bool:
    """Whether it is what pandas has for a missing value, be it a number or a time, or numpy for a masked one: 0 as a
    number."""
    return type(value).__name__ in ("NAType", "NaTType", "MaskedConstant")


def require_reals(name: str, values: Any) -> None:
    """Raises TypeError where an array, or anything with a dtype, holds what numpy would turn into wrong numbers."""
    kind = getattr(getattr(values, "dtype", None), "kind", "f")
    if kind in _NO_REALS:
        what = f"{name} holds {_NO_REALS[kind]} ({values.dtype}), which are no numbers"
        raise TypeError(f"{what}: give seconds since some day as float, NaN where missing" if kind in "Mm" else what)


def whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Whole numbers in memory of their own, -1 where they are masked. Raises ValueError for any others, which would be
    cut off, and for those beyond int64, which would be other ones."""
    given = np.ma.filled(values, -1) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if given.size and given.dtype.kind not in "biu":
        raise ValueError(f"{name} must be whole numbers, they are {given.dtype}")
    if given.dtype == np.uint64 and given.size and given.max() > _LARGEST_WHOLE:
        raise ValueError(f"{name} must be whole numbers up to {_LARGEST_WHOLE}, one is {given.max()}")
    return np.array(given, np.int64, order="C")
