"""Labelled utterances in their authors' splits: public sets, the sample world, and anybody's own as CSV files.

Where a data set marks slots, each utterance has its template: the text with every slot value replaced by the slot's name in braces.
What a data set holds of out-of-scope utterances lies apart from its intents; `with_out_of_scope` makes an intent of it.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from turnwise.corpus.readers.slot_marks import marked_pieces, tagged_pieces
from turnwise.evaluation.datasets.dataset import Dataset, DatasetError
from turnwise.evaluation.datasets.reading import SAMPLE_HOME, SAMPLE_LICENCE
from turnwise.evaluation.datasets.templates import template

OUT_OF_SCOPE = "out_of_scope"

#: Private data sets, a folder each, lie in this folder of a folder of data sets.
PRIVATE = "intents_csv"

#: Why a paper's figure on a data set is not like for like with ours: paper → data set → what differs.
SPLIT_REMARKS: dict[str, dict[str, str]] = {
    "dse": {
        "hwu64": (
            "DSE tests on 3,853 utterances, the last 15% of each intent in the full annotation, which cannot be rebuilt from the "
            "public splits; ours is DialoGLUE's test split of 1,076"
        ),
        "snips": (
            "DSE tests on 1,447 utterances, the last 10% of each intent after pooling the published splits; ours is the usual test "
            "split of 700"
        ),
    },
    "tadse": {
        "hwu64": (
            "TaDSE's test split has the same size, but its table of training data counts 19.2K utterances; DialoGLUE's training "
            "split has 8,954"
        ),
        "hwu64_kfold": (
            "TaDSE's test split has the same size, but its table of training data counts 19.2K utterances; fold 1 has 9,960 to "
            "train on"
        ),
        "clinc150": (
            "TaDSE's table of training data counts 15.3K utterances, as clinc150_oos_plus has with its 250 out-of-scope ones "
            "(15,250); clinc150 has 15,100"
        ),
    },
}


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text and what it asks for.

    Attributes:
        text: what is said.
        intent: what it asks for.
        template: the text with each slot value replaced by the slot's name in braces, and so the text itself where there is no
            slot in it; None where the data set marks no slots.
    """

    text: str
    intent: str
    template: str | None = None


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
        """The same data with 'out_of_scope' as one more intent, whose utterances end each split and have no template."""

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
            columns text, intent and, if there is one, template are read.

    Raises:
        DatasetError: if a private data set has the name of a public one.
    """
    datasets = {dataset.name: dataset for dataset in _KNOWN}
    if data is None:
        return datasets
    datasets |= {dataset.name: dataset for dataset in _massive_locales(data)}
    for dataset in _private(data):
        if dataset.name in datasets:
            raise DatasetError(f"{data / dataset.folder} has the name of a public data set: call it something else")
        datasets[dataset.name] = dataset
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


_Splits = dict[str, list[Utterance]]


def _dataset(
    name: str,
    folder: str,
    files: tuple[str, ...],
    read: Callable[[Path], _Splits],
    licence: str,
    home: str,
    digest: str = "",
) -> Dataset[IntentData]:
    return Dataset(name, folder, files, lambda place: _assembled(name, licence, read(place)), licence, home, digest)


def _assembled(name: str, licence: str, splits: _Splits) -> IntentData:
    """Sets the out-of-scope rows of each split apart."""
    inside = {split: tuple(row for row in rows if row.intent != OUT_OF_SCOPE) for split, rows in splits.items()}
    outside = {split: tuple(row.text for row in rows if row.intent == OUT_OF_SCOPE) for split, rows in splits.items()}
    for split in ("train", "test"):
        if not inside[split]:
            raise ValueError(f"there is no utterance in its {split} split")
    return IntentData(name, licence, inside["train"], inside.get("valid", ()), inside["test"], OutOfScope(**outside))


# --- files and their lines


@contextmanager
def _place(path: Path, where: str) -> Iterator[None]:
    """Says of whatever does not fit in which file and where in it that is."""
    try:
        yield
    except (ValueError, csv.Error) as error:
        raise DatasetError(f"{path}, {where}: {error}") from None


def _content(path: Path, errors: str = "strict") -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DatasetError(f"{path}, line {line}: the file is not in UTF-8 ({error.reason})") from None


def _lines(path: Path) -> list[str]:
    return _content(path).removesuffix("\n").split("\n")


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """The values of a file of JSON lines, each with the place where it stands."""
    for number, line in enumerate(_lines(path), 1):
        where = f"line {number}"
        with _place(path, where):
            record = json.loads(line)
        yield where, record


def _rows(path: Path, *columns: str, delimiter: str = ",") -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file with a header, each with the place where it ends."""
    reader = csv.reader(io.StringIO(_content(path), newline=""), delimiter=delimiter, strict=True)
    with _place(path, "line 1"):
        header = next(reader, [])
        for column in columns:
            if column not in header:
                raise ValueError(f"there is no column {column!r} among the columns {', '.join(header) or '(none)'}")
    while True:
        with _place(path, f"line {reader.line_num + 1}"):
            row = next(reader, None)
        if row is None:
            return
        where = f"line {reader.line_num}"
        with _place(path, where):
            if len(row) != len(header):
                raise ValueError(f"{len(header)} fields are expected, {len(row)} are there")
        yield where, dict(zip(header, row, strict=True))


def _string(record: Any, key: str) -> str:
    value = record.get(key) if isinstance(record, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"a record with a non-empty text as {key!r} is expected")
    return value


# --- layouts


def _clinc150(file: str, folder: Path) -> _Splits:
    path = folder / file
    with _place(path, "the whole file"):
        content = json.loads(_content(path))
    splits: _Splits = {}
    for split, key in (("train", "train"), ("valid", "val"), ("test", "test")):
        splits[split] = _clinc150_rows(path, content, key) + [
            Utterance(row.text, OUT_OF_SCOPE) for row in _clinc150_rows(path, content, f"oos_{key}", only="oos")
        ]
    return splits


def _clinc150_rows(path: Path, content: Any, key: str, only: str = "") -> list[Utterance]:
    """The pairs of text and label under a key, which are all to have the one label if there is one to have."""
    with _place(path, f"key {key!r}"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise ValueError("a list of utterances is expected here")
    rows = []
    for number, row in enumerate(content[key], 1):
        with _place(path, f"key {key!r}, entry {number}"):
            match row:
                case [str(text), str(label)] if text.strip() and label and (label == only or not only):
                    rows.append(Utterance(text, label))
                case _:
                    raise ValueError(f"[text, {only or 'label'}] is expected, not {row!r}")
    return rows


def _text_and_label(path: Path, label: str) -> list[Utterance]:
    """A CSV file with the columns text and whatever the label is called, perhaps a template."""
    rows = []
    for where, row in _rows(path, "text", label):
        with _place(path, where):
            template = _string(row, "template") if "template" in row else None
            rows.append(Utterance(_string(row, "text"), _string(row, label), template))
    return rows


def _banking77(folder: Path) -> _Splits:
    return {split: _text_and_label(folder / "banking_data" / f"{split}.csv", "category") for split in ("train", "test")}


def _hwu64(folder: Path) -> _Splits:
    files = {"train": "train", "valid": "val", "test": "test"}
    return {split: _text_and_label(folder / "dialoglue_csv" / f"{file}.csv", "category") for split, file in files.items()}


def _hwu64_fold(folder: Path) -> _Splits:
    files = {"train": _HWU64_FOLD_TRAIN, "test": _HWU64_FOLD_TEST}
    return {
        split: [row for path in sorted(folder.glob(pattern)) for row in _hwu64_fold_rows(path)] for split, pattern in files.items()
    }


def _hwu64_fold_rows(path: Path) -> list[Utterance]:
    """With the text that the annotators saw; what users typed differs from it in numbers, case and punctuation."""
    columns = ("scenario", "intent", "answer_annotation", "answer_from_anno")
    rows = []
    for where, row in _rows(path, *columns, delimiter=";"):
        with _place(path, where):
            scenario, intent, annotation, text = (_string(row, column) for column in columns)
            rows.append(Utterance(text, f"{scenario}_{intent}", template(marked_pieces(annotation), text)))
    return rows


def _slot_gated(name: str, folder: Path) -> _Splits:
    return {split: _slot_gated_rows(folder / "data" / name / split) for split in ("train", "valid", "test")}


def _slot_gated_rows(folder: Path) -> list[Utterance]:
    texts, tags, labels = (_lines(folder / file) for file in ("seq.in", "seq.out", "label"))
    if not len(texts) == len(tags) == len(labels):
        raise DatasetError(
            f"{folder}: seq.in, seq.out and label have {len(texts)}, {len(tags)} and {len(labels)} lines, not equally many"
        )
    rows = []
    for number, (line, tagged, label) in enumerate(zip(texts, tags, labels, strict=True), 1):
        text, intent = line.strip(), label.strip()
        with _place(folder / "seq.in", f"line {number}"):
            if not text or not intent:
                raise ValueError("an utterance and, in the same line of label, its intent are expected")
            rows.append(Utterance(text, intent, template(tagged_pieces(text.split(), tagged.split()), text)))
    return rows


def _snips_original(folder: Path) -> _Splits:
    files = {"train": _SNIPS_TRAIN, "test": _SNIPS_TEST}
    return {
        split: [row for intent in _SNIPS_INTENTS for row in _snips_original_rows(folder / pattern.format(intent), intent)]
        for split, pattern in files.items()
    }


def _snips_original_rows(path: Path, intent: str) -> list[Utterance]:
    with _place(path, "the whole file"):
        # An emoji here is written as two surrogates of three bytes each, which UTF-8 forbids: they are put together.
        content = json.loads(_content(path, "surrogatepass").encode("utf-16-le", "surrogatepass").decode("utf-16-le"))
        if not isinstance(content, dict) or not isinstance(content.get(intent), list):
            raise ValueError(f"a list of utterances is expected under {intent!r}")
    rows = []
    for number, entry in enumerate(content[intent], 1):
        with _place(path, f"entry {number}"):
            if not isinstance(entry, dict) or not isinstance(entry.get("data"), list):
                raise ValueError("a record with 'data', the pieces of an utterance, is expected")
            pieces = [_snips_original_piece(part) for part in entry["data"]]
            text = "".join(words for words, _ in pieces).strip()
            if not text:
                raise ValueError("the utterance is empty")
            rows.append(Utterance(text, intent, template(pieces, text)))
    return rows


def _snips_original_piece(part: Any) -> tuple[str, str]:
    match part:
        case {"text": str(words), "entity": str(slot)} if slot:
            return words, slot
        case {"text": str(words)} if "entity" not in part:
            return words, ""
    raise ValueError(f"a piece has a 'text' and perhaps an 'entity', unlike {part!r}")


def _massive(locale: str, folder: Path) -> _Splits:
    path, *others = sorted(folder.glob(f"**/{locale}.jsonl"))
    if others:
        raise DatasetError(f"{path} and {others[0]} are both {locale}: leave one of them in {folder}")
    splits: dict[str, list[Utterance]] = {"train": [], "dev": [], "test": []}
    for where, record in _records(path):
        with _place(path, where):
            if _string(record, "locale") != locale:
                raise ValueError(f"the locale is {record['locale']!r}")
            if _string(record, "partition") not in splits:
                raise ValueError(f"the partition {record['partition']!r} is none of {', '.join(splits)}")
            text, intent, annotation = (_string(record, key) for key in ("utt", "intent", "annot_utt"))
            splits[record["partition"]].append(Utterance(text, intent, template(marked_pieces(annotation), text)))
    return {"train": splits["train"], "valid": splits["dev"], "test": splits["test"]}


def _sample(folder: Path) -> _Splits:
    splits: _Splits = {}
    for split in ("train", "valid", "test"):
        path = folder / f"{split}.jsonl"
        splits[split] = []
        for where, record in _records(path):
            with _place(path, where):
                splits[split].append(Utterance(*(_string(record, key) for key in ("text", "intent", "template"))))
    return splits


def _private_csv(files: Sequence[str], folder: Path) -> _Splits:
    return {Path(file).stem: _text_and_label(folder / file, "intent") for file in files}


# --- the data sets


_HWU64_FOLD_TRAIN = "xliuhw_NLU-Evaluation-Data/KFold_1/trainset/*.csv"
_HWU64_FOLD_TEST = "xliuhw_NLU-Evaluation-Data/KFold_1/testset/csv/*.csv"

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


def _clinc150_dataset(name: str, file: str, digest: str) -> Dataset[IntentData]:
    read = partial(_clinc150, file)
    return _dataset(name, "clinc150_oos", (file,), read, "CC BY 3.0", "https://github.com/clinc/oos-eval", digest)


def _slot_gated_dataset(name: str, licence: str, digest: str) -> Dataset[IntentData]:
    files = tuple(f"data/{name}/{split}/{file}" for split in ("train", "valid", "test") for file in ("seq.in", "seq.out", "label"))
    home = "https://github.com/MiuLab/SlotGated-SLU"
    return _dataset(name, f"{name}_slotgated", files, partial(_slot_gated, name), licence, home, digest)


def _massive_dataset(name: str, locale: str) -> Dataset[IntentData]:
    files = (f"**/{locale}.jsonl",)
    home = "https://github.com/alexa/massive"
    return _dataset(name, _MASSIVE, files, partial(_massive, locale), "CC BY 4.0", home, _MASSIVE_DIGESTS.get(locale, ""))


def _massive_locales(data: Path) -> list[Dataset[IntentData]]:
    """A data set for each locale that is there, but for en-US, which is MASSIVE itself."""
    found = {path.stem for path in (data / _MASSIVE).glob("**/*.jsonl") if re.fullmatch("[a-z]{2}-[A-Z]{2}", path.stem)}
    return [_massive_dataset(f"massive_{locale}", locale) for locale in sorted(found - {"en-US"})]


def _private(data: Path) -> list[Dataset[IntentData]]:
    made = []
    for place in sorted(path for path in (data / PRIVATE).glob("*") if path.is_dir()):
        files = ("train.csv", "test.csv", *(("valid.csv",) if (place / "valid.csv").is_file() else ()))
        home = "whoever made it: a private data set needs train.csv and test.csv"
        made.append(_dataset(place.name, f"{PRIVATE}/{place.name}", files, partial(_private_csv, files), "", home))
    return made


_KNOWN = (
    _clinc150_dataset("clinc150", "data/data_full.json", "1b53ceffddfc1102c620533c63bf7606f9620311539bea2b7b703a3301ddf827"),
    _clinc150_dataset("clinc150_small", "data/data_small.json", "f402f10801ee6c9ef1886b337cdf07da2d585b4bdc8954b70b6834548009ae5a"),
    _clinc150_dataset(
        "clinc150_imbalanced", "data/data_imbalanced.json", "cf0d98a924f1cfc9f19ac03c1dfe0a3726c8576f0624a1a2f68f85b0e647a82e"
    ),
    _clinc150_dataset(
        "clinc150_oos_plus", "data/data_oos_plus.json", "25341b95fc092656bb06b47dca5c568b0a2a7e44500bfa00fdd03d710dbca189"
    ),
    _dataset(
        "banking77",
        "banking77",
        ("banking_data/train.csv", "banking_data/test.csv"),
        _banking77,
        "CC BY 4.0",
        "https://github.com/PolyAI-LDN/task-specific-datasets",
        "d6d25d6f7d7c1873583554a5c6a43a6f08e5cb220c01f3bc1da25dca44105e42",
    ),
    _dataset(
        "hwu64",
        "hwu64",
        ("dialoglue_csv/train.csv", "dialoglue_csv/val.csv", "dialoglue_csv/test.csv"),
        _hwu64,
        "CC BY 4.0",
        "https://github.com/alexa/dialoglue",
        "177738463a9c33ff2d60d13440d69b198d251e57c68c77a503314a93ae69304e",
    ),
    _dataset(
        "hwu64_kfold",
        "hwu64",
        (_HWU64_FOLD_TRAIN, _HWU64_FOLD_TEST),
        _hwu64_fold,
        "CC BY 4.0",
        "https://github.com/xliuhw/NLU-Evaluation-Data",
        "aec1438e5a4c9e73a21dbfd8d26479a295dd5e781bb1d16f83060da7a3afaa3f",
    ),
    _slot_gated_dataset("snips", "CC0 (source)", "2258ef56cff65fdb6c1f52cc735b8fa348cbf4c9ef43c2c730f16698e2f3fc3a"),
    _dataset(
        "snips_original",
        "snips_original",
        tuple(pattern.format(intent) for pattern in (_SNIPS_TRAIN, _SNIPS_TEST) for intent in _SNIPS_INTENTS),
        _snips_original,
        "CC0",
        "https://github.com/sonos/nlu-benchmark",
        "5af706061e2ce5de69eab27b664c0bec581b4f19e864490a56d3b7ae44f68595",
    ),
    _slot_gated_dataset("atis", "none stated", "7865c0f77ebffa8222ec8784afa954d7abb554397424a12ef1cf7ae5396788f4"),
    _massive_dataset("massive", "en-US"),
    _dataset(
        "sample",
        "intents",
        ("train.jsonl", "valid.jsonl", "test.jsonl"),
        _sample,
        SAMPLE_LICENCE,
        SAMPLE_HOME,
    ),
)
