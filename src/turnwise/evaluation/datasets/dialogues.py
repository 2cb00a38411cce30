"""Dialogues with the next system actions, whether the last turn is consistent (`inference`), or without labels.

TOD-BERT, DSE and DiaEval take DSTC2 (19 acts) and GSIM (13) as TOD-BERT's authors converted them to a universal set of
acts. The files read here have the corpora's own labels: 11 act types of DSTC2, 7 of GSIM. (DSE's text exchanges the
papers' two numbers.)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn, peer
from turnwise.corpus.readers.convlab import read_dstc2, read_gsim_m2m
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.evaluation.datasets.dataset import (
    SPLITS,
    Dataset,
    SplitData,
    dataset_descriptions,
    known_datasets,
    open_strict,
    parse_choice,
    parse_text,
    read_dialogues,
    read_held_out,
    read_json_lines,
    with_store,
)

# ---- actions


@dataclass(frozen=True, slots=True)
class ActionExample:
    """The turns so far, newest last, and what the system does next."""

    turns: tuple[Turn, ...]
    actions: tuple[str, ...]  # act types of the next turn, sorted, each once
    #: Whether it is the last of its dialogue. DSE's test sets, 1,117 and 1,039 examples, are as large as those alone.
    last: bool = False


class ActionData(SplitData[ActionExample]):
    """A data set of action examples."""

    @property
    def actions(self) -> list[str]:
        """Return the actions of all splits, sorted."""
        return sorted({action for example in self.examples for action in example.actions})


def _action_examples(dialogues: Iterable[Dialogue]) -> list[tuple[ActionExample, ...]]:
    """Return, by split, an example for each system turn that has acts and a history."""
    splits: dict[str | None, list[ActionExample]] = {split: [] for split in SPLITS}
    for dialogue in dialogues:
        turns = dialogue.turns
        places = [place for place, turn in enumerate(turns) if place and turn.speaker == SYSTEM and turn.acts]
        for place in places:
            # 'inform(food)' → 'inform': the slots would make hundreds of labels
            actions = tuple(sorted({act.partition("(")[0] for act in turns[place].acts}))
            splits[dialogue.split].append(ActionExample(turns[:place], actions, place == places[-1]))
    return [tuple(splits[split]) for split in SPLITS]


ACTION_DATASETS: dict[str, Dataset[ActionData]] = known_datasets(
    "actions",
    ActionData,
    {
        "dstc2": lambda folder: _action_examples(read_dstc2(open_strict(folder))),
        "gsim": lambda folder: _action_examples(read_gsim_m2m(open_strict(folder), form="unified")),
        "sample": lambda folder: _action_examples(read_corpus(folder)),
    },
)


# ---- inference

#: DiaEval keeps dialogues of fewer tokens; here words are counted, since the paper does not name its tokeniser.
MAX_WORDS = 256

_SPEAKERS = {"driver": USER, "assistant": SYSTEM}
_DOMAINS = ("calendar", "navigate", "weather_new")


@dataclass(frozen=True, slots=True)
class InferenceExample:
    """A dialogue, with the statement in question last, and its label."""

    turns: tuple[Turn, ...]
    label: str

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("the dialogue has no turns")


class InferenceData(SplitData[InferenceExample]):
    """A data set of inference examples."""

    @property
    def labels(self) -> list[str]:
        """Return the labels of all splits, sorted."""
        return sorted({example.label for example in self.examples})


_InferenceSplits = tuple[tuple[InferenceExample, ...], ...]


def _read_ci_tod(folder: Path, train: Iterable[str]) -> _InferenceSplits:
    """Read CI-ToD, DiaEval's IC-TOD: conflicts with query or history count, not those with the knowledge base."""
    domains = {"train": train, "dev": _DOMAINS, "test": _DOMAINS}
    source = open_strict(folder)

    def read(split: str) -> Iterator[InferenceExample]:
        for domain in domains[split]:
            path = folder / f"{domain}_{split}.json"
            for line, record in source.json_array(path):
                with source.guard(path, line):
                    conflicts = [parse_choice(record["scenario"][kind], "0", "1") == "1" for kind in ("qi", "hi")]
                    turns = (
                        Turn(_SPEAKERS[turn["turn"]], parse_text(turn["utterance"])) for turn in record["dialogue"]
                    )
                    yield InferenceExample(tuple(turns), "inconsistent" if any(conflicts) else "consistent")

    return tuple(tuple(read(split)) for split in domains)


def _read_decode(folder: Path) -> _InferenceSplits:
    """Read DECODE in its authors' splits, without dialogues of 256 words or more."""

    def parse_example(record: Any) -> InferenceExample:
        contradiction = record["is_contradiction"]
        if not isinstance(contradiction, bool):
            raise ValueError(f"expected true or false, not {contradiction!r}")
        turns = (Turn(peer(1 + int(turn["agent_id"])), parse_text(turn["text"])) for turn in record["turns"])
        return InferenceExample(tuple(turns), "contradiction" if contradiction else "non-contradiction")

    return tuple(
        tuple(
            example
            for example in read_json_lines(folder, f"{split}.jsonl", parse_example)
            if sum(len(turn.text.split()) for turn in example.turns) < MAX_WORDS
        )
        for split in ("train", "dev", "test")
    )


def _read_decode_pairs(folder: Path) -> _InferenceSplits:
    """Read pairs of turns by one speaker: 60% train, 20% valid, 20% test, by a hash of the first turn's text."""
    splits: dict[str, list[InferenceExample]] = {split: [] for split in SPLITS}
    source = open_strict(folder)
    path = folder / "decode_prosecco_size_df.tsv"
    for line, row in source.csv_rows(path, "\t"):
        with source.guard(path, line):
            first, second = parse_text(row["seg1"]), parse_text(row["seg2"])
            label = "contradiction" if parse_choice(row["label"], "0", "1") == "0" else "non-contradiction"
            fifth = int.from_bytes(sha256(f"turnwise:decode_pairs:{first}".encode()).digest()[:8], "big") % 5
            split = ("test", "valid", "train", "train", "train")[fifth]
            splits[split].append(InferenceExample((Turn(peer(1), first), Turn(peer(1), second)), label))
    return tuple(map(tuple, splits.values()))


def _read_sample(folder: Path) -> _InferenceSplits:
    def parse_example(record: Any) -> InferenceExample:
        turns = (Turn(turn["speaker"], parse_text(turn["text"])) for turn in record["turns"])
        return InferenceExample(tuple(turns), "consistent" if record["consistent"] else "inconsistent")

    return tuple(tuple(read_json_lines(folder, f"{split}.jsonl", parse_example)) for split in SPLITS)


INFERENCE_DATASETS: dict[str, Dataset[InferenceData]] = known_datasets(
    "inference",
    InferenceData,
    {
        "ci_tod": partial(_read_ci_tod, train=_DOMAINS[:2]),
        "ci_tod_full": partial(_read_ci_tod, train=_DOMAINS),
        "decode": _read_decode,
        "decode_pairs": _read_decode_pairs,
        "sample": _read_sample,
    },
)


# ---- conversations

MAX_DIALOGUES = 2_000  # dialogues per corpus: enough to find its frequent answers, few enough to encode without a GPU


@dataclass(frozen=True, slots=True)
class ConversationData:
    """Dialogues of a corpus: speakers and texts, without labels."""

    name: str
    dialogues: tuple[tuple[Turn, ...], ...]


def sample_dialogues(
    dialogues: Iterable[Dialogue], count: int = MAX_DIALOGUES, seed: int = 0
) -> tuple[tuple[Turn, ...], ...]:
    """Sample dialogues from a stream, as corpora are often sorted by topic; return their turns without labels."""
    random = Random(seed)
    sample: list[tuple[int, Dialogue]] = []
    for number, dialogue in enumerate(dialogues):
        if number < count:
            sample.append((number, dialogue))
        elif (place := random.randrange(number + 1)) < count:
            # reservoir sampling: the n-th is taken with probability count / n and replaces a random one
            sample[place] = number, dialogue
    sample.sort(key=lambda each: each[0])
    return tuple(tuple(Turn(turn.speaker, turn.text) for turn in dialogue.turns) for _, dialogue in sample)


def _read_corpus(folder: Path, name: str) -> tuple[tuple[tuple[Turn, ...], ...]]:
    description = dataset_descriptions()["conversations"][name]
    split = description.get("split")
    dialogues = read_dialogues(description["reader"], folder)
    return (sample_dialogues(dialogue for dialogue in dialogues if split in (None, dialogue.split)),)


_CORPORA: dict[str, Dataset[ConversationData]] = known_datasets(
    "conversations",
    ConversationData,
    {name: partial(_read_corpus, name=name) for name in dataset_descriptions()["conversations"]},
)


def conversation_datasets(data: Path | None = None) -> dict[str, Dataset[ConversationData]]:
    """Return the data sets of conversations: public corpora, and the folder itself if it is a store."""

    def read_store(folder: Path, name: str) -> ConversationData:
        return ConversationData(name, sample_dialogues(read_held_out(folder)))

    return with_store(_CORPORA, data, read_store, next(iter(_CORPORA.values())).differs)
