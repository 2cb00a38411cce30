"""`turnwise train` and `turnwise recipes`: from conversations to models."""

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet


def train_command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `turnwise recipes`) or a YAML file.")],
    corpus: Annotated[list[Path], typer.Option(help="A store to learn from; may be repeated.")],
    out: Annotated[Path, typer.Option(help="The model's folder.")],
    backbone: Annotated[
        str | None, typer.Option(help="What to start from: minilm, a folder (of a re-ranker, too), a Hugging Face id.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key of the recipe, as key=value; may be repeated.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Take only dialogues of this split; may be repeated.")] = None,
    probe: Annotated[
        Path | None, typer.Option(help="A folder with held-out data to measure on before, while and after.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard's files.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Keep tokenised texts here, for other runs over the same corpus.")
    ] = None,
    longest_wait: Annotated[
        float,
        typer.Option(
            help="On several processes: seconds without a sign of life after which one counts as lost.", min=1
        ),
    ] = 600,
    as_json: AsJson = False,
) -> None:
    """Trains an encoder on conversations, or a re-ranker where the recipe has response selection.

    Example: `turnwise train dse --corpus sample --split train --probe sample --out model --set steps=50`

    Example: `turnwise train ums --corpus sample --split train --probe sample --out reranker`

    Example, on the four GPUs of a machine: `torchrun --nproc-per-node 4 -m turnwise train dse --corpus store --out model`

    Killed or interrupted, the same command with `--resume` goes on and ends with the same weights.
    """
    quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.evaluation.probe import make_probe
    from turnwise.training.loop import train
    from turnwise.training.processes import writes
    from turnwise.training.recipe import load_recipe

    changes = [*(settings or []), *([f"backbone={backbone}"] if backbone else [])]
    wanted = load_recipe(recipe, changes)
    measure = make_probe(probe, wanted.reranks) if probe else None
    if wanted.keep_best and measure is None:
        typer.echo(
            f"keep_best={wanted.keep_best}: nothing is measured without --probe, so the last model is kept", err=True
        )
    with bar() as progress:
        train(
            wanted,
            read_corpus(*corpus, splits=split or None),
            out,
            resume=resume,
            probe=measure,
            progress=progress,
            tensorboard=tensorboard,
            cache=cache,
            longest_wait=longest_wait,
        )
    if not writes():
        return
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "loss" in line]
    probed = [line for line in lines if any(name.startswith("probe.") for name in line)]
    if as_json:
        print_json({"model": str(out), "last": steps[-1] if steps else None, "probes": probed})
        return
    rows = (
        [("steps", f"{steps[-1]['step']:,}"), ("loss", f"{steps[0]['loss']:.3f} → {steps[-1]['loss']:.3f}")]
        if steps
        else []
    )
    for name in probed[0] if probed else ():
        if name != "step":
            change = probed[-1][name] - probed[0][name]
            rows.append(
                (name.removeprefix("probe."), f"{probed[0][name]:.2f} → {probed[-1][name]:.2f} ({change:+.2f})")
            )
    print_table(f"[bold]{out}", rows)


def recipes_command(
    name: Annotated[str | None, typer.Argument(help="A recipe, to see it whole.")] = None,
) -> None:
    """The recipes that come with turnwise: NAME-paper has a paper's own numbers, NAME is what we recommend."""
    from turnwise.training.recipe import load_recipe
    from turnwise.training.recipes import packaged

    if name:
        typer.echo(load_recipe(name).to_yaml(), nl=False)
    else:
        print_table("[bold]Recipes", [(each, load_recipe(each).describes) for each in packaged()])
