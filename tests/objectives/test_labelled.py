"""Labelled utterances: batches of intents, and losses that equal direct implementations."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.tiny import recipe, set_up_run
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.objectives.labelled import Labelled
from turnwise.objectives.losses import prototype_nt_xent
from turnwise.objectives.objective import LabelSampling, intent_label, label_domains
from turnwise.training.samplers import LabelSampler


def random(*place: int) -> np.random.Generator:
    return np.random.default_rng([7, *place])


def sampler(counts: dict[str, int], examples: int = 4, same_domain: float = 0.5) -> tuple[LabelSampler, np.ndarray]:
    """Return a sampler of intents with numbers of utterances, and the intent of each utterance."""
    intents = np.array([intent for intent, count in counts.items() for _ in range(count)])
    np.random.default_rng(0).shuffle(intents)
    labels = np.array([intent_label(intent) for intent in intents])
    return LabelSampler("labelled", labels, LabelSampling(examples, same_domain), random), intents


DOMAINS = {f"domain {number // 8}: intent {number}": 3 + number % 4 for number in range(64)}


@given(st.integers(0, 3), st.integers(0, 30), st.integers(8, 80), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_batch_has_different_utterances_of_as_many_intents_as_fit(
    epoch: int, place: int, size: int, same_domain: float
) -> None:
    drawn, intents = sampler(DOMAINS, same_domain=same_domain)
    rows = drawn.rows(epoch, place * size, (place + 1) * size)
    assert len(set(rows.tolist())) == len(rows)
    counts = Counter(intents[rows].tolist())
    assert len(counts) == min(size // 4, 64)
    assert all(count == min(4, DOMAINS[intent]) for intent, count in counts.items())
    again, _ = sampler(DOMAINS, same_domain=same_domain)
    assert again.rows(epoch, place * size, (place + 1) * size).tolist() == rows.tolist()


def test_intents_of_a_domain_meet() -> None:
    def domains(same_domain: float) -> float:
        drawn, intents = sampler(DOMAINS, same_domain=same_domain)
        batches = [drawn.rows(0, first, first + 32) for first in range(0, 320, 32)]
        return float(np.mean([len({intent.split(":")[0] for intent in intents[rows]}) for rows in batches]))

    assert domains(1.0) <= 2 < domains(0.5) < domains(0.0)


def test_all_intents_are_drawn_equally_often() -> None:
    drawn, intents = sampler(DOMAINS, same_domain=0.5)
    # 16 intents per batch: eight batches are two passes over the 64 intents for each half
    counts = Counter(intent for first in range(0, 512, 64) for intent in set(intents[drawn.rows(0, first, first + 64)]))
    assert set(counts) == set(DOMAINS)
    assert max(counts.values()) - min(counts.values()) <= 2


def test_single_utterances_are_not_drawn() -> None:
    drawn, intents = sampler({"a": 2, "b": 3, "c": 1})
    assert len(drawn) == 5
    assert "c" not in intents[drawn.rows(0, 0, 100)]
    with pytest.raises(TurnwiseError, match="1 intents of two utterances or more"):
        sampler({"a": 2, "c": 1})


def test_labels_and_domains() -> None:
    names = ["banking: freeze card", "banking: lost card", "travel: lost card", "banking.freeze", "hello", "goodbye"]
    labels = np.array([intent_label(name) for name in names])
    assert len(set(labels.tolist())) == len(names)
    assert (labels >= 0).all()
    domains = label_domains(labels)
    assert domains[0] == domains[1] == domains[3] != domains[2]
    assert domains[4] == domains[5] not in (domains[0], domains[2])


def test_examples_are_turns_with_an_intent() -> None:
    dialogue = Dialogue("1", (Turn("user", "hi"), Turn("user", "freeze it", "freeze"), Turn("system", "done")))
    assert [(example.windows, example.label) for example in Labelled().examples(dialogue)] == [
        (((1, 2),), intent_label("freeze"))
    ]


def direct_prototypes(vectors: np.ndarray, labels: list[int], support: list[bool], temperature: float) -> float:
    """Assign every vector to the prototypes of the other half, one by one."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    losses = []
    for half in (True, False):
        prototypes = {}
        for label in set(labels):
            rows = [row for row, (own, side) in enumerate(zip(labels, support, strict=True)) if own == label]
            members = [row for row in rows if support[row] == half]
            if members:
                mean = unit[members].mean(0)
                prototypes[label] = mean / np.linalg.norm(mean)
        for row, label in enumerate(labels):
            if support[row] != half and label in prototypes:
                scores = {each: np.exp(unit[row] @ prototype / temperature) for each, prototype in prototypes.items()}
                losses.append(-np.log(scores[label] / sum(scores.values())))
    return float(np.mean(losses)) if losses else 0.0


@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=4, max_size=12))
def test_prototype_loss_equals_a_direct_implementation(seed: int, rows: list[tuple[int, bool]]) -> None:
    labels, support = [label for label, _ in rows], [half for _, half in rows]
    vectors = np.random.default_rng(seed).normal(size=(len(rows), 6))
    actual = prototype_nt_xent(torch.tensor(vectors), torch.tensor(labels), torch.tensor(support), 0.2)
    assert actual.item() == pytest.approx(direct_prototypes(vectors, labels, support, 0.2), rel=1e-9, abs=1e-12)


def test_a_batch_divides_the_utterances_of_each_intent() -> None:
    others = ("objectives.pairs=false", "objectives.histories=false", "objectives.anchor=false")
    (loader,) = set_up_run(recipe("mixture", *others)).loaders
    prepared = loader.prepare(0)
    labels, support = prepared.inputs["labels"], prepared.inputs["support"]
    assert prepared.rows == len(labels) == len(prepared.sequences)
    for label in set(labels.tolist()):
        halves = support[labels == label]
        assert len(halves) > 1
        assert 0 <= halves.sum() - (~halves).sum() <= 1
