"""Random input of every sort: what a model learns, what it only predicts, and what it must refuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from tests.worker.support.fake_broker import Log

NAMES = ("x", "y", "z")
CATEGORIES = ("red", "green", "blue", "=", "1")
LABELS = ("a", "b", 1, "1", True)
NUMBERS = (0, 1, 1.5, -2.5, -1e75, 1e75, 10**30)

MALFORMED = (
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"label": "a"}',
    b'{"features": []}',
    b'{"features": [NaN], "label": "a"}',
    b'{"features": ["1"], "label": "a"}',
    b'{"features": {"x": "NaN", "y": 1}, "label": "a"}',
    b'{"features": {"x": "red", "y": true}, "label": "a"}',
    b'{"features": [1e999], "label": "a"}',
    b'{"features": [1.5], "label": [1.5]}',
    b'{"features": [1.5], "label": 1e76}',
)


class Source:
    """Events for a few model keys, each of which has a taste of its own: arrays of some length, or objects.

    What is a number in one object may be a category in the next, and some objects have no value at all. `has_numbers`
    tells whose labels are numbers; a few are what they should not be.
    """

    def __init__(self, rng: random.Random, has_numbers: Callable[[str], bool] = lambda key: False) -> None:
        self._rng = rng
        self._has_numbers = has_numbers
        self._n_keys = rng.randint(1, 3)
        self._n_labels = rng.randint(1, len(LABELS))
        self._width = [rng.randint(0, 2) for _ in range(self._n_keys)]

    def feed(self, logs: Mapping[int, Log], n: int, quiet: Collection[int], *, marked: bool, in_doubt: bool) -> None:
        """Append so many records, to none of the `quiet` partitions.

        marked: with markers of transactions behind them. in_doubt: some of them in transactions that stay open.
        """
        for i in range(n):
            number = self._rng.randrange(len(logs))
            if number in quiet:
                continue
            log = logs[number]
            if in_doubt and log.open_from is None and self._rng.random() < 0.3:
                log.begin()
            key, value = self.draw(number)
            headers = [("trace", b"%d" % i)] if i % 2 else []
            log.append(key, value, headers, gap=self._rng.choice((0, 0, 0, 0, 1, 3)))
            if marked:
                log.mark(1 + i % 2)

    def settle(self, log: Log) -> None:
        """What is in doubt of a log is so no more: it is committed, or some of it is aborted."""
        begun = [record.offset for record in log.records if record.offset >= log.stable]
        log.settle(self._rng.sample(begun, self._rng.choice((0, 0, len(begun) // 2, len(begun)))))

    def draw(self, partition: int) -> tuple[bytes | None, bytes | None]:
        """Key and value of a record."""
        rng = self._rng
        number = rng.randrange(self._n_keys)
        key: bytes | None = b"%d.%d" % (partition, number)
        sort = rng.random()
        if sort < 0.04:
            key = None
        elif sort < 0.05:
            key = b"\xff"
        elif sort < 0.09:
            return key, None
        elif sort < 0.15:
            return key, rng.choice(MALFORMED)
        event: dict[str, Any] = {"features": self._features(number if sort < 0.95 else rng.randrange(9))}
        if rng.random() < 0.75:
            event["label"] = self._label(key)
        if rng.random() < 0.3:
            event["id"] = str(number)
        return key, msgspec.json.encode(event)

    def _label(self, key: bytes | None) -> Any:
        rng = self._rng
        if self._has_numbers("" if key is None else key.decode(errors="replace")) == (rng.random() < 0.96):
            return rng.choice((*NUMBERS, rng.random()))
        return LABELS[rng.randrange(self._n_labels)]

    def _features(self, taste: int) -> Any:
        """A number outside of the keys stands for the taste of some other model."""
        rng = self._rng
        width = self._width[taste] if taste < self._n_keys else taste % 3
        if width == 0:
            return {
                name: rng.choice(CATEGORIES) if rng.random() < 0.4 else self._number()
                for name in rng.sample(NAMES, rng.randint(1, 3))
            }
        return [self._number() for _ in range(width)]

    def _number(self) -> float | None:
        return self._rng.choice((None, 0.0, 1.0, -1e300, 1e300, self._rng.random(), self._rng.random()))
