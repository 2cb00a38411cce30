"""Reads the sample world from its data files: slot types, intents with their phrasings, and what the system says.

A phrasing is compiled once into pieces, so that filling it in is a walk over a tuple: "(a|b)" is a choice and "{name}" a
place for a value. Whatever does not fit together (a place without a slot type, a question that is missing) is refused on
loading with the name of the file and the entry.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any, TypeVar

import yaml

DOMAINS = (
    "banking",
    "energy",
    "flights",
    "health",
    "hotel",
    "insurance",
    "parcel",
    "restaurant",
    "shop",
    "telecom",
)
SPLITS = ("train", "valid", "test")

#: How many phrasings an intent needs at least, so that every split can hold some of its own.
PHRASINGS = {"train": 7, "valid": 2, "test": 3}

USER_PHRASES = (
    "accept",
    "acknowledge",
    "affirm",
    "affirm_do",
    "affirm_value",
    "answer",
    "answer_two",
    "ask_repeat",
    "ask_why",
    "bye",
    "cancel",
    "choose_first",
    "choose_second",
    "correct",
    "correct_after_no",
    "deny",
    "greet",
    "next",
    "nothing_more",
    "nothing_more_do",
    "opener",
    "reject",
    "thank",
    "thank_do",
    "wait",
)
SYSTEM_PHRASES = (
    "answer_opening",
    "bye",
    "bye_do",
    "cancelled",
    "cannot_help",
    "clarify",
    "confirm_closing",
    "confirm_opening",
    "corrected",
    "echo",
    "explain",
    "greet",
    "help",
    "hold",
    "more",
    "not_possible",
    "offer",
    "patience",
    "recap",
    "refuse",
    "rephrase",
    "result_opening",
    "switch",
    "unsure",
    "welcome",
    "welcome_done",
)

#: Places that the engine fills with words of its own; they are no slots of the text.
WORDS = frozenset({"do", "first", "second", "label", "label_two", "noun", "topic"})
#: Places that hold a value of the slot at hand, whatever its type.
VALUES = frozenset({"value", "value_two", "old", "alternative"})

_PIECE = re.compile(r"\{(?P<place>[a-z_]+)\}|\((?P<choice>[^(){}]*\|[^(){}]*)\)")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"

#: The name of a place and (), or None and the wordings to choose from.
Piece = tuple[str | None, tuple[str, ...]]
Item = TypeVar("Item")


class WorldError(ValueError):
    """A data file of the sample world does not fit together."""


def pick(rng: Random, items: Sequence[Item]) -> Item:
    """One of the items; faster than `Random.choice`, which matters at ten draws a turn."""
    return items[int(rng.random() * len(items))]


@dataclass(frozen=True, slots=True)
class Template:
    """A phrasing in pieces.

    Attributes:
        source: as written in the data file.
        pieces: what to walk over.
        places: names of the places in their order.
    """

    source: str
    pieces: tuple[Piece, ...]
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlotType:
    """A kind of value that users and the system speak of.

    Attributes:
        name: such as 'flight_number'.
        label: the words with which the system refers to it, such as 'the flight number'.
        values: patterns of values, see `draw`.
        ask: questions of the system; empty where only the system gives such values.
        say: answers of the user.
        article: 'the ' where a bare value needs it ('the debit card').
        clause: whether values are clauses ('the heating is off'), which cannot be echoed like a name.
    """

    name: str
    label: str
    values: tuple[Template, ...]
    ask: tuple[Template, ...]
    say: tuple[Template, ...]
    article: str
    clause: bool

    def draw(self, rng: Random) -> str:
        """A value: '#' becomes a digit, '%' a digit from 1 to 9 and '^' a letter."""
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
    """Something that users want.

    Attributes:
        name: such as 'banking.block_card'.
        domain: such as 'banking'.
        do: the words with which the system speaks of it, an infinitive without 'to'.
        slots: what the system has to know, in the order in which it asks.
        phrasings: requests by split; no phrasing is in two splits.
        confirm: statements to be confirmed before the system acts; empty where it answers at once.
        result: statements of the outcome.
        flexible: the slot whose wanted value may turn out to be unavailable.
    """

    name: str
    domain: str
    do: str
    slots: tuple[str, ...]
    phrasings: Mapping[str, tuple[Template, ...]]
    confirm: tuple[Template, ...]
    result: tuple[Template, ...]
    flexible: str | None


@dataclass(frozen=True, slots=True)
class Detail:
    """A question that users ask in passing, by split, its answers, and the intents after which it makes sense."""

    about: tuple[str, ...]
    questions: Mapping[str, tuple[Template, ...]]
    answers: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A line of business: its intents, the questions asked in passing and the domains that one moves on to."""

    name: str
    noun: str
    related: tuple[str, ...]
    intents: tuple[Intent, ...]
    details: tuple[Detail, ...]


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """A request that no domain serves, and the topic by which the system declines it."""

    topic: str
    template: Template


@dataclass(frozen=True, slots=True)
class World:
    """All that is said in the sample world."""

    slot_types: Mapping[str, SlotType]
    domains: Mapping[str, Domain]
    intents: Mapping[str, Intent]
    user: Mapping[str, tuple[Template, ...]]
    system: Mapping[str, tuple[Template, ...]]
    small_talk: tuple[tuple[tuple[Template, ...], tuple[Template, ...]], ...]
    out_of_scope: Mapping[str, tuple[OutOfScope, ...]]


def compile_template(source: str) -> Template:
    """Cuts a phrasing into its pieces.

    Raises:
        WorldError: where a brace or a parenthesis is left over.
    """
    pieces: list[Piece] = []
    places: list[str] = []
    position = 0
    for match in _PIECE.finditer(source):
        _add_literal(pieces, source, position, match.start())
        if match["place"]:
            pieces.append((match["place"], ()))
            places.append(match["place"])
        else:
            pieces.append((None, tuple(match["choice"].split("|"))))
        position = match.end()
    _add_literal(pieces, source, position, len(source))
    return Template(source, tuple(pieces), tuple(places))


def _add_literal(pieces: list[Piece], source: str, start: int, end: int) -> None:
    literal = source[start:end]
    if any(mark in literal for mark in "{}()|"):
        raise WorldError(f"{source!r}: {literal!r} holds a mark that belongs to no place and no choice")
    if literal:
        pieces.append((None, (literal,)))


@cache
def load_world() -> World:
    """The sample world; read once a process.

    Raises:
        WorldError: where a data file does not fit together.
    """
    shared = _read("shared")
    tables = {name: _read(name) for name in DOMAINS}
    slot_types = _slot_types({"shared": shared, **tables})
    domains = {name: _domain(name, table, slot_types) for name, table in tables.items()}
    for domain in domains.values():
        for name in domain.related:
            if name not in domains:
                raise WorldError(f"{domain.name}.yaml: related: there is no domain {name!r}")
    return World(
        slot_types=slot_types,
        domains=domains,
        intents={intent.name: intent for domain in domains.values() for intent in domain.intents},
        user=_phrases(shared, "user", USER_PHRASES, slot_types),
        system=_phrases(shared, "system", SYSTEM_PHRASES, slot_types),
        small_talk=tuple(
            (
                _lines(entry, "user", "shared.yaml: small_talk", slot_types),
                _lines(entry, "system", "shared.yaml: small_talk", slot_types),
            )
            for entry in shared["small_talk"]
        ),
        out_of_scope=_out_of_scope(shared, slot_types),
    )


def _read(name: str) -> dict[str, Any]:
    # The C parser is some ten times faster, but not every build of PyYAML has it.
    loader: Callable[..., Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (files("turnwise.corpus.synthetic") / f"{name}.yaml").read_text(encoding="utf-8")
    table = yaml.load(text, Loader=loader)  # type: ignore[arg-type]
    if not isinstance(table, dict):
        raise WorldError(f"{name}.yaml: the file is not a table")
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
        raise WorldError(f"{where}: a domain needs two intents or more")
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
            raise WorldError(f"{domain}.yaml: details: there is no intent {key!r}")
    return tuple(f"{domain}.{key}" for key in entry["about"])


def _intent(domain: str, key: str, entry: Mapping[str, Any], slot_types: Mapping[str, SlotType]) -> Intent:
    where = f"{domain}.yaml: intent {key!r}"
    slots = tuple(entry.get("slots", ()))
    for slot in slots:
        if slot not in slot_types:
            raise WorldError(f"{where}: there is no slot type {slot!r}")
        if not slot_types[slot].ask:
            raise WorldError(f"{where}: the system has no question for the slot {slot!r}")
    flexible = entry.get("flexible")
    if flexible is not None and flexible not in slots:
        raise WorldError(f"{where}: flexible: {flexible!r} is not a slot of the intent")
    phrasings = {split: _lines(entry, split, where, slot_types) for split in SPLITS}
    sources = [template.source.casefold() for split in SPLITS for template in phrasings[split]]
    if len(set(sources)) < len(sources):
        raise WorldError(f"{where}: a phrasing stands there twice")
    for split, least in PHRASINGS.items():
        if len(phrasings[split]) < least:
            raise WorldError(f"{where}: {split} has {len(phrasings[split])} phrasings, it needs {least}")
    result = _lines(entry, "result", where, slot_types)
    if any(set(slots).isdisjoint(template.places) for template in result):
        raise WorldError(f"{where}: a result names nothing that the user asked for")
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
    shared: Mapping[str, Any], side: str, names: tuple[str, ...], slot_types: Mapping[str, SlotType]
) -> dict[str, tuple[Template, ...]]:
    return {name: _lines(shared[side], name, f"shared.yaml: {side}", slot_types) for name in names}


def _out_of_scope(shared: Mapping[str, Any], slot_types: Mapping[str, SlotType]) -> dict[str, tuple[OutOfScope, ...]]:
    found: dict[str, list[OutOfScope]] = {split: [] for split in SPLITS}
    for entry in shared["out_of_scope"]:
        where = "shared.yaml: out_of_scope"
        topic, split = _text(entry, "topic", where), _text(entry, "split", where)
        if split not in found:
            raise WorldError(f"{where}: {topic!r} has the unknown split {split!r}")
        found[split].extend(OutOfScope(topic, template) for template in _lines(entry, "user", where, slot_types))
    return {split: tuple(entries) for split, entries in found.items()}


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise WorldError(f"{where}: {key!r} is missing")
    return value


def _lines(
    entry: Mapping[str, Any], key: str, where: str, slot_types: Mapping[str, SlotType] | None = None
) -> tuple[Template, ...]:
    """The phrasings under `key`, one a line; with `slot_types`, each of their places is looked up."""
    templates = tuple(compile_template(line.strip()) for line in _text(entry, key, where).splitlines() if line.strip())
    for template in templates:
        for place in template.places:
            if place not in WORDS and place not in VALUES and slot_types is not None and place not in slot_types:
                raise WorldError(f"{where}: {key}: {template.source!r}: there is no slot type {place!r}")
    return templates
