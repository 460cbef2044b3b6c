"""Questions about offsets: what an answer that is none is taken for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from tests.worker.support.fakes import config
from worker.adapters.kafka.offsets import Offsets
from worker.base.errors import Transient


class Admin:
    """Answers questions about offsets with these, one after the other."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        future = Future[Any]()
        future.set_result(SimpleNamespace(offset=self._offsets.pop(0)))
        return dict.fromkeys(asked, future)


@pytest.mark.parametrize(
    "answers",
    [(OFFSET_INVALID,) * 3, (3, OFFSET_INVALID, 4), (OFFSET_INVALID, 3, 3), (3, 3, OFFSET_INVALID)],
)
def test_a_partition_of_which_the_broker_names_no_offsets_is_asked_about_again(
    answers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [Admin(*answers), Admin(3, 7, 9)]
    monkeypatch.setattr("worker.adapters.kafka.offsets.client", lambda kind, properties: clients.pop(0))
    offsets = Offsets(config(), [])
    with pytest.raises(Transient, match="the partition may have no leader"):
        offsets.bounds(0)
    assert offsets.bounds(0) == (3, 7, 9)
