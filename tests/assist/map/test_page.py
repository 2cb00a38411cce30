"""The page of a map in a browser, and its picture: usable by mouse and keyboard, without network requests."""

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.helpers.topic_texts import TOPICS, TopicEncoder, texts_about
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.page import map_page, map_svg, page_data, summarise_map
from turnwise.assist.map.utterance_map import MapComparison, MapUtterance, UtteranceMap

TITLE = 'logs of <May> & "June"'
HOSTILE = "</script><script>document.title = 'broken'</script> & <b>parcel</b>"


COLOURS = """() => { const canvas = document.getElementById("canvas");
const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
return new Set(pixels).size; }"""


def make_example_map() -> UtteranceMap:
    """Return a map with topics in the four corners, a text in no cluster in the centre, and a new topic."""
    texts = [text for topic in TOPICS for text in texts_about(topic, 30)]
    texts[0] = HOSTILE
    texts.append("nothing of the kind")
    labels = np.array([*np.repeat(np.arange(4), 30), -1], np.int32)
    corners = np.array([(0, 0), (100, 0), (0, 100), (100, 100), (50, 50)], np.float32)
    spread = np.random.default_rng(0).normal(0, 5, (len(texts), 2))
    points = (corners[labels] + spread).astype(np.float32)
    points[-1] = (50, 50)
    vectors = TopicEncoder().encode(texts)
    counts = 1 + np.arange(len(texts)) % 4
    utterances = [
        MapUtterance(text, f"dialogue-{row}", row % 7, "user", int(count))
        for row, (text, count) in enumerate(zip(texts, counts, strict=True))
    ]
    clusters = describe_clusters(texts, labels, vectors, counts)
    return UtteranceMap(
        utterances,
        vectors,
        points,
        labels,
        clusters,
        "topical",
        new=labels == 3,
        comparison=MapComparison(90, 200, 0.61, (80, 60, 60, 0)),
    )


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    place = tmp_path_factory.mktemp("page") / "map.html"
    place.write_text(map_page(make_example_map(), TITLE), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1200, "height": 800}, reduced_motion="reduce")
    opened.set_default_timeout(10_000)
    errors: list[str] = []
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    requests: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto(place.as_uri())
    yield opened
    assert errors == [] and set(requests) == {place.as_uri()}


@pytest.fixture
def fresh(page: Page) -> Page:
    page.reload()
    return page


def colours(page: Page) -> int:
    """Return the number of colours on the canvas."""
    return int(page.evaluate(COLOURS))


def test_legend_leads_to_clusters_and_texts(fresh: Page) -> None:
    assert fresh.title() == f"{TITLE}: map"
    expect(fresh.get_by_role("heading", level=1)).to_have_text(TITLE)
    expect(fresh.get_by_role("banner")).to_contain_text("121 texts, 301 occurrences")
    assert colours(fresh) > 20
    legend = fresh.locator("#panel button:has(.bar)")
    expect(legend).to_have_count(5)
    utterance_map = make_example_map()
    largest = max(utterance_map.clusters, key=lambda cluster: cluster.utterances)
    expect(legend.first).to_contain_text(largest.name)
    doctors = utterance_map.clusters[3]
    legend.filter(has_text=doctors.name).click()
    expect(fresh.locator("#panel h2")).to_have_text(doctors.name)
    expect(fresh.locator("#panel h2")).to_be_focused()
    expect(fresh.locator("#panel .facts")).to_contain_text("30 texts")
    expect(fresh.locator("#panel .facts")).to_contain_text("30 new")
    expect(fresh.locator(".words li").first).to_have_text(doctors.words[0])
    row = doctors.representatives[0]
    fresh.locator("#panel .entries button").first.click()
    expect(fresh.locator("blockquote")).to_have_text(utterance_map.texts[row])
    expect(fresh.locator("#panel .facts")).to_contain_text(f"dialogue-{row}, turn {row % 7 + 1}")
    fresh.get_by_role("button", name="All clusters").click()
    expect(legend).to_have_count(5)


def test_texts_are_searched_and_escaped(fresh: Page) -> None:
    fresh.keyboard.press("/")
    fresh.keyboard.type("PARCEL <b>")
    expect(fresh.locator("#panel h2")).to_have_text("1 text found")
    expect(fresh.locator("#panel .entries button")).to_contain_text(HOSTILE)
    expect(fresh.locator("#panel mark")).to_have_text(["<b>", "parcel"])
    expect(fresh.get_by_role("status")).to_have_text("1 text found")
    fresh.keyboard.press("Escape")
    expect(fresh.locator("#panel h2")).to_have_text("Clusters")
    fresh.get_by_label("New texts only").check()
    expect(fresh.locator("#panel h2")).to_have_text("30 texts found")
    fresh.get_by_label("Search texts").fill("hotel")
    expect(fresh.locator("#panel")).to_contain_text("No text contains all of these words.")


def test_points_are_reached_by_mouse_and_keyboard(fresh: Page) -> None:
    canvas = fresh.locator("#canvas")
    box = canvas.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    canvas.focus()
    fresh.keyboard.press("ArrowRight")
    expect(fresh.locator("blockquote")).to_have_text("nothing of the kind")
    expect(fresh.get_by_role("status")).to_have_text("nothing of the kind. Cluster: no cluster")
    fresh.keyboard.press("ArrowRight")
    expect(fresh.locator("blockquote")).not_to_have_text("nothing of the kind")
    fresh.keyboard.press("Escape")
    expect(fresh.locator("#panel h2")).to_have_text("Clusters")
    # the text in no cluster is near the centre of the canvas: search for it in circles
    tip = fresh.locator("#tip")
    for reach in range(0, 80, 10):
        for angle in np.linspace(0, 2 * np.pi, 1 + reach // 4, endpoint=False):
            fresh.mouse.move(middle[0] + reach * np.cos(angle), middle[1] + reach * np.sin(angle))
            if tip.is_visible():
                break
        if tip.is_visible():
            break
    expect(tip).to_contain_text("nothing of the kind")
    fresh.mouse.down()
    fresh.mouse.up()
    expect(fresh.locator("blockquote")).to_have_text("nothing of the kind")
    # after zooming in, the corners and their colours are not visible
    before = colours(fresh)
    fresh.mouse.wheel(0, -1500)
    fresh.wait_for_function(f"before => ({COLOURS})() < before / 2", arg=before)
    fresh.get_by_role("button", name="Show all").click()
    fresh.wait_for_function(f"before => ({COLOURS})() > before / 2", arg=before)


def test_texts_are_selected_with_a_lasso_and_by_keyboard(fresh: Page) -> None:
    box = fresh.locator("#canvas").bounding_box()
    assert box is not None
    fresh.get_by_role("button", name="Select").click()
    for place, (x, y) in enumerate([(0.01, 0.01), (0.45, 0.01), (0.45, 0.99), (0.01, 0.99)]):
        fresh.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=3)
        if place == 0:
            fresh.mouse.down()
    fresh.mouse.up()
    expect(fresh.locator("#panel h2")).to_have_text("60 texts selected")  # the two topics on the left
    fresh.keyboard.press("Escape")
    expect(fresh.locator("#panel h2")).to_have_text("Clusters")
    fresh.keyboard.press("Escape")
    expect(fresh.get_by_role("button", name="Select")).to_have_attribute("aria-pressed", "false")
    fresh.locator("#canvas").focus()
    for _ in range(2):
        fresh.keyboard.press("ArrowRight")
        fresh.keyboard.press("Space")
    expect(fresh.locator("#panel h2")).to_have_text("2 texts selected")


def test_table_lists_every_cluster_and_leads_to_the_map(fresh: Page) -> None:
    utterance_map = make_example_map()
    rows = fresh.locator("table tbody tr")
    expect(rows).to_have_count(4)
    for place, cluster in enumerate(utterance_map.clusters):
        expect(rows.nth(place)).to_contain_text(cluster.name)
        expect(rows.nth(place)).to_contain_text(utterance_map.texts[cluster.representatives[0]])
    expect(rows.nth(3).locator("td").nth(3)).to_have_text("30")
    expect(rows.nth(0).locator("td").nth(4)).to_have_text("40.0%")
    rows.nth(1).get_by_role("button").click()
    expect(fresh.locator("#panel h2")).to_have_text(utterance_map.clusters[1].name)


def test_light_and_dark_are_two_pictures(fresh: Page) -> None:
    corner = """() => [...document.getElementById("canvas").getContext("2d").getImageData(1, 1, 1, 1).data]"""
    light = fresh.evaluate(corner)
    fresh.emulate_media(color_scheme="dark")
    fresh.wait_for_function(f"before => ({corner})()[0] !== before[0]", arg=light)
    assert sum(fresh.evaluate(corner)[:3]) < 128 < sum(light[:3])
    fresh.emulate_media(color_scheme="light")


def test_page_is_complete_and_self_contained() -> None:
    utterance_map = make_example_map()
    page = map_page(utterance_map, TITLE)
    held = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert held is not None
    data = json.loads(held.group(1))
    assert data == json.loads(json.dumps(page_data(utterance_map)))
    assert data["texts"] == utterance_map.texts and data["groups"] == utterance_map.labels.tolist()
    points = np.array(data["points"])
    assert points.min() == 0 and points.max() == 10_000
    assert np.corrcoef(points[:, 0], utterance_map.points[:, 0])[0, 1] > 0.9999
    assert "default-src 'none'" in page and "unsafe" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page) and "http://" not in page and "https://" not in page
    assert summarise_map(utterance_map).startswith(
        "121 texts, 301 occurrences · 4 clusters · 0% in no cluster · 30 new"
    )


def test_picture_is_complete() -> None:
    utterance_map = make_example_map()
    picture = map_svg(utterance_map, TITLE)
    assert picture == map_svg(utterance_map, TITLE), "deterministic"
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(picture)
    assert {text.text for text in root.iter(f"{svg}text")} == {
        TITLE,
        *(cluster.name for cluster in utterance_map.clusters),
    }
    paths = [
        path
        for group in root.iter(f"{svg}g")
        if group.attrib.get("id", "").startswith("cluster-")
        for path in group.iter(f"{svg}path")
    ]
    assert [path.attrib["d"].count("M") for path in paths] == [1, 30, 30, 30, 30]
    assert len({re.search(r"stroke: (#\w+)", path.attrib["style"])[1] for path in paths}) == 5  # type: ignore[index]
    places = np.array(re.findall(r"M ([\d.]+) ([\d.]+)", "".join(path.attrib["d"] for path in paths)), float)
    assert (places >= 0).all() and (places <= [864, 648]).all()
