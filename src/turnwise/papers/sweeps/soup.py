"""Write and evaluate model soups: the models between two others, over the ratio of their weights.

OUT/models/RATIO/                      a soup, as `save` writes it; soup.json names the two models
OUT/models/RATIO/evaluation/           its results
OUT/results.json, table.md, report.html, curves/    all ratios together
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.core.errors import ModelError
from turnwise.core.files import read_json, replacing, write_json
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.source import is_reranker, locate_model
from turnwise.models.encoder import encoder_fingerprint
from turnwise.models.loading import load_folder
from turnwise.models.model_card import model_card_header
from turnwise.models.reranker import Reranker, reranker_fingerprint
from turnwise.models.soup import average_weights, check_ratio, check_same_architecture
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.papers.sweeps.points import EvaluationPlan, SweepPoint
from turnwise.papers.sweeps.report import write_experiment
from turnwise.version import __version__

_DESCRIPTION = "soup.json"


class _ModelPair:
    def __init__(self, first: str | Path, second: str | Path):
        self.names = (str(first), str(second))
        self.models = (_load(first), _load(second))
        check_same_architecture(*self.models)

    def describe(self) -> dict[str, Any]:
        pairs = zip(("first", "second"), self.names, self.models, strict=True)
        return {key: {"model": name, "fingerprint": _fingerprint(model)} for key, name, model in pairs}

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


def _fingerprint(model: TrainableEncoder | Reranker) -> str:
    return reranker_fingerprint(model) if isinstance(model, Reranker) else encoder_fingerprint(model)


def write_soup(first: str | Path, second: str | Path, ratio: float, out: Path | str) -> None:
    """Write one soup to a new or empty model folder, with a model card that names both models and the ratio."""
    out = Path(out)
    check_ratio(ratio)
    _check_empty(out)  # before models are loaded
    _ModelPair(first, second).write_soup(ratio, out)


def write_soups(
    first: str | Path, second: str | Path, ratios: Sequence[float], out: Path | str, progress: Progress = silent
) -> dict[float, Path]:
    """Write the soup of every ratio to `out/models/RATIO`, unless it exists; return the folders by increasing ratio.

    The first model has ratio 0, the second ratio 1; ratios are rounded to twelve digits. Raises ModelError if the two
    cannot be averaged, or the folder contains soups of other models or other files.
    """
    out = Path(out)
    if not ratios:
        raise ModelError("no ratio given: name at least one between 0 and 1")
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
    out: Path | str,
    progress: Progress = silent,
) -> list[SweepPoint]:
    """Write and evaluate soups, as `write_soups` does, and update one report of all ratios after each.

    Existing soups and results are reused: the same call continues an interrupted one. Differences are reported to the
    smallest ratio. Raises EvaluationError if the suites, tasks or data do not exist; no soup is written then.
    """
    evaluation.check()
    out = Path(out)
    folders = write_soups(first, second, ratios, out, progress)
    remark = f"Ratio 0 is {first}, ratio 1 is {second}; every weight is (1 − ratio) · first + ratio · second."
    points: list[SweepPoint] = []
    for number, (ratio, folder) in enumerate(folders.items()):
        name = f"ratio {_format_ratio(ratio)}"
        progress(f"evaluating: {name}", number, len(folders))
        results = evaluation.evaluate(load_folder(folder, name), folder / "evaluation", progress)
        points.append(SweepPoint(name, {"ratio": ratio}, folder, results))
        write_experiment(points, ("ratio",), out, "Soups", [remark])
    progress("evaluating: done", len(folders), len(folders))
    return points


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.12g}"


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} is not empty: choose a new or empty folder")


def _check_same_pair(out: Path, pair: _ModelPair) -> None:
    """Check that a folder contains soups of these two models, or nothing."""
    paths = sorted(out.glob(f"models/*/{_DESCRIPTION}"))
    if not paths and not (out / "models").is_dir():
        _check_empty(out)
    expected = pair.describe()
    for path in paths:
        existing = read_json(path)
        for which in ("first", "second"):
            if existing[which]["fingerprint"] != expected[which]["fingerprint"]:
                models = f"{existing['first']['model']} and {existing['second']['model']}"
                raise ModelError(
                    f"{out} contains soups of {models}, and the {which} model is a different one: choose another folder"
                )


def _model_card(names: tuple[str, str], ratio: float, folder: str, reranker: bool) -> str:
    first, second = names
    formula = f": every weight is {1 - ratio:.12g} · `{first}` + {_format_ratio(ratio)} · `{second}`"
    licence = "Check the licences of both models and of their training data before you redistribute this model."
    header = model_card_header(
        f"{'A re-ranker' if reranker else 'An encoder'} between two others", formula, folder, reranker
    )
    return "\n".join([*header, licence, ""])
