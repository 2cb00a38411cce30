"""Google's crowd-sourced dialogues: Taskmaster-1 to -4, and CCPE-M, whose layout is nearly the same.

Released files are `[{conversation_id, utterances: [{speaker, text, segments}]}]`. Of Taskmaster-3 there are also
training rows and reward files. A row (`splits/*/*.tsv`) is one moment of a conversation: `newest event <C> earlier
events`, the next event, and the conversation's id. Events are `<U>` user, `<A>` assistant, and API calls and responses
under other tags. A reward record (`reward/*.json`) has a conversation so far as a JSON string.
"""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.shared.annotations import role, split_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.json_text import parse_json
from turnwise.corpus.source.tables import allow_long_csv_cells

_EVENT = re.compile(r"<(U|A|PN|PR|PAN|PAV|PRAN|PRAV|S)>")
_EVENT_SPEAKERS = {"U": USER, "A": SYSTEM}


def read(source: CorpusSource) -> Dialogues:
    """Read the data files, not samples, ontologies or rewards; segments become slots named after their annotation."""
    patterns = ("data/*.json", "self-dialogs.json", "woz-dialogs.json")
    return _read_released(source, patterns, "conversation_id", ("name", "start_index", "end_index"))


def read_ccpe_m(source: CorpusSource) -> Dialogues:
    """Read `data.json`; annotated segments become slots named after their entity type."""
    return _read_released(source, ("data.json",), "conversationId", ("entityType", "startIndex", "endIndex"))


def _read_released(
    source: CorpusSource, patterns: tuple[str, ...], id_key: str, slot_keys: tuple[str, str, str]
) -> Dialogues:
    name, start, end = slot_keys
    for path, line, record in source.records(source.json_array, *patterns):
        with source.dialogue(path, line) as builder:
            builder.id = record[id_key]
            for utterance in record["utterances"]:
                # some releases write the digits of offsets as strings
                spans = [
                    (annotation[name], int(segment[start]), int(segment[end]))
                    for segment in utterance.get("segments", ())
                    for annotation in segment["annotations"]
                ]
                builder.add_turn(role(utterance["speaker"]), utterance["text"], spans=spans)
        yield from builder.result()


def read_taskmaster3_partial(source: CorpusSource) -> Dialogues:
    """Read Taskmaster-3's training rows and reward files, where the full release (reader `taskmaster`) is not at hand.

    Of several moments of a conversation the longest is kept; the turns of the others are counted as left out. So are
    next events that are API calls, and a model's generations in the reward files.
    """
    for path in source.files("splits/*.tsv", "splits/**/*.tsv", "reward/*.json"):
        yield from _read_rewards(source, path) if path.suffix == ".json" else _read_rows(source, path)


def _read_rows(source: CorpusSource, path: Path) -> Dialogues:
    longest: dict[str, tuple[int, list[tuple[str, str]]]] = {}
    allow_long_csv_cells()
    for number, line in source.lines(path):
        cells = next(csv.reader(io.StringIO(line), delimiter="\t"), [])
        if len(cells) != 3:
            reason = f"expected context, target and id; got {len(cells)} cells"
            source.reject(path, number, "dialogue", reason, text=line)
            continue
        context, target, dialogue_id = cells
        newest, _, earlier = context.partition("<C>")
        utterances = [*_parse_events(earlier), *_parse_events(newest)]
        source.counts.utterances += len(utterances) + 1
        if target.startswith("[A]"):
            utterances.append((SYSTEM, target.removeprefix("[A]")))
        else:
            source.skipped["API calls as targets"] += 1
        _, previous = longest.get(dialogue_id, (0, []))
        source.skipped["turns of a shorter moment of the same conversation"] += min(len(utterances), len(previous))
        if len(utterances) > len(previous) or dialogue_id not in longest:
            longest[dialogue_id] = number, utterances
    for dialogue_id, (number, utterances) in longest.items():
        with source.dialogue(path, number, split_of(path.parent.name)) as builder:
            builder.id = dialogue_id
            source.counts.utterances -= len(utterances)  # counted above, and again by `add_turn`
            for speaker, text in utterances:
                builder.add_turn(speaker, text)
        yield from builder.result()


def _parse_events(events: str) -> Iterator[tuple[str, str]]:
    pieces = _EVENT.split(events)
    for tag, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if tag in _EVENT_SPEAKERS:
            yield _EVENT_SPEAKERS[tag], text


def _read_rewards(source: CorpusSource, path: Path) -> Dialogues:
    for line, record in source.json_array(path):
        with source.dialogue(path, line) as builder:
            builder.id = record["conversation_id"]
            for message in parse_json(record["context"]):
                if "text" in message:
                    builder.add_turn(role(message["role"]), message["text"])
            source.skipped["generations of a model"] += "generation" in record
        yield from builder.result()
