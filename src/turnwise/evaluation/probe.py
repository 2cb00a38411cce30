"""A small probe to watch training by: few-shot intents and response ranking on held-out data."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from turnwise.corpus.intake import Intake, Rejection
from turnwise.corpus.responses import Candidates, read_candidates
from turnwise.evaluation.datasets.intents import INTENT_DATASETS, DatasetError, IntentData, load_intents
from turnwise.evaluation.tasks.encoding import SupportsEncode
from turnwise.evaluation.tasks.intents import prototype_intents
from turnwise.evaluation.tasks.responses import rank_responses

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
    sets: list[IntentData] = [
        load_intents(name, data) for name, (folder, _, _) in INTENT_DATASETS.items() if (data / folder).is_dir()
    ]
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
            for outcome in rank_responses(encoder, responses, "sample"):
                if outcome.metric in ("R10@1", "MRR"):
                    figures[f"responses {outcome.metric}"] = outcome.row().value
        return figures

    return probe
