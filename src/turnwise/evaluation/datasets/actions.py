"""What the system does next: the acts of its turn, given what was said before it.

TOD-BERT, DSE and DiaEval take DSTC2 (19 acts) and GSIM (13) as TOD-BERT's authors converted them to a universal set of acts. The
files read here have the corpora's own labels: 11 act types of DSTC2, 7 of GSIM. (DSE's text exchanges the papers' two numbers.)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from turnwise.core.dialogue import SYSTEM, Dialogue, Turn
from turnwise.corpus.readers.convlab import read_dstc2, read_gsim_m2m
from turnwise.corpus.store import read_corpus
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE, SPLITS, STORE_FILES, dataset, strict


@dataclass(frozen=True, slots=True)
class ActionExample:
    """The turns so far, newest last, and what the system does next.

    Attributes:
        turns: one or more.
        actions: the types of the next turn's acts, in alphabetical order, each once.
        last: whether it is the last of its dialogue. DSE's test sets, 1,117 and 1,039 examples, are as large as those alone.
    """

    turns: tuple[Turn, ...]
    actions: tuple[str, ...]
    last: bool = False


@dataclass(frozen=True, slots=True)
class ActionData:
    """A data set of such examples, in the splits of its authors."""

    name: str
    licence: str
    train: tuple[ActionExample, ...]
    valid: tuple[ActionExample, ...]
    test: tuple[ActionExample, ...]

    @property
    def actions(self) -> list[str]:
        """The actions of all splits, in alphabetical order."""
        return sorted(
            {action for split in (self.train, self.valid, self.test) for example in split for action in example.actions}
        )


_Examples = tuple[ActionExample, ...]


def _examples(dialogues: Iterable[Dialogue]) -> list[_Examples]:
    """An example a system turn that has acts and something before it, split by split."""
    splits: dict[str | None, list[ActionExample]] = {split: [] for split in SPLITS}
    for dialogue in dialogues:
        turns = dialogue.turns
        places = [place for place, turn in enumerate(turns) if place and turn.speaker == SYSTEM and turn.acts]
        for place in places:
            # 'inform(food)' → 'inform': the slots would make hundreds of labels
            actions = tuple(sorted({act.partition("(")[0] for act in turns[place].acts}))
            splits[dialogue.split].append(ActionExample(turns[:place], actions, place == places[-1]))
    return [tuple(splits[split]) for split in SPLITS]


def _dstc2(folder: Path) -> list[_Examples]:
    return _examples(read_dstc2(strict(folder)))


def _gsim(folder: Path) -> list[_Examples]:
    return _examples(read_gsim_m2m(strict(folder), form="unified"))


def _sample(folder: Path) -> list[_Examples]:
    return _examples(read_corpus(folder))


#: By their plain names.
ACTION_DATASETS: dict[str, Dataset[ActionData]] = {
    known.name: known
    for known in (
        dataset(
            ActionData,
            "dstc2",
            "dstc2",
            ("DERIVED_system_acts.jsonl", "transcripts_ToDDAPT/data.json"),
            _dstc2,
            "GPL-3.0 and Apache-2.0 (sources)",
            "https://github.com/matthen/dstc",
            "c13c78fa64cd7bd46ae351faa034cdaf67aedaded25e380cfba81e2cf6c45f3f",
            "11 act types joined to the transcripts by utterance, against the papers' 19 universal acts; 63 of 22,266 system turns"
            " have none and are left out, and the opening turns are missing",
        ),
        dataset(
            ActionData,
            "gsim",
            "gsim_m2m/unified_ToDDAPT",
            ("data.json",),
            _gsim,
            "none stated ('as is')",
            "https://github.com/google-research-datasets/simulated-dialogue",
            "980374ca66269a7fe6052ee1a4c55f1949b2382d02ab43ca39c0f99ecf819496",
            "the 7 act types of its own annotation (sim-M and sim-R) against the papers' 13 universal acts",
        ),
        dataset(ActionData, "sample", ".", STORE_FILES, _sample, SAMPLE_LICENCE, SAMPLE_HOME),
    )
}
