"""A map of what is said: texts, where they lie, which cluster they are in, and what is new since an earlier map.

A map's folder holds `map.json` (what it is, and the clusters), `utterances.parquet` (a row a text) and `vectors.safetensors`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from turnwise.assist.map.clustering import Cluster, Labels
from turnwise.assist.map.reduction import Method, Vectors
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import read_json, sync, write_whole
from turnwise.version import __version__

FORMAT = 1
DESCRIPTION, UTTERANCES, VECTORS = "map.json", "utterances.parquet", "vectors.safetensors"

#: What labelling keeps in a map's folder: a map that is labelled is not overwritten.
JOURNAL = "labels.jsonl"


class MapError(TurnwiseError):
    """A map cannot be made, read or written; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text as it was said, and where.

    Attributes:
        text: as it was said first.
        dialogue: the id of the dialogue that it was said in first; None where it is of none.
        turn: its place there, from 0.
        speaker: who said it there.
        count: how often it was said.
    """

    text: str
    dialogue: str | None = None
    turn: int | None = None
    speaker: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Since:
    """What a map is compared with, and how.

    Attributes:
        texts: how many the earlier map had.
        utterances: how often they were said.
        threshold: a text is new where its cosine with every earlier one is below this.
        before: for each cluster how many of the earlier utterances would have fallen into it, in the order of the clusters.
    """

    texts: int
    utterances: int
    threshold: float
    before: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """A map: a row a text.

    Attributes:
        utterances: the texts, no two of them the same.
        vectors: of length 1 (texts, size).
        points: where the texts lie (texts, 2).
        labels: the cluster of each; −1: none.
        clusters: in the order of their numbers.
        model: the name of the encoder.
        method: how the map was laid out.
        seed: of what was drawn at random.
        new: whether nothing like the text was in the earlier map; None: there was none.
        since: what the earlier map was; None: there was none.
    """

    utterances: Sequence[Utterance]
    vectors: Vectors
    points: Vectors
    labels: Labels
    clusters: Sequence[Cluster]
    model: str
    method: Method = "umap"
    seed: int = 0
    new: npt.NDArray[np.bool_] | None = None
    since: Since | None = None

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.utterances)

    @property
    def texts(self) -> list[str]:
        """The texts, by row."""
        return [utterance.text for utterance in self.utterances]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each text was said."""
        return np.array([utterance.count for utterance in self.utterances], np.int64)

    def save(self, folder: Path | str) -> None:
        """Writes a map's folder; a map that was there before is replaced.

        Raises:
            MapError: if the folder is a file, or holds a map that is labelled.
        """
        folder = Path(folder)
        check_out(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # `map.json` goes first and comes back last: a folder that has it is whole
        (folder / DESCRIPTION).unlink(missing_ok=True)
        pq.write_table(self._table(), folder / UTTERANCES, compression="zstd")
        save_file({"vectors": np.ascontiguousarray(self.vectors)}, folder / VECTORS)
        for name in (UTTERANCES, VECTORS):
            sync(folder / name)
        write_whole(folder / DESCRIPTION, json.dumps(self._description(), indent=2, ensure_ascii=False) + "\n")
        sync(folder)

    @classmethod
    def load(cls, folder: Path | str) -> "Map":
        """Reads what `save` wrote.

        Raises:
            MapError: if the folder holds no map, or one that this version does not read.
        """
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise MapError(f"{folder} is not a map: make one by `turnwise map STORE --out {folder}`")
        known = read_json(folder / DESCRIPTION)
        if known.get("format") != FORMAT:
            raise MapError(
                f"{folder} is a map of format {known.get('format')}, and this version reads {FORMAT}: make it anew"
            )
        table = pq.read_table(folder / UTTERANCES)
        columns = {name: table[name].to_pylist() for name in ("text", "dialogue", "turn", "speaker", "count")}
        since = known["since"]
        return cls(
            [Utterance(*row) for row in zip(*columns.values(), strict=True)],
            load_file(folder / VECTORS)["vectors"],
            np.stack([table["x"].to_numpy(), table["y"].to_numpy()], 1),
            table["cluster"].to_numpy(),
            [_cluster(entry) for entry in known["clusters"]],
            known["model"],
            known["method"],
            known["seed"],
            None if since is None else table["new"].to_numpy(),
            None if since is None else Since(**{**since, "before": tuple(since["before"])}),
        )

    def _table(self) -> pa.Table:
        columns: dict[str, Any] = {
            "text": pa.array(self.texts, pa.string()),
            "dialogue": pa.array([utterance.dialogue for utterance in self.utterances], pa.string()),
            "turn": pa.array([utterance.turn for utterance in self.utterances], pa.int32()),
            "speaker": pa.array([utterance.speaker for utterance in self.utterances], pa.string()),
            "count": pa.array(self.counts, pa.int64()),
            "x": pa.array(self.points[:, 0], pa.float32()),
            "y": pa.array(self.points[:, 1], pa.float32()),
            "cluster": pa.array(self.labels, pa.int32()),
            "new": pa.nulls(len(self), pa.bool_()) if self.new is None else pa.array(self.new, pa.bool_()),
        }
        return pa.table(columns)

    def _description(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "turnwise": __version__,
            "model": self.model,
            "method": self.method,
            "seed": self.seed,
            "texts": len(self),
            "since": None if self.since is None else asdict(self.since),
            "clusters": [asdict(cluster) for cluster in self.clusters],
        }


def check_out(folder: Path) -> None:
    """Makes sure that a map may be written to a folder, before hours are spent on it.

    Raises:
        MapError: as in `Map.save`.
    """
    if folder.exists() and not folder.is_dir():
        raise MapError(f"{folder} is a file: a map is a folder, choose another one")
    if (folder / JOURNAL).exists():
        raise MapError(
            f"{folder} holds a map that is labelled ({JOURNAL}): a new map would not fit its labels, choose another folder"
        )


def _cluster(entry: dict[str, Any]) -> Cluster:
    return Cluster(**{**entry, "words": tuple(entry["words"]), "representatives": tuple(entry["representatives"])})
