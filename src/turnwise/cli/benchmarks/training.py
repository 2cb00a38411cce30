"""Training speed compared with sentence-transformers' trainer."""

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from turnwise.cli.benchmarks.common import require_peer, schema_guided_folder, time_call
from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.backbone.source import locate_model
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.objectives.dse import DSE
from turnwise.training.loop import train
from turnwise.training.metrics import read_metrics
from turnwise.training.recipe import load_recipe
from turnwise.version import describe_environment

#: Layers, hidden size and attention heads of random backbones: the speed of training depends on nothing else.
SHAPES = {"bert-base": (12, 768, 12), "minilm": (6, 384, 12), "tiny": (2, 64, 4)}


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
) -> dict[str, Any]:
    """Train on pairs of Schema-Guided with turnwise and with sentence-transformers' in-batch-negatives loss.

    Both use the same backbone, pairs, batch size, maximum length and device, in one run, and bf16 where the GPU has it.
    Our time includes loading, tokenising, the checkpoint and saving; the peer's is the trainer's alone, without saving.

    `shape` is one of `SHAPES`: random weights of that shape, with the tokenizer of `model`. The pairs are those of the
    store `corpus`, or else of Schema-Guided in `data`. `overrides` are recipe settings as for `--set`, for turnwise
    only.
    """
    require_peer("datasets")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if corpus is not None:
            store = Store(corpus)
        else:
            folder = schema_guided_folder(data)
            store = import_corpus(folder.name, folder, work / "corpus")
        pairs = _write_pairs(store, steps * batch_size, work / "pairs")
        backbone = model if shape is None else str(_random_backbone(shape, model, work / "backbone"))
        settings = [f"steps={steps}", f"batch_size={batch_size}", f"max_length={max_length}", "attention_dropout=null"]
        recipe = load_recipe("dse", [*settings, f"log_every={max(1, steps // 2)}", f"backbone={backbone}", *overrides])
        total = time_call(lambda: train(recipe, read_corpus(work / "pairs"), work / "model"))
        records = read_metrics(work / "model" / "metrics.jsonl")
        second_half = records[min(1, len(records) - 1)]
        step = batch_size / second_half["examples_per_second"]
        peer_total, peer_step = train_peer(pairs, backbone, batch_size, max_length, work / "peer")
    count = steps * batch_size
    return {
        "turnwise_pairs_per_second": count / total,
        "sentence_transformers_pairs_per_second": count / peer_total,
        "ratio": peer_total / total,
        "turnwise_steady_pairs_per_second": batch_size / step,
        "sentence_transformers_steady_pairs_per_second": batch_size / peer_step,
        "steady_ratio": peer_step / step,
        "padding_avoided": sum(record["padding_avoided"] for record in records) / len(records),
        "tokens_per_text": second_half["tokens_per_second"] / second_half["examples_per_second"] / 2,
        "pairs": count,
        "batch_size": batch_size,
        "max_length": max_length,
        "model": shape or model,
        "recipe": list(overrides),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "environment": describe_environment("sentence-transformers", "torch", "transformers"),
    }


def _random_backbone(shape: str, model: str, out: Path) -> Path:
    """Save a BERT of some shape with random weights and the tokenizer of a model."""
    if shape not in SHAPES:
        raise TurnwiseError(f"there is no shape {shape!r}: choose from {', '.join(SHAPES)}")
    layers, hidden, heads = SHAPES[shape]
    tokenizer = TrainableEncoder.load(model, device="cpu").backbone.tokenizer
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
        BertModel(config).save_pretrained(out)
    tokenizer.save_pretrained(out)
    TrainableEncoder.load(out, device="cpu").save(out)
    return out


def _write_pairs(store: Store, count: int, out: Path) -> list[tuple[str, str]]:
    """Return the first pairs that DSE would use, and write them as a store of dialogues of two turns."""
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
    raise TurnwiseError(f"the corpus has {len(pairs)} pairs, but {count} are needed: use fewer steps")


def train_peer(
    pairs: list[tuple[str, str]], backbone: str, batch_size: int, max_length: int, out: Path
) -> tuple[float, float]:
    """Train with sentence-transformers' trainer; return the seconds of the run and of a step in its second half."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    on_gpu = torch.cuda.is_available()
    step_ends: list[float] = []

    class StepClock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            step_ends.append(time.perf_counter())

    model = SentenceTransformer(str(locate_model(backbone)), device="cuda" if on_gpu else "cpu")
    model.max_seq_length = max_length
    arguments = Arguments(
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
    columns = {"anchor": [first for first, _ in pairs], "positive": [second for _, second in pairs]}
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        loss=MultipleNegativesRankingLoss(model),
        callbacks=[StepClock()],
    )
    start = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # the trainer prints to standard output, which is for our result
        total = time_call(trainer.train)
    times = [end - begin for begin, end in zip([start, *step_ends], step_ends, strict=False)]
    return total, statistics.median(times[len(times) // 2 :])
