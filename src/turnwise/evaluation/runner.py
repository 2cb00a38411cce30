"""Evaluation of a model by a suite or by single tasks; interrupted evaluations continue where they stopped."""

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.detectors import DetectorError
from turnwise.corpus.source import CorpusError
from turnwise.evaluation.datasets.dataset import Dataset, DatasetError
from turnwise.evaluation.datasets.retrieval import ConstructionError
from turnwise.evaluation.evaluation_protocols import PROTOCOLS, Effort, Protocol, ProtocolInput, task_names
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results, evaluation_environment, read_outcomes, write_outcomes
from turnwise.evaluation.suites import SUITES, Suite
from turnwise.models.loading import ModelUnderTest, load_model, with_reranker, wrap_model
from turnwise.models.vector_cache import VectorCache
from turnwise.training import TrainingError
from turnwise.version import __version__

#: Increased whenever a protocol changes what it measures, so that cached outcomes of an older one are not reused.
_REVISION = 2


class EvaluationError(TurnwiseError):
    """There is nothing to evaluate, or no data to evaluate on."""


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """A protocol on a data set."""

    name: str
    protocol: Protocol
    dataset: Dataset[Any]


def evaluate(
    model: Any,
    data: Path | str,
    *,
    suite: str | None = None,
    tasks: Sequence[str] = (),
    datasets: Sequence[str] = (),
    out: Path | str | None = None,
    fine_tuning: bool | None = None,
    effort: Effort | None = None,
    name: str = "",
    reranker: Any = None,
    plots: bool = True,
    progress: Progress = silent,
) -> Results:
    """Evaluate a model by a suite, or by single tasks on all data sets that are present.

    With `out`, vectors and outcomes are cached in `out/cache`: an interrupted evaluation continues where it stopped,
    and nothing is computed twice. `turnwise.evaluation.reporting.report.write_report` writes the results.

    Args:
        model: an `Encoder`, a sentence-transformers model, a function from texts to an array, an object with `encode`
            or `score`, or the name of one (see `load_model`).
        data: a folder of data sets in their authors' layouts, or of sample data.
        suite: the name of a registered suite, such as 'dse', 'dialoguecse', 'tadse', 'diaeval' or 'ums'.
        tasks: instead of a suite: 'intents', 'responses', ….
        datasets: only these; empty: all that are present.
        out: the folder that the results will be written to.
        fine_tuning: whether to run protocols that train the encoder; None: in a suite, not in single tasks.
        effort: shortens the protocols; results say so.
        name: of the model, for the results.
        reranker: used together with an encoder, for protocols that need both and wherever candidates are scored; a
            model or its name.
        plots: whether to draw the plots of the suite and the tasks.
        progress: called with what is being done.

    Raises:
        EvaluationError: if there is no such suite or task, or no data set for it.
    """
    data, effort = Path(data), effort or Effort()
    if (suite is None) == (not tasks):
        raise EvaluationError("name either a suite or one or more tasks")
    check_available(data, [] if suite is None else [suite], tasks)
    registered = None if suite is None else SUITES[suite]
    subject = load_model(model) if isinstance(model, str) else wrap_model(model, name)
    if reranker is not None:
        subject = with_reranker(subject, load_model(reranker) if isinstance(reranker, str) else wrap_model(reranker))
    subject = replace(subject, name=name or subject.name)
    runner = _Runner(subject, data, Path(out) / "cache" if out is not None else None, effort, progress)
    results = Results(subject.name, suite or "+".join(tasks))
    jobs = list(runner.suite_jobs(registered, results) if registered else runner.task_jobs(tasks))
    jobs = _select_jobs(jobs, datasets, data, results)
    fine_tuning = suite is not None if fine_tuning is None else fine_tuning
    left_out = _unsupported(jobs, subject, fine_tuning, results.suite)
    jobs = [job for job in jobs if job.name not in left_out]
    for number, job in enumerate(jobs):
        progress(f"{results.suite}: {job.name}, {job.dataset.name}", number, len(jobs))
        try:
            results.add(runner.run(job))
        # there are too few examples for this protocol, or a detector's model is not installed: continue with the others
        except (DatasetError, CorpusError, ConstructionError, TrainingError, DetectorError) as error:
            left_out[f"{job.name}, {job.dataset.name}"] = str(error)
    progress(f"{results.suite}: done", len(jobs), len(jobs))
    results.data = runner.describe_datasets(jobs)
    results.facts = {
        "fingerprint": subject.fingerprint,
        "remark": "",  # for suites: how the model differs from those of the published tables
        "effort": asdict(effort),
        "left out": left_out,
        "seeds": "0 to runs - 1 in every protocol that samples; 0 elsewhere",
    }
    if registered is not None:
        used = {(job.protocol.task, job.dataset.name): job.dataset for job in jobs}
        registered.add_tables(results, used, subject, effort)
    if plots:
        names = {job.dataset.name for job in jobs}
        if registered is not None:
            registered.add_plots(
                runner.model, lambda protocol, each: runner.load(protocol, each) if each in names else None, results
            )
        for add_plots in dict.fromkeys(job.protocol.add_plots for job in jobs):
            if add_plots is not None:
                add_plots(results)
    return results


def check_available(data: Path, suites: Sequence[str], tasks: Sequence[str]) -> None:
    """Raise an EvaluationError if there is no such folder of data sets, suite or task."""
    if not data.is_dir():
        raise EvaluationError(
            f"{data} is not a folder: give one that holds data sets in their authors' layouts, or sample data"
        )
    for kind, names, known in (("suite", suites, SUITES), ("task", tasks, task_names())):
        for name in names:
            if name not in known:
                raise EvaluationError(f"there is no {kind} {name!r}: choose from {', '.join(known)}")


def _select_jobs(
    jobs: list[EvaluationJob], datasets: Sequence[str], data: Path, results: Results
) -> list[EvaluationJob]:
    """Return the jobs on the requested data sets, or all of them."""
    if datasets:
        jobs = [job for job in jobs if job.dataset.name in datasets]
        results.missing = []  # the others were not requested
    absent = [each for each in datasets if each not in {job.dataset.name for job in jobs}]
    if absent or not jobs:
        among = f" among {', '.join(absent)}" if absent else ""
        raise EvaluationError(f"{data} holds no data set for {results.suite}{among}")
    return jobs


def _unsupported(jobs: Sequence[EvaluationJob], model: ModelUnderTest, fine_tuning: bool, suite: str) -> dict[str, str]:
    """Return why protocols are not run, by name; raises EvaluationError if none is left."""
    unsupported = "the model does not have what it needs"
    messages = {"both": "it needs an encoder and a re-ranker, which --reranker names"}
    reasons = {
        job.name: messages.get(job.protocol.needs, unsupported) for job in jobs if not job.protocol.supports(model)
    }
    if not fine_tuning:
        reasons |= {job.name: "fine-tuning was not requested" for job in jobs if job.protocol.needs == "weights"}
    if all(job.name in reasons for job in jobs):
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise EvaluationError(f"no protocol of {suite} can be run on {model.name}: {listed}")
    return reasons


def _load_dataset(dataset: Dataset[Any], data: Path) -> Any:
    try:
        return dataset.load(data)
    except DatasetError as error:  # an invalid file is an error, unlike a data set that is too small
        raise EvaluationError(str(error)) from error


class _Runner:
    """Runs protocols on data sets, and caches vectors, data sets and outcomes."""

    def __init__(self, model: ModelUnderTest, data: Path, cache: Path | None, effort: Effort, progress: Progress):
        # without a fingerprint nobody knows whether the model is the same next time
        key = model.fingerprint[:16] if cache and model.fingerprint else None
        self._outcome_folder = cache / "outcomes" / key if cache and key else None
        vectors = cache / "vectors" / key if cache and key else None
        encoder = VectorCache(model.encoder, vectors, progress) if model.encoder is not None else None
        # a model with another slot detector has the same fingerprint: template vectors have their own
        templates_key = model.templates_fingerprint[:16] if model.templates_fingerprint else None
        templates = {
            source: VectorCache(each, vectors / templates_key / source if vectors and templates_key else None, progress)
            for source, each in model.templates.items()
        }
        self.model = replace(model, encoder=encoder, templates=templates)
        self._uncached_model = model  # for protocols that measure time
        self._data = data
        self._effort = effort
        self._progress = progress
        # catalogues, data sets and hashes are read once
        self._catalogue = functools.cache(lambda datasets: datasets(data))
        self._load = functools.cache(lambda dataset: _load_dataset(dataset, data))
        self._hash = functools.cache(lambda dataset: dataset.hash_files(data))

    # ---- what to run

    def _is_expected(self, protocol: Protocol) -> bool:
        """Return whether a protocol is run or reported as left out; compression is for models with templates."""
        return protocol.needs != "templates" or protocol.supports(self.model)

    def suite_jobs(self, suite: Suite, results: Results) -> Iterator[EvaluationJob]:
        """Yield the jobs of a suite on the data sets that are present, and record missing ones."""
        for step in suite.steps:
            protocol = PROTOCOLS[step.protocol]
            if not self._is_expected(protocol):
                continue
            known = self._catalogue(protocol.datasets)
            for name in (*step.datasets, *step.alternatives):
                dataset = known.get(name)
                if dataset is not None and dataset.is_present(self._data):
                    yield EvaluationJob(step.protocol, protocol, dataset)
                elif name in step.datasets:
                    home = dataset.home if dataset is not None else "its authors have not published it"
                    results.missing.append({"name": name, "home": home, "wanted_by": step.protocol})

    def task_jobs(self, tasks: Sequence[str]) -> Iterator[EvaluationJob]:
        """Yield every protocol of some tasks on every data set that is present."""
        for task in tasks:
            jobs = [
                EvaluationJob(name, protocol, dataset)
                for name, protocol in PROTOCOLS.items()
                if protocol.task == task and self._is_expected(protocol)
                for dataset in self._catalogue(protocol.datasets).values()
                if dataset.is_present(self._data)
            ]
            if not jobs:
                raise EvaluationError(f"{self._data} holds no data set for the task {task!r}")
            yield from jobs

    # ---- running it

    def run(self, job: EvaluationJob) -> list[Outcome]:
        """Return the outcomes of a job, cached if possible."""
        path = self._outcome_path(job)
        if path is not None and path.is_file():
            return read_outcomes(path)
        model = self._uncached_model if job.protocol.timed else self.model
        inputs = ProtocolInput(model, self._load(job.dataset), self._effort, self._progress)
        outcomes = job.protocol.run(inputs)
        if path is None:
            return outcomes
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        write_outcomes(unfinished, outcomes)
        unfinished.replace(path)
        return read_outcomes(path)  # as the next run will read them, to the last digit

    def _outcome_path(self, job: EvaluationJob) -> Path | None:
        templates = job.protocol.needs == "templates"
        if self._outcome_folder is None or (templates and self.model.templates_fingerprint is None):
            return None
        key = [__version__, _REVISION, job.name, job.dataset.name, self._hash(job.dataset), asdict(self._effort)]
        if templates:
            key.append(self.model.templates_fingerprint)
        if job.protocol.timed:  # times of another machine must not be reused
            key.append(evaluation_environment())
        return self._outcome_folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.parquet"

    def load(self, protocol: str, name: str) -> Any:
        """Load a data set of a protocol by name; None if it is not present."""
        dataset = self._catalogue(PROTOCOLS[protocol].datasets).get(name)
        return self._load(dataset) if dataset is not None and dataset.is_present(self._data) else None

    def describe_datasets(self, jobs: Sequence[EvaluationJob]) -> list[dict[str, Any]]:
        """Return name, tasks, hash, licence and differences of the data sets used."""
        tasks: dict[Dataset[Any], set[str]] = {}
        for job in jobs:
            tasks.setdefault(job.dataset, set()).add(job.protocol.task)
        return [
            {
                "name": dataset.name,
                "tasks": sorted(names),
                "sha256": self._hash(dataset),
                "licence": dataset.licence,
                "known": self._hash(dataset) == dataset.digest if dataset.digest else None,
                "differs": dataset.differs,
            }
            for dataset, names in tasks.items()
        ]
