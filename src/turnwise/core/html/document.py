"""What every report's page is made of, whatever it reports: its shell, sections, lists, pictures and facts."""

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Any

from turnwise.core.html.elements import Markup, element


def document(title: str, header: Markup, sections: Iterable[Markup], style: str = "", script: str = "") -> str:
    """A page that asks nothing of the network.

    Args:
        title: of the window.
        header: what stands above the sections.
        sections: see `section`.
        style: rules besides those that all pages have.
        script: the name of a script beside this file; empty for a page without one.
    """
    rules = Markup(_resource("page.css") + style)
    code = Markup(_resource(script)) if script else Markup()
    # a policy that lets nothing through but this style, this script and the pictures within
    allowed = ["default-src 'none'", "img-src data:", f"style-src '{_digest(rules)}'"]
    allowed += [f"script-src '{_digest(code)}'"] if code else []
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content="; ".join([*allowed, "base-uri 'none'"])),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", rules),
    )
    body = element("body", header, element("main", *sections), element("script", code) if code else "")
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _resource(name: str) -> str:
    return files("turnwise.core.html").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def contents(headings: Iterable[str]) -> Markup:
    """Links to the sections, by their headings, in their order."""
    links = (element("li", element("a", heading, href=f"#{_anchor(place)}")) for place, heading in enumerate(headings))
    return element("nav", element("ol", *links), aria_label="Contents")


def section(place: int, heading: str, content: Markup, style: str | None = None) -> Markup:
    """A part of the page; places count from 0, and `style` is its class."""
    name = _anchor(place)
    return element("section", element("h2", heading, id=name), content, aria_labelledby=name, class_=style)


def _anchor(place: int) -> str:
    return f"section-{place}"


def scrolling(title: str, table: Markup) -> Markup:
    """A table in a box of its own, which scrolls where the screen is narrow, also by the keyboard."""
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=title)


def listing(
    title: str, columns: Sequence[tuple[str, str | None]], body: Iterable[Iterable[Markup]], kind: str = "list"
) -> Markup:
    """A scrolling table of entries; columns are names and classes."""
    heads = (element("th", name, scope="col", class_=style) for name, style in columns)
    rows = (element("tr", *cells) for cells in body)
    return scrolling(
        title, element("table", element("thead", element("tr", *heads)), element("tbody", *rows), class_=kind)
    )


def image(picture: str, title: str) -> Markup:
    """An SVG as an image, not as elements: what it defines cannot touch another or the page, and it stays light on a dark one."""
    return element("img", src=f"data:image/svg+xml;base64,{b64encode(picture.encode()).decode()}", alt=title)


def plain(value: Any) -> str:
    """A fact as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def facts(known: dict[str, Any]) -> Markup:
    """Names and values; those that are no text are shown as code."""
    entries = []
    for name, value in known.items():
        entries += [
            element("dt", name),
            element("dd", value if isinstance(value, str) else element("code", plain(value))),
        ]
    return element("dl", *entries, class_="facts")
