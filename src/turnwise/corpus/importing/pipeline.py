"""Importing a corpus: a reader, cleaning steps, and a store."""

import codecs
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.files import spool
from turnwise.core.progress import Progress, silent
from turnwise.corpus.hygiene.edits import HolePolicy
from turnwise.corpus.hygiene.mask_step import MaskStep
from turnwise.corpus.hygiene.masking import Masker, Masking
from turnwise.corpus.hygiene.steps import MASK, is_mask, make_step, plan_steps
from turnwise.corpus.registry import Reader, get_reader
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import StoreWriter, provenance

MAX_REASONS = 50  # distinct rejection reasons that a manifest counts; `rejected.jsonl` has all of them

#: The parts of a reason that differ from row to row: quoted values and numbers.
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


SplitBy = Literal["conversation", "time"]

#: Messages that are read for a sample of a log that must be sorted.
SAMPLE_MESSAGES = 20_000


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How conversations are divided."""

    percentages: tuple[float, float, float]  # of training, validation and test data
    #: conversation: at random, by a hash of the id and the seed; time: the oldest conversations are training data.
    by: SplitBy = "conversation"
    seed: int = 0
    keep: bool = False  # whether conversations that have a split in the source keep it

    @classmethod
    def parse(cls, text: str, by: SplitBy = "conversation", seed: int = 0) -> "SplitPlan":
        """Return the plan for percentages such as '80/10/10'."""
        try:
            train, valid, test = map(float, text.split("/"))
        except ValueError:
            raise CorpusError(f"--split {text}: expected three percentages, as in 80/10/10") from None
        if min(train, valid, test) < 0 or not abs(train + valid + test - 100) <= 1e-6:  # NaN is refused too
            raise CorpusError(f"--split {text}: the percentages must be at least 0 and add up to 100")
        return cls((train, valid, test), by, seed)

    def split_of_id(self, conversation: str, own: str | None = None) -> str:
        """Return the split of a conversation, which does not depend on the other conversations."""
        if self.keep and own is not None:
            return own
        digest = hashlib.blake2b(f"{self.seed}/{conversation}".encode(), digest_size=8).digest()
        return self._split_at(int.from_bytes(digest) / (1 << 64))

    def splits_by_time(self, start_times: Mapping[str, float]) -> dict[str, str]:
        """Return the split of every conversation by the order in which they began; equal times stay together."""
        ordered = sorted(start_times.values())
        first_rank = {time: rank for rank, time in reversed(list(enumerate(ordered)))}
        return {name: self._split_at(first_rank[time] / len(ordered)) for name, time in start_times.items()}

    def _split_at(self, position: float) -> str:
        """Return the split that contains a position from 0 to 1."""
        train, valid, _ = self.percentages
        return ("train", "valid", "test")[(position >= train / 100) + (position >= (train + valid) / 100)]


def _check_input(reader: str, path: Path, encoding: str | None) -> Reader:
    """Return a reader by its name; raise a CorpusError if there is nothing to read, or no such encoding."""
    if not path.exists():
        raise CorpusError(f"{path} does not exist")
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            advice = "use a name that Python knows, such as utf-8 or latin-1"
            raise CorpusError(f"unknown encoding {encoding!r}: {advice}") from None
    return get_reader(reader)


def read_sample(
    reader: str,
    path: Path,
    count: int,
    *,
    encoding: str | None = None,
    scratch: Path | None = None,
    **options: Any,
) -> list[Dialogue]:
    """Return the first dialogues of a corpus as they are; rejections are ignored. `scratch` is for unpacked files."""
    spec = _check_input(reader, path, encoding)
    source = CorpusSource(
        path,
        spec.name,
        lambda rejection: None,
        holes=spec.holes,
        sample=SAMPLE_MESSAGES,
        encoding=encoding or spec.encoding,
        scratch=scratch,
    )
    return list(islice(spec.read(source, **options), count))


def import_corpus(
    reader: str,
    path: Path | str,
    out: Path | str,
    *,
    steps: Sequence[str] = (),
    strict: bool = False,
    encoding: str | None = None,
    masking: Masking | None = None,
    holes: HolePolicy | None = None,
    split_plan: SplitPlan | None = None,
    limit: int | None = None,
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
        encoding: the encoding of the texts; by default that of the corpus, and detected for logs.
        masking: how personal data is masked; adds the step 'mask' unless `steps` has it.
        holes: what becomes of the turns around one that cannot be read; by default logs are split there, and public
            corpora keep them together.
        split_plan: how dialogues are divided into training, validation and test data; None: as in the source.
        limit: the number of dialogues to import at most; None: all.
        progress: called with the number of bytes read.
        options: options of the reader, as explained by `turnwise corpus list NAME`.

    Raises:
        CorpusError: if there is nothing to read, no dialogue is accepted, or, with `strict`, something is rejected.
    """
    path, out = Path(path), Path(out)
    spec = _check_input(reader, path, encoding)
    if masking is not None and not any(is_mask(step) for step in steps):
        steps = (MASK, *steps)
    hole_policy = holes or spec.holes
    cleaning = [(description, make_step(description, masking, hole_policy)) for description in plan_steps(steps)]
    masker = Masker(masking) if any(map(is_mask, steps)) else None
    with StoreWriter(out) as writer:
        rejections = _Rejections(writer, out, strict)
        total = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
        by_time = split_plan is not None and split_plan.by == "time"
        source = CorpusSource(
            path,
            spec.name,
            rejections.add,
            # these mask every kind, whatever the step masks in texts
            mask=masker.mask_report if masker else str,
            mask_id=masker.mask_id if masker else str,
            holes=hole_policy,
            assign_split=None if split_plan is None or by_time else split_plan.split_of_id,
            start_times={} if by_time else None,
            encoding=encoding or spec.encoding,
            on_bytes=lambda done: progress(f"importing {spec.name}", done, total),
            excluded=out,
            scratch=out,
        )
        dialogues = spec.read(source, **options)
        if split_plan is not None and by_time:
            dialogues = _split_by_time(dialogues, source, split_plan)
        for _, step in cleaning:
            dialogues = step(dialogues)
        for dialogue in islice(dialogues, limit):
            writer.write(dialogue)
        if not writer.counts.dialogues:
            reason = next(iter(rejections.reasons), "the input contains none")
            raise CorpusError(f"no dialogue of {path} was accepted ({reason}); nothing was written")
        facts = dict(source.facts)
        if source.counts.split_dialogues:
            facts["dialogues split where a message is missing"] = source.counts.split_dialogues
        writer.commit(
            provenance(
                spec.name,
                options,
                {"dialogues": source.counts.dialogues, "utterances": source.counts.utterances},
                licence=spec.licence,
                home=spec.home,
                left_out=source.left_out,
                left_out_by_design=sorted(+source.by_design),
                reasons=rejections.reasons,
                lost={
                    "rows": source.counts.utterances - source.counts.accepted + rejections.unread,
                    "of": source.counts.utterances + rejections.unread,
                },
                holes=hole_policy,
                split=None if split_plan is None else asdict(split_plan),
                limit=limit,
                facts=facts,
                steps=[{"step": description, "changes": dict(step.changes)} for description, step in cleaning],
                masking=next((step.summary() for _, step in cleaning if isinstance(step, MaskStep)), None),
                inputs=source.inputs,
            )
        )
    return Store(out)


class _Rejections:
    """Writes rejections to the store and counts them by reason."""

    def __init__(self, writer: StoreWriter, out: Path, strict: bool):
        self._writer = writer
        self._out = out
        self._strict = strict
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self.unread = 0  # files and dialogues that were rejected before their utterances were read

    def add(self, rejection: Rejection) -> None:
        """Write a rejection; raise a CorpusError if the import is strict."""
        if self._strict:
            where = rejection.file + (f", line {rejection.line}" if rejection.line else "")
            raise CorpusError(f"{where}: {rejection.reason} (strict: stopped here, {self._out} is unchanged)")
        self._writer.reject(rejection)
        self.unread += rejection.kind in ("file", "dialogue")
        reason = f"{rejection.kind}: {rejection.reason}"
        group = _VALUES.sub("…", reason)
        if len(self._counts) < MAX_REASONS or group in self._counts:
            self._counts[group] += 1
            self._examples.setdefault(group, reason)

    @property
    def reasons(self) -> dict[str, int]:
        """The number of rejections by reason, most frequent first; numbers and quoted values make no difference."""
        return {self._examples[group]: count for group, count in self._counts.most_common()}


def _split_by_time(dialogues: Iterable[Dialogue], source: CorpusSource, plan: SplitPlan) -> Iterator[Dialogue]:
    """Yield the dialogues with splits by the times when they began."""
    spooled = spool(dialogues)
    splits = plan.splits_by_time(source.start_times or {})
    for dialogue in spooled:
        if dialogue.id not in splits:
            raise CorpusError(
                f"a split by time needs the time of every conversation, and {source.mask_id(dialogue.id)!r} has none:"
                " name the option that gives it (--set time=…), or use --split-by conversation"
            )
        yield replace(dialogue, split=splits[dialogue.id])
