"""Judging a model: a paper's whole suite or single tasks, resumable, with tables, pictures and what it takes to trust them."""

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
from turnwise.evaluation.datasets.construction import ConstructionError
from turnwise.evaluation.datasets.dataset import Dataset, DatasetError
from turnwise.evaluation.evaluation_protocols import PROTOCOLS, Effort, Protocol, task_names
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.results import Results, evaluation_environment, read_outcomes, write_outcomes
from turnwise.evaluation.suites import SUITES, Suite
from turnwise.models.loading import ModelUnderTest, load_model, with_reranker, wrap_model
from turnwise.models.vector_cache import VectorCache
from turnwise.training import TrainingError
from turnwise.version import __version__

#: Raised whenever a protocol changes what it measures: outcomes of an older one are not taken for those of the new.
_REVISION = 1


class EvaluationError(TurnwiseError):
    """There is nothing to measure, or nothing to measure it on."""


@dataclass(frozen=True, slots=True)
class _Job:
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
    pictures: bool = True,
    progress: Progress = silent,
) -> Results:
    """Judges a model by a paper's suite, or by single tasks on whatever data sets are there.

    With `out`, vectors and outcomes are kept in `out/cache`: what was interrupted goes on where it stopped, and what was measured
    once is not measured again. The results are returned; `turnwise.evaluation.reporting.report.write_report` writes them.

    Args:
        model: an `Encoder`, a sentence-transformers model, a function from texts to an array, anything with `encode` or `score`, or
            the name of one (see `load_model`).
        data: a folder of data sets in their authors' layouts, or a sample world's.
        suite: 'dse', 'dialoguecse', 'tadse', 'diaeval' or 'ums'.
        tasks: instead of a suite: 'intents', 'responses', ….
        datasets: these alone; none: all that are there.
        out: the folder that the results will be written to.
        fine_tuning: whether to run what trains the encoder; None: in a suite, not in single tasks.
        effort: less than the whole protocol, for those in a hurry; results say so.
        name: of the model, for the results.
        reranker: one beside an encoder, for what takes both; whatever scores candidates is then measured by it. As `model`: one or
            its name.
        pictures: whether to draw the suite's pictures too.
        progress: told what is under way.

    Raises:
        EvaluationError: if there is no such suite or task, or nothing to run it on.
    """
    data, effort = Path(data), effort or Effort()
    if (suite is None) == (not tasks):
        raise EvaluationError("say either which suite or which tasks")
    if not data.is_dir():
        raise EvaluationError(
            f"{data} is no folder: give one that holds data sets in their authors' layouts, or a sample world"
        )
    wanted = _suite(suite) if suite is not None else None
    subject = load_model(model) if isinstance(model, str) else wrap_model(model, name)
    if reranker is not None:
        subject = with_reranker(subject, load_model(reranker) if isinstance(reranker, str) else wrap_model(reranker))
    subject = replace(subject, name=name or subject.name)
    runner = _Runner(subject, data, Path(out) / "cache" if out is not None else None, effort, progress)
    results = Results(subject.name, suite or "+".join(tasks))
    jobs = list(runner.suite_jobs(wanted, results) if wanted else runner.task_jobs(tasks))
    jobs = _asked_for(jobs, datasets, data, results)
    train = fine_tuning if fine_tuning is not None else wanted is not None
    left_out = _impossible(jobs, subject, train, results.suite)
    jobs = [job for job in jobs if job.name not in left_out]
    for number, job in enumerate(jobs):
        progress(f"{results.suite}: {job.name}, {job.dataset.name}", number, len(jobs))
        try:
            results.add(runner.outcomes(job))
        # there is too little for this protocol, or a detector's model is not installed; others go on
        except (DatasetError, CorpusError, ConstructionError, TrainingError, DetectorError) as error:
            left_out[f"{job.name}, {job.dataset.name}"] = str(error)
    progress(f"{results.suite}: done", len(jobs), len(jobs))
    results.data = runner.described(jobs)
    results.facts = {
        "fingerprint": subject.fingerprint,
        "remark": subject.remark,
        "effort": asdict(effort),
        "left out": left_out,
        "seeds": "0 to runs - 1 in every protocol that draws; 0 elsewhere",
    }
    if wanted is not None:
        used = {(job.protocol.task, job.dataset.name): job.dataset for job in jobs}
        wanted.add_tables(results, used, subject.remark, effort)
        if pictures:
            names = {job.dataset.name for job in jobs}
            wanted.add_plots(
                runner.model, lambda work, each: runner.load(work, each) if each in names else None, results
            )
    if pictures:
        for add_plots in dict.fromkeys(job.protocol.add_plots for job in jobs):
            if add_plots is not None:
                add_plots(results)
    return results


def _asked_for(jobs: list[_Job], datasets: Sequence[str], data: Path, results: Results) -> list[_Job]:
    """The jobs on the data sets that were named, or all of them."""
    if datasets:
        jobs = [job for job in jobs if job.dataset.name in datasets]
        results.missing = []  # nobody asked for the others
    absent = [each for each in datasets if each not in {job.dataset.name for job in jobs}]
    if absent or not jobs:
        among = f" among {', '.join(absent)}" if absent else ""
        raise EvaluationError(f"{data} holds no data set for {results.suite}{among}")
    return jobs


def _impossible(jobs: Sequence[_Job], model: ModelUnderTest, train: bool, suite: str) -> dict[str, str]:
    """The protocols that are not run, and why; it is an error if none is left."""
    left_out = {
        job.name: "it takes an encoder and a re-ranker, which --reranker names"
        if job.protocol.needs == "both"
        else "the model does not have what it takes"
        for job in jobs
        if not job.protocol.suits(model)
    }
    left_out |= {
        job.name: "fine-tuning was not asked for" for job in jobs if job.protocol.needs == "weights" and not train
    }
    if all(job.name in left_out for job in jobs):
        reasons = "; ".join(f"{job}: {reason}" for job, reason in left_out.items())
        raise EvaluationError(f"nothing of {suite} can be run on {model.name}: {reasons}")
    return left_out


def _suite(name: str) -> Suite:
    if name not in SUITES:
        raise EvaluationError(f"there is no suite {name!r}: choose from {', '.join(SUITES)}")
    return SUITES[name]


class _Runner:
    """Runs protocols on data sets, and remembers what it has seen."""

    def __init__(self, model: ModelUnderTest, data: Path, cache: Path | None, effort: Effort, progress: Progress):
        # of a model without a fingerprint nobody knows whether it is the same tomorrow
        self._parts = cache / "outcomes" / model.fingerprint[:16] if cache and model.fingerprint else None
        folder = cache / "vectors" / model.fingerprint[:16] if cache and model.fingerprint else None
        encoder = VectorCache(model.encoder, folder, progress) if model.encoder is not None else None
        # a model that is given another detector keeps its own fingerprint: templates' vectors are kept by theirs
        known = model.templates_fingerprint[:16] if model.templates_fingerprint else None
        sides = {
            source: VectorCache(side, folder / known / source if folder is not None and known else None, progress)
            for source, side in model.templates.items()
        }
        self.model = replace(model, encoder=encoder, templates=sides)
        # vectors that were kept would take no time
        self._unkept = model
        self._data = data
        self._effort = effort
        self._progress = progress
        self._catalogues: dict[Any, Any] = {}
        self._contents: dict[int, Any] = {}
        self._hashes: dict[int, str] = {}

    # ---- what to run

    def _catalogue(self, protocol: Protocol) -> dict[str, Dataset[Any]]:
        if protocol.datasets not in self._catalogues:
            self._catalogues[protocol.datasets] = protocol.datasets(self._data)
        found: dict[str, Dataset[Any]] = self._catalogues[protocol.datasets]
        return found

    def _expected(self, protocol: Protocol) -> bool:
        """Whether a model is expected to be measured so.

        Compression is an extra of models that have learnt templates. Of others nobody expects it, so that a reader of their results
        is told neither that it was left out nor that data sets are missing for it.
        """
        return protocol.needs != "templates" or protocol.suits(self.model)

    def suite_jobs(self, suite: Suite, results: Results) -> Iterator[_Job]:
        """What a suite runs on what is there; what is not there is written down, with where to get it."""
        for work in suite.steps:
            protocol = PROTOCOLS[work.protocol]
            if not self._expected(protocol):
                continue
            known = self._catalogue(protocol)
            for name in (*work.datasets, *work.alternatives):
                dataset = known.get(name)
                if dataset is not None and dataset.present(self._data):
                    yield _Job(work.protocol, protocol, dataset)
                elif name in work.datasets:
                    home = dataset.home if dataset is not None else "its authors have not published it"
                    results.missing.append({"name": name, "home": home, "wanted_by": work.protocol})

    def task_jobs(self, tasks: Sequence[str]) -> Iterator[_Job]:
        """Every protocol of some tasks, on every data set that is there."""
        for task in tasks:
            if task not in task_names():
                raise EvaluationError(f"there is no task {task!r}: choose from {', '.join(task_names())}")
            before = 0
            for name, protocol in PROTOCOLS.items():
                if protocol.task != task or not self._expected(protocol):
                    continue
                for dataset in self._catalogue(protocol).values():
                    if dataset.present(self._data):
                        before += 1
                        yield _Job(name, protocol, dataset)
            if not before:
                raise EvaluationError(f"{self._data} holds no data set for the task {task!r}")

    # ---- running it

    def outcomes(self, job: _Job) -> list[Outcome]:
        """What a job found, now or earlier."""
        place = self._place(job)
        if place is not None and place.is_file():
            return read_outcomes(place)
        model = self._unkept if job.protocol.timed else self.model
        found = job.protocol.run(model, self._loaded(job.dataset), self._effort, self._progress)
        if place is None:
            return found
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(".part")
        write_outcomes(part, found)
        part.replace(place)
        return read_outcomes(place)  # as the next run will see them, to the last digit

    def _place(self, job: _Job) -> Path | None:
        templates = job.protocol.needs == "templates"
        if self._parts is None or (templates and self.model.templates_fingerprint is None):
            return None
        key = [__version__, _REVISION, job.name, job.dataset.name, self._hash(job.dataset), asdict(self._effort)]
        if templates:
            key.append(self.model.templates_fingerprint)
        if job.protocol.timed:  # results name the machine that they were taken on: times of another are not theirs
            key.append(evaluation_environment())
        return self._parts / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.parquet"

    def _loaded(self, dataset: Dataset[Any]) -> Any:
        if id(dataset) not in self._contents:
            try:
                self._contents[id(dataset)] = dataset.load(self._data)
            except DatasetError as error:  # nobody should take a broken file for a small one
                raise EvaluationError(str(error)) from error
        return self._contents[id(dataset)]

    def _hash(self, dataset: Dataset[Any]) -> str:
        if id(dataset) not in self._hashes:
            self._hashes[id(dataset)] = dataset.hashed(self._data)
        return self._hashes[id(dataset)]

    # ---- what readers of the results want to know

    def described(self, jobs: Sequence[_Job]) -> list[dict[str, Any]]:
        """Name, hash, licence and standing of the data sets."""
        tasks: dict[int, list[str]] = {}
        for job in jobs:
            tasks.setdefault(id(job.dataset), []).append(job.protocol.task)
        return [
            {
                "name": dataset.name,
                "tasks": sorted(set(tasks[id(dataset)])),
                "sha256": self._hash(dataset),
                "licence": dataset.licence,
                "known": self._hash(dataset) == dataset.digest if dataset.digest else None,
                "differs": dataset.differs,
            }
            for dataset in {id(job.dataset): job.dataset for job in jobs}.values()
        ]

    def load(self, protocol: str, name: str) -> Any:
        """A data set of a protocol by name; None where it is not there."""
        dataset = self._catalogue(PROTOCOLS[protocol]).get(name)
        return self._loaded(dataset) if dataset is not None and dataset.present(self._data) else None
