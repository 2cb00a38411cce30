"""Wizard-of-Oz dialogues in JSON: CamRest676, WOZ 2.0, KVRET, Frames, MetaLWOZ, STAR."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.readers.shared.annotations import act, find_spans, split_of
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.source.json_text import parse_json

_FRAMES_SPEAKERS = {"user": USER, "wizard": SYSTEM}
_KVRET_SPEAKERS = {"driver": USER, "assistant": SYSTEM}
_STAR_SPEAKERS = {("User", "utter"): USER, ("Wizard", "pick_suggestion"): SYSTEM, ("Wizard", "utter"): SYSTEM}


def read_camrest676(source: CorpusSource) -> Iterator[Dialogue]:
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
                builder.add_turn(USER, text, acts=_user_acts(user["slu"]), spans=find_spans(text, values))
                builder.add_turn(SYSTEM, system["sent"], acts=[act("request", slot) for slot in system["DA"]])
        yield from builder.result()


def _user_acts(items: list[dict[str, Any]]) -> list[str]:
    # in a request, the requested slot is the value of a slot called 'slot'
    return [act(item["act"], value if slot == "slot" else slot) for item in items for slot, value in item["slots"]]


def read_woz2(source: CorpusSource) -> Iterator[Dialogue]:
    """Read `woz_{train,validate,test}_en.json`, each turn with the system's utterance, then the user's.

    The empty system transcript before the first user turn is not an utterance.
    """
    for path, line, record in source.records(source.json_array, "woz_*_en.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = f"{path.stem}/{record['dialogue_idx']}"
            for position, turn in enumerate(record["dialogue"]):
                if position or turn["system_transcript"].strip():
                    builder.add_turn(SYSTEM, turn["system_transcript"], acts=_system_acts(turn["system_acts"]))
                text, labels = turn["transcript"], turn["turn_label"]
                acts = [act("request", value) if slot == "request" else act("inform", slot) for slot, value in labels]
                values = [(slot, value) for slot, value in labels if slot != "request"]  # not in the text
                builder.add_turn(USER, text, acts=acts, spans=find_spans(text, values))
        yield from builder.result()


def _system_acts(acts: list[Any]) -> list[str]:
    # a bare slot is requested, a slot with a value is confirmed
    return [act("request", item) if isinstance(item, str) else act("confirm", item[0]) for item in acts]


def read_kvret(source: CorpusSource) -> Iterator[Dialogue]:
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
                    builder.add_turn(_KVRET_SPEAKERS.get(turn["turn"], turn["turn"]), text)
                    continue
                slots, requested = _parse_kvret_labels(turns, position)
                acts = [act("inform", slot) for slot in slots] + [act("request", slot) for slot in requested]
                builder.add_turn(USER, text, intent, acts, find_spans(text, slots.items()))
                intent = None
        yield from builder.result()


def _parse_kvret_labels(turns: list[dict[str, Any]], position: int) -> tuple[dict[str, str], list[str]]:
    after = turns[position + 1]["data"] if position + 1 < len(turns) else {}
    return after.get("slots", {}), [slot for slot, is_requested in after.get("requested", {}).items() if is_requested]


def read_frames(source: CorpusSource) -> Iterator[Dialogue]:
    """Read `frames.json`: `[{id, turns: [{author, text, labels: {acts: [{name, args: [{key, val}]}]}}]}]`.

    Values of arguments that occur in the text become slots.
    """
    for path, line, record in source.records(source.json_array, "frames.json"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            for turn in record["turns"]:
                acts, values = _parse_frames_acts(turn.get("labels", {}).get("acts", ()))
                text = turn["text"]
                speaker = _FRAMES_SPEAKERS.get(turn["author"], turn["author"])
                builder.add_turn(speaker, text, acts=acts, spans=find_spans(text, values))
        yield from builder.result()


def _parse_frames_acts(items: Any) -> tuple[list[str], list[tuple[str, str]]]:
    acts, values = [], []
    for item in items:
        pairs = [(argument["key"], argument.get("val")) for argument in item.get("args", ())]
        acts += [act(item["name"], key) for key, _ in pairs] or [act(item["name"])]
        values += [(key, value) for key, value in pairs if isinstance(value, str)]
    return list(dict.fromkeys(acts)), values


def read_metalwoz(source: CorpusSource) -> Iterator[Dialogue]:
    """Read `dialogues/DOMAIN.txt`, JSON Lines `{id, domain, turns: [str, …]}`; the bot speaks first."""
    for path, line, record in source.records(source.json_lines, "dialogues/*.txt"):
        with source.dialogue(path, line) as builder:
            builder.id = record["id"]
            if not isinstance(record["turns"], list):  # not the letters of a string
                raise TypeError("'turns' is not a list")
            for position, text in enumerate(record["turns"]):
                builder.add_turn((SYSTEM, USER)[position % 2], text)
        yield from builder.result()


def read_star(source: CorpusSource) -> Iterator[Dialogue]:
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
