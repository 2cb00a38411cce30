"""`turnwise train`, `recipes`, `sweep`, `soup` and `glove`: from conversations to models, one or many."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli import options
from turnwise.cli.output import Block, facts, lines, message, progress_bar, show
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.papers.sweeps.experiment import SweepPoint


def train_command(
    recipe: Annotated[str, Argument(help="Recipe name (see `turnwise recipes`) or YAML file.")],
    out: Annotated[Path, Option(help="Model folder to write.")],
    backbone: Annotated[
        str | None, Option(help="Starting point: minilm (English), a folder or a Hugging Face id.")
    ] = None,
    settings: options.Overrides = None,
    corpus: options.TrainingCorpora = None,
    split: options.TrainingSplits = None,
    probe: Annotated[Path | None, Option(help="Data sets or store to evaluate on during training.")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue from the newest checkpoint in OUT.")] = False,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write TensorBoard event files.")] = False,
    cache: Annotated[Path | None, Option(help="Folder for tokenised texts, shared by runs over a corpus.")] = None,
    process_timeout: Annotated[float, Option(help="Seconds without a heartbeat until a process is lost.", min=1)] = 600,
    as_json: options.AsJson = False,
) -> None:
    """Train an encoder or a re-ranker on conversations.

    The recipe decides which: one with response selection trains a re-ranker.

    Example: `turnwise train dse --corpus sample --split train --probe sample --out model --set steps=50`

    Example, on four GPUs: `torchrun --nproc-per-node 4 -m turnwise train dse --corpus store --out model`

    After an interruption, the same command with `--resume` continues; on a CPU it ends with the same weights.
    """
    require("torch", "pyarrow", extra="train")
    from turnwise.training.recipe_files import read_recipe_text

    read_recipe_text(recipe)  # a name that does not exist is refused before torch is imported
    stores = options.read_training_corpus(corpus, split)
    from turnwise.evaluation.probe import make_probe
    from turnwise.training.distributed import is_main_process
    from turnwise.training.metrics import read_metrics

    loaded = turnwise.load_recipe(recipe, [*(settings or []), *([f"backbone={backbone}"] if backbone else [])])
    measure = make_probe(probe, loaded.reranks) if probe else None
    if loaded.keep_best and measure is None:
        message(f"keep_best={loaded.keep_best} has no effect without --probe: the last model is kept")
    with progress_bar() as progress:
        turnwise.train(
            loaded,
            stores,
            out,
            resume=resume,
            probe=measure,
            progress=progress,
            tensorboard=tensorboard,
            cache=cache,
            process_timeout=process_timeout,
        )
    if not is_main_process():
        return
    records = read_metrics(out / "metrics.jsonl")
    steps = [record for record in records if "loss" in record]
    probes = [record for record in records if any(name.startswith("probe.") for name in record)]
    rows = []
    if steps:
        rows = [("steps", f"{steps[-1]['step']:,}"), ("loss", f"{steps[0]['loss']:.3f} → {steps[-1]['loss']:.3f}")]
    for name in probes[0] if probes else ():
        if name != "step":
            before, after = probes[0][name], probes[-1][name]
            rows.append((name.removeprefix("probe."), f"{before:.2f} → {after:.2f} ({after - before:+.2f})"))
    data = {"model": str(out), "last": steps[-1] if steps else None, "probes": probes}
    show(data, facts(out, rows), as_json=as_json)


def recipes_command(
    name: Annotated[str | None, Argument(help="Recipe to print in full.")] = None,
    every: Annotated[bool, Option("--all", help="List all recipes by method, also those of the papers.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """List recipes and when to use which, or print one.

    NAME-paper has the settings of a paper, NAME our own.

    Example: `turnwise recipes dse` prints every key of a recipe, for `turnwise train dse --set KEY=VALUE`.
    """
    from turnwise.training.recipe_files import summarise_recipes

    if name:
        recipe = turnwise.load_recipe(name)
        if as_json:
            show(asdict(recipe), as_json=True)
        else:
            typer.echo(recipe.to_yaml(), nl=False)
        return
    recipes = [each for each in summarise_recipes() if every or each.recommended]
    data = [{**asdict(each), "recommended": each.recommended} for each in recipes]
    if every:
        methods = dict.fromkeys(each.method for each in recipes)
        blocks = [facts(title, [(r.name, r.describes) for r in recipes if r.method == title]) for title in methods]
        hint = "One recipe in full: turnwise recipes NAME"
    else:
        blocks = [facts(r.name, [("  use", r.use), ("  data", r.data), ("  time", r.time)]) for r in recipes]
        hint = "All recipes, with those of the papers: turnwise recipes --all\nOne in full: turnwise recipes NAME"
    show(data, *blocks, hint, as_json=as_json)


def _list_sweeps(requested: bool) -> None:
    if requested:
        from turnwise.papers.sweeps.plan import load_sweep, packaged_sweeps

        show(None, facts("Sweeps", [(name, load_sweep(name).description) for name in packaged_sweeps()]))
        raise typer.Exit


def sweep_command(
    recipe: Annotated[str, Argument(help="Sweep name (see --list) or file, or a recipe together with --grid.")],
    data: options.Data,
    out: Annotated[Path, Option(file_okay=False, help="Folder for models, results.json, table.md and report.html.")],
    grid: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUES", help="Recipe key and its values, as key=a,b,c or key=[1],[1,2]; repeatable."),
    ] = None,
    variant: Annotated[list[str] | None, Option(metavar="VARIANT", help="Only this variant; repeatable.")] = None,
    settings: options.Overrides = None,
    suite: options.Suites = None,
    task: options.Tasks = None,
    dataset: options.Datasets = None,
    corpus: options.TrainingCorpora = None,
    split: options.TrainingSplits = None,
    seeds: options.EvaluationSeeds = None,
    steps: options.EvaluationSteps = None,
    fine_tuning: options.FineTuning = False,
    start: Annotated[bool, Option(help="Evaluate the untrained encoder first.")] = True,
    keep_checkpoints: Annotated[bool, Option("--keep-checkpoints", help="Keep checkpoints of finished runs.")] = False,
    as_json: options.AsJson = False,
    list_sweeps: Annotated[bool, Option("--list", callback=_list_sweeps, is_eager=True, help="List sweeps.")] = False,
) -> None:
    """Train and evaluate a recipe at every point of a grid.

    `--suite` and `--task` replace the suites that a packaged sweep names. After an interruption or failure the same
    command continues; the grid may grow in the meantime.

    Example: `turnwise sweep dse --grid learning_rate=3e-6,3e-5 --corpus store --suite dse --data data --out sweep`
    """
    require("torch", "pyarrow", extra="train")
    from turnwise.core.errors import TrainingError, TrainingInterruptedError
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.papers.sweeps.experiment import EvaluationPlan
    from turnwise.papers.sweeps.plan import load_sweep
    from turnwise.papers.sweeps.run import run_sweep

    suites = (suite or ()) if suite or task else None
    sweep = load_sweep(recipe, grid or (), settings or (), suites, variant or None)
    plan = EvaluationPlan(data, sweep.suites, tuple(task or ()), dataset or (), fine_tuning, Effort(seeds, steps))
    read = options.read_training_corpus(corpus, split)
    try:
        with progress_bar() as progress:
            points = run_sweep(
                sweep, read, plan, out, start=start, keep_checkpoints=keep_checkpoints, progress=progress
            )
    except (TrainingInterruptedError, KeyboardInterrupt):
        message("interrupted; everything is saved. Run the same command to continue")
        raise typer.Exit(130) from None
    show_points(points, out, as_json, title=sweep.recipe)
    failures = [f"{point.name}: {point.failure}" for point in points if point.failure]
    if failures:
        raise TrainingError(
            f"{len(failures)} of {len(points)} points failed; the same command retries them. {'; '.join(failures)}"
        )


def soup_command(
    first: Annotated[str, Argument(help="Model at ratio 0: a packaged one, a folder or a Hugging Face id.")],
    second: Annotated[str, Argument(help="Model at ratio 1, of the same shape.")],
    ratio: Annotated[str, Option(help="Weight of the second model, 0 to 1; several as 0,0.25,0.5,0.75,1.")],
    out: Annotated[Path, Option(file_okay=False, help="Folder for the model, or for several and their results.")],
    suite: options.Suites = None,
    task: options.Tasks = None,
    data: options.OptionalData = None,
    dataset: options.Datasets = None,
    fine_tuning: options.FineTuning = False,
    seeds: options.EvaluationSeeds = None,
    steps: options.EvaluationSteps = None,
    as_json: options.AsJson = False,
) -> None:
    """Average the weights of two models, and evaluate the results.

    Finished work is kept in OUT: the same command continues after an interruption.

    Example: `turnwise soup minilm model --ratio 0,0.25,0.5,0.75,1 --suite dse --data data --out soups`
    """
    try:
        ratios = [float(part) for part in ratio.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers from 0 to 1 separated by commas, got {ratio!r}") from None
    if (suite or task) and data is None:
        raise typer.BadParameter("name the folder of data sets", param_hint="--data")
    if (dataset or seeds or steps or fine_tuning) and not (suite or task):
        raise typer.BadParameter("name what to evaluate", param_hint="--suite / --task")
    require("torch", "pyarrow", extra="train")
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.papers.sweeps.experiment import EvaluationPlan
    from turnwise.papers.sweeps.series import evaluate_soups, write_soup, write_soups

    if data is not None and (suite or task):
        plan = EvaluationPlan(data, suite or (), task or (), dataset or (), fine_tuning, Effort(seeds, steps))
        with progress_bar() as progress:
            points = evaluate_soups(first, second, ratios, plan, out, progress)
        show_points(points, out, as_json)
        return
    if len(ratios) == 1:
        write_soup(first, second, ratios[0], out)
        folders = {ratios[0]: out}
    else:
        with progress_bar() as progress:
            folders = write_soups(first, second, ratios, out, progress)
    models = [{"ratio": ratio, "model": str(folder)} for ratio, folder in folders.items()]
    show(models, lines(*((str(folder), "") for folder in folders.values())), as_json=as_json)


def show_points(points: "Sequence[SweepPoint]", out: Path, as_json: bool, title: str = "") -> None:
    """Print the results of an experiment and the path of its report."""
    show(json.loads((out / "results.json").read_text(encoding="utf-8")), metric_lines(points, title), as_json=as_json)
    message(f"tables and curves: {out / 'report.html'}")


def metric_lines(points: "Sequence[SweepPoint]", title: str) -> Block:
    """One block per metric with one line per point, which fits any terminal width."""
    from turnwise.papers.sweeps.experiment import summary_table

    (_, *metrics), table = summary_table(points)
    width = max(len(name) for name, *_ in table)
    parts = [(title, "bold")] if title else []
    for column, metric in enumerate(metrics, 1):
        parts += [(metric, "bold"), *((f"  {row[0]:{width}}  {row[column]}", "") for row in table)]
    return lines(*parts)


def glove_command(
    out: Annotated[Path, Option(dir_okay=False, help="File of word vectors to write.")],
    corpus: options.TrainingCorpora = None,
    split: options.TrainingSplits = None,
    dimensions: Annotated[int, Option(min=1, help="Dimensions of the word vectors.")] = 100,
    window: Annotated[int, Option(min=1, help="Maximum distance of two words in a turn.")] = 10,
    min_count: Annotated[int, Option(min=1, help="Ignore words that occur less often.")] = 5,
    epochs: Annotated[int, Option(min=1, help="Passes over all word pairs.")] = 15,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
    as_json: options.AsJson = False,
) -> None:
    """Train GloVe word vectors, a baseline for evaluation.

    Example: `turnwise glove --corpus store --out vectors.txt`, then `turnwise evaluate glove:vectors.txt …`
    """
    require("torch", "pyarrow", extra="train")
    from turnwise.papers.baselines.word_vectors import train_word_vectors

    read = options.read_training_corpus(corpus, split)
    settings = {"size": dimensions, "window": window, "min_count": min_count, "epochs": epochs, "seed": seed}
    with progress_bar() as progress:
        result = train_word_vectors(read, out, **settings, progress=progress)
    data = {"vectors": str(out), "words": result.words, "pairs": result.pairs, "losses": list(result.losses)}
    rows = [
        ("words", f"{result.words:,} that occur at least {min_count} times"),
        ("pairs", f"{result.pairs:,}"),
        ("loss", f"{result.losses[0]:.4f} → {result.losses[-1]:.4f}"),
    ]
    show(data, facts(out, rows), as_json=as_json)
