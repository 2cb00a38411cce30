"""Retrieval sets built from a store: labels, BM25's candidates against its formula, and which turns are queries."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise import Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.evaluation.datasets.retrieval import LabelledTurn, build_retrieval, labelled_turns, split_words

TURNS = st.lists(
    st.builds(
        LabelledTurn,
        st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6).map(" ".join),
        st.sampled_from("xyz"),
    ),
    min_size=2,
    max_size=40,
    unique_by=lambda turn: turn.text,
)


def plain_bm25(turns: Sequence[LabelledTurn], query: int) -> list[float]:
    """Lucene's BM25, as it is written in books, k1 = 1.5 and b = 0.75."""
    texts = [turn.text.split() for turn in turns]
    mean = sum(map(len, texts)) / len(texts)
    actual = []
    for text in texts:
        score = 0.0
        for word in texts[query]:
            holding = sum(word in other for other in texts)
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            score += idf * text.count(word) / (text.count(word) + 1.5 * (1 - 0.75 + 0.75 * len(text) / mean))
        actual.append(score)
    return actual


@settings(deadline=None)
@given(TURNS, st.integers(1, 12), st.integers(1, 5))
def test_candidates_are_the_best_others_by_bm25(turns: list[LabelledTurn], candidates: int, positives: int) -> None:
    labels = {turn.text: turn.label for turn in turns}
    try:
        data = build_retrieval(turns, "toy", candidates=candidates, positives=positives)
    except CorpusError:
        made = {}
    else:
        assert data.valid == ()
        made = {query.text: query for query in data.test}
        assert [query.text for query in data.test] == [turn.text for turn in turns if turn.text in made]
    for number, turn in enumerate(turns):
        scores = plain_bm25(turns, number)
        others = [place for place in range(len(turns)) if place != number and scores[place] > 0]
        least = sorted((scores[place] for place in others), reverse=True)[:candidates][-1:] or [math.inf]
        query = made.get(turn.text)
        if query is None:
            sure = [place for place in others if scores[place] > least[0] + 1e-4]
            assert len({turns[place].label == turn.label for place in sure}) < 2
            continue
        actual = [*query.positives, *query.negatives]
        assert turn.text not in actual
        assert len(set(actual)) == len(actual) <= candidates
        assert 0 < len(query.positives) <= positives
        assert query.negatives
        assert {labels[text] for text in query.positives} == {turn.label}
        assert turn.label not in {labels[text] for text in query.negatives}
        by_text = dict(zip((other.text for other in turns), scores, strict=True))
        assert all(by_text[text] >= least[0] - 1e-4 for text in actual)
        for group in (query.positives, query.negatives):
            assert all(by_text[one] >= by_text[two] - 1e-4 for one, two in pairwise(group))
        if len(query.positives) < positives:
            assert len(actual) == min(candidates, len(others))


def some_turns(count: int = 60) -> list[LabelledTurn]:
    return [
        LabelledTurn(f"please {verb} number {number}", verb)
        for number in range(count // 2)
        for verb in ("open", "close")
    ]


def test_queries_are_sampled_by_seed() -> None:
    turns = some_turns()
    everything = build_retrieval(turns, "toy")
    some = build_retrieval(turns, "toy", queries=7, seed=1)
    assert some == build_retrieval(turns, "toy", queries=7, seed=1)
    assert some != build_retrieval(turns, "toy", queries=7, seed=2)
    assert len(some.test) == 7
    # the collection stays whole: only the queries are fewer
    assert [query for query in everything.test if query in some.test] == list(some.test)
    assert build_retrieval(turns, "toy", queries=1000) == everything


def test_what_cannot_be_built_says_so() -> None:
    with pytest.raises(CorpusError, match="fewer than two labels"):
        build_retrieval([LabelledTurn("a b", "x"), LabelledTurn("a c", "x"), LabelledTurn("!!!", "y")], "toy")
    with pytest.raises(CorpusError, match="none of 2 turns"):
        build_retrieval([LabelledTurn("a b", "x"), LabelledTurn("a c", "y")], "toy")


def test_words_of_any_language() -> None:
    assert split_words("Don't STOP, straße_1!") == ["don", "t", "stop", "strasse_1"]
    assert split_words("明天can发吗?") == ["明", "天", "can", "发", "吗"]
    assert split_words("?!") == []


def dialogues() -> list[Dialogue]:
    return [
        Dialogue(
            "1",
            (Turn("user", "Book  it", "book", ("inform(time)", "inform(city)", "request")), Turn("system", "no label")),
            split="test",
        ),
        Dialogue(
            "2", (Turn("user", "book it ", "book", ("inform",)), Turn("user", "cancel it", "cancel")), split="train"
        ),
        Dialogue("3", (Turn("user", "Yes", "book"), Turn("system", "yes", "cancel"), Turn("user", "yes", "book"))),
    ]


def test_labels_of_turns(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        for dialogue in dialogues():
            writer.write(dialogue)
        writer.commit({})
    corpus = read_corpus(tmp_path / "store")
    # 'yes' has two intents, and in acts 'Book  it' has; both are left out, 'book it' is the same text as its first form
    assert labelled_turns(corpus) == [LabelledTurn("Book  it", "book"), LabelledTurn("cancel it", "cancel")]
    assert labelled_turns(corpus, speaker="user")[-1] == LabelledTurn("Yes", "book")
    assert labelled_turns(corpus, split="train") == [
        LabelledTurn("book it ", "book"),
        LabelledTurn("cancel it", "cancel"),
    ]
    assert labelled_turns(corpus, "acts", split="test") == [LabelledTurn("Book  it", "inform+request")]
    with pytest.raises(CorpusError, match="no turn has a unique acts"):
        labelled_turns(corpus, "acts")
    with pytest.raises(CorpusError, match="no turn of 'system' in split 'test' has a unique intent"):
        labelled_turns(corpus, speaker="system", split="test")
