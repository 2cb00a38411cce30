"""`turnwise corpus`: conversations in."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.detect import detect_command
from turnwise.cli.terminal import AsJson, bar, print_json, print_table
from turnwise.core.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.corpus.stats import Statistics
    from turnwise.corpus.store import Corpus, Store

corpus_app = typer.Typer(
    help="Conversations in: list, import, count, fetch, sample, show, export, templates, augment, detect.",
    no_args_is_help=True,
)

Stores = Annotated[list[Path], typer.Argument(help="One store, or several that are read as one.", metavar="STORE…")]
Split = Annotated[
    str | None, typer.Option(help="What to read; train if not given, or everything where the store has no splits.")
]
Speaker = Annotated[str, typer.Option(help="Whose turns: user, system, speaker_1, …, or any.")]


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
        print_json(
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
            facts.append(
                ("published", f"{reader.published.dialogues:,} dialogues, {reader.published.utterances:,} utterances")
            )
        print_table(f"{reader.name}: {reader.title}", [fact for fact in facts if fact[1]])
        typer.echo("\n" + reader.help.replace("    intake: where to read.\n", ""))
    else:
        for title, wanted in (("Your own data", True), ("Public corpora", False)):
            rows = [
                (reader.name, reader.title + (f"  ({reader.licence})" if reader.licence else ""))
                for reader in readers
                if reader.is_log == wanted
            ]
            print_table(f"[bold]{title}", rows)
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
    with bar() as progress:
        store = import_corpus(
            reader, path, out, steps=step or (), strict=strict, encoding=encoding, progress=progress, **options
        )
    if as_json:
        print_json({key: value for key, value in store.manifest.items() if key not in ("inputs", "files")})
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
        (
            f"step {step['step']}",
            ", ".join(f"{count:,} {what}" for what, count in step["changes"].items()) or "no change",
        )
        for step in manifest["steps"]
    ]
    rows += [("refused", f"{count:,} × {reason}") for reason, count in list(manifest["reasons"].items())[:5]]
    if manifest["rejected"]:
        rows.append(("", f"all {manifest['rejected']:,} are listed in {store.folder / 'rejected.jsonl'}"))
    rows += [("fact", f"{name}: {value}") for name, value in manifest["facts"].items()]
    if manifest["licence"]:
        rows.append(("licence", manifest["licence"]))
    print_table(f"[bold]{store.folder}", rows)


@corpus_app.command("stats")
def corpus_stats(
    paths: Annotated[
        list[Path], typer.Argument(help="Stores, counted as one; or one response-selection file.", metavar="STORE…")
    ],
    curve: Annotated[
        Path | None, typer.Option(help="Write the frequency curve (WMDC, Fig. 1) to this SVG file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Dialogues, turns, words, labels, lengths, and how much of the corpus its most frequent utterances make up."""
    from turnwise.corpus.stats import corpus_statistics, curve_svg, response_statistics
    from turnwise.corpus.store import read_corpus

    if len(paths) == 1 and paths[0].is_file():
        facts = response_statistics(paths[0]).as_dict()
        if as_json:
            print_json(facts)
        else:
            print_table(
                f"[bold]{paths[0]}",
                [
                    (name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
                    for name, value in facts.items()
                ],
            )
        return
    with bar() as progress:
        statistics = corpus_statistics(read_corpus(*paths), progress)
    if curve:
        curve.write_text(curve_svg(statistics), encoding="utf-8")
    if as_json:
        print_json(statistics.as_dict())
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
    print_table(
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
    print_table(
        "[bold]Words in a turn",
        [(name, f"{'█' * round(30 * n / longest):30} {n:,}") for name, n in statistics.turn_lengths.items()],
    )
    typer.echo()
    print_table("[bold]Most common utterances", [(f"{count:,}", text) for text, count in statistics.common])


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
    with bar() as progress:
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
    from turnwise.corpus.synthetic.sample_folder import write_sample

    with bar() as progress:
        store = write_sample(out, dialogues, seed, progress)
    if as_json:
        print_json({key: value for key, value in store.manifest.items() if key not in ("inputs", "files")})
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
    with bar() as progress, out.open("w", encoding="utf-8") as file:
        for number, dialogue in enumerate(corpus, 1):
            file.write(to_json(dialogue) + "\n")
            if number % 1000 == 0:
                progress("exporting", number, len(corpus))


@corpus_app.command("templates")
def corpus_templates(
    store: Annotated[Path, typer.Argument(help="A store whose turns have slots.")],
    split: Split = None,
    speaker: Speaker = "user",
    top: Annotated[int, typer.Option(help="How many values of each slot, and how many templates, to show.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """The slots of a store and their most frequent values, and its templates: utterances with the values taken out."""
    from turnwise.corpus.slots.entity_book import EntityBook, need_slots
    from turnwise.corpus.slots.templates import TemplateTable, view_for_templates

    corpus = view_for_templates(store, split)
    said_by = None if speaker == "any" else speaker
    with bar() as progress:
        progress("counting values", 0, 2)
        book = EntityBook.of(corpus, said_by)
        need_slots(book, corpus, said_by)
        progress("counting templates", 1, 2)
        table = TemplateTable.of(corpus, said_by)
    counts, common = book.counts, table.common(top)
    if as_json:
        print_json(
            {
                "splits": corpus.splits,
                "utterances": table.utterances,
                "templates": len(table),
                "values": book.values,
                "slots": [
                    {"name": name, "count": count, "top": dict(book.common(name, top))}
                    for name, count in counts.items()
                ],
                "common": [{"template": template.text(names=True), "count": count} for template, count in common],
            }
        )
        return
    rows = [("read", _read_of(corpus)), ("utterances", f"{table.utterances:,}"), ("templates", f"{len(table):,}")]
    print_table(f"[bold]{store}", [*rows, ("slots", f"{len(counts):,}, of {book.values:,} distinct values")])
    typer.echo()
    shown = [
        (name, f"{count:,}: " + ", ".join(f"{value} {n:,}" for value, n in book.common(name, top)))
        for name, count in counts.items()
    ]
    print_table("[bold]Slots and their most frequent values", shown)
    typer.echo()
    print_table(
        "[bold]Most common templates with slots",
        [(f"{count:,}", template.text(names=True)) for template, count in common],
    )


@corpus_app.command("augment")
def corpus_augment(
    store: Annotated[Path, typer.Argument(help="A store whose turns have slots.")],
    out: Annotated[Path, typer.Option(help="The store to write; one that is there is replaced when all is done.")],
    top: Annotated[int, typer.Option(help="How many values of each slot to fill in, most frequent first.", min=1)],
    most: Annotated[
        int, typer.Option(help="How many ways to fill a template at most; of more, so many are drawn.", min=1)
    ] = 100,
    seed: Annotated[int, typer.Option(help="The same seed draws the same.")] = 1,
    split: Split = None,
    speaker: Speaker = "user",
    as_json: AsJson = False,
) -> None:
    """Says a store's utterances again with the most frequent values of their slots (TaDSE), and writes them as a store.

    Every utterance is a dialogue of one turn, with its intent and slots, in split train; originals among them.

    Example: `turnwise corpus augment stores/snips --out stores/snips-5 --top 5`
    """
    from turnwise.corpus.slots.augmentation import write_augmented
    from turnwise.corpus.slots.templates import view_for_templates

    with bar() as progress:
        written, statistics = write_augmented(
            store,
            out,
            top=top,
            most=most,
            seed=seed,
            split=split,
            speaker=None if speaker == "any" else speaker,
            progress=progress,
        )
    facts = statistics.as_dict()
    if as_json:
        print_json({"splits": written.manifest["options"]["splits"], **facts})
        return
    print_table(
        f"[bold]{out}",
        [
            ("read", _read_of(view_for_templates(store, split))),
            ("slots", f"{statistics.slot_names:,}, of {statistics.values:,} distinct values"),
            ("templates", f"{statistics.templates:,}"),
            ("utterances", f"{statistics.utterances:,}, {statistics.distinct_utterances:,} of them distinct"),
            ("augmented", f"{statistics.augmented_utterances:,} ({facts['utterances_per_template']:.1f} a template)"),
        ],
    )


corpus_app.command("detect")(detect_command)


def _read_of(corpus: "Corpus") -> str:
    """Which part of a store was read, for people."""
    return f"split {', '.join(corpus.splits)}" if corpus.splits else "all dialogues: the store has no splits"


def _settings(words: list[str]) -> dict[str, str]:
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r}: expected key=value", param_hint="--set")
        settings[key] = value
    return settings
