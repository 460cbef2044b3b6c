"""How many records of a partition a turn takes, by the memory that their models and copies of them need."""

from __future__ import annotations

import math
from typing import Any

import pytest

from worker.base.records import Record, Reject
from worker.task.allowance import Allowance


class Figures:
    """Bytes of models by their keys: of copies that wait to be saved; and 100 of each model, 40 of them yet to come."""

    in_copy_on_write = True

    def __init__(self, **waiting: int) -> None:
        self._waiting = waiting
        self.used: list[str] = []

    def waiting_bytes(self, key: str) -> int:
        return self._waiting.get(key, 0)

    def memory(self, key: str) -> tuple[int, int]:
        return 60, 40

    def note_use(self, key: str) -> None:
        self.used.append(key)


idle = Figures()
idle.in_copy_on_write = False


def taken(allowance: Allowance, keys: str, models: Any = None) -> int:
    """How many records are taken of one for each letter; `?` is the key of no model."""
    records = [Record(i, 0, key.encode(), b"", []) for i, key in enumerate(keys)]

    def model_key(key: bytes | None) -> str | Reject:
        return Reject("null-key", "there is none") if key is None or key == b"?" else key.decode()

    return allowance.affordable(records, model_key, models or Figures())


def test_one_record_is_taken_whatever_it_needs() -> None:
    assert taken(Allowance(1, 1, 0, 1.0), "abc") == 1
    assert taken(Allowance(1, 1, 0, math.inf), "abc", Figures(a=7, b=7)) == 1


def test_a_model_counts_once_however_many_records_it_has() -> None:
    models = Figures()
    assert taken(Allowance(1, 1, 0, 200.0), "abbaab", models) == 6
    assert models.used == ["a", "b"]
    assert taken(Allowance(1, 1, 0, 200.0), "abbaabc") == 6


def test_a_record_of_no_model_needs_nothing_and_ends_nothing() -> None:
    assert taken(Allowance(1, 1, 0, 200.0), "a??b?c") == 5


def test_where_memory_has_no_bound_copies_have_theirs() -> None:
    models = Figures(a=10, b=10, c=10)
    assert taken(Allowance(1, 1, 20, math.inf), "xabyc", models) == 4
    assert taken(Allowance(1, 1, 19, math.inf), "xabyc", models) == 2
    assert taken(Allowance(1, 1, 9, math.inf), "axyz", models) == 4, (
        "what needs no copy is taken where there is no room"
    )


def test_copies_are_of_the_memory_of_models_too() -> None:
    assert taken(Allowance(1, 1, 1000, 209.0), "ab", Figures(a=10)) == 1
    assert taken(Allowance(1, 1, 1000, 210.0), "ab", Figures(a=10)) == 2


def test_partitions_share_what_there_is_for_copies() -> None:
    models, allowance = Figures(a=10, b=10, c=10, d=10), Allowance(2, 2, 40, math.inf)
    assert taken(allowance, "abcd", models) == 2
    assert taken(allowance, "abcd", models) == 2
    allowance = Allowance(2, 2, 40, math.inf)
    assert taken(allowance, "x", models) == 1
    assert taken(allowance, "abcd", models) == 4, "what the first one does not use is the second one's"


def test_what_is_not_in_memory_yet_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    models, allowance = Figures(a=10, b=7), Allowance(2, 2, 1000, 10_000.0)
    monkeypatch.setattr(models, "memory", lambda key: (0, 50) if key == "b" else (100, 0))
    assert [taken(allowance, keys, models) for keys in ("ab", "xb")] == [2, 2]
    assert allowance.coming_bytes == (10 + 50 + 7) + (50 + 7)


def test_who_takes_more_than_there_is_leaves_one_record_to_each_of_the_others() -> None:
    models, allowance = Figures(a=10, b=10), Allowance(3, 3, 5, 50.0)
    assert [taken(allowance, "ab", models) for _ in range(3)] == [1, 1, 1]


def test_partitions_share_the_memory_for_models_and_the_last_one_has_what_is_left() -> None:
    allowance = Allowance(3, 0, 0, 900.0)
    assert [taken(allowance, keys, idle) for keys in ("abcd", "a", "abcdefgh")] == [3, 1, 5]


def test_a_partition_that_has_no_copies_to_make_has_no_share_in_what_there_is_for_them() -> None:
    other, models, allowance = Figures(), Figures(a=10, b=10, c=10, d=10), Allowance(2, 1, 40, 10_000.0)
    other.in_copy_on_write = False
    assert taken(allowance, "xyz", other) == 3
    assert taken(allowance, "abcd", models) == 4
    allowance = Allowance(2, 1, 40, 10_000.0)
    assert taken(allowance, "abcd", models) == 4
    assert taken(allowance, "xyz", other) == 3


def test_where_nothing_waits_to_be_saved_and_memory_has_no_bound_all_is_taken() -> None:
    models = Figures()
    models.in_copy_on_write = False
    assert (taken(Allowance(1, 1, 0, math.inf), "abc", models), models.used) == (3, [])
