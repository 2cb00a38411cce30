"""`turnwise evaluate`, `turnwise compare` and `turnwise annotate`: how good a model is."""

import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli import options
from turnwise.cli.help import command_group
from turnwise.cli.output import facts, message, progress_bar, show
from turnwise.cli.train import show_points
from turnwise.core import registry
from turnwise.core.imports import require
from turnwise.core.model_names import DEFAULT_ENCODER

if TYPE_CHECKING:
    from turnwise.evaluation.metrics import MetricRow

annotate_app = command_group("Collect human similarity scores for pairs of texts.")


def evaluate_command(
    model: Annotated[
        str,
        Argument(
            help=f"{options.PACKAGED_ENCODERS}, a model folder, a Hugging Face id, sentence-transformers:NAME, "
            "glove:FILE, or module:function (from a list of texts to an array)."
        ),
    ],
    data: options.Data,
    out: Annotated[Path, Option(file_okay=False, help="Folder for results.json, tables.md and report.html.")],
    suite: Annotated[
        str | None,
        Option(
            callback=options.registered("suite"),
            help=f"Fill a paper's tables: {', '.join(registry.known_names('suite'))}.",
        ),
    ] = None,
    task: options.Tasks = None,
    dataset: options.Datasets = None,
    pooling: options.PoolingName = None,
    postprocess: Annotated[
        str | None,
        Option(
            callback=options.registered("post-processor"),
            help=f"Post-process the vectors by {' or '.join(registry.known_names('post-processor'))}; needs --fit.",
        ),
    ] = None,
    fit: Annotated[Path | None, Option(help="Store whose texts the post-processing is fitted on.")] = None,
    compressed: options.Compressed = False,
    reranker: options.OptionalReranker = None,
    fine_tuning: Annotated[bool | None, Option(help="Also fine-tune the encoder; on for a suite.")] = None,
    exclude_seen: Annotated[bool, Option("--exclude-seen", help="Only test examples not seen in training.")] = False,
    seeds: options.EvaluationSeeds = None,
    steps: options.EvaluationSteps = None,
    every_epoch: Annotated[
        bool, Option("--every-epoch", help="Evaluate every saved epoch of the run MODEL, and draw curves.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a model with the protocols of published papers.

    The report shows confidence intervals, and the published results next to the model's. Finished work is kept in
    OUT/cache: the same command continues after an interruption.

    Example: `turnwise evaluate minilm --suite dse --data data --out results`
    """
    if (suite is None) == (not task):
        raise typer.BadParameter("name either a suite or one or more tasks", param_hint="--suite / --task")
    if (postprocess is None) != (fit is None):
        raise typer.BadParameter("--postprocess and --fit must be used together", param_hint="--postprocess")
    require("torch", "pyarrow", extra="train")
    from turnwise.evaluation.evaluation_protocols import Effort

    effort = Effort(seeds, steps)
    if every_epoch:
        from turnwise.papers.sweeps.experiment import EvaluationPlan
        from turnwise.papers.sweeps.series import evaluate_epochs

        if postprocess is not None or reranker is not None or compressed or exclude_seen:
            unused = "cannot be used with --postprocess, --reranker, --compressed or --exclude-seen"
            raise typer.BadParameter(unused, param_hint="--every-epoch")
        fine_tuning = suite is not None if fine_tuning is None else fine_tuning
        plan = EvaluationPlan(data, (suite,) if suite else (), task or (), dataset or (), fine_tuning, effort)
        with progress_bar() as progress:
            points = evaluate_epochs(Path(model), plan, out, pooling, progress)
        show_points(points, out, as_json, title=model)
        return
    from turnwise.evaluation.reporting.report import write_report
    from turnwise.evaluation.results import describe_seen, describe_source
    from turnwise.models.loading import load_model, postprocess_model

    loaded = load_model(model, pooling, compressed)
    gc.freeze()  # the garbage collector need not traverse the objects of the libraries again and again
    try:
        with progress_bar() as progress:
            if postprocess is not None and fit is not None:
                texts = (turn.text for dialogue in turnwise.read_corpus(fit) for turn in dialogue.turns)
                loaded = postprocess_model(loaded, postprocess, texts)
            results = turnwise.evaluate(
                loaded,
                data,
                suite=suite,
                tasks=task or (),
                datasets=dataset or (),
                out=out,
                reranker=reranker,
                fine_tuning=fine_tuning,
                exclude_seen=exclude_seen,
                effort=effort,
                progress=progress,
            )
        write_report(results, out)
    finally:
        gc.unfreeze()
    rows = [(f"{row.task}: {row.dataset}, {row.setting}", f"{row.metric} {_interval(row)}") for row in results.rows]
    written = json.loads((out / "results.json").read_text(encoding="utf-8"))
    show(written, facts(results.model, rows), as_json=as_json)
    if not as_json:
        message(f"training data: {results.facts['training data']}")
        for entry in results.data:
            if entry["leakage"] is not None and entry["leakage"]["affected"]:
                message(f"seen in training: {entry['name']} ({', '.join(entry['tasks'])}): {describe_seen(entry)}")
        for name, reason in results.facts["left out"].items():
            message(f"left out: {name}; {reason}")
        for entry in results.missing:
            message(f"missing: {entry['name']} ({entry['wanted_by']}); {describe_source(entry['home'])}")
        message(f"tables: {out / 'report.html'}")


def _interval(row: "MetricRow") -> str:
    from turnwise.evaluation.tables import SEEN_MARK, decimals_for, format_interval, format_number

    digits = decimals_for(row.value, row.high)
    mark = SEEN_MARK if row.seen else ""
    return f"{format_number(row.value, digits)}{mark}  (95%: {format_interval(row.low, row.high, digits)})"


def compare_command(
    results: Annotated[list[Path], Argument(help="Folders written by `evaluate`; each is compared with the first.")],
    all_pairs: Annotated[bool, Option("--all-pairs", help="Compare every two folders instead.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Compare evaluated models with paired tests.

    Every metric and the means are compared by paired bootstrap, corrected for multiple comparisons.

    Example: `turnwise compare results/before results/after`
    """
    if len(results) < 2:
        raise typer.BadParameter("name two or more result folders", param_hint="RESULTS…")
    from turnwise.evaluation.reporting.comparison import compare, comparison_json, comparison_text

    with progress_bar() as progress:
        comparison = compare(*results, all_pairs=all_pairs, progress=progress)
    if as_json:
        show(comparison_json(comparison), as_json=True)
    else:
        typer.echo(comparison_text(comparison))


@annotate_app.command("export")
def annotate_export_command(
    store: Annotated[Path, Argument(help="Store whose turns have intents or acts.")],
    out: Annotated[Path, Option(dir_okay=False, help="CSV file for the annotators.")],
    pairs: Annotated[int, Option(min=3, help="Number of pairs.")] = 300,
    label: Annotated[Literal["intent", "acts"], Option(help="Label that pairs are sampled by.")] = "intent",
    model: options.Model = DEFAULT_ENCODER,
    seed: options.Seed = 0,
) -> None:
    """Write pairs of texts for people to rate, as DialogueCSE did.

    A third of them are nearest neighbours by the model.

    Example: `turnwise annotate export store --out pairs.csv --pairs 300`
    """
    from turnwise.evaluation.datasets.retrieval import labelled_turns
    from turnwise.papers.annotation import sample_pairs, write_pairs

    turns = labelled_turns(turnwise.read_corpus(store), label)
    candidates = sample_pairs(turns, turnwise.Encoder.load(model), pairs, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_pairs(out, candidates)
    message(f"wrote {len(candidates)} pairs to {out}; ask annotators for a score from 1 to 5 in the last column")


@annotate_app.command("collect")
def annotate_collect_command(
    files: Annotated[list[Path], Argument(help="CSV files returned by the annotators.")],
    out: Annotated[Path, Option(dir_okay=False, help="Tab-separated file: score, first and second text.")],
) -> None:
    """Write a similarity set from the annotators' median scores.

    Example: `turnwise annotate collect ann.csv bob.csv eve.csv --out gold.txt`
    """
    from turnwise.papers.annotation import read_gold_pairs, write_gold

    pairs = read_gold_pairs(files)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_gold(out, pairs)
    message(f"wrote {len(pairs)} pairs to {out}")
