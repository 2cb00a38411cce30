"""Puts a line of the sample world together: templates filled in, slots at exact offsets, and the noise of typing.

Noise touches only the words around the values, so a slot always holds the value that was drawn.
"""

import re
from collections.abc import Mapping
from random import Random

from turnwise.core.dialogue import Slot
from turnwise.corpus.synthetic.content import Template, pick

#: What fills a place: the name of its slot ('' for plain words), words before the value, the value.
Filling = tuple[str, str, str]
Fillings = Mapping[str, Filling]

_ABBREVIATIONS = {
    "please": "pls",
    "Please": "Pls",
    "you": "u",
    "your": "ur",
    "thanks": "thx",
    "and": "&",
    "because": "bc",
    "with": "w/",
    "I'm": "im",
    "I'd": "id",
    "don't": "dont",
    "can't": "cant",
    "doesn't": "doesnt",
    "tomorrow": "tmrw",
    "about": "abt",
    "for": "4",
    "okay": "k",
    "appointment": "appt",
}
_WORD = re.compile(r"[A-Za-z']+")
_SECOND_PERSON = re.compile(r"\byour?\b")
_PUNCTUATION = str.maketrans("", "", ".,?!:")


def words(text: str) -> Filling:
    """A filling that is no slot."""
    return ("", "", text)


def own_words(text: str) -> Filling:
    """The system's words to the user, as the user says them: 'move you to your seat' becomes 'move me to my seat'."""
    return words(_SECOND_PERSON.sub(lambda match: "my" if match[0] == "your" else "me", text))


def _uncapitalized(text: str) -> str:
    return text if text.startswith(("I ", "I'")) else text[:1].lower() + text[1:]


class Line:
    """A line that grows by templates.

    Args:
        rng: where choices and noise come from.
        noisy: whether it is typed carelessly.
    """

    def __init__(self, rng: Random, noisy: bool = False) -> None:
        self.slots: list[Slot] = []
        self._rng = rng
        self._parts: list[str] = []
        self._length = 0
        self._noise = int(rng.random() * 5) if noisy else -1
        self._typos = 1

    def text(self) -> str:
        """What the line says."""
        return "".join(self._parts)

    def add(self, template: Template, fillings: Fillings) -> None:
        """Appends a template, with a space before it where the line has begun."""
        # After "Also," or "Just to be sure:" the sentence goes on.
        joined = bool(self._parts) and self._parts[-1].endswith((",", ":", " and", "And"))
        fresh = bool(self._parts) and self._parts[-1].endswith((".", "?", "!"))
        if self._parts:
            self._append(" ")
        for place, options in template.pieces:
            if place is None:
                literal = pick(self._rng, options) if len(options) > 1 else options[0]
                if joined:
                    literal = _uncapitalized(literal)
                elif fresh:
                    literal = literal[:1].upper() + literal[1:]
                self._append_words(literal)
                joined = fresh = False
                continue
            joined = fresh = False
            name, lead, value = fillings[place]
            if not name:
                self._append_words(value)
                continue
            if lead:
                self._append_words(lead if self._parts else lead.capitalize())
            start = self._length
            self._append(value)
            self.slots.append(Slot(name, value, start, self._length))

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)

    def _append_words(self, text: str) -> None:
        if self._noise >= 0:
            text = self._disturb(text)
        self._append(text)

    def _disturb(self, text: str) -> str:
        if self._noise == 0:
            return text.lower()
        if self._noise == 1:
            return text.translate(_PUNCTUATION) or text
        if self._noise == 2:
            return text.lower().translate(_PUNCTUATION) or text
        if self._noise == 3:
            return _WORD.sub(lambda match: _ABBREVIATIONS.get(match[0], match[0]), text)
        return self._misspell(text)

    def _misspell(self, text: str) -> str:
        found = [match.span() for match in _WORD.finditer(text) if match.end() - match.start() > 3]
        if not self._typos or not found:
            return text
        self._typos -= 1
        start, end = pick(self._rng, found)
        # The first letter stays: that is how most people mistype, and the word remains recognisable.
        at = start + 1 + int(self._rng.random() * (end - start - 2))
        number = self._rng.random()
        if number < 0.4:
            return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        if number < 0.75:
            return text[:at] + text[at + 1 :]
        return text[:at] + text[at] + text[at:]
