"""Pairs for annotation: sampling, files, medians, and rejection of inconsistent files."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.encoders import RandomEncoder
from turnwise.core.errors import CorpusError
from turnwise.evaluation.datasets.retrieval import LabelledTurn, split_words
from turnwise.evaluation.datasets.sentence_pairs import SimilarityPair
from turnwise.papers.annotation import CandidatePair, read_gold_pairs, sample_pairs, write_gold, write_pairs

TURNS = [
    LabelledTurn(f"{verb}  the {thing}\n{time}", verb)
    for verb in ("open", "close", "lock", "paint")
    for thing in ("door", "window", "gate")
    for time in ("now", "later", "tomorrow", "please")
]


def texts_of(pair: CandidatePair) -> frozenset[str]:
    return frozenset((pair.first, pair.second))


def test_sources_give_a_third_each() -> None:
    encoder = RandomEncoder()
    pairs = sample_pairs(TURNS, encoder, 50)
    assert Counter(pair.source for pair in pairs) == {"words": 17, "vectors": 17, "label": 16}
    assert [pair.id for pair in pairs] == [str(number) for number in range(1, 51)]
    known = {" ".join(turn.text.split()): turn.label for turn in TURNS}
    assert all(len(texts_of(pair)) == 2 and texts_of(pair) <= known.keys() for pair in pairs)
    assert len({texts_of(pair) for pair in pairs}) == 50
    # the order of pairs and texts does not reveal the source
    assert len({pair.source for pair in pairs[:17]}) > 1
    places = list(known)
    assert {places.index(pair.first) < places.index(pair.second) for pair in pairs} == {True, False}
    for pair in pairs:
        if pair.source == "label":
            assert known[pair.first] == known[pair.second]
        elif pair.source == "words":
            assert set(split_words(pair.first)) & set(split_words(pair.second))
        else:
            closeness = {
                text: float(encoder.unit(text) @ encoder.unit(pair.first)) for text in known if text != pair.first
            }
            back = {
                text: float(encoder.unit(text) @ encoder.unit(pair.second)) for text in known if text != pair.second
            }
            ranks = [sum(value > closeness[pair.second] for value in closeness.values())]
            ranks.append(sum(value > back[pair.first] for value in back.values()))
            assert min(ranks) < 10
    assert len(encoder.encoded) == len(TURNS)


def test_sources_give_half_each_without_an_encoder() -> None:
    pairs = sample_pairs(TURNS, None, 41, seed=3)
    assert Counter(pair.source for pair in pairs) == {"words": 21, "label": 20}
    assert pairs == sample_pairs(TURNS, None, 41, seed=3)
    assert pairs != sample_pairs(TURNS, None, 41, seed=4)


def test_every_turn_starts_a_pair_before_any_starts_a_second_one() -> None:
    turns = [LabelledTurn(f"{word} {number}", str(number)) for number in range(20) for word in ("red", "blue")]
    by_label = [pair for pair in sample_pairs(turns, None, 20) if pair.source == "label"]
    assert len({text for pair in by_label for text in texts_of(pair)}) == 20


@pytest.mark.parametrize("size", range(2, 10))
def test_all_pairs_can_be_sampled(size: int) -> None:
    """All turns have one label and a word in common: the label gives the pairs that neighbours do not."""
    turns = [LabelledTurn(f"text{number} same", "x") for number in range(size)]
    every = size * (size - 1) // 2
    pairs = sample_pairs(turns, None, every)
    assert len({texts_of(pair) for pair in pairs}) == len(pairs) == every
    with pytest.raises(CorpusError, match=r"pairs by label, but \d+ are needed: ask for fewer"):
        sample_pairs(turns, None, every + 1)


def test_neighbours_by_words_have_a_common_word() -> None:
    turns = [LabelledTurn(f"text{number}", "x") for number in range(9)]
    with pytest.raises(CorpusError, match="the turns give 0 new pairs by words, but 1 are needed"):
        sample_pairs(turns, None, 1)


def test_texts_without_words_are_rejected() -> None:
    with pytest.raises(CorpusError, match="contains a word"):
        sample_pairs([LabelledTurn("?", "x"), LabelledTurn("!", "y")], None, 1)


ROWS = [("1", 'it\'s "fine", I think', "明天能发吗"), ("2", "b", "c"), ("3", "d", "e")]


def write_scores(
    path: Path, scores: list[str], rows: list[tuple[str, str, str]] = ROWS, encoding: str = "utf-8-sig"
) -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "first", "second", "source", "score"])
        writer.writerows((*row, "words", score) for row, score in zip(rows, scores, strict=True))
    return path


@settings(deadline=None, max_examples=20)
@given(annotators=st.integers(1, 4), seed=st.integers(0, 99))
def test_medians_of_annotated_files(tmp_path_factory: pytest.TempPathFactory, annotators: int, seed: int) -> None:
    folder = tmp_path_factory.mktemp("annotated")
    pairs = sample_pairs(TURNS, None, 12, seed=seed)
    write_pairs(folder / "pairs.csv", pairs)
    exported = list(csv.reader((folder / "pairs.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert exported[0] == ["id", "first", "second", "source", "score"]
    assert exported[1:] == [[pair.id, pair.first, pair.second, pair.source, ""] for pair in pairs]
    random = np.random.default_rng(seed)
    scores = random.integers(1, 6, (annotators, 12))
    files = []
    for number, given_scores in enumerate(scores):
        rows = [(pair.id, pair.first, pair.second) for pair in pairs]
        order = random.permutation(12)
        # annotators may sort the rows, and programs may write 4 as 4.0
        written = [f"{given_scores[index]}{'.0' if number % 2 else ''}" for index in order]
        files.append(
            write_scores(
                folder / f"{number}.csv", written, [rows[index] for index in order], ["utf-8", "utf-8-sig"][number % 2]
            )
        )
    gold = read_gold_pairs(files)
    medians = dict(zip(map(texts_of, pairs), np.median(scores, axis=0), strict=True))
    assert {frozenset((pair.first, pair.second)): pair.score for pair in gold} == medians
    write_gold(folder / "gold.tsv", gold)
    lines = [line.split("\t") for line in (folder / "gold.tsv").read_text(encoding="utf-8").splitlines()]
    assert [SimilarityPair(first, second, float(score)) for score, first, second in lines] == gold


def test_gold_file_has_the_layout_of_dsts(tmp_path: Path) -> None:
    write_gold(tmp_path / "gold.tsv", [SimilarityPair("a\tb\n", "明天", 4.0), SimilarityPair("c", "d", 3.5)])
    assert (tmp_path / "gold.tsv").read_bytes() == "4\ta b\t明天\n3.5\tc\td\n".encode()


@pytest.mark.parametrize(
    ("scores", "rows", "message"),
    [
        (["1", "", "2"], ROWS, r"two\.csv, line 3: the score must be 1, 2, 3, 4 or 5, got ''"),
        (["1", "2", "6"], ROWS, r"two\.csv, line 4: the score must be .* got '6'"),
        (["0", "2", "3"], ROWS, r"two\.csv, line 2: the score must be .* got '0'"),
        (["1", "2.5", "3"], ROWS, r"two\.csv, line 3: the score must be .* got '2\.5'"),
        (["1"] * 2, ROWS[:2], r"two\.csv has no pair 3, which is in .*one\.csv, line 4"),
        (["1"] * 4, [*ROWS, ("9", "x", "y")], r"one\.csv has no pair 9, which is in .*two\.csv, line 5"),
        (["1"] * 4, [*ROWS, ROWS[0]], r"two\.csv, line 5: pair 1 occurs a second time"),
        (["1"] * 3, [*ROWS[:2], ("3", "d", "E")], r"two\.csv, line 4: the texts of pair 3 differ from"),
    ],
)
def test_inconsistent_files_are_rejected(
    tmp_path: Path, scores: list[str], rows: list[tuple[str, str, str]], message: str
) -> None:
    one = write_scores(tmp_path / "one.csv", ["1", "2", "3"])
    with pytest.raises(CorpusError, match=message):
        read_gold_pairs([one, write_scores(tmp_path / "two.csv", scores, rows)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id;first;second;source;score\n", r"two\.csv, line 1: the columns are not id,first,second"),
        (b"", r"two\.csv, line 1: the columns are not"),
        (b'id,first,second,source,score\n1,"a', r"two\.csv cannot be read as CSV"),
        (b"id,first\xff", r"two\.csv cannot be read as CSV in UTF-8"),
        (None, r"two\.csv cannot be read"),
    ],
)
def test_unreadable_files_are_rejected(tmp_path: Path, content: bytes | None, message: str) -> None:
    one = write_scores(tmp_path / "one.csv", ["1", "2", "3"])
    if content is not None:
        (tmp_path / "two.csv").write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read_gold_pairs([one, tmp_path / "two.csv"])
