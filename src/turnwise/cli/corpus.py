"""`turnwise corpus`: list, import, count, compare, fetch, sample, show and export conversations."""

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.corpus_import import import_command, manifest_summary
from turnwise.cli.corpus_slots import augment_command, detect_command, templates_command
from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, Force, OptionalData, Splits, StoreOut
from turnwise.cli.output import Block, excerpt, facts, lines, message, progress_bar, show
from turnwise.core.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.corpus.exporting import ExportCounts
    from turnwise.corpus.overlap import TextOverlap
    from turnwise.corpus.registry import Reader
    from turnwise.corpus.stats import CorpusStats

corpus_app = command_group("Import, inspect, compare, clean and export conversations.")
corpus_app.command("import")(import_command)
corpus_app.command("templates")(templates_command)
corpus_app.command("augment")(augment_command)
corpus_app.command("detect")(detect_command)


@corpus_app.command("list")
def list_command(
    name: Annotated[str | None, Argument(help="Reader whose licence, home page and options to show.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the readers, for your own logs and for public corpora.

    Example: `turnwise corpus list table` shows how to name the columns of your own log.
    """
    from turnwise.corpus.registry import READERS, get_reader

    readers = [get_reader(name)] if name else list(READERS.values())
    data = [
        {
            **{key: getattr(reader, key) for key in ("name", "title", "licence", "home")},
            "dialogues": reader.published.dialogues if reader.published else None,
            "utterances": reader.published.utterances if reader.published else None,
            "options": list(reader.options),
            "fetch": bool(reader.downloads),
        }
        for reader in readers
    ]
    if name:
        [reader] = readers
        facts_rows = [("licence", reader.licence), ("home", reader.home)]
        if reader.published:
            counts = f"{reader.published.dialogues:,} dialogues, {reader.published.utterances:,} utterances"
            facts_rows.append(("published", counts))
        about = facts(f"{reader.name}: {reader.title}", [row for row in facts_rows if row[1]])
        show(data, about, lines((reader.help, "")), as_json=as_json)
        return
    rows = {
        is_log: [(each.name, _title(each)) for each in readers if each.is_log == is_log] for is_log in (True, False)
    }
    blocks = [facts("Your own data", rows[True]), facts("Public corpora", rows[False])]
    show(data, *blocks, "Details of one reader: turnwise corpus list NAME", as_json=as_json)


def _title(reader: "Reader") -> str:
    return reader.title + (f"  ({reader.licence})" if reader.licence else "")


@corpus_app.command("stats")
def stats_command(
    paths: Annotated[list[Path], Argument(help="Stores, or a response-selection file.", metavar="STORE…")],
    curve: Annotated[Path | None, Option(help="Write the frequency curve (WMDC, Fig. 1) to this SVG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count dialogues, turns, words, labels and frequent texts."""
    from turnwise.corpus.stats import compute_corpus_stats, compute_response_stats, frequency_curve_svg

    if len(paths) == 1 and paths[0].is_file():
        data = compute_response_stats(paths[0])
        rows = [
            (name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
            for name, value in data.items()
        ]
        show(data, facts(paths[0], rows), as_json=as_json)
        return
    with progress_bar() as progress:
        statistics = compute_corpus_stats(turnwise.read_corpus(*paths), progress)
    blocks: list[Any] = _statistics_blocks(", ".join(map(str, paths)), statistics)
    if curve:
        curve.write_text(frequency_curve_svg(statistics), encoding="utf-8")
        blocks.append(f"The frequency curve is in {curve}")
    show(statistics.as_dict(), *blocks, as_json=as_json)


def _statistics_blocks(title: str, statistics: "CorpusStats") -> list[Block]:
    def most_common(counts: dict[str, int]) -> str:
        if not counts:
            return "none"
        first = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:4])
        return f"{len(counts)}: {first}" + (", …" if len(counts) > 4 else "")

    data = statistics.as_dict()
    rows = [
        ("dialogues", f"{statistics.dialogues:,}"),
        ("utterances", f"{statistics.utterances:,} ({data['turns_per_dialogue']:.1f} per dialogue)"),
        ("words", f"{statistics.words:,} ({data['words_per_turn']:.1f} per utterance)"),
        *((name, most_common(getattr(statistics, name))) for name in ("speakers", "splits", "sources")),
        *((name, most_common(getattr(statistics, name))) for name in ("intents", "acts", "slots")),
        ("languages", _languages(statistics.languages)),
        ("distinct utterances", f"{statistics.distinct_utterances:,}"),
        ("top 1% of them", f"make up {statistics.top_1_percent_share:.1%} of all utterances"),
        ("DSE pairs", f"{statistics.dse_pairs:,}"),
    ]
    longest = max(1, *statistics.turn_lengths.values())
    histogram = [(name, f"{'█' * round(30 * n / longest):30} {n:,}") for name, n in statistics.turn_lengths.items()]
    common = [(f"{count:,}", text) for text, count in statistics.common]
    return [facts(title, rows), facts("Words per turn", histogram), facts("Most common utterances", common)]


def _languages(counts: dict[str, int]) -> str:
    """Return the most frequent languages of a sample."""
    total = sum(counts.values())
    return ", ".join(f"{name} {count / total:.0%}" for name, count in list(counts.items())[:4]) or "unclear"


@corpus_app.command("overlap")
def overlap_command(
    names: Annotated[
        list[str],
        Argument(metavar="A B…", help="Stores, or data sets in --data; with :train, :valid or :test only a split."),
    ],
    data: OptionalData = None,
    examples: Annotated[int, Option(min=0, help="Shared texts and pairs to show for each overlap.")] = 3,
    exact: Annotated[bool, Option("--exact", help="Do not look for near-duplicates: faster for large stores.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count the texts that stores and test data share.

    Pairs of consecutive texts are counted as well. Texts that differ only in case and punctuation count as equal, and
    texts that share at least four fifths of their words as nearly equal.

    Example: `turnwise corpus overlap stores/kvret ci_tod:test --data data`
    """
    if len(names) < 2:
        raise typer.BadParameter("name two or more stores or data sets", param_hint="A B…")
    from turnwise.corpus.overlap import find_overlaps
    from turnwise.evaluation.leakage import open_text_collection

    overlaps = find_overlaps([open_text_collection(name, data) for name in names], examples, near=not exact)
    show([asdict(overlap) for overlap in overlaps], *map(_overlap_block, overlaps), as_json=as_json)


def _overlap_block(overlap: "TextOverlap") -> Block:
    def part(count: int, total: int) -> str:
        return f"{count:,} of {total:,} ({count / max(1, total):.1%})"

    rows = [
        ("texts", part(overlap.shared_texts, overlap.texts)),
        *([("", f"{part(near, overlap.texts)} others nearly")] if (near := overlap.near_texts) is not None else []),
        ("pairs", part(overlap.shared_pairs, overlap.pairs)),
        ("dialogues", f"{part(overlap.sharing_dialogues, overlap.dialogues)} have a shared text"),
        ("", f"{part(overlap.shared_endings, overlap.dialogues)} end with a shared pair"),
        *(("text", excerpt(text)) for text in overlap.text_examples),
        *(("pair", " → ".join(map(excerpt, pair))) for pair in overlap.pair_examples),
        *(("nearly", " ≈ ".join(map(excerpt, pair))) for pair in overlap.near_examples),
    ]
    return facts(f"{overlap.first} in {overlap.second}", rows)


@corpus_app.command("decontaminate")
def decontaminate_command(
    store: Annotated[Path, Argument(help="Store to read.")],
    against: Annotated[list[str], Option(metavar="NAME", help="Test data, as for `corpus overlap`; repeatable.")],
    out: StoreOut,
    by_turn: Annotated[
        bool | None,
        Option("--by-turn/--by-dialogue", help="Drop single turns, or dialogues; by default, what each NAME has."),
    ] = None,
    data: OptionalData = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store without what is also in test data.

    A dialogue is dropped if --against has one of its consecutive pairs; a dialogue of one turn, if it has its text. If
    --against has single texts only, such as intents, or with --by-turn, every turn that it has is dropped, and its
    dialogue is split there.

    Example: `turnwise corpus decontaminate stores/massive --against hwu64:test --data data --out stores/massive-clean`
    """
    from turnwise.corpus.overlap import decontaminate_store
    from turnwise.evaluation.leakage import open_text_collection

    collections = [open_text_collection(name, data) for name in against]
    with progress_bar() as progress:
        written = decontaminate_store(store, collections, out, progress, by_turn=by_turn)
    dropped, turns_of = written.manifest["facts"]["dropped"], written.manifest["options"]["by_turn"]
    rows = [
        ("read", f"{written.manifest['read']['dialogues']:,} dialogues"),
        *(
            (f"{'turns' if turns_of[name] else 'dialogues'} dropped, in {name}", f"{count:,}")
            for name, count in dropped.items()
        ),
        ("kept", f"{len(written):,} dialogues"),
    ]
    show(manifest_summary(written), facts(str(out), rows), as_json=as_json)


@corpus_app.command("fetch")
def fetch_command(
    name: Annotated[str, Argument(help="Public corpus, from `turnwise corpus list`.")],
    out: Annotated[Path | None, Option(help="Folder to download to; data/NAME by default.")] = None,
    accept_licence: Annotated[bool, Option("--accept-licence", help="You accept the licence.")] = False,
) -> None:
    """Download a public corpus from its authors.

    After an interruption the same command resumes. Models named by a Hugging Face id are the only other downloads.
    """
    from turnwise.corpus.fetching import fetch
    from turnwise.corpus.registry import get_reader

    reader = get_reader(name)
    if reader.is_log:
        raise typer.BadParameter(f"{name} reads your own data: there is nothing to fetch", param_hint="NAME")
    message(f"{reader.title}\nlicence: {reader.licence}\nhome:    {reader.home}")
    if not reader.downloads:
        raise TurnwiseError(f"{name} cannot be downloaded automatically: get it from {reader.home}, then import it")
    if not accept_licence:
        raise TurnwiseError("read the licence on that page; if you accept it, run the command with --accept-licence")
    destination = out or Path("data") / name
    with progress_bar() as progress:
        for path in fetch(reader.downloads, destination, progress=progress):
            typer.echo(path)
    message(f"next: turnwise corpus import {name} {destination} --out STORE")


@corpus_app.command("sample")
def sample_command(
    out: StoreOut,
    dialogues: Annotated[int, Option(help="Number of dialogues.", min=1)] = 10_000,
    seed: Annotated[int, Option(help="Random seed; the same seed gives the same bytes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Generate a synthetic corpus to try turnwise with.

    The conversations are customer service in ten domains. Labelled sets are written as well: `intents/`, `responses/`,
    `inference/`, `pairs/` and `triplets/`.
    """
    from turnwise.corpus.synthetic.sample import write_sample

    with progress_bar() as progress:
        store = write_sample(out, dialogues, seed, progress)
    counts = f"{out}: {len(store):,} dialogues, {store.manifest['utterances']:,} utterances"
    show(manifest_summary(store), counts, as_json=as_json)


@corpus_app.command("show")
def show_command(
    store: Annotated[Path, Argument(help="Store to read.")],
    dialogues: Annotated[int, Option(help="Number of dialogues.", min=1)] = 1,
    skip: Annotated[int, Option(help="Number of dialogues to skip first.", min=0)] = 0,
) -> None:
    """Print dialogues of a store."""
    from turnwise.corpus.storage.store import Store

    blocks = []
    for dialogue in islice(Store(store), skip, skip + dialogues):
        parts = [(f"{dialogue.id}  ({dialogue.split or 'no split'})", "bold")]
        for turn in dialogue.turns:
            labels = " ".join([*([turn.intent] if turn.intent else []), *turn.acts])
            colour = "cyan" if turn.speaker == "system" else "green"
            parts.append((f"{turn.speaker:>10}  {turn.text}  {labels}", colour))
        blocks.append(lines(*parts))
    show(None, *blocks)


@corpus_app.command("export")
def export_command(
    stores: Annotated[list[Path], Argument(help="Stores to write, in order.", metavar="STORE…")],
    out: Annotated[Path, Option(help="File to write, for convokit a folder; new unless --force is given.")],
    form: Annotated[
        Literal["jsonl", "messages", "convokit", "rasa", "csv", "intents-jsonl"],
        Option("--format", help="jsonl is turnwise's own; rasa, csv, intents-jsonl: the user's turns with an intent."),
    ] = "jsonl",
    splits: Splits = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write stores as JSON Lines, or in a format of other tools.

    Example: `turnwise corpus export stores/intents --format rasa --split train --out nlu.yml`
    """
    from turnwise.corpus.exporting import export_dialogues

    counts = export_dialogues(turnwise.read_corpus(*stores, splits=splits), out, form, overwrite=force)
    show(counts.as_dict(), export_report(out, counts), as_json=as_json)


def export_report(out: Path, counts: "ExportCounts") -> Block:
    """Return a block that says what an export wrote and left out."""
    rows = [("written", f"{counts.dialogues:,} dialogues, {counts.utterances:,} utterances")]
    rows += [("left out", f"{count:,} {name}") for name, count in counts.left_out.items()]
    return facts(out, rows)
