"""Tables of made-up turns, from whose tokens a test can tell the turn."""

from collections.abc import Callable, Sequence

import numpy as np

from turnwise.models.backbone.ragged import Tokens
from turnwise.objectives.objective import TurnTable


def turn_table(
    lengths: Sequence[Sequence[int]],
    tokens: Callable[[int, int], Tokens],
    identities: Sequence[int] = (),
    speakers: Sequence[str] = ("user",),
) -> TurnTable:
    """Return dialogues whose turns have some lengths; `tokens` makes the tokens of a turn of a length.

    Speakers take turns, and the last turn is every turn's hard negative.
    """
    flat = [length for dialogue in lengths for length in dialogue]
    turns = [tokens(turn, length) for turn, length in enumerate(flat)]
    starts = np.cumsum([0, *map(len, lengths)])
    return TurnTable(
        np.concatenate(turns).astype(np.int32),
        np.cumsum([0, *map(len, turns)]),
        np.array(identities or range(len(flat)), np.int64),
        np.array([place % len(speakers) for dialogue in lengths for place in range(len(dialogue))], np.int16),
        list(speakers),
        np.zeros(len(flat), np.int32),
        starts,
        starts[[0, -1]],
        negatives=np.full((len(flat), 1), len(flat) - 1, np.int32),
    )
