"""Domain post-training (Whang et al., 2020 and 2021): a pre-trained backbone goes on with its own objective on dialogues.

A dialogue is cut in two between turns, and every other time the second part is taken from another dialogue:

    [CLS] u₁ [EOT] … [SEP] uₖ [EOT] … [SEP]

BERT's way: hidden tokens are to be found again, and it is to be told whether the second part belongs to the first. ELECTRA's way
(Clark et al., 2020): a small generator fills the hidden tokens in, and of every token it is to be told whether it was replaced.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import embedding

from turnwise.core.dialogue import WRONG_RESPONSE, Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import END_OF_TURN, TurnStyle
from turnwise.models.backbone.stream import RaggedTokens, Tokens, TokenStream
from turnwise.objectives.losses import masked_language_model, relevance, replaced_token_detection
from turnwise.objectives.masked_language import hidden_logits, hide, language_head, word_vectors
from turnwise.objectives.objective import Batch, BatchStates, Example, ForEncoders, Prepared, TokenStates
from turnwise.objectives.reranking import is_labelled

#: What ELECTRA counts the detection of replaced tokens, its generator's loss counting 1.
_DETECTION_WEIGHT = 50.0

#: A generator's share of the backbone's width, its layers, and the width of one of its attention heads, as far as that divides it.
_NARROWER, _LAYERS, _HEAD_WIDTH = 4, 2, 64

_NOTHING: Tokens = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class PostTraining(ForEncoders):
    """What hidden tokens were, the mean over them, plus whether the second part is the next, the mean over pairs.

    With `detection` the generator finds what they were, and 50 times the mean over all tokens, whether each was replaced, is added.

    Attributes:
        share: of the tokens to be hidden.
        most: of them in one pair; 0: no limit.
        length: tokens of a pair; the first part is cut at its head, the second at its end.
        unit: an example is a 'place' where a dialogue can be cut, or a 'dialogue', which is cut at another place at every visit.
        next_sentence_weight: what it counts whether the second part belongs to the first; 0: it is not asked, and always does.
        end_of_turn: whether [EOT] ends each turn, as a re-ranker reads it; else turns follow one another.
        detection: ELECTRA's way; tokens are then all masked.
    """

    share: float = 0.15
    most: int = 0
    length: int = 512
    unit: Literal["place", "dialogue"] = "place"
    next_sentence_weight: float = 1.0
    end_of_turn: bool = True
    detection: bool = False

    labels_in_turn: ClassVar[tuple[int, ...]] = ()
    columns: ClassVar[int] = 2
    style: ClassVar[TurnStyle] = "separator"
    slot_names: ClassVar[None] = None
    unique: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise TurnwiseError(f"objectives.post-training.share={self.share}: a share from above 0 to 1")
        if self.length < 8:
            raise TurnwiseError(f"objectives.post-training.length={self.length}: a pair needs 8 tokens or more")
        for key in ("most", "next_sentence_weight"):
            if getattr(self, key) < 0:
                raise TurnwiseError(f"objectives.post-training.{key}={getattr(self, key)}: needs to be 0 or more")

    @property
    def needs(self) -> Literal["tokens", "replaced"]:
        """Token states, of sequences that the generator has filled in where tokens are to be detected."""
        return "replaced" if self.detection else "tokens"

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """What ends a turn, where it is wanted."""
        return (END_OF_TURN,) if self.end_of_turn else ()

    def examples(self, dialogue: Dialogue) -> Iterator[Example]:
        """The dialogue, and the turns before which it may be cut: one, or any but the first.

        A dialogue whose last turn is labelled as a wrong response is none.
        """
        turns = len(dialogue.turns)
        if is_labelled(dialogue) and dialogue.turns[-1].intent == WRONG_RESPONSE:
            return
        if self.unit == "place":
            yield from (Example(((0, turns), (cut, cut + 1))) for cut in range(1, turns))
        elif turns > 1:
            yield Example(((0, turns), (1, turns)))

    def heads(self, hidden: int) -> nn.Module:
        """A generator and what tells its tokens, or BERT's transform; and what tells whether the second part is the next."""
        heads = nn.ModuleDict()
        if self.detection:
            heads["generator"] = Generator(hidden, self.length)
            heads["detection"] = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))
        else:
            heads["language"] = language_head(hidden, hidden)
        if self.next_sentence_weight:
            heads["next_sentence"] = nn.Linear(hidden, 1)
        return heads

    def prepare(self, batch: Batch) -> Prepared:
        """Pairs with some of their tokens hidden, what these were, and whether the second part is the next.

        A pair is an item of the loss; what is a mean over tokens is therefore times pairs by tokens.
        """
        composer = batch.composer
        if self.next_sentence_weight and not len(composer.prefix):
            raise TurnwiseError(
                "this backbone puts no token such as [CLS] before a text, whose state tells whether the second part is the next:"
                " say objectives.post-training.next_sentence_weight=0"
            )
        pairs, follows = zip(*(self._pair(batch, *windows) for windows in batch.windows.tolist()), strict=True)
        kept = [*composer.prefix, *composer.middle, *composer.suffix]
        whole = [tokens for tokens, _ in pairs]
        sequences, facts = hide(batch, whole, kept, self.share, self.most, masked_alone=self.detection)
        hidden, tokens = len(facts["members"]), sum(len(each) for each in whole)
        facts |= {
            "follows": np.array(follows, np.int64),
            "by_hidden": np.array(len(batch) / max(1, hidden)),
            "by_token": np.array(len(batch) / tokens),
        }
        if self.detection:
            facts["uniforms"] = batch.random.random(hidden, dtype=np.float32)
        segments = RaggedTokens.of([segments for _, segments in pairs])
        return Prepared(sequences, len(batch), facts, segments, np.ones(len(batch), np.int64))

    def _pair(self, batch: Batch, dialogue: list[int], places: list[int]) -> tuple[tuple[Tokens, Tokens], bool]:
        """A dialogue cut in two, or its first part and the rest of another: tokens and segments, and whether it is the former."""
        (first, last), (earliest, behind) = dialogue, places
        cut = int(batch.random.integers(earliest, behind))
        start, follows = cut, not self.next_sentence_weight or bool(batch.random.random() < 0.5)
        if not follows:
            starts = batch.texts.dialogue_starts
            start = batch.stranger(cut, [batch.texts.identity(cut)])
            last = int(starts[np.searchsorted(starts, start, "right")])
        before = self._pieces(batch, reversed(range(first, cut)))[::-1]
        after = self._pieces(batch, range(start, last))
        return batch.composer.pair(
            np.concatenate(before), np.concatenate(after), min(self.length, batch.longest)
        ), follows

    def _pieces(self, batch: Batch, turns: Iterable[int]) -> list[Tokens]:
        """Turns, one after the other, until they fill a sequence."""
        end = np.array([batch.composer.special[END_OF_TURN]], np.int32) if self.end_of_turn else _NOTHING
        pieces: list[Tokens] = []
        held = 0
        for turn in turns:
            pieces.append(np.concatenate([batch.texts.tokens(turn), end]))
            held += len(pieces[-1])
            if held >= self.length:
                break
        return pieces

    def replaced(
        self,
        stream: TokenStream,
        members: npt.NDArray[np.int64],
        facts: dict[str, npt.NDArray[Any]],
        heads: nn.Module,
        embeddings: nn.Module,
    ) -> tuple[TokenStream, torch.Tensor]:
        """The stream with its hidden tokens filled in by the generator, and the sum of the generator's own loss.

        Each token is drawn by a number that was drawn with the batch, so that it does not matter with which others it is filled in.
        """
        assert isinstance(heads, nn.ModuleDict)
        generator = heads["generator"]
        assert isinstance(generator, Generator)
        states = TokenStates(generator(stream, embeddings), stream, members)
        logits, targets = hidden_logits(states, facts, generator.language, embeddings)
        uniforms = torch.as_tensor(facts["uniforms"][np.isin(facts["members"], members)], device=logits.device)
        ids = stream.ids.clone()
        ids[_hidden_rows(stream, members, facts)] = drawn_tokens(logits, uniforms)
        return replace(stream, ids=ids), masked_language_model(logits, targets) * float(facts["by_hidden"])

    def loss_sum(
        self, states: TokenStates, facts: dict[str, npt.NDArray[Any]], heads: nn.Module, embeddings: nn.Module
    ) -> torch.Tensor:
        """What was hidden, or which tokens were replaced; and whether the second part is the next."""
        assert isinstance(heads, nn.ModuleDict)
        if self.detection:
            logits = heads["detection"](states.states)[:, 0]
            found = replaced_token_detection(logits, replaced_tokens(states.stream, states.members, facts))
            summed = found * (_DETECTION_WEIGHT * float(facts["by_token"]))
        else:
            summed = masked_language_model(*hidden_logits(states, facts, heads["language"], embeddings)) * float(
                facts["by_hidden"]
            )
        if not self.next_sentence_weight:
            return summed
        members = states.members[states.members >= 0]  # the rest are another objective's
        logits = heads["next_sentence"](states.at(members.tolist(), [0] * len(members)))[:, 0]
        follows = torch.as_tensor(facts["follows"][members], device=logits.device)
        return summed + self.next_sentence_weight * relevance(logits, follows)


class Generator(nn.Module):
    """ELECTRA's generator, small: it reads through the backbone's embeddings and says through them what stood at hidden places.

    There is no dropout in it: what it fills in depends on the sequence and its own numbers alone.

    Args:
        hidden: the backbone's width.
        longest: tokens of a sequence at most.
    """

    def __init__(self, hidden: int, longest: int):
        super().__init__()
        width = max(1, hidden // _NARROWER)
        heads = math.gcd(width, max(1, width // _HEAD_WIDTH))
        self.narrow = nn.Linear(hidden, width)
        self.positions = nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(_LAYERS)
        )
        self.language = language_head(width, hidden)

    def forward(self, stream: TokenStream, embeddings: nn.Module) -> torch.Tensor:
        """Its states (tokens, width) of a stream on its device, in stream order."""
        device = stream.ids.device
        words = embedding(stream.ids, word_vectors(embeddings, self.narrow.in_features))
        states = self.norm(self.narrow(words) + self.positions(stream.positions().to(device)))
        padded, mask = BatchStates(states, torch.from_numpy(stream.lengths).to(device)).padded()
        for layer in self.layers:
            padded = layer(padded, src_key_padding_mask=~mask)
        return padded[mask]


def drawn_tokens(logits: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Tokens drawn by softmax: the first at which the probabilities, added up from token 0, are above a number from 0 to 1.

    Args:
        logits: (places, vocabulary).
        uniforms: (places,).

    Returns:
        (places,), without a gradient.
    """
    added = logits.detach().float().softmax(-1).cumsum(-1)
    found = torch.searchsorted(added, uniforms[:, None] * added[:, -1:], right=True)[:, 0]
    return found.clamp(max=logits.shape[-1] - 1)  # where rounding puts the number at the very end


def replaced_tokens(
    stream: TokenStream, members: npt.NDArray[np.int64], facts: dict[str, npt.NDArray[Any]]
) -> torch.Tensor:
    """(tokens,), true where a token is another than it was; one that was filled in as it was is not replaced."""
    targets = torch.as_tensor(facts["targets"][np.isin(facts["members"], members)], device=stream.ids.device)
    rows = _hidden_rows(stream, members, facts)
    found = torch.zeros(stream.tokens, dtype=torch.bool, device=stream.ids.device)
    found[rows] = stream.ids[rows] != targets
    return found


def _hidden_rows(
    stream: TokenStream, members: npt.NDArray[np.int64], facts: dict[str, npt.NDArray[Any]]
) -> torch.Tensor:
    """Where in a stream the hidden tokens of its sequences stand, in the order of the facts."""
    mine = np.isin(facts["members"], members)
    every = TokenStates(torch.arange(stream.tokens, device=stream.ids.device), stream, members)
    return every.at(facts["members"][mine].tolist(), facts["places"][mine].tolist())
