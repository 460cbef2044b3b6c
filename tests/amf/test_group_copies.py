"""Copies of a group: forests of their own, in this process and in another one."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from many import as_labels, forests_of, group_of, slot_of, stream

import amf

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda group: pickle.loads(pickle.dumps(group))}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_of_a_group_has_forests_of_its_own(copied):
    forests, alone = forests_of(amf.AMFClassifier, 4), forests_of(amf.AMFClassifier, 4)
    group = group_of(forests)
    group.remove(slot_of(3))
    before = [forest.dumps() for forest in forests]
    twin = copied(group)
    x, labels = stream(amf.AMFClassifier, 400, 1)
    slots = [slot_of(i % 3) for i in range(400)]
    said = twin.predict_learn(x, slots, labels)
    assert [forest.dumps() for forest in forests] == before
    np.testing.assert_array_equal(group.predict_learn(x, slots, labels)[0], said[0])
    alone[0].partial_fit(x[::3], as_labels(amf.AMFClassifier, labels[::3]))
    assert forests[0].dumps() == alone[0].dumps()
    with pytest.raises(ValueError, match="where there is no forest"):
        twin.predict_learn(x[:1], [slot_of(3)], labels[:1])


def test_a_shallow_copy_of_a_group_has_the_same_forests_in_slots_of_its_own():
    forests, alone = forests_of(amf.AMFClassifier, 2), forests_of(amf.AMFClassifier, 2)
    group = group_of(forests)
    twin = copy.copy(group)
    group.remove(0)
    x, labels = stream(amf.AMFClassifier, 200, 1)
    twin.predict_learn(x, np.zeros(200, int), labels)
    assert forests[0].dumps() == alone[0].partial_fit(x, as_labels(amf.AMFClassifier, labels)).dumps()


ELSEWHERE = """
import pickle, sys
import numpy as np
group = pickle.loads(sys.stdin.buffer.read())
print(group.predict_learn(np.zeros((50, 3)), np.zeros(50, int), np.zeros(50, int)).probabilities.sum())
"""


def test_a_group_is_pickled_for_another_process():
    """The forests lie elsewhere there."""
    group = group_of(forests_of(amf.AMFClassifier, 2))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=pickle.dumps(group), capture_output=True, check=False
    )
    assert float(done.stdout or "nan") == pytest.approx(50.0), (done.returncode, done.stderr[-2000:])
