"""A recipe with a first stage is the two recipes one after the other, stopped and resumed wherever it may be."""

import itertools
import json
import multiprocessing
import os
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.tiny import backbone, corpus, expect_close, recipe, resume, set_up_run, weights
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.store import Corpus, StoreWriter, read_corpus
from turnwise.models.encoder import Encoder
from turnwise.training import TrainingError, TrainingInterruptedError
from turnwise.training.disk_cache import corpus_identity
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, from_tree, load_recipe
from turnwise.training.step import TrainingStep


def stages(dropout: float = 0.1, **changes: object) -> Recipe:
    """Four steps of masked language modelling, then four of DSE."""
    first = {"objectives": {"masked-language": {}}, "steps": 4, "batch_size": 8, "learning_rate": 1e-3}
    run = {"backbone": backbone(dropout), "max_length": 24, "log_every": 1, "checkpoint_every": 2}
    own = {"objectives": {"dse": {}}, "steps": 4, "batch_size": 8, "learning_rate": 2e-3, "optimizer": "adam"}
    return from_tree({**run, **own, "first": first, **changes})


def same(one: Path, other: Path) -> bool:
    mine, theirs = weights(one), weights(other)
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def metrics(place: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]


class Told:
    """Keeps what a run tells, and does something when it tells a certain thing."""

    def __init__(self, what: str = "", step: int = 0, act: Callable[[], object] = lambda: None):
        self.heard: list[str] = []
        self._when = (what, step)
        self._act = act

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        name = what.partition(": loss")[0]
        self.heard.append(name)
        if (name, done) == self._when:
            self._act()


class Cut(Exception):  # noqa: N818
    """Stands for a kill: nothing is saved."""


def cut() -> None:
    raise Cut


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    place = tmp_path_factory.mktemp("stages") / "whole"
    train(stages(), corpus(), place)
    return place


def test_two_stages_are_two_runs_one_after_the_other(whole: Path, tmp_path: Path) -> None:
    wanted = stages()
    assert wanted.first is not None
    train(wanted.first, corpus(), tmp_path / "first")
    train(replace(wanted, first=None, backbone=str(tmp_path / "first")), corpus(), tmp_path / "second")
    assert same(whole / "first", tmp_path / "first")
    assert same(whole, tmp_path / "second")
    assert not same(whole, whole / "first")
    assert (
        [line["step"] for line in metrics(whole)] == [line["step"] for line in metrics(whole / "first")] == [1, 2, 3, 4]
    )


def test_what_two_stages_leave(whole: Path) -> None:
    """The recipe as it was given, a first model to be used by itself, texts tokenised once, and a card of both stages."""
    assert load_recipe(whole / "recipe.yaml") == stages()
    assert load_recipe(whole / "first" / "recipe.yaml") == stages().first
    assert Encoder.load(whole / "first", device="cpu").encode(["where is my parcel ?"]).shape == (1, 32)
    assert len(list((whole / "tokens").glob("texts-*"))) == 1
    assert not (whole / "first" / "tokens").exists()
    card = (whole / "README.md").read_text()
    assert "# An encoder trained by masked-language, then by dse\n" in card
    assert f"from `{backbone()}`" in card
    assert "# An encoder trained by masked-language\n" in (whole / "first" / "README.md").read_text()


# before the first stage has a checkpoint, between two of its, and between two of the second's
@pytest.mark.parametrize(
    ("what", "step"), [("first stage: training", 1), ("first stage: training", 3), ("training", 3)]
)
def test_killed_in_either_stage_and_resumed_the_weights_are_the_same(
    what: str, step: int, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(Cut):
        train(stages(), corpus(), tmp_path / "run", progress=Told(what, step, cut))
    again = Told()
    train(stages(), corpus(), tmp_path / "run", resume=True, progress=again)
    assert same(whole, tmp_path / "run")
    assert same(whole / "first", tmp_path / "run" / "first")
    # a checkpoint is written after it is told of the step
    left = 4 - (step - 1) // 2 * 2
    expected = {"first stage: training": left, "training": 4} if what != "training" else {"training": left}
    assert {name: again.heard.count(name) for name in again.heard if name.endswith("training")} == expected
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("what", "step"), [("first stage: training", 3), ("first stage: training", 4), ("training", 1)]
)
def test_interrupted_in_either_stage_and_resumed_the_weights_are_the_same(
    what: str, step: int, whole: Path, tmp_path: Path
) -> None:
    """An interruption at the first stage's last step stops before the second begins."""
    before = Told(what, step, interrupt)
    with pytest.raises(TrainingInterruptedError, match=r"the state is saved.*--resume"):
        train(stages(), corpus(), tmp_path / "run", progress=before)
    again = Told()
    train(stages(), corpus(), tmp_path / "run", resume=True, progress=again)
    assert same(whole, tmp_path / "run")
    for name in ("first stage: training", "training"):
        assert before.heard.count(name) + again.heard.count(name) == 4


def test_a_finished_first_stage_is_neither_trained_nor_written_again(tmp_path: Path, whole: Path) -> None:
    """Not even where its checkpoints were removed to save room."""
    with pytest.raises(Cut):
        train(stages(), corpus(), tmp_path / "run", progress=Told("training", 1, cut))
    shutil.rmtree(tmp_path / "run" / "first" / "checkpoints")
    with pytest.raises(TrainingError, match=r"first was trained on another corpus"):
        train(stages(), corpus().sample(0.5), tmp_path / "run", resume=True)
    with pytest.raises(TrainingError, match="differs from the given recipe"):
        train(stages(seed=2), corpus(), tmp_path / "run", resume=True)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "first").rglob("*")}
    again = Told()
    train(stages(), corpus(), tmp_path / "run", resume=True, progress=again)
    assert not any(name.startswith("first") for name in again.heard)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "first").rglob("*")} == times
    assert same(whole, tmp_path / "run")


def test_the_folder_is_claimed_before_the_first_stage(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(TrainingError, match="already contains a run"):
        train(stages(), corpus(), whole)
    (tmp_path / "first").mkdir()
    with pytest.raises(TrainingError, match="contains other files"):
        train(stages(), corpus(), tmp_path)


def test_the_probe_measures_the_main_stage(tmp_path: Path, whole: Path) -> None:
    asked: list[dict[str, torch.Tensor]] = []

    def probe(encoder: Encoder) -> dict[str, float]:
        asked.append({name: value.clone() for name, value in encoder.backbone.model.state_dict().items()})
        return {"score": float(len(asked))}

    train(stages(), corpus(), tmp_path / "run", probe=probe)
    assert [line["step"] for line in metrics(tmp_path / "run") if "probe.score" in line] == [0, 4]
    assert not any("probe.score" in line for line in metrics(tmp_path / "run" / "first"))
    for found, expected in zip(asked, (whole / "first", whole), strict=True):
        assert all(torch.equal(found[name], value) for name, value in weights(expected).items())


def test_a_first_stage_may_have_one_of_its_own(tmp_path: Path) -> None:
    """Each cuts, marks turns and adds tokens as it needs; a backbone cut to a layer is not cut further."""
    roles = {"objectives": {"tod-bert": {}}, "steps": 2, "batch_size": 4}
    wanted = stages(
        steps=1,
        layers=1,
        first={**roles, "first": {"objectives": {"masked-language": {}}, "steps": 3, "batch_size": 4}},
    )
    told = Told()
    train(wanted, corpus(), tmp_path / "run", progress=told)
    trained = [name.removesuffix("training") for name in told.heard if name.endswith("training")]
    assert trained == ["first stage: first stage: "] * 3 + ["first stage: "] * 2 + [""]
    styles = []
    for place in ("first/first", "first", ""):
        encoder = Encoder.load(tmp_path / "run" / place, device="cpu")
        assert encoder.backbone.layers == 1
        styles.append((encoder.style, "[SYS]" in encoder.backbone.tokenizer.get_vocab()))
    assert styles == [("separator", False), ("roles", True), ("separator", True)]
    title = "An encoder trained by masked-language, then by tod-bert, then by dse"
    assert title in (tmp_path / "run" / "README.md").read_text()


# ---- on several processes


def take_part(rank: int, port: int, wanted: Path, store: Path, place: Path) -> None:
    """What each process is given to do."""
    known = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in known.items()}, ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
    resume(wanted, store, place)


def test_two_processes_equal_one_in_both_stages(tmp_path: Path) -> None:
    wanted = stages(dropout=0.0)
    (tmp_path / "recipe.yaml").write_text(wanted.to_yaml())
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["turnwise.training.loop", "transformers.models.bert.modeling_bert"])
    common = (port, tmp_path / "recipe.yaml", corpus().stores[0].folder, tmp_path / "two")
    processes = [context.Process(target=take_part, args=(rank, *common)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    train(wanted, corpus(), tmp_path / "one")
    for place in ("first", ""):
        expect_close(tmp_path / "one" / place, tmp_path / "two" / place)


# ---- parts of an epoch, half of the layers, and what is read


def test_a_part_of_an_epoch_is_a_part_of_its_batches() -> None:
    whole = set_up_run(recipe("dse", "steps=null", "epochs=1"))
    passes = whole.steps_per_epoch
    assert whole.steps == passes > 2
    assert set_up_run(recipe("dse", "steps=null", "epochs=0.5")).steps == (passes + 1) // 2
    assert set_up_run(recipe("dse", "steps=null", "epochs=1e-9")).steps == 1


def test_whole_epochs_are_kept_and_the_rest_of_one_is_not(tmp_path: Path) -> None:
    changes = ["steps=null", "checkpoint_epochs=true", "batch_size=100", "schedule=constant", "warmup=0"]
    wanted = recipe("dse", *changes, "epochs=1.5")
    train(wanted, corpus(), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "epochs").iterdir()] == ["001"]
    train(replace(wanted, epochs=1), corpus(), tmp_path / "one")
    assert same(tmp_path / "one", tmp_path / "run" / "epochs" / "001")


@pytest.mark.parametrize(("changes", "frozen"), [(("frozen_layers=half",), 1), (("frozen_layers=half", "layers=1"), 0)])
def test_half_of_the_layers_is_rounded_down(changes: tuple[str, ...], frozen: int) -> None:
    setup = set_up_run(recipe("dse", *changes))
    TrainingStep(setup)
    layers = setup.encoder.backbone.layer_list()
    trained = [all(value.requires_grad for value in layer.parameters()) for layer in layers]
    assert trained == [place >= frozen for place in range(len(layers))]


def halved(folder: Path) -> Corpus:
    """The corpus with every turn of several words said in two, and a dialogue of two turns more."""

    def two(turn: Turn) -> list[Turn]:
        word, space, rest = turn.text.partition(" ")
        return [Turn(turn.speaker, word), Turn(turn.speaker, rest)] if space and rest.strip() else [turn]

    with StoreWriter(folder) as writer:
        for dialogue in corpus():
            writer.write(replace(dialogue, turns=tuple(part for turn in dialogue.turns for part in two(turn))))
        writer.write(Dialogue("short", (Turn("user", "hello"), Turn("user", "there"), Turn("system", "yes ?"))))
        writer.commit({"reader": "sample"})
    return read_corpus(folder)


def test_a_first_stage_may_be_one_that_was_trained_before(tmp_path: Path, whole: Path) -> None:
    """The weights are those of both stages trained together; another recipe's model is refused."""
    shared = tmp_path / "shared"
    wanted = stages()
    assert wanted.first is not None
    train(wanted.first, corpus(), shared)
    train(wanted, corpus(), tmp_path / "run", first=shared)
    assert same(tmp_path / "run", whole)
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == wanted
    assert not (tmp_path / "run" / "first").exists()
    for other in (whole, tmp_path / "nowhere"):
        with pytest.raises(TrainingError, match="does not contain the finished first stage"):
            train(wanted, corpus(), tmp_path / f"from-{other.name}", first=other)


def test_a_run_reads_what_its_recipe_says(tmp_path: Path) -> None:
    """Turns combined are the turns as they were before, and too short a dialogue is not there; in both stages."""
    assert all(turn.speaker != after.speaker for talk in corpus() for turn, after in itertools.pairwise(talk.turns))
    split = halved(tmp_path / "store")
    assert (
        corpus_identity(split.prepare())
        == corpus_identity(split)
        == [split.stores[0].manifest["generation"], "all splits"]
    )
    views = [split, split.prepare(True), split.prepare(False, 3), split.prepare(True, 3), split.prepare(True, 4)]
    assert len({tuple(corpus_identity(view)) for view in views}) == len(views)
    train(stages(), corpus(), tmp_path / "plain")
    combined = stages(combine_turns=True, least_turns=3)
    train(combined, split, tmp_path / "combined")
    assert same(tmp_path / "plain", tmp_path / "combined")
    with pytest.raises(Exception, match="has 1000 turns or more"):
        train(stages(least_turns=1000), split, tmp_path / "long")
    assert not (tmp_path / "long").exists()
