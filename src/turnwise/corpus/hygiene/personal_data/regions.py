"""A guess of the countries whose phone numbers a log contains.

International phone numbers, domains of e-mail and web addresses, currencies, postcodes and the spelling of national
numbers are evidence for a country. A country is taken if it has at least a tenth of all evidence, and one for every
frequent language that none of these countries speaks.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import phonenumbers

from turnwise.corpus.hygiene.personal_data.context import load_data
from turnwise.corpus.languages import identify_language

_FILE = "regions.yaml"
_MIN_EVIDENCE, _MIN_SHARE = 2, 0.1  # of a country
_MIN_LANGUAGE_SHARE = 0.2  # of the texts that are long enough to tell
_LANGUAGE_TEXTS, _LANGUAGE_CHARACTERS, _MIN_CHARACTERS = 300, 400, 30
_MAX_REASONS = 3  # that are named per country

_INTERNATIONAL = re.compile(r"(?<![\w+])(?:\+|00)[1-9][\d ()./-]{6,20}\d")
_DOMAIN = re.compile(r"(?:[\w.+-]{0,64}@|://|\bwww\.)[\w.-]{1,80}\.([a-z]{2})(?![\w-]|\.\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RegionGuess:
    """Countries, most frequent first, and the reason for each."""

    reasons: Mapping[str, str]

    @property
    def regions(self) -> tuple[str, ...]:
        """The countries."""
        return tuple(self.reasons)

    def __str__(self) -> str:
        return "; ".join(f"{region} ({reason})" for region, reason in self.reasons.items())


def guess_regions(texts: Iterable[str]) -> RegionGuess:
    """Guess the countries whose national phone numbers are in some texts."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))  # distinct evidence
    languages: Counter[str | None] = Counter()
    for text in texts:
        for region, kind, value in _evidence(text):
            found[region][kind].add(value)
        if len(text) >= _MIN_CHARACTERS and languages.total() < _LANGUAGE_TEXTS:
            languages[identify_language(text, _LANGUAGE_CHARACTERS)] += 1
    counts = {region: sum(map(len, kinds.values())) for region, kinds in found.items()}
    minimum = max(_MIN_EVIDENCE, _MIN_SHARE * sum(counts.values()))
    chosen = sorted((region for region in counts if counts[region] >= minimum), key=counts.__getitem__, reverse=True)
    reasons = {region: _describe(found[region]) for region in chosen}
    spoken: Mapping[str | None, list[str]] = load_data(_FILE)["languages"]
    for language, count in languages.most_common():
        if count >= _MIN_LANGUAGE_SHARE * languages.total() and reasons.keys().isdisjoint(spoken.get(language, ())):
            # English says little: numbers of Britain and of North America are both frequent
            countries = spoken.get(language, [])[: 2 if language == "en" else 1]
            reasons |= dict.fromkeys(countries, f"texts in the language '{language}'")
    return RegionGuess(reasons)


def _describe(kinds: Mapping[str, set[str]]) -> str:
    """Return the most frequent kinds of evidence for a country: '12 international numbers, 3 domains .de'."""
    frequent = sorted(kinds.items(), key=lambda item: len(item[1]), reverse=True)[:_MAX_REASONS]
    return ", ".join(f"{len(values):,} {kind}" for kind, values in frequent)


def _evidence(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield what says a country in a text: the country, the kind of evidence, and what was found."""
    for match in _INTERNATIONAL.finditer(text):
        try:
            number = phonenumbers.parse(re.sub("^00", "+", match[0]).replace("(0)", ""), None)
        except phonenumbers.NumberParseException:
            continue
        if region := phonenumbers.region_code_for_number(number):
            yield region, f"numbers with +{number.country_code}", str(number.national_number)
    for match in _DOMAIN.finditer(text):
        ending = match[1].lower()
        region = "GB" if ending == "uk" else ending.upper()
        if region in phonenumbers.SUPPORTED_REGIONS and ending not in load_data(_FILE)["generic_domains"]:
            yield region, f"addresses in .{ending}", match[0].lower()
    for region, kind, pattern in _patterns():
        for match in pattern.finditer(text):
            yield region, kind, text[match.start() : match.end() + 3]


@cache
def _patterns() -> list[tuple[str, str, re.Pattern[str]]]:
    """Return the patterns of currencies, postcodes and national numbers, with their countries."""
    kinds = {"currencies": "amounts", "postcodes": "postcodes", "phone_numbers": "national numbers"}
    return [
        (region, kind, re.compile("|".join(f"(?:{pattern})" for pattern in patterns)))
        for name, kind in kinds.items()
        for region, patterns in load_data(_FILE)[name].items()
    ]
