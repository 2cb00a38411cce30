"""Who speaks: mapping the names and role words of a log to speakers."""

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from turnwise.core.dialogue import is_speaker
from turnwise.core.errors import CorpusError
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.dialogue_builder import DialogueBuilder
from turnwise.corpus.storage.rejections import WITHOUT_ROLE

_FILE = Path(__file__).parents[1] / "words.yaml"
WORDS: dict[str, dict[str, list[str]]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))  # what `words.yaml` lists

#: Words that logs use for the two roles; hyphens and underscores count as spaces.
ROLE_WORDS = {word: role for role, words in WORDS["roles"].items() for word in words}

Speakers = Mapping[str, str] | None  # names and their speakers
_OTHERS = "*"  # in a speaker map: every name that is not in it


def role_word(name: str) -> str:
    """Return a name as the keys of `ROLE_WORDS` are spelled."""
    return re.sub(r"[\s_-]+", " ", name.casefold())


class SpeakerMapper:
    """Maps the names in a log to speakers.

    The given map comes first, then the role words, then the map's `*`. Any other name is a participant without a role,
    numbered by first appearance in the conversation, skipping numbers that the map uses. The import's facts list the
    role words with what they were taken for, and count the turns of participants without a role.
    """

    def __init__(self, source: CorpusSource, speakers: Speakers):
        speakers = speakers or {}
        for name, speaker in speakers.items():
            if not is_speaker(speaker):
                raise CorpusError(f"speakers: {name}={speaker}: map to 'user', 'system' or 'speaker_1', 'speaker_2', …")
        self._speakers = {name.casefold(): speaker for name, speaker in speakers.items()}
        self._source = source

    def speaker(self, builder: DialogueBuilder, name: str) -> str:
        """Return the speaker for a name in a dialogue; an empty name stays empty, to be rejected."""
        key = name.strip().casefold()
        speaker = self._speakers.get(key)
        if speaker is None and (word := role_word(key)) in ROLE_WORDS:
            speaker = self._source.facts.setdefault("roles", {})[word] = ROLE_WORDS[word]
        speaker = speaker or self._speakers.get(_OTHERS)
        if speaker or not key:
            return speaker or name
        self._source.count_fact(WITHOUT_ROLE)
        return builder.peer(key, self._speakers.values())
