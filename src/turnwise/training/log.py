"""What a run tells of itself: `metrics.jsonl`, the curves, TensorBoard on request, and the model card."""

import json
from pathlib import Path
from typing import Any

import yaml

from turnwise.core.errors import TurnwiseError
from turnwise.core.plots import line_chart
from turnwise.corpus.store import Corpus
from turnwise.models.model_card import model_card_header
from turnwise.training.recipe import Recipe


class Log:
    """Appends figures to `metrics.jsonl`; what a resumed run will do again is taken off first."""

    def __init__(self, folder: Path, step: int, tensorboard: bool, writes: bool):
        self._path = folder / "metrics.jsonl"
        self._writes = writes
        self._board: Any = _board(folder / "tensorboard") if tensorboard else None
        if writes:
            kept = [line for line in _lines(self._path) if json.loads(line)["step"] <= step] if step else []
            self._path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def write(self, step: int, figures: dict[str, float]) -> None:
        """Adds a line."""
        if not self._writes:
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **figures}) + "\n")
        if self._board is not None:
            for name, value in figures.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Closes TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TurnwiseError("TensorBoard is not installed: pip install 'turnwise[track]'") from None
    return SummaryWriter(str(folder))


def _lines(path: Path) -> list[str]:
    """Whole lines; a last one that a kill cut off is left out."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()


def curves_svg(metrics: Path) -> str:
    """The loss over the steps, and the probe's figures where there are any, as an SVG picture."""
    series: dict[str, list[tuple[float, float]]] = {}
    for line in _lines(metrics):
        record = json.loads(line)
        for name, value in record.items():
            if name == "loss" or name.startswith(("loss.", "probe.")):
                series.setdefault(name, []).append((record["step"], value))
    return line_chart(series, "Training", "step")


def model_card(recipe: Recipe, corpus: Corpus, out: Path) -> str:
    """A model card: what it is, what it learnt from and under which licence, how, and what was measured."""
    stores = [store.manifest for store in corpus.stores]
    probed = [json.loads(line) for line in _lines(out / "metrics.jsonl") if '"probe.' in line]
    kind = "A re-ranker" if recipe.reranks else "An encoder"
    stages = ", then by ".join(", ".join(stage.objectives) for stage in recipe.stages)
    lines = [
        *model_card_header(f"{kind} trained by {stages}", f" from `{recipe.backbone}`", out.name, recipe.reranks),
        "## Data",
        "",
        "| source | dialogues | utterances | licence |",
        "|---|---|---|---|",
        *(_source(store) for store in stores),
        "",
        "Whether the model may be passed on, and for what, depends on these licences.",
        "",
    ]
    if probed:
        names = [name for name in probed[0] if name != "step"]
        lines += ["## Figures", "", "| step | " + " | ".join(name.removeprefix("probe.") for name in names) + " |"]
        lines += ["|---" * (len(names) + 1) + "|"]
        lines += [f"| {row['step']} | " + " | ".join(f"{row[name]:.2f}" for name in names) + " |" for row in probed]
        lines.append("")
    tree = yaml.safe_load(recipe.to_yaml())
    lines += ["## Recipe", "", "```yaml", yaml.safe_dump(tree, sort_keys=False).rstrip(), "```", ""]
    return "\n".join(lines)


def _source(manifest: dict[str, Any]) -> str:
    licence = manifest.get("licence") or "not stated"
    return f"| {manifest.get('reader', '')} | {manifest['dialogues']:,} | {manifest['utterances']:,} | {licence} |"
