"""The sample world, read from its YAML files, with phrasings of choices "(a|b)" and placeholders "{name}"."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, NamedTuple, TypeVar

from turnwise.core.dialogue import Slot
from turnwise.core.files import package_yaml

DOMAINS = ["banking", "energy", "flights", "health", "hotel", "insurance", "parcel", "restaurant", "shop", "telecom"]
SPLITS = ("train", "valid", "test")

_PIECE = re.compile(r"\{(?P<placeholder>[a-z_]+)\}|\((?P<choice>[^(){}]*\|[^(){}]*)\)")
_CHARACTERS = {"#": "0123456789", "%": "123456789", "^": "ABCDEFGHJKLMNPQRSTUVWXYZ"}

Item = TypeVar("Item")


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """Return a random item; faster than `Random.choice`, which matters at ten draws per turn."""
    return items[int(rng.random() * len(items))]


class Phrasing(NamedTuple):
    """A compiled phrasing: its pieces (a placeholder and (), or None and wordings), and its placeholders in order."""

    pieces: tuple[tuple[str | None, tuple[str, ...]], ...]
    placeholders: tuple[str, ...]


Phrasings = tuple[Phrasing, ...]


@dataclass(frozen=True, slots=True)
class SlotType:
    """A type of value, such as 'flight_number', which the system calls 'the flight number' (its label)."""

    label: str
    values: Phrasings  # patterns of values, see `draw`
    ask: Phrasings  # questions of the system; empty if only the system gives such values
    say: Phrasings  # answers of the user
    article: str  # 'the ' if a value needs it ('the debit card')
    clause: bool  # whether values are clauses ('the heating is off'), which cannot be echoed like a name

    def draw(self, rng: Random) -> str:
        """Return a random value: '#' becomes a digit, '%' a digit from 1 to 9 and '^' a letter."""
        pattern = "".join([pick(rng, options) for _, options in pick(rng, self.values).pieces])
        if "#" not in pattern and "%" not in pattern and "^" not in pattern:
            return pattern
        return "".join([pick(rng, _CHARACTERS[mark]) if mark in _CHARACTERS else mark for mark in pattern])


@dataclass(frozen=True, slots=True)
class Intent:
    """A request that users make, such as 'banking.block_card'."""

    name: str
    domain: str
    do: str  # how the system refers to it, an infinitive without 'to'
    slots: tuple[str, ...]  # required, in the order in which the system asks for them
    phrasings: Mapping[str, Phrasings]  # by split; no phrasing is in two splits
    confirm: Phrasings  # statements that the user confirms before the system acts; empty if it answers at once
    result: Phrasings  # statements of the outcome
    flexible: str | None  # the slot whose requested value may be unavailable


class Detail(NamedTuple):
    """A side question, by split, its answers, and the intents after which it makes sense."""

    about: tuple[str, ...]
    questions: Mapping[str, Phrasings]
    answers: Phrasings


class Domain(NamedTuple):
    """A domain: its intents, side questions and related domains, to which users move on."""

    noun: str
    related: tuple[str, ...]
    intents: tuple[Intent, ...]
    details: tuple[Detail, ...]


class OutOfScopeRequest(NamedTuple):
    """A request that no domain serves, and the topic that the system names when it declines."""

    topic: str
    phrasing: Phrasing


@dataclass(frozen=True, slots=True)
class World:
    """The content of the sample world."""

    slot_types: Mapping[str, SlotType]
    domains: Mapping[str, Domain]
    intents: Mapping[str, Intent]
    user: Mapping[str, Phrasings]
    system: Mapping[str, Phrasings]
    small_talk: tuple[tuple[Phrasings, Phrasings], ...]
    out_of_scope: Mapping[str, tuple[OutOfScopeRequest, ...]]
    abbreviations: Mapping[str, str]


def compile_phrasing(source: str) -> Phrasing:
    """Split a phrasing into its pieces; raise a ValueError if a brace or a parenthesis is unmatched."""
    pieces: list[tuple[str | None, tuple[str, ...]]] = []
    position = 0
    for match in [*_PIECE.finditer(source), None]:
        literal = source[position : match.start() if match else len(source)]
        if any(mark in literal for mark in "{}()|"):
            raise ValueError(f"{source!r}: {literal!r} has a mark that belongs to no placeholder and no choice")
        if literal:
            pieces.append((None, (literal,)))
        if match:
            pieces.append((match["placeholder"], tuple(match["choice"].split("|")) if match["choice"] else ()))
            position = match.end()
    return Phrasing(tuple(pieces), tuple(placeholder for placeholder, _ in pieces if placeholder))


def _compile_lines(text: str) -> Phrasings:
    return tuple(compile_phrasing(line.strip()) for line in text.splitlines() if line.strip())


def _by_split(entry: Mapping[str, str]) -> dict[str, Phrasings]:
    return {split: _compile_lines(entry[split]) for split in SPLITS}


@cache
def load_world() -> World:
    """Return the sample world, which is read once per process; the tests check that its files are consistent."""
    shared, *tables = (package_yaml("turnwise.corpus.synthetic", f"{name}.yaml") for name in ("shared", *DOMAINS))
    entries = {name: entry for table in (shared, *tables) for name, entry in table.get("slot_types", {}).items()}
    domains = {name: _make_domain(name, table) for name, table in zip(DOMAINS, tables, strict=True)}
    return World(
        slot_types={
            name: SlotType(
                label=entry["label"],
                values=_compile_lines((entry if "values" in entry else entries[entry["values_of"]])["values"]),
                ask=_compile_lines(entry.get("ask", "")),
                say=_compile_lines(entry.get("say", "")),
                article=f"{entry['article']} " if "article" in entry else "",
                clause=entry.get("clause", False),
            )
            for name, entry in entries.items()
        },
        domains=domains,
        intents={intent.name: intent for domain in domains.values() for intent in domain.intents},
        user={name: _compile_lines(text) for name, text in shared["user"].items()},
        system={name: _compile_lines(text) for name, text in shared["system"].items()},
        small_talk=tuple(
            (_compile_lines(entry["user"]), _compile_lines(entry["system"])) for entry in shared["small_talk"]
        ),
        out_of_scope={
            split: tuple(
                OutOfScopeRequest(entry["topic"], phrasing)
                for entry in shared["out_of_scope"]
                if entry["split"] == split
                for phrasing in _compile_lines(entry["user"])
            )
            for split in SPLITS
        },
        abbreviations=shared["abbreviations"],
    )


def _make_domain(name: str, table: Mapping[str, Any]) -> Domain:
    intents = tuple(
        Intent(
            name=f"{name}.{key}",
            domain=name,
            do=entry["do"],
            slots=tuple(entry.get("slots", ())),
            phrasings=_by_split(entry),
            confirm=_compile_lines(entry.get("confirm", "")),
            result=_compile_lines(entry["result"]),
            flexible=entry.get("flexible"),
        )
        for key, entry in table["intents"].items()
    )
    details = tuple(
        Detail(tuple(f"{name}.{key}" for key in entry["about"]), _by_split(entry), _compile_lines(entry["answer"]))
        for entry in table["details"]
    )
    return Domain(table["noun"], tuple(table.get("related", ())), intents, details)


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
                if joined and not literal.startswith(("I ", "I'")):
                    literal = literal[:1].lower() + literal[1:]
                elif fresh:
                    literal = literal[:1].upper() + literal[1:]
                self._append_words(literal)
            else:
                self._append_filling(*fillings[placeholder])
            joined = fresh = False

    def _append_filling(self, name: str, lead: str, value: str) -> None:
        if not name:
            self._append_words(value)
            return
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
        if self._noise < 3:
            lowered = text if self._noise == 1 else text.lower()
            return lowered if self._noise == 0 else lowered.translate(_PUNCTUATION) or text
        if self._noise == 3:
            abbreviations = load_world().abbreviations
            return _WORD.sub(lambda match: abbreviations.get(match[0], match[0]), text)
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
