"""Domain post-training of a backbone on pairs of dialogue parts, by BERT's or ELECTRA's method."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding

from turnwise.core.dialogue import WRONG_RESPONSE, Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.validation import Integer, NonNegative, NonNegativeInt, Number
from turnwise.models.backbone.inputs import END_OF_TURN
from turnwise.models.backbone.language_head import LanguageHead, word_embeddings
from turnwise.models.backbone.ragged import RaggedTokens, Tokens
from turnwise.models.backbone.stream import TokenStream
from turnwise.objectives import objective as base
from turnwise.objectives.losses import binary_classification, masked_language_model
from turnwise.objectives.masked_language import mask_tokens, masked_token_logits
from turnwise.objectives.ums import is_labelled

#: ELECTRA's weight of replaced token detection, relative to the generator's loss.
_DETECTION_WEIGHT = 50.0

#: The generator: the backbone's width divided by this, its layers, and an attention head's width if that divides it.
_NARROWER, _LAYERS, _HEAD_WIDTH = 4, 2, 64


@dataclass(frozen=True, slots=True)
class PostTraining(base.TokenObjective):
    """Domain post-training (Whang et al., 2020 and 2021).

    A dialogue is split in two between turns, and half of the times the second part is taken from another dialogue:

        [CLS] u₁ [EOT] … [SEP] uₖ [EOT] … [SEP]

    As BERT, it predicts masked tokens, the mean over them, and whether the second part belongs to the first, the mean
    over pairs. With `detection`, as ELECTRA (Clark et al., 2020), a small generator predicts the masked tokens, and 50
    times the loss of classifying every token as replaced or not, the mean over all tokens, is added.
    """

    mask_fraction: Annotated[Number, Field(gt=0, le=1)] = 0.15  # fraction of the tokens to be masked
    max_masked: NonNegativeInt = 0  # masked tokens of one pair; 0: no limit
    #: Tokens of a pair; the first part loses its oldest tokens, the second its last.
    length: Annotated[Integer, Field(ge=8)] = 512
    #: An example is a 'place' where a dialogue can be split, or a 'dialogue', which is split at random each time.
    unit: Literal["place", "dialogue"] = "place"
    #: 0: no next-sentence prediction; the second part always belongs to the first.
    next_sentence_weight: NonNegative = 1.0
    end_of_turn: bool = True  # whether [EOT] ends each turn, as re-rankers read it; otherwise turns follow one another
    detection: bool = False  # ELECTRA's objective; all chosen tokens are then masked

    @property
    def replaces_tokens(self) -> bool:
        """Whether the generator fills in masked tokens before the backbone reads them."""
        return self.detection

    @property
    def traits(self) -> base.Traits:
        """The end of a turn may be marked."""
        return base.Traits(special_tokens=(END_OF_TURN,) if self.end_of_turn else ())

    def examples(self, dialogue: Dialogue) -> Iterator[base.Example]:
        """Iterate over (dialogue, turns before which it may be split): one turn, or all but the first.

        A dialogue whose last turn is labelled as a wrong response is not used.
        """
        turns = len(dialogue.turns)
        if is_labelled(dialogue) and dialogue.turns[-1].intent == WRONG_RESPONSE:
            return
        if self.unit == "place":
            yield from (base.Example(((0, turns), (split, split + 1))) for split in range(1, turns))
        elif turns > 1:
            yield base.Example(((0, turns), (1, turns)))

    def make_heads(self, hidden: int) -> nn.Module:
        """Create a generator and the detection head, or BERT's prediction head; and the next-sentence head."""
        heads = nn.ModuleDict()
        if self.detection:
            heads["generator"] = Generator(hidden, self.length)
            heads["detection"] = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))
        else:
            heads["language"] = LanguageHead(hidden, hidden)
        if self.next_sentence_weight:
            heads["next_sentence"] = nn.Linear(hidden, 1)
        return heads

    def prepare(self, batch: base.Batch) -> base.PreparedBatch:
        """Return pairs with masked tokens, the original tokens, and whether the second part belongs to the first.

        The items of the loss are pairs; a mean over tokens is therefore multiplied by pairs / tokens.
        """
        composer = batch.composer
        if self.next_sentence_weight and not len(composer.prefix):
            raise TurnwiseError(
                "this backbone puts no token such as [CLS] before a text, which next-sentence prediction needs: set"
                " objectives.post-training.next_sentence_weight=0"
            )
        pairs, follows = zip(*(self._pair(batch, *windows) for windows in batch.windows.tolist()), strict=True)
        originals = [tokens for tokens, _ in pairs]
        sequences, inputs = mask_tokens(batch, originals, self.mask_fraction, self.max_masked, mask_only=self.detection)
        masked, tokens = len(inputs["members"]), sum(len(original) for original in originals)
        inputs |= {
            "follows": np.array(follows, np.int64),
            "pairs_per_masked": np.array(len(batch) / max(1, masked)),
            "pairs_per_token": np.array(len(batch) / tokens),
        }
        if self.detection:
            inputs["uniforms"] = batch.random.random(masked, dtype=np.float32)
        segments = RaggedTokens.of([segments for _, segments in pairs])
        return base.PreparedBatch(sequences, len(batch), inputs, segments, np.ones(len(batch), np.int64))

    def _pair(self, batch: base.Batch, dialogue: list[int], places: list[int]) -> tuple[tuple[Tokens, Tokens], bool]:
        """Split a dialogue, or join its first part with the rest of another; return the pair, and which it is."""
        (first, last), (earliest, behind) = dialogue, places
        split = int(batch.random.integers(earliest, behind))
        start, follows = split, not self.next_sentence_weight or bool(batch.random.random() < 0.5)
        if not follows:
            start = batch.random_negative(split, [batch.texts.identity(split)])
            last = batch.dialogue(start).stop
        before = self._pieces(batch, reversed(range(first, split)))[::-1]
        after = self._pieces(batch, range(start, last))
        longest = min(self.length, batch.longest)
        return batch.composer.pair(np.concatenate(before), np.concatenate(after), longest), follows

    def _pieces(self, batch: base.Batch, turns: Iterable[int]) -> list[Tokens]:
        """Collect turns until they fill a sequence."""
        end = np.array([batch.composer.special[END_OF_TURN]] if self.end_of_turn else [], np.int32)
        pieces: list[Tokens] = []
        length = 0
        for turn in turns:
            pieces.append(np.concatenate([batch.texts.tokens(turn), end]))
            length += len(pieces[-1])
            if length >= self.length:
                break
        return pieces

    def replace_tokens(
        self, stream: TokenStream, members: base.Members, inputs: base.Arrays, heads: nn.Module, embeddings: nn.Module
    ) -> tuple[TokenStream, Tensor]:
        """Fill in the masked tokens by the generator; return the stream and the sum of the generator's loss.

        Each token is sampled with a number that was drawn with the batch, so that it does not depend on the chunk that
        it is in.
        """
        assert isinstance(heads, nn.ModuleDict)
        generator = heads["generator"]
        assert isinstance(generator, Generator)
        states = base.TokenStates(generator(stream, embeddings), stream, members)
        logits, targets = masked_token_logits(states, inputs, generator.language, embeddings)
        rows, own = _masked_rows(stream, members, inputs)
        ids = stream.ids.clone()
        ids[rows] = sample_tokens(logits, states.to_tensor(inputs["uniforms"][own]))
        return replace(stream, ids=ids), masked_language_model(logits, targets) * float(inputs["pairs_per_masked"])

    def loss_sum(
        self, states: base.TokenStates, inputs: base.Arrays, heads: nn.Module, embeddings: nn.Module
    ) -> Tensor:
        """Compute the loss of masked or replaced tokens, and of next-sentence prediction."""
        assert isinstance(heads, nn.ModuleDict)
        if self.detection:
            logits = heads["detection"](states.states)[:, 0]
            detection = binary_classification(logits, replaced_tokens(states.stream, states.members, inputs))
            loss = detection * (_DETECTION_WEIGHT * float(inputs["pairs_per_token"]))
        else:
            logits, targets = masked_token_logits(states, inputs, heads["language"], embeddings)
            loss = masked_language_model(logits, targets) * float(inputs["pairs_per_masked"])
        if not self.next_sentence_weight:
            return loss
        members = states.members[states.members >= 0]  # the rest belong to other objectives
        logits = heads["next_sentence"](states.at(members.tolist(), [0] * len(members)))[:, 0]
        return loss + self.next_sentence_weight * binary_classification(
            logits, states.to_tensor(inputs["follows"][members])
        )


class Generator(nn.Module):
    """ELECTRA's generator, small: the backbone's embeddings are its input and output layer.

    It has no dropout: what it fills in depends on the sequence and its own weights alone.
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
        self.language = LanguageHead(width, hidden)

    def forward(self, stream: TokenStream, embeddings: nn.Module) -> Tensor:
        """Return the states (tokens, width) of a stream on its device, in stream order."""
        device = stream.ids.device
        words = embedding(stream.ids, word_embeddings(embeddings, self.narrow.in_features))
        states = self.norm(self.narrow(words) + self.positions(stream.positions().to(device)))
        padded, mask = base.BatchStates(states, torch.from_numpy(stream.lengths).to(device)).padded()
        for layer in self.layers:
            padded = layer(padded, src_key_padding_mask=~mask)
        return padded[mask]


def sample_tokens(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Sample a token (positions,) from each row of logits (positions, vocabulary) by inverse transform sampling."""
    cumulative = logits.detach().float().softmax(-1).cumsum(-1)
    tokens = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)[:, 0]
    return tokens.clamp(max=logits.shape[-1] - 1)  # rounding may put the number at the very end


def replaced_tokens(stream: TokenStream, members: base.Members, inputs: base.Arrays) -> Tensor:
    """Return (tokens,), true where a token differs from the original."""
    rows, own = _masked_rows(stream, members, inputs)
    targets = torch.as_tensor(inputs["targets"][own], device=stream.ids.device)
    replaced = torch.zeros(stream.tokens, dtype=torch.bool, device=stream.ids.device)
    replaced[rows] = stream.ids[rows] != targets
    return replaced


def _masked_rows(
    stream: TokenStream, members: base.Members, inputs: base.Arrays
) -> tuple[Tensor, npt.NDArray[np.bool_]]:
    """Return where in a stream the masked tokens of its sequences are, and which masked tokens these are."""
    return base.TokenStates(torch.arange(stream.tokens, device=stream.ids.device), stream, members).select(inputs)
