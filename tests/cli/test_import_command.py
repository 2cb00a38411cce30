"""Tests `turnwise corpus import`: recognised formats, losses, splits and limits."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.helpers.layouts import lay_out
from turnwise.cli import app
from turnwise.cli.corpus_import import warn_of_losses
from turnwise.corpus.importing import formats
from turnwise.corpus.languages import sample_languages
from turnwise.corpus.storage.store import Store

runner = CliRunner()

SUPPORT_LOG = (
    "ticket_no;who;message;when\n"
    'T1;end-user;"Where is my parcel; it is late";03/01/2024 10:00\n'
    "T1;agent;It left our warehouse today.;2024-01-03T10:01:00\n"
    "T2;visitor;Hello, anyone there?;04/01/2024 09:30\n"
    "T2;bot;Hi! How can I help?;04/01/2024 09:31\n"
)

COLUMNS = ["--set", "conversation=ticket_no", "--set", "speaker=who", "--set", "text=message", "--set", "time=when"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "support.csv"
    path.write_text(SUPPORT_LOG, encoding="cp1252")
    return path


def run(*words: object, exit_code: int = 0, **options: object):
    result = runner.invoke(app, ["corpus", "import", *map(str, words)], **options)
    assert (result.exit_code == 0) == (exit_code == 0), result.output
    return result


def texts(folder: Path) -> dict[str, list[tuple[str, str]]]:
    return {dialogue.id: [(turn.speaker, turn.text) for turn in dialogue.turns] for dialogue in Store(folder)}


def test_recognised_log_is_imported_as_by_name(log: Path, tmp_path: Path):
    result = run("auto", log, "--out", tmp_path / "store", "--yes")
    assert "fits the reader `table`" in result.stderr
    assert "Where is my parcel; it is late" in result.stderr  # the preview
    assert texts(tmp_path / "store") == {
        "T1": [("user", "Where is my parcel; it is late"), ("system", "It left our warehouse today.")],
        "T2": [("user", "Hello, anyone there?"), ("system", "Hi! How can I help?")],
    }


def test_without_a_terminal_the_command_is_named_and_nothing_is_imported(log: Path, tmp_path: Path):
    result = run("auto", log, "--out", tmp_path / "store", exit_code=1)
    assert "--yes" in str(result.exception)
    assert "--set conversation=ticket_no" in str(result.exception)
    assert not (tmp_path / "store").exists()


def test_preview_is_masked(tmp_path: Path):
    path = tmp_path / "chat.txt"
    path.write_text("Customer: write to anna@mail.example\nAgent: Thank you\n" * 5, encoding="utf-8")
    result = run("auto", path, "--out", tmp_path / "store", "--step", "mask", "--yes")
    assert "anna@mail.example" not in result.stderr
    assert "[EMAIL]" in result.stderr


def test_the_report_says_what_was_masked_and_what_is_not_covered(tmp_path: Path):
    path = tmp_path / "chat.csv"
    lines = [f"{number},user,meine Nummer ist 0171 251488{number} und ich warte auf Antwort" for number in range(9)]
    path.write_text("\n".join(["conversation,speaker,text", *lines, "9,user,bye\n"]), encoding="utf-8")
    command = ("table", path, "--out", tmp_path / "store", "--step")
    result = run(*command, "mask")
    assert "guessed from the log" in result.stderr and "DE (texts in the language 'de')" in result.stderr
    assert result.stdout.count("meine Nummer ist [PHONE] und ich warte") == 1  # the examples are distinct
    assert "names within sentences" in result.stdout and "251488" not in result.stdout
    masking = json.loads(run(*command, "mask=strict", "--region", "DE", "--json").stdout)["masking"]
    assert masking["masked"] == {"phone": 9} and masking["regions"] == ["DE"]
    assert masking["examples"] == ["meine Nummer ist [PHONE] und ich warte auf Antwort"]
    assert masking["not_covered"] == ["names within sentences", "user names", "numbers of fewer than 7 digits"]
    result = run(*command, "mask=email")
    assert "guessed" not in result.stderr and "the kinds secret_url, url" in result.stdout
    assert json.loads(run(*command, "merge-speakers", "--json").stdout)["masking"] is None


def test_malformed_masking_options_are_refused(log: Path, tmp_path: Path):
    result = run("table", log, "--out", tmp_path / "s", *COLUMNS, "--mask-list", "customers.txt", exit_code=1)
    assert "--mask-list: expected NAME=FILE, got 'customers.txt'" in str(result.exception)


def test_own_settings_go_before_recognised_ones(log: Path, tmp_path: Path):
    run("auto", log, "--out", tmp_path / "store", "--yes", "--set", "text=who", "--set", "time=")
    assert texts(tmp_path / "store")["T1"] == [("user", "end-user"), ("system", "agent")]


def test_losses_are_reported_prominently(log: Path, tmp_path: Path):
    result = run("table", log, "--out", tmp_path / "store", *COLUMNS)
    assert "WARNING: 3 of 4 rows (75%) were lost" in result.stderr
    assert "--set time_format" in result.stderr
    formats = ["--set", "time_format=%d.%m.%Y", "--set", "time_format=%d/%m/%Y %H:%M"]
    result = run("table", log, "--out", tmp_path / "store", *COLUMNS, *formats)
    assert "WARNING" not in result.stderr
    assert len(texts(tmp_path / "store")) == 2


def test_formats_of_a_folder_are_detected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the question, the preview and the import together; again if a file has changed."""
    detected = []
    detect_files = formats.detect_files
    monkeypatch.setattr(formats, "detect_files", lambda *args: detected.append(args) or detect_files(*args))
    folder = lay_out(tmp_path / "in", {"a.csv": SUPPORT_LOG, "b.txt": "Customer: hello\nAgent: hi\n" * 2})
    run("auto", folder, "--out", tmp_path / "store", "--yes")
    assert len(Store(tmp_path / "store")) == 3
    assert len(detected) == 2
    lay_out(folder, {"b.txt": "Customer: hello\nAgent: hi\n\n" * 2})
    run("auto", folder, "--out", tmp_path / "store", "--yes")
    assert len(Store(tmp_path / "store")) == 4


def test_what_is_left_out_of_a_chat_counts_as_a_loss(tmp_path: Path):
    path = tmp_path / "chat.txt"
    lines = ["Anna: Shall we bake?", "Ben: Rye", "Anna: null", "Ben left"]
    path.write_text("".join(f"31/12/2023, 21:41 - {line}\n" for line in lines), encoding="utf-8")
    result = run("whatsapp", path, "--out", tmp_path / "store")
    assert "WARNING: 2 of 4 rows (50%) were left out. Left out most often: " in result.stderr


def test_what_is_left_out_on_purpose_is_no_loss(tmp_path: Path):
    path = tmp_path / "log.json"
    texts = {"message": "Shall we bake?", "join": "Ben has joined"}
    rows = [{"type": kind, "speaker": "user", "text": text} for kind, text in texts.items()]
    path.write_text(json.dumps({"messages": rows}), encoding="utf-8")
    result = run("json", path, "--out", tmp_path / "store", "--set", "where=type=message")
    assert "1 messages that `where` excludes" in result.stdout
    assert "WARNING" not in result.stderr


def test_reports_of_stores_that_do_not_say_what_was_left_out_on_purpose(capsys: pytest.CaptureFixture[str]):
    manifest = {"reader": "slack", "lost": {"rows": 0, "of": 8}, "left_out": {"join events": 2}, "reasons": {}}
    warn_of_losses(manifest)
    warn_of_losses(manifest | {"left_out_by_design": ["join events"]})
    assert capsys.readouterr().err.count("WARNING: 2 of 10 rows (20%) were left out.") == 1


def test_report_lists_roles_and_the_hole_policy(log: Path, tmp_path: Path):
    result = run("table", log, "--out", tmp_path / "store", *COLUMNS, "--holes", "keep")
    assert "agent: system" in result.stdout
    assert "keep: the neighbours" in " ".join(result.stdout.split())


def test_options_that_are_given_twice_are_an_error(log: Path, tmp_path: Path):
    result = run("table", log, "--out", tmp_path / "s", "--set", "text=a", "--set", "text=b", exit_code=1)
    assert "text is given more than once" in str(result.exception)


def test_split_and_limit(tmp_path: Path):
    rows = [{"id": f"c{n}", "messages": [{"speaker": "user", "text": "hi"}]} for n in range(200)]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    result = run("json", path, "--out", tmp_path / "s", "--split", "50/25/25", "--limit", 150, "--json")
    manifest = json.loads(result.stdout)
    assert (manifest["dialogues"], manifest["limit"]) == (150, 150)
    assert Store(tmp_path / "s").splits() == {"train", "valid", "test"}
    error = run("json", path, "--out", tmp_path / "s", "--split", "50/50", exit_code=1)
    assert "expected three percentages" in str(error.exception)


def test_text_reader_refuses_other_formats(tmp_path: Path):
    path = tmp_path / "nlu.yml"
    path.write_text('version: "3.1"\nnlu:\n- intent: greet\n  examples: |\n    - hello\n', encoding="utf-8")
    result = run("text", path, "--out", tmp_path / "s", exit_code=1)
    assert "import auto" in str(result.exception)


def test_files_that_cannot_be_read_are_listed_after_the_others_are_imported(log: Path, tmp_path: Path):
    (tmp_path / "chat.txt").write_text("Anna: hello\nAgent: hi\nAnna: bye\n")
    (tmp_path / "manual.pdf").write_text("%PDF")
    result = run("auto", tmp_path, "--out", tmp_path / "store", "--yes", "--set", "speakers=Anna=user", exit_code=1)
    assert "`table` for 1 file" in result.stderr and "`text` for 1 file" in result.stderr
    assert result.stdout.count("manual.pdf has a format that is not recognised") == 1
    assert str(result.exception).startswith("files that were not read (see above): 1;")
    assert set(texts(tmp_path / "store")) == {"T1", "T2", "chat.txt/1"}
    assert texts(tmp_path / "store")["chat.txt/1"][0] == ("user", "hello")


GERMAN = [
    "Guten Tag, mein Paket ist immer noch nicht angekommen, können Sie bitte nachsehen?",
    "Natürlich, nennen Sie mir bitte die Nummer Ihrer Bestellung.",
    "Ich habe die Rechnung zweimal bezahlt und möchte das Geld zurückhaben.",
    "Das tut mir leid, wir überweisen Ihnen den Betrag in den nächsten Tagen.",
]
JAPANESE = ["荷物がまだ届いていません。いつ届きますか?", "ご注文番号を教えていただけますか。確認いたします。"]


@pytest.mark.parametrize(("turns", "language"), [(GERMAN, "de"), (JAPANESE, "ja")])
def test_a_log_that_the_model_does_not_read_is_warned_of(turns: list[str], language: str, tmp_path: Path):
    def import_turns(name: str, texts: list[str]) -> str:
        lines = [f"{number // 2}\tuser\t{text}" for number, text in enumerate(texts)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["conversation\tspeaker\ttext", *lines]), encoding="utf-8")
        return run("table", tmp_path / f"{name}.tsv", "--out", tmp_path / name).stderr

    english = ["Hello, my parcel has not arrived yet, could you please have a look?", "Which order is it, please?"]
    warning = import_turns("other", turns)
    assert f"'{language}' (ISO 639), which turnwise-small does not read" in warning
    assert warning.endswith(f"turnwise start {tmp_path / 'other'} --model use-multilingual\n")
    assert "WARNING" not in import_turns("english", english)
    assert "WARNING" not in import_turns("mixed", [*english * 10, *turns])  # most of it is English


def test_masks_and_addresses_are_in_no_language(tmp_path: Path):
    path = tmp_path / "masked.csv"
    path.write_text("conversation,speaker,text\n1,user,[EMAIL] [PHONE] https://example.org/paket/verfolgung\n")
    run("table", path, "--out", tmp_path / "store")
    assert not sample_languages(Store(tmp_path / "store"))
