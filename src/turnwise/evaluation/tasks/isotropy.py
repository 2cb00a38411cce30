"""What frequent answers do to a space of conversations: is it anisotropic, and are contexts near that merely share an answer?

WMDC weights its training pairs by how rare their response is, because answers such as "yes" and "thank you" (a) make vectors
crowd together in a few directions and (b) draw contexts together that have nothing in common but such an answer. Both are measured
here, on any encoder, so that what the weighting mends can be seen. All vectors have length 1; texts are the same where case and
surrounding space alone tell them apart, and a text counts once, however often a corpus repeats it.

The distance of two vectors is 1 - cosine, computed as half of their squared difference: equal vectors have a distance of 0 without
rounding, and texts without a vector (of unknown words alone) lie together in the origin.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Turn
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.conversations import ConversationData
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.metrics import Outcome
from turnwise.models.vector_cache import encode_unique

#: Tokens of an utterance or a context, as in DSE's dialogue-level task.
MAX_LENGTH = 128

#: Turns of a context.
WINDOWS = (1, 3)

#: Texts of a setting at most, and at least: what is drawn two by two, and has a first principal component.
TEXTS = 5_000
LEAST_TEXTS = 100

#: An answer is frequent that is among this share of the distinct ones, or the first so many if that is more, and occurs so often.
FREQUENT_SHARE = 0.01
FREQUENT_ANSWERS = 10
FREQUENT_OCCURRENCES = 5

#: Pairs of contexts that share an answer: of one answer at most, so that "yes" does not make up all of them, and of all at least.
PAIRS_OF_AN_ANSWER = 20
LEAST_PAIRS = 20

#: A squared deviation that rounding alone can make of equal vectors of length 1.
_ROUNDING = 1e-12

Said = str | tuple[Turn, ...]
Vectors = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Context:
    """What was said before an answer, newest turn last.

    Attributes:
        turns: who said it.
        texts: the same as texts are told apart.
        answer: the turn after it, as texts are told apart.
        dialogue: the number of the dialogue.
    """

    turns: tuple[Turn, ...]
    texts: tuple[str, ...]
    answer: str
    dialogue: int


def isotropy(
    encoder: SupportsEncode,
    data: ConversationData,
    *,
    windows: Sequence[int] = WINDOWS,
    seed: int = 0,
    max_length: int = MAX_LENGTH,
) -> list[Outcome]:
    """How a corpus' utterances and contexts lie: in which directions, and how far apart where they share a frequent answer.

    - 'mean cosine of random pairs' (lower is better) of texts drawn two by two, each in one pair, so that pairs are independent and
      the bootstrap over them is right.
    - 'share of the first principal component' (lower is better) of the centred vectors' variance, in per cent. In the bootstrap the
      centre and the component stay what they are in the corpus: the interval is that of the share of a fixed direction. Where all
      vectors are equal it is 100.
    - 'distance of contexts that share a frequent answer' (higher is better): the mean over pairs of contexts of different text and
      from different dialogues whose next turn is the same frequent answer; the same 'relative to random pairs', of which as many
      are taken: 1 where sharing the answer does not matter, undefined where all contexts have the same vector. The bootstrap draws
      pairs anew; which answers are frequent stays as it is in the corpus.

    A context is a number of turns in a row, with who speaks them, before another turn. A window of which the corpus has too few
    contexts, and distances of which it has too few pairs, are left out.

    Args:
        encoder: gives the vectors.
        data: the conversations.
        windows: turns of a context; each makes a setting of its own.
        seed: of what is drawn.
        max_length: of utterances and contexts, in tokens.

    Raises:
        DatasetError: if there are too few utterances.
    """
    utterances = _distinct((normalise_text(turn.text), turn.text) for dialogue in data.dialogues for turn in dialogue)
    if len(utterances) < LEAST_TEXTS:
        raise DatasetError(
            f"{data.name} has {len(utterances)} different utterances, {LEAST_TEXTS} are needed to say how they lie: give a corpus"
            " of more dialogues"
        )
    outcomes = list(_measured(encoder, data.name, "utterances", _drawn(utterances, seed), [], max_length))
    frequent = frequent_answers(context.answer for context in contexts(data.dialogues, 1))
    for window in windows:
        found = contexts(data.dialogues, window)
        texts = _distinct((context.texts, context.turns) for context in found)
        if len(texts) >= LEAST_TEXTS:
            pairs = sharing_pairs(found, frequent, seed)
            setting = f"contexts of {window} turn{'s' * (window > 1)}"
            outcomes += _measured(encoder, data.name, setting, _drawn(texts, seed), pairs, max_length)
    return outcomes


def contexts(dialogues: Iterable[Sequence[Turn]], window: int) -> list[Context]:
    """Every context of exactly so many turns that another turn follows."""
    found = []
    for number, turns in enumerate(dialogues):
        texts = tuple(normalise_text(turn.text) for turn in turns)
        for place in range(window, len(turns)):
            before = slice(place - window, place)
            found.append(Context(tuple(turns[before]), texts[before], texts[place], number))
    return found


def frequent_answers(answers: Iterable[str]) -> list[str]:
    """The most frequent answers, most frequent first; among equally frequent ones the first in the alphabet comes first.

    They are the first per cent of the distinct answers, or the first ten where that is more, as far as they occur five times.
    """
    counts = sorted(Counter(answers).items(), key=lambda item: (-item[1], item[0]))
    most = max(FREQUENT_ANSWERS, round(FREQUENT_SHARE * len(counts)))
    return [answer for answer, count in counts[:most] if count >= FREQUENT_OCCURRENCES]


def sharing_pairs(found: Sequence[Context], frequent: Sequence[str], seed: int = 0) -> list[tuple[Context, Context]]:
    """Pairs of contexts with the same frequent answer, drawn at random.

    The two are of different dialogues and of different texts, and a context is in one pair of an answer only. The answers take
    turns, the most frequent first, and one that has no pair left, or has given twenty, drops out.
    """
    random = np.random.default_rng(seed)
    by_answer = defaultdict[str, list[Context]](list)
    for context in found:
        by_answer[context.answer].append(context)
    pairs = [_pairs(by_answer[answer], random) for answer in frequent]
    return [pair for turn in zip_longest(*pairs) for pair in turn if pair is not None]


def _pairs(found: Sequence[Context], random: np.random.Generator) -> list[tuple[Context, Context]]:
    """Contexts two by two, no two of one dialogue or one text among them all."""
    dialogues, texts, kept = set(), set(), []
    for place in random.permutation(len(found)):
        context = found[place]
        if context.dialogue not in dialogues and context.texts not in texts:
            dialogues.add(context.dialogue)
            texts.add(context.texts)
            kept.append(context)
    return list(zip(kept[0::2], kept[1::2], strict=False))[:PAIRS_OF_AN_ANSWER]


def _distinct(said: Iterable[tuple[Hashable, Said]]) -> list[Said]:
    """What was said, by what tells it apart, each as it occurs first."""
    found: dict[Hashable, Said] = {}
    for text, original in said:
        found.setdefault(text, original)
    return list(found.values())


def _drawn(texts: Sequence[Said], seed: int) -> list[Said]:
    """Some of the texts in random order, an even number of them, so that neighbours make pairs."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[place] for place in order[: min(TEXTS, len(texts) // 2 * 2)]]


# ---- from vectors to figures


def _measured(
    encoder: SupportsEncode,
    dataset: str,
    setting: str,
    texts: Sequence[Said],
    pairs: Sequence[tuple[Context, Context]],
    max_length: int,
) -> Iterator[Outcome]:
    sharing_turns = [context.turns for context in chain.from_iterable(pairs)]
    vectors, rows = encode_unique(encoder, [*texts, *sharing_turns], max_length)
    places = vectors.astype(np.float64)[rows]
    random = _distances(places[: len(texts)])
    yield Outcome("geometry", dataset, setting, "mean cosine of random pairs", 1 - random[None], scale=1.0)
    yield Outcome(
        "geometry",
        dataset,
        setting,
        "share of the first principal component",
        _component(places[: len(texts)])[None],
        "ratio",
    )
    # as many of both kinds; the answers take turns, so that those cut off are of all of them
    sharing = _distances(places[len(texts) :])[: len(random)]
    if len(sharing) >= LEAST_PAIRS:
        metric = "distance of contexts that share a frequent answer"
        both = np.stack([sharing, random[: len(sharing)]], 1)
        yield Outcome("geometry", dataset, setting, metric, sharing[None], scale=1.0)
        yield Outcome("geometry", dataset, setting, f"{metric}, relative to random pairs", both[None], "ratio", 1.0)


def _distances(places: Vectors) -> Vectors:
    """1 - cosine of each two neighbours."""
    distances = ((places[0::2] - places[1::2]) ** 2).sum(1) / 2
    return np.where(distances > _ROUNDING, distances, 0.0)


def _component(places: Vectors) -> Vectors:
    """Of each vector, centred: its square along the first principal component, and its square."""
    centred = places - places.mean(0)
    squares = (centred**2).sum(1)
    if squares.mean() <= _ROUNDING:
        return np.ones((len(places), 2))  # nothing varies, in any direction: no model is to gain by that
    first = np.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
    return np.stack([(centred @ first) ** 2, squares], 1)
