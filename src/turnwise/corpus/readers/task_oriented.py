"""Task-oriented dialogues: Schema-Guided, CamRest676, WOZ 2.0, KVRET, Frames, MetaLWOZ, STAR, ABCD, MSR-E2E."""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.shared.annotations import act, find_spans, role, split_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.json_text import parse_json

_STAR_SPEAKERS = {("User", "utter"): USER, ("Wizard", "pick_suggestion"): SYSTEM, ("Wizard", "utter"): SYSTEM}
_MSR_ACT = re.compile(r"\s*(\w+)\((.*)\)\s*", re.DOTALL)


def read_schema_guided(source: CorpusSource) -> Dialogues:
    """Read `{train,dev,test}/dialogues_NNN.json`; a user turn's intent is the first active one of its frames.

    Ids repeat between splits, so they are prefixed with the split's folder.
    """
    for path, line, record in source.records(source.json_array, "dialogues_*.json"):
        folder = path.parent.name
        split = split_of(folder)
        with source.dialogue(path, line, split) as builder:
            builder.id = f"{folder}/{record['dialogue_id']}" if split else record["dialogue_id"]
            for turn in record["turns"]:
                frames = turn["frames"]
                acts = [act(action["act"], action["slot"]) for frame in frames for action in frame.get("actions", ())]
                # values copied from another turn have no offsets
                spans = [
                    (slot["slot"], slot["start"], slot["exclusive_end"])
                    for frame in frames
                    for slot in frame["slots"]
                    if "start" in slot
                ]
                intents = (frame.get("state", {}).get("active_intent", "NONE") for frame in frames)
                intent = next((intent for intent in intents if intent and intent != "NONE"), None)
                speaker = role(turn["speaker"])
                builder.add_turn(speaker, turn["utterance"], intent, acts, spans)
        yield from builder.result()


def read_camrest676(source: CorpusSource) -> Dialogues:
    """Read `CamRest676.json`, each turn with the user's utterance, then the system's.

    There are no splits, and user acts are cumulative.
    """
    for path, line, record in source.records(source.json_array, "CamRest676.json"):
        with source.dialogue(path, line) as builder:
            builder.id = str(record["dialogue_id"])
            for turn in record["dial"]:
                user, system = turn["usr"], turn["sys"]
                values = [(slot, value) for item in user["slu"] for slot, value in item["slots"] if slot != "slot"]
                text = user["transcript"]
                # in a request, the requested slot is the value of a slot called 'slot'
                acts = [
                    act(item["act"], value if slot == "slot" else slot)
                    for item in user["slu"]
                    for slot, value in item["slots"]
                ]
                builder.add_turn(USER, text, acts=acts, spans=find_spans(text, values))
                builder.add_turn(SYSTEM, system["sent"], acts=[act("request", slot) for slot in system["DA"]])
        yield from builder.result()


def read_woz2(source: CorpusSource) -> Dialogues:
    """Read `woz_{train,validate,test}_en.json`, each turn with the system's utterance, then the user's.

    The empty system transcript before the first user turn is not an utterance.
    """
    for path, line, record in source.records(source.json_array, "woz_*_en.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = f"{path.stem}/{record['dialogue_idx']}"
            for position, turn in enumerate(record["dialogue"]):
                if position or turn["system_transcript"].strip():
                    # a bare slot is requested, a slot with a value is confirmed
                    acts = [
                        act("request", item) if isinstance(item, str) else act("confirm", item[0])
                        for item in turn["system_acts"]
                    ]
                    builder.add_turn(SYSTEM, turn["system_transcript"], acts=acts)
                text, labels = turn["transcript"], turn["turn_label"]
                acts = [act("request", value) if slot == "request" else act("inform", slot) for slot, value in labels]
                values = [(slot, value) for slot, value in labels if slot != "request"]  # not in the text
                builder.add_turn(USER, text, acts=acts, spans=find_spans(text, values))
        yield from builder.result()


def read_kvret(source: CorpusSource) -> Dialogues:
    """Read `kvret_{train,dev,test}_public.json`; the scenario's intent is that of the first driver turn.

    What the driver informs and requests, which the source annotates at the assistant's next turn, is moved to the
    driver's turn.
    """
    for path, line, record in source.records(source.json_array, "kvret_*_public.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = record["scenario"]["uuid"]
            intent: str | None = record["scenario"]["task"]["intent"]
            turns = record["dialogue"]
            for position, turn in enumerate(turns):
                text = turn["data"]["utterance"]
                if turn["turn"] != "driver":
                    builder.add_turn(role(turn["turn"]), text)
                    continue
                labels = turns[position + 1]["data"] if position + 1 < len(turns) else {}
                slots, requested = labels.get("slots", {}), labels.get("requested", {})
                acts = [act("inform", slot) for slot in slots]
                acts += [act("request", slot) for slot, is_requested in requested.items() if is_requested]
                builder.add_turn(USER, text, intent, acts, find_spans(text, slots.items()))
                intent = None
        yield from builder.result()


def read_frames(source: CorpusSource) -> Dialogues:
    """Read `frames.json`: `[{id, turns: [{author, text, labels: {acts: [{name, args: [{key, val}]}]}}]}]`.

    Values of arguments that occur in the text become slots.
    """
    for path, line, record in source.records(source.json_array, "frames.json"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            for turn in record["turns"]:
                acts, values = _parse_frames_acts(turn.get("labels", {}).get("acts", ()))
                text = turn["text"]
                speaker = role(turn["author"])
                builder.add_turn(speaker, text, acts=acts, spans=find_spans(text, values))
        yield from builder.result()


def _parse_frames_acts(items: Any) -> tuple[list[str], list[tuple[str, str]]]:
    acts, values = [], []
    for item in items:
        pairs = [(argument["key"], argument.get("val")) for argument in item.get("args", ())]
        acts += [act(item["name"], key) for key, _ in pairs] or [act(item["name"])]
        values += [(key, value) for key, value in pairs if isinstance(value, str)]
    return list(dict.fromkeys(acts)), values


def read_metalwoz(source: CorpusSource) -> Dialogues:
    """Read `dialogues/DOMAIN.txt`, JSON Lines `{id, domain, turns: [str, …]}`; the bot speaks first."""
    for path, line, record in source.records(source.json_lines, "dialogues/*.txt"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            if not isinstance(record["turns"], list):  # not the letters of a string
                raise TypeError("'turns' is not a list")
            for position, text in enumerate(record["turns"]):
                builder.add_turn((SYSTEM, USER)[position % 2], text)
        yield from builder.result()


def read_star(source: CorpusSource) -> Dialogues:
    """Read `dialogues/N.json`, logs of events, not all of them utterances; action labels of the wizard become acts."""
    for path in source.files("dialogues/*.json"):
        text = source.read_text(path)
        if text is None:
            continue
        with source.dialogue(path, None) as builder:
            record = parse_json(text)
            builder.id = str(record["DialogueID"])
            for event in record["Events"]:
                speaker = _STAR_SPEAKERS.get((event["Agent"], event["Action"]))
                if speaker is None:
                    source.skipped["events that are no utterances"] += 1
                    continue
                label = event.get("ActionLabel")
                builder.add_turn(speaker, event["Text"], acts=[label] if label else ())
        yield from builder.result()


def read_abcd(source: CorpusSource) -> Dialogues:
    """Read `abcd_v1.1.json`, `{split: [{convo_id, original: [[speaker, text], …]}]}`.

    A customer's turn has the conversation's subflow as intent. What the agent does in other systems ('action' rows) is
    not an utterance.
    """
    for path, line, (split, records) in source.records(source.json_object, "abcd_v*.json", "abcd_v*.json.gz"):
        with source.guard(path, line):
            for record in records:
                with source.dialogue(path, line, split_of(split)) as builder:
                    builder.id = str(record["convo_id"])
                    targets = [turn["targets"] for turn in record.get("delexed", ())]
                    for position, (speaker, text) in enumerate(record["original"]):
                        if speaker == "action":
                            source.skipped["action rows"] += 1
                            continue
                        labelled = speaker == "customer" and position < len(targets)
                        intent = targets[position][0] if labelled else None
                        builder.add_turn(role(speaker), text, intent)
                yield from builder.result()


def read_msr_e2e(source: CorpusSource) -> Dialogues:
    """Read `{movie,restaurant,taxi}_all.tsv`, a message per row, its acts in the columns after the text.

    Consecutive rows of one session are one dialogue.
    """
    for path in source.files("*_all.tsv"):
        for session, rows in groupby(_read_msr_rows(source, path), key=lambda row: row[1]):
            messages = list(rows)
            with source.dialogue(path, messages[0][0]) as builder:
                builder.id = f"{path.stem.removesuffix('_all')}/{session}"
                for number, _, speaker, text, cells in messages:
                    labels = [label for cell in cells for label in _parse_msr_acts(cell)]
                    acts = list(dict.fromkeys(act(name, slot) for name, slot, _ in labels))
                    spans = find_spans(text, [(slot, value) for _, slot, value in labels if slot and value])
                    builder.add_turn(role(speaker), text, acts=acts, spans=spans, line=number)
            yield from builder.result()


def _read_msr_rows(source: CorpusSource, path: Path) -> Iterator[tuple[int, str, str, str, list[str]]]:
    """Yield line, session, speaker, text, and the cells of acts."""
    columns: list[str] = []
    for number, line in source.lines(path):
        cells = line.split("\t")
        if not columns:
            columns = [cell.lower() for cell in cells[:5]]
        elif len(cells) < 5:
            source.reject(path, number, "turn", f"expected at least 5 cells, got {len(cells)}", text=line)
        else:
            row = dict(zip(columns, cells, strict=False))
            with source.guard(path, number):
                yield number, row["session.id"], row["message.from"].strip(), row["message.text"], cells[5:]


def _parse_msr_acts(cell: str) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield (act, slot, value) for 'request(date;city)' or 'inform(date=today;numberofpeople=2)'."""
    match = _MSR_ACT.fullmatch(cell)
    if not match:
        return
    arguments = [argument for argument in match[2].split(";") if argument.strip()]
    if not arguments:
        yield match[1], None, None
    for argument in arguments:
        slot, equals, value = argument.partition("=")
        yield match[1], slot.strip(), value.strip(" {}") if equals else None
