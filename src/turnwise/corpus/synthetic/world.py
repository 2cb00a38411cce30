"""The sample world, read from its YAML files: slot types, intents with their phrasings, and the phrases of the system.

A phrasing is compiled once into pieces: "(a|b)" is a choice and "{name}" a placeholder of a value. Inconsistencies (an
unknown slot type, a missing question) raise a WorldError that names the file and the entry. `LineBuilder` turns
phrasings into text with slots at exact offsets and the noise of typing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, TypeVar

import yaml

from turnwise.core.dialogue import Slot

DOMAINS = (
    *("banking", "energy", "flights", "health", "hotel", "insurance", "parcel", "restaurant", "shop", "telecom"),
)
SPLITS = ("train", "valid", "test")

#: The minimum number of phrasings of an intent by split.
MIN_PHRASINGS = {"train": 7, "valid": 2, "test": 3}

#: Placeholders of words that are not slots.
_WORD_PLACEHOLDERS = frozenset({"do", "first", "second", "label", "label_two", "noun", "topic"})
#: Placeholders of a value of the current slot, whatever its type.
_VALUE_PLACEHOLDERS = frozenset({"value", "value_two", "old", "alternative"})

_PIECE = re.compile(r"\{(?P<placeholder>[a-z_]+)\}|\((?P<choice>[^(){}]*\|[^(){}]*)\)")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"

#: A placeholder and (), or None and the wordings to choose from.
Piece = tuple[str | None, tuple[str, ...]]
Item = TypeVar("Item")


class WorldError(ValueError):
    """A data file of the sample world is inconsistent."""


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
    """A type of value.

    Attributes:
        name: such as 'flight_number'.
        label: how the system refers to it, such as 'the flight number'.
        values: patterns of values, see `draw`.
        ask: questions of the system; empty if only the system gives such values.
        say: answers of the user.
        article: 'the ' if a value needs it ('the debit card').
        clause: whether values are clauses ('the heating is off'), which cannot be echoed like a name.
    """

    name: str
    label: str
    values: tuple[Phrasing, ...]
    ask: tuple[Phrasing, ...]
    say: tuple[Phrasing, ...]
    article: str
    clause: bool

    def draw(self, rng: Random) -> str:
        """Return a random value: '#' becomes a digit, '%' a digit from 1 to 9 and '^' a letter."""
        pattern = "".join([pick(rng, options) for _, options in pick(rng, self.values).pieces])
        if "#" not in pattern and "%" not in pattern and "^" not in pattern:
            return pattern
        return "".join([_fill(rng, character) for character in pattern])


def _fill(rng: Random, character: str) -> str:
    if character == "#":
        return str(int(rng.random() * 10))
    if character == "%":
        return str(1 + int(rng.random() * 9))
    return pick(rng, _LETTERS) if character == "^" else character


@dataclass(frozen=True, slots=True)
class Intent:
    """A request that users make.

    Attributes:
        name: such as 'banking.block_card'.
        domain: such as 'banking'.
        do: how the system refers to it, an infinitive without 'to'.
        slots: required slots, in the order in which the system asks for them.
        phrasings: requests by split; no phrasing is in two splits.
        confirm: statements that the user confirms before the system acts; empty if it answers at once.
        result: statements of the outcome.
        flexible: the slot whose requested value may be unavailable.
    """

    name: str
    domain: str
    do: str
    slots: tuple[str, ...]
    phrasings: Mapping[str, tuple[Phrasing, ...]]
    confirm: tuple[Phrasing, ...]
    result: tuple[Phrasing, ...]
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
    """Split a phrasing into its pieces.

    Raises:
        WorldError: if a brace or a parenthesis is unmatched.
    """
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
        raise WorldError(f"{source!r}: {literal!r} has a mark that belongs to no placeholder and no choice")
    if literal:
        pieces.append((None, (literal,)))


@cache
def load_world() -> World:
    """Return the sample world, which is read once per process.

    Raises:
        WorldError: if a data file is inconsistent.
    """
    shared = _read("shared")
    tables = {name: _read(name) for name in DOMAINS}
    slot_types = _slot_types({"shared": shared, **tables})
    domains = {name: _domain(name, table, slot_types) for name, table in tables.items()}
    for domain in domains.values():
        for name in domain.related:
            if name not in domains:
                raise WorldError(f"{domain.name}.yaml: related: unknown domain {name!r}")
    return World(
        slot_types=slot_types,
        domains=domains,
        intents={intent.name: intent for domain in domains.values() for intent in domain.intents},
        user=_phrases(shared, "user", slot_types),
        system=_phrases(shared, "system", slot_types),
        small_talk=tuple(
            (
                _lines(entry, "user", "shared.yaml: small_talk", slot_types),
                _lines(entry, "system", "shared.yaml: small_talk", slot_types),
            )
            for entry in shared["small_talk"]
        ),
        out_of_scope=_out_of_scope(shared, slot_types),
        abbreviations=shared["abbreviations"],
    )


def _read(name: str) -> dict[str, Any]:
    # the C parser is about ten times faster, but not every build of PyYAML has it
    loader: Callable[..., Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (files("turnwise.corpus.synthetic") / f"{name}.yaml").read_text(encoding="utf-8")
    table = yaml.load(text, Loader=loader)  # type: ignore[arg-type]
    if not isinstance(table, dict):
        raise WorldError(f"{name}.yaml: the file is not a mapping")
    return table


def _slot_types(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, SlotType]:
    entries: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for table_name, table in tables.items():
        for name, entry in table.get("slot_types", {}).items():
            if name in entries:
                raise WorldError(f"{table_name}.yaml: slot type {name!r} is also in {entries[name][0]}.yaml")
            entries[name] = (table_name, entry)
    slot_types: dict[str, SlotType] = {}
    for name, (table_name, entry) in entries.items():
        where = f"{table_name}.yaml: slot type {name!r}"
        source = entry if "values" in entry else entries.get(entry.get("values_of", ""), ("", {}))[1]
        slot_types[name] = SlotType(
            name=name,
            label=_text(entry, "label", where),
            values=_lines(source, "values", where),
            ask=_lines(entry, "ask", where) if "ask" in entry else (),
            say=_lines(entry, "say", where) if "say" in entry else (),
            article=f"{entry['article']} " if "article" in entry else "",
            clause=entry.get("clause", False),
        )
    return slot_types


def _domain(name: str, table: Mapping[str, Any], slot_types: Mapping[str, SlotType]) -> Domain:
    where = f"{name}.yaml"
    intents = table.get("intents")
    if not isinstance(intents, dict) or len(intents) < 2:
        raise WorldError(f"{where}: a domain needs at least two intents")
    return Domain(
        name=_text(table, "name", where),
        noun=_text(table, "noun", where),
        related=tuple(table.get("related", ())),
        intents=tuple(_intent(name, key, entry, slot_types) for key, entry in intents.items()),
        details=tuple(
            Detail(
                _about(name, entry, intents),
                {split: _lines(entry, split, f"{where}: details", slot_types) for split in SPLITS},
                _lines(entry, "answer", f"{where}: details", slot_types),
            )
            for entry in table["details"]
        ),
    )


def _about(domain: str, entry: Mapping[str, Any], intents: Mapping[str, Any]) -> tuple[str, ...]:
    for key in entry["about"]:
        if key not in intents:
            raise WorldError(f"{domain}.yaml: details: unknown intent {key!r}")
    return tuple(f"{domain}.{key}" for key in entry["about"])


def _intent(domain: str, key: str, entry: Mapping[str, Any], slot_types: Mapping[str, SlotType]) -> Intent:
    where = f"{domain}.yaml: intent {key!r}"
    slots = tuple(entry.get("slots", ()))
    for slot in slots:
        if slot not in slot_types:
            raise WorldError(f"{where}: unknown slot type {slot!r}")
        if not slot_types[slot].ask:
            raise WorldError(f"{where}: the system has no question for the slot {slot!r}")
    flexible = entry.get("flexible")
    if flexible is not None and flexible not in slots:
        raise WorldError(f"{where}: flexible: {flexible!r} is not a slot of the intent")
    phrasings = {split: _lines(entry, split, where, slot_types) for split in SPLITS}
    sources = [phrasing.source.casefold() for split in SPLITS for phrasing in phrasings[split]]
    if len(set(sources)) < len(sources):
        raise WorldError(f"{where}: a phrasing occurs twice")
    for split, minimum in MIN_PHRASINGS.items():
        if len(phrasings[split]) < minimum:
            raise WorldError(f"{where}: {split} has {len(phrasings[split])} phrasings, needs {minimum}")
    result = _lines(entry, "result", where, slot_types)
    if any(set(slots).isdisjoint(phrasing.placeholders) for phrasing in result):
        raise WorldError(f"{where}: a result contains no slot of the request")
    return Intent(
        name=f"{domain}.{key}",
        domain=domain,
        do=_text(entry, "do", where),
        slots=slots,
        phrasings=phrasings,
        confirm=_lines(entry, "confirm", where, slot_types) if "confirm" in entry else (),
        result=result,
        flexible=flexible,
    )


def _phrases(
    shared: Mapping[str, Any], side: str, slot_types: Mapping[str, SlotType]
) -> dict[str, tuple[Phrasing, ...]]:
    return {name: _lines(shared[side], name, f"shared.yaml: {side}", slot_types) for name in shared[side]}


def _out_of_scope(
    shared: Mapping[str, Any], slot_types: Mapping[str, SlotType]
) -> dict[str, tuple[OutOfScopeRequest, ...]]:
    requests: dict[str, list[OutOfScopeRequest]] = {split: [] for split in SPLITS}
    for entry in shared["out_of_scope"]:
        where = "shared.yaml: out_of_scope"
        topic, split = _text(entry, "topic", where), _text(entry, "split", where)
        if split not in requests:
            raise WorldError(f"{where}: {topic!r} has the unknown split {split!r}")
        requests[split] += [OutOfScopeRequest(topic, line) for line in _lines(entry, "user", where, slot_types)]
    return {split: tuple(entries) for split, entries in requests.items()}


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise WorldError(f"{where}: {key!r} is missing")
    return value


def _lines(
    entry: Mapping[str, Any], key: str, where: str, slot_types: Mapping[str, SlotType] | None = None
) -> tuple[Phrasing, ...]:
    """Return the phrasings under `key`, one per line; with `slot_types`, their placeholders are checked."""
    phrasings = tuple(compile_phrasing(line.strip()) for line in _text(entry, key, where).splitlines() if line.strip())
    for phrasing in phrasings:
        for placeholder in phrasing.placeholders:
            known = placeholder in _WORD_PLACEHOLDERS or placeholder in _VALUE_PLACEHOLDERS
            if not known and slot_types is not None and placeholder not in slot_types:
                raise WorldError(f"{where}: {key}: {phrasing.source!r}: unknown slot type {placeholder!r}")
    return phrasings


# ---- lines

#: What replaces a placeholder: the name of its slot ('' for words), words before the value, the value.
Filling = tuple[str, str, str]
Fillings = Mapping[str, Filling]

_WORD = re.compile(r"[A-Za-z']+")
_SECOND_PERSON = re.compile(r"\byour?\b")
_PUNCTUATION = str.maketrans("", "", ".,?!:")


def words(text: str) -> Filling:
    """Return a filling that is not a slot."""
    return ("", "", text)


def own_words(text: str) -> Filling:
    """Return words of the system as the user says them: 'move you to your seat' becomes 'move me to my seat'."""
    return words(_SECOND_PERSON.sub(lambda match: "my" if match[0] == "your" else "me", text))


def _uncapitalise(text: str) -> str:
    return text if text.startswith(("I ", "I'")) else text[:1].lower() + text[1:]


class LineBuilder:
    """Builds an utterance from phrasings. Noise changes only the words around the values, never a slot.

    Args:
        rng: source of choices and noise.
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
