"""`turnwise map`: a map of the utterances in a store."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

import turnwise
from turnwise.cli.options import AsJson, OptionalModel, Seed, Speakers, Splits
from turnwise.cli.output import Block, excerpt, facts, lines, progress_bar, show
from turnwise.cli.project import model_or_default, project_part
from turnwise.core.imports import require

if TYPE_CHECKING:
    from turnwise.assist.map.utterance_map import UtteranceMap

#: Number of texts to show per cluster.
_EXAMPLES = 3


def map_command(
    store: Annotated[
        Path | None, Argument(help="Store to map; inside a project, what users say in its own by default.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            file_okay=False,
            help="Folder for the map, its page and its picture; inside a project, its own by default.",
        ),
    ] = None,
    model: OptionalModel = None,
    speaker: Speakers = None,
    split: Splits = None,
    since: Annotated[Path | None, Option(help="Folder of an earlier map: mark what is new since then.")] = None,
    method: Annotated[Literal["umap", "tsne"], Option(help="Projection to two dimensions.")] = "umap",
    min_cluster_size: Annotated[
        int | None, Option(min=2, help="Texts in the smallest cluster; by default depends on their number.")
    ] = None,
    outliers: Annotated[
        Literal["near", "all", "none"], Option(help="Which texts outside all clusters to assign to the nearest one.")
    ] = "near",
    limit: Annotated[int | None, Option(min=1, help="Map a random sample of at most this many texts.")] = None,
    top: Annotated[int, Option(min=1, help="Number of clusters to list.")] = 20,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Cluster utterances and draw a map to explore and label.

    Writes an interactive page, a picture, and clusters with names and examples.

    Repeated texts are one point. With `--since`, texts unlike any in an earlier map are marked as new. Vectors are
    cached in the folder until the map is complete: after an interruption the same command continues.

    Example: `turnwise map stores/our-logs --speaker user --out map` and open `map/map.html`.
    """
    require("pyarrow", "sklearn", extra="map")
    from turnwise.assist.map.utterance_map import UtteranceMap, check_output_folder
    from turnwise.core.dialogue import USER
    from turnwise.corpus.storage.store import require_speakers

    if store is None and not speaker:
        speaker = [USER]
    store = store or project_part("store", "STORE")
    out = out or project_part("map", "--out")
    model = model_or_default(model)
    check_output_folder(out)
    corpus = turnwise.read_corpus(store, splits=split or None)
    require_speakers(corpus.stores, speaker or ())
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
    rows = [("mapped", summarise_map(result)), ("page", str(out / PAGE)), ("picture", str(out / PICTURE))]
    blocks = [_cluster_block(result, place) for place in range(min(top, len(result.clusters)))]
    if len(result.clusters) > top:
        blocks.append(f"{len(result.clusters) - top:,} more clusters: see the page, or use --top")
    show(_as_json(result, out), facts(store, rows), *blocks, as_json=as_json)


def _as_json(result: "UtteranceMap", out: Path) -> dict[str, Any]:
    return {
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


def _cluster_block(result: "UtteranceMap", place: int) -> Block:
    cluster = result.clusters[place]
    title = f"{cluster.name}  {cluster.size:,} texts, {cluster.utterances / int(result.counts.sum()):.1%}"
    if result.new is not None and result.comparison is not None:
        new = int(result.new[result.labels == cluster.number].sum())
        title += f", {new:,} texts new, {result.comparison.before[place] / result.comparison.utterances:.1%} before"
    examples = [(f"  {excerpt(result.utterances[row].text)}", "") for row in cluster.representatives[:_EXAMPLES]]
    return lines((title, "bold"), *examples)
