"""Intent data sets in their authors' splits: public sets, sample data, and private ones as CSV files or a store.

Sets that are corpora too are read by the corpora's readers. Where a data set marks slots, each example has them.
Out-of-scope utterances are kept apart from the intents; `IntentData.with_out_of_scope` makes an intent of them.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from turnwise.core.dialogue import OUT_OF_SCOPE, USER, Slot, Turn
from turnwise.core.errors import DatasetError
from turnwise.corpus.readers.shared.annotations import Pieces, slot_spans
from turnwise.corpus.readers.shared.fields import require_text
from turnwise.corpus.registry import get_reader
from turnwise.corpus.slots.templates import Template
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.storage.store import Store, is_store
from turnwise.evaluation.datasets.dataset import (
    SPLITS,
    Dataset,
    SplitData,
    dataset_descriptions,
    describe_dataset,
    known_datasets,
    open_strict,
    read_json_lines,
    store_dataset,
)

PRIVATE_FOLDER = "intents_csv"  # the folder of private data sets in a folder of data sets


@dataclass(frozen=True, slots=True)
class IntentUtterance:
    """A text and its intent."""

    text: str
    intent: str
    slots: tuple[Slot, ...] | None = None  # the values in the text; None where the data set marks no slots

    def __post_init__(self) -> None:
        if self.slots is not None:
            self._turn()  # checks the positions of the slots

    @property
    def template(self) -> Template | None:
        """Return the text without the values of its slots; None where the data set marks no slots."""
        return None if self.slots is None else Template.from_turn(self._turn())

    @property
    def input(self) -> str | tuple[Turn]:
        """Return the input of an encoder: the text, or where the data set marks slots, a turn that has them."""
        return self.text if self.slots is None else (self._turn(),)

    def _turn(self) -> Turn:
        return Turn(USER, self.text, slots=self.slots or ())


@dataclass(frozen=True, slots=True)
class OutOfScopeTexts:
    """Texts that have none of a data set's intents."""

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


@dataclass(frozen=True)
class IntentData(SplitData[IntentUtterance]):
    """An intent data set."""

    out_of_scope: OutOfScopeTexts = OutOfScopeTexts()

    @property
    def intents(self) -> list[str]:
        """Return the intents of all splits, sorted; ATIS has some that never occur in its training split."""
        return sorted({example.intent for example in self.examples})

    def with_out_of_scope(self) -> "IntentData":
        """Return the data with 'out_of_scope' as one more intent, whose examples end each split and have no slots."""
        train, valid, test = (
            getattr(self, split)
            + tuple(IntentUtterance(text, OUT_OF_SCOPE) for text in getattr(self.out_of_scope, split))
            for split in SPLITS
        )
        return IntentData(self.name, train, valid, test)


def intent_datasets(data: Path | None = None) -> dict[str, Dataset[IntentData]]:
    """Return the intent data sets by name, whether or not they are present.

    Args:
        data: a folder of data sets; what depends on its contents is added: `massive_LOCALE` for each further locale of
            MASSIVE, and a private data set NAME for each `intents_csv/NAME` with train.csv and test.csv (optionally
            valid.csv), with the columns text, intent and optionally template (the text with `{name}` for each slot's
            value). A store is a data set itself, by its folder's name, if user turns in it have intents.
    """
    datasets = dict(_KNOWN_DATASETS)
    if data is None:
        return datasets
    massive = dataset_descriptions()["intents"]["massive"]
    paths = (data / massive["folder"]).glob("**/*.jsonl")
    locales = {path.stem for path in paths if re.fullmatch("[a-z]{2}-[A-Z]{2}", path.stem)}
    for locale in sorted(locales - {"en-US"}):
        name, digest = f"massive_{locale}", massive["sha256_of_locales"].get(locale, "")
        description = {**massive, "files": [f"**/{locale}.jsonl"], "sha256": digest}
        read = partial(_read_corpus, "massive", locale=locale)
        datasets[name] = describe_dataset(name, description, _make_intent_data, read)
    datasets |= private_datasets(data)
    if has_store_intents(data):
        name = data.resolve().name
        differs = "it is made of the distinct user turns of a store that have an intent"
        datasets[name] = store_dataset(name, ("manifest.json", "dialogues-*.parquet"), _read_store, differs)
    return datasets


def private_datasets(data: Path) -> dict[str, Dataset[IntentData]]:
    """Return the private data sets in a folder of data sets, by name."""
    datasets = {}
    for folder in sorted(path for path in (data / PRIVATE_FOLDER).glob("*") if path.is_dir()):
        if folder.name in _KNOWN_DATASETS:
            raise DatasetError(f"{folder} has the name of a public data set: rename it")
        files = ("train.csv", "valid.csv" if (folder / "valid.csv").is_file() else "", "test.csv")
        datasets[folder.name] = Dataset(
            folder.name,
            f"{PRIVATE_FOLDER}/{folder.name}",
            tuple(filter(None, files)),
            partial(_read_private, files=files),
            "",
            "whoever made it: a private data set needs train.csv and test.csv",
        )
    return datasets


def _read_private(folder: Path, files: Sequence[str]) -> IntentData:
    return _make_intent_data(folder.name, *_read_csv("intent", files, folder))


def out_of_scope_datasets(data: Path | None = None) -> dict[str, Dataset[IntentData]]:
    """Return the intent data sets that have out-of-scope utterances."""
    datasets = intent_datasets(data).items()
    return {name: dataset for name, dataset in datasets if name == "sample" or name.startswith("clinc150")}


def load_intents(name: str, data: Path) -> IntentData:
    """Load a data set by name from a folder of data sets; 'sample': from a folder of sample data."""
    datasets = intent_datasets(data)
    if name not in datasets:
        raise DatasetError(
            f"there is no intent data set {name!r} in {data}: choose from {', '.join(datasets)} "
            f"(a private one has its files in {data / PRIVATE_FOLDER / 'NAME'})"
        )
    return datasets[name].load(data)


_Split = list[IntentUtterance]


def _make_intent_data(name: str, *splits: _Split) -> IntentData:
    """Return the data set with its out-of-scope rows set apart; raises ValueError without training or test rows."""
    data = _set_apart(name, *splits)
    for split in ("train", "test"):
        if not getattr(data, split):
            raise ValueError(f"there is no utterance in its {split} split")
    return data


def _set_apart(name: str, *splits: _Split) -> IntentData:
    train, valid, test = (tuple(row for row in split if row.intent != OUT_OF_SCOPE) for split in splits)
    out_of_scope = (tuple(row.text for row in split if row.intent == OUT_OF_SCOPE) for split in splits)
    return IntentData(name, train, valid, test, OutOfScopeTexts(*out_of_scope))


def parse_slots(pieces: Pieces, text: str) -> tuple[Slot, ...]:
    """Return the slots of a text, given in pieces; raises ValueError for other words, or a slot without a value."""
    return tuple(Slot.from_text(text, name, start, end) for name, start, end in slot_spans(pieces, text))


def template_pieces(template: str, text: str) -> Pieces:
    """Split a text into pieces, by a template that has `{name}` in place of each slot's value.

    The words around the slots must be the same in text and template, except for white space at both ends. From left to
    right, a value is as short as possible, but never blank. A template that equals the text has no slots, whatever
    braces are in it.

    Raises:
        ValueError: if no values turn the template into the text.
    """
    pattern, stripped = template.strip(), text.strip()
    if pattern == stripped:
        return [(stripped, "")]
    words, *rest = re.split(r"\{([^{}]+)\}", pattern)
    names, following = rest[::2], rest[1::2]
    if not stripped.startswith(words) or not names:
        raise ValueError(f"the template {template!r} has other words than the text {text!r}")
    pieces, end = [(words, "")], len(words)
    for number, (name, words) in enumerate(zip(names, following, strict=True), 1):
        # a value has at least one character that is not white space
        least = len(stripped) - len(stripped[end:].lstrip()) + 1
        start = stripped.find(words, least) if number < len(names) else len(stripped) - len(words)
        if start < least or not stripped.startswith(words, start):
            raise ValueError(
                f"the text {text!r} has no value for {{{name}}}, followed by {words!r}, of the template {template!r}"
            )
        pieces += [(stripped[end:start], name), (words, "")]
        end = start + len(words)
    return pieces


def _read_corpus(reader: str, folder: Path, source: CorpusSource | None = None, **options: str) -> list[_Split]:
    """Read a data set with the reader of a corpus."""
    splits: dict[str | None, _Split] = {split: [] for split in SPLITS}
    for dialogue in get_reader(reader).read(source or open_strict(folder), **options):
        (turn,) = dialogue.turns
        if dialogue.split in splits:
            splits[dialogue.split].append(IntentUtterance(turn.text, str(turn.intent), turn.slots))
    return [splits[split] for split in SPLITS]


def _read_clinc150(form: str, folder: Path) -> list[_Split]:
    source = open_strict(folder)

    def refuse(rejection: Rejection) -> None:
        # the line is that of a whole list: the dialogue's id says which of its utterances is meant
        source.on_rejection(replace(rejection, reason=": ".join(filter(None, (rejection.dialogue, rejection.reason)))))

    splits = [
        [IntentUtterance(row.text, OUT_OF_SCOPE if row.intent == "oos" else row.intent) for row in split]
        for split in _read_corpus("clinc150", folder, replace(source, on_rejection=refuse), form=form)
    ]
    for name, rows in zip(SPLITS, splits, strict=True):
        if name != "valid" and not any(row.intent == OUT_OF_SCOPE for row in rows):
            raise ValueError(f"there is no out-of-scope utterance in its {name} split")
    return splits


def _read_csv(label: str, files: Sequence[str], folder: Path) -> list[_Split]:
    """Read CSV files with the columns text, label and optionally template; '' for a split without a file."""
    source = open_strict(folder)

    def read(path: Path) -> Iterator[IntentUtterance]:
        for line, row in source.csv_rows(path):
            with source.guard(path, line):
                text, intent = require_text(row, "text"), require_text(row, label)
                pieces = template_pieces(require_text(row, "template"), text) if "template" in row else None
                yield IntentUtterance(text, intent, None if pieces is None else parse_slots(pieces, text))

    return [list(read(folder / file)) if file else [] for file in files]


def _read_sample(folder: Path) -> list[_Split]:
    def example(record: Any) -> IntentUtterance:
        slots = tuple(Slot(**slot) for slot in record["slots"])
        return IntentUtterance(require_text(record, "text"), require_text(record, "intent"), slots)

    return [list(read_json_lines(folder, f"{split}.jsonl", example)) for split in SPLITS]


def _read_snips_original(folder: Path) -> list[_Split]:
    train, test = (
        [
            row
            for path in (folder / file for file in dataset_descriptions()["intents"]["snips_original"]["files"])
            if path.name.startswith(prefix)
            for row in _read_snips_file(path, path.parent.name)
        ]
        for prefix in ("train_", "validate_")
    )
    return [train, [], test]


def _read_snips_file(path: Path, intent: str) -> _Split:
    with _located(path, "the whole file"):
        # emoji are written as two surrogates of three bytes each, which UTF-8 forbids: join them
        content = path.read_bytes().decode("utf-8-sig", "surrogatepass")
        entries = json.loads(content.encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
        if not isinstance(entries, dict) or not isinstance(entries.get(intent), list):
            raise ValueError(f"a list of utterances is expected under {intent!r}")
    rows = []
    for number, entry in enumerate(entries[intent], 1):
        with _located(path, f"entry {number}"):
            if not isinstance(entry, dict) or not isinstance(entry.get("data"), list):
                raise ValueError("a record with 'data', the pieces of an utterance, is expected")
            pieces = []
            for part in entry["data"]:
                match part:
                    case {"text": str(words), "entity": str(slot)} if slot:
                        pieces.append((words, slot))
                    case {"text": str(words)} if "entity" not in part:
                        pieces.append((words, ""))
                    case _:
                        raise ValueError(f"a piece has a 'text' and optionally an 'entity', unlike {part!r}")
            text = "".join(words for words, _ in pieces).strip()
            rows.append(IntentUtterance(text, intent, parse_slots(pieces, text)))
    return rows


@contextmanager
def _located(path: Path, where: str) -> Iterator[None]:
    """Add file and position to the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise DatasetError(f"{path}, {where}: {error}") from None


def has_store_intents(data: Path) -> bool:
    """Return whether a folder is a store whose user turns have intents, and not that of sample data."""
    if not is_store(data) or _KNOWN_DATASETS["sample"].is_present(data):
        return False
    for batch in Store(data).batches(["speakers", "intents"]):
        speakers, intents = (batch.column(name).flatten() for name in ("speakers", "intents"))
        if pc.any(pc.and_(pc.equal(speakers.dictionary_decode(), USER), intents.is_valid())).as_py():
            return True
    return False


def store_intents(data: Path) -> IntentData:
    """Return the distinct user turns of a store that have an intent, by split; other splits are left out."""
    splits: dict[str | None, dict[IntentUtterance, None]] = {split: {} for split in SPLITS}
    for dialogue in Store(data):
        if dialogue.split in splits:
            for turn in dialogue.turns:
                if turn.speaker == USER and turn.intent is not None:
                    splits[dialogue.split][IntentUtterance(turn.text, turn.intent)] = None
    return _set_apart(data.resolve().name, *(list(splits[split]) for split in SPLITS))


def _read_store(folder: Path) -> IntentData:
    data = store_intents(folder)
    for split in ("train", "test"):
        if not getattr(data, split):
            raise DatasetError(
                f"{folder} has no user turn with an intent in split {split!r}: intents need the splits train and test"
            )
    return data


_READERS: dict[str, Callable[[Path], list[_Split]]] = {
    "clinc150": partial(_read_clinc150, "full"),
    "clinc150_small": partial(_read_clinc150, "small"),
    "clinc150_imbalanced": partial(_read_clinc150, "imbalanced"),
    "clinc150_oos_plus": partial(_read_clinc150, "oos_plus"),
    "banking77": partial(_read_csv, "category", ("banking_data/train.csv", "", "banking_data/test.csv")),
    "hwu64": partial(_read_csv, "category", tuple(f"dialoglue_csv/{split}.csv" for split in ("train", "val", "test"))),
    "hwu64_kfold": partial(_read_corpus, "hwu64_kfold"),
    "snips": partial(_read_corpus, "snips"),
    "snips_original": _read_snips_original,
    "atis": partial(_read_corpus, "atis"),
    "massive": partial(_read_corpus, "massive", locale="en-US"),
    "sample": _read_sample,
}


_KNOWN_DATASETS = known_datasets("intents", _make_intent_data, _READERS)
