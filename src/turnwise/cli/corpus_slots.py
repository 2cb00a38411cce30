"""`turnwise corpus templates`, `augment` and `detect`: slots, templates and their augmentation."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from turnwise.cli.options import AsJson, StoreOut
from turnwise.cli.output import Block, facts, progress_bar, show

if TYPE_CHECKING:
    from turnwise.corpus.slots.detectors import Detector
    from turnwise.corpus.slots.templates import EntityBook
    from turnwise.corpus.storage.corpus import Corpus
    from turnwise.corpus.storage.store import Store

SlotStore = Annotated[Path, Argument(help="Store whose turns have slots.")]
Split = Annotated[str | None, Option(help="Split to read; by default train, or everything if the store has no splits.")]
Speaker = Annotated[
    str | None,
    Option(help="Speaker: user, system, …, or any.", callback=lambda name: None if name == "any" else name),
]


def templates_command(
    store: SlotStore,
    split: Split = None,
    speaker: Speaker = "user",
    top: Annotated[int, Option(help="Number of values per slot, and of templates, to show.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """List slots, their most frequent values, and templates.

    A template is an utterance without its slot values.
    """
    from turnwise.corpus.slots.templates import EntityBook, TemplateTable, open_training_split, require_slots

    corpus = open_training_split(store, split)
    _check_speaker(corpus.stores, speaker)
    with progress_bar() as progress:
        progress("counting values", 0, 2)
        book = EntityBook.from_corpus(corpus, speaker)
        require_slots(book, corpus, speaker)
        progress("counting templates", 1, 2)
        table = TemplateTable.from_corpus(corpus, speaker)
    templates = [(template.text(names=True), count) for template, count in table.most_common(top)]
    data: dict[str, Any] = {"splits": corpus.splits, "utterances": table.utterances, "templates": len(table)}
    data |= {"values": book.distinct_values, "slots": _slot_values(book, top)}
    data["common"] = [{"template": template, "count": count} for template, count in templates]
    rows = [
        ("read", _describe_splits(corpus)),
        ("utterances", f"{table.utterances:,}"),
        ("templates", f"{len(table):,}"),
        ("slots", f"{len(book.counts):,}, with {book.distinct_values:,} distinct values"),
    ]
    common = facts("Most common templates with slots", [(f"{count:,}", template) for template, count in templates])
    show(data, facts(store, rows), _slot_table(book, top), common, as_json=as_json)


def augment_command(
    store: SlotStore,
    out: StoreOut,
    top: Annotated[int, Option(help="Number of values per slot to fill in, most frequent first.", min=1)],
    max_per_template: Annotated[int, Option(help="Utterances per template; beyond, a random sample.", min=1)] = 100,
    seed: Annotated[int, Option(help="Random seed.")] = 1,
    split: Split = None,
    speaker: Speaker = "user",
    as_json: AsJson = False,
) -> None:
    """Fill templates with the most frequent slot values (TaDSE).

    Every utterance, original or augmented, is a dialogue of one turn with its intent and slots, in split train.

    Example: `turnwise corpus augment stores/snips --out stores/snips-5 --top 5`
    """
    from turnwise.corpus.slots.augmentation import augment_store
    from turnwise.corpus.slots.templates import open_training_split

    _check_speaker(open_training_split(store, split).stores, speaker)
    options = {"top": top, "max_per_template": max_per_template, "seed": seed}
    with progress_bar() as progress:
        written = augment_store(store, out, **options, split=split, speaker=speaker, progress=progress)
    data = {name: value for name, value in written.manifest["facts"].items() if name != "made_of"}
    rows = [
        ("read", _describe_splits(open_training_split(store, split))),
        ("slots", f"{data['slot_names']:,}, with {data['values']:,} distinct values"),
        ("templates", f"{data['templates']:,}"),
        ("utterances", f"{data['utterances']:,}, {data['distinct_utterances']:,} of them distinct"),
        ("augmented", f"{data['augmented_utterances']:,} ({data['utterances_per_template']:.1f} per template)"),
    ]
    show({"splits": written.manifest["options"]["splits"], **data}, facts(out, rows), as_json=as_json)


def detect_command(
    store: Annotated[Path | None, Argument(help="Store without slots.")] = None,
    out: Annotated[Path | None, Option(help="Store to write; an existing one is replaced once complete.")] = None,
    gazetteer: Annotated[list[Path] | None, Option(help="Store to learn from; repeatable.", metavar="STORE")] = None,
    spacy: Annotated[str | None, Option(help="spaCy model instead, such as en_core_web_lg.", metavar="MODEL")] = None,
    against: Annotated[list[Path] | None, Option(help="Store to evaluate on; repeatable.", metavar="STORE")] = None,
    speaker: Speaker = "user",
    replace: Annotated[bool, Option("--replace", help="Replace slots that the turns already have.")] = False,
    min_fraction: Annotated[
        float, Option(help="Learn a value only if at least this fraction of its occurrences are slots.", min=0, max=1)
    ] = 0.5,
    min_count: Annotated[int, Option(help="Learn a value only if it is a slot at least this often.", min=1)] = 2,
    top: Annotated[int, Option(help="Number of values per slot to show.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Detect slots in a store that has none, and write a new store.

    Dates, times, money, ordinals and numbers are found by patterns; other values are learnt from stores with slots.
    `--against` reports agreement with annotated slots; it also works without STORE and `--out`.

    Example: `turnwise corpus detect stores/clinc150 --out stores/clinc150-slots --gazetteer stores/massive`
    """
    if (store is None) != (out is None):
        raise typer.BadParameter("name both the store to read and the one to write", param_hint="STORE and --out")
    if store is None and not against:
        raise typer.BadParameter("name a store to read and --out, or a store with --against", param_hint="STORE")
    if spacy and gazetteer:
        raise typer.BadParameter("a spaCy model learns no values: use one or the other", param_hint="--spacy")
    from turnwise.corpus.slots.detection import detect_store, open_test_split, score_detector
    from turnwise.corpus.slots.detectors import BuiltInDetector, SpacyDetector
    from turnwise.corpus.slots.templates import EntityBook
    from turnwise.corpus.storage.store import Store

    learn_from = gazetteer or []
    data: dict[str, Any] = {}
    blocks: list[Block] = []
    with progress_bar() as progress:
        views = {str(path): open_test_split(path, learn_from) for path in against or []}
        read = [Store(store)] if store is not None else [each for view in views.values() for each in view.stores]
        _check_speaker(read, speaker)
        progress("building the detector", 0)
        detector: Detector = (
            SpacyDetector(spacy) if spacy else BuiltInDetector.learn(learn_from, min_fraction, min_count)
        )
        if store is not None and out is not None:
            written = detect_store(store, out, detector, speaker=speaker, replace_slots=replace, progress=progress)
            book = EntityBook.from_corpus(written, speaker)
            data = {name: written.manifest["facts"][name] for name in ("utterances", "with_slots", "slots")}
            names = f"{len(book.counts):,} names and {book.distinct_values:,} distinct values"
            rows = [
                ("utterances", f"{data['utterances']:,}, {data['with_slots']:,} of them with a slot"),
                ("slots", f"{data['slots']:,} with {names}"),
            ]
            data |= {"values": book.distinct_values, "by_name": _slot_values(book, top)}
            blocks = [facts(out, rows), _slot_table(book, top)]
        scores = {path: score_detector(view, detector, speaker) for path, view in views.items()}
    for path, score in scores.items():
        blocks += _score_tables(path, ", ".join(views[path].splits or ("all dialogues",)), score)
    data["against"] = scores
    show(data, *blocks, as_json=as_json)


def _check_speaker(stores: "Sequence[Store]", speaker: str | None) -> None:
    from turnwise.corpus.storage.store import require_speakers

    require_speakers(stores, [] if speaker is None else [speaker])


def _describe_splits(corpus: "Corpus") -> str:
    return f"split {', '.join(corpus.splits)}" if corpus.splits else "all dialogues: the store has no splits"


def _slot_values(book: "EntityBook", top: int) -> list[dict[str, Any]]:
    return [
        {"name": name, "count": count, "top": dict(book.most_common(name, top))} for name, count in book.counts.items()
    ]


def _slot_table(book: "EntityBook", top: int) -> Block:
    rows = [
        (name, f"{count:,}: " + ", ".join(f"{value} {n:,}" for value, n in book.most_common(name, top)))
        for name, count in book.counts.items()
    ]
    return facts("Slots and their most frequent values", rows)


def _score_tables(path: str, splits: str, score: dict[str, Any]) -> list[Block]:
    def describe(agreement: dict[str, float]) -> str:
        return "precision {precision:.1%}, recall {recall:.1%}, F1 {f1:.1%}".format(**agreement)

    rows = [
        ("read", f"{splits}: {score['utterances']:,} utterances"),
        ("slots", f"{score['annotated']:,} annotated, {score['found']:,} detected"),
        ("exact span", describe(score["exact"])),
        ("overlapping span", describe(score["overlapping"])),
        ("exact span and name", describe(score["named"])),
    ]
    by_name = []
    for name, counts in score["by_name"].items():
        recalls = f"{counts['exact_recall']:.0%} exact, {counts['overlapping_recall']:.0%} overlapping"
        by_name.append((name, f"{counts['annotated']:,}: {recalls}"))
    return [facts(f"Against {path}", rows), facts("Annotated slots and the proportion detected", by_name)]
