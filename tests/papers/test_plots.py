"""Plots of TaDSE's suite: which ones a model gets, of which vectors, and the lines of uniformity and alignment."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers.encoders import RandomEncoder
from tests.helpers.svg import groups, marks, paths, texts
from turnwise.core.dialogue import Slot
from turnwise.corpus.slots.templates import Template
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance
from turnwise.evaluation.metrics import MetricRow
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks.compression import MixedEncoder
from turnwise.models.loading import FunctionEncoder, ModelUnderTest
from turnwise.papers.plots import add_plots, intent_map, two_intents_map


class TemplateVectors:
    """An encoder of the templates of turns."""

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        return RandomEncoder().encode([Template.from_turn(turn).text() for (turn,) in inputs], normalise=True)


def intent_data(name: str, intents: tuple[str, ...]) -> IntentData:
    """Return forty test utterances, each with a slot."""
    test = [
        IntentUtterance(f"{intents[number % len(intents)]} number {number}", intents[number % len(intents)])
        for number in range(40)
    ]
    marked = [
        IntentUtterance(
            each.text,
            each.intent,
            (Slot("which", value := each.text.split()[-1], len(each.text) - len(value), len(each.text)),),
        )
        for each in test
    ]
    return IntentData(name, (), (), tuple(marked))


SNIPS = intent_data("snips", ("PlayMusic", "AddToPlaylist"))
ATIS = intent_data("atis", ("flight", "airfare", "meal"))
ENCODER = FunctionEncoder(RandomEncoder().encode)


def evaluated_plots(templates: bool, rows: Sequence[MetricRow] = (), *datasets: IntentData) -> Results:
    given = ModelUnderTest("templates", TemplateVectors(), None, None, None)
    model = ModelUnderTest("mine", ENCODER, None, None, None, variants={"given": given} if templates else {})
    results = Results("mine", "tadse", rows=list(rows))
    by_name = {data.name: data for data in datasets}
    add_plots("tadse", model, lambda protocol, name: by_name.get(name), results)
    return results


@pytest.mark.full
def test_models_with_templates_have_compressed_maps() -> None:
    """TaDSE's Figure 4 at λ = 0.5, and Figure 10, which is Figure 9 at λ = 0.2."""
    plots = evaluated_plots(True, (), SNIPS, ATIS).plots
    assert set(plots) == {
        *("two_intents_snips.svg", "two_intents_snips_compressed.svg"),
        *("intents_atis.svg", "intents_atis_compressed.svg", "neighbours.svg"),
    }
    two, every = MixedEncoder(ENCODER, TemplateVectors(), 0.5), MixedEncoder(ENCODER, TemplateVectors(), 0.2)
    assert plots["two_intents_snips.svg"] == two_intents_map(ENCODER, SNIPS, model="mine")
    assert plots["two_intents_snips_compressed.svg"] == two_intents_map(two, SNIPS, model="mine, λ = 0.5")
    assert plots["intents_atis_compressed.svg"] == intent_map(
        every, ATIS, intents=3, out_of_scope=False, model="mine, λ = 0.2"
    )
    clouds = groups(ElementTree.fromstring(plots["two_intents_snips_compressed.svg"]), "cloud-")
    assert [len(marks(cloud)) for cloud in clouds] == [20, 20]


def test_models_without_templates_have_no_compressed_maps() -> None:
    assert set(evaluated_plots(False, (), SNIPS).plots) == {"two_intents_snips.svg", "neighbours.svg"}


def test_too_few_utterances_are_noted() -> None:
    few = IntentData("sample", (), (), SNIPS.test[:30])
    results = evaluated_plots(True, (), few)
    assert set(results.plots) == {"neighbours.svg"}
    assert set(results.facts["plots left out"]) == {"two_intents_sample.svg", "two_intents_sample_compressed.svg"}


def metric_row(dataset: str, setting: str, metric: str, value: float, task: str = "geometry") -> MetricRow:
    return MetricRow(task, dataset, setting, metric, value, 0.0, value, value, 1, 10)


def geometry_rows(dataset: str, points: dict[float, tuple[float, float]], source: str = "given") -> list[MetricRow]:
    """Return the rows of a data set by decreasing λ."""
    return [
        metric_row(
            dataset,
            f"test utterances, λ = {weight}, templates {source}" if weight else "test utterances",
            metric,
            value,
        )
        for weight, both in sorted(points.items(), reverse=True)
        for metric, value in zip(("alignment", "uniformity"), (both[1], both[0]), strict=True)
    ]


POINTS = {0.0: (-2.5, 1.0), 0.1: (-2.4, 0.8), 0.2: (-2.2, 0.7), 0.5: (-1.5, 0.2)}
OTHERS = {0.0: (-1.9, 0.4), 0.1: (-2.1, 0.5), 0.2: (-2.0, 0.45), 0.5: (-1.7, 0.3)}


def test_geometry_lines_run_from_the_lowest_weight_to_the_highest() -> None:
    rows = [
        *geometry_rows("snips", POINTS),
        *geometry_rows("clinc150", OTHERS, "retrieved"),
        *geometry_rows("atis", {0.0: (-3.0, 9.0)}),  # without compression: a single point is not drawn
        metric_row("snips", "contexts of 3 turns", "mean cosine of random pairs", 0.5),
        metric_row("snips", "test utterances", "accuracy", 50.0, "intents"),
    ]
    root = ElementTree.fromstring(evaluated_plots(False, rows).plots["geometry.svg"])
    lines = [paths(line)[0] for line in groups(root, "line-")]
    assert [len(line) for line in lines] == [4, 4]
    expected = np.array([list(POINTS.values()), list(OTHERS.values())]).reshape(-1, 2)
    across, up = np.array(lines).reshape(-1, 2).T
    # a straight scale for each direction, upwards being less on the page
    assert np.corrcoef(across, expected[:, 0])[0, 1] == pytest.approx(1, abs=1e-4)
    assert np.corrcoef(up, expected[:, 1])[0, 1] == pytest.approx(-1, abs=1e-4)
    shown = Counter(texts(root))
    assert shown["snips: λ = 0 at −2.50, λ = 0.5 at −1.50"] == shown["clinc150: λ = 0 at −1.90, λ = 0.5 at −1.70"] == 1
    assert shown["uniformity"] == 1 and not any(text.startswith("atis") for text in shown)


def test_no_geometry_plot_without_compression() -> None:
    assert "geometry.svg" not in evaluated_plots(False, geometry_rows("snips", {0.0: (-2.5, 1.0)})).plots
    assert "geometry.svg" not in evaluated_plots(True).plots
