"""Contrastive tuning: groups of one intent, the loss by the book, an encoder that is left alone, intents that come apart."""

import copy
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import tiny
from turnwise.assist.intents.tuning import Tuning, TuningError, grouped, tune
from turnwise.models.encoder import Encoder
from turnwise.objectives.losses import supervised_contrastive

#: Two intents that differ in a word, among words that both have.
INTENTS = ("hotel", "taxi")
SHARED = ["i", "want", "a", "please", "now"]
QUICK = Tuning(epochs=12, groups=4, group_size=3, learning_rate=5e-3)


def examples(count: int, seed: int) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(seed)
    intents = [name for name in INTENTS for _ in range(count)]
    return [" ".join([*random.choice(SHARED, 4), name]) for name in intents], intents


def separation(encoder: Encoder, seed: int) -> float:
    """The mean cosine within intents less that between them."""
    texts, intents = examples(20, seed)
    vectors = encoder.encode(texts, normalise=True)
    same = np.array(intents)[:, None] == np.array(intents)
    cosines = vectors @ vectors.T
    return float(cosines[same].mean() - cosines[~same].mean())


@pytest.fixture(scope="module")
def loaded(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


# ---- the loss


def by_the_book(vectors: np.ndarray, labels: list[int], temperature: float) -> float:
    """Khosla et al.'s Eq. 2, term by term."""
    unit = [vector / math.sqrt(sum(value**2 for value in vector)) for vector in vectors]
    losses = []
    for anchor in range(len(labels)):
        others = [place for place in range(len(labels)) if place != anchor]
        positives = [place for place in others if labels[place] == labels[anchor]]
        if not positives:
            continue
        below = sum(math.exp(float(unit[anchor] @ unit[place]) / temperature) for place in others)
        shares = [math.exp(float(unit[anchor] @ unit[place]) / temperature) / below for place in positives]
        losses.append(-sum(map(math.log, shares)) / len(positives))
    return sum(losses) / len(losses) if losses else 0.0


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.integers(0, 10_000),
    st.sampled_from([0.05, 0.1, 1.0]),
)
def test_the_loss_is_the_equation(labels: list[int], seed: int, temperature: float) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 4))
    found = supervised_contrastive(torch.from_numpy(vectors), torch.tensor(labels), temperature)
    assert float(found) == pytest.approx(by_the_book(vectors, labels, temperature), rel=1e-9, abs=1e-12)


def test_the_loss_of_labels_of_two_is_a_cross_entropy() -> None:
    """With two vectors a label it is a cross-entropy over all others."""
    vectors = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    unit = torch.nn.functional.normalize(vectors, dim=1)
    logits = (unit @ unit.T / 0.2).fill_diagonal_(-torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 0, 3, 2, 5, 4]))
    found = supervised_contrastive(vectors, torch.tensor([7, 7, 2, 2, 9, 9]), 0.2)
    assert float(found) == pytest.approx(float(expected))


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 1], [0, 0, 0]])
def test_its_gradient_is_always_a_number(labels: list[int]) -> None:
    vectors = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    supervised_contrastive(vectors, torch.tensor(labels), 0.05).backward()
    assert vectors.grad is not None and torch.isfinite(vectors.grad).all()


# ---- groups


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(2, 6), st.integers(0, 1000))
def test_groups_are_of_one_label_and_hold_every_row(labels: list[int], size: int, seed: int) -> None:
    groups = grouped(labels, size, [seed, 0])
    assert all(len(group) == size and len({labels[row] for row in group}) == 1 for group in groups)
    counts = Counter(labels)
    assert Counter(labels[group[0]] for group in groups) == {
        label: math.ceil(count / size) for label, count in counts.items()
    }
    seen = Counter(row for group in groups for row in group)
    assert set(seen) == set(range(len(labels)))
    # rows are repeated to fill up, and evenly so
    for row, label in enumerate(labels):
        assert seen[row] in {
            math.floor(places / counts[label]) + more
            for places in [math.ceil(counts[label] / size) * size]
            for more in (0, 1)
        }
    assert groups == grouped(labels, size, [seed, 0])


def test_every_epoch_has_groups_of_its_own() -> None:
    labels = [0] * 12 + [1] * 12
    assert len({str(grouped(labels, 4, [3, epoch])) for epoch in range(5)}) == 5


# ---- tuning


def test_intents_come_apart_in_texts_that_were_not_seen(loaded: Encoder) -> None:
    before = copy.deepcopy(loaded.state_dict())
    told: list[tuple[int, int | None]] = []
    tuned = tune(loaded, *examples(8, 1), QUICK, progress=lambda what, done, total=None: told.append((done, total)))
    assert separation(tuned, 2) > separation(loaded, 2) + 0.2
    assert not tuned.training
    # two intents of eight examples are six groups an epoch, four of them a step
    assert told == [(step, 18) for step in range(1, 19)]
    assert all(torch.equal(value, before[name]) for name, value in loaded.state_dict().items())


def test_equal_settings_give_equal_weights_and_others_do_not() -> None:
    encoder = Encoder.load(tiny.backbone(), device="cpu")  # with dropout, so that chance has a part in it
    quick = Tuning(epochs=1, groups=4, group_size=2, learning_rate=1e-3)
    ends = []
    for settings in (quick, quick, Tuning(epochs=1, groups=4, group_size=2, learning_rate=1e-3, seed=1)):
        torch.manual_seed(len(ends))  # what happened before must not matter
        ends.append(tune(encoder, *examples(4, 1), settings).encode(["i want a taxi"]))
    assert np.array_equal(ends[0], ends[1])
    assert not np.array_equal(ends[0], ends[2])


def test_one_example_an_intent_is_enough() -> None:
    """Dropout makes of one text what is to lie together."""
    encoder = Encoder.load(tiny.backbone(), device="cpu")
    tuned = tune(
        encoder,
        ["i want a taxi", "i want a hotel"],
        ["taxi", "hotel"],
        Tuning(epochs=10, groups=2, group_size=2, learning_rate=3e-3),
    )
    cosines = [
        float(np.prod(each.encode(["taxi", "hotel"], normalise=True), axis=0).sum()) for each in (encoder, tuned)
    ]
    assert cosines[1] < cosines[0]


@pytest.mark.parametrize(
    ("texts", "intents", "message"),
    [
        (["a", "b"], ["x"], "2 texts and 1 intents: give one intent a text"),
        (["a", "b"], ["x", "x"], "examples of 1 intents: .* give examples of two at least"),
        ([], [], "examples of 0 intents"),
    ],
)
def test_examples_that_do_not_do_say_so(loaded: Encoder, texts: list[str], intents: list[str], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        tune(loaded, texts, intents)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0: tuning takes at least 1"),
        ({"group_size": 1}, "group_size is 1: tuning takes at least 2"),
        ({"groups": 1}, "groups is 1"),
        ({"temperature": 0.0}, "temperature is 0.0: give a number above 0"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
    ],
)
def test_settings_that_do_not_do_say_so(settings: dict[str, float], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        Tuning(**settings)  # type: ignore[arg-type]
