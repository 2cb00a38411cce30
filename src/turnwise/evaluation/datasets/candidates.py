"""Response selection: contexts with candidate responses, some of them correct, and questions with their answers.

Most candidates come as their authors publish them: the Ubuntu corpora V1 and V2, Douban and E-commerce as files of
candidates, DSTC7's Ubuntu track as JSON, DailyDialog++ with negatives of two kinds. Others are sampled here, with a
seed: `irc_ubuntu` from disentangled threads, `candidates_from_store` from any store of dialogues, and `next_turns` from
conversations of any kind.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.core.errors import DatasetError
from turnwise.corpus.readers import irc_disentanglement
from turnwise.corpus.readers.responses import Candidates, read_candidates
from turnwise.corpus.readers.sentence_pairs import read_question_answers
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.store import is_store
from turnwise.corpus.synthetic.sample import response_examples
from turnwise.evaluation.datasets.dataset import (
    SPLITS,
    Dataset,
    SplitData,
    dataset_descriptions,
    known_datasets,
    open_strict,
    parse_text,
    parse_texts,
    read_json_lines,
    read_tsv,
    store_dataset,
)
from turnwise.evaluation.datasets.dialogues import ConversationData, conversation_datasets

SEED = 0  # for sampling negatives: another seed makes another data set
MINIMUM_WORDS = 5  # a next turn to be found has more words
CandidateData = SplitData[Candidates]  # contexts with candidate responses

_Examples = tuple[Candidates, ...]


def candidates_from_store(
    corpus: Iterable[Dialogue], name: str, seed: int = SEED, candidates: int = 10
) -> CandidateData:
    """Make a data set of any dialogues with system turns.

    Each dialogue gives one example: the correct response is one of its system turns of more than three words, the
    context is what was said before it, and the negatives are such turns of other dialogues of the same split, none of
    them equal to it. In 'train' there are two candidates. Dialogues without a split are test data.
    """
    splits = []
    for split in SPLITS:
        dialogues = (dialogue for dialogue in corpus if (dialogue.split or "test") == split)
        splits.append(_sample_candidates(dialogues, seed, candidates, f"{name}, {split}"))
    return CandidateData(name, *splits)


def candidate_datasets(data: Path | None = None) -> dict[str, Dataset[CandidateData]]:
    """Return the known data sets, and the folder itself by its name if it is a store, except that of sample data."""
    if data is None or not is_store(data) or (data / "responses").is_dir():
        return CANDIDATE_DATASETS
    name = data.resolve().name
    store = store_dataset(
        name,
        ("manifest.json", "dialogues-*.parquet"),
        lambda folder: candidates_from_store(read_corpus(folder), name),
        "its candidates are drawn here, from the dialogues of a store",
        "that of its store",
    )
    return {**CANDIDATE_DATASETS, name: store}


def next_turn_datasets(data: Path | None = None) -> dict[str, Dataset[CandidateData]]:
    """Return the data sets of conversations, as next turns to be found (`next_turns`)."""

    def make(dataset: Dataset[Any]) -> Dataset[Any]:
        return replace(dataset, read=lambda folder: next_turns(dataset.read(folder)))

    return {name: make(dataset) for name, dataset in conversation_datasets(data).items()}


def next_turns(data: ConversationData, history: int = 3, candidates: int = 100) -> CandidateData:
    """Make test examples of the next turn of a dialogue among next turns of other dialogues.

    Each dialogue gives one example, drawn at random: a turn of more than `MINIMUM_WORDS` words, with up to `history`
    turns before it as its context. Candidates are the next turns of as many consecutive dialogues; an incomplete last
    group is left out.
    """
    random = Random(SEED)
    drawn: list[tuple[tuple[str, ...], str]] = []
    for turns in data.dialogues:
        texts = [turn.text for turn in turns]
        places = [place for place in range(1, len(texts)) if len(texts[place].split()) > MINIMUM_WORDS]
        if places:
            place = random.choice(places)
            drawn.append((tuple(texts[max(0, place - history) : place]), texts[place]))
    if len(drawn) < candidates:
        raise DatasetError(
            f"{data.name} has {len(drawn)} dialogues with a turn of more than {MINIMUM_WORDS} words, too few for"
            f" {candidates} candidates"
        )
    examples = []
    for first in range(0, len(drawn) - candidates + 1, candidates):
        contexts, responses = zip(*drawn[first : first + candidates], strict=True)
        flags = [tuple(place == number for number in range(candidates)) for place in range(candidates)]
        examples += [Candidates(context, responses, labels) for context, labels in zip(contexts, flags, strict=True)]
    return CandidateData(data.name, test=tuple(examples))


def _sample_candidates(dialogues: Iterable[Dialogue], seed: int, candidates: int, where: str) -> _Examples:
    """Return the examples of one split, with negatives from the same split only."""
    try:
        return tuple(
            Candidates(each.context, each.candidates, tuple(at == each.positive for at in range(len(each.candidates))))
            for each in response_examples(dialogues, seed, candidates)
        )
    except ValueError as error:
        raise DatasetError(f"{where}: {error}; take fewer candidates, or more dialogues") from None


def _read_file(path: Path, size: int) -> _Examples:
    """Read examples with `size` candidates each; turns without a word, as in Ubuntu V1, are removed."""
    source = open_strict(path)
    examples = []
    for line, group in read_candidates(source, path):
        count = len(group.responses)
        context = tuple(turn for turn in group.context if turn.strip())
        if count % size or not context:
            reason = f"expected a context with {size} candidates, not {count}; or its turns are all empty"
            source.reject(path, line, "dialogue", reason)
        examples += [
            Candidates(context, group.responses[start : start + size], group.labels[start : start + size])
            for start in range(0, count, size)
        ]
    return tuple(examples)


def _read_dstc7(folder: Path) -> list[_Examples]:
    """Read DSTC7 with validation and test pooled as the test set, as in DSE and DiaEval: 5,000 and 1,000 contexts."""
    source = open_strict(folder)
    answers: dict[str, list[str]] = {}
    path = folder / "ubuntu_responses_subtask_1.tsv"
    for number, (example, _, text, *_) in read_tsv(source, path, 3):
        with source.guard(path, number):
            answers[example] = [parse_text(text)]

    def utterances(messages: Any) -> list[str]:
        return [parse_text(message["utterance"]) for message in messages]

    examples = []
    for split in ("dev", "test"):
        path = folder / f"ubuntu_{split}_subtask_1.json"
        for line, record in source.json_array(path):
            with source.guard(path, line):
                if split == "dev":
                    correct = utterances(record["options-for-correct-answers"])
                else:
                    correct = answers[str(record["example-id"])]
                context, options = utterances(record["messages-so-far"]), utterances(record["options-for-next"])
                examples.append(_with_correct_options(context, options, correct))
    return [(), (), tuple(examples)]


def _with_correct_options(context: list[str], options: list[str], correct: list[str]) -> Candidates:
    """Return the options with each correct response once: where it first occurs among them, or last.

    The authors' reader puts the correct response before the candidates, among which it occurs already: a perfect model
    then gets it wrong whenever the second copy is taken for a wrong answer.
    """
    if not context or not correct:
        raise ValueError("a context or its correct answer is missing")
    responses: list[str] = []
    for text in (*options, *correct):
        if text not in correct or text not in responses:
            responses.append(text)
    return Candidates(tuple(context), tuple(responses), tuple(text in correct for text in responses))


def _read_dailydialog_plusplus(folder: Path, negatives: str) -> list[_Examples]:
    """Read five correct and five wrong responses per context, without wrong ones that are also listed as correct."""

    def example(record: Any) -> Candidates:
        right = parse_texts(record["positive_responses"])
        wrong = tuple(text for text in parse_texts(record[negatives]) if text not in right)
        labels = (True,) * len(right) + (False,) * len(wrong)
        return Candidates(parse_texts(record["context"]), right + wrong, labels)

    return [(), *(tuple(read_json_lines(folder, name, example)) for name in ("dev.json", "test.json"))]


def _read_irc_ubuntu(folder: Path, candidates: int) -> list[_Examples]:
    """Make examples of a thread's last reply among last replies of other threads of the same split."""
    threads = list(irc_disentanglement.read(open_strict(folder)))
    return [
        _sample_candidates([each for each in threads if each.split == split], SEED, candidates, f"{folder / name}")
        for name, split in (("train", "train"), ("dev", "valid"), ("test", "test"))
    ]


def _read_splits(folder: Path, name: str) -> list[_Examples]:
    """Read the files that `datasets.yaml` lists by split, with their numbers of candidates per context."""
    splits = dataset_descriptions()["candidates"][name]["splits"]
    return [_read_file(folder / splits[split][0], splits[split][1]) if split in splits else () for split in SPLITS]


_READERS: dict[str, Callable[[Path], list[_Examples]]] = {
    "dstc7_ubuntu": _read_dstc7,
    "dailydialog_plusplus": partial(_read_dailydialog_plusplus, negatives="random_negative_responses"),
    "dailydialog_plusplus_adversarial": partial(_read_dailydialog_plusplus, negatives="adversarial_negative_responses"),
    "irc_ubuntu": partial(_read_irc_ubuntu, candidates=10),
    "irc_ubuntu_100": partial(_read_irc_ubuntu, candidates=100),
}

#: By name; '…_slice' is a part of the authors' files.
CANDIDATE_DATASETS: dict[str, Dataset[CandidateData]] = known_datasets(
    "candidates",
    CandidateData,
    {name: _READERS.get(name) or partial(_read_splits, name=name) for name in dataset_descriptions()["candidates"]},
)


# ---- questions and answers


@dataclass(frozen=True, slots=True)
class QuestionData:
    """A data set of (question, answer), in the order of its files."""

    name: str
    pairs: tuple[tuple[str, str], ...]


def _read_amazonqa(folder: Path) -> list[tuple[tuple[str, str], ...]]:
    """Read all product categories that are present: one Python dict literal per line, as the authors write it."""
    pairs = []
    for path in sorted(folder.glob("amazonqa*/qa_*.json*")):
        for dialogue in read_question_answers(open_strict(path)):
            question, answer = dialogue.turns
            pairs.append((question.text, answer.text))
    return [tuple(pairs)]


def _read_sample_questions(folder: Path) -> list[tuple[tuple[str, str], ...]]:
    """Return distinct user turns and the system's replies in the test split, both of more than three words."""
    pairs = {
        (first.text, second.text): None
        for dialogue in read_corpus(folder, splits=["test"])
        for first, second in zip(dialogue.turns, dialogue.turns[1:], strict=False)
        if (first.speaker, second.speaker) == (USER, SYSTEM)
        and min(len(first.text.split()), len(second.text.split())) > 3
    }
    return [tuple(pairs)]


QUESTION_DATASETS: dict[str, Dataset[QuestionData]] = known_datasets(
    "questions", QuestionData, {"amazonqa": _read_amazonqa, "sample": _read_sample_questions}
)
