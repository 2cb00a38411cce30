"""Geometry of utterance vectors: uniformity and alignment as metrics, t-SNE maps as plots.

Uniformity (TaDSE, Eq. 6) is the logarithm of the mean of exp(-2d²) over pairs of utterances at distance d; alignment
(Eq. 7) is the mean of d² over pairs of one intent. Lower is better for both. Vectors are normalised first, as both are
defined on the hypersphere (the authors' code leaves that out, and divides alignment by the number of uniformity's
pairs).
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
from turnwise.evaluation.tasks.intents import MAX_LENGTH, encode_examples
from turnwise.models.vector_cache import encode_distinct

#: scikit-learn's default, which TaDSE names.
PERPLEXITY = 30


def geometry(encoder: SupportsEncode, data: IntentData, *, max_length: int = MAX_LENGTH) -> list[Outcome]:
    """Compute uniformity and alignment of the test utterances, over all pairs."""
    intents = np.unique([example.intent for example in data.test], return_inverse=True)[1]
    if len(intents) == len(np.unique(intents)):
        raise DatasetError(f"{data.name} has no two test utterances of one intent: alignment needs pairs")
    vectors, rows = encode_examples(encoder, data.test, max_length)

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


# ---- maps


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
    """Draw test utterances of some intents in colour, and out-of-scope ones as black rings (DSE, Fig. 1, left), as SVG.

    Args:
        encoder: computes the vectors.
        data: the data set.
        intents: how many are sampled; all if there are fewer.
        out_of_scope: whether to show out-of-scope utterances too, at most as many as of the intents together.
        seed: for sampling and t-SNE.
        model: its name, for the title.
        max_length: of texts, in tokens.
    """
    if out_of_scope and not data.out_of_scope.test:
        raise DatasetError(f"{data.name} has no out-of-scope utterances: show its intents alone (out_of_scope=False)")
    random = np.random.default_rng(seed)
    known = sorted({example.intent for example in data.test})
    shown = sorted(random.choice(known, min(intents, len(known)), replace=False).tolist())
    groups = [[example.input for example in data.test if example.intent == intent] for intent in shown]
    outside: list[str] = []
    if out_of_scope:
        count = min(len(data.out_of_scope.test), sum(map(len, groups)))
        outside = random.choice(np.array(data.out_of_scope.test, object), count, replace=False).tolist()
    first, *others = _project(encoder, [outside, *groups], seed, max_length, data.name)
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
    """Draw questions as triangles, their answers as circles, others as black rings (DSE, Fig. 1, right), as SVG.

    Args:
        encoder: computes the vectors.
        pairs: questions and their answers.
        name: of the data set, for the title.
        count: how many pairs are sampled.
        others: how many answers to other questions.
        seed: for sampling and t-SNE.
        model: its name, for the title.
        max_length: of texts, in tokens; the paper's for responses.
    """
    if len(pairs) < count + others:
        raise DatasetError(f"{name} has {len(pairs)} pairs, {count + others} are needed: give more, or ask for fewer")
    sample = [pairs[index] for index in np.random.default_rng(seed).permutation(len(pairs))[: count + others]]
    texts = [question for question, _ in sample[:count]], [answer for _, answer in sample]
    questions, answers = _project(encoder, texts, seed, max_length, name)
    clouds = [Cloud(answers[count:], BLACK, "ring", "answers to others")]
    for number, colour in enumerate(palette(count)):
        # one legend for all: colours show which belong together
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
    """Draw test utterances of two intents in red and blue (TaDSE, Fig. 4), as SVG."""
    groups = [[example.input for example in data.test if example.intent == intent] for intent in intents]
    for intent, inputs in zip(intents, groups, strict=True):
        if not inputs:
            raise DatasetError(f"{data.name} has no test utterance of intent {intent!r}: choose two of its intents")
    points = _project(encoder, groups, seed, max_length, data.name)
    clouds = [Cloud(each, colour, name=name) for each, colour, name in zip(points, (RED, BLUE), intents, strict=True)]
    return scatter_chart(clouds, _title(f"{data.name}: {' and '.join(intents)}", model))


def _project(
    encoder: SupportsEncode, groups: Sequence[Sequence[Hashable]], seed: int, max_length: int, name: str
) -> list[list[tuple[float, float]]]:
    """Return the t-SNE coordinates of inputs, group by group."""
    inputs = [each for group in groups for each in group]
    if len(inputs) <= PERPLEXITY:
        raise DatasetError(
            f"{name} has {len(inputs)} texts to show: t-SNE with a perplexity of {PERPLEXITY} needs more than that"
        )
    vectors = encode_distinct(encoder, inputs, normalise=True, max_length=max_length)
    points = iter(TSNE(perplexity=PERPLEXITY, random_state=seed).fit_transform(vectors).tolist())
    return [[(x, y) for x, y in (next(points) for _ in group)] for group in groups]


def _title(text: str, model: str) -> str:
    return f"{text} ({model})" if model else text
