"""The step that masks personal data, and the summary of what it masked and does not cover."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.hygiene.edits import CleaningStep, edit_turn, replace_turns
from turnwise.corpus.hygiene.masking import Masker, Masking, Match, Pseudonyms
from turnwise.corpus.hygiene.personal_data import KINDS

_EXAMPLES = 5  # masked turns that a summary shows
_EXAMPLE_LENGTH, _CONTEXT = 200, 60  # characters of an example, and of those before its first mask


class MaskStep(CleaningStep):
    """Replaces personal data in texts and in dialogue ids."""

    def __init__(self, masking: Masking):
        super().__init__(self._mask)
        self._masking = masking
        self._masker = Masker(masking)
        self._counts: Counter[str] = Counter()
        self._examples: dict[frozenset[str], list[str]] = defaultdict(list)  # by the kinds in them

    def _mask(self, dialogue: Dialogue, changes: Counter[str]) -> Sequence[Dialogue]:
        known: Pseudonyms = defaultdict(dict)
        turns = []
        for turn in dialogue.turns:
            matches = self._masker.find(turn.text)
            edits = [(match.start, match.end, self._masker.replacement(turn.text, match, known)) for match in matches]
            turns.append(edit_turn(turn, edits, changes))
            if matches:
                self._count(turns[-1].text, matches, changes)
        identifier = self._masker.mask_id(dialogue.id)
        if identifier != dialogue.id:  # two masked ids may be equal
            identifier += f"-{hashlib.blake2b(dialogue.id.encode(), digest_size=6).hexdigest()}"
            changes["dialogue ids masked"] += 1
        return [replace(replace_turns(dialogue, turns, changes), id=identifier)]

    def _count(self, masked: str, matches: Sequence[Match], changes: Counter[str]) -> None:
        """Count what was masked in a text, and keep the text as an example if it is one of the first of its kinds."""
        self._counts.update(match.kind for match in matches)
        changes.update(f"{match.kind} masked" for match in matches)
        examples = self._examples[frozenset(match.kind for match in matches)]
        if len(examples) < _EXAMPLES:
            examples.append(_excerpt(masked, matches[0].start))

    def summary(self) -> dict[str, Any]:
        """Return what was masked, by kind, what is not covered, and examples of masked turns."""
        return {
            "masked": dict(self._counts.most_common()),
            "regions": list(self._masking.regions),
            "not_covered": self._not_covered(),
            "examples": self._choose_examples(),
        }

    def _not_covered(self) -> list[str]:
        """Return the kinds of personal data that the step leaves in texts."""
        masking = self._masking
        left_out = [kind for kind in KINDS if kind not in masking.kinds]
        names = "" if masking.recogniser is None else ", unless the recogniser finds them"
        names = names or (", unless listed" if masking.lists else "")
        uncovered = [f"the kinds {', '.join(left_out)}"] if left_out else []
        if "name" in masking.kinds:
            uncovered.append(f"names within sentences{names}")
        uncovered.append("user names")
        if "phone" in masking.kinds and not masking.regions:
            uncovered.append("national phone numbers without a word such as 'call' (no --region)")
        if "number" in masking.kinds:
            uncovered.append("numbers of fewer than 7 digits")
        else:
            uncovered.append("order, customer and other numbers (mask=strict masks those of 7 or more digits)")
        return uncovered

    def _choose_examples(self) -> list[str]:
        """Return examples, first one for each combination of kinds, in the order in which they were found."""
        by_kinds = list(self._examples.values())
        ranked = [examples[rank] for rank in range(_EXAMPLES) for examples in by_kinds if rank < len(examples)]
        return list(dict.fromkeys(ranked))[:_EXAMPLES]


def _excerpt(masked: str, start: int) -> str:
    """Return the part of a masked text around its first mask, which is where the original had a match."""
    first = masked.rfind(" ", 0, start - _CONTEXT) + 1 if start > _CONTEXT else 0
    text = " ".join(masked[first : first + _EXAMPLE_LENGTH].split())
    return ("…" if first else "") + text + ("…" if first + _EXAMPLE_LENGTH < len(masked) else "")
