"""Training, beside sentence-transformers' trainer."""

import contextlib
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.cli.benchmarks.profiling import LEAST, STEPS, write_profile
from turnwise.cli.benchmarks.shared import NO_PEER, schema_guided, seconds_of
from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.importing import import_corpus
from turnwise.corpus.store import Store, StoreWriter, read_corpus
from turnwise.version import describe_environment

#: Layers, hidden size and attention heads of backbones that can be made up: how long training takes hangs on them alone.
SHAPES = {"bert-base": (12, 768, 12), "minilm": (6, 384, 12), "tiny": (2, 64, 4)}


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a trainer was.

    Attributes:
        seconds: of everything.
        step: of a step in the second half of them: what is loaded, compiled and made ready at first is over then.
    """

    seconds: float
    step: float


def train_benchmark(
    data: Path | None,
    steps: int,
    batch_size: int,
    max_length: int,
    *,
    model: str = "minilm",
    shape: str | None = None,
    corpus: Path | None = None,
    overrides: tuple[str, ...] = (),
    profile: Path | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Training on pairs of Schema-Guided, beside sentence-transformers' trainer with its in-batch-negatives loss.

    The same backbone, pairs, batch size, maximum length and device, in one run; on a GPU that has it, both in bf16. Ours is timed
    with all it does: loading, tokenising, checkpoint and saving; theirs from the trainer's start to its end, with nothing saved.
    What a step takes once all is under way is told as well.

    Args:
        data: a folder with Schema-Guided.
        steps: optimiser steps of each.
        batch_size: pairs of a step.
        max_length: tokens of a text.
        model: the backbone: 'minilm', a model folder or a Hugging Face id.
        shape: one of `SHAPES`, drawn at random, with the tokenizer of `model`; None: `model` itself.
        corpus: a store to take pairs of, instead of Schema-Guided.
        overrides: more of the recipe, as `--set` takes it; for ours alone.
        profile: a file for a table of where our time goes, in a run of its own, which is not timed.
        progress: told which of the two is at work.

    Raises:
        TurnwiseError: if there is no data, too little of it, no such shape, or no peer; or too few steps for a profile.
    """
    # before anything takes its time
    if any(importlib.util.find_spec(name) is None for name in ("datasets", "sentence_transformers")):
        raise TurnwiseError(NO_PEER)
    if profile is not None and steps < LEAST:
        raise TurnwiseError(f"a profile is of {STEPS} steps, and what comes before them: take at least {LEAST}")
    # imported here: they take seconds
    import torch

    from turnwise.training.loop import train
    from turnwise.training.recipe import load_recipe

    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        progress("importing", 0, 3)
        if corpus is not None:
            store = Store(corpus)
        else:
            folder = schema_guided(data)
            store = import_corpus(folder.name, folder, place / "whole")
        pairs = _pairs(store, steps * batch_size, place / "pairs")
        backbone = model if shape is None else str(_drawn(shape, model, place / "backbone"))
        settings = [f"steps={steps}", f"batch_size={batch_size}", f"max_length={max_length}", "attention_dropout=null"]
        recipe = load_recipe("dse", [*settings, f"log_every={max(1, steps // 2)}", f"backbone={backbone}", *overrides])
        progress("turnwise", 1, 3)
        seconds = seconds_of(lambda: train(recipe, read_corpus(place / "pairs"), place / "model"))
        lines = [
            json.loads(line) for line in (place / "model" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        half = lines[min(1, len(lines) - 1)]  # the second half of the steps
        ours = Speed(seconds, batch_size / half["examples_per_second"])
        if profile is not None:
            every = replace(recipe, log_every=1)
            write_profile(
                lambda told: train(every, read_corpus(place / "pairs"), place / "profiled", progress=told),
                steps,
                profile,
            )
        progress("sentence-transformers", 2, 3)
        theirs = _peer(pairs, backbone, batch_size, max_length, place / "peer")
    count = steps * batch_size
    return {
        "turnwise_pairs_per_second": count / ours.seconds,
        "sentence_transformers_pairs_per_second": count / theirs.seconds,
        "ratio": theirs.seconds / ours.seconds,
        "turnwise_pairs_per_second_under_way": batch_size / ours.step,
        "sentence_transformers_pairs_per_second_under_way": batch_size / theirs.step,
        "ratio_under_way": theirs.step / ours.step,
        "padding_avoided": sum(line["padding_avoided"] for line in lines) / len(lines),
        "tokens_of_a_text": half["tokens_per_second"] / half["examples_per_second"] / 2,
        "pairs": count,
        "batch_size": batch_size,
        "max_length": max_length,
        "model": shape or model,
        "recipe": list(overrides),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "environment": describe_environment("sentence-transformers", "torch", "transformers"),
    }


def _drawn(shape: str, model: str, out: Path) -> Path:
    """A BERT of some shape with weights drawn at random, and the tokenizer of a model; both peers read the folder."""
    import torch
    from transformers import BertConfig, BertModel

    from turnwise.models.backbone.backbone import Backbone
    from turnwise.models.encoder import Encoder

    if shape not in SHAPES:
        raise TurnwiseError(f"there is no shape {shape!r}: choose from {', '.join(SHAPES)}")
    layers, hidden, heads = SHAPES[shape]
    tokenizer = Encoder.load(model, device="cpu").backbone.tokenizer
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Encoder(Backbone(BertModel(config), tokenizer)).save(out)
    return out


def _pairs(store: Store, count: int, out: Path) -> list[tuple[str, str]]:
    """The first pairs that DSE takes, as texts and as a store of dialogues of two turns."""
    from turnwise.objectives.dse import DSE

    pairs: list[tuple[str, str]] = []
    with StoreWriter(out) as writer:
        for dialogue in store:
            for example in DSE().examples(dialogue):
                (first, _), (second, _) = example.windows
                writer.write(Dialogue(str(len(pairs)), dialogue.turns[first : second + 1]))
                pairs.append((dialogue.turns[first].text, dialogue.turns[second].text))
                if len(pairs) == count:
                    writer.commit({})
                    return pairs
    raise TurnwiseError(f"the corpus gives {len(pairs)} pairs, {count} are wanted: take fewer steps")


def _peer(pairs: list[tuple[str, str]], backbone: str, batch_size: int, max_length: int, out: Path) -> Speed:
    """sentence-transformers' trainer on the same pairs."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    from turnwise.models.backbone.source import locate_model

    on_gpu = torch.cuda.is_available()
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

    model = SentenceTransformer(str(locate_model(backbone)), device="cuda" if on_gpu else "cpu")
    model.max_seq_length = max_length
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out),
        num_train_epochs=1,
        per_device_train_batch_size=batch_size,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=not on_gpu,
        bf16=on_gpu and torch.cuda.is_bf16_supported(),
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(
            {"anchor": [first for first, _ in pairs], "positive": [second for _, second in pairs]}
        ),
        loss=MultipleNegativesRankingLoss(model),
        callbacks=[Clock()],
    )
    begin = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # the trainer prints its figures where ours are read from
        seconds = seconds_of(trainer.train)
    taken = [end - start for start, end in zip([begin, *ends], ends, strict=False)]
    return Speed(seconds, statistics.median(taken[len(taken) // 2 :]))
