"""t-SNE maps of vectors, as SVG: DSE's Figure 1, TaDSE's Figures 4, 9 and 10, and UMS's Figure 4."""

from collections.abc import Hashable, Sequence

import numpy as np
from sklearn.manifold import TSNE

from turnwise.core.errors import DatasetError
from turnwise.core.plots import BLACK, BLUE, RED, Cloud, palette, scatter_chart
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.evaluation.datasets.candidates import CandidateData
from turnwise.evaluation.datasets.intents import IntentData
from turnwise.evaluation.tasks.coherence import CoherenceQuestion, complete_dialogues, sample_questions
from turnwise.evaluation.tasks.intents import MAX_LENGTH
from turnwise.evaluation.tasks.responses import MAX_LENGTH as RESPONSE_MAX_LENGTH
from turnwise.models.backbone.inputs import MARKS, AuxiliaryTask
from turnwise.models.coherence import mark_texts
from turnwise.models.reranker import Reranker
from turnwise.models.vector_cache import encode_distinct

#: scikit-learn's default, which TaDSE names.
PERPLEXITY = 30

_Points = list[tuple[float, float]]


def intent_map(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    intents: int = 10,
    out_of_scope: bool = True,
    seed: int = 0,
    model: str = "",
) -> str:
    """Draw test utterances of some intents in colour, and out-of-scope ones as black rings (DSE, Fig. 1, left).

    There are at most as many out-of-scope utterances as of the sampled intents together. `model` is for the title.
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
    first, *others = _project_inputs(encoder, [outside, *groups], seed, MAX_LENGTH, data.name)
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
) -> str:
    """Draw questions as triangles, their answers as circles, others as black rings (DSE, Fig. 1, right).

    The plot has `count` pairs and `others` answers to other questions; both names are for the title.
    """
    if len(pairs) < count + others:
        raise DatasetError(f"{name} has {len(pairs)} pairs, {count + others} are needed: give more, or ask for fewer")
    sample = [pairs[index] for index in np.random.default_rng(seed).permutation(len(pairs))[: count + others]]
    texts = [question for question, _ in sample[:count]], [answer for _, answer in sample]
    questions, answers = _project_inputs(encoder, texts, seed, RESPONSE_MAX_LENGTH, name)
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
) -> str:
    """Draw test utterances of two intents in red and blue (TaDSE, Fig. 4)."""
    groups = [[example.input for example in data.test if example.intent == intent] for intent in intents]
    for intent, inputs in zip(intents, groups, strict=True):
        if not inputs:
            raise DatasetError(f"{data.name} has no test utterance of intent {intent!r}: choose two of its intents")
    points = _project_inputs(encoder, groups, seed, MAX_LENGTH, data.name)
    clouds = [Cloud(each, colour, name=name) for each, colour, name in zip(points, (RED, BLUE), intents, strict=True)]
    return scatter_chart(clouds, _title(f"{data.name}: {' and '.join(intents)}", model))


def mark_map(
    reranker: Reranker, data: CandidateData, task: AuxiliaryTask, *, windows: int = 200, seed: int = 0, model: str = ""
) -> str:
    """Draw the states at the marks of windows of test dialogues, the correct marks red, the others blue (UMS, Fig. 4).

    The re-ranker has a head for the task. A context and its first correct response are a dialogue.
    """
    questions = [
        question
        for question in sample_questions(complete_dialogues(data.test), seed, reranker.window)
        if len(question.turns) > 2
    ]
    sampled = np.sort(np.random.default_rng(seed).permutation(len(questions))[:windows])
    queries = [_mark_query(questions[number], task) for number in sampled]
    inputs = mark_texts(reranker, task, [(turns, target) for turns, target, _ in queries])
    flags = [np.arange(len(each.positions)) == mark for each, (*_, mark) in zip(inputs, queries, strict=True)]
    _check_size(sum(map(len, flags)), data.name, "marks")
    correct, points = np.concatenate(flags), np.array(_tsne(np.concatenate(reranker.states(inputs)), seed))
    mark = MARKS[task]
    clouds = [
        Cloud([(x, y) for x, y in points[correct == flag].tolist()], colour, name=name)
        for flag, colour, name in ((False, BLUE, f"other {mark}"), (True, RED, f"correct {mark}"))
    ]
    return scatter_chart(clouds, _title(f"{data.name}: {task}", model))


def _mark_query(question: CoherenceQuestion, task: AuxiliaryTask) -> tuple[Sequence[str], str | None, int]:
    """Return the turns that the re-ranker reads for a window, the target if there is one, and the correct mark."""
    if task == "deletion":
        return question.with_foreign, None, question.inserted_at
    if task == "insertion":
        return question.without_removed, question.turns[question.removed], question.removed
    return question.shuffled, question.turns[-1], question.shuffled.index(question.turns[-2])


def _project_inputs(
    encoder: SupportsEncode, groups: Sequence[Sequence[Hashable]], seed: int, max_length: int, name: str
) -> list[_Points]:
    """Return the coordinates of inputs, group by group."""
    inputs = [each for group in groups for each in group]
    _check_size(len(inputs), name, "texts to show")
    points = iter(_tsne(encode_distinct(encoder, inputs, normalise=True, max_length=max_length), seed))
    return [[next(points) for _ in group] for group in groups]


def _check_size(count: int, dataset: str, what: str) -> None:
    if count <= PERPLEXITY:
        raise DatasetError(
            f"{dataset} has {count} {what}: t-SNE with a perplexity of {PERPLEXITY} needs more than that"
        )


def _tsne(vectors: Vectors, seed: int) -> _Points:
    return [(x, y) for x, y in TSNE(perplexity=PERPLEXITY, random_state=seed).fit_transform(vectors).tolist()]


def _title(text: str, model: str) -> str:
    return f"{text} ({model})" if model else text
