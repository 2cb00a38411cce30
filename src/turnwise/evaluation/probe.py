"""A small probe to watch training by: few-shot intents and response ranking on held-out data."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import cast

from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, candidate_datasets
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, intent_datasets
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.intents import prototype_intents
from turnwise.evaluation.tasks.reranking import rerank, rerank_adversarial

#: Intent data sets that the probe looks at: enough to see a trend, few enough to be quick.
INTENTS = ("clinc150", "banking77", "hwu64", "snips", "sample")

#: Contexts of a data set that the probe looks at: enough to see a trend, few enough to be quick.
CONTEXTS = 200

#: Response-selection data sets of a hundred candidates, or of several right ones.
PASSED_OVER = ("irc_ubuntu_100", "dailydialog_plusplus", "dailydialog_plusplus_adversarial")

#: Contexts a data set for a re-ranker, whose best model is kept by them.
RERANKED = 500

#: A model that is trained: an encoder, or a re-ranker.
Probed = SupportsEncode | SupportsScore


def make_probe(data: Path, reranks: bool = False) -> Callable[[Probed], dict[str, float]]:
    """A probe on whatever a folder holds.

    Of an encoder it measures few-shot intents, and responses of the sample world by the last turn's cosine. Of a re-ranker it
    measures the validation contexts of every response-selection data set that is there, or of the folder itself if that is a store,
    as they are and with UMS's adversaries; the mean over the data sets.

    Args:
        data: the folder.
        reranks: whether it is a re-ranker that will be probed.

    Raises:
        DatasetError: if it holds nothing of these.
    """
    return _reranker_probe(data) if reranks else _encoder_probe(data)


def _encoder_probe(data: Path) -> Callable[[Probed], dict[str, float]]:
    known = intent_datasets()
    sets: list[IntentData] = [known[name].load(data) for name in INTENTS if (data / known[name].folder).is_dir()]
    sample = CANDIDATE_DATASETS["sample"]
    responses = sample.load(data).test[:CONTEXTS] if sample.present(data) else ()
    if not sets and not responses:
        raise DatasetError(f"{data} holds nothing to probe with: no intent data set, no responses/")

    def probe(model: Probed) -> dict[str, float]:
        encoder = cast(SupportsEncode, model)
        figures = {}
        for each in sets:
            for outcome in prototype_intents(encoder, each):
                figures[f"{outcome.dataset} {outcome.setting}"] = outcome.row().value
        if responses:
            figures |= _figures(rerank(encoder, responses, "sample", context="last"))
        return figures

    return probe


def _reranker_probe(data: Path) -> Callable[[Probed], dict[str, float]]:
    there = {
        name: each for name, each in candidate_datasets(data).items() if name not in PASSED_OVER and each.present(data)
    }
    held_out = {name: found for name, each in there.items() if (found := each.load(data).valid[:RERANKED])}
    if not held_out:
        raise DatasetError(
            f"{data} holds nothing to probe a re-ranker with: no response-selection data set with validation contexts, and it is no"
            " store that has a split 'valid'"
        )

    def probe(model: Probed) -> dict[str, float]:
        reranker = cast(SupportsScore, model)
        found: dict[str, list[float]] = {}
        for name, examples in held_out.items():
            original = _figures(rerank(reranker, examples, name))
            changed = _figures(rerank_adversarial(reranker, examples, name), "adversarial ")
            for figure, value in {**original, **changed}.items():
                found.setdefault(figure, []).append(value)
        return {figure: fmean(values) for figure, values in found.items()}

    return probe


def _figures(outcomes: Sequence[Outcome], kind: str = "") -> dict[str, float]:
    """R10@1, or whatever it is called by the number of candidates, MRR and the share of adversaries first; in percent."""
    wanted = re.compile(r"R\d+@1|MRR|adversary first")
    return {
        f"responses {kind}{each.metric}": 100 * each.row().value for each in outcomes if wanted.fullmatch(each.metric)
    }
