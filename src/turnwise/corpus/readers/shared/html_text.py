"""The text of HTML messages."""

import re
from html import unescape
from html.parser import HTMLParser

from turnwise.corpus.readers.shared.speakers import WORDS

_BLOCKS = frozenset(WORDS["html"]["blocks"])  # elements that start on a line of their own

#: Elements whose contents are not text of the sender: data for programs, and messages that Teams and Skype quote.
_HIDDEN = frozenset(WORDS["html"]["hidden"])

#: Classes of Discourse's asides: quotes of other posts, and previews of links.
_REPEATED = frozenset({"quote", "onebox"})

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)  # one that does not end extends to the end
_SPACES = re.compile(r"[ \t\r\n\f]+")


class _TextExtractor(HTMLParser):
    """Collects the text of a document; line ends in the source count as spaces, except in `pre`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden: list[str] = []
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        kind = values.get("itemtype", "")
        classes = values.get("class", "").split()
        if (
            tag in (*_HIDDEN, *self._hidden[-1:])
            or (tag == "blockquote" and kind.endswith("/Reply"))
            or (tag == "aside" and not _REPEATED.isdisjoint(classes))
            or (tag == "div" and classes == ["meta"])
        ):
            self._hidden.append(tag)
        if self._hidden:
            return
        if tag == "br":
            self.pieces.append("\n")
        elif tag in _BLOCKS:
            self._start_line()
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag == "at":  # a mention in Teams
            self.pieces.append("@")
        elif tag == "emoji" or (tag == "img" and (kind.endswith("/Emoji") or "emoji" in classes)):
            self.pieces.append(values.get("alt", ""))
        self._preformatted += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
            return
        if tag in _BLOCKS:
            self._start_line()
        if tag == "pre" and self._preformatted:
            self._preformatted -= 1

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        text = data if self._preformatted else _SPACES.sub(" ", data)
        if self.pieces and self.pieces[-1] == "@":
            text = text.removeprefix("@")
        if text != " " or not self._is_line_start():
            self.pieces.append(text)

    def _start_line(self) -> None:
        if not self._is_line_start():
            self.pieces.append("\n")

    def _is_line_start(self) -> bool:
        return not self.pieces or self.pieces[-1].endswith("\n")


def html_to_text(html: str) -> str:
    """Return the text of HTML, with line ends at blocks; raise a ValueError if it cannot be parsed."""
    html = _COMMENT.sub("", html)
    tags_end = html.rfind(">") + 1  # the parser would look for the end of a tag at each < after it
    extractor = _TextExtractor()
    try:
        extractor.feed(html[:tags_end])
        extractor.close()
        extractor.handle_data(unescape(html[tags_end:]))
    except AssertionError as error:  # of an unknown declaration, such as <![x[
        raise ValueError(f"the HTML cannot be parsed: {error}") from None
    text = "".join(extractor.pieces).replace("\xa0", " ")
    lines = "\n".join(_SPACES.sub(" ", line).strip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()
