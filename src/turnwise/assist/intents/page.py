"""The report on intents as one page that asks nothing of the network."""

import math
from collections.abc import Iterable
from pathlib import Path

from turnwise.assist.intents.findings import Confusion, IntentRow, Overlap, Suspect, TurnedAway
from turnwise.assist.intents.report import Report
from turnwise.core.files import write_whole
from turnwise.core.html.document import contents, document, facts, image, listing, section
from turnwise.core.html.elements import Markup, element, joined
from turnwise.core.svg import line_chart

#: What the page has besides the rules of all pages.
_STYLE = """
.texts { margin: 0; padding: 0; list-style: none; }
.texts li + li { margin-top: 0.2rem; }
.lists td { max-width: 30rem; }
"""

#: A column: its name and class.
_NUMBER = "number"


def write_report(report: Report, path: Path | str) -> None:
    """Writes a report as an HTML page, whole or not at all."""
    write_whole(Path(path), page(report))


def page(report: Report) -> str:
    """A report as an HTML page."""
    parts = [
        ("Examples likely mislabelled", _suspects(report)),
        ("What is taken for what", _confusions(report.confusions)),
        ("Intents that overlap", _overlaps(report.overlaps)),
        ("Examples that would be turned away", _turned_away(report)),
        ("How sure it may be", _reliability(report)),
        ("Every intent", _intents(report)),
        ("Made with", facts({"folds": report.folds, **report.settings})),
    ]
    header = element(
        "header",
        element("p", "Report on intents", class_="eyebrow"),
        element("h1", f"{len(report.intents):,} intents, {report.examples:,} examples"),
        element("p", _lead(report), class_="lead"),
        _totals(report),
        contents(heading for heading, _ in parts),
    )
    sections = (section(place, heading, content) for place, (heading, content) in enumerate(parts))
    return document("Report on intents", header, sections, _STYLE, "sortable.js")


def _lead(report: Report) -> str:
    said = (
        f"Each example was judged by a classifier that had not seen it ({report.folds}-fold cross-validation). "
        f"{report.judged:,} could be judged"
    )
    if not report.alone:
        return f"{said}."
    return f"{said}; intents with a single text could not: {', '.join(report.alone)}."


def _totals(report: Report) -> Markup:
    named = report.settings["false_rejection"]
    entries = [
        ("right", percent(report.accuracy), "abstention aside"),
        ("right where it answers", percent(report.answered_right), ""),
        (
            "turned away wrongly",
            percent(report.false_rejection),
            "it never abstains" if named is None else f"{named:.1%} named",
        ),
        ("calibration error (ECE)", percent(report.reliability.ece), ""),
        ("labels to look at", f"{report.suspected:,}", ""),
    ]
    if report.out_of_scope_recall is not None:
        entries.append(("out of scope found", percent(report.out_of_scope_recall), f"of {report.out_of_scope:,}"))
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value, " ", element("small", remark) if remark else ""))
            for name, value, remark in entries
        ),
        class_="totals",
    )


# ---- sections


def _suspects(report: Report) -> Markup:
    if not report.suspects:
        return element("p", "None stands out.")
    found = report.suspected
    shown = f"The likeliest {len(report.suspects)} of {found:,}" if found > len(report.suspects) else f"{found:,}"
    note = (
        f"{shown} examples for which another intent is as probable as it is for its own examples on average, and more probable "
        "than their label. Some will be right as they are; look at each. Rows count the examples from 1."
    )
    columns = [("row", _NUMBER), ("text", None), ("labelled", None), ("looks like", None), ("probabilities", _NUMBER)]
    return joined(
        [element("p", note, class_="remark"), listing("Suspects", columns, map(_suspect, report.suspects), _LIST)]
    )


def _suspect(suspect: Suspect) -> list[Markup]:
    again = element("small", "the same text is an example of it") if suspect.same_text else ""
    return [
        _cell(f"{suspect.row + 1:,}", _NUMBER),
        _cell(suspect.text),
        _cell(suspect.intent),
        element("td", suspect.proposed, again),
        _cell(f"{percent(suspect.own_probability)} → {percent(suspect.probability)}", _NUMBER),
    ]


def _confusions(confusions: Iterable[Confusion]) -> Markup:
    rows = [
        [
            _cell(each.first),
            _cell(each.second),
            _cell(f"{each.first_as_second:,}", _NUMBER),
            _cell(f"{each.second_as_first:,}", _NUMBER),
            element("td", _texts(each.texts)),
        ]
        for each in confusions
    ]
    if not rows:
        return element("p", "Nothing: every judged example's own intent is the best guess.")
    columns = [
        ("one intent", None),
        ("another", None),
        ("the one for the other", _NUMBER),
        ("and back", _NUMBER),
        ("such as", None),
    ]
    return listing("Confusions", columns, rows, _LIST)


def _overlaps(overlaps: Iterable[Overlap]) -> Markup:
    rows = [
        [
            _cell(each.first),
            _cell(each.second),
            _cell(f"{each.overlap:.2f}", _NUMBER),
            _cell(f"{each.crossing:,}", _NUMBER),
            element("td", _texts(each.texts), element("small", f"cosine {each.similarity:.2f}")),
        ]
        for each in overlaps
    ]
    if not rows:
        return element(
            "p", "None: no two intents have several examples that lie nearer to the other than to their own."
        )
    note = (
        "Overlap is 0 where every example of the two lies nearest to one of its own intent, and 1 where they are mixed as if "
        "labels had been dealt out at random: then one intent may be meant by both. By the encoder's vectors before any tuning."
    )
    columns = [
        ("one intent", None),
        ("another", None),
        ("overlap", _NUMBER),
        ("across", _NUMBER),
        ("nearest across", None),
    ]
    return joined([element("p", note, class_="remark"), listing("Overlaps", columns, rows, _LIST)])


def _turned_away(report: Report) -> Markup:
    if report.settings["false_rejection"] is None:
        return element("p", "None: this classifier never abstains.")
    if not report.turned_away:
        return element("p", "None.")
    note = (
        f"{percent(report.false_rejection)} of the judged examples, where {percent(report.settings['false_rejection'])} was named; "
        "the lowest scores. An example that is like no other of its intent may be one of something new, or a mistake."
    )
    columns = [("row", _NUMBER), ("text", None), ("labelled", None), ("score", _NUMBER)]
    return joined(
        [element("p", note, class_="remark"), listing("Turned away", columns, map(_away, report.turned_away), _LIST)]
    )


def _away(each: TurnedAway) -> list[Markup]:
    return [
        _cell(f"{each.row + 1:,}", _NUMBER),
        _cell(each.text),
        _cell(each.intent),
        _cell(f"{each.score:.3f}", _NUMBER),
    ]


def _reliability(report: Report) -> Markup:
    curve = report.reliability
    bins = list(zip(curve.confidence.tolist(), curve.accuracy.tolist(), curve.count.tolist(), strict=True))
    points = [(100 * sure, 100 * right) for sure, right, _ in bins]
    lines = {"measured": points, "as sure as right": [(0.0, 0.0), (100.0, 100.0)]}
    marks = {"measured": [(x, y, y) for x, y in points]}
    picture = line_chart(lines, "how often it is right", "how sure it is", percent=True, intervals=marks, beside=True)
    caption = (
        f"Judged examples by the probability of the best guess. The expected calibration error is {percent(curve.ece)}: by so much "
        "the two differ on average."
    )
    rows = (
        [_cell(percent(sure), _NUMBER), _cell(percent(right), _NUMBER), _cell(f"{count:,}", _NUMBER)]
        for sure, right, count in bins
    )
    columns = [("how sure", _NUMBER), ("how often right", _NUMBER), ("examples", _NUMBER)]
    figure = element(
        "figure",
        image(picture, "Reliability curve; its figures are in the table below"),
        element("figcaption", caption),
    )
    return joined([figure, listing("Reliability", columns, rows, "")])


def _intents(report: Report) -> Markup:
    numbers = ("examples", "found", "right when said", "turned away", "mean probability")
    columns = [("intent", None), *((name, _NUMBER) for name in numbers), ("mostly taken for", None)]
    return listing("Every intent", columns, map(_intent, report.intents), "list sortable")


def _intent(row: IntentRow) -> list[Markup]:
    shares = (row.recall, row.precision, row.rejected, row.confidence)
    return [
        element("th", row.intent, scope="row"),
        element("td", f"{row.examples:,}", class_=_NUMBER, data_value=row.examples),
        *(element("td", percent(share), class_=_NUMBER, data_value=_sortable(share)) for share in shares),
        _cell(row.taken_for or ""),
    ]


# ---- cells

_LIST = "list lists"


def percent(share: float) -> str:
    """A share as people read it; a dash where there is none."""
    return f"{share:.1%}" if math.isfinite(share) else "–"


def _sortable(share: float) -> str:
    return repr(share) if math.isfinite(share) else ""


def _cell(text: str, style: str | None = None) -> Markup:
    return element("td", text, class_=style)


def _texts(texts: Iterable[str]) -> Markup:
    return element("ul", *(element("li", text) for text in texts), class_="texts")
