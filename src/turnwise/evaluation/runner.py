"""Evaluation of a model by a suite or by single tasks; interrupted evaluations continue where they stopped."""

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.core import registry
from turnwise.core.errors import CorpusError, DatasetError, TrainingError, TurnwiseError
from turnwise.core.files import read_json, replacing, write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.corpus.training_data import TrainingData
from turnwise.evaluation.datasets.dataset import Dataset
from turnwise.evaluation.evaluation_protocols import Effort, Protocol, ProtocolInput, all_protocols
from turnwise.evaluation.leakage import Leakage, describe_training_data, find_leakage, without_seen
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results, evaluation_environment, read_outcomes, write_outcomes
from turnwise.evaluation.suites import Suite, find_suite
from turnwise.models.loading import ModelUnderTest, resolve_model
from turnwise.models.vector_cache import VectorCache
from turnwise.version import __version__

#: Increased whenever a protocol changes what it measures, so that cached outcomes of an older one are not reused.
_REVISION = 4


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
    exclude_seen: bool = False,
    plots: bool = True,
    progress: Progress = silent,
) -> Results:
    """Evaluate a model by a suite, or by single tasks on all data sets that are present.

    With `out`, vectors and outcomes are cached in `out/cache`, so that an interrupted evaluation continues where it
    stopped. `turnwise.evaluation.reporting.report.write_report` writes the results.

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
        exclude_seen: score only the test examples that the model has not seen in training; results say so.
        plots: whether to draw the plots of the suite and the tasks.
        progress: called with what is being done.

    Raises:
        TurnwiseError: if there is no such suite or task, or no data set for it, or if seen examples cannot be
            excluded.
    """
    data, effort = Path(data), effort or Effort()
    if (suite is None) == (not tasks):
        raise TurnwiseError("name either a suite or one or more tasks")
    check_available(data, [] if suite is None else [suite], tasks)
    registered = None if suite is None else find_suite(suite)
    subject = resolve_model(model, reranker, name)
    if exclude_seen and not _has_filters(subject):
        raise TurnwiseError(
            f"{subject.name} has no fingerprint of its training data, so that seen examples cannot be excluded: "
            "evaluate it on all examples, or train it with record_training_data"
        )
    runner = _Runner(subject, data, out, effort, exclude_seen, progress)
    results = Results(subject.name, suite or "+".join(tasks))
    jobs = list(runner.suite_jobs(registered, results) if registered else runner.task_jobs(tasks))
    jobs = _select_jobs(jobs, datasets, data, results)
    fine_tuning = suite is not None if fine_tuning is None else fine_tuning
    left_out = _unsupported(jobs, subject, fine_tuning, results.suite)
    jobs = [job for job in jobs if job.name not in left_out]
    for number, job in enumerate(jobs):
        progress(f"{results.suite}: {job.name}, {job.dataset.name}", number, len(jobs))
        try:
            leakage = runner.leakage(job)
            affected = leakage is not None and leakage.affected and not exclude_seen
            seen = f"{job.dataset.name}: {leakage.summary()}" if leakage is not None and affected else None
            results.add(runner.run(job), seen)
        # there are too few examples for this protocol, or a detector's model is not installed: continue with the others
        except (DatasetError, CorpusError, TrainingError) as error:
            left_out[f"{job.name}, {job.dataset.name}"] = str(error)
    progress(f"{results.suite}: done", len(jobs), len(jobs))
    if exclude_seen and not results.rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise TurnwiseError(f"no protocol of {results.suite} can be run without seen examples: {reasons}")
    results.data = runner.describe_datasets(jobs)
    results.facts = {
        "fingerprint": subject.fingerprint,
        "remark": "",  # for suites: how the model differs from those of the published tables
        "effort": asdict(effort),
        "training data": describe_training_data(subject.training_data),
        "exclude seen": exclude_seen,
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
        for add_plots in filter(None, dict.fromkeys(job.protocol.add_plots for job in jobs)):
            add_plots(results)
    return results


def check_available(data: Path, suites: Sequence[str], tasks: Sequence[str]) -> None:
    """Raise a TurnwiseError if there is no such folder of data sets, suite or task."""
    if not data.is_dir():
        raise TurnwiseError(
            f"{data} is not a folder: give one that holds data sets in their authors' layouts, or sample data"
        )
    for suite in suites:
        registry.check_name("suite", suite)
    for task in tasks:
        registry.check_name("task", task)


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
        raise TurnwiseError(f"{data} holds no data set for {results.suite}{among}")
    return jobs


def _unsupported(jobs: Sequence[EvaluationJob], model: ModelUnderTest, fine_tuning: bool, suite: str) -> dict[str, str]:
    """Return why protocols are not run, by name; raises TurnwiseError if none is left."""
    messages = {"both": "it needs an encoder and a re-ranker, which --reranker names"}
    reasons = {
        job.name: messages.get(job.protocol.needs, "the model does not have what it needs")
        for job in jobs
        if not job.protocol.supports(model)
    }
    if not fine_tuning:
        reasons |= {job.name: "fine-tuning was not requested" for job in jobs if job.protocol.needs == "weights"}
    if all(job.name in reasons for job in jobs):
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise TurnwiseError(f"no protocol of {suite} can be run on {model.name}: {listed}")
    return reasons


def _has_filters(model: ModelUnderTest) -> bool:
    return model.training_data is not None and bool(model.training_data.stages)


def _digest(key: list[Any]) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]


def _cache_vectors(model: ModelUnderTest, folder: Path | None, progress: Progress) -> ModelUnderTest:
    """Return a model that caches its vectors and those of its variants, in a folder for each fingerprint."""
    if model.encoder is None:
        return model
    place = folder / model.fingerprint[:16] if folder and model.fingerprint else None
    variants = {name: _cache_vectors(each, folder, progress) for name, each in model.variants.items()}
    return replace(model, encoder=VectorCache(model.encoder, place, progress), variants=variants)


class _Runner:
    """Runs protocols on data sets, and caches vectors, data sets and outcomes."""

    def __init__(
        self, model: ModelUnderTest, data: Path, out: Any, effort: Effort, exclude_seen: bool, progress: Progress
    ):
        cache = Path(out) / "cache" if out is not None else None
        # without a fingerprint nobody knows whether the model is the same next time
        key = model.fingerprint[:16] if cache and model.fingerprint else None
        self._outcome_folder = cache / "outcomes" / key if cache and key else None
        self.model = _cache_vectors(model, cache / "vectors" if cache else None, progress)
        self._uncached_model = model  # for protocols that measure time
        self._protocols = all_protocols()
        self._data = data
        self._training = model.training_data if _has_filters(model) else None
        self._training_digest = self._training.digest() if self._training is not None else ""
        self._exclude_seen = exclude_seen
        self._leakage: dict[Dataset[Any], Leakage | None] = {}
        self._leakage_folder = cache / "leakage" if cache else None
        self._effort = effort
        self._progress = progress
        # catalogues, data sets and hashes are read once
        self._catalogue = functools.cache(lambda datasets: datasets(data))
        self._load_all = functools.cache(self._load_dataset)
        self._hash = functools.cache(lambda dataset: dataset.hash_files(data))

    def _load_dataset(self, dataset: Dataset[Any]) -> Any:
        try:
            return dataset.load(self._data)
        except DatasetError as error:  # an invalid file is an error, unlike a data set that is too small
            raise TurnwiseError(str(error)) from error

    def _load(self, dataset: Dataset[Any]) -> Any:
        """Return the contents of a data set, without test examples that are excluded."""
        data = self._load_all(dataset)
        return without_seen(data, self._training) if self._exclude_seen and self._training is not None else data

    # ---- what to run

    def _is_expected(self, protocol: Protocol) -> bool:
        """Return whether a protocol is run or reported as left out; variants are not expected of every model."""
        return protocol.needs != "variants" or protocol.supports(self.model)

    def suite_jobs(self, suite: Suite, results: Results) -> Iterator[EvaluationJob]:
        """Yield the jobs of a suite on the data sets that are present, and record missing ones."""
        for step in suite.steps:
            protocol = self._protocols[step.protocol]
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
                for name, protocol in self._protocols.items()
                if protocol.task == task and self._is_expected(protocol)
                for dataset in self._catalogue(protocol.datasets).values()
                if dataset.is_present(self._data)
            ]
            if not jobs:
                raise TurnwiseError(f"{self._data} holds no data set for the task {task!r}")
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
        with replacing(path) as part:
            write_outcomes(part, outcomes)
        return read_outcomes(path)  # as the next run will read them, to the last digit

    def _outcome_path(self, job: EvaluationJob) -> Path | None:
        variants = self.model.variants if job.protocol.needs == "variants" else {}
        if self._outcome_folder is None or any(each.fingerprint is None for each in variants.values()):
            return None
        key = [__version__, _REVISION, job.name, job.dataset.name, self._hash(job.dataset), asdict(self._effort)]
        key += [(name, each.fingerprint) for name, each in variants.items()]
        if self._exclude_seen:
            key.append(self._training_digest)
        if job.protocol.timed:  # times of another machine must not be reused
            key.append(evaluation_environment())
        return self._outcome_folder / f"{_digest(key)}.parquet"

    def leakage(self, job: EvaluationJob) -> Leakage | None:
        """Return how much of a job's test split the model has seen, cached if possible; None if that is unknown."""
        if self._training is not None and job.dataset not in self._leakage:
            self._leakage[job.dataset] = self._find_leakage(job, self._training)
        return self._leakage.get(job.dataset)

    def _find_leakage(self, job: EvaluationJob, training: TrainingData) -> Leakage | None:
        if self._leakage_folder is None:
            return find_leakage(self._load_all(job.dataset), training)
        # the task: data sets of several tasks may be made of the same files
        key = [__version__, _REVISION, job.protocol.task, job.dataset.name, self._hash(job.dataset)]
        path = self._leakage_folder / f"{_digest([*key, self._training_digest])}.json"
        if not path.is_file():
            leakage = find_leakage(self._load_all(job.dataset), training)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(asdict(leakage) if leakage is not None else None))
        content = read_json(path)
        return Leakage(**content) if content else None

    def load(self, protocol: str, name: str) -> Any:
        """Load a data set of a protocol by name; None if it is not present."""
        dataset = self._catalogue(self._protocols[protocol].datasets).get(name)
        return self._load(dataset) if dataset is not None and dataset.is_present(self._data) else None

    def describe_datasets(self, jobs: Sequence[EvaluationJob]) -> list[dict[str, Any]]:
        """Return name, tasks, hash, licence, differences and leakage of the data sets used."""
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
                "leakage": leakage.as_dict() if (leakage := self._leakage.get(dataset)) else None,
                "excluded": leakage.digest if leakage is not None and self._exclude_seen else "",
            }
            for dataset, names in tasks.items()
        ]
