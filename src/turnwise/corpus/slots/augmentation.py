"""Augmentation by templates (TaDSE, section 5.1): every template said again with the most frequent values of its slots.

Everything is a stream, and no text is held: of each distinct template memory has a fingerprint and a count (some 50 bytes), of each
text that was given out a fingerprint (22 bytes at most). Values and templates with slots lie in temporary files.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import USER, Dialogue, Turn
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.corpus.fingerprints import FingerprintSet, text_fingerprint
from turnwise.corpus.slots.entity_book import EntityBook, need_slots
from turnwise.corpus.slots.template import Template
from turnwise.corpus.slots.templates import TemplateTable, TemplateUse, turns_of, view_for_templates
from turnwise.corpus.source import CorpusError
from turnwise.corpus.store import Store, StoreWriter, derived_manifest


@dataclass(frozen=True, slots=True)
class AugmentationStatistics:
    """What an augmentation did, as in TaDSE's Table 1.

    Attributes:
        slot_names: how many slots have values ('entities' in the paper).
        values: their distinct values.
        templates: distinct templates, utterances without slots among them.
        utterances: turns that were read.
        distinct_utterances: those left without duplicates.
        augmented_utterances: turns afterwards, originals among them.
    """

    slot_names: int
    values: int
    templates: int
    utterances: int
    distinct_utterances: int
    augmented_utterances: int

    def as_dict(self) -> dict[str, Any]:
        """The same for programs, with the mean number of utterances that a template has afterwards."""
        return asdict(self) | {"utterances_per_template": self.augmented_utterances / max(1, self.templates)}


def augment(
    corpus: Iterable[Dialogue],
    book: EntityBook,
    *,
    top: int,
    most: int = 100,
    seed: int = 1,
    speaker: str | None = USER,
) -> Iterator[Dialogue]:
    """The utterances of a corpus, then its templates filled anew; each is a dialogue of one turn, in split 'train'.

    A template is filled with every combination of the `top` most frequent values of its slots; where that makes more than `most`,
    with so many of them drawn at random, none twice. A template whose utterances have different intents is filled for each of
    them. Of utterances with the same text (case and surrounding space aside) and the same intent the first is given out.

    Ids are made of the number of the template (and intent) and either the number of the combination or, for utterances of the
    corpus, 'original' and which of the template's utterances it is. The corpus is read once; memory is as said above.

    Args:
        corpus: dialogues; only those that it gives are used, so a view of the training split keeps all else out.
        book: the values, of the same corpus.
        top: how many values a slot.
        most: combinations a template at most.
        seed: of the draw.
        speaker: whose turns; None: everyone's.
    """
    return _augmented(corpus, TemplateTable(), book, top, most, seed, speaker)


def _augmented(
    corpus: Iterable[Dialogue],
    table: TemplateTable,
    book: EntityBook,
    top: int,
    most: int,
    seed: int,
    speaker: str | None,
) -> Iterator[Dialogue]:
    """`augment`, which fills the table of templates on its way."""
    if top < 1 or most < 1:
        raise CorpusError(
            f"an augmentation needs a value a slot and a combination a template at least: top {top}, most {most}"
        )
    given = FingerprintSet()
    for dialogue, turn in turns_of(corpus, speaker):
        number, times = table.add(turn, dialogue.source)
        if _is_new(turn, given):
            yield Dialogue(f"{number:06d}-original-{times}", (turn,), dialogue.source, "train")
    values = {name: book.top(name, top) for name in book.counts}
    for template, intent, use in table.with_slots():
        yield from _filled(template, intent, use, [values.get(name, ()) for name in template.names], most, seed, given)


def _filled(
    template: Template,
    intent: str | None,
    use: TemplateUse,
    choices: Sequence[Sequence[str]],
    most: int,
    seed: int,
    given: FingerprintSet,
) -> Iterator[Dialogue]:
    # a generator a template: what is drawn for one does not hang on how many values the others have
    generator = random.Random(f"{seed}/{use.number}")
    for combination in combinations(math.prod(map(len, choices)), most, generator):
        text, slots = template.filled(chosen(combination, choices))
        turn = Turn(use.speaker, text, intent, (), slots)
        if _is_new(turn, given):
            yield Dialogue(f"{use.number:06d}-{combination}", (turn,), use.source, "train")


def combinations(total: int, most: int, generator: random.Random) -> Sequence[int]:
    """The numbers below `total`, or, where there are more than `most`, so many of them at random, in ascending order.

    Every set of numbers is as likely as any other. Nothing of size `total` is made, which may exceed any machine number (Floyd's
    method: a draw for each number that is taken).
    """
    if total <= most:
        return range(total)
    drawn: set[int] = set()
    for last in range(total - most, total):
        number = generator.randrange(last + 1)
        drawn.add(last if number in drawn else number)
    return sorted(drawn)


def chosen(combination: int, choices: Sequence[Sequence[str]]) -> list[str]:
    """The combination of that number: its digits in mixed radix pick one of each choice; the last choice changes fastest."""
    values = []
    for choice in reversed(choices):
        combination, digit = divmod(combination, len(choice))
        values.append(choice[digit])
    return values[::-1]


def _is_new(turn: Turn, given: FingerprintSet) -> bool:
    """Whether no turn of this text and intent was given out; notes it."""
    return given.add(text_fingerprint(f"{turn.intent!r}\0{normalise_text(turn.text)}"))


def write_augmented(
    store: Path | str,
    out: Path | str,
    *,
    top: int,
    most: int = 100,
    seed: int = 1,
    split: str | None = None,
    speaker: str | None = USER,
    progress: Progress = silent,
) -> tuple[Store, AugmentationStatistics]:
    """Augments a store into another, whose manifest says what it was made of and how.

    Args:
        store: the store to read.
        out: the store to write; one that is there is replaced when all is done.
        top: how many values a slot.
        most: combinations a template at most.
        seed: of the draw.
        split: what to read; None: 'train', or everything where the store has no splits.
        speaker: whose turns; None: everyone's.
        progress: told how many utterances were written.

    Raises:
        CorpusError: if there are no slots, or `out` is the store that is read.
    """
    store, out = Path(store), Path(out)
    corpus = view_for_templates(store, split)
    if out.exists() and out.samefile(store):
        raise CorpusError(f"{out} is the store that is augmented: choose another --out")
    progress("counting values", 0)
    book = EntityBook.of(corpus, speaker)
    need_slots(book, corpus, speaker)
    table = TemplateTable()
    originals = 0
    with StoreWriter(out) as writer:
        for dialogue in _augmented(corpus, table, book, top, most, seed, speaker):
            writer.write(dialogue)
            originals += "-original-" in dialogue.id
            if writer.counts.dialogues % 1000 == 0:
                progress("writing utterances", writer.counts.dialogues)
        statistics = AugmentationStatistics(
            len(book.counts), book.values, len(table), table.utterances, originals, writer.counts.utterances
        )
        options = {"top": top, "most": most, "seed": seed, "splits": corpus.splits, "speaker": speaker}
        read = {"dialogues": len(corpus), "utterances": table.utterances}
        writer.commit(derived_manifest(corpus.stores[0], "augment", options, read, statistics.as_dict()))
    return Store(out), statistics
