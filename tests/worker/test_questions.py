"""Questions about models: what the loop answers, and that they cost it little and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.worker.support import tasks
from tests.worker.support.bench import Bench, Bound
from tests.worker.support.fakes import config
from worker.base.records import NumberScores
from worker.base.status import (
    MOST_QUESTIONS,
    MOST_TREES,
    Board,
    Busy,
    FeatureWeight,
    ModelDetail,
    ModelPage,
    OneModel,
    PageOfModels,
    Question,
)
from worker.runtime.status import REST
from worker.state import descriptions


def answered(worker: Bound, question: Question) -> object:
    answer = worker.board.ask(question)
    worker.turns(1)
    return answer.result(0)


def test_a_model_is_described() -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed(*"ab" * 50, key="k")
    worker.turns(1)
    found = answered(worker, OneModel("k"))
    assert isinstance(found, ModelDetail)
    assert (found.key, found.partition, found.samples, found.in_memory) == ("k", 0, 100, True)
    assert found.classes == ["a", "b"]
    assert found.features is not None
    assert sum(each.share for each in found.features) == pytest.approx(1.0)
    assert found.scores["count"] == 100
    assert found.loss is not None
    assert found.loss.calibrated is not None
    assert answered(worker, OneModel("unknown")) is None
    assert answered(worker, OneModel("k", partition=1)) is None


@pytest.mark.parametrize("label", ["ab", (1.5, 2.5)], ids=["classes", "numbers"])
def test_a_model_that_adapts_tells_how(label: Sequence[str | float]) -> None:
    kind = "classifier" if isinstance(label, str) else "regressor"
    bench = Bench(algorithm=f"adaptive-{kind}", n_estimators=MOST_TREES + 10, review_every=8)
    worker = bench.worker().join()
    bench.feed(*label * 30)
    worker.turns(1)
    found = answered(worker, OneModel("k"))
    assert isinstance(found, ModelDetail)
    assert found.adaptation is not None
    assert found.adaptation.feature_weights == [FeatureWeight("0", 1.0)], "of one feature there is nothing to choose"
    assert len(found.adaptation.trees) == MOST_TREES
    assert {tree.role for tree in found.adaptation.trees} <= {"active", "standing-by", "silent"}
    assert max(tree.age for tree in found.adaptation.trees) == 60
    assert found.attributions is None
    assert found.adaptation.forecasting > 0
    told = msgspec.json.decode(msgspec.json.encode(found))["adaptation"]
    assert told["swaps"] == found.adaptation.swaps
    assert told["trees"][0].keys() == {"role", "age", "loss"}


def test_a_model_whose_forecasts_are_explained_tells_what_moved_them() -> None:
    bench = Bench()
    bench.config = replace(bench.config, output=replace(bench.config.output, explain=1))
    worker = bench.worker().join()
    bench.feed(*"ab" * 50)
    worker.turns(1)
    found = answered(worker, OneModel("k"))
    assert isinstance(found, ModelDetail)
    assert found.adaptation is None
    assert found.attributions is not None
    [(name, moved)] = [(each.name, each.moved) for each in found.attributions]
    assert name == "0"
    assert 0 < moved < 1


def test_a_model_of_numbers_is_described() -> None:
    bench = Bench(algorithm="amf-regressor")
    worker = bench.worker().join()
    bench.feed(*[1.5, 2.5] * 20)
    worker.turns(1)
    found = answered(worker, OneModel("k"))
    assert isinstance(found, ModelDetail)
    assert found.classes is found.n_classes is None
    assert {"count", "rmse", "mae", "coverage_90"} == found.scores.keys()
    assert descriptions._means(NumberScores()) == {"count": 0}


def test_models_are_paged_in_the_order_of_partitions_and_of_when_they_came() -> None:
    bench = Bench(partitions=2)
    worker = bench.worker().join()
    for partition, keys in ((0, "bac"), (1, "ed")):
        for key in keys:
            bench.feed("a", partition=partition, key=key)
    worker.turns(1)
    for offset, expected in ((0, "ba"), (2, "ce"), (4, "d"), (5, ""), (99, "")):
        page = answered(worker, PageOfModels(offset, 2))
        assert isinstance(page, ModelPage)
        assert (page.total, "".join(row.key for row in page.models)) == (5, expected)


def test_a_model_that_is_away_is_described_without_being_loaded() -> None:
    bench = Bench(cache_bytes=1_000_000)
    worker = bench.worker().join()
    bench.feed(*"ab" * 50)
    worker.turns(1)
    entry = worker._worker._tasks[0].models.entry("k")
    assert entry is not None
    entry.leave(type("Nowhere", (), {"length": 0})())
    found = answered(worker, OneModel("k"))
    assert isinstance(found, ModelDetail)
    assert (found.samples, found.in_memory, found.features, found.classes) == (100, False, None, None)
    assert entry.model is None


def test_questions_cost_the_loop_a_hundredth_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed("a")
    worker.turns(1)
    slow = descriptions.detail

    def one_second(*arguments: object) -> object:
        bench.clock.sleep(1.0)
        return slow(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(descriptions, "detail", one_second)
    first, last = (worker.board.ask(OneModel("k")) for _ in range(2))
    worker.turns(1)
    assert (first.done(), last.done()) == (True, False)
    bench.clock.sleep(REST - 1)
    worker.turns(1)
    assert not last.done()
    bench.clock.sleep(1.0)
    worker.turns(1)
    assert last.done()


def test_categories_and_what_tells_that_a_value_is_missing_are_no_features_of_their_own() -> None:
    here = tasks.partition(config())
    features = [{"country": country, "amount": i or None} for i, country in enumerate(("de", "fr", "it"))]
    here.process(tasks.records(*(("k", {"features": each, "label": "a"}) for each in features)))
    entry = here.models.entry("k")
    assert entry is not None
    assert entry.model is not None
    assert entry.model.forest.n_features > 2
    assert descriptions.detail(0, entry).n_features == 2


def test_a_question_that_cannot_be_answered_does_not_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    worker = bench.worker().join()
    bench.feed("a")
    worker.turns(1)
    monkeypatch.setattr(descriptions, "detail", lambda *_: 1 / 0)
    answer = worker.board.ask(OneModel("k"))
    worker.turns(1)
    assert isinstance(answer.exception(0), ZeroDivisionError)


def test_questions_do_not_pile_up_and_cancelled_ones_are_not_answered() -> None:
    board = Board()
    answers = [board.ask(OneModel("k")) for _ in range(MOST_QUESTIONS)]
    with pytest.raises(Busy):
        board.ask(OneModel("k"))
    for answer in answers[:-1]:
        answer.cancel()
    last = board.next_question()
    assert last is not None
    assert last[1] is answers[-1]
    assert board.next_question() is None


def test_looking_changes_nothing_that_is_saved() -> None:
    """With questions in every turn outputs and checkpoints are those of a worker that is not asked."""
    published = []
    for asks in (False, True):
        bench = Bench()
        worker = bench.worker().join()
        for _ in range(5):
            bench.feed(*"abab")
            if asks:
                worker.board.ask(OneModel("k"))
                worker.board.ask(PageOfModels(0, 10))
            worker.turns(1)
        worker.close()
        published.append((bench.published(), sorted(bench.store.objects)))
    assert published[0] == published[1]
