"""Corpora in ConvLab's unified format (DailyDialog, DSTC2, GSIM), and GSIM in Google's own layout."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.shared.annotations import act, split_of, token_spans
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_Acts = Mapping[str, Mapping[int, Sequence[str]]]  # acts by a dialogue's original id and the index of the utterance


def read_dailydialog(source: CorpusSource) -> Dialogues:
    """Read `dialogues.json`; each utterance has the authors' act (inform, question, …)."""
    for path in source.files("dialogues.json"):
        yield from _read_unified(source, path)


def read_dstc2(source: CorpusSource) -> Dialogues:
    """Read `data.json`; acts of a `*system_acts.jsonl` under the same root are joined by session and index."""
    acts: dict[str, dict[int, list[str]]] = {}
    if source.root.is_dir() and any(source.root.rglob("*system_acts.jsonl")):
        for path, line, record in source.records(source.json_lines, "*system_acts.jsonl"):
            with source.guard(path, line):
                turns = record["system_turns"]
                if not all(isinstance(turn["acts"], list) for turn in turns):  # not the letters of a string
                    raise TypeError("'acts' is not a list")
                acts[record["original_id"]] = {turn["utt_idx"]: turn["acts"] for turn in turns}
    for path in source.files("data.json"):
        yield from _read_unified(source, path, acts)


def read_gsim_m2m(source: CorpusSource, *, form: Literal["", "unified", "original"] = "") -> Dialogues:
    """Read one form of the corpus.

    Options:
        form: 'unified' (`data.json`) or 'original' (`sim-M`, `sim-R`: with the users' intents), which contain the same
            dialogues. Empty: the unified form if it is present, else the original.
    """
    if not form:
        is_unified = source.root.name == "data.json" or next(source.root.rglob("data.json"), None) is not None
        form = "unified" if is_unified else "original"
    source.facts["form"] = form
    if form == "original":
        yield from _read_original_gsim(source)
        return
    for path in source.files("data.json"):
        yield from _read_unified(source, path)


def _read_unified(source: CorpusSource, path: Path, extra_acts: _Acts | None = None) -> Dialogues:
    for line, record in source.json_array(path):
        with source.dialogue(path, line) as builder:
            builder.split = split_of(record.get("data_split", ""))
            builder.id = record.get("original_id") or record["dialogue_id"]
            extra = (extra_acts or {}).get(builder.id, {})
            for turn in record["turns"]:
                labels = turn.get("dialogue_act") or turn.get("dialogue_acts") or {}
                items = [item for kind in ("binary", "categorical", "non-categorical") for item in labels.get(kind, ())]
                spans = [(item["slot"], item["start"], item["end"]) for item in items if "start" in item]
                acts = [*(act(item["intent"], item["slot"]) for item in items), *extra.get(turn["utt_idx"], ())]
                builder.add_turn(turn["speaker"], turn["utterance"], acts=acts, spans=spans)
        yield from builder.result()


def _read_original_gsim(source: CorpusSource) -> Dialogues:
    patterns = ("sim-*/train.json", "sim-*/dev.json", "sim-*/test.json")
    for path, line, record in source.records(source.json_array, *patterns):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = f"{path.stem}/{record['dialogue_id']}"
            for turn in record["turns"]:
                if "system_utterance" in turn:
                    builder.add_turn(SYSTEM, **_parse_turn(turn["system_utterance"], turn.get("system_acts", ())))
                if "user_utterance" in turn:
                    intent = next(iter(turn.get("user_intents", ())), None)
                    user = _parse_turn(turn["user_utterance"], turn.get("user_acts", ()))
                    builder.add_turn(USER, intent=intent, **user)
        yield from builder.result()


def _parse_turn(utterance: dict[str, Any], acts: Any) -> dict[str, Any]:
    text = utterance["text"]
    # offsets count white-space tokens
    spans = [(slot["slot"], slot["start"], slot["exclusive_end"]) for slot in utterance["slots"]]
    return {
        "text": text,
        "acts": [act(item["type"], item.get("slot")) for item in acts],
        "spans": list(token_spans(text, spans)),
    }
