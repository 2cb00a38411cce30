"""`turnwise embed`: every input and output format, resuming, and errors that are reported before any work."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import turnwise.assist.search.embedding
from tests.helpers.command_line import run
from turnwise.assist.search.embedding import embed
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError, SearchError
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.texts import open_text_source
from turnwise.models.encoder import Encoder
from turnwise.models.loading import wrap_model

TEXTS = ["where is my parcel", "", "it is on its way", "Ünïcödé, naïve 😀", "where is my parcel", 'said "so", twice']


class LetterCounter:
    """An encoder that counts letters, records its inputs, and is interrupted after some calls."""

    fingerprint = "letters"

    def __init__(self, calls: int | None = None) -> None:
        self.inputs: list[list[str]] = []
        self.calls = calls

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if self.calls is not None and len(self.inputs) == self.calls:
            raise KeyboardInterrupt
        self.inputs.append(list(texts))
        return np.array([[len(text), text.count("a"), text.count("e") / 3] for text in texts], np.float32).reshape(
            -1, 3
        )


def expected(texts: Sequence[str]) -> np.ndarray:
    return LetterCounter().encode(texts)


def lines(path: Path, texts: Sequence[str]) -> Path:
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def table(path: Path, texts: Sequence[str], column: str = "text") -> Path:
    match path.suffix:
        case ".txt":
            return lines(path, texts)
        case ".csv" | ".tsv":
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
                writer.writerows([["id", column], *([number, text] for number, text in enumerate(texts))])
        case ".jsonl":
            lines(path, [json.dumps({"id": number, column: text}) for number, text in enumerate(texts)])
        case ".parquet":
            pq.write_table(pa.table({"id": range(len(texts)), column: pa.array(texts, pa.large_string())}), path)
    return path


def written(path: Path) -> tuple[list[str] | None, np.ndarray]:
    match path.suffix:
        case ".npy":
            return None, np.load(path)
        case ".parquet":
            rows = pq.read_table(path).to_pylist()
        case _:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows], np.array([row["vector"] for row in rows], np.float32)


@pytest.mark.parametrize("output", [".npy", ".parquet", ".jsonl"])
@pytest.mark.parametrize("given", [".txt", ".csv", ".tsv", ".jsonl", ".parquet"])
def test_input_and_output_formats(given: str, output: str, tmp_path: Path) -> None:
    source, out = table(tmp_path / f"in{given}", TEXTS), tmp_path / f"out{output}"
    result = embed(wrap_model(LetterCounter()), open_text_source(source), out)
    assert (result.texts, result.size, result.resumed) == (6, 3, 0)
    texts, vectors = written(out)
    assert texts in (None, TEXTS)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, expected(TEXTS))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, out.name])


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet"])
def test_text_column(kind: str, tmp_path: Path) -> None:
    source = table(tmp_path / f"in{kind}", TEXTS, "body")
    embed(wrap_model(LetterCounter()), open_text_source(source, "body"), tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(TEXTS))
    with pytest.raises(CorpusError, match=r"has no column 'text'; it has 'id', 'body'.*--column"):
        list(open_text_source(source).rows())


def test_json_lines_of_strings(tmp_path: Path) -> None:
    source = lines(tmp_path / "in.jsonl", [json.dumps(text) for text in TEXTS])
    assert [text for text, _ in open_text_source(source).rows()] == TEXTS


def test_turns_of_a_store(tmp_path: Path) -> None:
    dialogues = [
        Dialogue("one", (Turn("user", "hello"), Turn("system", "where to")), split="train"),
        Dialogue(
            "two", (Turn("user", "a taxi"), Turn("user", "now please"), Turn("system", "of course")), split="test"
        ),
    ]
    with StoreWriter(tmp_path / "store") as writer:
        for dialogue in dialogues:
            writer.write(dialogue)
        writer.commit({})
    embed(wrap_model(LetterCounter()), open_text_source(tmp_path / "store"), tmp_path / "all.parquet")
    rows = pq.read_table(tmp_path / "all.parquet").to_pylist()
    assert [(row["dialogue"], row["turn"], row["speaker"], row["text"]) for row in rows] == [
        (dialogue.id, number, turn.speaker, turn.text)
        for dialogue in dialogues
        for number, turn in enumerate(dialogue.turns)
    ]
    np.testing.assert_array_equal([row["vector"] for row in rows], expected([row["text"] for row in rows]))
    users = open_text_source(tmp_path / "store", splits=["test"], speakers=["user"])
    assert [result[-1] for _, result in users.rows()] == ["a taxi", "now please"]
    with pytest.raises(CorpusError, match=r"'usr': choose from .*Did you mean user\?"):
        open_text_source(tmp_path / "store", speakers=["usr"])


# ---- resuming


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnwise.assist.search.embedding, "CHUNK", 4)


def numbered(path: Path, count: int = 18) -> list[str]:
    texts = [f"text number {number}{'a' * number}" for number in range(count)]
    lines(path, texts)
    return texts


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", [".npy", ".parquet", ".jsonl"])
def test_interrupted_run_is_continued(kind: str, tmp_path: Path) -> None:
    texts, out = numbered(tmp_path / "in.txt"), tmp_path / f"out{kind}"
    with pytest.raises(KeyboardInterrupt):
        embed(wrap_model(LetterCounter(calls=3)), open_text_source(tmp_path / "in.txt"), out)
    assert not out.exists()
    (folder,) = (tmp_path / f".out{kind}.parts").iterdir()
    (folder / "incomplete.part").write_bytes(b"half")  # being written when the power failed
    later, seen = LetterCounter(), list[tuple[str, int, int | None]]()
    result = embed(
        wrap_model(later), open_text_source(tmp_path / "in.txt"), out, progress=lambda *each: seen.append(each)
    )
    assert result.resumed == 12
    assert later.inputs == [texts[12:16], texts[16:]]
    assert seen[-1] == ("encoding", 18, 18)
    np.testing.assert_array_equal(written(out)[1], expected(texts))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.txt", out.name])


@pytest.mark.usefixtures("small_chunks")
def test_other_model_texts_or_settings_start_again(tmp_path: Path) -> None:
    other = LetterCounter()
    other.fingerprint = "other"
    unknown = LetterCounter()
    unknown.fingerprint = None  # type: ignore[assignment]
    for changed in ("model", "texts", "settings", "unknown"):
        texts = numbered(tmp_path / "in.txt")
        first = wrap_model(LetterCounter(calls=2)) if changed != "unknown" else wrap_model(unknown)
        unknown.calls = 2
        with pytest.raises(KeyboardInterrupt):
            embed(first, open_text_source(tmp_path / "in.txt"), tmp_path / "out.npy")
        if changed == "texts":
            texts = numbered(tmp_path / "in.txt", 15)
        unknown.calls = None
        again = {"model": other, "unknown": unknown}.get(changed, LetterCounter())
        more: dict[str, Any] = {"normalise": False} if changed == "settings" else {}
        result = embed(wrap_model(again), open_text_source(tmp_path / "in.txt"), tmp_path / "out.npy", **more)
        assert result.resumed == (8 if changed == "texts" else 0)  # the first two chunks are equal
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(texts))


# ---- errors


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.jsonl", b'{"text": "a"}\n{"text": 5}\n', "line 2: 'text' must be a text, got 5"),
        ("in.csv", b"id,text\n1,a\n2\n", "line 3: 'text' must be a text, got nothing"),
        ("in.docx", b"", "has none of the suffixes .txt"),
    ],
)
def test_invalid_rows_are_reported_before_any_work(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    letters = LetterCounter()
    with pytest.raises(CorpusError, match=message):
        embed(wrap_model(letters), open_text_source(tmp_path / name), tmp_path / "out.npy")
    assert letters.inputs == []
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_invalid_paths_and_texts(tmp_path: Path) -> None:
    source = lines(tmp_path / "in.txt", ["a"])
    texts = open_text_source(source)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(SearchError, match="is a folder"):
        embed(wrap_model(LetterCounter()), texts, tmp_path / "folder.npy")
    with pytest.raises(SearchError, match="no texts"):
        embed(wrap_model(LetterCounter()), open_text_source(lines(tmp_path / "empty.txt", [])), tmp_path / "out.npy")
    with pytest.raises(CorpusError, match="only a store has splits and speakers"):
        open_text_source(source, speakers=["user"])
    with pytest.raises(CorpusError, match="is a folder but not a store"):
        open_text_source(tmp_path)
    with pytest.raises(CorpusError, match="does not exist"):
        open_text_source(tmp_path / "missing.txt")


# ---- the command


def test_command(tiny_folder: Callable[[str], Path], sample_world: Callable[[int], Path], tmp_path: Path) -> None:
    out = tmp_path / "vectors.parquet"
    result = json.loads(
        run(
            "embed", tiny_folder("bert"), sample_world(40), "--speaker", "user", "--normalise", "--out", out, "--json"
        ).stdout
    )
    rows = pq.read_table(out)
    assert result == {"out": str(out), "texts": len(rows), "size": 32, "resumed": 0}
    assert set(rows.column("speaker").to_pylist()) == {"user"}
    vectors = np.stack(rows.column("vector").to_numpy(zero_copy_only=False))
    expected_vectors = Encoder.load(tiny_folder("bert")).encode(rows.column("text").to_pylist(), normalise=True)
    np.testing.assert_allclose(vectors, expected_vectors, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["minilm", "missing.txt", "--out", "x.npy"], 1, "missing.txt does not exist"),
        (["minilm", ".", "--out", "x.npy"], 1, "not a store"),
        (["minilm", "in.txt", "--out", "x.csv"], 2, "does not end in .npy or .parquet or .jsonl"),
        (["minilm", "in.txt", "--out", "nowhere/x.npy"], 2, "does not exist"),
    ],
)
def test_command_errors(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\n")
    result = run("embed", *arguments, code=code)
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
