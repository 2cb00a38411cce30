"""How an encoder lays utterances out: uniformity and alignment in figures, t-SNE in pictures.

Uniformity (TaDSE's Eq. 6) is the logarithm of the mean of exp(-2d²) over pairs of utterances, d being their distance; alignment
(Eq. 7) is the mean of d² over pairs of one intent. Lower is better for both. Vectors are normalised first, as both are about the
hypersphere (the authors' code leaves that out, and divides alignment by the number of uniformity's pairs).
"""

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
from sklearn.manifold import TSNE
from sklearn.metrics import pairwise_distances_chunked

from turnwise.core.plots import BLACK, BLUE, RED, Cloud, palette, scatter_chart
from turnwise.core.types import SupportsEncode
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import MAX_LENGTH, encode_utterances
from turnwise.models.vector_cache import encode_unique

#: scikit-learn's own, which TaDSE names.
PERPLEXITY = 30

Places = npt.NDArray[np.float32]


def geometry(encoder: SupportsEncode, data: IntentData, *, max_length: int = MAX_LENGTH) -> list[Outcome]:
    """Uniformity and alignment of the test utterances, over all pairs of two of them.

    Args:
        encoder: gives the vectors.
        data: utterances with their intents.
        max_length: of texts, in tokens.

    Raises:
        DatasetError: if no two test utterances are of one intent.
    """
    intents = np.unique([utterance.intent for utterance in data.test], return_inverse=True)[1]
    if len(intents) == len(np.unique(intents)):
        raise DatasetError(f"{data.name} has no two test utterances of one intent: alignment needs pairs")
    vectors, rows = encode_utterances(encoder, data.test, max_length)
    places = vectors[rows]

    def summed(squares: Places, start: int) -> npt.NDArray[np.float64]:
        """For each utterance of a chunk: sums and counts of uniformity's terms and of alignment's."""
        own = np.arange(start, start + len(squares))
        others = np.ones(squares.shape, bool)
        others[own - start, own] = False
        alike = others & (intents[own][:, None] == intents)
        terms = np.exp(-2 * squares.astype(np.float64))
        pairs = ((terms, others), (squares.astype(np.float64), alike))
        return np.stack([part for values, mask in pairs for part in (values.sum(1, where=mask), mask.sum(1))], 1)

    # in chunks that fit scikit-learn's working memory
    sums = np.concatenate(list(pairwise_distances_chunked(places, reduce_func=summed, squared=True)))[None]
    # a pair has two ends, both of which are drawn anew in the bootstrap, while the sum over an utterance's pairs stands for one of
    # them: twice its deviation from the mean makes up for that, and leaves the total as it is
    evidence = 2 * sums - sums.mean(1, keepdims=True)
    return [
        Outcome("geometry", data.name, "test utterances", "uniformity", evidence[..., :2], "log ratio", 1.0),
        Outcome("geometry", data.name, "test utterances", "alignment", evidence[..., 2:], "ratio", 1.0),
    ]


def intent_map(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    intents: int = 10,
    out_of_scope: bool = True,
    seed: int = 0,
    model: str = "",
    max_length: int = MAX_LENGTH,
) -> str:
    """Test utterances of some intents, a colour each, and out-of-scope ones as black rings (DSE's Fig. 1, left), as SVG.

    Args:
        encoder: gives the vectors.
        data: utterances with their intents.
        intents: how many are drawn; all where there are fewer.
        out_of_scope: whether to show such utterances too, at most as many as there are of the intents together.
        seed: of the drawing and of t-SNE.
        model: its name, for the title.
        max_length: of texts, in tokens.

    Raises:
        DatasetError: if out-of-scope utterances are asked for and there are none, or there is too little to show.
    """
    if out_of_scope and not data.out_of_scope.test:
        raise DatasetError(f"{data.name} has no out-of-scope utterances: show its intents alone (out_of_scope=False)")
    random = np.random.default_rng(seed)
    known = sorted({utterance.intent for utterance in data.test})
    shown = sorted(random.choice(known, min(intents, len(known)), replace=False).tolist())
    groups = [[utterance.input for utterance in data.test if utterance.intent == intent] for intent in shown]
    outside: list[str] = []
    if out_of_scope:
        count = min(len(data.out_of_scope.test), sum(map(len, groups)))
        outside = random.choice(np.array(data.out_of_scope.test, object), count, replace=False).tolist()
    first, *others = _map(encoder, [outside, *groups], seed, max_length, data.name)
    clouds = [Cloud(first, BLACK, "ring", "out of scope")] if out_of_scope else []
    clouds += [
        Cloud(points, colour, name=name)
        for points, colour, name in zip(others, palette(len(shown)), shown, strict=True)
    ]
    return scatter_chart(clouds, _title(f"{data.name}: {len(shown)} intents", model))


def answer_map(
    encoder: SupportsEncode,
    pairs: Sequence[tuple[str, str]],
    name: str,
    *,
    count: int = 12,
    others: int = 100,
    seed: int = 0,
    model: str = "",
    max_length: int = 128,
) -> str:
    """Questions as triangles, their answers as circles in their colour, other answers as black rings (DSE's Fig. 1, right), as SVG.

    Args:
        encoder: gives the vectors.
        pairs: questions and their answers.
        name: of the data set, for the title.
        count: how many pairs are drawn.
        others: how many answers to other questions.
        seed: of the drawing and of t-SNE.
        model: its name, for the title.
        max_length: of texts, in tokens; the paper's for responses.

    Raises:
        DatasetError: if there are too few pairs.
    """
    if len(pairs) < count + others:
        raise DatasetError(f"{name} has {len(pairs)} pairs, {count + others} are wanted: give more, or ask for fewer")
    drawn = [pairs[place] for place in np.random.default_rng(seed).permutation(len(pairs))[: count + others]]
    asked, answered = [question for question, _ in drawn[:count]], [answer for _, answer in drawn]
    questions, answers = _map(encoder, [asked, answered], seed, max_length, name)
    clouds = [Cloud(answers[count:], BLACK, "ring", "answers to others")]
    for number, colour in enumerate(palette(count)):
        # one legend for all: colours say which belong together, not what they are
        clouds.append(Cloud([answers[number]], colour, "circle", "" if number else "its answer, in the same colour"))
        clouds.append(Cloud([questions[number]], colour, "triangle", "" if number else "question"))
    return scatter_chart(clouds, _title(f"{name}: questions and answers", model))


def two_intents_map(
    encoder: SupportsEncode,
    data: IntentData,
    intents: tuple[str, str] = ("PlayMusic", "AddToPlaylist"),
    *,
    seed: int = 0,
    model: str = "",
    max_length: int = MAX_LENGTH,
) -> str:
    """Test utterances of two intents, red and blue (TaDSE's Fig. 4), as SVG.

    Args:
        encoder: gives the vectors.
        data: utterances with their intents.
        intents: which two.
        seed: of t-SNE.
        model: its name, for the title.
        max_length: of texts, in tokens.

    Raises:
        DatasetError: if there is too little of them to show.
    """
    groups = [[utterance.input for utterance in data.test if utterance.intent == intent] for intent in intents]
    for intent, shown in zip(intents, groups, strict=True):
        if not shown:
            raise DatasetError(f"{data.name} has no test utterance of intent {intent!r}: choose two of its intents")
    places = _map(encoder, groups, seed, max_length, data.name)
    clouds = [
        Cloud(points, colour, name=name) for points, colour, name in zip(places, (RED, BLUE), intents, strict=True)
    ]
    return scatter_chart(clouds, _title(f"{data.name}: {' and '.join(intents)}", model))


def _map(
    encoder: SupportsEncode, groups: Sequence[Sequence[Hashable]], seed: int, max_length: int, name: str
) -> list[list[tuple[float, float]]]:
    """Where t-SNE puts texts, or turns with slots, group by group."""
    texts = [text for group in groups for text in group]
    if len(texts) <= PERPLEXITY:
        raise DatasetError(
            f"{name} has {len(texts)} texts to show: t-SNE with a perplexity of {PERPLEXITY} needs more than that"
        )
    vectors, rows = encode_unique(encoder, texts, max_length)
    places = iter(TSNE(perplexity=PERPLEXITY, random_state=seed).fit_transform(vectors[rows]).tolist())
    return [[(x, y) for x, y in (next(places) for _ in group)] for group in groups]


def _title(shown: str, model: str) -> str:
    return f"{shown} ({model})" if model else shown
