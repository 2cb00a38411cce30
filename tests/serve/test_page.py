"""The page in a browser: every view, by pointer and by keyboard, in dark mode and on a phone."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed")

import httpx

import turnwise.serve
from tests.helpers import HANG_SECONDS
from tests.helpers.page_visit import LOW_CONTRAST, UNNAMED, Visit
from tests.helpers.page_world import ANSWERS, ARABIC, CONVERSATION, INTENTS, LONG, MARKUP_TEXT, REPORT, build
from tests.helpers.trial import listening
from turnwise.serve.settings import ServeSettings, add_key

PAGE = Path(turnwise.serve.__file__).parent / "page"
VIEWS = ("utterance", "conversation", "clusters", "map", "report")
#: The end of a bar, and the position of its threshold, in pixels from the left.
END = """(bar) => {
  const fill = bar.querySelector('.fill');
  return fill.offsetLeft + (fill.matches('.negative') ? 0 : fill.offsetWidth);
}"""
LINE = "(bar) => { const line = bar.querySelector('.threshold'); return line.offsetLeft + line.offsetWidth / 2; }"

#: The id or text of the focused element, and its outline; empty after the end of the page.
FOCUS = """() => {
  const node = document.activeElement, style = getComputedStyle(node.closest(".theme label") ?? node);
  const name = node === document.body ? "" : node.id || (node.closest("label") ?? node).textContent.trim();
  return [name, style.outlineStyle, parseFloat(style.outlineWidth)];
}"""

OUT_OF_SCOPE_TEXT = "Purple elephants dream of quantum algebra."

# ---- without a browser


def scripts() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in PAGE.glob("*.js")}


def test_scripts_parse_no_markup_and_name_no_other_host() -> None:
    assert len(scripts()) > 10
    for name, text in scripts().items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|srcdoc", text
        ), name
        assert not re.search(r"https?:|[\"'`]//", text), name
    for style in PAGE.glob("*.css"):
        assert not re.search(r"url\(|@import|https?:", style.read_text(encoding="utf-8")), style.name


def test_commands_on_the_page_exist() -> None:
    from typer.main import get_command

    from turnwise.cli import app

    response_body = {command for text in scripts().values() for command in re.findall(r'"turnwise ([a-z][^"]*)"', text)}
    assert len(response_body) >= 8
    for line in response_body:
        command: Any = get_command(app)
        words = line.split()
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


# ---- in a browser


@pytest.fixture(scope="module")
def world(browser: Any, tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> ServeSettings:
    return build(tmp_path_factory.mktemp("page"), tiny_folder("bert"))


@pytest.fixture(scope="module")
def site(world: ServeSettings) -> Iterator[str]:
    with listening(world) as address:
        yield address


def predicted(site: str, text: str) -> dict[str, Any]:
    return httpx.post(f"{site}/intents/predict", json={"texts": [text]}).json()["predictions"][0]  # type: ignore[no-any-return]


def examples(site: str, intent: str) -> list[str]:
    answer = httpx.get(f"{site}/intents/{intent}/examples")
    return answer.json()["examples"] if answer.status_code == 200 else []


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "light"),
        (1280, "dark"),
        pytest.param(360, "dark", marks=pytest.mark.full),
        pytest.param(1280, "light", marks=pytest.mark.full),
    ],
)
def test_views_fit_and_are_readable(browser: Any, site: str, width: int, scheme: str) -> None:
    visit = Visit(browser, site, width=width, color_scheme=scheme, reduced_motion="reduce")
    visit.ask(LONG)
    visit.locator("#intent-list .disclosure > summary").click()
    fits = []
    for view in VIEWS:
        visit.page.evaluate(f"location.hash = '#{view}'")
        visit.locator(f"#view-{view}").wait_for()
        if view == "conversation":
            visit.read(f"{CONVERSATION}\nagent: {LONG}\nuser: {ARABIC}")
            visit.locator(".decision summary").first.click()
            visit.locator(".similar summary").first.click()
        if view == "map":
            visit.locator(".group-name").first.click()
        if view == "report":
            visit.frame_locator("iframe").locator("h1").wait_for()
        fits.append(visit.evaluate("document.scrollingElement.scrollWidth <= innerWidth"))
        assert visit.evaluate(LOW_CONTRAST) == [], view
        assert visit.evaluate(UNNAMED) == [], view
        assert visit.evaluate("document.querySelectorAll('main > section:not([hidden]) h1').length") == 1
    assert fits == [True] * len(VIEWS)
    lightness = visit.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(lightness) / 3 > 128) == (scheme == "light")
    assert visit.evaluate("document.getAnimations().length") == 0, "no animations with reduced motion"
    visit.close()


def test_controls_are_large_enough_on_a_phone(browser: Any, site: str) -> None:
    visit = Visit(browser, site, width=390, height=844, has_touch=True, is_mobile=True)
    visit.ask(LONG)
    visit.locator("#intent-list .disclosure > summary").click()
    for view in VIEWS[:4]:
        visit.page.evaluate(f"location.hash = '#{view}'")
        if view == "conversation":
            visit.read(CONVERSATION)
            visit.locator(".similar summary").first.click()
        if view == "map":
            visit.press("Ask me")
            visit.locator("#question-label").wait_for()
            visit.locator(".group-name").first.click()
        small = """() => [...document.querySelectorAll("button, summary, select, textarea, input, .top nav a")]
          .filter((node) => node.checkVisibility()).map((node) => node.closest("label") ?? node)
          .filter((node) => node.getBoundingClientRect().height < 39.5).map((node) => node.outerHTML)"""
        assert visit.evaluate(small) == [], view
        assert visit.evaluate("document.scrollingElement.scrollWidth") <= 390, view
    visit.close()


def test_long_texts_are_expanded_on_request(browser: Any, site: str) -> None:
    text = "Where is my parcel? " * 60
    visit = Visit(browser, site)
    visit.ask(LONG)
    example = visit.locator(".nearest .text", has=visit.page.locator(".long")).first
    assert "…" in example.inner_text() and LONG not in example.inner_text()
    toggle = example.get_by_role("button", name="Show all")
    assert toggle.get_attribute("aria-expanded") == "false"
    toggle.focus()
    visit.keyboard.press("Enter")
    assert LONG in example.inner_text()
    visit.keyboard.press("Enter")
    assert LONG not in example.inner_text()
    visit.page.evaluate("location.hash = '#conversation'")
    visit.read(f"user: {text}")
    turn = visit.locator("#conversation-turns .turn > .text")
    assert len(turn.inner_text()) < 350
    turn.get_by_role("button", name="Show all").click()
    assert text.strip() in turn.inner_text()
    visit.close()


def test_introduction_explains_the_views_with_own_data(browser: Any, site: str) -> None:
    visit = Visit(browser, site, first=True)
    dialog = visit.locator("#introduction[open]")
    dialog.wait_for()
    assert visit.evaluate("document.activeElement.id") == "introduction-heading"
    assert visit.evaluate(LOW_CONTRAST) == [] and visit.evaluate(UNNAMED) == []
    cards = dict(
        zip(("utterance", "conversation", "map", "report"), dialog.locator(".card").all_inner_texts(), strict=True)
    )
    sizes = httpx.get(f"{site}/overview").json()
    assert "4 intents with 18 examples; the largest is “track_order” with 6" in cards["utterance"]
    assert "12 conversations" in cards["conversation"] and f"{sizes['answers']} answers" in cards["conversation"]
    groups = httpx.get(f"{site}/map").json()["clusters"]
    assert "in 4 groups, 0 of them named" in cards["map"] and groups[0]["suggested"] in cards["map"]
    assert "Not loaded" not in "".join(cards.values())
    visit.keyboard.press("Escape")
    assert dialog.count() == 0
    visit.page.reload()
    visit.page.wait_for_selector("#about b")
    visit.page.wait_for_function("() => !document.querySelector('#help-button').hidden")
    assert dialog.count() == 0, "it is shown once"
    visit.press("Help")
    dialog.wait_for()
    dialog.locator(".card").nth(2).get_by_role("button").click()
    visit.locator(".panel.card h2", has_text=groups[0]["suggested"]).wait_for()
    assert visit.evaluate("location.hash") == "#map" and dialog.count() == 0
    visit.press("Help")
    dialog.locator(".card").first.get_by_role("button").click()
    visit.locator(".verdict", has_text="track_order").wait_for()
    assert visit.input_value("#utterance-text") == sizes["intents"]["example"]
    visit.press("Help")
    visit.press("Close")
    assert visit.evaluate("document.activeElement.id") == "help-button", "the focus returns"
    visit.close()


def test_utterance(browser: Any, site: str) -> None:
    text = "Has my parcel arrived?"
    decision = predicted(site, text)
    assert decision["intent"] == "track_order"
    visit = Visit(browser, site)
    visit.ask(text)
    assert visit.locator(".verdict").inner_text() == "track_order"
    assert visit.locator("#view-utterance .reason").inner_text() == decision["reason"]
    names = visit.locator(".bars .name bdi").all_inner_texts()
    assert names == [each["intent"] for each in decision["ranked"]]
    assert visit.locator(".bars .value").all_inner_texts() == [
        f"{each['score']:.2f}".replace("-", "−") for each in decision["ranked"]
    ]
    assert visit.locator(".bars .role").all_inner_texts() == ["predicted", "runner-up"]
    places = [box.evaluate(END) for box in visit.locator(".bar").all()]
    assert places == sorted(places, reverse=True)
    assert visit.locator(".bar").first.evaluate(LINE) < places[0]
    assert visit.locator(".threshold").count() == 1
    assert visit.locator(".nearest .text").first.inner_text() == decision["nearest"][0]["text"]
    assert ANSWERS["track_order"] in visit.locator(".answers .text").all_inner_texts()
    visit.locator("#announcer", has_text="Intent: track_order").wait_for(state="attached")
    visit.close()


def test_abstention(browser: Any, site: str) -> None:
    decision = predicted(site, OUT_OF_SCOPE_TEXT)
    assert decision["abstained"]
    visit = Visit(browser, site)
    visit.ask(OUT_OF_SCOPE_TEXT)
    assert visit.locator(".verdict").inner_text() == "No intent (abstained)"
    assert visit.locator("#view-utterance .reason").inner_text() == decision["reason"]
    assert visit.locator(".predicted").count() == 0
    bar = visit.locator(".bar").first
    assert bar.evaluate(END) < bar.evaluate(LINE), "the bar ends before the threshold"
    assert f"{decision['threshold']:.2f}" in visit.locator("#utterance-intents .help").first.inner_text()
    visit.close()


def test_add_example_and_undo(browser: Any, site: str) -> None:
    text = "Do you have anything for six people?"
    visit = Visit(browser, site)
    visit.ask(text)
    visit.page.get_by_role("button", name="Add the text as an example of book_table").click()
    visit.toast("Added as an example of book_table")
    assert text in examples(site, "book_table")
    visit.page.locator(".nearest .text").get_by_text(text, exact=True).wait_for()
    assert visit.locator(".verdict").inner_text() == "book_table", "the prediction is repeated"
    visit.press("Undo")
    visit.toast("1 example of book_table removed.")
    assert text not in examples(site, "book_table")
    visit.close()


def test_add_new_intent_and_remove_its_example(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    visit.ask(MARKUP_TEXT + " again")
    visit.fill("#other-intent", "odd <b>things")
    visit.keyboard.press("Enter")
    visit.toast("Added as an example of odd <b>things")
    visit.locator("#intent-list .disclosure > summary", has_text="5 intents, 19 examples").click()
    entry = visit.locator(".intent", has_text="odd <b>things")
    entry.locator("summary").click()
    entry.locator("li .text").wait_for()
    assert entry.locator("li .text").all_inner_texts() == [MARKUP_TEXT + " again"]
    entry.get_by_role("button", name="Remove").click()
    visit.toast("1 example of odd <b>things removed.")
    visit.page.locator("#intent-list .disclosure > summary", has_text="4 intents, 18 examples").wait_for()
    assert visit.locator("#intent-list .disclosure").evaluate("(node) => node.open"), "an open list stays open"
    assert visit.title() == "Utterance · turnwise"
    visit.close()


def test_conversation(browser: Any, site: str) -> None:
    visit = Visit(browser, site, "conversation")
    with visit.page.expect_request("**/intents/predict") as request:
        visit.read(CONVERSATION)
    turns = visit.locator("#conversation-turns .turn")
    spoken = [line.split(": ", 1) for line in CONVERSATION.splitlines()]
    users = [place for place, (speaker, _) in enumerate(spoken) if speaker == "user"]
    in_context = [[turn["text"] for turn in text] for text in request.value.post_data_json["texts"]]
    assert in_context == [[text for _, text in spoken[max(0, place - 5) : place + 1]] for place in users]
    assert turns.locator("> .text").all_inner_texts() == [text for _, text in spoken]
    assert [each.lower() for each in turns.locator(".speaker").all_inner_texts()] == [speaker for speaker, _ in spoken]
    expected = [predicted(site, text)["intent"] or "no intent" for speaker, text in spoken if speaker == "user"]
    assert expected[0] == "track_order"
    assert expected[2] == "no intent"
    assert turns.locator("summary .chip").all_inner_texts() == expected
    sent = [{"speaker": "user" if speaker == "user" else "system", "text": text} for speaker, text in spoken]
    response_body = httpx.post(f"{site}/coherence", json={"conversation": sent}).json()
    marked = turns.nth(response_body["index"]).locator(".out-of-place-note")
    assert f"{response_body['scores'][response_body['index']]:.2f}" in marked.inner_text()
    assert (turns.nth(response_body["index"]).get_attribute("class") or "").endswith("out-of-place") == (
        response_body["scores"][response_body["index"]] >= 0.5
    )
    alike = httpx.post(f"{site}/conversations/similar", json={"conversation": sent}).json()["conversations"]
    assert visit.locator(".similar > summary > bdi").all_inner_texts() == [each["title"] for each in alike]
    suggested = visit.locator("#conversation-answers .answers .text").first.inner_text()
    visit.press("Use: " + suggested)
    visit.page.locator("#conversation-turns .turn").nth(5).wait_for()
    assert visit.input_value("#conversation-text").endswith(f"\nagent: {suggested}")
    visit.press("Swap speakers")
    assert visit.input_value("#conversation-text").startswith("agent: Where is my parcel?\nuser: May I")
    visit.press("Clear")
    assert visit.locator("#conversation-turns").inner_text() == ""
    visit.close()


@pytest.mark.full
def test_conversation_clusters(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    visit.locator("nav").get_by_role("link", name="Clusters").click()
    response_body = httpx.get(f"{site}/conversations/clusters", timeout=HANG_SECONDS).json()["clusters"]
    listed = visit.page.locator("#clusters-body .similar")
    (listed.first if response_body else visit.page.locator("#clusters-body", has_text="No clusters")).wait_for()
    assert listed.locator("> summary > bdi").all_inner_texts() == [each["name"] for each in response_body]
    if response_body:
        listed.first.locator("summary").click()
        listed.first.locator("button").first.click()
        visit.page.locator("#conversation-turns .turn").first.wait_for()
        turns = httpx.get(f"{site}/conversations/dialogue", params={"id": response_body[0]["examples"][0]}).json()[
            "turns"
        ]
        assert visit.locator("#conversation-turns .turn > .text").all_inner_texts() == [turn["text"] for turn in turns]
    visit.close()


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("", []),
        (" \n\r\n", []),
        ("one", ["user one"]),
        ("one\ntwo", ["system one", "user two"]),
        ("one\n\n two \r\nthree", ["user one", "system two", "user three"]),
        ("user: a\nagent: b", ["user a", "system b"]),
        ("Customer : a\nBOT:b\nhuman: c", ["user a", "system b", "user c"]),
        ("user: a\nand b\nagent:\nc: d", ["user a\nand b", "system c: d"]),
        ("before\nagent: b", ["user before", "system b"]),
        ("before\nuser: b", ["system before", "user b"]),
        ("user:\nagent: b", ["system b"]),
        ("usera: x\nnote: y", ["system usera: x", "user note: y"]),
        ("user: a: b", ["user a: b"]),
    ],
)
def test_parsing_of_turns(browser: Any, site: str, text: str, turns: list[str]) -> None:
    page = _parsing(browser, site)
    read = page.evaluate("(text) => parsing.parseTurns(text)", text)
    assert [f"{turn['speaker']} {turn['text']}" for turn in read] == turns
    again = page.evaluate("(turns) => parsing.parseTurns(parsing.formatTurns(turns))", read)
    assert again == read, "formatted turns parse to the same turns"


_opened: dict[str, Any] = {}


def _parsing(browser: Any, site: str) -> Any:
    """Return a page with the parsing module, shared by all tests."""
    if site not in _opened:
        _opened[site] = browser.new_page()
        _opened[site].goto(site)
        _opened[site].evaluate("async () => { window.parsing = await import('/page/parsing.js'); }")
    return _opened[site]


def test_label_map_and_fit_classifier(browser: Any, world: ServeSettings, tmp_path: Path) -> None:
    assert world.map is not None
    shutil.copytree(world.map, tmp_path / "map")
    with listening(ServeSettings(model="minilm", map=tmp_path / "map")) as site:
        visit = Visit(browser, site, "map")
        total = sum(len(each) for each in INTENTS.values())

        def state() -> dict[str, Any]:
            return httpx.get(f"{site}/map").json()  # type: ignore[no-any-return]

        def named() -> set[str]:
            return {each["name"] for each in state()["clusters"] if each["name"]}

        def row(text: str) -> int:
            return state()["texts"].index(text)  # type: ignore[no-any-return]

        visit.page.locator(".groups tbody tr").nth(3).wait_for()
        assert visit.locator(".groups tbody tr").count() == 4
        assert visit.get_by_role("button", name="Fit classifier").is_disabled()
        visit.locator(".group-name").first.click()
        assert visit.evaluate("document.activeElement.dataset.key") == "panel"
        visit.fill("#group-name", "parcels")
        visit.keyboard.press("Enter")
        visit.toast("Group named “parcels”")
        assert named() == {"parcels"}
        visit.press("← All groups")
        assert visit.evaluate("document.activeElement.textContent") == "parcels", "the focus returns to the group"

        others = visit.locator(".groups input")
        others.nth(1).check()
        others.nth(2).check()
        visit.fill("#merge-name", "both")
        visit.press("Merge")
        visit.toast("Merged 2 groups.")
        assert named() == {"parcels", "both"}
        assert len(state()["clusters"]) == 3
        visit.press("Split")
        visit.toast("Split into 2 groups.")
        assert len(state()["clusters"]) == 4
        visit.press("Undo")
        visit.toast("Undone.")
        assert len(state()["clusters"]) == 3
        visit.keyboard.press("Control+Shift+Z")
        visit.toast("Redone.")
        visit.keyboard.press("Control+z")
        visit.toast("Undone.")

        visit.fill("#map-find", "money BACK")
        assert visit.locator(".results li").count() == 1
        visit.locator(".results button").click()
        visit.fill("#row-label", "refunds")
        visit.keyboard.press("Enter")
        visit.toast("1 text labelled “refunds”.")
        assert state()["labels"][row("I want my money back.")] == "refunds"
        visit.fill("#map-find", "")

        visit.press("Ask me")
        visit.locator("#question-label").wait_for()
        visit.page.wait_for_timeout(600)  # a question that has just appeared takes no answer
        question = visit.locator(".quote").last.inner_text()
        visit.fill("#question-label", "asked")
        visit.keyboard.press("Enter")
        visit.toast("Labelled “asked”.")
        assert state()["labels"][row(question)] == "asked"

        with visit.page.expect_download() as saved:
            visit.press("Download labels (CSV)")
        assert saved.value.suggested_filename == "labels.csv"
        assert saved.value.path().read_bytes() == httpx.get(f"{site}/map/labels.csv").content
        labelled, words = visit.locator(".label-progress").inner_text().split(" of ", 1)
        assert int(labelled) == sum(
            count for count, label in zip(state()["counts"], state()["labels"], strict=True) if label
        )
        assert words.startswith(str(sum(1 + place % 3 for place in range(total))))

        visit.press("Fit classifier")
        visit.toast("Fitted on")
        visit.press("Try it")
        visit.ask("Where is my parcel?")
        assert visit.locator(".verdict").inner_text() == "parcels"
        visit.close()
    with listening(ServeSettings(model="minilm", map=tmp_path / "map")) as site:
        assert {"both", "refunds", "asked"} <= {each["name"] for each in httpx.get(f"{site}/map").json()["clusters"]}, (
            "the labels are on disk"
        )


def test_map_by_keyboard(browser: Any, site: str) -> None:
    visit = Visit(browser, site, "map")
    canvas = visit.locator("canvas")
    canvas.focus()
    visit.keyboard.press("ArrowRight")
    chosen = visit.locator(".quote").inner_text()
    assert any(chosen == text for texts in INTENTS.values() for text in texts)
    visit.page.wait_for_function(
        "(text) => document.querySelector('#announcer').textContent.startsWith(text)", arg=chosen
    )
    assert visit.evaluate("document.activeElement.tagName") == "CANVAS", "the next arrow key continues"
    visit.keyboard.press("Escape")
    assert visit.locator(".groups").is_visible()
    assert visit.locator("label", has_text="new only (4)").is_visible()
    visit.check("#map-new")
    assert visit.locator(".results li").all_inner_texts() == INTENTS["book_table"]
    visit.close()


def test_page_by_keyboard(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    seen = []
    for _ in range(60):
        visit.keyboard.press("Tab")
        where = visit.evaluate(FOCUS)
        if where[0] in ("", seen[0][0] if seen else None):
            break
        seen.append(where)
        if where[0] == "utterance-text":
            visit.keyboard.type("Where is my parcel?")
            visit.keyboard.press("Enter")
            visit.page.wait_for_selector(".answers")
            visit.page.wait_for_function("() => !document.querySelector('[aria-busy]')")
    names = [name for name, _, _ in seen]
    assert names[0] == "Skip to content"
    assert {
        "Utterance",
        "Report",
        "utterance-text",
        "Detect",
        "utterance-several",
        "Add example",
        "other-intent",
        "Copy",
    } <= set(names)
    assert [each for each in seen if each[1] == "none" or each[2] < 2] == [], "the focus is visible"
    visit.page.locator("nav a", has_text="Conversation").focus()
    visit.keyboard.press("Enter")
    visit.page.locator("#conversation-heading:focus").wait_for()
    assert visit.locator("nav a[aria-current=page]").inner_text() == "Conversation"
    visit.close()


def test_report(browser: Any, site: str) -> None:
    visit = Visit(browser, site, "report")
    heading = visit.frame_locator("iframe").locator("h1")
    assert heading.inner_text() == "How well it does"
    assert heading.evaluate("(heading) => getComputedStyle(heading).color") == "rgb(1, 2, 3)"
    visit.close()


def test_hostile_and_rtl_texts(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    visit.ask(MARKUP_TEXT)
    assert visit.locator(".nearest .text").first.inner_text() == MARKUP_TEXT
    visit.ask(ARABIC)
    assert visit.locator("#utterance-text").evaluate("(field) => field.matches(':dir(rtl)')")
    assert visit.locator(".nearest bdi").get_by_text(ARABIC).evaluate("(text) => text.matches(':dir(rtl)')")
    visit.page.evaluate("location.hash = '#conversation'")
    visit.read(f"{ARABIC}\n{MARKUP_TEXT}")
    assert visit.locator("#conversation-turns .turn > .text").all_inner_texts() == [ARABIC, MARKUP_TEXT]
    assert visit.locator("main img").count() == 0
    assert visit.title() == "Conversation · turnwise"
    visit.close()


def test_colour_scheme(browser: Any, site: str) -> None:
    visit = Visit(browser, site, color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = visit.evaluate(paper)
    visit.page.get_by_label("Dark", exact=True).check()
    dark = visit.evaluate(paper)
    assert dark != light
    visit.page.reload()
    assert visit.evaluate(paper) == dark
    visit.page.get_by_label("System colours").check()
    assert visit.evaluate(paper) == light
    visit.close()


# ---- missing features and errors


def test_missing_features_name_their_option(browser: Any, tiny_folder: Callable[[str], Path]) -> None:
    with listening(ServeSettings(model=str(tiny_folder("bert")))) as site:
        visit = Visit(browser, site)
        assert "--intents" in visit.locator("#utterance-intents").inner_text()
        assert "--responses" in visit.locator("#utterance-answers").inner_text()
        visit.page.evaluate("location.hash = '#conversation'")
        visit.read("hello\nyes?\nwell")
        response_body = visit.locator("#view-conversation").inner_text()
        assert all(option in response_body for option in ("--intents", "--responses", "--conversations", "--reranker"))
        for view in ("map", "report"):
            visit.page.evaluate(f"location.hash = '#{view}'")
            assert f"--{view}" in visit.locator(f"#view-{view} .notice").inner_text()
        visit.close()


def error(message: str) -> str:
    return json.dumps({"error": {"message": message, "type": "server_error", "param": None, "code": None}})


def test_busy_service(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    full = {
        "status": 503,
        "headers": {"Retry-After": "7", "Content-Type": "application/json"},
        "body": error("too many texts wait"),
    }
    visit.page.route("**/respond", lambda route: route.fulfill(**full))
    visit.ask("Where is my parcel?")
    assert visit.locator("#utterance-answers [role=alert]").inner_text().split("\n")[:1] == ["The service is busy"]
    assert "Too many texts wait. Try again in 7 s." in visit.locator("#utterance-answers").inner_text()
    assert visit.locator(".verdict").inner_text() == "track_order", "the other result is shown"
    visit.page.unroute("**/respond")
    visit.press("Try again")
    visit.locator(".answers").wait_for()
    visit.close(expected="503")


def test_unreachable_service(browser: Any, site: str) -> None:
    visit = Visit(browser, site)
    visit.context.set_offline(True)
    visit.ask("Where is my parcel?")
    assert visit.locator(".notice.bad").count() == 2
    assert "The service does not respond." in visit.locator(".notice.bad").first.inner_text()
    visit.context.set_offline(False)
    visit.locator("#utterance-intents").get_by_role("button", name="Try again").click()
    visit.locator(".verdict", has_text="track_order").wait_for()
    visit.page.route("**/ready", lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))
    visit.page.reload()
    assert (
        "The service returned status 502 without a message."
        in visit.locator("#startup-notice [role=alert]").inner_text()
    )
    visit.page.unroute("**/ready")
    visit.press("Try again")
    visit.locator("#view-utterance").wait_for()
    visit.close(expected="Failed to load resource")


def test_api_key(browser: Any, world: ServeSettings, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "somebody")
    assert world.report is not None
    with listening(ServeSettings(model=str(tiny_folder("bert")), keys=tmp_path / "keys", report=world.report)) as site:
        visit = Visit(browser, site, "report")
        visit.press("Download report")
        visit.locator("#key-dialog[open]").wait_for()
        assert visit.evaluate("document.activeElement.id") == "key-input"
        visit.keyboard.type("guessed")
        visit.keyboard.press("Enter")
        visit.locator("#key-message", has_text="This key is not valid").wait_for()
        visit.keyboard.type(key)
        with visit.page.expect_download() as saved:
            visit.keyboard.press("Enter")
        assert saved.value.path().read_text(encoding="utf-8") == REPORT
        assert visit.evaluate("Object.values(sessionStorage)") == [key]
        assert key not in visit.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        visit.press("API key")
        visit.press("Remove key")
        assert visit.evaluate("sessionStorage.length") == 0
        visit.press("Download report")
        visit.locator("#key-dialog[open]").wait_for()
        visit.keyboard.press("Escape")
        visit.locator(".toast.bad").wait_for()
        visit.close(expected="401")
