"""The files of an experiment report: contents, agreement with each other, atomic replacement."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zlib import crc32

import numpy as np
import pytest

from tests.helpers.svg import groups, marks, texts
from tests.helpers.sweep_points import RESULT_KEYS, outcomes, point, results
from turnwise.cli.output import show
from turnwise.cli.train import metric_lines
from turnwise.evaluation.metrics import Outcome, bootstrap_outcomes
from turnwise.evaluation.results import Results
from turnwise.papers.sweeps.experiment import SweepPoint, summary_table, write_experiment

AXES = ("batch_size", "objectives.dse.temperature")
EVIL = '<img src="https://example.org/x.png" onerror="alert(1)"> | a_b'


def parameters(size: object, temperature: float = 0.05) -> dict[str, Any]:
    return dict(zip(AXES, (size, temperature), strict=True))


def points() -> list[SweepPoint]:
    """Return the untrained point, four points on two lines, and a failed one."""
    return [
        point("untrained", {}, 0.4),
        point("a", parameters(16), 0.42, 1),
        point("b", parameters(64), 0.6, 2),
        point("c", parameters(16, 0.1), 0.35, 3),
        point("d", parameters(64, 0.1), 0.41, 4),
        point("e", parameters(256, 0.1), None, failure="the loss is nan; a smaller learning_rate often helps"),
    ]


def read(folder: Path) -> dict[str, Any]:
    """Read `results.json`, which must not contain NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    content: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"), parse_constant=refuse)
    return content


def table(folder: Path, heading: str) -> dict[str, list[str]]:
    """Return the rows of a Markdown table by their first cell."""
    text = (folder / "table.md").read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\) *\| *", line.strip("| ")) for line in text.splitlines() if line.startswith("|")]
    return {head: cells for head, *cells in [rows[0], *rows[2:]]}


def curve(folder: Path, name: str) -> ElementTree.Element:
    return ElementTree.fromstring((folder / "curves" / f"{name}.svg").read_text(encoding="utf-8"))


def points_of(picture: ElementTree.Element) -> list[tuple[float, float]]:
    """Where the points of all lines are."""
    return [mark for line in groups(picture, "line-") for mark in marks(line)]


def test_json_has_summaries_and_paired_differences(tmp_path: Path) -> None:
    made = points()
    write_experiment(made, AXES, tmp_path, "Sizes", ["one remark"])
    content = read(tmp_path)
    assert (content["title"], content["axes"], content["remarks"]) == ("Sizes", list(AXES), ["one remark"])
    assert content["environment"]["turnwise"] and content["environment"]["torch"]
    assert [each["name"] for each in content["points"]] == ["untrained", "a", "b", "c", "d", "e"]
    start, after = content["points"][0], content["points"][2]
    assert (start["place"], after["place"]) == ({}, {"batch_size": 64, "objectives.dse.temperature": 0.05})
    names = [(summary["suite"], summary["name"], summary["datasets"]) for summary in after["figures"]]
    assert names == [("diaeval", "actions", ["dstc2", "gsim"]), ("diaeval", "responses", ["irc_ubuntu_100"])]
    assert [summary["difference"] for summary in start["figures"]] == [None, None]
    # recomputed: the mean of the two data sets' accuracies, with the same resamples for both models
    ours, theirs = (outcomes(accuracy, seed)[:2] for accuracy, seed in ((0.6, 2), (0.4, 0)))
    mean = np.mean([100 * each.evidence.mean() for each in ours])
    drawings = [
        np.mean([bootstrap_outcomes([each], seed=crc32(each.dataset.encode()))[0] for each in evaluated], 0)
        for evaluated in (ours, theirs)
    ]
    summary = after["figures"][0]
    assert summary["value"] == pytest.approx(mean)
    assert [summary["low"], summary["high"]] == pytest.approx(np.percentile(drawings[0], [2.5, 97.5]))
    assert summary["difference"]["value"] == pytest.approx(
        mean - np.mean([100 * each.evidence.mean() for each in theirs])
    )
    low, high = np.percentile(drawings[0] - drawings[1], [2.5, 97.5])
    assert [summary["difference"]["low"], summary["difference"]["high"]] == pytest.approx([low, high])


def test_failed_points_are_reported_in_every_file(tmp_path: Path) -> None:
    write_experiment(points(), AXES, tmp_path, "Sizes")
    failed = read(tmp_path)["points"][-1]
    assert (failed["figures"], failed["failure"]) == ([], "the loss is nan; a smaller learning_rate often helps")
    assert table(tmp_path, "Results")["e"] == table(tmp_path, "Differences to untrained")["e"] == ["failed", "failed"]
    assert "- e: the loss is nan; a smaller learning\\_rate often helps\n" in (tmp_path / "table.md").read_text(
        encoding="utf-8"
    )
    assert "the loss is nan; a smaller learning_rate often helps" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )
    assert "256" in texts(curve(tmp_path, "diaeval-actions"))


def test_folders_inside_the_experiment_are_relative(tmp_path: Path) -> None:
    folders = [tmp_path / "runs" / "a", Path("/elsewhere/b"), None]
    made = [SweepPoint(str(number), {"x": number}, folder, (results(0.5),)) for number, folder in enumerate(folders)]
    write_experiment(made, ["x"], tmp_path, "Folders")
    assert [each["folder"] for each in read(tmp_path)["points"]] == ["runs/a", "/elsewhere/b", None]


def test_undefined_results_are_null_in_json_and_named_in_tables(tmp_path: Path) -> None:
    def correlated(name: str, x: int, scores: np.ndarray) -> SweepPoint:
        evidence = np.stack([scores, np.arange(20.0)], -1)[None]
        evaluated = Results(name, "dialoguecse")
        evaluated.add([Outcome("sts", "sample", "cosine", "Spearman", evidence, "spearman")])
        return SweepPoint(name, {"x": x}, None, (evaluated,))

    made = [correlated("good", 1, np.arange(20.0)), correlated("flat", 2, np.ones(20))]
    write_experiment(made, ["x"], tmp_path, "Undefined")
    (summary,) = read(tmp_path)["points"][1]["figures"]
    assert [summary[key] for key in ("value", "low", "high")] == [None] * 3
    assert summary["difference"] == {"value": None, "low": None, "high": None}
    assert table(tmp_path, "Results")["flat"] == ["undefined (undefined)"]
    assert len(points_of(curve(tmp_path, "dialoguecse-similarity"))) == 1


def test_markdown_tables_agree_with_json(tmp_path: Path) -> None:
    write_experiment(points(), AXES, tmp_path, "Sizes")
    values, differences = (table(tmp_path, heading) for heading in ("Results", "Differences to untrained"))
    assert values["model"] == ["diaeval: actions", "diaeval: responses"]
    assert "untrained" not in differences
    seen = set()
    for each in read(tmp_path)["points"][1:-1]:
        for column, summary in enumerate(each["figures"]):
            value, low, high = (summary[key] for key in ("value", "low", "high"))
            assert values[each["name"]][column] == f"{value:.2f} ({low:.2f} to {high:.2f})"
            change = summary["difference"]
            clear = change["low"] > 0 or change["high"] < 0
            seen.add(clear)
            numbers = [
                float(text.replace("−", "-")) for text in re.findall(r"[+−]?[\d.]+", differences[each["name"]][column])
            ]
            assert numbers == pytest.approx([change[key] for key in ("value", "low", "high")], abs=0.0051)
            assert differences[each["name"]][column].startswith("**") == clear
    assert seen == {True, False}
    header, rows = summary_table(points())
    assert header == ["model", *values["model"]]
    assert rows == [[name, *cells] for name, cells in values.items() if name != "model"]


def test_terminal_output_does_not_interpret_names_as_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = [point("kind=[bold]", {}, 0.4), point("b", parameters(16), None, failure="the loss is nan")]
    header, rows = summary_table(shown)
    for title in ("", "a [red] one"):
        show(None, metric_lines(shown, title), as_json=False)
        printed = [re.split(" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
        below = [
            cells
            for number, head in enumerate(header[1:], 1)
            for cells in ([head], *([row[0], row[number]] for row in rows))
        ]
        assert printed == [*([[title]] if title else []), *below]


def test_averaged_results_and_datasets_are_named(tmp_path: Path) -> None:
    few = Results("few", "diaeval")
    few.add(outcomes(0.5, keys=RESULT_KEYS[:1]))
    write_experiment([*points(), SweepPoint("few", parameters(4), None, (few,))], AXES, tmp_path, "Sizes")
    means = table(tmp_path, "Averaged results")
    assert means["diaeval: actions"] == [
        "actions, frozen encoder, MLP: Micro F1",
        "dstc2, gsim (untrained, a, b, c, d); gsim (few)",
    ]
    assert means["diaeval: responses"] == ["responses, 0-shot similarity, history: Top-3", r"irc\_ubuntu\_100"]
    assert table(tmp_path, "Differences to untrained")["few"] == ["not comparable", "–"]
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "- few, diaeval: actions: only one of the two has actions, dstc2, frozen encoder, MLP, Micro F1\n" in text
    assert read(tmp_path)["points"][-1]["figures"][0]["difference"] is None


def test_shortened_and_skipped_protocols_are_mentioned_once(tmp_path: Path) -> None:
    made = points()[:3]
    for each in made:
        each.results[0].facts |= {"effort": {"seeds": 1, "steps": None}, "left out": {"probed inference": "no data"}}
    write_experiment(made, AXES, tmp_path, "Hurried", ["one remark"])
    remarks = ["one remark", "diaeval was shortened: seeds 1", "diaeval without probed inference: no data"]
    assert read(tmp_path)["remarks"] == remarks
    assert "\n".join(f"- {remark}" for remark in remarks) in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_differences_refer_to_the_first_point_even_if_it_failed(tmp_path: Path) -> None:
    write_experiment([point("e", parameters(1), None, failure="broken"), *points()[1:3]], AXES, tmp_path, "Sizes")
    assert table(tmp_path, "Differences to e")["a"] == ["not comparable", "not comparable"]
    assert read(tmp_path)["points"][1]["figures"][0]["not_comparable"] == "e does not have it"


def test_curves_have_a_line_for_every_combination_of_the_other_axes(tmp_path: Path) -> None:
    write_experiment(points(), AXES, tmp_path, "Sizes")
    assert {path.name for path in (tmp_path / "curves").iterdir()} == {"diaeval-actions.svg", "diaeval-responses.svg"}
    picture = curve(tmp_path, "diaeval-actions")
    assert [len(marks(line)) for line in groups(picture, "line-")] == [2, 2]
    shown = texts(picture)
    assert {
        "diaeval: actions",
        "temperature 0.05",
        "temperature 0.1",
        "untrained",
        "16",
        "64",
        "256",
        "batch size",
    } <= set(shown)


def test_variants_are_lines_and_no_axis(tmp_path: Path) -> None:
    names = ("Ours", "a_b | theirs")
    made = [
        point(f"{name}, {x}", {"x": x, "variant": name}, 0.5, seed) for seed, x in enumerate((1, 2)) for name in names
    ]
    write_experiment([point("untrained", {}, 0.4), *made], ["x", "variant"], tmp_path, "Two")
    picture = curve(tmp_path, "diaeval-actions")
    assert [len(marks(line)) for line in groups(picture, "line-")] == [2, 2]
    assert {"Ours", "a_b | theirs", "untrained", "x"} <= set(texts(picture))
    alone = [point(name, {"variant": name}, 0.5, seed) for seed, name in enumerate(names)]
    write_experiment(alone, ["variant"], tmp_path, "Alone")
    assert list((tmp_path / "curves").iterdir()) == []
    assert list(table(tmp_path, "Results")) == ["model", "Ours", r"a\_b \| theirs"]
    assert "Curves" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_axis_orders_names_and_scales_numbers(tmp_path: Path) -> None:
    for axis, values in {
        "pooling": ["mean", "cls", "max"],
        "ratio": [0, 0.25, 1],
        "layers": [[1, 2], None, True],
    }.items():
        made = [point(str(value), {axis: value}, 0.5, seed) for seed, value in enumerate(values)]
        write_experiment(made, [axis], tmp_path / axis, axis)
        picture = curve(tmp_path / axis, "diaeval-actions")
        along = [x for x, _ in points_of(picture)]
        share = (along[1] - along[0]) / (along[2] - along[0])
        assert share == pytest.approx(0.25 if axis == "ratio" else 0.5, abs=0.01)
        labels = {"pooling": ["mean", "cls", "max"], "ratio": ["0", "0.25", "1"], "layers": ["[1, 2]", "null", "true"]}[
            axis
        ]
        assert [text for text in texts(picture) if text in labels] == labels


def test_curves_of_single_tasks_have_distinct_file_names(tmp_path: Path) -> None:
    evaluated = Results("model", "intents+nli")
    evaluated.add([Outcome("intents", "sample", "1-NN", metric, np.eye(4)[:1]) for metric in ("a/b", "a b")])
    write_experiment([SweepPoint("one", {"x": 1}, None, (evaluated,))], ["x"], tmp_path, "Tasks")
    names = {path.name for path in (tmp_path / "curves").iterdir()}
    assert names == {"intents+nli-intents-1-NN-a-b.svg", "intents+nli-intents-1-NN-a-b-1.svg"}
    assert table(tmp_path, "Results")["model"] == ["intents, 1-NN, a/b", "intents, 1-NN, a b"]


class PageElements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_page_is_self_contained_and_escapes_names(tmp_path: Path) -> None:
    made = [point(EVIL, {EVIL: EVIL}, 0.5, 1), point("b", {EVIL: "b"}, None, failure=EVIL)]
    write_experiment(made, [EVIL], tmp_path, EVIL, [EVIL])
    elements = PageElements((tmp_path / "report.html").read_text(encoding="utf-8")).elements
    images = [attributes for tag, attributes in elements if tag == "img"]
    assert len(images) == 2 and all((each["src"] or "").startswith("data:image/svg+xml;base64,") for each in images)
    assert not any(name.startswith("on") for _, attributes in elements for name in attributes)
    assert {tag for tag, _ in elements} & {"script", "link", "iframe"} == set()
    policy = next(attributes["content"] for _, attributes in elements if "http-equiv" in attributes)
    assert policy is not None and policy.startswith("default-src 'none'")
    assert EVIL.rpartition(".")[2].replace("_", " ") in texts(curve(tmp_path, "diaeval-actions"))


def test_page_marks_significant_differences(tmp_path: Path) -> None:
    def constant_point(name: str, x: int, value: float) -> SweepPoint:
        evaluated = Results(name, "geometry")
        evaluated.add(
            [
                Outcome("geometry", "sample", "all", metric, np.full((1, 9), value))
                for metric in ("accuracy", "alignment")
            ]
        )
        return SweepPoint(name, {"x": x}, None, (evaluated,))

    write_experiment([constant_point("low", 0, 0.1), constant_point("high", 1, 0.2)], ["x"], tmp_path, "Better")
    elements = PageElements((tmp_path / "report.html").read_text(encoding="utf-8")).elements
    verdicts = [attributes["title"] for tag, attributes in elements if tag == "td" and "title" in attributes]
    assert verdicts == ["better", "worse"]


def test_undefined_differences_have_no_verdict(tmp_path: Path) -> None:
    points = []
    for name, value in (("first", 0.5), ("second", np.nan)):
        evaluated = Results(name, "geometry")
        evaluated.add([Outcome("geometry", "sample", "all", "accuracy", np.full((1, 9), value))])
        points.append(SweepPoint(name, {"x": name}, None, (evaluated,)))
    write_experiment(points, ["x"], tmp_path, "Undefined")
    elements = PageElements((tmp_path / "report.html").read_text(encoding="utf-8")).elements
    assert not [attributes for tag, attributes in elements if tag == "td" and "title" in attributes]


def test_rewriting_gives_the_same_bytes_as_writing_once(tmp_path: Path) -> None:
    made = points()
    for count in (0, 2, len(made)):
        write_experiment(made[:count], AXES, tmp_path / "repeated", "Sizes")
    write_experiment(points(), AXES, tmp_path / "at once", "Sizes")
    repeated, at_once = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (tmp_path / "repeated", tmp_path / "at once")
    )
    assert repeated == at_once
    assert {str(path) for path in repeated} == {
        *("results.json", "table.md", "report.html", "curves/diaeval-actions.svg", "curves/diaeval-responses.svg")
    }


def test_curves_of_removed_summaries_are_deleted(tmp_path: Path) -> None:
    write_experiment(points(), AXES, tmp_path, "Sizes")
    few = Results("few", "diaeval")
    few.add(outcomes(0.5, keys=RESULT_KEYS[:1]))
    write_experiment([SweepPoint("few", parameters(4), None, (few,))], AXES, tmp_path, "Sizes")
    assert [path.name for path in (tmp_path / "curves").iterdir()] == ["diaeval-actions.svg"]
