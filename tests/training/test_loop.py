"""The training loop is exact: gradient caching and resuming do not change the result."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import turnwise
from tests.helpers import HANG_SECONDS
from tests.helpers.processes import start, start_command
from tests.helpers.tiny import (
    are_identical,
    backbone,
    corpus,
    divided,
    expect_identical,
    folder,
    gradients,
    read_metrics,
    recipe,
    resume,
    set_up_run,
    start_step,
    weights,
)
from turnwise.core.errors import TrainingError, TurnwiseError
from turnwise.corpus.storage.corpus import Corpus
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.encoder import Encoder
from turnwise.training import checkpoint as checkpoint_module
from turnwise.training.checkpoint import latest_checkpoint
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, load_recipe

OBJECTIVES = [
    "dse",
    "simcse",
    "tod-bert-paper",
    "masked-language",
    "siamese-m-paper",
    "wmdc",
    "dialoguecse",
    "tadse",
    "combined",
    "mixture",
    "ums",
]


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("budget", [30, pytest.param(100, marks=pytest.mark.full)])
def test_cached_gradients_equal_plain_ones(name: str, budget: int) -> None:
    """A batch in chunks of a few tokens has the loss and the gradients of one that is not, up to rounding."""
    changes = ["frozen_layers=0", "frozen_embeddings=false"]
    plain = gradients(recipe(name, *changes, "tokens_per_forward=100000", dropout=0.0))
    cached = gradients(recipe(name, *changes, f"tokens_per_forward={budget}", dropout=0.0))
    assert cached[0] == pytest.approx(plain[0], rel=1e-5)
    assert cached[1].keys() == plain[1].keys()
    for key, value in plain[1].items():
        assert torch.allclose(cached[1][key], value, atol=1e-5 * float(value.abs().max()) + 1e-7), key


def test_pooled_objectives_are_encoded_together_if_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass of the model for all objectives and one of the teacher; with little room, one or more for each."""
    passes: list[bool] = []  # whether each is the trained model's
    forward = Backbone.forward

    def count(self: Backbone, *arguments: Any) -> torch.Tensor:
        passes.append(self.training)
        return forward(self, *arguments)

    monkeypatch.setattr(Backbone, "forward", count)
    gradients(recipe("mixture", "tokens_per_forward=100000", dropout=0.0))
    assert sorted(passes) == [False, True]
    passes.clear()
    gradients(recipe("mixture", "tokens_per_forward=200", dropout=0.0))
    assert passes.count(True) >= 4


def test_objectives_share_a_teacher() -> None:
    tree = {"anchor": {}, "second": {"objective": "anchor", "form": "relations"}}
    setup = set_up_run(Recipe(tree, backbone=backbone(0.0), batch_size=8, steps=2, max_length=24))
    first, second = (part.teacher for part in setup.parts)
    assert first is not None and first is second
    assert first.encoder is not setup.encoder


def test_graphs_need_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    setup = set_up_run(recipe("dse", "cuda_graphs=true"))
    with pytest.raises(TrainingError, match="cuda_graphs=true needs one process, a CUDA GPU"):
        start_step(setup)


def test_gradients_stay_in_place_with_graphs() -> None:
    """What CUDA graphs need, checked without a GPU: two steps of a padded run equal those of an unpadded one."""
    results = []
    for graphs in (False, True):
        setup = set_up_run(recipe("wmdc", "clip=1", dropout=0.0))
        step = start_step(setup)
        if graphs:
            setup.encoder.backbone.use_graphs()
            step.keep_gradients()
        parameters = setup.encoder.backbone.parameters()
        losses, places = [], []
        for number in range(4):
            losses.append(float(step.run(number, [loader.prepare(number) for loader in setup.loaders])["loss"]))
            places.append({id(value.grad) for value in step.parameters.values() if value.grad is not None})
        heads = {name: value.grad for name, value in step.parameters.items() if name.startswith("heads.")}
        assert sum(value is not None for value in heads.values()) == 1  # only the head of the last batch's size
        results.append(losses)
        if graphs:
            assert len(set.intersection(*places)) >= len([value for value in parameters if value.grad is not None])
    assert results[1] == pytest.approx(results[0], rel=1e-4)


def test_caching_replays_dropout() -> None:
    """With dropout, both passes over a chunk must use the same masks.

    The gradient along itself is compared with a difference of the loss, whose passes use the same masks.
    """
    setup = set_up_run(recipe("dse", "tokens_per_forward=60", dropout=0.3))
    step = start_step(setup)
    batches = [loader.prepare(0) for loader in setup.loaders]
    step.compute_gradients(0, batches)
    direction = {name: value.grad.clone() for name, value in step.parameters.items() if value.grad is not None}
    norm = sum(float((value**2).sum()) for value in direction.values())
    length = 1e-3 / norm**0.5
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            for name, value in direction.items():
                step.parameters[name].add_(value, alpha=sign * length)
        losses.append(float(step.compute_gradients(0, batches)[0]))
        with torch.no_grad():
            for name, value in direction.items():
                step.parameters[name].sub_(value, alpha=sign * length)
    assert (losses[0] - losses[1]) / (2 * length) == pytest.approx(norm, rel=0.02)


@pytest.mark.parametrize(
    "names",
    [
        ("dse", "masked-language"),
        ("dse", "dialoguecse"),
        ("wmdc", "dse", "masked-language"),
        ("response-selection", "insertion", "deletion", "search"),
    ],
    ids=" + ".join,
)
def test_gradient_of_several_objectives_is_the_weighted_sum(names: tuple[str, ...]) -> None:
    """Each objective's own gradient is that of a run in which the others have weight 0."""
    weighed = dict(zip(names, (1.0, 0.5, 2.0, 0.25), strict=False))

    def run(*counted: str) -> tuple[float, dict[str, torch.Tensor]]:
        tree = {name: {"weight": weight if name in counted else 0.0} for name, weight in weighed.items()}
        for name in tree.keys() & {"response-selection", "insertion", "deletion", "search"}:
            tree[name]["head_dropout"] = 0.0
        run_recipe = Recipe(tree, backbone=backbone(0.0), batch_size=8, steps=2, max_length=24)
        return gradients(run_recipe)

    together, alone = run(*names), [run(name) for name in names]
    assert together[0] == pytest.approx(sum(loss for loss, _ in alone), rel=1e-5)
    for key, value in together[1].items():
        assert torch.allclose(value, sum(actual[key] for _, actual in alone), atol=1e-6), key  # type: ignore[arg-type]
        if key.startswith("heads."):  # a head learns from its own objective alone
            assert [name for name, (_, actual) in zip(names, alone, strict=True) if actual[key].any()] == [
                key.split(".")[1]
            ]


def test_objectives_have_their_own_weight_batch_size_and_learning_rate() -> None:
    """Options that an entry does not set are the recipe's."""
    own = ["objectives.dse.weight=0.5", "objectives.dse.batch_size=5", "objectives.dse.head_learning_rate=0.02"]
    shared = [
        "batch_size=7",
        "learning_rate=0.001",
        "objectives.wmdc.head_learning_rate=null",
        "head_learning_rate=0.03",
    ]
    setup = set_up_run(recipe("combined", *own, *shared))
    step = start_step(setup)
    assert {part.name: part.weight for part in setup.parts} == {
        "dse": 0.5,
        "wmdc": 1.0,
        "dialoguecse": 1.0,
        "tadse": 1.0,
    }
    assert [[len(loader.rows(number)) for number in range(3)] for loader in setup.loaders] == [
        [5, 5, 5],
        [7, 7, 7],
        [4, 4, 4],
        [7, 7, 7],
    ]
    names = {id(value): name for name, value in step.parameters.items()}
    rates = {names[id(value)]: group["peak"] for group in step.optimizer.param_groups for value in group["params"]}
    assert rates.keys() == step.parameters.keys()
    expected = {"encoder": 0.001, "heads.dse": 0.02, "heads.wmdc": 0.03}
    for name, rate in rates.items():
        assert rate == next(value for start, value in expected.items() if name.startswith(start)), name


def test_losses_of_several_objectives_are_logged_separately(tmp_path: Path) -> None:
    run_recipe = recipe("combined", "objectives.dse.weight=0.25", "objectives.wmdc.weight=3", "steps=4")
    trained = train(run_recipe, corpus(), tmp_path / "run")
    lines = read_metrics(tmp_path / "run")
    assert [line["wmdc.window"] for line in lines] == [1, 2, 3, 1]
    for line in lines:
        own = [line[f"loss.{name}"] for name in ("dse", "wmdc", "dialoguecse", "tadse")]
        assert min(own) > 0
        assert line["loss"] == pytest.approx(0.25 * own[0] + 3 * own[1] + own[2] + own[3], rel=1e-6)
    train(recipe("dse"), corpus(), tmp_path / "alone")
    assert not any(key.startswith("loss.") for line in read_metrics(tmp_path / "alone") for key in line)
    texts = ["where is my parcel ?", "thank you"]
    assert not np.allclose(trained.encode(texts), Encoder.load(backbone(), device="cpu").encode(texts), atol=1e-4)


def start_training(run_recipe: Path, place: Path) -> BaseProcess:
    return start(resume, run_recipe, corpus().stores[0].folder, place)


def finish(run_recipe: Path, place: Path) -> None:
    process = start_training(run_recipe, place)
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("dse", 0),
        *(pytest.param("dse", seed, marks=pytest.mark.full) for seed in (1, 2)),
        pytest.param("dialoguecse", 3, marks=pytest.mark.full),
        pytest.param("wmdc", 4, marks=pytest.mark.full),
        pytest.param("tadse", 5, marks=pytest.mark.full),
        pytest.param("combined", 6, marks=pytest.mark.full),
        pytest.param("ums", 7, marks=pytest.mark.full),
        pytest.param("mixture", 8, marks=pytest.mark.full),
    ],
)
def test_killed_and_resumed_runs_have_bit_identical_weights(name: str, seed: int, tmp_path: Path) -> None:
    """SIGKILL at random moments, also while a checkpoint is being written, and then resume to the end."""
    # a checkpoint every fourth step, so that it falls before windows of each of WMDC's three sizes
    changes = ["steps=20", "checkpoint_every=4", "schedule=linear", "start_fraction=0.2", "corpus_fraction=0.5"]
    recipe_file = tmp_path / "recipe.yaml"
    recipe_file.write_text(recipe(name, *changes).to_yaml())
    uninterrupted = folder() / f"uninterrupted-{name}"
    if not (uninterrupted / "model.safetensors").exists():
        finish(recipe_file, uninterrupted)
    chance = random.Random(seed)
    place = tmp_path / "run"
    kills = 0
    while kills < 2:
        process = start_training(recipe_file, place)
        goal = chance.randrange(1, 7) + (metrics_step(place) if kills else 0)
        while process.is_alive() and metrics_step(place) < goal:
            # every other time, in the middle of the writing of a checkpoint
            if kills % 2 and list((place / "checkpoints").glob(".writing-*")):
                break
            time.sleep(0.001)
        if not process.is_alive():
            break
        process.kill()
        process.join()
        kills += 1
    finish(recipe_file, place)
    expect_identical(uninterrupted, place)
    steps = [line["step"] for line in read_metrics(place)]
    assert steps == list(range(1, 21))


def test_start_fraction_saves_the_soup_of_start_and_trained_weights(tmp_path: Path) -> None:
    def probe(model: Encoder) -> dict[str, float]:  # sees the weights that would be saved
        return {"weight": float(model.backbone.layer_list()[0].output.dense.weight[0, 0])}

    changes = ["frozen_embeddings=true", "probe_every=2"]
    train(recipe("dse", *changes), corpus(), tmp_path / "trained", probe=probe)
    train(recipe("dse", *changes, "start_fraction=0.3"), corpus(), tmp_path / "mixed", probe=probe)
    start = Encoder.load(backbone(), device="cpu").backbone.model.state_dict()
    trained, mixed = weights(tmp_path / "trained"), weights(tmp_path / "mixed")
    for name, value in mixed.items():
        torch.testing.assert_close(value, 0.3 * start[name] + 0.7 * trained[name], rtol=0, atol=1e-6)
    assert any(not torch.allclose(value, trained[name], atol=1e-4) for name, value in mixed.items())
    probed = [
        [line["probe.weight"] for line in read_metrics(tmp_path / run) if "probe.weight" in line]
        for run in ("trained", "mixed")
    ]
    assert len(probed[0]) == 4
    for before, after in zip(*probed, strict=True):
        assert after == pytest.approx(0.3 * probed[0][0] + 0.7 * before, abs=1e-6)
    checkpoints = [latest_checkpoint(tmp_path / run / "checkpoints") for run in ("trained", "mixed")]
    first, second = (load_file(place / "parameters.safetensors") for place in checkpoints if place)
    assert are_identical(first, second)  # training does not see the average


@pytest.mark.parametrize("stop", [2, 5])
def test_heads_that_take_turns_resume_in_turn(stop: int, tmp_path: Path) -> None:
    """WMDC stopped at any step: the checkpoint has the state of the heads used so far, and the next size follows."""
    run_recipe = recipe("wmdc", "checkpoint_every=1", "optimizer=adamw", "weight_decay=0.1", "windows=[1, 2, 4]")
    uninterrupted = folder() / "heads-in-turn"
    if not uninterrupted.exists():
        train(run_recipe, corpus(), uninterrupted, cache=folder() / "cache")

    class Cut(Exception):  # noqa: N818
        pass

    def progress(what: str, done: int, total: int | None = None) -> None:
        if what.startswith("training") and done == stop + 1:
            raise Cut

    with pytest.raises(Cut):
        train(run_recipe, corpus(), tmp_path / "run", progress=progress)
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert newest.name == f"step-{stop:09d}"
    states = {key.rpartition(".")[0] for key in load_file(newest / "optimizer.safetensors")}
    used = {f"heads.wmdc.{size}.weight" for size in (1, 2, 4)[:stop]}
    assert {name for name in states if name.startswith("heads.")} == used
    train(run_recipe, corpus(), tmp_path / "run", resume=True)
    assert [line["wmdc.window"] for line in read_metrics(tmp_path / "run")] == [1, 2, 4, 1, 2, 4]
    for name in ("parameters", "optimizer"):
        first, second = (
            load_file(run / "checkpoints" / "step-000000006" / f"{name}.safetensors")
            for run in (uninterrupted, tmp_path / "run")
        )
        assert are_identical(first, second), name
    expect_identical(uninterrupted, tmp_path / "run")


def metrics_step(place: Path) -> int:
    try:
        lines = (place / "metrics.jsonl").read_text().splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, IndexError, ValueError):
        return 0


def test_an_interruption_saves_and_says_how_to_resume(tmp_path: Path) -> None:
    run_recipe = recipe("dse", "steps=400", "checkpoint_every=1000")
    (tmp_path / "recipe.yaml").write_text(run_recipe.to_yaml())
    store, log = corpus().stores[0].folder, tmp_path / "log.txt"
    process = start_command(log, "train", tmp_path / "recipe.yaml", "--corpus", store, "--out", tmp_path / "run")
    while metrics_step(tmp_path / "run") < 2:
        assert process.is_alive(), log.read_text()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    process.join(HANG_SECONDS)
    assert process.exitcode == 130
    error = log.read_text()
    assert "the state is saved" in error
    assert "--resume" in error
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is not None


def test_a_full_disk_is_reported_and_the_last_checkpoint_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkpoint_module.write_tensors

    def full(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        if "000000004" in str(path.parent) or fills:
            raise OSError(28, "No space left on device")
        real(path, tensors)

    fills: list[int] = []
    monkeypatch.setattr(checkpoint_module, "write_tensors", full)

    def progress(what: str, done: int, total: int | None = None) -> None:
        if done == 3:
            fills.append(1)

    with pytest.raises(TrainingError, match=r"No space left.*the last good one is .*step-000000002"):
        train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run", progress=progress)
    monkeypatch.undo()
    train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_damaged_checkpoint_is_reported_with_a_remedy(tmp_path: Path) -> None:
    train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run")
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    file = newest / "parameters.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(TrainingError, match=r"is damaged.*remove it to resume from .*step-000000004"):
        train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run", resume=True)


def test_folders_with_other_content_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="contains other files"):
        train(recipe(), corpus(), tmp_path)
    train(recipe(), corpus(), tmp_path / "run")
    with pytest.raises(TrainingError, match="already contains a run"):
        train(recipe(), corpus(), tmp_path / "run")
    with pytest.raises(TrainingError, match="differs from the given recipe"):
        train(recipe("dse", "seed=2"), corpus(), tmp_path / "run", resume=True)
    train(recipe("dse", "workers=3", "log_every=5"), corpus(), tmp_path / "run", resume=True)
    saved = tmp_path / "run" / "recipe.yaml"
    saved.write_text(saved.read_text(encoding="utf-8").replace("corpus_fraction", "corpus_share"), encoding="utf-8")
    with pytest.raises(TrainingError, match=r"another version of turnwise.*corpus_share is unknown.*with a new --out"):
        train(recipe(), corpus(), tmp_path / "run", resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_fails_before_its_first_checkpoint_does_not_block_its_folder(tmp_path: Path, resume: bool) -> None:
    failing = recipe("dse", "learning_rate=1e30", "steps=20", "keep_best=score")
    with pytest.raises(TrainingError, match=r"the loss is nan at step .*no checkpoint yet.*A smaller learning_rate"):
        train(failing, corpus(), tmp_path / "run", resume=resume, probe=lambda _: {"score": 1.0})
    # what is left tells why it failed
    assert load_recipe(tmp_path / "run" / "failed.yaml") == failing
    assert read_metrics(tmp_path / "run")
    with pytest.raises(TrainingError, match="the loss is nan"):
        train(failing, corpus(), tmp_path / "run", resume=resume)
    train(recipe(), corpus(), tmp_path / "run", resume=resume)
    train(recipe(), corpus(), tmp_path / "new")
    assert are_identical(weights(tmp_path / "run"), weights(tmp_path / "new"))
    assert {path.name for path in (tmp_path / "run").iterdir()} == {path.name for path in (tmp_path / "new").iterdir()}
    assert read_metrics(tmp_path / "run")[0]["step"] == 1


def test_all_files_of_a_run_have_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        train(recipe("tadse"), corpus(), tmp_path / "run")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix == ".safetensors"]) >= 4
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {path.name: 0o640 for path in files}


def test_a_recipe_is_given_by_its_name_or_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(recipe().to_yaml())
    turnwise.train(recipe(), corpus(), tmp_path / "object")
    for name, given in (("path", path), ("text", str(path))):
        turnwise.train(given, corpus(), tmp_path / name)
        assert are_identical(weights(tmp_path / "object"), weights(tmp_path / name))
    with pytest.raises(TurnwiseError, match=r"there is no recipe 'des'.* Did you mean dse\?"):
        turnwise.train("des", corpus(), tmp_path / "typo")


def test_other_files_are_never_removed_from_the_folder_of_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the loss is nan"):
        train(recipe("dse", "learning_rate=1e30", "steps=20"), corpus(), tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="contains other files"):
        train(recipe(), corpus(), tmp_path / "run")
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_the_folder_of_a_killed_run_without_a_checkpoint_can_be_used_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text(recipe().to_yaml())
    with pytest.raises(TrainingError, match=r"no checkpoint yet: if it is not running any more, .*with --resume"):
        train(recipe(), corpus(), tmp_path / "run")
    train(recipe("dse", "seed=2"), corpus(), tmp_path / "run", resume=True)
    assert load_recipe(tmp_path / "run" / "recipe.yaml").seed == 2
    assert not (tmp_path / "run" / "failed.yaml").exists()


def test_frozen_parameters_do_not_change(tmp_path: Path) -> None:
    train(recipe("dse", "frozen_layers=1", "frozen_embeddings=true"), corpus(), tmp_path / "run")
    before, after = load_file(Path(backbone()) / "model.safetensors"), weights(tmp_path / "run")
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert not any(name.startswith(("embeddings.", "encoder.layer.0.")) for name in moved)
    assert any(name.startswith("encoder.layer.1.") for name in moved)


def test_the_seed_and_not_the_number_of_workers_determines_the_result(tmp_path: Path) -> None:
    for name, seed, workers in (("a", 1, 1), ("b", 1, 3), ("c", 2, 1)):
        run_recipe = recipe("tod-bert-paper", f"seed={seed}", f"workers={workers}", "steps=3")
        train(run_recipe, corpus(), tmp_path / name, cache=folder() / "cache")
    expect_identical(tmp_path / "a", tmp_path / "b")
    assert not are_identical(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_dse_learns(tmp_path: Path) -> None:
    """A hundred steps on forty dialogues reduce the loss."""
    changes = ("steps=100", "batch_size=16", "schedule=constant")
    train(recipe("dse", *changes), corpus(), tmp_path / "run", cache=folder() / "cache")
    losses = [line["loss"] for line in read_metrics(tmp_path / "run")]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])


def test_mpnet_is_trained_and_saved(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    start = tiny_folder("mpnet")
    trained = train(recipe("dse", f"backbone={start}"), corpus(), tmp_path / "run")
    reference = SentenceTransformer(str(tmp_path / "run"), device="cpu")
    texts = ["where is my parcel ?", "thank you"]
    assert np.allclose(trained.encode(texts), reference.encode(texts), atol=1e-6)
    assert not np.allclose(trained.encode(texts), Encoder.load(start, device="cpu").encode(texts), atol=1e-3)


def test_the_probe_is_evaluated_and_the_best_model_kept(tmp_path: Path) -> None:
    calls: list[int] = []

    def probe(encoder: Encoder) -> dict[str, float]:
        calls.append(len(calls))
        return {"score": [1.0, 5.0, 2.0, 3.0][len(calls) - 1]}

    train(recipe("dse", "probe_every=2", "keep_best=score"), corpus(), tmp_path / "run", probe=probe)
    probed = [(line["step"], line["probe.score"]) for line in read_metrics(tmp_path / "run") if "probe.score" in line]
    assert probed == [(0, 1.0), (2, 5.0), (4, 2.0), (6, 3.0)]
    assert Encoder.load(tmp_path / "run" / "best").hidden == 32
    with pytest.raises(TrainingError, match="the probe's metrics are score"):
        train(recipe("dse", "keep_best=other"), corpus(), tmp_path / "other", probe=lambda _: {"score": 1.0})


def test_a_run_saves_an_encoder_with_a_model_card(tmp_path: Path) -> None:
    trained = train(
        recipe("dse", "checkpoint_epochs=true", "steps=20", "corpus_fraction=0.25"), corpus(), tmp_path / "run"
    )
    texts = ["where is my parcel ?", "thank you"]
    again = Encoder.load(tmp_path / "run", device="cpu")
    assert np.allclose(trained.encode(texts), again.encode(texts), atol=1e-6)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "temperature" in card
    assert (tmp_path / "run" / "curves.svg").read_text().startswith("<svg")
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == recipe(
        "dse", "checkpoint_epochs=true", "steps=20", "corpus_fraction=0.25"
    )
    assert list((tmp_path / "run" / "epochs").iterdir())


def test_a_model_card_counts_what_was_read(tmp_path: Path) -> None:
    stores = [corpus().stores[0], divided().stores[0]]
    read = Corpus(stores, ["train"])  # the first store has no splits, and is read completely
    train(recipe("dse"), read, tmp_path / "run")
    for store in stores:
        dialogues = list(read.read(store))
        utterances = sum(len(dialogue.turns) for dialogue in dialogues)
        row = f"| sample | {len(dialogues)} | {utterances} | Apache-2.0 |"
        assert row in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.full
def test_a_batch_of_1024_pairs_at_bert_base_size_fits_in_8_gigabytes(tiny_folder) -> None:
    """Gradient caching bounds the activations; measured in a separate process."""
    code = """
import resource, sys, torch
from pathlib import Path
from transformers import BertConfig, BertModel
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.tokenizer import BERT_TOKENS, FastTokenizer
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.dse import DSE
from turnwise.objectives.objective import PreparedBatch
from turnwise.training.passes import BatchPass
from turnwise.training.step import token_budget
import numpy as np
config = BertConfig()
tokenizer = FastTokenizer.load(Path(sys.argv[1]), BERT_TOKENS)
encoder = TrainableEncoder(BertBackbone(config.to_dict(), BertModel(config).state_dict(), tokenizer)).train()
random = np.random.default_rng(0)
sequences = [random.integers(5, 1000, max(3, int(random.normal(16.5, 6)))).astype(np.int32) for _ in range(2048)]
heads = DSE().make_heads(768)
inputs = {"identities": torch.arange(2048).reshape(2, 1024)}
optimizer = torch.optim.Adam([*encoder.parameters(), *heads.parameters()])
step = BatchPass(encoder, token_budget(encoder.backbone, torch.device("cpu")))
prepared = PreparedBatch(RaggedTokens.of(sequences), 1024)
loss = lambda rows: DSE().loss(rows.unflatten(0, (2, -1)), inputs, heads)[0]
cached = step.run([prepared], "vectors", loss, torch.manual_seed)
optimizer.step()
print(cached, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""
    command = [sys.executable, "-c", code, str(tiny_folder("bert"))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    cached, gigabytes = result.stdout.split()
    assert cached == "True"
    assert float(gigabytes) < 8


def test_a_run_resumes_only_with_its_own_corpus(tmp_path: Path) -> None:
    train(recipe("dse", "steps=2"), corpus(), tmp_path / "run")
    other = corpus().sample(0.5)
    with pytest.raises(TrainingError, match="another corpus"):
        train(recipe("dse", "steps=2"), other, tmp_path / "run", resume=True)


def test_the_loss_of_an_objective_with_weight_0_is_logged(tmp_path: Path) -> None:
    changes = ["steps=1", "objectives.dse.batch_size=8", "objectives.wmdc.weight=0", "objectives.tadse=false"]
    train(recipe("combined", *changes), corpus(), tmp_path / "run")
    line = read_metrics(tmp_path / "run")[0]
    assert line["loss.wmdc"] > 0
    assert line["loss"] == pytest.approx(line["loss.dse"] + line["loss.dialoguecse"])
