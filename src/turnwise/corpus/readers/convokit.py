"""ConvoKit's `utterances.jsonl`: an utterance per line, with its conversation, speaker, time and what it replies to."""

from collections.abc import Iterable
from typing import Any, Literal

from turnwise.corpus.readers.shared.fields import optional_time
from turnwise.corpus.readers.shared.message_logs import Message, MessageLog, reply_chains
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues


def read(
    source: CorpusSource, *, order: Literal["chronological", "paths"] = "chronological", speakers: Speakers = None
) -> Dialogues:
    """Read the file.

    Options:
        order: 'chronological': one dialogue per conversation, sorted by time; 'paths': one per chain of replies from
            the first utterance to a last one, which suits threads in which many reply to one.
    """
    for path in source.files("utterances.jsonl"):
        log = (MessageLog if order == "chronological" else _ReplyLog)(source, speakers)
        for line, record in source.json_lines(path):
            with source.guard(path, line):
                # older releases say root, user and reply-to
                conversation = record.get("conversation_id") or record.get("root") or record["id"]
                key, time = str(record["id"]), optional_time(record, "timestamp")
                speaker = _name(record["speaker"] if "speaker" in record else record["user"])
                reply_to = _name(record.get("reply_to") or record.get("reply-to"))
                log.at(path, line).add(str(conversation), time, speaker, record["text"], key=key, reply_to=reply_to)
        yield from log.dialogues()


class _ReplyLog(MessageLog):
    """Messages whose dialogues are the chains of replies."""

    def _build(self, conversation: str, messages: Iterable[Message | None]) -> Dialogues:
        present = [message for message in messages if message is not None]  # what they reply to is known despite holes
        chains = list(reply_chains(present))
        chained = {message.line for chain in chains for message in chain}
        for message in present:
            if message.line not in chained:
                path, line = self.files[message.file], message.line
                reason = "it replies, directly or indirectly, to itself: no chain of replies contains it"
                self.source.reject(path, line, "turn", reason, dialogue=conversation, text=message.text)
        for number, chain in enumerate(chains):
            yield from self._build_part(f"{conversation}/{number}", chain, conversation)


def _name(value: Any) -> str:
    return "" if value is None else str(value)
