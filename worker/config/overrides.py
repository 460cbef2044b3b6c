"""Which overrides one model may have together, and whether a forest takes what they make of its parameters."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from worker.config.model import ModelParams, Override

_WILD = re.compile(r"[*?\[\]]")


def misfits(default: ModelParams, overrides: Sequence[Override]) -> Iterator[tuple[int, str]]:
    """(place of an override, why no forest takes it on top of the default or of an earlier one).

    Each is by itself what a forest takes. But one may name an algorithm to which a value means nothing that another
    one gives.
    """
    first: dict[str, int] = {}
    distinct = [first.setdefault(repr(override.params), place) for place, override in enumerate(overrides)]
    problems: dict[tuple[int, int], str | None] = {}
    for place, met in enumerate(earlier_that_meet([override.match for override in overrides])):
        override = overrides[place]
        for below in (None, *met):
            pair = (-1 if below is None else distinct[below], distinct[place])
            if pair not in problems:
                under = default if below is None else replace(default, **overrides[below].params)
                problems[pair] = _refusal(replace(under, **override.params))
            problem = problems[pair]
            if problem is not None:
                on_top = "the default" if below is None else f"overrides[{below}]"
                yield place, f"on top of {on_top}: {problem}"
                break


def earlier_that_meet(patterns: Sequence[str]) -> Iterator[list[int]]:
    """Of each pattern the places of those before it that may match a text which it matches.

    Of two that do, one begins as the other one does: to compare each with each would take minutes for thousands.
    """
    begins = [_WILD.split(pattern)[0] for pattern in patterns]
    in_order = sorted(set(begins))
    places: dict[str, list[int]] = defaultdict(list)
    for place, (pattern, begin) in enumerate(zip(patterns, begins, strict=True)):
        near = [other for n in range(len(begin)) for other in places.get(begin[:n], ())]
        for longer in in_order[bisect_left(in_order, begin) :]:
            if not longer.startswith(begin):
                break
            near += places.get(longer, ())
        yield sorted(other for other in near if may_match_both(patterns[other], pattern))
        places[begin].append(place)


def _refusal(params: ModelParams) -> str | None:
    try:
        params.of_forest(seed=0)
    except ValueError as error:
        return str(error)
    return None


def may_match_both(one: str, other: str) -> bool:
    """Whether a text may match both glob patterns: False only where none does."""
    for text, pattern in ((one, other), (other, one)):
        if not _WILD.search(text):
            return fnmatchcase(text, pattern)
    ends = ((_WILD.split(one)[end], _WILD.split(other)[end]) for end in (0, -1))
    (begin, other_begin), (tail, other_tail) = ends
    begins_alike = begin.startswith(other_begin) or other_begin.startswith(begin)
    return begins_alike and (tail.endswith(other_tail) or other_tail.endswith(tail))
