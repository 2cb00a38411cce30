"""Importing a corpus: a reader, cleaning steps, and a store."""

import codecs
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnwise.core.progress import Progress, silent
from turnwise.corpus.hygiene import MASK, make_step
from turnwise.corpus.masking import Masker, Masking
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source import CorpusError, CorpusSource, Rejection
from turnwise.corpus.store import Store, StoreWriter, provenance

#: Distinct rejection reasons that a manifest counts; `rejected.jsonl` has all of them.
MAX_REASONS = 50


def import_corpus(
    reader: str,
    path: Path | str,
    out: Path | str,
    *,
    steps: Sequence[str] = (),
    strict: bool = False,
    encoding: str | None = None,
    masking: Masking | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Store:
    """Read a corpus, clean it and write it as a store; a previous store at `out` is replaced at the very end.

    Args:
        reader: a name of `turnwise corpus list`.
        path: the file or folder to read.
        out: the store's folder.
        steps: cleaning steps, in order: 'unicode', 'merge-speakers', 'minimum-turns=4', ….
        strict: stop at the first rejection, instead of listing it in `rejected.jsonl`.
        encoding: the encoding of the texts, if it is not the corpus' usual one.
        masking: how personal data is masked; adds the step 'mask' at the beginning unless `steps` has it.
        progress: called with the number of bytes read.
        options: options of the reader, as explained by `turnwise corpus list NAME`.

    Raises:
        CorpusError: if there is nothing to read, no dialogue is accepted, or, with `strict`, something is rejected.
    """
    path, out = Path(path), Path(out)
    if not path.exists():
        raise CorpusError(f"{path} does not exist")
    spec = get_reader(reader)
    try:
        codecs.lookup(encoding or spec.encoding)
    except LookupError:
        advice = "use a name that Python knows, such as utf-8 or latin-1"
        raise CorpusError(f"unknown encoding {encoding!r}: {advice}") from None
    if masking is not None and not any(_is_mask(step) for step in steps):
        steps = (MASK, *steps)
    cleaning = [(description, make_step(description, masking)) for description in steps]
    with StoreWriter(out) as writer:
        reasons: Counter[str] = Counter()

        def on_rejection(rejection: Rejection) -> None:
            if strict:
                where = rejection.file + (f", line {rejection.line}" if rejection.line else "")
                raise CorpusError(f"{where}: {rejection.reason} (strict: stopped here, {out} is unchanged)")
            writer.reject(rejection)
            reason = f"{rejection.kind}: {rejection.reason}"
            if len(reasons) < MAX_REASONS or reason in reasons:
                reasons[reason] += 1

        source = CorpusSource(path, spec.name, on_rejection, encoding or spec.encoding, excluded=out)
        if any(map(_is_mask, steps)):
            source.mask = Masker(masking).mask  # of every kind, whatever the step masks in texts
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        total = sum(file.stat().st_size for file in files)
        source.on_bytes = lambda done: progress(f"importing {spec.name}", done, total)
        dialogues = spec.read(source, **options)
        for _, step in cleaning:
            dialogues = filter(None, map(step, dialogues))
        for dialogue in dialogues:
            writer.write(dialogue)
        if not writer.counts.dialogues:
            reason = next(iter(reasons), "the input contains none")
            raise CorpusError(f"no dialogue of {path} was accepted ({reason}); {out} is unchanged")
        writer.commit(
            provenance(
                spec.name,
                options,
                asdict(source.counts),
                licence=spec.licence,
                home=spec.home,
                left_out={name: count for name, count in source.skipped.items() if count},
                reasons=dict(reasons.most_common()),
                facts=source.facts,
                steps=[{"step": description, "changes": dict(step.changes)} for description, step in cleaning],
                inputs=source.inputs,
            )
        )
    return Store(out)


def _is_mask(step: str) -> bool:
    return step.partition("=")[0] == MASK
