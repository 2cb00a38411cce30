"""Geometry of vectors: uniformity and alignment of utterances, isotropy of conversations.

Uniformity (TaDSE, Eq. 6) is the logarithm of the mean of exp(-2d²) over pairs of utterances at distance d; alignment
(Eq. 7) is the mean of d² over pairs of one intent. Lower is better for both. Vectors are normalised first, as both are
defined on the hypersphere (the authors' code leaves that out, and divides alignment by the number of uniformity's
pairs).

WMDC weights its training pairs by how rare their response is, because answers such as "yes" and "thank you" (a) make
vectors crowd together in a few directions and (b) draw contexts together that have only such an answer in common. Both
are measured by `isotropy`. Texts that differ only in case and surrounding space are equal, and each counts once. The
distance of two vectors is 1 - cosine, computed as half of their squared difference: equal vectors have a distance of 0
without rounding errors, and texts without a vector (of unknown words only) lie together in the origin.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances_chunked

from turnwise.core.dialogue import Turn
from turnwise.core.errors import DatasetError
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.dialogues import ConversationData
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import encode_examples
from turnwise.models.vector_cache import encode_distinct

MAX_LENGTH = 128  # maximum tokens of an utterance or a context, as in DSE's dialogue-level task
WINDOWS = (1, 3)  # turns of a context

#: Maximum and minimum number of texts of a setting.
MAX_TEXTS = 5_000
MIN_TEXTS = 100

#: An answer is frequent if it is among this fraction of the distinct ones (or the first ten) and occurs at least so
#: often.
FREQUENT_FRACTION = 0.01
FREQUENT_ANSWERS = 10
FREQUENT_OCCURRENCES = 5

#: Pairs of contexts that share an answer: at most per answer, so that "yes" does not dominate, and at least in total.
PAIRS_PER_ANSWER = 20
MIN_PAIRS = 20

_ROUNDING = 1e-12  # a squared deviation that may be due to rounding of equal unit vectors

TextOrTurns = str | tuple[Turn, ...]
Vectors = npt.NDArray[np.float64]


def geometry(encoder: SupportsEncode, data: IntentData) -> list[Outcome]:
    """Compute uniformity and alignment of the test utterances, over all pairs."""
    intents = np.unique([example.intent for example in data.test], return_inverse=True)[1]
    if len(intents) == len(np.unique(intents)):
        raise DatasetError(f"{data.name} has no two test utterances of one intent: alignment needs pairs")
    vectors, rows = encode_examples(encoder, data.test)

    def sum_terms(squares: npt.NDArray[np.float32], start: int) -> npt.NDArray[np.float64]:
        """Return sums and counts of uniformity's and alignment's terms for each utterance of a chunk."""
        own = np.arange(start, start + len(squares))
        others = np.ones(squares.shape, bool)
        others[own - start, own] = False
        same_intent = others & (intents[own][:, None] == intents)
        terms = np.exp(-2 * squares.astype(np.float64))
        pairs = ((terms, others), (squares.astype(np.float64), same_intent))
        return np.stack([part for values, mask in pairs for part in (values.sum(1, where=mask), mask.sum(1))], 1)

    # in chunks that fit scikit-learn's working memory
    sums = np.concatenate(list(pairwise_distances_chunked(vectors[rows], reduce_func=sum_terms, squared=True)))[None]
    # both utterances of a pair are resampled in the bootstrap, while an utterance's sum over pairs stands for one:
    # doubling its deviation from the mean corrects for that and leaves the total as it is
    evidence = 2 * sums - sums.mean(1, keepdims=True)
    return [
        Outcome("geometry", data.name, "test utterances", "uniformity", evidence[..., :2], "log ratio", 1.0),
        Outcome("geometry", data.name, "test utterances", "alignment", evidence[..., 2:], "ratio", 1.0),
    ]


class AnsweredContext(NamedTuple):
    """What was said before an answer, newest turn last."""

    turns: tuple[Turn, ...]
    texts: tuple[str, ...]  # those of the turns, normalised for comparison
    answer: str  # the text of the next turn, normalised
    dialogue: int  # the index of the dialogue


_Pair = tuple[AnsweredContext, AnsweredContext]  # two contexts with the same next turn


def isotropy(encoder: SupportsEncode, data: ConversationData, *, seed: int = 0) -> list[Outcome]:
    """Measure the isotropy of utterances and contexts, and the distances of contexts that share a frequent answer.

    - 'mean cosine of random pairs' (lower is better): each text is in one pair, so that pairs are independent and the
      bootstrap over them is valid.
    - 'variance of the first principal component' (lower is better), in percent of the total variance; 100 if
      all vectors are equal. In the bootstrap the centre and the component are those of the corpus: the interval is for
      a fixed direction.
    - 'distance of contexts that share a frequent answer' (higher is better): the mean over pairs of contexts of
      different text and from different dialogues whose next turn is the same frequent answer; and 'relative to random
      pairs', of which as many are taken: 1 where sharing the answer does not matter, undefined where all contexts have
      the same vector.

    A context is a number of consecutive turns (a window), with their speakers, before another turn. Windows with too
    few contexts, and distances with too few pairs, are left out.
    """
    utterances = _distinct((normalise_text(turn.text), turn.text) for dialogue in data.dialogues for turn in dialogue)
    if len(utterances) < MIN_TEXTS:
        raise DatasetError(
            f"{data.name} has {len(utterances)} different utterances, at least {MIN_TEXTS} are needed:"
            " give a corpus of more dialogues"
        )
    outcomes = list(_measure(encoder, data.name, "utterances", _sample(utterances, seed), []))
    frequent = frequent_answers(context.answer for context in find_contexts(data.dialogues, 1))
    for window in WINDOWS:
        contexts = find_contexts(data.dialogues, window)
        texts = _distinct((context.texts, context.turns) for context in contexts)
        if len(texts) >= MIN_TEXTS:
            pairs = pairs_sharing_answers(contexts, frequent, seed)
            setting = f"contexts of {window} turn{'s' * (window > 1)}"
            outcomes += _measure(encoder, data.name, setting, _sample(texts, seed), pairs)
    return outcomes


def find_contexts(dialogues: Iterable[Sequence[Turn]], window: int) -> list[AnsweredContext]:
    """Return every context of exactly `window` turns that another turn follows."""
    contexts = []
    for number, turns in enumerate(dialogues):
        texts = tuple(normalise_text(turn.text) for turn in turns)
        for place in range(window, len(turns)):
            before = slice(place - window, place)
            contexts.append(AnsweredContext(tuple(turns[before]), texts[before], texts[place], number))
    return contexts


def frequent_answers(answers: Iterable[str]) -> list[str]:
    """Return the first percent of the distinct answers by frequency (or ten) that occur at least five times."""
    counts = sorted(Counter(answers).items(), key=lambda item: (-item[1], item[0]))
    most = max(FREQUENT_ANSWERS, round(FREQUENT_FRACTION * len(counts)))
    return [answer for answer, count in counts[:most] if count >= FREQUENT_OCCURRENCES]


def pairs_sharing_answers(contexts: Sequence[AnsweredContext], frequent: Sequence[str], seed: int = 0) -> list[_Pair]:
    """Sample pairs of contexts with the same frequent answer.

    The two have different texts and come from different dialogues, and a context is in only one pair of an answer. The
    answers take turns, the most frequent first; one that has no pair left, or has given twenty, drops out.
    """
    random = np.random.default_rng(seed)
    by_answer = defaultdict[str, list[AnsweredContext]](list)
    for context in contexts:
        by_answer[context.answer].append(context)
    pairs = [_pair_up(by_answer[answer], random) for answer in frequent]
    return [pair for turn in zip_longest(*pairs) for pair in turn if pair is not None]


def _pair_up(contexts: Sequence[AnsweredContext], random: np.random.Generator) -> list[_Pair]:
    """Pair contexts at random, no two of them with the same dialogue or text."""
    dialogues, texts, distinct = set(), set(), []
    for place in random.permutation(len(contexts)):
        context = contexts[place]
        if context.dialogue not in dialogues and context.texts not in texts:
            dialogues.add(context.dialogue)
            texts.add(context.texts)
            distinct.append(context)
    return list(zip(distinct[0::2], distinct[1::2], strict=False))[:PAIRS_PER_ANSWER]


def _distinct(items: Iterable[tuple[Hashable, TextOrTurns]]) -> list[TextOrTurns]:
    """Return the first item of each key."""
    first: dict[Hashable, TextOrTurns] = {}
    for key, item in items:
        first.setdefault(key, item)
    return list(first.values())


def _sample(texts: Sequence[TextOrTurns], seed: int) -> list[TextOrTurns]:
    """Return an even number of texts in random order, so that neighbours are pairs."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[place] for place in order[: min(MAX_TEXTS, len(texts) // 2 * 2)]]


def _measure(
    encoder: SupportsEncode, dataset: str, setting: str, texts: Sequence[TextOrTurns], pairs: Sequence[_Pair]
) -> Iterator[Outcome]:
    inputs = [*texts, *(context.turns for context in chain.from_iterable(pairs))]
    vectors = encode_distinct(encoder, inputs, normalise=True, max_length=MAX_LENGTH).astype(np.float64)
    random = _pair_distances(vectors[: len(texts)])
    yield Outcome("geometry", dataset, setting, "mean cosine of random pairs", 1 - random[None], scale=1.0)
    variance = _principal_variance(vectors[: len(texts)])[None]
    yield Outcome("geometry", dataset, setting, "variance of the first principal component", variance, "ratio")
    # as many of both kinds; since answers take turns, the pairs cut off are of all answers
    sharing = _pair_distances(vectors[len(texts) :])[: len(random)]
    if len(sharing) >= MIN_PAIRS:
        metric = "distance of contexts that share a frequent answer"
        both = np.stack([sharing, random[: len(sharing)]], 1)
        yield Outcome("geometry", dataset, setting, metric, sharing[None], scale=1.0)
        yield Outcome("geometry", dataset, setting, f"{metric}, relative to random pairs", both[None], "ratio", 1.0)


def _pair_distances(vectors: Vectors) -> Vectors:
    """Return 1 - cosine of each pair of neighbours."""
    distances = ((vectors[0::2] - vectors[1::2]) ** 2).sum(1) / 2
    return np.where(distances > _ROUNDING, distances, 0.0)


def _principal_variance(vectors: Vectors) -> Vectors:
    """Return, for each centred vector, its squared projection on the first principal component and its squared norm."""
    centred = vectors - vectors.mean(0)
    squares = (centred**2).sum(1)
    if squares.mean() <= _ROUNDING:
        return np.ones((len(vectors), 2))  # nothing varies in any direction: the worst value
    first = np.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
    return np.stack([(centred @ first) ** 2, squares], 1)
