"""Response selection sets: correct responses once, no negative equal to them, reproducible samples, thread order."""

import csv
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.errors import DatasetError
from turnwise.corpus.readers.responses import Candidates
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.evaluation.datasets.candidates import (
    CANDIDATE_DATASETS,
    CandidateData,
    candidate_datasets,
    candidates_from_store,
    next_turn_datasets,
    next_turns,
)
from turnwise.evaluation.datasets.dialogues import ConversationData

DATA = os.environ.get("TURNWISE_DATA")


def utterances(texts: list[str]) -> list[dict[str, str]]:
    return [{"candidate-id": str(number), "utterance": text} for number, text in enumerate(texts)]


def write_dstc7(
    folder: Path, dev: list[tuple[list[str], list[str], str]], test: list[tuple[list[str], list[str], str]]
) -> None:
    """Files as ParlAI reads them: the test set's answers lie in a file of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in (("dev", dev), ("test", test)):
        records = [
            {
                "example-id": number,
                "messages-so-far": [
                    {"speaker": f"participant_{1 + place % 2}", "utterance": text} for place, text in enumerate(context)
                ],
                "options-for-correct-answers": utterances([truth]) if split == "dev" else [],
                "options-for-next": utterances(options),
            }
            for number, (context, options, truth) in enumerate(examples)
        ]
        (folder / f"ubuntu_{split}_subtask_1.json").write_text(json.dumps(records))
    rows = (f"{number}\tid{number}\t{truth}\n" for number, (_, _, truth) in enumerate(test))
    (folder / "ubuntu_responses_subtask_1.tsv").write_text("".join(rows))


word = st.text("abc", min_size=1, max_size=2)


@given(
    st.lists(
        st.tuples(st.lists(word, min_size=1, max_size=3), st.lists(word, min_size=1, max_size=8), word),
        min_size=1,
        max_size=4,
    )
)
def test_dstc7_counts_the_truth_once(
    tmp_path_factory: pytest.TempPathFactory, examples: list[tuple[list[str], list[str], str]]
) -> None:
    data = tmp_path_factory.mktemp("data")
    write_dstc7(data / "dstc7", examples[:1], examples[1:])
    contents = CANDIDATE_DATASETS["dstc7_ubuntu"].load(data)
    assert contents.train == contents.valid == ()
    assert len(contents.test) == len(examples)
    for example, (context, options, truth) in zip(contents.test, examples, strict=True):
        assert example.context == tuple(context)
        assert example.positives == (truth,)
        assert example.responses.count(truth) == 1
        assert [text for text in example.responses if text != truth] == [text for text in options if text != truth]
        assert example.responses.index(truth) == (options.index(truth) if truth in options else len(options))


def test_blocks_of_candidates_tell_equal_contexts_apart(tmp_path: Path) -> None:
    folder = tmp_path / "ubuntu_v1"
    folder.mkdir()
    for split, size in (("train", 2), ("valid", 10), ("test", 10)):
        # two examples with the same context, next to each other, one of its turns empty
        lines = [
            f"{int(place == 3 % size)}\thello\t \tany help?\t{split} {block} {place}"
            for block in range(2)
            for place in range(size)
        ]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    contents = CANDIDATE_DATASETS["ubuntu_v1"].load(tmp_path)
    for split, size in ((contents.train, 2), (contents.valid, 10), (contents.test, 10)):
        assert [example.context for example in split] == [("hello", "any help?")] * 2
        assert [len(example.responses) for example in split] == [size] * 2
        assert [example.labels.index(True) for example in split] == [3 % size] * 2


def test_ubuntu_v2_has_a_training_row_a_candidate_and_ten_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "ubuntu_v2"
    folder.mkdir()
    rows = {
        "train": [
            ["Context", "Utterance", "Label"],
            ["hi __eou__ there __eou__ __eot__ yes? __eou__ __eot__", "so, it works __eou__", "0.0"],
        ]
    }
    header = ["Context", "Ground Truth Utterance", *(f"Distractor_{number}" for number in range(9))]
    rows["valid"] = rows["test"] = [
        header,
        ["hi __eou__ __eot__", "truth __eou__", *(f"wrong, {number} __eou__" for number in range(9))],
    ]
    for split, lines in rows.items():
        with (folder / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    contents = CANDIDATE_DATASETS["ubuntu_v2"].load(tmp_path)
    assert contents.train == (Candidates(("hi there", "yes?"), ("so, it works",), (False,)),)
    assert (
        contents.test
        == contents.valid
        == (Candidates(("hi",), ("truth", *(f"wrong, {n}" for n in range(9))), (True, *[False] * 9)),)
    )


def test_dailydialog_keeps_its_two_kinds_of_negatives_apart(tmp_path: Path) -> None:
    record = {
        "context": ["a", "b"],
        "positive_responses": ["yes", "sure"],
        "random_negative_responses": ["blue", "sure"],
        "adversarial_negative_responses": ["b not", "never b"],
    }
    folder = tmp_path / "dailydialog_plusplus" / "dataset"
    folder.mkdir(parents=True)
    for split in ("dev", "test"):
        (folder / f"{split}.json").write_text(json.dumps(record) + "\n")
    random, adversarial = (
        CANDIDATE_DATASETS[name].load(tmp_path).test
        for name in ("dailydialog_plusplus", "dailydialog_plusplus_adversarial")
    )
    # what is listed as right cannot be wrong
    assert random == (Candidates(("a", "b"), ("yes", "sure", "blue"), (True, True, False)),)
    assert adversarial == (Candidates(("a", "b"), ("yes", "sure", "b not", "never b"), (True, True, False, False)),)


def check_drawn(examples: tuple[Candidates, ...], candidates: int) -> None:
    truths = [example.positives for example in examples]
    assert all(len(truth) == 1 for truth in truths)
    for example in examples:
        assert len(example.responses) == len(example.labels) == candidates
        assert len({text.casefold() for text in example.responses}) == candidates


LOG = """=== delta [~delta@host] has joined #ubuntu
[10:00] <delta> my screen stays black
[10:01] <ann> which card do you have?
[10:01] <bob> is anybody here awake tonight?
[10:02] <delta> ann: some old one
[10:02] <delta> ann, wait, I will look
[10:03]  * ann waits for the answer
[10:03] <cid> bob: most of us are
[10:04] <delta> http://example.org: it is this one here
[10:05] <ann> thanks
[10:06] <bob> good, then to my question
-spam:#ubuntu- buy now
"""
LINKS = "0 0 -\n1 1 -\n1 2 -\n2 4 -\n4 5 -\n5 6 -\n6 8 -\n8 9 -\n3 3 -\n3 7 -\n7 10 -\n11 11 -\n"


def write_logs(data: Path, logs: int) -> None:
    for split in ("train", "dev", "test"):
        folder = data / "irc_disentanglement" / "data" / split
        folder.mkdir(parents=True)
        for number in range(logs):
            text = LOG.replace("here", f"here{split}{number}").replace("question", f"question{split}{number}")
            (folder / f"{number:03d}.ascii.txt").write_text(text)
            (folder / f"{number:03d}.annotation.txt").write_text(LINKS)


def test_threads_are_followed_along_the_links(tmp_path: Path) -> None:
    write_logs(tmp_path, 6)
    contents = CANDIDATE_DATASETS["irc_ubuntu"].load(tmp_path)
    assert contents == CANDIDATE_DATASETS["irc_ubuntu"].load(tmp_path)
    for split, name in ((contents.valid, "dev"), (contents.test, "test"), (contents.train, "train")):
        check_drawn(split, 2 if name == "train" else 10)
        # two threads a log; 'thanks' is too short to be looked for, and an address of the web is nobody's name
        assert [(example.context, example.positives[0]) for example in split[:2]] == [
            (
                (
                    "my screen stays black",
                    "which card do you have?",
                    "some old one wait, I will look",
                    "waits for the answer",
                ),
                f"http://example.org: it is this one here{name}0",
            ),
            ((f"is anybody here{name}0 awake tonight?", "most of us are"), f"good, then to my question{name}0"),
        ]
        assert len(split) == 12
        # nothing comes from another split
        assert all(name in text for example in split for text in example.responses)


def test_a_store_makes_a_set_in_its_splits() -> None:
    dialogues = list(sample_dialogues(120, 3))
    contents = candidates_from_store(dialogues, "mine", seed=4, candidates=5)
    assert contents == candidates_from_store(dialogues, "mine", seed=4, candidates=5)
    assert contents != candidates_from_store(dialogues, "mine", seed=5, candidates=5)
    for split, examples in (("train", contents.train), ("valid", contents.valid), ("test", contents.test)):
        check_drawn(examples, 2 if split == "train" else 5)
        system_turns = {
            turn.text
            for dialogue in dialogues
            if dialogue.split == split
            for turn in dialogue.turns
            if turn.speaker == SYSTEM
        }
        starts = {
            tuple(turn.text for turn in dialogue.turns[: place + 1])
            for dialogue in dialogues
            if dialogue.split == split
            for place in range(len(dialogue.turns))
        }
        assert examples
        assert all(system_turns.issuperset(example.responses) for example in examples)
        assert all((*example.context, *example.positives) in starts for example in examples)


def test_dialogues_without_a_split_are_test_data() -> None:
    dialogues = [
        Dialogue(str(number), (Turn(USER, "hello"), Turn(SYSTEM, f"this is answer number {number}")))
        for number in range(20)
    ]
    contents = candidates_from_store(dialogues, "mine")
    assert contents.train == contents.valid == ()
    assert len(contents.test) == 20
    with pytest.raises(DatasetError, match=r"mine, test: dialogue '0'.* for 9 negatives"):
        candidates_from_store(dialogues[:5], "mine")


def test_a_folder_that_is_a_store_is_a_data_set_by_its_name(tmp_path: Path) -> None:
    dialogues = [
        Dialogue(str(number), (Turn(USER, "hello"), Turn(SYSTEM, f"this is answer number {number}")))
        for number in range(20)
    ]
    with StoreWriter(tmp_path / "our_logs") as writer:
        for dialogue in dialogues:
            writer.write(dialogue)
        writer.commit({})
    assert candidate_datasets() == candidate_datasets(tmp_path) == CANDIDATE_DATASETS
    actual = candidate_datasets(tmp_path / "our_logs")
    assert actual.keys() - CANDIDATE_DATASETS.keys() == {"our_logs"}
    assert actual["our_logs"].load(tmp_path / "our_logs") == candidates_from_store(dialogues, "our_logs")
    assert actual["our_logs"].differs


def real(name: str) -> CandidateData:
    return CANDIDATE_DATASETS[name].load(Path(str(DATA)))


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
def test_real_files_hold_their_positives() -> None:
    assert all(len(example.responses) == 10 and len(example.positives) == 1 for example in real("ubuntu_v2_slice").test)
    douban = real("douban_slice").test
    assert sum(len(example.positives) for example in douban) == 253
    assert sum(not example.positives for example in douban) == 67
    plus = real("dailydialog_plusplus_adversarial")
    assert {len(example.positives) for example in (*plus.valid, *plus.test)} == {5}
    # in a handful of contexts a wrong response is listed as right, too
    assert Counter(len(example.responses) for example in plus.test)[10] >= 1135


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=7), min_size=12, max_size=30), st.integers(1, 4))
def test_next_turns_are_found_among_those_of_consecutive_dialogues(words: list[list[int]], history: int) -> None:
    dialogues = tuple(
        tuple(Turn(USER, " ".join([f"d{number}t{place}"] * count)) for place, count in enumerate(counts))
        for number, counts in enumerate(words)
    )
    usable = [number for number, counts in enumerate(words) if any(count > 5 for count in counts[1:])]
    data = ConversationData("toy", dialogues)
    if len(usable) < 4:
        with pytest.raises(DatasetError, match=f"toy has {len(usable)} dialogues with a turn of more than 5 words"):
            next_turns(data, history, candidates=4)
        return
    examples = next_turns(data, history, candidates=4).test
    assert len(examples) == len(usable) - len(usable) % 4
    for place, example in enumerate(examples):
        number = usable[place]
        texts = [turn.text for turn in dialogues[number]]
        (answer,) = example.positives
        turn = texts.index(answer)
        assert len(answer.split()) > 5
        assert list(example.context) == texts[max(0, turn - history) : turn] != []
        group = usable[place - place % 4 : place - place % 4 + 4]
        assert [response.split("t")[0] for response in example.responses] == [f"d{each}" for each in group]
    assert next_turns(data, history, candidates=4).test == examples


@pytest.mark.skipif(not DATA, reason="needs TURNWISE_DATA")
def test_real_next_turns() -> None:
    assert DATA is not None
    datasets = next_turn_datasets(Path(DATA))
    sizes = {name: len(datasets[name].load(Path(DATA)).test) for name in ("conversations_multiwoz",)}
    assert sizes == {"conversations_multiwoz": 1000}
