"""Templates: utterances with their slots' values taken out.

"wake me at seven" with the slot `time` is the template "wake me at {SLOT}" (TaDSE, section 5.1). A template is kept as the words
around its slots, never as a text with marks in it, so braces that a speaker wrote mean nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.corpus.intake import CorpusError
from turnwise.corpus.store import Corpus, Store
from turnwise.dialogue import Dialogue, Slot, Turn

#: What stands for a value, whatever its slot.
SLOT = "{SLOT}"


def slots_in_place(turn: Turn) -> tuple[Slot, ...]:
    """The slots that a template is made of, from left to right.

    Of slots that overlap, the longer one counts, of equally long ones the earlier, of those of one place the one that the turn
    lists first; the others are left out.
    """
    taken: list[Slot] = []
    for slot in sorted(turn.slots, key=lambda slot: (slot.start - slot.end, slot.start)):
        if all(slot.end <= other.start or other.end <= slot.start for other in taken):
            taken.append(slot)
    return tuple(sorted(taken, key=lambda slot: slot.start))


@dataclass(frozen=True, slots=True)
class Template:
    """An utterance without its slots' values.

    Attributes:
        words: what stands before, between and after the slots: one more than there are slots, each possibly empty.
        names: the slots' names, from left to right.
    """

    words: tuple[str, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.words) != len(self.names) + 1:
            raise ValueError(f"a template of {len(self.names)} slots has {len(self.names) + 1} pieces, not {len(self.words)}")

    @classmethod
    def of(cls, turn: Turn) -> "Template":
        """The template of a turn; of slots that overlap one counts, as `slots_in_place` says."""
        slots = slots_in_place(turn)
        starts = [0, *(slot.end for slot in slots)]
        ends = [*(slot.start for slot in slots), len(turn.text)]
        words = tuple(turn.text[start:end] for start, end in zip(starts, ends, strict=True))
        return cls(words, tuple(slot.name for slot in slots))

    def text(self, names: bool = False) -> str:
        """The template as a text: `{SLOT}` for every slot, or `{name}`."""
        marks = [f"{{{name}}}" for name in self.names] if names else [SLOT] * len(self.names)
        return self._joined(marks)

    def filled(self, values: Sequence[str]) -> tuple[str, tuple[Slot, ...]]:
        """The utterance with these values in the slots, from left to right, and the slots at their new places."""
        if len(values) != len(self.names):
            raise ValueError(f"a template of {len(self.names)} slots takes as many values, not {len(values)}")
        slots, end = [], 0
        for words, name, value in zip(self.words, self.names, values, strict=False):
            start = end + len(words)
            end = start + len(value)
            slots.append(Slot(name, value, start, end))
        return self._joined(values), tuple(slots)

    def _joined(self, between: Sequence[str]) -> str:
        return self.words[0] + "".join(piece for pair in zip(between, self.words[1:], strict=True) for piece in pair)


def template_of(turn: Turn, names: bool = False) -> str:
    """A turn's text with every slot's value replaced by `{SLOT}`, or by `{name}`.

    Of slots that overlap the longer one, then the earlier, is replaced; the others are left out.
    """
    return Template.of(turn).text(names)


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
    found = {name for batch in opened.batches(["split"]) for name in batch.column("split").unique().to_pylist() if name is not None}
    if not found:
        return Corpus([opened])
    if "train" not in found:
        raise CorpusError(f"{store} has the splits {', '.join(sorted(found))} but no train: say which to read, with --split")
    return Corpus([opened], ["train"])
