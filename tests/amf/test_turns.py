"""Threads that share a forest: calls take turns, and none of them reads memory that another one is moving."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import amf

ROOT = Path(__file__).parents[2]


def run(script: str) -> None:
    """Run a script that prints "sound" at its end: a crash is to end a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["sound"], (done.returncode, done.stdout, done.stderr[-2000:])


RACE = """
import threading, time
import numpy as np
import amf

rng = np.random.default_rng(0)
x = rng.normal(size=(100_000, 5)); y = (x[:, 0] * x[:, 1] > 0).astype(int)
forest = amf.AMFClassifier(n_estimators=10, classes=[0, 1], n_threads=N_THREADS)
forest.partial_fit(x[:10], y[:10])
group, stopped, errors = amf.Group(), threading.Event(), []
group.put(0, forest)

def ask(look):
    while not stopped.is_set() and not errors:
        try:
            look()
        except BaseException as error:
            errors.append(error)

def predict():
    sums = forest.predict_proba(x[:300]).sum(axis=1)
    assert abs(sums - 1.0).max() < 1e-9

threads = [threading.Thread(target=ask, args=(look,)) for look in (predict, predict, LOOK)]
for thread in threads:
    thread.start()
end, start = time.monotonic() + 8.0, 10
while time.monotonic() < end and start < len(y) and not errors:
    LEARN
    start += 500
stopped.set()
for thread in threads:
    thread.join()
assert not errors, errors
alone = amf.AMFClassifier(n_estimators=10, classes=[0, 1]).partial_fit(x[:10], y[:10])
assert forest.dumps() == alone.partial_fit(x[10:start], y[10:start]).dumps()
print("sound")
"""
LOOKS = {
    "attribute": "lambda: forest.attribute(x[:50])",
    "describe": "lambda: (forest.describe(), forest.feature_usage(), group.sizes(np.zeros(1, int)))",
    "copy": "lambda: forest.copy().predict_proba(x[:10])",
    "dumps": "lambda: (amf.loads(forest.dumps()), amf.loads(amf.dumps(forest)))",
}
ALONE = "forest.partial_fit(x[start : start + 500], y[start : start + 500])"
IN_A_GROUP = "rows = x[start : start + 500]; group.predict_learn(rows, [0] * len(rows), y[start : start + 500])"


@pytest.mark.parametrize(
    ("look", "learn", "n_threads"),
    [
        ("describe", ALONE, 1),
        ("attribute", IN_A_GROUP, 1),
        pytest.param("copy", ALONE, 2, marks=pytest.mark.full),
        pytest.param("dumps", IN_A_GROUP, 1, marks=pytest.mark.full),
    ],
)
def test_threads_ask_a_forest_that_learns(look, learn, n_threads):
    run(RACE.replace("LOOK)", LOOKS[look] + ")").replace("LEARN", learn).replace("N_THREADS", str(n_threads)))


def test_another_seed_is_refused_while_the_first_labels_are_being_learned():
    """Else trees of one seed would go on with the numbers of another one: no samples lead to such a forest."""
    forest, began, go_on = amf.AMFClassifier(2, seed=1), threading.Event(), threading.Event()

    def labels():
        began.set()
        go_on.wait(100.0)
        yield from [0, 1]

    with ThreadPoolExecutor(2) as pool:
        learning = pool.submit(forest.partial_fit, [[0.0], [1.0]], labels())
        began.wait(100.0)
        asked = pool.submit(forest.with_seed, 2)
        time.sleep(0.1)
        go_on.set()
        with pytest.raises(ValueError, match="has learned 2 labels with its own seed"):
            asked.result()
        learning.result()


USES = [
    lambda forest, x, y: forest.partial_fit(x, y),
    lambda forest, x, y: forest.predict(x),
    lambda forest, x, y: forest.attribute(x),
    lambda forest, x, y: forest.describe(),
    lambda forest, x, y: forest.dumps(),
    lambda forest, x, y: forest.copy(),
    lambda forest, x, y: forest.add_features(["late"]),
    lambda forest, x, y: amf.predict_learn_many([forest], x, [0] * len(x), [0] * len(x)),
    lambda forest, x, y: amf.dumps(forest),
]


def interrupting(monkeypatch, forest: amf.AMFClassifier, handler) -> None:
    """Have a handler run where Python would run that of a signal: before a kernel begins."""
    kernels, calls = forest._kernels, iter([None])

    def run(*call: object) -> None:
        for _ in calls:
            handler()
        kernels.run(*call)

    monkeypatch.setattr(type(forest), "_kernels", kernels._replace(run=run))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("grouped", [False, True])
def test_what_interrupts_a_call_cannot_use_its_forest_and_harms_nothing(monkeypatch, use, grouped):
    """A forest that the handler of a signal learned would overrun the memory that is there for the call's own rows."""
    x, y = np.random.default_rng(0).random((200, 3)), [0, 1] * 100
    forest, other, alone = (amf.AMFClassifier(2, classes=[0, 1]).partial_fit(x, y) for _ in range(3))
    group, refused = amf.Group(), []
    group.put(3, forest)

    def handler() -> None:
        for asked in (lambda: use(forest, x, y), lambda: group.sizes(np.array([3])), lambda: forest.mean_depth):
            with pytest.raises(RuntimeError, match=r"in the middle of a call.*set a flag"):
                asked()
            refused.append(True)
        other.partial_fit(x, y)  # another one it can
        amf.predict_learn_many([other], x, [0] * 200, y)

    interrupting(monkeypatch, forest, handler)
    if grouped:
        group.predict_learn(x, [3] * 200, y)
    else:
        forest.partial_fit(x, y)
    assert refused == [True] * 3
    assert forest.dumps() == alone.partial_fit(x, y).dumps()
    use(other, x[:1], y[:1]) if use is not USES[6] else None


def test_a_handler_that_is_refused_costs_no_forest(monkeypatch):
    """Its error comes out of the call that it interrupted."""
    x, y = np.random.default_rng(0).random((200, 3)), [0, 1] * 100
    forest, alone = (amf.AMFClassifier(2, classes=[0, 1]).partial_fit(x, y) for _ in range(2))
    interrupting(monkeypatch, forest, forest.dumps)
    with pytest.raises(RuntimeError, match="in the middle of a call"):
        forest.partial_fit(x, y)
    assert forest.dumps() == alone.dumps()


SIGNALLED = """
import signal
import numpy as np
import amf

rng = np.random.default_rng(0)
x = rng.normal(size=(30_000, 5)); y = (x[:, 0] * x[:, 1] > 0).astype(int)
forest, alone = (amf.AMFClassifier(classes=[0, 1], n_threads=n).partial_fit(x[:10], y[:10]) for n in (N_THREADS, 1))
refused = []

def handle(*_):
    try:
        forest.partial_fit(x[:700], y[:700]), forest.dumps()
    except RuntimeError as error:
        refused.append(error)

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
forest.partial_fit(x, y)
signal.setitimer(signal.ITIMER_REAL, 0)
assert refused
assert forest.dumps() == alone.partial_fit(x, y).dumps()
print("sound")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no alarms here")
@pytest.mark.parametrize("n_threads", [1, 2])
def test_handlers_of_signals_do_no_harm(n_threads):
    run(SIGNALLED.replace("N_THREADS", str(n_threads)))


def test_a_class_that_comes_while_labels_are_predicted_waits(monkeypatch):
    x = np.random.default_rng(0).random((20, 2))
    forest = amf.AMFClassifier(2).partial_fit(x[:2], [0, 1])
    predict_proba, threads = forest.predict_proba, []

    def late(rows):
        threads.append(threading.Thread(target=forest.partial_fit, args=(np.repeat(x, 5, 0), [2] * 100)))
        threads[0].start()
        threads[0].join(0.3)
        return predict_proba(rows)

    monkeypatch.setattr(forest, "predict_proba", late)
    assert set(forest.predict(x).tolist()) <= {0, 1}
    threads[0].join()
    assert forest.classes_.tolist() == [0, 1, 2]


FORKED = """
import os, signal, threading, time
import numpy as np
import amf

rng = np.random.default_rng(0)
x = rng.normal(size=(60_000, 5)); y = (x[:, 0] > 0).astype(int)
busy, idle = (amf.AMFClassifier(classes=[0, 1]).partial_fit(x[:100], y[:100]) for _ in range(2))
group = amf.Group()
group.put(0, busy)
group.put(1, idle)
before = idle.dumps()
thread = threading.Thread(target=lambda: LEARN)
thread.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        busy.predict_proba(x[:1])
        os._exit(3)
    except amf.LostForestError as error:
        assert "fork of the process" in str(error), error
    assert idle.dumps() == before
    group.predict_learn(x[:5], np.ones(5, int), y[:5])
    group.put(0, amf.loads(before))
    group.predict_learn(x[:5], np.zeros(5, int), y[:5])
    assert group._forests[0].dumps() == idle.dumps()
    os._exit(0)
assert thread.is_alive(), "too short a call for this test"
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
thread.join()
assert busy.n_samples == len(y) + 100  # the parent still has its own
print("sound")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize("learn", ["busy.partial_fit(x, y)", "group.predict_learn(x, np.zeros(len(y), int), y)"])
def test_a_process_that_is_forked_in_a_call_loses_that_forest_alone_and_never_waits_for_it(learn):
    run(FORKED.replace("LEARN", learn))


def test_groups_with_the_same_forests_do_not_wait_for_each_other_for_ever():
    forests = [amf.AMFClassifier(2, seed=seed, classes=[0, 1]).partial_fit([[0.0]], [0]) for seed in range(20)]
    x, slots, labels = np.random.default_rng(0).random((20, 1)), np.arange(20), np.zeros(20, int)

    def learn(order: list[amf.AMFClassifier]) -> None:
        for _ in range(100):
            amf.predict_learn_many(order, x, slots, labels)

    threads = [
        threading.Thread(target=learn, args=(order,), daemon=True) for order in (forests, forests[::-1]) for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 100.0
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))
    assert not any(thread.is_alive() for thread in threads)
    assert [forest.n_samples for forest in forests] == [401] * 20
