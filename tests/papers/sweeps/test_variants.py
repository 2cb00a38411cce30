"""Variants of a sweep: shared runs and first stages, and end-to-end equality."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.helpers.tiny import backbone, corpus
from tests.papers.sweeps.conftest import LoadVariants
from turnwise import evaluate
from turnwise.core.errors import TrainingError
from turnwise.corpus.storage.corpus import Corpus
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.loading import ModelUnderTest, load_model, postprocess_model, wrap_model
from turnwise.papers.sweeps import run as sweep_module
from turnwise.papers.sweeps.experiment import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.plan import Sweep, load_sweep, run_name
from turnwise.papers.sweeps.run import run_sweep
from turnwise.training.checkpoint import FIRST, TRAINED
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, load_recipe

pytestmark = pytest.mark.usefixtures("no_curves", "few_bootstrap_samples")


@dataclass
class CallLog:
    """Records training and evaluation calls instead of executing them."""

    trained: list[tuple[str, Recipe]] = field(default_factory=list)  # folder names and recipes
    first_stages: list[Path | None] = field(default_factory=list)  # those passed to the trainings
    evaluated: list[tuple[str, str | None, Path]] = field(default_factory=list)  # names, fingerprints and folders
    training_error: Callable[[Recipe], BaseException | None] = lambda _: None  # the error that a training raises


@pytest.fixture
def call_log(monkeypatch: pytest.MonkeyPatch) -> CallLog:
    log = CallLog()

    def fake_train(recipe: Recipe, corpus: Corpus, out: Path, first: Path | None = None, **_: Any) -> None:
        log.trained.append((out.name, recipe))
        log.first_stages.append(first)
        if (error := log.training_error(recipe)) is not None:
            raise error
        encoder = Encoder.load(recipe.backbone, device="cpu", pooling=recipe.pooling)
        encoder.save(out)
        (out / TRAINED).touch()

    def fake_evaluate(self: EvaluationPlan, model: ModelUnderTest, folder: Path, *_: Any) -> tuple[()]:
        log.evaluated.append((model.name, model.fingerprint, folder))
        return ()

    monkeypatch.setattr(sweep_module, "train", fake_train)
    monkeypatch.setattr(sweep_module, "release_memory", lambda: None)
    monkeypatch.setattr(EvaluationPlan, "evaluate", fake_evaluate)
    return log


def run(sweep: Sweep, out: Path, **options: Any) -> list[SweepPoint]:
    return run_sweep(sweep, corpus(), EvaluationPlan(out.parent, tasks=("nli",)), out, **options)


def test_variants_with_equal_recipes_share_a_run(
    load_variants: LoadVariants, tmp_path: Path, call_log: CallLog
) -> None:
    variants = {"own": {}, "cls": {"pooling": "cls"}, "other": {"recipe": "other"}, "max": {"pooling": "max"}}
    points = run(load_variants(variants, grid={"seed": [1, 2]}), tmp_path / "out")
    assert len(call_log.trained) == 4  # two recipes, two seeds
    assert [point.name for point in points[:3]] == ["untrained", "own, seed=1", "cls, seed=1"]
    assert not any(point.failure for point in points)
    runs = {(point.parameters["variant"] == "other", point.parameters["seed"]): point.folder for point in points[1:]}
    assert [point.folder for point in points[1:]] == [
        runs[p.parameters["variant"] == "other", p.parameters["seed"]] for p in points[1:]
    ]
    folders = [folder for _, _, folder in call_log.evaluated]
    assert len(set(folders)) == 9
    assert {folder.parent.parent for folder in folders[1:]} == {tmp_path / "out" / "points"}
    # the unchanged backbone with the variant's pooling
    pooled = {way: encoder_fingerprint(Encoder.load(backbone(), pooling=way)) for way in (None, "cls", "max")}  # type: ignore[arg-type]
    for point, (name, fingerprint, _) in zip(points[1:], call_log.evaluated[1:], strict=True):
        assert point.name == name
        assert fingerprint == pooled[variants[point.parameters["variant"]].get("pooling")]
    written = yaml.safe_load((tmp_path / "out" / "sweep.yaml").read_text(encoding="utf-8"))
    assert [each["name"] for each in written["variants"]] == list(variants)
    call_log.trained.clear()
    again = run(load_variants({**variants, "new": {"pooling": "first-last"}}, grid={"seed": [2]}), tmp_path / "out")
    assert [point.name for point in again[1:]] == [f"{name}, seed=2" for name in (*variants, "new")]
    assert call_log.trained == []


def test_recipes_with_equal_first_stages_share_it(recipes: Path, tmp_path: Path, call_log: CallLog) -> None:
    two = load_recipe(recipes / "two.yaml")
    assert two.first is not None
    points = run(load_sweep(recipes / "two.yaml", ["temperature=0.05,0.1,0.2"]), tmp_path / "out")
    first = tmp_path / "out" / "runs" / run_name(two.first)
    assert call_log.trained[0] == (first.name, two.first)
    assert [(name, each.first, each.backbone) for name, each in call_log.trained[1:]] == [
        (f"temperature={value}", two.first, two.backbone) for value in (0.05, 0.1, 0.2)
    ]
    assert call_log.first_stages == [None, first, first, first]
    assert [point.folder for point in points[1:]] == [
        tmp_path / "out" / "runs" / f"temperature={v}" for v in (0.05, 0.1, 0.2)
    ]
    # the untrained model is the backbone of both stages
    assert call_log.evaluated[0][1] == encoder_fingerprint(Encoder.load(backbone()))


def test_first_stage_is_evaluated_without_training_the_second(
    load_variants: LoadVariants, recipes: Path, tmp_path: Path, call_log: CallLog
) -> None:
    two = load_recipe(recipes / "two.yaml")
    variants = {"adapted": {"stage": "first"}, "adapted, [CLS]": {"stage": "first", "pooling": "cls"}, "both": {}}
    adapted = run(load_variants(variants, "two", given={"variants": list(variants)[:2]}), tmp_path / "out")
    assert [each for _, each in call_log.trained] == [two.first]
    assert two.first is not None
    assert {point.folder for point in adapted[1:]} == {tmp_path / "out" / "runs" / run_name(two.first)}
    run(load_variants(variants, "two"), tmp_path / "out")
    assert [set(each.objectives) for _, each in call_log.trained] == [{"masked-language"}, {"dse"}]
    # a recipe that equals the first stage reuses its run
    first = recipes / "first.yaml"
    first.write_text(two.first.to_yaml(), encoding="utf-8")
    run(load_variants({"alone": {"recipe": "first"}}, "two"), tmp_path / "out")
    assert len(call_log.trained) == 2


@pytest.mark.parametrize(
    "error", [TrainingError("the loss is nan"), torch.OutOfMemoryError("tried to allocate 20 GiB")]
)
def test_failed_training_is_tried_once_and_fails_all_points_that_need_it(
    error: Exception, load_variants: LoadVariants, tmp_path: Path, call_log: CallLog
) -> None:
    variants: dict[str, Any] = {
        "adapted": {"stage": "first"},
        "both": {},
        "warm": {"set": {"temperature": 0.5}},
        "one": {"set": {"first": None}},
        "bare": {"trained": False, "pooling": "max"},
    }
    call_log.training_error = lambda recipe: error if "masked-language" in recipe.objectives else None
    points = run(load_variants(variants, "two"), tmp_path / "out", start=False)
    assert [str(error) in point.failure for point in points] == [True, True, True, False, False]
    assert [point.name for point in points if not point.failure] == ["one", "bare"]
    assert len(call_log.trained) == 2  # the first stage once, and the recipe without one
    call_log.training_error = lambda _: None
    again = run(load_variants(variants, "two"), tmp_path / "out", start=False)
    assert not any(point.failure for point in again)
    assert len(call_log.trained) == 2 + 3


def test_untrained_model_is_left_out_if_a_variant_is_the_same(
    load_variants: LoadVariants, tmp_path: Path, call_log: CallLog
) -> None:
    def names(bare: dict[str, Any], folder: str) -> list[str]:
        return [
            point.name
            for point in run(load_variants({"bare": {"trained": False, **bare}, "own": {}}), tmp_path / folder)
        ]

    assert names({}, "a") == ["bare", "own"]
    assert names({"pooling": "mean"}, "b") == ["bare", "own"]  # the backbone's own pooling
    assert names({"recipe": "other"}, "c") == ["bare", "own"]
    assert names({"pooling": "cls"}, "d") == ["untrained", "bare", "own"]
    assert names({"set": {"layers": 1}}, "e") == ["untrained", "bare", "own"]
    assert names({"postprocess": "whitening"}, "f") == ["untrained", "bare", "own"]


def test_word_vectors_are_trained_once_on_the_sampled_corpus(
    load_variants: LoadVariants, tmp_path: Path, call_log: CallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[float, int]] = []

    def fake_training(corpus: Corpus, out: Path, *, seed: int, **_: Any) -> None:
        calls.append((corpus.fraction, seed))
        words = sorted({word for dialogue in corpus for turn in dialogue.turns for word in turn.text.lower().split()})
        out.write_text(
            "".join(f"{word} {number}.0 {len(word)}.0 1.5\n" for number, word in enumerate(words)), encoding="utf-8"
        )

    monkeypatch.setattr(sweep_module, "train_word_vectors", fake_training)
    variants: dict[str, Any] = {
        "GloVe": {"word_vectors": True},
        "GloVe, white": {"word_vectors": True, "postprocess": "whitening"},
    }
    for _ in range(2):
        points = run(load_variants(variants, set={"corpus_fraction": 0.5, "seed": 4}), tmp_path / "out")
        assert [(point.name, point.failure) for point in points] == [
            ("untrained", ""),
            ("GloVe", ""),
            ("GloVe, white", ""),
        ]
    assert calls == [(0.5, 4)]
    assert len({fingerprint for _, fingerprint, _ in call_log.evaluated}) == 3


def evaluation(data: Path) -> EvaluationPlan:
    return EvaluationPlan(data, tasks=("nli",), effort=Effort(seeds=1))


#: Both stages, only the first, the whitened backbone, and word vectors.
METHODS: dict[str, Any] = {
    "backbone, whitened": {"trained": False, "postprocess": "whitening"},
    "adapted": {"stage": "first"},
    "adapted, [CLS]": {"stage": "first", "pooling": "cls"},
    "both": {},
    "words": {"word_vectors": True},
}


@pytest.fixture(scope="module")
def table(
    load_variants: LoadVariants, world: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[SweepPoint], Path]:
    """A sweep of trained and evaluated models."""
    out = tmp_path_factory.mktemp("table") / "out"
    return (out, run_sweep(load_variants(METHODS, "two"), corpus(), evaluation(world), out), world)


@pytest.mark.full
def test_variants_equal_train_and_evaluate(
    table: tuple[Path, list[SweepPoint], Path], recipes: Path, tmp_path: Path
) -> None:
    out, points, world = table
    assert [point.name for point in points] == ["untrained", *METHODS]
    assert not any(point.failure for point in points)
    train(load_recipe(recipes / "two.yaml"), corpus(), tmp_path / "model")
    for point, folder in ((points[4], tmp_path / "model"), (points[2], tmp_path / "model" / FIRST)):
        assert point.folder is not None
        ours, alone = load_file(point.folder / "model.safetensors"), load_file(folder / "model.safetensors")
        assert ours.keys() == alone.keys() and all(torch.equal(ours[name], alone[name]) for name in ours)
    texts = list(dict.fromkeys(turn.text for dialogue in corpus() for turn in dialogue.turns))
    first = tmp_path / "model" / FIRST
    for point, model in (
        (points[1], postprocess_model(wrap_model(Encoder.load(backbone())), "whitening", texts)),
        (points[2], wrap_model(Encoder.load(first))),
        (points[3], wrap_model(Encoder.load(first, pooling="cls"))),
        (points[4], wrap_model(Encoder.load(tmp_path / "model"))),
        (points[5], load_model(f"glove:{out / 'word-vectors.txt'}")),
    ):
        results = evaluate(model, world, tasks=("nli",), effort=Effort(seeds=1))
        assert [row.value for row in results.rows] == [row.value for row in point.results[0].rows]
        assert point.results[0].facts["fingerprint"] == model.fingerprint
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert content["axes"] == ["variant"]
    assert [point["folder"] for point in content["points"][:2]] == [None, None]
    assert "adapted, [CLS]: after its first stage, cls pooling" in content["remarks"]
