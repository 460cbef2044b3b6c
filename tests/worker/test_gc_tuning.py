"""Python's garbage collector, kept out of the way of a start and of the work."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from worker.base import gc_tuning


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_it_is_paused_while_modules_are_imported_and_never_looks_at_them_again() -> None:
    gc.unfreeze()
    with gc_tuning.paused():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_it_goes_on_where_an_import_fails() -> None:
    with pytest.raises(ImportError), gc_tuning.paused():
        raise ImportError
    assert gc.isenabled()


def test_in_the_work_it_still_looks_now_and_then() -> None:
    gc_tuning.calm()
    assert gc.isenabled()
    assert gc.get_threshold()[0] > 100_000
