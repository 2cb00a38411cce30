"""Contrastive tuning: the loss, the groups, tuned encoders, and classifiers that are calibrated on unseen examples."""

import copy
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import tiny
from tests.helpers.intent_examples import OUTSIDE, pairs
from turnwise import IntentClassifier
from turnwise.assist.intents import tuning as tuning_module
from turnwise.assist.intents.tuning import TuningSettings, make_groups, tune_encoder
from turnwise.core.errors import IntentError
from turnwise.models.encoder import Encoder
from turnwise.objectives.losses import supervised_contrastive

#: Two intents that differ in one word.
INTENTS = ("hotel", "taxi")
SHARED = ["i", "want", "a", "please", "now"]
TUNED = TuningSettings(epochs=2, groups=4, group_size=2, learning_rate=1e-3)
QUICK = TuningSettings(epochs=12, groups=4, group_size=3, learning_rate=5e-3)


def examples(count: int, seed: int) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(seed)
    intents = [name for name in INTENTS for _ in range(count)]
    return [" ".join([*random.choice(SHARED, 4), name]) for name in intents], intents


def separation(encoder: Encoder, seed: int) -> float:
    """Return the mean cosine within intents minus that between them."""
    texts, intents = examples(20, seed)
    vectors = encoder.encode(texts, normalise=True)
    same = np.array(intents)[:, None] == np.array(intents)
    cosines = vectors @ vectors.T
    return float(cosines[same].mean() - cosines[~same].mean())


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


# ---- the loss


def restated_loss(vectors: np.ndarray, labels: list[int], temperature: float) -> float:
    """Return Eq. 2 of Khosla et al., term by term."""
    unit = [vector / math.sqrt(sum(value**2 for value in vector)) for vector in vectors]
    losses = []
    for anchor in range(len(labels)):
        others = [place for place in range(len(labels)) if place != anchor]
        positives = [place for place in others if labels[place] == labels[anchor]]
        if not positives:
            continue
        below = sum(math.exp(float(unit[anchor] @ unit[place]) / temperature) for place in others)
        ratios = [math.exp(float(unit[anchor] @ unit[place]) / temperature) / below for place in positives]
        losses.append(-sum(map(math.log, ratios)) / len(positives))
    return sum(losses) / len(losses) if losses else 0.0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(0, 10_000), st.sampled_from([0.05, 0.1, 1.0]))
def test_loss_matches_the_equation(labels: list[int], seed: int, temperature: float) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 4))
    loss = supervised_contrastive(torch.from_numpy(vectors), torch.tensor(labels), temperature)
    assert float(loss) == pytest.approx(restated_loss(vectors, labels, temperature), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 1], [0, 0, 0]])
def test_gradient_is_finite(labels: list[int]) -> None:
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    supervised_contrastive(vectors, torch.tensor(labels), 0.05).backward()
    assert vectors.grad is not None and torch.isfinite(vectors.grad).all()


# ---- groups


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(2, 6), st.integers(0, 1000))
def test_groups_have_one_label_and_cover_every_row(labels: list[int], size: int, seed: int) -> None:
    groups = make_groups(labels, size, [seed, 0])
    assert all(len(group) == size and len({labels[row] for row in group}) == 1 for group in groups)
    counts = Counter(labels)
    assert Counter(labels[group[0]] for group in groups) == {
        label: math.ceil(count / size) for label, count in counts.items()
    }
    seen = Counter(row for group in groups for row in group)
    assert set(seen) == set(range(len(labels)))
    # rows are repeated evenly
    for row, label in enumerate(labels):
        assert seen[row] in {
            math.floor(places / counts[label]) + more
            for places in [math.ceil(counts[label] / size) * size]
            for more in (0, 1)
        }
    assert groups == make_groups(labels, size, [seed, 0])


# ---- tuning


def test_intents_are_separated_on_unseen_texts(loaded: Encoder) -> None:
    before = copy.deepcopy(loaded.state_dict())
    reported: list[tuple[int, int | None]] = []
    tuned = tune_encoder(
        loaded, *examples(8, 1), QUICK, progress=lambda what, done, total=None: reported.append((done, total))
    )
    assert separation(tuned, 2) > separation(loaded, 2) + 0.2
    assert not tuned.training
    # two intents with eight examples make six groups per epoch, four per step
    assert reported == [(step, 18) for step in range(1, 19)]
    assert all(torch.equal(value, before[name]) for name, value in loaded.state_dict().items())


def test_equal_settings_give_equal_weights() -> None:
    encoder = Encoder.load(tiny.backbone(), device="cpu")  # with dropout, so that randomness matters
    quick = TuningSettings(epochs=1, groups=4, group_size=2, learning_rate=1e-3)
    ends = []
    for settings in (quick, quick, TuningSettings(epochs=1, groups=4, group_size=2, learning_rate=1e-3, seed=1)):
        torch.manual_seed(len(ends))  # the global state must not matter
        ends.append(tune_encoder(encoder, *examples(4, 1), settings).encode(["i want a taxi"]))
    assert np.array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[0], ends[2])


def test_one_example_per_intent_is_enough() -> None:
    """Dropout makes different vectors of one text."""
    encoder = Encoder.load(tiny.backbone(), device="cpu")
    tuned = tune_encoder(
        encoder,
        ["i want a taxi", "i want a hotel"],
        ["taxi", "hotel"],
        TuningSettings(epochs=10, groups=2, group_size=2, learning_rate=3e-3),
    )
    cosines = [
        float(np.prod(each.encode(["taxi", "hotel"], normalise=True), axis=0).sum()) for each in (encoder, tuned)
    ]
    assert cosines[1] < cosines[0]


@pytest.mark.parametrize(
    ("texts", "intents", "message"),
    [
        (["a", "b"], ["x", "x"], "at least two intents, got 1"),
        ([], [], "at least two intents, got 0"),
        (["a", "b", "c"], ["x", "y"], "got 3 texts and 2 intents"),
    ],
)
def test_invalid_examples_raise_errors(loaded: Encoder, texts: list[str], intents: list[str], message: str) -> None:
    with pytest.raises(IntentError, match=message):
        tune_encoder(loaded, texts, intents)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"group_size": 1}, "group_size must be at least 2, got 1"),
        ({"groups": 1}, "groups must be at least 2"),
        ({"temperature": 0.0}, "temperature must be positive, got 0.0"),
        ({"learning_rate": math.nan}, "learning_rate must be positive, got nan"),
    ],
)
def test_invalid_settings_raise_errors(settings: dict[str, float], message: str) -> None:
    with pytest.raises(IntentError, match=message):
        TuningSettings(**settings)  # type: ignore[arg-type]


# ---- classifiers


def test_classifier_is_calibrated_on_examples_the_encoder_was_not_tuned_on(loaded: Encoder, tmp_path: Path) -> None:
    texts, intents = pairs()
    outside = list(dict.fromkeys(OUTSIDE))
    tuned_on: list[list[str]] = []

    def record(encoder, texts, intents, tuning, *, progress):
        tuned_on.append(list(texts))
        return tune_encoder(encoder, texts, intents, tuning, progress=progress)

    classifier = IntentClassifier(loaded, tuning=TUNED, false_rejection=0.2)
    with patch.object(tuning_module, "tune_encoder", record):
        classifier.fit(texts, intents, out_of_scope=outside)
    assert sorted(tuned_on[0]) == sorted(texts)
    # every example is left out once, and out-of-scope examples are never used for tuning
    left_out = [text for seen in tuned_on[1:] for text in set(texts) - set(seen)]
    assert sorted(left_out) == sorted(texts)
    assert not {text for seen in tuned_on for text in seen} & set(outside)
    assert classifier.calibration_.held_out
    assert classifier.calibration_.texts == len(texts)
    assert classifier.calibration_.out_of_scope_recall is not None
    # the head is chosen in the same folds
    assert classifier.head_selection_.evaluated == len(texts)
    assert classifier.head_ == classifier.head_selection_.head
    # the given encoder is not changed, and the classifier uses another one
    assert classifier.encoder_ is not loaded
    assert np.abs(classifier.encoder_.encode(texts) - loaded.encode(texts)).max() > 1e-3
    classifier.add("hours", ["when do you open", "opening times"])
    assert classifier.calibration_.texts == len(texts)
    classifier.save(tmp_path / "tuned")
    restored = IntentClassifier.load(tmp_path / "tuned")
    assert restored.tuning == TUNED
    assert restored.predict_proba(texts) == pytest.approx(classifier.predict_proba(texts), abs=1e-4)
    assert (tmp_path / "tuned" / "encoder" / "modules.json").is_file()


def test_known_vectors_cannot_be_used_with_tuning(loaded: Encoder) -> None:
    texts, intents = pairs()
    with pytest.raises(IntentError, match="leave one of them out"):
        IntentClassifier(loaded, tuning=TUNED).fit(texts, intents, vectors=loaded.encode(texts, normalise=True))


def test_tuned_classifier_needs_two_examples_to_calibrate(loaded: Encoder) -> None:
    with pytest.raises(IntentError, match="no intent has a second example"):
        IntentClassifier(loaded, tuning=TUNED).fit(["my parcel", "my money"], ["track_order", "refund"])
    never = IntentClassifier(loaded, tuning=TUNED, false_rejection=None).fit(
        ["my parcel", "my money"], ["track_order", "refund"]
    )
    assert never.calibration_.threshold is None
