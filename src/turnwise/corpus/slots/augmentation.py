"""Augmentation by templates (TaDSE, section 5.1): each is filled with the most frequent values of its slots."""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from turnwise.core.dialogue import USER, Dialogue, Turn
from turnwise.core.errors import CorpusError
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.corpus.slots.templates import EntityBook, TemplateTable, iterate_turns, open_training_split, require_slots
from turnwise.corpus.storage.fingerprints import FingerprintIndex, text_fingerprint
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import StoreWriter, derived_provenance, open_for_copy


def augment(
    corpus: Iterable[Dialogue],
    book: EntityBook,
    *,
    top: int,
    max_per_template: int = 100,
    seed: int = 1,
    speaker: str | None = USER,
    table: TemplateTable | None = None,
) -> Iterator[Dialogue]:
    """Yield the utterances of a corpus, then its filled templates, each as a dialogue of one turn in split 'train'.

    A template is filled with every combination of the `top` most frequent values of its slots, or with a random sample
    of `max_per_template` of them, once for each of its intents. Of utterances with the same text (ignoring case and
    surrounding space) and intent the first is kept. Ids consist of the number of the template and intent, and either
    the number of the combination or, for utterances of the corpus, 'original' and their number in the template.

    The corpus is read once, and should be the training split that the book was made of; `table` collects its templates.
    """
    if top < 1 or max_per_template < 1:
        raise CorpusError(f"top and max_per_template must be at least 1, got {top} and {max_per_template}")
    table = TemplateTable() if table is None else table
    written = FingerprintIndex()

    def is_new(turn: Turn) -> bool:
        return written.add(text_fingerprint(f"{turn.intent!r}\0{normalise_text(turn.text)}"))

    for dialogue, turn in iterate_turns(corpus, speaker):
        number, times = table.add(turn, dialogue.source)
        if is_new(turn):
            yield Dialogue(f"{number:06d}-original-{times}", (turn,), dialogue.source, "train")
    values = {name: [value for value, _ in book.most_common(name, top)] for name in book.counts}
    for use in table.with_slots():
        choices = [values.get(name, ()) for name in use.template.names]
        # one generator per template: its sample does not depend on the values of other templates
        generator = random.Random(f"{seed}/{use.number}")
        for combination in sample_combinations(math.prod(map(len, choices)), max_per_template, generator):
            text, slots = use.template.fill(pick_values(combination, choices))
            turn = Turn(use.speaker, text, use.intent, (), slots)
            if is_new(turn):
                yield Dialogue(f"{use.number:06d}-{combination}", (turn,), use.source, "train")


def sample_combinations(total: int, limit: int, generator: random.Random) -> Sequence[int]:
    """Return the numbers below `total`, or a uniform sample of `limit` of them, ascending, by Floyd's algorithm."""
    if total <= limit:
        return range(total)
    sample: set[int] = set()
    for last in range(total - limit, total):
        number = generator.randrange(last + 1)
        sample.add(last if number in sample else number)
    return sorted(sample)


def pick_values(combination: int, choices: Sequence[Sequence[str]]) -> list[str]:
    """Return the combination of that number: its mixed-radix digits pick from each choice; the last changes fastest."""
    values = []
    for choice in reversed(choices):
        combination, digit = divmod(combination, len(choice))
        values.append(choice[digit])
    return values[::-1]


def augment_store(
    store: Path | str,
    out: Path | str,
    *,
    top: int,
    max_per_template: int = 100,
    seed: int = 1,
    split: str | None = None,
    speaker: str | None = USER,
    progress: Progress = silent,
) -> Store:
    """Augment a split of a store into another one; the manifest's facts are the statistics of TaDSE's Table 1."""
    opened = open_for_copy(store, out)
    corpus = open_training_split(store, split)
    progress("counting values", 0)
    book = EntityBook.from_corpus(corpus, speaker)
    require_slots(book, corpus, speaker)
    table = TemplateTable()
    originals = 0
    with StoreWriter(Path(out)) as writer:
        for dialogue in augment(
            corpus, book, top=top, max_per_template=max_per_template, seed=seed, speaker=speaker, table=table
        ):
            writer.write(dialogue)
            originals += "-original-" in dialogue.id
            if writer.counts.dialogues % 1000 == 0:
                progress("writing utterances", writer.counts.dialogues)
        facts = {
            "slot_names": len(book.counts),
            "values": book.distinct_values,
            "templates": len(table),
            "utterances": table.utterances,
            "distinct_utterances": originals,
            "augmented_utterances": writer.counts.utterances,
            "utterances_per_template": writer.counts.utterances / max(1, len(table)),
        }
        read = {"dialogues": len(corpus), "utterances": table.utterances}
        options = {"top": top, "most": max_per_template, "seed": seed, "splits": corpus.splits, "speaker": speaker}
        return writer.commit(derived_provenance(opened, "augment", options, read, facts))
