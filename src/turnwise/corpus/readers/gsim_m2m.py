"""Simulated dialogue (GSIM, M2M): Google's own layout, or ConvLab's unified one."""

from collections.abc import Iterator
from typing import Any

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.labels import act, split_of, token_spans
from turnwise.corpus.readers.unified import read_unified


def read(intake: Intake, *, form: str = "") -> Iterator[Dialogue]:
    """Reads one form.

    Args:
        intake: where to read.
        form: 'unified' (`data.json`) or 'original' (`sim-M`, `sim-R`: with the users' intents). Left empty: the unified one
            where there is one, else the original; the two hold the same dialogues.
    """
    if not form:
        is_unified = intake.root.name == "data.json" or next(intake.root.rglob("data.json"), None) is not None
        form = "unified" if is_unified else "original"
    if form not in ("unified", "original"):
        raise CorpusError(f"form={form!r}: choose 'unified' or 'original'")
    intake.facts["form"] = form
    if form == "original":
        yield from _read_original(intake)
        return
    for path in intake.files("data.json"):
        yield from read_unified(intake, path)


def _read_original(intake: Intake) -> Iterator[Dialogue]:
    for path in intake.files("sim-*/train.json", "sim-*/dev.json", "sim-*/test.json"):
        for line, record in intake.json_array(path):
            with intake.dialogue(path, line, split_of(path.stem)) as draft:
                draft.id = f"{path.stem}/{record['dialogue_id']}"
                for turn in record["turns"]:
                    if "system_utterance" in turn:
                        draft.say(SYSTEM, **_said(turn["system_utterance"], turn.get("system_acts", ())))
                    if "user_utterance" in turn:
                        intent = next(iter(turn.get("user_intents", ())), None)
                        draft.say(USER, intent=intent, **_said(turn["user_utterance"], turn.get("user_acts", ())))
            yield from draft.done()


def _said(utterance: dict[str, Any], acts: Any) -> dict[str, Any]:
    text = utterance["text"]
    # offsets count the tokens that the text joins by spaces
    spans = [(slot["slot"], slot["start"], slot["exclusive_end"]) for slot in utterance["slots"]]
    return {
        "text": text,
        "acts": [act(item["type"], item.get("slot")) for item in acts],
        "spans": list(token_spans(text, spans)),
    }
