"""Soups: exact at both ends, linear between, refused where two models differ in more than weights, measured once."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from typer.testing import CliRunner

from turnwise.cli.experiments import soup_command
from turnwise.corpus.synthetic.sample_folder import write_sample
from turnwise.evaluation import runner as evaluating
from turnwise.evaluation.evaluation_protocols import Effort
from turnwise.evaluation.runner import EvaluationError
from turnwise.models.encoder import Encoder
from turnwise.models.identity import encoder_fingerprint
from turnwise.papers.sweeps.points import Point
from turnwise.papers.sweeps.soup import SoupError, soup, soup_curve, write_soup, write_soups

TEXTS = ["i want to book a table", "where is the hotel", ["hello", "cancel the taxi please"]]
HASTE = Effort(seeds=1, steps=1)

#: What curves are measured by; 'sts' is a part of the suite, too.
MEASURES: dict[str, Any] = {"suites": ["dialoguecse"], "tasks": ["nli", "sts"], "effort": HASTE}


def moved(encoder: Encoder, seed: int = 1) -> Encoder:
    """The same model with other weights."""
    other = copy.deepcopy(encoder)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))
    return other


@pytest.fixture(scope="module")
def first(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


@pytest.fixture(scope="module")
def second(first: Encoder) -> Encoder:
    return moved(first)


@pytest.fixture(scope="module")
def folders(first: Encoder, second: Encoder, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two on disk."""
    place = tmp_path_factory.mktemp("parents")
    first.save(place / "before")
    second.save(place / "after")
    return place / "before", place / "after"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("soup") / "world"
    write_sample(folder, 60, 1)
    return folder


def weights(encoder: Encoder) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in encoder.state_dict().items()}


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- the weights


@pytest.mark.parametrize("family", ["bert", "distilbert", "t5"])
def test_the_ends_are_the_two_models_bit_for_bit(family: str, tiny_folder: Callable[[str], Path]) -> None:
    first = Encoder.load(tiny_folder(family), device="cpu")
    second = moved(first)
    for ratio, end in ((0, first), (1, second)):
        made = soup(first, second, ratio)
        assert same(weights(made), weights(end))
        assert encoder_fingerprint(made) == encoder_fingerprint(end)
        assert made is not end and made.backbone is not end.backbone


@settings(deadline=None, max_examples=20)
@given(st.floats(0, 1))
def test_every_weight_lies_at_the_ratio(first: Encoder, second: Encoder, ratio: float) -> None:
    ours, theirs, found = weights(first), weights(second), weights(soup(first, second, ratio))
    for name, value in found.items():
        expected = (1 - ratio) * ours[name].astype(np.float64) + ratio * theirs[name].astype(np.float64)
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["roberta", "modernbert", "t5"])
def test_weights_that_go_by_two_names_lie_at_the_ratio_too(family: str, tiny_folder: Callable[[str], Path]) -> None:
    first = Encoder.load(tiny_folder(family), device="cpu")
    second = moved(first)
    ours, theirs, found = weights(first), weights(second), weights(soup(first, second, 0.25))
    for name, value in found.items():
        np.testing.assert_allclose(value, 0.75 * ours[name] + 0.25 * theirs[name], rtol=1e-5, atol=1e-6)


def test_the_two_models_stay_as_they_are(first: Encoder, second: Encoder) -> None:
    before = weights(first), weights(second)
    made = soup(first, second, 0.5)
    with torch.no_grad():
        for ends in (made, soup(first, second, 0), soup(first, second, 1)):
            for parameter in ends.parameters():
                parameter.zero_()
    assert same(weights(first), before[0]) and same(weights(second), before[1])


def test_inputs_are_as_long_as_both_models_take(first: Encoder, second: Encoder) -> None:
    short = copy.deepcopy(second)
    short.max_length = 7
    for ratio in (0, 0.5, 1):
        assert soup(first, short, ratio).max_length == soup(short, first, ratio).max_length == 7
    assert short.max_length == 7 and first.max_length > 7


def test_another_dropout_is_no_other_model(first: Encoder, second: Encoder) -> None:
    dropped = copy.deepcopy(second)
    dropped.backbone.set_dropout(0.3, 0.2)
    assert same(weights(soup(first, dropped, 0.5)), weights(soup(first, second, 0.5)))


# ---- refusals


@pytest.mark.parametrize("ratio", [-0.001, 1.001, float("nan"), float("inf")])
def test_there_is_nothing_beyond_the_two(first: Encoder, second: Encoder, ratio: float) -> None:
    with pytest.raises(SoupError, match="lies between 0, the first model, and 1, the second"):
        soup(first, second, ratio)


def changed(encoder: Encoder, **attributes: Any) -> Encoder:
    other = copy.deepcopy(encoder)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other


def without_a_layer(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder)
    del other.backbone.layer_list()[-1]
    return other


def with_roles(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder)
    other.backbone.add_tokens(("[SYS]", "[USR]"))
    return other


def with_heads(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder)
    other.backbone.model.config.num_attention_heads = 2
    return other


def with_another_end(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder)
    other.backbone.tokenizer.sep_token = "hotel"
    return other


def with_case(encoder: Encoder) -> Encoder:
    from tokenizers import normalizers

    other = copy.deepcopy(encoder)
    other.backbone.tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return other


def with_another_word(encoder: Encoder) -> Encoder:
    """As many words, so that all weights are of one shape."""
    from tokenizers import Tokenizer

    other = copy.deepcopy(encoder)
    backend = json.loads(other.backbone.tokenizer.backend_tokenizer.to_str())
    backend["model"]["vocab"] = {
        word if word != "hotel" else "inn": number for word, number in backend["model"]["vocab"].items()
    }
    other.backbone.tokenizer._tokenizer = Tokenizer.from_str(json.dumps(backend))
    return other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda encoder: changed(encoder, pooling="cls"), "pooling 'mean' and 'cls'"),
        (lambda encoder: changed(encoder, style="roles"), "joining turns by 'separator' and 'roles'"),
        (lambda encoder: changed(encoder, normalise=True), "vectors of length 1 False and True"),
        (without_a_layer, r"16 weights, such as backbone\.model\.encoder\.layer\.1\.\S+, which only one has"),
        (
            with_roles,
            r"tokenizers \(vocabulary\S*.*1 weights, such as \S+word_embeddings\.weight of \(\d+, 32\) and \(\d+, 32\)",
        ),
        (with_heads, "num_attention_heads 4 and 2"),
        (with_another_end, "special tokens {.*} and {.*'sep_token': 'hotel'"),
        (with_case, r"weights: tokenizers \(normalizer\)$"),
        (with_another_word, r"weights: tokenizers \(vocabulary\)$"),
    ],
)
def test_models_that_differ_in_more_than_weights_are_refused(
    first: Encoder, second: Encoder, change: Callable[[Encoder], Encoder], said: str
) -> None:
    for ratio in (0, 0.5, 1):  # the ends too: a curve is not to break off in the middle
        with pytest.raises(SoupError, match=said):
            soup(first, change(second), ratio)


def test_another_family_is_refused(first: Encoder, tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(SoupError, match="which only one has"):
        soup(first, Encoder.load(tiny_folder("distilbert"), device="cpu"), 0.5)


# ---- on disk


def test_a_soup_reloads_to_the_same_vectors_and_names_its_parents(
    folders: tuple[Path, Path], first: Encoder, second: Encoder, tmp_path: Path
) -> None:
    (tmp_path / "half").mkdir()  # an empty folder will do
    write_soup(*folders, 0.3, tmp_path / "half")
    loaded = Encoder.load(tmp_path / "half", device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), soup(first, second, 0.3).encode(TEXTS))
    card = (tmp_path / "half" / "README.md").read_text(encoding="utf-8")
    assert f"0.7 · `{folders[0]}` + 0.3 · `{folders[1]}`" in card
    noted = json.loads((tmp_path / "half" / "soup.json").read_text(encoding="utf-8"))
    assert (noted["ratio"], noted["first"]["model"], noted["second"]["model"]) == (0.3, *map(str, folders))
    assert [noted[which]["fingerprint"] for which in ("first", "second")] == [
        encoder_fingerprint(first),
        encoder_fingerprint(second),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["half"]
    with pytest.raises(SoupError, match="half is not empty"):
        write_soup(*folders, 0.3, tmp_path / "half")


def test_soups_that_are_there_are_not_made_again(folders: tuple[Path, Path], tmp_path: Path) -> None:
    made = write_soups(*folders, [1, 0.5, 0.5], tmp_path)
    assert made == {0.5: tmp_path / "models" / "0.5", 1.0: tmp_path / "models" / "1"}
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert list(write_soups(*folders, [0, 0.5, 1], tmp_path)) == [0, 0.5, 1]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["0", "0.5", "1"]


def test_another_pair_in_the_same_folder_is_refused(
    folders: tuple[Path, Path], first: Encoder, second: Encoder, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_soups(*folders, [0.5], out)
    for named, pair in {"first": folders[::-1], "second": (folders[0], folders[0])}.items():
        with pytest.raises(
            SoupError, match=f"holds soups of .*before and .*after, and the {named} model is another now"
        ):
            write_soups(*pair, [0.5, 1], out)
    # it is the weights that count, not where they lie
    first.save(tmp_path / "moved")
    write_soups(tmp_path / "moved", folders[1], [0.5, 1], out)


def test_a_folder_of_something_else_is_left_alone(folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(SoupError, match="taken is not empty"):
        write_soups(*folders, [0.5], tmp_path / "taken")
    (tmp_path / "models" / "0.5").mkdir(parents=True)
    (tmp_path / "models" / "0.5" / "notes.txt").write_text("mine")
    with pytest.raises(SoupError, match=r"models/0\.5 is not empty"):
        write_soups(*folders, [0.5], tmp_path)
    with pytest.raises(SoupError, match="no ratio"):
        write_soups(*folders, [], tmp_path)
    assert not any(path.suffix == ".safetensors" for path in tmp_path.rglob("*"))


def test_an_interrupted_soup_is_made_anew(folders: tuple[Path, Path], tmp_path: Path) -> None:
    half = tmp_path / "models" / "0.5.writing"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half of one")
    (half / "left.txt").write_text("over")
    made = write_soups(*folders, [0.5], tmp_path)
    assert not half.exists() and not (made[0.5] / "left.txt").exists()
    Encoder.load(made[0.5], device="cpu")


# ---- measured


@pytest.fixture(scope="module")
def curve(
    folders: tuple[Path, Path], world: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Point], Path]:
    out = tmp_path_factory.mktemp("curve") / "out"
    return soup_curve(*folders, [1, 0, 0.5], world, out, **MEASURES), out


def test_a_curve_measures_every_ratio_and_reports_them_together(
    curve: tuple[list[Point], Path], folders: tuple[Path, Path]
) -> None:
    points, out = curve
    assert [(point.name, point.place) for point in points] == [
        (f"ratio {each:g}", {"ratio": each}) for each in (0, 0.5, 1)
    ]
    for point in points:
        assert point.folder is not None
        assert {path.name for path in (point.folder / "evaluation").iterdir()} == {"dialoguecse", "nli+sts", "cache"}
        content = json.loads((point.folder / "evaluation" / "dialoguecse" / "results.json").read_text(encoding="utf-8"))
        rows = {(row["task"], row["metric"]): row["value"] for row in content["rows"]}
        assert point.figures["dialoguecse", "similarity"].value == pytest.approx(rows["sts", "Spearman"])
        assert not (point.folder / "evaluation" / "dialoguecse" / "figures").exists()
        # similarity, retrieval and nli: what two measures have in common was measured once
        assert len(list((point.folder / "evaluation" / "cache" / "outcomes").rglob("*.parquet"))) == 3
    report = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert report["axes"] == ["ratio"]
    assert [each["folder"] for each in report["points"]] == ["models/0", "models/0.5", "models/1"]
    assert report["points"][0]["figures"][0]["difference"] is None
    assert all(figure["difference"] is not None for figure in report["points"][2]["figures"])
    assert all(str(folder) in report["remarks"][0] for folder in folders)
    assert "dialoguecse was cut short: seeds 1, steps 1" in report["remarks"]
    names = {path.name for path in (out / "curves").iterdir()}
    assert {"dialoguecse-similarity.svg", "dialoguecse-retrieval.svg", "nli+sts-sts-cosine-Pearson.svg"} < names


def test_the_ends_of_a_curve_measure_as_the_two_models_do(
    curve: tuple[list[Point], Path], folders: tuple[Path, Path], world: Path
) -> None:
    for point, folder in zip((curve[0][0], curve[0][2]), folders, strict=True):
        alone = evaluating.evaluate(str(folder), world, tasks=["nli", "sts"], effort=HASTE)
        assert [row.value for row in point.results[1].rows] == pytest.approx(
            [row.value for row in alone.rows], abs=1e-4
        )


def test_a_resumed_curve_measures_nothing_again_and_writes_the_same(
    curve: tuple[list[Point], Path], folders: tuple[Path, Path], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out = curve
    before = written(out)

    def measured(*arguments: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(evaluating._Runner, "_loaded", measured)
    monkeypatch.setattr(Encoder, "save", measured)
    again = soup_curve(*folders, [0, 0.5, 1], world, out, **MEASURES)
    assert written(out) == before
    assert [point.place for point in again] == [point.place for point in curve[0]]


def test_a_curve_says_early_what_it_cannot_measure(folders: tuple[Path, Path], world: Path, tmp_path: Path) -> None:
    for keywords, said in (
        ({}, "nothing is measured"),
        ({"suites": ["dsa"]}, "there is no suite 'dsa': choose from dse"),
        ({"tasks": ["nil"]}, "there is no task 'nil': choose from intents"),
    ):
        with pytest.raises(EvaluationError, match=said):
            soup_curve(*folders, [0.5], world, tmp_path / "out", **keywords)
    with pytest.raises(EvaluationError, match="nowhere is no folder"):
        soup_curve(*folders, [0.5], tmp_path / "nowhere", tmp_path / "out", **MEASURES)
    assert not (tmp_path / "out").exists()


def test_what_trains_the_encoder_is_left_out_unless_asked_for(
    folders: tuple[Path, Path], world: Path, tmp_path: Path
) -> None:
    soup_curve(*folders, [0.5], world, tmp_path, tasks=["actions"], effort=HASTE)
    assert "actions without fine-tuned actions: fine-tuning was not asked for" in (tmp_path / "table.md").read_text(
        "utf-8"
    )
    (point,) = soup_curve(*folders, [0.5], world, tmp_path, tasks=["actions"], fine_tuning=True, effort=HASTE)
    settings = {setting for figure in point.figures.values() for _, setting, _ in figure.parts}
    assert settings == {"frozen encoder, MLP", "10-shot fine-tuned", "20-shot fine-tuned"}


def test_without_ratio_0_the_smallest_is_what_others_are_compared_with(
    folders: tuple[Path, Path], world: Path, tmp_path: Path
) -> None:
    soup_curve(*folders, [0.9, 0.2], world, tmp_path, tasks=["nli"])
    assert "## Differences to ratio 0.2\n" in (tmp_path / "table.md").read_text(encoding="utf-8")


# ---- the command


def run(*arguments: object, code: int = 0) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(soup_command)
    result = CliRunner().invoke(
        app, [str(argument) for argument in arguments], env={"COLUMNS": "200", "TURNWISE_DATA": ""}
    )
    assert result.exit_code == code, result.output
    if code == 0:
        assert result.exception is None
    return result.stdout if code == 0 else result.output


def test_one_ratio_makes_a_model(folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert run(*folders, "--ratio", 0.5, "--out", tmp_path / "half").strip() == str(tmp_path / "half")
    ours, theirs = (load_file(folder / "model.safetensors") for folder in folders)
    for name, value in load_file(tmp_path / "half" / "model.safetensors").items():
        torch.testing.assert_close(value, (ours[name] + theirs[name]) / 2)


def test_several_ratios_make_several_models(folders: tuple[Path, Path], tmp_path: Path) -> None:
    shown = json.loads(run(*folders, "--ratio", "0.25,1", "--out", tmp_path, "--json"))
    assert shown == [
        {"ratio": 0.25, "model": str(tmp_path / "models" / "0.25")},
        {"ratio": 1.0, "model": str(tmp_path / "models" / "1")},
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"models"}


def test_a_curve_prints_figures_over_the_ratio(folders: tuple[Path, Path], world: Path, tmp_path: Path) -> None:
    command = (*folders, "--ratio", "0,1", "--task", "nli", "--data", world, "--out", tmp_path, "--dataset", "sample")
    lines = run(*command).splitlines()
    content = json.loads(run(*command, "--json"))
    assert content == json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    for point in content["points"]:
        found = [line for line in lines if line.startswith(f"  {point['name']}  ")]
        for line, figure in zip(found, point["figures"], strict=True):
            assert f"  {figure['value']:.2f} (" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ratio", "half"), "numbers from 0 to 1"),
        (("--ratio", "0.5", "--suite", "dse"), "say where the data sets are"),
        (("--ratio", "0.5", "--task", "nli"), "say where the data sets are"),
        (("--ratio", "0.5", "--seeds", "1"), "say by what to measure"),
        (("--ratio", "0.5", "--fine-tuning", "--data", "there"), "say by what to measure"),
    ],
)
def test_a_wrong_command_line_is_told_at_once(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in run("a", "b", "--out", tmp_path, *options, code=2)
