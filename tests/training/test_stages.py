"""A recipe with a first stage equals two recipes one after the other, also if it is stopped and resumed."""

import itertools
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers import job
from tests.helpers.job import Job
from tests.helpers.tiny import (
    are_identical,
    backbone,
    corpus,
    expect_close,
    read_metrics,
    recipe,
    set_up_run,
    weights,
)
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TrainingError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.encoder import Encoder
from turnwise.training.disk_cache import corpus_identity
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, from_tree, load_recipe
from turnwise.training.step import TrainingStep


def stages(dropout: float = 0.1, **changes: object) -> Recipe:
    """Return a recipe of four steps of masked language modelling, then four of DSE."""
    first = {"objectives": {"masked-language": {}}, "steps": 4, "batch_size": 8, "learning_rate": 1e-3}
    run = {"backbone": backbone(dropout), "max_length": 24, "log_every": 1, "checkpoint_every": 2}
    own = {"objectives": {"dse": {}}, "steps": 4, "batch_size": 8, "learning_rate": 2e-3, "optimizer": "adam"}
    return from_tree({**run, **own, "first": first, **changes})


def same(one: Path, other: Path) -> bool:
    return are_identical(weights(one), weights(other))


class ProgressRecorder:
    """Records the progress of a run, and calls a function at a certain step."""

    def __init__(self, what: str = "", step: int = 0, act: Callable[[], object] = lambda: None):
        self.tasks: list[str] = []
        self._when = (what, step)
        self._act = act

    def __call__(self, what: str, done: int, total: int | None = None) -> None:
        name = what.partition(": loss")[0]
        self.tasks.append(name)
        if (name, done) == self._when:
            self._act()


class Cut(Exception):  # noqa: N818
    """Simulates a kill: nothing is saved."""


def cut() -> None:
    raise Cut


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train without interruption."""
    place = tmp_path_factory.mktemp("stages") / "whole"
    train(stages(), corpus(), place)
    return place


def test_two_stages_equal_two_runs(whole: Path, tmp_path: Path) -> None:
    run_recipe = stages()
    assert run_recipe.first is not None
    train(run_recipe.first, corpus(), tmp_path / "first")
    train(replace(run_recipe, first=None, backbone=str(tmp_path / "first")), corpus(), tmp_path / "second")
    assert same(whole / "first", tmp_path / "first")
    assert same(whole, tmp_path / "second")
    assert not same(whole, whole / "first")
    for run in (whole, whole / "first"):
        assert [line["step"] for line in read_metrics(run)] == [1, 2, 3, 4]


def test_files_of_two_stages(whole: Path) -> None:
    """The given recipe, a usable first model, texts tokenised once, and a model card of both stages."""
    assert load_recipe(whole / "recipe.yaml") == stages()
    assert load_recipe(whole / "first" / "recipe.yaml") == stages().first
    assert Encoder.load(whole / "first", device="cpu").encode(["where is my parcel ?"]).shape == (1, 32)
    assert len(list((whole / "tokens").glob("texts-*"))) == 1
    assert not (whole / "first" / "tokens").exists()
    card = (whole / "README.md").read_text()
    assert "# An encoder trained by masked-language, then by dse\n" in card
    assert f"from `{backbone()}`" in card
    assert "# An encoder trained by masked-language\n" in (whole / "first" / "README.md").read_text()


# before the first stage has a checkpoint, and between two of the second's
@pytest.mark.parametrize(("what", "step"), [("first stage: training", 1), ("training", 3)])
def test_killed_and_resumed_stages_have_identical_weights(what: str, step: int, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        train(stages(), corpus(), tmp_path / "run", progress=ProgressRecorder(what, step, cut))
    again = ProgressRecorder()
    train(stages(), corpus(), tmp_path / "run", resume=True, progress=again)
    assert same(whole, tmp_path / "run")
    assert same(whole / "first", tmp_path / "run" / "first")
    # a checkpoint is written after it is recorder of the step
    left = 4 - (step - 1) // 2 * 2
    expected = {"first stage: training": left, "training": 4} if what != "training" else {"training": left}
    assert {name: again.tasks.count(name) for name in again.tasks if name.endswith("training")} == expected
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [1, 2, 3, 4]


@pytest.mark.parametrize(("step", "left"), [(4, 4), (5, 3)])
def test_interrupted_and_resumed_stages_have_identical_weights(
    step: int, left: int, whole: Path, tmp_path: Path
) -> None:
    """An interruption at the first stage's last step stops before the second stage."""
    (tmp_path / "recipe.yaml").write_text(stages().to_yaml())
    arguments = (tmp_path / "recipe.yaml", corpus().stores[0].folder, tmp_path / "run")
    [error] = Job(1, tmp_path, job.train_one, *arguments, job.Signal(0, step, signal.SIGINT)).wait()
    assert re.search(r"the state is saved.*--resume", error), error
    again = ProgressRecorder()
    train(stages(), corpus(), tmp_path / "run", resume=True, progress=again)
    assert same(whole, tmp_path / "run")
    counts = {name: again.tasks.count(name) for name in ("first stage: training", "training")}
    assert counts == {"first stage: training": 0, "training": left}


def test_a_resumed_run_has_the_workers_and_the_log_that_are_requested_now(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        train(stages(), corpus(), tmp_path / "run", progress=ProgressRecorder("training", 3, cut))
    requested = stages(workers=3, log_every=4)
    train(requested, corpus(), tmp_path / "run", resume=True)
    assert same(whole, tmp_path / "run")
    assert [line["step"] for line in read_metrics(tmp_path / "run")] == [1, 2, 4]


def test_a_finished_first_stage_is_not_trained_again(tmp_path: Path, whole: Path) -> None:
    """Not even if its checkpoints were removed."""
    with pytest.raises(Cut):
        train(stages(), corpus(), tmp_path / "run", progress=ProgressRecorder("training", 1, cut))
    shutil.rmtree(tmp_path / "run" / "first" / "checkpoints")
    with pytest.raises(TrainingError, match=r"first was trained on another corpus"):
        train(stages(), corpus().sample(0.5), tmp_path / "run", resume=True)
    with pytest.raises(TrainingError, match="differs from the given recipe"):
        train(stages(seed=2), corpus(), tmp_path / "run", resume=True)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "first").rglob("*")}
    again = ProgressRecorder()
    train(stages(), corpus(), tmp_path / "run", resume=True, progress=again)
    assert not any(name.startswith("first") for name in again.tasks)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "first").rglob("*")} == times
    assert same(whole, tmp_path / "run")


def test_the_folder_is_checked_before_the_first_stage(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(TrainingError, match="already contains a run"):
        train(stages(), corpus(), whole)
    (tmp_path / "first").mkdir()
    with pytest.raises(TrainingError, match="contains other files"):
        train(stages(), corpus(), tmp_path)


def test_the_probe_evaluates_the_last_stage(tmp_path: Path, whole: Path) -> None:
    states: list[dict[str, torch.Tensor]] = []

    def probe(encoder: Encoder) -> dict[str, float]:
        states.append({name: value.clone() for name, value in encoder.backbone.model.state_dict().items()})
        return {"score": float(len(states))}

    train(stages(), corpus(), tmp_path / "run", probe=probe)
    assert [line["step"] for line in read_metrics(tmp_path / "run") if "probe.score" in line] == [0, 4]
    assert not any("probe.score" in line for line in read_metrics(tmp_path / "run" / "first"))
    for actual, expected in zip(states, (whole / "first", whole), strict=True):
        assert all(torch.equal(actual[name], value) for name, value in weights(expected).items())


def test_a_first_stage_may_have_a_first_stage(tmp_path: Path) -> None:
    """Each stage sets its layers, turn style and tokens."""
    roles = {"objectives": {"tod-bert": {}}, "steps": 2, "batch_size": 4}
    run_recipe = stages(
        steps=1,
        layers=1,
        first={**roles, "first": {"objectives": {"masked-language": {}}, "steps": 3, "batch_size": 4}},
    )
    recorder = ProgressRecorder()
    train(run_recipe, corpus(), tmp_path / "run", progress=recorder)
    trained = [name.removesuffix("training") for name in recorder.tasks if name.endswith("training")]
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


def test_two_processes_equal_one_in_both_stages(whole: Path, tmp_path: Path) -> None:
    run_recipe = stages(dropout=0.0, steps=2)
    (tmp_path / "recipe.yaml").write_text(run_recipe.to_yaml())
    store = corpus().stores[0].folder
    Job(2, tmp_path, job.train_one, tmp_path / "recipe.yaml", store, tmp_path / "two").expect_done()
    train(run_recipe, corpus(), tmp_path / "one")
    for place in ("first", ""):
        expect_close(tmp_path / "one" / place, tmp_path / "two" / place)


# ---- parts of an epoch, half of the layers, and what is read


def test_a_fraction_of_an_epoch_is_a_fraction_of_its_batches() -> None:
    whole = set_up_run(recipe("dse", "steps=null", "epochs=1"))
    passes = whole.steps_per_epoch
    assert whole.steps == passes > 2
    assert set_up_run(recipe("dse", "steps=null", "epochs=0.5")).steps == (passes + 1) // 2
    assert set_up_run(recipe("dse", "steps=null", "epochs=1e-9")).steps == 1


def test_models_of_complete_epochs_are_saved(tmp_path: Path) -> None:
    changes = [
        "steps=null",
        "checkpoint_epochs=true",
        "batch_size=20",
        "corpus_fraction=0.2",
        "schedule=constant",
        "warmup=0",
    ]
    run_recipe = recipe("dse", *changes, "epochs=1.5")
    train(run_recipe, corpus(), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "epochs").iterdir()] == ["001"]
    train(replace(run_recipe, epochs=1), corpus(), tmp_path / "one")
    assert same(tmp_path / "one", tmp_path / "run" / "epochs" / "001")


@pytest.mark.parametrize(("changes", "frozen"), [(("frozen_layers=half",), 1), (("frozen_layers=half", "layers=1"), 0)])
def test_half_of_the_layers_is_rounded_down(changes: tuple[str, ...], frozen: int) -> None:
    setup = set_up_run(recipe("dse", *changes))
    TrainingStep(setup)
    layers = setup.encoder.backbone.layer_list()
    trained = [all(value.requires_grad for value in layer.parameters()) for layer in layers]
    assert trained == [place >= frozen for place in range(len(layers))]


def split_turns(folder: Path) -> Corpus:
    """Return the corpus with turns split in two, and one more short dialogue."""

    def two(turn: Turn) -> list[Turn]:
        word, space, rest = turn.text.partition(" ")
        return [Turn(turn.speaker, word), Turn(turn.speaker, rest)] if space and rest.strip() else [turn]

    with StoreWriter(folder) as writer:
        for dialogue in corpus():
            writer.write(replace(dialogue, turns=tuple(part for turn in dialogue.turns for part in two(turn))))
        writer.write(Dialogue("short", (Turn("user", "hello"), Turn("user", "there"), Turn("system", "yes ?"))))
        writer.commit({"reader": "sample"})
    return read_corpus(folder)


def test_a_first_stage_may_be_trained_before(tmp_path: Path, whole: Path) -> None:
    """The weights equal those of both stages trained together; another recipe's model is rejected."""
    shared = tmp_path / "shared"
    run_recipe = stages()
    assert run_recipe.first is not None
    train(run_recipe.first, corpus(), shared)
    train(run_recipe, corpus(), tmp_path / "run", first=shared)
    assert same(tmp_path / "run", whole)
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == run_recipe
    assert not (tmp_path / "run" / "first").exists()
    for other in (whole, tmp_path / "nowhere"):
        with pytest.raises(TrainingError, match="does not contain the finished first stage"):
            train(run_recipe, corpus(), tmp_path / f"from-{other.name}", first=other)


def test_a_run_reads_the_corpus_as_its_recipe_says(tmp_path: Path) -> None:
    """In both stages, split turns are combined again, and a short dialogue is left out."""
    assert all(turn.speaker != after.speaker for talk in corpus() for turn, after in itertools.pairwise(talk.turns))
    split = split_turns(tmp_path / "store")
    assert (
        corpus_identity(split.prepare())
        == corpus_identity(split)
        == [split.stores[0].manifest["generation"], "all splits"]
    )
    views = [split, split.prepare(True), split.prepare(False, 3), split.prepare(True, 3), split.prepare(True, 4)]
    assert len({tuple(corpus_identity(view)) for view in views}) == len(views)
    train(stages(), corpus(), tmp_path / "plain")
    combined = stages(combine_turns=True, min_turns=3)
    train(combined, split, tmp_path / "combined")
    assert same(tmp_path / "plain", tmp_path / "combined")
    with pytest.raises(Exception, match="has 1000 turns or more"):
        train(stages(min_turns=1000), split, tmp_path / "long")
    assert not (tmp_path / "long").exists()
