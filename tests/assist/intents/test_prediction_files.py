"""Predictions written to files: all rows and columns, and the old file and the finished rows after an error."""

import csv
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import pairs
from turnwise.assist.intents import prediction_files
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.decision import Decision, RankedIntent
from turnwise.assist.intents.prediction_files import read_table, write_predictions
from turnwise.core.errors import CorpusError, IntentError

ROWS = [
    {"id": "1", "text": "where is my parcel, please", "intent": "asked"},
    {"id": "2", "text": " ", "intent": ""},
    {"id": "3", "text": "purple elephants dance", "intent": "x"},
    {"id": "4", "text": 'cancel my "order"', "intent": "y"},
]


@pytest.fixture(scope="module")
def classifier() -> IntentClassifier:
    return IntentClassifier(BagOfWords()).fit(*pairs())


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_keep_their_columns_and_order(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "_CHUNK", 3)
    out = tmp_path / "out.csv"
    counts = write_predictions(classifier, ROWS, out)
    written = read_csv(out)
    assert [{name: row[name] for name in ROWS[0]} for row in written] == ROWS
    assert [row["predicted_intent"] for row in written] == ["track_order", "", "out_of_scope", "cancel_order"]
    decision = classifier.decide([ROWS[0]["text"]], neighbours=1)[0]
    assert float(written[0]["score"]) == pytest.approx(decision.score, abs=1e-4)
    assert (written[0]["runner_up"], written[0]["reason"]) == (decision.runner_up.intent, decision.reason)
    assert (counts.rows, counts.accepted, counts.rejected, counts.blank) == (4, 2, 1, 1)
    assert counts.intents == {"track_order": 1, "cancel_order": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_json_lines_keep_values_and_list_several_intents(classifier, tmp_path):
    rows = [{"text": "please cancel my order and give me my money back", "tags": ["a", 1]}]
    write_predictions(classifier, rows, tmp_path / "out.jsonl", several=True)
    written = json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))
    assert written["tags"] == ["a", 1] and written["intents"] == ["cancel_order", "refund"]
    write_predictions(classifier, rows, tmp_path / "out.csv", several=True)
    assert read_csv(tmp_path / "out.csv")[0]["intents"] == "cancel_order, refund"


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "_CHUNK", 2)
    ranked = (RankedIntent("a", 1.0, 1.0),)

    class Verbose:
        def decide(self, texts, **_):
            return [
                Decision(text, "a", 1.0, None, False, f"{text} " * 30_000, ("a",), None, ranked, ()) for text in texts
            ]

    tracemalloc.start()
    counts = write_predictions(Verbose(), [{"text": f"text {number}"} for number in range(60)], tmp_path / "out.csv")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counts.accepted == 60
    assert peak < (tmp_path / "out.csv").stat().st_size / 4


def test_after_an_error_the_old_file_and_the_finished_rows_are_there(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "_CHUNK", 2)
    out = tmp_path / "out.csv"
    out.write_text("old\n", encoding="utf-8")

    def fail(what: str, done: int, total: int | None = None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_predictions(classifier, ROWS, out, progress=fail)
    assert out.read_text(encoding="utf-8") == "old\n"
    assert [row["id"] for row in read_csv(tmp_path / "out.csv.part")] == ["1", "2"]
    with pytest.raises(IntentError, match=r"\.csv or \.jsonl"):
        write_predictions(classifier, ROWS, tmp_path / "out.xlsx")


def test_every_format_is_read_with_all_columns(tmp_path):
    table = [{"said": "hello", "id": 1}, {"said": None, "id": 2}]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"said": "hello", "id": 1}\n{"said": null, "id": 2}\n', encoding="utf-8")
    (tmp_path / "a.csv").write_text("said,id\nhello,1\n,2\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("hello\n\n", encoding="utf-8")
    assert read_table(tmp_path / "a.parquet", "said") == read_table(tmp_path / "a.jsonl", "said") == table
    assert read_table(tmp_path / "a.csv", "said") == [{"said": "hello", "id": "1"}, {"said": "", "id": "2"}]
    assert read_table(tmp_path / "a.txt", "said") == [{"said": "hello"}, {"said": ""}]
    with pytest.raises(CorpusError, match="no column 'text'"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "b.jsonl").write_text('{"text": "hello"}\n{"text": 5}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match="line 2: 'text' must be a text"):
        read_table(tmp_path / "b.jsonl")


def test_formulas_in_predictions_are_escaped(classifier, tmp_path):
    write_predictions(classifier, [{"text": "=HYPERLINK(1)", "+x": "-12.5", "@y": "-12+5"}], tmp_path / "out.csv")
    row = read_csv(tmp_path / "out.csv")[0]
    assert (row["text"], row["'+x"], row["'@y"]) == ("'=HYPERLINK(1)", "-12.5", "'-12+5")
    assert read_table(tmp_path / "out.csv", "text")[0]["text"] == "=HYPERLINK(1)"
