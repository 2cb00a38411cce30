"""What a corpus is made of: counts, labels, lengths, and how much of it a few utterances make up.

Everything is counted in one stream over the store's columns, in memory that does not grow with the texts: an utterance is
remembered by a 64-bit hash alone, on disk.
"""

from bisect import insort
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import same_text
from turnwise.core.progress import Progress, silent
from turnwise.core.svg import line_chart
from turnwise.corpus.buckets import Buckets
from turnwise.corpus.intake import CorpusError, Intake, Rejection
from turnwise.corpus.responses import read_candidates
from turnwise.corpus.store import Corpus

#: DSE takes a pair of consecutive turns where both have more words than this.
DSE_WORDS = 3

#: Upper ends of the turn-length histogram's bins, in words; the last bin is open.
LENGTHS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100)

COMMON = 10

#: Points of the frequency curve: shares of the distinct utterances, most frequent first, in percent.
CURVE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a corpus; `as_dict` is what `corpus stats --json` prints.

    Attributes:
        dialogues: how many conversations.
        utterances: how many turns.
        words: white-space words of all turns.
        speakers: turns by speaker.
        splits: dialogues by split; those without one under 'none'.
        sources: dialogues by source.
        intents: turns by intent.
        acts: turns by act.
        slots: slot values by slot name.
        turn_lengths: turns by their number of words, in bins named by their ends.
        distinct_utterances: different texts; here and below, case and surrounding space do not count.
        top_1_percent_share: share of all turns that the most frequent 1% of the distinct texts make up (WMDC, Fig. 1).
        frequency_curve: (percent of the distinct texts, most frequent first; percent of all turns).
        common: the ten most common texts and their counts (WMDC, Table 5).
        dse_pairs: consecutive turns that are both longer than three words, which DSE trains on.
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
    top_1_percent_share: float
    frequency_curve: list[tuple[float, float]]
    common: list[tuple[str, int]]
    dse_pairs: int

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        values = {name: getattr(self, name) for name in self.__slots__}
        turns = self.utterances / self.dialogues if self.dialogues else 0.0
        return values | {"turns_per_dialogue": turns, "words_per_turn": self.words / max(1, self.utterances)}


def corpus_statistics(corpus: Corpus, progress: Progress = silent) -> Statistics:
    """Counts a corpus in one pass, and a second over its texts to name the most common ones."""
    with Buckets() as hashes:
        return _statistics(corpus, hashes, progress)


def _statistics(corpus: Corpus, hashes: Buckets, progress: Progress) -> Statistics:
    counts = {name: Counter[str]() for name in ("speakers", "splits", "sources", "intents", "acts", "slots")}
    lengths = np.zeros(len(LENGTHS) + 1, dtype=np.int64)
    dialogues = words = pairs = 0
    for store in corpus.stores:
        for batch in store.batches():
            dialogues += batch.num_rows
            progress("counting", dialogues, len(corpus))
            for name, column in (("splits", "split"), ("sources", "source")):
                _count(counts[name], batch.column(column))
            for name in ("speakers", "intents"):
                _count(counts[name], batch.column(name).values)
            _count(counts["acts"], batch.column("acts").values.values)
            _count(counts["slots"], batch.column("slots").values.values.field("name"))
            texts = batch.column("texts").values.to_pylist()
            hashes.add(np.fromiter((hash(same_text(text)) for text in texts), np.int64, len(texts)))
            sizes = np.fromiter((len(text.split()) for text in texts), np.int64, len(texts))
            words += int(sizes.sum())
            lengths += np.bincount(np.searchsorted(LENGTHS, sizes), minlength=len(lengths))
            pairs += _pairs(sizes, batch.column("texts").offsets.to_numpy())
    counts["splits"]["none"] = dialogues - counts["splits"].total()
    frequencies = _frequencies(hashes)
    curve = _curve(frequencies)
    bins = ["1", *(f"{low + 1}-{high}" if low + 1 < high else str(high) for low, high in pairwise(LENGTHS))]
    return Statistics(
        dialogues=dialogues,
        utterances=len(hashes),
        words=words,
        turn_lengths=dict(zip([*bins, f"over {LENGTHS[-1]}"], lengths.tolist(), strict=True)),
        distinct_utterances=int(frequencies.texts.sum()),
        top_1_percent_share=dict(curve)[1] / 100,
        frequency_curve=curve,
        common=_common(corpus, hashes, frequencies),
        dse_pairs=pairs,
        **{name: dict(counter.most_common()) for name, counter in ((n, +c) for n, c in counts.items())},
    )


def _count(counter: Counter[str], values: Any) -> None:
    for row in values.value_counts():
        if row["values"].is_valid:
            counter[row["values"].as_py()] += row["counts"].as_py()


def _pairs(sizes: npt.NDArray[np.int64], offsets: npt.NDArray[np.int32]) -> int:
    """Consecutive turns of one dialogue that are both long enough for DSE."""
    long = sizes > DSE_WORDS
    both = long[:-1] & long[1:]
    # a pair may not straddle two dialogues: its second turn is no dialogue's first
    firsts = offsets[1:-1] - offsets[0]
    both[firsts[firsts > 0] - 1] = False
    return int(both.sum())


@dataclass(frozen=True, slots=True)
class _Frequencies:
    """How many distinct texts there are of each frequency.

    Attributes:
        times: how often a text is said, greatest first.
        texts: how many are said so often.
    """

    times: npt.NDArray[np.int64]
    texts: npt.NDArray[np.int64]

    def covered(self, most: int) -> int:
        """How many turns the `most` most frequent texts make up."""
        taken = np.minimum(self.texts, np.maximum(0, most - (np.cumsum(self.texts) - self.texts)))
        return int(taken @ self.times)


def _frequencies(hashes: Buckets) -> _Frequencies:
    """Counts texts by their hashes within this process: two of a million share one with probability 3·10⁻⁸."""
    texts: Counter[int] = Counter()
    for bucket, _ in hashes:
        times, many = np.unique(np.unique(bucket, return_counts=True)[1], return_counts=True)
        texts.update(dict(zip(times.tolist(), many.tolist(), strict=True)))
    ordered = sorted(texts, reverse=True)
    return _Frequencies(np.array(ordered, np.int64), np.array([texts[times] for times in ordered], np.int64))


def _curve(frequencies: _Frequencies) -> list[tuple[float, float]]:
    """(percent of distinct texts, percent of turns); at least one text is always taken."""
    distinct = int(frequencies.texts.sum())
    total = max(1, frequencies.covered(distinct))
    taken = (max(1, round(distinct * percent / 100)) for percent in CURVE)
    return [
        (float(percent), frequencies.covered(most) / total * 100) for percent, most in zip(CURVE, taken, strict=True)
    ]


def _common(corpus: Corpus, hashes: Buckets, frequencies: _Frequencies) -> list[tuple[str, int]]:
    """The most common texts by name; among equally common ones, the first in the alphabet."""
    if not len(hashes):
        return []
    reached = int(np.searchsorted(np.cumsum(frequencies.texts), COMMON))
    least = int(frequencies.times[min(reached, len(frequencies.times) - 1)])
    known, times = _as_frequent(hashes, max(2, least))
    best: list[
        tuple[int, str]
    ] = []  # (-count, text), at most ten: every text as common as the tenth competes by its name
    for store in corpus.stores:
        for batch in store.batches(["texts"]):
            texts = [same_text(text) for text in batch.column("texts").values.to_pylist()]
            found = np.fromiter(map(hash, texts), np.int64, len(texts))
            places = np.minimum(np.searchsorted(known, found), len(known) - 1)
            counts = np.where(known[places] == found, times[places], 1) if len(known) else np.ones(len(texts), np.int64)
            for place in np.flatnonzero(counts >= least).tolist():
                candidate = (-int(counts[place]), texts[place])
                if (len(best) < COMMON or candidate < best[-1]) and candidate not in best:
                    insort(best, candidate)
                    del best[COMMON:]
    return [(text, -count) for count, text in best]


def _as_frequent(hashes: Buckets, least: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The hashes that occur `least` times or more, in ascending order, and how often they do."""
    kept = []
    for bucket, _ in hashes:
        distinct, times = np.unique(bucket, return_counts=True)
        kept.append((distinct[times >= least], times[times >= least]))
    known, times = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    order = np.argsort(known)
    return known[order], times[order]


def curve_svg(statistics: Statistics) -> str:
    """The frequency curve (WMDC, Fig. 1) as an SVG picture; a logarithmic axis, for what matters is in the first percent."""
    name = f"the top 1% make up {statistics.top_1_percent_share:.1%}"
    return line_chart(
        {name: statistics.frequency_curve},
        "Share of all turns that the most frequent utterances make up",
        "distinct utterances, most frequent first",
        logarithmic=True,
        percent=True,
    )


@dataclass(frozen=True, slots=True)
class ResponseStatistics:
    """The statistics of a response-selection file, as in UMS's Table 1.

    Attributes:
        contexts: distinct contexts in a row of the file.
        pairs: context-response pairs.
        candidates_per_context: responses to choose from.
        positives_per_context: right ones among them.
        contexts_without_positive: contexts that no candidate answers.
        turns_per_context: turns before the response.
        words_per_utterance: white-space words of turns and responses.
        rejected: lines that could not be read.
    """

    contexts: int
    pairs: int
    candidates_per_context: float
    positives_per_context: float
    contexts_without_positive: int
    turns_per_context: float
    words_per_utterance: float
    rejected: int

    def as_dict(self) -> dict[str, Any]:
        """The same for programs."""
        return {name: getattr(self, name) for name in self.__slots__}


def response_statistics(path: Path) -> ResponseStatistics:
    """Counts a response-selection file."""
    rejections: list[Rejection] = []
    intake = Intake(path, path.stem, rejections.append)
    contexts = pairs = positives = without = turns = words = utterances = 0
    for _, candidates in read_candidates(intake, path):
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
    return ResponseStatistics(
        contexts,
        pairs,
        pairs / contexts,
        positives / contexts,
        without,
        turns / contexts,
        words / utterances,
        len(rejections),
    )
