"""A small probe to watch training by: few-shot intents and response ranking on held-out data."""

from collections.abc import Callable
from pathlib import Path

from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, intent_datasets
from turnwise.evaluation.tasks.encoding import SupportsEncode
from turnwise.evaluation.tasks.intents import prototype_intents
from turnwise.evaluation.tasks.reranking import rerank

#: Intent data sets that the probe looks at: enough to see a trend, few enough to be quick.
INTENTS = ("clinc150", "banking77", "hwu64", "snips", "sample")

#: Contexts of the sample world that the probe looks at: enough to see a trend, few enough to be quick.
CONTEXTS = 200


def make_probe(data: Path) -> Callable[[SupportsEncode], dict[str, float]]:
    """A probe on whatever a folder holds: intent data sets, and the sample world's `responses/`.

    Raises:
        DatasetError: if it holds neither.
    """
    known = intent_datasets()
    sets: list[IntentData] = [known[name].load(data) for name in INTENTS if (data / known[name].folder).is_dir()]
    sample = CANDIDATE_DATASETS["sample"]
    responses = sample.load(data).test[:CONTEXTS] if sample.present(data) else ()
    if not sets and not responses:
        raise DatasetError(f"{data} holds nothing to probe with: no intent data set, no responses/")

    def probe(encoder: SupportsEncode) -> dict[str, float]:
        figures = {}
        for each in sets:
            for outcome in prototype_intents(encoder, each):
                figures[f"{outcome.dataset} {outcome.setting}"] = outcome.row().value
        if responses:
            for outcome in rerank(encoder, responses, "sample", context="last"):
                if outcome.metric in ("R10@1", "MRR"):
                    figures[f"responses {outcome.metric}"] = 100 * outcome.row().value
        return figures

    return probe
