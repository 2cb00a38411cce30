"""`turnwise embed --engine ray`: every text is in one block and once in the table, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import HANG_SECONDS
from tests.helpers.command_line import run
from turnwise.assist.search import ray_embedding
from turnwise.assist.search.embedding import embed
from turnwise.assist.search.parquet_blocks import ParquetCorpus, open_corpus
from turnwise.assist.search.ray_embedding import LanceWriter, embed_on_ray
from turnwise.core.dialogue import Dialogue, Slot, Turn
from turnwise.core.errors import CorpusError, MissingPackageError, SearchError
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.texts import open_text_source
from turnwise.models.loading import load_model

# ---- blocks


def read_all(corpus: ParquetCorpus) -> tuple[list[Any], pa.Table]:
    """Return all items and rows, reading each block separately."""
    batches = [batch for block in range(corpus.blocks) for batch in corpus.read(block)]
    return [item for items, _ in batches for item in items], pa.concat_tables([table for _, table in batches])


@settings(max_examples=20)
@given(files=st.lists(st.integers(0, 40), min_size=1, max_size=4), group=st.integers(1, 15), size=st.integers(1, 50))
def test_parquet_files_are_read_unchanged(
    files: list[int], group: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    starts = np.cumsum([0, *files])
    expected_rows = pa.table(
        {
            "id": pa.array(range(starts[-1]), pa.int64()),
            "body": pa.array([f"text {n % 7}" for n in range(starts[-1])], pa.string()),
        }
    )
    for number, (first, last) in enumerate(pairwise(starts)):
        pq.write_table(
            expected_rows.slice(first, last - first), folder / f"part-{number}.parquet", row_group_size=group
        )
    (folder / "_SUCCESS").touch()
    (folder / "_metadata.parquet").write_bytes(b"another program's metadata")
    corpus = open_corpus(str(folder), "body", block_rows=size)
    assert corpus.texts == starts[-1]
    if not starts[-1]:
        assert corpus.blocks == 0
        return
    items, table = read_all(corpus)
    assert items == expected_rows["body"].to_pylist()
    assert table.to_pylist() == [{**row, "row": number} for number, row in enumerate(expected_rows.to_pylist())]


def store(folder: Path, dialogues: int = 30) -> Path:
    """Write dialogues of different lengths, speakers and splits."""
    with StoreWriter(folder) as writer:
        for number in range(dialogues):
            texts = [f"turn {turn} of {number} to town {turn % 3}" for turn in range(1 + number % 4)]
            turns = [
                Turn(
                    "system" if turn % 2 else "user",
                    text,
                    slots=(Slot.from_text(text, "town", len(text) - 1, len(text)),),
                )
                for turn, text in enumerate(texts)
            ]
            writer.write(Dialogue(f"d{number}", tuple(turns), split="test" if number % 3 == 0 else "train"))
        writer.commit({})
    return folder


@pytest.mark.parametrize("splits", [[], ["test"]])
@pytest.mark.parametrize("speakers", [[], ["system"]])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_store_is_read_as_by_the_local_engine(
    splits: list[str], speakers: list[str], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.corpus.storage.rows.GROUP_TURNS", 10)
    folder = store(tmp_path / "store")
    corpus = open_corpus(str(folder), splits=splits, speakers=speakers, block_rows=size)
    assert len(corpus.groups) > 5
    items, table = read_all(corpus)
    expected_rows = list(open_text_source(folder, splits=splits, speakers=speakers).rows())
    assert items == [item for item, _ in expected_rows]  # complete turns, with their slots
    columns = ("dialogue", "turn", "speaker", "text")
    assert [tuple(row[name] for name in columns) for row in table.to_pylist()] == [
        result for _, result in expected_rows
    ]
    # `row` counts all turns, selected or not
    every = [result for _, result in open_text_source(folder).rows()]
    assert [every[row] for row in table["row"].to_pylist()] == [result for _, result in expected_rows]


def test_identity_of_texts(tmp_path: Path) -> None:
    def identity(texts: Sequence[str], column: str = "text") -> str:
        pq.write_table(pa.table({column: texts}), tmp_path / "in.parquet")
        return open_corpus(str(tmp_path / "in.parquet"), column).identity

    assert identity(["a", "b"]) == identity(["a", "b"]) != identity(["a", "c"])
    assert identity(["a", "b"], "body") != identity(["a", "b"])
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "in.parquet")
    assert open_corpus(f"file://{tmp_path}/in.parquet").identity == open_corpus(str(tmp_path / "in.parquet")).identity
    folder = store(tmp_path / "store")
    assert open_corpus(str(folder)).identity != open_corpus(str(folder), speakers=["user"]).identity


def test_invalid_inputs(tmp_path: Path) -> None:
    def refused(source: str, message: str, column: str = "text", splits: Sequence[str] = ()) -> None:
        with pytest.raises((SearchError, CorpusError), match=message):
            open_corpus(str(tmp_path / source), column, splits)

    def written(name: str, **columns: Any) -> None:
        pq.write_table(pa.table(columns), tmp_path / name)

    refused("missing.parquet", "does not exist")
    (tmp_path / "in.txt").write_text("a\n")
    refused("in.txt", "reads only Parquet files and stores")
    (tmp_path / "empty").mkdir()
    refused("empty", "is not a store, and has no .parquet file")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 or not")
    refused("bad.parquet", "bad.parquet cannot be read")
    written("a.parquet", id=[1], text=["a"])
    refused("a.parquet", "has no column 'body'; it has 'id', 'text'. Choose one with --column", "body")
    refused("a.parquet", "column 'id' has type int64, not text", "id")
    refused("a.parquet", "only a store has", splits=["test"])
    written("vector.parquet", text=["a"], vector=[1])
    refused("vector.parquet", "has a column 'vector', which the output needs")
    (tmp_path / "two").mkdir()
    written("two/a.parquet", text=["a"])
    written("two/b.parquet", text=["a"], more=[1])
    refused("two", "b.parquet has other columns than .*a.parquet")
    store(tmp_path / "store")
    refused("store", "no dialogue is in split nowhere", splits=["nowhere"])
    corpus = open_corpus(str(tmp_path / "a.parquet"), block_rows=5)
    written("a.parquet", id=[], text=pa.array([], pa.string()))
    with pytest.raises(SearchError, match=r"a.parquet.*(has changed|cannot be read)"):
        read_all(corpus)


# ---- the table

SCHEMA = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.float32(), 2))])
RUN = {"turnwise": "1", "input": "texts", "model": "letters", "normalise": None, "max_length": None, "block_rows": 3}


def table_at(folder: Path, scheme: str = "", **changes: Any) -> LanceWriter:
    return LanceWriter(f"{scheme}{folder}", SCHEMA, {**RUN, **changes})


def batches(*rows: int) -> Iterator[pa.RecordBatch]:
    for row in rows:
        yield pa.RecordBatch.from_pylist([{"row": row, "vector": [row, row / 2]}], SCHEMA)


def rows_in(folder: Path) -> list[int]:
    rows: list[int] = lance.dataset(str(folder)).to_table()["row"].to_pylist()
    return rows


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "data").iterdir())


@pytest.mark.parametrize(
    "scheme", ["", "file-object-store://"]
)  # the second is a disk that Lance treats as object storage
def test_block_written_twice_counts_once(scheme: str, tmp_path: Path) -> None:
    out = tmp_path / "out.lance"
    table = table_at(out, scheme)
    assert not table.begin()
    for block in (2, 0, 1, 0, 2):
        table.write(block, batches(*range(3 * block, 3 * block + 3)))
    assert len(files_of(out)) == 5
    (out / "_turnwise" / ".tmpXYZ").write_bytes(b"cut off")
    assert table.finished_blocks() == {0, 1, 2}
    assert table.is_finished(1) and not table.is_finished(3)
    assert table.commit(3) == [3, 3, 3]
    assert rows_in(out) == list(range(9))
    assert len(files_of(out)) == 3  # duplicates are removed
    assert not list(out.glob("_turnwise/*"))


def test_finished_table_is_unchanged(tmp_path: Path) -> None:
    out = tmp_path / "out.lance"
    table = table_at(out)
    table.begin()
    table.write(0, batches(0, 1))
    (out / "other").mkdir()
    records = {path.name: path.read_bytes() for path in (out / "_turnwise").iterdir()}
    table.commit(1)
    # killed between the commit and the removal of the records
    (out / "_turnwise").mkdir()
    for name, content in records.items():
        (out / "_turnwise" / name).write_bytes(content)
    assert table_at(out, block_rows=100).begin()
    assert not (out / "_turnwise").exists()
    assert table_at(out).begin()
    assert rows_in(out) == [0, 1]
    assert lance.dataset(str(out)).version == 1


def test_table_of_another_run_is_rejected(tmp_path: Path) -> None:
    out = tmp_path / "out.lance"
    table_at(out).begin()
    assert not table_at(out).begin()
    for key in ("model", "input", "normalise", "turnwise", "block_rows"):
        with pytest.raises(SearchError, match=rf"is an unfinished table with another {key} \(before: {RUN[key]}\)"):
            table_at(out, **{key: "other"}).begin()
    table_at(out).write(0, batches(0))
    table_at(out).commit(1)
    with pytest.raises(SearchError, match=r"is a table with another model .*, max_length"):
        table_at(out, model="other", max_length=5).begin()
    assert rows_in(out) == [0]


def test_run_of_a_function_is_not_continued(tmp_path: Path) -> None:
    table_at(tmp_path / "out.lance", model=None).begin()
    with pytest.raises(SearchError, match="of a Python function, which may have changed"):
        table_at(tmp_path / "out.lance", model=None).begin()


def test_foreign_tables_and_files_are_untouched(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.lance"
    lance.write_dataset(pa.table({"a": [1]}), str(theirs))
    with pytest.raises(SearchError, match="a table that `embed` has not written"):
        table_at(theirs).begin()
    assert lance.dataset(str(theirs)).count_rows() == 1
    other = tmp_path / "other.lance"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(SearchError, match="has other files"):
        table_at(other).begin()


def test_exception_of_a_block_is_raised_unchanged(tmp_path: Path) -> None:
    def bad() -> Iterator[pa.RecordBatch]:
        yield from batches(0)
        raise SearchError("row 1 has no text")

    table = table_at(tmp_path / "out.lance")
    table.begin()
    with pytest.raises(SearchError, match="row 1 has no text"):
        table.write(0, bad())
    assert not table.is_finished(0)


def test_no_rows_no_table(tmp_path: Path) -> None:
    table = table_at(tmp_path / "out.lance")
    table.begin()
    table.write(0, batches())
    with pytest.raises(SearchError, match="no turn is by these speakers"):
        table.commit(1)
    assert not table.begin()  # another attempt is possible


# ---- on a cluster

#: A model that counts letters and records its inputs; in a worker it kills itself once at a "fatal" text, or is slow.
MODEL = """
import os, signal, sys, time
from pathlib import Path
import numpy as np

HERE = Path(__file__).parent

def letters(texts):
    worker = "default_worker" in sys.argv[0]
    for text in texts:
        if worker and "fatal" in text and not (HERE / "killed").exists():
            (HERE / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if worker:
        while (HERE / "slow").exists() and len(list(HERE.glob("out.lance/_turnwise/block-*.json"))) >= 3:
            time.sleep(0.05)
        (HERE / f"encoded-{time.time_ns()}-{os.getpid()}").write_text("\\n".join(texts))
    return np.array([[len(text), text.count("a"), text.count("e") / 3] for text in texts], np.float32).reshape(-1, 3)

letters.fingerprint = "letters"
"""


def expected(texts: Sequence[str]) -> np.ndarray:
    return np.array([[len(text), text.count("a"), text.count("e") / 3] for text in texts], np.float32)


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    """Start a local cluster for three workers; return its address."""
    os.environ.update(ray_embedding._RAY_ENVIRONMENT)
    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 27)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Return a working directory with a model named after the test."""
    (tmp_path / f"{request.node.name}.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def numbered(folder: Path, count: int, fatal: int | None = None) -> list[str]:
    """Write a folder of Parquet files with distinct texts."""
    texts = [
        f"text number {number}{' fatal' if number == fatal else ''}{'a' * (number % 9)}" for number in range(count)
    ]
    folder.mkdir()
    for part, first in enumerate(range(0, count, 45)):
        some = texts[first : first + 45]
        ids = pa.array(range(first, first + len(some)), pa.int32())
        pq.write_table(pa.table({"id": ids, "text": some}), folder / f"{part:03d}.parquet", row_group_size=20)
    return texts


def check_table(out: Path, texts: Sequence[str]) -> None:
    """Check that every text is in the table once, in order, with its vector."""
    rows = lance.dataset(str(out)).to_table()
    assert rows["row"].to_pylist() == rows["id"].to_pylist() == list(range(len(texts)))
    assert rows["text"].to_pylist() == list(texts)
    np.testing.assert_array_equal(np.stack(rows["vector"].to_numpy()), expected(texts))
    assert not (out / "_turnwise").exists()
    named = {
        Path(file.path).name for fragment in lance.dataset(str(out)).get_fragments() for file in fragment.data_files()
    }
    assert set(files_of(out)) == named


@pytest.mark.full
@pytest.mark.usefixtures("running")
def test_killed_worker_loses_and_duplicates_nothing(place: Path, request: pytest.FixtureRequest) -> None:
    texts = numbered(place / "corpus", 100, fatal=37)
    seen = list[tuple[str, int, int | None]]()
    model = f"{request.node.name}:letters"
    result = embed_on_ray(
        model, "corpus", "out.lance", workers=2, block_rows=15, progress=lambda *each: seen.append(each)
    )
    assert (place / "killed").exists()
    assert (result.texts, result.size, result.resumed) == (100, 3, 0)
    check_table(place / "out.lance", texts)
    assert seen[0] == ("encoding", 0, 100) and seen[-1] == ("encoding", 100, 100)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    # repeated, there is nothing to do
    again = embed_on_ray(model, "corpus", "out.lance", workers=2, block_rows=40)
    assert (again.texts, again.size, again.resumed) == (100, 3, 100)
    assert lance.dataset("out.lance").version == 1
    with pytest.raises(SearchError, match="is a table with another normalise"):
        embed_on_ray(model, "corpus", "out.lance", normalise=True)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from turnwise.cli import main; main()", "embed", *map(str, arguments)]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    last = time.monotonic() + HANG_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > last:
            process.kill()
            pytest.fail(f"the command ended or made no progress: {process.communicate()}")
        time.sleep(0.05)


@pytest.mark.full
def test_killed_command_is_continued(running: str, place: Path, request: pytest.FixtureRequest) -> None:
    texts = numbered(place / "corpus", 100)
    (place / "slow").touch()
    model = f"{request.node.name}:letters"
    options = ("--engine", "ray", "--block-rows", "15", "--workers", "2", "--address", running, "--out", "out.lance")
    notes = place / "out.lance" / "_turnwise"
    with subprocess.Popen(
        command(model, "corpus", *options), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as first:
        # no more blocks are encoded then, except one that the other worker has started
        wait_for(lambda: len(list(notes.glob("block-*.json"))) >= 3, first)
        first.send_signal(signal.SIGKILL)
    before = {text for path in place.glob("encoded-*") for text in path.read_text().split("\n")}
    (place / "slow").unlink()
    with pytest.raises(SearchError, match="another block_rows"):
        embed_on_ray(model, "corpus", "out.lance", block_rows=16)
    earlier_files = set(place.glob("encoded-*"))
    done = subprocess.run(command(model, "corpus", *options, "--json"), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["texts"] == 100 and result["size"] == 3 and result["resumed"] >= 45 - 5  # the last block has 10
    check_table(place / "out.lance", texts)
    after = {text for path in set(place.glob("encoded-*")) - earlier_files for text in path.read_text().split("\n")}
    assert len(after) == 100 - result["resumed"]
    assert before | after == set(texts)


@pytest.mark.full
@pytest.mark.usefixtures("running")
def test_real_model_matches_the_local_engine(
    tiny_folder: Callable[[str], Path], sample_world: Callable[[int], Path], tmp_path: Path
) -> None:
    model, source = str(tiny_folder("bert")), sample_world(40)
    options: dict[str, Any] = {"normalise": True, "max_length": 12}
    result = embed_on_ray(
        model, str(source), str(tmp_path / "out.lance"), speakers=["user"], workers=2, block_rows=100, **options
    )
    embed(load_model(model), open_text_source(source, speakers=["user"]), tmp_path / "out.parquet", **options)
    expected_rows = pq.read_table(tmp_path / "out.parquet")
    table = lancedb.connect(tmp_path).open_table("out")
    assert table.count_rows() == result.texts == len(expected_rows)
    rows = table.to_arrow()
    columns = ["dialogue", "turn", "speaker", "text"]
    assert rows.select(columns).to_pylist() == expected_rows.select(columns).to_pylist()
    vectors = [np.stack(table["vector"].to_numpy()) for table in (rows, expected_rows)]
    np.testing.assert_allclose(*vectors, atol=1e-5)
    nearest = table.search(vectors[0][3]).limit(1).to_list()
    assert nearest[0]["text"] == rows["text"][3].as_py()


@pytest.mark.full
@pytest.mark.usefixtures("running")
def test_errors_of_a_worker(place: Path, request: pytest.FixtureRequest) -> None:
    table = pa.table({"text": [*(f"text {number}" for number in range(30)), None]})
    pq.write_table(table, "in.parquet", row_group_size=25)
    with pytest.raises(SearchError, match=r"in.parquet, row group 1, row 5 of it \(from 0\) has no text"):
        embed_on_ray(f"{request.node.name}:letters", "in.parquet", "out.lance", workers=1, block_rows=10)
    with pytest.raises(SearchError, match="already belongs to a Ray cluster"):
        embed_on_ray(f"{request.node.name}:letters", "in.parquet", "out.lance", block_rows=10, address="127.0.0.1:1")


def test_worker_skips_finished_blocks_and_checks_the_model(place: Path, request: pytest.FixtureRequest) -> None:
    numbered(place / "corpus", 30)
    corpus = open_corpus("corpus", block_rows=RUN["block_rows"])
    schema = corpus.reader.schema.append(pa.field("row", pa.int64())).append(
        pa.field("vector", pa.list_(pa.float32(), 3))
    )
    task = ray_embedding.EmbeddingTask(
        f"{request.node.name}:letters", False, str(place), corpus, str(place / "out.lance"), schema, RUN
    )
    worker = ray_embedding._Worker(task)
    assert worker({"item": np.array([4])}) == {"block": [4]}
    worker._encoder.encode = None  # type: ignore[method-assign,assignment]
    assert worker({"item": np.array([4])}) == {"block": [4]}  # killed after its record, before it could report
    other = ray_embedding.EmbeddingTask(
        *(getattr(task, name) for name in ray_embedding.EmbeddingTask.__slots__[:-1]), {**RUN, "model": "other"}
    )
    with pytest.raises(SearchError, match=r"is not the model of the machine"):
        ray_embedding._Worker(other)({"item": np.array([0])})


# ---- the command


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["in.parquet", "--engine", "ray", "--out", "x.npy"],
            2,
            "x.npy does not end in .lance; use --engine local for that format",
        ),
        (["in.parquet", "--out", "x.npy", "--workers", "2"], 2, "needs --engine ray"),
    ],
)
def test_command_errors(
    arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["a"]}), "in.parquet")
    stderr = run("embed", "minilm", *arguments, code=code).stderr
    assert message in " ".join(stderr.replace("│", " ").split())
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_unreachable_cluster_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with (
        pytest.raises(SearchError, match=r"there is no Ray cluster at 127\.0\.0\.1:1: "),
        ray_embedding._cluster("127.0.0.1:1", None),
    ):
        pass


def test_missing_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(MissingPackageError, match=r"ray.data is not installed: pip install 'turnwise\[scale\]'"):
        embed_on_ray("minilm", "in.parquet", str(tmp_path / "x.lance"))
