"""Stores and data sets by name, `turnwise corpus overlap` and `turnwise corpus decontaminate`."""

import json
from pathlib import Path

import pytest

from tests.helpers.command_line import run
from tests.helpers.stores import write_store
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.intents import load_intents
from turnwise.evaluation.leakage import open_text_collection


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private data set of intents, and a store next to it."""
    folder = tmp_path_factory.mktemp("data")
    for split, texts in (("train", ["send it", "stop it"]), ("test", ["Send it!", "where is it"])):
        path = folder / "intents_csv" / "orders" / f"{split}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text,intent\n" + "".join(f"{text},{number}\n" for number, text in enumerate(texts)))
    dialogues = [
        Dialogue("1", (Turn(USER, "where is it?"), Turn(SYSTEM, "here")), split="train"),
        Dialogue("2", (Turn(USER, "bye"),), split="test"),
    ]
    write_store(folder / "store", dialogues, reader="jsonl")
    return folder


def texts(name: str, data: Path | None) -> list[list[str]]:
    return [list(dialogue) for dialogue in open_text_collection(name, data).dialogues()]


def test_stores_and_data_sets_are_read_as_a_whole_or_by_split(data: Path) -> None:
    assert texts("orders", data) == [["send it"], ["stop it"], ["Send it!"], ["where is it"]]
    assert texts("orders:test", data) == [["Send it!"], ["where is it"]]
    store = str(data / "store")
    assert texts(store, None) == [["where is it?", "here"], ["bye"]]
    assert texts(f"{store}:train", None) == [["where is it?", "here"]]


def test_unknown_names_are_reported(data: Path) -> None:
    with pytest.raises(DatasetError, match=r"ordres is not a store, and no data set in .*: import a corpus"):
        open_text_collection("ordres", data)
    with pytest.raises(DatasetError, match="orders is not a store, and no --data is given"):
        open_text_collection("orders")


def test_sample_data_have_the_texts_of_all_tasks(sample_world) -> None:  # type: ignore[no-untyped-def]
    world = sample_world(200)
    collected = {text for dialogue in texts("sample", world) for text in dialogue}
    assert {example.text for example in load_intents("sample", world).examples} <= collected
    with pytest.raises(DatasetError, match="sample has no splits: name it without :test"):
        texts("sample:test", world)


def test_the_command_prints_both_directions_with_examples(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    command = ("corpus", "overlap", "orders:test", "store", "--data", data)
    text = " ".join(run(*command).stdout.split())
    assert "orders:test in store" in text and "store in orders:test" in text
    assert "0 of 2 (0.0%) others nearly" in text
    assert "nearly" not in run(*command, "--exact").stdout
    assert "texts 1 of 2 (50.0%)" in text and "texts 1 of 3 (33.3%)" in text
    assert "text where is it?" in text and "text where is it " in text
    entries = json.loads(run(*command, "--json", "--examples", 0).stdout)
    assert [(entry["shared_texts"], entry["texts"], entry["text_examples"]) for entry in entries] == [
        *((1, 2, []), (1, 3, []))
    ]
    assert "name two or more" in run("corpus", "overlap", "orders", "--data", data, code=2).stderr
    assert "nothing is not a store" in run("corpus", "overlap", "orders", "nothing", "--data", data, code=1).stderr


def test_the_command_drops_what_is_in_test_data(data: Path, tmp_path: Path) -> None:
    dialogues = [
        *(Dialogue(text, (Turn(USER, text),)) for text in ("SEND IT", "Where is it?", "stop it")),
        Dialogue("pair", (Turn(USER, "send it"), Turn(SYSTEM, "done"))),
    ]
    write_store(tmp_path / "store", dialogues, reader="jsonl")
    command = ("corpus", "decontaminate", tmp_path / "store", "--against", "orders:test", "--data", data)
    text = " ".join(run(*command, "--out", tmp_path / "clean").stdout.split())
    assert "read 4 dialogues" in text and "turns dropped, in orders:test 3" in text and "kept 2 dialogues" in text
    assert texts(str(tmp_path / "clean"), None) == [["stop it"], ["done"]]
    assert "choose another --out" in run(*command, "--out", tmp_path / "store", code=1).stderr
    run(*command, "--against", "orders:train", "--out", tmp_path / "cleaner", "--json")
    assert texts(str(tmp_path / "cleaner"), None) == [["done"]]
    text = " ".join(run(*command, "--by-dialogue", "--out", tmp_path / "dialogues").stdout.split())
    assert "dialogues dropped, in orders:test 2" in text and "kept 2 dialogues" in text
    assert texts(str(tmp_path / "dialogues"), None) == [["stop it"], ["send it", "done"]]
