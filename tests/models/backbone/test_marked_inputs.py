"""Marked inputs decoded: the i-th mark stays that of the i-th utterance, and no response is lost."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.families import tokenizer
from turnwise.core.errors import ModelError
from turnwise.models.backbone.inputs import (
    END_OF_TURN,
    MARKS,
    AuxiliaryTask,
    Composer,
    MarkedInput,
    marked_input,
    selection_input,
)
from turnwise.models.backbone.ragged import Tokens


def composer_of(family: str) -> Composer:
    words = tokenizer(family)
    words.add_special_tokens({"additional_special_tokens": [END_OF_TURN, *MARKS.values()]})
    return Composer.of(words)


COMPOSERS = {family: composer_of(family) for family in ("bert", "roberta", "electra")}

LENGTHS = st.lists(st.integers(0, 25), min_size=1, max_size=6)
FAMILY = st.sampled_from(sorted(COMPOSERS))
TASK = st.sampled_from(sorted(MARKS))
LONGEST = st.integers(4, 120)


def texts(lengths: Sequence[int]) -> list[Tokens]:
    """Return texts whose tokens encode their text and position, and are never special ones."""
    return [np.arange(count, dtype=np.int32) + 1000 * (number + 1) for number, count in enumerate(lengths)]


def composed(task: AuxiliaryTask, composer: Composer, turns: list[Tokens], target: Tokens, longest: int) -> MarkedInput:
    return marked_input(composer, task, turns, None if task == "deletion" else target, longest)


def formula(
    task: AuxiliaryTask, composer: Composer, turns: Sequence[Sequence[int]], target: Sequence[int]
) -> list[int]:
    """The paper's input, written down symbol by symbol."""
    mark, end = composer.special[MARKS[task]], composer.special[END_OF_TURN]
    tokens = [*composer.prefix]
    for turn in turns:
        tokens += [mark, *turn, end]
    if task == "insertion":
        tokens += [mark]
    if task != "deletion":
        tokens += [*composer.middle, *target, end]
    return [int(token) for token in (*tokens, *composer.suffix)]


def decoded(
    task: AuxiliaryTask, composer: Composer, marked: MarkedInput, count: int
) -> tuple[list[list[int]], list[int]]:
    """Return the turns after the first `count` marks, and the target after the middle tokens."""
    mark, end = composer.special[MARKS[task]], composer.special[END_OF_TURN]
    tokens = marked.tokens.tolist()
    assert [tokens[place] for place in marked.positions] == [mark] * len(marked.positions)
    turns = [tokens[place + 1 : tokens.index(end, place)] for place in marked.positions[:count]]
    target: list[int] = []
    if task != "deletion":
        behind = len(tokens) - len(composer.suffix) - 1
        assert tokens[behind] == end
        start = max(place for place, token in enumerate(tokens[:behind]) if token in (end, mark)) + 1
        assert tokens[start : start + len(composer.middle)] == composer.middle.tolist()
        target = tokens[start + len(composer.middle) : behind]
    return turns, target


@given(family=FAMILY, task=TASK, lengths=LENGTHS, target_length=st.integers(0, 25), longest=LONGEST)
def test_marks_stay_with_their_utterances(
    family: str, task: AuxiliaryTask, lengths: list[int], target_length: int, longest: int
) -> None:
    composer = COMPOSERS[family]
    *turns, target = texts([*lengths, target_length])
    least = len(formula(task, composer, [[]] * len(turns), []))
    if least > longest:
        with pytest.raises(ModelError, match="with their marks do not fit a sequence"):
            composed(task, composer, turns, target, longest)
        return
    marked = composed(task, composer, turns, target, longest)
    decoded_turns, decoded_target = decoded(task, composer, marked, len(turns))

    # the input consists of the decoded pieces, and every piece is the beginning of its own text
    assert formula(task, composer, decoded_turns, decoded_target) == marked.tokens.tolist()
    given_texts = [*turns, *([] if task == "deletion" else [target])]
    pieces = [*decoded_turns, *([] if task == "deletion" else [decoded_target])]
    assert all(text[: len(piece)].tolist() == piece for text, piece in zip(given_texts, pieces, strict=True))
    assert len(marked.positions) == len(turns) + (task == "insertion")
    if task == "insertion":  # the last mark follows the last utterance
        assert marked.positions[-1] == marked.positions[-2] + len(decoded_turns[-1]) + 2

    # not longer than allowed, not truncated without need; truncated texts are as long as the longest others
    assert len(marked.tokens) <= longest
    piece_lengths = [(len(piece), len(text)) for piece, text in zip(pieces, given_texts, strict=True)]
    cut = {piece for piece, text in piece_lengths if piece < text}
    if cut:
        assert cut == {max(piece for piece, _ in piece_lengths)}
        assert longest - len(marked.tokens) < len(piece_lengths)
    else:
        assert formula(task, composer, turns, target) == marked.tokens.tolist()


@given(family=FAMILY, task=TASK, lengths=LENGTHS, target_length=st.integers(0, 25))
def test_segments_of_marked_inputs(family: str, task: AuxiliaryTask, lengths: list[int], target_length: int) -> None:
    """The target is the second segment; without a target there is only the first."""
    composer = COMPOSERS[family]
    *turns, target = texts([*lengths, target_length])
    marked = composed(task, composer, turns, target, 40)
    _, decoded_target = decoded(task, composer, marked, len(turns))
    second = 0 if task == "deletion" else len(decoded_target) + 1 + len(composer.suffix)
    assert marked.segments.tolist() == [0] * (len(marked.tokens) - second) + [1] * second


def expected_truncation(context: list[int], response: list[int], room: int) -> tuple[list[int], list[int]]:
    """Token by token: the context's head while it is not the shorter of the two, else the response's end."""
    context, response = [*context], [*response]
    while len(context) + len(response) > room:
        if len(context) >= len(response):
            context.pop(0)
        else:
            response.pop()
    return context, response


@given(family=FAMILY, lengths=LENGTHS, response_length=st.integers(0, 80), longest=LONGEST)
def test_selection(family: str, lengths: list[int], response_length: int, longest: int) -> None:
    composer = COMPOSERS[family]
    *turns, response = texts([*lengths, response_length])
    end = composer.special[END_OF_TURN]
    room = longest - len(composer.prefix) - len(composer.middle) - len(composer.suffix)
    if room < 1:
        with pytest.raises(ModelError, match="a response does not fit"):
            selection_input(composer, turns, response, longest)
        return
    marked = selection_input(composer, turns, response, longest)
    first, second = expected_truncation(
        [token for turn in turns for token in (*turn.tolist(), end)], [*response.tolist(), end], room
    )
    second[-1] = end
    before = [*composer.prefix, *first, *composer.middle]
    assert marked.tokens.tolist() == [*before, *second, *composer.suffix]
    assert marked.segments.tolist() == [0] * len(before) + [1] * (len(second) + len(composer.suffix))
    assert marked.positions.tolist() == [0]
    assert len(second) > min(response_length, room // 2 - 1)  # beside its [EOT]


def test_selection_as_the_paper_writes_it() -> None:
    composer = COMPOSERS["bert"]
    cls, sep, end = 2, 3, composer.special[END_OF_TURN]
    first, second, response = texts([2, 1, 3])
    tokens = selection_input(composer, [first, second], response, 64).tokens.tolist()
    assert tokens == [cls, 1000, 1001, end, 2000, end, sep, 3000, 3001, 3002, end, sep]
    assert selection_input(composer, [], response, 64).tokens.tolist() == [cls, sep, 3000, 3001, 3002, end, sep]


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_selection_needs_a_first_token(family: str) -> None:
    composer = composer_of(family)
    with pytest.raises(ModelError, match="no token such as"):
        selection_input(composer, texts([3]), texts([3])[0], 64)
    marked = composed("deletion", composer, texts([3, 2]), texts([3])[0], 64)
    assert len(marked.positions) == 2  # marks need no first token


def test_missing_mark_is_named() -> None:
    composer, turns = Composer.of(tokenizer("bert")), texts([3, 2])
    with pytest.raises(ModelError, match=r"without response-selection and does not know \[EOT\]"):
        selection_input(composer, turns, turns[0], 64)
    for task, mark in MARKS.items():
        with pytest.raises(ModelError, match=rf"without {task} and does not know {re.escape(mark)}"):
            composed(task, composer, turns, turns[0], 64)
