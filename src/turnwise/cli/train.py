"""`turnwise train`, `turnwise recipes` and `turnwise glove`: from conversations to models."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.options import AsJson, Overrides, Splits, TrainingCorpora
from turnwise.cli.output import facts, message, progress_bar, show
from turnwise.core.imports import require


def train_command(
    recipe: Annotated[str, Argument(help="Recipe name (see `turnwise recipes`) or YAML file.")],
    corpus: TrainingCorpora,
    out: Annotated[Path, Option(help="Model folder to write.")],
    backbone: Annotated[
        str | None, Option(help="Starting point: minilm, turnwise-small, a model folder or a Hugging Face id.")
    ] = None,
    settings: Overrides = None,
    split: Splits = None,
    probe: Annotated[
        Path | None,
        Option(help="Evaluate before, during and after training on a folder of data sets, or a store with splits."),
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue from the newest checkpoint in OUT.")] = False,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write TensorBoard event files.")] = False,
    cache: Annotated[
        Path | None, Option(help="Folder for tokenised texts, shared by runs over the same corpus.")
    ] = None,
    process_timeout: Annotated[
        float, Option(help="With several processes: seconds without a heartbeat before one counts as lost.", min=1)
    ] = 600,
    as_json: AsJson = False,
) -> None:
    """Train an encoder or a re-ranker on conversations.

    The recipe decides which: one with response selection trains a re-ranker.

    Example: `turnwise train dse --corpus sample --split train --probe sample --out model --set steps=50`

    Example: `turnwise train ums --corpus sample --split train --probe sample --out reranker`

    Example, on four GPUs: `torchrun --nproc-per-node 4 -m turnwise train dse --corpus store --out model`

    After an interruption the same command with `--resume` continues and ends with the same weights.
    """
    require("torch", "pyarrow", extra="train")
    from turnwise.training.recipe_files import read_recipe_text

    read_recipe_text(recipe)  # a name that does not exist is refused before torch is imported
    stores = turnwise.read_corpus(*corpus, splits=split or None)
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
    as_json: AsJson = False,
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


def glove_command(
    corpus: TrainingCorpora,
    out: Annotated[Path, Option(dir_okay=False, help="File of word vectors to write.")],
    split: Splits = None,
    dimensions: Annotated[int, Option(min=1, help="Dimensions of the word vectors.")] = 100,
    window: Annotated[int, Option(min=1, help="Maximum distance of two words in a turn.")] = 10,
    min_count: Annotated[int, Option(min=1, help="Ignore words that occur less often.")] = 5,
    epochs: Annotated[int, Option(min=1, help="Passes over all word pairs.")] = 15,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Train GloVe word vectors, a baseline for evaluation.

    Example: `turnwise glove --corpus store --out vectors.txt`, then `turnwise evaluate glove:vectors.txt …`
    """
    require("torch", "pyarrow", extra="train")
    from turnwise.papers.baselines.word_vectors import train_word_vectors

    with progress_bar() as progress:
        result = train_word_vectors(
            turnwise.read_corpus(*corpus, splits=split or None),
            out,
            size=dimensions,
            window=window,
            min_count=min_count,
            epochs=epochs,
            seed=seed,
            progress=progress,
        )
    data = {"vectors": str(out), "words": result.words, "pairs": result.pairs, "losses": list(result.losses)}
    rows = [
        ("words", f"{result.words:,} that occur at least {min_count} times"),
        ("pairs", f"{result.pairs:,}"),
        ("loss", f"{result.losses[0]:.4f} → {result.losses[-1]:.4f}"),
    ]
    show(data, facts(out, rows), as_json=as_json)
