"""The task `abstention`: the classifier as a user fits it, DSE's thresholds, and equal false rejection rates."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from turnwise.assist.evaluation_tasks import CLASSIFIERS, evaluate_abstention
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.intents import (
    OUT_OF_SCOPE,
    IntentData,
    IntentUtterance,
    OutOfScopeTexts,
    load_intents,
)
from turnwise.evaluation.metrics import DESCRIPTIVE_METRICS, FALSE_REJECTION, Outcome, compute_per_run
from turnwise.evaluation.tasks.intents import sample_few_shot
from turnwise.evaluation.tasks.out_of_scope import detect_out_of_scope
from turnwise.models.vector_cache import VectorCache

DATA = os.environ.get("TURNWISE_DATA")
SEEDS = 3
KINDS = "abcdef"


class Around:
    """Made-up vectors: around a centre for each intent, anywhere for the rest."""

    def encode(
        self, inputs: Sequence[str], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        return np.stack([self.vector(text) for text in inputs])

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        kind, number = text.split()
        centre = 0 if kind == "none" else np.random.default_rng(ord(kind)).normal(size=12)
        made = np.random.default_rng(sum(map(ord, kind)) * 1000 + int(number)).normal(size=12) * 0.7 + centre
        return (made / np.linalg.norm(made)).astype(np.float32)


def rows(first: int, last: int) -> tuple[IntentUtterance, ...]:
    return tuple(
        IntentUtterance(f"{kind} {number}", f"intent {kind}") for number in range(first, last) for kind in KINDS
    )


OUTSIDE = OutOfScopeTexts(tuple(f"none {n}" for n in range(20)), (), tuple(f"none {n}" for n in range(20, 60)))
DATASET = IntentData("toy", rows(0, 20), rows(20, 22), rows(22, 40), OUTSIDE)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return evaluate_abstention(Around(), DATASET, seeds=SEEDS, false_rejection=0.1)


def values(outcomes: Sequence[Outcome], setting: str) -> dict[str, list[float]]:
    """The figure of every run by metric, as a share."""
    metrics = {
        each.metric: compute_per_run(each.statistic, each.table).tolist()
        for each in outcomes
        if each.setting == setting
    }
    assert metrics, setting
    return metrics


@pytest.mark.parametrize("way", CLASSIFIERS)
def test_a_classifier_is_fitted_on_the_shots_alone(way: str, outcomes: list[Outcome]) -> None:
    metrics = values(outcomes, f"5-shot {way}, 10% named")
    texts = [row.text for row in DATASET.train]
    intents = [row.intent for row in DATASET.train]
    truth = np.array([*(row.intent for row in DATASET.test), *(OUT_OF_SCOPE for _ in OUTSIDE.test)])
    outside = truth == OUT_OF_SCOPE
    for seed in range(SEEDS):
        support = sample_few_shot(intents, 5, seed)[0]
        classifier = IntentClassifier(Around(), false_rejection=0.1, **CLASSIFIERS[way])  # type: ignore[arg-type]
        classifier.fit([texts[row] for row in support], [intents[row] for row in support])
        predictions = classifier.predict([*(row.text for row in DATASET.test), *OUTSIDE.test])
        assert metrics[FALSE_REJECTION][seed] == pytest.approx((predictions[~outside] == OUT_OF_SCOPE).mean())
        assert metrics["OOS-Recall"][seed] == pytest.approx((predictions[outside] == OUT_OF_SCOPE).mean())
        assert metrics["In-Accuracy"][seed] == pytest.approx((predictions[~outside] == truth[~outside]).mean())
        assert metrics["Accuracy"][seed] == pytest.approx((predictions == truth).mean())


@pytest.mark.parametrize("threshold", ["mean", "mean-std"])
def test_the_papers_thresholds_are_those_of_out_of_scope_detection(threshold: str, outcomes: list[Outcome]) -> None:
    theirs = detect_out_of_scope(Around(), DATASET, shots=(5,), seeds=SEEDS)
    metrics = values(outcomes, f"5-shot DSE's threshold {threshold}")
    rejected = metrics.pop(FALSE_REJECTION)
    expected = values(theirs, f"5-shot, threshold {threshold}")
    assert metrics == {metric: expected[metric] for metric in ("Accuracy", "In-Accuracy", "OOS-Recall")}
    # what is turned away is not right either
    assert all(rate <= 1 - right + 1e-6 for rate, right in zip(rejected, metrics["In-Accuracy"], strict=True))


@pytest.mark.parametrize(
    ("moved", "like"),
    [
        ("DSE's similarity, moved to the false rejection of neighbours", "neighbours, 10% named"),
        ("neighbours, moved to the false rejection of DSE's mean", "DSE's threshold mean"),
        ("neighbours, moved to the false rejection of DSE's mean-std", "DSE's threshold mean-std"),
    ],
)
def test_what_is_moved_turns_away_as_many(moved: str, like: str, outcomes: list[Outcome]) -> None:
    assert values(outcomes, f"5-shot {moved}")[FALSE_REJECTION] == values(outcomes, f"5-shot {like}")[FALSE_REJECTION]


def test_recall_at_equal_rates_is_that_of_the_score(outcomes: list[Outcome]) -> None:
    """Of DSE's similarity: how many out of scope lie below as many in-scope utterances as ours turns away."""
    settings = ("5-shot neighbours, 10% named", "5-shot DSE's similarity, moved to the false rejection of neighbours")
    ours, theirs = (values(outcomes, setting) for setting in settings)
    intents = [row.intent for row in DATASET.train]
    for seed in range(SEEDS):
        support = sample_few_shot(intents, 5, seed)[0]
        centres = np.stack(
            [
                np.mean([Around().vector(DATASET.train[row].text) for row in support if intents[row] == intent], axis=0)
                for intent in sorted(set(intents))
            ]
        )
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
        inside, outside = (
            (np.stack([Around().vector(text) for text in texts]) @ centres.T).max(1)
            for texts in ([row.text for row in DATASET.test], OUTSIDE.test)
        )
        count = round(ours[FALSE_REJECTION][seed] * len(inside))
        assert theirs["OOS-Recall"][seed] == pytest.approx((outside < sorted(inside)[count]).mean())


def test_out_of_scope_examples_are_used_where_there_are_any(outcomes: list[Outcome]) -> None:
    setting = "5-shot neighbours, 10% named, with out-of-scope examples"
    assert any(each.setting == setting for each in outcomes)
    without = IntentData("toy", DATASET.train, (), DATASET.test, OutOfScopeTexts(test=OUTSIDE.test))
    outcomes = evaluate_abstention(Around(), without, seeds=1, false_rejection=0.1)
    assert not any("with out-of-scope examples" in each.setting for each in outcomes)


def test_false_rejection_makes_no_model_better_than_another() -> None:
    assert FALSE_REJECTION in DESCRIPTIVE_METRICS


def test_data_sets_without_what_it_takes_say_so() -> None:
    with pytest.raises(DatasetError, match="toy has no out-of-scope utterances"):
        evaluate_abstention(Around(), IntentData("toy", rows(0, 3), (), rows(3, 5)))
    with pytest.raises(DatasetError, match="toy has no second example of any intent"):
        evaluate_abstention(Around(), IntentData("toy", rows(0, 1), (), rows(3, 5), OUTSIDE))


@pytest.mark.full
@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
def test_the_named_rate_holds_on_clinc150() -> None:
    """Within two points over ten seeds with five examples per intent, and a higher recall than DSE's similarity."""
    from turnwise.models.encoder import Encoder

    data = load_intents("clinc150", Path(str(DATA)))
    ways = {"neighbours": CLASSIFIERS["neighbours"]}
    outcomes = evaluate_abstention(VectorCache(Encoder.load("minilm")), data, classifiers=ways)
    ours = values(outcomes, "5-shot neighbours, 5% named")
    theirs = values(outcomes, "5-shot DSE's similarity, moved to the false rejection of neighbours")
    assert abs(np.mean(ours[FALSE_REJECTION]) - 0.05) <= 0.02
    assert np.mean(ours["OOS-Recall"]) > np.mean(theirs["OOS-Recall"])
