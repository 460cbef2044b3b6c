"""The figures of a pass as one page of HTML, with pictures: it needs no other file and asks no other host.

All texts of the page come from the data, so each is escaped where it enters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from statistics import quantiles

from worker import __version__
from worker.cli.report import text
from worker.cli.report.figures import FEWEST_ROWS, Curve, Report, calibration_error
from worker.cli.report.style import STYLE
from worker.cli.report.svg import WIDE, Axis, Points, Series, chart
from worker.cli.terminal import count
from worker.config import Config
from worker.config.views import plain

_DIAGONAL = Series("", [(0.0, 0.0), (1.0, 1.0)], "faint")


def page_of(report: Report, source: str, label: str, config: Config, remarks: Sequence[str]) -> str:
    """The whole page: figures of the rows of `source`, whose labels are in the column `label`.

    remarks: what was said of the columns before the first row was learned.
    """
    sections = [*_of_classes(report), *_of_numbers(report), *_of_models(report), *_of_data(report, config, remarks)]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(label)} in {escape(source)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{escape(label)} <small>in {escape(source)}</small></h1>
{"".join(_verdict(*verdict) for verdict in text.verdicts(report))}
</header>
<main>
<section class="wide cards">{"".join(_cards(report))}</section>
{"".join(sections)}
</main>
<footer>Every row was forecast first and learned then: no figure knows a label before its forecast.
amf-worker {escape(__version__)}</footer>
</body>
</html>
"""


def _verdict(sentence: str, good: bool) -> str:
    return f'<p class="verdict {"good" if good else "poor"}">{escape(sentence)}</p>'


def _cards(report: Report) -> Iterator[str]:
    for name, ours, theirs in text.scores(report):
        beside = f"<small>baseline {escape(theirs)}</small>" if theirs else "<small></small>"
        yield f"<div><span>{escape(name)}</span><b>{escape(ours)}</b>{beside}</div>"
    rate = f"{report.rows / report.seconds:,.0f} rows a second"
    yield f"<div><span>rows</span><b>{count(report.rows)}</b><small>{rate}</small></div>"
    if report.rejects:
        yield f"<div><span>refused</span><b>{count(report.rejects.total())}</b><small>see below</small></div>"


def _of_classes(report: Report) -> Iterator[str]:
    if not report.classes.count:
        return
    yield _learning(report.loss_curve, "log-loss", report.baseline.log_loss)
    if report.roc:
        positive = report.positive or ""
        roc = [Series("", report.roc, "first"), _DIAGONAL]
        axes = Axis("share of the others above the threshold", 0, 1), Axis(f"share of {positive} above it", 0, 1)
        yield _section(f"ROC: area {text.figure(report.auc)}", chart(roc, *axes))
        share = report.positive_share
        curves = [Series("", report.precision_recall, "first"), Series("", [(0.0, share), (1.0, share)], "faint")]
        axes = Axis(f"share of {positive} that is found (recall)", 0, 1), Axis("share of hits (precision)", 0, 1)
        yield _section(f"Precision and recall: average {text.figure(report.average_precision)}", chart(curves, *axes))
    if report.calibration:
        # What was said a few times only came true by chance; where there is nothing else it is better than nothing.
        enough = [each for each in report.calibration if each.n >= FEWEST_ROWS] or report.calibration
        points = [(each.mean_probability, each.share_true) for each in enough]
        top = 1.0 if not report.roc else min(1.0, 1.1 * max(max(point) for point in points) or 1.0)
        diagonal = Series("as said", [(0.0, 0.0), (top, top)], "faint")
        drawn = chart(
            [Series("came true", points, "first", dots=True), diagonal],
            Axis("probability that was said", 0, top),
            Axis("share that came true", 0, top),
        )
        error = text.figure(calibration_error(report.calibration))
        sentence = f"It shows {text.calibration_title(report)}, by what was said."
        yield _section(f"Calibration: error {error}", drawn, sentence)
    if report.confusion:
        yield _confusion(report)


def _of_numbers(report: Report) -> Iterator[str]:
    if not report.numbers.count:
        return
    yield _learning(report.error_curve, "RMSE", report.baseline.rmse, scale=math.sqrt)
    pairs = [(label, estimate) for label, estimate, *_ in report.estimates.rows]
    # Outliers would leave a dot of all others.
    cuts = quantiles([value for pair in pairs for value in pair], n=200) if len(pairs) > 1 else [0.0, 1.0]
    low, high = cuts[0], cuts[-1]
    inside = [(a, b) for a, b in pairs if low <= a <= high and low <= b <= high]
    drawn = chart(
        [Series("", inside, "first", dots=True, line=False), Series("", [(low, low), (high, high)], "faint")],
        Axis("label", low, high),
        Axis("estimate", low, high),
    )
    yield _section(
        "Labels and estimates",
        drawn,
        f"{len(inside):,} rows, evenly spread and without the outermost; the line is where they agree.",
    )
    yield _section("Calibration", _table(text.QUANTILE_HEADERS, text.quantile_rows(report)))
    if fifths := text.fifth_rows(report):
        sentence = "How many labels were up to a quantile, by a fifth of the estimates each, small ones first."
        yield _section("Calibration by size", _table(text.FIFTH_HEADERS, fifths), sentence)


def _learning(
    curve: Curve, name: str, baseline: float | None, scale: Callable[[float], float] = lambda mean: mean
) -> str:
    points, running = ([(row, scale(mean)) for row, mean in each] for each in (curve.points(), curve.running()))
    last = running[-1][0]
    series = [Series("in each window", points, "second"), Series("all rows so far", running, "first")]
    lines: list[Points] = [points, running]
    if baseline is not None:
        flat = [(0.0, baseline), (float(last), baseline)]
        series.append(Series("baseline", flat, "faint"))
        lines.append(flat)
    # The first rows know nothing: their losses would flatten all that follows.
    later = sorted(value for line in lines for row, value in line if row > last / 20) or [1.0]
    top = 1.15 * later[-1]
    drawn = chart(series, Axis("rows", 0, last), Axis(name, 0, top), width=WIDE)
    return _section(f"Learning: {name} of rows as they came", drawn, wide=True)


def _confusion(report: Report) -> str:
    headers, rows = text.confusion_table(report)
    body = []
    for row in rows:
        numbers = [int(cell.replace(",", "")) for cell in row[1:-1]]
        total = sum(numbers) or 1
        cells = "".join(
            f'<td style="--share:{number / total:.3f}" class="share">{escape(cell)}</td>'
            for cell, number in zip(row[1:-1], numbers, strict=True)
        )
        body.append(f"<tr><th>{escape(row[0])}</th>{cells}<td>{escape(row[-1])}</td></tr>")
    head = "".join(f"<th>{escape(each)}</th>" for each in headers)
    drawn = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    return _section(
        "Confusion",
        drawn,
        "Labels by row, the likeliest class by column; the last column is their share of right ones.",
    )


def _of_models(report: Report) -> Iterator[str]:
    if report.features:
        yield _features(report)
    facts = [
        ("rows with a label", count(report.labelled)),
        ("models", count(report.models)),
        ("nodes", count(report.nodes)),
        ("mean depth of a row's leaf", f"{report.depth:.2f}"),
        ("mean depth at which prunings end", f"{report.weighted_depth:.2f}"),
        *(("trees replaced by better ones", count(n)) for n in (report.swaps,) if n is not None),
    ]
    yield _section("The forests", _table(("", ""), facts))
    if len(report.by_model) > 1:
        title, headers, rows = text.models_table(report)
        yield _section(title[0].upper() + title[1:], _table(headers, rows), wide=True)


def _features(report: Report) -> str:
    shown, columns = report.features[: text.MOST_FEATURES], text.feature_columns(report)
    longest = [max(column.figure(feature) or 0.0 for feature in shown) or 1.0 for column in columns]
    rows = []
    for feature in shown:
        cells = "".join(
            f'<td class="bar"><i style="width:{100 * (column.figure(feature) or 0.0) / full:.1f}%"></i></td>'
            f"<td>{text.feature_cell(feature, column)}</td>"
            for column, full in zip(columns, longest, strict=True)
        )
        rows.append(f"<tr><th>{escape(feature.name)}</th>{cells}</tr>")
    head = "".join(f'<th colspan="2">{column.header}</th>' for column in columns)
    widths = '<col class="name">' + '<col><col class="figure">' * len(columns)
    drawn = f'<table class="bars">{widths}<thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    sentence = "; ".join(f"{column.header}: {column.meaning}" for column in columns)
    more = len(report.features) - text.MOST_FEATURES
    rest = f" {more} others have a smaller share." if more > 0 else ""
    return _section("What the forecasts rest on", drawn, f"{sentence[0].upper()}{sentence[1:]}.{rest}")


def _of_data(report: Report, config: Config, remarks: Sequence[str]) -> Iterator[str]:
    sentences = [*remarks, *report.notes, *text.refusals(report)]
    if sentences:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        yield _section("The data", f"<ul>{items}</ul>", wide=True)
    parameters = "".join(
        _fact(name, value if isinstance(value, str) else json.dumps(value))
        for name, value in plain(config.models.default).items()
    )
    sentence = "Of models that no override of the configuration names."
    yield _section("Parameters", f'<div class="facts">{parameters}</div>', sentence, wide=True)


def _fact(name: str, value: str) -> str:
    return f"<span>{escape(name)} <b>{escape(value)}</b></span>"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in headers)
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if any(headers) else ""
    return f'<div class="scroll"><table>{top}<tbody>{body}</tbody></table></div>'


def _section(title: str, content: str, sentence: str = "", *, wide: bool = False) -> str:
    below = f"<p>{escape(sentence)}</p>" if sentence else ""
    if wide:
        return f'<section class="wide"><h2>{escape(title)}</h2><div class="scroll">{content}</div>{below}</section>\n'
    return f"<section><h2>{escape(title)}</h2>{content}{below}</section>\n"
