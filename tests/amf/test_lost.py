"""A call that cannot be finished: of half a batch no forest is left, and each later call says so."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import amf
from amf.memory.pages import Block
from amf.state.threads import side_by_side


@pytest.fixture
def tight(monkeypatch):
    """Memory runs out at the n-th time that an arena asks for a block of it, of which it has two."""

    allocate, resize = Block.__init__, Block.resize

    def run_out(after: int) -> None:
        calls = iter(range(after))

        def scarce(ask):
            def asked(self, size):
                if next(calls, None) is None:
                    raise MemoryError("no room")
                ask(self, size)

            return asked

        monkeypatch.setattr(Block, "__init__", scarce(allocate))
        monkeypatch.setattr(Block, "resize", scarce(resize))

    return run_out


USES = {
    "partial_fit": lambda forest, x, y: forest.partial_fit(x, y),
    "prequential": lambda forest, x, y: forest.prequential(x, y),
    "predict": lambda forest, x, y: forest.predict(x),
    "weighted_depth": lambda forest, x, y: forest.weighted_depth(x),
    "add_features": lambda forest, x, y: forest.add_features(["late"]),
    "dumps": lambda forest, x, y: forest.dumps(),
    "copy": lambda forest, x, y: forest.copy(),
    "copy.copy": lambda forest, x, y: copy.copy(forest),
    "pickle": lambda forest, x, y: pickle.dumps(forest),
    "describe": lambda forest, x, y: forest.describe(),
    "attribute": lambda forest, x, y: forest.attribute(x),
    "feature_usage": lambda forest, x, y: forest.feature_usage(),
    "mean_depth": lambda forest, x, y: forest.mean_depth,
    "n_samples": lambda forest, x, y: forest.n_samples,
    "nbytes": lambda forest, x, y: forest.nbytes,
}


def test_memory_that_runs_out_half_way_leaves_an_error_for_every_later_use(system, tight):
    x, y = system.stream(1500, 4, seed=2)  # more rows than memory is reserved for at once
    forest = system.new(n_estimators=3).partial_fit(x[:50], y[:50])
    checkpoint = forest.dumps()
    tight(1)
    with pytest.raises(MemoryError, match="no room"):
        forest.partial_fit(x, y)
    for use in USES.values():
        with pytest.raises(amf.LostForestError, match=r"MemoryError.*no room.*Go on with its last checkpoint"):
            use(forest, x, y)
    assert type(forest).__name__ in repr(forest)  # a person may look at it
    tight(10**9)
    again, undisturbed = amf.loads(checkpoint), system.new(n_estimators=3)
    assert again.partial_fit(x, y).dumps() == undisturbed.partial_fit(x[:50], y[:50]).partial_fit(x, y).dumps()


def test_memory_that_runs_out_for_a_new_feature_or_class_leaves_an_error(tight):
    x, y = np.zeros((20, 2)), [0, 1] * 10
    for change in (
        lambda forest: forest.add_features([f"f{j}" for j in range(30)]),
        lambda forest: forest.add_classes(list(range(2, 20))),
        lambda forest: forest.partial_fit(x, list(range(20))),
    ):
        forest = amf.AMFClassifier(2)
        forest.add_features(["a", "b"])
        forest.partial_fit(x, y)
        tight(0)
        with pytest.raises(MemoryError):
            change(forest)
        with pytest.raises(amf.LostForestError):
            forest.dumps()
        tight(10**9)


def test_a_class_for_a_lost_forest_leaves_the_reason_as_it_was(tight):
    x, y = np.zeros((20, 2)), [0, 1] * 10
    for parameters in ({}, {"calibration": False}):
        forest = amf.AMFClassifier(2, **parameters).partial_fit(x, y)
        tight(0)
        with pytest.raises(MemoryError):
            forest.partial_fit(x, list(range(20)))
        for _ in range(2):
            with pytest.raises(amf.LostForestError, match=r"learned, by MemoryError"):
                forest.add_classes(["new"])
        tight(10**9)


def test_what_is_refused_before_anything_is_learned_changes_nothing(system):
    x, y = system.stream(60, 4, seed=2)
    forest = system.new(n_estimators=2).partial_fit(x, y)
    before = forest.dumps()
    for rows, labels in [(x[:, :3], y), (np.full_like(x, np.inf), y), (x, y[:-1]), (x[0], y[:1])]:
        with pytest.raises(ValueError, match=r"."):
            forest.partial_fit(rows, labels)
    with pytest.raises(ValueError, match="names"):
        forest.add_features(["a"])
    assert forest.dumps() == before


def test_a_forecast_that_is_cut_short_changes_nothing(system, monkeypatch):
    x, y = system.stream(60, 4, seed=2)
    forest = system.new(n_estimators=2).partial_fit(x, y)
    before = forest.dumps()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(forest), "_kernels", forest._kernels._replace(run=interrupted))
        for ask in (lambda: forest.predict(x), lambda: forest.prequential(x, [None] * 60)):
            with pytest.raises(KeyboardInterrupt):
                ask()
    assert forest.dumps() == before


@pytest.mark.parametrize("ended", [False, True])
def test_an_interrupt_between_kernels_leaves_the_rows_before_it(system, monkeypatch, ended):
    """Python looks for signals before it calls a kernel and after that has returned."""
    x, y = system.stream(300, 4, seed=2)
    forest, kernels = system.new(n_estimators=2).partial_fit(x[:60], y[:60]), []

    def interrupted(*call):
        if ended:
            kernels[0].run(*call)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        kernels.append(forest._kernels)
        patched.setattr(type(forest), "_kernels", forest._kernels._replace(run=interrupted))
        with pytest.raises(KeyboardInterrupt) as raised:
            forest.partial_fit(x[60:], y[60:])
    n = forest.n_samples
    assert raised.value.__notes__ == [f"the forest has learned {n} labels, no row in part"]
    assert n > 60 if ended else n == 60
    undisturbed = system.new(n_estimators=2).partial_fit(x[:n], y[:n])
    assert forest.dumps() == undisturbed.dumps()
    assert forest.partial_fit(x, y).dumps() == undisturbed.partial_fit(x, y).dumps()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, TimeoutError])
@pytest.mark.parametrize("at", range(1, 8))
def test_what_a_signal_raises_leaves_a_forest_of_the_rows_before_it(monkeypatch, raised, at):
    """With the classes of these rows and no others, and with the names of the table that brought them."""
    frame = pd.DataFrame(np.random.default_rng(2).random((2500, 2)), columns=["a", "b"])
    y = [0, 1, 1, 2, 0] * 500
    kernels, calls = amf.AMFClassifier(2)._kernels, iter(range(1, at))

    def interrupted(*call):
        if next(calls, None) is None:
            monkeypatch.undo()
            raise raised
        kernels.run(*call)

    monkeypatch.setattr(amf.AMFClassifier, "_kernels", kernels._replace(run=interrupted))
    forest = amf.AMFClassifier(2)
    with pytest.raises(raised):
        forest.partial_fit(frame, y)
    n = forest.n_samples
    undisturbed = amf.AMFClassifier(2).partial_fit(frame[:n], y[:n])
    assert forest.dumps() == undisturbed.dumps()
    with pytest.raises(ValueError, match="in another order"):
        forest.partial_fit(frame[["b", "a"]], y)
    assert forest.partial_fit(frame, y).dumps() == undisturbed.partial_fit(frame, y).dumps()


def test_of_a_group_an_interrupt_leaves_forests_without_a_label(monkeypatch):
    x, y = some_stream()
    forests = [amf.AMFClassifier(2, seed=seed).partial_fit(x, y) for seed in range(3)]
    before = [forest.dumps() for forest in forests]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(amf.AMFClassifier, "_kernels", forests[0]._kernels._replace(run=interrupted))
        for labels in ([-1, -1, -1, -1], [-1, -1, 1, -1]):
            with pytest.raises(KeyboardInterrupt):
                amf.predict_learn_many(forests, x[:4], [2, 0, 1, 1], labels)
            if labels[2] < 0:
                assert [forest.dumps() for forest in forests] == before
    assert [forests[0].dumps(), forests[2].dumps()] == before[::2]
    with pytest.raises(amf.LostForestError):
        forests[1].dumps()


def some_stream():
    rng = np.random.default_rng(2)
    x = rng.random((600, 4))
    return x, (x[:, 0] > rng.random(600)).astype(int).tolist()


def test_memory_that_runs_out_between_heads_and_boxes_leaves_rows_for_both(tight):
    """A batch without labels asks for none; one with labels loses the forest, and no row of it is half there."""
    x, y = some_stream()
    forest = amf.AMFClassifier(3).partial_fit(x[:100], y[:100])
    arena = forest._arena
    tight(0)
    forest.partial_fit(x, [None] * len(x))
    tight(1)
    with pytest.raises(MemoryError):
        arena.reserve(arena.capacity + 800)
    assert arena.ints.shape[0] > arena.boxes.shape[0] // arena.layout.box * arena.layout.head
    assert arena.block().shape[0] == arena._boxes().shape[0] == arena.n_trees * arena.capacity
    tight(10**9)
    whole = amf.AMFClassifier(3).partial_fit(x[:100], y[:100])
    assert forest.partial_fit(x, y).dumps() == whole.partial_fit(x, y).dumps()


def test_memory_that_cannot_be_given_back_is_kept(tight):
    x, y = some_stream()
    forest = amf.AMFClassifier(3).partial_fit(x[:100], y[:100])
    arena = forest._arena
    arena.reserve(arena.capacity + 800)
    for after in (0, 1):
        tight(after)
        arena.give_up_room(int(arena.used.max()))
    tight(10**9)
    rows = arena.n_trees * arena.capacity
    assert arena.ints.shape[0] >= rows * arena.layout.head
    assert arena.boxes.shape[0] >= rows * arena.layout.box
    whole = amf.AMFClassifier(3).partial_fit(x[:100], y[:100])
    assert forest.partial_fit(x, y).dumps() == whole.partial_fit(x, y).dumps()


def test_an_interrupt_waits_for_the_threads_that_work_on_the_memory():
    """Else they go on in memory that another forest has by then."""
    ended = []

    def work(number):
        time.sleep(0.3)
        ended.append(number)

    def calls():
        yield (1,)
        yield (2,)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side(4, work, calls())
    begun = list(ended)
    time.sleep(0.5)
    assert ended == begun  # none of them came later


def test_an_interrupt_while_a_thread_is_given_its_work_waits_for_it_as_well(monkeypatch):
    ended, submit = [], ThreadPoolExecutor.submit

    def interrupted(*call):
        submit(*call)
        time.sleep(0.1)
        raise KeyboardInterrupt

    def work(number):
        time.sleep(0.5)
        ended.append(number)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side(4, work, [(1,), (2,)])
    assert ended == [1]


INTERRUPTED = """
import signal, threading, os, numpy as np, amf
rng = np.random.default_rng(0)
x = rng.normal(size=(30_000, 60)); y = (x[:, 0] + rng.normal(size=30_000) > 0).astype(int)
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
for k in range(4):
    forest = amf.AMFClassifier(12, n_threads=4).partial_fit(x[:3000], y[:3000])
    timer = threading.Timer(0.05 + 0.05 * k, interrupt); timer.start()
    try:
        forest.partial_fit(x, y)
        timer.join()
    except KeyboardInterrupt:
        pass
    del forest
    amf.AMFClassifier(12, n_threads=4).partial_fit(x[:3000], y[:3000])
print("alive")
"""


@pytest.mark.full
def test_an_interrupt_during_a_call_in_threads_harms_nobody():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["alive"], (done.returncode, done.stderr[-2000:])


@pytest.mark.parametrize("loaded", [False, True])
def test_an_interrupt_while_kernels_are_compiled_leaves_the_forest_as_it_was(loaded, monkeypatch):
    x, y = np.random.default_rng(0).random((20, 3)), ["a", "b"] * 10
    forest = amf.AMFClassifier(3, seed=1)
    if loaded:
        forest = amf.loads(forest.partial_fit(x, y).dumps())
    before = forest.dumps()

    def link(labels):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(amf.AMFClassifier, "_kernels", amf.AMFClassifier._kernels._replace(link=link))
        with pytest.raises(KeyboardInterrupt):
            forest.partial_fit(x, y)
    assert forest.dumps() == before
    assert forest.partial_fit(x, y).dumps() == amf.loads(before).partial_fit(x, y).dumps()
