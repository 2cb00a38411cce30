"""Which texts and consecutive pairs a model was trained on, as Bloom filters small enough to travel with the model.

A filter answers "was this text in the training data?" without holding the texts: never wrong for a text that was, and
wrong with probability 7·10⁻⁵ for one that was not. Texts with equal keys (`comparison_key`) count as equal. Whoever has
a filter can test whether a text that they know was in the training data, so it can be left out.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import CorpusError
from turnwise.core.files import write_tensors
from turnwise.corpus.comparison_key import KEY_VERSION, KEY_VERSIONS, comparison_key
from turnwise.corpus.storage.fingerprints import text_fingerprint

TRAINING_DATA = "training_data.safetensors"  # the file in a model folder

#: Bits per item, and hash functions.
BITS_PER_ITEM, HASHES = 20, 14

#: The probability that a filter takes a new text for one of its own: at most (1 - e^(-hashes / bits))^hashes.
FALSE_POSITIVE_RATE = float((1 - np.exp(-HASHES / BITS_PER_ITEM)) ** HASHES)

_MIN_ITEMS = 1_000  # in filters of fewer bits, items would share the bits of several hash functions by chance

DIALOGUES_PER_BLOCK = 10_000  # dialogues that are hashed at a time

_VERSION = "2"
_FIRST_VERSION = "1"  # keys of version 1, and nothing is known of labels

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def hash_texts(texts: Iterable[str], key_version: int = KEY_VERSION) -> Hashes:
    """Return the hash of each text's key; 0 for a text without words, which is no evidence of anything."""
    keys = (comparison_key(text, key_version) for text in texts)
    return np.frombuffer(array("Q", (text_fingerprint(key) if key else 0 for key in keys)), np.uint64)


def hash_pairs(first: Hashes, second: Hashes) -> Hashes:
    """Return the hash of each pair of texts, given the texts' hashes; 0 if one of them has no words."""
    # the order matters: "yes" → "ok" is another pair than "ok" → "yes"
    mixed = (first * np.uint64(0x9E3779B97F4A7C15)) ^ (second + np.uint64(0xD1B54A32D192ED03))
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    return np.where((first == 0) | (second == 0), np.uint64(0), mixed)


@dataclass(frozen=True, slots=True)
class HashedDialogues:
    """The texts of dialogues one after the other, with the hashes of the texts and of their consecutive pairs."""

    texts: list[str]
    starts: npt.NDArray[np.int64]  # the place of each dialogue's first text
    text_hashes: Hashes
    pair_hashes: Hashes  # of each text and the next one; 0 for the last text of a dialogue

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The place of each dialogue's last text."""
        return np.append(self.starts, len(self.texts))[1:] - 1

    @property
    def last_pairs(self) -> Hashes:
        """The hash of each dialogue's last two texts; 0 for one text, as the text before it ends another dialogue."""
        return self.pair_hashes[self.ends - 1]


def hash_dialogues(dialogues: Sequence[Sequence[str]], key_version: int = KEY_VERSION) -> HashedDialogues:
    """Hash dialogues of at least one text each."""
    texts = [text for dialogue in dialogues for text in dialogue]
    starts = np.cumsum([0, *map(len, dialogues)], dtype=np.int64)[:-1]
    hashes = hash_texts(texts, key_version)
    hashed = HashedDialogues(texts, starts, hashes, hash_pairs(hashes, np.roll(hashes, -1)))
    hashed.pair_hashes[hashed.ends] = 0
    return hashed


def hash_blocks(dialogues: Iterable[Sequence[str]]) -> Iterator[HashedDialogues]:
    """Yield the hashes of any number of dialogues, a block at a time."""
    iterator = filter(None, dialogues)
    while block := list(islice(iterator, DIALOGUES_PER_BLOCK)):
        yield hash_dialogues(block)


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """A set of 64-bit hashes in 20 bits per item, which may contain others with probability `FALSE_POSITIVE_RATE`."""

    bits: npt.NDArray[np.uint8]

    @classmethod
    def with_capacity(cls, items: int) -> "BloomFilter":
        """Return an empty filter for so many items."""
        return cls(np.zeros(-(-max(items, _MIN_ITEMS) * BITS_PER_ITEM // 8), np.uint8))

    @classmethod
    def of(cls, hashes: Hashes) -> "BloomFilter":
        """Return a filter of items, which may be repeated."""
        distinct = np.unique(hashes)
        bloom = cls.with_capacity(len(distinct))
        bloom.add(distinct)
        return bloom

    def add(self, hashes: Hashes) -> None:
        """Add items; 0 is ignored."""
        for place in self._places(hashes[hashes != 0]):
            for bit in range(8):
                self.bits[place[place & 7 == bit] >> 3] |= 1 << bit

    def contains(self, hashes: Hashes) -> Mask:
        """Return for each item whether it was added; False for 0."""
        contained: Mask = hashes != 0
        for place in self._places(hashes):
            contained &= (self.bits[place >> 3] >> (place & 7)) & 1 == 1
        return contained

    def _places(self, hashes: Hashes) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the bit of each item under one hash function after the other (double hashing)."""
        first, second = hashes >> np.uint64(32), (hashes & np.uint64(0xFFFFFFFF)) | np.uint64(1)
        for number in range(HASHES):
            yield ((first + np.uint64(number) * second) % np.uint64(8 * len(self.bits))).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStage:
    """The texts and the consecutive pairs of one training run."""

    texts: BloomFilter
    pairs: BloomFilter
    labelled: BloomFilter | None = None  # the texts whose labels an objective used; None: unknown
    key_version: int = KEY_VERSION  # of the texts' keys

    @property
    def identity(self) -> tuple[Any, ...]:
        """What distinguishes it from other stages."""
        filters = (None if each is None else each.bits.tobytes() for each in (self.texts, self.pairs, self.labelled))
        return *filters, self.key_version


@dataclass(frozen=True, slots=True)
class SeenTexts:
    """The texts of dialogues, and which of them and of their consecutive pairs were in training data."""

    hashed: HashedDialogues
    texts: Mask
    pairs: Mask  # of each text and the next one


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The texts and the consecutive pairs of the corpora that a model was trained on."""

    stages: tuple[TrainingStage, ...] = ()
    statements: tuple[str, ...] = ()  # what is known of training data without filters, in words

    @classmethod
    def of(
        cls, dialogues: Iterable[Dialogue], utterances: int, labelled: Iterable[str] | None = None
    ) -> "TrainingData":
        """Return the filters of a corpus with at most so many utterances, and of the texts whose labels were used.

        `labelled` is None if that is unknown.
        """
        texts, pairs = BloomFilter.with_capacity(utterances), BloomFilter.with_capacity(utterances)
        for block in hash_blocks([turn.text for turn in dialogue.turns] for dialogue in dialogues):
            texts.add(block.text_hashes)
            pairs.add(block.pair_hashes)
        return cls((TrainingStage(texts, pairs, None if labelled is None else BloomFilter.of(hash_texts(labelled))),))

    @property
    def false_positive_rate(self) -> float:
        """The probability that a text or pair that was not in the training data is taken for one that was."""
        return 1 - (1 - FALSE_POSITIVE_RATE) ** len(self.stages)

    def digest(self) -> str:
        """Return a hash of the filters."""
        digest = hashlib.sha256()
        for stage in self.stages:
            for part in stage.identity:
                digest.update(part if isinstance(part, bytes) else repr(part).encode())
        return digest.hexdigest()

    def find(self, dialogues: Sequence[Sequence[str]]) -> SeenTexts:
        """Return which texts and consecutive pairs of dialogues of at least one text each were in the data."""
        hashed = hash_dialogues(dialogues)
        texts, pairs = np.zeros(len(hashed.texts), np.bool_), np.zeros(len(hashed.texts), np.bool_)
        for version in {stage.key_version for stage in self.stages}:
            same = hashed if version == KEY_VERSION else hash_dialogues(dialogues, version)
            for stage in self.stages:
                if stage.key_version == version:
                    texts |= stage.texts.contains(same.text_hashes)
                    pairs |= stage.pairs.contains(same.pair_hashes)
        return SeenTexts(hashed, texts, pairs)

    def find_labelled(self, texts: Sequence[str]) -> tuple[Mask, bool]:
        """Return which texts were in the data with a label, and whether that is known.

        Of stages of which it is unknown, all texts count.
        """
        found, known = np.zeros(len(texts), np.bool_), True
        for stage in self.stages:
            seen = (stage.labelled or stage.texts).contains(hash_texts(texts, stage.key_version))
            known &= stage.labelled is not None or not seen.any()
            found |= seen
        return found, known

    @classmethod
    def union(cls, parts: "Iterable[TrainingData | None]") -> "TrainingData | None":
        """Return the data of several models or stages; None if none of them has any. Equal stages are kept once."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        stages = {stage.identity: stage for part in known for stage in part.stages}
        return cls(tuple(stages.values()), tuple(dict.fromkeys(each for part in known for each in part.statements)))

    def save(self, folder: Path) -> None:
        """Write the filters into a model folder."""
        arrays: dict[str, npt.NDArray[np.uint8]] = {}
        for number, stage in enumerate(self.stages):
            arrays |= {f"texts.{number}": stage.texts.bits, f"pairs.{number}": stage.pairs.bits}
            if stage.labelled is not None:
                arrays[f"labelled.{number}"] = stage.labelled.bits
        versions = [stage.key_version for stage in self.stages]
        metadata = {"version": _VERSION, "hashes": str(HASHES), "false_positive_rate": f"{FALSE_POSITIVE_RATE:.1e}"}
        metadata |= {"statements": json.dumps(self.statements), "key_versions": json.dumps(versions)}
        write_tensors(folder / TRAINING_DATA, arrays, metadata)

    @classmethod
    def load(cls, folder: Path) -> "TrainingData | None":
        """Read the filters of a model folder; None if it has none."""
        from safetensors import SafetensorError, safe_open

        path = folder / TRAINING_DATA
        if not path.is_file():
            return None
        try:
            with safe_open(path, "np") as file:
                metadata = file.metadata() or {}
                if (version := metadata.get("version")) not in (_FIRST_VERSION, _VERSION):
                    raise CorpusError(f"{path} has version {version}, not {_VERSION}: update turnwise")
                filters = {name: BloomFilter(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            versions = json.loads(metadata["key_versions"]) if version == _VERSION else [1] * (len(filters) // 2)
            stages = tuple(
                TrainingStage(filters[f"texts.{n}"], filters[f"pairs.{n}"], filters.get(f"labelled.{n}"), key_version)
                for n, key_version in enumerate(versions)
            )
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise CorpusError(f"{path} is damaged: {error}. Delete it; leakage can then not be checked") from error
        if unknown := set(versions) - set(KEY_VERSIONS):
            raise CorpusError(f"{path} has texts compared by rules of version {max(unknown)}: update turnwise")
        return cls(stages, tuple(json.loads(metadata.get("statements", "[]"))))


def save_training_data(data: TrainingData | None, folder: Path) -> None:
    """Write the filters of a model into its folder, or remove those of another model."""
    (folder / TRAINING_DATA).unlink(missing_ok=True)
    if data is not None:
        data.save(folder)
