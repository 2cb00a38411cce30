"""DialogueCSE: a response embedded by the guidance of its context, token by token.

From "DialogueCSE: Dialogue-based Contrastive Learning of Sentence Embeddings" (Liu et al., 2021). Every turn is encoded alone.
The token states Ū of a context turn match those of a response R̄ (M = ŪR̄ᵀ/√d), the matching refines the response (R̂ = MR̄), and the
refined embeddings of all turns together are its context-aware embedding R̃. Of the true response and of others, the true one is to
lie nearest its own context-aware embedding, by the cosine of both pooled over their tokens:

    L = −mean log( exp(sim(R̄, R̃)/τ) / Σ_j exp(sim(R̄_j, R̃_j)/τ) )

R̃ is pooled turn by turn, each by its own tokens: rows of turns of different length do not line up. Pooled, it needs of a turn
nothing but the mean of its token states (`losses.guided_vectors`), so every turn of a batch is encoded once, whatever it serves as.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import TurnStyle
from turnwise.objectives.losses import candidate_nt_xent, guided_cosine, guided_vectors
from turnwise.objectives.objective import Batch, BatchStates, Example, Figures, ForEncoders, Prepared

#: Units of the layer by which the authors' code weights turns.
_RELEASED_UNITS = 256

#: Responses of an example where it is a dialogue: longer ones are several, since the loss compares all responses of a batch.
_MOST_RESPONSES = 64


@dataclass(frozen=True, slots=True)
class DialogueCSE(ForEncoders):
    """Matching-guided embeddings of responses, contrasted.

    Attributes:
        temperature: τ.
        context_turns: how many turns before the response guide it, and as many after it.
        bidirectional: whether turns after the response guide it, too.
        aggregation: how turns come together: 'mean', the paper's I₂ (Eq. 7); 'attention', its I₁ (Eqs. 5 and 6), two layers on each
            refined embedding, pooled; 'released', as the authors' code has it: turns count by 1 + their share in an attention over
            the vectors of the turns on their side of the response. (The code also matches by 0.1·ŪR̄ᵀ instead of ŪR̄ᵀ/√d, a factor
            that the cosine does not see.)
        negatives: responses drawn for each true one: of a dialogue drawn from the others, a turn.
        in_batch: whether the batch's other responses and their negatives are negatives as well, except those of the same dialogue.
            They are encoded anyway.
        mask_equal: whether a negative of the true response's very text is left out; the paper leaves it in.
        unit: what an example is: a 'response' with its context, or a whole 'dialogue', each of whose turns is a response: for the
            same loss a turn is encoded once instead of once for every turn that it guides. (A dialogue of more than 64 turns is
            several examples.)
    """

    temperature: float = 0.1
    context_turns: int = 3
    bidirectional: bool = True
    aggregation: Literal["mean", "attention", "released"] = "mean"
    negatives: int = 9
    in_batch: bool = False
    mask_equal: bool = False
    unit: Literal["response", "dialogue"] = "response"

    needs: ClassVar[Literal["states"]] = "states"
    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    special_tokens: ClassVar[tuple[str, ...]] = ()
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.context_turns < 1:
            raise TurnwiseError(f"context_turns={self.context_turns}: needs to be 1 or more")
        if self.negatives < 0 or not (self.negatives or self.in_batch):
            raise TurnwiseError(f"negatives={self.negatives}: needs to be 1 or more, or 0 with in_batch=true")

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """Responses, and the turns from which their contexts come: the responses are among them."""
        turns = len(dialogue.turns)
        together = 1 if self.unit == "response" else _MOST_RESPONSES
        for begin in range(0, turns, together):
            end = min(begin + together, turns)
            first, last = self._around(begin, 0, turns)[0], self._around(end - 1, 0, turns)[1]
            if last - first > 1:
                yield Example(((first, last), (begin, end)))

    def _around(self, response: int, first: int, last: int) -> tuple[int, int]:
        """The turns from which the context of a response comes: the response itself is among them."""
        after = self.context_turns if self.bidirectional else 0
        return max(first, response - self.context_turns), min(last, response + after + 1)

    def heads(self, hidden: int) -> nn.Module:
        """What weights turns, where it is learnt."""
        if self.aggregation == "attention":
            return nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        if self.aggregation == "released":
            return nn.Sequential(
                nn.Linear(hidden, _RELEASED_UNITS), nn.Tanh(), nn.Linear(_RELEASED_UNITS, 1, bias=False)
            )
        return nn.Module()

    def prepare(self, batch: Batch) -> Prepared:
        """Every turn once; which of them is whose context, whose response and whose negative."""
        contexts, responses = self._responses(batch)
        starts = batch.texts.dialogue_starts
        dialogues = np.searchsorted(starts, responses, "right") - 1
        drawn = self._draw(batch.random, starts, dialogues)
        offered = np.unique(np.concatenate([responses, drawn.ravel()]))
        turns = np.unique(np.concatenate([offered, *contexts]))
        longest = max(len(context) for context in contexts)
        around = np.full((len(contexts), longest), -1)
        for row, context in enumerate(contexts):
            around[row, : len(context)] = np.searchsorted(turns, context)
        facts = {
            "contexts": around,
            "responses": np.searchsorted(turns, offered),
            "positives": np.searchsorted(offered, responses),
            "candidates": self._candidates(batch, responses, dialogues, drawn, offered),
        }
        return Prepared(batch.singles(turns), len(responses), facts)

    def _responses(self, batch: Batch) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
        """The context turns of each response, and the responses that have any."""
        contexts, responses = [], []
        for (first, last), (begin, end) in batch.windows.tolist():
            for response in range(begin, end):
                around = np.arange(*self._around(response, first, last))
                if len(around) > 1:
                    contexts.append(around[around != response])
                    responses.append(response)
        return contexts, np.array(responses, np.int64)

    def _draw(
        self, random: np.random.Generator, starts: npt.NDArray[np.int64], dialogues: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Negatives (responses, negatives): a dialogue other than the response's own, each as likely, and a turn of it."""
        number = len(starts) - 1
        if number < 2 and self.negatives:
            raise TurnwiseError(
                "objective dialoguecse draws negatives from other dialogues, and this corpus has but one"
            )
        drawn = random.integers(max(1, number - 1), size=(len(dialogues), self.negatives))
        drawn += drawn >= dialogues[:, None]
        chance = random.random(drawn.shape)
        return np.asarray(starts[drawn] + (chance * (starts[drawn + 1] - starts[drawn])).astype(np.int64))

    def _candidates(
        self,
        batch: Batch,
        responses: npt.NDArray[np.int64],
        dialogues: npt.NDArray[np.int64],
        drawn: npt.NDArray[np.int64],
        offered: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.bool_]:
        """(responses, offered), true for the true response and its negatives."""
        rows = np.arange(len(responses))[:, None]
        own = np.zeros((len(responses), len(offered)), np.bool_)
        own[rows, np.searchsorted(offered, drawn)] = True
        if self.in_batch:
            theirs = np.searchsorted(batch.texts.dialogue_starts, offered, "right") - 1
            own |= theirs != dialogues[:, None]
        if self.mask_equal:
            texts = np.array([batch.texts.identity(turn) for turn in offered.tolist()])
            own &= texts != texts[np.searchsorted(offered, responses)][:, None]
        own[rows[:, 0], np.searchsorted(offered, responses)] = True
        return own

    def loss(
        self, states: BatchStates, facts: dict[str, torch.Tensor], heads: nn.Module
    ) -> tuple[torch.Tensor, Figures]:
        """Eqs. 3 to 8."""
        tokens, mask = states.padded()
        means = tokens.sum(1) / mask.sum(1, keepdim=True)
        present = facts["contexts"] >= 0
        # turns are prepared in their order, so what stands before a response in the batch stands before it in the dialogue
        before = facts["contexts"] < facts["responses"][facts["positives"]][:, None]
        turns = means[facts["contexts"].clamp(min=0)] * present[..., None]  # (contexts, turns, hidden)
        offered = facts["responses"]
        if self.aggregation == "attention":
            similarity = _attended(turns, present, tokens[offered], mask[offered], heads)
        else:
            similarity = guided_cosine(self._summed(turns, present, before, heads), tokens[offered], mask[offered])
        loss = candidate_nt_xent(similarity, facts["positives"], facts["candidates"], self.temperature)
        positive = similarity.detach().gather(1, facts["positives"][:, None])
        return loss, {"positive": positive.detach().mean(), "negatives": facts["candidates"].sum(1).float().mean() - 1}

    def _summed(
        self, turns: torch.Tensor, present: torch.Tensor, before: torch.Tensor, heads: nn.Module
    ) -> torch.Tensor:
        """The turns' vectors brought together (contexts, hidden), by weights in which the responses have no part."""
        if self.aggregation == "mean":
            return turns.sum(1) / present.sum(1, keepdim=True)
        scores = heads(turns)[..., 0]
        shares = [_shares(scores, present & side) for side in (before, ~before)]
        weights: torch.Tensor = 1 + shares[0] + shares[1]
        return (weights[..., None] * turns).sum(1)


def _shares(scores: torch.Tensor, members: torch.Tensor) -> torch.Tensor:
    """A softmax over the members of each row, the others having no share; a row may be without any."""
    raised = scores.masked_fill(~members, -torch.inf)
    return torch.where(members.any(1, keepdim=True), raised, scores).softmax(1) * members


def _attended(
    turns: torch.Tensor, present: torch.Tensor, responses: torch.Tensor, mask: torch.Tensor, heads: nn.Module
) -> torch.Tensor:
    """Eqs. 5 and 6: the cosine (contexts, responses) where each refined embedding says how much it counts."""
    refined = guided_vectors(turns, responses, mask)  # (contexts, responses, turns, hidden)
    weights = heads(refined)[..., 0].masked_fill(~present[:, None], -torch.inf).softmax(2)
    aware = (weights[..., None] * refined).sum(2)
    free = responses.sum(1) / mask.sum(1, keepdim=True)
    return cosine_similarity(aware, free[None], dim=2)
