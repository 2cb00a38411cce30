"""Exporting dialogues in other formats; what a format cannot represent is left out and counted."""

import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.files import csv_text, replacing
from turnwise.corpus.readers.jsonl import to_json
from turnwise.corpus.slots.templates import non_overlapping_slots

#: Formats of whole dialogues, then those of labelled utterances.
CorpusFormat = Literal["jsonl", "messages", "convokit", "rasa", "csv", "intents-jsonl"]

#: Formats of labelled utterances by the suffix of the file.
LABELLED_FORMATS: Mapping[str, CorpusFormat] = {
    ".yml": "rasa",
    ".yaml": "rasa",
    ".csv": "csv",
    ".jsonl": "intents-jsonl",
}

_CONVOKIT_FILES = {"utterances.jsonl", *(f"{name}.json" for name in ("conversations", "speakers", "corpus", "index"))}

_MESSAGE_ROLES = {USER: "user", SYSTEM: "assistant"}
_SIMPLE_ENTITY = re.compile(r'[^()":]+')  # Rasa's names of entities in parentheses; others are written as a JSON object


@dataclass(slots=True)
class ExportCounts:
    """What an export wrote and left out."""

    dialogues: int = 0
    utterances: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # by reason

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return {"dialogues": self.dialogues, "utterances": self.utterances, "left_out": dict(self.left_out)}


def export_dialogues(
    dialogues: Iterable[Dialogue], out: Path, form: CorpusFormat = "jsonl", *, overwrite: bool = False
) -> ExportCounts:
    """Write dialogues to a file, for 'convokit' to a folder; `overwrite` replaces an earlier export once complete."""
    if form == "convokit":
        names = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
        if out.is_file() or not names <= _CONVOKIT_FILES:
            raise CorpusError(f"{out} is not a ConvoKit corpus: choose another --out")
        if names and not overwrite:
            raise CorpusError(f"{out} exists: choose another --out, or use --force")
    else:
        check_new_file(out, overwrite)
    if not out.absolute().parent.is_dir():
        raise CorpusError(f"the folder {out.absolute().parent} does not exist: create it, or choose another --out")
    counts = ExportCounts()
    with replacing(out) as part:
        if form == "convokit":
            _write_convokit(dialogues, part, counts)
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                file.writelines(_WRITERS[form](dialogues, counts))
        if not counts.utterances:
            reasons = ", ".join(f"{count:,} {name}" for name, count in counts.left_out.items())
            raise CorpusError(f"nothing to export: {reasons or 'there are no dialogues'}")
        if out.is_dir():
            shutil.rmtree(out)
    return counts


def check_new_file(out: Path, overwrite: bool) -> None:
    """Raise CorpusError if a file exists and may not be replaced."""
    if out.is_dir():
        raise CorpusError(f"{out} is a folder: choose another --out")
    if out.exists() and not overwrite:
        raise CorpusError(f"{out} exists: choose another --out, or use --force")


def labelled_dialogues(pairs: Iterable[tuple[str, str]]) -> Iterator[Dialogue]:
    """Yield texts with their intents as dialogues of one user turn, to export them."""
    for number, (text, intent) in enumerate(pairs, 1):
        yield Dialogue(str(number), (Turn(USER, text.strip(), intent),))


# ---- whole dialogues


def _write_jsonl(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[str]:
    """Yield turnwise's own format, which keeps everything."""
    return (to_json(dialogue) + "\n" for dialogue in _counted(dialogues, counts))


def _write_messages(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[str]:
    """Yield chat-completion JSON Lines, without labels and splits; conversations need the roles user and system."""
    for dialogue in _counted(dialogues, counts):
        if other := next((turn.speaker for turn in dialogue.turns if turn.speaker not in _MESSAGE_ROLES), None):
            raise CorpusError(
                f"dialogue {dialogue.id!r} has the speaker {other!r}, and messages are those of a user and an"
                " assistant: import the log again with roles (--set speakers=…=system,*=user), or export to convokit"
            )
        messages = [{"role": _MESSAGE_ROLES[turn.speaker], "content": turn.text} for turn in dialogue.turns]
        yield _dump({"id": dialogue.id, "messages": messages}) + "\n"


def _write_convokit(dialogues: Iterable[Dialogue], folder: Path, counts: ExportCounts) -> None:
    """Write the folder of a ConvoKit corpus: each turn replies to the one before it, and timestamps count the turns."""
    conversations: dict[str, Any] = {}
    speakers: dict[str, Any] = {}
    utterance_ids: set[str] = set()
    utterance_keys: set[str] = set()
    folder.mkdir()
    with (folder / "utterances.jsonl").open("w", encoding="utf-8") as file:
        for dialogue in _counted(dialogues, counts):
            meta = {key: value for key in ("source", "split") if (value := getattr(dialogue, key)) is not None}
            conversations[dialogue.id] = {"meta": meta, "vectors": []}
            for record in _to_utterances(dialogue):
                if record["id"] in utterance_ids:
                    raise CorpusError(f"two dialogues have the id {record['id']!r}: export the stores one by one")
                utterance_ids.add(record["id"])
                speakers.setdefault(record["speaker"], {"meta": {}, "vectors": []})
                utterance_keys |= record["meta"].keys()
                file.write(json.dumps(record) + "\n")
    conversation_keys = {key for value in conversations.values() for key in value["meta"]}
    index = {
        "utterances-index": {key: [str(list if key != "intent" else str)] for key in sorted(utterance_keys)},
        "speakers-index": {},
        "conversations-index": {key: [str(str)] for key in sorted(conversation_keys)},
        "overall-index": {},
        "version": 1,
        "vectors": [],
    }
    files = {"conversations": conversations, "speakers": speakers, "corpus": {}, "index": index}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def _to_utterances(dialogue: Dialogue) -> Iterator[dict[str, Any]]:
    """Yield the turns as ConvoKit's utterances; a conversation is named by its first utterance."""
    previous = None
    for number, turn in enumerate(dialogue.turns):
        meta = {"intent": turn.intent, "acts": list(turn.acts), "slots": [asdict(slot) for slot in turn.slots]}
        utterance_id = f"{dialogue.id}#{number}" if number else dialogue.id
        yield {
            "id": utterance_id,
            "conversation_id": dialogue.id,
            "speaker": turn.speaker,
            "text": turn.text,
            "reply-to": previous,
            "timestamp": number,
            "meta": {key: value for key, value in meta.items() if value},
            "vectors": [],
        }
        previous = utterance_id


# ---- labelled utterances


def _write_csv(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[str]:
    """Yield the columns text, intent and split, as `turnwise intents fit` reads them."""
    rows = ((turn.text, str(turn.intent), split or "") for turn, split in _labelled_turns(dialogues, counts))
    yield csv_text(("text", "intent", "split"), rows)


def _write_intents_jsonl(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[str]:
    """Yield JSON Lines with text, intent and, if there is one, split, as `turnwise intents fit` reads them."""
    for turn, split in _labelled_turns(dialogues, counts):
        yield _dump({"text": turn.text, "intent": turn.intent} | ({} if split is None else {"split": split})) + "\n"


def _write_rasa(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[str]:
    """Yield Rasa's `nlu.yml`, with slots as entities; texts that look like annotations, '[…](…)', are left out."""
    examples: dict[str, list[str]] = {}
    for turn, _ in _labelled_turns(dialogues, counts):
        if "](" in turn.text or "]{" in turn.text:
            counts.utterances -= 1
            counts.left_out["texts that Rasa would read as annotated"] += 1
        else:
            examples.setdefault(str(turn.intent), []).append(_annotate(turn, counts))
    nlu = [{"intent": intent, "examples": _rasa_examples(texts)} for intent, texts in examples.items()]
    style: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": math.inf}
    yield yaml.dump({"version": "3.1", "nlu": nlu}, Dumper=_RasaDumper, **style)


class _Block(str):
    """A text that is written as a literal block, if YAML allows it."""

    __slots__ = ()


class _RasaDumper(yaml.SafeDumper):
    """Writes blocks, and other texts of several lines in double quotes, which keep any character."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if isinstance(text, _Block) else '"' if len(text.splitlines()) > 1 else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style)


_RasaDumper.add_representer(_Block, _represent)
_RasaDumper.add_representer(str, _represent)


def _rasa_examples(texts: list[str]) -> Any:
    """Return examples as a block of lines, or as a list if a text has several lines."""
    if any(len(text.splitlines()) > 1 for text in texts):
        return [{"text": text} for text in texts]
    return _Block("".join(f"- {text}\n" for text in texts))


def _annotate(turn: Turn, counts: ExportCounts) -> str:
    """Return the text of a turn with its slots as entities: 'to [Oslo](city)'."""
    slots = [
        slot
        for slot in (non_overlapping_slots(turn) if set("[]").isdisjoint(turn.text) else ())
        if slot.value.strip() and set("[]{}").isdisjoint(slot.name)
    ]
    if left_out := len(turn.slots) - len(slots):
        counts.left_out["slots that Rasa cannot annotate"] += left_out
    pieces, position = [], 0
    for slot in slots:
        entity = f"({slot.name})" if _SIMPLE_ENTITY.fullmatch(slot.name) else _dump({"entity": slot.name})
        pieces.append(f"{turn.text[position : slot.start]}[{slot.value}]{entity}")
        position = slot.end
    return "".join([*pieces, turn.text[position:]])


def _labelled_turns(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[tuple[Turn, str | None]]:
    """Yield the user's turns that have an intent, with their splits, and count them."""
    for dialogue in dialogues:
        before = counts.utterances
        for turn in dialogue.turns:
            if turn.speaker != USER:
                counts.left_out["turns of other speakers than the user"] += 1
            elif not turn.intent:
                counts.left_out["turns without an intent"] += 1
            else:
                counts.utterances += 1
                yield turn, dialogue.split
        counts.dialogues += counts.utterances > before


def _counted(dialogues: Iterable[Dialogue], counts: ExportCounts) -> Iterator[Dialogue]:
    for dialogue in dialogues:
        counts.dialogues += 1
        counts.utterances += len(dialogue.turns)
        yield dialogue


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


_WRITERS: Mapping[CorpusFormat, Callable[[Iterable[Dialogue], ExportCounts], Iterator[str]]] = {
    "jsonl": _write_jsonl,
    "messages": _write_messages,
    "rasa": _write_rasa,
    "csv": _write_csv,
    "intents-jsonl": _write_intents_jsonl,
}
