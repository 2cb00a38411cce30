"""Corpus statistics, counted in one pass over a store's columns, in memory that does not grow with the texts."""

from bisect import insort
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import CorpusError
from turnwise.core.plots import line_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.corpus.languages import identify_language
from turnwise.corpus.readers.responses import read_candidates
from turnwise.corpus.source.corpus_source import CorpusSource
from turnwise.corpus.storage.corpus import Corpus
from turnwise.corpus.storage.fingerprints import FingerprintBuckets
from turnwise.corpus.storage.rejections import Rejection
from turnwise.corpus.storage.store import Store

DSE_WORDS = 3  # DSE takes a pair of consecutive turns if both have more words than this

#: Upper ends of the bins of the turn-length histogram, in words; the last bin is open.
LENGTHS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100)

MOST_COMMON = 10

#: Languages are detected in pieces of up to this many consecutive turns and characters.
_PIECE_TURNS, _PIECE_CHARACTERS = 10, 400
_BATCH_PIECES, _MAX_PIECES = 100, 500  # of a batch of a store, and of the whole store

Integers = npt.NDArray[np.int64]

#: Points of the frequency curve: percent of the distinct utterances, most frequent first.
CURVE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """The statistics of a corpus; `as_dict` is the output of `corpus stats --json`.

    Speakers, intents and acts are counted by turn, splits ('none': without a split) and sources by dialogue, slots by
    value, turn lengths by turn in bins of white-space words. Texts that differ only in case and surrounding space are
    counted as one.
    """

    dialogues: int
    utterances: int
    words: int
    speakers: dict[str, int]
    splits: dict[str, int]
    sources: dict[str, int]
    intents: dict[str, int]
    acts: dict[str, int]
    slots: dict[str, int]
    turn_lengths: dict[str, int]
    distinct_utterances: int
    top_1_percent_share: float  # of all turns, that the most frequent 1% of the texts make up (WMDC, Fig. 1)
    frequency_curve: list[tuple[float, float]]  # percent of the distinct texts, most frequent first, and of all turns
    common: list[tuple[str, int]]  # the ten most common texts and their counts (WMDC, Table 5)
    dse_pairs: int  # pairs of consecutive turns that are both longer than three words, which DSE trains on

    def as_dict(self) -> dict[str, Any]:
        """Return the values and the averages derived from them."""
        turns = self.utterances / self.dialogues if self.dialogues else 0.0
        return asdict(self) | {"turns_per_dialogue": turns, "words_per_turn": self.words / max(1, self.utterances)}


def compute_corpus_stats(corpus: Corpus, progress: Progress = silent) -> CorpusStats:
    """Compute the statistics in one pass, and the most common texts in a second one."""
    counters = {name: Counter[str]() for name in ("speakers", "splits", "sources", "intents", "acts", "slots")}
    lengths = np.zeros(len(LENGTHS) + 1, dtype=np.int64)
    dialogues = words = pairs = 0
    with FingerprintBuckets() as hashes:
        for store in corpus.stores:
            for batch in store.batches():
                dialogues += batch.num_rows
                progress("counting", dialogues, len(corpus))
                columns = {
                    "splits": batch.column("split"),
                    "sources": batch.column("source"),
                    "speakers": batch.column("speakers").values,
                    "intents": batch.column("intents").values,
                    "acts": batch.column("acts").values.values,
                    "slots": batch.column("slots").values.values.field("name"),
                }
                for name, column in columns.items():
                    for row in column.value_counts():
                        if row["values"].is_valid:
                            counters[name][row["values"].as_py()] += row["counts"].as_py()
                texts = batch.column("texts").values.to_pylist()
                hashes.add(_hash_texts(texts))
                sizes = np.fromiter((len(text.split()) for text in texts), np.int64, len(texts))
                words += int(sizes.sum())
                lengths += np.bincount(np.searchsorted(LENGTHS, sizes), minlength=len(lengths))
                pairs += _count_dse_pairs(sizes, batch.column("texts").offsets.to_numpy())
        counters["splits"]["none"] = dialogues - counters["splits"].total()
        times, texts_of = _count_frequencies(hashes)
        curve = _frequency_curve(times, texts_of)
        bins = ["1", *(f"{low + 1}-{high}" if low + 1 < high else str(high) for low, high in pairwise(LENGTHS))]
        return CorpusStats(
            dialogues=dialogues,
            utterances=len(hashes),
            words=words,
            turn_lengths=dict(zip([*bins, f"over {LENGTHS[-1]}"], lengths.tolist(), strict=True)),
            distinct_utterances=int(texts_of.sum()),
            top_1_percent_share=dict(curve)[1] / 100,
            frequency_curve=curve,
            common=_most_common(corpus, hashes, times, texts_of),
            dse_pairs=pairs,
            **{name: dict((+counter).most_common()) for name, counter in counters.items()},
        )


def _hash_texts(texts: list[str]) -> npt.NDArray[np.int64]:
    """Hash texts within this process: two of a million distinct ones collide with probability 3·10⁻⁸."""
    return np.fromiter((hash(normalise_text(text)) for text in texts), np.int64, len(texts))


def _count_dse_pairs(sizes: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32]) -> int:
    long = sizes > DSE_WORDS
    both_long = long[:-1] & long[1:]
    # not across dialogues: the second turn of a pair is not a dialogue's first
    firsts = offsets[1:-1] - offsets[0]
    both_long[firsts[firsts > 0] - 1] = False
    return int(both_long.sum())


def _count_frequencies(hashes: FingerprintBuckets) -> tuple[Integers, Integers]:
    """Return the frequencies in descending order, and the number of distinct texts of each."""
    texts: Counter[int] = Counter()
    for bucket, _ in hashes:
        times, numbers = np.unique(np.unique(bucket, return_counts=True)[1], return_counts=True)
        texts.update(dict(zip(times.tolist(), numbers.tolist(), strict=True)))
    order = sorted(texts, reverse=True)
    return np.array(order, np.int64), np.array([texts[times] for times in order], np.int64)


def _frequency_curve(times: Integers, texts: Integers) -> list[tuple[float, float]]:
    """Return (percent of distinct texts, percent of turns) points; each takes at least one text."""
    points = []
    for percent in CURVE:
        count = max(1, round(int(texts.sum()) * percent / 100))
        taken = np.minimum(texts, np.maximum(0, count - (np.cumsum(texts) - texts)))
        points.append((float(percent), int(taken @ times) / max(1, int(texts @ times)) * 100))
    return points


def _most_common(
    corpus: Corpus, hashes: FingerprintBuckets, frequencies: Integers, texts_of: Integers
) -> list[tuple[str, int]]:
    """Return the most common texts and their counts; equally common ones in alphabetical order."""
    if not len(hashes):
        return []
    last = int(np.searchsorted(np.cumsum(texts_of), MOST_COMMON))
    threshold = int(frequencies[min(last, len(frequencies) - 1)])
    parts = []  # the hashes that occur at least twice and often enough, and their counts
    for bucket, _ in hashes:
        distinct, numbers = np.unique(bucket, return_counts=True)
        is_frequent = numbers >= max(2, threshold)
        parts.append((distinct[is_frequent], numbers[is_frequent]))
    frequent, times = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(frequent)
    frequent, times = frequent[order], times[order]
    best: list[tuple[int, str]] = []  # (-count, text), at most ten
    for store in corpus.stores:
        for batch in store.batches(["texts"]):
            texts = batch.column("texts").values.to_pylist()
            text_hashes = _hash_texts(texts)
            counts = np.ones(len(texts), np.int64)
            if len(frequent):
                places = np.minimum(np.searchsorted(frequent, text_hashes), len(frequent) - 1)
                counts = np.where(frequent[places] == text_hashes, times[places], 1)
            for place in np.flatnonzero(counts >= threshold).tolist():
                candidate = (-int(counts[place]), normalise_text(texts[place]))
                if (len(best) < MOST_COMMON or candidate < best[-1]) and candidate not in best:
                    insort(best, candidate)
                    del best[MOST_COMMON:]
    return [(text, -count) for count, text in best]


def frequency_curve_svg(stats: CorpusStats) -> str:
    """Draw the frequency curve (WMDC, Fig. 1), with a logarithmic axis, since the first percent matters most."""
    return line_chart(
        {f"the top 1% make up {stats.top_1_percent_share:.1%}": stats.frequency_curve},
        "Share of all turns that the most frequent utterances make up",
        "distinct utterances, most frequent first",
        log_x=True,
        percent=True,
    )


def sample_languages(store: Store) -> Counter[str]:
    """Count the languages (ISO 639 codes) of pieces of a store's first batches; unclear ones do not count."""
    languages: Counter[str] = Counter()
    pieces = 0
    for batch in store.batches(["texts"]):
        texts = batch.column("texts").values
        for start in np.unique(np.linspace(0, max(0, len(texts) - _PIECE_TURNS), _BATCH_PIECES).astype(int)).tolist():
            piece = "\n".join(texts.slice(start, _PIECE_TURNS).to_pylist())
            language = identify_language(piece, _PIECE_CHARACTERS)
            if language is not None:
                languages[language] += 1
            pieces += 1
        if pieces >= _MAX_PIECES:
            break
    return languages


def compute_response_stats(path: Path) -> dict[str, float]:
    """Compute the statistics of a response-selection file, as in UMS's Table 1; words are separated by white space."""
    rejections: list[Rejection] = []
    source = CorpusSource(path, path.stem, rejections.append)
    contexts = pairs = positives = without = turns = words = utterances = 0
    for _, candidates in read_candidates(source, path):
        contexts += 1
        pairs += len(candidates.responses)
        positives += len(candidates.positives)
        without += not candidates.positives
        turns += len(candidates.context)
        texts = (*candidates.context, *candidates.responses)
        utterances += len(texts)
        words += sum(len(text.split()) for text in texts)
    if not contexts:
        reason = f" (line {rejections[0].line}: {rejections[0].reason})" if rejections else ""
        raise CorpusError(f"{path} is neither a store nor a response-selection file{reason}")
    return {
        "contexts": contexts,
        "pairs": pairs,
        "candidates_per_context": pairs / contexts,
        "positives_per_context": positives / contexts,
        "contexts_without_positive": without,
        "turns_per_context": turns / contexts,
        "words_per_utterance": words / utterances,
        "rejected": len(rejections),
    }
