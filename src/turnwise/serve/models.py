"""Loading and replacing models. A reload loads new models beside the old ones, which finish their requests.

Classifiers that were fitted on a map's labels are in the map's folder: `intents`, then `intents-2`, `intents-3`, …
"""

import re
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.conversations.conversations import Conversations
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.storage import IntentFolder, bundled_encoder, is_classifier
from turnwise.assist.labelling.labelling import Labelling
from turnwise.assist.responses.responder import Responder
from turnwise.core.dialogue import Conversation
from turnwise.core.files import sync_to_disk
from turnwise.models.coherence import PositionScores
from turnwise.models.encoder import Encoder
from turnwise.models.identity import EncoderMismatchError
from turnwise.models.reranker import Reranker
from turnwise.serve.batching import BatchedEncoder, Batcher, ForwardPass
from turnwise.serve.settings import ServeError, ServeSettings

Observe = Callable[[ForwardPass], None]

#: The page that an evaluation writes.
REPORT = "report.html"

_INTENTS = "intents"
_INTENTS_FOLDER = re.compile(rf"{_INTENTS}(-(?P<number>[1-9][0-9]*))?")


class LockedReranker:
    """A re-ranker for several threads: a tokenizer must not be used by two at a time."""

    def __init__(self, reranker: Reranker):
        self._reranker = reranker
        self._lock = threading.Lock()

    @property
    def checks_coherence(self) -> bool:
        """Whether it was trained to find out-of-place turns."""
        return "deletion" in self._reranker.heads

    def score(self, context: Sequence[Any], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the score of each candidate."""
        with self._lock:
            return self._reranker.score(context, candidates)

    def score_all(self, pairs: Sequence[tuple[Sequence[Any], Sequence[str]]]) -> list[npt.NDArray[np.float64]]:
        """Return the scores of the candidates of each context."""
        with self._lock:
            return self._reranker.score_all(pairs)

    def out_of_place(self, dialogue: Conversation) -> PositionScores:
        """Return how out of place each turn of a conversation is."""
        with self._lock:
            return self._reranker.out_of_place(dialogue)


@dataclass(frozen=True, slots=True)
class ServedIntents:
    """An intent classifier with its examples on disk, and its encoder's batcher."""

    folder: IntentFolder
    batcher: Batcher


@dataclass(slots=True)
class LoadedModels:
    """Everything that answers requests."""

    name: str  # the encoder's
    batcher: Batcher  # the encoder's
    own_batchers: list[Batcher] = field(default_factory=list)  # of encoders that classifiers brought with them
    reranker: LockedReranker | None = None
    responder: Responder | None = None
    conversations: Conversations | None = None
    intents: ServedIntents | None = None
    labelling: Labelling | None = None
    users: int = 0  # requests that are using these models
    is_retired: bool = False  # replaced by a reload

    @property
    def encoder(self) -> BatchedEncoder:
        """The encoder, for blocking threads."""
        return BatchedEncoder(self.batcher)

    @property
    def waiting(self) -> int:
        """Texts waiting to be encoded."""
        return sum(each.waiting for each in (self.batcher, *self.own_batchers))

    def stop(self) -> None:
        """End the threads, once no request uses the models."""
        for each in (self.batcher, *self.own_batchers):
            each.close()


def check_settings(settings: ServeSettings) -> None:
    """Raise `ServeError` if a folder or file is missing, before anything is loaded."""
    for folder, option in ((settings.intents, "--intents"), (settings.map, "--map"), (settings.report, "--report")):
        if folder is not None and not folder.is_dir():
            raise ServeError(f"there is no folder {folder} ({option})")
    if settings.report is not None and not (settings.report / REPORT).is_file():
        raise ServeError(
            f"{settings.report} has no {REPORT} (--report): `turnwise evaluate MODEL --out DIR` writes one"
        )


def load_models(settings: ServeSettings, observe: Observe) -> LoadedModels:
    """Load everything except journals, which only one process may open at a time."""
    check_settings(settings)
    models = LoadedModels(settings.model, _start_batcher(Encoder.load(settings.model), settings, observe))
    try:
        if settings.reranker is not None:
            models.reranker = LockedReranker(Reranker.load(settings.reranker))
        if settings.responses is not None:
            models.responder = Responder.open(settings.responses, models.encoder, models.reranker)
        if settings.conversations is not None:
            models.conversations = Conversations.open(settings.conversations, models.encoder)
    except BaseException:
        models.stop()
        raise
    return models


def open_journals(models: LoadedModels, settings: ServeSettings, observe: Observe) -> None:
    """Open what can be changed: intent examples and map labels."""
    with ExitStack() as stack:
        if settings.map is not None:
            models.labelling = Labelling.open(settings.map)
            stack.callback(models.labelling.close)
        folder = settings.intents or (None if settings.map is None else latest_intents(settings.map))
        if folder is not None:
            models.intents = _open_intents(folder, models, settings, observe)
        stack.pop_all()


def close_journals(models: LoadedModels) -> None:
    """Let other processes open the journals; the models can still be used for reading."""
    if models.intents is not None:
        models.intents.folder.close()
    if models.labelling is not None:
        models.labelling.close()


def _open_intents(folder: Path, models: LoadedModels, settings: ServeSettings, observe: Observe) -> ServedIntents:
    """Open a classifier with the service's encoder, or with its own if it was fitted with another one."""
    if is_classifier(folder) and bundled_encoder(folder) is None:
        with suppress(EncoderMismatchError):
            return ServedIntents(IntentFolder.open(folder, encoder=models.encoder), models.batcher)
    opened = IntentFolder.open(folder)
    batcher = _start_batcher(opened.classifier.encoder_, settings, observe)
    models.own_batchers.append(batcher)
    opened.classifier.encoder_ = BatchedEncoder(batcher)
    return ServedIntents(opened, batcher)


def _start_batcher(encoder: Any, settings: ServeSettings, observe: Observe) -> Batcher:
    limits = settings.limits
    return Batcher(encoder, queue_texts=limits.queue, batch_tokens=limits.batch_tokens, observe=observe)


def fit_intents(labelling: Labelling, models: LoadedModels) -> Path:
    """Fit a classifier on a map's labels and write it, synced to disk, to a new folder in the map's.

    Earlier classifiers stay: examples may have been added to them.
    """
    classifier = labelling.fit(models.encoder)
    classifier.encoder = models.name  # saved by name, without its weights
    folder = next_intents(labelling.folder)
    temporary = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    classifier.save(temporary)
    temporary.rename(folder)
    sync_to_disk(labelling.folder)
    return folder


def replace_intents(folder: Path, models: LoadedModels, settings: ServeSettings, observe: Observe) -> IntentClassifier:
    """Use another classifier from now on; the caller holds the service's `changing` lock."""
    previous, models.intents = models.intents, _open_intents(folder, models, settings, observe)
    if previous is not None:
        previous.folder.close()
    return models.intents.folder.classifier


def latest_intents(map_folder: Path) -> Path | None:
    """Return the folder of the classifier that was fitted last on a map's labels, if any."""
    numbers = _numbers(map_folder)
    return _numbered(map_folder, max(numbers)) if numbers else None


def next_intents(map_folder: Path) -> Path:
    """Return the folder for the next classifier that is fitted on a map's labels."""
    return _numbered(map_folder, max(_numbers(map_folder), default=0) + 1)


def _numbered(map_folder: Path, number: int) -> Path:
    return map_folder / (_INTENTS if number == 1 else f"{_INTENTS}-{number}")


def _numbers(map_folder: Path) -> list[int]:
    matches = [_INTENTS_FOLDER.fullmatch(each.name) for each in map_folder.iterdir() if each.is_dir()]
    return [int(match["number"] or 1) for match in matches if match is not None]
