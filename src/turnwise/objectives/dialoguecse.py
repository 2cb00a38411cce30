"""DialogueCSE: responses embedded by matching them with the tokens of their context; and its baseline, SiameseBERT.

From "DialogueCSE: Dialogue-based Contrastive Learning of Sentence Embeddings" (Liu et al., 2021). Every turn is encoded
separately. The token states Ū of a context turn are matched with those of a response R̄ (M = ŪR̄ᵀ/√d), the matching
refines the response (R̂ = MR̄), and the refined embeddings of all turns together are its context-aware embedding R̃.
The loss contrasts the true response with others, each by the cosine with its own context-aware embedding, both pooled
over their tokens:

    L = −mean log( exp(sim(R̄, R̃)/τ) / Σ_j exp(sim(R̄_j, R̃_j)/τ) )

R̃ is pooled turn by turn, each over its own tokens. For that, the mean of a turn's token states is enough
(`losses.guided_vectors`), so every turn of a batch is encoded once, as context or response or both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.validation import NonNegativeInt, Positive, PositiveInt
from turnwise.objectives import objective as base
from turnwise.objectives.losses import candidate_nt_xent, guided_cosine, guided_vectors

Turns = npt.NDArray[np.int64]

#: Responses per example if examples are dialogues; longer dialogues are split, since the loss compares all responses of
#: a batch.
_MAX_RESPONSES = 64


@dataclass(frozen=True, slots=True)
class DialogueCSE(base.StatesObjective):
    """Matching-guided embeddings of responses, contrasted."""

    temperature: Positive = 0.1  # τ
    context_turns: PositiveInt = 3  # how many turns before the response are its context, and as many after it
    bidirectional: bool = True  # whether turns after the response belong to its context
    #: Of turns: 'mean', the paper's I₂ (Eq. 7); 'attention', its I₁ (Eqs. 5 and 6), two layers on each refined
    #: embedding, pooled; 'released', as in the authors' code: a turn's weight is 1 + its attention among the turns on
    #: its side of the response. (The code also matches by 0.1·ŪR̄ᵀ instead of ŪR̄ᵀ/√d, a factor that the cosine cancels.)
    aggregation: Literal["mean", "attention", "released"] = "mean"
    negatives: NonNegativeInt = 9  # responses drawn for each true one: a random turn of a random other dialogue
    #: Whether the batch's other responses and their negatives, which are encoded anyway, are negatives as well, except
    #: those of the same dialogue.
    in_batch: bool = False
    mask_equal: bool = False  # whether negatives of the true response's text are left out; the paper uses them
    #: An example is a 'response' with its context, or a whole 'dialogue', each of whose turns is a response: the loss
    #: is the same, but a turn is encoded once. (A dialogue of more than 64 turns is several examples.)
    unit: Literal["response", "dialogue"] = "response"

    def __post_init__(self) -> None:
        if not (self.negatives or self.in_batch):
            raise ValueError("negatives must be 1 or more, or 0 with in_batch=true; got 0")

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over (turns of the contexts and responses, responses)."""
        turns = len(dialogue.turns)
        together = 1 if self.unit == "response" else _MAX_RESPONSES
        for begin in range(0, turns, together):
            end = min(begin + together, turns)
            first, last = self._around(begin, 0, turns)[0], self._around(end - 1, 0, turns)[1]
            if last - first > 1:
                yield base.Example(((first, last), (begin, end)))

    def _around(self, response: int, first: int, last: int) -> tuple[int, int]:
        """Return the window of a response and its context."""
        after = self.context_turns if self.bidirectional else 0
        return max(first, response - self.context_turns), min(last, response + after + 1)

    def make_heads(self, hidden: int) -> nn.Module:
        """Create the layers that weight turns, if they are learnt."""
        if self.aggregation == "attention":
            return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        if self.aggregation == "released":
            return nn.Sequential(nn.Linear(hidden, 256), nn.Tanh(), nn.Linear(256, 1, bias=False))
        return nn.Module()

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return every turn once, and which turns are whose context, response and negatives."""
        places = [
            (self._around(response, first, last), response)
            for (first, last), (begin, end) in batch.windows.tolist()
            for response in range(begin, end)
        ]
        places = [((first, last), response) for (first, last), response in places if last - first > 1]
        contexts = [np.delete(np.arange(first, last), response - first) for (first, last), response in places]
        responses = np.array([response for _, response in places], np.int64)
        starts = batch.texts.dialogue_starts
        dialogues = np.searchsorted(starts, responses, "right") - 1
        drawn = self._draw(batch.random, starts, dialogues)
        pool = np.unique(np.concatenate([responses, drawn.ravel()]))
        turns = np.unique(np.concatenate([pool, *contexts]))
        padded_contexts = np.full((len(contexts), max(len(context) for context in contexts)), -1)
        for row, context in enumerate(contexts):
            padded_contexts[row, : len(context)] = np.searchsorted(turns, context)
        inputs = {
            "contexts": padded_contexts,
            "responses": np.searchsorted(turns, pool),
            "positives": np.searchsorted(pool, responses),
            "candidates": self._candidates(batch, responses, dialogues, drawn, pool),
        }
        return base.PreparedBatch(batch.singles(turns), len(responses), inputs)

    def _draw(self, random: np.random.Generator, starts: Turns, dialogues: Turns) -> Turns:
        """Draw negatives (responses, negatives): first another dialogue, each equally likely, then one of its turns."""
        number = len(starts) - 1
        if number < 2 and self.negatives:
            raise TurnwiseError("objective dialoguecse needs negatives of other dialogues; this corpus has only one")
        drawn = random.integers(max(1, number - 1), size=(len(dialogues), self.negatives))
        drawn += drawn >= dialogues[:, None]
        chance = random.random(drawn.shape)
        return np.asarray(starts[drawn] + (chance * (starts[drawn + 1] - starts[drawn])).astype(np.int64))

    def _candidates(
        self, batch: base.Batch, responses: Turns, dialogues: Turns, drawn: Turns, pool: Turns
    ) -> npt.NDArray[np.bool_]:
        """Return (responses, pool), true for the true response and its negatives."""
        rows = np.arange(len(responses))[:, None]
        candidates = np.zeros((len(responses), len(pool)), np.bool_)
        candidates[rows, np.searchsorted(pool, drawn)] = True
        if self.in_batch:
            pool_dialogues = np.searchsorted(batch.texts.dialogue_starts, pool, "right") - 1
            candidates |= pool_dialogues != dialogues[:, None]
        if self.mask_equal:
            texts = np.array([batch.texts.identity(turn) for turn in pool.tolist()])
            candidates &= texts != texts[np.searchsorted(pool, responses)][:, None]
        candidates[rows[:, 0], np.searchsorted(pool, responses)] = True
        return candidates

    def loss(self, states: base.BatchStates, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute Eqs. 3 to 8."""
        tokens, mask = states.padded()
        means = tokens.sum(1) / mask.sum(1, keepdim=True)
        present = inputs["contexts"] >= 0
        # turns are prepared in order, so a turn before a response in the batch is before it in the dialogue
        before = inputs["contexts"] < inputs["responses"][inputs["positives"]][:, None]
        turns = means[inputs["contexts"].clamp(min=0)] * present[..., None]  # (contexts, turns, hidden)
        pool = inputs["responses"]
        if self.aggregation == "attention":
            similarity = _attention_cosine(turns, present, tokens[pool], mask[pool], heads)
        else:
            similarity = guided_cosine(self._summed(turns, present, before, heads), tokens[pool], mask[pool])
        loss = candidate_nt_xent(similarity, inputs["positives"], inputs["candidates"], self.temperature)
        positive = similarity.detach().gather(1, inputs["positives"][:, None])
        return loss, {"positive": positive.detach().mean(), "negatives": inputs["candidates"].sum(1).float().mean() - 1}

    def _summed(self, turns: Tensor, present: Tensor, before: Tensor, heads: nn.Module) -> Tensor:
        """Sum the turns' vectors (contexts, hidden) with weights that do not depend on the responses."""
        if self.aggregation == "mean":
            return turns.sum(1) / present.sum(1, keepdim=True)
        scores = heads(turns)[..., 0]
        attention = [_masked_softmax(scores, present & side) for side in (before, ~before)]
        weights: Tensor = 1 + attention[0] + attention[1]
        return (weights[..., None] * turns).sum(1)


def _masked_softmax(scores: Tensor, members: Tensor) -> Tensor:
    """Return a softmax over the members of each row, 0 for the others; a row may have no members."""
    masked = scores.masked_fill(~members, -torch.inf)
    return torch.where(members.any(1, keepdim=True), masked, scores).softmax(1) * members


def _attention_cosine(turns: Tensor, present: Tensor, responses: Tensor, mask: Tensor, heads: nn.Module) -> Tensor:
    """Return the cosine (contexts, responses) with attention over the refined embeddings (Eqs. 5 and 6)."""
    refined = guided_vectors(turns, responses, mask)  # (contexts, responses, turns, hidden)
    weights = heads(refined)[..., 0].masked_fill(~present[:, None], -torch.inf).softmax(2)
    aware = (weights[..., None] * refined).sum(2)
    free = responses.sum(1) / mask.sum(1, keepdim=True)
    return cosine_similarity(aware, free[None], dim=2)


@dataclass(frozen=True, slots=True)
class Siamese(base.PooledObjective):
    """SiameseBERT, DialogueCSE's baseline (after Yang et al., 2018, and Henderson et al., 2020).

    Context and response go through one encoder, the context through an MLP, and are compared by dot product with
    in-batch negatives.
    """

    #: Turns of a context: 1 is SiameseBERT-s; more is SiameseBERT-m, whose turns are joined into one sequence.
    context_turns: PositiveInt = 1
    mask_equal: bool = False  # equal responses in a batch are not used as negatives of each other

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over (context, response); a context may have fewer turns than requested."""
        for response in range(1, len(dialogue.turns)):
            yield base.Example(((max(0, response - self.context_turns), response), (response, response + 1)))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create the MLP: linear, ReLU, linear."""
        return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))

    def loss(self, vectors: Tensor, inputs: base.Tensors, heads: nn.Module) -> tuple[Tensor, base.Metrics]:
        """Compute the cross-entropy of each context over the batch's responses, with logits scaled as in attention."""
        same = base.equal_texts(inputs["identities"][1])
        logits = (heads(vectors[0]) @ vectors[1].T).float() / vectors.shape[-1] ** 0.5
        if self.mask_equal:
            logits = logits.masked_fill(same, -1e9)
        return cross_entropy(logits, torch.arange(len(logits), device=logits.device)), {"equal_texts": same.sum() / 2}
