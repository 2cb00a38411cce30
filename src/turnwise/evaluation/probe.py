"""A small probe to watch training by: few-shot intents and response ranking on held-out data."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from turnwise.corpus.intake import Intake, Rejection
from turnwise.corpus.responses import Candidates, read_candidates
from turnwise.evaluation.datasets.dataset import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, intent_datasets
from turnwise.evaluation.tasks.encoding import SupportsEncode
from turnwise.evaluation.tasks.intents import prototype_intents
from turnwise.evaluation.tasks.reranking import rerank

#: Intent data sets that the probe looks at: enough to see a trend, few enough to be quick.
INTENTS = ("clinc150", "banking77", "hwu64", "snips", "sample")

#: Contexts of a response file that the probe looks at: enough to see a trend, few enough to be quick.
CONTEXTS = 200


def load_responses(path: Path, limit: int | None = None) -> list[Candidates]:
    """The contexts of a response-selection file, all or the first few."""
    refused: list[Rejection] = []
    intake = Intake(path, path.stem, refused.append)
    found = [candidates for _, candidates in islice(read_candidates(intake, path), limit)]
    if not found:
        raise DatasetError(f"{path} holds no contexts with candidates" + (f": {refused[0].reason}" if refused else ""))
    return found


def make_probe(data: Path) -> Callable[[SupportsEncode], dict[str, float]]:
    """A probe on whatever a folder holds: intent data sets, and `responses/test.txt` as the sample world has it.

    Raises:
        DatasetError: if it holds neither.
    """
    known = intent_datasets()
    sets: list[IntentData] = [known[name].load(data) for name in INTENTS if (data / known[name].folder).is_dir()]
    file = data / "responses" / "test.txt"
    responses = load_responses(file, CONTEXTS) if file.is_file() else []
    if not sets and not responses:
        raise DatasetError(f"{data} holds nothing to probe with: no intent data set, no responses/test.txt")

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
