"""From texts to token sequences: special tokens, truncated histories, pairs, and dialogues with marked positions.

The marked inputs are those of UMS (Whang et al., 2021), which a re-ranker reads. Every utterance ends in [EOT]. Heads
use the state of the first token for response selection, and in the other tasks those of the marks:

    selection   [CLS] u₁ [EOT] … uₙ [EOT] [SEP] r [EOT] [SEP]
    insertion   [CLS] [INS] u₁ [EOT] [INS] … uₙ [EOT] [INS] [SEP] target [EOT] [SEP]
    deletion    [CLS] [DEL] u₁ [EOT] [DEL] … uₙ [EOT] [SEP]
    search      [CLS] [SRCH] u₁ [EOT] [SRCH] … uₙ [EOT] [SEP] target [EOT] [SEP]

Too long a selection context loses its head. Too long a marked input loses the ends of its longest utterances, so that
no mark is lost and the n-th mark stays that of the n-th utterance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.core.errors import ModelError
from turnwise.models.backbone.ragged import RaggedTokens, Tokens, span_indices

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from turnwise.models.backbone.tokenizer import FastTokenizer

#: A tokenizer of transformers, or one without it.
AnyTokenizer: TypeAlias = "PreTrainedTokenizerBase | FastTokenizer"

#: How the turns of a history are joined: by the backbone's separator, or each after a token that names its speaker.
TurnStyle = Literal["separator", "roles"]

#: The tokens that name the speaker of a turn in the style 'roles'.
ROLE_TOKENS = {SYSTEM: "[SYS]", USER: "[USR]"}

#: The tasks of a re-ranker's heads: response selection, and UMS's auxiliary tasks.
RerankerTask = Literal["selection", "insertion", "deletion", "search"]
AuxiliaryTask = Literal["insertion", "deletion", "search"]

#: Utterances that insertion, deletion and search see together (k).
WINDOW = 5

END_OF_TURN = "[EOT]"

#: The mark before an utterance in each auxiliary task.
MARKS: dict[AuxiliaryTask, str] = {"insertion": "[INS]", "deletion": "[DEL]", "search": "[SRCH]"}

#: Characters of a text that are tokenised first for each token that is needed: twice as many as tokens usually have.
_CHARACTERS_PER_TOKEN = 10

#: The characters, and so the most tokens, of a word; WordPiece reads longer ones as unknown.
_WORD = 100

_EMPTY: Tokens = np.empty(0, np.int32)


def tokenise(tokenizer: AnyTokenizer, texts: Sequence[str]) -> RaggedTokens:
    """Return the tokens of texts, without special ones and not truncated."""
    return collect_tokens(run_tokenizer(tokenizer, texts))


def run_tokenizer(
    tokenizer: AnyTokenizer, texts: Sequence[str], room: int | None = None, from_start: Sequence[bool] = ()
) -> list[Any]:
    """Return the tokens of texts in the tokenizer's own form; other Python threads run in the meantime.

    If only the first (`from_start`) or last `room` tokens of each text are needed, the rest of a long text is left out.
    """
    if room is not None:
        longest = room * _CHARACTERS_PER_TOKEN + 10 * _WORD
        pairs = zip(texts, from_start, strict=True)
        encoded = run_tokenizer(tokenizer, [text[:longest] if first else text[-longest:] for text, first in pairs])
        # a cut may change the tokens of the word that it divides
        short = [row for row, text in enumerate(texts) if len(text) > longest and len(encoded[row]) < room + _WORD]
        for row, whole in zip(short, run_tokenizer(tokenizer, [texts[row] for row in short]), strict=True):
            encoded[row] = whole
        return encoded
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        slow: Any = tokenizer
        encoded = slow(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        return [np.asarray(ids, np.int32) for ids in encoded]
    # the tokenizers library directly: transformers takes twice as long, for offsets that are not needed
    backend.no_truncation()
    backend.no_padding()
    return list(backend.encode_batch_fast(list(texts), add_special_tokens=False))


def collect_tokens(encoded: Sequence[Any]) -> RaggedTokens:
    """Return what `run_tokenizer` returned as one array."""
    if not encoded or isinstance(encoded[0], np.ndarray):
        return RaggedTokens.of(encoded)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ids = chain.from_iterable(each.ids for each in encoded)
    return RaggedTokens(np.fromiter(ids, np.int32, int(lengths.sum())), lengths)


@dataclass(frozen=True, slots=True)
class Composer:
    """Composes the token sequences that a backbone expects."""

    prefix: Tokens  # before a text ([CLS])
    middle: Tokens  # between the two texts of a pair ([SEP])
    suffix: Tokens  # after a text ([SEP])
    separator: Tokens  # between the turns of a history
    roles: dict[str, int]  # the tokens that name a speaker in the style 'roles'; else empty
    mask: int  # the mask token; -1 if the tokenizer has none
    vocabulary: int  # the number of tokens
    special: dict[str, int]  # the ids of added tokens such as [EOT]

    @classmethod
    def of(cls, tokenizer: AnyTokenizer, style: TurnStyle = "separator") -> "Composer":
        """Return the composer for a tokenizer, by the special tokens that it puts around one text and between two."""
        text = tokenizer("a", add_special_tokens=False)["input_ids"]
        single = tokenizer("a")["input_ids"]
        double = tokenizer("a", "a")["input_ids"]
        start = _find(single, text, 0)
        second = _find(double, text, start + len(text))
        separator = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
        roles = {}
        if style == "roles":
            roles = {role: int(str(tokenizer.convert_tokens_to_ids(token))) for role, token in ROLE_TOKENS.items()}
            if tokenizer.unk_token_id in roles.values():
                raise ValueError(f"the tokenizer does not know {', '.join(ROLE_TOKENS.values())}: add them first")
        return cls(
            np.array(single[:start], np.int32),
            np.array(double[start + len(text) : second], np.int32),
            np.array(single[start + len(text) :], np.int32),
            np.array([] if separator is None else [separator], np.int32),
            roles,
            -1 if tokenizer.mask_token_id is None else tokenizer.mask_token_id,
            len(tokenizer),
            dict(tokenizer.get_added_vocab()),
        )

    def text(self, tokens: Tokens, longest: int) -> Tokens:
        """Return the sequence of a text, truncated at its end."""
        room = longest - len(self.prefix) - len(self.suffix)
        return np.concatenate([self.prefix, tokens[: max(0, room)], self.suffix])

    def texts(self, texts: RaggedTokens, longest: int) -> RaggedTokens:
        """Return what `text` returns for each of several texts."""
        room = max(0, longest - len(self.prefix) - len(self.suffix))
        return self._surround(texts.tokens, texts.starts, np.minimum(texts.lengths, room))

    def histories(
        self, turns: RaggedTokens, counts: npt.NDArray[np.int64], longest: npt.NDArray[np.int64]
    ) -> RaggedTokens:
        """Return what `history` returns for each of several histories, in the style 'separator'.

        `turns` are those of all histories; each has `counts` turns and at most `longest` tokens (histories,).
        """
        assert not self.roles
        first_turns = np.cumsum(counts) - counts
        gaps = np.full(len(turns), len(self.separator))
        gaps[first_turns] = 0
        starts = np.cumsum(turns.lengths + gaps) - turns.lengths
        joined = np.empty(int(turns.lengths.sum() + gaps.sum()), np.int32)
        joined[span_indices(starts, turns.lengths)] = turns.tokens[span_indices(turns.starts, turns.lengths)]
        joined[starts[gaps > 0][:, None] - np.arange(len(self.separator), 0, -1)] = self.separator
        lengths = np.add.reduceat(turns.lengths + gaps, first_turns)
        kept = np.minimum(lengths, np.maximum(0, longest - len(self.prefix) - len(self.suffix)))
        # a single text loses its end, a history its head
        return self._surround(joined, starts[first_turns] + np.where(counts == 1, 0, lengths - kept), kept)

    def _surround(self, tokens: Tokens, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> RaggedTokens:
        """Return spans of tokens between the tokens before and after a text."""
        before, after = len(self.prefix), len(self.suffix)
        ends = np.cumsum(lengths + before + after)
        firsts = ends - lengths - before - after
        surrounded = np.empty(ends[-1] if len(ends) else 0, np.int32)
        surrounded[firsts[:, None] + np.arange(before)] = self.prefix
        surrounded[ends[:, None] - after + np.arange(after)] = self.suffix
        surrounded[span_indices(firsts + before, lengths)] = tokens[span_indices(starts, lengths)]
        return RaggedTokens(surrounded, ends - firsts)

    def history(self, turns: Sequence[Tokens], speakers: Sequence[str], longest: int) -> Tokens:
        """Return the sequence of turns, newest last, truncated at its head."""
        if len(turns) == 1 and not self.roles:
            return self.text(turns[0], longest)
        pieces: list[Tokens] = []
        for position, (turn, speaker) in enumerate(zip(turns, speakers, strict=True)):
            if self.roles:
                pieces.append(np.array([self.roles[SYSTEM if speaker == SYSTEM else USER]], np.int32))
            elif position:
                pieces.append(self.separator)
            pieces.append(turn)
        room = longest - len(self.prefix) - len(self.suffix)
        joined = np.concatenate(pieces)
        return np.concatenate([self.prefix, joined[max(0, len(joined) - room) :], self.suffix])

    def pair(self, first: Tokens, second: Tokens, longest: int) -> tuple[Tokens, Tokens]:
        """Return two texts and segment ids; the first loses its head while it is longer, then the second its end."""
        room = longest - len(self.prefix) - len(self.middle) - len(self.suffix)
        surplus = max(0, len(first) + len(second) - room)
        from_first = min(surplus, max(0, len(first) - min(len(second), room // 2)))
        first, second = first[from_first:], second[: len(second) - (surplus - from_first)]
        tokens = np.concatenate([self.prefix, first, self.middle, second, self.suffix])
        segments = np.zeros(len(tokens), np.int32)
        segments[len(self.prefix) + len(first) + len(self.middle) :] = 1
        return tokens, segments


def _find(sequence: Sequence[int], part: Sequence[int], start: int) -> int:
    for position in range(start, len(sequence) - len(part) + 1):
        if list(sequence[position : position + len(part)]) == list(part):
            return position
    raise ValueError("the tokenizer changes a text when it adds special tokens; such tokenizers are not supported")


@dataclass(frozen=True, slots=True)
class MarkedInput:
    """A token sequence, its segment ids, and the positions whose states heads use, in order."""

    tokens: Tokens
    segments: Tokens
    positions: npt.NDArray[np.int64]


def selection_input(composer: Composer, context: Sequence[Tokens], response: Tokens, longest: int) -> MarkedInput:
    """Return a context with a candidate response; the marked position is the first token.

    The context loses its head while it is longer than the response; then the response loses its end, before its [EOT].
    """
    if not len(composer.prefix):
        raise ModelError("this backbone puts no token such as [CLS] before a text, which a re-ranker's score needs")
    if longest <= len(composer.prefix) + len(composer.middle) + len(composer.suffix):
        raise ModelError(f"a response does not fit a sequence of {longest} tokens: allow more")
    end = _special_token(composer, END_OF_TURN)
    first = np.concatenate([piece for turn in context for piece in (turn, end)] or [_EMPTY])
    tokens, segments = composer.pair(first, np.concatenate([response, end]), longest)
    tokens[len(tokens) - len(composer.suffix) - 1] = end[0]  # which a truncated response has lost
    return MarkedInput(tokens, segments, np.zeros(1, np.int64))


def marked_input(
    composer: Composer, task: AuxiliaryTask, turns: Sequence[Tokens], target: Tokens | None, longest: int
) -> MarkedInput:
    """Return utterances with a mark before each, and the target of the task; only deletion has none.

    For insertion there is also a mark after the last utterance, and the target belongs at one of the marks. For
    deletion, one of the utterances is out of place. For search, one of them, in any order, is the target's predecessor.
    """
    mark, end = _special_token(composer, MARKS[task]), _special_token(composer, END_OF_TURN)
    after_last = task == "insertion"
    texts = [*turns] if target is None else [*turns, target]
    around = len(composer.prefix) + len(composer.suffix) + (len(composer.middle) if target is not None else 0)
    texts = _truncate_longest(texts, longest - around - len(texts) - len(turns) - after_last)
    first = [piece for turn in texts[: len(turns)] for piece in (mark, turn, end)] + ([mark] if after_last else [])
    second = [] if target is None else [composer.middle, texts[-1], end]
    tokens = np.concatenate([composer.prefix, *first, *second, composer.suffix])
    segments = np.zeros(len(tokens), np.int32)
    if target is not None:
        segments[len(tokens) - len(composer.suffix) - len(texts[-1]) - 1 :] = 1
    positions = np.cumsum([len(composer.prefix), *(len(turn) + 2 for turn in texts[: len(turns)])])
    return MarkedInput(tokens, segments, positions if after_last else positions[:-1])


def _truncate_longest(texts: Sequence[Tokens], room: int) -> list[Tokens]:
    """Truncate the longest texts to one length so that all texts together fit."""
    if room < 0:
        raise ModelError(f"{len(texts)} utterances with their marks do not fit a sequence: use fewer, or a longer one")
    lengths = np.sort([len(text) for text in texts])
    total = 0
    for shorter, length in enumerate(lengths):
        limit = (room - total) // (len(lengths) - shorter)
        if length > limit:
            return [text[:limit] for text in texts]
        total += int(length)
    return list(texts)


def _special_token(composer: Composer, token: str) -> Tokens:
    if token not in composer.special:
        task = {mark: task for task, mark in MARKS.items()}.get(token, "response-selection")
        raise ModelError(
            f"this model was trained without {task} and does not know {token}: train one whose recipe has that "
            "objective, such as `turnwise train ums`"
        )
    return np.array([composer.special[token]], np.int32)
