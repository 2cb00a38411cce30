"""A map of utterances: positions, clusters, and what is new since an earlier map; how it is built and stored.

The folder of a map contains `map.json` (settings and clusters), `utterances.parquet` (one row per text) and
`vectors.safetensors`.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

from turnwise.assist.map.clustering import (
    NO_CLUSTER,
    Cluster,
    Labels,
    describe_clusters,
    find_clusters,
    separate_small_talk,
)
from turnwise.assist.map.reduction import DimensionReduction, MapSettings, Method
from turnwise.assist.search.neighbours import Neighbours, nearest_neighbours
from turnwise.core.dialogue import Dialogue
from turnwise.core.errors import MapError
from turnwise.core.files import (
    check_digests,
    explaining_damage,
    read_json,
    sha256,
    sync_to_disk,
    write_atomic,
    write_tensors,
)
from turnwise.core.progress import Progress, silent
from turnwise.core.text import normalise_text
from turnwise.core.types import SupportsEncode, Vectors
from turnwise.models.identity import EncoderId, EncoderIdentity
from turnwise.version import __version__

FORMAT = 1
DESCRIPTION, UTTERANCES, VECTORS = "map.json", "utterances.parquet", "vectors.safetensors"

#: The columns of an utterance.
_STORED = ["text", "dialogue", "turn", "speaker", "count"]

#: The journal of labels in a map's folder; a labelled map is not overwritten.
JOURNAL = "labels.jsonl"

#: The fraction of earlier texts that would be considered new among the others.
FALSE_ALARM_RATE = 0.01

#: Texts or dialogues between two progress reports.
_PORTION = 1_024


@dataclass(frozen=True, slots=True)
class MapUtterance:
    """A distinct text of a corpus, with dialogue, turn index and speaker of its first occurrence, and its count."""

    text: str
    dialogue: str | None = None
    turn: int | None = None
    speaker: str | None = None
    count: int = 1
    last: int = 0  # occurrences as its speaker's last turn of several in a conversation; not stored


@dataclass(frozen=True, slots=True)
class MapComparison:
    """The comparison of a map with an earlier one that has so many texts and utterances."""

    texts: int
    utterances: int
    threshold: float  # a text is new if its cosine with every earlier text is lower
    before: tuple[int, ...]  # for each cluster, the number of earlier utterances that would belong to it


@dataclass(frozen=True, slots=True)
class UtteranceMap:
    """A map with one row per distinct text."""

    utterances: Sequence[MapUtterance]
    vectors: Vectors  # normalised (texts, dimensions)
    points: Vectors  # positions on the map (texts, 2)
    labels: Labels  # the cluster of each text; -1 for none
    clusters: Sequence[Cluster]  # sorted by number
    model: str  # the name of the encoder
    method: Method = "umap"  # of the dimension reduction
    seed: int = 0  # of the random initialisation
    new: npt.NDArray[np.bool_] | None = None  # whether no earlier text is similar; None without an earlier map
    comparison: MapComparison | None = None  # with the earlier map; None without one
    encoder: EncoderId | None = None  # None: the encoder has no id, or an earlier version made the map

    def __len__(self) -> int:
        return len(self.utterances)

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return [utterance.text for utterance in self.utterances]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The occurrences of each text."""
        return np.array([utterance.count for utterance in self.utterances], np.int64)

    def identity(self) -> EncoderIdentity:
        """Return the identity of its encoder."""
        return EncoderIdentity.from_stored(self.texts, self.vectors, None, self.encoder)

    def save(self, folder: Path | str) -> None:
        """Write the map to a folder, replacing a map that is there; raise MapError if that is labelled."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = Path(folder)
        check_output_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # map.json is removed first and written last: a folder that has it is complete
        (folder / DESCRIPTION).unlink(missing_ok=True)
        types = {"text": pa.string(), "dialogue": pa.string(), "turn": pa.int32(), "speaker": pa.string()}
        columns = {name: pa.array([getattr(each, name) for each in self.utterances], types[name]) for name in types}
        columns["count"] = pa.array(self.counts, pa.int64())
        columns |= {name: pa.array(self.points[:, axis], pa.float32()) for axis, name in enumerate("xy")}
        columns["cluster"] = pa.array(self.labels, pa.int32())
        columns["new"] = pa.nulls(len(self), pa.bool_()) if self.new is None else pa.array(self.new, pa.bool_())
        pq.write_table(pa.table(columns), folder / UTTERANCES, compression="zstd")
        write_tensors(folder / VECTORS, {"vectors": np.ascontiguousarray(self.vectors)})
        for name in (UTTERANCES, VECTORS):
            sync_to_disk(folder / name)
        description = {
            "format": FORMAT,
            "files": {name: sha256(folder / name) for name in (UTTERANCES, VECTORS)},
            "turnwise": __version__,
            "model": self.model,
            "encoder": None if self.encoder is None else asdict(self.encoder),
            "method": self.method,
            "seed": self.seed,
            "texts": len(self),
            "since": None if self.comparison is None else asdict(self.comparison),
            "clusters": [asdict(cluster) for cluster in self.clusters],
        }
        write_atomic(folder / DESCRIPTION, json.dumps(description, indent=2, ensure_ascii=False) + "\n")
        sync_to_disk(folder)

    @classmethod
    def load(cls, folder: Path | str) -> "UtteranceMap":
        """Read a map that `save` wrote; raise MapError if the folder holds none of this format."""
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise MapError(f"{folder} is not a map: create one with `turnwise map STORE --out {folder}`")
        with explaining_damage(folder, MapError, "restore it from a backup, or map the store into another folder"):
            return cls._read(folder, read_json(folder / DESCRIPTION))

    @classmethod
    def _read(cls, folder: Path, description: Mapping[str, Any]) -> "UtteranceMap":
        if description.get("format") != FORMAT:
            raise MapError(
                f"{folder} has map format {description.get('format')}, this version reads {FORMAT}: create it again"
            )
        import pyarrow.parquet as pq

        check_digests(folder, description.get("files", {}))  # earlier versions recorded none
        table = pq.read_table(folder / UTTERANCES)
        comparison, vectors = description["since"], load_file(folder / VECTORS)["vectors"]
        if vectors.ndim != 2 or len(vectors) != len(table) or not np.isfinite(vectors).all():
            raise ValueError(f"{VECTORS} does not hold one finite vector per text")
        return cls(
            [MapUtterance(**row) for row in table.select(_STORED).to_pylist()],
            vectors,
            np.stack([table["x"].to_numpy(), table["y"].to_numpy()], 1),
            table["cluster"].to_numpy(),
            [Cluster(**_with_tuples(cluster, "words", "representatives")) for cluster in description["clusters"]],
            description["model"],
            description["method"],
            description["seed"],
            None if comparison is None else table["new"].to_numpy(),
            None if comparison is None else MapComparison(**_with_tuples(comparison, "before")),
            EncoderId.from_json(description.get("encoder")),
        )


def _with_tuples(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return values | {name: tuple(values[name]) for name in names}


def check_output_folder(folder: Path) -> None:
    """Raise MapError unless a map may be written to a folder."""
    if folder.exists() and not folder.is_dir():
        raise MapError(f"{folder} is a file: choose a folder for the map")
    if (folder / JOURNAL).exists():
        raise MapError(f"{folder} holds a map that is labelled ({JOURNAL}): choose another folder")


# ---- texts


def collect_utterances(
    corpus: Iterable[Dialogue],
    speakers: Collection[str] | None = None,
    *,
    total: int | None = None,
    progress: Progress = silent,
) -> list[MapUtterance]:
    """Return the distinct texts of some speakers with counts; `total` is the number of dialogues, if known."""
    first: dict[str, tuple[str, str, int, str]] = {}
    counts: Counter[str] = Counter()
    last: Counter[str] = Counter()
    done = 0
    for done, dialogue in enumerate(corpus, 1):
        keys: dict[str, list[str]] = {}  # by speaker
        for index, turn in enumerate(dialogue.turns):
            if speakers is None or turn.speaker in speakers:
                key = normalise_text(turn.text)
                first.setdefault(key, (turn.text.strip(), dialogue.id, index, turn.speaker))
                keys.setdefault(turn.speaker, []).append(key)
        for each in keys.values():
            counts.update(each)
            last.update(each[-1:] if len(each) > 1 else ())
        if done % _PORTION == 0:
            progress("reading", done, total)
    progress("reading", done, total)
    return [MapUtterance(*occurrence, counts[key], last[key]) for key, occurrence in first.items()]


def merge_duplicates(texts: Sequence[MapUtterance | str]) -> list[MapUtterance]:
    """Merge texts that differ only in case and surrounding space; raise MapError if a text is empty."""
    if isinstance(texts, str):
        raise MapError("texts must be a list, got a single string: pass [text]")
    merged: dict[str, MapUtterance] = {}
    for number, text in enumerate(texts):
        utterance = MapUtterance(text) if isinstance(text, str) else text
        key = normalise_text(utterance.text)
        if not key:
            raise MapError(f"text {number} is empty: leave it out")
        before = merged.get(key)
        if before is not None:
            utterance = replace(before, count=before.count + utterance.count, last=before.last + utterance.last)
        merged[key] = utterance
    return list(merged.values())


def sample_utterances(utterances: Sequence[MapUtterance], count: int, seed: int = 0) -> list[MapUtterance]:
    """Return a random sample of at most `count` utterances, in their order."""
    if count >= len(utterances):
        return list(utterances)
    rows = np.random.default_rng(seed).choice(len(utterances), count, replace=False)
    return [utterances[row] for row in np.sort(rows)]


# ---- making a map


def make_map(
    encoder: SupportsEncode,
    texts: Sequence[MapUtterance | str],
    settings: MapSettings | None = None,
    *,
    model: str = "",
    earlier: UtteranceMap | None = None,
    progress: Progress = silent,
) -> UtteranceMap:
    """Encode, cluster and lay out texts, and compare them with an earlier map.

    Texts that differ only in case and surrounding space are merged. With an earlier map, made with the same encoder,
    each text starts at the position of the most similar earlier text, so that the two maps resemble each other. `model`
    is the encoder's name, stored with the map.
    """
    settings = settings or MapSettings()
    utterances = merge_duplicates(texts)
    if not utterances:
        raise MapError("there is no text to map: check the store, the splits and the speakers")
    if earlier is not None:
        if len(earlier) < 2:
            raise MapError("the earlier map has a single text: a comparison needs at least two")
        name = f"the earlier map ({earlier.model})" if earlier.model else "the earlier map"
        earlier.identity().check(encoder, name, "turnwise map STORE --out DIR")
    distinct = [utterance.text for utterance in utterances]
    vectors = _encode(encoder, distinct, progress)
    reduction = DimensionReduction(vectors, settings, progress=progress)
    counts = np.array([utterance.count for utterance in utterances])
    last = np.array([utterance.last for utterance in utterances])
    labels, has_small_talk = separate_small_talk(distinct, find_clusters(reduction), counts, last)
    new = comparison = start = None
    if earlier is not None:
        nearest, threshold, new = detect_novelty(vectors, earlier.vectors, progress=progress)
        start = earlier.points[nearest.rows[:, 0]]
        comparison = _compare(earlier, threshold, vectors, labels)
    points = reduction.lay_out(start)
    progress("naming clusters", 0)
    clusters = describe_clusters(distinct, labels, vectors, counts)
    if has_small_talk:
        clusters[-1] = replace(clusters[-1], name="small talk", small_talk=True)
    progress("naming clusters", 1, 1)
    identity, method, seed = EncoderId.of(encoder), settings.method, settings.seed
    return UtteranceMap(utterances, vectors, points, labels, clusters, model, method, seed, new, comparison, identity)


def _encode(encoder: SupportsEncode, texts: Sequence[str], progress: Progress) -> Vectors:
    # texts of similar length together, to reduce padding
    order = np.argsort([len(text) for text in texts], kind="stable")
    portions = []
    for first in range(0, len(texts), _PORTION):
        portion = order[first : first + _PORTION]
        portions.append(encoder.encode([texts[row] for row in portion], normalise=True))
        progress("encoding", first + len(portion), len(texts))
    encoded = np.concatenate(portions)
    vectors = np.empty_like(encoded)
    vectors[order] = encoded
    return vectors


# ---- comparison with an earlier map


def detect_novelty(
    vectors: Vectors, earlier: Vectors, *, progress: Progress = silent
) -> tuple[Neighbours, float, npt.NDArray[np.bool_]]:
    """Return the nearest of at least two earlier texts to each text, the threshold, and which texts are new.

    A text is new if its cosine with the nearest earlier text is lower than that of nearly every earlier text with its
    own nearest neighbour: the more varied the earlier texts, the lower the threshold.
    """
    # the nearest is the text itself, or one with the same vector
    among = nearest_neighbours(earlier, earlier, 2, description="comparing earlier texts", progress=progress)
    threshold = float(np.quantile(among.similarities[:, 1], FALSE_ALARM_RATE))
    nearest = nearest_neighbours(vectors, earlier, 1, description="comparing with earlier texts", progress=progress)
    return nearest, threshold, nearest.similarities[:, 0] < threshold


def _compare(earlier: UtteranceMap, threshold: float, vectors: Vectors, labels: Labels) -> MapComparison:
    """Count the earlier utterances of each cluster: those whose nearest text is similar and in the cluster."""
    nearest = nearest_neighbours(earlier.vectors, vectors, 1)
    cluster_of = np.where(nearest.similarities[:, 0] >= threshold, labels[nearest.rows[:, 0]], NO_CLUSTER)
    before = np.zeros(int(labels.max()) + 1, np.int64)
    np.add.at(before, cluster_of[cluster_of != NO_CLUSTER], earlier.counts[cluster_of != NO_CLUSTER])
    return MapComparison(len(earlier), int(earlier.counts.sum()), threshold, tuple(before.tolist()))
