"""The papers' plots of a model: maps of its vectors (`tsne_maps`), and TaDSE's Figures 5, 6 and 8."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

from turnwise.core.plots import line_chart
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.evaluation_protocols import NEIGHBOURS
from turnwise.evaluation.results import Results
from turnwise.evaluation.suites import LoadDataset
from turnwise.evaluation.tables import format_number
from turnwise.evaluation.tasks.compression import MixedEncoder
from turnwise.models.backbone.inputs import AuxiliaryTask
from turnwise.models.loading import ModelUnderTest
from turnwise.models.reranker import Reranker
from turnwise.papers.tsne_maps import answer_map, intent_map, mark_map, two_intents_map

#: Number of intents in the test set of ATIS: TaDSE's Figures 9 and 10 show all of them.
ATIS_INTENTS = 26

#: λ of the compressed vectors in TaDSE's Figures 4 and 10.
TWO_INTENTS_WEIGHT, ATIS_WEIGHT = 0.5, 0.2

#: A setting of uniformity and alignment; without λ, of vectors without compression.
_GEOMETRY_SETTING = re.compile(r"test utterances(?:, λ = (?P<weight>[\d.]+), templates \w+)?")

#: The file name of a plot, and the function that draws it.
_NamedPlot = tuple[str, Callable[[], str]]


def add_plots(suite: str, model: ModelUnderTest, load: LoadDataset, results: Results) -> None:
    """Add the plots of a suite to the results, or to their facts why a plot cannot be drawn.

    TaDSE's Figures 5, 8 and 10 and the second panel of Figure 4 need a model with templates, UMS's Figure 4 a re-ranker
    with heads for auxiliary tasks.
    """
    if suite == "dse" and model.encoder is not None:
        plots = _dse_plots(model.encoder, model.name, load)
    elif suite == "tadse":
        plots = _tadse_plots(model, load, results)
    elif suite == "ums" and isinstance(model.scorer, Reranker):
        plots = _ums_plots(model.scorer, model.name, load)
    else:
        return
    for name, draw in plots:
        results.add_plot(name, draw)


# ---- DSE and TaDSE


def _dse_plots(encoder: SupportsEncode, model: str, load: LoadDataset) -> Iterator[_NamedPlot]:
    for name in ("clinc150", "sample"):
        if (data := load("out-of-scope", name)) is not None:
            yield f"intents_{name}.svg", partial(intent_map, encoder, data, model=model)
    for name in ("amazonqa", "sample"):
        if (data := load("answers", name)) is not None:
            yield f"answers_{name}.svg", partial(answer_map, encoder, data.pairs, data.name, model=model)


def _tadse_plots(model: ModelUnderTest, load: LoadDataset, results: Results) -> Iterator[_NamedPlot]:
    encoder, name = model.encoder, model.name
    if encoder is not None:
        yield from _two_intent_maps(encoder, name, load)
        yield from _atis_map(encoder, name, load)
        if (given := model.variants.get("given")) is not None:
            assert given.encoder is not None
            two, atis = (MixedEncoder(encoder, given.encoder, each) for each in (TWO_INTENTS_WEIGHT, ATIS_WEIGHT))
            yield from _two_intent_maps(two, f"{name}, λ = {TWO_INTENTS_WEIGHT}", load, "_compressed")
            yield from _atis_map(atis, f"{name}, λ = {ATIS_WEIGHT}", load, "_compressed")
    yield "neighbours.svg", partial(_draw_neighbour_accuracy, results)
    if lines := _geometry_lines(results):
        title = "alignment (upwards) by uniformity; lower is better for both"
        yield "geometry.svg", partial(line_chart, lines, title, "uniformity", from_zero=False, legend_outside=True)


def _two_intent_maps(encoder: SupportsEncode, model: str, load: LoadDataset, suffix: str = "") -> Iterator[_NamedPlot]:
    """Yield TaDSE's Figure 4 for every data set."""
    for name in ("snips", "sample"):
        if (data := load("nearest", name)) is not None:
            intents = ("PlayMusic", "AddToPlaylist") if name == "snips" else _most_frequent_intents(data)
            yield f"two_intents_{name}{suffix}.svg", partial(two_intents_map, encoder, data, intents, model=model)


def _atis_map(encoder: SupportsEncode, model: str, load: LoadDataset, suffix: str = "") -> Iterator[_NamedPlot]:
    """Yield TaDSE's Figures 9 and 10."""
    if (data := load("nearest", "atis")) is not None:
        draw = partial(intent_map, encoder, data, intents=ATIS_INTENTS, out_of_scope=False, model=model)
        yield f"intents_atis{suffix}.svg", draw


def _most_frequent_intents(data: Any) -> tuple[str, str]:
    """Return the two intents with the most test utterances."""
    counts = Counter(utterance.intent for utterance in data.test)
    first, second = sorted(counts, key=lambda intent: (-counts[intent], intent))[:2]
    return first, second


def _draw_neighbour_accuracy(results: Results) -> str:
    """Draw TaDSE's Figure 6: accuracy over the number of neighbours, with a line for every data set."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in results.rows:
        count = row.setting.removesuffix("-NN")
        if row.task == "intents" and count.isdecimal() and int(count) in NEIGHBOURS and row.dataset != "average":
            series.setdefault(row.dataset, []).append((float(count), row.value))
    return line_chart(series, "accuracy of the k nearest neighbours", "k", log_x=True)


def _geometry_lines(results: Results) -> dict[str, list[tuple[float, float]]]:
    """Return TaDSE's Figures 5 and 8: (uniformity, alignment) by increasing λ, for every compressed data set."""
    metrics: dict[str, dict[float, dict[str, float]]] = {}
    for row in results.rows:
        setting = _GEOMETRY_SETTING.fullmatch(row.setting)
        if row.task == "geometry" and row.metric in ("uniformity", "alignment") and setting is not None:
            weights = metrics.setdefault(row.dataset, {})
            weights.setdefault(float(setting["weight"] or 0), {})[row.metric] = row.value
    lines = {}
    for dataset, weights in metrics.items():
        points = {weight: (at["uniformity"], at["alignment"]) for weight, at in sorted(weights.items())}
        if len(points) > 1:  # without compression there is only one point
            # the label names the ends, because the line does not show its direction
            ends = [f"λ = {weight:g} at {format_number(points[weight][0], 2)}" for weight in (min(points), max(points))]
            lines[f"{dataset}: {', '.join(ends)}"] = list(points.values())
    return lines


# ---- UMS


def _ums_plots(reranker: Reranker, model: str, load: LoadDataset) -> Iterator[_NamedPlot]:
    for name in ("ubuntu_v1", "douban", "ecommerce", "irc_ubuntu", "sample"):
        if (data := load("candidates", name)) is not None:
            for task in get_args(AuxiliaryTask):
                if task in reranker.heads:
                    yield f"marks_{name}_{task}.svg", partial(mark_map, reranker, data, task, model=model)
