"""Who speaks: mapping the names and role words of a log to speakers."""

import re
from collections.abc import Iterator, Mapping
from itertools import count

from turnwise.core.dialogue import SYSTEM, USER, is_speaker, peer
from turnwise.core.errors import CorpusError
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.dialogue_builder import DialogueBuilder

_USER_WORDS = (
    "user, usr, customer, client, caller, visitor, guest, human, consumer, end user, requester, requestor, contact, "
    "lead, member, patient, buyer, shopper, subscriber, passenger, prospect, inbound, incoming, kunde, kundin, cliente"
)
_SYSTEM_WORDS = (
    "system, sys, assistant, agent, bot, chatbot, operator, representative, rep, advisor, adviser, support, staff, "
    "admin, administrator, teammate, support agent, support team, customer service, customer support, service, "
    "service desk, help desk, helpdesk, live agent, human agent, virtual agent, virtual assistant, ai, model, "
    "consultant, specialist, technician, moderator, outbound, outgoing, mitarbeiter, mitarbeiterin, berater, agente"
)

#: Words that logs use for the two roles; hyphens and underscores count as spaces.
ROLE_WORDS = {
    **dict.fromkeys(_USER_WORDS.split(", "), USER),
    **dict.fromkeys(_SYSTEM_WORDS.split(", "), SYSTEM),
}

#: In a speaker map: every name that is not in it.
_OTHERS = "*"


class SpeakerMapper:
    """Maps the names in a log to speakers.

    The given map comes first, then the role words, then the map's `*`. Any other name is a participant without a role,
    numbered by first appearance in the conversation, skipping numbers that the map uses. The import's facts list the
    role words with what they were taken for, and count the turns of participants without a role.
    """

    def __init__(self, source: CorpusSource, speakers: Mapping[str, str]):
        for name, speaker in speakers.items():
            if not is_speaker(speaker):
                raise CorpusError(
                    f"speakers: {name}={speaker}: map to 'user', 'system', or 'speaker_1', 'speaker_2', …"
                )
        self._speakers = {name.casefold(): speaker for name, speaker in speakers.items()}
        self._facts = source.facts
        self._builder: DialogueBuilder | None = None
        self._numbered: dict[str, str] = {}
        self._unused: Iterator[str] = iter(())

    def speaker(self, builder: DialogueBuilder, name: str) -> str:
        """Return the speaker for a name in a dialogue; an empty name stays empty, to be rejected."""
        key = name.strip().casefold()
        speaker = self._speakers.get(key) or self._role(key) or self._speakers.get(_OTHERS)
        if speaker or not key:
            return speaker or name
        fact = "turns of speakers without a role"
        self._facts[fact] = self._facts.get(fact, 0) + 1
        if builder is not self._builder:
            self._builder, self._numbered = builder, {}
            self._unused = (name for name in map(peer, count(1)) if name not in self._speakers.values())
        if key not in self._numbered:
            self._numbered[key] = next(self._unused)
        return self._numbered[key]

    def _role(self, name: str) -> str | None:
        word = re.sub(r"[\s_-]+", " ", name)
        role = ROLE_WORDS.get(word)
        if role is not None:
            self._facts.setdefault("roles", {})[word] = role
        return role
