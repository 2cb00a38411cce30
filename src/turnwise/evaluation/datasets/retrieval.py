"""Semantic retrieval: texts with the intent of a query should be ranked before others, as DialogueCSE evaluates it.

The data sets are the authors' own, and others built by the paper's steps (section 5.1.2) from any store whose turns are
labelled with intents or acts: sentences with intent labels are collected and inconsistent ones removed; for each
sentence BM25 retrieves 100 others; those of the same intent are its positives, at most 30 of them; a model then has to
rank these first. Where the paper's annotators judge whether a sentence and its label are consistent, a text with
several labels is taken to be inconsistent here.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.imports import explain_missing_packages
from turnwise.core.text import UNSPACED
from turnwise.evaluation.datasets.dataset import (
    Dataset,
    SplitData,
    dataset_descriptions,
    known_datasets,
    open_strict,
    parse_text,
    read_dialogues,
    read_held_out,
    read_tsv,
    with_store,
)

#: Candidates and positives of a query, and queries of a constructed set: about as many as the paper keeps of a corpus.
CANDIDATES = 100
POSITIVES = 30
QUERIES = 4_000

Label = Literal["intent", "acts"]

_WORD = re.compile(f"[{UNSPACED}]|[^\\W{UNSPACED}]+")  # a Chinese or Japanese character counts as a word


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A text, texts that are to be ranked first by similarity to it, and others."""

    text: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


RetrievalData = SplitData[RetrievalQuery]


@dataclass(frozen=True, slots=True)
class LabelledTurn:
    """A text and the only label that it has in a corpus."""

    text: str
    label: str


def split_words(text: str) -> list[str]:
    """Return the case-folded words of a text; Chinese and Japanese characters are words."""
    return _WORD.findall(text.casefold())


def labelled_turns(
    corpus: Iterable[Dialogue], label: Label = "intent", *, speaker: str | None = None, split: str | None = None
) -> list[LabelledTurn]:
    """Return the distinct labelled turns of a corpus, in the order of their first occurrence.

    The label is a turn's intent, or the names of its acts together: 'inform(city)' and 'request(date)' make
    'inform+request'. Texts are equal whatever their case and white space; the first form is kept. A text with several
    labels is left out. Memory holds the distinct texts only.
    """
    by_text: dict[str, LabelledTurn | None] = {}
    for dialogue in corpus:
        if split is not None and dialogue.split != split:
            continue
        for turn in dialogue.turns:
            acts = sorted({act.partition("(")[0] for act in turn.acts})
            name = turn.intent if label == "intent" else "+".join(acts)
            if not name or speaker not in (None, turn.speaker):
                continue
            text = " ".join(turn.text.casefold().split())
            seen = by_text.setdefault(text, LabelledTurn(turn.text, name))
            if seen is not None and seen.label != name:
                by_text[text] = None
    turns = [turn for turn in by_text.values() if turn is not None]
    if not turns:
        where = f"{'' if speaker is None else f' of {speaker!r}'}{'' if split is None else f' in split {split!r}'}"
        raise CorpusError(
            f"no turn{where} has a unique {label}: choose another label ('intent', 'acts'), speaker or split"
        )
    return turns


def build_retrieval(
    turns: Sequence[LabelledTurn],
    name: str,
    *,
    candidates: int = CANDIDATES,
    positives: int = POSITIVES,
    queries: int | None = None,
    seed: int = 0,
) -> RetrievalData:
    """Build a retrieval data set as DialogueCSE does: all of it is for testing, nothing for validation.

    A candidate shares at least one word with its query, so a query may have fewer than `candidates`; ties of BM25
    (Lucene's form, k1 = 1.5, b = 0.75) are resolved by the order of the turns. Of more than `positives` turns with the
    query's label the best-ranked are kept and the others dropped. A query without a positive or without a negative is
    left out. At most `queries` queries are sampled; None: all turns are queries.
    """
    turns = [turn for turn in turns if split_words(turn.text)]
    if len({turn.label for turn in turns}) < 2:
        raise CorpusError(f"{name}: {len(turns)} turns with fewer than two labels: retrieval cannot be built")
    words = [split_words(turn.text) for turn in turns]
    with explain_missing_packages():
        import bm25s
    index = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    index.index(words, show_progress=False)
    order = np.arange(len(turns)) if queries is None else np.random.default_rng(seed).permutation(len(turns))
    made: dict[int, RetrievalQuery] = {}
    for number in order.tolist():
        if len(made) == queries:
            break
        scores = index.get_scores(words[number])
        scores[number] = 0.0
        query = turns[number]
        retrieved = [turns[other] for other in _highest(scores, candidates)]
        right = [turn.text for turn in retrieved if turn.label == query.label][:positives]
        wrong = [turn.text for turn in retrieved if turn.label != query.label]
        if right and wrong:
            made[number] = RetrievalQuery(query.text, tuple(right), tuple(wrong))
    if not made:
        raise CorpusError(
            f"{name}: none of {len(turns)} turns shares a word both with another of its own label and with one of"
            " another label: retrieval cannot be built; choose another label or more dialogues"
        )
    return RetrievalData(name, test=tuple(made[number] for number in sorted(made)))


def _highest(scores: npt.NDArray[np.float32], count: int) -> list[int]:
    """Return the indices of the highest scores above zero, best first, ties in their order."""
    least = np.partition(scores, -count)[-count] if count < len(scores) else 0.0
    near = np.flatnonzero((scores >= least) & (scores > 0))
    indices: list[int] = near[np.argsort(-scores[near], kind="stable")][:count].tolist()
    return indices


def _read_queries(folder: Path) -> list[tuple[RetrievalQuery, ...]]:
    """Read lines `id, text, topic, ids of positives, ids of negatives`; a text without either is a candidate only."""
    return [(), *(tuple(_read_file(folder / split / "select.txt")) for split in ("dev", "test"))]


def _read_file(path: Path) -> Iterator[RetrievalQuery]:
    source = open_strict(path)
    rows: dict[str, tuple[int, list[str]]] = {}
    for number, fields in read_tsv(source, path, 5):
        if fields[0] in rows:
            source.reject(path, number, "dialogue", f"the id {fields[0]!r} occurs twice")
        rows[fields[0]] = number, fields
    for number, (_, text, _, *lists) in rows.values():
        with source.guard(path, number):
            positives, negatives = (
                tuple(parse_text(rows[key][1][1]) for key in keys.split(",") if key) for keys in lists[:2]
            )
            if positives and negatives:
                yield RetrievalQuery(parse_text(text), positives, negatives)


def _read_corpus(folder: Path, name: str) -> list[tuple[RetrievalQuery, ...]]:
    description = dataset_descriptions()["retrieval"][name]
    turns = labelled_turns(read_dialogues(description["reader"], folder), **description["turns"])
    return [(), (), build_retrieval(turns, name, queries=QUERIES).test]


def _read_store(folder: Path, name: str) -> RetrievalData:
    turns = labelled_turns(read_held_out(folder), "intent", speaker="user")
    return build_retrieval(turns, name, queries=QUERIES)


_KNOWN_DATASETS: dict[str, Dataset[RetrievalData]] = known_datasets(
    "retrieval",
    RetrievalData,
    {
        name: partial(_read_corpus, name=name) if "turns" in description else _read_queries
        for name, description in dataset_descriptions()["retrieval"].items()
    },
)


def retrieval_datasets(data: Path | None = None) -> dict[str, Dataset[RetrievalData]]:
    """Return the authors' own data sets, those built from public corpora, and the folder itself if it is a store."""
    return with_store(_KNOWN_DATASETS, data, _read_store, _KNOWN_DATASETS["retrieval_star"].differs)
