"""A group that is before its checkpoints: nothing is published a second time unless that is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.worker.support.bench import Bench, learned, of_input, saved_bench


def test_a_group_that_lost_commits_stops_instead_of_publishing_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = saved_bench(2)
    bench.broker.committed[0] = 4
    bench.feed("a")
    bench.feed("a", partition=1)
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {"group-rewound": 1}
    assert "events[0]: the group is at offset 4, but has been at 5" in caplog.text
    assert (learned(bench, 0), learned(bench, 1)) == ([*range(5)], [*range(6)])
    worker.close()
    # The broker has found its commits again, or they were set forward by hand.
    bench.broker.committed[0] = 5
    assert bench.worker("three").join().turns(2).stops() == {}
    assert learned(bench, 0) == [*range(6)]


def test_a_group_whose_offsets_have_expired_says_what_it_may_repeat(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(2)
    bench.feed(*"ab")
    bench.worker().join().turns(2).close()
    assert "the group has no offset" not in caplog.text
    bench.broker.committed.clear()
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {}
    # The other partition has been at no other offset than the one with which its history began.
    said = [record.getMessage() for record in caplog.records if "the group has no offset" in record.getMessage()]
    assert len(said) == 1
    assert "events[0]: the group has no offset, going on from the newest checkpoint, at 2" in said[0]


@pytest.mark.parametrize("at_least_once", [False, True])
def test_a_group_may_be_set_back_where_repetition_is_accepted(
    at_least_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = saved_bench()
    if at_least_once:
        bench.config = replace(bench.config, delivery="at-least-once")
    else:
        bench.config = of_input(bench.config, on_rewind="accept")
    bench.broker.committed[0] = 3
    worker = bench.worker("two").join().turns(2)
    assert worker.stops() == {}
    assert learned(bench) == [*range(5), 3, 4]
    again = bench.published()
    assert again[3:5] == again[5:]
    # At least once a worker that was put out of the group may set it back: that is no news.
    repeated = "events[0]: the group is at offset 3, but has been at 5: the records in between"
    assert (repeated in caplog.text) is not at_least_once
