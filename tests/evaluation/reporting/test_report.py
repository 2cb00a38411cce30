"""The folder is whole and the same every time; its page is read in a real browser, on a phone, in the dark."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.example_results import EVIL, NASTY, results
from turnwise.evaluation.reporting.report import render_report, write_report
from turnwise.evaluation.results import Results, read_content

#: Every text on the page whose contrast with what is behind it is below what the WCAG ask for (4.5, or 3 for large
#: text).
FAINT = """() => {
  const parse = (colour) => { const c = colour.match(/[\\d.]+/g).map(Number); return c.length > 3 ? c : [...c, 1]; };
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (c) => {
    const [r, g, b] = c.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => { for (; node; node = node.parentElement) {
    const c = parse(getComputedStyle(node).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  const faint = [];
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].filter((child) => child.nodeType === 3 && child.textContent.trim());
    if (!texts.length || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const colour = node instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(parse(colour)), light(behind(node))].sort((x, y) => y - x);
    const enough = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < enough) faint.push([node.tagName, node.textContent.slice(0, 40), contrast]);
  }
  return faint;
}"""


class Outline(HTMLParser):
    """Checks that elements close in order, and keeps what a page asks for from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "out"
    write_report(results(), folder)
    return folder


def test_the_folder_is_whole(folder: Path) -> None:
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == [
        *("outcomes.parquet", "plots/some_picture.svg", "report.html", "results.json", "tables.md")
    ]
    assert read_content(folder / "results.json")["suite"] == "dse"
    assert (folder / "plots" / "some_picture.svg").read_text() == results().plots["some_picture.svg"]
    assert json.loads((folder / "results.json").read_text())["rows"][-1]["metric"] == "uniformity"


def test_equal_results_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    write_report(results(), tmp_path)
    for path in folder.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()


def test_the_page_is_well_formed_and_escaped(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert not outline.open
    assert {values["scope"] for tag, values in outline.seen if tag == "th"} == {"col", "row", "rowgroup"}
    assert [tag for tag, _ in outline.seen].count("script") == 1
    assert all(
        values["src"].startswith("data:image/svg+xml") and values["alt"] for tag, values in outline.seen if tag == "img"
    )
    assert {values["href"] for tag, values in outline.seen if tag == "a" and not values["href"].startswith("#")} == {
        "https://example.org/epsilon"
    }
    anchors = {values["id"] for _, values in outline.seen if "id" in values}
    assert {
        values["href"][1:] for tag, values in outline.seen if tag == "a" and values["href"].startswith("#")
    } == anchors
    assert EVIL not in text
    assert "<script>alert" not in text
    assert not re.search(
        r"\son\w+=[\"']", re.sub(r"&[a-z#0-9]+;", "", re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL))
    )


def test_a_page_of_little_is_a_page(tmp_path: Path) -> None:
    text = render_report(Results("", "intents"))
    outline = Outline()
    outline.feed(text)
    assert not outline.open
    assert "<h1>Evaluation</h1>" in text
    assert "All metrics" not in text
    write_report(Results("", "intents"), tmp_path)


def test_the_summary_counts_what_can_be_compared(folder: Path) -> None:
    """Two better (one of them a metric of which less is), two worse, one within, one not like for like."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert (
        "5 metrics can be compared with the method that a paper proposes: 2 are better, 2 worse,"
        " and for 1 the published" in text
    )
    assert "1 of them are not like for like" in text
    assert text.count('<small class="better"') == 2
    assert text.count('<small class="worse"') == 2
    assert text.count("△ +0.03") == 1


class Visit:
    """A page opened, with everything that it asked for or complained about."""

    def __init__(self, browser: Any, folder: Path, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto((folder / "report.html").as_uri())

    def close(self) -> None:
        """Checks that the page asked for nothing but itself and complained of nothing."""
        assert [url for url in self.requests if not url.startswith("data:")] == [self.page.url.split("#")[0]]
        assert self.complaints == []
        self.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_can_be_read(browser: Any, folder: Path, width: int, scheme: str) -> None:
    visit = Visit(browser, folder, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = visit.page
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.locator("table").count() == 5
    for table in page.locator("table").all():
        assert table.is_visible()
    assert page.evaluate(FAINT) == []
    lightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(lightness) / 3 > 128) == (scheme == "light")
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    visit.close()


def test_wide_tables_scroll_in_their_box(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder, viewport={"width": 390, "height": 844})
    box = visit.page.locator(".scroll").nth(1)
    assert box.evaluate("(box) => box.scrollWidth > box.clientWidth")
    box.evaluate("(box) => { box.scrollLeft = 500; }")
    head = box.locator("tbody th").first
    assert head.evaluate("(head) => head.getBoundingClientRect().left >= 0"), "the names of the lines stay in sight"
    visit.close()


def test_metrics_can_be_sorted(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder)
    table = visit.page.locator("table.sortable")
    cells, read = (
        table.locator("tbody td:nth-child(5)"),
        "(all) => all.map((cell) => Number(cell.dataset.value || -1e9))",
    )
    figures = cells.evaluate_all(read)
    head = table.locator("th", has_text="value")
    head.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert cells.evaluate_all(read) == sorted(figures) != figures
    head.press("Enter")
    assert cells.evaluate_all(read) == sorted(figures, reverse=True)
    table.locator("th", has_text="data set").click()
    names = table.locator("tbody td:nth-child(2)").all_inner_texts()
    assert names[:4] == ["Alpha", "Alpha", "Beta", "Beta"]
    visit.close()


def test_it_can_be_read_without_scripts(browser: Any, folder: Path) -> None:
    visit = Visit(browser, folder, java_script_enabled=False)
    assert visit.page.locator("table.sortable tbody tr").count() == 37
    assert visit.page.get_by_text(NASTY).first.is_visible()
    visit.close()
