"""The events of many models through their forests, in as few calls of the library as there are kinds of forests.

A turn brings a thousand models one or two events each. What is done for each of them in Python would cost many times
what its forest does, and most of that the wait for memory that was not looked at for long. So the events of a turn are
columns: one for the slots of their models, one for the numbers of their labels, a matrix for their features. Where most
models are quiet, every second event brings a model its features or another class: it meets those by itself, and learns
with the others. What does not fit into the columns is left to its model, which takes it by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import amf
from worker.base.records import Event
from worker.state.cells import MOST_CELLS
from worker.state.model_store import ModelStore
from worker.state.rules import Rules
from worker.state.runs import Applied
from worker.state.targets import NO_LABEL, UNKNOWN, ForecastColumns

ROWS_A_THREAD = 256
"""To hand over fewer takes longer than it saves."""


class Joint(NamedTuple):
    """What became of events that went together."""

    places: list[int]
    """Where they were among those that were given."""
    specs: list[str]
    """Of their models."""
    applied: Applied


class _Part(NamedTuple):
    """Events of models with the same rules, those of a model side by side and in their order."""

    rules: Rules
    places: NDArray[np.int64]
    slots: NDArray[np.int64]
    events: list[Event]
    cells: list[Any]
    codes: list[int]
    """Of their labels; of a class that its model has not met the number that it will have."""
    coming: list[int]
    """Those with such a class: the last ones of their models."""


def apply_together(
    models: ModelStore, keys: Sequence[str], events: Sequence[Event], *, predict: bool, apart: bool
) -> tuple[list[Joint], dict[str, list[int]]]:
    """Predict and learn the events of all models that have met the like, as `Model.apply` does one by one.

    predict: whether they are; else they are only learned. apart: leave all to their models. The second
    result are the events that are left to their models: model key -> their places. Raises StateLost.
    """
    slots = np.full(len(keys), -1) if apart else _slots(models, keys, events)
    kinds: dict[tuple[Any, ...], list[_Part]] = {}
    n_cells = Counter[tuple[Any, ...]]()
    joint: list[Joint] = []
    left: list[int] = []
    for rules, places in _by_rules(models, slots):
        part = None
        if rules is not None and len(places) * rules.n_cells <= MOST_CELLS:
            part = _part(models, rules, places, slots[places], events, left)
        if part is None:
            left += places.tolist()
            continue
        kind = part.rules.kind
        kinds.setdefault(kind, []).append(part)
        n_cells[kind] += len(part.cells) * part.rules.n_cells
        if n_cells[kind] > MOST_CELLS:
            joint.append(_pass(models, keys, kinds.pop(kind), predict=predict))
            del n_cells[kind]
    joint += [_pass(models, keys, parts, predict=predict) for parts in kinds.values()]
    by_key: dict[str, list[int]] = {}
    for place in sorted(left):
        by_key.setdefault(keys[place], []).append(place)
    return joint, by_key


def _slots(models: ModelStore, keys: Sequence[str], events: Sequence[Event]) -> NDArray[np.int64]:
    """The slots of the models of these keys, -1 where there is none. A first event with a label makes one."""
    slots = models.slots(keys)
    begun: dict[str, int] = {}
    for place in (slots < 0).nonzero()[0].tolist():
        key, event = keys[place], events[place]
        if key not in begun:
            begun[key] = _begin(models, key, event)
        slots[place] = begun[key]
    return slots


def _begin(models: ModelStore, key: str, event: Event) -> int:
    """The slot of a new model that has met its first event and not learned it; -1 where it has to look by itself."""
    if event.label is None or models.room <= 0:
        return -1
    model = models.beginnings.model(key, models.params_for(key), models.configured_spec(key), event)
    if model is None:
        return -1
    models.keep(model, model.kind_of_scores())
    entry = models.entry(key)
    assert entry is not None
    return entry.slot


def _by_rules(models: ModelStore, slots: NDArray[np.int64]) -> Iterator[tuple[Rules | None, NDArray[np.int64]]]:
    """The places of the events of the models with the same rules, ordered by slots."""
    order = slots.argsort(kind="stable")
    in_order = slots[order]
    starts, ends = _runs(in_order)
    numbers: dict[Rules | None, int] = {}
    of_slots = [numbers.setdefault(rules, len(numbers)) for rules in models.rules(in_order[starts])]
    of_events = np.array(of_slots, np.int64).repeat(ends - starts)
    by_rules = of_events.argsort(kind="stable")
    order, of_events = order[by_rules], of_events[by_rules]
    for rules, start, end in zip(numbers, *_runs(of_events), strict=True):
        yield rules, order[start:end]


def _runs(values: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where runs of equal values begin, and where they end."""
    bounds = np.ones(values.size + 1, np.bool_)
    np.not_equal(values[1:], values[:-1], out=bounds[1:-1])
    places = bounds.nonzero()[0]
    return places[:-1], places[1:]


def _part(
    models: ModelStore,
    rules: Rules,
    places: NDArray[np.int64],
    slots: NDArray[np.int64],
    events: Sequence[Event],
    left: list[int],
) -> _Part | None:
    """The events at these places, as their models take them; those of models that have to look go to `left`."""
    mine = [events[place] for place in places.tolist()]
    cells, codes = rules.read(mine)
    coming: list[int] = []
    if None in cells or UNKNOWN in codes:
        odd = np.array([cell is None or code == UNKNOWN for cell, code in zip(cells, codes, strict=True)])
        # The last event of a model may bring it a class: there is none behind it whose forecast would show that.
        last = np.append(slots[1:] != slots[:-1], True)
        for i in (odd & last & ~models.table.watched[slots]).nonzero()[0].tolist():
            label = mine[i].label
            if cells[i] is not None and label is not None and rules.target.refusal(label) is None:
                coming.append(i)
                codes[i] = rules.n_classes
        odd[coming] = False
        plain = ~np.isin(slots, slots[odd])
        if not plain.any():
            return None
        if not plain.all():
            left += places[~plain].tolist()
            return _part(models, rules, places[plain], slots[plain], events, left)
    return _Part(rules, places, slots, mine, cells, codes, coming)


def _pass(models: ModelStore, keys: Sequence[str], parts: Sequence[_Part], *, predict: bool) -> Joint:
    """Pass the events of models of one kind through their forests."""
    rules, target = parts[0].rules, parts[0].rules.target
    places = np.concatenate([part.places for part in parts]).tolist()
    slots = np.concatenate([part.slots for part in parts])
    codes = np.array([code for part in parts for code in part.codes])
    if models.in_copy_on_write:
        for place in places:
            models.hold(keys[place])
    rows = np.concatenate([part.rules.rows(part.cells) for part in parts])
    labels = np.concatenate([target.as_numbers(part.events, part.codes) for part in parts])
    coming = _coming(parts)
    labels[coming] = NO_LABEL  # A class may not show in the forecast of the event that brings it.
    said = _call(models, rules.group, rows, slots, labels, predict=predict)
    applied = Applied(len(places), target.Scores)
    if coming:
        events = [event for part in parts for event in part.events]
        for i in coming:
            _meet_class(models, int(slots[i]), i, events[i], applied)
        _call(models, rules.group, rows[coming], slots[coming], codes[coming], predict=False)

    starts, ends = _runs(slots)
    mine = slots[starts]
    owners = np.arange(mine.size).repeat(ends - starts)
    labelled = codes != NO_LABEL
    applied.tally.learned = int(labelled.sum())
    scores = np.zeros((mine.size, 0))
    if predict:
        # Of each event, how many labelled ones its model has met before it.
        so_far = labelled.cumsum() - labelled
        learned = models.table.samples[mine][owners] + so_far - so_far[starts][owners]
        forecasts = target.forecasts(said)
        scores = _answer(parts, forecasts, learned.tolist(), applied, owners)
        for i in models.table.watched[mine].nonzero()[0].tolist():
            here = slice(starts[i], ends[i])
            models.rank(int(mine[i]), forecasts.part(here), codes[here])
    models.joined(mine, rules.group.sizes(mine), np.bincount(owners, labelled) > 0, scores)
    return Joint(places, models.specs(slots), applied)


def _coming(parts: Sequence[_Part]) -> list[int]:
    """Which of all events bring their models a class."""
    starts = accumulate((len(part.events) for part in parts[:-1]), initial=0)
    return [start + i for start, part in zip(starts, parts, strict=True) for i in part.coming]


def _call(
    models: ModelStore,
    group: amf.Group,
    rows: NDArray[np.float64],
    slots: NDArray[np.int64],
    labels: NDArray[Any],
    *,
    predict: bool,
) -> Any:
    n_threads = max(1, min(models.n_threads, len(rows) // ROWS_A_THREAD))
    return group.predict_learn(rows, slots, labels, predict=predict, n_threads=n_threads)


def _meet_class(models: ModelStore, slot: int, i: int, event: Event, applied: Applied) -> None:
    """Have a model take in the class of its event, number i, which it is about to learn."""
    entry, rules, label = models.table.entries[slot], models.table.rules[slot], event.label
    assert rules is not None
    assert label is not None
    if (change := rules.target.kind_change(label)) is not None:
        applied.kind_changes.append((i, None, change))
    models.table.separate(slot)
    entry.model.meet_class(label)
    entry.answer_bytes = entry.model.answer_bytes
    models.rules(np.array([slot]))  # it joins the others again


def _answer(
    parts: Sequence[_Part], forecasts: ForecastColumns, learned: list[int], applied: Applied, owners: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Answer the events, of which the forests have said this; returns the scores of each model, as the table has them.

    owners: the number of each event's model.
    """
    scored: list[int] = []
    columns: list[list[float]] = []
    start = 0
    for part in parts:
        stop = start + len(part.events)
        here = slice(start, stop)
        of_part = forecasts if len(parts) == 1 else forecasts.part(here)
        known = part.rules.known(learned[here])
        answered = part.rules.target.answers(part.events, part.codes, of_part, learned[here], known)
        applied.answered(range(start, stop), answered, of_part)
        scored += [start + place for place in answered.scored]
        columns = columns or [[] for _ in answered.scores]
        for column, more in zip(columns, answered.scores, strict=True):
            column += more
        start = stop
    whose, n = owners[scored], int(owners[-1]) + 1
    # Sums are made in the order of the events.
    return np.column_stack([np.bincount(whose, minlength=n), *(np.bincount(whose, each, n) for each in columns)])
