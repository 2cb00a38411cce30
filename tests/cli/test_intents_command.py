"""`turnwise intents`: printed and written output, and errors."""

import csv
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import OUTSIDE, pairs
from tests.helpers.layouts import lay_out, layout_named
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import read_labelled, read_texts, read_with_names
from turnwise.core.errors import CorpusError, IntentError


@pytest.fixture
def run(
    run_turnwise: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, str]]:
    monkeypatch.setattr(IntentClassifier, "load_encoder", lambda self: BagOfWords())
    return partial(run_turnwise, "intents")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "examples.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "intent", "remark"])
        writer.writerows(
            [
                *zip(*pairs(), ["said, twice"] * 12, strict=True),
                ("hello", "", ""),
                *((text, "out_of_scope", "") for text in OUTSIDE),
            ]
        )
    return path


def test_fit_predict_calibrate_and_examples(table, tmp_path, run):
    out = tmp_path / "intents"
    stdout, stderr = run("fit", table, "--out", out)
    assert stderr.startswith("warning: the threshold was calibrated on only 12 texts") and stderr.count("\n") == 1
    for word in (
        "12 examples of 3 intents",
        "5 examples",
        "5.0% of in-scope texts",
        "neighbours",
        "12 examples (leave-one-out)",
    ):
        assert word in stdout
    stdout, _ = run("predict", out, "where is my parcel now", "purple elephants dance")
    assert "track_order" in stdout and "none of the intents" in stdout and "below the" in stdout
    printed = json.loads(
        run(
            "predict", out, "please cancel my order and give me my money back", "--several", "--neighbours", 1, "--json"
        )[0]
    )
    assert printed[0]["intents"] == ["cancel_order", "refund"]
    assert len(printed[0]["nearest"]) == 1
    assert run("examples", "add", out, "hours", "when do you open", "are you open on sunday", "opening times")[0] == (
        "3 new examples of hours; 4 intents\n"
    )
    questions = tmp_path / "asked.txt"
    questions.write_text("are you open\n\nwhere is my parcel\n", encoding="utf-8")
    printed = json.loads(run("predict", out, "--file", questions, "--json")[0])
    assert [(each["text"], each["intent"]) for each in printed] == [
        ("are you open", "hours"),
        ("where is my parcel", "track_order"),
    ]
    assert json.loads(run("examples", "remove", out, "hours", "opening times", "--json")[0]) == {
        "removed": 1,
        "intents": 4,
    }
    assert "2 examples of hours removed; 3 intents" in run("examples", "remove", out, "hours")[0]
    held_out = tmp_path / "held.jsonl"
    rows = [{"said": f"{text} now", "asked": intent} for text, intent in zip(*pairs(), strict=True)]
    held_out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    printed = json.loads(
        run("calibrate", out, held_out, "--text", "said", "--intent", "asked", "--false-rejection", 0.2, "--json")[0]
    )
    assert (printed["calibration"]["false_rejection"], printed["calibration"]["held_out"], printed["intents"]) == (
        0.2,
        True,
        3,
    )
    saved = IntentClassifier.load(out)
    assert (saved.false_rejection, saved.calibration_.texts) == (0.2, 12)


def test_mistyped_intents_are_warned_of(tmp_path, run):
    texts, intents = (each * 3 for each in pairs())
    labelled = [*enumerate(intents), (99, "cancle_order"), (98, "greeting")]
    path = tmp_path / "examples.csv"
    path.write_text("text,intent\n" + "".join(f"{texts[row % 36]} {row},{name}\n" for row, name in labelled))
    stderr = run("fit", path, "--out", tmp_path / "intents")[1]
    assert stderr == (
        "warning: cancle_order has a single example, and its name is close to cancel_order: is it mistyped?\n"
    )


def test_names_and_a_log_are_enough(tmp_path, run):
    names, log, out = tmp_path / "names.csv", tmp_path / "log.txt", tmp_path / "intents"
    names.write_text("intent,description\ntrack_order,where is my parcel\ncancel_order,\nrefund,money back\n")
    log.write_text("\n".join([*pairs()[0], *OUTSIDE]))
    stdout, stderr = run("fit", names, "--log", log, "--out", out)
    assert "0 examples of 3 intents" in stdout and not stderr
    assert "the names of 3 intents and 17 of 27 texts of the log" in " ".join(stdout.split())
    printed = json.loads(run("predict", out, "has my parcel been shipped", "cancel this order", "--json")[0])
    assert [(each["intent"], each["nearest"]) for each in printed] == [("track_order", []), ("cancel_order", [])]
    assert "no examples: give a log" in run("report", out, code=1)[1]
    assert "cannot be calibrated" in run("fit", names, "--out", out, code=1)[1]
    run("fit", names, "--out", out, "--false-rejection", 0)
    names.write_text("intent,utterance\nrefund,money back\n")
    assert "no column 'text'; it has 'intent', 'utterance'" in run("fit", names, "--out", out, code=1)[1]


def test_a_report_suggests_texts_of_a_log_as_examples(tmp_path, run):
    names, log, out = tmp_path / "names.csv", tmp_path / "log.txt", tmp_path / "intents"
    names.write_text("intent,description\ntrack_order,where is my parcel\ncancel_order,\nrefund,money back\n")
    log.write_text("\n".join([*pairs()[0], *OUTSIDE, "=refund my money"]))
    run("fit", names, "--log", log, "--out", out)
    page, confirm = tmp_path / "report.html", tmp_path / "confirm.csv"
    stdout = " ".join(run("report", out, "--log", log, "--out", page)[0].split())
    assert "not tested there are no examples, only names of intents" in stdout
    assert "18 distinct texts, of 28 in the log" in stdout and "precision" not in stdout
    text = page.read_text(encoding="utf-8")
    assert (
        "the names of 3 intents and 18 of 28 texts of the log, not compared" in text
        and "please cancel the order" in text
    )
    assert "Metrics" not in text and set(re.findall(r'<a href="#([^"]+)"', text)) == set(
        re.findall(r'<h2 id="([^"]+)"', text)
    )

    printed = json.loads(run("report", out, "--log", log, "--out", confirm, "--json")[0])["log"]
    predicted = json.loads(run("predict", out, "--file", log, "--json")[0])
    decided = list({each["text"]: each["intent"] for each in predicted}.values())
    assert printed["intents"] == {name: decided.count(name) for name in printed["intents"]}
    assert (printed["texts"], printed["rejected"]) == (18, decided.count(None))
    assert read_labelled(confirm) == [(each["text"], each["intent"]) for each in printed["suggestions"]]
    rows = list(csv.DictReader(confirm.open(encoding="utf-8-sig")))
    confidence = [(each["intent"], -float(each["confidence"])) for each in rows]
    assert confidence == sorted(confidence) and all(-1 <= value < 0 for _, value in confidence)

    assert f"{len(rows)} new examples; 3 intents" in run("examples", "add", out, "--file", confirm)[0]
    printed = json.loads(run("report", out, "--log", log, "--folds", 3, "--json")[0])
    assert printed["texts"] == len(rows) and not {each["text"] for each in printed["log"]["suggestions"]} & {
        each["text"] for each in rows
    }
    assert json.loads(run("report", confirm, "--log", log, "--folds", 3, "--json")[0])["support"]["log_texts"] == 18
    assert "give a log" in run("report", out, "--out", confirm, "--folds", 3, code=1)[1]
    run("examples", "add", out, "refund", code=2)
    run("examples", "add", out, "refund", "x", "--file", confirm, code=2)


def _clu(*intents: dict, utterances: list) -> dict[str, object]:
    records = [{"text": text, "intent": intent, "dataset": split} for text, intent, split in utterances]
    return {"projectFileVersion": "2023-04-01", "assets": {"intents": intents, "utterances": records}}


RASA = "nlu:\n- intent: feed\n  examples: |\n    - give it [hay](food)\n- intent: wash\n  examples: |\n    - a bath\n"
FEED, WASH = {"description": "give food to an animal"}, {"description": " clean an animal "}

#: Files of assistants, with the examples and descriptions in them.
EXPORTS = {
    "clu": (
        {
            "clu.json": _clu(
                {"category": "feed", **FEED},
                {"category": "wash", **WASH},
                {"category": "sell"},
                {"category": "None", "description": "anything else"},
                utterances=[("give it hay", "feed", "Train"), ("more hay", "feed", "Test"), ("sing", "None", "Train")],
            )
        },
        [("give it hay", "feed"), ("sing", "out_of_scope")],
        {"feed": "give food to an animal", "wash": "clean an animal"},
    ),
    "rasa": ({"nlu.yml": RASA}, [("give it hay", "feed"), ("a bath", "wash")], {}),
    "lex-v1": (
        {
            "bot.json": {
                "resource": {
                    "intents": [{"name": "feed", "sampleUtterances": ["hay"], **FEED}, {"name": "wash", **WASH}]
                },
                "metadata": {"importType": "LEX"},
            }
        },
        [("hay", "feed")],
        {"feed": "give food to an animal", "wash": "clean an animal"},
    ),
    "lex-v2": (
        {
            "manifest.json": {"metadata": {"schemaVersion": "1.0"}},
            "Farm/BotLocales/en_GB/Intents/feed/Intent.json": {
                "name": "feed",
                "sampleUtterances": [{"utterance": "hay"}],
                **FEED,
            },
            "Farm/BotLocales/en_GB/Intents/FallbackIntent/Intent.json": {
                "name": "FallbackIntent",
                "description": "Default intent when no other intent matches",
                "parentIntentSignature": "AMAZON.FallbackIntent",
            },
        },
        [("hay", "feed")],
        {"feed": "give food to an animal"},
    ),
    "dialogflow-cx": (
        {
            "agent.json": {"displayName": "farm"},
            "intents/feed/feed.json": {"displayName": "feed", **FEED},
            "intents/feed/trainingPhrases/en.json": {"trainingPhrases": [{"parts": [{"text": "give it hay"}]}]},
            "intents/wash/wash.json": {"displayName": "wash", **WASH},
            "intents/none/none.json": {"displayName": "none", "isFallback": True, "description": "anything else"},
        },
        [("give it hay", "feed")],
        {"feed": "give food to an animal", "wash": "clean an animal"},
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_files_of_assistants_are_read_with_descriptions(name, tmp_path, run):
    files, examples, descriptions = EXPORTS[name]
    lay_out(tmp_path / "in", {path: it if isinstance(it, str) else json.dumps(it) for path, it in files.items()})
    for path in (tmp_path / "in", *([tmp_path / "in" / min(files)] if len(files) == 1 else [])):
        assert read_with_names(path) == (examples, descriptions)
    out, texts = tmp_path / "intents", tmp_path / "log.txt"
    texts.write_text("\n".join(["hay for the animal", "food for an animal", "clean it", "clean an animal"]))
    assert "intents" in run("fit", tmp_path / "in", "--log", texts, "--out", out)[0]
    assert dict(IntentClassifier.load(out).descriptions_) == descriptions
    assert set(read_labelled(tmp_path / "in")) >= set(examples)


def test_damaged_files_of_assistants_are_refused_with_their_place(tmp_path, run):
    path = tmp_path / "nlu.yml"
    path.write_text(RASA + "- intent: sell\n  examples: |\n    how much\n")
    out = tmp_path / "intents"
    assert "nlu.yml, line 10: an example must start with" in run("fit", path, "--out", out, code=1)[1]
    path.write_text("language: en\n")
    assert run("fit", path, "--out", out, code=1)[1].count("\n") == 1
    layout_named("dialogflow cx-with-two-languages").write(tmp_path / "agent")
    message = run("fit", tmp_path / "agent", "--out", out, code=1)[1]
    assert "the export has de, en" in message and "turnwise corpus import dialogflow" in message


def test_fitting_again_replaces_the_classifier(table, tmp_path, run):
    out = tmp_path / "intents"
    run("fit", table, "--out", out)
    run("examples", "add", out, "hours", "when do you open")
    printed = json.loads(run("fit", table, "--out", out, "--head", "prototypes", "--false-rejection", 0, "--json")[0])
    assert (printed["intents"], printed["head"], printed["calibration"]["threshold"]) == (3, "prototypes", None)
    assert json.loads(run("predict", out, "elephants", "--json")[0])[0]["threshold"] is None


def test_errors_are_one_line(table, tmp_path, run):
    out = tmp_path / "intents"
    for arguments, message in (
        (("fit", tmp_path / "nowhere.csv", "--out", out), "cannot be read: there is no such file"),
        (("fit", table, "--out", out, "--text", "message"), "no column 'message'; it has 'text', 'intent', 'remark'"),
        (("fit", table, "--out", tmp_path), "is not an intent classifier"),
        (("predict", tmp_path, "hello"), "holds no intent classifier"),
        (("examples", "add", tmp_path, "x", "hello"), "holds no intent classifier"),
    ):
        stdout, stderr = run(*arguments, code=1)
        assert (stdout, stderr.count("\n")) == ("", 1)
        assert message in stderr
    assert not out.exists()
    run("fit", table, "--out", out)
    assert "no examples of 'nothing'" in run("examples", "remove", out, "nothing", code=1)[1]
    assert "non-blank" in run("examples", "add", out, "x", " ", code=1)[1]
    assert "above 0" in run("calibrate", out, table, "--false-rejection", 0, code=1)[1]
    assert "not an example itself" in run("calibrate", out, table, code=1)[1]
    run("fit", table, "--out", out, "--head", "forest", code=2)
    run("predict", out, code=2)
    run("predict", out, "hello", "--file", table, code=2)


def test_every_table_format_gives_the_same_examples(table, tmp_path):
    expected = read_labelled(table)
    assert len(expected) == 12 + len(OUTSIDE)
    tabbed = tmp_path / "examples.tsv"
    tabbed.write_text("intent\ttext\n" + "".join(f"{intent}\t{text}\n" for text, intent in expected), encoding="utf-8")
    lines = tmp_path / "examples.jsonl"
    lines.write_text(
        "".join(json.dumps({"text": text, "intent": intent}) + "\n" for text, intent in expected) + '\n{"text": "x"}\n'
    )
    parquet = tmp_path / "examples.parquet"
    texts, intents = [text for text, _ in expected], [intent for _, intent in expected]
    pq.write_table(pa.table({"text": [*texts, "x"], "intent": [*intents, None]}), parquet)
    for path in (tabbed, lines, parquet):
        assert read_labelled(path) == expected
        assert read_texts(path)[:17] == [text for text, _ in expected][:17]
    with pytest.raises(CorpusError, match="not a store"):
        read_labelled(tmp_path)


def test_a_table_without_labelled_texts_is_rejected(tmp_path):
    (tmp_path / "a.csv").write_text("text,intent\n,\nhello,\n,greeting\n")
    with pytest.raises(IntentError, match="no text with an intent"):
        read_labelled(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("text\nhello\n")
    with pytest.raises(CorpusError, match=r"no column 'intent'; it has 'text'.*--intent"):
        read_labelled(tmp_path / "a.csv")
    (tmp_path / "a.txt").write_text("hello\n\n there\n")
    with pytest.raises(CorpusError, match=r"none of the suffixes \.csv"):
        read_labelled(tmp_path / "a.txt")
    assert read_texts(tmp_path / "a.txt") == ["hello", " there"]


def test_a_store_gives_its_turns_with_an_intent(sample_world):
    from turnwise.corpus.storage.corpus import read_corpus

    store = sample_world(60)
    expected = [
        ("\x1e".join([*(each.text for each in dialogue.turns[max(0, place - 5) : place]), turn.text]), turn.intent)
        for dialogue in read_corpus(store)
        for place, turn in enumerate(dialogue.turns)
        if turn.speaker == "user" and turn.intent
    ]
    assert expected
    assert read_labelled(store) == expected


def test_test_reports_metrics_leakage_and_unknown_intents(table, tmp_path, run):
    out = tmp_path / "intents"
    printed = json.loads(run("fit", table, "--out", out, "--json")[0])
    assert printed["head"] == printed["head_selection"]["head"] == "logistic"
    held_out = tmp_path / "held-out.csv"
    rows = [
        "where is my parcel now,track_order",
        "purple elephants dance,out_of_scope",
        "where is my parcel,track_order",
    ]
    held_out.write_text("\n".join(["text,intent", *rows, "when do you open,hours"]), encoding="utf-8")
    stderr = run("test", out, held_out, code=1)[1]
    assert "no examples of 'hours' (1 texts)" in stderr and stderr.count("\n") == 1
    page = tmp_path / "test.html"
    stdout, stderr = run("test", out, held_out, "--unknown-out-of-scope", "--out", page)
    assert stderr.startswith("warning: 1 of 4 texts are also examples of the classifier")
    for word in ("2 in scope, 2 out of scope", "hours (1)", "5.0% requested", "precision", "confidence"):
        assert word in stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    arguments = ("test", out, held_out, "--unknown-out-of-scope", "--exclude-examples", "--json")
    stdout, stderr = run(*arguments)
    assert (json.loads(stdout)["texts"], json.loads(stdout)["in_examples"], stderr) == (3, 1, "")
    run("test", out, held_out, "--out", tmp_path / "test.pdf", code=2)


def test_predictions_are_written_with_the_columns_of_the_file(table, tmp_path, run):
    out, predictions = tmp_path / "intents", tmp_path / "predictions.csv"
    run("fit", table, "--out", out)
    stdout, _ = run("predict", out, "--file", table, "--out", predictions)
    with predictions.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert f"rows           {len(rows)}" in stdout and len(rows) == 13 + len(OUTSIDE)
    assert rows[0]["intent"] == rows[0]["predicted_intent"] == "track_order" and rows[0]["remark"] == "said, twice"
    printed = json.loads(run("predict", out, "hello there", "--out", tmp_path / "one.jsonl", "--json")[0])
    assert (printed["rows"], printed["accepted"] + printed["rejected"]) == (1, 1)
    assert "is the input" in run("predict", out, "--file", table, "--out", table, code=2)[1]


def test_report_on_a_table_and_on_a_classifier_folder(table, tmp_path, run):
    page, out = tmp_path / "report.html", tmp_path / "intents"
    stdout, _ = run("report", table, "--folds", 4, "--false-rejection", 0.2, "--out", page)
    assert "12 in scope, 5 out of scope, classified in 4 folds" in stdout and "20.0% requested" in stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    printed = json.loads(run("report", table, "--head", "prototypes", "--false-rejection", 0, "--json")[0])
    assert printed["settings"]["head"] == "prototypes" and printed["settings"]["false_rejection"] is None
    assert (printed["in_scope"], printed["out_of_scope"], printed["false_rejection"]["value"]) == (12, 5, 0)
    run("fit", table, "--head", "prototypes", "--false-rejection", 0.3, "--out", out)
    run("examples", "add", out, "refund", "refund me")
    printed = json.loads(run("report", out, "--json")[0])
    assert (printed["settings"]["head"], printed["settings"]["false_rejection"]) == ("prototypes", 0.3)
    assert printed["in_scope"] == 13
    assert "omit --head" in run("report", out, "--head", "logistic", code=2)[1]


def test_context(tmp_path, run):
    path, out = tmp_path / "examples.csv", tmp_path / "intents"
    rows = [
        (f"please wait\nshall I {verb} it", answer, intent)
        for verb, intent in (("book", "book_flight"), ("cancel", "cancel_order"))
        for answer in ("yes", "okay then", "do it")
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("context", "text", "intent"), *rows])
    stdout, _ = run("fit", path, "--out", out)
    assert "context" in stdout and "used, compared on 6 examples" in stdout
    stdout, _ = run("predict", out, "yes", "--context", "please wait", "--context", "shall I cancel it")
    assert "cancel_order" in stdout
    run("predict", out, "--file", path, "--out", tmp_path / "predicted.csv")
    with (tmp_path / "predicted.csv").open(encoding="utf-8") as file:
        assert [row["predicted_intent"] for row in csv.DictReader(file)] == [intent for *_, intent in rows]
    _, stderr = run("predict", out, "--file", path, "--context", "hello", code=2)
    assert "a file with a column 'context'" in stderr
