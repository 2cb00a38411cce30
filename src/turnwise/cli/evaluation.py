"""`turnwise evaluate`, `turnwise compare` and `turnwise annotate`: how good a model is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.evaluation.datasets.construction import Label
    from turnwise.evaluation.outcomes import Row
    from turnwise.models.backbone.pooling import Pooling

annotate_app = typer.Typer(
    help="Pairs of texts for people to compare, and what they said of them.", no_args_is_help=True
)


def evaluate_command(
    model: Annotated[
        str,
        typer.Argument(
            help="minilm, a model folder, a Hugging Face id, sentence-transformers:NAME, glove:FILE, or module:function, "
            "a Python function from a list of texts to an array."
        ),
    ],
    data: Annotated[Path, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets, or a sample world.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Where to write results.json, tables.md, tables.tex and report.html.")
    ],
    suite: Annotated[str | None, typer.Option(help="dse, dialoguecse, tadse, diaeval, ums: a paper's tables.")] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Instead of a suite: intents, responses, …; may be repeated.")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="These data sets alone; may be repeated.")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max, first-last, instead of the model's own.")] = None,
    postprocess: Annotated[str | None, typer.Option(help="whitening or flow, fitted on the texts of --fit.")] = None,
    fit: Annotated[Path | None, typer.Option(help="The store whose texts post-processing is fitted on.")] = None,
    compressed: Annotated[
        bool,
        typer.Option(
            "--compressed", help="Draw vectors towards those of templates (TaDSE), as the model's folder says how."
        ),
    ] = False,
    reranker: Annotated[
        str | None,
        typer.Option(
            help="A re-ranker's folder, beside an encoder: for the task selection, and wherever candidates are scored."
        ),
    ] = None,
    fine_tuning: Annotated[
        bool | None,
        typer.Option(help="Whether to run what trains the encoder; a suite does, a task does not.", show_default=False),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fewer runs than the protocol has; results say so.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Fewer steps of whatever is trained; results say so.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measures a model by the papers' protocols, with confidence intervals, beside the published figures.

    What was measured once is kept in OUT/cache: the same command goes on where it was interrupted.

    Example: `turnwise evaluate minilm --suite dse --data data --out results`
    """
    # before what takes seconds to import
    if (suite is None) == (not task):
        raise typer.BadParameter("say either which suite or which tasks", param_hint="--suite / --task")
    if (postprocess is None) != (fit is None):
        raise typer.BadParameter("--postprocess and --fit belong together", param_hint="--postprocess")
    quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.evaluation.evaluation_protocols import Effort
    from turnwise.evaluation.reporting.report import write_report
    from turnwise.evaluation.results import whence
    from turnwise.evaluation.runner import evaluate
    from turnwise.models.loading import load_model, postprocess_model
    from turnwise.papers import baselines  # noqa: F401  registers models and post-processors

    judged = load_model(model, _pooling(pooling), compressed)
    with bar() as progress:
        if postprocess is not None and fit is not None:
            texts = (turn.text for dialogue in read_corpus(fit) for turn in dialogue.turns)
            judged = postprocess_model(judged, postprocess, texts)
        results = evaluate(
            judged,
            data,
            suite=suite,
            tasks=task or (),
            datasets=dataset or (),
            out=out,
            reranker=reranker,
            fine_tuning=fine_tuning,
            effort=Effort(seeds, steps),
            progress=progress,
        )
    write_report(results, out)
    if as_json:
        typer.echo((out / "results.json").read_text(encoding="utf-8"), nl=False)
        return
    rows = [(f"{row.task}: {row.dataset}, {row.setting}", f"{row.metric} {_figure(row)}") for row in results.rows]
    print_table(f"[bold]{results.model}", rows)
    for name, reason in results.facts["left out"].items():
        typer.echo(f"left out: {name}; {reason}", err=True)
    for entry in results.missing:
        typer.echo(f"missing: {entry['name']} ({entry['wanted_by']}); {whence(entry['home'])}", err=True)
    typer.echo(f"{out / 'report.html'} has the tables", err=True)


def _figure(row: "Row") -> str:
    """A figure with its interval."""
    from turnwise.evaluation.reporting.cells import between, digits_of, number

    digits = digits_of(row.value, row.high)
    return f"{number(row.value, digits)}  (95%: {between(row.low, row.high, digits)})"


def compare_command(
    results: Annotated[
        list[Path], typer.Argument(help="Folders that `evaluate` wrote; each is compared with the first.")
    ],
    as_json: AsJson = False,
) -> None:
    """Says which of two models is better, figure by figure: paired bootstrap, corrected for many comparisons.

    Example: `turnwise compare results/before results/after`
    """
    if len(results) < 2:
        raise typer.BadParameter("give two folders of results or more", param_hint="RESULTS…")
    from turnwise.evaluation.reporting.compare import compare_all, comparison_json, comparison_text

    found = compare_all(results)
    if as_json:
        print_json(comparison_json(found))
    else:
        typer.echo(comparison_text(found))


@annotate_app.command("export")
def annotate_export_command(
    store: Annotated[Path, typer.Argument(help="A store whose turns have intents or acts.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The CSV file to give to annotators.")],
    pairs: Annotated[int, typer.Option(min=3, help="How many pairs.")] = 300,
    label: Annotated[str, typer.Option(help="intent or acts.")] = "intent",
    model: Annotated[str, typer.Option(help="The encoder whose neighbours a third of the pairs are.")] = "minilm",
    seed: Annotated[int, typer.Option(help="Of the drawing.")] = 0,
) -> None:
    """Writes candidate pairs for people to say how alike they are, as DialogueCSE made its similarity sets.

    Example: `turnwise annotate export store --out pairs.csv --pairs 300`
    """
    if label not in ("intent", "acts"):
        raise typer.BadParameter(f"{label!r}: choose intent or acts", param_hint="--label")
    quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.evaluation.datasets.construction import labelled_turns
    from turnwise.models.encoder import Encoder
    from turnwise.papers.annotation import candidate_pairs, write_pairs

    turns = labelled_turns(read_corpus(store), cast("Label", label))
    found = candidate_pairs(turns, Encoder.load(model), pairs, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_pairs(out, found)
    typer.echo(f"{len(found)} pairs in {out}; ask for a score from 1 to 5 in its last column", err=True)


@annotate_app.command("collect")
def annotate_collect_command(
    files: Annotated[list[Path], typer.Argument(help="The CSV files that annotators gave back.")],
    out: Annotated[
        Path, typer.Option(dir_okay=False, help="The similarity set: score, first and second text, by tabs.")
    ],
) -> None:
    """Takes the median of the annotators' scores; the result is read as a similarity set.

    Example: `turnwise annotate collect ann.csv bob.csv eve.csv --out gold.txt`
    """
    from turnwise.papers.annotation import collect, write_gold

    found = collect(files)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_gold(out, found)
    typer.echo(f"{len(found)} pairs in {out}", err=True)


def _pooling(name: str | None) -> "Pooling | None":
    from turnwise.models.backbone.pooling import POOLINGS

    if name is not None and name not in POOLINGS:
        raise typer.BadParameter(f"{name!r}: choose from {', '.join(POOLINGS)}", param_hint="--pooling")
    return cast("Pooling | None", name)
