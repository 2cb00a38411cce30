"""A small probe to watch training by: few-shot intents and response ranking on held-out data."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import cast

from turnwise.corpus.responses import Candidates
from turnwise.evaluation.datasets.candidates import candidate_datasets
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, intent_datasets
from turnwise.evaluation.outcomes import Outcome
from turnwise.evaluation.tasks.encoding import SupportsEncode, SupportsScore
from turnwise.evaluation.tasks.intents import prototype_intents
from turnwise.evaluation.tasks.reranking import rerank, rerank_adversarial

#: Intent data sets that the probe looks at: enough to see a trend, few enough to be quick.
INTENTS = ("clinc150", "banking77", "hwu64", "snips", "sample")

#: Contexts of a data set that the probe looks at: enough to see a trend, few enough to be quick.
CONTEXTS = 200

#: Response-selection data sets with other numbers of candidates, or of right ones among them, than one of ten.
PASSED_OVER = ("irc_ubuntu_100", "dailydialog_plusplus", "dailydialog_plusplus_adversarial")

#: Contexts a data set for a re-ranker, whose best model is kept by them.
RERANKED = 500

#: A model that is trained: an encoder, or a re-ranker.
Probed = SupportsEncode | SupportsScore


def make_probe(data: Path) -> Callable[[Probed], dict[str, float]]:
    """A probe on whatever a folder holds.

    Of an encoder it measures few-shot intents, and responses of the sample world by the last turn's cosine. Of a re-ranker it
    measures the validation contexts of every response-selection data set that is there, or of the folder itself if that is a store,
    as they are and with UMS's adversaries; the mean over the data sets.

    Raises:
        DatasetError: if it holds nothing of these.
    """
    known = intent_datasets()
    sets: list[IntentData] = [known[name].load(data) for name in INTENTS if (data / known[name].folder).is_dir()]
    candidates = {name: each for name, each in candidate_datasets(data).items() if name not in PASSED_OVER and each.present(data)}
    if not sets and not candidates:
        raise DatasetError(f"{data} holds nothing to probe with: no intent data set, no responses, and it is no store")
    responses = candidates["sample"].load(data).test[:CONTEXTS] if "sample" in candidates else ()
    held_out: dict[str, Sequence[Candidates]] = {}

    def probe(model: Probed) -> dict[str, float]:
        if hasattr(model, "score"):
            if not held_out:  # read once, and for re-rankers alone
                held_out.update({name: found for name, each in candidates.items() if (found := each.load(data).valid[:RERANKED])})
            return _reranked(cast(SupportsScore, model), held_out, data)
        figures = {}
        for each in sets:
            for outcome in prototype_intents(model, each):
                figures[f"{outcome.dataset} {outcome.setting}"] = outcome.row().value
        if responses:
            figures |= _figures(rerank(model, responses, "sample", context="last"))
        return figures

    return probe


def _reranked(model: SupportsScore, held_out: dict[str, Sequence[Candidates]], data: Path) -> dict[str, float]:
    """Figures of a re-ranker, each the mean over the data sets."""
    if not held_out:
        raise DatasetError(f"{data} holds no validation contexts with candidate responses to probe a re-ranker with")
    found: dict[str, list[float]] = {}
    for name, examples in held_out.items():
        original = _figures(rerank(model, examples, name))
        changed = _figures(rerank_adversarial(model, examples, name), "adversarial ")
        for figure, value in {**original, **changed}.items():
            found.setdefault(figure, []).append(value)
    return {figure: fmean(values) for figure, values in found.items()}


def _figures(outcomes: Sequence[Outcome], kind: str = "") -> dict[str, float]:
    """Some figures of re-ranking, in percent."""
    wanted = ("R10@1", "MRR", "adversary first")
    return {f"responses {kind}{each.metric}": 100 * each.row().value for each in outcomes if each.metric in wanted}
