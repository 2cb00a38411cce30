"""Predictions for the rows of a file, written to another file with all columns of the input."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.context import read_utterance
from turnwise.assist.intents.decision import Decision
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError
from turnwise.core.files import escape_formula
from turnwise.core.progress import Progress, silent
from turnwise.corpus.texts import TEXT_FILE_SUFFIXES, read_rows

#: Rows that are classified and written together.
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class PredictionCounts:
    """How many rows were written."""

    rows: int
    accepted: int
    rejected: int
    blank: int  # rows without a text, which have no prediction
    intents: dict[str, int]  # accepted rows by intent, the most frequent first


def read_table(path: Path, text: str = "text") -> list[dict[str, Any]]:
    """Read all rows of a file with all their columns; a line of a .txt file is the column `text`."""
    rows = list(read_rows(path, [text], suffixes=TEXT_FILE_SUFFIXES, hint="name the column with --text"))
    for row in rows:
        row.optional_text(text)  # invalid rows raise an error before anything is classified
        read_utterance(row.values, text, row.where)
    return [dict(row.values) for row in rows]


def write_predictions(
    classifier: IntentClassifier,
    rows: Sequence[dict[str, Any]],
    path: Path,
    *,
    text: str = "text",
    several: bool = False,
    progress: Progress = silent,
) -> PredictionCounts:
    """Write every row with its prediction to a .csv or .jsonl file, in the order of the rows.

    The columns intent, score, probability, runner_up and reason are added, and intents if several are looked for; a
    name that the rows already have becomes predicted_NAME. The intent is 'out_of_scope' where the classifier abstains,
    and empty where a row has no text. Rows are written to PATH.part, which is renamed at the end: after an error PATH
    is unchanged, and PATH.part has the finished rows. Raise IntentError if `path` has another suffix.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise IntentError(f"{path} does not end in .csv or .jsonl")
    columns = list(dict.fromkeys(name for row in rows for name in row)) or [text]
    added = ["intent", *(["intents"] if several else []), "score", "probability", "runner_up", "reason"]
    names = {name: f"predicted_{name}" if name in columns else name for name in added}
    counts: Counter[str] = Counter()
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*columns, *names.values()], lineterminator="\n")
        if path.suffix == ".csv":
            writer.writerow({name: escape_formula(name) for name in writer.fieldnames})
        for start in range(0, len(rows), _CHUNK):
            progress("classifying texts", start, len(rows))
            chunk = rows[start : start + _CHUNK]
            has_text = [bool((row.get(text) or "").strip()) for row in chunk]
            present_rows = [row for row, present in zip(chunk, has_text, strict=True) if present]
            texts = [read_utterance(row, text, "the input") for row in present_rows]
            decisions = iter(classifier.decide(texts, neighbours=1, several=several))
            for row, present in zip(chunk, has_text, strict=True):
                prediction = _prediction(next(decisions) if present else None)
                if present:
                    counts[prediction["intent"]] += 1
                complete = {**row, **{names[name]: prediction[name] for name in added}}
                if path.suffix == ".csv":
                    writer.writerow({name: escape_formula(_cell(value)) for name, value in complete.items()})
                else:
                    file.write(json.dumps(complete, ensure_ascii=False, default=str) + "\n")
        progress("classifying texts", len(rows), len(rows))
    part.replace(path)
    blank, rejected = len(rows) - counts.total(), counts.pop(OUT_OF_SCOPE, 0)
    return PredictionCounts(len(rows), counts.total(), rejected, blank, dict(counts.most_common()))


def _prediction(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        empty: dict[str, Any] = {"intent": None, "intents": [], "score": None, "probability": None, "runner_up": None}
        return {**empty, "reason": "The row has no text."}
    return {
        "intent": OUT_OF_SCOPE if decision.intent is None else decision.intent,
        "intents": list(decision.intents),
        "score": round(decision.score, 4),
        "probability": round(decision.ranked[0].probability, 4),
        "runner_up": None if decision.runner_up is None else decision.runner_up.intent,
        "reason": decision.reason,
    }


def _cell(value: Any) -> Any:
    """Return lists of intents joined by commas, and other nested values as JSON."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value
