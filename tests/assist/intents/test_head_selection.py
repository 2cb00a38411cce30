"""The head that `auto` chooses: by cross-validation, deterministic, kept when examples change, stored."""

import json

import numpy as np
import pytest

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import pairs, world
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import IntentExamples
from turnwise.assist.intents.heads import FOLDS, LogisticHead, SimilarityScorer, assign_folds
from turnwise.assist.intents.selection import choose_head, select_head

SEED = 3


def make_examples(intents: int, count: int, seed: int = 0, spread: float = 0.6) -> IntentExamples:
    vectors, labels = world(intents, count, seed, spread=spread)
    return IntentExamples.from_pairs(
        [(f"text {row}", f"intent {label:02}") for row, label in enumerate(labels)], vectors
    )


def test_scores_are_those_of_predictions_for_left_out_folds():
    examples = make_examples(6, 7, spread=2.5)
    selection = select_head(examples, 5, SEED)
    vectors, labels, fold_of = examples.vectors, examples.labels, assign_folds(examples.labels, FOLDS, SEED)
    correct = {"neighbours": 0, "logistic": 0}
    for fold in range(FOLDS):
        seen, left_out = fold_of != fold, fold_of == fold
        scorer = SimilarityScorer.fit(vectors[seen], labels[seen], 5)
        correct["neighbours"] += (scorer.score(vectors[left_out]).argmax(1) == labels[left_out]).sum()
        head = LogisticHead.fit(vectors[seen], labels[seen])
        correct["logistic"] += (head.logits(vectors[left_out]).argmax(1) == labels[left_out]).sum()
    assert selection.evaluated == len(labels) and 0 < correct["logistic"] < len(labels)
    assert selection.accuracy == {head: pytest.approx(count / len(labels)) for head, count in correct.items()}
    assert select_head(examples, 5, SEED) == selection  # the seed decides the folds


def test_logistic_is_chosen_unless_neighbours_are_clearly_better():
    def choose(only_neighbours: int, only_logistic: int, both: int = 50) -> str:
        counts = (only_neighbours, only_logistic, both)
        flags = {
            "neighbours": np.repeat([True, False, True], counts),
            "logistic": np.repeat([False, True, True], counts),
        }
        return choose_head(flags).head

    assert choose(0, 0) == choose(0, 5) == choose(3, 3) == choose(1, 0) == "logistic"
    assert choose(5, 0) == choose(20, 10) == "neighbours"


@pytest.mark.parametrize(("intents", "count"), [(1, 10), (4, 2)])
def test_with_few_examples_the_default_is_used(intents, count):
    selection = select_head(make_examples(intents, count), 5, SEED)
    assert selection.head == "neighbours"
    assert "the default" in selection.reason and selection.accuracy == {}


def test_large_sets_are_evaluated_in_part():
    selection = select_head(make_examples(5, 1_000), 5, SEED)
    assert 2_000 <= selection.evaluated <= 2_100


def test_the_choice_is_stored_and_kept_when_examples_change(tmp_path, monkeypatch):
    monkeypatch.setattr(IntentClassifier, "load_encoder", lambda self: BagOfWords())
    classifier = IntentClassifier("named").fit(*pairs())
    assert classifier.head == "auto" and classifier.head_ == classifier.head_selection_.head == "logistic"
    classifier.add("hours", ["when do you open"])
    assert classifier.head_ == "logistic" and classifier.model_.logistic is not None
    classifier.save(tmp_path / "intents")
    loaded = IntentClassifier.load(tmp_path / "intents")
    assert (loaded.head_, loaded.head_selection_) == ("logistic", classifier.head_selection_)
    # a folder of an earlier version does not say how its head was chosen
    path = tmp_path / "intents" / "intents.json"
    description = json.loads(path.read_text(encoding="utf-8"))
    del description["head_selection"]
    path.write_text(json.dumps(description), encoding="utf-8")
    assert IntentClassifier.load(tmp_path / "intents").head_selection_ is None
