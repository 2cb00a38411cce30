"""`turnwise labels`: label the clusters of a map and fit an intent classifier on the labels."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from turnwise.cli.corpus import export_report
from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, Force, out_file
from turnwise.cli.output import Block, excerpt, facts, lines, progress_bar, show
from turnwise.cli.project import project_command, project_part
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.assist.labelling.labelling import Labelling

labels_app = command_group("Label the clusters of a map, and fit a classifier on them.")

#: Commands on a map, which may be left out inside a project.
_InMap = project_command("map")

MapFolder = Annotated[Path, Argument(help="Map folder, written by `turnwise map`.")]
GroupNumber = Annotated[int, Argument(help="Group number, as shown by `status`.")]


@labels_app.command("status", cls=_InMap)
def status_command(
    folder: MapFolder,
    top: Annotated[int, Option(min=1, help="Number of groups to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the groups, their names, and how much is labelled.

    Example: `turnwise labels status map`
    """
    with _open(folder) as labelling:
        groups, labels, texts = labelling.groups, labelling.labels(), labelling.map.texts
        data = {
            "texts": len(labels),
            "labelled": sum(label is not None for label in labels),
            "intents": len({label for label in labels if label is not None}),
            "in_no_group": int((labelling.row_groups < 0).sum()),
            **labelling.history,
        }
    labelled = f"{data['labelled']:,} of {data['texts']:,} texts ({data['labelled'] / data['texts']:.0%})"
    rows = [
        ("labelled", f"{labelled}, {data['intents']:,} distinct labels"),
        ("groups", f"{len(groups):,}; {data['in_no_group']:,} texts in none"),
        ("changes", f"{data['changes']:,}"),
    ]
    blocks: list[Block] = [facts(folder, rows)]
    for group in groups[:top]:
        name = group.name if group.name is not None else f"unnamed ({group.suggested})"
        title = (f"{group.number:>4} {name}  {group.size:,} texts", "bold" if group.name is not None else "")
        blocks.append(lines(title, (f"     {excerpt(texts[group.representatives[0]])}", "")))
    if len(groups) > top:
        blocks.append(f"{len(groups) - top:,} more groups: use --top")
    show(data | {"groups": [asdict(group) for group in groups]}, *blocks, as_json=as_json)


@labels_app.command("next", cls=_InMap)
def next_command(
    folder: MapFolder, count: Annotated[int, Option(min=1, help="Number of utterances.")] = 5, as_json: AsJson = False
) -> None:
    """List the utterances whose labels would help most.

    Answer with `turnwise labels set`.

    Example: `turnwise labels next map --count 3`
    """
    with _open(folder) as labelling:
        questions = labelling.select_questions(count)
    parts = []
    for question in questions:
        guess = "" if question.guess is None else f"  {question.guess}?"
        parts += [
            (f"{question.row:>6}  {excerpt(question.text)}{guess}", "bold"),
            (f"        {question.reason}", "dim"),
        ]
    show({"questions": [asdict(question) for question in questions]}, lines(*parts), as_json=as_json)


@labels_app.command("name", cls=_InMap)
def name_command(folder: MapFolder, group: GroupNumber, name: Annotated[str, Argument(help="Name.")]) -> None:
    """Name a group: the name is the label of its utterances.

    Example: `turnwise labels name map 3 track_order`
    """
    _change(folder, lambda labelling: labelling.name(group, name))


@labels_app.command("merge", cls=_InMap)
def merge_command(
    folder: MapFolder,
    groups: Annotated[list[int], Argument(help="Group numbers; the others are merged into the first.")],
    name: Annotated[str | None, Option(help="Name; by default that of the first named group.")] = None,
) -> None:
    """Merge several groups into one.

    Example: `turnwise labels merge map 3 8 --name track_order`
    """
    _change(folder, lambda labelling: labelling.merge(groups, name))


@labels_app.command("split", cls=_InMap)
def split_command(
    folder: MapFolder, group: GroupNumber, parts: Annotated[int, Option(min=2, help="Number of parts.")] = 2
) -> None:
    """Split a group into parts by similarity.

    The largest part keeps the number and name.

    Example: `turnwise labels split map 3 --parts 3`
    """
    _change(folder, lambda labelling: labelling.split(group, parts))


@labels_app.command("set", cls=_InMap)
def set_command(
    folder: MapFolder,
    rows: Annotated[list[int], Argument(help="Rows of utterances, as shown by `next`.")],
    name: Annotated[
        str | None, Option(help="Label; without it the utterances become unlabelled and leave their group.")
    ] = None,
) -> None:
    """Label individual utterances.

    They move to the group of that name.

    Example: `turnwise labels set map 17 204 --name track_order`
    """
    _change(folder, lambda labelling: labelling.label(rows, name))


@labels_app.command("undo", cls=_InMap)
def undo_command(folder: MapFolder) -> None:
    """Undo the last change."""
    _change(folder, lambda labelling: labelling.undo())


@labels_app.command("redo", cls=_InMap)
def redo_command(folder: MapFolder) -> None:
    """Redo the change that was undone last."""
    _change(folder, lambda labelling: labelling.redo())


@labels_app.command("carry", cls=_InMap)
def carry_command(
    folder: MapFolder, older: Annotated[Path, Option("--from", help="Folder of an earlier, labelled map.")]
) -> None:
    """Copy the labels of an earlier map, for utterances in both.

    Example: `turnwise labels carry map-july --from map-june`
    """
    with _open(older) as before:
        _change(folder, lambda labelling: labelling.copy_labels(before))


@labels_app.command("export", cls=_InMap)
def export_command(
    folder: MapFolder,
    out: Annotated[Path, out_file(".csv", ".yml", help="File to write: .csv, or .yml for Rasa.")],
    force: Force = False,
) -> None:
    """Write labels to a .csv file or to Rasa's nlu.yml.

    The .csv file has every utterance, nlu.yml only those with a label.

    Examples: `turnwise labels export map --out labels.csv`

    `turnwise labels export map --out nlu.yml`
    """
    from turnwise.corpus.exporting import check_new_file, export_dialogues, labelled_dialogues

    check_new_file(out, force)
    with _open(folder) as labelling:
        if out.suffix == ".yml":
            labels = zip(labelling.map.texts, labelling.labels(), strict=True)
            pairs = [(text, label) for text, label in labels if label is not None]
            show(None, export_report(out, export_dialogues(labelled_dialogues(pairs), out, "rasa", overwrite=force)))
            return
        labelled, texts = labelling.export(out), len(labelling.map)
    show(None, facts(out, [("written", f"{texts:,} texts, {labelled:,} of them labelled")]))


@labels_app.command("finish", cls=_InMap)
def finish_command(
    folder: MapFolder,
    out: Annotated[
        Path | None,
        Option(
            file_okay=False,
            help="Classifier folder to write, with labels.csv in it; inside a project, its own by default.",
        ),
    ] = None,
    model: Annotated[str | None, Option(help="Encoder; by default the one that the map was made with.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit an intent classifier on the labels.

    The labels are written next to it. Utterances labelled out_of_scope are not an intent: they show the classifier what
    to reject.

    Example: `turnwise labels finish map --out intents`, then `turnwise intents predict intents "Where is my parcel?"`
    """
    out = out or project_part("intents", "--out")
    with _open(folder) as labelling, progress_bar() as progress:
        progress("fitting the classifier", 0)
        classifier = labelling.fit(model)
        classifier.save(out)
        labelled = labelling.export(out / "labels.csv")
    intents = len(classifier.classes_)
    rows = [("fitted", f"{intents:,} intents"), ("labels", f"{labelled:,} texts, in {out / 'labels.csv'}")]
    show({"folder": str(out), "intents": intents, "labelled": labelled}, facts(out, rows), as_json=as_json)


def _open(folder: Path) -> "Labelling":
    require("pyarrow", "sklearn", extra="map")
    from turnwise.assist.labelling.labelling import Labelling

    return Labelling.open(folder)


def _change(folder: Path, change: "Callable[[Labelling], object]") -> None:
    """Apply a change and show the new state."""
    with _open(folder) as labelling:
        change(labelling)
        labels = labelling.labels()
        rows = [
            ("labelled", f"{sum(label is not None for label in labels):,} of {len(labels):,} texts"),
            ("groups", f"{len(labelling.groups):,}"),
            ("changes", f"{labelling.history['changes']:,}"),
        ]
    show(None, facts(folder, rows))
