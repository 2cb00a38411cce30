"""The sample world, read from its YAML files: slot types, intents with their phrasings, and the phrases of the system.

A phrasing is compiled once into pieces: "(a|b)" is a choice and "{name}" a placeholder of a value. `LineBuilder` turns
phrasings into text with slots at exact offsets and the noise of typing.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, TypeVar

import yaml

from turnwise.core.dialogue import Slot

DOMAINS = ["banking", "energy", "flights", "health", "hotel", "insurance", "parcel", "restaurant", "shop", "telecom"]
SPLITS = ("train", "valid", "test")

_PIECE = re.compile(r"\{(?P<placeholder>[a-z_]+)\}|\((?P<choice>[^(){}]*\|[^(){}]*)\)")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"

#: A placeholder and (), or None and the wordings to choose from.
Piece = tuple[str | None, tuple[str, ...]]
Item = TypeVar("Item")


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """Return a random item; faster than `Random.choice`, which matters at ten draws per turn."""
    return items[int(rng.random() * len(items))]


@dataclass(frozen=True, slots=True)
class Phrasing:
    """A compiled phrasing: its source in the data file, its pieces, and its placeholders in order."""

    source: str
    pieces: tuple[Piece, ...]
    placeholders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotType:
    """A type of value, such as 'flight_number', which the system calls 'the flight number' (its label)."""

    name: str
    label: str
    #: Patterns of values, see `draw`.
    values: tuple[Phrasing, ...]
    #: Questions of the system; empty if only the system gives such values.
    ask: tuple[Phrasing, ...]
    #: Answers of the user.
    say: tuple[Phrasing, ...]
    #: 'the ' if a value needs it ('the debit card').
    article: str
    #: Whether values are clauses ('the heating is off'), which cannot be echoed like a name.
    clause: bool

    def draw(self, rng: Random) -> str:
        """Return a random value: '#' becomes a digit, '%' a digit from 1 to 9 and '^' a letter."""
        pattern = "".join([pick(rng, options) for _, options in pick(rng, self.values).pieces])
        if "#" not in pattern and "%" not in pattern and "^" not in pattern:
            return pattern
        characters = {"#": "0123456789", "%": "123456789", "^": _LETTERS}
        return "".join([pick(rng, characters[mark]) if mark in characters else mark for mark in pattern])


@dataclass(frozen=True, slots=True)
class Intent:
    """A request that users make, such as 'banking.block_card'."""

    name: str
    domain: str
    #: How the system refers to it, an infinitive without 'to'.
    do: str
    #: Required slots, in the order in which the system asks for them.
    slots: tuple[str, ...]
    #: Requests by split; no phrasing is in two splits.
    phrasings: Mapping[str, tuple[Phrasing, ...]]
    #: Statements that the user confirms before the system acts; empty if it answers at once.
    confirm: tuple[Phrasing, ...]
    #: Statements of the outcome.
    result: tuple[Phrasing, ...]
    #: The slot whose requested value may be unavailable.
    flexible: str | None


@dataclass(frozen=True, slots=True)
class Detail:
    """A side question, by split, its answers, and the intents after which it makes sense."""

    about: tuple[str, ...]
    questions: Mapping[str, tuple[Phrasing, ...]]
    answers: tuple[Phrasing, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain: its intents, side questions and related domains, to which users move on."""

    name: str
    noun: str
    related: tuple[str, ...]
    intents: tuple[Intent, ...]
    details: tuple[Detail, ...]


@dataclass(frozen=True, slots=True)
class OutOfScopeRequest:
    """A request that no domain serves, and the topic that the system names when it declines."""

    topic: str
    phrasing: Phrasing


@dataclass(frozen=True, slots=True)
class World:
    """The content of the sample world."""

    slot_types: Mapping[str, SlotType]
    domains: Mapping[str, Domain]
    intents: Mapping[str, Intent]
    user: Mapping[str, tuple[Phrasing, ...]]
    system: Mapping[str, tuple[Phrasing, ...]]
    small_talk: tuple[tuple[tuple[Phrasing, ...], tuple[Phrasing, ...]], ...]
    out_of_scope: Mapping[str, tuple[OutOfScopeRequest, ...]]
    abbreviations: Mapping[str, str]


def compile_phrasing(source: str) -> Phrasing:
    """Split a phrasing into its pieces; raise a ValueError if a brace or a parenthesis is unmatched."""
    pieces: list[Piece] = []
    placeholders: list[str] = []
    position = 0
    for match in _PIECE.finditer(source):
        _add_literal(pieces, source, position, match.start())
        if match["placeholder"]:
            pieces.append((match["placeholder"], ()))
            placeholders.append(match["placeholder"])
        else:
            pieces.append((None, tuple(match["choice"].split("|"))))
        position = match.end()
    _add_literal(pieces, source, position, len(source))
    return Phrasing(source, tuple(pieces), tuple(placeholders))


def _add_literal(pieces: list[Piece], source: str, start: int, end: int) -> None:
    literal = source[start:end]
    if any(mark in literal for mark in "{}()|"):
        raise ValueError(f"{source!r}: {literal!r} has a mark that belongs to no placeholder and no choice")
    if literal:
        pieces.append((None, (literal,)))


@cache
def load_world() -> World:
    """Return the sample world, which is read once per process; the tests check that its files are consistent."""
    shared = _read("shared")
    tables = {name: _read(name) for name in DOMAINS}
    entries = {name: entry for table in (shared, *tables.values()) for name, entry in table["slot_types"].items()}
    domains = {name: _domain(name, table) for name, table in tables.items()}
    return World(
        slot_types={name: _slot_type(name, entry, entries) for name, entry in entries.items()},
        domains=domains,
        intents={intent.name: intent for domain in domains.values() for intent in domain.intents},
        user={name: _lines(text) for name, text in shared["user"].items()},
        system={name: _lines(text) for name, text in shared["system"].items()},
        small_talk=tuple((_lines(entry["user"]), _lines(entry["system"])) for entry in shared["small_talk"]),
        out_of_scope={
            split: tuple(
                OutOfScopeRequest(entry["topic"], phrasing)
                for entry in shared["out_of_scope"]
                if entry["split"] == split
                for phrasing in _lines(entry["user"])
            )
            for split in SPLITS
        },
        abbreviations=shared["abbreviations"],
    )


def _read(name: str) -> dict[str, Any]:
    text = (files("turnwise.corpus.synthetic") / f"{name}.yaml").read_text(encoding="utf-8")
    # the C parser is about ten times faster, but not every build of PyYAML has it
    return {"slot_types": {}, **yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))}


def _lines(text: str) -> tuple[Phrasing, ...]:
    """Compile phrasings, one per line."""
    return tuple(compile_phrasing(line.strip()) for line in text.splitlines() if line.strip())


def _slot_type(name: str, entry: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> SlotType:
    source = entry if "values" in entry else entries[entry["values_of"]]
    return SlotType(
        name=name,
        label=entry["label"],
        values=_lines(source["values"]),
        ask=_lines(entry.get("ask", "")),
        say=_lines(entry.get("say", "")),
        article=f"{entry['article']} " if "article" in entry else "",
        clause=entry.get("clause", False),
    )


def _domain(name: str, table: Mapping[str, Any]) -> Domain:
    details = [
        Detail(
            tuple(f"{name}.{key}" for key in entry["about"]),
            {split: _lines(entry[split]) for split in SPLITS},
            _lines(entry["answer"]),
        )
        for entry in table["details"]
    ]
    intents = [_intent(name, key, entry) for key, entry in table["intents"].items()]
    return Domain(table["name"], table["noun"], tuple(table.get("related", ())), tuple(intents), tuple(details))


def _intent(domain: str, key: str, entry: Mapping[str, Any]) -> Intent:
    return Intent(
        name=f"{domain}.{key}",
        domain=domain,
        do=entry["do"],
        slots=tuple(entry.get("slots", ())),
        phrasings={split: _lines(entry[split]) for split in SPLITS},
        confirm=_lines(entry.get("confirm", "")),
        result=_lines(entry["result"]),
        flexible=entry.get("flexible"),
    )


# ---- lines

#: What replaces a placeholder: the name of its slot ('' for words), words before the value, the value.
Filling = tuple[str, str, str]
Fillings = Mapping[str, Filling]

_WORD = re.compile(r"[A-Za-z']+")
_SECOND_PERSON = re.compile(r"\byour?\b")
_PUNCTUATION = str.maketrans("", "", ".,?!:")


def draw_values(rng: Random, slots: Iterable[str]) -> dict[str, Filling]:
    """Return a random value of each slot."""
    return {slot: (slot, "", load_world().slot_types[slot].draw(rng)) for slot in slots}


def words(text: str) -> Filling:
    """Return a filling that is not a slot."""
    return ("", "", text)


def own_words(text: str) -> Filling:
    """Return words of the system as the user says them: 'move you to your seat' becomes 'move me to my seat'."""
    return words(_SECOND_PERSON.sub(lambda match: "my" if match[0] == "your" else "me", text))


def _uncapitalise(text: str) -> str:
    return text if text.startswith(("I ", "I'")) else text[:1].lower() + text[1:]


class LineBuilder:
    """Builds an utterance from phrasings. Noise (careless typing) changes only words around values, never a slot."""

    def __init__(self, rng: Random, noisy: bool = False) -> None:
        self.slots: list[Slot] = []
        self._rng = rng
        self._parts: list[str] = []
        self._length = 0
        self._noise = int(rng.random() * 5) if noisy else -1
        self._typos = 1

    def text(self) -> str:
        """Return the text of the line."""
        return "".join(self._parts)

    def add(self, phrasing: Phrasing, fillings: Fillings) -> None:
        """Append a phrasing, after a space unless it is the first."""
        # after "Also," or "Just to be sure:" the sentence continues
        joined = bool(self._parts) and self._parts[-1].endswith((",", ":", " and", "And"))
        fresh = bool(self._parts) and self._parts[-1].endswith((".", "?", "!"))
        if self._parts:
            self._append(" ")
        for placeholder, options in phrasing.pieces:
            if placeholder is None:
                literal = pick(self._rng, options) if len(options) > 1 else options[0]
                if joined:
                    literal = _uncapitalise(literal)
                elif fresh:
                    literal = literal[:1].upper() + literal[1:]
                self._append_words(literal)
                joined = fresh = False
                continue
            joined = fresh = False
            name, lead, value = fillings[placeholder]
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
            text = self._add_noise(text)
        self._append(text)

    def _add_noise(self, text: str) -> str:
        if self._noise == 0:
            return text.lower()
        if self._noise == 1:
            return text.translate(_PUNCTUATION) or text
        if self._noise == 2:
            return text.lower().translate(_PUNCTUATION) or text
        if self._noise == 3:
            abbreviations = load_world().abbreviations
            return _WORD.sub(lambda match: abbreviations.get(match[0], match[0]), text)
        return self._misspell(text)

    def _misspell(self, text: str) -> str:
        spans = [match.span() for match in _WORD.finditer(text) if match.end() - match.start() > 3]
        if not self._typos or not spans:
            return text
        self._typos -= 1
        start, end = pick(self._rng, spans)
        # the first letter stays: most typos are inside a word, which remains recognisable
        at = start + 1 + int(self._rng.random() * (end - start - 2))
        number = self._rng.random()
        if number < 0.4:
            return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        if number < 0.75:
            return text[:at] + text[at + 1 :]
        return text[:at] + text[at] + text[at:]
