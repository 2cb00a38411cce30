"""Fine-tuned tasks: what they learn from made-up data, what they sample, and F1 against scikit-learn."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import f1_score

from turnwise.core.dialogue import Turn
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.candidates import QuestionData
from turnwise.evaluation.datasets.dialogues import ActionData, ActionExample
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance
from turnwise.evaluation.metrics import compute_per_run
from turnwise.evaluation.tasks import fine_tuning
from turnwise.evaluation.tasks.fine_tuning import (
    ACTIONS,
    INTENTS,
    RESPONSES,
    fine_tuned_actions,
    fine_tuned_intents,
    fine_tuned_responses,
)
from turnwise.evaluation.tasks.intents import sample_few_shot
from turnwise.evaluation.tasks.responses import rank_answers
from turnwise.evaluation.tasks.scoring import binarise_labels, f1_outcomes, f1_scores
from turnwise.models.encoder import Encoder

QUICK = {"learning_rate": 5e-3, "epochs": 10}  # tiny models of random weights need larger steps than real ones

FILLERS = ["i", "want", "please", "a", "now", "the", "good"]


@pytest.fixture(scope="module")
def encoder(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


def sentence(random: np.random.Generator, word: str) -> str:
    return f"{' '.join(random.choice(FILLERS, 3))} {word}"


def intent_data(seed: int = 0) -> IntentData:
    random = np.random.default_rng(seed)
    words = {"ride": "taxi", "stay": "hotel", "eat": "table"}

    def utterances(count: int) -> tuple[IntentUtterance, ...]:
        return tuple(
            IntentUtterance(sentence(random, word), intent) for intent, word in words.items() for _ in range(count)
        )

    return IntentData("toy", utterances(12), (), utterances(10))


def action_data(last: bool = True) -> ActionData:
    """The system informs where a hotel was mentioned, and asks back where a taxi was: it may do both, or neither."""
    random = np.random.default_rng(0)

    def examples(count: int) -> tuple[ActionExample, ...]:
        made = []
        for _ in range(count):
            hotel, taxi = random.random(2) < 0.5
            utterance = sentence(
                random, " ".join(word for word, there in (("hotel", hotel), ("taxi", taxi)) if there) or "no"
            )
            turns = (Turn("user", "hello"), Turn("system", "hello what you want"), Turn("user", utterance))
            actions = [name for name, there in (("inform", hotel), ("request", taxi)) if there]
            made.append(ActionExample(turns, tuple(actions) or ("bye",), last))
        return tuple(made)

    return ActionData("toy", examples(60), (), examples(40))


def test_intents_are_learnt_and_the_encoder_is_left_alone(encoder: Encoder) -> None:
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    data = intent_data()
    chosen = replace(INTENTS, **QUICK)
    outcomes = fine_tuned_intents(encoder, data, shots=(1, 5), seeds=2, settings=chosen)
    assert [outcome.key for outcome in outcomes] == [
        ("intents", "toy", f"{shots}-shot fine-tuned", "accuracy") for shots in (1, 5)
    ]
    assert outcomes[1].evidence.shape == (2, 30)
    assert outcomes[1].evidence.mean() > 0.8
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    # every run starts from the same weights: a later one gives the same alone, and again
    alone = fine_tuned_intents(encoder, data, shots=(5,), seeds=2, settings=chosen)
    assert np.array_equal(alone[0].evidence, outcomes[1].evidence)


def test_an_intent_that_is_never_learnt_is_never_right(encoder: Encoder) -> None:
    data = intent_data()
    strange = (IntentUtterance("where is the train", "travel"),)
    outcome = fine_tuned_intents(
        encoder, replace(data, test=data.test + strange), shots=(1,), seeds=1, settings=replace(INTENTS, steps=1)
    )[0]
    assert outcome.evidence[0, -1] == 0


def test_missing_validation_examples_are_an_error(encoder: Encoder) -> None:
    data = replace(intent_data(), train=(IntentUtterance("taxi", "ride"), IntentUtterance("hotel", "stay")))
    with pytest.raises(DatasetError, match="toy has no label with two training examples"):
        fine_tuned_intents(encoder, data, seeds=1)


@pytest.mark.full
def test_responses_improve(encoder: Encoder) -> None:
    """Question and answer share a word of eight: an encoder that has learnt to look for it finds the answer."""
    random = np.random.default_rng(0)
    words = ["book", "cancel", "taxi", "hotel", "flight", "cheap", "city", "north"]
    pairs = [(sentence(random, word), f"yes {word}") for word in words for _ in range(16)]
    seen: list[tuple[str, int, int]] = []
    outcomes = fine_tuned_responses(
        encoder,
        QuestionData("toy", tuple(pairs)),
        shots=(32,),
        seeds=2,
        settings=replace(RESPONSES, batch_size=8, learning_rate=5e-3, epochs=25, evaluate_every=50),
        candidates=10,
        progress=lambda *report: seen.append(report),
    )
    assert [outcome.key for outcome in outcomes] == [
        ("responses", "toy", "32-shot fine-tuned", f"Top-{cutoff}") for cutoff in (1, 3, 5, 10)
    ]
    assert outcomes[0].evidence.shape == (2, 64)
    assert [report[1:] for report in seen] == [(0, 2), (1, 2)]
    order = np.random.default_rng(0).permutation(len(pairs))
    before = rank_answers(encoder, [pairs[row] for row in order[64:]], "toy", candidates=10)
    assert outcomes[0].evidence.mean() > before[0].evidence.mean() + 0.3


def test_too_few_pairs_are_refused(encoder: Encoder) -> None:
    with pytest.raises(DatasetError, match="needs at least 40"):
        fine_tuned_responses(encoder, QuestionData("toy", (("a", "b"),) * 39), shots=(10,))


def test_actions_are_learnt(encoder: Encoder) -> None:
    vocabulary = len(encoder.backbone.tokenizer)
    chosen = replace(ACTIONS, batch_size=4, **QUICK)
    micro, macro = fine_tuned_actions(encoder, action_data(), shots=(10,), seeds=2, settings=chosen)
    assert micro.key == ("actions", "toy", "10-shot fine-tuned", "Micro F1")
    assert macro.metric == "Macro F1"
    assert micro.evidence.shape == (2, 40, 2)
    assert macro.evidence.shape == (2, 40, 6)
    assert micro.row().value > 70
    # the tokens that name a speaker are the copy's alone
    assert encoder.style == "separator"
    assert len(encoder.backbone.tokenizer) == vocabulary


def test_turns_stand_behind_their_speakers(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is too long loses its head."""
    seen: list[list[str]] = []

    def reading(copied: Encoder, head: object, examples: list[list[np.ndarray]], *_: object, **__: object) -> None:
        name_of = copied.backbone.tokenizer.backend_tokenizer.id_to_token
        seen.extend([name_of(token) for token in sequence] for (sequence,) in examples)

    monkeypatch.setattr(fine_tuning, "fine_tune", reading)
    fine_tuned_actions(encoder, action_data(), shots=(3,), seeds=1)
    assert seen
    for tokens in seen:
        assert sorted(token for token in tokens[1:-1] if token in ("[SYS]", "[USR]", "[SEP]")) == [
            "[SYS]",
            "[USR]",
            "[USR]",
        ]
    whole = seen[0]
    seen.clear()
    fine_tuned_actions(encoder, action_data(), shots=(3,), seeds=1, settings=replace(ACTIONS, max_length=6))
    assert seen[0] == [whole[0], *whole[-5:]]


def test_only_last_examples_count(encoder: Encoder) -> None:
    quick = replace(ACTIONS, steps=1)
    data = action_data(last=False)
    with pytest.raises(DatasetError, match="no test example that is the last"):
        fine_tuned_actions(encoder, data, settings=quick)
    half = replace(data, train=action_data().train, test=data.test[:20] + action_data().test[20:])
    assert fine_tuned_actions(encoder, half, shots=(2,), seeds=1, settings=quick)[0].evidence.shape == (1, 20, 2)


labelled = st.lists(st.lists(st.sampled_from("abcd"), max_size=3, unique=True), min_size=1, max_size=60)


@settings(deadline=None)
@given(labelled, st.integers(1, 6), st.integers(0, 9))
def test_few_shot_actions(actions: list[list[str]], shots: int, seed: int) -> None:
    """No example twice; at most 2k drawn for the sake of an action; of the first all that are due; the same again."""
    support, validation = sample_few_shot(actions, shots, seed)
    sampled = [*support, *validation]
    assert len(set(sampled)) == len(sampled)
    counts = Counter(action for each in actions for action in each)
    assert len(sampled) <= sum(min(2 * shots, count) for count in counts.values())
    if counts:
        first = min(counts)
        assert sum(first in actions[row] for row in sampled) >= min(2 * shots, counts[first])
    assert 0 <= len(support) - len(validation) <= len(counts)
    assert all(actions[row] for row in sampled)
    again = sample_few_shot(actions, shots, seed)
    assert np.array_equal(support, again[0])
    assert np.array_equal(validation, again[1])


@settings(deadline=None, max_examples=25)
@given(st.data(), st.integers(1, 3), st.integers(1, 12), st.integers(2, 5))
def test_f1_is_scikit_learns(data: st.DataObject, runs: int, examples: int, labels: int) -> None:
    predicted = data.draw(arrays.arrays(np.bool_, (runs, examples, labels)))
    truth = data.draw(arrays.arrays(np.bool_, (examples, labels)))
    truth[0, 0] = True  # where nothing is asked for and nothing given, a ratio is undefined
    averages = f1_outcomes("actions", "toy", "a setting", predicted, truth)
    for outcome, average in zip(averages, ("micro", "macro"), strict=True):
        expected = [f1_score(truth, run, average=average, zero_division=0) for run in predicted]
        assert compute_per_run(outcome.statistic, outcome.table) == pytest.approx(expected)
    assert f1_scores(predicted[0], truth) == pytest.approx(
        [f1_score(truth, predicted[0], average=average, zero_division=0) for average in ("micro", "macro")]
    )


def test_flags() -> None:
    assert binarise_labels([("b",), (), ("a", "c")], ["a", "b", "c"]).tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert f1_scores(np.zeros((2, 3), np.bool_), np.zeros((2, 3), np.bool_)) == (0, 0)
