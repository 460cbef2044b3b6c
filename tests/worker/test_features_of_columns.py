"""Figures of the columns of a forest as figures of its features."""

from __future__ import annotations

import random

import numpy as np
import pytest

import amf
from tests.worker.support.fakes import config
from tests.worker.support.tasks import partition, records
from worker.state.features import FeaturesOfColumns, features_of


def columns(*features: str | tuple[str, str]) -> list[str]:
    """Names of columns of numbers, and of pairs of a feature and a category."""
    return [str(amf.Column(*([each] if isinstance(each, str) else each))) for each in features]


def test_columns_without_names_are_features_by_their_number() -> None:
    assert features_of(None, range(2, 4)) == ["2", "3"]
    assert features_of(columns("x", ("c", "it"), ("c", "de")), range(1, 3)) == ["c", "c"]


def test_the_columns_of_a_feature_are_put_together_wherever_they_stand() -> None:
    features, names = FeaturesOfColumns(), columns(("c", "it"), "x", ("c", "de"), "y", ("c", "fr"))
    features.follow(names[:2], 2)
    assert features.sums(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    features.follow(names, 5)
    assert features.names == ["c", "x", "y"]
    by_column = np.array([1.0, 2.0, 0.0, -4.0, 5.0])
    assert features.sums(by_column).tolist() == [6.0, 2.0, -4.0]
    assert features.means(by_column).tolist() == [3.0, 2.0, -4.0], "what is 0 does not count"
    assert features.sums(by_column[:1]).tolist() == [1.0, 0.0, 0.0], "of as many columns as there are figures"
    assert FeaturesOfColumns().means(np.zeros(0)).tolist() == []


def test_the_largest_are_those_furthest_from_zero() -> None:
    features = FeaturesOfColumns()
    features.follow(None, 5)
    figures = np.array([1.0, -3.0, 0.0, 1.0, 2.0])
    assert list(features.largest(figures, 3).items()) == [("1", -3.0), ("4", 2.0), ("0", 1.0)]
    assert features.largest(figures, 99).keys() == {"0", "1", "3", "4"}
    assert features.largest(figures, 5) == features.largest(figures, 99)
    assert list(features.largest(np.ones(5), 2)) == ["0", "1"], "of equal ones those that came first"
    assert features.largest(np.zeros(5), 2) == {}


def test_the_weight_of_a_category_is_that_of_a_cut_of_it() -> None:
    """Many categories do not make a feature matter more, nor does one that cannot be cut matter at all."""
    rng = random.Random(0)
    here = partition(config(algorithm="adaptive-classifier"))
    rows = [(rng.choice(list("abcdefgh")), rng.random()) for _ in range(600)]
    here.process(records(*(("k", {"features": {"c": c, "x": x, "one": 1.0}, "label": int(x > 0.5)}) for c, x in rows)))
    [model] = here.models
    adaptation = model.forest.adaptation
    assert adaptation is not None
    weights = dict(zip(model.features.names, model.feature_weights(adaptation).tolist(), strict=True))
    of_columns = dict(zip(model.forest.feature_names or (), adaptation.feature_weights, strict=True))
    categories = [weight for name, weight in of_columns.items() if amf.Column.parse(name).feature == "c"]
    assert len(categories) == 8
    assert weights["c"] == pytest.approx(np.mean(categories))
    assert weights["x"] > 2.0 > 1.0 > weights["c"]
    assert weights["one"] == 0.0
