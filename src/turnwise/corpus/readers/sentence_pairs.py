"""Pairs of texts as dialogues of two turns: natural language inference, and questions with answers.

Inference data are SNLI's and MNLI's JSON Lines (`sentence1, sentence2, gold_label`), CSV or TSV with `premise,
hypothesis, label` (0 entailment, 1 neutral, 2 contradiction, or the words), SimCSE's triplets (`sent0, sent1,
hard_neg`) and the `pairs/` of the synthetic sample. Questions and answers are AmazonQA, or any JSON Lines, CSV or TSV.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import SYSTEM, USER, peer
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.json_text import parse_json
from turnwise.corpus.source.tables import CSV_DELIMITERS

_RELATIONS = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_FIELDS = (
    ("sentence1", "sentence2", "gold_label"),
    ("premise", "hypothesis", "label"),
    ("first", "second", "relation"),
)

_Pair = tuple[int, str, str, str]  # line, premise, hypothesis, relation


def read_nli(source: CorpusSource, *, form: Literal["pairs", "triplets"] = "pairs") -> Dialogues:
    """Read pairs, with the relation as intent of the second turn; pairs without a gold label ('-') are left out.

    Options:
        form: 'pairs'; or 'triplets' of premise, entailment and contradiction, made of adjacent pairs with one premise.
    """
    for path in source.files("*.jsonl", "*.tsv", "*.csv", "*.jsonl.gz"):
        pairs: list[_Pair] = []
        is_table = path.suffix in CSV_DELIMITERS
        records: Iterator[tuple[int, Mapping[str, Any]]] = (
            source.csv_rows(path) if is_table else source.json_lines(path)
        )
        for line, record in records:
            with source.guard(path, line):
                if "sent0" in record:
                    keys = ("sent0", "sent1", "hard_neg") if form == "triplets" else ("sent0", "sent1")
                    relation = None if form == "triplets" else "entailment"
                    yield from _dialogue(source, path, line, [record[key] for key in keys], relation)
                    continue
                pair = _parse_pair(line, record)
                if pair is None:
                    source.skipped["pairs without a gold label"] += 1
                elif form == "pairs":
                    yield from _dialogue(source, path, line, list(pair[1:3]), pair[3])
                elif pairs and pairs[0][1] != pair[1]:
                    yield from _triplets(source, path, pairs)
                    pairs = [pair]
                else:
                    pairs.append(pair)
        yield from _triplets(source, path, pairs)


def _parse_pair(line: int, record: Mapping[str, Any]) -> _Pair | None:
    for premise, hypothesis, label in _FIELDS:
        if premise in record:
            relation = _RELATIONS.get(str(record[label]), str(record[label]))
            return (line, record[premise], record[hypothesis], relation) if relation in _RELATIONS.values() else None
    raise KeyError("premise")


def _triplets(source: CorpusSource, path: Path, pairs: list[_Pair]) -> Dialogues:
    """Yield as many triplets as the premise has entailments and contradictions for."""
    entailments, contradictions = (
        [pair for pair in pairs if pair[3] == relation] for relation in ("entailment", "contradiction")
    )
    matched = list(zip(entailments, contradictions, strict=False))
    source.skipped["pairs without a counterpart"] += len(pairs) - 2 * len(matched)
    for (line, premise, entailment, _), (_, _, contradiction, _) in matched:
        yield from _dialogue(source, path, line, [premise, entailment, contradiction], None)


def _dialogue(source: CorpusSource, path: Path, line: int, texts: list[str], relation: str | None) -> Dialogues:
    with source.dialogue(path, line, split_of(path.stem)) as builder:
        builder.id = f"{source.relative_name(path)}/{line}"
        for number, text in enumerate(texts, 1):
            builder.add_turn(peer(number), text, relation if number == len(texts) else None)
    yield from builder.result()


def read_question_answers(source: CorpusSource, *, question: str = "question", answer: str = "answer") -> Dialogues:
    """Read questions with answers, each a dialogue of two turns.

    Options:
        question: the field of the question.
        answer: the field of the answer.
    """
    for path in source.files("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz", "*.csv", "*.tsv"):
        records: Iterator[tuple[int, Any]] = (
            source.csv_rows(path) if path.suffix in CSV_DELIMITERS else source.json_lines(path, _parse_record)
        )
        for line, record in records:
            with source.dialogue(path, line) as builder:
                builder.id = f"{source.relative_name(path)}/{line}"
                builder.add_turn(USER, record[question])
                builder.add_turn(SYSTEM, record[answer])
            yield from builder.result()


def _parse_record(line: str) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        # AmazonQA has Python dict literals instead of JSON; evaluating a literal runs no code
        try:
            return ast.literal_eval(line.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise ValueError(f"{error}; nor is it a Python literal") from None
