"""Import: a reader at one end, the steps of hygiene between, a store at the other."""

import codecs
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.core.progress import Progress, silent
from turnwise.corpus.hygiene import Step, make_step
from turnwise.corpus.intake import CorpusError, Intake, Rejection
from turnwise.corpus.registry import get_reader
from turnwise.corpus.store import Store, StoreWriter
from turnwise.version import __version__

#: Distinct reasons that a manifest counts by name; all are in `rejected.jsonl`.
REASONS = 50


def import_corpus(
    reader: str,
    path: Path | str,
    out: Path | str,
    *,
    steps: Sequence[str] = (),
    strict: bool = False,
    encoding: str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Store:
    """Reads a corpus, cleans it and writes it as a store; what was at `out` before is replaced only when all is done.

    Args:
        reader: the layout: a name of `turnwise corpus list`.
        path: the file or folder to read.
        out: the store's folder.
        steps: hygiene, in order: 'unicode', 'merge-speakers', 'minimum-turns=4', ….
        strict: stop at the first thing that is refused, instead of listing it in `rejected.jsonl`.
        encoding: of the texts, where it is not the corpus' own.
        progress: told how many bytes were read.
        options: what the reader can be told, as `turnwise corpus list NAME` explains.

    Raises:
        CorpusError: if there is nothing to read, nothing to keep, or, with `strict`, something is refused.
    """
    path, out = Path(path), Path(out)
    if not path.exists():
        raise CorpusError(f"{path} does not exist")
    known = get_reader(reader)
    try:
        codecs.lookup(encoding or known.encoding)
    except LookupError:
        raise CorpusError(f"there is no encoding {encoding!r}: say it as Python does, as in utf-8 or latin-1") from None
    applied = [(description, make_step(description)) for description in steps]
    with StoreWriter(out) as writer:
        reasons: Counter[str] = Counter()

        def refuse(rejection: Rejection) -> None:
            if strict:
                where = rejection.file + (f", line {rejection.line}" if rejection.line else "")
                raise CorpusError(f"{where}: {rejection.reason} (strict: stopped here, {out} is as it was)")
            writer.reject(rejection)
            name = f"{rejection.kind}: {rejection.reason}"
            if len(reasons) < REASONS or name in reasons:
                reasons[name] += 1

        intake = Intake(path, known.name, refuse, encoding or known.encoding, not_read=out)
        total = _size(path)
        intake.on_bytes = lambda done: progress(f"importing {known.name}", done, total)
        for dialogue in _clean(known.read(intake, **options), [step for _, step in applied]):
            writer.write(dialogue)
        if not writer.kept.dialogues:
            first = next(iter(reasons), "the input holds none")
            raise CorpusError(f"no dialogue of {path} can be kept ({first}); {out} is as it was")
        writer.commit(
            {
                "turnwise": __version__,
                "reader": known.name,
                "options": options,
                "licence": known.licence,
                "home": known.home,
                "read": asdict(intake.read),
                "left_out": {name: count for name, count in intake.left_out.items() if count},
                "reasons": dict(reasons.most_common()),
                "facts": intake.facts,
                "steps": [{"step": description, "changes": dict(step.changes)} for description, step in applied],
                "inputs": [asdict(file) for file in intake.inputs],
            }
        )
    return Store(out)


def _clean(dialogues: Iterator[Dialogue], steps: Sequence[Step]) -> Iterator[Dialogue]:
    for dialogue in dialogues:
        cleaned: Dialogue | None = dialogue
        for step in steps:
            if cleaned is not None:
                cleaned = step(cleaned)
        if cleaned is not None:
            yield cleaned


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
