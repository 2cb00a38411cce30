"""The anchor: distances from a frozen teacher, which is the start of the run or another encoder."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertModel

from tests.helpers.tiny import backbone, corpus, expect_identical, folder, read_metrics, recipe, set_up_run, start_step
from turnwise.core.errors import TrainingError, TurnwiseError
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.encoder import Encoder
from turnwise.objectives.anchor import Anchor
from turnwise.objectives.losses import relation_distillation
from turnwise.objectives.objective import PreparedBatch
from turnwise.training.loop import train

#: The anchor as a guard of another objective.
GUARD = ("objectives.anchor.weight=1", "objectives.anchor.batch_size=8")


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(st.integers(0, 10**6), st.integers(2, 8), st.sampled_from([0.05, 0.5]))
def test_relations_equal_a_direct_implementation(seed: int, rows: int, temperature: float) -> None:
    generator = np.random.default_rng(seed)
    model, teacher = generator.normal(size=(rows, 5)), generator.normal(size=(rows, 7))
    divergences = []
    for row in range(rows):
        others = [other for other in range(rows) if other != row]
        p, q = (
            np.exp([unit(each)[row] @ unit(each)[other] / temperature for other in others]) for each in (teacher, model)
        )
        p, q = p / p.sum(), q / q.sum()
        divergences.append(float((p * np.log(p / q)).sum()))
    actual = relation_distillation(torch.tensor(model), torch.tensor(teacher), temperature)
    assert actual.item() == pytest.approx(np.mean(divergences), rel=1e-6, abs=1e-9)
    assert relation_distillation(torch.tensor(teacher), torch.tensor(teacher), temperature).item() == pytest.approx(0)


def test_vectors_are_compared_by_cosine() -> None:
    generator = np.random.default_rng(0)
    model, teacher = generator.normal(size=(6, 5)), generator.normal(size=(6, 5))
    cosines = (unit(model) * unit(teacher)).sum(1)
    loss, metrics = Anchor(temperature=0.1).loss(
        torch.tensor(model)[None], {"teacher": torch.tensor(teacher)[None]}, torch.nn.Identity()
    )
    assert loss.item() == pytest.approx((1 - cosines.mean()) / 0.1)
    assert float(metrics["cosine"]) == pytest.approx(cosines.mean())


def test_the_teacher_is_the_start_and_stays_as_it_was() -> None:
    setup = set_up_run(recipe("dse", *GUARD, dropout=0.0))
    anchor = setup.parts[1]
    assert anchor.teacher is not None
    before = {name: value.clone() for name, value in anchor.teacher.encoder.state_dict().items()}
    step = start_step(setup)
    losses = []
    for number in range(4):
        metrics = step.run(number, [loader.prepare(number) for loader in setup.loaders])
        losses.append(float(metrics["loss.anchor"]))
    assert losses[0] == pytest.approx(0, abs=1e-4)  # nothing has moved yet
    assert min(losses[1:]) > 1e-4
    assert not anchor.teacher.encoder.training
    assert all(torch.equal(value, before[name]) for name, value in anchor.teacher.encoder.state_dict().items())
    assert not any("teacher" in name for name in step.parameters)


def test_the_anchor_keeps_the_model_near_its_start(tmp_path: Path) -> None:
    texts = [turn.text for dialogue in corpus() for turn in dialogue.turns][:100]
    start = Encoder.load(backbone(0.0)).encode(texts, normalise=True)

    def distance(*changes: str) -> float:
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        model = train(recipe("dse", *changes, dropout=0.0), corpus(), place, cache=folder() / "cache")
        assert isinstance(model, Encoder)
        return float(1 - (model.encode(texts, normalise=True) * start).sum(1).mean())

    free, guarded, strict = distance(), distance(*GUARD), distance(*GUARD, "objectives.anchor.weight=20")
    assert strict < guarded < free


def test_a_resumed_run_has_the_same_teacher(tmp_path: Path) -> None:
    run = recipe("dse", *GUARD, "checkpoint_every=3")
    train(run, corpus(), tmp_path / "whole", cache=folder() / "cache")
    stopped = tmp_path / "stopped"
    train(run, corpus(), stopped, cache=folder() / "cache")
    for path in (stopped / "checkpoints" / "step-000000006").iterdir():
        path.unlink()
    (stopped / "checkpoints" / "step-000000006").rmdir()
    for name in ("trained", "model.safetensors"):
        (stopped / name).unlink()
    train(run, corpus(), stopped, resume=True, cache=folder() / "cache")
    expect_identical(tmp_path / "whole", stopped)
    assert [line["loss.anchor"] for line in read_metrics(stopped)] == [
        line["loss.anchor"] for line in read_metrics(tmp_path / "whole")
    ]


def test_another_teacher(tmp_path: Path) -> None:
    """A teacher with other weights is followed; one with another tokenizer, or other dimensions, is rejected."""
    other = Encoder.load(backbone(0.0))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    other.save(tmp_path / "teacher")
    guard = (*GUARD, f"objectives.anchor.teacher={tmp_path / 'teacher'}", "objectives.dse.weight=0", "steps=12")
    train(recipe("dse", *guard, dropout=0.0), corpus(), tmp_path / "run", cache=folder() / "cache")
    losses = [line["loss.anchor"] for line in read_metrics(tmp_path / "run")]
    assert losses[0] > 0.01
    assert losses[-1] < losses[0] / 2
    with pytest.raises(TrainingError, match="tokens of the model to train"):
        set_up_run(recipe("dse", *GUARD, "objectives.anchor.teacher=minilm"))


def test_a_teacher_may_number_the_same_tokens_differently(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    """The vectors are those of the teacher's own tokenizer; one that splits texts differently is rejected."""
    guard = (*GUARD, f"backbone={tiny_folder('bert')}")
    setup = set_up_run(recipe("dse", *guard, f"objectives.anchor.teacher={tiny_folder('mpnet')}"))
    teacher = next(part.teacher for part in setup.parts if part.teacher is not None)
    turns = ["i want a cheap room", "book a taxi xyzzy to the hotel", ""]
    sequences = setup.encoder.tokenise([*turns, ["hello", "where to"]])
    batch = teacher.translate(PreparedBatch(RaggedTokens.of(sequences), 4))
    expected = teacher.encoder.encode([*turns, ["hello", "where to"]], normalise=False)
    np.testing.assert_allclose(teacher.encoder.encode_sequences(batch.sequences, normalise=False), expected, atol=1e-6)
    tokenizer = load_backbone(tiny_folder("mpnet")).tokenizer
    tokenizer.backend_tokenizer.normalizer = None  # case is kept
    shutil.copytree(tiny_folder("mpnet"), tmp_path / "cased")
    tokenizer.save_pretrained(tmp_path / "cased")
    with pytest.raises(TrainingError, match="splits texts into other tokens"):
        set_up_run(recipe("dse", *guard, f"objectives.anchor.teacher={tmp_path / 'cased'}"))


def test_a_teacher_of_another_size_needs_relations(tmp_path: Path) -> None:
    config = BertModel.from_pretrained(backbone()).config
    config.hidden_size = 16
    small = tmp_path / "small"
    Encoder.load(backbone()).backbone.tokenizer.save_pretrained(small)
    BertModel(config).save_pretrained(small)
    guard = (*GUARD, f"objectives.anchor.teacher={small}")
    setup = set_up_run(recipe("dse", *guard))
    with pytest.raises(TurnwiseError, match="of 16 dimensions and the model of 32: set form=relations"):
        start_step(setup).run(0, [loader.prepare(0) for loader in setup.loaders])
    setup = set_up_run(recipe("dse", *guard, "objectives.anchor.form=relations"))
    metrics = start_step(setup).run(0, [loader.prepare(0) for loader in setup.loaders])
    assert float(metrics["loss.anchor"]) > 0
