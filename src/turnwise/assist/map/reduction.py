"""Dimension reduction: five dimensions for clustering, two for a map.

UMAP and t-SNE preserve neighbourhoods but not distances between distant points: a map shows groups and their members,
but not how far apart two groups are. Equal seeds give equal results on one machine.
"""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.errors import MapError
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors

Method = Literal["umap", "tsne"]

#: Which outliers are assigned to the nearest cluster: the near ones, all, or none.
Outliers = Literal["near", "all", "none"]

#: Dimensions for clustering: more separate better, fewer are faster and denser. t-SNE supports only two.
CLUSTERING_DIMENSIONS = {"umap": 5, "tsne": 2}

#: UMAP's neighbours of a text, including itself, and t-SNE's perplexity.
_NEIGHBOURS, _PERPLEXITY = 15, 30.0

#: Principal components that t-SNE starts from.
_COMPONENTS = 50

#: With fewer texts, the principal components are the result.
_MIN_TEXTS = 10


@dataclass(frozen=True, slots=True)
class MapSettings:
    """Settings of dimension reduction and clustering; raises MapError if one is out of range."""

    method: Method = "umap"
    min_cluster_size: int | None = None  # texts in the smallest cluster; None: depends on their number
    outliers: Outliers = "near"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in CLUSTERING_DIMENSIONS:
            raise MapError(f"there is no method {self.method!r}: choose {' or '.join(CLUSTERING_DIMENSIONS)}")
        if self.min_cluster_size is not None and self.min_cluster_size < 2:
            raise MapError(f"min_cluster_size must be at least 2, got {self.min_cluster_size}")


class DimensionReduction:
    """Reduces normalised vectors for clustering and for a map; nearest neighbours are computed once for both."""

    def __init__(self, vectors: Vectors, settings: MapSettings | None = None, *, progress: Progress = silent):
        """Check the vectors; raise MapError if they are invalid, or the method is not installed."""
        settings = settings or MapSettings()
        if not np.isfinite(vectors).all():
            raise MapError("some vectors contain values that are not finite: check the encoder")
        if settings.method == "umap":
            _import_umap()
        self.vectors = vectors
        self.settings = settings
        self.progress = progress
        self._reduced: dict[int, Vectors] = {}
        self._neighbours: tuple[npt.NDArray[np.int64], Vectors] | None = None

    def reduce_for_clustering(self) -> Vectors:
        """Return the vectors in the dimensions for clustering (texts, 5 or 2)."""
        return self._reduce(CLUSTERING_DIMENSIONS[self.settings.method], None)

    def lay_out(self, start: Vectors | None = None) -> Vectors:
        """Return the positions of texts on a map (texts, 2), starting from those of an earlier map, if given."""
        return self._reduce(2, start)

    def _reduce(self, dimensions: int, start: Vectors | None) -> Vectors:
        if start is not None or dimensions not in self._reduced:
            if len(self.vectors) < _MIN_TEXTS:
                reduced = _principal_components(self.vectors, dimensions)
            elif self.settings.method == "umap":
                reduced = self._reduce_by_umap(dimensions, start)
            else:
                reduced = self._reduce_by_tsne(start)
            self._reduced[dimensions] = reduced
        return self._reduced[dimensions]

    def _reduce_by_umap(self, dimensions: int, start: Vectors | None) -> Vectors:
        self.progress("laying out the map" if dimensions == 2 else "reducing dimensions", 0)
        count = min(_NEIGHBOURS, len(self.vectors) - 1)
        if self._neighbours is None:
            result = nearest_neighbours(self.vectors, self.vectors, count, progress=self.progress)
            self._neighbours = result.rows, np.sqrt(np.maximum(2 - 2 * result.similarities, 0)).astype(np.float32)
        model = _import_umap().UMAP(
            n_components=dimensions,
            n_neighbors=count,
            # clusters are densest if points may coincide, a map is readable if they do not
            min_dist=0.1 if dimensions == 2 else 0.0,
            init="pca" if start is None else _add_noise(start, self.settings.seed),
            random_state=self.settings.seed,
            n_jobs=1,
            precomputed_knn=(*self._neighbours, None),
        )
        with warnings.catch_warnings():
            # without a search index a fitted UMAP cannot transform further vectors, which is not needed here
            warnings.filterwarnings("ignore", message="precomputed_knn", category=UserWarning)
            return cast(Vectors, model.fit_transform(self.vectors).astype(np.float32))

    def _reduce_by_tsne(self, start: Vectors | None) -> Vectors:
        from sklearn.manifold import TSNE

        self.progress("laying out the map", 0)
        components = _principal_components(self.vectors, min(_COMPONENTS, *self.vectors.shape))
        scaled = components[:, :2] / max(float(components[:, 0].std()), 1e-12) * 1e-4
        model = TSNE(
            perplexity=min(_PERPLEXITY, (len(self.vectors) - 1) / 3),
            # a new map starts from points that are close together, with early exaggeration; an earlier map is kept
            init=scaled if start is None else _add_noise(start, self.settings.seed),
            early_exaggeration=12.0 if start is None else 1.0,
            random_state=self.settings.seed,
            n_jobs=-1,
        )
        return cast(Vectors, model.fit_transform(components).astype(np.float32))


def _principal_components(vectors: Vectors, dimensions: int) -> Vectors:
    """Return principal components, padded with zeros if there are too few vectors."""
    from sklearn.decomposition import PCA

    reduced = np.zeros((len(vectors), dimensions), np.float32)
    count = min(dimensions, *vectors.shape)
    if len(vectors) > 1:
        solver = "covariance_eigh" if len(vectors) > 2_000 else "full"
        reduced[:, :count] = PCA(count, svd_solver=solver).fit_transform(vectors)
    return reduced


def _add_noise(start: Vectors, seed: int) -> Vectors:
    """Return initial positions with a little noise, so that points at the same position can separate."""
    spread = max(float(start.std()), 1e-6)
    noise = np.random.default_rng(seed).normal(0, spread * 1e-3, start.shape)
    return (start + noise).astype(np.float32)


def _import_umap() -> Any:
    try:
        import umap
    except ImportError:
        raise MapError(
            "UMAP is not installed: run `pip install 'turnwise[map]'`, or choose the method 'tsne'"
        ) from None
    return umap
