"""Memory does not grow with the corpus: arrays on disk, and whole stages in separate processes."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from benchmarks import corpus_scale

from tests.helpers.tiny import backbone
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.encoder import Encoder
from turnwise.objectives.registry import make_objective
from turnwise.training import examples as examples_module
from turnwise.training.disk_cache import TrainingCorpus, load_array, read_next
from turnwise.training.examples import extract_examples
from turnwise.training.tokens import tokenise_corpus

PROC = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here: peak memory is read from it")
MEGABYTE = 1_000_000


def corpus(place: Path, dialogues: int) -> Corpus:
    """Write dialogues of ten turns, half of which are unique."""
    with StoreWriter(place) as writer:
        for number in range(dialogues):
            turns = (
                Turn(("user", "system")[n % 2], f"this is said in {number * n % 2 or number} at {n}") for n in range(10)
            )
            writer.write(Dialogue(str(number), tuple(turns)))
        writer.commit({})
    return read_corpus(place)


@pytest.mark.full
def test_tokens_and_examples_are_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five times the turns take hardly more memory; eight bytes for each of the 16,000 more turns would be 128 kB."""
    monkeypatch.setattr("turnwise.training.disk_cache.BATCH_DIALOGUES", 100)
    monkeypatch.setattr(examples_module, "_COPY_ROWS", 1_000)
    monkeypatch.setattr("turnwise.corpus.storage.rows.GROUP_TURNS", 1_000)
    tokenizer = Encoder.load(backbone(), device="cpu").backbone.tokenizer
    objectives = {"wmdc": make_objective("wmdc", {}), "dse": make_objective("dse", {"positives": "dropout"})}
    peaks = []
    for dialogues in (100, 400, 2_000):  # the first warms up what is made once
        source = corpus(tmp_path / f"store-{dialogues}", dialogues)
        tracemalloc.start()
        texts = tokenise_corpus(TrainingCorpus(source, tmp_path / f"cache-{dialogues}"), tokenizer)
        actual = extract_examples(TrainingCorpus(source, tmp_path / f"cache-{dialogues}"), texts, objectives)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(texts) == 10 * dialogues
        assert len(actual["wmdc"]) == 24 * dialogues
    assert peaks[2] < peaks[1] + 128_000


def test_reading_ahead_and_releasing_change_nothing(tmp_path: Path) -> None:
    np.arange(60_000).tofile(tmp_path / "values.bin")
    mapped = load_array(tmp_path / "values.bin", np.int64)
    for array in (mapped, mapped.reshape(-1, 3, 2), np.arange(5)):
        expected = array.tolist()
        read_next(array, [(0, len(array)), (1, 3), (4, 4), (len(array) - 1, len(array))])
        assert array.tolist() == expected


def peaks(folder: Path, utterances: int, *stages: str) -> dict[str, int]:
    """Return the peak anonymous memory of each stage."""
    rows = list(corpus_scale.results(folder, utterances, list(stages)))
    return {str(row["stage"]): int(str(row["anonymous"])) for row in rows if row["stage"] in stages}


@PROC
@pytest.mark.full
def test_stages_use_little_memory(tmp_path: Path) -> None:
    actual = peaks(tmp_path, 40_000, "import", "stats", "augment")
    assert list(actual) == ["import", "stats", "augment"]
    assert all(20 * MEGABYTE < peak < 250 * MEGABYTE for peak in actual.values()), actual


@PROC
@pytest.mark.full
def test_stages_grow_by_few_bytes_per_utterance(tmp_path: Path) -> None:
    """Forty bytes are a gigabyte and a half for 37 million utterances."""
    few, many = 200_000, 2_000_000
    small, large = (peaks(tmp_path / str(size), size, *corpus_scale.STAGES) for size in (few, many))
    grown = {stage: (large[stage] - small[stage]) / (many - few) for stage in corpus_scale.STAGES}
    assert all(size < 40 for size in grown.values()), grown
