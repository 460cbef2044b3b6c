"""`evaluate` as its user sees it: figures, notes, and files that it writes."""

from __future__ import annotations

import csv
import gzip
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.support.printed import Main, figures, without_speed
from tests.worker.support.rows import CsvFile


def test_evaluate_shows_its_figures_and_writes_its_predictions(main: Main, rows_npz: Path, tmp_path: Path) -> None:
    out_path = tmp_path / "predictions.csv"
    code, out, err = main("evaluate", rows_npz, "--keys", 2, "--out", out_path)
    assert (code, err) == (0, "")
    shown = figures(out)
    with out_path.open(newline="") as file:
        predictions = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in predictions]
    assert (shown["rows"], shown["labelled"], shown["refused"], shown["models"]) == ("200", "200", "0", "2")
    assert shown["log-loss"].split()[0] == f"{sum(losses) / 200:.4f}"
    assert shown["accuracy"].split()[0] == f"{sum(row['prediction'] == row['label'] for row in predictions) / 200:.4f}"
    rarer = min("01", key=lambda label: sum(row["label"] == label for row in predictions))
    assert {f"AUC (class {rarer})", "depth", "weighted depth", "nodes", "events/s"} <= shown.keys()
    assert out.endswith(f"predictions in {out_path}\n")
    *columns, one, other = predictions[0]
    assert columns == ["row", "model", "label", "prediction", "learned", "loss"]
    assert {one, other} == {"p:0", "p:1"}


def test_predictions_are_a_row_each_whatever_is_in_their_cells(main: Main, csv_file: CsvFile, tmp_path: Path) -> None:
    odd = 'a\rb,"\n'
    rows = [["key", "id", "x", "y"], [odd, odd, "1", odd], [odd, "\r", "2", "p"]]
    file, out_path = io.StringIO(), tmp_path / "predictions.csv"
    csv.writer(file).writerows(rows)
    few = ["--label", "y", "--key", "key", "--id", "id", "--out", out_path]
    assert main("evaluate", csv_file(file.getvalue()), *few)[0] == 0
    with out_path.open(newline="") as written:
        predictions = list(csv.DictReader(written))
    assert [(row["id"], row["model"], row["label"]) for row in predictions] == [(odd, odd, odd), ("\r", odd, "p")]
    assert out_path.read_bytes().endswith(b"\n")
    assert b"\r\n" not in out_path.read_bytes()


def test_evaluate_takes_the_parameters_of_a_configuration(main: Main, rows_npz: Path, worker_yaml: Path) -> None:
    worker_yaml.write_text(worker_yaml.read_text() + "models: {default: {max_classes: 2, classes: ['0', '2']}}\n")
    code, out, _ = main("evaluate", rows_npz, "--config", worker_yaml)
    refused = int(figures(out)["refused"])
    assert code == 0
    assert 50 < refused < 150
    assert re.search(rf"^{refused} rows were refused as unknown-class, first row \d+: label '1' is none of", out, re.M)


def test_evaluate_estimates_numbers_where_the_configuration_says_so(
    main: Main, worker_yaml: Path, tmp_path: Path
) -> None:
    worker_yaml.write_text(worker_yaml.read_text() + "models: {default: {algorithm: amf-regressor}}\n")
    rows = tmp_path / "prices.csv"
    rows.write_text("rooms,price\n" + "".join(f"{i % 7},{100.5 * (i % 7)}\n" for i in range(200)))
    code, out, err = main("evaluate", rows, "--label", "price", "--config", worker_yaml, "--out", tmp_path / "out.csv")
    assert (code, err) == (0, "")
    shown = figures(out)
    assert (shown["labelled"], shown["refused"]) == ("200", "0")
    rmse, of_mean = map(float, shown["RMSE"].split())
    assert 0 < float(shown["MAE"]) < rmse < 200.0 < of_mean < 202.0
    assert float(shown["std"]) > 0
    assert 0.5 < float(shown["coverage of 90 %"]) <= 1.0
    with (tmp_path / "out.csv").open(newline="") as file:
        assert next(csv.reader(file)) == [
            "row", "model", "label", "prediction", "learned", "loss", "std", "q:0.05", "q:0.5", "q:0.95",
        ]  # fmt: skip


def test_evaluate_needs_labels(main: Main, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    code, out, err = main("evaluate", path)
    assert (code, out) == (2, "")
    assert err == f"amf-worker: {path}: --label must name the column of the labels; there are a, b\n"


def test_evaluate_warns_of_columns_that_teach_nothing(main: Main, churn_csv: Path) -> None:
    code, _, err = main("evaluate", churn_csv, "--label", "churned")
    assert code == 0
    assert re.match(r"note: column 'id' has 300 different texts in 300 rows: as good as unique, ", err)
    code, _, err = main("evaluate", churn_csv, "--label", "churned", "--id", "id", "--time", "when")
    assert (code, err) == (0, "")
    code, _, err = main("evaluate", churn_csv, "--label", "churned", "--drop", "id", "--drop", "when")
    assert (code, err) == (0, "")


def test_ids_come_back_in_the_predictions(main: Main, churn_csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert main("evaluate", churn_csv, "--label", "churned", "--id", "id", "--out", out)[0] == 0
    header, first, *_ = out.read_text().splitlines()
    assert header.startswith("row,id,model,label,")
    assert first.startswith("0,tx-0,model-0,")


def test_a_numeric_label_is_estimated_and_evaluate_says_so(main: Main, prices_csv: Path) -> None:
    code, out, err = main("evaluate", prices_csv, "--label", "price")
    assert code == 0
    assert re.match(r"note: the labels are numbers, 300 different ones in the first 300: they are estimated\.", err)
    assert "RMSE" in out
    assert "log-loss" not in out
    guessed = without_speed(out)
    for decided in (["--regression"], ["--set", "algorithm=amf-regressor"]):
        code, out, err = main("evaluate", prices_csv, "--label", "price", *decided)
        assert (code, without_speed(out), err) == (0, guessed, "")


def test_a_configuration_that_takes_quantities_for_classes_is_questioned(
    main: Main, prices_csv: Path, worker_yaml: Path
) -> None:
    code, out, err = main("evaluate", prices_csv, "--label", "price", "--config", worker_yaml)
    assert code == 0
    assert "log-loss" in out
    assert err.endswith("and the configuration takes them for classes: --regression estimates them\n")


def test_an_option_for_the_labels_counts_more_than_what_they_look_like(main: Main, prices_csv: Path) -> None:
    for decided in (["--classification"], ["--set", "algorithm=amf-classifier"]):
        code, out, err = main("evaluate", prices_csv, "--label", "price", *decided)
        assert (code, err) == (0, "")
        assert "log-loss" in out
    code, _, err = main("evaluate", prices_csv, "--label", "price", "--regression", "--classification")
    assert code == 2
    assert "not allowed with" in err


def test_an_algorithm_and_an_option_for_the_labels_must_go_together(main: Main, prices_csv: Path) -> None:
    few = ["evaluate", prices_csv, "--label", "price", "--set", "algorithm=adaptive-regressor"]
    code, out, _ = main(*few, "--regression")
    assert code == 0
    assert "trees replaced" in out
    code, _, err = main(*few, "--classification")
    assert code == 2
    assert "--classification: the labels of the algorithm adaptive-regressor are numbers; leave one of them out" in err


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("y,a\n", [], "there are no rows"),
        ("y,a\nred,1\nblue,2\n", ["--regression"], "every row was refused"),
        ("y,a\n,1\n,2\n", [], "no row that was taken has a label"),
        ("y,a\n2,1\n", ["--regression"], "nothing to forecast"),
    ],
)
def test_a_pass_that_scores_nothing_has_failed_and_says_why(
    main: Main, tmp_path: Path, text: str, options: list[str], why: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    code, out, _ = main("evaluate", path, "--label", "y", *options)
    assert code == 1
    assert "No forecast was scored: " in out
    assert why in out


def test_evaluate_writes_a_page(main: Main, churn_csv: Path, tmp_path: Path) -> None:
    page = tmp_path / "churn.html"
    few = ["evaluate", churn_csv, "--label", "churned", "--key", "city", "--drop", "id", "--drop", "when", "--report"]
    code, out, err = main(*few, page)
    assert (code, err) == (0, "")
    assert f"report in {page}\n" in out
    assert page.read_text().startswith("<!doctype html>")
    assert "<th>Rome</th>" in page.read_text()
    code, out, err = main(*few, tmp_path / "none" / "churn.html")
    assert (code, out) == (2, "")  # before the pass
    assert "cannot be written" in err


def test_rows_come_through_a_pipe(main: Main, churn_csv: Path) -> None:
    few = ["--label", "churned", "--drop", "id", "--drop", "when"]
    _, expected, _ = main("evaluate", churn_csv, *few)
    piped = subprocess.run(
        [sys.executable, "-m", "worker", "evaluate", "-", *few],
        input=gzip.compress(churn_csv.read_bytes()),
        capture_output=True,
    )
    assert (piped.returncode, without_speed(piped.stdout.decode())) == (0, without_speed(expected))


def test_evaluate_does_not_write_over_its_rows(main: Main, churn_csv: Path, tmp_path: Path) -> None:
    rows, link = churn_csv.read_bytes(), tmp_path / "link.csv"
    link.symlink_to(churn_csv)
    for option in ("--out", "--report"):
        code, out, err = main("evaluate", churn_csv, "--label", "churned", option, link)
        assert (code, out) == (2, "")
        assert f"{option} would take the place of the rows" in err
    assert churn_csv.read_bytes() == rows
