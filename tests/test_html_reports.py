"""Every HTML report that turnwise writes about a log with HTML in it shows that as text."""

import csv
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import run
from tests.helpers.sweep_points import point
from turnwise.core import html
from turnwise.papers.sweeps.experiment import write_experiment

SCRIPT, IMAGE = "</script></style><script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
INTENTS = (f"card {SCRIPT}", f"key {IMAGE}")

#: Templates of parts of a page.
PARTS = {"core/html/base.html", "core/html/macros.html"}


class Elements(HTMLParser):
    """Checks that a page has no script, image or event handler but its own."""

    in_script = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        assert not any(name.startswith("on") for name in values), (tag, values)
        assert tag != "img" or str(values["src"]).startswith("data:image/svg+xml;base64,")
        self.in_script = tag == "script" and values.get("type") != "application/json"

    def handle_data(self, data: str) -> None:
        assert not (self.in_script and "alert" in data)


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The templates of the pages that are made during a test."""
    used: set[str] = set()
    environment = html._environment()
    get_template = environment.get_template

    def record(name: str, *given: Any) -> Any:
        used.add(name)
        return get_template(name, *given)

    monkeypatch.setattr(environment, "get_template", record)
    return used


def test_html_in_a_log_is_text_in_every_report(
    templates: set[str], tmp_path: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tiny_folder("bert")
    columns = ("conversation", "speaker", "text", "intent", "split")
    rows = [
        (f"{split} {number} {IMAGE}", "user", f"my {intent} number {number} {SCRIPT}", intent, split)
        for split in ("train", "valid", "test")
        for intent in INTENTS
        for number in range(12)
    ]
    with Path("log.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    options = [part for name in columns if name != "speaker" for part in ("--set", f"{name}={name}")]
    run("corpus", "import", "table", "log.csv", "--out", IMAGE, "--set", "speaker=speaker", *options)
    run("map", IMAGE, "--model", model, "--method", "tsne", "--min-cluster-size", 3, "--out", "map")
    run("intents", "fit", "log.csv", "--model", model, "--out", "intents")
    run("intents", "test", "intents", "log.csv", "--out", "test.html")
    run("intents", "report", "log.csv", "--model", model, "--out", "report.html")
    run("evaluate", model, "--task", "intents", "--data", IMAGE, "--out", "results")
    points = [
        point("untrained", {}, 0.4),
        point(IMAGE, {"size": 1}, 0.5, 1),
        point("b", {"size": 2}, None, failure=SCRIPT),
    ]
    write_experiment(points, ("size",), Path("sweep"), SCRIPT, [IMAGE])

    root = files("turnwise")
    every = {str(path.relative_to(str(root))) for path in Path(str(root)).rglob("*.html")}
    assert templates - PARTS == every - PARTS - {"serve/page/index.html"}
    pages = [*Path().rglob("*.html")]
    assert len(pages) == 5
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert "alert(1)" in text, page
        Elements().feed(text)
