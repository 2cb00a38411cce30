"""DialogueCSE against loops over tokens in plain NumPy: its equations, their gradients, and what a batch is made of."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.helpers.tiny import corpus as tiny_corpus
from tests.helpers.tiny import gradients, recipe
from tests.helpers.turns import turn_table
from turnwise import Dialogue, Turn, train
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import Composer
from turnwise.objectives.dialoguecse import DialogueCSE
from turnwise.objectives.losses import candidate_nt_xent, guided_cosine, guided_vectors, matching_guided_embedding
from turnwise.objectives.objective import Batch, BatchStates, PreparedBatch, TurnTable

Array = npt.NDArray[np.float64]


# ---- the equations


def refined(turn: Array, response: Array) -> Array:
    """Compute Eqs. 3 and 4 for the tokens of a turn and of a response, product by product."""
    size = len(response[0])
    rows = []
    for word in turn:
        row = np.zeros(size)
        for token in response:
            row += sum(word[i] * token[i] for i in range(size)) / np.sqrt(size) * token
        rows.append(row)
    return np.array(rows).reshape(len(turn), size)


def cosine(one: Array, other: Array) -> float:
    return float(one @ other / np.sqrt(one @ one) / np.sqrt(other @ other))


def padded(turns: list[Array], longest: int, random: np.random.Generator) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Pad arrays with noise; return them and their mask."""
    size = turns[0].shape[1]
    states = random.normal(size=(len(turns), longest, size))
    mask = np.zeros((len(turns), longest), np.bool_)
    for number, turn in enumerate(turns):
        states[number, : len(turn)] = turn
        mask[number, : len(turn)] = True
    return states, mask


def random_states(random: np.random.Generator, lengths: list[int], size: int = 5) -> list[Array]:
    return [random.normal(size=(length, size)) for length in lengths]


LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 3),
    st.booleans(),
)
def test_refined_embeddings_equal_a_direct_implementation(
    seed: int, lengths: list[int], tokens: int, padding: int, whole_numbers: bool
) -> None:
    random = np.random.default_rng(seed)
    turns, response = random_states(random, lengths), random_states(random, [tokens])[0]
    states, mask = padded(turns, max(1, *lengths) + padding, random)
    responses, response_mask = padded([response], tokens + padding, random)
    kind = torch.int64 if whole_numbers else torch.bool
    actual = matching_guided_embedding(
        torch.tensor(states),
        torch.tensor(mask).to(kind),
        torch.tensor(responses[0]),
        torch.tensor(response_mask[0]).to(kind),
    )
    assert actual.shape == states.shape
    for number, turn in enumerate(turns):
        np.testing.assert_allclose(actual[number, : len(turn)], refined(turn, response), atol=1e-12)
        assert not actual[number, len(turn) :].any()


def test_leading_axes_of_contexts_and_responses_broadcast() -> None:
    random = np.random.default_rng(0)
    contexts, responses = (
        torch.tensor(random.normal(size=(3, 1, 2, 4, 5))),
        torch.tensor(random.normal(size=(1, 7, 6, 5))),
    )
    actual = matching_guided_embedding(contexts, torch.ones(3, 1, 2, 4), responses, torch.ones(1, 7, 6))
    assert actual.shape == (3, 7, 2, 4, 5)
    alone = matching_guided_embedding(contexts[1, 0], torch.ones(2, 4), responses[0, 5], torch.ones(6))
    np.testing.assert_allclose(actual[1, 5], alone, atol=1e-12)


def test_one_turn_gives_its_refined_embedding() -> None:
    """With I₂ and a single turn, the loss contrasts the refined embedding itself, pooled."""
    random = np.random.default_rng(1)
    turn, response = random_states(random, [4, 3])
    expected = cosine(refined(turn, response).mean(0), response.mean(0))
    similarity = guided_cosine(
        torch.tensor(turn.mean(0))[None], torch.tensor(response)[None], torch.ones(1, 3, dtype=torch.bool)
    )
    assert similarity.item() == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 10**6), LENGTHS, LENGTHS, st.integers(0, 3))
def test_pooled_forms_equal_pooled_refined_embeddings(
    seed: int, contexts: list[int], responses: list[int], padding: int
) -> None:
    """They equal the mean over the tokens of `matching_guided_embedding`, without matching matrices."""
    random = np.random.default_rng(seed)
    turns, answers = random_states(random, contexts), random_states(random, responses)
    states, mask = padded(answers, max(responses) + padding, random)
    means = torch.tensor(np.array([turn.mean(0) for turn in turns]))
    vectors = guided_vectors(means[None], torch.tensor(states), torch.tensor(mask))
    similarity = guided_cosine(means.mean(0)[None], torch.tensor(states), torch.tensor(mask))
    for number, answer in enumerate(answers):
        pooled = np.array([refined(turn, answer).mean(0) for turn in turns])
        np.testing.assert_allclose(vectors[0, number], pooled, atol=1e-11)
        assert similarity[0, number].item() == pytest.approx(cosine(pooled.mean(0), answer.mean(0)), abs=1e-9)


def test_zero_vectors_have_a_gradient() -> None:
    """For a context of zeros the cosine is 0, and nothing becomes NaN."""
    contexts = torch.zeros(2, 4, requires_grad=True)
    responses = torch.zeros(3, 2, 4, requires_grad=True)
    similarity = guided_cosine(contexts, responses, torch.ones(3, 2, dtype=torch.bool))
    candidate_nt_xent(similarity, torch.tensor([0, 1]), torch.ones(2, 3, dtype=torch.bool), 0.1).backward()
    assert not similarity.any()
    assert contexts.grad is not None and contexts.grad.isfinite().all()
    assert responses.grad is not None and responses.grad.isfinite().all()


# ---- the loss of a batch


@dataclass
class ArtificialBatch:
    """An artificial batch: token states, and contexts and candidates by number, the true one first."""

    sequences: list[Array]
    contexts: list[list[int]]
    candidates: list[list[int]]

    def inputs(self) -> dict[str, torch.Tensor]:
        """Return the inputs as the objective prepares them, with every sequence as candidate."""
        longest = max(map(len, self.contexts))
        contexts = torch.tensor([[*context, *[-1] * (longest - len(context))] for context in self.contexts])
        candidates = torch.zeros(len(self.contexts), len(self.sequences), dtype=torch.bool)
        for row, members in enumerate(self.candidates):
            candidates[row, members] = True
        return {
            "contexts": contexts,
            "responses": torch.arange(len(self.sequences)),
            "positives": torch.tensor([members[0] for members in self.candidates]),
            "candidates": candidates,
        }

    def flat(self) -> torch.Tensor:
        return torch.tensor(np.concatenate(self.sequences))

    def lengths(self) -> torch.Tensor:
        return torch.tensor([len(sequence) for sequence in self.sequences])

    def expected_loss(self, objective: DialogueCSE, heads: nn.Module, sequences: list[Array] | None = None) -> float:
        """Compute Eqs. 3 to 8 in loops."""
        states = self.sequences if sequences is None else sequences
        weights = {name: value.detach().numpy() for name, value in heads.named_parameters()}
        total = 0.0
        for context, members in zip(self.contexts, self.candidates, strict=True):
            scores = []
            for member in members:
                response = states[member]
                pooled = [refined(states[turn], response).mean(0) for turn in context]
                if objective.aggregation == "released":
                    shares = self._released(weights, context, members[0], [states[turn].mean(0) for turn in context])
                else:
                    shares = self._shares(objective, weights, pooled)
                aware = sum(
                    (share * vector for share, vector in zip(shares, pooled, strict=True)), np.zeros(len(response[0]))
                )
                scores.append(cosine(aware, response.mean(0)) / objective.temperature)
            total -= scores[0] - np.log(sum(np.exp(score) for score in scores))
        return total / len(self.contexts)

    @staticmethod
    def _shares(objective: DialogueCSE, weights: dict[str, Array], pooled: list[Array]) -> list[float]:
        if objective.aggregation == "mean":
            return [1 / len(pooled)] * len(pooled)
        inner = [np.maximum(weights["0.weight"] @ vector + weights["0.bias"], 0) for vector in pooled]
        scores = [float(weights["2.weight"][0] @ each + weights["2.bias"][0]) for each in inner]
        return [np.exp(score) / sum(np.exp(other) for other in scores) for score in scores]

    @staticmethod
    def _released(weights: dict[str, Array], context: list[int], response: int, turns: list[Array]) -> list[float]:
        """Weight each turn among those on its side of the response."""
        inner = [np.tanh(weights["0.weight"] @ vector + weights["0.bias"]) for vector in turns]
        raised = [float(np.exp(weights["2.weight"][0] @ each)) for each in inner]
        sides = [turn < response for turn in context]
        sums = {side: sum(value for value, mine in zip(raised, sides, strict=True) if mine == side) for side in sides}
        return [1 + value / sums[side] for value, side in zip(raised, sides, strict=True)]


def artificial_batch(seed: int, size: int = 4) -> ArtificialBatch:
    random = np.random.default_rng(seed)
    sequences = random_states(random, random.integers(1, 5, size=6).tolist(), size)
    candidates = [random.choice(6, 4, replace=False).tolist() for _ in range(3)]
    others = [[turn for turn in range(6) if turn != members[0]] for members in candidates]
    contexts = [random.choice(turns, random.integers(1, 4), replace=False).tolist() for turns in others]
    return ArtificialBatch(sequences, contexts, candidates)


AGGREGATIONS = ["mean", "attention", "released"]


def heads_of(objective: DialogueCSE, size: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return objective.make_heads(size).double()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), temperature=st.sampled_from([0.1, 0.5]))
def test_loss_equals_a_direct_implementation(aggregation: Any, seed: int, temperature: float) -> None:
    objective, batch = DialogueCSE(temperature, aggregation=aggregation), artificial_batch(seed)
    heads = heads_of(objective)
    actual, logs = objective.loss(BatchStates(batch.flat(), batch.lengths()), batch.inputs(), heads)
    assert actual.item() == pytest.approx(batch.expected_loss(objective, heads), rel=1e-8)
    assert logs["negatives"] == 3


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_gradients_equal_finite_differences(aggregation: Any) -> None:
    objective, batch = DialogueCSE(aggregation=aggregation), artificial_batch(3)
    heads = heads_of(objective)
    states = batch.flat().requires_grad_()
    objective.loss(BatchStates(states, batch.lengths()), batch.inputs(), heads)[0].backward()
    assert states.grad is not None
    small, row = 1e-6, 0
    for number, sequence in enumerate(batch.sequences):
        for token in range(len(sequence)):
            for unit in range(sequence.shape[1]):
                sides = []
                for step in (small, -small):
                    moved = [one.copy() for one in batch.sequences]
                    moved[number][token, unit] += step
                    sides.append(batch.expected_loss(objective, heads, moved))
                assert states.grad[row, unit].item() == pytest.approx((sides[0] - sides[1]) / (2 * small), abs=1e-5)
            row += 1


@pytest.mark.parametrize("aggregation", ["mean", "attention"])
def test_loss_does_not_depend_on_the_order_of_negatives_and_turns(aggregation: Any) -> None:
    objective, batch = DialogueCSE(aggregation=aggregation), artificial_batch(5)
    heads = heads_of(objective)
    order = [4, 2, 0, 5, 1, 3]  # the new position of each sequence
    other = ArtificialBatch(
        [batch.sequences[order.index(place)] for place in range(6)],
        [[order[turn] for turn in reversed(context)] for context in batch.contexts],
        [[order[member] for member in (members[0], *reversed(members[1:]))] for members in batch.candidates],
    )
    losses = [
        objective.loss(BatchStates(one.flat(), one.lengths()), one.inputs(), heads)[0].item() for one in (batch, other)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


# ---- batches


def numbered(lengths: list[int], identities: Sequence[int] = ()) -> TurnTable:
    """Return turns whose only token is their number, in dialogues of given lengths; some have equal texts."""
    texts = [identities[turn % len(identities)] for turn in range(sum(lengths))] if identities else []
    return turn_table([[1] * length for length in lengths], lambda turn, _: np.array([turn], np.int32), texts)


NOTHING = np.empty(0, np.int32)
COMPOSER = Composer(NOTHING, NOTHING, NOTHING, NOTHING, {}, -1, 1000, {})


def talk(turns: int) -> Dialogue:
    return Dialogue("a", tuple(Turn("user", str(turn)) for turn in range(turns)))


def around(response: int, turns: int, objective: DialogueCSE) -> list[int]:
    after = objective.context_turns if objective.bidirectional else 0
    return [turn for turn in range(turns) if turn != response and -objective.context_turns <= turn - response <= after]


def prepared(objective: DialogueCSE, texts: TurnTable, seed: int = 0) -> PreparedBatch:
    """Prepare a batch of all examples."""
    windows = [
        [(first + start, last + start) for first, last in example.windows]
        for start, end in itertools.pairwise(texts.dialogue_starts.tolist())
        for example in objective.examples(talk(end - start))
    ]
    labels = np.zeros(len(windows), np.int64)
    return objective.prepare(Batch(np.array(windows), labels, texts, COMPOSER, 24, 128, np.random.default_rng(seed)))


@given(st.integers(1, 9), st.integers(1, 4), st.booleans())
def test_every_turn_that_has_a_context_is_a_response(length: int, turns: int, both: bool) -> None:
    objective = DialogueCSE(context_turns=turns, bidirectional=both)
    expected = [
        ((min(response, *context), max(response, *context) + 1), (response, response + 1))
        for response in range(length)
        if (context := around(response, length, objective))
    ]
    assert [example.windows for example in objective.examples(talk(length))] == expected
    whole = [example.windows for example in DialogueCSE(unit="dialogue").examples(talk(length))]
    assert whole == ([((0, length), (0, length))] if length > 1 else [])


@pytest.mark.parametrize("both", [True, False])
def test_a_long_dialogue_is_several_examples_with_the_same_contexts(both: bool) -> None:
    objective = DialogueCSE(context_turns=2, bidirectional=both, negatives=1, unit="dialogue")
    windows = [example.windows for example in objective.examples(talk(150))]
    after = 2 if both else 0
    assert windows == [((0, 64 + after), (0, 64)), ((62, 128 + after), (64, 128)), ((126, 150), (128, 150))]
    texts = numbered([150, 3])
    alone = prepared(DialogueCSE(context_turns=2, bidirectional=both, negatives=1), texts)
    together = prepared(objective, texts)
    for actual in (alone, together):
        turns = np.array([int(sequence[0]) for sequence in actual.sequences])
        actual.inputs["contexts"] = np.where(actual.inputs["contexts"] >= 0, turns[actual.inputs["contexts"]], -1)
    np.testing.assert_array_equal(alone.inputs["contexts"], together.inputs["contexts"])


@settings(deadline=None)
@given(
    st.lists(st.integers(2, 8), min_size=2, max_size=4),
    st.lists(st.integers(0, 9), min_size=5, max_size=30),
    st.builds(
        DialogueCSE,
        context_turns=st.integers(1, 3),
        bidirectional=st.booleans(),
        negatives=st.integers(1, 3),
        in_batch=st.booleans(),
        mask_equal=st.booleans(),
        unit=st.sampled_from(["response", "dialogue"]),
    ),
)
def test_a_batch_has_each_turn_once_and_negatives_of_other_dialogues(
    lengths: list[int], identities: list[int], objective: DialogueCSE
) -> None:
    texts = numbered(lengths, identities)
    actual = prepared(objective, texts)
    belongs = np.repeat(np.arange(len(lengths)), lengths)
    turns = [int(sequence[0]) for sequence in actual.sequences]
    assert len(set(turns)) == len(turns)
    pool = [turns[place] for place in actual.inputs["responses"]]
    responses = [pool[place] for place in actual.inputs["positives"]]
    run_recipe = [turn for turn in range(sum(lengths)) if objective.bidirectional or turn not in texts.dialogue_starts]
    assert responses == run_recipe
    for response, places, candidates in zip(
        responses, actual.inputs["contexts"], actual.inputs["candidates"], strict=True
    ):
        start = int(texts.dialogue_starts[belongs[response]])
        context = [turns[place] for place in places if place >= 0]
        assert context == [start + turn for turn in around(response - start, lengths[belongs[response]], objective)]
        negatives = {pool[place] for place in np.flatnonzero(candidates)} - {response}
        assert all(belongs[turn] != belongs[response] for turn in negatives)
        allowed = {
            turn
            for turn in pool
            if belongs[turn] != belongs[response]
            and not (objective.mask_equal and texts.identity(turn) == texts.identity(response))
        }
        assert negatives <= allowed
        if objective.in_batch:
            assert negatives == allowed
        else:
            assert len(negatives) <= objective.negatives


def test_negatives_are_drawn_evenly_from_the_other_dialogues() -> None:
    objective = DialogueCSE(negatives=30_000)
    starts = np.array([0, 2, 12, 15])
    drawn_turns = objective._draw(np.random.default_rng(0), starts, np.array([1]))[0]
    shares = np.bincount(drawn_turns, minlength=15) / len(drawn_turns)
    assert not shares[2:12].any()
    np.testing.assert_allclose(shares[:2], 1 / 4, atol=0.02)
    np.testing.assert_allclose(shares[12:], 1 / 6, atol=0.02)


def test_a_corpus_of_one_dialogue_has_no_negatives() -> None:
    with pytest.raises(TurnwiseError, match="has only one"):
        prepared(DialogueCSE(), numbered([3]))


# ---- runs


@pytest.mark.parametrize("aggregation", ["attention", "released"])
def test_cached_gradients_with_learnt_aggregation_equal_plain_ones(aggregation: str) -> None:
    changes = [f"aggregation={aggregation}", "unit=response", "negatives=2"]
    plain, cached = (
        gradients(recipe("dialoguecse", *changes, f"tokens_per_forward={budget}", dropout=0.0))
        for budget in (100_000, 60)
    )
    assert cached[0] == pytest.approx(plain[0], rel=1e-5)
    assert any(name.startswith("heads.") for name in plain[1])
    for name, value in plain[1].items():
        torch.testing.assert_close(cached[1][name], value, rtol=1e-3, atol=1e-5)


def test_training_reduces_the_loss(tmp_path: Path) -> None:
    train(recipe("dialoguecse", "steps=50", "batch_size=3", "learning_rate=3e-3"), tiny_corpus(), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
