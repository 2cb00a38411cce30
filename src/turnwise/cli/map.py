"""`turnwise map` and `turnwise labels`: map utterances, label them, and fit a classifier on the labels."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

import turnwise
from turnwise.cli import options
from turnwise.cli.corpus import export_report
from turnwise.cli.help import command_group
from turnwise.cli.languages import check_language
from turnwise.cli.output import Block, excerpt, facts, lines, progress_bar, show
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.assist.labelling.labelling import Labelling
    from turnwise.assist.map.utterance_map import UtteranceMap

labels_app = command_group("Label the clusters of a map, and fit a classifier on them.")

#: Commands on a map, which may be left out inside a project.
_InMap = options.project_command("map")

MapFolder = Annotated[Path, Argument(help="Map folder, written by `turnwise map`.")]
GroupNumber = Annotated[int, Argument(help="Group number, as shown by `status`.")]

#: Number of texts to show per cluster.
_EXAMPLES = 3


def map_command(
    store: Annotated[Path | None, Argument(help="Store; in a project, the user turns of its store.")] = None,
    out: Annotated[Path | None, Option(file_okay=False, help="Folder to write; in a project, its map.")] = None,
    model: options.OptionalModel = None,
    speaker: options.Speakers = None,
    split: options.Splits = None,
    since: Annotated[Path | None, Option(help="Folder of an earlier map: mark what is new since then.")] = None,
    method: options.Projection = "umap",
    min_cluster_size: options.MinClusterSize = None,
    outliers: Annotated[Literal["near", "all", "none"], Option(help="Outliers to put into nearest clusters.")] = "near",
    limit: Annotated[int | None, Option(min=1, help="Map a random sample of at most this many texts.")] = None,
    top: Annotated[int, Option(min=1, help="Number of clusters to list.")] = 20,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Cluster utterances and draw a map to explore and label.

    Writes an interactive page, a picture, and clusters with names and examples. Repeated texts are one point. With
    `--since`, texts unlike any in an earlier map are marked as new. After an interruption the same command continues.

    Example: `turnwise map stores/our-logs --speaker user --out map` and open `map/map.html`.
    """
    require("pyarrow", "sklearn", extra="map")
    from turnwise.assist.map.utterance_map import UtteranceMap, check_output_folder
    from turnwise.core.dialogue import USER
    from turnwise.corpus.storage.store import require_speakers

    if store is None and not speaker:
        speaker = [USER]
    store = store or options.project_part("store", "STORE")
    out = out or options.project_part("map", "--out")
    check_output_folder(out)
    corpus = turnwise.read_corpus(store, splits=split or None)
    require_speakers(corpus.stores, speaker or ())
    check_language(*corpus.stores, given=model)
    model = options.model_or_default(model)
    earlier = None if since is None else UtteranceMap.load(since)
    from turnwise.assist.map.page import PAGE, PICTURE, summarise_map, write_map
    from turnwise.assist.map.reduction import MapSettings
    from turnwise.models.encoder import encoder_fingerprint
    from turnwise.models.vector_cache import VectorCache

    with progress_bar() as progress:
        progress("loading the encoder", 0)
        encoder = turnwise.Encoder.load(model)
        cache = VectorCache(encoder, out / f".vectors-{encoder_fingerprint(encoder)[:16]}")
        result = write_map(
            cache,
            corpus,
            out,
            MapSettings(method, min_cluster_size, outliers, seed),
            title=store.name,
            speakers=speaker or None,
            limit=limit,
            model=model,
            earlier=earlier,
            progress=progress,
        )
        cache.clear()
    data = {
        "folder": str(out),
        "texts": len(result),
        "utterances": int(result.counts.sum()),
        "outside": int((result.labels < 0).sum()),
        "new": None if result.new is None else int(result.new.sum()),
        "since": None if result.comparison is None else asdict(result.comparison),
        "clusters": [
            {**asdict(cluster), "representatives": [result.utterances[row].text for row in cluster.representatives]}
            for cluster in result.clusters
        ],
    }
    rows = [("mapped", summarise_map(result)), ("page", str(out / PAGE)), ("picture", str(out / PICTURE))]
    blocks = [_cluster_block(result, place) for place in range(min(top, len(result.clusters)))]
    if len(result.clusters) > top:
        blocks.append(f"{len(result.clusters) - top:,} more clusters: see the page, or use --top")
    show(data, facts(store, rows), *blocks, as_json=as_json)


def _cluster_block(result: "UtteranceMap", place: int) -> Block:
    cluster = result.clusters[place]
    title = f"{cluster.name}  {cluster.size:,} texts, {cluster.utterances / int(result.counts.sum()):.1%}"
    if result.new is not None and result.comparison is not None:
        new = int(result.new[result.labels == cluster.number].sum())
        title += f", {new:,} texts new, {result.comparison.before[place] / result.comparison.utterances:.1%} before"
    examples = [(f"  {excerpt(result.utterances[row].text)}", "") for row in cluster.representatives[:_EXAMPLES]]
    return lines((title, "bold"), *examples)


@labels_app.command("status", cls=_InMap)
def status_command(
    folder: MapFolder,
    top: Annotated[int, Option(min=1, help="Number of groups to list.")] = 50,
    as_json: options.AsJson = False,
) -> None:
    """Show the groups, their names, and how much is labelled.

    Example: `turnwise labels status map`
    """
    with _open(folder, read_only=True) as labelling:
        groups, texts, data = labelling.groups, labelling.map.texts, _state(labelling)
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


def _state(labelling: "Labelling") -> dict[str, Any]:
    labels = labelling.labels()
    return {
        "texts": len(labels),
        "labelled": sum(label is not None for label in labels),
        "intents": len({label for label in labels if label is not None}),
        "in_no_group": int((labelling.row_groups < 0).sum()),
        **labelling.history,
    }


@labels_app.command("next", cls=_InMap)
def next_command(
    folder: MapFolder,
    count: Annotated[int, Option(min=1, help="Number of questions.")] = 5,
    as_json: options.AsJson = False,
) -> None:
    """List the utterances whose labels would help most.

    Similar utterances, which probably have the same label, are listed together. Answer with `turnwise labels set`.

    Example: `turnwise labels next map --count 3`
    """
    with _open(folder, read_only=True) as labelling:
        questions, texts = labelling.select_questions(count), labelling.map.texts
    parts = []
    for each in questions:
        guess = "" if each.guess is None else f"  {each.guess}?"
        parts += [(f"{each.row:>6}  {excerpt(each.text)}{guess}", "bold")]
        parts += [(f"{row:>6}  {excerpt(texts[row])}", "") for row in each.rows[1:]]
        parts += [(f"        {each.reason}", "dim")]
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
    name: Annotated[str | None, Option(help="Label; without it, the utterances lose their label and group.")] = None,
) -> None:
    """Label utterances: they move to the group of that name.

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
    with _open(older, read_only=True) as before:
        _change(folder, lambda labelling: labelling.copy_labels(before))


@labels_app.command("export", cls=_InMap)
def export_command(
    folder: MapFolder,
    out: Annotated[Path, options.out_file(".csv", ".yml", help="File to write: .csv, or .yml for Rasa.")],
    force: options.Force = False,
) -> None:
    """Write labels to a .csv file or to Rasa's nlu.yml.

    The .csv file has every utterance, nlu.yml only those with a label.

    Example: `turnwise labels export map --out labels.csv`
    """
    from turnwise.corpus.exporting import check_new_file, export_dialogues, labelled_dialogues

    check_new_file(out, force)
    with _open(folder, read_only=True) as labelling:
        if out.suffix == ".csv":
            written = f"{len(labelling.map):,} texts, {labelling.export(out):,} of them labelled"
            show(None, facts(out, [("written", written)]))
            return
        labels = zip(labelling.map.texts, labelling.labels(), strict=True)
        dialogues = labelled_dialogues([(text, label) for text, label in labels if label is not None])
    show(None, export_report(out, export_dialogues(dialogues, out, "rasa", overwrite=force)))


@labels_app.command("finish", cls=_InMap)
def finish_command(
    folder: MapFolder,
    out: Annotated[Path | None, Option(file_okay=False, help="Folder to write; in a project, its intents.")] = None,
    model: Annotated[str | None, Option(help="Encoder; by default the one that the map was made with.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit an intent classifier on the labels.

    Utterances labelled out_of_scope are not an intent: they show the classifier what to reject.

    Example: `turnwise labels finish map --out intents`, then `turnwise intents predict intents "Where is my parcel?"`
    """
    from turnwise.assist.intents.storage import replace_classifier
    from turnwise.cli.intent_output import add_to_project

    project = None if out is not None else options.require_project("--out")
    with _open(folder, read_only=True) as labelling, progress_bar() as progress:
        progress("fitting the classifier", 0)
        classifier = labelling.fit(model)
        if project is not None:
            out, classifier = add_to_project(project, classifier)
        else:
            assert out is not None
            replace_classifier(classifier, out)
        labelled = labelling.export(out / "labels.csv")
    intents = len(classifier.classes_)
    rows = [("fitted", f"{intents:,} intents"), ("labels", f"{labelled:,} texts, in {out / 'labels.csv'}")]
    if classifier.support_selection_ is not None:
        rows.append(("also on", classifier.support_selection_.describe()))
    show({"folder": str(out), "intents": intents, "labelled": labelled}, facts(out, rows), as_json=as_json)


def _open(folder: Path, *, read_only: bool = False) -> "Labelling":
    require("pyarrow", "sklearn", extra="map")
    from turnwise.assist.labelling.labelling import Labelling

    return Labelling.open(folder, read_only=read_only)


def _change(folder: Path, change: "Callable[[Labelling], object]") -> None:
    """Apply a change and show the new state."""
    with _open(folder) as labelling:
        change(labelling)
        data, groups = _state(labelling), len(labelling.groups)
    labelled = f"{data['labelled']:,} of {data['texts']:,} texts"
    show(None, facts(folder, [("labelled", labelled), ("groups", f"{groups:,}"), ("changes", f"{data['changes']:,}")]))
