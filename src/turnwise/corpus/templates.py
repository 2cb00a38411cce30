"""The templates of a corpus: which there are, and how often each is said."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from turnwise.corpus.intake import CorpusError
from turnwise.corpus.store import Corpus, Store
from turnwise.dialogue import Dialogue, Turn
from turnwise.template import Template


def turns_of(corpus: Iterable[Dialogue], speaker: str | None) -> Iterator[tuple[Dialogue, Turn]]:
    """Every turn of one speaker (None: of all), with its dialogue."""
    for dialogue in corpus:
        for turn in dialogue.turns:
            if speaker is None or turn.speaker == speaker:
                yield dialogue, turn


@dataclass(slots=True)
class TemplateUse:
    """Where a template is used with one intent.

    Attributes:
        number: of the template and intent, from 0 in the order in which they first appear.
        speaker: who says it first.
        source: of the dialogue where it is first said.
        utterances: how often it is said.
    """

    number: int
    speaker: str
    source: str | None
    utterances: int = 0


class TemplateTable:
    """The distinct templates of a corpus; one that is said with several intents is listed once for each.

    Utterances without slots are templates too. Memory grows with the distinct templates alone, about half a kilobyte each.

    Attributes:
        uses: by template and intent, in the order in which they first appear.
        utterances: how many turns were added.
    """

    def __init__(self) -> None:
        self.uses: dict[tuple[Template, str | None], TemplateUse] = {}
        self.utterances = 0

    @classmethod
    def of(cls, corpus: Iterable[Dialogue], speaker: str | None = None) -> "TemplateTable":
        """The templates of the turns of a speaker (None: of all), in one pass."""
        table = cls()
        for dialogue, turn in turns_of(corpus, speaker):
            table.add(turn, dialogue.source)
        return table

    def add(self, turn: Turn, source: str | None) -> TemplateUse:
        """Counts a turn, and says which template it has."""
        use = self.uses.setdefault((Template.of(turn), turn.intent), TemplateUse(len(self.uses), turn.speaker, source))
        use.utterances += 1
        self.utterances += 1
        return use

    def __len__(self) -> int:
        """How many different templates there are, whatever their intents."""
        return len({template for template, _ in self.uses})

    def common(self, k: int) -> list[tuple[Template, int]]:
        """The `k` templates with slots that are said most often, and how often; equal counts in alphabetical order."""
        counts: Counter[Template] = Counter()
        for (template, _), use in self.uses.items():
            if template.names:
                counts[template] += use.utterances
        return sorted(counts.items(), key=lambda item: (-item[1], item[0].text(names=True)))[:k]


def view_for_templates(store: Path | str, split: str | None = None) -> Corpus:
    """The part of a store that templates and values are taken from.

    Args:
        store: the store's folder.
        split: the split to read; None: 'train', or everything where no dialogue of the store has a split.

    Raises:
        CorpusError: if no dialogue is in that split, or none was named and there are splits but no 'train': a test split is never
            taken unasked.
    """
    opened = Store(store)
    if split is not None:
        return Corpus([opened], [split])
    found = _splits(opened)
    if not found:
        return Corpus([opened])
    if "train" not in found:
        raise CorpusError(f"{store} has the splits {', '.join(sorted(found))} but no train: say which to read, with --split")
    return Corpus([opened], ["train"])


def expect_named_splits(corpus: Corpus) -> None:
    """Refuses a corpus whose templates would be learnt from other splits than 'train' without anybody having asked for that.

    Raises:
        CorpusError: if no splits were named and a store has others than 'train'.
    """
    for store in corpus.stores if corpus.splits is None else ():
        if others := sorted(_splits(store) - {"train"}):
            raise CorpusError(
                f"{store.folder} has the split {others[0]}, whose templates would be learnt: say what to read (--split train)"
            )


def _splits(store: Store) -> set[str]:
    """The splits that a store's dialogues are in."""
    return {name for batch in store.batches(["split"]) for name in batch.column("split").unique().to_pylist() if name is not None}
