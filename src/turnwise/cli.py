"""The command line: one thin command per verb; the work is done elsewhere.

Exit codes: 0 done; 1 the input or the store cannot be used, and the message says why; 2 the command line is wrong;
130 interrupted. Nothing but the answer goes to standard output; bars and messages go to standard error.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from turnwise.errors import TurnwiseError
from turnwise.progress import Progress
from turnwise.version import __version__

if TYPE_CHECKING:
    from turnwise.backbone.pooling import Pooling
    from turnwise.corpus.stats import Statistics
    from turnwise.corpus.store import Store
    from turnwise.evaluation.datasets.construction import Label
    from turnwise.evaluation.judged import Judged
    from turnwise.evaluation.outcomes import Row

app = typer.Typer(
    help="Dialogue representations from conversations: read logs, train, measure, put to work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
corpus_app = typer.Typer(help="Conversations in: list, import, count, fetch, sample, show, export.", no_args_is_help=True)
bench_app = typer.Typer(help="Speed, beside what people use today, as ratios in one run.", no_args_is_help=True)
annotate_app = typer.Typer(help="Pairs of texts for people to compare, and what they said of them.", no_args_is_help=True)
app.add_typer(corpus_app, name="corpus")
app.add_typer(annotate_app, name="annotate")
app.add_typer(bench_app, name="bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Stores = Annotated[list[Path], typer.Argument(help="One store, or several that are read as one.", metavar="STORE…")]


def main() -> None:
    """Runs the command line; errors that a user can mend are told in a line, not in a traceback."""
    try:
        app()
    except TurnwiseError as error:
        typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
        typer.echo(str(error), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnwise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Dialogue representations from conversations: read logs, train, measure, put to work.

    Start with `turnwise corpus list` to see what can be read, or `turnwise corpus sample --out sample` for a made-up world
    that needs no download.
    """


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on standard error; nothing at all where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int | None = None) -> None:
            name, _, _ = what.partition(":")  # what follows the colon changes while the bar goes on
            if name not in tasks:
                tasks[name] = bar.add_task(what, total=total)
            bar.update(tasks[name], description=what, completed=done, total=total)

        yield progress


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _table(title: str, rows: list[tuple[str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, Text(value))
    Console().print(table)


def _settings(words: list[str]) -> dict[str, str]:
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r}: expected key=value", param_hint="--set")
        settings[key] = value
    return settings


# ---- corpus


@corpus_app.command("list")
def corpus_list(
    name: Annotated[str | None, typer.Argument(help="A reader, to see its licence, home and options.")] = None,
    as_json: AsJson = False,
) -> None:
    """What can be read: your own logs and public corpora, with licence and published counts.

    Example: `turnwise corpus list table` shows how to name the columns of your own log.
    """
    from turnwise.corpus.registry import READERS, get_reader

    readers = [get_reader(name)] if name else list(READERS.values())
    if as_json:
        _print_json(
            [
                {
                    "name": reader.name,
                    "title": reader.title,
                    "licence": reader.licence,
                    "home": reader.home,
                    "dialogues": reader.published.dialogues if reader.published else None,
                    "utterances": reader.published.utterances if reader.published else None,
                    "options": list(reader.options),
                    "fetch": bool(reader.downloads),
                }
                for reader in readers
            ]
        )
    elif name:
        reader = readers[0]
        facts = [("licence", reader.licence), ("home", reader.home)]
        if reader.published:
            facts.append(("published", f"{reader.published.dialogues:,} dialogues, {reader.published.utterances:,} utterances"))
        _table(f"{reader.name}: {reader.title}", [fact for fact in facts if fact[1]])
        typer.echo("\n" + reader.help.replace("    intake: where to read.\n", ""))
    else:
        for title, wanted in (("Your own data", True), ("Public corpora", False)):
            rows = [
                (reader.name, reader.title + (f"  ({reader.licence})" if reader.licence else ""))
                for reader in readers
                if reader.is_log == wanted
            ]
            _table(f"[bold]{title}", rows)
            typer.echo()
        typer.echo("More on one: turnwise corpus list NAME")


@corpus_app.command("import")
def corpus_import(
    reader: Annotated[str, typer.Argument(help="The layout: a name of `turnwise corpus list`.")],
    path: Annotated[Path, typer.Argument(help="The file or folder to read.")],
    out: Annotated[Path, typer.Option(help="The store to write; one that is there is replaced when all is done.")],
    step: Annotated[
        list[str] | None,
        typer.Option(
            help="Hygiene, in order; may be repeated: unicode, control-characters, mask[=email,phone,card,url], "
            "merge-speakers, minimum-turns=N, maximum-turns=N, maximum-words=N, exact-duplicates, near-duplicates[=0.8]."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="What the reader can be told, as key=value; may be repeated.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first thing that is refused.")] = False,
    encoding: Annotated[str | None, typer.Option(help="Of the texts, if not the corpus' own (UTF-8 for logs).")] = None,
    as_json: AsJson = False,
) -> None:
    """Reads a corpus or a log, validates and cleans it, and writes a store.

    Examples:
    `turnwise corpus import table chats.csv --out store --set conversation=thread --set text=body --set time=sent_at`

    `turnwise corpus import multiwoz data/multiwoz --out store --step merge-speakers --step minimum-turns=4`
    """
    from turnwise.corpus.importing import import_corpus
    from turnwise.corpus.registry import get_reader

    options = get_reader(reader).parse(_settings(settings or []))
    with _bar() as progress:
        store = import_corpus(reader, path, out, steps=step or (), strict=strict, encoding=encoding, progress=progress, **options)
    if as_json:
        _print_json({key: value for key, value in store.manifest.items() if key not in ("inputs", "files")})
    else:
        _print_import(store)


def _print_import(store: "Store") -> None:
    manifest = store.manifest
    rows = [
        ("read", f"{manifest['read']['dialogues']:,} dialogues, {manifest['read']['utterances']:,} utterances"),
        ("kept", f"{manifest['dialogues']:,} dialogues, {manifest['utterances']:,} utterances"),
    ]
    rows += [("left out", f"{count:,} {name}") for name, count in manifest["left_out"].items()]
    rows += [
        (f"step {step['step']}", ", ".join(f"{count:,} {what}" for what, count in step["changes"].items()) or "no change")
        for step in manifest["steps"]
    ]
    rows += [("refused", f"{count:,} × {reason}") for reason, count in list(manifest["reasons"].items())[:5]]
    if manifest["rejected"]:
        rows.append(("", f"all {manifest['rejected']:,} are listed in {store.folder / 'rejected.jsonl'}"))
    rows += [("fact", f"{name}: {value}") for name, value in manifest["facts"].items()]
    if manifest["licence"]:
        rows.append(("licence", manifest["licence"]))
    _table(f"[bold]{store.folder}", rows)


@corpus_app.command("stats")
def corpus_stats(
    paths: Annotated[list[Path], typer.Argument(help="Stores, counted as one; or one response-selection file.", metavar="STORE…")],
    curve: Annotated[Path | None, typer.Option(help="Write the frequency curve (WMDC, Fig. 1) to this SVG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Dialogues, turns, words, labels, lengths, and how much of the corpus its most frequent utterances make up."""
    from turnwise.corpus.stats import corpus_statistics, curve_svg, response_statistics
    from turnwise.corpus.store import read_corpus

    if len(paths) == 1 and paths[0].is_file():
        facts = response_statistics(paths[0]).as_dict()
        if as_json:
            _print_json(facts)
        else:
            _table(
                f"[bold]{paths[0]}",
                [
                    (name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
                    for name, value in facts.items()
                ],
            )
        return
    with _bar() as progress:
        statistics = corpus_statistics(read_corpus(*paths), progress)
    if curve:
        curve.write_text(curve_svg(statistics), encoding="utf-8")
    if as_json:
        _print_json(statistics.as_dict())
    else:
        _print_statistics(", ".join(map(str, paths)), statistics)
        if curve:
            typer.echo(f"\nThe frequency curve is in {curve}")


def _print_statistics(title: str, statistics: "Statistics") -> None:
    def most(counts: dict[str, int]) -> str:
        shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:4])
        return f"{len(counts)}: {shown}" + (", …" if len(counts) > 4 else "") if counts else "none"

    facts = statistics.as_dict()
    longest = max(1, *statistics.turn_lengths.values())
    _table(
        f"[bold]{title}",
        [
            ("dialogues", f"{statistics.dialogues:,}"),
            ("utterances", f"{statistics.utterances:,} ({facts['turns_per_dialogue']:.1f} a dialogue)"),
            ("words", f"{statistics.words:,} ({facts['words_per_turn']:.1f} an utterance)"),
            ("speakers", most(statistics.speakers)),
            ("splits", most(statistics.splits)),
            ("sources", most(statistics.sources)),
            ("intents", most(statistics.intents)),
            ("acts", most(statistics.acts)),
            ("slots", most(statistics.slots)),
            ("distinct utterances", f"{statistics.distinct_utterances:,}"),
            ("top 1% of them", f"make up {statistics.top_1_percent_share:.1%} of all utterances"),
            ("DSE pairs", f"{statistics.dse_pairs:,}"),
        ],
    )
    typer.echo()
    _table(
        "[bold]Words in a turn",
        [(name, f"{'█' * round(30 * n / longest):30} {n:,}") for name, n in statistics.turn_lengths.items()],
    )
    typer.echo()
    _table("[bold]Most common utterances", [(f"{count:,}", text) for text, count in statistics.common])


@corpus_app.command("fetch")
def corpus_fetch(
    name: Annotated[str, typer.Argument(help="A public corpus: a name of `turnwise corpus list`.")],
    out: Annotated[Path | None, typer.Option(help="Where to put it; data/NAME if not given.")] = None,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="You have read the licence that is shown and accept it.")
    ] = False,
) -> None:
    """Downloads a corpus from its authors' home; broken off, the same command goes on where it stopped.

    This is the only command that uses the network.
    """
    from turnwise.corpus.fetch import fetch
    from turnwise.corpus.registry import get_reader

    reader = get_reader(name)
    if reader.is_log:
        raise typer.BadParameter(f"{name} reads your own data; there is nothing to fetch", param_hint="NAME")
    typer.echo(f"{reader.title}\nlicence: {reader.licence}\nhome:    {reader.home}", err=True)
    if not reader.downloads:
        raise TurnwiseError(f"{name} cannot be fetched by a program: get it from {reader.home}, then import it")
    if not accept_licence:
        raise TurnwiseError("read the licence at that home; if you accept it, repeat the command with --accept-licence")
    destination = out or Path("data") / name
    with _bar() as progress:
        for path in fetch(reader.downloads, destination, progress=progress):
            typer.echo(path)
    typer.echo(f"now: turnwise corpus import {name} {destination} --out STORE", err=True)


@corpus_app.command("sample")
def corpus_sample(
    out: Annotated[Path, typer.Option(help="The store to write.")],
    dialogues: Annotated[int, typer.Option(help="How many dialogues.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Generates the sample world: made-up customer service in ten domains, for trying everything with no download.

    Beside the store's dialogues it writes labelled sets: `intents/`, `responses/`, `inference/`, `pairs/` and `triplets/`.
    """
    from turnwise.corpus.sample_folder import write_sample

    with _bar() as progress:
        store = write_sample(out, dialogues, seed, progress)
    if as_json:
        _print_json({key: value for key, value in store.manifest.items() if key not in ("inputs", "files")})
    else:
        typer.echo(f"{out}: {len(store):,} dialogues, {store.manifest['utterances']:,} utterances")


@corpus_app.command("show")
def corpus_show(
    store: Annotated[Path, typer.Argument(help="A store.")],
    dialogues: Annotated[int, typer.Option(help="How many dialogues.", min=1)] = 1,
    skip: Annotated[int, typer.Option(help="How many to pass over first.", min=0)] = 0,
) -> None:
    """Prints dialogues of a store as people read them."""
    from itertools import islice

    from rich.console import Console
    from rich.text import Text

    from turnwise.corpus.store import Store

    console = Console()
    for dialogue in islice(Store(store), skip, skip + dialogues):
        console.print(Text(f"{dialogue.id}  ({dialogue.split or 'no split'})", style="bold"))
        for turn in dialogue.turns:
            labels = " ".join([*([turn.intent] if turn.intent else []), *turn.acts])
            line = Text(f"{turn.speaker:>10}  ", style="cyan" if turn.speaker == "system" else "green")
            console.print(line.append(turn.text, style="default").append(f"  {labels}", style="dim"))
        console.print()


@corpus_app.command("export")
def corpus_export(
    stores: Stores,
    out: Annotated[Path, typer.Option(help="The JSON Lines file to write.")],
) -> None:
    """Writes stores as JSON Lines, turnwise's own format: a dialogue a line."""
    from turnwise.corpus.readers.jsonl import to_json
    from turnwise.corpus.store import read_corpus

    corpus = read_corpus(*stores)
    with _bar() as progress, out.open("w", encoding="utf-8") as file:
        for number, dialogue in enumerate(corpus, 1):
            file.write(to_json(dialogue) + "\n")
            if number % 1000 == 0:
                progress("exporting", number, len(corpus))


# ---- training and evaluation


@app.command("train")
def train_command(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see `turnwise recipes`) or a YAML file.")],
    corpus: Annotated[list[Path], typer.Option(help="A store to learn from; may be repeated.")],
    out: Annotated[Path, typer.Option(help="The model's folder.")],
    backbone: Annotated[str | None, typer.Option(help="What to start from: minilm, a folder, a Hugging Face id.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a key of the recipe, as key=value; may be repeated.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Take only dialogues of this split; may be repeated.")] = None,
    probe: Annotated[Path | None, typer.Option(help="A folder with held-out data to measure on before, while and after.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard's files.")] = False,
    cache: Annotated[Path | None, typer.Option(help="Keep tokenised texts here, for other runs over the same corpus.")] = None,
    as_json: AsJson = False,
) -> None:
    """Trains an encoder on conversations.

    Example: `turnwise train dse --corpus sample --split train --probe sample --out model --set steps=50`

    Killed or interrupted, the same command with `--resume` goes on and ends with the same weights.
    """
    _quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.evaluation.probe import make_probe
    from turnwise.training.loop import train
    from turnwise.training.recipe import load_recipe

    changes = [*(settings or []), *([f"backbone={backbone}"] if backbone else [])]
    wanted = load_recipe(recipe, changes)
    measure = make_probe(probe) if probe else None
    with _bar() as progress:
        train(
            wanted,
            read_corpus(*corpus, splits=split or None),
            out,
            resume=resume,
            probe=measure,
            progress=progress,
            tensorboard=tensorboard,
            cache=cache,
        )
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "loss" in line]
    probed = [line for line in lines if any(name.startswith("probe.") for name in line)]
    if as_json:
        _print_json({"model": str(out), "last": steps[-1] if steps else None, "probes": probed})
        return
    rows = [("steps", f"{steps[-1]['step']:,}"), ("loss", f"{steps[0]['loss']:.3f} → {steps[-1]['loss']:.3f}")] if steps else []
    for name in probed[0] if probed else ():
        if name != "step":
            change = probed[-1][name] - probed[0][name]
            rows.append((name.removeprefix("probe."), f"{probed[0][name]:.2f} → {probed[-1][name]:.2f} ({change:+.2f})"))
    _table(f"[bold]{out}", rows)


@app.command("recipes")
def recipes_command(
    name: Annotated[str | None, typer.Argument(help="A recipe, to see it whole.")] = None,
) -> None:
    """The recipes that come with turnwise: NAME-paper has a paper's own numbers, NAME is what we recommend."""
    from turnwise.training.recipe import load_recipe, packaged

    if name:
        typer.echo(load_recipe(name).to_yaml(), nl=False)
    else:
        _table("[bold]Recipes", [(each, load_recipe(each).describes) for each in packaged()])


@app.command("evaluate")
def evaluate_command(
    model: Annotated[
        str,
        typer.Argument(
            help="minilm, a model folder, a Hugging Face id, sentence-transformers:NAME, glove:FILE, or module:function, "
            "a Python function from a list of texts to an array."
        ),
    ],
    data: Annotated[Path, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets, or a sample world.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Where to write results.json, tables.md, tables.tex and report.html.")],
    suite: Annotated[str | None, typer.Option(help="dse, dialoguecse, tadse, diaeval, ums: a paper's tables.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Instead of a suite: intents, responses, …; may be repeated.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="These data sets alone; may be repeated.")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max, first-last, instead of the model's own.")] = None,
    postprocess: Annotated[str | None, typer.Option(help="whitening or flow, fitted on the texts of --fit.")] = None,
    fit: Annotated[Path | None, typer.Option(help="The store whose texts post-processing is fitted on.")] = None,
    fine_tuning: Annotated[
        bool | None, typer.Option(help="Whether to run what trains the encoder; a suite does, a task does not.", show_default=False)
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Fewer runs than the protocol has; results say so.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Fewer steps of whatever is trained; results say so.")] = None,
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
    _quiet()
    from turnwise.evaluation.evaluating import evaluate
    from turnwise.evaluation.judged import load_model
    from turnwise.evaluation.protocols import Effort
    from turnwise.evaluation.reporting.report import write_report
    from turnwise.evaluation.results import whence

    judged = load_model(model, _pooling(pooling))
    with _bar() as progress:
        if postprocess is not None and fit is not None:
            judged = _postprocessed(judged, postprocess, fit)
        results = evaluate(
            judged,
            data,
            suite=suite,
            tasks=task or (),
            datasets=dataset or (),
            out=out,
            fine_tuning=fine_tuning,
            effort=Effort(seeds, steps),
            progress=progress,
        )
    write_report(results, out)
    if as_json:
        typer.echo((out / "results.json").read_text(encoding="utf-8"), nl=False)
        return
    rows = [(f"{row.task}: {row.dataset}, {row.setting}", f"{row.metric} {_figure(row)}") for row in results.rows]
    _table(f"[bold]{judged.name}", rows)
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


def _postprocessed(judged: "Judged", kind: str, store: Path) -> "Judged":
    from turnwise.corpus.store import read_corpus
    from turnwise.evaluation.judged import postprocessed

    texts = list(dict.fromkeys(turn.text for dialogue in read_corpus(store) for turn in dialogue.turns))
    return postprocessed(judged, kind, texts)


@app.command("compare")
def compare_command(
    results: Annotated[list[Path], typer.Argument(help="Folders that `evaluate` wrote; each is compared with the first.")],
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
        _print_json(comparison_json(found))
    else:
        typer.echo(comparison_text(found))


# ---- annotate


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
    _quiet()
    from turnwise.corpus.store import read_corpus
    from turnwise.encoder import Encoder
    from turnwise.evaluation.annotation import candidate_pairs, write_pairs
    from turnwise.evaluation.datasets.construction import labelled_turns

    turns = labelled_turns(read_corpus(store), cast("Label", label))
    found = candidate_pairs(turns, Encoder.load(model), pairs, seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_pairs(out, found)
    typer.echo(f"{len(found)} pairs in {out}; ask for a score from 1 to 5 in its last column", err=True)


@annotate_app.command("collect")
def annotate_collect_command(
    files: Annotated[list[Path], typer.Argument(help="The CSV files that annotators gave back.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The similarity set: score, first and second text, by tabs.")],
) -> None:
    """Takes the median of the annotators' scores; the result is read as a similarity set.

    Example: `turnwise annotate collect ann.csv bob.csv eve.csv --out gold.txt`
    """
    from turnwise.evaluation.annotation import collect, write_gold

    found = collect(files)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_gold(out, found)
    typer.echo(f"{len(found)} pairs in {out}", err=True)


def _pooling(name: str | None) -> "Pooling | None":
    from turnwise.backbone.pooling import POOLINGS

    if name is not None and name not in POOLINGS:
        raise typer.BadParameter(f"{name!r}: choose from {', '.join(POOLINGS)}", param_hint="--pooling")
    return cast("Pooling | None", name)


def _quiet() -> None:
    """Keeps transformers' own bars and advice off the terminal: ours tell what a user needs."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


# ---- bench


@bench_app.command("import")
def bench_import(
    data: Annotated[Path | None, typer.Option(envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue.")] = None,
    repeats: Annotated[int, typer.Option(help="How often each is run; the best counts.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Importing Schema-Guided, beside `json.load` alone over the same files."""
    from turnwise.bench import import_benchmark

    with _bar() as progress:
        result = import_benchmark(data, repeats, progress)
    if as_json:
        _print_json(result)
    else:
        _table(
            "[bold]Importing Schema-Guided",
            [
                ("json.load alone", f"{result['json_load_seconds']:.2f} s"),
                ("turnwise corpus import", f"{result['import_seconds']:.2f} s"),
                ("ratio", f"{result['ratio']:.2f}"),
            ],
        )


@bench_app.command("train")
def bench_train(
    data: Annotated[Path | None, typer.Option(envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue.")] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps of each.", min=1)] = 8,
    batch_size: Annotated[int, typer.Option(help="Pairs of a step.", min=2)] = 128,
    max_length: Annotated[int, typer.Option(help="Tokens of a text.", min=8)] = 64,
    as_json: AsJson = False,
) -> None:
    """Training on pairs of Schema-Guided, beside sentence-transformers' trainer on the same pairs."""
    _quiet()
    from turnwise.bench import train_benchmark

    with _bar() as progress:
        result = train_benchmark(data, steps, batch_size, max_length, progress)
    if as_json:
        _print_json(result)
    else:
        _table(
            "[bold]Training",
            [
                ("sentence-transformers", f"{result['sentence_transformers_pairs_per_second']:.1f} pairs/s"),
                ("turnwise", f"{result['turnwise_pairs_per_second']:.1f} pairs/s"),
                ("ratio", f"{result['ratio']:.2f}"),
                ("padding avoided", f"{result['padding_avoided']:.0%}"),
            ],
        )


@bench_app.command("evaluate")
def bench_evaluate(
    data: Annotated[Path, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets, or a sample world.")],
    model: Annotated[str, typer.Option(help="minilm, a model folder or a Hugging Face id.")] = "minilm",
    dataset: Annotated[list[str] | None, typer.Option(help="These data sets alone; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """The DSE suite without fine-tuning, beside encoding its texts once with sentence-transformers."""
    _quiet()
    from turnwise.bench import evaluate_benchmark

    with _bar() as progress:
        result = evaluate_benchmark(data, model, dataset or (), progress)
    if as_json:
        _print_json(result)
    else:
        _table(
            "[bold]Evaluating",
            [
                ("distinct texts", f"{result['texts']:,}"),
                ("sentence-transformers, encoding alone", f"{result['sentence_transformers_seconds']:.2f} s"),
                ("turnwise evaluate --suite dse", f"{result['evaluate_seconds']:.2f} s"),
                ("of which encoding", f"{result['encoding_seconds']:.2f} s"),
                ("ratio", f"{result['ratio']:.2f}"),
            ],
        )
