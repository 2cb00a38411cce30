"""Taskmaster-3 where only its training rows and reward files are at hand (the full release reads as `taskmaster`).

A training row (`splits/*/*.tsv`) is one moment of a conversation: `newest event <C> earlier events`, what comes next, and
the conversation's id. Events are `<U>` user, `<A>` assistant, and API calls and responses under other tags. A reward record
(`reward/*.json`) has a conversation so far as a JSON string.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of

_EVENT = re.compile(r"<(U|A|PN|PR|PAN|PAV|PRAN|PRAV|S)>")
_SPEAKERS = {"U": USER, "A": SYSTEM}
_ROLES = {"user": USER, "agent": SYSTEM}

Utterance = tuple[str, str]


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads both kinds of file.

    Of several moments of one conversation the longest is kept, and the others' turns are counted as left out; so are targets
    that are API calls, and a model's generations in the reward files.
    """
    for path in intake.files("splits/*.tsv", "splits/**/*.tsv", "reward/*.json"):
        yield from _read_rewards(intake, path) if path.suffix == ".json" else _read_rows(intake, path)


def _read_rows(intake: Intake, path: Path) -> Iterator[Dialogue]:
    longest: dict[str, tuple[int, list[Utterance]]] = {}
    # as in `Intake.table`: global to the interpreter, and only ever widened
    csv.field_size_limit(max(csv.field_size_limit(), sys.maxsize))
    for number, line in intake.lines(path):
        cells = next(csv.reader(io.StringIO(line), delimiter="\t"), [])
        if len(cells) != 3:
            intake.reject(
                path, number, "dialogue", f"expected context, target and id; got {len(cells)} cells", text=line
            )
            continue
        context, target, identity = cells
        newest, _, earlier = context.partition("<C>")
        utterances = [*_utterances(earlier), *_utterances(newest)]
        intake.read.utterances += len(utterances) + 1
        if target.startswith("[A]"):
            utterances.append((SYSTEM, target.removeprefix("[A]")))
        else:
            intake.left_out["API calls as targets"] += 1
        held = longest.get(identity)
        if held is not None:
            intake.left_out["turns of a shorter moment of the same conversation"] += min(len(utterances), len(held[1]))
        if held is None or len(utterances) > len(held[1]):
            longest[identity] = number, utterances
    for identity, (number, utterances) in longest.items():
        with intake.dialogue(path, number, split_of(path.parent.name)) as draft:
            draft.id = identity
            intake.read.utterances -= len(utterances)  # read above: `say` counts them again
            for speaker, text in utterances:
                draft.say(speaker, text)
        yield from draft.done()


def _utterances(events: str) -> Iterator[Utterance]:
    pieces = _EVENT.split(events)
    for tag, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if tag in _SPEAKERS:
            yield _SPEAKERS[tag], text


def _read_rewards(intake: Intake, path: Path) -> Iterator[Dialogue]:
    for line, record in intake.json_array(path):
        with intake.dialogue(path, line) as draft:
            draft.id = record["conversation_id"]
            for message in intake.json(record["context"]):
                if "text" in message:
                    draft.say(_ROLES.get(message["role"], message["role"]), message["text"])
            intake.left_out["generations of a model"] += "generation" in record
        yield from draft.done()
