"""Edits that turn HTML, Markdown and chat markup into plain text; `a < b`, `snake_case` and the like stay."""

import html
import re
from collections.abc import Iterable, Iterator

from turnwise.corpus.hygiene.edits import Edit, without_overlaps
from turnwise.corpus.hygiene.personal_data import FINDERS

# ---- HTML


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


#: Tags that end a line, and those that separate words.
_LINE_TAGS = _names(
    "article aside blockquote br center dd div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main"
    " nav ol p pre section table tbody tfoot thead tr ul"
)
_CELL_TAGS = _names("td th")

_HIDDEN_TAGS = _names("head noscript script style template")  # tags whose content is not text

#: Tags that are recognised without attributes and without their end tag. Others, such as `<b>` in `Set<b>` or `<title>`
#: in a form letter, need one of them.
_UNMISTAKABLE_TAGS = _names(
    "blockquote br div dl em figcaption h1 h2 h3 h4 h5 h6 hr html ol span strong tbody td tfoot th thead tr ul"
)
#: Including those of Microsoft Teams.
_OTHER_TAGS = _names(
    "a abbr at attachment audio b big body button cite code codeblock col colgroup del details emoji font i iframe img"
    " input ins kbd label link map mark meta picture q s samp small source strike sub summary sup svg time title tt u"
    " var video"
)
_TAG_NAMES = "|".join(sorted(_LINE_TAGS | _CELL_TAGS | _HIDDEN_TAGS | _UNMISTAKABLE_TAGS | _OTHER_TAGS))
_ATTRIBUTES = (
    r"""(?P<attributes>(?:(?:\s+|(?<=["']))(?:[\w:.@-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s<>"'`]+)"""
    r"""|(?:allowfullscreen|async|checked|controls|defer|disabled|hidden|nowrap|noshade|selected|data-[\w-]+)(?=[\s/>])))*)"""
)
_TAG = re.compile(
    rf"<!--(?P<comment>)|<!doctype[^<>]*>|<!\[[^<>]*\]>|</?[ovw]:\w+[^<>]*>"
    rf"|<(?P<end>/?)(?P<name>{_TAG_NAMES}){_ATTRIBUTES}\s*/?>",
    re.IGNORECASE,
)
_ALT = re.compile(r"""\salt\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)

#: With the semicolon only: `&copy=1` belongs to a web address.
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def html_edits(text: str) -> list[Edit]:
    """Return the edits that remove tags and replace entities, once: `&amp;lt;` becomes `&lt;`."""
    edits = _join_breaks(text, list(_tag_edits(text))) if "<" in text else []
    if "&" not in text:
        return edits
    entities = ((*match.span(), _unescape(match[0])) for match in _ENTITY.finditer(text))
    return without_overlaps([*edits, *(edit for edit in entities if edit[2] != text[edit[0] : edit[1]])])


def _unescape(text: str) -> str:
    return html.unescape(text).replace("\xa0", " ")


def _tag_edits(text: str) -> Iterator[Edit]:
    lower = text.lower()
    if len(lower) != len(text):  # 'İ' becomes two characters
        lower = text
    last_places: dict[str, int] = {}  # so that a text of many tags without their ends is searched once
    position = 0
    while match := _TAG.search(text, position):
        position = match.end()
        name = (match["name"] or "").lower()
        closing = "-->" if match["comment"] is not None else f"</{name}>"
        if closing not in last_places:
            last_places[closing] = lower.rfind(closing)
        is_closed = last_places[closing] >= position
        if is_closed and (closing == "-->" or (name in _HIDDEN_TAGS and not match["end"])):
            position = lower.index(closing, position) + len(closing)
            yield match.start(), position, ""
        elif closing != "-->" and (is_closed or _is_tag(match, name)):
            new = "\n" if name in _LINE_TAGS else " " if name in _CELL_TAGS else ""
            if name in ("img", "emoji") and not match["end"] and (alt := _ALT.search(match["attributes"])):
                new = _unescape(next(filter(None, alt.groups()), ""))
            yield match.start(), match.end(), new


def _is_tag(match: re.Match[str], name: str) -> bool:
    """Return whether something in angle brackets with the name of a tag is one, although no end tag follows it."""
    if match["end"] or match["attributes"] or not name:
        return True
    if name in ("p", "li"):  # often without an end tag, but `Set<P>` is none
        return not match.start() or not match.string[match.start() - 1].isalnum()
    return name in _UNMISTAKABLE_TAGS


def _join_breaks(text: str, edits: Iterable[Edit]) -> list[Edit]:
    """Make each run of tags and white space one line break if it contains a line tag, one space if a cell."""
    joined: list[Edit] = []
    for start, end, new in edits:
        start, end = _with_space(text, start, end) if new in _BREAKS else (start, end)
        while joined and start <= joined[-1][1] and not (joined[-1][2] + new).strip():
            before, _, other = joined.pop()
            new = next((each for each in _BREAKS if each in other + new), "")
            start, end = _with_space(text, before, end) if new else (before, end)
        joined.append((start, end, new))
    return joined


_BREAKS = ("\n", " ")


def _with_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span over the white space around it."""
    while start and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    return start, end


# ---- Markdown and chat markup
#
# In patterns of enclosed texts the last group is the text itself.

#: A code block or code within a line; a ` that is typed as an apostrophe has letters on both sides.
_CODE = re.compile(
    r"```(?:[\w+#.-]*[ \t]*\n)?((?s:.+?))\n?[ \t]*```"
    r"|(?<![\w`])(``?)(?![`\s])([^`\n]+)\2(?![\w`])"
)

#: A rule, an empty line of a quotation, or the marks before a heading, a quotation or a list item.
_LINE_START = re.compile(
    r"^[ \t]*(?:([-*_=])(?:[ \t]*\1){2,}[ \t\r]*(?:\n|\Z)"
    r"|>[> \t]*$"
    r"|(?:#{1,6}[ \t]+(?!of\b)|[-*•][ \t]+(?:\[[ xX]\][ \t]+)?|>(?![:;._=-]|<(?![@#!h])|[ \t]*[\d$€£])[ \t]*)+(?=\S))",
    re.MULTILINE,
)

_TARGET = (
    r"\(\s*<?(?:[a-z][a-z0-9+.-]*:|\.{0,2}/|#|[\w-]+\.[a-z]{2,})[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*>?"
    r"(?:\s+(?:\"[^\"\n]*\"|'[^'\n]*'))?\s*\)"
)
_LINK = re.compile(rf"(?<!\w)!?\[([^\[\]\n]*)\]{_TARGET}", re.IGNORECASE)

#: What Slack and Discord write in angle brackets: links, mentions, channels, groups, dates and emoji.
_CHAT = re.compile(
    r"<(?:(?:((?:https?|ftp)://[^\s<>|]+)|(?:mailto|tel):([^\s<>|]+))(?:\|([^<>\n]+))?"
    r"|@[!&]?(?:[UWB][A-Z0-9]{2,}|\d{5,})(?:\|([^<>\n]*))?"
    r"|#(?:[CG][A-Z0-9]{2,}|\d{5,})(?:\|([^<>\n]*))?"
    r"|!(here|channel|everyone)(?:\|[^<>\n]*)?"
    r"|!(?:subteam|date)\^[^<>|]+(?:\|([^<>\n]*))?"
    r"|a?(:\w+:)\d{5,})>"
)

#: Stands for what is no text of a message, such as code: neither a letter nor a space nor a mark.
_PLACEHOLDER = "\ufffc"


def _emphasis(mark: str, content: str) -> re.Pattern[str]:
    """Return the pattern of a mark around text; within a word or next to a space, it is no mark."""
    mark, single, letter = re.escape(mark), re.escape(mark[0]), r"[^\W_]"
    return re.compile(
        rf"(?<!{letter})(?<![{single}\\/@]){mark}(?!{single})(?=[\w\"'“‘«(\[¿¡*_~@#:{_PLACEHOLDER}\u2600-\U0001faff])"
        rf"(?={content}*(?:{letter}|{_PLACEHOLDER}))({content}+?)(?<!\s){mark}(?![{single}\\/@])(?!{letter})"
    )


_EMPHASIS = (
    _emphasis("***", r"[^*\n]"),
    _emphasis("**", r"(?:[^*\n]|(?<!\*)\*(?!\*))"),
    _emphasis("*", r"(?:[^*\n]|\*\*)"),
    _emphasis("__", r"(?:[^_\n]|(?<!_)_(?!_))"),
    _emphasis("_", r"(?:[^_\n]|__|(?<=[^\W_])_(?=[^\W_]))"),
    _emphasis("~~", r"(?:[^~\n]|(?<!~)~(?!~))"),
    _emphasis("~", r"[^~\n]"),
)
_PYTHON_NAME = re.compile(r"__[a-z0-9_]+__")


def markdown_edits(text: str) -> list[Edit]:
    """Return the edits that remove the marks of Markdown, Slack and Discord, but not within code and web addresses."""
    code = list(_CODE.finditer(text)) if "`" in text else []
    edits = list(_delimiter_edits(code))
    text = _hide(text, (match.span() for match in code))
    while "](" in text and (links := list(_delimiter_edits(_LINK.finditer(text)))):  # an image may be within a link
        edits += links
        text = _hide(text, ((start, end) for start, end, _ in links))
    edits += [(match.start(), match.end(), "") for match in _LINE_START.finditer(text)]
    if "<" in text:
        edits += (edit for match in _CHAT.finditer(text) for edit in _chat_edits(match))
    # without the marks of an emphasised address
    text = _hide(text, ((start, start + len(text[start:end].rstrip("*_~"))) for start, end in FINDERS["url"](text)))
    for pattern in _EMPHASIS:
        edits += _delimiter_edits(match for match in pattern.finditer(text) if not _PYTHON_NAME.fullmatch(match[0]))
    return without_overlaps(edits)


def _hide(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text of the same length without what is in these spans."""
    pieces, position = [], 0
    for start, end in spans:
        pieces += [text[position:start], _PLACEHOLDER * (end - start)]
        position = end
    return "".join([*pieces, text[position:]])


def _delimiter_edits(matches: Iterable[re.Match[str]]) -> Iterator[Edit]:
    """Remove what encloses the last group of each match."""
    for match in matches:
        start, end = match.span(match.lastindex or 0)
        yield match.start(), start, ""
        yield end, match.end(), ""


def _chat_edits(match: re.Match[str]) -> Iterator[Edit]:
    """Keep the label of a link, a mention or a channel, or say what it is."""
    kind = match[0][1]
    mark = {"@": "@", "#": "#", "!": "@" if match[0][2:3] in "hce" else ""}.get(kind, "")
    group = match.lastindex or 0
    if group and match[group]:
        start, end = match.span(group)
        yield match.start(), start, "" if match[group].startswith(mark) else mark
        yield end, match.end(), ""
    else:
        yield match.start(), match.end(), {"@": "@user", "#": "#channel"}.get(kind, "@group")
