"""Texts are tokenised and examples found once for what they are made of, whoever asks at the same time."""

import fcntl
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from tests.helpers.tiny import backbone, corpus, divided, recipe, set_up_run
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.source import CorpusError
from turnwise.corpus.stats import compute_corpus_stats
from turnwise.corpus.store import Corpus, StoreWriter, read_corpus
from turnwise.models.encoder import Encoder
from turnwise.objectives.registry import make_objective
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import ExampleTable, extract_examples
from turnwise.training.loop import train
from turnwise.training.recipe import RecipeError
from turnwise.training.tokens import TokenTable, tokenise_corpus

OBJECTIVES = {name: make_objective(name, {}) for name in ("dse", "wmdc")}


def tokenizer() -> PreTrainedTokenizerBase:
    return Encoder.load(backbone(), device="cpu").backbone.tokenizer


def turns(table: TokenTable) -> list[tuple[object, ...]]:
    return [
        (table.tokens(turn).tolist(), table.speaker(turn), table.identity(turn), table.frequency(turn))
        for turn in range(len(table))
    ]


def rows(table: ExampleTable) -> list[object]:
    windows, labels = table.rows(np.arange(len(table)))
    return [windows.tolist(), labels.tolist()]


def stored(source: Corpus, place: Path) -> Corpus:
    """A store of what a corpus reads, and of nothing else."""
    with StoreWriter(place) as writer:
        for dialogue in source:
            writer.write(dialogue)
        writer.commit({})
    return read_corpus(place)


def test_two_runs_that_write_at_once_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one writes the other comes to the lock and waits there; then it takes what the first has finished."""
    monkeypatch.setattr("turnwise.training.disk_cache.BATCH_DIALOGUES", 10)
    flock, waiting, written = fcntl.flock, threading.Semaphore(0), Counter[str]()

    def asked(handle: int, operation: int) -> None:
        waiting.release()
        flock(handle, operation)

    def run(mine: PreTrainedTokenizerBase) -> tuple[TokenTable, dict[str, ExampleTable]]:
        def write(what: str, done: int, total: int | None = None) -> None:
            if done == 10:
                written[what] += 1
                for _ in range(2):  # both have asked for the lock, this one and the other
                    assert waiting.acquire(timeout=30)

        texts = tokenise_corpus(TrainingCorpus.of(corpus(), tmp_path / "cache"), mine, write)
        return texts, extract_examples(TrainingCorpus.of(corpus(), tmp_path / "cache"), texts, OBJECTIVES, write)

    monkeypatch.setattr(fcntl, "flock", asked)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, [tokenizer(), tokenizer()])
    assert written == {"tokenising": 1, "extracting examples": 1}
    monkeypatch.undo()
    texts = tokenise_corpus(TrainingCorpus.of(corpus(), tmp_path / "alone"), tokenizer())
    examples = extract_examples(TrainingCorpus.of(corpus(), tmp_path / "alone"), texts, OBJECTIVES)
    for found in (first, second):
        assert turns(found[0]) == turns(texts)
        assert {name: rows(table) for name, table in found[1].items()} == {
            name: rows(table) for name, table in examples.items()
        }
    left = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert left == sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert [name.partition("-")[0] for name in left] == ["examples", "texts"]


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train(recipe("wmdc", "steps=1"), corpus(), tmp_path / name, cache=tmp_path / "cache")
        assert not (tmp_path / name / "tokens").exists()
        if name == "one":
            before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == before
    # another objective has other examples and the same texts
    train(recipe("dse", "steps=1"), corpus(), tmp_path / "three", cache=tmp_path / "cache")
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()) == [
        "examples",
        "examples",
        "texts",
    ]


@pytest.mark.parametrize("what", ["tokenising", "extracting examples"])
def test_what_was_cut_off_leaves_nothing_behind(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.training.disk_cache.BATCH_DIALOGUES", 10)

    def stop(doing: str, done: int, total: int | None = None) -> None:
        if doing == what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        texts = tokenise_corpus(TrainingCorpus.of(corpus(), tmp_path), tokenizer(), stop)
        extract_examples(TrainingCorpus.of(corpus(), tmp_path), texts, OBJECTIVES, stop)
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ([] if what == "tokenising" else ["texts"])


def test_an_objective_without_examples_leaves_nothing_behind(tmp_path: Path) -> None:
    texts = tokenise_corpus(TrainingCorpus.of(corpus(), tmp_path), tokenizer())
    with pytest.raises(TurnwiseError, match="objective pairsupcon finds 0 examples"):
        extract_examples(TrainingCorpus.of(corpus(), tmp_path), texts, {"pairsupcon": make_objective("pairsupcon", {})})
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["texts"]


def test_shares_and_splits_of_one_store_do_not_mix(tmp_path: Path) -> None:
    """In one folder, each share's texts and examples are those of a store that holds nothing else."""
    whole = divided()
    train_only = Corpus(whole.stores, ["train"])
    readings = [whole, whole.sample(0.6), whole.sample(0.3), train_only, train_only.sample(0.6)]
    assert len({tuple(dialogue.id for dialogue in reading) for reading in readings}) == len(readings)
    mine = tokenizer()
    for number, reading in enumerate(readings):
        texts = tokenise_corpus(TrainingCorpus.of(reading, tmp_path / "cache"), mine)
        examples = extract_examples(TrainingCorpus.of(reading, tmp_path / "cache"), texts, OBJECTIVES)
        alone = stored(reading, tmp_path / f"store-{number}")
        expected = tokenise_corpus(TrainingCorpus.of(alone, tmp_path / f"alone-{number}"), mine)
        assert turns(texts) == turns(expected)
        others = extract_examples(TrainingCorpus.of(alone, tmp_path / f"alone-{number}"), expected, OBJECTIVES)
        assert {name: rows(table) for name, table in examples.items()} == {
            name: rows(table) for name, table in others.items()
        }
    assert len(list((tmp_path / "cache").iterdir())) == 2 * len(readings)
    # the whole corpus again, however it is asked for, is no new reading
    tokenise_corpus(TrainingCorpus.of(whole.sample(1.0), tmp_path / "cache"), mine)
    assert len(list((tmp_path / "cache").iterdir())) == 2 * len(readings)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_a_recipe_learns_from_its_share(share: float, tmp_path: Path) -> None:
    wanted = recipe("wmdc", f"corpus_share={share}", "windows=[1]")
    (loader,) = set_up_run(wanted, cache=tmp_path / "cache").loaders
    read = list(corpus().sample(share))
    assert len(loader.examples) == sum(len(dialogue.turns) - 1 for dialogue in read)
    said = [turn.text.strip().lower() for dialogue in read for turn in dialogue.turns]
    answers = Counter(turn.text.strip().lower() for dialogue in read for turn in dialogue.turns[1:])
    # responses are as frequent as they are in the share, not as in the whole corpus
    assert [loader.texts.frequency(turn) for turn in range(len(said))] == [answers[text] for text in said]


def test_shares_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for share in (0, -0.5, 1.5):
        with pytest.raises(RecipeError, match=f"corpus_share must be above 0 and at most 1, got {float(share)}"):
            recipe("dse", f"corpus_share={share}")
    with pytest.raises(CorpusError, match="a fraction of 1e-09 of 40 dialogues is none"):
        train(recipe("dse", "corpus_share=1e-9"), corpus(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_texts_are_told_apart_as_statistics_count_them(tmp_path: Path) -> None:
    said = ("Yes.", "yes. ", "yes", "\u00a0YES.", "Where is it?", "where  is it?", "WHERE IS IT?")
    with StoreWriter(tmp_path / "store") as writer:
        writer.write(Dialogue("d", tuple(Turn("user", text) for text in said)))
        writer.commit({})
    source = read_corpus(tmp_path / "store")
    texts = tokenise_corpus(TrainingCorpus.of(source, tmp_path / "cache"), tokenizer())
    numbers = [texts.identity(turn) for turn in range(len(said))]
    assert [numbers.index(number) for number in numbers] == [0, 0, 2, 0, 4, 5, 4]
    counted = compute_corpus_stats(source)
    assert counted.distinct_utterances == len(set(numbers)) == 4
    assert sorted(count for _, count in counted.common) == sorted(Counter(numbers).values())


def test_what_a_killed_run_left_is_written_over(tmp_path: Path) -> None:
    whole = tokenise_corpus(TrainingCorpus.of(corpus(), tmp_path / "whole"), tokenizer())
    place = next((tmp_path / "whole").iterdir())
    unfinished = tmp_path / "cut" / f".writing-{place.name}"
    unfinished.mkdir(parents=True)
    (unfinished / "tokens.bin").write_bytes(b"half")
    (unfinished / "other").write_bytes(b"")
    assert turns(tokenise_corpus(TrainingCorpus.of(corpus(), tmp_path / "cut"), tokenizer())) == turns(whole)
    assert sorted(path.name for path in (tmp_path / "cut").rglob("*")) == sorted(
        path.name for path in (tmp_path / "whole").rglob("*")
    )
