"""Conversations between people without roles: PersonaChat, Cornell Movie-Dialogs, Topical-Chat, Reddit and others."""

import re
from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import peer
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_SENTENCE = re.compile(r"Answer\.sentence(\d+)")  # Self-dialogue's columns of sentences
_CORNELL_SEPARATOR = " +++$+++ "
_CORNELL_LINE = re.compile(r"'([^']+)'")
_PERSONACHAT_LINE = re.compile(r"(\d+) (.*)", re.DOTALL)


def read_chitchat(source: CorpusSource) -> Dialogues:
    """Read `dataset.json`, `{id: {messages: [[{text, sender, timestamp}, …]]}}`, with a list per run of one sender.

    Each message is a turn; the step `merge-speakers` joins the runs.
    """
    for path, line, (key, record) in source.records(source.json_object, "dataset.json"):
        with source.dialogue(path, line) as builder:
            builder.id = key
            for run in record["messages"]:
                for message in run:
                    builder.add_turn(builder.peer(message["sender"]), message["text"])
        yield from builder.result()


def read_topical_chat(source: CorpusSource) -> Dialogues:
    """Read `conversations/*.json`, `{id: {content: [{agent, message, sentiment, …}]}}`."""
    for path, line, (key, record) in source.records(source.json_object, "conversations/*.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = key
            for message in record["content"]:
                builder.add_turn(builder.peer(message["agent"]), message["message"])
        yield from builder.result()


def read_casino(source: CorpusSource) -> Dialogues:
    """Read `casino_{train,valid,test}.json`; annotated negotiation strategies become acts.

    Moves such as 'Submit-Deal' are turns, as in the source.
    """
    for path, line, record in source.records(source.json_array, "casino_*.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = str(record["dialogue_id"])
            # annotations are pairs (utterance, strategies) that skip the moves
            annotations = iter(record.get("annotations", ()))
            following = next(annotations, None)
            for message in record["chat_logs"]:
                acts: list[str] = []
                if following and following[0] == message["text"]:
                    acts = following[1].split(",")
                    following = next(annotations, None)
                builder.add_turn(builder.peer(message["id"]), message["text"], acts=acts)
        yield from builder.result()


def read_reddit(source: CorpusSource) -> Dialogues:
    """Read JSON Lines `{context, response, "context/0", "context/1", …}`, for Reddit and corpora of that layout.

    `context` is what the response replies to; `context/0` precedes it, `context/1` precedes that. The authors are not
    named: two speakers are assumed to alternate.
    """
    for path, line, record in source.records(source.json_lines, "*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz"):
        with source.dialogue(path, line) as builder:
            # a thread has many responses: its id alone would not be unique
            builder.id = f"{source.relative_name(path)}/{line}"
            count = sum(key.startswith("context/") for key in record)
            earlier = [record[f"context/{number}"] for number in reversed(range(count))]
            for position, text in enumerate([*earlier, record["context"], record["response"]]):
                builder.add_turn(peer(1 + position % 2), text)
        yield from builder.result()


def read_self_dialogue(source: CorpusSource) -> Dialogues:
    """Read `corpus/TOPIC/*.csv`, a dialogue per row, both parts written by one person."""
    for path, line, row in source.records(source.csv_rows, "corpus/*/*.csv"):
        with source.dialogue(path, line) as builder:
            builder.id = row["AssignmentId"] or ""
            cells = (
                (int(match[1]), text or "") for column, text in row.items() if (match := _SENTENCE.fullmatch(column))
            )
            for number, text in sorted(cells):
                if text.strip():
                    builder.add_turn(peer(2 - number % 2), text)
                else:
                    source.skipped["blank cells"] += 1
        yield from builder.result()


def read_cornell(source: CorpusSource) -> Dialogues:
    """Read `movie_lines.txt` and `movie_conversations.txt`, with fields separated by ` +++$+++ `."""
    lines: dict[str, tuple[str, str]] = {}
    for path, number, line in source.records(source.lines, "movie_lines.txt"):
        fields = line.split(_CORNELL_SEPARATOR, 4)
        if len(fields) == 5:
            lines[fields[0]] = fields[1], fields[4]
        elif len(fields) == 4 and line.rstrip().endswith("+++$+++"):  # a line without text
            lines[fields[0]] = fields[1], ""
        elif line.strip():
            source.reject(path, number, "turn", f"expected 5 fields, got {len(fields)}", text=line)
    for path, number, line in source.records(source.lines, "movie_conversations.txt"):
        if not line.strip():
            continue
        with source.dialogue(path, number) as builder:
            _, _, movie, names = line.split(_CORNELL_SEPARATOR, 3)
            line_ids = _CORNELL_LINE.findall(names)
            if not line_ids or not re.fullmatch(r"\[.*\]\s*", names):
                raise ValueError(f"expected a list of lines, as in ['L1', 'L2'], got {names[:80]!r}")
            builder.id = f"{movie}/{line_ids[0]}"
            for line_id in line_ids:
                character, text = lines[line_id]
                builder.add_turn(builder.peer(character), text)
        yield from builder.result()


def read_personachat(source: CorpusSource) -> Dialogues:
    """Read `{train,valid,test}_none_original.txt`, the form of the release without personas.

    Lines are `N utterance<TAB>reply<TAB><TAB>candidates`; 1 starts a dialogue.
    """
    for path in source.files("*_none_original.txt"):
        for number, block in enumerate(_personachat_blocks(source, path)):
            with source.dialogue(path, block[0][0], split_of(path.stem)) as builder:
                builder.id = f"{path.stem}/{number}"
                for line, text in block:
                    utterance, _, rest = text.partition("\t")
                    reply, _, _candidates = rest.partition("\t")
                    if utterance != "__SILENCE__":  # the other speaker begins
                        builder.add_turn(peer(1), utterance, line=line)
                    builder.add_turn(peer(2), reply, line=line)
            yield from builder.result()


def _personachat_blocks(source: CorpusSource, path: Path) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for number, line in source.lines(path):
        match = _PERSONACHAT_LINE.fullmatch(line)
        if not match:
            if line.strip():
                source.reject(path, number, "turn", "expected a number, a space and a text", text=line)
            continue
        if match[1] == "1" and block:
            yield block
            block = []
        block.append((number, match[2]))
    if block:
        yield block
