"""Series of models, evaluated and reported together: the saved epochs of a run, and soups over the ratio of two models.

OUT/epochs/003/SUITE/    the results of an epoch, as `turnwise evaluate` writes them; epoch 0 is the untrained start
OUT/epochs/003/cache/    its outcomes and vectors
OUT/models/RATIO/        a soup, as `save` writes it; soup.json names the two models
OUT/models/RATIO/evaluation/    its results
OUT/results.json, table.md, report.html, curves/    all models together
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import ModelError, TurnwiseError
from turnwise.core.files import read_json, replacing, write_json
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.source import Pooling, is_reranker, locate_model, model_card_header
from turnwise.models.encoder import encoder_fingerprint
from turnwise.models.loading import load_model, wrap_model
from turnwise.models.reranker import Reranker, reranker_fingerprint
from turnwise.models.soup import average_weights, check_ratio, check_same_architecture
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.papers.sweeps.experiment import EvaluationPlan, SweepPoint, write_experiment
from turnwise.papers.sweeps.run import load_untrained
from turnwise.training.checkpoint import EPOCHS, FIRST, saved_epochs
from turnwise.training.recipe import load_recipe
from turnwise.version import __version__

_DESCRIPTION = "soup.json"


def evaluate_epochs(
    run: Path, evaluation: EvaluationPlan, out: Path, pooling: Pooling | None = None, progress: Progress = silent
) -> list[SweepPoint]:
    """Evaluate the untrained start and every saved epoch of a run, and update one report in `out` after each.

    Existing results are reused: the same call continues an interrupted one, and evaluates epochs that were added.
    Differences refer to the first point, the untrained start if it is available. `pooling` replaces the models' own.
    Raises TrainingError if the run has no saved epochs.
    """
    evaluation.check()
    epochs = saved_epochs(run)
    remarks = [f"The models saved after the epochs of {run}; epoch 0 is the model that training started from."]
    points: list[SweepPoint] = []
    for epoch in (0, *epochs):
        name = f"epoch {epoch}"
        progress(f"evaluating: {name}", len(points), len(epochs) + 1)
        if epoch:
            model = load_model(epochs[epoch], pooling, title=name)
        else:
            try:
                recipe = load_recipe(run / "recipe.yaml")
                if recipe.reranks:
                    raise TurnwiseError("the layers of a re-ranker do not exist before its training")
                if recipe.first is not None:
                    model = load_model(run / FIRST, pooling, title=name)
                else:
                    model = wrap_model(load_untrained(recipe, pooling), name)
            except TurnwiseError as error:
                remarks.append(f"Epoch 0 is missing: {error}")
                continue
        results = evaluation.evaluate(model, out / EPOCHS / f"{epoch:03d}", progress)
        points.append(SweepPoint(name, {"epoch": epoch}, epochs.get(epoch), results))
        write_experiment(points, ("epoch",), out, f"Epochs of {run}", remarks)
    progress("evaluating: done", len(epochs) + 1, len(epochs) + 1)
    return points


def write_soup(first: str | Path, second: str | Path, ratio: float, out: Path | str) -> None:
    """Write one soup to a new or empty model folder, with a model card that names both models and the ratio."""
    check_ratio(ratio)
    _check_empty(Path(out))  # before models are loaded
    _ModelPair(first, second).write_soup(ratio, Path(out))


def write_soups(
    first: str | Path, second: str | Path, ratios: Sequence[float], out: Path | str, progress: Progress = silent
) -> dict[float, Path]:
    """Write the soup of every ratio to `out/models/RATIO`, unless it exists; return the folders by increasing ratio.

    The first model has ratio 0, the second ratio 1; ratios are rounded to twelve digits. Raises ModelError if the two
    cannot be averaged, or the folder contains soups of other models or other files.
    """
    out = Path(out)
    for ratio in ratios:
        check_ratio(ratio)
    names = sorted({_format_ratio(ratio) for ratio in ratios}, key=float)
    folders = {float(name): out / "models" / name for name in names}
    pair = _ModelPair(first, second)
    _check_same_pair(out, pair)
    for number, (ratio, folder) in enumerate(folders.items()):
        progress("soups", number, len(folders))
        if not (folder / _DESCRIPTION).is_file():
            pair.write_soup(ratio, folder)
    progress("soups", len(folders), len(folders))
    return folders


def evaluate_soups(
    first: str | Path,
    second: str | Path,
    ratios: Sequence[float],
    evaluation: EvaluationPlan,
    out: Path,
    progress: Progress = silent,
) -> list[SweepPoint]:
    """Write and evaluate soups, as `write_soups` does, and update one report of all ratios after each.

    Existing soups and results are reused: the same call continues an interrupted one. Differences are reported to the
    smallest ratio. Raises TurnwiseError if the suites, tasks or data do not exist; no soup is written then.
    """
    evaluation.check()
    folders = write_soups(first, second, ratios, out, progress)
    remark = f"Ratio 0 is {first}, ratio 1 is {second}; every weight is (1 − ratio) · first + ratio · second."
    points: list[SweepPoint] = []
    for number, (ratio, folder) in enumerate(folders.items()):
        name = f"ratio {_format_ratio(ratio)}"
        progress(f"evaluating: {name}", number, len(folders))
        results = evaluation.evaluate(load_model(folder, title=name), folder / "evaluation", progress)
        points.append(SweepPoint(name, {"ratio": ratio}, folder, results))
        write_experiment(points, ("ratio",), out, "Soups", [remark])
    progress("evaluating: done", len(folders), len(folders))
    return points


class _ModelPair:
    def __init__(self, first: str | Path, second: str | Path):
        self.names = (str(first), str(second))
        self.models = (_load(first), _load(second))
        check_same_architecture(*self.models)

    def describe(self) -> dict[str, Any]:
        prints = [reranker_fingerprint(m) if isinstance(m, Reranker) else encoder_fingerprint(m) for m in self.models]
        pairs = zip(("first", "second"), self.names, prints, strict=True)
        return {key: {"model": name, "fingerprint": fingerprint} for key, name, fingerprint in pairs}

    def write_soup(self, ratio: float, folder: Path) -> None:
        """Write the soup of a ratio; the folder appears complete or not at all."""
        _check_empty(folder)
        soup = average_weights(*self.models, ratio)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as part:
            soup.save(part, _model_card(self.names, ratio, folder.name, isinstance(soup, Reranker)))
            write_json(part / _DESCRIPTION, {**self.describe(), "ratio": ratio, "turnwise": __version__})


def _load(name: str | Path) -> TrainableEncoder | Reranker:
    return Reranker.load(name) if is_reranker(locate_model(name)) else TrainableEncoder.load(name)


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.12g}"


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} is not empty: choose a new or empty folder")


def _check_same_pair(out: Path, pair: _ModelPair) -> None:
    """Check that a folder contains soups of these two models, or nothing."""
    if not (out / "models").is_dir():
        _check_empty(out)
    expected = pair.describe()
    for path in sorted(out.glob(f"models/*/{_DESCRIPTION}")):
        existing = read_json(path)
        for which in ("first", "second"):
            if existing[which]["fingerprint"] != expected[which]["fingerprint"]:
                models = f"{existing['first']['model']} and {existing['second']['model']}"
                raise ModelError(
                    f"{out} contains soups of {models}, and the {which} model is a different one: choose another folder"
                )


def _model_card(names: tuple[str, str], ratio: float, folder: str, reranker: bool) -> str:
    formula = f": every weight is {1 - ratio:.12g} · `{names[0]}` + {_format_ratio(ratio)} · `{names[1]}`"
    licence = "Check the licences of both models and of their training data before you redistribute this model."
    kind = f"{'A re-ranker' if reranker else 'An encoder'} between two others"
    return "\n".join([*model_card_header(kind, formula, folder, reranker), licence, ""])
