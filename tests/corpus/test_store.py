"""Tests that a store returns what was written, and is always the old one or the new one."""

import json
import os
import random
import re
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnwise
from tests.helpers import HANG_SECONDS
from tests.helpers.processes import start
from tests.helpers.stores import write_store
from tests.helpers.strategies import corpora
from turnwise import Dialogue, Turn, import_corpus, read_corpus
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.jsonl import to_json
from turnwise.corpus.storage import rows as rows_module
from turnwise.corpus.storage import writing as writing_module
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.storage.store import Store, require_speakers
from turnwise.corpus.storage.writing import StoreWriter


def test_unknown_speakers_are_reported_with_the_known_ones(tmp_path: Path) -> None:
    stores = [
        Store(write_store(tmp_path / speaker, [Dialogue("a", (Turn(speaker, "hello"), Turn("user", "hi")))]))
        for speaker in ("system", "speaker_2")
    ]
    assert [store.speakers() for store in stores] == [{"user", "system"}, {"user", "speaker_2"}]
    require_speakers(stores, ["user", "speaker_2", "system"])
    with pytest.raises(CorpusError, match=r"'sistem': choose from speaker_2, system, user\. Did you mean system\?"):
        require_speakers(stores, ["user", "sistem"])
    with pytest.raises(CorpusError, match=r"'speaker_2': choose from system, user\.$"):
        require_speakers(stores[:1], ["speaker_2"])


def test_documented_example_writes_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
    (example,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "write_store" in code]
    monkeypatch.chdir(tmp_path)
    exec(example, {"__name__": "__main__"})
    (dialogue,) = read_corpus("stores/mine", splits=["train"])
    assert dialogue.turns[0] == Turn("user", "Has my parcel been sent?", "track_order")
    manifest = Store("stores/mine").manifest
    assert (manifest["reader"], manifest["licence"], manifest["dialogues"]) == ("write_store", "CC0-1.0", 2)


@settings(max_examples=50)
@given(corpora())
def test_written_dialogues_are_read_again(dialogues: list[Dialogue]) -> None:
    with tempfile.TemporaryDirectory() as place:
        store = turnwise.write_store(iter(dialogues), f"{place}/store")
        assert list(store) == dialogues
        assert len(store) == len(dialogues)


def test_invalid_dialogues_leave_the_store_unchanged(tmp_path: Path) -> None:
    dialogues = some(2)
    turnwise.write_store(dialogues, tmp_path, facts={"made by": "a test"})
    for wrong, message in (
        ([], "there is no dialogue to write"),
        ([dialogues[0], "hello"], "item 1 is of type str: expected a Dialogue"),
        ([*dialogues, dialogues[0]], f"item 2: the id {dialogues[0].id!r} was there before"),
    ):
        with pytest.raises(CorpusError, match=message):
            turnwise.write_store(wrong, tmp_path)
        assert list(Store(tmp_path)) == dialogues
    assert Store(tmp_path).manifest["facts"] == {"made by": "a test"}
    turnwise.write_store(dialogues[:1], tmp_path)
    assert list(Store(tmp_path)) == dialogues[:1]


def write(folder: Path, dialogues: list[Dialogue]) -> Store:
    return Store(write_store(folder, dialogues, inputs=[]))


def some(count: int, word: str = "hello") -> list[Dialogue]:
    return [
        Dialogue(f"{word}-{number}", (Turn("user", f"{word} {number}"), Turn("system", "yes")))
        for number in range(count)
    ]


def test_round_trip_over_many_row_groups_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "GROUP_TURNS", 7)
    monkeypatch.setattr(writing_module, "FILE_GROUPS", 3)
    dialogues = some(100)
    store = write(tmp_path / "store", dialogues)
    assert list(store) == dialogues
    assert len(store.manifest["files"]) == 9
    assert sum(file["dialogues"] for file in store.manifest["files"]) == 100


def test_long_text_closes_its_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "GROUP_CHARACTERS", 1000)
    dialogues = [Dialogue(str(number), (Turn("user", "x" * 600),)) for number in range(4)]
    store = write(tmp_path / "store", dialogues)
    assert [batch.num_rows for batch in store.batches()] == [2, 2]
    assert list(store) == dialogues


def test_equal_dialogues_make_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, some(50))
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}


def test_replacing_leaves_no_trace_of_the_old_store(tmp_path: Path) -> None:
    write(tmp_path / "store", some(3))
    store = write(tmp_path / "store", some(5, "new"))
    assert list(store) == some(5, "new")
    assert {path.name for path in store.folder.iterdir()} == {
        "manifest.json",
        "rejected.jsonl",
        store.manifest["files"][0]["name"],
    }


def test_no_commit_keeps_the_old_store(tmp_path: Path) -> None:
    write(tmp_path / "store", some(3))
    before = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    with pytest.raises(RuntimeError), StoreWriter(tmp_path / "store") as writer:
        writer.write(some(1)[0])
        raise RuntimeError
    assert {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()} == before


def test_no_commit_removes_a_new_folder(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        writer.write(some(1)[0])
    assert not (tmp_path / "store").exists()


def test_interruption_between_commit_and_rejections_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(writing_module, "finish_commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path / "store") as writer:
            writer.write(some(1)[0])
            writer.reject(Rejection("file", 3, "turn", "the text is empty"))
            writer.commit({})
    assert not (tmp_path / "store" / "rejected.jsonl").exists()
    assert list(Store(tmp_path / "store")) == some(1)
    assert json.loads((tmp_path / "store" / "rejected.jsonl").read_text())["line"] == 3


@pytest.mark.parametrize("seed", range(5))
def test_kill_at_any_time_leaves_the_old_or_the_new_store(tmp_path: Path, seed: int) -> None:
    old, new = some(10, "old"), some(20_000, "new")
    write(tmp_path / "store", old)
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(to_json, new)))
    process = start(import_corpus, "jsonl", log, tmp_path / "store")
    if seed == 4:  # also one that is let through, so that the test is known to reach the commit
        process.join(HANG_SECONDS)
    else:
        while not list((tmp_path / "store").glob(".writing-*")) and process.is_alive():
            time.sleep(0.001)
        time.sleep(random.Random(seed).random() * 0.6)
        process.kill()
        process.join()
    dialogues = list(Store(tmp_path / "store"))
    texts = [dialogue.turns for dialogue in dialogues]
    assert texts in ([dialogue.turns for dialogue in old], [dialogue.turns for dialogue in new])
    if seed == 4:
        assert len(dialogues) == 20_000
    # and the next import is not disturbed by what was left
    again = import_corpus("jsonl", log, tmp_path / "store")
    assert len(again) == 20_000
    assert not list((tmp_path / "store").glob(".writing-*"))


def test_second_import_into_a_folder_is_locked_out(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store"), pytest.raises(CorpusError, match="another import is writing"):
        StoreWriter(tmp_path / "store")


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CorpusError, match="holds other files"):
        StoreWriter(tmp_path)
    with pytest.raises(CorpusError, match="is a file"):
        StoreWriter(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_missing_or_damaged_store(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="is not a store"):
        Store(tmp_path)
    store = write(tmp_path / "store", some(3))
    parquet = store.folder / store.manifest["files"][0]["name"]
    content = parquet.read_bytes()
    parquet.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorpusError, match="is damaged"):
        list(store)
    parquet.unlink()
    with pytest.raises(CorpusError, match="is missing"):
        list(store)
    (store.folder / "manifest.json").write_text("{")
    with pytest.raises(CorpusError, match="is damaged"):
        Store(store.folder)
    (store.folder / "manifest.json").write_text('{"format": 99, "generation": "x", "files": []}')
    with pytest.raises(CorpusError, match="format 99"):
        Store(store.folder)


def test_manifest_contents(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(to_json, some(3))) + '\n{"id": "broken"}\n')
    manifest = import_corpus("jsonl", log, tmp_path / "store", steps=["unicode", "minimum-turns=2"]).manifest
    assert manifest["reader"] == "jsonl"
    assert manifest["read"] == {"dialogues": 4, "utterances": 6}
    assert (manifest["dialogues"], manifest["utterances"], manifest["rejected"]) == (3, 6, 1)
    assert [step["step"] for step in manifest["steps"]] == ["unicode", "minimum-turns=2"]
    assert manifest["inputs"][0]["name"] == "log.jsonl"
    assert manifest["inputs"][0]["bytes"] == log.stat().st_size
    import hashlib

    assert manifest["inputs"][0]["sha256"] == hashlib.sha256(log.read_bytes()).hexdigest()
    assert str(tmp_path) not in json.dumps(manifest)
    rejected = [json.loads(line) for line in (tmp_path / "store" / "rejected.jsonl").read_text().splitlines()]
    assert rejected == [
        {
            "file": "log.jsonl",
            "line": 4,
            "kind": "dialogue",
            "reason": "not the expected layout: 'turns' is missing",
            "dialogue": "broken",
            "text": None,
        }
    ]


def test_strict_stops_at_the_first_fault_and_keeps_the_old_store(tmp_path: Path) -> None:
    write(tmp_path / "store", some(3))
    log = tmp_path / "log.jsonl"
    log.write_text(to_json(some(1)[0]) + "\nnot json\n")
    with pytest.raises(CorpusError, match=r"log\.jsonl, line 2: not valid JSON"):
        import_corpus("jsonl", log, tmp_path / "store", strict=True)
    assert list(Store(tmp_path / "store")) == some(3)


def test_no_accepted_dialogue_is_an_error_and_keeps_the_old_store(tmp_path: Path) -> None:
    write(tmp_path / "store", some(3))
    (tmp_path / "log.jsonl").write_text("{}\n")
    with pytest.raises(CorpusError, match=r"no dialogue of .* was accepted .*'id' is missing"):
        import_corpus("jsonl", tmp_path / "log.jsonl", tmp_path / "store")
    assert list(Store(tmp_path / "store")) == some(3)


def test_full_disk_keeps_the_old_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "store", some(3))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "store", some(9))
    monkeypatch.undo()
    assert list(Store(tmp_path / "store")) == some(3)


def identities(corpus: Corpus) -> list[str]:
    return [dialogue.id for dialogue in corpus]


def sampled(corpus: Corpus, share: float) -> list[str]:
    """The ids of a share, which may be none."""
    try:
        return identities(corpus.sample(share))
    except CorpusError as error:
        assert f"a fraction of {share:g} of {len(corpus)} dialogues is none: use a larger one" in str(error)
        return []


SHARES = st.floats(0, 1, exclude_min=True)


@settings(max_examples=40)
@given(corpora(40), SHARES, SHARES, st.sampled_from([None, ["train"], ["train", "test"]]))
def test_smaller_sample_is_a_subset_of_a_larger_one(
    dialogues: list[Dialogue], one: float, other: float, splits: list[str] | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = write(Path(folder) / "store", dialogues)
        expected = [dialogue.id for dialogue in dialogues if splits is None or dialogue.split in splits]
        if not expected:
            return
        corpus = Corpus([store], splits)
        smaller, larger = (sampled(corpus, share) for share in sorted((one, other)))
        # in the corpus' order, and nothing that the splits leave out
        assert larger == [identity for identity in expected if identity in set(larger)]
        assert smaller == [identity for identity in larger if identity in set(smaller)]
        for share, sample in ((min(one, other), smaller), (max(one, other), larger)):
            if sample:
                assert len(corpus.sample(share)) == len(sample)
        # what is drawn does not depend on what lies beside it
        if splits is not None:
            everything = set(sampled(Corpus([store]), one))
            assert sampled(corpus, one) == [identity for identity in expected if identity in everything]


def test_sample_of_a_sample_multiplies(tmp_path: Path) -> None:
    corpus = Corpus([write(tmp_path / "store", some(300))])
    assert identities(corpus.sample(0.5).sample(0.5)) == identities(corpus.sample(0.25))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_sample_size_matches_the_fraction(share: float, tmp_path: Path) -> None:
    """Ids are hashed, so that the size is binomial: within five deviations of its mean."""
    stores = [write(tmp_path / word, some(2000, word)) for word in ("first", "second")]
    for corpus in (Corpus(stores[:1]), Corpus(stores)):
        sample = len(corpus.sample(share))
        assert abs(sample - share * len(corpus)) < 5 * (share * (1 - share) * len(corpus)) ** 0.5
    both = [identity for store in stores for identity in identities(Corpus([store]).sample(share))]
    assert identities(Corpus(stores).sample(share)) == both
