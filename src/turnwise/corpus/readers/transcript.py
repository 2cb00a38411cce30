"""Transcripts of calls as subtitles: SRT and WebVTT files with speaker labels."""

import html
import re
from pathlib import Path

from turnwise.corpus.readers.shared.speakers import ROLE_WORDS, WORDS, SpeakerMapper, Speakers, role_word
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_TIMES = re.compile(r"\s*(?:(\d{1,4}):)?(\d{1,2}):(\d\d)(?:[.,](\d{1,3}))?\s*-->")
#: First words of the WebVTT blocks that are not cues.
_OTHER_BLOCKS = re.compile(r"(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|$)")

_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s+([^\s<>][^<>]*)>")
_TAGS = re.compile(r"</?(?:b|i|u|c|v|ruby|rt|lang|font)(?:[.\s][^<>]*)?>|<[\d:.]+>|\{\\[^{}]*\}")

#: A name of up to 40 characters before a colon, or in brackets; a dash or >> may precede it.
_LABEL = re.compile(
    r"""
    (?:(?:-|>>)\s*)?
    (?:([^\s:：\[\]<>][^:：\[\]<>]{0,39}?)\s*(?::(?=\s|$)|：)   # not the colon of 10:30 or http://
      |\[([^\[\]:]{1,40})\]\s*:?(?=.*\w))
    (.*)
    """,
    re.VERBOSE,
)
_NUMBERED = re.compile(r"(?:speaker|spk)[\s_-]*\d+", re.IGNORECASE)
_MAX_WORDS = 4
_PARTICLES, _SOUNDS = frozenset(WORDS["transcripts"]["particles"]), frozenset(WORDS["transcripts"]["sounds"])
_SOUND = re.compile(r"\s*(?:-\s*)?(?:\[[^\[\]]*\]|\([^()]*\)|[♪♫][^♪♫]*[♪♫]?)\s*")

_UNKNOWN = "?"  # the speaker of cues without a label

_EXPECTED = "expected '<v Anna>text</v>', 'Anna: text', '[Agent] text' or 'SPEAKER_00: text'"


def read(source: CorpusSource, *, speakers: Speakers = None) -> Dialogues:
    """Read the files, each of which is a conversation with the file's name as its id.

    Speaker labels are `<v Anna>` (WebVTT), `Anna: text`, `[Agent] text` and `SPEAKER_00: text`. Before a colon or in
    brackets, a label is a role word such as 'agent', or a name of up to four capitalised words (and 'van', 'de' and the
    like). Cues are sorted by time, and consecutive cues of a speaker are one turn. A cue without a label continues
    the speaker before it; where most lines would be such ones, their speaker is '?', which `speakers` can
    map. Both are counted. Files without any label are rejected.

    Formatting, notes, and lines that only describe a sound, such as [music], are left out.
    """
    mapper = SpeakerMapper(source, speakers)
    for path in source.files("*.srt", "*.vtt", "*.srt.gz", "*.vtt.gz"):
        turns = _merge(_name_unlabelled(source, _read_cues(source, path)))
        if not turns:
            source.reject(path, None, "file", "there are no cues, such as '00:00:01.000 --> 00:00:02.000' and a text")
            continue
        if not any(name for _, name, _ in turns):
            source.reject(path, None, "file", f"no cue has a speaker label: {_EXPECTED}")
            continue
        with source.dialogue(path, turns[0][0]) as builder:
            builder.id = source.relative_name(path)
            for line, name, text in turns:
                if name:
                    builder.add_turn(mapper.speaker(builder, name), text, line=line)
                    continue
                builder.mark_hole()
                if text:
                    reason = f"the speaker is not known, no label precedes the cue: {_EXPECTED}"
                    source.reject(path, line, "turn", reason, dialogue=builder.id, text=text)
        yield from builder.result()


#: A line, a label or '', and a text; without a text it is the place of a cue that cannot be read.
_Line = tuple[int, str, str]


def _read_cues(source: CorpusSource, path: Path) -> list[_Line]:
    """Return the labelled lines of all cues, sorted by the times of the cues."""
    timed: list[tuple[float, list[_Line]]] = []
    latest, rejections = 0.0, source.counts.rejected_rows
    for number, block in source.blocks(path):
        hole = (number, "", "")
        # a line of this block, or before it, could not be decoded
        is_incomplete = source.counts.rejected_rows > rejections
        lines: list[_Line] = []
        try:
            start, texts = _split_block(block)
            latest = latest if start is None else start
            lines = _split_cue(source, texts)
        except ValueError as error:
            source.reject(path, number, "turn", str(error), text="\n".join(text for _, text in block))
            is_incomplete = True
        timed.append((latest, [hole, *lines, hole] if is_incomplete else lines))
        rejections = source.counts.rejected_rows
    timed.sort(key=lambda cue: cue[0])
    return [line for _, lines in timed for line in lines]


def _split_block(block: list[tuple[int, str]]) -> tuple[float | None, list[tuple[int, str]]]:
    """Return the time and the numbered lines of a cue, or None and nothing for a header or a note."""
    places = [index for index, (_, text) in enumerate(block) if "-->" in text]
    if not places and _OTHER_BLOCKS.match(block[0][1]):
        return None, []
    if not places or places[0] > 1:  # a number or a name may precede the time
        raise ValueError("a cue without a time: expected '00:00:01.000 --> 00:00:02.000' before its text")
    if len(places) > 1:
        raise ValueError("several cues without a blank line between them")
    match = _TIMES.match(block[places[0]][1])
    if match is None:
        raise ValueError("cannot parse the time of the cue: expected '00:00:01.000 --> 00:00:02.000'")
    hours, minutes, seconds, fraction = (part or "0" for part in match.groups())
    time = int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")
    return time, block[places[0] + 1 :]


def _split_cue(source: CorpusSource, lines: list[tuple[int, str]]) -> list[_Line]:
    """Return the labelled texts of a cue; a label on a line of its own belongs to the next line, as to all after it."""
    result: list[_Line] = []
    pending = ""
    for number, line in lines:
        pieces = _VOICE.split(line)  # what precedes the first voice, and pairs of a name and what it says
        for voice, piece in zip(["", *pieces[1::2]], pieces[::2], strict=True):
            text = _clean(piece)
            if _SOUND.fullmatch(text):
                source.by_design["descriptions of sounds"] += 1
                continue
            name = _clean(voice)
            label, text = (name, text) if name else _split_label(text)
            if text:
                pending = label or pending
                result.append((number, pending, text))
            else:
                pending = label or pending
    return result


def _clean(text: str) -> str:
    return html.unescape(_TAGS.sub("", text)).replace("\xa0", " ").strip()


def _split_label(text: str) -> tuple[str, str]:
    """Return the label at the start of a line, '' if there is none, and the rest."""
    match = _LABEL.match(text)
    if match is None:
        return "", text
    label, rest = (match[1] or match[2]).strip(), match[3].strip()
    words = label.split()
    is_name = len(words) <= _MAX_WORDS and not any(word[0].islower() and word not in _PARTICLES for word in words)
    is_numbered = _NUMBERED.fullmatch(label) is not None
    has_letter = any(character.isalpha() for character in label)
    is_sound = match[2] is not None and label.casefold() in _SOUNDS
    is_label = role_word(label) in ROLE_WORDS or is_name or is_numbered
    return (label, rest) if is_label and has_letter and not is_sound else ("", text)


def _name_unlabelled(source: CorpusSource, lines: list[_Line]) -> list[_Line]:
    """Count the lines of cues without a label; give them an unknown speaker if they are too many for continuations."""
    labelled = sum(name != "" and text != "" for _, name, text in lines)
    unlabelled = sum(name == "" and text != "" for _, name, text in lines)
    if not labelled or not unlabelled:
        return lines
    is_partial = unlabelled > labelled
    fact = f"lines without a speaker label, {f'taken for {_UNKNOWN!r}' if is_partial else 'taken for the one before'}"
    source.facts[fact] = source.facts.get(fact, 0) + unlabelled
    return [(line, name or (_UNKNOWN if is_partial and text else ""), text) for line, name, text in lines]


def _merge(lines: list[_Line]) -> list[_Line]:
    """Join consecutive lines of a speaker; a line without a label is its predecessor's, if there is no hole between."""
    turns: list[tuple[int, str, list[str]]] = []
    for line, name, text in lines:
        if turns and text and turns[-1][2] and name.casefold() in ("", turns[-1][1].casefold()):
            turns[-1][2].append(text)
        else:
            turns.append((line, name, [text] if text else []))
    return [(line, name, " ".join(texts)) for line, name, texts in turns]
