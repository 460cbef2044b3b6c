"""What a partition stops for is said whole, also where a part of it cannot be found out."""

from __future__ import annotations

import pytest

from tests.worker.support.checkpoints import write
from worker.base.errors import Transient
from worker.checkpoint import Checkpoints
from worker.task.requirements import no_checkpoint


def test_a_store_that_does_not_say_what_else_it_has_is_no_reason_not_to_say_why(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> list[str]:
        raise Transient("the store says 503")

    write(checkpoints, 7, {"a": b"1"})
    monkeypatch.setattr(checkpoints, "other_lineages", silent)
    stop = no_checkpoint("events[3]", checkpoints, 5)
    assert "(the oldest is at 7)" in stop.fact
    assert stop.hint.startswith("Check checkpoint.url and checkpoint.lineage; or begin anew")
