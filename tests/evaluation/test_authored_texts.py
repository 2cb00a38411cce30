"""The texts of `authored/`: counts as its README states them, nothing twice, nothing of an evaluation data set."""

import json
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from turnwise.corpus.comparison_key import comparison_key
from turnwise.evaluation.leakage import open_text_collection

AUTHORED = Path(__file__).parents[2] / "authored"

#: The data sets that the README names.
EVALUATION_DATASETS = (
    *("clinc150", "clinc150_oos_plus", "banking77", "hwu64", "hwu64_kfold", "snips", "atis", "massive", "amazonqa"),
    *("stsb", "sick", "snli", "ci_tod", "decode_pairs", "dstc2", "gsim", "irc_ubuntu", "ubuntu_v1_slice"),
    *("ubuntu_v2_slice", "dailydialog_plusplus", "dailydialog_plusplus_adversarial"),
)

SHORTEST = 12  # shorter turns of pairs, such as "yes, thanks", may occur anywhere


def read_json_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (AUTHORED / name).read_text("utf-8").splitlines()]


@cache
def utterances() -> list[str]:
    return [text for intent in read_json_lines("intents.jsonl") for text in intent["texts"]]


@cache
def pairs(name: str) -> list[tuple[str, ...]]:
    """Return the turns of each pair."""
    return [(*record["message"].split(" [SEP] "), record["reply"]) for record in read_json_lines(name)]


@cache
def labelled_replies() -> list[tuple[bool, tuple[str, ...]]]:
    lines = (AUTHORED / "replies" / "train.txt").read_text("utf-8").splitlines()
    return [(label == "1", tuple(turns)) for label, *turns in (line.split("\t") for line in lines)]


def sentences() -> list[str]:
    return (AUTHORED / "sentences.txt").read_text("utf-8").splitlines()


def wrong_replies() -> list[str]:
    return [turns[-1] for right, turns in labelled_replies() if not right]


def test_the_readme_states_the_counts() -> None:
    intents, messages = read_json_lines("intents.jsonl"), read_json_lines("pairs.jsonl")
    products = read_json_lines("products.jsonl")
    histories = sum(len(turns) > 2 for turns in pairs("pairs.jsonl"))
    expected = [
        f"{len(intents):,} intents in {len({each['domain'] for each in intents})} domains, {len(utterances()):,} utter",
        f"{len(messages):,} messages with their replies in {len({each['topic'] for each in messages})} topics",
        f"{histories:,} messages are histories",
        f"{len(products):,} questions about products",
        f"{len({each['topic'] for each in products})} products",
        f"{len({turns[:-1] for _, turns in labelled_replies()}):,} conversations with",
        f"{sum(right for right, _ in labelled_replies()):,} right and {len(wrong_replies()):,} wrong replies",
        f"{len(sentences()):,} plain sentences",
    ]
    readme = (AUTHORED / "README.md").read_text("utf-8")
    assert [count for count in expected if count not in readme] == []


def test_nothing_occurs_twice() -> None:
    for texts in (utterances(), wrong_replies(), sentences()):
        repeated = [key for key, count in Counter(map(comparison_key, texts)).items() if count > 1]
        assert repeated == []
    both = [tuple(map(comparison_key, turns)) for name in ("pairs.jsonl", "products.jsonl") for turns in pairs(name)]
    assert len(set(both)) == len(both)
    labels = [(each["domain"], each["intent"]) for each in read_json_lines("intents.jsonl")]
    assert len(set(labels)) == len(labels)


def test_every_conversation_has_right_and_wrong_replies() -> None:
    replies: dict[tuple[str, ...], dict[bool, set[str]]] = {}
    for right, turns in labelled_replies():
        replies.setdefault(turns[:-1], {True: set(), False: set()})[right].add(comparison_key(turns[-1]))
    for by_label in replies.values():
        assert by_label[True] and by_label[False] and not by_label[True] & by_label[False]


@pytest.mark.full
@pytest.mark.skipif("TURNWISE_DATA" not in os.environ, reason="TURNWISE_DATA is not set: real data needed")
def test_no_text_is_of_an_evaluation_data_set() -> None:
    data = Path(os.environ["TURNWISE_DATA"])
    turns = [turn for name in ("pairs.jsonl", "products.jsonl") for each in pairs(name) for turn in each]
    turns += [turn for _, each in labelled_replies() for turn in each]
    long_turns = [turn for turn in turns if len(re.sub(r"[\W_]", "", turn)) >= SHORTEST]
    ours = set(map(comparison_key, (*utterances(), *sentences(), *long_turns)))
    for name in EVALUATION_DATASETS:
        texts = {text for dialogue in open_text_collection(name, data).dialogues() for text in dialogue}
        theirs = set(map(comparison_key, texts))
        assert theirs and not ours & theirs, name
