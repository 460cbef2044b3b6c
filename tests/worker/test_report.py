"""What `evaluate` says of a pass: beside what the labels alone would give, as tables and as a page of its own."""

from __future__ import annotations

import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from worker.cli.dataset import open_rows
from worker.cli.evaluate import config_of_rows, evaluate
from worker.cli.report import svg, text
from worker.cli.report.figures import (
    Bin,
    Curve,
    FeatureFigures,
    ModelFigures,
    Report,
    Sample,
    Share,
    baseline_of,
    calibration_error,
)
from worker.cli.report.page import page_of

HOSTILE = "</td><script src='https://example.org/x.js'>alert(1)</script>&\"'"


def report_of(tmp_path: Path, y: Any, key: Any = None, **settings: str) -> Report:
    rng = np.random.default_rng(0)
    numeric = y.dtype.kind == "f"
    signal = y if numeric else (y == y[0]).astype(float)
    x = np.column_stack([signal + rng.normal(size=len(y)), rng.normal(size=len(y))])
    arrays = {"X": x, "y": y} | ({} if key is None else {"k": key})
    np.savez(tmp_path / "rows.npz", **arrays)
    config = config_of_rows({"algorithm": "amf-regressor", **settings} if numeric else settings)
    rows = open_rows(tmp_path / "rows.npz", key=None if key is None else "k", has_numbers=lambda key: numeric)
    return evaluate(rows, config).report


class Page(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "line", "polyline", "circle", "col"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


# The baseline


def test_the_baseline_of_classes_is_what_the_labels_alone_would_give(tmp_path: Path) -> None:
    y = np.where(np.arange(400) % 8 == 0, "yes", "no")
    report = report_of(tmp_path, y)
    share = 1 / 8
    baseline = report.baseline
    assert baseline.says == "always no"
    assert baseline.accuracy == 1 - share
    assert baseline.log_loss == pytest.approx(-share * math.log(share) - (1 - share) * math.log(1 - share))
    assert baseline.rmse is None


def test_each_model_has_a_baseline_of_its_own(tmp_path: Path) -> None:
    key = np.where(np.arange(400) % 2 == 0, "a", "b")
    y = np.where(key == "a", "no", np.where(np.arange(400) % 8 == 1, "no", "yes"))
    report = report_of(tmp_path, y, key)
    assert report.baseline.says == "always the commonest class of each model"
    assert report.baseline.accuracy == (200 + 150) / 400
    assert baseline_of([report.by_model["a"]]).log_loss == 0.0
    assert baseline_of([report.by_model["b"]]).says == "always yes"
    assert [model.classes.count for model in report.by_model.values()] == [200, 200]
    total = sum(model.classes.log_loss for model in report.by_model.values())
    assert report.classes.log_loss == pytest.approx(total)


def test_models_that_differ_in_their_labels_alone_rank_no_better_than_the_baseline(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    key = rng.integers(4, size=1200)
    y = np.where(rng.random(1200) < np.array([0.05, 0.3, 0.3, 0.8])[key], "yes", "no")
    report = report_of(tmp_path, y, np.array(["a", "b", "c", "d"])[key])
    share = [np.mean(y[key == each] == "yes") for each in key]
    auc, precision = report.baseline_ranking()
    assert report.positive == "yes"
    assert auc == pytest.approx(roc_auc_score(y == "yes", share))
    assert precision == pytest.approx(average_precision_score(y == "yes", share))
    assert auc > 0.75
    assert ("AUC (class yes)", f"{report.auc:.4f}", f"{auc:.4f}") in list(text.scores(report))


def test_the_baseline_of_numbers_is_their_spread(tmp_path: Path) -> None:
    y = np.random.default_rng(1).normal(1e6, 5.0, 300)
    report = report_of(tmp_path, y)
    # The first label has no forecast to compare with.
    assert report.baseline == ("always the mean", None, None, pytest.approx(y[1:].std()))
    assert report.below[0] <= report.below[1] <= report.below[2] <= 299


def test_nothing_scored_is_no_division_by_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(tmp_path, np.full(5, ""))
    assert (report.baseline.log_loss, report.baseline.accuracy, report.log_loss) == (None, None, None)
    text.show(report)
    assert re.search(r"^log-loss +- +-$", capsys.readouterr().out, re.MULTILINE)
    Page(page_of(report, "rows.npz", "y", config_of_rows(), []))


# Figures in bounded memory


@given(st.lists(st.floats(0, 10), min_size=1, max_size=3000))
def test_a_curve_is_made_of_means_over_windows(values: list[float]) -> None:
    curve = Curve()
    for value in values:
        curve.add(value)
    points, running = curve.points(), curve.running()
    assert len(points) <= 130
    assert [row for row, _ in points] == sorted({row for row, _ in points})
    assert points[-1][0] == running[-1][0] == len(values)
    widths = np.diff([0, *(row for row, _ in points)])
    assert len(widths) == 1 or widths[-1] >= widths[0] / 2, "the last window is no chance"
    start = 0
    for (row, mean), (_, so_far) in zip(points, running, strict=True):
        assert mean == pytest.approx(sum(values[start:row]) / (row - start), abs=1e-9)
        assert so_far == pytest.approx(sum(values[:row]) / row, abs=1e-9)
        start = row


def test_a_sample_is_spread_over_all_pairs() -> None:
    sample = Sample()
    for i in range(50_000):
        sample.add(float(i), 0.0)
    places = [a for a, _ in sample.rows]
    assert 900 < len(places) <= 2001
    assert len(set(np.diff(places))) == 1
    assert places[-1] > 49_000


def test_the_calibration_error_is_a_mean_over_forecasts() -> None:
    assert calibration_error([Bin(1, 0.5, 1.0), Bin(3, 0.2, 0.1)]) == pytest.approx((0.5 + 3 * 0.1) / 4)
    assert calibration_error([]) is None


def test_quantiles_that_are_right_over_all_rows_alone_are_told_from_those_that_are_right(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    logarithms = 3.0 * rng.random(4000) + rng.normal(0.0, 1.3, 4000)
    for labels, is_uneven in ((np.exp(4.0 * logarithms), True), (logarithms, False)):
        report = report_of(tmp_path, labels)
        fifths = report.coverage_by_size()
        assert [each.smallest for each in fifths] == sorted(each.smallest for each in fifths)
        shares = [[share.up_to for share in each.shares] for each in fifths]
        assert np.mean(shares, axis=0) == pytest.approx([0.05, 0.5, 0.95], abs=0.03)
        assert any("not for small and large" in verdict.sentence for verdict in text.verdicts(report)) == is_uneven
    assert not report_of(tmp_path, logarithms[:300]).coverage_by_size()


def test_many_labels_that_are_zero_do_not_speak_against_quantiles_that_are_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    y = np.where(rng.random(3000) < 0.7, 0.0, rng.normal(10.0, 1.0, 3000))
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(3000, 2)), y=y)
    rows = open_rows(tmp_path / "rows.npz", has_numbers=lambda key: True)
    report = evaluate(rows, config_of_rows({"algorithm": "amf-regressor"})).report
    # The median of what is 0 seven times of ten is 0, and so have seven of ten labels to be up to it.
    for share, said in zip(report.coverage_by_quantile(), (0.05, 0.5, 0.95), strict=True):
        assert share.distance(said) < 0.03
    assert report.coverage_by_quantile()[1].up_to > 0.65
    assert not any("quantiles" in verdict.sentence for verdict in text.verdicts(report))
    assert re.fullmatch(r"0\.\d{4} to 0\.\d{4}", text.quantile_rows(report)[1][2])
    assert Share(0.2, 0.7).distance(0.8) == pytest.approx(0.1) == Share(0.9, 0.9).distance(0.8)


def test_rows_that_are_refused_are_the_first_news() -> None:
    report = Report(rows=100, rejects=Counter({"wrong-type": 20}))
    assert next(text.verdicts(report)) == ("20 of 100 rows were refused, and no figure is of them.", False)
    report.rejects["wrong-type"] = 5
    assert "refused" not in next(text.verdicts(report)).sentence


def test_a_probability_that_was_said_once_is_in_the_table_and_not_in_the_picture(tmp_path: Path) -> None:
    report = report_of(tmp_path, np.arange(300) % 3)
    report.calibration = [Bin(1, 0.3, 0.0), Bin(20, 0.5, 0.6), Bin(400, 0.9, 0.9)]
    assert page_of(report, "rows.npz", "y", config_of_rows(), []).count("<circle") == 2
    report.calibration = [Bin(1, 0.3, 0.0), Bin(5, 0.5, 0.6)]
    assert page_of(report, "rows.npz", "y", config_of_rows(), []).count("<circle") == 2


# As tables


def test_tables_say_what_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = np.where(np.arange(600) % 3 == 0, "yes", "no")
    report = report_of(tmp_path, y)
    text.show(report)
    shown = capsys.readouterr().out
    figures = {line.split("  ")[0].strip(): line.split() for line in shown.splitlines() if "  " in line}
    assert figures["log-loss"][-2:] == [f"{report.log_loss:.4f}", f"{report.baseline.log_loss:.4f}"]
    assert figures["accuracy"][-1] == "0.6667"
    assert figures["AUC (class yes)"][-1] == "0.5000"
    assert figures["average precision (class yes)"][-1] == "0.3333"
    assert f"The forecasts tell more than the labels alone: log-loss {report.log_loss:.4f} against" in shown
    confusion = {(label, said): n for (label, said), n in report.confusion.items()}
    assert f"{confusion['yes', 'yes'] / sum(n for (label, _), n in confusion.items() if label == 'yes'):.4f}" in shown
    assert [feature.name for feature in report.features] == ["f0", "f1"]
    assert sum(feature.share for feature in report.features) == pytest.approx(1.0)
    assert "weight" not in shown.replace("weighted", "")
    assert "replaced" not in shown


def test_a_label_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text.show(report_of(tmp_path, np.where(np.arange(60) % 3 == 0, "yes", "\x1b[31mno")))
    shown = capsys.readouterr().out
    assert "always \\x1b[31mno" in shown
    assert "\x1b" not in shown


def test_labels_without_signal_are_said_to_be(tmp_path: Path) -> None:
    report = report_of(tmp_path, np.random.default_rng(5).integers(2, size=300))
    report.classes.log_loss = 1e9
    [(sentence, good)] = text.verdicts(report)
    assert not good
    assert sentence.startswith("The forecasts tell no more than the labels alone: log-loss ")


def test_many_models_and_classes_and_features_are_shown_in_part() -> None:
    report = Report(features=[FeatureFigures(f"f{i}", 1 / 30, i / 30, None) for i in range(30)])
    for i in range(100):
        model = report.by_model.setdefault(f"m{i}", ModelFigures())
        model.classes.count = i
    for i in range(30):
        report.confusion[f"c{i}", f"c{(i * 7) % 30}"] += i + 1
    title, headers, rows = text.models_table(report)
    assert title == "models: 20 of 100, those with most labels"
    assert [row[0] for row in rows] == [f"m{i}" for i in range(99, 79, -1)]
    assert "RMSE" not in headers
    names, cells = text.confusion_table(report)
    assert names[1:-1] == (*sorted(f"c{i}" for i in range(22, 30)), "(others)")
    assert (cells[-1][0], cells[-1][-1]) == ("(others)", "-")
    assert sum(int(cell) for row in cells for cell in row[1:-1]) == report.confusion.total()
    headers, rows = text.features_table(report)
    assert headers == ("feature", "share", "weight")
    assert rows[1] == ("f1", "3.3%", "0.03")
    assert rows[-1] == ("(18 others)", "60.0%", "-")


def test_classes_that_are_numbers_stand_in_their_order() -> None:
    report = Report()
    for label in ("10", "9", "b", "a", "1" * 30):
        report.confusion[label, label] += 1
    assert text.confusion_table(report)[0] == ("", "9", "10", "1" * 30, "a", "b", "recall")


def test_adaptive_models_show_weights_and_swaps_and_explained_ones_what_moved_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    y = np.where(np.arange(600) % 3 == 0, "yes", "no")
    key = np.where(np.arange(600) % 2 == 0, "a", "b")
    report = report_of(tmp_path, y, key, **{"algorithm": "adaptive-classifier", "output.explain": "1"})
    text.show(report)
    shown = capsys.readouterr().out
    weights, moves = zip(*((feature.weight, feature.moved) for feature in report.features), strict=True)
    assert sum(weights) == pytest.approx(2.0), "1 in the mean of the features, over the models too"
    assert 0 < moves[1] < moves[0] < 1
    assert re.search(r"^feature +share +weight +moved$", shown, re.MULTILINE)
    assert re.search(rf"^trees replaced +{report.swaps}$", shown, re.MULTILINE)
    assert report.swaps is not None
    html = page_of(report, "rows.npz", "y", config_of_rows(), [])
    assert Page(html).open == []
    for feature in report.features:
        assert f"<td>{feature.weight:.2f}</td>" in html
        assert f"<td>{feature.moved:.3g}</td>" in html
    assert html.count('<i style="width:100.0%"></i>') == 3
    assert "trees replaced by better ones" in html


def test_numbers_that_adapt_have_weights(tmp_path: Path) -> None:
    report = report_of(tmp_path, np.random.default_rng(1).normal(size=400), algorithm="adaptive-regressor")
    assert [feature.weight is not None for feature in report.features] == [True, True]
    assert report.features[0].weight > 1 > report.features[1].weight  # type: ignore[operator]
    assert [feature.moved for feature in report.features] == [None, None]


def test_a_feature_with_more_texts_than_columns_is_named(tmp_path: Path) -> None:
    """What the further ones tell is not learned, and no figure shows that."""
    lines = [f"m{row % 12},{row % 3},{row % 2}" for row in range(120)]
    (tmp_path / "rows.csv").write_text("\n".join(["shop,kind,y", *lines]))
    rows = open_rows(tmp_path / "rows.csv", label="y", has_numbers=lambda key: False)
    for most, named in ((11, True), (12, True), (13, False)):
        settings = config_of_rows({"models.default.max_categories": str(most)})
        notes = [note for note in evaluate(rows, settings).report.notes if "max_categories" in note]
        expected = f"'shop' has {most} different texts or more, and those beyond max_categories={most} look alike: "
        assert notes == ([f"{expected}where they recur, raise it, or make 'shop' the model key"] if named else [])
    by_kind = open_rows(tmp_path / "rows.csv", label="y", key="kind")
    [note, *_] = evaluate(by_kind, config_of_rows({"models.default.max_categories": "2"})).report.notes
    assert note.endswith("max_categories=2 look alike: where they recur, raise it")


def test_a_number_has_one_column_and_is_not_full_of_texts(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("\n".join(["amount,y", *(f"{row % 7},{row % 2}" for row in range(60))]))
    rows = open_rows(tmp_path / "rows.csv", label="y")
    settings = config_of_rows({"models.default.max_categories": "1"})
    assert [note for note in evaluate(rows, settings).report.notes if "max_categories" in note] == []


# As a page


def test_the_page_needs_nothing_else_and_takes_no_text_for_markup(tmp_path: Path) -> None:
    y = np.where(np.arange(300) % 3 == 0, HOSTILE, "no")
    report = report_of(tmp_path, y, key=np.where(np.arange(300) % 2 == 0, HOSTILE, "other"))
    report.notes.append(HOSTILE)
    report.rejects["unknown-class"] = 1
    report.first_rejects["unknown-class"] = HOSTILE
    report.features.append(FeatureFigures(HOSTILE, 0.0, None, None))
    html = page_of(report, HOSTILE, HOSTILE, config_of_rows({"classes": "[a, '<b>']"}), [])
    page = Page(html)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "image", "use", "a"}
    assert not [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href")]
    assert "url(" not in html
    assert "@import" not in html
    assert page.open == []
    assert page.text.count("alert(1)") >= 8
    assert "default-src 'none'" in html


@pytest.mark.parametrize("kind", ["classes", "two", "numbers"])
def test_the_page_shows_the_figures_and_draws_them(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    y = {"classes": rng.integers(5, size=300), "two": rng.integers(2, size=300), "numbers": rng.normal(size=300)}[kind]
    report = report_of(tmp_path, y)
    page = Page(page_of(report, "rows.npz", "y", config_of_rows(), []))
    for name, ours, theirs in text.scores(report):
        assert name in page.text
        assert ours in page.text
        assert theirs in page.text
    headings = {"two": {"ROC", "Precision and recall", "Confusion"}, "classes": {"Confusion"}, "numbers": {"Labels"}}
    for heading in (*headings[kind], "Learning", "Calibration", "What the forecasts rest on", "Parameters"):
        assert heading in page.text
    assert ("ROC" in page.text) == (kind == "two")
    assert "amf-regressor" not in page.text
    assert (
        sum(tag == "svg" for tag, _ in page.tags) == {"two": 5, "classes": 3, "numbers": 3}[kind]
    )  # one is drawn wide and narrow
    for tag, attributes in page.tags:
        if tag == "polyline":
            places = [float(n) for pair in (attributes["points"] or "").split() for n in pair.split(",")]
            assert len(places) >= 4
            assert all(0 <= n <= svg.WIDE for n in places)


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12))
@example(-5168744.900043995, 1e-9)
def test_ticks_are_round_few_and_within(low: float, length: float) -> None:
    high = low + length
    found = svg.ticks(low, high)
    assert 1 <= len(found) <= 7
    assert found == sorted(found)
    slack = 1e-6 * max(abs(low), abs(high), length)
    assert all(low - slack <= tick <= high + slack for tick in found)


def test_a_chart_of_one_point_or_of_nothing_has_axes() -> None:
    for points in ([(1.0, 5.0)], [], [(0.0, math.inf)]):
        axes = svg.Axis("a<b", 1, 1), svg.Axis("c", 0, 0)
        drawn = svg.chart([svg.Series("<x>", points, "first", dots=True)], *axes)
        assert "nan" not in drawn
        assert "a&lt;b" in drawn
