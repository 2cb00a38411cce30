"""Response selection: contexts with candidate responses, of which some are right.

Most come as their authors give them: the Ubuntu corpora V1 and V2, Douban and E-commerce as files of candidates, DSTC7's Ubuntu
track as JSON, DailyDialog++ with negatives of two kinds. Two are drawn here, with a seed: `irc_ubuntu` from disentangled threads,
and `from_store` from any store of dialogues.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers import irc_disentanglement
from turnwise.corpus.readers.responses import Candidates, read_candidates
from turnwise.corpus.store import is_store, read_corpus
from turnwise.corpus.synthetic.sample_sets import response_examples
from turnwise.evaluation.datasets.dataset import Dataset, DatasetError
from turnwise.evaluation.datasets.reading import (
    SAMPLE_HOME,
    SAMPLE_LICENCE,
    SPLITS,
    STORE_FILES,
    dataset,
    strict,
    tab_separated,
    text_of,
    texts_of,
)

#: Of the drawing of negatives: another seed makes another data set.
SEED = 0

_OWN = "its candidates are drawn here, from the dialogues of a store"
_OWN_LICENCE = "that of its store"


@dataclass(frozen=True, slots=True)
class CandidateData:
    """A data set of contexts with candidates; a split that its authors do not have, or that is not at hand, is empty."""

    name: str
    licence: str
    train: tuple[Candidates, ...]
    valid: tuple[Candidates, ...]
    test: tuple[Candidates, ...]


_Examples = tuple[Candidates, ...]
_Splits = tuple[_Examples, _Examples, _Examples]


def from_store(corpus: Iterable[Dialogue], name: str, seed: int = SEED, candidates: int = 10) -> CandidateData:
    """Makes a data set of any dialogues with system turns.

    Each dialogue gives one example: the truth is one of its system turns of more than three words, the context what was said
    before it, and the negatives are such turns of other dialogues of the same split, none of them equal to the truth.

    Args:
        corpus: read once a split, so a store, a corpus or a list; dialogues without a split are test data.
        name: of the data set.
        seed: for the drawings; the same one gives the same data set.
        candidates: to choose from; in 'train' there are two.

    Raises:
        DatasetError: where a split has too few different system turns to choose from.
    """

    def read(split: str) -> _Examples:
        return _drawn(
            (dialogue for dialogue in corpus if (dialogue.split or "test") == split),
            seed,
            candidates,
            f"{name}, {split}",
        )

    return CandidateData(name, _OWN_LICENCE, read("train"), read("valid"), read("test"))


def candidate_datasets(data: Path | None = None) -> dict[str, Dataset[CandidateData]]:
    """The known data sets, and the folder of data sets itself if it is a store: it goes by the folder's name.

    A sample world has its candidates beside its dialogues and is the known data set 'sample'.
    """
    if data is None or not is_store(data) or (data / "responses").is_dir():
        return CANDIDATE_DATASETS
    name = data.resolve().name

    def read(folder: Path) -> CandidateData:
        return from_store(read_corpus(folder), name)

    store = Dataset(name, ".", STORE_FILES, read, _OWN_LICENCE, "a store of yours", differs=_OWN)
    return {**CANDIDATE_DATASETS, name: store}


def _drawn(dialogues: Iterable[Dialogue], seed: int, candidates: int, what: str) -> _Examples:
    """One split's examples: handed over alone, it gets no negatives from another."""
    try:
        return tuple(
            Candidates(
                example.context,
                example.candidates,
                tuple(index == example.positive for index in range(len(example.candidates))),
            )
            for example in response_examples(dialogues, seed, candidates)
        )
    except ValueError as error:
        raise DatasetError(f"{what}: {error}; take fewer candidates, or more dialogues") from None


# ---- files of candidates


def _file(path: Path, size: int) -> _Examples:
    """The examples of a file, each with `size` candidates: by that, equal contexts on neighbouring lines are told apart.

    Turns without a word, which a few contexts of Ubuntu V1 have, are left out of the context.
    """
    intake = strict(path)
    examples = []
    for line, group in read_candidates(intake, path):
        count = len(group.responses)
        context = tuple(turn for turn in group.context if turn.strip())
        if count % size or not context:
            intake.reject(
                path,
                line,
                "dialogue",
                f"expected a context with {size} candidates, not {count}; or its turns are all empty",
            )
        examples += [
            Candidates(context, group.responses[start : start + size], group.labels[start : start + size])
            for start in range(0, count, size)
        ]
    return tuple(examples)


def _files(folder: Path, sizes: dict[str, tuple[str, int]]) -> _Splits:
    """Splits by their file's name and number of candidates; those that are not named are empty."""
    train, valid, test = (
        _file(folder / sizes[split][0], sizes[split][1]) if split in sizes else () for split in SPLITS
    )
    return train, valid, test


def _of_files(
    name: str,
    folder: str,
    sizes: dict[str, tuple[str, int]],
    licence: str,
    home: str,
    digest: str = "",
    differs: str = "",
) -> Dataset[CandidateData]:
    files = tuple(file for file, _ in sizes.values())
    return dataset(CandidateData, name, folder, files, partial(_files, sizes=sizes), licence, home, digest, differs)


# ---- DSTC7


def _dstc7(folder: Path) -> _Splits:
    """Validation and test pooled as the test set, as DSE and DiaEval take them: 5,000 and 1,000 contexts."""
    intake = strict(folder)
    answers: dict[str, list[str]] = {}
    responses = folder / "ubuntu_responses_subtask_1.tsv"
    for number, (example, _, text, *_) in tab_separated(intake, responses, 3):
        with intake.guard(responses, number):
            answers[example] = [text_of(text)]
    examples = []
    for split in ("dev", "test"):
        path = folder / f"ubuntu_{split}_subtask_1.json"
        for line, record in intake.json_array(path):
            with intake.guard(path, line):
                truths = (
                    _said(record["options-for-correct-answers"])
                    if split == "dev"
                    else answers[str(record["example-id"])]
                )
                examples.append(
                    _with_truths(_said(record["messages-so-far"]), _said(record["options-for-next"]), truths)
                )
    return (), (), tuple(examples)


def _said(messages: Any) -> list[str]:
    return [text_of(message["utterance"]) for message in messages]


def _with_truths(context: list[str], options: list[str], truths: list[str]) -> Candidates:
    """The options with each truth once, at the place where it first stands among them, or last.

    The authors' reader puts the truth before the candidates, among which it stands already: a perfect model then gets it wrong
    whenever the second copy is taken for a wrong answer.
    """
    if not context or not truths:
        raise ValueError("a context or its correct answer is missing")
    responses: list[str] = []
    for text in (*options, *truths):
        if text not in truths or text not in responses:
            responses.append(text)
    return Candidates(tuple(context), tuple(responses), tuple(text in truths for text in responses))


# ---- DailyDialog++


def _dailydialog_plusplus(folder: Path, negatives: str) -> _Splits:
    """Five right responses a context against five wrong ones of a kind; a wrong one that is also listed as right is left out."""
    intake = strict(folder)

    def read(path: Path) -> _Examples:
        examples = []
        for line, record in intake.json_lines(path):
            with intake.guard(path, line):
                right = texts_of(record["positive_responses"])
                wrong = tuple(text for text in texts_of(record[negatives]) if text not in right)
                labels = (True,) * len(right) + (False,) * len(wrong)
                examples.append(Candidates(texts_of(record["context"]), right + wrong, labels))
        return tuple(examples)

    return (), read(folder / "dev.json"), read(folder / "test.json")


# ---- threads


def _irc_ubuntu(folder: Path, candidates: int) -> _Splits:
    """A thread's last reply among last replies of other threads of the same split, drawn with a seed and never equal to it.

    In 'train' there are two candidates. How threads are made is told in `turnwise.corpus.readers.irc_disentanglement`.
    """
    threads = list(irc_disentanglement.read(strict(folder)))

    def read(name: str, split: str) -> _Examples:
        return _drawn((thread for thread in threads if thread.split == split), SEED, candidates, f"{folder / name}")

    return read("train", "train"), read("dev", "valid"), read("test", "test")


_NO_DSTC7 = "Ubuntu chat of the same channel, but other dialogues than DSTC7's 6,000, with more than two speakers, and negatives drawn here"


def _irc(name: str, candidates: int) -> Dataset[CandidateData]:
    files = tuple(f"{split}/*.{kind}.txt" for split in ("train", "dev", "test") for kind in ("ascii", "annotation"))
    read: Callable[[Path], _Splits] = partial(_irc_ubuntu, candidates=candidates)
    home, digest = (
        "https://www.jkk.name/irc-disentanglement",
        "51e069212844bdb0301df3c9cfaa866ecb3f3ebe7ce2d1ed738cf49c6a760e44",
    )
    return dataset(CandidateData, name, "irc_disentanglement/data", files, read, "CC BY 4.0", home, digest, _NO_DSTC7)


def _dailydialog(name: str, negatives: str) -> Dataset[CandidateData]:
    read: Callable[[Path], _Splits] = partial(_dailydialog_plusplus, negatives=negatives)
    home, digest = (
        "https://github.com/iitmnlp/DailyDialog-plusplus",
        "7fc91a6e82ea8cb43f90eacdb3ae7187e6ddf74b55f47123e3a3c163d22d3dd0",
    )
    return dataset(
        CandidateData, name, "dailydialog_plusplus/dataset", ("dev.json", "test.json"), read, "MIT", home, digest
    )


_UBUNTU_V2 = "https://github.com/rkadlec/ubuntu-ranking-dataset-creator"
_DOUBAN = "https://github.com/MarkWuNLP/MultiTurnResponseSelection"
_ECOMMERCE = "https://github.com/cooelf/DeepUtteranceAggregation"
_DSTC7 = ("ubuntu_dev_subtask_1.json", "ubuntu_test_subtask_1.json", "ubuntu_responses_subtask_1.tsv")

#: By their plain names; '…_slice' is a part of the authors' files, and says so.
CANDIDATE_DATASETS: dict[str, Dataset[CandidateData]] = {
    known.name: known
    for known in (
        dataset(
            CandidateData, "dstc7_ubuntu", "dstc7", _DSTC7, _dstc7, "none stated", "https://github.com/IBM/dstc7-noesis"
        ),
        _of_files(
            "ubuntu_v1",
            "ubuntu_v1",
            {"train": ("train.txt", 2), "valid": ("valid.txt", 10), "test": ("test.txt", 10)},
            "Apache-2.0",
            _DOUBAN,
        ),
        _of_files(
            "ubuntu_v1_slice",
            "ubuntu_v1_slices",
            {"train": ("ubuntu_train.txt", 2), "test": ("ubuntu_valid.txt", 10)},
            "Apache-2.0",
            _DOUBAN,
            "1b598d30023dc117662b277637b14b45317c8b81f5d28709bc26399ba1e1e46a",
            "60 contexts of the validation set in place of the 50,000 of Ubuntu V1's test set",
        ),
        _of_files(
            "ubuntu_v2",
            "ubuntu_v2",
            {"train": ("train.csv", 1), "valid": ("valid.csv", 10), "test": ("test.csv", 10)},
            "Apache-2.0",
            _UBUNTU_V2,
        ),
        _of_files(
            "ubuntu_v2_slice",
            "ubuntu_v2_slices/DeepInEvil_UDC/data",
            {
                "valid": ("valid500.csv", 10),
                "test": ("test500.csv", 10),
            },  # the training rows at hand are stemmed, these are not
            "none stated",
            _UBUNTU_V2,
            "b59de2d86fe419c137ae70fab7ddefde0711b074239f4b84a14ec9bcf885552e",
            "499 of the 18,920 contexts of Ubuntu V2's test set",
        ),
        _of_files(
            "douban",
            "douban",
            {"train": ("train.txt", 2), "valid": ("dev.txt", 2), "test": ("test.txt", 10)},
            "Apache-2.0",
            _DOUBAN,
        ),
        _of_files(
            "douban_slice",
            "douban",
            {"test": ("douban.txt", 10)},
            "Apache-2.0",
            _DOUBAN,
            "4429735cbe24a07b09758bcadceb9af65d7f44f4e8eaf121b2d64c7734b519ca",
            "200 of the 1,000 contexts of Douban's test set",
        ),
        _of_files(
            "ecommerce",
            "ecommerce",
            {"train": ("train.txt", 2), "valid": ("dev.txt", 2), "test": ("test.txt", 10)},
            "none stated",
            _ECOMMERCE,
        ),
        _of_files(
            "ecommerce_slice",
            "ecommerce_ecd_sample/ECD_sample",
            {"train": ("train", 2), "test": ("test", 10)},  # 'valid' is a copy of 'train'
            "none stated",
            _ECOMMERCE,
            "177d3341f36a6cf62512e72772cecf3425c4b7ec7d4c54a868f6eb643d2fbebc",
            "100 of the 1,000 contexts of E-commerce's test set",
        ),
        _dailydialog("dailydialog_plusplus", "random_negative_responses"),
        _dailydialog("dailydialog_plusplus_adversarial", "adversarial_negative_responses"),
        _irc("irc_ubuntu", 10),
        _irc("irc_ubuntu_100", 100),
        _of_files(
            "sample",
            "responses",
            {"train": ("train.txt", 2), "valid": ("valid.txt", 10), "test": ("test.txt", 10)},
            SAMPLE_LICENCE,
            SAMPLE_HOME,
        ),
    )
}
