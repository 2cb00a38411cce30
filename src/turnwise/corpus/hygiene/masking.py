"""Masking of personal data; other names come from the user's lists or named-entity recogniser."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from turnwise.core.errors import CorpusError
from turnwise.core.imports import import_object
from turnwise.corpus.hygiene.personal_data import FINDERS, KINDS, STRICT_KINDS, TRIGGER
from turnwise.corpus.hygiene.personal_data.context import Finder, replace_lookalikes
from turnwise.corpus.hygiene.personal_data.identities import find_numbers
from turnwise.corpus.hygiene.personal_data.names import find_names, is_name

Pseudonyms = defaultdict[str, dict[str, int]]  # the numbers of the texts of each kind that were masked in a dialogue

#: A named-entity recogniser: returns (start, end, label) for a text.
EntityRecogniser = Callable[[str], Iterable[tuple[int, int, str]]]


#: Authors in what is reported of a log: a speaker that is not known, the beginning of a line, the value of a field.
_FIELDS = "|".join(f"(?<='{field}': ')" for field in ("author", "sender", "speaker", "user", "from", "name"))
_AUTHOR = re.compile(
    rf"(?:(?<=unknown speaker ')|{_FIELDS})[^'\n]+(?=')"
    r"|(?:^|(?<=[\d\])>–-] )|(?<=[ap]m - ))(?-i:[^\W\d_a-z])[^\n:'\"<>{}\[\]]{0,60}(?=: )",
    re.IGNORECASE,
)


#: What separates words in ids and names of files.
_ID_SEPARATOR = re.compile(r"_|(?<=[A-Za-z])[-#](?=[+(]?\d)")


class Match(NamedTuple):
    """Personal data in a text."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Masking:
    """What is masked, and how."""

    kinds: Sequence[str] = KINDS  # or STRICT_KINDS
    regions: Sequence[str] = ()  # countries of national phone numbers, as ISO codes; none: `phones.DEFAULT_REGIONS`
    patterns: Mapping[str, str] = field(default_factory=dict)  # further kinds by regular expressions
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)  # further kinds by words, matched in any case
    recogniser: EntityRecogniser | None = None  # its labels become kinds
    pseudonyms: bool = False  # number what is masked within a dialogue: `[NAME_1]`, the same for the same text

    @classmethod
    def from_options(
        cls,
        regions: Sequence[str] = (),
        patterns: Sequence[str] = (),
        lists: Sequence[str] = (),
        entities: str | None = None,
        pseudonyms: bool = False,
    ) -> "Masking":
        """Return what options of the command line say: patterns as NAME=REGEX, lists as NAME=FILE."""
        return cls(
            regions=tuple(regions),
            patterns=dict(_named(pattern, "--mask-pattern", "NAME=REGEX") for pattern in patterns),
            lists={
                kind: read_list(Path(file))
                for kind, file in (_named(entry, "--mask-list", "NAME=FILE") for entry in lists)
            },
            recogniser=load_recogniser(entities) if entities else None,
            pseudonyms=pseudonyms,
        )


class Masker:
    """Finds and replaces personal data."""

    def __init__(self, masking: Masking | None = None):
        masking = masking or Masking()
        self.pseudonyms = masking.pseudonyms
        self._recogniser = masking.recogniser
        #: The kind, its finder, and whether it is one of KINDS: the user's kinds may have the same names.
        self._finders = [(kind, _make_finder(kind, pattern), False) for kind, pattern in masking.patterns.items()]
        if unknown := [kind for kind in masking.kinds if kind not in STRICT_KINDS]:
            raise CorpusError(f"cannot mask {unknown[0]!r}: choose from {', '.join(STRICT_KINDS)}")
        self._finders += [(kind, finder, True) for kind, finder in FINDERS.items() if kind in masking.kinds]
        self._find_bare_phones: Finder = lambda text: ()
        if "phone" in masking.kinds:
            from turnwise.corpus.hygiene.personal_data.phones import find_bare_phones, make_phone_finder

            regions = [region.upper() for region in masking.regions]
            self._finders.append(("phone", make_phone_finder(regions), True))
            self._find_bare_phones = partial(find_bare_phones, regions=regions)
        # after the others: a name may be part of an address
        self._finders += [(kind, _list_finder(kind, texts), False) for kind, texts in masking.lists.items()]
        if "name" in masking.kinds:
            self._finders.append(("name", find_names, True))
        if "number" in masking.kinds:
            self._finders.append(("number", find_numbers, True))

    def find(self, text: str) -> list[Match]:
        """Return the personal data in a text, sorted; of overlapping matches, the kind with precedence wins."""
        found: list[Match] = []
        covered = bytearray(len(text))
        for match in self._candidates(text):
            if not any(covered[match.start : match.end]):
                covered[match.start : match.end] = b"\1" * (match.end - match.start)
                found.append(match)
        return sorted(found)

    def _candidates(self, text: str) -> Iterator[Match]:
        """Yield what the finders and the recogniser find, in their order of precedence."""
        plain = replace_lookalikes(text)
        may_match = bool(TRIGGER.search(plain))
        for kind, finder, is_built_in in self._finders:
            if may_match or not is_built_in or kind in ("name", "password"):
                yield from (Match(start, end, kind) for start, end in finder(plain if is_built_in else text))
        if self._recogniser is not None:
            yield from (Match(*entity) for entity in self._recogniser(text))

    def mask(self, text: str, known: Pseudonyms | None = None) -> str:
        """Replace personal data by its kind: `[EMAIL]`; with pseudonyms, `known` numbers what was found before."""
        return self._replace(text, self.find(text), known)

    def _replace(self, text: str, matches: Iterable[Match], known: Pseudonyms | None = None) -> str:
        pieces, position = [], 0
        for match in matches:
            pieces += [text[position : match.start], self.replacement(text, match, known)]
            position = match.end
        return "".join([*pieces, text[position:]])

    def mask_id(self, identifier: str) -> str:
        """Mask the id of a dialogue, which may be, or contain, the phone number of a customer in any spelling."""
        masked = self._replace(identifier, self.find(_ID_SEPARATOR.sub(" ", identifier)))
        return self._replace(masked, self._bare_phones(_ID_SEPARATOR.sub(" ", masked)))

    def mask_report(self, text: str) -> str:
        """Mask what is reported of a log, such as a rejected line, with the name of its author."""
        masked = self.mask(_AUTHOR.sub("[NAME]", text))
        return self._replace(masked, self._bare_phones(masked))

    def _bare_phones(self, text: str) -> list[Match]:
        return [Match(*span, "phone") for span in self._find_bare_phones(text)]

    def replacement(self, text: str, match: Match, known: Pseudonyms | None = None) -> str:
        """Return what replaces a match: `[PHONE]`, or `[PHONE_2]` with pseudonyms."""
        kind = match.kind.upper()
        if not self.pseudonyms or known is None:
            return f"[{kind}]"
        numbers = known[kind]
        # without case, spaces and separators: two spellings of one number are the same
        plain = re.sub(r"[\W_]+", "", text[match.start : match.end]).casefold()
        number = numbers.setdefault(plain, len(numbers) + 1)
        return f"[{kind}_{number}]"


def _make_finder(kind: str, pattern: str) -> Finder:
    """Return the finder of a user's pattern."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise CorpusError(f"the pattern for {kind!r} is not a valid regular expression: {error}") from None
    if compiled.match(""):
        raise CorpusError(f"the pattern for {kind!r} matches the empty text: {pattern}")
    return _pattern_finder(compiled)


def _list_finder(kind: str, texts: Sequence[str]) -> Finder:
    """Return the finder of a user's list of texts; longer ones come first."""
    entries = sorted({" ".join(each.split()) for each in texts if each.strip()}, key=len, reverse=True)
    if not entries:
        raise CorpusError(f"the list for {kind!r} is empty")
    words = "|".join(r"\s+".join(map(re.escape, entry.split())) for entry in entries)
    return _pattern_finder(re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE))


def _pattern_finder(pattern: re.Pattern[str]) -> Finder:
    return lambda text: (match.span() for match in pattern.finditer(text))


def _named(option: str, name: str, form: str) -> tuple[str, str]:
    """Split an option of the form NAME=VALUE."""
    kind, _, value = option.partition("=")
    if not kind or not value:
        raise CorpusError(f"{name}: expected {form}, got {option!r}")
    return kind, value


def read_list(path: Path) -> list[str]:
    """Return the lines of a file of names or other texts."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path} cannot be read as a list of texts in UTF-8: {error}") from None


_SPACY = "spacy:"
_PERSON_LABELS = frozenset({"PER", "PERSON", "PRS", "PS", "persName"})  # of spaCy's models in their languages


def _load_spacy(model: str) -> EntityRecogniser:
    from turnwise.corpus.slots.detectors import SpacyDetector

    detector = SpacyDetector(model)

    def find_persons(text: str) -> Iterator[tuple[int, int, str]]:
        for slot in detector.find(text):
            if slot.name in _PERSON_LABELS and is_name(slot.value):
                yield slot.start, slot.end, "name"

    return find_persons


def load_recogniser(name: str) -> EntityRecogniser:
    """Load a named-entity recogniser, given as spacy:MODEL or module:function; the former finds names of persons."""
    if name.startswith(_SPACY):
        return _load_spacy(name.removeprefix(_SPACY))
    try:
        recogniser: EntityRecogniser = import_object(name)
    except ImportError as error:
        raise CorpusError(str(error)) from None
    return recogniser
