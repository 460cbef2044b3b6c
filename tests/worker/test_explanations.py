"""Explanations in the stream: those of the forest that made the forecast, in any batching, in every codec."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

import amf
from tests.worker.support.fakes import config
from tests.worker.support.tasks import partition, records
from worker.base.records import Estimate, Record
from worker.config import Config
from worker.state.explanations import Explainer, between_labels
from worker.state.features import FeaturesOfColumns


def explaining(settings: Config, n: int) -> Config:
    return replace(settings, output=replace(settings.output, explain=n))


def values(settings: Config, stream: Sequence[Record], batch: int = 1000) -> list[dict[str, Any]]:
    """What is published of the records, taken so many at a time."""
    here, published = partition(settings), []
    for start in range(0, len(stream), batch):
        published += here.process(stream[start : start + batch]).outgoing
    return [msgspec.json.decode(each.value or b"null") for each in published]


def mixed_stream(n: int, seed: int = 0) -> list[Record]:
    """Events of two models with numbers, categories, missing values and a late feature; a third unlabelled."""
    rng = random.Random(seed)

    def event(i: int) -> tuple[str, dict[str, Any]]:
        features: dict[str, Any] = {"amount": rng.gauss(0, 1), "country": rng.choice(["de", "fr", "it"]), "noise": 1.0}
        if rng.random() < 0.2:
            features["amount"] = None
        if i > n // 2:
            features["late"] = rng.random()
        label = "yes" if (features["amount"] or 0) + (features["country"] == "de") > 0.5 else "no"
        return rng.choice("ab"), {"features": features, "label": label if rng.random() < 0.7 else None}

    return records(*(event(i) for i in range(n)))


def test_each_forecast_is_explained_by_the_forest_that_made_it() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((60, 3))
    labels = ["ab"[int(row[0] > 0.5)] for row in rows]
    events = [("k", {"features": row.tolist(), "label": label}) for row, label in zip(rows, labels, strict=True)]
    settings = explaining(config(), 2)
    here = partition(settings)
    published = [msgspec.json.decode(each.value) for each in here.process(records(*events)).outgoing]  # type: ignore[arg-type]
    alone = partition(settings)
    for row, event, value in zip(rows, events, published, strict=True):
        model = next(iter(alone.models), None)
        expected = {}
        if model is not None and value["probabilities"]:
            moves = model.forest.attribute(row[None]).features[0][
                :, int(np.argmax(list(value["probabilities"].values())))
            ]
            largest = sorted(range(3), key=lambda i: -abs(moves[i]))[:2]
            expected = {str(i): moves[i] for i in largest if moves[i]}
        assert value["explanation"] == expected
        assert list(value["explanation"]) == list(expected)
        alone.process(records(event))
    assert published[-1]["explanation"].keys() >= {"0"}


@pytest.mark.parametrize("algorithm", ["amf-classifier", "amf-regressor", "adaptive-classifier"])
def test_what_moved_the_published_forecast_is_told_and_what_no_feature_moved(algorithm: str) -> None:
    """A sum of many effects is known by the linear models, of which no split knows."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 12))
    effects = rows * rng.normal(size=12)
    sums = effects.sum(axis=1)
    labels = [float(total) if "regressor" in algorithm else int(total > 0) for total in sums]
    events = [("k", {"features": row.tolist(), "label": label}) for row, label in zip(rows, labels, strict=True)]
    settings = explaining(config(algorithm=algorithm), 12)
    here = partition(settings)
    published = [msgspec.json.decode(each.value or b"") for each in here.process(records(*events[:-1])).outgoing]
    found = next(iter(here.models)).forest.attribute(rows[-1:])
    value = msgspec.json.decode(here.process(records(events[-1])).outgoing[0].value or b"")
    if "regressor" in algorithm:
        said, prior = value["prediction"], float(found.prior[0])
    else:
        texts = list(value["probabilities"])
        named = max(texts, key=value["probabilities"].__getitem__)
        said, prior = value["probabilities"][named], float(found.prior[0, texts.index(named)])
    assert prior + sum(value["explanation"].values()) + value["unexplained"] == pytest.approx(said, abs=1e-9)
    largest = np.abs(effects).argmax(axis=1)[300:-1]
    first = [int(next(iter(each["explanation"]))) for each in published[300:]]
    assert np.mean(first == largest) > 0.75
    assert np.mean([abs(each["unexplained"]) for each in published[300:]]) < 0.1
    assert "unexplained" not in published[0]


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_the_batch_changes_nothing(batch: int) -> None:
    stream, settings = mixed_stream(300), explaining(config(), 3)
    assert values(settings, stream, batch) == values(settings, stream)


def test_forecasts_are_those_of_a_worker_that_explains_nothing() -> None:
    stream = mixed_stream(300)
    plain = values(config(), stream)
    explained = values(explaining(config(), 100), stream)
    assert [value.pop("explanation").keys() <= {"amount", "country", "noise", "late"} for value in explained]
    assert [value.pop("unexplained", None) is None for value in explained] == [not each["learned"] for each in plain]
    assert explained == plain
    assert all("explanation" not in value for value in plain)


def test_the_columns_of_a_category_are_one_feature() -> None:
    rng = random.Random(1)
    events = [(rng.choice(["de", "fr", "it"]), rng.random()) for _ in range(400)]
    stream = records(*(("k", {"features": {"c": c, "x": x}, "label": int(c == "de")}) for c, x in events))
    last = values(explaining(config(), 5), stream)[-1]
    assert abs(last["explanation"]["c"]) > 0.2
    assert next(iter(last["explanation"])) == "c"


def test_the_mean_of_what_moved_forecasts_is_kept_and_follows_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.state.explanations.WINDOW", 100)
    stream, settings = mixed_stream(199, seed=2), explaining(config(), 100)
    here = partition(settings)
    published = [msgspec.json.decode(each.value or b"") for each in here.process(stream).outgoing]
    for model in here.models:
        explained = [each["explanation"] for each in published if each["model"] == model.key and each["learned"]]
        assert model.explainer is not None
        means = dict(zip(model.features.names, model.explainer.mean_moves.tolist(), strict=True))
        for name, mean in means.items():
            told = sum(abs(each.get(name, 0.0)) for each in explained) / len(explained)
            assert mean == pytest.approx(told)
        assert means["noise"] == 0.0 < means["country"]
    features = FeaturesOfColumns()
    features.follow(None, 2)
    explainer, answer = Explainer(features), Estimate(1.0, 1.0, None, None, None, 1, None)
    nothing = np.zeros(1000)
    for move in ([1.0, 0.0], [0.0, -1.0]):
        explainer.explained(amf.Attributions(nothing, nothing, np.array([move] * 1000), nothing), [answer] * 1000, 1)
    assert explainer.mean_moves.tolist() == pytest.approx([0.0, 1.0], abs=0.01)


def test_numbers_are_explained_in_the_unit_of_the_label() -> None:
    rng = random.Random(1)
    xs = [rng.random() for _ in range(500)]
    settings = config(algorithm="amf-regressor")
    stream = records(*(("k", {"features": {"x": x, "noise": 0.0}, "label": 100.0 * (x > 0.5)}) for x in xs))
    published = values(explaining(settings, 2), stream)
    assert "explanation" not in published[0] or published[0]["explanation"] == {}
    assert 20 < abs(published[-1]["explanation"]["x"]) < 80


def test_stretches_end_with_a_label() -> None:
    assert [(part.start, part.stop) for part in between_labels([-1, -1, 0, 1, -1], 1)] == [(0, 3), (3, 4), (4, 5)]
    assert list(between_labels([], 1)) == []


def test_a_stretch_without_a_label_is_cut_where_its_explanations_would_take_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.state.explanations.MOST_MOVES", 60)
    assert [part.stop for part in between_labels([-1] * 5 + [0], 30)] == [2, 4, 6]
    assert [part.stop for part in between_labels([-1, -1], 100)] == [1, 2]
    rng = random.Random(3)
    drawn = [(rng.choice("abcdef"), rng.choice(["u", "v", "w"])) for _ in range(120)]
    labelled = [("k", {"features": {"c": c}, "label": label}) for c, label in drawn[:60]]
    stream = records(*labelled, *(("k", {"features": {"c": c}}) for c, _ in drawn[60:]))
    sizes, attribute = list[int](), amf.AMFClassifier.attribute

    def watched(forest: amf.AMFClassifier, rows: Any) -> amf.Attributions:
        found = attribute(forest, rows)
        sizes.append(found.features.size)
        return found

    monkeypatch.setattr(amf.AMFClassifier, "attribute", watched)
    cut = values(explaining(config(), 2), stream)
    assert max(sizes) <= 60
    monkeypatch.undo()
    assert cut == values(explaining(config(), 2), stream)


def test_every_algorithm_explains() -> None:
    for algorithm in amf.SYSTEMS:
        label: Any = 1.0 if "regressor" in algorithm else "a"
        other: Any = 2.0 if "regressor" in algorithm else "b"
        stream = records(*(("k", {"features": [i % 7 / 7], "label": label if i % 7 < 3 else other}) for i in range(60)))
        last = values(explaining(config(algorithm=algorithm), 1), stream)[-1]
        assert last["explanation"].keys() == {"0"}, algorithm
