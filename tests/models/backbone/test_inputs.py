"""Composing token sequences: the tokenizer's own special tokens, and truncation."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.families import FAMILIES, WORDS, sequences, tokenizer
from turnwise.models.backbone.inputs import ROLE_TOKENS, Composer, collect_tokens, run_tokenizer, tokenise
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import RaggedTokens, Tokens
from turnwise.models.encoder import Encoder

Folder = Callable[[str], Path]

FIRST, SECOND = "Hello where is the hotel", "it is in the north, zzz!"
LENGTHS = st.integers(0, 30)


def tokens(start: int, count: int) -> Tokens:
    """Return tokens that encode their text and position."""
    return np.arange(start, start + count, dtype=np.int32)


def inside(composer: Composer, composed: Tokens) -> list[int]:
    """Return the tokens between the special tokens at both ends."""
    assert composed[: len(composer.prefix)].tolist() == composer.prefix.tolist()
    assert composed[len(composed) - len(composer.suffix) :].tolist() == composer.suffix.tolist()
    return composed[len(composer.prefix) : len(composed) - len(composer.suffix)].tolist()


BERT = Composer.of(tokenizer("bert"))
ROBERTA = Composer.of(tokenizer("roberta"))


@pytest.fixture(scope="module")
def roles(tiny_folder: Folder) -> Composer:
    backbone = load_backbone(tiny_folder("bert"))
    backbone.add_tokens(tuple(ROLE_TOKENS.values()))
    return Composer.of(backbone.tokenizer, "roles")


@pytest.mark.parametrize("family", FAMILIES)
def test_text_has_the_tokenizers_special_tokens(family: str) -> None:
    words = tokenizer(family)
    for text in ("a", FIRST, "a a a", "😀"):
        (part,) = tokenise(words, [text])
        assert Composer.of(words).text(part, 64).tolist() == words(text)["input_ids"]


@pytest.mark.parametrize("family", FAMILIES)
def test_pair_has_the_tokenizers_special_tokens(family: str) -> None:
    words = tokenizer(family)
    for first, second in ((FIRST, SECOND), ("a", "a"), ("a a", "a a a")):
        composed, segments = Composer.of(words).pair(*tokenise(words, [first, second]), 64)
        expected = words(first, second, return_token_type_ids=True)
        assert composed.tolist() == expected["input_ids"]
        if family in ("bert", "electra", "distilbert"):
            assert segments.tolist() == expected["token_type_ids"]


def test_composer_attributes() -> None:
    bert, gpt2 = tokenizer("bert"), Composer.of(tokenizer("gpt2"))
    assert (bert.mask_token_id, len(bert)) == (BERT.mask, BERT.vocabulary)
    assert gpt2.mask == -1
    assert gpt2.separator.tolist() == [tokenizer("gpt2").eos_token_id]
    assert not len(gpt2.prefix) + len(gpt2.suffix) + len(gpt2.middle)
    assert len(ROBERTA.middle) == 2


def test_tokenizer_that_changes_texts_is_rejected() -> None:
    """Not simply a wrong composition."""
    words = tokenizer("bert")

    class Changing:
        def __call__(self, text: str, pair: str | None = None, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return words(text, pair) if add_special_tokens else {"input_ids": [9, 9]}

    with pytest.raises(ValueError, match="not supported"):
        Composer.of(Changing())  # type: ignore[arg-type]


def test_tokenise_neither_adds_nor_truncates() -> None:
    words = tokenizer("bert")
    long, short = tokenise(words, ["yes " * 500, "no"])
    assert len(long) == 500
    assert (long.dtype, short.dtype) == (np.int32, np.int32)
    assert short.tolist() == [words.convert_tokens_to_ids("no")]
    assert not len(tokenise(words, []))


def test_slow_tokenizer_gives_the_same_tokens() -> None:
    words = tokenizer("bert")

    class Slow:
        def __call__(self, texts: list[str], **how: bool) -> dict[str, list[list[int]]]:
            return {"input_ids": words(texts, **how)["input_ids"]}

    texts = [FIRST, "", "yes " * 500]
    actual = tokenise(Slow(), texts)  # type: ignore[arg-type]
    assert [part.tolist() for part in actual] == [part.tolist() for part in tokenise(words, texts)]
    assert actual[1].dtype == np.int32
    assert not len(tokenise(Slow(), []))  # type: ignore[arg-type]


def test_long_history_is_truncated_at_the_head() -> None:
    turns = [tokens(100, 10), tokens(200, 5), tokens(300, 5)]
    separator = BERT.separator.tolist()
    whole = [*range(100, 110), *separator, *range(200, 205), *separator, *range(300, 305)]
    assert inside(BERT, BERT.history(turns, ["user"] * 3, 64)) == whole
    assert inside(BERT, BERT.history(turns, ["user"] * 3, 16)) == whole[-14:]


def test_roles_history_names_every_speaker(roles: Composer, tiny_folder: Folder) -> None:
    turns = [tokens(100, 2), tokens(200, 2), tokens(300, 2)]
    system, user = roles.roles["system"], roles.roles["user"]
    assert system != user
    expected = [user, 100, 101, system, 200, 201, user, 300, 301]
    assert inside(roles, roles.history(turns, ["user", "system", "speaker_2"], 64)) == expected
    assert inside(roles, roles.history(turns, ["user", "system", "speaker_2"], 8)) == expected[-6:]
    assert inside(roles, roles.history(turns[:1], ["system"], 64)) == [system, 100, 101]
    assert roles.vocabulary == len(tokenizer("bert")) + 2


def test_roles_need_their_tokens() -> None:
    with pytest.raises(ValueError, match=r"does not know \[SYS\], \[USR\]: add them first"):
        Composer.of(tokenizer("bert"), "roles")


@pytest.mark.parametrize(
    ("first", "second", "kept_first", "kept_second"),
    [
        (10, 10, 10, 10),
        (100, 10, 40, 10),  # a long history gives way to a short response
        (10, 100, 10, 40),  # a long response is cut where the history is short
        (100, 100, 25, 25),
        (40, 30, 25, 25),
        (24, 30, 24, 26),
        (0, 100, 0, 50),
        (100, 0, 50, 0),
    ],
)
@pytest.mark.parametrize("composer", [BERT, ROBERTA], ids=["bert", "roberta"])
def test_a_long_pair(composer: Composer, first: int, second: int, kept_first: int, kept_second: int) -> None:
    """The first loses its beginning, the second its end; the segments go with them."""
    longest = 50 + len(composer.prefix) + len(composer.middle) + len(composer.suffix)
    composed, segments = composer.pair(tokens(1000, first), tokens(2000, second), longest)
    expected = [*range(1000 + first - kept_first, 1000 + first), *composer.middle, *range(2000, 2000 + kept_second)]
    assert inside(composer, composed) == expected
    before = len(composer.prefix) + kept_first + len(composer.middle)
    assert segments.tolist() == [0] * before + [1] * (kept_second + len(composer.suffix))


@pytest.mark.parametrize("family", FAMILIES)
@given(lengths=st.lists(LENGTHS, min_size=1, max_size=6), longest=st.integers(4, 40), seed=st.integers(0, 100))
def test_sequences_are_truncated_only_if_too_long(family: str, lengths: list[int], longest: int, seed: int) -> None:
    composer = COMPOSERS[family]
    parts = sequences(lengths, seed)
    ends = len(composer.prefix) + len(composer.suffix)
    joined = sum(lengths) + len(composer.separator) * (len(lengths) - 1)
    first, second = parts[0], parts[-1]
    pair, segments = composer.pair(first, second, longest)
    assert len(composer.text(first, longest)) == min(longest, len(first) + ends)
    assert len(composer.history(parts, ["user"] * len(parts), longest)) == min(longest, joined + ends)
    assert len(pair) == len(segments) == min(longest, len(first) + len(second) + ends + len(composer.middle))


@pytest.mark.parametrize("family", FAMILIES)
@given(
    lengths=st.lists(st.tuples(st.lists(LENGTHS, min_size=1, max_size=4), st.integers(1, 40)), min_size=1, max_size=8)
)
def test_many_histories_equal_single_ones(family: str, lengths: list[tuple[list[int], int]]) -> None:
    composer = COMPOSERS[family]
    turns = [sequences(own, number) for number, (own, _) in enumerate(lengths)]
    longest = [most for _, most in lengths]
    composed = composer.histories(
        RaggedTokens.of([turn for own in turns for turn in own]), np.array([*map(len, turns)]), np.array(longest)
    )
    expected = [composer.history(own, [""] * len(own), most) for own, most in zip(turns, longest, strict=True)]
    assert [one.tolist() for one in composed] == [one.tolist() for one in expected]


COMPOSERS = {family: Composer.of(tokenizer(family)) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_needed_part_of_a_long_text_is_tokenised(family: str) -> None:
    words = " ".join(WORDS) + "  "
    texts = [
        "find a taxi",
        words * 100,
        "x" * 5_000 + " taxi",
        " " * 3_000 + words,
        "hi" + " " * 3_000 + words,
        "." * 5_000,
    ]
    every = tokenise(tokenizer(family), texts)
    for first in (True, False):
        needed = slice(9) if first else slice(-9, None)
        encoded = run_tokenizer(tokenizer(family), texts, 9, [first] * len(texts))
        assert [each[needed].tolist() for each in collect_tokens(encoded)] == [each[needed].tolist() for each in every]
        assert 9 < len(encoded[1]) < len(every[1]) / 2


@pytest.mark.parametrize("family", FAMILIES)
def test_long_turns_have_the_tokens_of_their_ends(family: str, tiny_folder: Folder) -> None:
    encoder = Encoder.load(tiny_folder(family), device="cpu")
    words = " ".join(WORDS)
    long = f"{words} " * 100 + f"{words} taxi"
    conversations = [[long], ["hello", long], [long, "yes"]]
    texts, compose = [text for each in conversations for text in each], encoder._split(conversations, 12)[1]
    expected = compose(run_tokenizer(encoder.tokenizer, texts))
    assert [each.tolist() for each in encoder.tokenise(conversations, 12)] == [each.tolist() for each in expected]
