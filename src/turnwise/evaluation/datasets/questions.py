"""Questions and their answers: which of many answers belongs to a question?"""

from dataclasses import dataclass
from pathlib import Path

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.question_answers import read as read_question_answers
from turnwise.corpus.store import read_corpus
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE, STORE_FILES, dataset, strict

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class QuestionData:
    """A data set of (question, answer), in the order of its files."""

    name: str
    licence: str
    pairs: _Pairs


_AMAZONQA = "amazonqa*/qa_*.json*"


def _amazonqa(folder: Path) -> tuple[_Pairs]:
    """Every file of every product category that is there: a Python dict literal a line, as its authors write it."""
    pairs = []
    for path in sorted(folder.glob(_AMAZONQA)):
        for dialogue in read_question_answers(strict(path)):
            question, answer = dialogue.turns
            pairs.append((question.text, answer.text))
    return (tuple(pairs),)


def _sample(folder: Path) -> tuple[_Pairs]:
    """A user's turn and the system's next one in the test split, both of more than three words; each pair once."""
    pairs = {
        (first.text, second.text): None
        for dialogue in read_corpus(folder, splits=["test"])
        for first, second in zip(dialogue.turns, dialogue.turns[1:], strict=False)
        if (first.speaker, second.speaker) == (USER, SYSTEM)
        and min(len(first.text.split()), len(second.text.split())) > 3
    }
    return (tuple(pairs),)


#: By their plain names.
QUESTION_DATASETS: dict[str, Dataset[QuestionData]] = {
    known.name: known
    for known in (
        dataset(
            QuestionData,
            "amazonqa",
            ".",
            (_AMAZONQA,),
            _amazonqa,
            "none stated",
            "https://jmcauley.ucsd.edu/data/amazon/qa/",
            "d21800066167174974c081a9efe56402490fc999bf1515a5b2a2d5f779deba70",
            "the product categories that are there (appliances alone: 9,011 pairs), not a random 300,000 of 5.3 million of all"
            " categories; answers about one kind of product are harder to tell apart",
        ),
        dataset(QuestionData, "sample", ".", STORE_FILES, _sample, SAMPLE_LICENCE, SAMPLE_HOME),
    )
}
