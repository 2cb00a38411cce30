"""Soups: models between two others of one shape, by weighting their weights.

Training gains in some tasks and loses in others. Somewhere between the model before and the model after, what was gained may be
kept and what was lost regained (Wortsman et al., 2022, 'Robust fine-tuning of zero-shot models' and 'Model soups').

OUT/models/RATIO/                      a soup, as `Encoder.save` writes it; its soup.json says of which two models
OUT/models/RATIO/evaluation/           what it measures, as `Measures` writes it
OUT/results.json, table.md, report.html, curves/    all ratios together
"""

import copy
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.models.encoder import Encoder
from turnwise.models.identity import encoder_fingerprint, tokenizer_definition
from turnwise.models.loading import wrap_model
from turnwise.models.model_card import model_card_header
from turnwise.papers.sweeps.measures import Measures
from turnwise.papers.sweeps.points import Point
from turnwise.papers.sweeps.report import write_experiment
from turnwise.version import __version__

_DESCRIPTION = "soup.json"

#: Keys of a configuration that do not change the vectors of given weights.
_WITHOUT_EFFECT = {
    *(
        "_name_or_path",
        "architectures",
        "transformers_version",
        "dtype",
        "torch_dtype",
        "initializer_range",
        "use_cache",
    ),
    *("id2label", "label2id", "problem_type", "finetuning_task", "gradient_checkpointing"),
}

#: Parts of a tokenizer that say which words it knows.
_WORDS = {"model", "added_tokens"}


class SoupError(TurnwiseError):
    """Two models cannot be mixed, or not there; the message says why."""


def soup(first: Encoder, second: Encoder, ratio: float) -> Encoder:
    """The model at a place between two others: every weight is (1 - ratio) · first's + ratio · second's, taken in float32.

    Neither of the two is changed. The soup takes inputs as long as both do.

    Args:
        first: what a ratio of 0 gives, bit for bit.
        second: what a ratio of 1 gives, bit for bit.
        ratio: from 0 to 1.

    Raises:
        SoupError: if the ratio is another, or the two differ in more than their weights.
    """
    _expect_ratio(ratio)
    _expect_alike(first, second)
    mixed = copy.deepcopy(second if ratio == 1 else first)
    if 0 < ratio < 1:
        mixed.float()
        ours, theirs = first.state_dict(), second.state_dict()
        with torch.no_grad():
            for name, value in mixed.state_dict().items():
                if value.is_floating_point():
                    # of the two themselves: a weight that goes by two names is written twice
                    value.copy_((1 - ratio) * ours[name].float() + ratio * theirs[name].float().to(value.device))
    mixed.max_length = min(first.max_length, second.max_length)
    return mixed.eval()


def _expect_ratio(ratio: float) -> None:
    if not 0 <= ratio <= 1:  # which NaN is not either
        raise SoupError(f"a ratio of {ratio:g}: it lies between 0, the first model, and 1, the second")


# ---- what two models may not differ in


def _expect_alike(first: Encoder, second: Encoder) -> None:
    if differences := _differences(first, second):
        raise SoupError(
            f"the two models cannot be mixed; they differ in more than their weights: {'; '.join(differences)}"
        )


def _differences(first: Encoder, second: Encoder) -> list[str]:
    """What two models differ in besides their weights and how long their inputs may be."""
    found = [
        f"{name} {ours!r} and {theirs!r}"
        for name, ours, theirs in (
            ("pooling", first.pooling, second.pooling),
            ("joining turns by", first.style, second.style),
            ("vectors of length 1", first.normalise, second.normalise),
            ("special tokens", *(encoder.backbone.tokenizer.special_tokens_map for encoder in (first, second))),
        )
        if ours != theirs
    ]
    added = [set(encoder.backbone.tokenizer.get_added_vocab()) for encoder in (first, second)]
    if alone := sorted(added[0] ^ added[1]):
        found.append(f"tokens that only one has learnt ({', '.join(alone[:3])}{', …' if len(alone) > 3 else ''})")
    if parts := _unlike_tokenizers(first, second):
        found.append(f"tokenizers ({', '.join(parts)})")
    if unlike := _unlike_weights(first, second):
        found.append(f"{len(unlike)} weights, such as {unlike[0]}")
    else:
        found += _unlike_settings(first, second)
    return found


def _unlike_tokenizers(first: Encoder, second: Encoder) -> list[str]:
    """Which parts of the tokenizers differ."""
    ours, theirs = (tokenizer_definition(encoder.backbone.tokenizer) for encoder in (first, second))
    unlike = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    return list(dict.fromkeys("vocabulary" if name in _WORDS else name for name in unlike))


def _unlike_weights(first: Encoder, second: Encoder) -> list[str]:
    """Weights that only one of the two has, of other shapes, or of whole numbers that differ."""
    ours, theirs = first.state_dict(), second.state_dict()
    found = [f"{name}, which only one has" for name in sorted(ours.keys() ^ theirs.keys())]
    for name in sorted(ours.keys() & theirs.keys()):
        one, other = ours[name], theirs[name]
        if one.shape != other.shape:
            found.append(f"{name} of {tuple(one.shape)} and {tuple(other.shape)}")
        elif not one.is_floating_point() and not torch.equal(one.cpu(), other.cpu()):
            found.append(f"{name} of other whole numbers")
    return found


def _unlike_settings(first: Encoder, second: Encoder) -> list[str]:
    """Settings of the backbones that change what the same weights compute, such as the number of attention heads."""
    ours, theirs = (encoder.backbone.model.config.to_dict() for encoder in (first, second))
    names = [
        name
        for name in sorted(ours.keys() | theirs.keys())
        if name not in _WITHOUT_EFFECT and "drop" not in name and ours.get(name) != theirs.get(name)
    ]
    return [f"{name} {ours.get(name)!r} and {theirs.get(name)!r}" for name in names]


# ---- soups on disk


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two models, and what to call them."""

    names: tuple[str, str]
    encoders: tuple[Encoder, Encoder]

    @classmethod
    def load(cls, first: str | Path, second: str | Path) -> "_Pair":
        return cls((str(first), str(second)), (Encoder.load(first), Encoder.load(second)))

    def description(self) -> dict[str, Any]:
        """What is noted of the pair."""
        named = zip(("first", "second"), self.names, self.encoders, strict=True)
        return {key: {"model": name, "fingerprint": encoder_fingerprint(encoder)} for key, name, encoder in named}

    def write(self, ratio: float, folder: Path) -> None:
        """Writes the soup of a ratio: the folder is there whole or not at all."""
        _expect_free(folder)
        mixed = soup(*self.encoders, ratio)
        unfinished = folder.with_name(f"{folder.name}.writing")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        mixed.save(unfinished, _card(self.names, ratio, folder.name))
        description = {**self.description(), "ratio": ratio, "turnwise": __version__}
        (unfinished / _DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        if folder.is_dir():
            folder.rmdir()  # it is empty
        unfinished.rename(folder)


def write_soup(first: str | Path, second: str | Path, ratio: float, out: Path | str) -> None:
    """Writes one soup as a model folder, with a card that names both models and the ratio.

    Args:
        first: 'minilm', a folder, or a Hugging Face id.
        second: the same.
        ratio: from 0, the first model, to 1, the second.
        out: the folder; must be new or empty.

    Raises:
        SoupError: if the two cannot be mixed, or the folder holds something.
    """
    out = Path(out)
    _expect_ratio(ratio)
    _expect_free(out)  # before models are loaded
    _Pair.load(first, second).write(ratio, out)


def write_soups(
    first: str | Path, second: str | Path, ratios: Sequence[float], out: Path | str, progress: Progress = silent
) -> dict[float, Path]:
    """Writes the soup of every ratio to `out/models/RATIO`; those that are there already are not made again.

    Args:
        first: 'minilm', a folder, or a Hugging Face id.
        second: the same.
        ratios: from 0, the first model, to 1, the second; twelve digits of each count.
        out: the folder of all of them.
        progress: told how many are done.

    Returns:
        The folders by ratio, the smallest ratio first.

    Raises:
        SoupError: if the two cannot be mixed, or the folder holds soups of other models, or something else.
    """
    out = Path(out)
    if not ratios:
        raise SoupError("there is no ratio to mix the two models by")
    for ratio in ratios:
        _expect_ratio(ratio)
    folders = {float(name): out / "models" / name for name in sorted({_called(ratio) for ratio in ratios}, key=float)}
    pair = _Pair.load(first, second)
    _expect_alike(*pair.encoders)
    _expect_own(out, pair)
    for number, (ratio, folder) in enumerate(folders.items()):
        progress("soups", number, len(folders))
        if not (folder / _DESCRIPTION).is_file():
            pair.write(ratio, folder)
    progress("soups", len(folders), len(folders))
    return folders


def _called(ratio: float) -> str:
    """A ratio as folders and tables call it."""
    return f"{ratio:.12g}"


def _expect_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SoupError(f"{folder} is not empty: choose a new or empty folder")


def _expect_own(out: Path, pair: _Pair) -> None:
    """Makes sure that a folder holds soups of these two models, or nothing."""
    places = sorted(out.glob(f"models/*/{_DESCRIPTION}"))
    if not places and not (out / "models").is_dir():
        _expect_free(out)
    wanted = pair.description()
    for place in places:
        known = json.loads(place.read_text(encoding="utf-8"))
        for which in ("first", "second"):
            if known[which]["fingerprint"] != wanted[which]["fingerprint"]:
                models = f"{known['first']['model']} and {known['second']['model']}"
                raise SoupError(
                    f"{out} holds soups of {models}, and the {which} model is another now: choose another folder"
                )


def _card(names: tuple[str, str], ratio: float, folder: str) -> str:
    first, second = names
    made = f": every weight is {1 - ratio:.12g} · `{first}` + {_called(ratio)} · `{second}`"
    licences = (
        "Whether the model may be passed on, and for what, depends on the licences of both models and of their data."
    )
    return "\n".join([*model_card_header("An encoder between two others", made, folder), licences, ""])


# ---- soups measured


def soup_curve(
    first: str | Path,
    second: str | Path,
    ratios: Sequence[float],
    data: Path | str,
    out: Path | str,
    *,
    suites: Sequence[str] = (),
    tasks: Sequence[str] = (),
    datasets: Sequence[str] = (),
    fine_tuning: bool = False,
    effort: Effort | None = None,
    progress: Progress = silent,
) -> list[Point]:
    """Measures the soups of two models over the ratio, and writes one report of all after each.

    What is there is neither made nor measured again: the same call goes on where it was interrupted.

    Args:
        first: 'minilm', a folder, or a Hugging Face id.
        second: the same.
        ratios: from 0, the first model, to 1, the second; differences are to the smallest.
        data: a folder of data sets in their authors' layouts, or a sample world's.
        out: the folder of all soups.
        suites: by which to measure: 'dse', 'diaeval', ….
        tasks: instead of suites or besides them: 'intents', 'responses', ….
        datasets: these alone; none: all that are there.
        fine_tuning: whether to run what trains the encoder.
        effort: less than the whole protocol, for those in a hurry; results say so.
        progress: told what is under way.

    Returns:
        A point for every ratio, the smallest first.

    Raises:
        SoupError: if the two cannot be mixed, or the folder holds soups of other models, or something else.
        EvaluationError: if there is no such suite or task, or no such data, and no soup is made then; or nothing to run it on.
    """
    measures = Measures(Path(data), tuple(suites), tuple(tasks), tuple(datasets), fine_tuning, effort or Effort())
    measures.check()
    out = Path(out)
    folders = write_soups(first, second, ratios, out, progress)
    points: list[Point] = []
    for number, (ratio, folder) in enumerate(folders.items()):
        name = f"ratio {_called(ratio)}"
        progress(f"measuring: {name}", number, len(folders))
        results = measures.results(wrap_model(Encoder.load(folder), name), folder / "evaluation", progress)
        points.append(Point(name, {"ratio": ratio}, folder, results))
        write_experiment(points, ("ratio",), out, "Soups", _remarks(first, second))
    progress("measuring: done", len(folders), len(folders))
    return points


def _remarks(first: str | Path, second: str | Path) -> list[str]:
    return [
        f"Ratio 0 is {first}, ratio 1 is {second}; between them every weight is (1 − ratio) of the one and ratio of the other."
    ]
