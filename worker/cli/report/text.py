"""The figures of a pass as tables on stdout, and the one sentence that decides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from typing import NamedTuple

from worker.base.records import QUANTILES
from worker.cli.report.figures import Bin, FeatureFigures, ModelFigures, Report, Share, baseline_of, calibration_error
from worker.cli.terminal import count, say, table

MOST_MODELS = 20
MOST_CLASSES = 8
MOST_FEATURES = 12
REST = "(others)"
_UNEVEN = 0.15
"""How far from one half the share of labels up to the median may be in a fifth of the estimates."""


def show(report: Report) -> None:
    """Print the figures."""
    rows = [
        ("rows", count(report.rows)),
        ("refused", count(report.rejects.total())),
        ("labelled", count(report.labelled)),
        ("depth", f"{report.depth:.2f}"),
        ("weighted depth", f"{report.weighted_depth:.2f}"),
        ("models", count(report.models)),
        ("nodes", count(report.nodes)),
        *(("trees replaced", count(n)) for n in (report.swaps,) if n is not None),
        ("events/s", f"{report.rows / report.seconds:,.0f}"),
    ]
    table(("", ""), rows)
    if len(report.by_model) > 1:
        print()
        title, headers, cells = models_table(report)
        table(headers, cells, title=title)
    if report.confusion:
        print()
        headers, cells = confusion_table(report)
        table(headers, cells, title="labels by row, forecasts by column")
    if report.calibration and report.classes.count:
        print()
        table(CALIBRATION_HEADERS, [bin_cells(each) for each in report.calibration], title=calibration_title(report))
    if report.numbers.count:
        print()
        table(QUANTILE_HEADERS, quantile_rows(report), title="how many labels were up to a quantile")
        if fifths := fifth_rows(report):
            print()
            table(FIFTH_HEADERS, fifths, title="the same by a fifth of the estimates each")
    if report.features:
        print()
        headers, cells = features_table(report)
        table(headers, cells, title="what the forecasts rest on")
    print()
    table(("", "forest", "baseline"), list(scores(report)))
    print()
    for sentence, good in verdicts(report):
        say(sentence, "green" if good else "yellow")
    for sentence in (*report.notes, *refusals(report)):
        say(sentence)


def scores(report: Report) -> Iterator[tuple[str, str, str]]:
    """Those of the sorts of models that there are, beside the baseline's; of classes where there is none yet."""
    baseline = report.baseline
    if report.classes.count or not report.numbers.count:
        yield "log-loss", figure(report.log_loss), figure(baseline.log_loss)
        yield "accuracy", figure(report.accuracy), figure(baseline.accuracy)
    if report.auc is not None:
        auc, precision = report.baseline_ranking()
        yield f"AUC (class {report.positive})", figure(report.auc), figure(auc)
        yield f"average precision (class {report.positive})", figure(report.average_precision), figure(precision)
    if report.classes.count:
        yield "calibration error", figure(calibration_error(report.calibration)), ""
    if report.numbers.count:
        # In the unit of the label, which may be any: figures that matter, not decimals.
        yield "RMSE", unit(report.rmse), unit(baseline.rmse)
        yield "MAE", unit(report.mae), ""
        yield "std", unit(report.std), ""
        yield "coverage of 90 %", figure(report.coverage), ""


class Verdict(NamedTuple):
    """A sentence that decides, and whether it is good news."""

    sentence: str
    good: bool


def verdicts(report: Report) -> Iterator[Verdict]:
    """Whether the models are any use, for each sort of label."""
    baseline, refused = report.baseline, report.rejects.total()
    if refused > report.rows / 10:
        yield Verdict(
            f"{count(refused)} of {count(report.rows)} rows were refused, and no figure is of them.", good=False
        )
    pairs = (
        ("log-loss", report.log_loss, baseline.log_loss, figure),
        ("RMSE", report.rmse, baseline.rmse, unit),
    )
    for name, ours, theirs, text in pairs:
        if ours is None or theirs is None:
            continue
        than = f"{name} {text(ours)} against {text(theirs)} of the baseline ({baseline.says})"
        if ours < 0.999 * theirs:
            less = f"{1 - ours / theirs:.1%} less"
            yield Verdict(f"The forecasts tell more than the labels alone: {than}, {less}.", good=True)
        else:
            yield Verdict(f"The forecasts tell no more than the labels alone: {than}.", good=False)
    if any(each.shares[1].distance(0.5) > _UNEVEN for each in report.coverage_by_size()):
        yield Verdict(
            "The quantiles are right over all rows, but not for small and large estimates alike. Of amounts and "
            "durations take the logarithm as the label: its quantiles are those of the amounts.",
            good=False,
        )
    if not report.is_scored:
        yield Verdict(f"No forecast was scored: {_why_none(report)}.", good=False)
    if report.interrupted:
        rows = count(report.rows)
        yield Verdict(f"Interrupted: the figures are those of the first {rows} rows.", good=False)


def _why_none(report: Report) -> str:
    if not report.rows:
        return "there are no rows"
    if report.labelled:
        return "no row came with a label after the first of its model, before which there is nothing to forecast"
    return "every row was refused" if report.rejects.total() == report.rows else "no row that was taken has a label"


def refusals(report: Report) -> Iterator[str]:
    """Why rows were refused."""
    for code, n in report.rejects.most_common():
        rows = "1 row was" if n == 1 else f"{n:,} rows were"
        yield f"{rows} refused as {code}, first {report.first_rejects[code]}"


# --- tables, for the page too -----------------------------------------------------------------------------------------

_MODEL_HEADERS = ("model", "labelled", "log-loss", "baseline", "accuracy", "RMSE", "baseline", "nodes", "depth")
QUANTILE_HEADERS = ("quantile", "said", "came true")
FIFTH_HEADERS = ("estimates", *(f"up to {name}" for name in QUANTILES))
CALIBRATION_HEADERS = ("said", "came true", "forecasts")


def models_table(report: Report) -> tuple[str, Sequence[str], list[Sequence[str]]]:
    """Title, headers and rows of the models with the most labels; figures that none of them has are left out."""
    n = len(report.by_model)
    title = f"models: {MOST_MODELS} of {count(n)}, those with most labels" if n > MOST_MODELS else "models"
    largest = nlargest(MOST_MODELS, report.by_model.items(), key=lambda item: _labelled(item[1]))
    rows = [_model_row(key, model) for key, model in largest]
    kept = [column for column in range(len(_MODEL_HEADERS)) if any(row[column] != "-" for row in rows)]
    return title, [_MODEL_HEADERS[column] for column in kept], [[row[column] for column in kept] for row in rows]


def _model_row(key: str, model: ModelFigures) -> Sequence[str]:
    baseline = baseline_of([model])
    return (
        key,
        count(_labelled(model)),
        figure(model.log_loss),
        figure(baseline.log_loss),
        figure(model.accuracy),
        unit(model.rmse),
        unit(baseline.rmse),
        count(model.nodes),
        f"{model.depth:.1f}",
    )


def confusion_table(report: Report) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Headers and rows: how often each class was said of each, the commonest classes by name."""
    totals: dict[str, int] = {}
    for (label, said), n in report.confusion.items():
        totals[label] = totals.get(label, 0) + n
        totals.setdefault(said, 0)
    shown = sorted(nlargest(MOST_CLASSES, totals, key=lambda text: totals[text]), key=_in_order)
    names = shown if len(shown) == len(totals) else [*shown, REST]
    cells: dict[tuple[str, str], int] = {}
    for (label, said), n in report.confusion.items():
        place = label if label in shown else REST, said if said in shown else REST
        cells[place] = cells.get(place, 0) + n
    rows: list[Sequence[str]] = []
    for label in names:
        row = [cells.get((label, said), 0) for said in names]
        # Of several classes in one nobody can tell which of them were right.
        recall = cells.get((label, label), 0) / sum(row) if sum(row) and label in shown else None
        rows.append([label, *map(count, row), figure(recall)])
    return ("", *names, "recall"), rows


def calibration_title(report: Report) -> str:
    if report.roc:
        return f"how often class {report.positive} came true"
    return "how often the likeliest class was right"


def bin_cells(each: Bin) -> Sequence[str]:
    return figure(each.mean_probability), figure(each.share_true), count(each.n)


def quantile_rows(report: Report) -> list[Sequence[str]]:
    """What was said of the labels, and what came true."""
    shares = report.coverage_by_quantile()
    return [(name, figure(float(name)), _came_true(share)) for name, share in zip(QUANTILES, shares, strict=True)]


def fifth_rows(report: Report) -> list[Sequence[str]]:
    """What came true of each quantile, by how large the estimate was."""
    fifths = report.coverage_by_size()
    return [(f"{unit(each.smallest)} to {unit(each.largest)}", *map(_came_true, each.shares)) for each in fifths]


def _came_true(share: Share) -> str:
    """Where labels are the quantile, the shares without them and with them."""
    below, up_to = map(figure, share)
    return up_to if below == up_to else f"{below} to {up_to}"


class FeatureColumn(NamedTuple):
    """A figure of features, as it is shown."""

    header: str
    meaning: str
    figure: Callable[[FeatureFigures], float | None]
    spec: str


_FEATURE_COLUMNS = (
    FeatureColumn(
        "share",
        "how much of the depth of the forecasts is due to splits on the feature",
        lambda feature: feature.share,
        ".1%",
    ),
    FeatureColumn(
        "weight",
        "how much likelier a cut is of it than without weights, 1 in the mean: what recent splits on it told of labels",
        lambda feature: feature.weight,
        ".2f",
    ),
    FeatureColumn(
        "moved",
        "how much it moved a forecast of late, up or down, in probability or in the label's unit",
        lambda feature: feature.moved,
        ".3g",
    ),
)


def feature_columns(report: Report) -> list[FeatureColumn]:
    """The figures that there are of features."""
    return [each for each in _FEATURE_COLUMNS if any(each.figure(feature) is not None for feature in report.features)]


def features_table(report: Report) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Headers and rows of the features that are used most, and the share of the rest in one row."""
    columns = feature_columns(report)
    rows: list[Sequence[str]] = [
        (feature.name, *(feature_cell(feature, column) for column in columns))
        for feature in report.features[:MOST_FEATURES]
    ]
    if rest := report.features[MOST_FEATURES:]:
        share = sum(feature.share for feature in rest)
        rows.append((f"({len(rest)} others)", f"{share:.1%}", *("-" for _ in columns[1:])))
    return ("feature", *(column.header for column in columns)), rows


def feature_cell(feature: FeatureFigures, column: FeatureColumn) -> str:
    value = column.figure(feature)
    return "-" if value is None else format(value, column.spec)


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def unit(value: float | None) -> str:
    """A figure in the unit of the label, which may be any: digits that matter, not decimals."""
    return "-" if value is None else f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.5g}"


def _in_order(text: str) -> tuple[int, str]:
    """Classes that are numbers in the order of these, then all others."""
    return (int(text), "") if text.isdecimal() and len(text) < 20 else (sys.maxsize, text)


def _labelled(model: ModelFigures) -> int:
    return model.classes.count + model.numbers.count
