"""A small probe for monitoring training: few-shot intents and response ranking, on validation data only."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import cast

from turnwise.core.errors import DatasetError
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.corpus.readers.responses import Candidates
from turnwise.corpus.storage.store import is_store
from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, candidate_datasets
from turnwise.evaluation.datasets.intents import (
    IntentData,
    has_store_intents,
    intent_datasets,
    private_datasets,
    store_intents,
)
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import DOT_PRODUCT, hold_out_tenth, prototype_intents
from turnwise.evaluation.tasks.responses import rerank, rerank_adversarial

#: Intent data sets, contexts of an encoder and contexts per data set of a re-ranker: enough to see a trend, few enough
#: to be quick.
INTENT_DATASETS = ("clinc150", "banking77", "hwu64", "snips", "sample")
ENCODER_CONTEXTS = 200
RERANKER_CONTEXTS = 500

#: Response-selection data sets that are not used: a hundred candidates, or several correct ones.
UNUSED = ("irc_ubuntu_100", "dailydialog_plusplus", "dailydialog_plusplus_adversarial")

#: A model in training: an encoder, or a re-ranker.
ProbedModel = SupportsEncode | SupportsScore
ProbeFunction = Callable[[ProbedModel], dict[str, float]]


def make_probe(data: Path, reranks: bool = False) -> ProbeFunction:
    """Return a probe on the data sets in a folder.

    For an encoder it computes few-shot intents (of a few public data sets, private ones, and the folder itself if that
    is a store), and responses by the last turn's cosine (of sample data or of a store with a split 'valid'). It uses
    validation examples, or a tenth of the training examples where there are none. For a re-ranker it averages over the
    validation contexts of every response-selection data set that is present, as they are and with UMS's adversaries.
    """
    return _reranker_probe(data) if reranks else _encoder_probe(data)


def _encoder_probe(data: Path) -> ProbeFunction:
    known = intent_datasets()
    loaded = [known[name].load(data) for name in INTENT_DATASETS if (data / known[name].folder).is_dir()]
    loaded += [each.load(data) for each in private_datasets(data).values()]
    if has_store_intents(data) and (store := store_intents(data)).train:
        loaded.append(store)
    intent_sets = [_validation_data(each) for each in loaded]
    name = "sample" if CANDIDATE_DATASETS["sample"].is_present(data) or not is_store(data) else data.resolve().name
    responses = _load_responses(data, name, intent_sets)
    if not intent_sets and not responses:
        raise DatasetError(
            f"{data} holds no data for a probe: no intent data set, no responses/, and it is not a store that has a"
            " split 'valid', or intents in its split 'train'"
        )

    def probe(model: ProbedModel) -> dict[str, float]:
        encoder = cast(SupportsEncode, model)
        values = {
            f"{outcome.dataset} {outcome.setting}": outcome.row().value
            for each in intent_sets
            for outcome in prototype_intents(encoder, each)
            if DOT_PRODUCT not in outcome.setting
        }
        return values | (_values(rerank(encoder, responses, name, context="last")) if responses else {})

    return probe


def _load_responses(data: Path, name: str, intent_sets: Sequence[IntentData]) -> Sequence[Candidates]:
    """Return contexts with candidate responses; of sample data, or of the folder itself if it is a store."""
    dataset = candidate_datasets(data).get(name)
    if dataset is None or not dataset.is_present(data):
        return ()
    try:
        return dataset.load(data).valid[:ENCODER_CONTEXTS]
    except DatasetError:
        if intent_sets and name != "sample":  # a store with too few dialogues to draw candidates from
            return ()
        raise


def _validation_data(data: IntentData) -> IntentData:
    """Return a data set whose test examples are its validation examples, or a tenth of its training examples."""
    if data.valid:
        return replace(data, valid=(), test=data.valid)
    rest, held_out = hold_out_tenth([example.intent for example in data.train], data.name)
    return replace(data, train=tuple(data.train[row] for row in rest), test=tuple(data.train[row] for row in held_out))


def _reranker_probe(data: Path) -> ProbeFunction:
    held_out: dict[str, Sequence[Candidates]] = {}
    for name, each in candidate_datasets(data).items():
        if name not in UNUSED and each.is_present(data) and (contexts := each.load(data).valid):
            held_out[name] = contexts[:RERANKER_CONTEXTS]
    if not held_out:
        raise DatasetError(
            f"{data} holds no data for probing a re-ranker: no response-selection data set with validation contexts,"
            " and it is not a store that has a split 'valid'"
        )

    def probe(model: ProbedModel) -> dict[str, float]:
        reranker = cast(SupportsScore, model)
        by_metric: dict[str, list[float]] = {}
        for name, examples in held_out.items():
            values = _values(rerank(reranker, examples, name))
            values |= _values(rerank_adversarial(reranker, examples, name), "adversarial ")
            for metric, value in values.items():
                by_metric.setdefault(metric, []).append(value)
        return {metric: fmean(values) for metric, values in by_metric.items()}

    return probe


def _values(outcomes: Sequence[Outcome], prefix: str = "") -> dict[str, float]:
    """Return R_n@1, MRR and how often the adversary is first, in percent."""
    pattern = re.compile(r"R\d+@1|MRR|adversary first")
    return {
        f"responses {prefix}{outcome.metric}": 100 * outcome.row().value
        for outcome in outcomes
        if pattern.fullmatch(outcome.metric)
    }
