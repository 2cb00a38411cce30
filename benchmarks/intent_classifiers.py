"""Few-shot intent classifiers compared: turnwise, logistic regression, SetFit and the nearest example.

    python benchmarks/intent_classifiers.py OUT --data DATA [--device cuda] [--processes 12] [--minutes 8]
    python benchmarks/intent_classifiers.py OUT --report

writes one line per data set, number of examples, seed and method to OUT/results.jsonl. An interrupted run continues
with what is missing. `--report` prints the tables of docs/results/intent-classifiers.md. SetFit needs `pip install
setfit`. The environment variable MINILM_DIR names the folder of all-MiniLM-L6-v2, if `minilm` is not installed.

Every method gets the same examples of each seed. A method returns an intent and a score for each text, and a text is
rejected if its score is below the method's threshold: the 5% quantile of the scores of in-scope validation texts.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.heads import HeadChoice
from turnwise.assist.intents.model import lower_quantile
from turnwise.assist.intents.tuning import TuningSettings, tune_encoder
from turnwise.evaluation.datasets.intents import IntentUtterance, load_intents
from turnwise.evaluation.metrics import compute_per_run
from turnwise.evaluation.tasks.intents import sample_few_shot
from turnwise.models.backbone.source import locate_model
from turnwise.models.encoder import Encoder

DATASETS = {"clinc150": "CLINC150", "banking77": "BANKING77", "hwu64": "HWU64", "snips": "SNIPS"}
SHOTS = (5, 10)
FALSE_REJECTION = 0.05
MAX_LENGTH = 64

#: Inverse regularisation of the baseline: of 1 (the default), 10 and 100 the best on average on validation texts.
INVERSE_REGULARISATION = 10.0

#: Pairs per example that SetFit trains on, as in its paper: this many of the same intent and of another one.
SETFIT_ITERATIONS = 20

#: The fraction of a data set's training split that serves for validation if it has no validation split.
VALIDATION_FRACTION = 0.25

Vectors = np.ndarray
Names = np.ndarray


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    dataset: str
    shots: int
    seed: int
    method: str


@dataclass(frozen=True)
class Texts:
    """The texts of a data set; `scored` are the validation, test and out-of-scope texts in this order."""

    pool: list[IntentUtterance]  # what examples are sampled from
    valid: list[str]
    test: list[str]
    intents: Names  # of the test texts
    out_of_scope: list[str]

    @property
    def scored(self) -> list[str]:
        """Return the texts that every method is evaluated on."""
        return [*self.valid, *self.test, *self.out_of_scope]


@dataclass(frozen=True)
class Sample:
    """The examples of a cell."""

    texts: list[str]
    intents: Names


@dataclass(frozen=True)
class Prediction:
    """Predictions for `Texts.scored`, and how long it took to fit."""

    intents: Names
    scores: np.ndarray
    seconds: float
    details: dict[str, Any]


@cache
def read_texts(dataset: str, data: Path) -> Texts:
    """Read a data set; validation texts are a part of the training split where there is no validation split."""
    loaded = load_intents(dataset, data)
    pool, valid = list(loaded.train), [utterance.text for utterance in loaded.valid]
    if not valid:
        held_out: set[int] = set()
        random = np.random.default_rng(0)
        names = np.array([utterance.intent for utterance in pool])
        for name in np.unique(names):
            rows = random.permutation(np.flatnonzero(names == name))
            held_out.update(rows[: int(len(rows) * VALIDATION_FRACTION)].tolist())
        valid = [pool[row].text for row in sorted(held_out)]
        pool = [utterance for row, utterance in enumerate(pool) if row not in held_out]
    return Texts(
        pool,
        valid,
        [utterance.text for utterance in loaded.test],
        np.array([utterance.intent for utterance in loaded.test]),
        list(loaded.out_of_scope.test),
    )


def sample_examples(texts: Texts, shots: int, seed: int) -> Sample:
    """Sample the examples of a seed; an intent with fewer than twice as many texts gives half of them."""
    names = [utterance.intent for utterance in texts.pool]
    rows = sample_few_shot(names, shots, seed)[0]
    return Sample([texts.pool[row].text for row in rows], np.array([names[row] for row in rows]))


# ---- encoders


def model_folder(name: str) -> Path:
    """Return the folder of a model."""
    given = os.environ.get("MINILM_DIR" if name == "minilm" else "TURNWISE_SMALL_DIR")
    return Path(given) if given else locate_model(name)


@cache
def load_encoder(name: str, device: str) -> Encoder:
    """Load an encoder once per process."""
    return Encoder.load(model_folder(name), device=device)


@dataclass(frozen=True)
class Setting:
    """What the cells of a run share."""

    data: Path
    out: Path
    device: str

    def vector_file(self, encoder: str, dataset: str) -> Path:
        """Return the file with the vectors of the scored texts of a data set."""
        return self.out / f"vectors-{encoder}-{dataset}.npy"


def save_vectors(setting: Setting, encoder: str, dataset: str) -> None:
    """Encode the scored texts once, for all methods that do not train the encoder."""
    path = setting.vector_file(encoder, dataset)
    if path.exists():
        return
    texts = read_texts(dataset, setting.data).scored
    vectors = load_encoder(encoder, setting.device).encode(texts, normalise=True, max_length=MAX_LENGTH)
    np.save(path.with_suffix(".tmp.npy"), vectors.astype(np.float32))
    path.with_suffix(".tmp.npy").replace(path)


def frozen_vectors(setting: Setting, encoder: str, cell: Cell, sample: Sample) -> tuple[Vectors, Vectors, float]:
    """Return the vectors of examples and scored texts, and the seconds that encoding the examples takes."""
    loaded = load_encoder(encoder, setting.device)
    loaded.encode(sample.texts[:32], normalise=True, max_length=MAX_LENGTH)  # the first call prepares the device
    start = time.perf_counter()
    vectors = loaded.encode(sample.texts, normalise=True, max_length=MAX_LENGTH)
    seconds = time.perf_counter() - start
    return vectors, np.load(setting.vector_file(encoder, cell.dataset)), seconds


# ---- methods


def classify_with_turnwise(
    encoder: str, setting: Setting, cell: Cell, texts: Texts, sample: Sample, head: HeadChoice = "auto"
) -> Prediction:
    """Fit an IntentClassifier with its default settings; its own threshold, from the examples, is evaluated too."""
    vectors, scored, seconds = frozen_vectors(setting, encoder, cell, sample)
    start = time.perf_counter()
    loaded = load_encoder(encoder, setting.device)
    classifier = IntentClassifier(loaded, head=head, false_rejection=FALSE_REJECTION)
    classifier.fit(sample.texts, sample.intents, vectors=vectors)
    seconds += time.perf_counter() - start
    result = classifier.model_.score(scored)
    own = result.abstained[len(texts.valid) :]
    details = {"head": classifier.head_, "own_false_rejection": float(own[: len(texts.test)].mean())}
    if texts.out_of_scope:
        details["own_oos_recall"] = float(own[len(texts.test) :].mean())
    return predict_with(classifier, scored, seconds, details)


def predict_with(classifier: IntentClassifier, scored: Vectors, seconds: float, details: dict[str, Any]) -> Prediction:
    """Return the most probable intents of a fitted classifier, with the scores by which it abstains."""
    best = classifier.model_.score(scored).probabilities.argmax(1)
    scores = classifier.model_.score(scored).scores.max(1)
    return Prediction(classifier.classes_[best], scores, seconds, details)


def classify_with_tuning(encoder: str, setting: Setting, cell: Cell, texts: Texts, sample: Sample) -> Prediction:
    """Fine-tune turnwise's encoder on the examples, and fit a logistic head on its vectors."""
    loaded = load_encoder(encoder, setting.device)
    start = time.perf_counter()
    tuned = tune_encoder(loaded, sample.texts, list(sample.intents), TuningSettings(seed=cell.seed))
    classifier = IntentClassifier(tuned, head="logistic", false_rejection=None).fit(sample.texts, sample.intents)
    seconds = time.perf_counter() - start
    return predict_with(classifier, tuned.encode(texts.scored, normalise=True, max_length=MAX_LENGTH), seconds, {})


def classify_with_regression(encoder: str, setting: Setting, cell: Cell, texts: Texts, sample: Sample) -> Prediction:
    """Fit scikit-learn's logistic regression on frozen vectors; the score is the highest probability."""
    vectors, scored, seconds = frozen_vectors(setting, encoder, cell, sample)
    start = time.perf_counter()
    regression = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=1_000).fit(vectors, sample.intents)
    seconds += time.perf_counter() - start
    probabilities = regression.predict_proba(scored)
    return Prediction(regression.classes_[probabilities.argmax(1)], probabilities.max(1), seconds, {})


def classify_by_nearest(encoder: str, setting: Setting, cell: Cell, texts: Texts, sample: Sample) -> Prediction:
    """Predict the intent of the nearest example; the score is its cosine."""
    vectors, scored, seconds = frozen_vectors(setting, encoder, cell, sample)
    cosines = scored @ vectors.T
    return Prediction(sample.intents[cosines.argmax(1)], cosines.max(1), seconds, {})


def classify_with_setfit(encoder: str, setting: Setting, cell: Cell, texts: Texts, sample: Sample) -> Prediction:
    """Train SetFit (contrastive pairs, then its logistic regression); the score is the highest probability."""
    from datasets import Dataset
    from datasets.utils.logging import disable_progress_bar
    from setfit import SetFitModel, Trainer, TrainingArguments

    disable_progress_bar()
    model = SetFitModel.from_pretrained(str(model_folder(encoder)), device=setting.device)
    arguments = TrainingArguments(
        output_dir=str(setting.out / f"setfit-{os.getpid()}"),
        batch_size=16,
        num_epochs=1,
        num_iterations=SETFIT_ITERATIONS,
        seed=cell.seed,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        show_progress_bar=False,
    )
    examples = Dataset.from_dict({"text": sample.texts, "label": [str(intent) for intent in sample.intents]})
    start = time.perf_counter()
    Trainer(model=model, args=arguments, train_dataset=examples).train()
    seconds = time.perf_counter() - start
    vectors = model.model_body.encode(texts.scored, batch_size=256, show_progress_bar=False)
    probabilities = model.model_head.predict_proba(vectors)
    names = np.array([str(name) for name in model.model_head.classes_])
    return Prediction(names[probabilities.argmax(1)], probabilities.max(1), seconds, {})


@dataclass(frozen=True)
class Method:
    """A method of the comparison."""

    title: str
    encoder: str
    classify: Callable[[str, Setting, Cell, Texts, Sample], Prediction]
    trains_encoder: bool = False


METHODS = {
    "turnwise": Method("turnwise-small, default", "turnwise-small", classify_with_turnwise),
    "turnwise-neighbours": Method(
        "turnwise-small, head neighbours", "turnwise-small", partial(classify_with_turnwise, head="neighbours")
    ),
    "turnwise-logistic": Method(
        "turnwise-small, head logistic", "turnwise-small", partial(classify_with_turnwise, head="logistic")
    ),
    "turnwise-tuned": Method("turnwise-small, fine-tuned", "turnwise-small", classify_with_tuning, True),
    "small-regression": Method("turnwise-small, logistic regression", "turnwise-small", classify_with_regression),
    "turnwise-minilm": Method("MiniLM, turnwise's classifier", "minilm", classify_with_turnwise),
    "minilm-regression": Method("MiniLM, logistic regression", "minilm", classify_with_regression),
    "minilm-nearest": Method("MiniLM, nearest example", "minilm", classify_by_nearest),
    "setfit": Method("SetFit from MiniLM", "minilm", classify_with_setfit, True),
}

#: The method that differences are reported against.
REFERENCE = "turnwise"


def measure(setting: Setting, cell: Cell) -> dict[str, Any]:
    """Return the metrics of a cell, as fractions; out-of-scope metrics only where the data set has such texts."""
    torch.set_num_threads(1)
    texts = read_texts(cell.dataset, setting.data)
    sample = sample_examples(texts, cell.shots, cell.seed)
    method = METHODS[cell.method]
    prediction = method.classify(method.encoder, setting, cell, texts, sample)
    valid, test = len(texts.valid), len(texts.test)
    threshold = lower_quantile(prediction.scores[:valid], FALSE_REJECTION)
    is_accepted = prediction.scores[valid:] >= threshold
    is_correct = prediction.intents[valid : valid + test] == texts.intents
    metrics = {
        "accuracy": is_correct.mean(),
        "accuracy_with_rejection": (is_correct & is_accepted[:test]).mean(),
        "false_rejection": 1 - is_accepted[:test].mean(),
    }
    if texts.out_of_scope:
        metrics["oos_recall"] = 1 - is_accepted[test:].mean()
        labels = np.repeat([1.0, 0.0], [test, len(texts.out_of_scope)])
        evidence = np.stack([prediction.scores[valid:], labels], -1)[None]
        metrics["auroc"] = compute_per_run("auroc", evidence)[0]
    return {
        **vars(cell),
        "examples": len(sample.texts),
        **{name: float(value) for name, value in metrics.items()},
        **prediction.details,
        "seconds": prediction.seconds,
        "device": torch.cuda.get_device_name() if setting.device == "cuda" else setting.device,
    }


# ---- running


def read_results(out: Path) -> list[dict[str, Any]]:
    """Read the results that are there, one per cell."""
    path = out / "results.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return list({(each["dataset"], each["shots"], each["seed"], each["method"]): each for each in results}.values())


def missing_cells(options: argparse.Namespace) -> list[Cell]:
    """Return the cells that have no result yet: seed by seed, and within a seed the longest first."""
    done = {(each["dataset"], each["shots"], each["seed"], each["method"]) for each in read_results(options.out)}
    order = sorted(options.methods, key=lambda name: not METHODS[name].trains_encoder)
    cells = [
        Cell(dataset, shots, seed, method)
        for seed in range(options.seeds)
        for method in order
        for shots in sorted(options.shots, reverse=True)
        for dataset in options.datasets
    ]
    return [cell for cell in cells if (cell.dataset, cell.shots, cell.seed, cell.method) not in done]


def run_cells(setting: Setting, cells: Sequence[Cell], processes: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield results as they are finished; no cell is started after the deadline."""
    if processes == 1:
        for cell in cells:
            if time.monotonic() < deadline:
                yield measure(setting, cell)
        return
    waiting = list(reversed(cells))
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running = {pool.submit(measure, setting, waiting.pop()) for _ in range(min(processes, len(waiting)))}
        while running:
            finished = next(as_completed(running))
            running.remove(finished)
            if waiting and time.monotonic() < deadline:
                running.add(pool.submit(measure, setting, waiting.pop()))
            yield finished.result()


def run(options: argparse.Namespace) -> None:
    """Measure what is missing."""
    # for the processes that are started: one thread each, and no messages about loading
    os.environ |= {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    deadline = time.monotonic() + 60 * options.minutes
    setting = Setting(options.data, options.out, options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    cells = missing_cells(options)
    frozen = [cell for cell in cells if not METHODS[cell.method].trains_encoder]
    for encoder, dataset in sorted({(METHODS[cell.method].encoder, cell.dataset) for cell in frozen}):
        save_vectors(setting, encoder, dataset)
    log(f"{len(cells)} cells to measure; vectors are ready")
    with (options.out / "results.jsonl").open("a", encoding="utf-8") as file:
        for number, result in enumerate(run_cells(setting, cells, options.processes, deadline), 1):
            result["processes"] = options.processes
            file.write(json.dumps(result) + "\n")
            file.flush()
            name = " ".join(str(result[key]) for key in ("dataset", "shots", "seed", "method"))
            log(f"{number}/{len(cells)} {name}: {result['accuracy']:.1%}, {result['seconds']:.1f} s")


def log(message: str) -> None:
    """Print progress to standard error."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


# ---- the report


def confidence_interval(values: Sequence[float]) -> str:
    """Return the mean with its 95% interval over seeds (Student's t), in percent."""
    if not values:
        return "–"
    mean, count = 100 * float(np.mean(values)), len(values)
    if count < 2:
        return f"{mean:.1f}"
    half = 100 * float(student.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return f"{mean:.1f} ± {half:.1f}"


def difference(values: dict[int, float], reference: dict[int, float]) -> str:
    """Return the mean paired difference from the reference with its 95% interval; bold if it excludes 0."""
    seeds = sorted(values.keys() & reference.keys())
    differences = 100 * np.array([values[seed] - reference[seed] for seed in seeds])
    if len(seeds) < 2:
        return f"{differences.mean():+.1f}" if seeds else "–"
    half = float(student.ppf(0.975, len(seeds) - 1) * differences.std(ddof=1) / np.sqrt(len(seeds)))
    text = f"{round(differences.mean(), 1) + 0.0:+.1f} ± {half:.1f}".replace("-", "−")
    return f"**{text}**" if abs(differences.mean()) > half else text


def make_report(results: Sequence[dict[str, Any]]) -> str:
    """Return Markdown tables of the results, over the seeds for which the reference has been measured."""
    by_cell: dict[tuple[str, int, str], dict[int, dict[str, Any]]] = {}
    for result in results:
        by_cell.setdefault((result["dataset"], result["shots"], result["method"]), {})[result["seed"]] = result
    methods = {name: METHODS[name].title for name in METHODS if any(name == key[2] for key in by_cell)}
    others = [name for name in methods if name != REFERENCE]

    def values(dataset: str, shots: int, method: str, metric: str) -> dict[int, float]:
        reference = by_cell.get((dataset, shots, REFERENCE), {})
        cells = by_cell.get((dataset, shots, method), {})
        return {seed: each[metric] for seed, each in cells.items() if metric in each and seed in reference}

    def gap(dataset: str, shots: int, method: str, metric: str) -> str:
        return difference(values(dataset, shots, method, metric), values(dataset, shots, REFERENCE, metric))

    def interval(dataset: str, shots: int, method: str, metric: str) -> str:
        return confidence_interval(list(values(dataset, shots, method, metric).values()))

    tables = []
    for metric, name in (
        ("accuracy", "Accuracy without rejection (%)"),
        ("accuracy_with_rejection", "In-scope accuracy at 5% false rejection (%); a rejected text counts as wrong"),
    ):
        for shots in SHOTS:
            title = f"{name}, {shots} examples per intent"
            rows = {methods[m]: [interval(d, shots, m, metric) for d in DATASETS] for m in methods}
            tables.append(markdown_table(title, list(DATASETS.values()), rows))
            rows = {methods[m]: [gap(d, shots, m, metric) for d in DATASETS] for m in others}
            tables.append(markdown_table("Differences from the first row", list(DATASETS.values()), rows))
    columns = {"false_rejection": "false rejection", "oos_recall": "out-of-scope recall", "auroc": "AUROC"}
    for shots in SHOTS:
        rows = {
            methods[m]: [
                *(interval("clinc150", shots, m, metric) for metric in columns),
                *(gap("clinc150", shots, m, metric) if m != REFERENCE else "" for metric in ("oos_recall", "auroc")),
            ]
            for m in methods
        }
        names = [*columns.values(), "recall, difference", "AUROC, difference"]
        title = f"CLINC150, out of scope (%), thresholds from validation texts, {shots} examples per intent"
        tables.append(markdown_table(title, names, rows))
    with_threshold = [name for name in ("turnwise", "turnwise-minilm") if name in methods]
    own = {"own_false_rejection": "false rejection", "own_oos_recall": "out-of-scope recall"}
    rows = {
        f"{methods[m]}, {shots} examples per intent": [interval("clinc150", shots, m, metric) for metric in own]
        for m in with_threshold
        for shots in SHOTS
    }
    title = "CLINC150, out of scope (%), turnwise's own threshold: 5% requested, from the examples alone"
    tables.append(markdown_table(title, list(own.values()), rows))
    alone = [each for each in results if each["processes"] == 1]
    rows = {methods[each["method"]]: [f"{each['seconds']:.1f}"] for each in alone}
    tables.append(
        markdown_table("Seconds to fit CLINC150, 5 examples per intent, alone on the device", ["seconds"], rows)
    )
    cells = [(dataset, shots) for dataset in DATASETS for shots in SHOTS]
    rows = {methods[m]: [str(len(values(d, k, m, "accuracy"))) for d, k in cells] for m in methods}
    tables.append(markdown_table("Seeds", [f"{DATASETS[d]}, {k}" for d, k in cells], rows))
    rows = {
        methods[m]: [heads_chosen([each["head"] for each in by_cell.get((d, k, m), {}).values()]) for d, k in cells]
        for m in with_threshold
    }
    tables.append(markdown_table("Heads that were chosen", [f"{DATASETS[d]}, {k}" for d, k in cells], rows))
    return "\n\n".join(tables) + "\n"


def heads_chosen(heads: Sequence[str]) -> str:
    """Return how often each head was chosen."""
    return ", ".join(f"{head} {heads.count(head)}" for head in sorted(set(heads)))


def markdown_table(title: str, columns: Sequence[str], rows: dict[str, list[str]]) -> str:
    """Return a table with its title."""
    head = f"{title}\n\n| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}"
    return "\n".join([head, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])


def main() -> None:
    """Run or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--data", type=Path, default=os.environ.get("TURNWISE_DATA"), help="folder of data sets")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6, help="start nothing new after this time")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--shots", nargs="+", type=int, choices=SHOTS, default=SHOTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--report", action="store_true", help="print tables instead of measuring")
    options = parser.parse_args()
    if options.report:
        sys.stdout.write(make_report(read_results(options.out)))
        return
    if options.data is None:
        parser.error("--data or TURNWISE_DATA must name the folder of data sets")
    run(options)


if __name__ == "__main__":
    main()
