"""Out-of-scope detection against a plain statement of the paper's protocol and of the authors' code."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import accuracy_score, recall_score, roc_auc_score, roc_curve

from tests.helpers.encoders import TextEncoder
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.intents import OUT_OF_SCOPE, IntentData, IntentUtterance, OutOfScopeTexts
from turnwise.evaluation.metrics import Outcome, compute_per_run
from turnwise.evaluation.tasks.intents import sample_few_shot
from turnwise.evaluation.tasks.out_of_scope import detect_out_of_scope

SEEDS = 4


class RandomEncoder(TextEncoder):
    """Vectors around a centre for each intent, and anywhere for the rest."""

    def __init__(self) -> None:
        super().__init__(vector, max_length=64)


def vector(text: str) -> npt.NDArray[np.float32]:
    kind, number = text.split()
    random = np.random.default_rng(sum(map(ord, kind)) * 1000 + int(number))
    made = random.normal(size=8) * 0.6 + (0 if kind == "none" else np.random.default_rng(ord(kind)).normal(size=8))
    return (made / np.linalg.norm(made)).astype(np.float32)


KINDS = "abcdef"


def rows(first: int, last: int) -> tuple[IntentUtterance, ...]:
    return tuple(
        IntentUtterance(f"{kind} {number}", f"intent {kind}") for number in range(first, last) for kind in KINDS
    )


DATASET = IntentData(
    "toy",
    rows(0, 20),
    rows(20, 22),
    rows(22, 40),
    OutOfScopeTexts(tuple(f"none {n}" for n in range(20)), (), tuple(f"none {n}" for n in range(20, 60))),
)


def values(outcomes: Sequence[Outcome], setting: str) -> dict[str, list[float]]:
    """Return the value of every run by metric, as a fraction."""
    return {
        each.metric: compute_per_run(each.statistic, each.table).tolist()
        for each in outcomes
        if each.setting == setting
    }


def expected(decisions: list[list[str]]) -> dict[str, list[float]]:
    """The paper's metrics by scikit-learn, from the predicted intents of every run."""
    truth = np.array([row.intent for row in DATASET.test] + [OUT_OF_SCOPE] * len(DATASET.out_of_scope.test))
    outside = truth == OUT_OF_SCOPE
    metrics: dict[str, list[float]] = {
        "Accuracy": [],
        "In-Accuracy": [],
        "OOS-Accuracy": [],
        "OOS-Recall": [],
        "Ave.": [],
    }
    for run in decisions:
        predicted = np.array(run)
        four = (
            accuracy_score(truth, predicted),
            accuracy_score(truth[~outside], predicted[~outside]),
            accuracy_score(outside, predicted == OUT_OF_SCOPE),
            recall_score(outside, predicted == OUT_OF_SCOPE),
        )
        for metric, value in zip(metrics, (*four, sum(four) / 4), strict=True):
            metrics[metric].append(value)
    return metrics


def similarities(
    texts: Sequence[str], train: Sequence[IntentUtterance], support: Sequence[int]
) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Cosines to each intent's prototype, by plain loops."""
    intents = sorted({row.intent for row in train})
    centres = [
        np.mean([vector(train[index].text) for index in support if train[index].intent == intent], axis=0)
        for intent in intents
    ]
    centres = [centre / np.linalg.norm(centre) for centre in centres]
    return intents, np.array([[float(vector(text) @ centre) for centre in centres] for text in texts])


TEST = [*(row.text for row in DATASET.test), *DATASET.out_of_scope.test]


@pytest.mark.parametrize("shots", [1, 5])
def test_the_papers_protocol(shots: int) -> None:
    encoder = RandomEncoder()
    outcomes = detect_out_of_scope(encoder, DATASET, shots=(shots,), seeds=SEEDS, false_rejection=0.2)
    assert len(encoder.encoded) == len(set(encoder.encoded))
    assert all(
        outcome.task == "out-of-scope" and outcome.evidence.shape[:2] == (SEEDS, len(TEST)) for outcome in outcomes
    )
    runs: dict[str, list[list[str]]] = {"mean": [], "mean-std": [], "from validation": []}
    areas, passed = [], []
    for seed in range(SEEDS):
        support, validation = sample_few_shot([row.intent for row in DATASET.train], shots, seed)
        intents, table = similarities(TEST, DATASET.train, support)
        highest = table.max(1)
        held = similarities([DATASET.train[index].text for index in validation], DATASET.train, support)[1].max(1)
        thresholds = {
            "mean": highest.mean(),
            "mean-std": highest.mean() - highest.std(),
            "from validation": np.quantile(held, 0.2),
        }
        for name, threshold in thresholds.items():
            runs[name].append([OUT_OF_SCOPE if row.max() < threshold else intents[row.argmax()] for row in table])
        inside = np.arange(len(TEST)) < len(DATASET.test)
        areas.append(roc_auc_score(inside, highest))
        false, true, _ = roc_curve(inside, highest, drop_intermediate=False)
        passed.append(false[np.flatnonzero(true >= 0.95)[0]])
    for name, decisions in runs.items():
        compared = values(outcomes, f"{shots}-shot, threshold {name}")
        assert compared.keys() == expected(decisions).keys()
        for metric, figure in expected(decisions).items():
            assert compared[metric] == pytest.approx(figure), (name, metric)
    free = values(outcomes, f"{shots}-shot, any threshold")
    assert free == {"AUROC": pytest.approx(areas), "FPR95": pytest.approx(passed)}
    # what is measured is neither nothing nor everything
    assert 0.55 < np.mean(areas) < 1


def test_the_authors_code() -> None:
    outcomes = detect_out_of_scope(RandomEncoder(), DATASET, shots=(1,), seeds=SEEDS, authors=True)
    train = DATASET.with_out_of_scope().train
    runs: dict[str, list[list[str]]] = {"mean": [], "mean-std": []}
    for seed in range(SEEDS):
        support, _ = sample_few_shot([row.intent for row in train], 1, seed)
        intents, table = similarities(TEST, train, support)
        assert len(intents) == len(KINDS) + 1
        table /= np.sqrt((table**2).sum(1, keepdims=True))
        highest = table.max(1)
        for name, threshold in {"mean": highest.mean(), "mean-std": highest.mean() - highest.std()}.items():
            runs[name].append([OUT_OF_SCOPE if row.max() <= threshold else intents[row.argmax()] for row in table])
    assert {outcome.setting for outcome in outcomes} == {
        f"1-shot, threshold {name}, as in the authors' code" for name in runs
    }
    for name, decisions in runs.items():
        for metric, figure in expected(decisions).items():
            assert values(outcomes, f"1-shot, threshold {name}, as in the authors' code")[metric] == pytest.approx(
                figure
            )


def test_data_sets_that_do_not_do_say_so() -> None:
    without = IntentData("toy", rows(0, 3), (), rows(3, 5))
    with pytest.raises(DatasetError, match="toy has no out-of-scope utterances"):
        detect_out_of_scope(RandomEncoder(), without)
    untrained = IntentData("toy", rows(0, 3), (), rows(3, 5), OutOfScopeTexts(test=("none 1",)))
    with pytest.raises(DatasetError, match="toy has no out-of-scope utterances"):
        detect_out_of_scope(RandomEncoder(), untrained, authors=True)
    single = IntentData("toy", rows(0, 1), (), rows(3, 5), OutOfScopeTexts(test=("none 1",)))
    with pytest.raises(DatasetError, match="toy has no second example of any intent"):
        detect_out_of_scope(RandomEncoder(), single)
