"""Messages that software sends to everyone, such as greetings and queue notices, found by counting.

Frequency alone does not separate them from what people say all the time ("Is there anything else I can help you
with?"). A message counts as automatic if

- its speaker is `system`,
- it has at least five words,
- at least a fraction of all conversations, and at least twenty, contain it; case, white space and digits do not matter,
- at least nine in ten of those conversations contain it only where it answers nothing: before the user's first turn,
  between the user's first turn and another turn of the system, or after another turn of the system at the end of a
  conversation with several turns of the user.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.files import spool
from turnwise.corpus.hygiene.edits import CleaningStep, HolePolicy, apply_hole_policy
from turnwise.corpus.hygiene.masking import Masker, Masking
from turnwise.corpus.storage.fingerprints import FingerprintBuckets, FingerprintIndex, text_fingerprint
from turnwise.corpus.storage.rejections import EXCERPT_LENGTH

MIN_WORDS = 5
MIN_CONVERSATIONS = 20

#: The fraction of the conversations with a message that must have it only where it answers nothing.
MIN_UNASKED_FRACTION = 0.9

_REPORTED = 10  # how many of the removed messages the changes list
_BATCH = 1 << 16  # fingerprints that are written to disk at once
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"  # two characters of a script without spaces count as a word
_WORD = re.compile(rf"[{_UNSPACED}]{{2}}|[^\W{_UNSPACED}]+")
_DIGITS = re.compile(r"\d+")

_PART_NUMBER = re.compile(r"#(\d+)$")  # the end of the id of a part of a dialogue, as in `chat-7#2`


class AutomaticMessagesStep(CleaningStep):
    """Removes the messages that software sends; all dialogues go through a temporary file, to be counted before."""

    def __init__(self, fraction: float, masking: Masking | None, holes: HolePolicy) -> None:
        if not 0 < fraction <= 1:
            raise CorpusError(f"automatic-messages must be a fraction above 0 and up to 1, got {fraction}")
        super().__init__(self._remove)
        self._fraction = fraction
        self._masker = Masker(masking)
        self._holes = holes
        self._automatic: set[int] = set()
        self._removed: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._part_ids = FingerprintIndex()

    def __call__(self, dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
        """Count the messages of all dialogues, then yield what remains of them."""
        with FingerprintBuckets() as buckets:
            counted = spool(self._count(dialogues, buckets))
        yield from super().__call__(counted)
        for form, count in self._removed.most_common(_REPORTED):
            text = _message_form(self._masker.mask(self._examples[form]))
            self.changes[f'times "{text[:EXCERPT_LENGTH]}"'] += count

    def _count(self, dialogues: Iterable[Dialogue], buckets: FingerprintBuckets) -> Iterator[Dialogue]:
        """Yield the dialogues; then it is known which messages are automatic."""
        conversations = 0
        batch: list[int] = []
        for dialogue in dialogues:
            conversations += 1
            if _PART_NUMBER.search(dialogue.id):
                self._part_ids.add(text_fingerprint(dialogue.id))
            unasked = _unasked_places(dialogue)
            forms: dict[int, bool] = {}
            for place, fingerprint in _fingerprints(dialogue):
                forms[fingerprint] = forms.get(fingerprint, True) and place in unasked
            # the last bit says where the dialogue has the message
            batch += (fingerprint | is_unasked for fingerprint, is_unasked in forms.items())
            if len(batch) >= _BATCH:
                buckets.add(np.array(batch, np.uint64).view(np.int64))
                batch = []
            yield dialogue
        buckets.add(np.array(batch, np.uint64).view(np.int64))
        minimum = max(MIN_CONVERSATIONS, self._fraction * conversations)
        for signed, _ in buckets:
            counted = signed.view(np.uint64)
            fingerprints, places, counts = np.unique(counted & ~np.uint64(1), return_inverse=True, return_counts=True)
            unasked_counts = np.bincount(places, (counted & np.uint64(1)).astype(float), len(fingerprints))
            is_automatic = (counts >= minimum) & (unasked_counts >= MIN_UNASKED_FRACTION * counts)
            self._automatic.update(fingerprints[is_automatic].tolist())

    def _remove(self, dialogue: Dialogue, changes: Counter[str]) -> list[Dialogue]:
        removed = [place for place, fingerprint in _fingerprints(dialogue) if fingerprint in self._automatic]
        for text in (dialogue.turns[index].text for index in removed):
            form = _message_form(text).casefold()
            self._removed[form] += 1
            self._examples.setdefault(form, text)
        kept = [index for index in range(len(dialogue.turns)) if index not in removed]
        if not removed or not kept:
            return [dialogue] if kept else []
        # a greeting before the first turn or a notice after the last one leaves no hole
        holes = [place for place, (before, after) in enumerate(pairwise(kept), 1) if after > before + 1]
        remaining = replace(dialogue, turns=tuple(dialogue.turns[index] for index in kept))
        parts = apply_hole_policy(remaining, holes, self._holes)
        if parts:
            changes["turns removed"] += len(removed)
        return parts[:1] + [self._with_unused_id(part) for part in parts[1:]]

    def _with_unused_id(self, part: Dialogue) -> Dialogue:
        """Number a part differently if an earlier split has used its id."""
        identifier = part.id
        while not self._part_ids.add(text_fingerprint(identifier)):
            identifier = _PART_NUMBER.sub(lambda match: f"#{int(match[1]) + 1}", identifier)
        return replace(part, id=identifier)


def _message_form(text: str) -> str:
    """Return a text without differences in digits and white space."""
    return _DIGITS.sub("#", " ".join(text.split()))


def _fingerprints(dialogue: Dialogue) -> Iterator[tuple[int, int]]:
    """Yield index and fingerprint, an even number, of the messages that may be automatic."""
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker == SYSTEM and len(_WORD.findall(turn.text)) >= MIN_WORDS:
            yield place, text_fingerprint(_message_form(turn.text).casefold()) & ~1


def _unasked_places(dialogue: Dialogue) -> set[int]:
    """Return the indices of the turns that answer nothing, by the rule above."""
    runs = [
        (is_user, [place for place, _ in run])
        for is_user, run in groupby(enumerate(dialogue.turns), key=lambda item: item[1].speaker == USER)
    ]
    first_user = next((number for number, (is_user, _) in enumerate(runs) if is_user), None)
    if first_user is None:
        return set()
    places = {place for _, run in runs[:first_user] for place in run}
    if first_user + 1 < len(runs):
        places |= set(runs[first_user + 1][1][:-1])
    is_user, last_run = runs[-1]
    if not is_user and len(runs) > first_user + 2:
        places |= set(last_run[1:])
    return places
