"""Making the map of a corpus in a folder: the map itself, its page and its picture."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.assist.map.clustering import Outliers
from turnwise.assist.map.page import map_page, map_svg
from turnwise.assist.map.reduction import Method
from turnwise.assist.map.utterance_map import (
    MapUtterance,
    UtteranceMap,
    collect_utterances,
    make_map,
    sample_utterances,
)
from turnwise.core.files import write_atomic
from turnwise.core.plots import write_chart
from turnwise.core.progress import Progress, silent
from turnwise.core.types import SupportsEncode
from turnwise.corpus.storage.corpus import Corpus

#: The page and the picture in a map's folder.
PAGE, PICTURE = "map.html", "map.svg"


def write_map(
    encoder: SupportsEncode,
    corpus: Corpus,
    folder: Path,
    *,
    title: str,
    speakers: Sequence[str] | None = None,
    limit: int | None = None,
    model: str = "",
    method: Method = "umap",
    min_cluster_size: int | None = None,
    outliers: Outliers = "near",
    earlier: UtteranceMap | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> UtteranceMap:
    """Map the distinct utterances of a corpus, and write the map to a folder; arguments as for `make_map`.

    Args:
        encoder: the encoder, or a `VectorCache` of it.
        corpus: the corpus.
        folder: the map's folder; a map there is replaced unless it is labelled.
        title: of the page and the picture.
        speakers: whose turns are mapped; None: all.
        limit: the size of a random sample; None: all utterances.
        model: the encoder's name.
        method: of the projection to two dimensions.
        min_cluster_size: texts in the smallest cluster; None: depends on their number.
        outliers: which texts outside all clusters to assign to the nearest one.
        earlier: an earlier map: what is new since then is marked.
        seed: of the sample and of the projection.
        progress: called with the number of texts.
    """
    utterances: list[MapUtterance] = collect_utterances(corpus, speakers, total=len(corpus), progress=progress)
    if limit is not None:
        utterances = sample_utterances(utterances, limit, seed)
    result = make_map(
        encoder,
        utterances,
        model=model,
        method=method,
        min_cluster_size=min_cluster_size,
        outliers=outliers,
        earlier=earlier,
        seed=seed,
        progress=progress,
    )
    result.save(folder)
    write_atomic(folder / PAGE, map_page(result, title))
    write_chart(folder / PICTURE, lambda: map_svg(result, title))
    return result
