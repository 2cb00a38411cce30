"""From texts to token sequences: special tokens around them, histories joined and cut from the head, pairs in two segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from turnwise.core.dialogue import SYSTEM
from turnwise.models.backbone.ragged import Ragged, Tokens, spans

#: How the turns of a history are joined: by the backbone's separator, or each behind a token that names its speaker.
TurnStyle = Literal["separator", "roles"]

#: The tokens that name the speaker of a turn where the style is 'roles'.
ROLE_TOKENS = {"system": "[SYS]", "user": "[USR]"}

_EMPTY: Tokens = np.empty(0, np.int32)


def role_of(speaker: str) -> str:
    """The role token's key for a speaker: everyone but the system is a user."""
    return SYSTEM if speaker == SYSTEM else "user"


@dataclass(frozen=True, slots=True)
class Composer:
    """Puts tokens of texts together as a backbone wants them.

    Attributes:
        prefix: what stands before a text ([CLS]).
        middle: what stands between the two texts of a pair ([SEP]).
        suffix: what stands behind ([SEP]).
        separator: what joins the turns of a history.
        roles: the tokens that name a speaker, where the style is 'roles'; else empty.
        mask: the token that hides another; -1 where the tokenizer has none.
        vocabulary: how many tokens there are.
        special: the tokens that stand for no text, such as [EOT] where it was added, by what they read.
    """

    prefix: Tokens
    middle: Tokens
    suffix: Tokens
    separator: Tokens
    roles: dict[str, int]
    mask: int
    vocabulary: int
    special: dict[str, int]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, style: TurnStyle = "separator") -> "Composer":
        """The composer for a tokenizer, found out by what the tokenizer itself puts around a text and between two."""
        inner = tokenizer("a", add_special_tokens=False)["input_ids"]
        single = tokenizer("a")["input_ids"]
        double = tokenizer("a", "a")["input_ids"]
        start = _find(single, inner, 0)
        second = _find(double, inner, start + len(inner))
        separator = tokenizer.sep_token_id
        if separator is None:
            separator = tokenizer.eos_token_id
        roles = {}
        if style == "roles":
            roles = {role: int(str(tokenizer.convert_tokens_to_ids(token))) for role, token in ROLE_TOKENS.items()}
            if tokenizer.unk_token_id in roles.values():
                raise ValueError(f"the tokenizer does not know {', '.join(ROLE_TOKENS.values())}: add them first")
        return cls(
            _array(single[:start]),
            _array(double[start + len(inner) : second]),
            _array(single[start + len(inner) :]),
            _array([] if separator is None else [separator]),
            roles,
            -1 if tokenizer.mask_token_id is None else tokenizer.mask_token_id,
            len(tokenizer),
            dict(tokenizer.get_added_vocab()),
        )

    def text(self, tokens: Tokens, longest: int) -> Tokens:
        """A single text; what is too long loses its end, as everywhere."""
        room = longest - len(self.prefix) - len(self.suffix)
        return np.concatenate([self.prefix, tokens[: max(0, room)], self.suffix])

    def texts(self, said: Ragged, longest: int) -> Ragged:
        """What `text` gives for each of several texts, all at once."""
        before, behind = len(self.prefix), len(self.suffix)
        cut = np.minimum(said.lengths, max(0, longest - before - behind))
        ends = np.cumsum(cut + before + behind)
        starts = ends - cut - before - behind
        whole = np.empty(ends[-1] if len(ends) else 0, np.int32)
        for place in range(before):
            whole[starts + place] = self.prefix[place]
        for place in range(behind):
            whole[ends - behind + place] = self.suffix[place]
        whole[spans(starts + before, cut)] = said.tokens[spans(said.starts, cut)]
        return Ragged(whole, ends - starts)

    def history(self, turns: Sequence[Tokens], speakers: Sequence[str], longest: int) -> Tokens:
        """Turns in order, newest last; what is too long loses its beginning, so the newest turns stay."""
        if len(turns) == 1 and not self.roles:
            return self.text(turns[0], longest)
        pieces: list[Tokens] = []
        for position, (turn, speaker) in enumerate(zip(turns, speakers, strict=True)):
            if self.roles:
                pieces.append(_array([self.roles[role_of(speaker)]]))
            elif position:
                pieces.append(self.separator)
            pieces.append(turn)
        room = longest - len(self.prefix) - len(self.suffix)
        joined = np.concatenate(pieces)
        return np.concatenate([self.prefix, joined[max(0, len(joined) - room) :], self.suffix])

    def pair(self, first: Tokens, second: Tokens, longest: int) -> tuple[Tokens, Tokens]:
        """Two texts and their segment ids; the first loses its beginning while it is longer, else the second its end."""
        room = longest - len(self.prefix) - len(self.middle) - len(self.suffix)
        over = max(0, len(first) + len(second) - room)
        from_first = min(over, max(0, len(first) - min(len(second), room // 2)))
        first, second = first[from_first:], second[: len(second) - (over - from_first)]
        tokens = np.concatenate([self.prefix, first, self.middle, second, self.suffix])
        segments = np.zeros(len(tokens), np.int32)
        segments[len(self.prefix) + len(first) + len(self.middle) :] = 1
        return tokens, segments


def _array(ids: Sequence[int]) -> Tokens:
    return np.array(ids, np.int32) if len(ids) else _EMPTY


def _find(whole: Sequence[int], part: Sequence[int], start: int) -> int:
    for place in range(start, len(whole) - len(part) + 1):
        if list(whole[place : place + len(part)]) == list(part):
            return place
    raise ValueError("the tokenizer changes a text when it adds special tokens; such tokenizers are not supported")


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Ragged:
    """The tokens of texts, without special ones and uncut."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        return Ragged.of([np.asarray(ids, np.int32) for ids in encoded])
    # straight to the library below: transformers' own call takes twice as long, for offsets that nobody asked for
    backend.no_truncation()
    backend.no_padding()
    encoded = backend.encode_batch_fast(list(texts), add_special_tokens=False)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return Ragged(np.fromiter(chain.from_iterable(each.ids for each in encoded), np.int32, int(lengths.sum())), lengths)
