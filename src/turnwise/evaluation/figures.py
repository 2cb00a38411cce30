"""The pictures of a suite: what the papers show of their vectors, of the model at hand."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.judged import Judged
from turnwise.evaluation.protocols import NEIGHBOURS
from turnwise.evaluation.reporting.cells import number
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks.compressed import Mixed
from turnwise.evaluation.tasks.encoding import SupportsEncode
from turnwise.evaluation.tasks.geometry import answer_map, intent_map, two_intents_map
from turnwise.svg import line_chart

#: All that occur in its test set: TaDSE's Figures 9 and 10 leave none out.
ATIS_INTENTS = 26

#: λ of the compressed vectors in TaDSE's Figures 4 and 10.
TWO_INTENTS_SHARE, ATIS_SHARE = 0.5, 0.2

#: A setting of uniformity and alignment: without λ, the model's vectors as they are.
_GEOMETRY = re.compile(r"test utterances(?:, λ = (?P<share>[\d.]+), templates \w+)?")

#: Loads a data set by protocol and name; None where it is not there.
Load = Callable[[str, str], Any]


def draw(suite: str, model: Judged, load: Load, results: Results) -> None:
    """Adds a suite's pictures to results: both panels of DSE's Figure 1, TaDSE's Figures 4, 6, 9; the other papers have none.

    Of a model that has learnt templates there are TaDSE's Figures 5, 8 and 10 too, and the compressed panel of 4. A data set that
    is too small for a picture is noted in the results' facts.
    """
    if model.encoder is None:
        return
    pictures = _pictures(suite, model.encoder, model.name, load)
    if suite == "tadse" and "given" in model.templates:
        pictures |= _compressed_pictures(model.encoder, model.templates["given"], model.name, load)
    for name, make in pictures.items():
        try:
            results.figures[name] = make()
        except DatasetError as error:
            results.facts.setdefault("pictures left out", {})[name] = str(error)
    if suite == "tadse":
        results.figures["neighbours.svg"] = _neighbours(results)
        if lines := _geometry_lines(results):
            title = "alignment (upwards) by uniformity; lower is better for both"
            results.figures["geometry.svg"] = line_chart(lines, title, "uniformity", from_zero=False, beside=True)


def _pictures(suite: str, encoder: SupportsEncode, model: str, load: Load) -> dict[str, Callable[[], str]]:
    found: dict[str, Callable[[], str]] = {}
    if suite == "dse":
        for name in ("clinc150", "sample"):
            if (data := load("out-of-scope", name)) is not None:
                found[f"intents_{name}.svg"] = partial(intent_map, encoder, data, model=model)
        for name in ("amazonqa", "sample"):
            if (data := load("answers", name)) is not None:
                found[f"answers_{name}.svg"] = partial(answer_map, encoder, data.pairs, data.name, model=model)
    if suite == "tadse":
        found |= {f"two_intents_{name}.svg": make for name, make in _two_intents(encoder, model, load).items()}
        found |= {f"intents_{name}.svg": make for name, make in _all_intents(encoder, model, load).items()}
    return found


def _compressed_pictures(
    utterances: SupportsEncode, templates: SupportsEncode, model: str, load: Load
) -> dict[str, Callable[[], str]]:
    """The right panel of TaDSE's Figure 4, and its Figure 10."""
    two, every = (Mixed(utterances, templates, share) for share in (TWO_INTENTS_SHARE, ATIS_SHARE))
    pairs = _two_intents(two, f"{model}, λ = {TWO_INTENTS_SHARE}", load)
    found = {f"two_intents_{name}_compressed.svg": make for name, make in pairs.items()}
    atis = _all_intents(every, f"{model}, λ = {ATIS_SHARE}", load)
    return found | {f"intents_{name}_compressed.svg": make for name, make in atis.items()}


def _two_intents(encoder: SupportsEncode, model: str, load: Load) -> dict[str, Callable[[], str]]:
    """TaDSE's Figure 4, by data set."""
    found: dict[str, Callable[[], str]] = {}
    for name in ("snips", "sample"):
        if (data := load("nearest", name)) is not None:
            intents = ("PlayMusic", "AddToPlaylist") if name == "snips" else _commonest(data)
            found[name] = partial(two_intents_map, encoder, data, intents, model=model)
    return found


def _all_intents(encoder: SupportsEncode, model: str, load: Load) -> dict[str, Callable[[], str]]:
    """TaDSE's Figures 9 and 10, by data set."""
    data = load("nearest", "atis")
    if data is None:
        return {}
    return {"atis": partial(intent_map, encoder, data, intents=ATIS_INTENTS, out_of_scope=False, model=model)}


def _commonest(data: Any) -> tuple[str, str]:
    """The two intents of most test utterances."""
    counts: dict[str, int] = {}
    for utterance in data.test:
        counts[utterance.intent] = counts.get(utterance.intent, 0) + 1
    first, second = sorted(counts, key=lambda intent: (-counts[intent], intent))[:2]
    return first, second


def _neighbours(results: Results) -> str:
    """TaDSE's Figure 6: accuracy over k, a line a data set."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in results.rows:
        count = row.setting.removesuffix("-NN")
        if row.task == "intents" and count.isdecimal() and int(count) in NEIGHBOURS and row.dataset != "average":
            series.setdefault(row.dataset, []).append((float(count), row.value))
    return line_chart(series, "accuracy by the k nearest", "k", logarithmic=True)


def _geometry_lines(results: Results) -> dict[str, list[tuple[float, float]]]:
    """TaDSE's Figures 5 and 8: uniformity and alignment from the least λ to the highest, a line a data set that was compressed."""
    metrics = ("uniformity", "alignment")
    found: dict[str, dict[float, dict[str, float]]] = {}
    for row in results.rows:
        setting = _GEOMETRY.fullmatch(row.setting)
        if row.task == "geometry" and row.metric in metrics and setting is not None:
            shares = found.setdefault(row.dataset, {})
            shares.setdefault(float(setting["share"] or 0), {})[row.metric] = row.value
    lines = {}
    for dataset, shares in found.items():
        points = {share: (at["uniformity"], at["alignment"]) for share, at in sorted(shares.items())}
        if len(points) > 1:  # what was not compressed is a point
            # a line says not by itself where it begins
            ends = ", ".join(f"λ = {share:g} at {number(points[share][0], 2)}" for share in (min(points), max(points)))
            lines[f"{dataset}: {ends}"] = list(points.values())
    return lines
