"""Tests statistics against a plain restatement with Counter, on random dialogues and real corpora."""

import os
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.helpers.stores import write_store
from tests.helpers.strategies import corpora
from tests.helpers.svg import group, paths
from turnwise import Dialogue, Turn, read_corpus
from turnwise.core.errors import CorpusError
from turnwise.corpus.stats import LENGTHS, compute_corpus_stats, compute_response_stats, frequency_curve_svg


@settings(max_examples=50)
@given(corpora())
def test_stats_equal_a_plain_count(tmp_path_factory: pytest.TempPathFactory, dialogues: list[Dialogue]) -> None:
    stats = compute_corpus_stats(read_corpus(write_store(tmp_path_factory.mktemp("stats") / "store", dialogues)))
    turns = [turn for dialogue in dialogues for turn in dialogue.turns]
    texts = Counter(turn.text.strip().lower() for turn in turns)
    assert stats.dialogues == len(dialogues)
    assert stats.utterances == len(turns)
    assert stats.words == sum(len(turn.text.split()) for turn in turns)
    assert stats.speakers == Counter(turn.speaker for turn in turns)
    assert stats.intents == Counter(turn.intent for turn in turns if turn.intent)
    assert stats.acts == Counter(act for turn in turns for act in turn.acts)
    assert stats.slots == Counter(slot.name for turn in turns for slot in turn.slots)
    assert stats.splits == Counter(dialogue.split or "none" for dialogue in dialogues)
    assert stats.distinct_utterances == len(texts)
    assert sum(stats.turn_lengths.values()) == len(turns)
    assert stats.turn_lengths["1"] == sum(len(turn.text.split()) <= LENGTHS[0] for turn in turns)
    pairs = sum(
        len(first.text.split()) > 3 and len(second.text.split()) > 3
        for dialogue in dialogues
        for first, second in zip(dialogue.turns, dialogue.turns[1:], strict=False)
    )
    assert stats.dse_pairs == pairs
    most = sorted(texts.items(), key=lambda item: (-item[1], item[0]))[:10]
    assert stats.common == most
    top = max(1, round(len(texts) / 100))
    assert stats.top_1_percent_share == pytest.approx(sum(sorted(texts.values())[::-1][:top]) / len(turns))
    assert stats.frequency_curve[-1] == (100.0, pytest.approx(100.0))


def test_pairs_do_not_cross_dialogues_or_skip_short_turns(tmp_path: Path) -> None:
    long, short = "four words or more", "three words here"
    dialogues = [
        Dialogue("a", tuple(Turn("user", text) for text in (long, long, short, long))),
        Dialogue("b", tuple(Turn("user", text) for text in (long, long, long))),
        Dialogue("c", (Turn("user", long),)),
    ]
    assert compute_corpus_stats(read_corpus(write_store(tmp_path / "store", dialogues))).dse_pairs == 3


def test_frequency_curve_svg(tmp_path: Path) -> None:
    dialogues = [Dialogue(str(i), (Turn("user", f"text {i % 50}"),)) for i in range(500)]
    svg = frequency_curve_svg(compute_corpus_stats(read_corpus(write_store(tmp_path / "store", dialogues))))
    root = ElementTree.fromstring(svg)
    (line,) = paths(group(root, "line-0"))
    heights = [y for _, y in line]
    assert len(heights) > 10
    assert heights == sorted(heights, reverse=True)


def test_response_files(tmp_path: Path) -> None:
    """Two contexts: one of three candidates with two right, one of two with none."""
    rows = ["1\ta b\tc\td e f", "0\ta b\tc\tx", "1\ta b\tc\ty", "0\tother\tp", "0\tother\tq", "broken"]
    path = tmp_path / "test.txt"
    path.write_text("\n".join(rows))
    assert compute_response_stats(path) == {
        "contexts": 2,
        "pairs": 5,
        "candidates_per_context": 2.5,
        "positives_per_context": 1.0,
        "contexts_without_positive": 1,
        "turns_per_context": 1.5,
        "words_per_utterance": 11 / 8,
        "rejected": 1,
    }
    path.write_text("hello\n")
    with pytest.raises(CorpusError, match="neither a store nor a response-selection file"):
        compute_response_stats(path)


@pytest.mark.skipif("TURNWISE_DATA" not in os.environ, reason="TURNWISE_DATA is not set: real data needed")
def test_real_response_files() -> None:
    """Douban: 200 contexts of 10 with 253 positives, 67 without; E-commerce's test turns equal UMS's Table 1."""
    data = Path(os.environ["TURNWISE_DATA"])
    douban = compute_response_stats(data / "douban" / "douban.txt")
    assert (douban["contexts"], douban["candidates_per_context"], douban["contexts_without_positive"]) == (200, 10, 67)
    assert round(douban["positives_per_context"] * 200) == 253
    ecommerce = compute_response_stats(data / "ecommerce_ecd_sample" / "ECD_sample" / "test")
    assert (ecommerce["contexts"], ecommerce["positives_per_context"]) == (100, 1)
    assert round(ecommerce["turns_per_context"], 2) == 5.64
