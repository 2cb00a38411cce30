"""The loop is exact: cached equals plain, two processes equal one, killed and resumed equals undisturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny import backbone, corpus, folder, recipe

from turnwise.backbone.stream import TokenStream
from turnwise.corpus.store import Corpus
from turnwise.encoder import Encoder
from turnwise.training import checkpoint as checkpoint_module
from turnwise.training.checkpoint import CheckpointError, latest_checkpoint
from turnwise.training.loop import TrainingError, _Run, train
from turnwise.training.recipe import Recipe, load_recipe

HERE = Path(__file__).parent


def weights(place: Path) -> dict[str, torch.Tensor]:
    return load_file(place / "model.safetensors")


def metrics(place: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def gradients(wanted: Recipe, place: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradients of the first step."""
    run = _Run(wanted, corpus(), place, False, lambda *_: None, False, folder() / "cache")
    run.encoder.train()
    run.optimizer.step = lambda *_: None  # type: ignore[method-assign,assignment]
    figures = run._step([feed.prepare(0) for feed in run.feeds])
    found = {name: value.grad.clone() for name, value in run.named.items() if value.grad is not None}
    return figures["loss"], found


OBJECTIVES = ["dse", "simcse", "tod-bert-paper", "masked-language", "siamese-m-paper"]


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("budget", [30, 100])
def test_cached_gradients_equal_plain_ones(name: str, budget: int, tmp_path: Path) -> None:
    """A batch cut into chunks of a few tokens gives the loss and the gradients of one that is not, up to rounding."""
    changes = ["frozen_layers=0", "frozen_embeddings=false"]
    plain = gradients(recipe(name, *changes, "tokens_per_forward=100000", dropout=0.0), tmp_path / "plain")
    cached = gradients(recipe(name, *changes, f"tokens_per_forward={budget}", dropout=0.0), tmp_path / "cached")
    assert cached[0] == pytest.approx(plain[0], rel=1e-5)
    assert cached[1].keys() == plain[1].keys()
    for key, value in plain[1].items():
        assert torch.allclose(cached[1][key], value, atol=1e-5 * float(value.abs().max()) + 1e-7), key


def test_caching_replays_dropout(tmp_path: Path) -> None:
    """With dropout, both passes over a chunk must see the same masks, or the gradient belongs to no loss at all.

    The gradient along itself is held against a difference of the loss, whose passes draw the same masks.
    """
    wanted = recipe("dse", "tokens_per_forward=60", dropout=0.3)
    run = _Run(wanted, corpus(), tmp_path / "run", False, lambda *_: None, False, folder() / "cache")
    run.encoder.train()
    run.optimizer.step = lambda *_: None  # type: ignore[method-assign,assignment]
    batches = [feed.prepare(0) for feed in run.feeds]
    run._step(batches)
    direction = {name: value.grad.clone() for name, value in run.named.items() if value.grad is not None}
    norm = sum(float((value**2).sum()) for value in direction.values())
    step = 1e-3 / norm**0.5
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            for name, value in direction.items():
                run.named[name].add_(value, alpha=sign * step)
        losses.append(run._step(batches)["loss"])
        with torch.no_grad():
            for name, value in direction.items():
                run.named[name].sub_(value, alpha=sign * step)
    assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(norm, rel=0.02)


def test_two_objectives_add_up(tmp_path: Path) -> None:
    """The gradient of two objectives in one run is the weighted sum of each one's own: the other's weight is set to nothing."""

    def run(name: str, dse: float, masked: float) -> tuple[float, dict[str, torch.Tensor]]:
        changes = {"backbone": backbone(0.0), "batch_size": 8, "steps": 2, "max_length": 24}
        tree = {"dse": {"weight": dse}, "masked-language": {"weight": masked}}
        return gradients(Recipe(tree, **changes), tmp_path / name)  # type: ignore[arg-type]

    both, first, second = run("both", 1.0, 0.5), run("first", 1.0, 0.0), run("second", 0.0, 0.5)
    assert both[0] == pytest.approx(first[0] + second[0], rel=1e-5)
    for key, value in both[1].items():
        assert torch.allclose(value, first[1][key] + second[1][key], atol=1e-6), key


@pytest.mark.parametrize("name", ["dse", "masked-language"])
@pytest.mark.parametrize("budget", [100000, 40])
def test_two_processes_equal_one(name: str, budget: int, tmp_path: Path) -> None:
    """Three steps on two processes (gloo) end with the weights of three steps on one, up to rounding."""
    changes = [f"tokens_per_forward={budget}", "steps=3", "batch_size=7", "optimizer=adam", "learning_rate=1e-3"]
    wanted = recipe(name, *changes, dropout=0.0)
    train(wanted, corpus(), tmp_path / "one")
    (tmp_path / "recipe.yaml").write_text(wanted.to_yaml())
    code = (
        "import sys; from turnwise.training.loop import train; from turnwise.training.recipe import load_recipe;"
        "from turnwise import read_corpus; train(load_recipe(sys.argv[1]), read_corpus(sys.argv[2]), sys.argv[3])"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            f"--master-port={20000 + random.Random(str(tmp_path)).randrange(20000)}",
            script,
            tmp_path / "recipe.yaml",
            corpus().stores[0].folder,
            tmp_path / "two",
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for key, value in one.items():
        assert torch.allclose(two[key], value, atol=2e-5), key
    losses = [[line["loss"] for line in metrics(tmp_path / place)] for place in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


TRAIN = (
    "import sys; sys.path.insert(0, sys.argv[3]); from tiny import corpus, recipe; from turnwise.training.loop import train;"
    "from turnwise.training.recipe import load_recipe; from turnwise import read_corpus;"
    "train(load_recipe(sys.argv[1]), read_corpus(sys.argv[4]), sys.argv[2], resume=True)"
)


def command(wanted: Path, place: Path) -> list[str]:
    return [sys.executable, "-c", TRAIN, str(wanted), str(place), str(HERE), str(corpus().stores[0].folder)]


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_step_and_resumed_the_weights_are_bit_identical(seed: int, tmp_path: Path) -> None:
    """SIGKILL at random moments, a checkpoint being written among them; then the end is reached, with the same bits."""
    wanted = recipe("dse", "steps=40", "checkpoint_every=3", "optimizer=adamw", "schedule=linear", "ema=0.9", "workers=2")
    (tmp_path / "recipe.yaml").write_text(wanted.to_yaml())
    undisturbed = folder() / "undisturbed"
    if not (undisturbed / "model.safetensors").exists():
        (folder() / "undisturbed.yaml").write_text(wanted.to_yaml())
        subprocess.run(command(folder() / "undisturbed.yaml", undisturbed), check=True, capture_output=True)
    chance = random.Random(seed)
    place = tmp_path / "run"
    kills = 0
    while kills < 3:
        process = subprocess.Popen(command(tmp_path / "recipe.yaml", place), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        goal = chance.randrange(1, 12) + (metrics_step(place) if kills else 0)
        while process.poll() is None and metrics_step(place) < goal:
            # every other time, in the middle of the writing of a checkpoint
            if kills % 2 and (place / "checkpoints" / ".writing").exists():
                break
            time.sleep(0.001)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    subprocess.run(command(tmp_path / "recipe.yaml", place), check=True, capture_output=True)
    assert same(weights(undisturbed), weights(place))
    steps = [line["step"] for line in metrics(place)]
    assert steps == list(range(1, 41))


def metrics_step(place: Path) -> int:
    try:
        lines = (place / "metrics.jsonl").read_text().splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, IndexError, ValueError):
        return 0


def test_the_number_of_workers_does_not_change_the_result(tmp_path: Path) -> None:
    for workers in (1, 3):
        train(recipe("tod-bert-paper", f"workers={workers}"), corpus(), tmp_path / str(workers))
    assert same(weights(tmp_path / "1"), weights(tmp_path / "3"))


def test_an_interruption_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    wanted = recipe("dse", "steps=400", "checkpoint_every=1000")
    (tmp_path / "recipe.yaml").write_text(wanted.to_yaml())
    process = subprocess.Popen(command(tmp_path / "recipe.yaml", tmp_path / "run"), stderr=subprocess.PIPE, text=True)
    while metrics_step(tmp_path / "run") < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert "all is saved" in error
    assert "--resume" in error
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is not None


def test_a_full_disk_is_told_and_the_last_good_checkpoint_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkpoint_module.save_file

    def full(tensors: object, path: Path) -> None:
        if "000000004" in str(path.parent) or fills:
            raise OSError(28, "No space left on device")
        real(tensors, path)  # type: ignore[arg-type]

    fills: list[int] = []
    monkeypatch.setattr(checkpoint_module, "save_file", full)

    def progress(what: str, done: int, total: int | None = None) -> None:
        if done == 3:
            fills.append(1)

    with pytest.raises(CheckpointError, match=r"No space left.*the last good one is .*step-000000002"):
        train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run", progress=progress)
    monkeypatch.undo()
    train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_damaged_checkpoint_is_told_with_the_way_on(tmp_path: Path) -> None:
    train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run")
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    file = newest / "parameters.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=r"is damaged.*remove it to go on from .*step-000000004"):
        train(recipe("dse", "checkpoint_every=2"), corpus(), tmp_path / "run", resume=True)


def test_a_loss_that_is_no_number_stops_the_run_before_the_weights_are_touched(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"the loss is nan at step .*A smaller learning_rate"):
        train(recipe("dse", "learning_rate=1e30", "steps=20", "checkpoint_every=1"), corpus(), tmp_path / "run")
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None


def test_folders_that_are_taken_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError, match="holds other files"):
        train(recipe(), corpus(), tmp_path)
    train(recipe(), corpus(), tmp_path / "run")
    with pytest.raises(TrainingError, match="holds a run already"):
        train(recipe(), corpus(), tmp_path / "run")
    with pytest.raises(TrainingError, match="another recipe"):
        train(recipe("dse", "seed=2"), corpus(), tmp_path / "run", resume=True)


def test_a_finished_run_resumed_changes_nothing(tmp_path: Path) -> None:
    train(recipe(), corpus(), tmp_path / "run")
    before = weights(tmp_path / "run")
    train(recipe(), corpus(), tmp_path / "run", resume=True)
    assert same(before, weights(tmp_path / "run"))


def test_frozen_parts_do_not_move(tmp_path: Path) -> None:
    train(recipe("dse", "frozen_layers=1", "frozen_embeddings=true"), corpus(), tmp_path / "run")
    before, after = load_file(Path(backbone()) / "model.safetensors"), weights(tmp_path / "run")
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert not any(name.startswith(("embeddings.", "encoder.layer.0.")) for name in moved)
    assert any(name.startswith("encoder.layer.1.") for name in moved)


def test_the_seed_decides(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(recipe("dse", f"seed={seed}"), corpus(), tmp_path / name)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_dse_learns(tmp_path: Path) -> None:
    """A hundred steps on forty dialogues: the loss falls well below where it began."""
    train(recipe("dse", "steps=100", "batch_size=16", "schedule=constant"), corpus(), tmp_path / "run")
    losses = [line["loss"] for line in metrics(tmp_path / "run")]
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])


def test_the_probe_is_asked_and_the_best_kept(tmp_path: Path) -> None:
    asked: list[int] = []

    def probe(encoder: Encoder) -> dict[str, float]:
        asked.append(len(asked))
        return {"score": [1.0, 5.0, 2.0, 3.0][len(asked) - 1]}

    train(recipe("dse", "probe_every=2", "keep_best=score"), corpus(), tmp_path / "run", probe=probe)
    probed = [(line["step"], line["probe.score"]) for line in metrics(tmp_path / "run") if "probe.score" in line]
    assert probed == [(0, 1.0), (2, 5.0), (4, 2.0), (6, 3.0)]
    assert Encoder.load(tmp_path / "run" / "best").hidden == 32
    with pytest.raises(TrainingError, match="the probe gives score"):
        train(recipe("dse", "keep_best=other"), corpus(), tmp_path / "other", probe=lambda _: {"score": 1.0})


def test_what_is_saved_is_an_encoder_with_a_card(tmp_path: Path) -> None:
    trained = train(recipe("dse", "checkpoint_epochs=true", "steps=80"), corpus(), tmp_path / "run")
    texts = ["where is my parcel ?", "thank you"]
    again = Encoder.load(tmp_path / "run", device="cpu")
    assert np.allclose(trained.encode(texts), again.encode(texts), atol=1e-6)
    card = (tmp_path / "run" / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "temperature" in card
    assert (tmp_path / "run" / "curves.svg").read_text().startswith("<svg")
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == recipe("dse", "checkpoint_epochs=true", "steps=80")
    assert list((tmp_path / "run" / "epochs").iterdir())


def test_an_objective_without_examples_says_so(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="pairsupcon finds 0 examples"):
        train(recipe("pairsupcon-paper"), corpus(), tmp_path / "run")


def test_splits_choose_dialogues() -> None:
    everything, some = corpus(), Corpus(corpus().stores, ["train"])
    assert 0 < len(some) < len(everything)
    assert {dialogue.split for dialogue in some} == {"train"}
    assert sum(1 for _ in some) == len(some)


@pytest.mark.full
def test_a_batch_of_1024_pairs_at_bert_base_size_fits_in_8_gigabytes(tmp_path: Path) -> None:
    """Gradient caching bounds the activations: measured in a process of its own."""
    code = """
import resource, sys, torch
from transformers import BertConfig, BertModel
sys.path.insert(0, sys.argv[2])
from tiny import backbone, corpus
from transformers import AutoTokenizer
from turnwise.backbone.backbone import Backbone
from turnwise.encoder import Encoder
from turnwise.objectives.dse import DSE
from turnwise.objectives.objective import Prepared
from turnwise.training.encoding import PooledStep
from turnwise.training.loop import _token_budget
import numpy as np
model = BertModel(BertConfig())
encoder = Encoder(Backbone(model, AutoTokenizer.from_pretrained(backbone()))).train()
random = np.random.default_rng(0)
sequences = [random.integers(5, 1000, max(3, int(random.normal(16.5, 6)))).astype(np.int32) for _ in range(2048)]
heads = DSE().heads(768)
facts = {"identities": torch.arange(2048).reshape(2, 1024)}
optimizer = torch.optim.Adam([*encoder.parameters(), *heads.parameters()])
step = PooledStep(encoder, _token_budget(encoder.backbone, torch.device("cpu")))
_, cached = step.run(Prepared(sequences, 1024), lambda vectors: DSE().loss(vectors, facts, heads)[0], torch.manual_seed)
optimizer.step()
print(cached, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""
    result = subprocess.run([sys.executable, "-c", code, "x", str(HERE)], capture_output=True, text=True, check=True)
    cached, gigabytes = result.stdout.split()
    assert cached == "True"
    assert float(gigabytes) < 8


def test_streams_of_one_sequence(tmp_path: Path) -> None:
    encoder = Encoder.load(backbone(), device="cpu")
    assert encoder(TokenStream.of([np.array([2, 7, 3], np.int32)])).shape == (1, 32)
