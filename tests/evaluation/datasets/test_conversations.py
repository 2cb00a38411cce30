"""Conversations without labels: which are sampled, and the contents of stores and of public corpora."""

import os
from collections import Counter
from pathlib import Path

import pytest

from turnwise import Dialogue, Turn, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.synthetic.sample import write_sample
from turnwise.evaluation.datasets.dialogues import MAX_DIALOGUES, conversation_datasets, sample_dialogues

DATA = os.environ.get("TURNWISE_DATA")

SLOW = ("conversations_star", "conversations_schema_guided")  # corpora that take seconds each to read

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

    write_sample(tmp_path / "world", 20, 1)
    held_out = [each for each in read_corpus(tmp_path / "world") if each.split != "train"]
    assert 0 < len(held_out) < 20
    world = conversation_datasets(tmp_path / "world")["sample"].load(tmp_path / "world")
    assert world.dialogues == sample_dialogues(held_out)
    assert set(conversation_datasets(tmp_path)) == set(conversation_datasets()) == set(SIZES)


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.full if name in SLOW else ()) for name in SIZES])
def test_real_corpora_have_their_sizes_and_hashes(name: str) -> None:
    dataset, data = conversation_datasets()[name], Path(str(DATA))
    contents = dataset.load(data)
    assert (len(contents.dialogues), sum(map(len, contents.dialogues))) == SIZES[name]
    assert dataset.hash_files(data) == dataset.digest
