"""Texts are tokenised and examples extracted once, also by runs at the same time."""

import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import AcquireReturnProxy, FileLock
from transformers import PreTrainedTokenizerBase

from tests.helpers import HANG_SECONDS
from tests.helpers.tiny import backbone, corpus, divided, recipe, set_up_run
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import CorpusError, RecipeError, TurnwiseError
from turnwise.corpus.stats import compute_corpus_stats
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import TurnTable
from turnwise.objectives.registry import make_objective
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import ExampleTable, extract_examples
from turnwise.training.loop import train
from turnwise.training.tokens import tokenise_corpus

OBJECTIVES = {name: make_objective(name, {}) for name in ("dse", "wmdc")}


def tokenizer() -> PreTrainedTokenizerBase:
    return Encoder.load(backbone(), device="cpu").backbone.tokenizer


def turns(table: TurnTable) -> list[tuple[object, ...]]:
    return [
        (table.tokens(turn).tolist(), table.speaker(turn), table.identity(turn), int(table.frequencies[turn]))
        for turn in range(len(table))
    ]


def rows(table: ExampleTable) -> list[object]:
    windows, labels = table.rows(np.arange(len(table)))
    return [windows.tolist(), labels.tolist()]


def kinds(cache: Path) -> list[str]:
    """Return the kinds of data in a cache."""
    return sorted(path.name.partition("-")[0] for path in cache.iterdir() if path.name != ".locks")


def stored(source: Corpus, place: Path) -> Corpus:
    """Store the dialogues that a corpus reads."""
    with StoreWriter(place) as writer:
        for dialogue in source:
            writer.write(dialogue)
        writer.commit({})
    return read_corpus(place)


def test_two_runs_share_a_cache_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one writes, the other waits for the lock, and then uses what the first has written."""
    monkeypatch.setattr("turnwise.training.disk_cache.BATCH_DIALOGUES", 10)
    waiting, written = threading.Semaphore(0), Counter[str]()

    class CountedLock(FileLock):
        def acquire(self, *arguments: Any, **options: Any) -> AcquireReturnProxy:
            waiting.release()
            return super().acquire(*arguments, **options)

    def run(mine: PreTrainedTokenizerBase) -> tuple[TurnTable, dict[str, ExampleTable]]:
        def write(what: str, done: int, total: int | None = None) -> None:
            if done == 10:
                written[what] += 1
                for _ in range(2):  # both have requested the lock
                    assert waiting.acquire(timeout=HANG_SECONDS)

        texts = tokenise_corpus(TrainingCorpus(corpus(), tmp_path / "cache"), mine, write)
        return texts, extract_examples(TrainingCorpus(corpus(), tmp_path / "cache"), texts, OBJECTIVES, write)

    monkeypatch.setattr("turnwise.training.disk_cache.FileLock", CountedLock)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, [tokenizer(), tokenizer()])
    assert written == {"tokenising": 1, "extracting examples": 1}
    monkeypatch.undo()
    texts = tokenise_corpus(TrainingCorpus(corpus(), tmp_path / "alone"), tokenizer())
    examples = extract_examples(TrainingCorpus(corpus(), tmp_path / "alone"), texts, OBJECTIVES)
    for actual in (first, second):
        assert turns(actual[0]) == turns(texts)
        assert {name: rows(table) for name, table in actual[1].items()} == {
            name: rows(table) for name, table in examples.items()
        }
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == sorted(
        path.name for path in (tmp_path / "alone").iterdir()
    )
    assert kinds(tmp_path / "cache") == ["examples", "texts"]


def test_cached_data_are_not_computed_again(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train(recipe("wmdc", "steps=1"), corpus(), tmp_path / name, cache=tmp_path / "cache")
        assert not (tmp_path / name / "tokens").exists()
        if name == "one":
            before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == before
    # another objective has other examples and the same texts
    train(recipe("dse", "steps=1"), corpus(), tmp_path / "three", cache=tmp_path / "cache")
    assert kinds(tmp_path / "cache") == ["examples", "examples", "texts"]


@pytest.mark.parametrize("what", ["tokenising", "extracting examples"])
def test_interrupted_writing_leaves_nothing_behind(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.training.disk_cache.BATCH_DIALOGUES", 10)

    def stop(doing: str, done: int, total: int | None = None) -> None:
        if doing == what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        texts = tokenise_corpus(TrainingCorpus(corpus(), tmp_path), tokenizer(), stop)
        extract_examples(TrainingCorpus(corpus(), tmp_path), texts, OBJECTIVES, stop)
    assert kinds(tmp_path) == ([] if what == "tokenising" else ["texts"])


def test_an_objective_without_examples_leaves_nothing_behind(tmp_path: Path) -> None:
    texts = tokenise_corpus(TrainingCorpus(corpus(), tmp_path), tokenizer())
    with pytest.raises(TurnwiseError, match="objective pairsupcon finds 0 examples"):
        extract_examples(TrainingCorpus(corpus(), tmp_path), texts, {"pairsupcon": make_objective("pairsupcon", {})})
    assert kinds(tmp_path) == ["texts"]


def test_fractions_and_splits_of_one_store_do_not_mix(tmp_path: Path) -> None:
    """In one cache, each selection has the texts and examples of a store with nothing else."""
    whole = divided()
    train_only = Corpus(whole.stores, ["train"])
    selections = [whole, whole.sample(0.6), whole.sample(0.3), train_only, train_only.sample(0.6)]
    assert len({tuple(dialogue.id for dialogue in selection) for selection in selections}) == len(selections)
    mine = tokenizer()
    for number, selection in enumerate(selections):
        texts = tokenise_corpus(TrainingCorpus(selection, tmp_path / "cache"), mine)
        examples = extract_examples(TrainingCorpus(selection, tmp_path / "cache"), texts, OBJECTIVES)
        alone = stored(selection, tmp_path / f"store-{number}")
        expected = tokenise_corpus(TrainingCorpus(alone, tmp_path / f"alone-{number}"), mine)
        assert turns(texts) == turns(expected)
        others = extract_examples(TrainingCorpus(alone, tmp_path / f"alone-{number}"), expected, OBJECTIVES)
        assert {name: rows(table) for name, table in examples.items()} == {
            name: rows(table) for name, table in others.items()
        }
    assert len(kinds(tmp_path / "cache")) == 2 * len(selections)
    # the whole corpus again, however it is asked for, is no new selection
    tokenise_corpus(TrainingCorpus(whole.sample(1.0), tmp_path / "cache"), mine)
    assert len(kinds(tmp_path / "cache")) == 2 * len(selections)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_a_recipe_uses_its_fraction_of_the_corpus(share: float, tmp_path: Path) -> None:
    run_recipe = recipe("wmdc", f"corpus_fraction={share}", "windows=[1]")
    (loader,) = set_up_run(run_recipe, cache=tmp_path / "cache").loaders
    read = list(corpus().sample(share))
    assert len(loader.examples) == sum(len(dialogue.turns) - 1 for dialogue in read)
    texts = [turn.text.strip().lower() for dialogue in read for turn in dialogue.turns]
    answers = Counter(turn.text.strip().lower() for dialogue in read for turn in dialogue.turns[1:])
    # responses are as frequent as they are in the share, not as in the whole corpus
    assert [int(loader.texts.frequencies[turn]) for turn in range(len(texts))] == [answers[text] for text in texts]


def test_invalid_fractions_are_rejected(tmp_path: Path) -> None:
    for share in (0, -0.5, 1.5):
        with pytest.raises(RecipeError, match=r"corpus_fraction must be (positive|at most 1), got"):
            recipe("dse", f"corpus_fraction={share}")
    with pytest.raises(CorpusError, match="a fraction of 1e-09 of 40 dialogues is none"):
        train(recipe("dse", "corpus_fraction=1e-9"), corpus(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_texts_are_distinguished_as_in_corpus_statistics(tmp_path: Path) -> None:
    variants = ("Yes.", "yes. ", "yes", "\u00a0YES.", "Where is it?", "where  is it?", "WHERE IS IT?")
    with StoreWriter(tmp_path / "store") as writer:
        writer.write(Dialogue("d", tuple(Turn("user", text) for text in variants)))
        writer.commit({})
    source = read_corpus(tmp_path / "store")
    texts = tokenise_corpus(TrainingCorpus(source, tmp_path / "cache"), tokenizer())
    numbers = [texts.identity(turn) for turn in range(len(variants))]
    assert [numbers.index(number) for number in numbers] == [0, 0, 2, 0, 4, 5, 4]
    counted = compute_corpus_stats(source)
    assert counted.distinct_utterances == len(set(numbers)) == 4
    assert sorted(count for _, count in counted.common) == sorted(Counter(numbers).values())


def test_unfinished_data_of_a_killed_run_are_overwritten(tmp_path: Path) -> None:
    whole = tokenise_corpus(TrainingCorpus(corpus(), tmp_path / "whole"), tokenizer())
    place = next((tmp_path / "whole").glob("texts-*"))
    killed = subprocess.Popen(["true"])
    killed.wait()
    unfinished = tmp_path / "cut" / f".writing-{place.name}-{killed.pid}-1"
    unfinished.mkdir(parents=True)
    (unfinished / "tokens.bin").write_bytes(b"half")
    (unfinished / "other").write_bytes(b"")
    assert turns(tokenise_corpus(TrainingCorpus(corpus(), tmp_path / "cut"), tokenizer())) == turns(whole)
    assert sorted(path.name for path in (tmp_path / "cut").rglob("*")) == sorted(
        path.name for path in (tmp_path / "whole").rglob("*")
    )
