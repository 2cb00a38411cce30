"""Plain text: `Speaker: text` lines, a blank line between dialogues."""

import re

from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.speakers import SpeakerMapper, Speakers
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

#: A name of up to 40 characters, a colon, and a space or nothing: '10:30' and 'http://' do not start a turn.
_TURN = re.compile(r"([^:\t]{1,40}?)\s*:(?:\s+(.*))?")

#: Suffixes of formats in which many lines look like 'Speaker: text'.
_OTHER_FORMATS = (
    *(".yml", ".yaml", ".json", ".jsonl", ".csv", ".tsv", ".xml"),
    *(".html", ".md", ".eml", ".mbox", ".srt", ".vtt"),
)


def read(source: CorpusSource, *, speakers: Speakers = None) -> Dialogues:
    """Read the files; a line without a speaker continues the turn before it."""
    mapper = SpeakerMapper(source, speakers)
    if source.root.suffix.lower() in _OTHER_FORMATS:
        raise CorpusError(
            f"{source.root.name} is not plain text with 'Speaker: text' lines:"
            f" `turnwise corpus import auto {source.root}` recognises other formats"
        )
    for path, number, block in source.records(source.blocks, "*.txt"):
        with source.dialogue(path, number) as builder:
            builder.id = f"{source.relative_name(path)}/{number}"
            turns: list[tuple[int, str, list[str]]] = []
            for line, text in block:
                match = _TURN.fullmatch(text.strip())
                if match:
                    turns.append((line, match[1], [match[2] or ""]))
                elif turns:
                    turns[-1][2].append(text.strip())
                    source.skipped["line ends inside a turn (the lines are kept)"] += 1
                else:
                    reason = "the dialogue's first line has no speaker; 'Speaker: text' is expected"
                    source.reject(path, line, "turn", reason, text=text)
            for line, name, texts in turns:
                builder.add_turn(mapper.speaker(builder, name), "\n".join(texts), line=line)
        yield from builder.result()
