"""The map view of the page with many groups: layout, framing, filter, lasso and questions."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the service is not installed")

import httpx

from tests.helpers.page_visit import Visit
from tests.helpers.trial import listening
from turnwise.assist.map.clustering import describe_clusters
from turnwise.assist.map.utterance_map import MapUtterance, UtteranceMap
from turnwise.serve.settings import ServeSettings

GROUPS, MEMBERS = 30, 10
WORDS = [f"{first}{second}" for first in ("alpha", "beta", "gamma", "delta", "omega") for second in "pqrstu"]

#: The fraction of the canvas, across and down, that the drawn points span.
SPAN = """() => {
  const canvas = document.querySelector("canvas");
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const paper = data.slice(0, 3).join();
  const box = [width, height, 0, 0];
  for (let place = 0; place < data.length; place += 4) {
    if (data.slice(place, place + 3).join() === paper) continue;
    const [x, y] = [(place / 4) % width, Math.floor(place / 4 / width)];
    box[0] = Math.min(box[0], x); box[1] = Math.min(box[1], y);
    box[2] = Math.max(box[2], x); box[3] = Math.max(box[3], y);
  }
  return [(box[2] - box[0]) / width, (box[3] - box[1]) / height];
}"""


@pytest.fixture(scope="module")
def points() -> Any:
    """The positions of the texts: groups on a grid, and two texts far away from it."""
    rng = np.random.default_rng(0)
    grid = np.array([(10 * (group % 6), 10 * (group // 6)) for group in range(GROUPS)])
    near = np.repeat(grid, MEMBERS, 0) + rng.normal(size=(GROUPS * MEMBERS, 2))
    return np.vstack([near, [[2000, 1500], [2100, -1500]]]).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], points: Any) -> Path:
    """A map of 30 groups and two distant texts in none."""
    texts = [f"{word} text {number}" for word in WORDS for number in range(MEMBERS)] + ["far away", "further away"]
    labels = np.array([*np.repeat(np.arange(GROUPS), MEMBERS), -1, -1], np.int32)
    centres = np.random.default_rng(1).normal(size=(GROUPS + 1, 16))
    vectors = centres[labels] + 0.1 * np.random.default_rng(2).normal(size=(len(texts), 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    counts = [1 + row % 4 for row in range(len(texts))]
    utterances = [MapUtterance(text, count=count) for text, count in zip(texts, counts, strict=True)]
    clusters = describe_clusters(texts, labels, vectors, counts)
    place = tmp_path_factory.mktemp("crowded") / "map"
    UtteranceMap(utterances, vectors, points, labels, clusters, str(tiny_folder("bert"))).save(place)
    return place


@pytest.fixture(scope="module")
def site(browser: Any, folder: Path, tiny_folder: Callable[[str], Path]) -> Iterator[str]:
    with listening(ServeSettings(model=str(tiny_folder("bert")), map=folder)) as address:
        yield address


def open_map(browser: Any, site: str, **options: Any) -> Visit:
    visit = Visit(browser, site, "map", reduced_motion="reduce", **options)
    visit.page.locator(".groups tbody tr").first.wait_for()
    return visit


def undo_all(site: str) -> None:
    while httpx.get(f"{site}/map").json()["can_undo"]:
        httpx.post(f"{site}/map/undo", json={})


def labelled(site: str) -> dict[str, str]:
    """Return the labels of labelled texts."""
    body = httpx.get(f"{site}/map").json()
    return {text: label for text, label in zip(body["texts"], body["labels"], strict=True) if label is not None}


def draw_lasso(visit: Visit, *corners: tuple[float, float], release: bool = True, shift: bool = False) -> None:
    """Drag along a path on the map; positions are relative to its size."""
    box = visit.locator("canvas").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    if shift:
        visit.keyboard.down("Shift")
    visit.mouse.move(*places[0])
    visit.mouse.down()
    for place in places[1:]:
        visit.mouse.move(*place, steps=3)
    if shift:
        visit.keyboard.up("Shift")
    if release:
        visit.mouse.up()


LEFT_HALF = ((0.01, 0.01), (0.5, 0.01), (0.5, 0.99), (0.01, 0.99))


def test_all_groups_are_listed_and_filtered(browser: Any, site: str) -> None:
    visit = open_map(browser, site)
    rows = visit.locator(".groups tbody tr")
    assert visit.locator(".panel h2").inner_text() == "30 groups"
    assert rows.count() == GROUPS
    assert rows.last.evaluate("(row) => { row.scrollIntoView(); return row.checkVisibility(); }")
    visit.locator("#group-search").press_sequentially("gammas")
    assert rows.locator("visible=true").count() == 1
    assert "1 of 30 groups" in visit.locator(".groups thead").inner_text()
    assert visit.evaluate("document.activeElement.id") == "group-search"
    rows.locator("visible=true").locator(".group-name").click()
    assert "gammas" in visit.locator(".panel h2").inner_text()
    visit.press("← All groups")
    assert visit.input_value("#group-search") == "gammas", "the filter is kept"
    visit.fill("#group-search", "no such group")
    assert rows.locator("visible=true").count() == 0
    visit.fill("#group-search", "")
    assert rows.locator("visible=true").count() == GROUPS
    visit.close()


def test_the_list_of_groups_fills_the_height(browser: Any, site: str) -> None:
    visit = open_map(browser, site, height=720)
    bottom = visit.locator(".panel .scroll").evaluate("(list) => list.getBoundingClientRect().bottom")
    places = visit.locator(".groups tbody tr").evaluate_all(
        "(rows) => rows.map((row) => row.getBoundingClientRect().bottom)"
    )
    assert sum(place <= bottom for place in places) >= 10
    visit.close()


def test_most_texts_fill_the_first_view(browser: Any, site: str) -> None:
    visit = open_map(browser, site)
    across, down = visit.evaluate(SPAN)
    assert across > 0.6 and down > 0.6
    distant = visit.get_by_role("button", name="distant text")
    count = int(distant.inner_text().split()[0])
    assert 2 <= count <= 0.1 * GROUPS * MEMBERS
    draw_lasso(visit, (0.002, 0.002), (0.998, 0.002), (0.998, 0.998), (0.002, 0.998), shift=True)
    within = int(visit.locator(".panel h2").inner_text().split()[0])
    assert within < GROUPS * MEMBERS + 2
    visit.press("← All groups")
    distant.click()
    draw_lasso(visit, (0.002, 0.002), (0.998, 0.002), (0.998, 0.998), (0.002, 0.998), shift=True)
    assert visit.locator(".panel h2").inner_text() == f"{GROUPS * MEMBERS + 2} texts selected"
    visit.close()


def test_lasso_selects_and_labels(browser: Any, site: str, points: Any) -> None:
    visit = open_map(browser, site)
    visit.press("Select")
    assert visit.get_by_role("button", name="Select", exact=True).get_attribute("aria-pressed") == "true"
    draw_lasso(visit, *LEFT_HALF)
    heading = visit.locator(".panel h2").inner_text()
    count = int(heading.split()[0])
    assert heading == f"{count} texts selected" and 100 < count < 200
    assert visit.locator(".panel .members input:checked").count() == 50, "the first page of the list is ticked"
    body = httpx.get(f"{site}/map").json()
    first = visit.locator(".panel .members .utterance").first.inner_text()
    visit.locator(".panel .members input").first.uncheck()
    visit.fill("#members-label", "left side")
    visit.keyboard.press("Enter")
    visit.toast(f"{count - 1} texts labelled “left side”.")
    texts = labelled(site)
    chosen = np.array([text in texts or text == first for text in body["texts"]])
    assert chosen.sum() == count and first not in texts
    assert points[chosen, 0].max() < points[~chosen, 0].min(), "exactly the texts on the left"
    assert visit.locator(".groups").is_visible(), "the selection ends"
    undo_all(site)
    visit.close()


def test_escape_cancels_the_lasso(browser: Any, site: str) -> None:
    visit = open_map(browser, site)
    visit.press("Select")
    draw_lasso(visit, *LEFT_HALF, release=False)
    visit.keyboard.press("Escape")
    visit.mouse.up()
    assert visit.locator(".groups").is_visible(), "nothing is selected"
    draw_lasso(visit, *LEFT_HALF)
    assert visit.locator(".panel h2").inner_text().endswith("texts selected")
    visit.keyboard.press("Escape")
    assert visit.locator(".groups").is_visible(), "the selection is cleared"
    visit.keyboard.press("Escape")
    assert visit.get_by_role("button", name="Select", exact=True).get_attribute("aria-pressed") == "false"
    draw_lasso(visit, *LEFT_HALF)
    assert visit.locator(".groups").is_visible(), "dragging moves the map again"
    visit.press("Select")
    visit.keyboard.press("Escape")
    assert visit.get_by_role("button", name="Select", exact=True).get_attribute("aria-pressed") == "false"
    visit.close()


def test_texts_are_selected_by_keyboard(browser: Any, site: str) -> None:
    visit = open_map(browser, site)
    visit.locator("canvas").focus()
    for _ in range(3):
        visit.keyboard.press("ArrowRight")
        visit.keyboard.press("Space")
    assert visit.locator(".panel h2").inner_text() == "3 texts selected"
    visit.keyboard.press("Space")
    assert visit.locator(".panel h2").inner_text() == "2 texts selected", "the space bar removes a selected text"
    visit.keyboard.press("Escape")
    visit.fill("#map-find", "omegau text")
    visit.press("Select all 10")
    assert visit.locator(".panel h2").inner_text() == "10 texts selected"
    assert visit.locator(".panel .members input").count() == 10
    visit.fill("#members-label", "by search")
    visit.keyboard.press("Enter")
    visit.toast("10 texts labelled “by search”.")
    assert set(labelled(site)) == {f"omegau text {number}" for number in range(10)}
    undo_all(site)
    visit.close()


def test_texts_in_no_group_are_shown(browser: Any, site: str) -> None:
    visit = open_map(browser, site)
    visit.press("Show the texts in no group")
    assert set(visit.locator(".panel .members .utterance").all_inner_texts()) == {"far away", "further away"}
    visit.press("far away")
    # the view moves to the text, away from all others
    visit.page.wait_for_function(f"() => Math.max(...({SPAN})()) < 0.1")
    visit.close()


def test_typing_does_not_answer_a_question(browser: Any, folder: Path, tmp_path: Path, tiny_folder: Any) -> None:
    shutil.copytree(folder, tmp_path / "map", ignore=shutil.ignore_patterns("labels.jsonl*"))
    with listening(ServeSettings(model=str(tiny_folder("bert")), map=tmp_path / "map")) as site:
        for group in range(2):  # with labelled groups, questions come with a guess
            httpx.post(f"{site}/map/name", json={"group": group, "name": f"name {group}"}).raise_for_status()
        before = labelled(site)
        visit = open_map(browser, site)

        # a question that appears while the user types elsewhere does not take the focus
        visit.page.route("**/map/next*", lambda route: (visit.page.wait_for_timeout(200), route.continue_()))
        visit.get_by_role("button", name="Ask me").click(no_wait_after=True)
        visit.locator("#map-find").focus()
        visit.locator("#question-label").wait_for()
        assert visit.evaluate("document.activeElement.id") == "map-find"
        visit.keyboard.type("alphap ")
        visit.keyboard.press("Enter")
        visit.page.unroute("**/map/next*")

        # otherwise the focus is in the empty field, where Enter and the space bar confirm nothing
        visit.locator("#question-label").focus()
        visit.press("Skip")
        assert visit.evaluate("document.activeElement.id") == "question-label"
        visit.page.wait_for_timeout(600)
        for key in ("Enter", "Enter", "Space"):
            visit.keyboard.press(key)
        assert labelled(site) == before

        # keys that follow at once on an answer do not answer the next question
        visit.fill("#question-label", "first")
        visit.keyboard.press("Enter")
        visit.toast("Labelled “first”.")
        visit.page.wait_for_function("() => document.querySelector('#question-label')?.value === ''")
        visit.keyboard.type("und")
        visit.keyboard.press("Enter")
        visit.locator(".questions .main").evaluate_all("(buttons) => buttons.forEach((each) => each.click())")
        visit.page.wait_for_timeout(100)
        assert sorted(set(labelled(site).values())) == sorted({*before.values(), "first"})

        # an intended answer still works
        visit.page.wait_for_timeout(600)
        visit.fill("#question-label", "second")
        visit.keyboard.press("Enter")
        visit.toast("Labelled “second”.")
        assert "second" in labelled(site).values()
        visit.close()


def test_one_click_labels_a_group_of_similar_texts(
    browser: Any, folder: Path, tmp_path: Path, tiny_folder: Any
) -> None:
    shutil.copytree(folder, tmp_path / "map", ignore=shutil.ignore_patterns("labels.jsonl*"))
    with listening(ServeSettings(model=str(tiny_folder("bert")), map=tmp_path / "map")) as site:
        for group, word in enumerate(WORDS):
            httpx.post(f"{site}/map/name", json={"group": group, "name": word}).raise_for_status()
        distant = [GROUPS * MEMBERS, GROUPS * MEMBERS + 1]
        httpx.post(f"{site}/map/label", json={"rows": distant, "name": "distant"}).raise_for_status()
        visit = open_map(browser, site)
        visit.press("Ask me")
        visit.locator(".questions .members li").nth(MEMBERS - 1).wait_for()
        texts = visit.locator(".questions .members .utterance").all_inner_texts()
        word = texts[0].split()[0]
        assert len(texts) == MEMBERS and all(text.startswith(word) for text in texts)
        visit.page.wait_for_timeout(600)

        # the text that does not belong is asked about next, alone and without a suggestion
        visit.locator(".questions .members input").nth(3).uncheck()
        visit.locator(".questions .main").click()
        visit.toast(f"9 texts labelled “{word}”.")
        visit.page.wait_for_function(
            "text => document.querySelector('.questions .quote')?.innerText === text", arg=texts[3]
        )
        assert visit.locator(".questions .main").count() == 0
        visit.page.wait_for_timeout(600)
        visit.fill("#question-label", "other")
        visit.keyboard.press("Enter")
        visit.toast("Labelled “other”.")
        assert {labelled(site)[text] for text in texts[:3] + texts[4:]} == {word}
        assert labelled(site)[texts[3]] == "other"

        # another label for all; with nothing ticked there is nothing to answer
        visit.locator(".questions .members li").nth(MEMBERS - 1).wait_for()
        texts = visit.locator(".questions .members .utterance").all_inner_texts()
        visit.page.wait_for_timeout(600)
        for box in visit.locator(".questions .members input").all():
            box.uncheck()
        before = labelled(site)
        visit.locator(".questions .main").click()
        visit.page.wait_for_timeout(200)
        assert labelled(site) == before
        for box in visit.locator(".questions .members input").all():
            box.check()
        visit.fill("#question-label", "renamed")
        visit.keyboard.press("Enter")
        visit.toast("10 texts labelled “renamed”.")
        assert {labelled(site)[text] for text in texts} == {"renamed"}
        assert not visit.complaints
        visit.close()
