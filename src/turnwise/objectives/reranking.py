"""What the four objectives of a re-ranker share: which turns are responses, a head that scores, sequences with marked places."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from turnwise.core.dialogue import RIGHT_RESPONSE, SYSTEM, WRONG_RESPONSE, Dialogue
from turnwise.models.backbone.inputs import MarkedInput
from turnwise.models.backbone.stream import RaggedTokens
from turnwise.objectives.objective import Prepared, TokenStates

#: Which turns of a dialogue are learnt as responses.
Responses = Literal["every", "system", "last"]


def responses_of(dialogue: Dialogue, which: Responses) -> list[int]:
    """The turns of a dialogue that answer something, as far as they are wanted."""
    last = len(dialogue.turns) - 1
    if which == "last":
        return [last] if last else []
    return [turn for turn in range(1, last + 1) if which == "every" or dialogue.turns[turn].speaker == SYSTEM]


def is_labelled(dialogue: Dialogue) -> bool:
    """Whether the last turn of a dialogue is a response that its source says is right or wrong."""
    return len(dialogue.turns) > 1 and dialogue.turns[-1].intent in (RIGHT_RESPONSE, WRONG_RESPONSE)


def scoring_head(hidden: int, dropout: float) -> nn.Sequential:
    """Dropout and a linear layer to one number, initialised as BERT's layers are."""
    layer = nn.Linear(hidden, 1)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Dropout(dropout), layer)


def marked_batch(marked: list[MarkedInput], rows: int, facts: dict[str, npt.NDArray[Any]]) -> Prepared:
    """Sequences with the places at which a head looks; each counts once."""
    counts = [len(each.positions) for each in marked]
    return Prepared(
        RaggedTokens.of([each.tokens for each in marked]),
        rows,
        {
            "members": np.repeat(np.arange(len(marked)), counts),
            "places": np.concatenate([each.positions for each in marked]),
            **facts,
        },
        segments=RaggedTokens.of([each.segments for each in marked]),
        weights=np.ones(len(marked), np.int64),
    )


def marked_logits(
    states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module
) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    """What a head says at the marks of some sequences, and of which sequences they are: (marks,) and (marks,)."""
    mine = np.isin(facts["members"], states.members)
    members = facts["members"][mine]
    found = states.at(members.tolist(), facts["places"][mine].tolist())
    with torch.autocast(found.device.type, enabled=False):  # which would round a score
        logits: torch.Tensor = heads(found.float())[:, 0]
    return logits, members
