"""`turnwise corpus detect`: slots where nobody annotated any."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table

if TYPE_CHECKING:
    from turnwise.corpus.slots.detecting import Detection
    from turnwise.corpus.slots.detector import Detector
    from turnwise.corpus.slots.entity_book import EntityBook
    from turnwise.corpus.slots.scoring import Agreement, DetectorScore


def detect_command(
    store: Annotated[Path | None, typer.Argument(help="A store without slots.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The store to write; one that is there is replaced when all is done.")
    ] = None,
    gazetteer: Annotated[
        list[Path] | None,
        typer.Option(
            help="A store with slots, to learn their values from (its split train); may be repeated.", metavar="STORE"
        ),
    ] = None,
    spacy: Annotated[
        str | None,
        typer.Option(help="Find slots by this spaCy model instead, such as en_core_web_lg.", metavar="MODEL"),
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            help="A store with slots, to measure on (its split test or valid); may be repeated.", metavar="STORE"
        ),
    ] = None,
    speaker: Annotated[str, typer.Option(help="Whose turns: user, system, speaker_1, …, or any.")] = "user",
    replace: Annotated[bool, typer.Option("--replace", help="Give up slots that the turns have.")] = False,
    least_share: Annotated[
        float, typer.Option(help="Learn a value only if it is a slot in this share of its places.", min=0, max=1)
    ] = 0.5,
    least_count: Annotated[int, typer.Option(help="Learn a value only if it is a slot so often.", min=1)] = 2,
    top: Annotated[int, typer.Option(help="How many values of each slot to show.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Finds slots in a store that has none, by patterns and learnt values or by a spaCy model, and writes them as a store.

    Dates, times, money, ordinals and numbers are found by patterns; other values are learnt from stores that have slots. With
    `--against` it says how well that finds what people annotated; without STORE and `--out`, nothing else.

    Examples:
    `turnwise corpus detect stores/clinc150 --out stores/clinc150-slots --gazetteer stores/massive --gazetteer stores/snips`

    `turnwise corpus detect --gazetteer stores/massive --against stores/snips`
    """
    if (store is None) != (out is None):
        raise typer.BadParameter("name both, the store to read and the one to write", param_hint="STORE and --out")
    if store is None and not against:
        raise typer.BadParameter("name a store to read and --out, or a store to measure --against", param_hint="STORE")
    if spacy and gazetteer:
        raise typer.BadParameter(
            "a spaCy model learns no values: leave one of the two out", param_hint="--spacy and --gazetteer"
        )
    from turnwise.corpus.slots.built_in import BuiltInDetector
    from turnwise.corpus.slots.detecting import detect_store
    from turnwise.corpus.slots.entity_book import EntityBook
    from turnwise.corpus.slots.scoring import score_detector, view_for_scores
    from turnwise.corpus.slots.spacy_model import SpacyDetector

    said_by = None if speaker == "any" else speaker
    learnt_from = gazetteer or []
    with bar() as progress:
        views = {str(path): view_for_scores(path, learnt_from) for path in against or []}
        progress("making the detector", 0)
        detector: Detector = (
            SpacyDetector(spacy) if spacy else BuiltInDetector.learnt(learnt_from, least_share, least_count)
        )
        found = None
        if store is not None and out is not None:
            written, detection = detect_store(
                store, out, detector, speaker=said_by, replace_slots=replace, progress=progress
            )
            found = detection, EntityBook.of(written, said_by)
        scores = {path: score_detector(view, detector, said_by) for path, view in views.items()}
    if as_json:
        print_json(_for_programs(found, scores, top))
        return
    if found:
        _print_found(str(out), *found, top)
    for path, score in scores.items():
        _print_score(path, ", ".join(views[path].splits or ("all dialogues",)), score)


def _for_programs(
    found: "tuple[Detection, EntityBook] | None", scores: "dict[str, DetectorScore]", top: int
) -> dict[str, Any]:
    answer: dict[str, Any] = {"against": {path: score.as_dict() for path, score in scores.items()}}
    if found:
        detection, book = found
        slots = [
            {"name": name, "count": count, "top": dict(book.common(name, top))} for name, count in book.counts.items()
        ]
        answer = {**detection.as_dict(), "values": book.values, "by_name": slots, **answer}
    return answer


def _print_found(title: str, detection: "Detection", book: "EntityBook", top: int) -> None:
    rows = [
        ("utterances", f"{detection.utterances:,}, {detection.with_slots:,} of them with a slot"),
        ("slots", f"{detection.slots:,} under {len(book.counts):,} names, of {book.values:,} distinct values"),
    ]
    print_table(f"[bold]{title}", rows)
    typer.echo()
    shown = [
        (name, f"{count:,}: " + ", ".join(f"{value} {n:,}" for value, n in book.common(name, top)))
        for name, count in book.counts.items()
    ]
    print_table("[bold]Slots and their most frequent values", shown)
    typer.echo()


def _print_score(path: str, part: str, score: "DetectorScore") -> None:
    def told(agreement: "Agreement") -> str:
        return f"precision {agreement.precision:.1%}, recall {agreement.recall:.1%}, F1 {agreement.f1:.1%}"

    rows = [
        ("read", f"{part}: {score.utterances:,} utterances"),
        ("slots", f"{score.exact.annotated:,} annotated, {score.exact.found:,} found"),
        ("same place", told(score.exact)),
        ("overlapping", told(score.overlapping)),
        ("same place and name", told(score.named)),
    ]
    print_table(f"[bold]Against {path}", rows)
    typer.echo()
    by_name = [
        (
            name,
            f"{of.annotated:,}: {of.exact / of.annotated:.0%} at the same place, {of.overlapping / of.annotated:.0%} overlapping",
        )
        for name, of in score.by_name.items()
    ]
    print_table("[bold]Annotated slots and how many of them are found", by_name)
    typer.echo()
