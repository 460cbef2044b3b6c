"""A slow, readable adaptive forest of classes: trees of reference.py, with feature weights and background trees.

It says what feature_weights.py, tree_roles.py and change_detection.py promise: what each step down a tree gains, what
each feature tells alone, how both become weights, when trees rehearse, when a forest begins anew, and which tree
replaces which. Sums are plain Python, so that weights are compared up to rounding, but births and roles exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from reference import ReferenceTree, SplitMix64

LARGEST_RATIO = 8.0
EVIDENCE = 16.0
MOST_KEPT = 512
"""Samples that are kept for rehearsals."""


def bins_of(values: list[float], x: np.ndarray) -> np.ndarray:
    """The bins of x, of a feature that has had these values: its quartiles are those of some of its moves."""
    moves = [pair for pair in pairwise(values) if pair[0] != pair[1]]
    stride = 1
    while len(moves) > 16 * stride:
        stride *= 2
    some = sorted(value for pair in moves[::stride] for value in pair)
    bounds = [0.0, 0.0, 0.0]
    if some:
        bounds = [(some[max(at - 1, 0)] + some[at]) / 2.0 for at in (k * len(some) // 4 for k in (1, 2, 3))]
    return np.sum([x > bound for bound in bounds], axis=0)


def gain_of(table: np.ndarray) -> float:
    """What a feature gains by itself in all, in nats, of counts (bins, classes)."""
    n = max(table.sum(), 1.0)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / n
    there = table > 0.0
    ratio = 2.0 * float(np.sum(table[there] * np.log(table[there] / expected[there])))
    bins, classes = (np.count_nonzero(table.sum(axis=axis) > 0.0) for axis in (1, 0))
    freedom = max(bins - 1, 0) * max(classes - 1, 0)
    return max(ratio - freedom - 3.0 * math.sqrt(2.0 * freedom), 0.0) / 2.0


@dataclass(eq=False)
class Place:
    """A tree with its history. births: labelled samples before its first one."""

    tree: ReferenceTree
    active: bool
    asked: bool = True
    birth: int = 0
    losses: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)
    """The same, less the mean of those of the active trees."""

    def forget(self) -> None:
        self.losses, self.off = [], []

    def judged(self, every: int) -> np.ndarray:
        """How much each loss counts, the older ones less."""
        return (1.0 - 1.0 / (6.0 * every)) ** np.arange(len(self.losses))[::-1]

    def loss(self, every: int) -> float:
        """Mean loss."""
        weights = self.judged(every)
        return float(weights @ self.losses) / max(float(weights.sum()), 1.0)

    def spread(self, every: int) -> float:
        """Mean square of what it is off the active trees."""
        weights = self.judged(every)
        return float(weights @ np.square(self.off)) / max(float(weights.sum()), 1.0)

    def is_surely_better(self, other: Place, every: int) -> bool:
        n = min(self.judged(every).sum(), other.judged(every).sum())
        error = math.sqrt(self.spread(every) + other.spread(every))
        return (other.loss(every) - self.loss(every)) * math.sqrt(n) > 1.6 * error


class AdaptiveForest:
    """Labels are 0 .. n_classes - 1; the scales of features have no weights."""

    def __init__(
        self, seed: int, n_trees: int, n_features: int, n_classes: int, background: float, every: int, **options: Any
    ) -> None:
        words, n_active = SplitMix64(seed), n_trees - int(background * n_trees)
        self.tree_of = lambda word: ReferenceTree(word, n_features, n_classes, **{"purity": 48.0, **options})
        self.places = [Place(self.tree_of(words.next()), active=number < n_active) for number in range(n_trees)]
        self.n_active = n_active
        self.every, self.n_samples, self.n_swaps = every, 0, 0
        self.beginning, self.phase = 0, "begins"
        self.current = self.suspected = 0.0
        self.new: list[Place] = []
        """Trees that are compared with the others."""
        self.lag = 0.0
        self.usual = (0.0, 0.0, 0)
        """Mean and variance of the losses of reviews, and their number."""
        self.excess = 0.0
        self.weights = np.ones(n_features)
        self.gains, self.new_gains = np.zeros((3, n_features)), np.zeros((3, n_features))
        """Of the splits on each feature: what they gained, how often they were passed, the squares of the former."""
        self.samples: list[tuple[np.ndarray, int]] = []
        self.tables = np.zeros((n_features, 4, n_classes))
        self.known: list[list[float]] = [[] for _ in range(n_features)]
        """Values of each feature at the last review, of which the bounds of its bins are made."""

    def asked(self) -> list[ReferenceTree]:
        return [place.tree for place in self.places if place.asked]

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.mean([tree.predict(x) for tree in self.asked()], axis=0)

    def learn(self, x: np.ndarray, y: int) -> None:
        self.current += self.judge(x, y)
        for place in self.places:
            self.note_gains(place.tree, x, y)
            place.tree.weights = self.weights.astype(np.float32)
            place.tree.learn(x, y)
        self.let_the_better_forecast()
        self.count(x, y)
        self.samples.append((x, y))
        self.n_samples += 1
        if self.n_samples % self.every == 0:
            self.known = [list(values) for values in (np.array([row for row, _ in self.samples]).T).tolist()]
            self.gains, self.new_gains = 0.97 * self.gains + self.new_gains, np.zeros_like(self.gains)
            self.review()

    @staticmethod
    def loss_of(tree: ReferenceTree, x: np.ndarray, y: int) -> float:
        return -math.log(min(max(tree.predict(x)[y], 1e-6), 1.0))

    def judge(self, x: np.ndarray, y: int) -> float:
        """Take in the losses of all trees. The mean of those of the active ones."""
        losses = [self.loss_of(place.tree, x, y) for place in self.places]
        if self.phase == "compares":
            of_new, of_old = [], []
            for loss, place in zip(losses, self.places, strict=True):
                (of_new if place in self.new else of_old).append(loss)
            self.lag = (15.0 / 16.0) * self.lag + float(np.mean(of_new) - np.mean(of_old))
        mean = float(np.mean([loss for loss, place in zip(losses, self.places, strict=True) if place.active]))
        for loss, place in zip(losses, self.places, strict=True):
            place.losses.append(loss)
            place.off.append(loss - mean)
        return mean

    def review(self) -> None:
        kept, loss = self.samples[self.beginning :], self.current / self.every
        has_suspected = self.phase == "suspects"
        if self.phase == "watches":
            self.watch(loss)
            kept = self.samples[self.beginning :]
        self.suspected += self.current
        self.current = 0.0
        turns = len(kept) // self.every
        is_due = len(kept) <= MOST_KEPT and turns in {1, 2, 4, 8, 16, 32, 64, 128, 256}
        is_last = 2 * len(kept) > MOST_KEPT and (is_due or len(kept) > MOST_KEPT)
        is_chance = has_suspected and turns == 2 and not self.exceeds_the_usual(loss, 2.0)
        is_tried = self.phase == "suspects" and is_due and turns > 1 and not is_chance
        if self.phase == "compares" and (is_due or is_last):
            self.decide(is_due and self.lag <= 0.0, is_last)
        elif is_tried and self.is_better_anew(kept):
            if is_last:
                self.begin()
            else:
                self.begin_to_compare(kept)
        if self.phase == "begins" and is_due:
            self.learn_weights(kept)
            self.rehearse(kept)
        else:
            self.weigh_features()
            if self.phase != "compares":
                self.replace_trees()
        if self.phase == "suspects" and (is_last or is_chance):
            self.take_for_usual(self.suspected / (len(kept) // 2), 0.5)
        elif is_due:
            self.suspected = 0.0
        if (self.phase == "watches" and self.excess == 0.0) or is_last or is_chance:
            self.phase, self.beginning, self.excess, self.suspected = "watches", self.n_samples, 0.0, 0.0

    def begin(self) -> None:
        self.phase, self.usual = "begins", (0.0, 0.0, 0)
        self.gains = np.zeros_like(self.gains)
        self.n_swaps += sum(place.active for place in self.places)
        others = [place for place in self.places if not place.active]
        for place in others[: self.n_active - (len(self.places) - len(others))]:
            place.active = True

    def begin_to_compare(self, kept: list[tuple[np.ndarray, int]]) -> None:
        """Half of the trees at least are new ones. They forecast first."""
        while len(self.active()) > len(self.places) - len(self.places) // 2:
            worst = max(self.active(), key=lambda place: place.loss(self.every))
            worst.active = False
        self.is_better_anew(kept)
        self.new = [place for place in self.places if not place.active]
        self.phase, self.lag = "compares", 0.0
        self.let_the_better_forecast()

    def let_the_better_forecast(self) -> None:
        if self.phase == "compares":
            for place in self.places:
                place.active = place.asked = (place in self.new) == (self.lag <= 0.0)

    def decide(self, is_better: bool, is_last: bool) -> None:
        """Begin anew with the new trees, or go on with the old ones."""
        if is_better or is_last:
            for place in self.places:
                place.active = place.asked = place not in self.new
            self.phase, self.lag = "suspects", 0.0
            if is_better:
                self.begin()
            else:
                for place in self.places:
                    place.forget()
                for place in self.new:
                    place.tree, place.birth = self.tree_of(place.tree.rng.word), self.n_samples
                    self.n_swaps += 1

    def active(self) -> list[Place]:
        return [place for place in self.places if place.active]

    def watch(self, loss: float) -> None:
        mean, variance, n = self.usual
        allowed = mean + math.sqrt(variance)
        if n >= 8 and not all(place.active for place in self.places) and 2 * self.every <= MOST_KEPT:
            if loss - allowed > 2.5 * math.sqrt(variance):
                self.excess, self.beginning = 0.0, self.n_samples - self.every
            self.excess = max(self.excess + loss - allowed, 0.0)
        lost = (self.n_samples - self.beginning) * (allowed - mean) + self.every * self.excess
        if self.excess > 2.5 * math.sqrt(variance) and lost >= EVIDENCE:
            self.phase, self.excess = "suspects", 0.0
        else:
            self.take_for_usual(loss, max(1.0 / (n + 1), 0.03))

    def exceeds_the_usual(self, loss: float, deviations: float) -> bool:
        mean, variance, _ = self.usual
        return loss > mean + deviations * math.sqrt(variance)

    def take_for_usual(self, loss: float, rate: float) -> None:
        mean, variance, n = self.usual
        off = loss - mean
        self.usual = mean + rate * off, (1.0 - rate) * (variance + rate * off * off), n + 1

    def is_better_anew(self, kept: list[tuple[np.ndarray, int]]) -> bool:
        """Whether background trees that know the kept samples alone forecast them better than the active ones did."""
        before = self.tables.copy(), self.weights, self.gains
        self.gains = np.zeros_like(self.gains)
        self.learn_weights(kept)
        others = [place for place in self.places if not place.active]
        for place in others:
            self.n_swaps += place.birth != self.beginning
            place.asked = False
        half = len(kept) // 2
        active, loss = self.suspected / half, self.start_anew(others, kept)
        for place in others:
            place.forget()
        self.tables, self.weights, self.gains = before
        is_better = loss < 0.9 * active and (active - loss) * half >= EVIDENCE
        return is_better and loss < self.trivial_loss([y for _, y in kept[half:]])

    def trivial_loss(self, labels: list[int]) -> float:
        """What a tree may lose that knows more of the last labels than that they are alike, if they are."""
        entropy, usual = (
            -sum(float(p * np.log(p)) for p in counts / max(counts.sum(), 1.0) if p > 0.0)
            for counts in (np.bincount(labels).astype(float), self.tables.sum(axis=(0, 1)))
        )
        return 0.9 * entropy if entropy < 0.8 * usual else math.inf

    def learn_weights(self, kept: list[tuple[np.ndarray, int]]) -> None:
        self.tables = np.zeros_like(self.tables)
        for sample in kept:
            self.count(*sample)
        self.weigh_features()

    def count(self, x: np.ndarray, y: int) -> None:
        for j, values in enumerate(self.known):
            self.tables[j, int(bins_of(values, x[j : j + 1])[0]), y] += 1.0

    def start_anew(self, places: list[Place], kept: list[tuple[np.ndarray, int]]) -> float:
        """Trees learn the kept samples alone; the mean loss of what they forecast of the second half."""
        for place in places:
            place.tree, place.birth = self.tree_of(place.tree.rng.word), self.beginning
            place.tree.weights = self.weights.astype(np.float32)
            place.forget()
        losses = []
        for sample in kept:
            losses += [self.loss_of(place.tree, *sample) for place in places]
            if len(places) == len(self.places):
                self.judge(*sample)
            for place in places:
                place.tree.learn(*sample)
        return float(np.mean(losses[len(losses) // 2 :]))

    def rehearse(self, kept: list[tuple[np.ndarray, int]]) -> None:
        """All trees learn the kept samples once more."""
        self.start_anew(self.places, kept)
        for place in self.places:
            place.asked = True

    def note_gains(self, tree: ReferenceTree, x: np.ndarray, y: int) -> None:
        """What a bet on each split on the way of the sample won with its label, at the odds of the node above."""
        path = list(tree.path(x)) if tree.root is not None else []
        said = None if not path else tree.forecast(path[0][0])
        for (parent, _), (child, reach) in pairwise(path):
            above, said = said, tree.forecast(child, said)
            ratio = min(said[y] / above[y], LARGEST_RATIO)
            self.new_gains[:, parent.feature] += reach * (ratio - 1.0), reach, (reach * (ratio - 1.0)) ** 2

    def weigh_features(self) -> None:
        varied = np.array([len({*values}) > 1 for values in self.known])
        won, steps, squares = self.gains / len(self.places)
        of_splits = varied * np.maximum(won - np.sqrt(squares), 0.0)
        by_splits = np.sqrt(of_splits / (steps + 30.0))
        told = varied * np.array([gain_of(table) for table in self.tables])
        alone = (told / np.maximum(self.tables.sum(axis=(1, 2)), 1.0)) ** 0.25
        found = [gains / gains.sum() for gains in (alone, by_splits) if gains.sum() > 0.0]
        self.weights = np.ones(len(varied))
        evidence = told.sum() + 0.5 * of_splits.sum()
        if found:
            learned = (1.0 - 0.5 / varied.sum()) * evidence**2 / (evidence**2 + EVIDENCE**2)
            self.weights[varied] = (1.0 - learned + learned * varied.sum() * np.mean(found, axis=0))[varied]
        self.tables *= 0.97

    def replace_trees(self) -> None:
        first = min(place.birth for place in self.places)
        trivial = self.trivial_loss([y for _, y in self.samples[-64:]])
        for place in self.places:
            worst = max((each for each in self.places if each.active), key=lambda each: each.loss(self.every))
            is_better = place.loss(self.every) < min(self.mean_of_active(), trivial)
            if self.may_be_judged(place, first) and is_better and place.is_surely_better(worst, self.every):
                place.active = True
                worst.tree, worst.active, worst.birth = self.tree_of(worst.tree.rng.word), False, self.n_samples
                worst.forget()
                self.n_swaps += 1
        mean = self.mean_of_active()
        for place in self.places:
            near = place.losses and place.loss(self.every) <= 1.3 * mean
            stands_by = bool(self.may_be_judged(place, first) and near)
            place.asked = place.active or stands_by
            place.active |= stands_by and len(self.active()) < self.n_active

    def may_be_judged(self, place: Place, first: int) -> bool:
        """Of those in the background; the first ones are as old as the active ones."""
        is_old = place.birth == first or self.n_samples - place.birth >= 2 * self.every
        return not place.active and is_old

    def mean_of_active(self) -> float:
        return float(np.mean([place.loss(self.every) for place in self.places if place.active]))
