"""Labelled utterances in their authors' splits: public sets, the sample world, and anybody's own as CSV files.

Sets that are corpora too are read by the corpora's readers. Where a data set marks slots, each utterance has them.
What a data set holds of out-of-scope utterances lies apart from its intents; `with_out_of_scope` makes an intent of it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.core.dialogue import USER, Slot, Turn
from turnwise.corpus.readers.annotations import require_text
from turnwise.corpus.registry import get_reader
from turnwise.corpus.slots.template import Template
from turnwise.corpus.source import CorpusSource
from turnwise.evaluation.datasets.dataset import Dataset, DatasetError
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE, SPLITS, dataset, strict
from turnwise.evaluation.datasets.slots import slots_of, template_pieces

OUT_OF_SCOPE = "out_of_scope"

#: Private data sets, a folder each, lie in this folder of a folder of data sets.
PRIVATE = "intents_csv"


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text and what it asks for.

    Attributes:
        text: what is said.
        intent: what it asks for.
        slots: the values in the text; None where the data set marks no slots.

    Raises:
        ValueError: if a slot is not where it says to be in the text.
    """

    text: str
    intent: str
    slots: tuple[Slot, ...] | None = None

    def __post_init__(self) -> None:
        if self.slots is not None:
            self._turn()

    @property
    def template(self) -> Template | None:
        """The text without its slots' values; None where the data set marks no slots."""
        return None if self.slots is None else Template.from_turn(self._turn())

    @property
    def input(self) -> str | tuple[Turn]:
        """What an encoder is given: the text, or where the data set marks slots, a turn that has them."""
        return self.text if self.slots is None else (self._turn(),)

    def _turn(self) -> Turn:
        return Turn(USER, self.text, slots=self.slots or ())


@dataclass(frozen=True, slots=True)
class OutOfScope:
    """Texts that ask for none of a data set's intents."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IntentData:
    """A data set of labelled utterances.

    Attributes:
        name: its plain name.
        licence: under which its authors give it.
        train: to learn from.
        valid: to choose by; empty where its authors have no such split.
        test: to measure on.
        out_of_scope: what asks for none of the intents, in the same splits; empty where there is nothing of the kind.
    """

    name: str
    licence: str
    train: tuple[Utterance, ...]
    valid: tuple[Utterance, ...]
    test: tuple[Utterance, ...]
    out_of_scope: OutOfScope = OutOfScope()

    @property
    def intents(self) -> list[str]:
        """The intents of all splits, in alphabetical order; ATIS has some that never occur in its training split."""
        return sorted({utterance.intent for split in (self.train, self.valid, self.test) for utterance in split})

    def with_out_of_scope(self) -> "IntentData":
        """The same data with 'out_of_scope' as one more intent, whose utterances end each split and have no slots."""

        def joined(split: tuple[Utterance, ...], texts: tuple[str, ...]) -> tuple[Utterance, ...]:
            return split + tuple(Utterance(text, OUT_OF_SCOPE) for text in texts)

        outside = self.out_of_scope
        return replace(
            self,
            train=joined(self.train, outside.train),
            valid=joined(self.valid, outside.valid),
            test=joined(self.test, outside.test),
            out_of_scope=OutOfScope(),
        )


def intent_datasets(data: Path | None = None) -> dict[str, Dataset[IntentData]]:
    """The intent data sets by name, whether or not they are there.

    Args:
        data: a folder of data sets; what only its contents can tell is added: `massive_LOCALE` for each further locale of MASSIVE,
            and a private data set NAME for each `intents_csv/NAME` with train.csv and test.csv (perhaps valid.csv), of which the
            columns text, intent and, if there is one, template (the text with `{name}` for each slot's value) are read.

    Raises:
        DatasetError: if a private data set has the name of a public one.
    """
    datasets = {known.name: known for known in _KNOWN}
    if data is None:
        return datasets
    datasets |= {locale.name: locale for locale in _massive_locales(data)}
    for private in _private(data):
        if private.name in datasets:
            raise DatasetError(f"{data / private.folder} has the name of a public data set: call it something else")
        datasets[private.name] = private
    return datasets


def load_intents(name: str, data: Path) -> IntentData:
    """Loads a data set by its plain name from a folder of data sets; 'sample': from a sample world's folder.

    Raises:
        DatasetError: if there is no such data set, it is not in that folder, or a line of it does not fit its layout.
    """
    datasets = intent_datasets(data)
    if name not in datasets:
        raise DatasetError(
            f"there is no intent data set {name!r} in {data}: choose from {', '.join(datasets)} "
            f"(a private one has its files in {data / PRIVATE / 'NAME'})"
        )
    return datasets[name].load(data)


_Split = list[Utterance]
_Read = Callable[[Path], list[_Split]]


def _assembled(name: str, licence: str, *splits: _Split) -> IntentData:
    """The training, validation and test split, their out-of-scope rows set apart."""
    train, valid, test = (tuple(row for row in split if row.intent != OUT_OF_SCOPE) for split in splits)
    for split, rows in (("train", train), ("test", test)):
        if not rows:
            raise ValueError(f"there is no utterance in its {split} split")
    outside = (tuple(row.text for row in split if row.intent == OUT_OF_SCOPE) for split in splits)
    return IntentData(name, licence, train, valid, test, OutOfScope(*outside))


# --- sets that are corpora


def _from_corpus(reader: str, folder: Path, **options: str) -> list[_Split]:
    return _read(reader, strict(folder), **options)


def _read(reader: str, intake: CorpusSource, **options: str) -> list[_Split]:
    splits: dict[str | None, _Split] = {split: [] for split in SPLITS}
    for dialogue in get_reader(reader).read(intake, **options):
        (turn,) = dialogue.turns
        if dialogue.split in splits:
            splits[dialogue.split].append(Utterance(turn.text, str(turn.intent), turn.slots))
    return [splits[split] for split in SPLITS]


def _clinc150(form: str, folder: Path) -> list[_Split]:
    intake = strict(folder)
    refuse = intake.on_rejection
    # the line is that of a whole list: the dialogue's id tells which of its utterances is meant
    intake.on_rejection = lambda rejection: refuse(
        replace(rejection, reason=": ".join(filter(None, (rejection.dialogue, rejection.reason))))
    )
    train, valid, test = (
        [Utterance(row.text, OUT_OF_SCOPE if row.intent == "oos" else row.intent) for row in split]
        for split in _read("clinc150", intake, form=form)
    )
    for split, rows in (("train", train), ("test", test)):
        # a figure that is to count them and does not is another figure
        if not any(row.intent == OUT_OF_SCOPE for row in rows):
            raise ValueError(f"there is no out-of-scope utterance in its {split} split")
    return [train, valid, test]


# --- sets that have a layout of their own


def _tables(label: str, files: Sequence[str], folder: Path) -> list[_Split]:
    """CSV files of the three splits; '' where there is none."""
    intake = strict(folder)
    return [list(_table(intake, folder / file, label)) if file else [] for file in files]


def _table(intake: CorpusSource, path: Path, label: str) -> Iterator[Utterance]:
    """A CSV file with the columns text and whatever the label is called, perhaps a template."""
    for line, row in intake.csv_rows(path):
        with intake.guard(path, line):
            text, intent = require_text(row, "text"), require_text(row, label)
            slots = slots_of(template_pieces(require_text(row, "template"), text), text) if "template" in row else None
            yield Utterance(text, intent, slots)


def _sample(folder: Path) -> list[_Split]:
    intake = strict(folder)
    return [list(_sample_rows(intake, folder / f"{split}.jsonl")) for split in SPLITS]


def _sample_rows(intake: CorpusSource, path: Path) -> Iterator[Utterance]:
    for line, record in intake.json_lines(path):
        with intake.guard(path, line):
            slots = tuple(Slot(**slot) for slot in record["slots"])
            yield Utterance(require_text(record, "text"), require_text(record, "intent"), slots)


def _snips_original(folder: Path) -> list[_Split]:
    train, test = (
        [row for intent in _SNIPS_INTENTS for row in _snips_original_rows(folder / pattern.format(intent), intent)]
        for pattern in (_SNIPS_TRAIN, _SNIPS_TEST)
    )
    return [train, [], test]


def _snips_original_rows(path: Path, intent: str) -> _Split:
    with _place(path, "the whole file"):
        # An emoji here is written as two surrogates of three bytes each, which UTF-8 forbids: they are put together.
        content = (
            path.read_bytes()
            .decode("utf-8-sig", "surrogatepass")
            .encode("utf-16-le", "surrogatepass")
            .decode("utf-16-le")
        )
        entries = json.loads(content)
        if not isinstance(entries, dict) or not isinstance(entries.get(intent), list):
            raise ValueError(f"a list of utterances is expected under {intent!r}")
    rows = []
    for number, entry in enumerate(entries[intent], 1):
        with _place(path, f"entry {number}"):
            if not isinstance(entry, dict) or not isinstance(entry.get("data"), list):
                raise ValueError("a record with 'data', the pieces of an utterance, is expected")
            pieces = [_snips_original_piece(part) for part in entry["data"]]
            text = "".join(words for words, _ in pieces).strip()
            rows.append(Utterance(text, intent, slots_of(pieces, text)))
    return rows


def _snips_original_piece(part: Any) -> tuple[str, str]:
    match part:
        case {"text": str(words), "entity": str(slot)} if slot:
            return words, slot
        case {"text": str(words)} if "entity" not in part:
            return words, ""
    raise ValueError(f"a piece has a 'text' and perhaps an 'entity', unlike {part!r}")


@contextmanager
def _place(path: Path, where: str) -> Iterator[None]:
    """Says of whatever does not fit in which file and where in it that is."""
    try:
        yield
    except ValueError as error:
        raise DatasetError(f"{path}, {where}: {error}") from None


# --- the data sets


_SNIPS_INTENTS = (
    "AddToPlaylist",
    "BookRestaurant",
    "GetWeather",
    "PlayMusic",
    "RateBook",
    "SearchCreativeWork",
    "SearchScreeningEvent",
)
_SNIPS_TRAIN = "2017-06-custom-intent-engines/{0}/train_{0}_full.json"
_SNIPS_TEST = "2017-06-custom-intent-engines/{0}/validate_{0}.json"

_MASSIVE = "massive_1.1"
_MASSIVE_DIGESTS = {
    "en-US": "8d336befdf0b23ce1972b9cb16f23b621871bc5fa35b77e74487f729fe0da7d7",
    "de-DE": "9658ff742fa902cec9b41c79dd880a3bd9cf0375ea0001a3eae05a8abae9c301",
    "ko-KR": "3bd5ffac187f16174980d6fb9a594040ceea5bb77654b32aaadbb3d34ef16a2e",
    "zh-CN": "b2d311c073e60494b758a4d585a9fe98953b2f7704185420bfa99d3ed48e9da0",
}


def _corpus_dataset(
    name: str, reader: str, folder: str, files: tuple[str, ...], digest: str, read: _Read | None = None
) -> Dataset[IntentData]:
    known = get_reader(reader)
    # what to cite where there is no licence is the corpus' affair
    licence = known.licence.partition(";")[0]
    return dataset(_assembled, name, folder, files, read or partial(_from_corpus, reader), licence, known.home, digest)


def _clinc150_dataset(form: str, digest: str) -> Dataset[IntentData]:
    name = "clinc150" if form == "full" else f"clinc150_{form}"
    return _corpus_dataset(
        name, "clinc150", "clinc150_oos", (f"data/data_{form}.json",), digest, partial(_clinc150, form)
    )


def _slot_gated_dataset(name: str, digest: str) -> Dataset[IntentData]:
    files = tuple(f"data/{name}/{split}/{file}" for split in SPLITS for file in ("seq.in", "seq.out", "label"))
    return _corpus_dataset(name, name, f"{name}_slotgated", files, digest)


def _massive_dataset(name: str, locale: str) -> Dataset[IntentData]:
    read = partial(_from_corpus, "massive", locale=locale)
    return _corpus_dataset(name, "massive", _MASSIVE, (f"**/{locale}.jsonl",), _MASSIVE_DIGESTS.get(locale, ""), read)


def _massive_locales(data: Path) -> list[Dataset[IntentData]]:
    """A data set for each locale that is there, but for en-US, which is MASSIVE itself."""
    found = {path.stem for path in (data / _MASSIVE).glob("**/*.jsonl") if re.fullmatch("[a-z]{2}-[A-Z]{2}", path.stem)}
    return [_massive_dataset(f"massive_{locale}", locale) for locale in sorted(found - {"en-US"})]


def _table_dataset(
    name: str, folder: str, label: str, files: tuple[str, str, str], licence: str, home: str, digest: str = ""
) -> Dataset[IntentData]:
    there = tuple(file for file in files if file)
    return dataset(_assembled, name, folder, there, partial(_tables, label, files), licence, home, digest)


def _private(data: Path) -> list[Dataset[IntentData]]:
    home = "whoever made it: a private data set needs train.csv and test.csv"
    return [
        _table_dataset(
            place.name,
            f"{PRIVATE}/{place.name}",
            "intent",
            ("train.csv", "valid.csv" if (place / "valid.csv").is_file() else "", "test.csv"),
            "",
            home,
        )
        for place in sorted(path for path in (data / PRIVATE).glob("*") if path.is_dir())
    ]


_KNOWN = (
    _clinc150_dataset("full", "1b53ceffddfc1102c620533c63bf7606f9620311539bea2b7b703a3301ddf827"),
    _clinc150_dataset("small", "f402f10801ee6c9ef1886b337cdf07da2d585b4bdc8954b70b6834548009ae5a"),
    _clinc150_dataset("imbalanced", "cf0d98a924f1cfc9f19ac03c1dfe0a3726c8576f0624a1a2f68f85b0e647a82e"),
    _clinc150_dataset("oos_plus", "25341b95fc092656bb06b47dca5c568b0a2a7e44500bfa00fdd03d710dbca189"),
    _table_dataset(
        "banking77",
        "banking77",
        "category",
        ("banking_data/train.csv", "", "banking_data/test.csv"),
        "CC BY 4.0",
        "https://github.com/PolyAI-LDN/task-specific-datasets",
        "d6d25d6f7d7c1873583554a5c6a43a6f08e5cb220c01f3bc1da25dca44105e42",
    ),
    _table_dataset(
        "hwu64",
        "hwu64",
        "category",
        ("dialoglue_csv/train.csv", "dialoglue_csv/val.csv", "dialoglue_csv/test.csv"),
        "CC BY 4.0",
        "https://github.com/alexa/dialoglue",
        "177738463a9c33ff2d60d13440d69b198d251e57c68c77a503314a93ae69304e",
    ),
    _corpus_dataset(
        "hwu64_kfold",
        "hwu64_kfold",
        "hwu64",
        ("xliuhw_NLU-Evaluation-Data/KFold_1/trainset/*.csv", "xliuhw_NLU-Evaluation-Data/KFold_1/testset/csv/*.csv"),
        "aec1438e5a4c9e73a21dbfd8d26479a295dd5e781bb1d16f83060da7a3afaa3f",
    ),
    _slot_gated_dataset("snips", "2258ef56cff65fdb6c1f52cc735b8fa348cbf4c9ef43c2c730f16698e2f3fc3a"),
    dataset(
        _assembled,
        "snips_original",
        "snips_original",
        tuple(pattern.format(intent) for pattern in (_SNIPS_TRAIN, _SNIPS_TEST) for intent in _SNIPS_INTENTS),
        _snips_original,
        "CC0",
        "https://github.com/sonos/nlu-benchmark",
        "5af706061e2ce5de69eab27b664c0bec581b4f19e864490a56d3b7ae44f68595",
    ),
    _slot_gated_dataset("atis", "7865c0f77ebffa8222ec8784afa954d7abb554397424a12ef1cf7ae5396788f4"),
    _massive_dataset("massive", "en-US"),
    dataset(
        _assembled,
        "sample",
        "intents",
        tuple(f"{split}.jsonl" for split in SPLITS),
        _sample,
        SAMPLE_LICENCE,
        SAMPLE_HOME,
    ),
)
