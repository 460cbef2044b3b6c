"""`evaluate` is the worker without Kafka: the same forests, the same predictions, whatever the size of a chunk."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import amf
from tests.worker.support.configurations import document
from tests.worker.support.stores import DictStore
from tests.worker.support.tasks import restore
from worker.base.errors import ConfigError
from worker.base.records import Record
from worker.checkpoint import history
from worker.cli import saving
from worker.cli.dataset import Rows, message, open_rows
from worker.cli.evaluate import evaluate
from worker.cli.predictions import PredictionsFile
from worker.cli.ranking import Ranking
from worker.cli.report.figures import Report, calibration_error
from worker.cli.report.text import show
from worker.codec.dead_letters import DECODERS
from worker.config import Config, loads
from worker.state.model import spec_of
from worker.state.targets import seed_of
from worker.task.task import Task

Run = Callable[..., tuple[Report, list[dict[str, str]]]]


def config(models: str) -> Config:
    return loads(document(models=f"{{default: {{{models}}}}}"), {})


def samples(n: int, n_classes: int = 3, seed: int = 0, missing: float = 0.05) -> tuple[Any, Any]:
    """Points of overlapping clusters; the classes come in one after the other."""
    rng = np.random.default_rng(seed)
    y = np.minimum(rng.integers(n_classes, size=n), np.arange(n) // 10)
    x = rng.normal(y[:, None], 1.0, (n, 4)).astype(np.float32)
    x[rng.random((n, 4)) < missing] = np.nan
    return x, y


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def pass_over(rows: Rows, setting: Config | None = None, **more: Any) -> tuple[Report, list[dict[str, str]]]:
        path = tmp_path / "predictions.csv"
        with PredictionsFile(path) as out:
            report, classes, _ = evaluate(rows, setting, out, **more)
            out.finish(classes)
        with path.open(newline="", encoding="utf-8") as file:
            return report, list(csv.DictReader(file))

    return pass_over


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    def write(**columns: Any) -> Path:
        np.savez(tmp_path / "rows.npz", **columns)
        return tmp_path / "rows.npz"

    return write


def probabilities(rows: list[dict[str, str]], classes: list[str]) -> list[list[float]]:
    """As the library gives them: 0 for a class that was not known."""
    return [[float(row[f"p:{text}"] or 0.0) for text in classes] for row in rows]


def test_it_is_the_library_with_the_seed_of_the_key(stored: Callable[..., Path], run: Run) -> None:
    x, y = samples(400, missing=0.0)
    _, rows = run(open_rows(stored(X=x, y=y), n_keys=2), config("n_estimators: 3, seed: 5"))
    assert [row["row"] for row in rows] == [str(i) for i in range(400)]
    for key in (0, 1):
        forest = amf.AMFClassifier(3, seed=seed_of(f"model-{key}", 5))
        expected = forest.predict_learn(x[key::2], y[key::2])
        classes = [amf.class_text(label) for label in forest.class_labels]
        mine = [row for row in rows if row["model"] == f"model-{key}"]
        assert probabilities(mine, classes) == expected.tolist()
        assert [row["learned"] for row in mine] == [str(i) for i in range(200)]
        assert [row["label"] for row in mine] == [str(label) for label in y[key::2]]


def test_it_is_what_the_worker_publishes(stored: Callable[..., Path], run: Run) -> None:
    x, y = samples(300)
    labels = np.where(np.arange(300) % 7 == 0, "", y.astype(str))  # some only to be predicted
    setting = config("n_estimators: 2, max_classes: 2")
    path = stored(X=x, y=labels)
    _, rows = run(open_rows(path, n_keys=3), setting)
    partition = Task(0, setting, 1_000_000)
    restore(partition, (), 0, 0)
    partition.go_live()
    records = [Record(r.number, 0, r.key.encode(), message(r), []) for r in open_rows(path, n_keys=3)]
    outgoing = partition.process(records[:113]).outgoing + partition.process(records[113:]).outgoing
    published = [json.loads(record.value or b"") for record in outgoing if record.topic == "predictions"]
    assert 0 < len(published) < 300
    assert [
        {
            "id": row["row"],
            "model": row["model"],
            "prediction": row["prediction"] or None,
            "probabilities": {name[2:]: float(row[name]) for name in row if name.startswith("p:") and row[name]},
            **({"label": row["label"], "loss": float(row["loss"])} if row["label"] else {}),
            "learned": int(row["learned"]),
        }
        for row in rows
    ] == published


@pytest.mark.parametrize("chunk_rows", [1, 17, 250])
def test_the_size_of_a_chunk_changes_nothing(
    stored: Callable[..., Path], tmp_path: Path, run: Run, chunk_rows: int
) -> None:
    x, y = samples(250, n_classes=4)
    path, written = stored(X=x, y=y), tmp_path / "predictions.csv"
    setting = config("n_estimators: 2, max_classes: 3")
    whole, _ = run(open_rows(path, n_keys=3), setting)
    expected = written.read_bytes()
    report, _ = run(open_rows(path, n_keys=3), setting, chunk_rows=chunk_rows)
    assert written.read_bytes() == expected
    exact = {"rows", "labelled", "classes", "numbers", "rejects", "first_rejects", "auc", "positive", "models", "nodes"}
    assert {k: v for k, v in asdict(report).items() if k in exact} == {
        k: v for k, v in asdict(whole).items() if k in exact
    }
    assert (report.depth, report.weighted_depth) == pytest.approx((whole.depth, whole.weighted_depth))


@pytest.mark.parametrize(
    ("labels", "positive"), [("fraud ok ok", "fraud"), ("yes no yes", "no"), ("no yes", "yes"), ("1 0", "1")]
)
def test_the_class_that_is_ranked_is_the_rarer_one(
    stored: Callable[..., Path], run: Run, labels: str, positive: str
) -> None:
    y = np.array(labels.split() * 50)
    report, _ = run(open_rows(stored(X=samples(len(y), n_classes=2)[0], y=y), n_keys=2))
    assert report.positive == positive


def test_the_figures_are_those_of_the_predictions(stored: Callable[..., Path], run: Run) -> None:
    x, y = samples(300, n_classes=2)
    report, rows = run(open_rows(stored(X=x, y=np.where(y == 1, "yes", "no")), n_keys=2))
    losses = [0.0 - math.log(float(p)) if (p := row["p:" + row["label"]]) else None for row in rows]
    known = [loss for loss in losses if loss is not None]
    assert (report.rows, report.labelled, report.models) == (300, 300, 2)
    assert sum(row["loss"] == repr(loss) for row, loss in zip(rows, losses, strict=True)) == len(known) >= 290
    assert report.log_loss == pytest.approx(sum(float(row["loss"]) for row in rows) / 300)
    assert report.accuracy == sum(row["prediction"] == row["label"] for row in rows) / 300
    rarer = min("yes", "no", key=lambda label: sum(row["label"] == label for row in rows))
    assert report.positive == rarer
    assert report.auc == brute_force_auc(
        [row["label"] == rarer for row in rows], [float(row[f"p:{rarer}"] or 0.0) for row in rows]
    )
    assert 0 < report.weighted_depth < report.depth < 30
    assert report.nodes > 300


REGRESSORS = "overrides: [{match: '*1', algorithm: amf-regressor, n_estimators: 3}]"


def both(path: Path, n_keys: int = 2) -> tuple[Rows, Config]:
    """The rows of a file for models of which every other one estimates a number."""
    setting = loads(document(models=f"{{{REGRESSORS}}}"), {})
    return open_rows(path, n_keys=n_keys, has_numbers=lambda key: key.endswith("1")), setting


def test_numbers_are_estimated_beside_classes(stored: Callable[..., Path], run: Run, tmp_path: Path) -> None:
    x, y = samples(600, missing=0.0)
    y = np.where(np.arange(600) % 2 == 1, x.sum(axis=1) + 0.25, y)
    y[::50] = y[1::50] = np.nan
    path = stored(X=x, y=y)
    report, rows = run(*both(path))
    written = (tmp_path / "predictions.csv").read_bytes()
    forest = amf.AMFRegressor(3, seed=seed_of("model-1", 0))
    told = forest.prequential(x[1::2], y[1::2])
    mine = [row for row in rows if row["model"] == "model-1"]
    numbers = ["prediction", "std", "q:0.05", "q:0.5", "q:0.95"]
    found = np.array([[float(row[name] or "nan") for name in numbers] for row in mine])
    np.testing.assert_array_equal(found, np.column_stack([told.mean, told.std, told.quantiles]))
    assert {row["p:0"] for row in mine} == {""} == {row["std"] for row in rows if row["model"] == "model-0"}
    error = y[1::2] - told.mean
    scored = ~np.isnan(error)
    assert [row["loss"] for row in mine] == [repr(float(e) ** 2) if e == e else "" for e in error]
    assert (report.labelled, report.numbers.count) == (576, scored.sum()) == (576, 287)
    assert report.rmse == pytest.approx(np.sqrt(np.mean(error[scored] ** 2)))
    assert report.mae == pytest.approx(np.mean(np.abs(error[scored])))
    inside = (told.quantiles[:, 0] <= y[1::2]) & (y[1::2] <= told.quantiles[:, 2])
    assert report.coverage == np.mean(inside[scored])
    assert report.std == pytest.approx(np.mean(told.std[scored]))
    assert report.classes.count == 288
    again, _ = run(*both(path), chunk_rows=7)
    assert (tmp_path / "predictions.csv").read_bytes() == written
    assert (again.numbers, again.classes, again.std) == (report.numbers, report.classes, report.std)


def test_numbers_are_shown_where_there_are_some(
    stored: Callable[..., Path], run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(X=[[0.0], [1.0], [2.0]], y=[1.5, 2.5, 4.5])
    setting = config("algorithm: amf-regressor")
    report, rows = run(open_rows(path, has_numbers=lambda key: True), setting)
    show(report)
    shown = capsys.readouterr().out
    errors = [float(row["label"]) - float(row["prediction"]) for row in rows[1:]]
    assert f" {math.sqrt(sum(e * e for e in errors) / 2):.5g} " in shown
    assert all(name in shown for name in ("RMSE", "MAE", "std", "coverage of 90 %"))
    assert "log-loss" not in shown
    assert [row["loss"] for row in rows] == ["", *(repr(e * e) for e in errors)]
    assert not [name for name in rows[0] if name.startswith("p:")]


def test_a_first_label_costs_what_the_contract_says(stored: Callable[..., Path], run: Run) -> None:
    path = stored(X=[[0.0], [1.0], [2.0]], y=["a", "a", "b"])
    _, rows = run(open_rows(path))
    assert [(row["prediction"], row["learned"], row["loss"], row["p:a"], row["p:b"]) for row in rows] == [
        ("", "0", repr(math.log(2)), "", ""),
        ("a", "1", "0.0", "1.0", ""),
        ("a", "2", repr(math.log(4)), "1.0", ""),
    ]


def test_refused_rows_are_counted_and_left_out(stored: Callable[..., Path], run: Run) -> None:
    path = stored(X=np.zeros((5, 2)), y=["a", "b", "c", "a", "d"], k=["m", "m", "m", "n" * 600, "m"])
    report, rows = run(open_rows(path, key="k"), config("max_classes: 2"))
    assert report.rejects == {"too-many-classes": 2, "invalid-key": 1}
    assert report.first_rejects["too-many-classes"].startswith("row 2: label 'c'")
    assert (report.rows, report.labelled, report.models) == (5, 2, 1)
    assert [row["row"] for row in rows] == ["0", "1"]
    assert not {"p:c", "p:d"} & rows[0].keys()


def test_there_are_no_more_models_than_a_partition_may_have(stored: Callable[..., Path], run: Run) -> None:
    path = stored(X=np.zeros((6, 1)), y=["x", "x", "x", "x", "", "x"], k=["a", "b", "c", "a", "c", "c"])
    setting = loads(document(models="{max_models: 2}"), {})
    for chunk_rows in (1, 3, 6):
        report, rows = run(open_rows(path, key="k"), setting, chunk_rows=chunk_rows)
        assert report.rejects == {"too-many-models": 2}
        assert [(row["row"], row["learned"]) for row in rows] == [("0", "0"), ("1", "0"), ("3", "1"), ("4", "0")]
        assert report.models == 2


@pytest.mark.parametrize("codec", ["json", "msgpack", "avro"])
def test_models_are_saved_for_a_worker_with_the_same_codec(stored: Callable[..., Path], codec: str) -> None:
    setting = config("n_estimators: 1")
    setting = replace(setting, input=replace(setting.input, codec=codec))  # type: ignore[arg-type]
    store = DictStore()
    _, _, models = evaluate(open_rows(stored(X=[[1.0]], y=["a"], k=["m"]), key="k"), setting)
    saving.save(store, "rows", 1, models, setting)
    [manifest] = history(store)
    assert manifest.models["m"].spec == spec_of("m", setting.models.default, DECODERS[codec])


def test_parameters_come_from_the_configuration(stored: Callable[..., Path], run: Run) -> None:
    x, y = samples(60, missing=0.0)
    setting = loads(document(models="{default: {n_estimators: 1}, overrides: [{match: '*1', seed: 9}]}"), {})
    _, rows = run(open_rows(stored(X=x, y=y), n_keys=2), setting)
    for key, seed in (("model-0", 0), ("model-1", 9)):
        forest = amf.AMFClassifier(1, seed=seed_of(key, seed))
        first = int(key[-1])
        expected = forest.predict_learn(x[first::2], y[first::2])
        classes = [amf.class_text(label) for label in forest.class_labels]
        assert probabilities([row for row in rows if row["model"] == key], classes) == expected.tolist()


def test_text_in_a_csv_is_learned_as_categories(tmp_path: Path, run: Run) -> None:
    """A label that only a category tells: wrong a few times while the categories come in, then never again."""
    rng = np.random.default_rng(0)
    cities, ages = rng.choice(["Rome", "Oslo", "Bern", "12"], 400), rng.normal(size=400)
    lines = [f"{age},{city},{'north' if city == 'Oslo' else 'south'}" for age, city in zip(ages, cities, strict=True)]
    (tmp_path / "rows.csv").write_text("age,city,side\n" + "\n".join(lines))
    rows = open_rows(tmp_path / "rows.csv", label="side")
    report, predictions = run(rows)
    assert report.rejects == {}
    late = predictions[200:]
    assert sum(row["prediction"] == row["label"] for row in late) / len(late) > 0.98
    small, _ = run(rows, chunk_rows=7)
    assert (small.classes, small.nodes) == (report.classes, report.nodes)


def test_any_text_can_be_a_key_and_a_class(stored: Callable[..., Path], run: Run) -> None:
    texts = ["two\nlines", 'a "quoted", one', "", "ö"]
    path = stored(X=[[0.0], [1.0], [2.0], [3.0]], y=texts, k=["a,b\n", "a,b\n", "x", "a,b\n"])
    _, rows = run(open_rows(path, key="k"))
    assert [row["model"] for row in rows] == ["a,b\n", "a,b\n", "x", "a,b\n"]
    assert [row["label"] for row in rows] == texts
    assert [name for name in rows[0] if name.startswith("p:")] == [f"p:{text}" for text in texts if text]


def test_a_failed_pass_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n1,b\n2,c\n3,b,4\n")
    out = tmp_path / "predictions.csv"
    out.write_text("old")
    with pytest.raises(ConfigError, match=r"rows\.csv:4"), PredictionsFile(out) as file:
        evaluate(open_rows(tmp_path / "rows.csv", label="y"), None, file)
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions.csv", "rows.csv"]


def test_a_file_that_cannot_be_written_is_refused_before_the_pass(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "predictions.csv"):
        with pytest.raises(ConfigError, match="cannot be written"):
            PredictionsFile(path)


def brute_force_auc(positive: list[bool], scores: list[float]) -> float:
    above = [score for score, is_positive in zip(scores, positive, strict=True) if is_positive]
    below = [score for score, is_positive in zip(scores, positive, strict=True) if not is_positive]
    wins = sum(2 * (a > b) + (a == b) for a in above for b in below)
    return wins / (2 * len(above) * len(below))


def brute_force_precision(positive: list[bool], scores: list[float]) -> float:
    own = [score for score, is_positive in zip(scores, positive, strict=True) if is_positive]
    return sum(sum(s >= score for s in own) / sum(s >= score for s in scores) for score in own) / len(own)


def test_bins_have_about_as_many_forecasts_each() -> None:
    rng = np.random.default_rng(0)
    ranking = Ranking()
    for score in rng.random(5000) ** 4:
        ranking.add(int(rng.random() < score), [1.0 - score, score])
    ranked = ranking.ranked(1)
    assert ranked is not None
    bins = ranked.calibration(10)
    assert all(450 <= each.n <= 550 for each in bins)
    assert [each.mean_probability for each in bins] == sorted(each.mean_probability for each in bins)
    assert calibration_error(bins) < 0.03
    ranking.close()


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=30))
def test_auc_is_the_share_of_pairs_in_order(ranked: list[tuple[int, float]]) -> None:
    ranking = Ranking()
    for label, score in ranked:
        ranking.add(label, [1.0 - score, score])
    if len({label for label, _ in ranked}) < 2:
        assert ranking.ranked(1) is None
    else:
        found, other = ranking.ranked(1), ranking.ranked(0)
        assert found is not None
        assert other is not None
        positive, scores = [label == 1 for label, _ in ranked], [score for _, score in ranked]
        assert found.auc() == brute_force_auc(positive, scores) == other.auc()
        assert found.average_precision() == pytest.approx(brute_force_precision(positive, scores))
        bins = found.calibration(10)
        assert sum(each.n for each in bins) == len(ranked)
        assert sum(each.n * each.mean_probability for each in bins) == pytest.approx(sum(scores))
        assert sum(each.n * each.share_true for each in bins) == pytest.approx(sum(positive))
        roc, _ = found.curves()
        assert roc == sorted(roc)
        assert np.trapezoid([up for _, up in roc], [across for across, _ in roc]) == pytest.approx(found.auc())
    ranking.close()


def test_auc_is_of_two_classes_and_an_unknown_one_has_score_0() -> None:
    ranking = Ranking()
    ranking.add(0, [1.0])
    ranking.add(1, [None, 0.3])
    ranked = ranking.ranked(1)
    assert ranked is not None
    assert ranked.auc() == 1.0
    ranking.add(2, [0.2, 0.3, None])
    ranking.add(0, [0.2, 0.3, 0.5])
    assert ranking.ranked(1) is None
