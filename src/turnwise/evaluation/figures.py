"""The pictures of a suite: what the papers show of their vectors, of the model at hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.judged import Judged
from turnwise.evaluation.protocols import NEIGHBOURS
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks.encoding import SupportsEncode
from turnwise.evaluation.tasks.geometry import answer_map, intent_map, two_intents_map
from turnwise.svg import line_chart

#: All that occur in its test set: TaDSE's Figures 9 and 10 leave none out.
ATIS_INTENTS = 26

#: Loads a data set by protocol and name; None where it is not there.
Load = Callable[[str, str], Any]


def draw(suite: str, model: Judged, load: Load, results: Results) -> None:
    """Adds a suite's pictures to results: both panels of DSE's Figure 1, TaDSE's Figures 4, 6, 9; the other papers have none.

    A data set that is too small for a picture is noted in the results' facts.
    """
    if model.encoder is None:
        return
    for name, make in _pictures(suite, model.encoder, model.name, load).items():
        try:
            results.figures[name] = make()
        except DatasetError as error:
            results.facts.setdefault("pictures left out", {})[name] = str(error)
    if suite == "tadse":
        results.figures["neighbours.svg"] = _neighbours(results)


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
        for name in ("snips", "sample"):
            if (data := load("nearest", name)) is not None:
                intents = ("PlayMusic", "AddToPlaylist") if name == "snips" else _commonest(data)
                found[f"two_intents_{name}.svg"] = partial(two_intents_map, encoder, data, intents, model=model)
        if (data := load("nearest", "atis")) is not None:
            found["intents_atis.svg"] = partial(intent_map, encoder, data, intents=ATIS_INTENTS, out_of_scope=False, model=model)
    return found


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
