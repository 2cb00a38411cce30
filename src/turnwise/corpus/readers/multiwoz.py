"""MultiWOZ in two forms: the text of 2.2 (an utterance per line), and the annotated JSON of 2.1."""

import re
from pathlib import Path
from typing import Literal

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.shared.annotations import act, slot_spans, split_of, token_spans
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.json_text import parse_json

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_TEXT, _JSON = "*_dialogues_*.txt", ("data.json", "train.json", "val.json", "test.json")


def read(source: CorpusSource, *, form: Literal["", "text", "json"] = "") -> Dialogues:
    """Read one form of the corpus.

    Options:
        form: 'text' (2.2: proper names in brackets, which become slots named 'value') or 'json' (2.1: acts and slots),
            which contain the same dialogues. Empty: the text if it is present, else the JSON.
    """
    if not form:
        is_text = source.root.suffix == ".txt" or next(source.root.rglob(_TEXT), None) is not None
        form = "text" if is_text else "json"
    source.facts["form"] = form
    return _read_text(source) if form == "text" else _read_json(source)


def _read_text(source: CorpusSource) -> Dialogues:
    for path in source.files(_TEXT):
        for number, (line, block) in enumerate(source.blocks(path)):
            with source.dialogue(path, line, split_of(path.stem)) as builder:
                builder.id = f"{path.stem}/{number}"
                for position, (turn_line, bracketed) in enumerate(block):
                    parts = _BRACKETS.split(bracketed)  # values are at odd positions
                    slots = ["value" if number % 2 and part.strip() else "" for number, part in enumerate(parts)]
                    text = "".join(parts)
                    spans = slot_spans(list(zip(parts, slots, strict=True)), text) if len(parts) > 1 else ()
                    builder.add_turn((USER, SYSTEM)[position % 2], text, spans=spans, line=turn_line)
            yield from builder.result()


def _read_json(source: CorpusSource) -> Dialogues:
    for path in source.files(*_JSON):
        lists = _read_split_lists(source, path)
        for line, (key, record) in source.json_object(path):
            with source.dialogue(path, line, lists.get(key, "train") if lists else split_of(path.stem)) as builder:
                builder.id = key
                for position, entry in enumerate(record["log"]):
                    labels = entry.get("dialog_act", {})
                    pairs = labels.items() if isinstance(labels, dict) else ()  # "No Annotation"
                    acts = [act(name, slot if slot != "none" else None) for name, slots in pairs for slot, _ in slots]
                    # spans count white-space tokens, end inclusive
                    spans = [
                        (slot, first, last + 1)
                        for _, slot, _, first, last in entry.get("span_info", ())
                        if isinstance(first, int) and isinstance(last, int)
                    ]
                    text = entry["text"]
                    speaker = (USER, SYSTEM)[position % 2]
                    builder.add_turn(speaker, text, acts=acts, spans=list(token_spans(text, spans)))
            yield from builder.result()


def _read_split_lists(source: CorpusSource, path: Path) -> dict[str, str]:
    """Return the split of the dialogues that the release's list files name; the rest of `data.json` is train."""
    if path.name != "data.json":
        return {}
    lists = {}
    for name, split in (("valListFile", "valid"), ("testListFile", "test")):
        for file in path.parent.glob(f"{name}.*"):
            content = source.read_text(file) or ""
            try:
                # some releases call a plain list .json
                names = parse_json(content) if content.lstrip().startswith("[") else content.split()
                lists.update(dict.fromkeys(names, split))
            except (ValueError, TypeError) as error:
                reason = f"not a list of dialogues, so that the {split} split is unknown: {error}"
                source.reject(file, None, "file", reason)
    return lists
