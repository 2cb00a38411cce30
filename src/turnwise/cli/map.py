"""`turnwise map`: a map of what is said in a store."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.assist.map.map import Map

_METHODS = ("umap", "tsne")
_OUTLIERS = ("near", "all", "none")

#: Texts that are shown of a cluster.
_EXAMPLES = 3


def map_command(
    store: Annotated[Path, typer.Argument(help="The store to map.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="The folder to write the map, its page and its picture to.")
    ],
    model: Annotated[str, typer.Option(help="An encoder: 'minilm', a folder, or a Hugging Face id.")] = "minilm",
    speaker: Annotated[list[str] | None, typer.Option(help="Map only what this speaker says; may be repeated.")] = None,
    split: Annotated[list[str] | None, typer.Option(help="Map only dialogues of this split; may be repeated.")] = None,
    since: Annotated[Path | None, typer.Option(help="An earlier map's folder: says what is new since.")] = None,
    method: Annotated[str, typer.Option(help="How the map is laid out: umap or tsne.")] = "umap",
    least: Annotated[
        int | None, typer.Option(min=2, help="Texts of the smallest cluster; by their number if not given.")
    ] = None,
    outliers: Annotated[
        str,
        typer.Option(help="Texts in no cluster: the near ones get the nearest (near), all do (all), or none (none)."),
    ] = "near",
    limit: Annotated[int | None, typer.Option(min=1, help="Map at most so many texts, drawn at random.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many clusters to list.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Makes a map of what is said: an interactive page, a picture, and the clusters with names and examples.

    Texts that repeat are one point. With `--since` texts unlike any in an earlier map are marked. Vectors are kept in the folder
    while they are made: a command that was stopped goes on where it was.

    Example: `turnwise map stores/our-logs --speaker user --out map` and open `map/map.html`.
    """
    for value, allowed, name in ((method, _METHODS, "--method"), (outliers, _OUTLIERS, "--outliers")):
        if value not in allowed:
            raise typer.BadParameter(f"{value!r} is neither {' nor '.join(allowed)}", param_hint=name)
    from turnwise.assist.map.map import Map, check_out
    from turnwise.corpus.intake import CorpusError
    from turnwise.corpus.store import is_store, read_corpus

    # before what takes seconds to import, and long before all is read
    check_out(out)
    if not is_store(store):
        raise CorpusError(
            f"{store} is not a store: import a log first, by `turnwise corpus import table log.csv --out store`"
        )
    earlier = None if since is None else Map.load(since)
    corpus = read_corpus(store, splits=split or None)
    quiet()
    from turnwise.assist.map.making import drawn_at_random, make_map, utterances_of
    from turnwise.assist.map.page import map_page
    from turnwise.assist.map.picture import map_svg
    from turnwise.assist.search.portions import KeptPortions
    from turnwise.core.files import write_whole
    from turnwise.models.encoder import Encoder

    with bar() as progress:
        utterances = utterances_of(corpus, speaker or None, total=len(corpus), progress=progress)
        if limit is not None:
            utterances = drawn_at_random(utterances, limit, seed)
        progress("loading the encoder", 0)
        encoder = KeptPortions(Encoder.load(model), out)
        made = make_map(
            encoder,
            utterances,
            model=model,
            method="umap" if method == "umap" else "tsne",
            least=least,
            outliers="near" if outliers == "near" else "all" if outliers == "all" else "none",
            since=earlier,
            seed=seed,
            progress=progress,
        )
        made.save(out)
        write_whole(out / "map.html", map_page(made, store.name))
        write_whole(out / "map.svg", map_svg(made, store.name))
        encoder.clear()
    if as_json:
        print_json(_as_json(made, out))
        return
    _print(made, store, out, top)


def _as_json(made: "Map", out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "folder": str(out),
        "texts": len(made),
        "utterances": int(made.counts.sum()),
        "outside": int((made.labels < 0).sum()),
        "new": None if made.new is None else int(made.new.sum()),
        "since": None if made.since is None else asdict(made.since),
        "clusters": [
            {**asdict(cluster), "representatives": [made.utterances[row].text for row in cluster.representatives]}
            for cluster in made.clusters
        ],
    }


def _print(made: "Map", store: Path, out: Path, top: int) -> None:
    from rich.console import Console
    from rich.text import Text

    from turnwise.assist.map.page import summary

    print_table(
        f"[bold]{store}",
        [("mapped", summary(made)), ("page", str(out / "map.html")), ("picture", str(out / "map.svg"))],
    )
    console = Console()
    said = int(made.counts.sum())
    for place, cluster in enumerate(made.clusters[:top]):
        compared = ""
        if made.new is not None and made.since is not None:
            new = int(made.new[made.labels == cluster.number].sum())
            compared = f", {new:,} texts new, {made.since.before[place] / made.since.utterances:.1%} before"
        share = cluster.utterances / said
        console.print()
        console.print(
            Text(cluster.name, style="bold"),
            Text(f"  {cluster.size:,} texts, {share:.1%}{compared}", style="dim"),
            sep="",
        )
        for row in cluster.representatives[:_EXAMPLES]:
            console.print(Text(f"  {made.utterances[row].text}"))
    if len(made.clusters) > top:
        console.print(f"\n{len(made.clusters) - top:,} more clusters: see the page, or give --top")
