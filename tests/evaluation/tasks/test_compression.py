"""Semantic compression against plain NumPy, λ from validation alone, and the way from training to results."""

import json
import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers.encoders import RandomEncoder
from tests.helpers.svg import group, paths
from tests.helpers.tiny import corpus, folder, recipe
from turnwise import Dialogue, Turn, train
from turnwise.cli import app
from turnwise.core.dialogue import USER, Slot
from turnwise.corpus.slots.detection import detect_store
from turnwise.corpus.slots.detectors import BuiltInDetector
from turnwise.corpus.slots.templates import Template
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.corpus.synthetic.sample import labelled_utterances
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance, OutOfScopeTexts, load_intents
from turnwise.evaluation.metrics import DESCRIPTIVE_METRICS, TEMPLATE_WEIGHT, Outcome
from turnwise.evaluation.tasks.compression import (
    CURVE_WEIGHTS,
    TEMPLATE_WEIGHTS,
    MixedEncoder,
    best_weight,
    choose_template_weight,
    compressed_geometry,
    compressed_intents,
    set_compression,
    validation_curve,
)
from turnwise.evaluation.tasks.intents import nearest_validation
from turnwise.models.compression import CompressedEncoder, Compression, TemplateSource
from turnwise.models.loading import load_model

Array = npt.NDArray[np.float64]

TEMPLATE_SOURCES = get_args(TemplateSource)


def unit(vectors: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class Side:
    """Vectors of texts, or of the templates of inputs, from a made-up encoder that reads nothing but texts."""

    def __init__(self, made: Any, templates: bool):
        self.made, self.templates = made, templates

    def read(self, item: Any) -> str:
        if isinstance(item, str):
            return item
        (turn,) = item
        return Template.from_turn(turn).text() if self.templates else turn.text

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        vectors = self.made.encode([self.read(item) for item in inputs], max_length=max_length)
        return unit(vectors) if normalise or self.templates else vectors


class AngleEncoder:
    """Vectors on the unit circle, at these degrees."""

    def __init__(self, degrees: dict[str, float]):
        self.degrees = degrees

    def encode(self, inputs: Sequence[str], *, max_length: int | None = None) -> npt.NDArray[np.float32]:
        angles = np.radians([self.degrees[text] for text in inputs])
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def make_utterance(text: str, intent: str, value: str = "") -> IntentUtterance:
    """An utterance of a data set that marks slots: this value, or none."""
    start = text.index(value) if value else 0
    return IntentUtterance(text, intent, (Slot("what", value, start, start + len(value)),) if value else ())


@settings(deadline=None)
@given(st.floats(0, 1), st.lists(st.text("abcd", min_size=1), min_size=1, max_size=6))
def test_a_mixture_is_the_equation_of_both_sides(share: float, texts: list[str]) -> None:
    own, other = RandomEncoder(), RandomEncoder(axes=True)
    actual = MixedEncoder(Side(own, False), Side(other, True), share)
    expected = np.stack([share * other.unit(text) + (1 - share) * own.unit(text) for text in texts])
    np.testing.assert_allclose(actual.encode(texts, max_length=7), expected, atol=1e-6)
    np.testing.assert_allclose(actual.encode(texts, normalise=True, max_length=7), unit(expected), atol=1e-5)
    assert own.lengths == other.lengths == [7, 7]


@given(st.dictionaries(st.floats(0, 1), st.sampled_from([0.0, 0.5, 0.75]), min_size=1, max_size=8))
def test_the_best_share_is_the_smallest_of_the_highest(curve: dict[float, float]) -> None:
    best = best_weight(curve)
    assert curve[best] == max(curve.values())
    assert not any(share < best and accuracy == curve[best] for share, accuracy in curve.items())


DATA = IntentData(
    "made_up",
    (
        *(make_utterance(f"play {value} now", "play", value) for value in ("jazz", "blues", "rock", "soul")),
        *(make_utterance(f"dim the {value}", "dim", value) for value in ("hall", "study", "attic")),
        make_utterance("never mind", "stop"),
        make_utterance("that will do", "stop"),
    ),
    (
        make_utterance("play funk now", "play", "funk"),
        make_utterance("dim the porch", "dim", "porch"),
        make_utterance("stop that", "stop"),
    ),
    (
        *(make_utterance(f"play {value} please", "play", value) for value in ("jazz", "swing")),
        *(make_utterance(f"please dim the {value}", "dim", value) for value in ("hall", "cellar")),
        *(make_utterance(text, "stop") for text in ("stop", "enough of it", "that will do")),
    ),
    OutOfScopeTexts(("who are you",), ("how old are you",), ("what are you",)),
)


def restated_nearest(train: Sequence[IntentUtterance], asked_for: Sequence[IntentUtterance], share: float) -> float:
    """1-NN by cosine of mixtures, in a double loop over utterances and the templates of those that have slots."""

    def vector(text: str, template: str) -> Array:
        return unit(share * Other().unit(template) + (1 - share) * RandomEncoder().unit(text))

    references = [(vector(each.text, shown(each)), each.intent) for each in train]
    references += [(vector(shown(each), shown(each)), each.intent) for each in train if each.slots]
    right = 0
    for each in asked_for:
        query = vector(each.text, shown(each))
        right += max(references, key=lambda reference: float(query @ reference[0]))[1] == each.intent
    return right / len(asked_for)


def shown(utterance: IntentUtterance) -> str:
    """The template as a text; of an utterance without slots, its text."""
    return utterance.text if utterance.template is None else utterance.template.text()


class Other(RandomEncoder):
    """Other vectors than `RandomEncoder` gives, so that a text is not its own template, as behind a layer."""

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        return super().vector(f"other {text}")


def sides() -> tuple[Side, Side]:
    return Side(RandomEncoder(), False), Side(Other(), True)


def test_the_curve_is_that_of_the_nearest_neighbour_in_a_double_loop() -> None:
    whole = DATA.with_out_of_scope()
    curve = validation_curve(*sides(), DATA, CURVE_WEIGHTS)
    assert list(curve) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0] and set(TEMPLATE_WEIGHTS) < set(curve)
    assert curve == pytest.approx({share: restated_nearest(whole.train, whole.valid, share) for share in CURVE_WEIGHTS})
    assert len(set(curve.values())) > 1


def test_test_utterances_see_the_chosen_share_alone() -> None:
    whole, (own, templates) = DATA.with_out_of_scope(), sides()
    accuracy, share = compressed_intents(own, {"given": templates}, DATA)
    chosen = best_weight({share: restated_nearest(whole.train, whole.valid, share) for share in TEMPLATE_WEIGHTS})
    assert share.value == chosen
    assert accuracy.value == pytest.approx(100 * restated_nearest(whole.train, whole.test, chosen))
    assert accuracy.row().n == len(whole.test)


#: At 0.5 the first is nearest to its intent, at 0.1 and 0.2 the second.
DRAWN_TO, DRAWN_FROM = make_utterance("first red", "left", "red"), make_utterance("second red", "left", "red")
LEFT_OR_RIGHT = (make_utterance("to the left", "left"), make_utterance("to the right", "right"))
OWN = AngleEncoder({"to the left": 0, "to the right": 90, "first red": 60, "second red": 30})
THEIRS = AngleEncoder({"to the left": 0, "to the right": 90, "first {SLOT}": 0, "second {SLOT}": 90})


def split(valid: IntentUtterance, test: IntentUtterance) -> IntentData:
    return IntentData("turns", LEFT_OR_RIGHT, (valid,), (test,))


def metric_values(outcomes: Sequence[Outcome]) -> dict[tuple[str, str], float]:
    return {(outcome.setting, outcome.metric): outcome.value for outcome in outcomes}


@pytest.mark.parametrize(("valid", "test", "chosen"), [(DRAWN_TO, DRAWN_FROM, 0.5), (DRAWN_FROM, DRAWN_TO, 0.1)])
def test_the_share_is_best_on_validation_whatever_it_is_on_test(
    valid: IntentUtterance, test: IntentUtterance, chosen: float
) -> None:
    own, templates = Side(OWN, False), Side(THEIRS, True)
    actual = metric_values(compressed_intents(own, {"given": templates}, split(valid, test)))
    setting = "1-NN, compressed, templates given"
    assert actual == {(setting, TEMPLATE_WEIGHT): chosen, (setting, "accuracy"): 0.0}
    # the other way round it would all have been right
    assert metric_values(compressed_intents(own, {"given": templates}, split(valid, valid)))[setting, "accuracy"] == 100


def test_every_source_has_its_own_weight_and_accuracy() -> None:
    actual: dict[TemplateSource, Any] = {
        "given": Side(THEIRS, True),
        "detected": Side(OWN, False),
        "retrieved": Side(THEIRS, True),
    }
    outcomes = compressed_intents(Side(OWN, False), actual, split(DRAWN_TO, DRAWN_FROM))
    settings_of = {source: f"1-NN, compressed, templates {source}" for source in TEMPLATE_SOURCES}
    assert [outcome.key for outcome in outcomes] == [
        ("intents", "turns", setting, metric)
        for setting in settings_of.values()
        for metric in ("accuracy", TEMPLATE_WEIGHT)
    ]
    # what is drawn to itself stays where it is: nothing to choose between
    weights = {source: metric_values(outcomes)[settings_of[source], TEMPLATE_WEIGHT] for source in TEMPLATE_SOURCES}
    assert weights == {"given": 0.5, "detected": 0.1, "retrieved": 0.5}
    assert metric_values(outcomes)[settings_of["detected"], "accuracy"] == 100
    assert TEMPLATE_WEIGHT in DESCRIPTIVE_METRICS  # no two models are compared by it


def test_nothing_is_given_where_no_slots_are_marked() -> None:
    plain = IntentData(
        "plain",
        *(
            tuple(IntentUtterance(each.text, each.intent) for each in part)
            for part in (DATA.train, DATA.valid, DATA.test)
        ),
    )
    own, templates = sides()
    outcomes = compressed_intents(own, {"given": templates, "retrieved": templates}, plain)
    assert {outcome.setting for outcome in outcomes} == {"1-NN, compressed, templates retrieved"}
    laid_out = compressed_geometry(own, {"given": templates, "retrieved": templates}, plain)
    assert {outcome.setting for outcome in laid_out} == {
        f"test utterances, λ = {share}, templates retrieved" for share in TEMPLATE_WEIGHTS
    }
    assert compressed_intents(own, {"given": templates}, plain) == []
    assert compressed_geometry(own, {"given": templates}, plain) == []


def test_uniformity_and_alignment_are_those_of_the_equations() -> None:
    """Eqs. 5 to 7 pair by pair."""
    (own, templates), test = sides(), DATA.test
    expected = {}
    for share in TEMPLATE_WEIGHTS:
        places = [
            unit(share * templates.made.unit(shown(each)) + (1 - share) * own.made.unit(each.text)).astype(np.float64)
            for each in test
        ]
        squares = {
            pair: float(((places[pair[0]] - places[pair[1]]) ** 2).sum()) for pair in combinations(range(len(test)), 2)
        }
        alike = [square for (one, two), square in squares.items() if test[one].intent == test[two].intent]
        setting = f"test utterances, λ = {share}, templates given"
        expected[setting, "uniformity"] = float(np.log(np.mean([np.exp(-2 * square) for square in squares.values()])))
        expected[setting, "alignment"] = float(np.mean(alike))
    actual = compressed_geometry(own, {"retrieved": Side(RandomEncoder(), True), "given": templates}, DATA)
    assert metric_values(actual) == pytest.approx(expected, abs=1e-5)
    assert {outcome.task for outcome in actual} == {"geometry"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt the templates of forty dialogues, a little."""
    place = tmp_path_factory.mktemp("trained") / "model"
    train(recipe("tadse", "steps=3", "template_layer=true"), corpus(), place, cache=folder() / "cache")
    return place


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten intents of the sample world; `lamps` with slots, but no validation split, and `plain` without slots."""
    place = tmp_path_factory.mktemp("data")
    (place / "intents").mkdir()
    items = list(labelled_utterances(1))
    shown_intents = {*sorted({item.intent for item in items})[:10], "out_of_scope"}
    for part in ("train", "valid", "test"):
        kept = [item for item in items if item.split == part and item.intent in shown_intents]
        lines = [
            json.dumps({"text": item.text, "intent": item.intent, "slots": [slot_line(slot) for slot in item.slots]})
            for item in kept
        ]
        (place / "intents" / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
    rows = [
        f"{verb} the {room},{verb},{verb} the {{room}}"
        for verb in ("dim", "light")
        for room in ("hall", "attic", "study", "porch")
    ]
    for name, header, lines in (
        ("lamps", "text,intent,template", rows),
        ("plain", "text,intent", [row.rpartition(",")[0] for row in rows]),
    ):
        (place / "intents_csv" / name).mkdir(parents=True)
        for part in ("train", "test"):
            (place / "intents_csv" / name / f"{part}.csv").write_text("\n".join([header, *lines]) + "\n")
    return place


def slot_line(slot: Slot) -> dict[str, Any]:
    return {"name": slot.name, "value": slot.value, "start": slot.start, "end": slot.end}


@pytest.fixture(scope="module")
def detected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store without slots, and the one that a detector made of it."""
    place = tmp_path_factory.mktemp("stores")
    with StoreWriter(place / "plain") as writer:
        writer.write(Dialogue("1", (Turn(USER, "wake me at 7 pm"), Turn(USER, "thanks"))))
        writer.commit({"reader": "jsonl", "files": []})
    detect_store(place / "plain", place / "slots", BuiltInDetector())
    return place / "plain", place / "slots"


def kept(model: Path) -> dict[str, bytes]:
    """All that a folder says of compression."""
    return {path.name: path.read_bytes() for path in (model / "compression").iterdir()}


def test_a_weight_is_chosen_saved_and_plotted(model: Path, data: Path) -> None:
    """The curve is that of the encoder itself with each λ, in the mean over data sets."""
    before = Compression.load(model / "compression")
    chosen, curve = choose_template_weight(model, data, ["sample", "lamps"], "given")
    encoder = CompressedEncoder.load(model)
    assert (encoder.compression.template_weight, encoder.compression.source) == (chosen.template_weight, "given")
    assert chosen.source == "given"
    assert chosen.template_weight == best_weight({share: curve[share] for share in TEMPLATE_WEIGHTS})
    contents = [load_intents(name, data) for name in ("sample", "lamps")]
    assert list(curve) == list(CURVE_WEIGHTS)
    for share in (0.0, 0.2, 0.5):
        encoder.compression.set(template_weight=share)
        measured = [nearest_validation(encoder, each) for each in contents]
        assert curve[share] == pytest.approx(
            100 * float(np.mean(measured)), abs=0.8
        )  # an utterance may be rounded over
    after = Compression.load(model / "compression")
    assert after.templates == before.templates and bool((after.vectors == before.vectors).all())
    svg = (model / "compression" / "curve.svg").read_text(encoding="utf-8")
    assert "validation utterances of sample, lamps, templates given" in svg
    assert len(paths(group(ElementTree.fromstring(svg), "line-0"))[0]) == len(CURVE_WEIGHTS)


def test_a_side_is_known_by_its_detector_but_not_by_the_share(model: Path, detected: tuple[Path, Path]) -> None:
    def known() -> dict[str, str | None]:
        return {source: each.fingerprint for source, each in load_model(model).variants.items()}

    first = known()
    assert set(first) == {"given", "retrieved"} and len(set(first.values())) == 2 and None not in first.values()
    set_compression(model, template_weight=0.9, source="given")
    assert known() == first
    set_compression(model, detector=detected[1])
    second = known()
    assert second != first
    set_compression(model, source="detected")
    assert known() == second


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "200", "TURNWISE_DATA": ""}
    )
    if code == 1:  # the message is printed by the entry point, which is not run here
        assert isinstance(result.exception, Exception)
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def test_from_a_trained_model_to_compressed_results(model: Path, data: Path, tmp_path: Path) -> None:
    answer = json.loads(run("compress", model, "--data", data, "--dataset", "sample", "--source", "given", "--json"))
    assert (answer["template_weight"] in TEMPLATE_WEIGHTS, answer["source"]) == (True, "given")
    assert [point["template_weight"] for point in answer["curve"]] == list(CURVE_WEIGHTS)

    command = ("--data", data, "--dataset", "sample", "--suite", "tadse")
    run("evaluate", model, *command, "--out", tmp_path / "plain")
    plain = rows(tmp_path / "plain")
    assert {setting for setting, _ in plain if "templates" in setting} == {
        *(f"1-NN, compressed, templates {source}" for source in ("given", "retrieved")),
        *(f"test utterances, λ = {share}, templates given" for share in TEMPLATE_WEIGHTS),
    }
    assert plain["1-NN, compressed, templates given", TEMPLATE_WEIGHT] == pytest.approx(answer["template_weight"])
    assert (tmp_path / "plain" / "plots" / "geometry.svg").is_file()

    run("evaluate", model, *command, "--compressed", "--out", tmp_path / "compressed")
    compressed = rows(tmp_path / "compressed")
    assert not any("templates" in setting for setting, _ in compressed)
    # what the suite measures beside the model's own vectors is what the model then gives
    assert compressed["1-NN", "accuracy"] == pytest.approx(
        plain["1-NN, compressed, templates given", "accuracy"], abs=1.0
    )
    for metric in ("uniformity", "alignment"):
        setting = f"test utterances, λ = {answer['template_weight']}, templates given"
        assert compressed["test utterances", metric] == pytest.approx(plain[setting, metric], abs=1e-4)
        assert compressed["test utterances", metric] != pytest.approx(plain["test utterances", metric], abs=1e-4)


def rows(folder: Path) -> dict[tuple[str, str], float]:
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert content["facts"]["left out"] == {}
    return {(row["setting"], row["metric"]): row["value"] for row in content["rows"]}


def test_a_share_is_set_and_shown(model: Path, detected: tuple[Path, Path]) -> None:
    printed = run("compress", model, "--weight", 0.35, "--source", "detected", "--detector", detected[1])
    assert printed.split()[-4:] == ["λ", "0.35", "templates", "detected"]
    assert json.loads(run("compress", model, "--source", "given", "--json")) == {
        "template_weight": 0.35,
        "source": "given",
        "curve": [],
    }


def test_the_curve_is_shown_and_useless_compression_is_reported(
    model: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for accuracies, message in (((0.9, 0.8), True), ((0.8, 0.8), False)):
        curve = {share: accuracies[bool(share)] for share in CURVE_WEIGHTS}
        monkeypatch.setattr("turnwise.evaluation.tasks.compression.validation_curve", lambda *_, curve=curve: curve)
        result = CliRunner().invoke(app, ["compress", str(model), "--data", str(data), "--dataset", "lamps"])
        assert ("leave compression off" in result.stderr) == message
        assert f"0.5 {100 * accuracies[1]:.2f}" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--weight", "0.2", "--dataset", "sample"), "either given or selected on a data set"),
        ((), "give λ, or a data set"),
        (("--dataset", "sample"), "name the folder of data sets"),
        (("--source", "guessed"), "is not one of 'given', 'detected', 'retrieved'"),
        (("--weight", "1.5"), "'--weight'"),
    ],
)
def test_a_wrong_command_line_fails_before_anything_is_loaded(options: tuple[str, ...], message: str) -> None:
    assert message in run("compress", "nowhere", *options, code=2)


def test_impossible_requests_fail_and_change_nothing(
    model: Path, data: Path, detected: tuple[Path, Path], tmp_path: Path
) -> None:
    before = kept(model)
    assert "no detector; choose from given, retrieved" in run("compress", model, "--source", "detected", code=1)
    assert "was not made by `turnwise corpus detect`" in run("compress", model, "--detector", detected[0], code=1)
    given_of = ("compress", model, "--data", data, "--source", "given", "--dataset")
    assert "plain marks no slots, so no templates are given" in run(*given_of, "plain", code=1)
    assert "plain marks no slots" in run(*given_of, "sample", "--dataset", "plain", code=1)
    assert "no intent data set 'simple'" in run(*given_of, "simple", code=1)
    assert kept(model) == before
    shutil.rmtree(model / "compression")
    reason = "needs a model trained on templates"
    assert reason in run("compress", model, "--weight", 0.2, code=1)
    assert reason in run(*given_of, "sample", code=1)
    where = ("--task", "geometry", "--data", data, "--out", tmp_path / "out")
    assert reason in run("evaluate", model, "--compressed", *where, code=1)
    assert not (tmp_path / "out").exists()
