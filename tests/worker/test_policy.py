"""Which checkpoint is next, over minutes of a worker with many partitions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from worker.checkpoint import MOST_WRITES, Policy

STEP_S = 0.05
WRITE_S = 0.5


@dataclass(eq=False)
class Partition:
    """The checkpoints of a partition whose records take a share of the worker's time."""

    share: float
    policy: Policy
    now_s: float = 0.0
    replay_s: float = 0.0
    on_its_way_s: float = 0.0
    writing_s: float = 0.0
    last_s: float = 0.0
    is_writing: bool = False
    must_be_saved: bool = False

    @property
    def is_overdue(self) -> bool:
        return self.policy.is_over(self.now_s - self.last_s)

    def start(self) -> None:
        self.last_s, self.is_writing = self.now_s, True
        self.on_its_way_s, self.replay_s = self.replay_s, 0.0

    def pass_time(self) -> None:
        self.now_s += STEP_S
        self.replay_s += self.share * STEP_S
        if self.is_writing and self.now_s - self.last_s >= WRITE_S:
            self.is_writing, self.on_its_way_s, self.writing_s = False, 0.0, WRITE_S


def worked(shares: list[float], interval_s: float, budget_s: float) -> tuple[float, float, int]:
    """Worst time to replay, longest time between two checkpoints of a partition, most writes at a time, in s.

    Of ten minutes, after a first one in which it shows how long checkpoints take.
    """
    policy = Policy(interval_s, budget_s)
    partitions = [Partition(share, policy) for share in shares]
    worst_s, longest_s, most = 0.0, 0.0, 0
    for step in range(round(600 / STEP_S)):
        for each in partitions:
            each.pass_time()
        first = policy.most_urgent(partitions, [each for each in partitions if each.replay_s and not each.is_writing])
        if first is not None:
            longest_s = max(longest_s, first.now_s - first.last_s)
            first.start()
        if step > 60 / STEP_S:
            worst_s = max(worst_s, sum(each.replay_s + each.on_its_way_s for each in partitions))
        most = max(most, sum(each.is_writing for each in partitions))
    return worst_s, longest_s, most


@pytest.mark.parametrize("n", [1, 3, 20, 100])
@pytest.mark.parametrize("interval_s", [5.0, 30.0])
def test_a_budget_that_is_spent_comes_before_an_interval_that_is_over(n: int, interval_s: float) -> None:
    worst_s, _, most = worked([1 / n] * n, interval_s, budget_s=10.0)
    assert worst_s <= 10.0 + 2 * STEP_S
    assert most <= MOST_WRITES


def test_one_busy_partition_among_quiet_ones_keeps_the_budget_and_holds_none_of_them_up() -> None:
    worst_s, longest_s, _ = worked([0.9] + [0.001] * 99, interval_s=60.0, budget_s=10.0)
    assert worst_s <= 10.5
    assert longest_s <= 2 * 60.0


def test_what_is_overdue_is_saved_while_the_budget_cannot_be_kept() -> None:
    worst_s, longest_s, _ = worked([0.01] * 90 + [0.001] * 100, interval_s=30.0, budget_s=0.5)
    assert worst_s > 0.5
    assert longest_s <= 200.0


def test_within_the_budget_one_is_on_its_way_at_a_time() -> None:
    assert worked([0.001] * 50, interval_s=60.0, budget_s=10.0)[2] == 1


def test_a_checkpoint_whose_store_hangs_holds_up_no_other_partition() -> None:
    policy = Policy(interval_s=5.0, recovery_budget_s=1000.0)
    hung, *others = partitions = [Partition(0.01, policy) for _ in range(4)]
    hung.is_writing = True
    longest_s, last_s = 0.0, dict.fromkeys(map(id, others), 0.0)
    for _ in range(round(120 / STEP_S)):
        for each in partitions:
            each.now_s += STEP_S
            each.replay_s += each.share * STEP_S
        for each in others:
            if each.is_writing and each.now_s - each.last_s >= WRITE_S:
                each.is_writing = False
        first = policy.most_urgent(partitions, [each for each in others if not each.is_writing])
        if first is not None:
            longest_s = max(longest_s, first.now_s - last_s[id(first)])
            last_s[id(first)] = first.now_s
            first.start()
            assert sum(each.is_writing for each in others) == 1
    assert max(last_s.values()) > 0.0
    longest_s = max(longest_s, *(each.now_s - last_s[id(each)] for each in others))
    assert longest_s <= policy.interval_s + 3 * WRITE_S + 2 * STEP_S


def test_the_interval_is_over_at_its_end() -> None:
    policy = Policy(interval_s=30.0, recovery_budget_s=10.0)
    assert policy.is_over(30.0)
    assert not policy.is_over(29.9)


@pytest.mark.parametrize(
    ("replay_s", "writing_s", "spent"),
    [(9.9, 0.0, False), (10.0, 0.0, True), (7.9, 2.0, False), (8.0, 2.0, True), (4.9, 60.0, False), (5.0, 60.0, True)],
)
def test_the_recovery_budget_leaves_room_for_the_time_that_writing_takes(
    replay_s: float, writing_s: float, spent: bool
) -> None:
    assert Policy(interval_s=30.0, recovery_budget_s=10.0).spent(replay_s, writing_s) is spent


def test_a_partition_that_waits_for_its_checkpoint_goes_first_as_long_as_there_is_a_place() -> None:
    policy = Policy(interval_s=30.0, recovery_budget_s=10.0)
    busy, waiting = Partition(0.5, policy, replay_s=9.9), Partition(0.0, policy, must_be_saved=True)
    writing = [Partition(0.1, policy, is_writing=True) for _ in range(MOST_WRITES)]
    assert policy.most_urgent([busy, waiting], [busy, waiting]) is waiting
    assert policy.most_urgent([busy, waiting, *writing[1:]], [busy, waiting]) is waiting
    assert policy.most_urgent([busy, waiting, *writing], [busy, waiting]) is None
