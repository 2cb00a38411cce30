"""Who speaks in somebody's log: names and role words in, turnwise's speakers out."""

from collections.abc import Iterator, Mapping
from itertools import count

from turnwise.core.dialogue import SYSTEM, USER, is_speaker, peer
from turnwise.corpus.intake import CorpusError, Draft, Intake

#: Words that logs use for the two roles.
ROLE_WORDS = {
    **dict.fromkeys(("user", "customer", "client", "caller", "visitor", "guest", "human", "usr", "consumer"), USER),
    **dict.fromkeys(
        ("system", "assistant", "agent", "bot", "chatbot", "operator", "representative", "advisor", "support", "sys"),
        SYSTEM,
    ),
}

#: In a map: every name that the map does not have.
EVERYONE_ELSE = "*"


class Roles:
    """Maps a log's names to speakers.

    What the given map says comes first, then the role words, then the map's `*`. Any other name is a participant without a
    role, numbered by first appearance in its conversation, past the numbers that the map gives away; how often that
    happened is noted among the import's facts.
    """

    def __init__(self, intake: Intake, speakers: Mapping[str, str]):
        for name, speaker in speakers.items():
            if not is_speaker(speaker):
                raise CorpusError(
                    f"speakers: {name}={speaker}: map to 'user', 'system', or 'speaker_1', 'speaker_2', …"
                )
        self._named = {name.casefold(): speaker for name, speaker in speakers.items()}
        self._intake = intake
        self._draft: Draft | None = None
        self._numbered: dict[str, str] = {}
        self._free: Iterator[str] = iter(())

    def speaker(self, draft: Draft, name: str) -> str:
        """The speaker for a name in the dialogue being drafted; an empty name stays so, to be refused."""
        key = name.strip().casefold()
        found = self._named.get(key) or ROLE_WORDS.get(key) or self._named.get(EVERYONE_ELSE)
        if found or not key:
            return found or name
        self._intake.facts["turns of speakers without a role"] = (
            self._intake.facts.get("turns of speakers without a role", 0) + 1
        )
        if draft is not self._draft:
            taken = set(self._named.values())
            self._draft, self._numbered = draft, {}
            self._free = (name for name in map(peer, count(1)) if name not in taken)
        if key not in self._numbered:
            self._numbered[key] = next(self._free)
        return self._numbered[key]
