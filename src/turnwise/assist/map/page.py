"""A map as one HTML page that needs no network, and as a picture."""

import json
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.map.clustering import NONE, Cluster
from turnwise.assist.map.map import Map
from turnwise.core.html.elements import Markup, element, joined

#: Coordinates are whole numbers up to this: finer than any screen, and short to write.
_FINEST = 10_000

#: Representatives of a cluster in the table.
_SHOWN = 3

_METHODS = {"umap": "UMAP", "tsne": "t-SNE"}


def map_page(drawn: Map, title: str) -> str:
    """A page on which a map can be looked at, searched and read, by mouse, keyboard and screen reader.

    Args:
        drawn: the map.
        title: of what it is a map.
    """
    style, script = Markup(_resource("map.css")), Markup(_resource("map.js") + _resource("page.js"))
    # a policy that lets nothing through but this style and this script
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: a map"),
        element("style", style),
    )
    body = element(
        "body",
        element("a", "To the table of clusters", href="#table", class_="skip"),
        element("div", _header(drawn, title), _stage(drawn), _panel(drawn), class_="workspace"),
        _table(drawn),
        element("script", _as_json(page_data(drawn)), id="data", type="application/json"),
        element("script", script, type="module"),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def page_data(drawn: Map) -> dict[str, Any]:
    """What the script draws, in the words in which a service answers for a map."""
    return {
        "points": _scaled(drawn).tolist(),
        "texts": drawn.texts,
        "dialogues": [utterance.dialogue for utterance in drawn.utterances],
        "turns": [utterance.turn for utterance in drawn.utterances],
        "speakers": [utterance.speaker for utterance in drawn.utterances],
        "counts": drawn.counts.tolist(),
        "groups": drawn.labels.tolist(),
        "new": None if drawn.new is None else drawn.new.tolist(),
        "before": 0 if drawn.since is None else drawn.since.utterances,
        "clusters": [
            {
                "number": cluster.number,
                "name": cluster.name,
                "words": cluster.words,
                "size": cluster.size,
                "utterances": cluster.utterances,
                "representatives": cluster.representatives,
                "new": new,
                "before": before,
            }
            for cluster, new, before in _since(drawn)
        ],
    }


def summary(drawn: Map) -> str:
    """What there is on a map, in a line."""
    outside = int(drawn.counts[drawn.labels == NONE].sum()) / max(1, int(drawn.counts.sum()))
    said = int(drawn.counts.sum())
    facts = [
        f"{len(drawn):,} texts, said {said:,} times",
        f"{len(drawn.clusters):,} clusters",
        f"{outside:.0%} in none",
    ]
    if drawn.new is not None:
        facts.append(f"{int(drawn.new.sum()):,} new")
    return " · ".join([*facts, *([drawn.model] if drawn.model else []), _METHODS[drawn.method]])


def _since(drawn: Map) -> Iterable[tuple[Cluster, int | None, int | None]]:
    """Each cluster, how many of its texts are new, and how many utterances it had before; None where there was no earlier map."""
    for place, cluster in enumerate(drawn.clusters):
        if drawn.new is None or drawn.since is None:
            yield cluster, None, None
        else:
            yield cluster, int(drawn.new[drawn.labels == cluster.number].sum()), drawn.since.before[place]


def _scaled(drawn: Map) -> npt.NDArray[np.int64]:
    lowest = drawn.points.min(0)
    extent = max(float((drawn.points.max(0) - lowest).max()), 1e-9)
    scaled: npt.NDArray[np.int64] = np.rint((drawn.points - lowest) / extent * _FINEST).astype(np.int64)
    return scaled


def _as_json(value: Any) -> Markup:
    # within a script element only "<" could be taken for markup
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def _resource(name: str) -> str:
    return files("turnwise.assist.map").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


# ---- the parts of the page


def _header(drawn: Map, title: str) -> Markup:
    table = element("a", "All clusters as a table", href="#table")
    return element("header", element("h1", title), element("p", summary(drawn)), table)


def _stage(drawn: Map) -> Markup:
    label = f"Map of {len(drawn):,} texts. Arrows go from text to text, plus and minus zoom; the table below has all clusters."
    buttons = (("closer", "+", "Closer"), ("farther", "−", "Farther"), ("whole", "Whole map", None))
    return element(
        "main",
        element("canvas", id="canvas", aria_label=label),
        element(
            "p",
            "Arrows: from text to text · Shift and arrows: move · + − 0: zoom · Escape: back",
            class_="keys",
            aria_hidden="true",
        ),
        element("div", id="tip", class_="tip", hidden="", aria_hidden="true"),
        element(
            "div",
            *(element("button", text, type="button", id=name, aria_label=said) for name, text, said in buttons),
            class_="tools",
        ),
        class_="stage",
    )


def _panel(drawn: Map) -> Markup:
    search = element(
        "input",
        id="search",
        type="search",
        placeholder="Search the texts ( / )",
        aria_label="Search the texts",
        autocomplete="off",
    )
    only = element("label", element("input", id="only-new", type="checkbox"), " only what is new", class_="only")
    told = element("p", id="told", role="status", class_="hidden")
    content = element("div", id="panel", class_="content")
    return element(
        "aside",
        element("div", search, *([only] if drawn.new is not None else []), told, class_="find"),
        content,
        class_="panel",
        aria_label="Clusters and texts",
    )


def _table(drawn: Map) -> Markup:
    compared = drawn.since is not None
    heads = [
        "Cluster",
        "Texts",
        "Said",
        "Share",
        *(["New texts", "Share before"] if compared else []),
        "Characteristic words",
        "Examples",
    ]
    numbers = {"Texts", "Said", "Share", "New texts", "Share before"}
    said = max(1, int(drawn.counts.sum()))
    rows = [_row(drawn, said, *entry) for entry in _since(drawn)]
    table = element(
        "table",
        element("caption", "The clusters of the map, the largest first", class_="hidden"),
        element(
            "thead",
            element(
                "tr",
                *(element("th", head, scope="col", class_="number" if head in numbers else None) for head in heads),
            ),
        ),
        element("tbody", *rows),
    )
    return element(
        "section",
        element("h2", "All clusters", id="table-name"),
        element("p", _explained(drawn)),
        element("div", table, class_="scroll", tabindex=0, role="region", aria_label="All clusters"),
        class_="table",
        id="table",
        aria_labelledby="table-name",
    )


def _row(drawn: Map, said: int, cluster: Cluster, new: int | None, before: int | None) -> Markup:
    cells = [f"{cluster.size:,}", f"{cluster.utterances:,}", f"{cluster.utterances / said:.1%}"]
    if drawn.since is not None:
        cells += [f"{new:,}", f"{(before or 0) / max(1, drawn.since.utterances):.1%}"]
    button = element("button", cluster.name, type="button", class_="back", data_group=cluster.number)
    return element(
        "tr",
        element("th", button, scope="row"),
        *(element("td", cell, class_="number") for cell in cells),
        element("td", ", ".join(cluster.words), class_="words-cell"),
        element(
            "td",
            *(element("q", drawn.utterances[row].text) for row in cluster.representatives[:_SHOWN]),
            class_="examples",
        ),
    )


def _explained(drawn: Map) -> Markup:
    said = "Texts that are the same but for case are one point, the larger the more often it was said. Names are the words that are"
    told = [
        f"{said} more frequent in a cluster than elsewhere. How far two clusters lie apart on the map means nothing."
    ]
    if drawn.since is not None:
        told.append(
            f" A text is new, and has a strong edge, where its cosine with every earlier text is below {drawn.since.threshold:.2f}."
        )
    return joined(told)
