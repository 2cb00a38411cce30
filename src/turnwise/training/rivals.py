"""Hard negatives: for every turn that answers another, the turns that an encoder would have answered with instead.

What an encoder places near a conversation is about the same matter and yet was not said, which is what a re-ranker has to tell from
the true answer. Neighbours are found once, by products of blocks of conversations with the answers' vectors: the table of all
products is never held.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from turnwise.core.dialogue import Turn
from turnwise.core.files import sha256
from turnwise.core.progress import Progress, silent
from turnwise.corpus.store import Corpus
from turnwise.models.backbone.source import locate
from turnwise.models.encoder import TOKENISED, Encoder
from turnwise.training.cache import corpus_source, once
from turnwise.training.tokens import RivalTable, TokenTable

#: Turns of a conversation that stand for it, the newest, and their tokens at most; an answer is cut to as many.
HISTORY = 4
MAX_LENGTH = 128

#: Answers to choose from at most; of more, so many are drawn.
CANDIDATES = 100_000
SEED = 0

#: Conversations that are compared with all answers at a time: a block has at most 200 MB of products.
QUERIES = 512

#: What a model is made of; cards and logs beside it do not change its vectors.
_MODEL_FILES = (".json", ".txt", ".model", ".safetensors")

_Numbers = npt.NDArray[np.int64]


def find_rivals(
    corpus: Corpus, texts: TokenTable, miner: str, folder: Path, progress: Progress = silent, most: int = 16
) -> RivalTable:
    """Finds every answer's rivals, unless that was done before; torch's random numbers go on as if it had not.

    A conversation is looked for by its last `HISTORY` turns before the answer. To choose from are the corpus' answers, each text
    once, as the first turn that gives it. Texts that the answer's own dialogue says are no rivals: they are the truth, or part
    of the conversation.

    Args:
        corpus: its dialogues.
        texts: its turns, tokenised.
        miner: the encoder: what `Encoder.load` takes.
        folder: where the table is kept.
        progress: told how many answers have theirs.
        most: rivals of an answer.

    Raises:
        BackboneError: if there is no such encoder.
    """
    settings = f"{most} of {CANDIDATES}, seed {SEED}, {HISTORY} turns, {MAX_LENGTH} tokens"
    made_of = [*corpus_source(corpus), settings, *_contents(locate(miner))]

    def write(place: Path) -> None:
        found = np.lib.format.open_memmap(place / "rivals.npy", "w+", np.int32, (len(texts), most))
        found[:] = -1
        with torch.random.fork_rng(devices=[]):  # loading draws weights that are then replaced; heads come after
            encoder = Encoder.load(miner)
            search = _Search(corpus, texts, encoder, progress)
            answers = search.answers
            histories = _histories(corpus)
            for first in range(0, len(answers), TOKENISED):
                told = _told(progress, "finding rivals", first, len(answers))
                vectors = _vectors(encoder, list(islice(histories, TOKENISED)), told)
                encoded = answers[first : first + TOKENISED]
                for start in range(0, len(encoded), QUERIES):
                    block = encoded[start : start + QUERIES]
                    nearest = search.nearest(block, vectors[start : start + QUERIES], most)
                    found[block, : nearest.shape[1]] = nearest
        found.flush()

    return RivalTable(once(folder, "rivals", made_of, write))


class _Search:
    """The answers to choose from, as vectors, and what must not be chosen."""

    def __init__(self, corpus: Corpus, texts: TokenTable, encoder: Encoder, progress: Progress):
        opening = np.zeros(len(texts), np.bool_)
        opening[texts.dialogue_starts[:-1]] = True
        #: The turns that answer another.
        self.answers: _Numbers = np.flatnonzero(~opening)
        self._starts = texts.dialogue_starts
        self._candidates = _candidates(texts, self.answers)
        self._columns = _columns(texts, self._candidates)
        told = _told(progress, "encoding answers", 0, len(self._candidates))
        vectors = _vectors(encoder, [(turn,) for turn in _turns(corpus, self._candidates)], told)
        self._vectors = torch.from_numpy(vectors).to(encoder.backbone.device)

    def nearest(self, answers: _Numbers, histories: npt.NDArray[np.float32], most: int) -> npt.NDArray[np.int32]:
        """The rivals of some answers (answers, at most `most`), nearest first, −1 where there are none."""
        products = torch.from_numpy(histories).to(self._vectors.device) @ self._vectors.T
        rows, columns = map(torch.from_numpy, self._own(answers))
        products[rows.to(products.device), columns.to(products.device)] = -torch.inf
        nearest = products.topk(min(most, products.shape[1]))
        found = self._candidates[nearest.indices.cpu().numpy()]
        return np.where(nearest.values.isneginf().cpu().numpy(), -1, found).astype(np.int32)

    def _own(self, answers: _Numbers) -> tuple[_Numbers, _Numbers]:
        """The places (rows, columns) of what the answers' own dialogues say, among all products of a block."""
        dialogues = np.searchsorted(self._starts, answers, "right") - 1
        starts, lengths = self._starts[dialogues], np.diff(self._starts)[dialogues]
        rows = np.repeat(np.arange(len(answers)), lengths)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns = self._columns[starts[rows] + within]
        return rows[columns >= 0], columns[columns >= 0]


def _candidates(texts: TokenTable, answers: _Numbers) -> _Numbers:
    """The turns to choose from, in their order: the first answer of each text, or a drawing of these."""
    _, firsts = np.unique(texts.identities[answers], return_index=True)
    distinct = answers[np.sort(firsts)]
    if len(distinct) <= CANDIDATES:
        return distinct
    return np.sort(np.random.default_rng(SEED).choice(distinct, CANDIDATES, replace=False))


def _columns(texts: TokenTable, candidates: _Numbers) -> _Numbers:
    """For every turn, which of the candidates has its text; −1 where none has."""
    distinct, numbers = np.unique(texts.identities, return_inverse=True)
    columns = np.full(len(distinct), -1, np.int64)
    columns[numbers[candidates]] = np.arange(len(candidates))
    return columns[numbers]


def _turns(corpus: Corpus, wanted: _Numbers) -> list[Turn]:
    """Some turns of a corpus, by their numbers in ascending order."""
    numbers = set(wanted.tolist())
    turns = chain.from_iterable(dialogue.turns for dialogue in corpus)
    return [turn for number, turn in enumerate(turns) if number in numbers]


def _histories(corpus: Corpus) -> Iterator[tuple[Turn, ...]]:
    """What was said before every answer, as far as it is looked at."""
    for dialogue in corpus:
        for place in range(1, len(dialogue.turns)):
            yield dialogue.turns[max(0, place - HISTORY) : place]


def _vectors(encoder: Encoder, conversations: Sequence[Sequence[Turn]], progress: Progress) -> npt.NDArray[np.float32]:
    return encoder.encode(conversations, normalise=True, max_length=MAX_LENGTH, progress=progress)


def _told(progress: Progress, whole: str, before: int, size: int) -> Progress:
    """Tells how much of a whole is done, of which an encoder sees one part."""

    def tell(what: str, done: int, total: int | None = None) -> None:
        progress(whole, before + done, size)

    return tell


def _contents(model: Path) -> list[str]:
    """What tells a model from others: the files that it is loaded from."""
    files = sorted(path for path in model.rglob("*") if path.suffix in _MODEL_FILES and path.is_file())
    return [f"{path.relative_to(model)} {sha256(path)}" for path in files]
