"""Hard negatives: for every response, other responses that an encoder would have given instead.

A response near a conversation in an encoder's space is about the same topic and yet was not given, which is what a
re-ranker has to tell from the true response. Neighbours are searched once, by matrix products of blocks of
conversations with the candidates' vectors.
"""

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from turnwise.core.dialogue import Turn
from turnwise.core.files import sha256
from turnwise.core.progress import Progress, silent
from turnwise.corpus.storage.corpus import Corpus
from turnwise.models.backbone.source import locate_model
from turnwise.models.encoder import TOKENISE_BATCH, Encoder
from turnwise.objectives.objective import TurnTable
from turnwise.training.disk_cache import TrainingCorpus

#: A conversation is represented by its last turns, and by this many tokens at most; so is a response.
HISTORY = 4
MAX_LENGTH = 128

#: Candidate responses at most; of more, a random sample.
CANDIDATES = 100_000
SEED = 0

#: Conversations per matrix product: at most 200 MB of similarities.
QUERIES = 512

#: Suffixes of the files that determine a model's vectors.
_MODEL_FILES = (".json", ".txt", ".model", ".safetensors")

_Turns = npt.NDArray[np.int64]


def mine_hard_negatives(
    corpus: TrainingCorpus,
    texts: TurnTable,
    miner: str,
    progress: Progress = silent,
    count: int = 16,
    stores: Sequence[int] | None = None,
) -> npt.NDArray[np.int32]:
    """Find every response's hard negatives, unless they are cached, without changing torch's random state.

    The query is the last `HISTORY` turns before the response. Candidates are the corpus's responses, each distinct text
    once, as the first turn that has it. Texts of the response's own dialogue are no candidates. `miner` is the encoder:
    anything that `Encoder.load` accepts. `stores` are the numbers of the stores whose responses get hard negatives, and
    are candidates; None: all.

    Returns:
        Turn numbers (turns, count), memory-mapped, nearest first and padded with -1; none for the first turn of a
        dialogue.
    """
    chosen = list(range(len(corpus.dialogues.stores)) if stores is None else stores)
    model = locate_model(miner)
    files = sorted(path for path in model.rglob("*") if path.suffix in _MODEL_FILES and path.is_file())
    hashes = [f"{path.relative_to(model)} {sha256(path)}" for path in files]
    settings = f"{count} of {CANDIDATES}, seed {SEED}, {HISTORY} turns, {MAX_LENGTH} tokens"

    def write(folder: Path) -> None:
        table = np.lib.format.open_memmap(folder / "negatives.npy", "w+", np.int32, (len(texts), count))
        table[:] = -1
        with torch.random.fork_rng(devices=[]):  # loading initialises weights before it replaces them
            encoder = Encoder.load(model)
            search = _ResponseSearch(corpus.dialogues, texts, chosen, encoder, progress)
            histories = (
                dialogue.turns[max(0, place - HISTORY) : place]
                for store in chosen
                for dialogue in corpus.dialogues.read(corpus.dialogues.stores[store])
                for place in range(1, len(dialogue.turns))
            )
            for first in range(0, len(search.responses), TOKENISE_BATCH):
                progress("mining hard negatives", first, len(search.responses))
                vectors = _encode(encoder, list(islice(histories, TOKENISE_BATCH)))
                responses = search.responses[first : first + TOKENISE_BATCH]
                for start in range(0, len(responses), QUERIES):
                    block = responses[start : start + QUERIES]
                    nearest = search.nearest(block, vectors[start : start + QUERIES], count)
                    table[block, : nearest.shape[1]] = nearest
            progress("mining hard negatives", len(search.responses), len(search.responses))
        table.flush()

    folder = corpus.derive("negatives", [*corpus.identity, settings, f"stores {chosen}", *hashes], write)
    table: npt.NDArray[np.int32] = np.load(folder / "negatives.npy", mmap_mode="r")
    return table


class _ResponseSearch:
    """Nearest-neighbour search among the candidate responses."""

    def __init__(self, corpus: Corpus, texts: TurnTable, stores: Sequence[int], encoder: Encoder, progress: Progress):
        is_response = np.zeros(len(texts), np.bool_)
        for store in stores:
            is_response[texts.store_starts[store] : texts.store_starts[store + 1]] = True
        is_response[texts.dialogue_starts[:-1]] = False
        #: The turns that respond to another.
        self.responses: _Turns = np.flatnonzero(is_response)
        self._starts = texts.dialogue_starts
        #: The first response of each text in ascending order, or a sample of these.
        self._candidates = np.sort(self.responses[np.unique(texts.identities[self.responses], return_index=True)[1]])
        if len(self._candidates) > CANDIDATES:
            random = np.random.default_rng(SEED)
            self._candidates = np.sort(random.choice(self._candidates, CANDIDATES, replace=False))
        # turn → the candidate that has its text, or -1
        distinct, numbers = np.unique(texts.identities, return_inverse=True)
        by_text = np.full(len(distinct), -1, np.int64)
        by_text[numbers[self._candidates]] = np.arange(len(self._candidates))
        self._columns = by_text[numbers]
        progress("encoding responses", 0, len(self._candidates))
        wanted = set(self._candidates.tolist())
        turns = chain.from_iterable(dialogue.turns for dialogue in corpus)
        vectors = _encode(encoder, [(turn,) for number, turn in enumerate(turns) if number in wanted])
        self._vectors = torch.from_numpy(vectors).to(encoder.device)

    def nearest(self, responses: _Turns, queries: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int32]:
        """Return the hard negatives of some responses (responses, at most `count`), nearest first, padded with -1."""
        similarities = torch.from_numpy(queries).to(self._vectors.device) @ self._vectors.T
        rows, columns = map(torch.from_numpy, self._own_texts(responses))
        similarities[rows.to(similarities.device), columns.to(similarities.device)] = -torch.inf
        nearest = similarities.topk(min(count, similarities.shape[1]))
        turns = self._candidates[nearest.indices.cpu().numpy()]
        return np.where(nearest.values.isneginf().cpu().numpy(), -1, turns).astype(np.int32)

    def _own_texts(self, responses: _Turns) -> tuple[_Turns, _Turns]:
        """Return (rows, columns) of the similarities with texts of the responses' own dialogues."""
        dialogues = np.searchsorted(self._starts, responses, "right") - 1
        starts, lengths = self._starts[dialogues], np.diff(self._starts)[dialogues]
        rows = np.repeat(np.arange(len(responses)), lengths)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns = self._columns[starts[rows] + within]
        return rows[columns >= 0], columns[columns >= 0]


def _encode(encoder: Encoder, conversations: Sequence[Sequence[Turn]]) -> npt.NDArray[np.float32]:
    return encoder.encode(conversations, normalise=True, max_length=MAX_LENGTH)
