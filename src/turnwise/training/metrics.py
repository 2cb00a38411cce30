"""Metrics of a run: those of a step, `metrics.jsonl`, the training curves, TensorBoard, and the model card."""

import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnwise.core.imports import explain_missing_packages
from turnwise.core.plots import line_chart
from turnwise.corpus.storage.corpus import Corpus
from turnwise.models.backbone.source import model_card_header
from turnwise.objectives.objective import Metrics, PreparedBatch, TurnTable
from turnwise.training.recipe import Recipe


class StepMetrics:
    """The metrics of a step (counted from 1), copied from the device in the background."""

    def __init__(self, step: int, metrics: Metrics, batches: list[PreparedBatch]):
        self.step = step
        self.batches = batches
        self._metrics = metrics
        values = torch.stack([value.detach().double() for value in metrics.values() if isinstance(value, torch.Tensor)])
        self._copied = values.to("cpu", non_blocking=True)
        self._event = torch.cuda.Event() if values.device.type == "cuda" else None
        if self._event is not None:
            self._event.record()

    def values(self) -> dict[str, float]:
        """Return the metrics; wait until the step is done."""
        if self._event is not None:
            self._event.synchronize()
        copied = iter(self._copied.tolist())
        return {name: next(copied) if isinstance(each, torch.Tensor) else each for name, each in self._metrics.items()}


class ThroughputMeter:
    """Measures examples and tokens per second between log entries."""

    def __init__(self, device: torch.device):
        self._device = device
        self._start = time.perf_counter()
        self._examples = self._tokens = 0

    def count(self, batches: list[PreparedBatch]) -> None:
        """Add the batches of a step."""
        self._examples += sum(batch.rows for batch in batches)
        self._tokens += sum(int(batch.sequences.lengths.sum()) for batch in batches)

    def read(self, batches: list[PreparedBatch]) -> dict[str, float]:
        """Return the metrics since the last call; `batches` are those of the latest step."""
        seconds = time.perf_counter() - self._start
        lengths = [batch.sequences.lengths for batch in batches]
        padded = sum(int(each.max()) * len(each) for each in lengths)
        cuda = self._device.type == "cuda"
        metrics = {
            "examples_per_second": self._examples / seconds,
            "tokens_per_second": self._tokens / seconds,
            "padding_avoided": 1 - sum(int(each.sum()) for each in lengths) / padded,
            "memory_gigabytes": torch.cuda.max_memory_allocated(self._device) / 1e9
            if cuda
            else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        }
        self._start += seconds
        self._examples = self._tokens = 0
        return metrics


class MetricsLog:
    """Appends metrics to `metrics.jsonl`, after removing entries beyond the step at which a run resumes."""

    def __init__(self, folder: Path, step: int, writes: bool, tensorboard: bool):
        self._path = folder / "metrics.jsonl"
        self._writes = writes
        self._tensorboard: Any = _open_tensorboard(folder / "tensorboard") if tensorboard and writes else None
        if writes:
            earlier = [record for record in read_metrics(self._path) if record["step"] <= step] if step else []
            self._path.write_text("".join(json.dumps(record) + "\n" for record in earlier), encoding="utf-8")

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Append an entry."""
        if not self._writes:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._tensorboard is not None:
            self._tensorboard.close()


def _open_tensorboard(folder: Path) -> Any:
    with explain_missing_packages():
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(str(folder))


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Return the records of `metrics.jsonl`, without a last one that a killed process left incomplete."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def plot_curves(metrics: Path) -> str:
    """Return a plot of the loss and of the probe's metrics over the steps, as SVG."""
    series: dict[str, list[tuple[float, float]]] = {}
    for record in read_metrics(metrics):
        for name, value in record.items():
            if name == "loss" or name.startswith(("loss.", "probe.")):
                series.setdefault(name, []).append((record["step"], value))
    return line_chart(series, "Training", "step")


def model_card(recipe: Recipe, corpus: Corpus, texts: TurnTable, out: Path) -> str:
    """Return a model card: the kind of model, its data and their licences, the probe's metrics, and the recipe.

    `texts` are the turns of the corpus that were read.
    """
    kind = "A re-ranker" if recipe.reranks else "An encoder"
    stages = ", then by ".join(", ".join(stage.objectives) for stage in recipe.stages)
    lines = [
        *model_card_header(f"{kind} trained by {stages}", f" from `{recipe.backbone}`", out.name, recipe.reranks),
        "## Data",
        "",
        "| source | dialogues | utterances | licence |",
        "|---|---|---|---|",
    ]
    utterances = np.diff(texts.store_starts)
    dialogues = np.diff(np.searchsorted(texts.dialogue_starts, texts.store_starts))
    for store, *counts in zip(corpus.stores, dialogues.tolist(), utterances.tolist(), strict=True):
        licence = store.manifest.get("licence") or "not stated"
        cells = [str(store.manifest.get("reader", "")), *(f"{count:,}" for count in counts), licence]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Whether and for what the model may be passed on depends on these licences.", ""]
    records = read_metrics(out / "metrics.jsonl")
    if probes := [record for record in records if any(name.startswith("probe.") for name in record)]:
        names = [name for name in probes[0] if name != "step"]
        lines += ["## Metrics", "", "| step | " + " | ".join(name.removeprefix("probe.") for name in names) + " |"]
        lines += ["|---" * (len(names) + 1) + "|"]
        lines += [f"| {row['step']} | " + " | ".join(f"{row[name]:.2f}" for name in names) + " |" for row in probes]
        lines.append("")
    lines += ["## Recipe", "", "```yaml", recipe.to_yaml().rstrip(), "```", ""]
    return "\n".join(lines)
