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
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.storage.fingerprints import FingerprintBuckets, text_fingerprint

MIN_WORDS = 5
MIN_CONVERSATIONS = 20
DEFAULT_FRACTION = 0.05

#: The fraction of the conversations with a message that must have it only where it answers nothing.
MIN_UNASKED_FRACTION = 0.9

#: Fingerprints that are written to disk at once.
_BATCH = 1 << 16

#: Two characters of a script without spaces count as a word.
_UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]{{2}}|[^\W{_UNSPACED}]+")
_DIGITS = re.compile(r"\d+")


def message_form(text: str) -> str:
    """Return a text without differences in digits and white space."""
    return _DIGITS.sub("#", " ".join(text.split()))


class AutomaticMessages:
    """Counts the messages of conversations, then finds the automatic ones among them.

    The counts are on disk, 16 bytes per message of the system, so memory stays constant. Use it as a context manager:
    first `count` every dialogue, then call `find`.
    """

    def __init__(self, fraction: float = DEFAULT_FRACTION):
        if not 0 < fraction <= 1:
            raise CorpusError(f"automatic-messages must be a fraction above 0 and up to 1, got {fraction}")
        self._fraction = fraction
        self._conversations = 0
        self._batch: list[int] = []
        self._automatic: frozenset[int] | None = None

    def count(self, dialogue: Dialogue) -> None:
        """Count the messages of a dialogue, each once."""
        self._conversations += 1
        unasked = _unasked_places(dialogue)
        forms: dict[int, bool] = {}
        for place, fingerprint in _fingerprints(dialogue):
            forms[fingerprint] = forms.get(fingerprint, True) and place in unasked
        # the last bit says where the dialogue has the message
        self._batch += (fingerprint | is_unasked for fingerprint, is_unasked in forms.items())
        if len(self._batch) >= _BATCH:
            self._flush()

    def find(self, dialogue: Dialogue) -> set[int]:
        """Return the indices of the automatic messages of a dialogue; call it after all dialogues were counted."""
        if self._automatic is None:
            self._flush()
            self._automatic = frozenset(self._frequent())
        return {place for place, fingerprint in _fingerprints(dialogue) if fingerprint in self._automatic}

    def _flush(self) -> None:
        self._buckets.add(np.array(self._batch, np.uint64).view(np.int64))
        self._batch = []

    def _frequent(self) -> Iterator[int]:
        minimum = max(MIN_CONVERSATIONS, self._fraction * self._conversations)
        for signed, _ in self._buckets:
            counted = signed.view(np.uint64)
            forms, places, counts = np.unique(counted >> np.uint64(1), return_inverse=True, return_counts=True)
            unasked = np.bincount(places, (counted & np.uint64(1)).astype(float), len(forms))
            is_automatic = (counts >= minimum) & (unasked >= MIN_UNASKED_FRACTION * counts)
            yield from (forms[is_automatic] << np.uint64(1)).tolist()

    def __enter__(self) -> "AutomaticMessages":
        self._buckets = FingerprintBuckets()
        return self

    def __exit__(self, *_: object) -> None:
        self._buckets.__exit__()


def _fingerprints(dialogue: Dialogue) -> Iterator[tuple[int, int]]:
    """Yield index and fingerprint, an even number, of the messages that may be automatic."""
    for place, turn in enumerate(dialogue.turns):
        if turn.speaker == SYSTEM and len(_WORD.findall(turn.text)) >= MIN_WORDS:
            yield place, text_fingerprint(message_form(turn.text).casefold()) & ~1


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
