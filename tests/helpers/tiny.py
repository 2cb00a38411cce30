"""A tiny random BERT and a tiny corpus: training tests need seconds, not minutes."""

import functools
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
from turnwise.corpus.store import Corpus, StoreWriter, read_corpus
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.training.loop import _Run, train
from turnwise.training.recipe import Recipe, load_recipe

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="turnwise-tests-"))


def _stored(dialogues: Iterable[Dialogue], place: Path) -> Corpus:
    with StoreWriter(place) as writer:
        for dialogue in dialogues:
            writer.write(dialogue)
        writer.commit({"reader": "sample", "licence": "Apache-2.0"})
    return read_corpus(place)


@functools.cache
def corpus() -> Corpus:
    """Forty dialogues of the sample world, in no split: objectives that read templates want splits to be named."""
    return _stored((replace(dialogue, split=None) for dialogue in sample_dialogues(40, 1)), folder() / "store")


@functools.cache
def divided() -> Corpus:
    """The same dialogues in their splits."""
    return _stored(sample_dialogues(40, 1), folder() / "divided")


@functools.cache
def backbone(dropout: float = 0.1) -> str:
    """A BERT of two layers over the corpus' words."""
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
    """A packaged recipe, cut down to the tiny model."""
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
    return load_recipe(name, [*small, *changes])


def gradients(wanted: Recipe, place: Path) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradients of the first step."""
    run = _Run(wanted, corpus(), place, False, lambda *_: None, False, folder() / "cache")
    run.encoder.train()
    run.optimizer.step = lambda *_: None  # type: ignore[method-assign,assignment]
    figures = run._step([feed.prepare(0) for feed in run.feeds])
    found = {name: value.grad.clone() for name, value in run.named.items() if value.grad is not None}
    return float(figures["loss"]), found


def resume(wanted: Path, store: Path, place: Path) -> None:
    """Starts or goes on with a run: what other processes are given to do."""
    train(load_recipe(wanted), read_corpus(store), place, resume=True)


def weights(place: Path) -> dict[str, torch.Tensor]:
    """Those of a saved model."""
    return load_file(place / "model.safetensors")


def expect_alike(one: Path, other: Path) -> None:
    """The weights of two saved models are equal up to rounding.

    Adam moves a weight by the sign of its gradient at first, and rounding decides the sign of what is next to nothing: a few may be
    as far apart as the rate, but of a thousand less than one.
    """
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    apart = torch.cat([(value - theirs[name]).abs().flatten() for name, value in ours.items()])
    assert apart.mean() < 1e-6
    assert (apart > 2e-5).double().mean() < 1e-3
