"""The benchmarks' own arithmetic: scores, ratios, targets, the stream, the pipe to a peer."""

from __future__ import annotations

import io
import math
import sys

import numpy as np
import pytest

from tests.benchmarks.learners import endless_stream
from tests.benchmarks.learners.classifiers import Figures, Ratio
from tests.benchmarks.learners.growth import above_line
from tests.benchmarks.measure import held_bytes, peak_mb
from tests.benchmarks.peers import process
from tests.benchmarks.peers.catalogue import arff_text
from tests.benchmarks.peers.scripts.serve import Work, score_classes, score_numbers
from tests.benchmarks.report import at_least, at_most


def test_the_first_row_is_not_scored_and_an_unknown_class_costs_log_of_the_learned_rows_and_two():
    probabilities = np.array([[0.1, 0.9], [0.2, 0.8], [1.0, 0.0]])
    scores = score_classes(probabilities, np.array([1, 1, 1]))
    assert scores["log_loss"] == pytest.approx((-math.log(0.8) + math.log(2 + 2)) / 2)
    assert scores["accuracy"] == 0.5


def test_rmse_and_coverage_are_those_of_the_rows_after_the_first():
    forecasts = np.array([[np.nan] * 3, [1.0, 0.0, 2.0], [5.0, 4.5, 5.5], [0.0, -1.0, 1.0], [2.0, 2.0, 4.0]])
    scores = score_numbers(forecasts, np.array([9.0, 2.0, 6.0, -1.0, 2.0]))
    assert scores == {"rmse": pytest.approx(math.sqrt(3 / 4)), "coverage": 0.75}


def test_without_quantiles_there_is_no_coverage():
    assert math.isnan(score_numbers(np.array([[0.0, np.nan, np.nan]] * 3), np.zeros(3))["coverage"])


def test_a_ratio_compares_within_rounds_and_takes_their_median():
    figures = {
        "ours": Figures([{"prequential": speed} for speed in (10.0, 90.0, 40.0, 7.0)], {"log_loss": 0.3}),
        "peer": Figures([{"prequential": speed} for speed in (1.0, 3.0, 2.0)], {"log_loss": 0.6}),
    }
    assert Ratio("prequential", "ours", "peer", at_least(1), at_least(1)).of(figures) == 20.0
    assert Ratio("log_loss", "ours", "peer", at_most(1), at_most(1)).of(figures) == 0.5
    assert math.isnan(Ratio("log_loss", "ours", "absent", at_most(1), at_most(1)).of(figures))


def test_a_figure_that_a_peer_cannot_tell_is_nan():
    figures = Figures([{"prequential": 1.0}, {"prequential": 3.0}], {"accuracy": 0.5})
    assert (figures["prequential"], figures["accuracy"]) == (2.0, 0.5)
    assert math.isnan(figures["fit"])


def test_a_target_is_met_on_the_bound_and_never_by_nan():
    assert at_least(12).verdict(12.0) == "target >= 12: met"
    assert at_most(0.5).verdict(0.51) == "target <= 0.5: MISSED"
    assert at_least(12).verdict(float("nan")) == "target >= 12: not measured"
    assert (at_least(12).halved().bound, at_most(0.5).halved().bound) == (6, 1.0)


def test_log_growth_is_on_the_line_linear_growth_is_far_above_it():
    sizes = [2**k for k in range(14, 24)]
    assert above_line(sizes, [3 * math.log(n) - 5 for n in sizes]) == pytest.approx(1)
    assert above_line(sizes, [float(n) for n in sizes]) > 10
    assert math.isnan(above_line(sizes, [1 / n for n in sizes]))


def test_the_stream_depends_on_the_seed_alone():
    stream_a, stream_b = endless_stream.chunks(1), endless_stream.chunks(1)
    for _ in range(2):
        (x, y), (same_x, same_y) = next(stream_a), next(stream_b)
        np.testing.assert_array_equal(x, same_x)
        np.testing.assert_array_equal(y, same_y)
    assert x.shape == (endless_stream.CHUNK, endless_stream.N_FEATURES)
    assert set(y) == set(range(endless_stream.N_CLASSES))
    assert not np.array_equal(x, next(endless_stream.chunks(2))[0])


def test_arff_holds_every_bit_of_a_number():
    x = np.array([[0.1, 1 / 3], [1e-30, 2.0]], np.float32)
    names, rows = arff_text(x, np.array([2, 0]), 3).split("@data\n")
    assert names.splitlines()[-1] == "@attribute y {0,1,2}"
    table = np.loadtxt(io.StringIO(rows), delimiter=",")
    np.testing.assert_array_equal(table[:, :2].astype(np.float32), x)
    assert table[:, 2].tolist() == [2, 0]


class Recorder:
    """A learner that keeps everything and forecasts the label of the row before."""

    one_pass = True

    def __init__(self, seed: int) -> None:
        self.block = np.zeros(0)

    @staticmethod
    def rows(x):
        return x

    def fit(self, rows, y):
        self.block = np.ones(10_000 * len(y))

    def predict(self, rows):
        return rows

    def prequential(self, rows, y):
        before = np.concatenate(([y[0]], y[:-1]))
        return np.column_stack((before, before - 1, before + 1)).astype(float)


def test_the_memory_of_a_learner_is_what_it_holds():
    work = Work(Recorder, np.zeros((100, 2)), np.arange(100), 0, {})
    assert work.memory()["bytes_per_sample"] == pytest.approx(80_000, rel=0.05)
    assert work.numbers()["rmse"] == 1.0


def test_memory_that_was_given_back_counts_in_the_peak_alone():
    def work():
        ring = [np.ones(4_000_000)]
        ring.append(ring)  # for the collector to find

    before = held_bytes()
    assert peak_mb(work) == pytest.approx(32, rel=0.1)  # a little is of what else the process does
    assert held_bytes() - before < 1e6


ECHO = "print('{}', flush=True)\nwhile True: print(input(), flush=True)"


def test_a_peer_answers_line_by_line():
    with process.Peer("echo", [sys.executable, "-c", ECHO]) as echo:
        assert echo.exchange('{"a": 1}') == {"a": 1}
        assert echo.ask("speed", rows=3) == {"question": "speed", "rows": 3}


def test_a_peer_that_dies_says_so():
    with pytest.raises(process.PeerMissingError, match="mute ended with exit code 3 before it was ready"):
        process.Peer("mute", [sys.executable, "-c", "raise SystemExit(3)"])
    once = [sys.executable, "-c", "print('{}', flush=True); input(); raise SystemExit(4)"]
    with process.Peer("once", once) as dying, pytest.raises(RuntimeError, match="once ended with exit code 4"):
        dying.ask("speed")


def test_an_environment_that_is_installed_is_used_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "CACHE", tmp_path)
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "installed").write_text('[["tool==1"]]')
    assert process.environment("tool", ["tool==1"], newest_python=(3, 0)) == tmp_path / "tool" / "bin" / "python"
    with pytest.raises(process.PeerMissingError, match=r"tool needs Python 3\.0 or older"):
        process.environment("tool", ["tool==2"], newest_python=(3, 0))
