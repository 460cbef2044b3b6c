"""Predictions and estimates as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amf.inputs.scalars import LARGEST_NUMBER
from tests.worker.support.values import bits, prediction
from worker.base.limits import MAX_NUMBER
from worker.base.records import Estimate, Prediction
from worker.codec import encode_answers


@pytest.mark.parametrize(
    ("published", "value"),
    [
        (
            prediction(),
            b'{"id":"7","model":"m","prediction":"b","probabilities":{"a":0.25,"b":0.75},"label":"a","loss":1.5,"learned":9}',
        ),
        (
            prediction(prediction=1, label=None, loss=None, id=None),
            b'{"id":null,"model":"m","prediction":1,"probabilities":{"a":0.25,"b":0.75},"learned":9}',
        ),
        (
            prediction(prediction=None, probabilities=[], label=False, loss=0.0, learned=0),
            b'{"id":"7","model":"m","prediction":null,"probabilities":{},"label":false,"loss":0.0,"learned":0}',
        ),
        (
            prediction(prediction=True, classes=["true", "né", "new"], probabilities=[1.0, 0.0], label=0),
            '{"id":"7","model":"m","prediction":true,"probabilities":{"true":1.0,"né":0.0},"label":0,"loss":1.5,'
            '"learned":9}'.encode(),
        ),
        (
            Estimate(1.5, 0.25, [1.0, 1.5, 2.0], 2, 0.25, 9, "7"),
            b'{"id":"7","model":"m","prediction":1.5,"std":0.25,"quantiles":{"0.05":1.0,"0.5":1.5,"0.95":2.0},'
            b'"label":2,"loss":0.25,"learned":9}',
        ),
        (
            Estimate(1.5, 0.25, [1.0, 1.5, 2.0], None, None, 9, None),
            b'{"id":null,"model":"m","prediction":1.5,"std":0.25,"quantiles":{"0.05":1.0,"0.5":1.5,"0.95":2.0},'
            b'"learned":9}',
        ),
        (
            Estimate(None, None, None, 10**20, None, 0, None),
            b'{"id":null,"model":"m","prediction":null,"std":null,"quantiles":null,"label":100000000000000000000,'
            b'"loss":null,"learned":0}',
        ),
    ],
)
def test_an_answer_is_published_as_this_value(published: Prediction | Estimate, value: bytes) -> None:
    assert encode_answers(["m"], [published])[0] == value


def test_a_forest_takes_every_number_that_is_a_label() -> None:
    assert MAX_NUMBER <= LARGEST_NUMBER


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_published_floats_keep_their_bits(floats: list[float]) -> None:
    names = [str(i) for i in range(len(floats))]
    value = json.loads(encode_answers(["m"], [prediction(classes=names, probabilities=floats, loss=floats[0])])[0])
    assert [bits(p) for p in value["probabilities"].values()] == [bits(p) for p in floats]
    assert bits(value["loss"]) == bits(floats[0])
