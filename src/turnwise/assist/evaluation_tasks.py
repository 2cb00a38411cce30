"""Evaluation tasks of the applications: `abstention` of an intent classifier and two-stage response `selection`."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.responses.selector import Selector
from turnwise.core.errors import DatasetError
from turnwise.core.plots import line_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.datasets.candidates import candidate_datasets
from turnwise.evaluation.datasets.intents import IntentData, out_of_scope_datasets
from turnwise.evaluation.evaluation_protocols import Protocol
from turnwise.evaluation.metrics import FALSE_REJECTION, MILLISECONDS, Outcome
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks.intents import MAX_LENGTH as INTENT_MAX_LENGTH
from turnwise.evaluation.tasks.intents import (
    SEEDS,
    compute_prototypes,
    is_highest,
    number_intents,
    sample_few_shot_runs,
)
from turnwise.evaluation.tasks.out_of_scope import in_scope_mask, paper_thresholds, scope_outcomes
from turnwise.evaluation.tasks.responses import MAX_LENGTH as RESPONSE_MAX_LENGTH
from turnwise.evaluation.tasks.responses import with_answers
from turnwise.evaluation.tasks.scoring import correct_ranks, reciprocal_rank
from turnwise.models.vector_cache import encode_unique

Flags = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.floating]

#: Settings of the intent classifiers under test, by their name in the results. Prototypes equal neighbours where an
#: intent has no more examples than neighbours are counted.
CLASSIFIERS: Mapping[str, Mapping[str, Any]] = {
    "neighbours": {"head": "neighbours"},
    "neighbours, a threshold an intent": {"head": "neighbours", "per_intent": True},
    "logistic": {"head": "logistic"},
}

#: Examples per intent.
_SHOTS = 5

#: The classifier compared with DSE's thresholds and fitted with out-of-scope examples.
_COMPARED_CLASSIFIER = "neighbours"

_SCOPE_METRICS = ("Accuracy", "In-Accuracy", "OOS-Recall")

#: How many responses are retrieved; limited by the size of the pool.
DEPTHS = (1, 5, 10, 20, 50, 100)

#: Maximum number of test contexts, sampled with a seed where there are more; the pool is that of all contexts.
MAX_CONTEXTS = 1_000

#: Contexts timed together.
BLOCK_SIZE = 32

_RERANKED_SETTING = re.compile(r"the first (?P<depth>[\d,]+) of [\d,]+ re-ranked")


# ---- abstention


@dataclass(frozen=True, slots=True)
class _Decisions:
    """Decisions on the test utterances, in-scope ones first."""

    correct: Flags  # whether the best guess is the true intent, for in-scope utterances only
    rejected: Flags  # whether an utterance is rejected as out of scope


def evaluate_abstention(
    encoder: SupportsEncode,
    data: IntentData,
    *,
    seeds: int = SEEDS,
    false_rejection: float = 0.05,
    classifiers: Mapping[str, Mapping[str, Any]] = CLASSIFIERS,
    progress: Progress = silent,
) -> list[Outcome]:
    """Measure the false rejection rate and DSE's out-of-scope metrics of intent classifiers (settings by name).

    For each seed, k utterances per intent are sampled as for few-shot intents. The classifier is fitted and calibrated
    on these alone; where a data set has out-of-scope training utterances, one classifier also with them. Then it
    decides on all test utterances, in scope and out of scope.

    DSE's two thresholds reject more than a user would request, so out-of-scope recall is also compared at equal false
    rejection rates, with DSE's or the classifier's threshold moved. Moving a threshold uses the labels of the test set:
    it compares scores and is no way to choose a threshold.
    """
    if not data.out_of_scope.test:
        raise DatasetError(f"{data.name} has no out-of-scope utterances: take a data set with some, such as clinc150")
    labels = [utterance.intent for utterance in data.train]
    if len(set(labels)) == len(labels):
        raise DatasetError(f"{data.name} has no second example of any intent to calibrate on")
    train_texts = [utterance.text for utterance in data.train]
    test_texts = [*(utterance.text for utterance in data.test), *data.out_of_scope.test]
    vectors, rows = encode_unique(encoder, [*train_texts, *test_texts], normalise=True, max_length=INTENT_MAX_LENGTH)
    classes, truth = number_intents(data.train, data.test)
    options: dict[str, Any] = {"false_rejection": false_rejection, "max_length": INTENT_MAX_LENGTH}
    models = {name: IntentClassifier(encoder, **options, **settings) for name, settings in classifiers.items()}
    samples = sample_few_shot_runs(labels, (_SHOTS,), range(seeds))
    test_vectors = vectors[rows[len(train_texts) :]]

    def classify(
        classifier: IntentClassifier, support: npt.NDArray[np.int64], out_of_scope: Sequence[str] = ()
    ) -> tuple[_Decisions, Scores]:
        """Fit a classifier on some utterances, and return its decisions and the scores of its best guesses."""
        texts, intents = [train_texts[row] for row in support], [labels[row] for row in support]
        classifier.fit(texts, intents, out_of_scope=out_of_scope, vectors=vectors[rows[support]])
        decisions = classifier.decide(test_texts, neighbours=0, vectors=test_vectors)
        pairs = zip(decisions, data.test, strict=False)
        is_correct = np.array([decision.ranked[0].intent == utterance.intent for decision, utterance in pairs])
        rejected = np.array([decision.abstained for decision in decisions])
        return _Decisions(is_correct, rejected), np.array([decision.score for decision in decisions])

    runs: dict[str, list[_Decisions]] = defaultdict(list)
    for seed in range(seeds):
        progress(f"abstaining on {data.name}", seed, seeds)
        support, _ = samples[_SHOTS, seed]
        prototypes = compute_prototypes(vectors[rows[support]], classes[support], classes.max() + 1)
        cosines = test_vectors @ prototypes.T
        correct, similarities = is_highest(cosines[: len(truth)], truth), cosines.max(1)
        for name, classifier in models.items():
            requested = f"{name}, {false_rejection:.0%} named"
            ours, scores = classify(classifier, support)
            runs[requested].append(ours)
            if name != _COMPARED_CLASSIFIER:
                continue
            moved = _Decisions(correct, _reject_equally_many(similarities, ours))
            runs[f"DSE's similarity, moved to the false rejection of {name}"].append(moved)
            for paper_name, threshold in paper_thresholds(similarities).items():
                theirs = _Decisions(correct, similarities < threshold)
                runs[f"DSE's threshold {paper_name}"].append(theirs)
                moved = _Decisions(ours.correct, _reject_equally_many(scores, theirs))
                runs[f"{name}, moved to the false rejection of DSE's {paper_name}"].append(moved)
            if data.out_of_scope.train:
                helped, _ = classify(classifier, support, data.out_of_scope.train)
                runs[f"{requested}, with out-of-scope examples"].append(helped)
    outcomes = []
    for name, each in runs.items():
        setting, right = f"{_SHOTS}-shot {name}", np.stack([run.correct for run in each])
        rejected = np.stack([run.rejected for run in each])
        in_scope = in_scope_mask(rejected, right.shape[1])
        rates = np.stack([rejected & in_scope, in_scope], -1).astype(np.float32)
        outcomes.append(Outcome("abstention", data.name, setting, FALSE_REJECTION, rates, "ratio"))
        measured = scope_outcomes("abstention", data.name, setting, right, rejected)
        outcomes += [outcome for outcome in measured if outcome.metric in _SCOPE_METRICS]
    return outcomes


def _reject_equally_many(scores: npt.NDArray[np.floating], reference: _Decisions) -> Flags:
    """Reject the lowest scores until as many in-scope utterances as in `reference` are rejected; ties stay together."""
    in_scope = len(reference.correct)
    count = int(reference.rejected[:in_scope].sum())
    threshold = np.sort(scores[:in_scope])[count] if count < in_scope else np.inf
    return np.asarray(scores < threshold)


# ---- selection


def evaluate_selection(
    encoder: SupportsEncode,
    reranker: SupportsScore,
    examples: Sequence[Candidates],
    dataset: str,
    *,
    depths: Sequence[int] = DEPTHS,
    max_contexts: int = MAX_CONTEXTS,
    progress: Progress = silent,
) -> list[Outcome]:
    """Measure two-stage response selection: an encoder retrieves k of all responses, a re-ranker orders them.

    The pool is every distinct correct response of the test contexts, of which more than `max_contexts` are sampled; for
    a context only its own responses (or equal texts) are correct. Metrics are Top-1, MRR (0 if none was retrieved), and
    how often a correct response is retrieved, an upper bound for every re-ranker; Top-1 and MRR also by similarity
    alone. Times per context are measured over blocks; retrieving includes encoding the contexts but not the pool.
    """
    answerable = with_answers(examples, dataset)
    selector = Selector(encoder, reranker, max_length=RESPONSE_MAX_LENGTH)
    selector.index([text for example in answerable for text in example.positives], progress=progress)
    pool = len(selector)
    if pool < 2:
        raise DatasetError(f"{dataset} has one right response for all contexts: there is nothing to select from")
    if len(answerable) > max_contexts:
        chosen = np.sort(np.random.default_rng(0).choice(len(answerable), max_contexts, replace=False))
        answerable = [answerable[row] for row in chosen]
    depths = sorted({min(depth, pool) for depth in depths})
    deepest = depths[-1]
    flags, scores, times = _retrieve_and_rerank(selector, answerable, deepest, progress)
    outcomes = []
    for depth in depths:
        setting = f"the first {depth:,} of {pool:,} re-ranked"
        at_depth = [each[:depth] for each in flags]
        outcomes += _ranking_outcomes(dataset, setting, at_depth, [each[:depth] for each in scores])
        retrieved = np.array([[each.any() for each in at_depth]], np.float64)
        outcomes.append(Outcome("selection", dataset, setting, "retrieved", retrieved))
    retrieval_order = [-np.arange(deepest, dtype=np.float64)] * len(flags)
    outcomes += _ranking_outcomes(dataset, f"the first {deepest:,} of {pool:,} by similarity", flags, retrieval_order)
    for column, stage in enumerate(("retrieving", "re-ranking")):
        setting, evidence = f"{stage} {deepest:,} of {pool:,}", times[None][..., [column, 2]]
        outcomes.append(Outcome("selection", dataset, setting, MILLISECONDS, evidence, "ratio", 1000.0))
    return outcomes


def _retrieve_and_rerank(
    selector: Selector, examples: Sequence[Candidates], depth: int, progress: Progress
) -> tuple[list[Flags], list[Scores], npt.NDArray[np.float64]]:
    """Return which retrieved responses are correct, their scores, and (retrieving, re-ranking, contexts) per block."""
    flags: list[Flags] = []
    scores: list[Scores] = []
    times: list[tuple[float, float, float]] = []
    selector.score_all([examples[0].context], np.zeros((1, 1), np.int64))  # warm-up, which is not timed
    for first in range(0, len(examples), BLOCK_SIZE):
        block = examples[first : first + BLOCK_SIZE]
        contexts = [example.context for example in block]
        start = perf_counter()
        # one more than needed: whether the last one ties with the next decides which of them counts
        retrieved = selector.retrieve_all(contexts, depth + 1)
        retrieving = perf_counter() - start
        positives = [set(example.positives) for example in block]
        pairs = zip(retrieved.rows, positives, strict=True)
        correct = np.array([[selector.responses[row] in texts for row in rows] for rows, texts in pairs])
        order = np.lexsort((correct, -retrieved.similarities))[:, :depth]
        rows = np.take_along_axis(retrieved.rows, order, 1)
        flags += [*np.take_along_axis(correct, order, 1)]
        start = perf_counter()
        scores += selector.score_all(contexts, rows)
        times.append((retrieving, perf_counter() - start, len(block)))
        progress("selecting", len(flags), len(examples))
    return flags, scores, np.array(times)


def _ranking_outcomes(dataset: str, setting: str, flags: Sequence[Flags], scores: Sequence[Scores]) -> list[Outcome]:
    """Return Top-1 and MRR of the retrieved responses, ordered by scores."""
    ranked = [correct_ranks(each, correct) for each, correct in zip(scores, flags, strict=True)]
    reciprocal = np.array([[reciprocal_rank(each) if len(each) else 0.0 for each in ranked]])
    return [
        Outcome("selection", dataset, setting, "Top-1", (reciprocal == 1).astype(np.float64)),
        Outcome("selection", dataset, setting, "MRR", reciprocal),
    ]


def add_selection_plots(results: Results) -> None:
    """Add a plot of the metrics by k to the results, one for each data set."""
    lines: dict[str, dict[str, list[tuple[float, float, float, float]]]] = {}
    for row in results.rows:
        setting = _RERANKED_SETTING.fullmatch(row.setting)
        if row.task == "selection" and setting is not None:
            depth = float(setting["depth"].replace(",", ""))
            lines.setdefault(row.dataset, {}).setdefault(row.metric, []).append((depth, row.value, row.low, row.high))
    for dataset, series in lines.items():
        values = {metric: [(depth, value) for depth, value, _, _ in points] for metric, points in series.items()}
        bounds = {metric: [(depth, low, high) for depth, _, low, high in points] for metric, points in series.items()}
        draw = partial(
            line_chart,
            values,
            f"{dataset}: responses selected in two stages",
            "k, responses that are retrieved and re-ranked",
            log_x=True,
            percent=True,
            intervals=bounds,
            x_ticks={depth: f"{depth:,.0f}" for points in series.values() for depth, *_ in points},
            legend_outside=True,
        )
        results.add_plot(f"selection_{dataset}.svg", draw)


PROTOCOLS = {
    "abstention": Protocol(
        "abstention",
        out_of_scope_datasets,
        lambda inputs: evaluate_abstention(
            inputs.model.encoder, inputs.data, seeds=inputs.effort.seeds or SEEDS, progress=inputs.progress
        ),
    ),
    "selection": Protocol(
        "selection",
        candidate_datasets,
        lambda inputs: evaluate_selection(
            inputs.model.encoder,
            inputs.model.scorer,
            inputs.data.test,
            inputs.data.name,
            progress=inputs.progress,
        ),
        "both",
        timed=True,
        add_plots=add_selection_plots,
    ),
}
