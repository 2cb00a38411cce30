"""Natural language inference as dialogues: a pair is two turns, its relation the second one's intent; a triplet is three turns.

Reads SNLI's and MNLI's JSON Lines (`sentence1, sentence2, gold_label`), CSV or TSV with `premise, hypothesis, label` (0 entailment,
1 neutral, 2 contradiction, or the words), SimCSE's triplets (`sent0, sent1, hard_neg`) and the sample world's `pairs/`.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.labels import split_of

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_RELATIONS = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_FIELDS = (
    ("sentence1", "sentence2", "gold_label"),
    ("premise", "hypothesis", "label"),
    ("first", "second", "relation"),
)

_Pair = tuple[int, str, str, str]


def read(intake: Intake, *, form: str = "pairs") -> Iterator[Dialogue]:
    """Reads the files; pairs without a gold label ('-') are left out.

    Args:
        intake: where to read.
        form: 'pairs'; or 'triplets' of premise, entailment and contradiction, made of neighbouring pairs with one premise.
    """
    if form not in ("pairs", "triplets"):
        raise CorpusError(f"form={form!r}: choose 'pairs' or 'triplets'")
    for path in intake.files("*.jsonl", "*.tsv", "*.csv", "*.jsonl.gz"):
        pairs: list[_Pair] = []
        for line, record in _records(intake, path):
            with intake.record(path, line):
                if "sent0" in record:
                    if form == "triplets":
                        texts = [record[name] for name in ("sent0", "sent1", "hard_neg")]
                        yield from _dialogue(intake, path, line, texts, None)
                    else:
                        yield from _dialogue(intake, path, line, [record["sent0"], record["sent1"]], "entailment")
                    continue
                pair = _pair(line, record)
                if pair is None:
                    intake.left_out["pairs without a gold label"] += 1
                elif form == "pairs":
                    yield from _dialogue(intake, path, line, list(pair[1:3]), pair[3])
                elif pairs and pairs[0][1] != pair[1]:
                    yield from _triplets(intake, path, pairs)
                    pairs = [pair]
                else:
                    pairs.append(pair)
        yield from _triplets(intake, path, pairs)


def _records(intake: Intake, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return intake.table(path, _DELIMITERS[path.suffix]) if path.suffix in _DELIMITERS else intake.json_lines(path)


def _pair(line: int, record: Mapping[str, Any]) -> _Pair | None:
    for first, second, label in _FIELDS:
        if first in record:
            relation = _RELATIONS.get(str(record[label]), str(record[label]))
            return (line, record[first], record[second], relation) if relation in _RELATIONS.values() else None
    raise KeyError("premise")


def _triplets(intake: Intake, path: Path, pairs: list[_Pair]) -> Iterator[Dialogue]:
    """As many triplets as a premise has both an entailment and a contradiction for."""
    by_relation = {
        relation: list(group)
        for relation, group in groupby(sorted(pairs, key=lambda pair: (pair[3], pair[0])), key=lambda pair: pair[3])
    }
    both = list(zip(by_relation.get("entailment", ()), by_relation.get("contradiction", ()), strict=False))
    intake.left_out["pairs without a counterpart"] += len(pairs) - 2 * len(both)
    for entailed, contradicted in both:
        yield from _dialogue(intake, path, entailed[0], [entailed[1], entailed[2], contradicted[2]], None)


def _dialogue(intake: Intake, path: Path, line: int, texts: list[str], relation: str | None) -> Iterator[Dialogue]:
    with intake.dialogue(path, line, split_of(path.stem)) as draft:
        draft.id = f"{intake.name(path)}/{line}"
        for number, text in enumerate(texts, 1):
            draft.say(peer(number), text, relation if number == len(texts) else None)
    yield from draft.done()
