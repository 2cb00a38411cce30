"""Conversations without labels: which are sampled, and the contents of stores and of public corpora."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from turnwise import Dialogue, Turn
from turnwise.core.errors import DatasetError
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.synthetic.sample import write_sample
from turnwise.evaluation.datasets.conversations import MAX_DIALOGUES, conversation_datasets, sample_dialogues

DATA = os.environ.get("TURNWISE_DATA")

#: Corpora that take seconds each to read.
SLOW = ("conversations_star", "conversations_schema_guided")

#: Dialogues and turns that are sampled from the available files.
SIZES = {
    "conversations_schema_guided": (2000, 40264),
    "conversations_multiwoz": (1000, 14744),
    "conversations_star": (2000, 34461),
    "conversations_taskmaster4": (2000, 7445),
}


def numbered(count: int) -> list[Dialogue]:
    return [
        Dialogue(
            str(number), (Turn("user", f"question {number}", "ask", ("request",)), Turn("system", f"answer {number}"))
        )
        for number in range(count)
    ]


def numbers(sampled: tuple[tuple[Turn, ...], ...]) -> list[int]:
    return [int(turns[0].text.split()[1]) for turns in sampled]


def test_samples_keep_the_order_have_no_labels_and_depend_on_the_seed() -> None:
    sampled = sample_dialogues(numbered(50), 10, seed=1)
    assert sampled == sample_dialogues(iter(numbered(50)), 10, seed=1) != sample_dialogues(numbered(50), 10, seed=2)
    assert len(sampled) == len(set(numbers(sampled))) == 10
    assert numbers(sampled) == sorted(numbers(sampled))
    assert sampled == tuple(
        (Turn("user", f"question {each}"), Turn("system", f"answer {each}")) for each in numbers(sampled)
    )


@pytest.mark.parametrize("count", [0, 1, 9, 10])
def test_a_small_corpus_is_taken_whole(count: int) -> None:
    assert numbers(sample_dialogues(numbered(count), 10)) == list(range(count))


def test_every_dialogue_is_as_likely_as_any_other() -> None:
    dialogues = numbered(20)
    often = Counter(number for seed in range(2000) for number in numbers(sample_dialogues(dialogues, 5, seed)))
    # 500 times each is expected, with a standard deviation of √(2000 · ¼ · ¾) = 19
    assert all(400 < often[number] < 600 for number in range(20))


def test_a_store_goes_by_its_folder_and_a_sample_world_is_the_sample(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "our logs") as writer:
        for dialogue in numbered(MAX_DIALOGUES + 10):
            writer.write(dialogue)
        writer.commit({})
    known = conversation_datasets(tmp_path / "our logs")
    assert set(known) == {"our logs", *SIZES}
    contents = known["our logs"].load(tmp_path / "our logs")
    assert contents.name == "our logs" and known["our logs"].licence == "that of the store"
    assert contents.dialogues == sample_dialogues(numbered(MAX_DIALOGUES + 10))
    assert len(contents.dialogues) == MAX_DIALOGUES

    write_sample(tmp_path / "world", 5, 1)
    assert len(conversation_datasets(tmp_path / "world")["sample"].load(tmp_path / "world").dialogues) == 5
    assert set(conversation_datasets(tmp_path)) == set(conversation_datasets()) == set(SIZES)


SCHEMA_GUIDED = [
    {
        "dialogue_id": "1",
        "turns": [
            {
                "speaker": "USER",
                "utterance": "a table, please",
                "frames": [{"slots": [], "state": {"active_intent": "Reserve"}}],
            },
            {"speaker": "SYSTEM", "utterance": "for when?", "frames": []},
        ],
    }
]
STAR = {
    "DialogueID": 1,
    "Events": [
        {"Agent": "User", "Action": "utter", "Text": "a table, please"},
        {"Agent": "Wizard", "Action": "pick_suggestion", "Text": "for when?", "ActionLabel": "ask_time"},
    ],
}
TASKMASTER = [
    {
        "conversation_id": "1",
        "utterances": [{"speaker": "user", "text": "a table, please"}, {"speaker": "assistant", "text": "for when?"}],
    }
]
TEXT = "a table, please\nfor when?\n"
FILES = {
    "conversations_schema_guided": {
        "schema_guided_dialogue/test/dialogues_001.json": json.dumps(SCHEMA_GUIDED),
        "schema_guided_dialogue/train/dialogues_001.json": "not read",
    },
    "conversations_multiwoz": {
        "multiwoz/text/test_dialogues_001.txt": TEXT,
        "multiwoz/text/train_dialogues_001.txt": "of the\ntraining set\n",
    },
    "conversations_star": {"star/dialogues/1.json": json.dumps(STAR)},
    "conversations_taskmaster4": {"taskmaster4/any/data/data_01.json": json.dumps(TASKMASTER)},
}


@pytest.mark.parametrize("name", SIZES)
def test_a_corpus_in_its_authors_layout(name: str, tmp_path: Path) -> None:
    dataset = conversation_datasets()[name]
    assert dataset.name == name and dataset.licence and dataset.digest and "at most 2,000" in dataset.differs
    with pytest.raises(DatasetError, match="does not exist") as error:
        dataset.load(tmp_path)
    assert dataset.home in str(error.value)
    for file, content in FILES[name].items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
    contents = dataset.load(tmp_path)
    assert contents.name == name
    assert contents.dialogues == ((Turn("user", "a table, please"), Turn("system", "for when?")),)


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full if name in SLOW else ()) for name in SIZES])
def test_real_corpora_have_their_sizes_and_hashes(name: str) -> None:
    dataset, data = conversation_datasets()[name], Path(str(DATA))
    contents = dataset.load(data)
    assert (len(contents.dialogues), sum(map(len, contents.dialogues))) == SIZES[name]
    assert dataset.hash_files(data) == dataset.digest
