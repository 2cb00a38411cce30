"""MultiWOZ in two forms: the text of 2.2 (an utterance a line), and the annotated JSON of 2.1."""

from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.intake import CorpusError, Intake
from turnwise.corpus.readers.labels import act, split_of, token_spans, without_brackets

_TEXT, _JSON = "*_dialogues_*.txt", ("data.json", "train.json", "val.json", "test.json")


def read(intake: Intake, *, form: str = "") -> Iterator[Dialogue]:
    """Reads one form.

    Args:
        intake: where to read.
        form: 'text' (2.2: proper names in brackets, kept as slots named 'value') or 'json' (2.1: acts and slots). Left
            empty: the text where there is one, else the JSON; the two hold the same dialogues.
    """
    if not form:
        is_text = intake.root.suffix == ".txt" or next(intake.root.rglob(_TEXT), None) is not None
        form = "text" if is_text else "json"
    if form not in ("text", "json"):
        raise CorpusError(f"form={form!r}: choose 'text' or 'json'")
    intake.facts["form"] = form
    return _read_text(intake) if form == "text" else _read_json(intake)


def _read_text(intake: Intake) -> Iterator[Dialogue]:
    for path in intake.files(_TEXT):
        count = 0
        block: list[tuple[int, str]] = []
        for number, line in [*intake.lines(path), (0, "")]:
            if line.strip():
                block.append((number, line))
            elif block:
                with intake.dialogue(path, block[0][0], split_of(path.stem)) as draft:
                    draft.id = f"{path.stem}/{count}"
                    for position, (where, text) in enumerate(block):
                        said, spans = without_brackets(text, "value")
                        draft.say((USER, SYSTEM)[position % 2], said, spans=spans, line=where)
                yield from draft.done()
                count, block = count + 1, []


def _read_json(intake: Intake) -> Iterator[Dialogue]:
    for path in intake.files(*_JSON):
        lists = _split_lists(intake, path)
        for line, key, record in intake.json_object(path):
            with intake.dialogue(path, line, lists.get(key, "train") if lists else split_of(path.stem)) as draft:
                draft.id = key
                for position, entry in enumerate(record["log"]):
                    acts = entry.get("dialog_act", {})
                    if not isinstance(acts, dict):  # "No Annotation"
                        acts = {}
                    # spans count white-space tokens, the last one included
                    spans = [
                        (slot, first, last + 1)
                        for _, slot, _, first, last in entry.get("span_info", ())
                        if isinstance(first, int) and isinstance(last, int)
                    ]
                    draft.say(
                        (USER, SYSTEM)[position % 2],
                        entry["text"],
                        acts=[act(name, _slot(slot)) for name, pairs in acts.items() for slot, _ in pairs],
                        spans=list(token_spans(entry["text"], spans)),
                    )
            yield from draft.done()


def _slot(name: str) -> str | None:
    return None if name == "none" else name


def _split_lists(intake: Intake, path: Path) -> dict[str, str]:
    """The dialogues that the release's list files put into valid and test; the rest of `data.json` is train."""
    if path.name != "data.json":
        return {}
    lists = {}
    for name, split in (("valListFile", "valid"), ("testListFile", "test")):
        for suffix in (".txt", ".json"):
            file = path.with_name(name + suffix)
            content = intake.text(file) if file.is_file() else None
            if content is None:
                continue
            try:
                # some releases call a plain list .json
                names = intake.json(content) if content.lstrip().startswith("[") else content.split()
                lists.update(dict.fromkeys(names, split))
            except (ValueError, TypeError) as error:
                intake.reject(file, None, "file", f"not a list of dialogues, so none is known to be {split}: {error}")
    return lists
