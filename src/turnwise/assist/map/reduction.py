"""Fewer dimensions: five that clusters are found in, two that a map is drawn in.

UMAP and t-SNE keep neighbours together and give up the distances between what is far apart: groups and who lies in them can be read
off a map, how far two groups are from each other cannot. With one seed, one machine gives one result.
"""

import warnings
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from turnwise.assist.search.neighbours import nearest_neighbours
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent

Method = Literal["umap", "tsne"]
Vectors = npt.NDArray[np.float32]

#: Dimensions that clusters are found in: more keep more apart, fewer are quicker and denser. t-SNE can do but two.
CLUSTERED = {"umap": 5, "tsne": 2}

#: Neighbours of a text, itself among them, and t-SNE's number of them.
_NEIGHBOURS, _PERPLEXITY = 15, 30.0

#: Principal components that t-SNE starts from.
_COMPONENTS = 50

#: Fewer texts than this have no neighbourhoods to keep: their principal components are the map.
_LEAST = 10


class ReductionError(TurnwiseError):
    """Dimensions cannot be reduced as asked; the message says why and what to do."""


class Reduction:
    """Vectors in fewer dimensions; what clusters and what a map need of the neighbours is found once.

    Attributes:
        vectors: of length 1 (texts, size).
        method: UMAP, or t-SNE.
        seed: of all that is drawn at random.
    """

    def __init__(self, vectors: Vectors, method: Method = "umap", *, seed: int = 0, progress: Progress = silent):
        """Checks the vectors.

        Raises:
            ReductionError: if they are no table of numbers, or the method is not known or not installed.
        """
        if method not in CLUSTERED:
            raise ReductionError(f"there is no method {method!r}: take {' or '.join(CLUSTERED)}")
        if vectors.ndim != 2:
            raise ReductionError(f"vectors come as a table (texts, size), not in {vectors.ndim} dimensions")
        if not np.isfinite(vectors).all():
            raise ReductionError("some vectors are not numbers: nothing can be compared with them")
        if method == "umap":
            _umap()
        self.vectors = vectors
        self.method: Method = method
        self.seed = seed
        self._progress = progress
        self._reduced: dict[int, Vectors] = {}
        self._neighbours: tuple[npt.NDArray[np.int64], Vectors] | None = None

    def for_clusters(self) -> Vectors:
        """The dimensions that clusters are found in (texts, 5 or 2)."""
        return self._to(CLUSTERED[self.method], None)

    def for_map(self, start: Vectors | None = None) -> Vectors:
        """Where texts lie on a map (texts, 2).

        Args:
            start: where they lie at first (texts, 2), so that a map resembles an earlier one; None: by principal components.
        """
        return self._to(2, start)

    def _to(self, size: int, start: Vectors | None) -> Vectors:
        if start is not None or size not in self._reduced:
            if len(self.vectors) < _LEAST:
                reduced = _components(self.vectors, size)
            elif self.method == "umap":
                reduced = self._by_umap(size, start)
            else:
                reduced = self._by_tsne(start)
            self._reduced[size] = reduced
        return self._reduced[size]

    def _by_umap(self, size: int, start: Vectors | None) -> Vectors:
        what = "laying out the map" if size == 2 else "reducing dimensions"
        count = min(_NEIGHBOURS, len(self.vectors) - 1)
        rows, distances = self._nearest(count)
        model = _umap().UMAP(
            n_components=size,
            n_neighbors=count,
            # clusters are densest where points may lie on each other, a map is readable where they do not
            min_dist=0.1 if size == 2 else 0.0,
            init="pca" if start is None else _apart(start, self.seed),
            random_state=self.seed,
            n_jobs=1,
            precomputed_knn=(rows, distances, None),
            tqdm_kwds={
                "disable": False,
                "file": _Epochs(what, self._progress),
                "bar_format": "{n} {total}",
                "mininterval": 0.5,
            },
        )
        with warnings.catch_warnings():
            # without its search index a fitted UMAP could not place further vectors, which nobody asks of it here
            warnings.filterwarnings("ignore", message="precomputed_knn", category=UserWarning)
            return cast(Vectors, model.fit_transform(self.vectors).astype(np.float32))

    def _by_tsne(self, start: Vectors | None) -> Vectors:
        from sklearn.manifold import TSNE

        self._progress("laying out the map", 0)
        components = _components(self.vectors, min(_COMPONENTS, *self.vectors.shape))
        close = components[:, :2] / max(float(components[:, 0].std()), 1e-12) * 1e-4
        model = TSNE(
            perplexity=min(_PERPLEXITY, (len(self.vectors) - 1) / 3),
            # a map grows from points that lie close together and are drawn to each other first; an earlier one has grown
            init=close if start is None else _apart(start, self.seed),
            early_exaggeration=12.0 if start is None else 1.0,
            random_state=self.seed,
            n_jobs=-1,
        )
        return cast(Vectors, model.fit_transform(components).astype(np.float32))

    def _nearest(self, count: int) -> tuple[npt.NDArray[np.int64], Vectors]:
        """The nearest vectors of each, itself among them, and their distances."""
        if self._neighbours is None:
            found = nearest_neighbours(self.vectors, self.vectors, count, progress=self._progress)
            self._neighbours = found.rows, np.sqrt(np.maximum(2 - 2 * found.similarities, 0)).astype(np.float32)
        return self._neighbours


def lay_out(vectors: Vectors, method: Method = "umap", *, seed: int = 0, progress: Progress = silent) -> Vectors:
    """Where vectors of length 1 lie on a map (texts, 2).

    Raises:
        ReductionError: as in `Reduction`.
    """
    return Reduction(vectors, method, seed=seed, progress=progress).for_map()


def _components(vectors: Vectors, size: int) -> Vectors:
    """Principal components; those that there are too few vectors for are 0."""
    from sklearn.decomposition import PCA

    reduced = np.zeros((len(vectors), size), np.float32)
    count = min(size, *vectors.shape)
    if len(vectors) > 1:
        reduced[:, :count] = PCA(count, svd_solver="covariance_eigh" if len(vectors) > 2_000 else "full").fit_transform(
            vectors
        )
    return reduced


def _apart(start: Vectors, seed: int) -> Vectors:
    """First places with a little noise: points that start at one place could hardly come apart."""
    spread = max(float(start.std()), 1e-6)
    noise = np.random.default_rng(seed).normal(0, spread * 1e-3, start.shape)
    return (start + noise).astype(np.float32)


class _Epochs:
    """What UMAP's bar writes to: it hands on how far it is."""

    def __init__(self, what: str, progress: Progress):
        self._what = what
        self._progress = progress

    def write(self, text: str) -> None:
        numbers = text.split()
        if len(numbers) == 2:
            self._progress(self._what, int(numbers[0]), int(numbers[1]))

    def flush(self) -> None:
        """Nothing is held back."""


def _umap() -> Any:
    try:
        import umap
    except ImportError:
        raise ReductionError(
            "UMAP is not installed: install it by `pip install 'turnwise[map]'`, or choose the method 'tsne', which needs nothing"
        ) from None
    return umap
