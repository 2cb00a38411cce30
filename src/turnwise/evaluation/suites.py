"""Which tasks are run on which data sets, and how their results come together."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.evaluation.datasets.intents import INTENT_DATASETS, DatasetError, load_intents
from turnwise.evaluation.probe import load_responses
from turnwise.evaluation.results import Results
from turnwise.evaluation.tasks.encoding import SupportsEncode
from turnwise.evaluation.tasks.intents import prototype_intents
from turnwise.evaluation.tasks.responses import rank_responses
from turnwise.progress import Progress, silent

TASKS = ("intents", "responses")


def evaluate(encoder: SupportsEncode, tasks: Sequence[str], data: Path, model: str = "", progress: Progress = silent) -> Results:
    """Runs tasks on every data set that a folder holds for them.

    Args:
        encoder: what is measured.
        tasks: by name.
        data: a folder of data sets in their authors' layouts, or a sample world's.
        model: its name, for the results.
        progress: told how many data sets are done.

    Raises:
        DatasetError: if there is no such task, or nothing to run it on.
    """
    results = Results(model, "+".join(tasks))
    for task in tasks:
        if task not in TASKS:
            raise DatasetError(f"there is no task {task!r}: choose from {', '.join(TASKS)}")
        before = len(results.rows)
        if task == "intents":
            there = [name for name, (folder, _, _) in INTENT_DATASETS.items() if (data / folder).is_dir()]
            for number, name in enumerate(there):
                progress(f"intents: {name}", number, len(there))
                results.add(prototype_intents(encoder, load_intents(name, data)))
        else:
            file = data / "responses" / "test.txt"
            if file.is_file():
                results.add(rank_responses(encoder, load_responses(file), "sample"))
        if len(results.rows) == before:
            raise DatasetError(f"{data} holds no data set for the task {task!r}")
    return results
