"""`turnwise labels`: from a map's clusters to labels, and from labels to a classifier of intents."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.assist.labelling.labelling import Labelling

labels_app = typer.Typer(
    help="Name, merge, split and correct the clusters of a map, and fit a classifier on the labels.",
    no_args_is_help=True,
)

MapFolder = Annotated[Path, typer.Argument(help="The folder of a map, as `turnwise map` makes it.")]
GroupNumber = Annotated[int, typer.Argument(help="The group's number, as `status` shows it.")]


@labels_app.command("status")
def status_command(
    folder: MapFolder,
    top: Annotated[int, typer.Option(min=1, help="How many groups to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Shows the groups, their names, and how much is labelled.

    Example: `turnwise labels status map`
    """
    with _open(folder) as labelling:
        groups, labels = labelling.groups, labelling.labels()
        figures = {
            "texts": len(labels),
            "labelled": sum(label is not None for label in labels),
            "intents": len({label for label in labels if label is not None}),
            "in_no_group": int((labelling.rows < 0).sum()),
            "changes": labelling.changes,
            "can_undo": labelling.can_undo,
            "can_redo": labelling.can_redo,
        }
        texts = labelling.map.texts
    if as_json:
        print_json(figures | {"groups": [asdict(group) for group in groups]})
        return
    share = figures["labelled"] / figures["texts"]
    rows = [
        (
            "labelled",
            f"{figures['labelled']:,} of {figures['texts']:,} texts ({share:.0%}), {figures['intents']:,} different labels",
        ),
        ("groups", f"{len(groups):,}; {figures['in_no_group']:,} texts in none"),
        ("changes", f"{figures['changes']:,}"),
    ]
    print_table(f"[bold]{folder}", rows)
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for group in groups[:top]:
        name = Text(group.name, style="bold") if group.name is not None else Text(f"no name ({group.suggested})")
        console.print()
        console.print(Text(f"{group.number:>4}", style="bold"), name, Text(f"{group.size:,} texts", style="dim"))
        console.print(Text(f"     {texts[group.representatives[0]]}"))
    if len(groups) > top:
        console.print(f"\n{len(groups) - top:,} more groups: give --top")


@labels_app.command("next")
def next_command(
    folder: MapFolder,
    count: Annotated[int, typer.Option(min=1, help="How many to ask about.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Lists the utterances whose label helps most. Answer by `turnwise labels set`.

    Example: `turnwise labels next map --count 3`
    """
    with _open(folder) as labelling:
        asked = labelling.ask(count)
    if as_json:
        print_json({"questions": [asdict(question) for question in asked]})
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for question in asked:
        guess = "" if question.guess is None else f"  {question.guess}?"
        console.print(Text(f"{question.row:>6}  ", style="bold") + Text(question.text) + Text(guess, style="bold"))
        console.print(Text(f"        {question.reason}", style="dim"))


@labels_app.command("name")
def name_command(
    folder: MapFolder, group: GroupNumber, name: Annotated[str, typer.Argument(help="What to call it.")]
) -> None:
    """Names a group: that is the label of its utterances.

    Example: `turnwise labels name map 3 track_order`
    """
    _change(folder, lambda labelling: labelling.name(group, name))


@labels_app.command("merge")
def merge_command(
    folder: MapFolder,
    groups: Annotated[list[int], typer.Argument(help="Their numbers; the first takes the others in.")],
    name: Annotated[
        str | None, typer.Option(help="What to call it; as the first of them that has a name, if not given.")
    ] = None,
) -> None:
    """Makes one group of several.

    Example: `turnwise labels merge map 3 8 --name track_order`
    """
    _change(folder, lambda labelling: labelling.merge(groups, name))


@labels_app.command("split")
def split_command(
    folder: MapFolder,
    group: GroupNumber,
    parts: Annotated[int, typer.Option(min=2, help="Into how many.")] = 2,
) -> None:
    """Splits a group into parts that are alike; the largest keeps number and name.

    Example: `turnwise labels split map 3 --parts 3`
    """
    _change(folder, lambda labelling: labelling.split(group, parts))


@labels_app.command("set")
def set_command(
    folder: MapFolder,
    rows: Annotated[list[int], typer.Argument(help="The rows of utterances, as `next` shows them.")],
    name: Annotated[
        str | None, typer.Option(help="Their label; without it they have none, and are in no group.")
    ] = None,
) -> None:
    """Labels utterances by themselves: they move to the group of that name.

    Example: `turnwise labels set map 17 204 --name track_order`
    """
    _change(folder, lambda labelling: labelling.label(rows, name))


@labels_app.command("undo")
def undo_command(folder: MapFolder) -> None:
    """Takes the newest change back."""
    _change(folder, lambda labelling: labelling.undo())


@labels_app.command("redo")
def redo_command(folder: MapFolder) -> None:
    """Makes the change again that was undone last."""
    _change(folder, lambda labelling: labelling.redo())


@labels_app.command("carry")
def carry_command(
    folder: MapFolder,
    older: Annotated[Path, typer.Option("--from", help="The folder of an earlier map that is labelled.")],
) -> None:
    """Takes the labels of an earlier map over, for utterances that are in both.

    Example: `turnwise labels carry map-july --from map-june`
    """
    with _open(older) as before:
        _change(folder, lambda labelling: labelling.carry(before))


@labels_app.command("export")
def export_command(
    folder: MapFolder,
    out: Annotated[Path, typer.Option(dir_okay=False, help="The .csv file to write.")],
) -> None:
    """Writes every utterance with its label to a .csv file.

    Example: `turnwise labels export map --out labels.csv`
    """
    if out.suffix != ".csv":
        raise typer.BadParameter(f"{out} is not a .csv file", param_hint="--out")
    with _open(folder) as labelling:
        labelled = labelling.export(out)
        texts = len(labelling.map)
    print_table(f"[bold]{out}", [("written", f"{texts:,} texts, {labelled:,} of them with a label")])


@labels_app.command("finish")
def finish_command(
    folder: MapFolder,
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder of the classifier, with labels.csv in it.")],
    model: Annotated[
        str | None, typer.Option(help="The encoder; the one that the map was made with, if not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fits a classifier of intents on the labels, and writes the labels beside it.

    Utterances labelled out_of_scope are no intent: they show the classifier what to abstain from.

    Example: `turnwise labels finish map --out intents`, then `turnwise intents predict intents "Where is my parcel?"`
    """
    quiet()
    with _open(folder) as labelling, bar() as progress:
        progress("fitting the classifier", 0)
        classifier = labelling.fit(model)
        classifier.save(out)
        labelled = labelling.export(out / "labels.csv")
    if as_json:
        print_json({"folder": str(out), "intents": len(classifier.classes_), "labelled": labelled})
        return
    rows = [
        ("fitted", f"{len(classifier.classes_):,} intents"),
        ("labels", f"{labelled:,} texts, in {out / 'labels.csv'}"),
    ]
    print_table(f"[bold]{out}", rows)


def _open(folder: Path) -> "Labelling":
    from turnwise.assist.labelling.labelling import Labelling

    return Labelling.open(folder)


def _change(folder: Path, change: "Callable[[Labelling], object]") -> None:
    """Makes a change, and tells how things are then."""
    with _open(folder) as labelling:
        change(labelling)
        labels = labelling.labels()
        labelled = sum(label is not None for label in labels)
        groups = len(labelling.groups)
        changes = labelling.changes
    rows = [
        ("labelled", f"{labelled:,} of {len(labels):,} texts"),
        ("groups", f"{groups:,}"),
        ("changes", f"{changes:,}"),
    ]
    print_table(f"[bold]{folder}", rows)
