"""A tiny random BERT, a tiny corpus and small recipes, for training tests that take seconds."""

import functools
import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.distributed import Processes
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, load_recipe
from turnwise.training.setup import TrainingSetup, select_corpus, set_up
from turnwise.training.step import TrainingStep

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="turnwise-tests-"))


def _write_store(dialogues: Iterable[Dialogue], place: Path) -> Corpus:
    with StoreWriter(place) as writer:
        for dialogue in dialogues:
            writer.write(dialogue)
        writer.commit({"reader": "sample", "licence": "Apache-2.0"})
    return read_corpus(place)


@functools.cache
def corpus() -> Corpus:
    """Return forty dialogues of the sample world without splits, as objectives that read templates need them."""
    return _write_store((replace(dialogue, split=None) for dialogue in sample_dialogues(40, 1)), folder() / "store")


@functools.cache
def divided() -> Corpus:
    """Return the same dialogues with their splits."""
    return _write_store(sample_dialogues(40, 1), folder() / "divided")


@functools.cache
def backbone(dropout: float = 0.1) -> str:
    """Return the folder of a BERT of two layers whose vocabulary is the corpus's words."""
    words = sorted({word for dialogue in corpus() for turn in dialogue.turns for word in turn.text.lower().split()})
    words = sorted(
        {piece for word in words for piece in word.replace("?", " ? ").replace(".", " . ").replace(",", " , ").split()}
    )
    tokenizer = Tokenizer(
        WordLevel({word: number for number, word in enumerate([*SPECIAL, *words])}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=128,
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words) + 5,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    place = folder() / f"bert-{dropout}"
    BertModel(config).save_pretrained(place)
    fast.save_pretrained(place)
    return str(place)


def recipe(name: str = "dse", *changes: str, dropout: float = 0.1) -> Recipe:
    """Load a packaged recipe, or the one of `mixture`, with a tiny model and few steps."""
    small = [
        f"backbone={backbone(dropout)}",
        "batch_size=8",
        "steps=6",
        "max_length=24",
        "log_every=1",
        "learning_rate=1e-3",
    ]
    if name == "combined":
        small.append("objectives.dse.batch_size=6")
    if name == "ums":
        small.append(f"head_dropout={dropout}")
    return load_recipe(mixture() if name == "mixture" else name, [*small, *changes])


def set_up_run(recipe: Recipe, source: Corpus | None = None, cache: Path | None = None) -> TrainingSetup:
    """Set up a run of a recipe on the tiny corpus, or another one, without training it."""
    selected = select_corpus(recipe, source or corpus())
    return set_up(recipe, TrainingCorpus(selected, cache or folder() / "cache"), recipe.backbone, Processes())


def start_step(setup: TrainingSetup) -> TrainingStep:
    """Return what makes the steps of a run."""
    setup.encoder.train()
    step = TrainingStep(setup)
    step.start()
    return step


def gradients(recipe: Recipe) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the loss and the gradients of the first step."""
    setup = set_up_run(recipe)
    step = start_step(setup)
    loss, _ = step.compute_gradients(0, [loader.prepare(0) for loader in setup.loaders])
    computed = {name: value.grad.clone() for name, value in step.parameters.items() if value.grad is not None}
    return float(loss), computed


def resume(recipe_file: Path, store: Path, out: Path) -> None:
    """Start or resume a run; the task of other processes."""
    train(load_recipe(recipe_file), read_corpus(store), out, resume=True)


def weights(model: Path) -> dict[str, torch.Tensor]:
    """Load the weights of a saved model."""
    return load_file(model / "model.safetensors")


def are_identical(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two dictionaries of tensors are equal to the last bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def expect_identical(first: Path, second: Path) -> None:
    """Check that the weights of two saved models are equal to the last bit."""
    assert are_identical(weights(first), weights(second))


def read_metrics(run: Path) -> list[dict[str, float]]:
    """Read the entries of a run's `metrics.jsonl`."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def expect_close(first: Path, second: Path) -> None:
    """Check that two models are equal up to rounding, which decides the sign, and so Adam's step, of tiny gradients."""
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    differences = torch.cat([(value - theirs[name]).abs().flatten() for name, value in ours.items()])
    assert differences.mean() < 1e-6
    assert (differences > 2e-5).double().mean() < 1e-3


@functools.cache
def mixture() -> str:
    """Return the file of a recipe with labelled utterances, two objectives of pairs, and an anchor."""
    place = folder() / "mixture.yaml"
    place.write_text(
        "objectives:\n"
        "  labelled: {contrastive_weight: 0.5, batch_size: 12}\n"
        "  pairs: {history: 1}\n"
        "  histories: {objective: pairs, weight: 2, batch_size: 6}\n"
        "  anchor: {form: relations, weight: 0.5}\n"
    )
    return str(place)
